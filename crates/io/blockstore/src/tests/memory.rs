//! More metadata than memory: clean objects, omaps and logs go and come back.

use super::model::{self, drain, pg};
use super::rig::Rig;
use crate::page::PAGE_BLOCKS;
use crate::{BLOCK, BlockStore, Options};
use nacre_buf::Bytes;
use nacre_store::{Completion, ObjectStore, StoreError, StoreState};
use nacre_txn::{FetchFrom, ObjectView, Op, ReadError, StoreToken, Transaction};
use nacre_types::{Eversion, HObject};

const OBJECTS: u64 = 6000;
const ATTR_BYTES: usize = 2000;
/// Four times less than the attributes alone.
const TARGET_BYTES: usize = 3 << 20;

fn object(nth: u64) -> HObject {
    HObject::head(3, "".into(), "".into(), format!("object {nth}").into())
}

fn value(nth: u64) -> Bytes {
    vec![u8::try_from(nth % 251).unwrap_or(0); ATTR_BYTES].into()
}

fn create(nth: u64) -> Transaction {
    let object = object(nth);
    let ops = vec![
        Op::SetAttr { object: object.clone(), name: "a".into(), value: value(nth) },
        Op::OmapSet { object: object.clone(), entries: vec![("k".into(), value(nth + 1))] },
        Op::Write { object, offset: 0, data: vec![7; 100].into() },
        Op::LogAppend { version: Eversion::new(1, nth + 1), entry: vec![1; 200].into() },
    ];
    Transaction { collection: pg(), ops }
}

fn look(store: &BlockStore, nth: u64) {
    assert_eq!(store.attr(&pg(), &object(nth), b"a"), Some(value(nth)), "object {nth}");
    assert_eq!(store.omap_value(&pg(), &object(nth), b"k"), Some(value(nth + 1)), "object {nth}");
    assert_eq!(store.meta(&pg(), &object(nth + OBJECTS)), None);
}

#[test]
fn far_more_metadata_than_memory_stays_below_the_target() {
    let options = Options { wal_bytes: Some(4 << 20), ..Options::for_memory(TARGET_BYTES) };
    let mut rig = Rig::new(11, 256 << 20, options);
    let mut store = rig.open();
    let (mut acknowledged, mut most) = (Vec::new(), 0);
    for nth in 0..OBJECTS {
        store.submit(create(nth), StoreToken::without_pg(nth)).expect("room");
        drain(&mut store, &mut acknowledged);
        // As the daemon does: a client has so many operations under way and no more.
        while store.waiting() > 64 {
            drain(&mut store, &mut acknowledged);
        }
        most = most.max(store.memory_bytes());
    }
    (0..OBJECTS).step_by(7).for_each(|nth| look(&store, nth));
    assert_eq!(store.log(&pg()).len() as u64, OBJECTS);
    assert_eq!(store.list(&pg(), &HObject::MIN, usize::MAX).len() as u64, OBJECTS);
    most = most.max(store.memory_bytes());
    assert!(most < TARGET_BYTES, "{most} bytes");
    store.finish_checkpoint();
    drop(store);
    let (store, report) = rig.try_open().expect("the store opens");
    assert_eq!(report.objects as u64, OBJECTS);
    assert!(store.memory_bytes() < TARGET_BYTES / 8, "opening reads {} bytes", store.memory_bytes());
    (0..OBJECTS).step_by(5).for_each(|nth| look(&store, nth));
    assert!(store.memory_bytes() < TARGET_BYTES / 4, "{} bytes of clean metadata", store.memory_bytes());
}

/// As an OSD has it whose memory others need.
#[test]
fn what_is_clean_goes_and_comes_back_as_its_limit_says() {
    let options = Options { wal_bytes: Some(4 << 20), ..Options::for_memory(32 << 20) };
    let mut store = Rig::new(15, 256 << 20, options).open();
    let mut acknowledged = Vec::new();
    for nth in 0..OBJECTS {
        store.submit(create(nth), StoreToken::without_pg(nth)).expect("room");
        drain(&mut store, &mut acknowledged);
    }
    store.finish_checkpoint();
    let clean = |store: &BlockStore| store.memory().data_bytes + store.memory().metadata_bytes;
    let look_at_all = |store: &mut BlockStore| {
        for nth in 0..OBJECTS {
            look(store, nth);
            store.drain(&mut Vec::new());
        }
    };
    look_at_all(&mut store);
    let before = clean(&store);
    assert!(before > 1 << 20, "{before} bytes");
    store.limit_clean(256 << 10);
    (0..100).for_each(|_| store.drain(&mut Vec::new()));
    look_at_all(&mut store);
    assert!(clean(&store) <= 256 << 10, "{} bytes", clean(&store));
    store.limit_clean(u64::MAX);
    look_at_all(&mut store);
    assert!(clean(&store) > before / 2, "{} of {before} bytes", clean(&store));
    assert!(clean(&store) <= store.memory().clean_bytes_max);
}

