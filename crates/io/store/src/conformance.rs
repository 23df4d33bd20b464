//! What every [`ObjectStore`] must do, as cases that any implementation runs: `conformance::run(make)`.
//!
//! The random case compares the store with a model of plain vectors and maps after every transaction; it
//! prints its seed when it fails.

use crate::{Completion, ObjectStore, StoreState};
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_txn::{EXTENT_BYTES, Extents, FetchFrom, Op, ReadError, StoreToken, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Eversion, HObject, PgId, SnapId, SpgId};
use std::collections::BTreeMap;

/// Seeds of the random case in a normal run.
const SEEDS: u64 = 20;
/// Transactions per seed.
const TRANSACTIONS: u64 = 400;
/// Length bound of an object in the random case.
const OBJECT_BYTES_MAX: u64 = 40_000;

/// Runs all cases, each on a store of its own from `make`.
///
/// # Panics
/// When the store does not conform; the message says what and, in the random case, from which seed.
pub fn run<S: ObjectStore>(mut make: impl FnMut() -> S) {
    completions_come_once_and_in_order(make());
    collections_come_and_go(make());
    clone_is_exact_and_independent(make());
    extents_are_cloned_and_put_back(make());
    rename_replaces(make());
    log_appends_trims_and_rewinds(make());
    omap_pages_and_ranges(make());
    listing_is_ordered_and_paged(make());
    pg_meta_is_found_by_prefix(make());
    a_split_moves_objects_and_nothing_else(make());
    a_merge_undoes_a_split(make());
    large_collections_go_bit_by_bit(make());
    ranges_move_between_collections(make());
    for seed in 0..SEEDS {
        agrees_with_the_model(make(), seed);
    }
}

fn a_split_moves_objects_and_nothing_else<S: ObjectStore>(mut store: S) {
    const PG_NUM: u32 = 8;
    let names: Vec<String> = (0..64).map(|n| format!("o{n}")).collect();
    let child = SpgId::replicated(PgId::new(3, 5));
    let mut ops: Vec<Op> = names.iter().map(|name| write(name, 0, "content")).collect();
    ops.push(Op::LogAppend { version: Eversion::new(1, 1), entry: bytes("parent's") });
    ops.push(Op::MetaSet { key: ByteStr::from_static("info"), value: bytes("parent's") });
    submit(&mut store, ops);
    let before = store.usage();
    let inside = vec![
        Op::LogAppend { version: Eversion::new(1, 2), entry: bytes("child's") },
        Op::MetaSet { key: ByteStr::from_static("info"), value: bytes("child's") },
    ];
    submit(&mut store, vec![Op::Split { child, pg_num: PG_NUM, ops: inside }]);
    let found = |at: &SpgId| store.list(at, &HObject::MIN, usize::MAX);
    let (moved, kept) = (found(&child), found(&pg()));
    assert!(!moved.is_empty() && moved.iter().all(|object| object.pg(PG_NUM) == child.pg));
    assert!(kept.iter().all(|object| object.pg(PG_NUM) != child.pg));
    assert_eq!(moved.len() + kept.len(), names.len());
    for object in &moved {
        assert_eq!(read(&mut store, &child, object), bytes("content"));
    }
    assert_eq!((store.log(&pg()), store.log(&child)), (vec![bytes("parent's")], vec![bytes("child's")]));
    assert_eq!(store.pg_meta(&child, b"info"), [(ByteStr::from_static("info"), bytes("child's"))]);
    assert_eq!(store.usage().stored_bytes, before.stored_bytes);
}

