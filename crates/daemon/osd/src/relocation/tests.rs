//! A collection is copied to another store, piece by piece, and a reader cannot tell the two apart.

use super::*;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::Encode;
use nacre_msg::peer::{Counters, LogEntry, LogKind};
use nacre_pg::PIECE_BYTES;
use nacre_pg::object::{CloneInfo, ObjectContext, ObjectInfo, SnapSet, clone_record};
use nacre_store::MemStore;
use nacre_txn::ObjectView;
use nacre_types::{Eversion, HObject, IntervalSet, PgId, ReqId, SnapId, UTime};

const AT: SpgId = SpgId::replicated(PgId::new(1, 3));

fn submit(store: &mut MemStore, ops: Vec<Op>) {
    store.submit(Transaction { collection: AT, ops }, StoreToken::without_pg(0)).expect("room");
}

fn head(name: &str) -> HObject {
    HObject::head(1, ByteStr::EMPTY, ByteStr::EMPTY, name.into())
}

fn write(object: &HObject, offset: u64, data: Vec<u8>) -> Op {
    Op::Write { object: object.clone(), offset, data: Bytes::from(data).into() }
}

fn value(key: &str, value: &'static str) -> Op {
    Op::MetaSet { key: key.into(), value: Bytes::from_static(value.as_bytes()) }
}

fn record(object: &HObject, snaps: Option<SnapSet>) -> Op {
    let info = ObjectInfo { version: Eversion::new(3, 7), ..ObjectInfo::default() };
    let meta = match snaps {
        Some(snaps) => ObjectContext { exists: true, info, snaps }.to_record(),
        None => clone_record(&info),
    };
    Op::SetMeta { object: object.clone(), meta }
}

fn log_entry(object: HObject, version: Eversion) -> LogEntry {
    LogEntry {
        kind: LogKind::Modify,
        object,
        version,
        prior_version: Eversion::ZERO,
        user_version: version.version,
        reqid: ReqId::default(),
        mtime: UTime::default(),
        result: 0,
        outputs: Vec::new(),
        snaps: Vec::new(),
        delta: Counters::default(),
        committed_to: Eversion::ZERO,
        modified: None,
    }
}

/// Objects of each kind: large, with holes, with omaps of several pages, with two clones that share data, many small ones.
fn filled() -> MemStore {
    let mut store = MemStore::new(64 << 20);
    submit(&mut store, vec![Op::CreateCollection, value("info", "i"), value("interval", "n")]);
    let large = head("large");
    let data = (0..3 * PIECE_BYTES + 777).map(|nth| (nth / 4096) as u8).collect();
    submit(&mut store, vec![record(&large, Some(SnapSet::default())), write(&large, 5 << 20, data)]);
    submit(&mut store, vec![Op::Truncate { object: large.clone(), size: 20 << 20 }]);
    submit(
        &mut store,
        vec![Op::SetAttr { object: large, name: "a".into(), value: Bytes::from_static(b"b") }],
    );
    let mapped = head("mapped");
    let entries = (0..3000).map(|nth| (format!("key{nth:05}").into(), Bytes::from(vec![7; 900]))).collect();
    submit(
        &mut store,
        vec![record(&mapped, Some(SnapSet::default())), Op::OmapSet { object: mapped.clone(), entries }],
    );
    submit(&mut store, vec![Op::OmapSetHeader { object: mapped, header: Bytes::from_static(b"header") }]);
    let shared = head("shared");
    let (first, second) = (shared.with_snap(SnapId(2)), shared.with_snap(SnapId(5)));
    let clone =
        |id: u64, overlap| CloneInfo { id: SnapId(id), snaps: vec![SnapId(id)], size: 50_000, overlap };
    let clones = vec![clone(2, IntervalSet::of(0, 30_000)), clone(5, IntervalSet::of(10_000, 40_000))];
    submit(&mut store, vec![write(&first, 0, vec![1; 50_000]), record(&first, None)]);
    let change =
        |object: &HObject, offset: u64, byte: u8, length: usize| write(object, offset, vec![byte; length]);
    submit(
        &mut store,
        vec![Op::Clone { source: first, target: second.clone() }, change(&second, 30_000, 2, 20_000)],
    );
    submit(
        &mut store,
        vec![Op::Clone { source: second, target: shared.clone() }, change(&shared, 0, 3, 10_000)],
    );
    submit(&mut store, vec![record(&shared, Some(SnapSet { seq: SnapId(5), clones }))]);
    for nth in 0..700 {
        let small = head(&format!("small{nth}"));
        submit(
            &mut store,
            vec![record(&small, Some(SnapSet::default())), write(&small, 0, vec![nth as u8; 100])],
        );
        submit(&mut store, vec![Op::MetaSet { key: format!("snap/{nth:04}").into(), value: Bytes::new() }]);
        let entry = log_entry(small, Eversion::new(3, nth + 1));
        submit(&mut store, vec![Op::LogAppend { version: entry.version, entry: entry.to_bytes() }]);
    }
    store
}