/// What nobody uses brings its changes home, once.
#[test]
fn a_store_that_rests_keeps_nothing_that_is_not_home() {
    let mut store = Rig::new(14, 64 << 20, Options::default()).open();
    assert!(!store.idle_trim(), "nothing to do");
    let mut acknowledged = Vec::new();
    (0..50).for_each(|nth| store.submit(create(nth), StoreToken::without_pg(nth)).expect("room"));
    while store.idle_trim() {
        drain(&mut store, &mut acknowledged);
    }
    assert_eq!((store.checkpoints(), acknowledged.len(), store.fill().dirty_bytes), (1, 50, 0));
    assert!(!store.idle_trim());
}

/// What was in memory stays there when it is overwritten, also when that happens again during a checkpoint; what nobody read
/// does not come there by being written.
#[test]
fn what_is_read_and_overwritten_stays_in_memory() {
    let mut store = Rig::new(16, 64 << 20, Options::default()).open();
    let write = |store: &mut BlockStore, index: u64, fill: u8| {
        let op = Op::Write { object: object(0), offset: index * 4096, data: vec![fill; 4096].into() };
        store
            .submit(Transaction { collection: pg(), ops: vec![op] }, StoreToken::without_pg(0))
            .expect("room");
    };
    let found = |store: &BlockStore, index: u64| match store.read(&pg(), &object(0), index * 4096, 4096) {
        Ok(bytes) => Some(bytes.to_bytes()[0]),
        Err(ReadError::Pending { .. }) => None,
        Err(error) => panic!("{error:?}"),
    };
    (0..8).for_each(|index| write(&mut store, index, 1));
    store.finish_checkpoint();
    assert!((0..8).all(|index| found(&store, index).is_none()), "written, not read");
    let mut done = Vec::new();
    for index in 0..4 {
        store.fetch(&pg(), &object(0), index * 4096, 4096, FetchFrom::Anywhere, StoreToken::without_pg(1));
    }
    while done.iter().filter(|done| matches!(done, Completion::Fetched(_))).count() < 4 {
        store.drain(&mut done);
    }
    (0..8).for_each(|index| write(&mut store, index, 2));
    store.start_checkpoint();
    // Of those that are going home now, some are changed again.
    (2..6).for_each(|index| write(&mut store, index, 3));
    store.end_checkpoint();
    store.finish_checkpoint();
    let all: Vec<_> = (0..8).map(|index| found(&store, index)).collect();
    assert_eq!(all, [Some(2), Some(2), Some(3), Some(3), None, None, None, None]);
}

/// Far more reads at a time than a disk takes.
#[test]
fn reads_wait_for_their_turn() {
    const READS: u64 = 20_000;
    let mut rig = Rig::new(15, 64 << 20, Options::default());
    let mut store = rig.open();
    let mut done = Vec::new();
    let at = |nth: u64| (object(nth % 50), nth / 50 % 8 * 4096);
    for nth in 0..400 {
        let (object, offset) = at(nth);
        let data = vec![u8::try_from(nth % 251).unwrap_or(0); 4096].into();
        let txn = Transaction { collection: pg(), ops: vec![Op::Write { object, offset, data }] };
        store.submit(txn, StoreToken::without_pg(nth)).expect("room");
    }
    store.finish_checkpoint();
    drop(store);
    let mut store = rig.open();
    for nth in 0..READS {
        let (object, offset) = at(nth);
        store.fetch(&pg(), &object, offset, 4096, FetchFrom::Anywhere, StoreToken::without_pg(nth));
    }
    assert!(store.at_device() <= 1024, "{} requests", store.at_device());
    while (done.len() as u64) < READS {
        store.drain(&mut done);
    }
    for nth in 0..400 {
        let (object, offset) = at(nth);
        let found = store.read(&pg(), &object, offset, 4096).expect("in memory").to_bytes();
        assert!(found.iter().all(|byte| u64::from(*byte) == nth % 251), "{nth}");
    }
}

/// A read of metadata that fails must not pass for an absent object for long: the store says so and takes nothing more.
#[test]
fn metadata_that_cannot_be_read_fails_the_store() {
    let mut rig = Rig::new(12, 8 << 20, Options::tiny());
    let mut store = rig.open();
    store.submit(create(1), StoreToken::without_pg(1)).expect("room");
    store.finish_checkpoint();
    drop(store);
    let mut store = rig.open();
    assert!(store.state() != StoreState::Failed);
    rig.fail_metadata_reads();
    assert_eq!(store.meta(&pg(), &object(1)), None);
    assert!(store.state() == StoreState::Failed);
    assert!(store.submit(create(2), StoreToken::without_pg(2)).is_err());
    let mut acknowledged = Vec::new();
    (0..20).for_each(|_| drop(drain(&mut store, &mut acknowledged)));
    assert!(acknowledged.is_empty() && store.failure().is_some());
}