fn ranges_move_between_collections<S: ObjectStore>(mut store: S) {
    const PG_NUM: u32 = 8;
    let other = SpgId::replicated(PgId::new(3, 5));
    let names: Vec<String> = (0..64).map(|n| format!("o{n}")).collect();
    submit(&mut store, names.iter().map(|name| write(name, 0, "content")).collect());
    let found = |store: &S, at: &SpgId| store.list(at, &HObject::MIN, usize::MAX);
    let all = found(&store, &pg());
    let belongs = |object: &&HObject| object.pg(PG_NUM) == other.pg;
    let due: Vec<HObject> = all.iter().filter(belongs).cloned().collect();
    let (stored, middle) = (store.usage().stored_bytes, due[due.len() / 2].clone());
    let step = |from: &HObject, until: &HObject, ops: Vec<Op>| Op::Move {
        target: other,
        pg_num: PG_NUM,
        from: from.clone(),
        until: until.clone(),
        ops,
    };
    let info = vec![Op::MetaSet { key: "info".into(), value: bytes("moving") }];
    submit(&mut store, vec![step(&HObject::MIN, &middle, info)]);
    let half = &due[..due.len() / 2];
    assert!(!half.is_empty() && found(&store, &other) == half);
    assert_eq!(found(&store, &pg()).len(), all.len() - half.len());
    assert_eq!(store.pg_meta(&other, b""), [("info".into(), bytes("moving"))]);
    // Again, and with an empty range: nothing moves; one of those that come is here already, in another state.
    submit(&mut store, vec![step(&HObject::MIN, &middle, Vec::new())]);
    submit(&mut store, vec![step(&HObject::max_value(), &HObject::max_value(), Vec::new())]);
    let twin = middle.clone();
    let old = vec![Op::Write { object: twin.clone(), offset: 0, data: bytes("old").into() }];
    submit(&mut store, vec![step(&HObject::max_value(), &HObject::max_value(), old)]);
    assert_eq!(read(&mut store, &other, &twin), bytes("old"));
    submit(&mut store, vec![step(&middle, &HObject::max_value(), Vec::new())]);
    assert_eq!(found(&store, &other), due);
    for object in &due {
        assert_eq!(read(&mut store, &other, object), bytes("content"));
        assert_eq!(store.meta(&pg(), object), None);
    }
    assert_eq!(store.usage().stored_bytes, stored);
}

/// Nobody finds what was in them, also not in a collection that is made in their place, and no call takes it all away.
fn large_collections_go_bit_by_bit<S: ObjectStore>(mut store: S) {
    const OBJECTS: usize = 1500;
    const AT_ONCE_MAX: u64 = 512;
    let mut ops: Vec<Op> = Vec::new();
    for n in 0..OBJECTS {
        let object = object(&format!("o{n}"));
        let entries = vec![("k".into(), bytes("v"))];
        ops.push(Op::OmapSet { object, entries });
        ops.push(Op::MetaSet { key: format!("v{n}").into(), value: bytes("old") });
    }
    submit(&mut store, ops);
    let mut before = store.usage().omap_bytes;
    assert_eq!(before, 2 * OBJECTS as u64);
    let again = vec![Op::RemoveCollection, Op::CreateCollection, write("o7", 0, "new")];
    store.submit(Transaction { collection: pg(), ops: again }, StoreToken::without_pg(0)).expect("room");
    assert!(before - store.usage().omap_bytes <= 2 * AT_ONCE_MAX, "by the transaction itself");
    before = store.usage().omap_bytes;
    let mut steps = 0;
    while store.usage().omap_bytes > 0 || store.state() == StoreState::HasWork {
        assert_eq!(store.list(&pg(), &HObject::MIN, usize::MAX), [object("o7")]);
        assert!(store.pg_meta(&pg(), b"").is_empty());
        store.drain(&mut Vec::new());
        let left = store.usage().omap_bytes;
        assert!(before - left <= 2 * AT_ONCE_MAX, "{before} bytes, then {left}");
        before = left;
        steps += 1;
        assert!(steps < 100_000, "no end");
    }
    assert_eq!(store.omap_value(&pg(), &object("o7"), b"k"), None);
    assert_eq!(content(&mut store, "o7"), bytes("new"));
    submit(&mut store, vec![Op::RemoveCollection]);
    assert!(store.collections().is_empty());
}

