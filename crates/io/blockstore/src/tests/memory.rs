//! More metadata than memory: clean objects, omaps and logs go and come back.

use super::model::{drain, pg};
use super::rig::Rig;
use crate::{BlockStore, Options};
use nacre_buf::Bytes;
use nacre_store::{Completion, ObjectStore, StoreState};
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