fn copied(from: &MemStore, is_coded: bool) -> (MemStore, Vec<Vec<Op>>) {
    let (mut to, mut pieces) = (MemStore::new(64 << 20), Vec::new());
    submit(&mut to, vec![Op::CreateCollection, Op::Touch(head("left of an earlier one"))]);
    submit(&mut to, Arriving::begin());
    let mut copy = CollectionCopy::new(AT, is_coded);
    let size_of = |object: &HObject| from.data_bytes(&AT, object).expect("it is there");
    loop {
        assert_eq!(Arriving::of(&to, &AT), Some(Arriving::InPart));
        let (ops, is_last) = match copy.step(from, &size_of) {
            CopyStep::Piece(ops) => (ops, false),
            CopyStep::Last(ops) => (ops, true),
            CopyStep::Fetch { .. } => panic!("all of it is in memory"),
        };
        assert!(ops.iter().map(Op::size_bytes).sum::<usize>() < 3 * PIECE_BYTES, "a piece is small");
        submit(&mut to, ops.clone());
        pieces.push(ops);
        if is_last {
            return (to, pieces);
        }
    }
}

fn assert_same(one: &MemStore, other: &MemStore) {
    let names = one.list(&AT, &HObject::MIN, usize::MAX);
    assert_eq!(names, other.list(&AT, &HObject::MIN, usize::MAX));
    for name in &names {
        assert_eq!(one.meta(&AT, name), other.meta(&AT, name), "{name}");
        assert_eq!(one.data_bytes(&AT, name), other.data_bytes(&AT, name), "{name}");
        assert_eq!(one.read(&AT, name, 0, u64::MAX), other.read(&AT, name, 0, u64::MAX), "{name}");
        assert_eq!(one.extents(&AT, name, 0, u64::MAX), other.extents(&AT, name, 0, u64::MAX), "{name}");
        assert_eq!(one.attrs(&AT, name), other.attrs(&AT, name), "{name}");
        assert_eq!(one.omap_header(&AT, name), other.omap_header(&AT, name), "{name}");
        let omap = |store: &MemStore| store.omap_page(&AT, name, b"", usize::MAX, usize::MAX);
        assert_eq!(omap(one), omap(other), "{name}");
    }
    assert_eq!(one.log(&AT), other.log(&AT));
    assert_eq!(one.pg_meta(&AT, b""), other.pg_meta(&AT, b""));
}

#[test]
fn a_copied_collection_is_the_same_once_its_note_is_gone() {
    let from = filled();
    for is_coded in [false, true] {
        let (mut to, pieces) = copied(&from, is_coded);
        assert_eq!(Arriving::of(&to, &AT), Some(Arriving::Whole));
        submit(&mut to, vec![Arriving::end()]);
        assert_eq!(Arriving::of(&to, &AT), None);
        assert_same(&from, &to);
        assert!(pieces.len() > 6, "{} pieces", pieces.len());
        let is_info = |op: &Op| matches!(op, Op::MetaSet { key, .. } if *key == "info");
        let with_info = pieces.iter().position(|piece| piece.iter().any(is_info));
        assert_eq!(with_info, Some(pieces.len() - 1), "without it nobody takes the rest for a PG");
    }
}

#[test]
fn clones_share_in_the_copy_what_they_shared() {
    let (_, pieces) = copied(&filled(), false);
    let clones = |pieces: &[Vec<Op>]| -> Vec<(SnapId, u64)> {
        let shared = pieces.iter().flatten().filter_map(|op| match op {
            Op::CloneExtents { target, extents, .. } => Some((target.snap, extents.blocks())),
            _ => None,
        });
        shared.collect()
    };
    assert_eq!(clones(&pieces), [(SnapId(5), 7), (SnapId::HEAD, 9)], "whole blocks of what is the same");
    let (_, pieces) = copied(&filled(), true);
    assert_eq!(clones(&pieces), [], "chunks lie elsewhere");
}

/// An entry that does not decode, of an object that the device does not give: the copy must not be taken for a whole one.
#[test]
fn a_copy_of_a_damaged_log_is_damaged() {
    let mut from = filled();
    let (version, entry) = (Eversion::new(3, 900), Bytes::from_static(b"rot"));
    submit(&mut from, vec![Op::LogAppend { version, entry }]);
    let (to, _) = copied(&from, false);
    assert!(to.pg_meta(&AT, b"info").is_empty() && to.pg_meta(&AT, b"interval").is_empty());
    assert_eq!(Arriving::of(&to, &AT), Some(Arriving::Whole));
}

#[test]
fn a_collection_without_objects_is_copied_with_what_it_has() {
    let mut from = MemStore::new(1 << 20);
    submit(&mut from, vec![Op::CreateCollection, value("info", "i"), value("other", "o")]);
    let (mut to, _) = copied(&from, false);
    submit(&mut to, vec![Arriving::end()]);
    assert_same(&from, &to);
}