fn a_merge_undoes_a_split<S: ObjectStore>(mut store: S) {
    let child = SpgId::replicated(PgId::new(3, 5));
    let names: Vec<String> = (0..64).map(|n| format!("o{n}")).collect();
    let mut ops: Vec<Op> = names.iter().map(|name| write(name, 0, "content")).collect();
    ops.push(Op::OmapSet { object: object("o7"), entries: vec![(ByteStr::from_static("k"), bytes("v"))] });
    submit(&mut store, ops);
    let before = (store.list(&pg(), &HObject::MIN, usize::MAX), store.usage());
    let inside = vec![
        Op::LogAppend { version: Eversion::new(1, 2), entry: bytes("child's") },
        Op::MetaSet { key: ByteStr::from_static("info"), value: bytes("child's") },
    ];
    submit(&mut store, vec![Op::Split { child, pg_num: 8, ops: inside }]);
    assert_ne!(store.list(&pg(), &HObject::MIN, usize::MAX), before.0);
    // One of the objects that come is here as well, in another state.
    let twin = store.list(&child, &HObject::MIN, 1).remove(0);
    submit(&mut store, vec![Op::Write { object: twin, offset: 0, data: bytes("old").into() }]);
    submit(&mut store, vec![Op::Merge { source: child }]);
    assert_eq!(store.list(&pg(), &HObject::MIN, usize::MAX), before.0);
    assert_eq!(store.usage().stored_bytes, before.1.stored_bytes);
    assert!(names.iter().all(|name| content(&mut store, name) == bytes("content")));
    assert_eq!(store.omap_value(&pg(), &object("o7"), b"k"), Some(bytes("v")));
    assert!(store.log(&pg()).is_empty() && store.log(&child).is_empty());
    assert!(store.pg_meta(&child, b"").is_empty() && !store.collections().contains(&child));
    submit(&mut store, vec![Op::Merge { source: child }]);
    assert_eq!(store.list(&pg(), &HObject::MIN, usize::MAX), before.0, "there was nothing to move");
}

fn pg() -> SpgId {
    SpgId::replicated(PgId::new(3, 1))
}

fn object(name: &str) -> HObject {
    HObject::head(3, ByteStr::EMPTY, ByteStr::EMPTY, name.into())
}