/// Blocks of the object that [`with_a_large_object`] makes, and its pages.
const LARGE_BLOCKS: u64 = 1024;
const LARGE_PAGES: u64 = LARGE_BLOCKS / PAGE_BLOCKS as u64;

/// A store that was opened just now and has read nothing of its one object.
fn with_a_large_object(options: Options) -> (Rig, BlockStore) {
    let mut rig = Rig::new(17, 64 << 20, options);
    let mut store = rig.open();
    let data = vec![5; LARGE_BLOCKS as usize * BLOCK];
    write(&mut store, 0, data.into());
    store.finish_checkpoint();
    drop(store);
    let store = rig.open();
    (rig, store)
}

fn write(store: &mut BlockStore, index: u64, data: Bytes) {
    let op = Op::Write { object: object(0), offset: index * BLOCK as u64, data: data.into() };
    store.submit(Transaction { collection: pg(), ops: vec![op] }, StoreToken::without_pg(0)).expect("room");
    while store.waiting() > 0 {
        drain(store, &mut Vec::new());
    }
}

fn read(store: &mut BlockStore, index: u64) -> u8 {
    let data = model::read(store, &object(0), index * BLOCK as u64, BLOCK as u64, &mut Vec::new());
    data.expect("it was written")[0]
}

/// Who asks for a block of a large object, or changes one, has one page in memory for it.
#[test]
fn a_block_takes_one_page_of_its_object() {
    const FEW_BYTES: usize = 2000;
    let (rig, mut store) = with_a_large_object(Options::default());
    let (gets, bytes) = (rig.metadata_gets(), store.table.bytes());
    assert_eq!(read(&mut store, 500), 5);
    assert_eq!(rig.metadata_gets() - gets, 3, "of the name, the object, and the page");
    assert!(store.table.bytes() - bytes < FEW_BYTES, "{} bytes", store.table.bytes() - bytes);
    let gets = rig.metadata_gets();
    write(&mut store, 700, vec![6; BLOCK].into());
    assert_eq!(rig.metadata_gets() - gets, 1, "of the page");
    assert!(store.table.bytes() - bytes < FEW_BYTES, "{} bytes", store.table.bytes() - bytes);
    store.finish_checkpoint();
    let gets = rig.metadata_gets();
    assert_eq!((read(&mut store, 700), read(&mut store, 701)), (6, 5));
    assert_eq!(rig.metadata_gets(), gets, "what was written stays while there is room");
    assert!(store.check(true).inconsistencies.is_empty());
}

/// Pages go when others need the room; the object's own record, which is asked for each time, mostly stays.
#[test]
fn pages_go_by_themselves() {
    const BYTES_MAX: usize = 8 << 10;
    let (rig, mut store) =
        with_a_large_object(Options { metadata_bytes_max: BYTES_MAX, ..Options::default() });
    let gets = rig.metadata_gets();
    for _ in 0..3 {
        for page in 0..LARGE_PAGES {
            assert_eq!(read(&mut store, page * u64::from(PAGE_BLOCKS)), 5);
            assert!(store.table.clean_bytes() <= BYTES_MAX, "{} bytes", store.table.clean_bytes());
        }
    }
    // Page 0 is in the object's own record.
    let (pages, gets) = (3 * (LARGE_PAGES - 1), rig.metadata_gets() - gets);
    assert!((pages + 2..pages + pages / 20).contains(&gets), "{gets} values were read for {pages} pages");
    assert!(store.check(false).inconsistencies.is_empty());
}

/// A page that cannot be read: what was done without it is not kept, with a record or without.
#[test]
fn no_checkpoint_has_what_was_changed_without_its_page() {
    let failing = || {
        let (rig, mut store) = with_a_large_object(Options::default());
        // Name and object are in memory then.
        assert_eq!(read(&mut store, 0), 5);
        let stored = rig.copy_metadata();
        rig.fail_metadata_reads();
        (rig, store, stored)
    };
    let is_refused = |store: &mut BlockStore, ops: Vec<Op>| {
        let txn = Transaction { collection: pg(), ops };
        let outcome = store.submit(txn, StoreToken::without_pg(1));
        assert!(matches!(outcome, Err(StoreError::Failed { .. })), "{outcome:?}");
        assert_eq!(store.state(), StoreState::Failed);
    };
    let (rig, mut store, stored) = failing();
    is_refused(&mut store, vec![Op::Truncate { object: object(0), size: 100 * BLOCK as u64 + 1 }]);
    store.finish_checkpoint();
    assert!(rig.copy_metadata() == stored, "something was stored");
    // As steps do that follow from what has a record. That it can be read again comes too late.
    let (rig, mut store, stored) = failing();
    store.table.remove(pg(), &object(0));
    rig.mend_metadata_reads();
    store.finish_checkpoint();
    assert!(rig.copy_metadata() == stored, "something was stored");
    is_refused(&mut store, create(1).ops);
}