fn submit<S: ObjectStore>(store: &mut S, ops: Vec<Op>) {
    store
        .submit(Transaction { collection: pg(), ops }, StoreToken::without_pg(0))
        .expect("room for the suite's data");
    store.drain(&mut Vec::new());
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn write(name: &str, offset: u64, text: &'static str) -> Op {
    Op::Write { object: object(name), offset, data: bytes(text).into() }
}

/// All of an object; what is not in memory is fetched.
fn read<S: ObjectStore>(store: &mut S, at: &SpgId, object: &HObject) -> Bytes {
    const FETCH: StoreToken = StoreToken::without_pg(u64::MAX);
    for _ in 0..100 {
        match store.read(at, object, 0, u64::MAX) {
            Ok(data) => return data.to_bytes(),
            Err(ReadError::Pending { .. }) => {
                store.fetch(at, object, 0, u64::MAX, FetchFrom::Anywhere, FETCH)
            }
            Err(error) => panic!("{object}: {error}"),
        }
        let mut done = Vec::new();
        while !done.contains(&Completion::Fetched(FETCH)) {
            store.drain(&mut done);
        }
    }
    panic!("fetched data of {object} never showed");
}

fn content<S: ObjectStore>(store: &mut S, name: &str) -> Bytes {
    read(store, &pg(), &object(name))
}

/// Waits for the tokens of everything submitted, in a store that may need time.
fn completions_come_once_and_in_order<S: ObjectStore>(mut store: S) {
    for token in 1..=5 {
        let txn = Transaction { collection: pg(), ops: vec![write("a", token, "x")] };
        store.submit(txn, StoreToken::without_pg(token)).expect("room");
    }
    let mut done = Vec::new();
    while done.len() < 5 {
        store.drain(&mut done);
    }
    let due = (1..=5).map(|number| Completion::Durable(StoreToken::without_pg(number)));
    assert_eq!(done, due.collect::<Vec<_>>());
    store.drain(&mut done);
    assert_eq!(done.len(), 5, "a completion came twice");
}

fn collections_come_and_go<S: ObjectStore>(mut store: S) {
    assert!(store.collections().is_empty());
    submit(&mut store, vec![Op::CreateCollection]);
    submit(&mut store, vec![Op::CreateCollection, write("a", 0, "data")]);
    assert_eq!(store.collections(), [pg()]);
    assert_eq!(store.meta(&pg(), &object("a")), Some(Bytes::new()));
    submit(&mut store, vec![Op::RemoveCollection]);
    assert!(store.collections().is_empty());
    assert_eq!(store.meta(&pg(), &object("a")), None);
    assert!(content(&mut store, "a").is_empty());
    assert_eq!(store.usage().allocated_bytes, 0);
}

fn clone_is_exact_and_independent<S: ObjectStore>(mut store: S) {
    let (head, clone) = (object("a"), object("a").with_snap(SnapId(4)));
    submit(
        &mut store,
        vec![
            write("a", 2, "data"),
            Op::SetMeta { object: head.clone(), meta: bytes("m") },
            Op::SetAttr { object: head.clone(), name: "k".into(), value: bytes("v") },
            Op::OmapSet { object: head.clone(), entries: vec![("o".into(), bytes("w"))] },
            Op::OmapSetHeader { object: head.clone(), header: bytes("h") },
            Op::Clone { source: head.clone(), target: clone.clone() },
            write("a", 0, "changed"),
            Op::ClearAttrs(head.clone()),
            Op::OmapClear(head.clone()),
        ],
    );
    assert_eq!(&content(&mut store, "a")[..], b"changed");
    let copy = read(&mut store, &pg(), &clone);
    assert_eq!(&copy[..], b"\0\0data");
    assert_eq!(store.extents(&pg(), &clone, 0, 100).first().map(|(at, len)| at + len), Some(6));
    assert_eq!(store.meta(&pg(), &clone), Some(bytes("m")));
    assert_eq!(store.attr(&pg(), &clone, b"k"), Some(bytes("v")));
    assert_eq!(store.omap_value(&pg(), &clone, b"o"), Some(bytes("w")));
    assert_eq!(store.omap_header(&pg(), &clone), bytes("h"));
    assert!(store.attrs(&pg(), &head).is_empty() && store.omap_header(&pg(), &head).is_empty());
}

/// What a write in place does: its extents are kept, then it is made, then they are put back.
fn extents_are_cloned_and_put_back<S: ObjectStore>(mut store: S) {
    let (head, kept) = (object("a"), object("a").with_snap(SnapId(4)));
    let block = usize::try_from(EXTENT_BYTES).expect("small");
    let extents = Extents::new([(EXTENT_BYTES, EXTENT_BYTES), (4 * EXTENT_BYTES, EXTENT_BYTES)]);
    let extents = extents.expect("whole blocks");
    let fill = |offset: u64, byte: u8, blocks: usize| {
        let data = BufList::from(vec![byte; blocks * block]);
        Op::Write { object: object("a"), offset, data }
    };
    let clone = |source: &HObject, target: &HObject| {
        let (source, target, extents) = (source.clone(), target.clone(), extents.clone());
        Op::CloneExtents { source, target, extents }
    };
    submit(
        &mut store,
        vec![
            fill(0, b'x', 4),
            write("a", 4 * EXTENT_BYTES, "short"),
            Op::SetMeta { object: head.clone(), meta: bytes("m") },
            Op::SetAttr { object: head.clone(), name: "k".into(), value: bytes("v") },
            Op::OmapSet { object: head.clone(), entries: vec![("o".into(), bytes("w"))] },
            Op::OmapSetHeader { object: head.clone(), header: bytes("h") },
        ],
    );
    let before = content(&mut store, "a");
    let has_all = |store: &S, object: &HObject| {
        assert_eq!(store.meta(&pg(), object), Some(bytes("m")));
        assert_eq!(store.attrs(&pg(), object), [("k".into(), bytes("v"))].into());
        assert_eq!(store.omap_value(&pg(), object, b"o"), Some(bytes("w")));
        assert_eq!(store.omap_value(&pg(), object, b"p"), None);
        assert_eq!(store.omap_header(&pg(), object), bytes("h"));
    };
    submit(
        &mut store,
        vec![
            clone(&head, &kept),
            write("a", EXTENT_BYTES + 1, "changed"),
            fill(4 * EXTENT_BYTES, b'y', 3),
            Op::SetMeta { object: head.clone(), meta: bytes("n") },
            Op::SetAttr { object: head.clone(), name: "l".into(), value: bytes("w") },
            Op::OmapSet { object: head.clone(), entries: vec![("p".into(), bytes("q"))] },
            Op::OmapSetHeader { object: head.clone(), header: bytes("i") },
        ],
    );
    let copy = read(&mut store, &pg(), &kept);
    let expected = [vec![0; block], vec![b'x'; block], vec![0; 2 * block], b"short".to_vec()].concat();
    assert!(copy == expected, "only these extents");
    let held: u64 = store.extents(&pg(), &kept, 0, u64::MAX).iter().map(|(_, length)| length).sum();
    assert!(held <= 2 * EXTENT_BYTES, "the rest are holes");
    has_all(&store, &kept);
    assert!(content(&mut store, "a") != before);
    submit(&mut store, vec![clone(&kept, &head), Op::Remove(kept.clone())]);
    assert!(content(&mut store, "a") == before, "as it was");
    has_all(&store, &head);
    // Of nothing, and of itself.
    let nothing = object("nothing");
    submit(&mut store, vec![clone(&head, &head), clone(&nothing, &kept)]);
    assert!(content(&mut store, "a") == before);
    assert_eq!(store.meta(&pg(), &kept), Some(Bytes::new()));
    assert!(read(&mut store, &pg(), &kept).is_empty() && store.meta(&pg(), &nothing).is_none());
    submit(&mut store, vec![Op::Remove(head), Op::Remove(kept)]);
    assert_eq!((store.usage().allocated_bytes, store.usage().omap_bytes), (0, 0));
}

fn rename_replaces<S: ObjectStore>(mut store: S) {
    submit(
        &mut store,
        vec![
            write("a", 0, "new"),
            write("b", 0, "old and longer"),
            Op::Rename { source: object("a"), target: object("b") },
        ],
    );
    assert_eq!(&content(&mut store, "b")[..], b"new");
    assert_eq!(store.meta(&pg(), &object("a")), None);
}

fn log_appends_trims_and_rewinds<S: ObjectStore>(mut store: S) {
    let append = |version, text| Op::LogAppend { version: Eversion::new(2, version), entry: bytes(text) };
    submit(&mut store, vec![append(1, "one"), append(2, "two")]);
    submit(&mut store, vec![append(3, "three"), append(4, "four")]);
    assert_eq!(store.log(&pg()), ["one", "two", "three", "four"].map(bytes));
    submit(&mut store, vec![Op::LogTrim { to: Eversion::new(2, 1) }]);
    submit(&mut store, vec![Op::LogRewind { to: Eversion::new(2, 3) }]);
    assert_eq!(store.log(&pg()), ["two", "three"].map(bytes));
}

fn omap_pages_and_ranges<S: ObjectStore>(mut store: S) {
    let keys = ["a", "b", "c", "d", "e"];
    let entries = keys.map(|key| (ByteStr::from(key), bytes("v"))).to_vec();
    submit(&mut store, vec![Op::OmapSet { object: object("o"), entries }]);
    let page = |from: &str, count| store.omap_page(&pg(), &object("o"), from.as_bytes(), count, 1 << 20);
    let names = |from, count| -> Vec<String> {
        page(from, count).entries.iter().map(|(key, _)| key.to_text()).collect()
    };
    assert_eq!(names("", 2), ["a", "b"]);
    assert!(page("", 2).more && page("d", 1).more && !page("d", 2).more && !page("", 5).more);
    assert_eq!(names("bb", 9), ["c", "d", "e"]);
    assert!(store.omap_page(&pg(), &object("o"), b"", 9, 1).more, "a byte limit also ends a page");
    submit(
        &mut store,
        vec![
            Op::OmapRemoveRange { object: object("o"), first: "b".into(), last: "d".into() },
            Op::OmapRemove { object: object("o"), keys: vec!["e".into(), "nothing".into()] },
        ],
    );
    let left = store.omap_page(&pg(), &object("o"), b"", 9, 1 << 20);
    assert_eq!(left.entries.iter().map(|(key, _)| key.to_text()).collect::<Vec<_>>(), ["a", "d"]);
}

fn listing_is_ordered_and_paged<S: ObjectStore>(mut store: S) {
    let mut all: Vec<HObject> = (0..50).map(|n| object(&format!("o{n}"))).collect();
    submit(&mut store, all.iter().cloned().map(Op::Touch).collect());
    all.sort();
    assert_eq!(store.list(&pg(), &HObject::MIN, 100), all);
    assert_eq!(store.list(&pg(), &all[20], 5), all[20..25]);
    assert!(store.list(&pg(), &HObject::max_value(), 5).is_empty());
}

fn pg_meta_is_found_by_prefix<S: ObjectStore>(mut store: S) {
    let set = |key: &str, value| Op::MetaSet { key: key.into(), value: bytes(value) };
    submit(&mut store, vec![set("info", "1"), set("snap/1", "2"), set("snap/2", "3"), set("z", "4")]);
    submit(&mut store, vec![set("info", "5"), Op::MetaRemove { key: "snap/1".into() }]);
    assert_eq!(store.pg_meta(&pg(), b"snap/"), [("snap/2".into(), bytes("3"))]);
    assert_eq!(store.pg_meta(&pg(), b"info"), [("info".into(), bytes("5"))]);
    assert_eq!(store.pg_meta(&pg(), b"").len(), 3);
}

#[derive(Clone, Default, PartialEq, Debug)]
struct ModelObject {
    data: Vec<u8>,
    attrs: BTreeMap<ByteStr, Bytes>,
    omap: BTreeMap<ByteStr, Bytes>,
    meta: Bytes,
}

type Model = BTreeMap<HObject, ModelObject>;

fn agrees_with_the_model<S: ObjectStore>(mut store: S, seed: u64) {
    let mut rng = SeededEntropy(seed);
    let mut model = Model::new();
    for step in 0..TRANSACTIONS {
        let ops: Vec<Op> = (0..=rng.u64() % 4).map(|_| random_op(&mut rng)).collect();
        ops.iter().for_each(|op| apply_to_model(&mut model, op));
        submit(&mut store, ops.clone());
        let found = observe(&mut store);
        assert_eq!(found, model, "seed {seed}, transaction {step}: {ops:?}");
    }
}

fn random_op(rng: &mut SeededEntropy) -> Op {
    let mut pick = |below: u64| rng.u64() % below;
    let object = object(&format!("o{}", pick(4)));
    let (offset, length) = (pick(OBJECT_BYTES_MAX / 2), pick(OBJECT_BYTES_MAX / 2));
    let key = ByteStr::from(format!("k{}", pick(6)));
    let value = Bytes::from(format!("v{}", pick(1000)));
    let extent = |value: u64| value / EXTENT_BYTES * EXTENT_BYTES;
    match pick(14) {
        0 => Op::Touch(object),
        1..=4 => {
            let fill = pick(256).to_le_bytes()[0];
            let data = vec![fill; usize::try_from(length).unwrap_or_default()];
            Op::Write { object, offset, data: BufList::from(data) }
        }
        5 => Op::Zero { object, offset, length },
        6 => Op::Truncate { object, size: offset },
        7 => Op::Remove(object),
        8 => Op::Clone { source: object, target: self::object("o0") },
        9 => Op::SetAttr { object, name: key, value },
        10 => Op::OmapSet { object, entries: vec![(key, value)] },
        11 => Op::OmapRemoveRange { object, first: "k1".into(), last: key },
        12 => {
            let target = self::object(&format!("o{}", pick(4)));
            let extents = Extents::new([(extent(offset), extent(length) + EXTENT_BYTES)]);
            Op::CloneExtents { source: object, target, extents: extents.expect("whole blocks") }
        }
        _ => Op::SetMeta { object, meta: value },
    }
}

fn apply_to_model(model: &mut Model, op: &Op) {
    let span = |offset: u64, length: u64| {
        let to_index = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        to_index(offset)..to_index(offset + length)
    };
    match op {
        Op::Touch(object) => drop(model.entry(object.clone()).or_default()),
        Op::Write { object, offset, data } => {
            let target = &mut model.entry(object.clone()).or_default().data;
            let range = span(*offset, data.len() as u64);
            target.resize(target.len().max(range.end), 0);
            target[range].copy_from_slice(&data.to_bytes());
        }
        Op::Zero { object, offset, length } => {
            let target = &mut model.entry(object.clone()).or_default().data;
            let range = span(*offset, *length);
            let len = target.len();
            target[range.start.min(len)..range.end.min(len)].fill(0);
        }
        Op::Truncate { object, size } => {
            model.entry(object.clone()).or_default().data.resize(span(0, *size).end, 0);
        }
        Op::Remove(object) => drop(model.remove(object)),
        Op::Clone { source, target } => {
            let copy = model.get(source).cloned().unwrap_or_default();
            model.insert(target.clone(), copy);
        }
        Op::CloneExtents { source, target, .. } if source == target => {
            model.entry(target.clone()).or_default();
        }
        Op::CloneExtents { source, target, extents } => {
            let mut copy = model.get(source).cloned().unwrap_or_default();
            let mut data = model.remove(target).unwrap_or_default().data;
            data.resize(copy.data.len(), 0);
            for (offset, length) in extents.iter() {
                let range = span(offset, length);
                let range = range.start.min(data.len())..range.end.min(data.len());
                data[range.clone()].copy_from_slice(&copy.data[range]);
            }
            copy.data = data;
            model.insert(target.clone(), copy);
        }
        Op::SetAttr { object, name, value } => {
            model.entry(object.clone()).or_default().attrs.insert(name.clone(), value.clone());
        }
        Op::OmapSet { object, entries } => {
            model.entry(object.clone()).or_default().omap.extend(entries.iter().cloned());
        }
        Op::OmapRemoveRange { object, first, last } => {
            model.entry(object.clone()).or_default().omap.retain(|key, _| key < first || key >= last);
        }
        Op::SetMeta { object, meta } => model.entry(object.clone()).or_default().meta = meta.clone(),
        op => unreachable!("not made by random_op: {op:?}"),
    }
}

/// Everything the store shows, as a model.
fn observe<S: ObjectStore>(store: &mut S) -> Model {
    let objects = store.list(&pg(), &HObject::MIN, usize::MAX);
    let observed = objects.into_iter().map(|object| {
        let data = read(store, &pg(), &object).to_vec();
        let omap = store.omap_page(&pg(), &object, b"", usize::MAX, usize::MAX).entries;
        let seen = ModelObject {
            data,
            attrs: store.attrs(&pg(), &object),
            omap: omap.into_iter().collect(),
            meta: store.meta(&pg(), &object).expect("a listed object exists"),
        };
        (object, seen)
    });
    observed.collect()
}
