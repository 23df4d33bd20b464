//! Metadata that are read before they are asked for.

use super::model::{object, pg};
use super::rig::Rig;
use crate::page::PAGE_BLOCKS;
use crate::{BLOCK, BlockStore, Options};
use nacre_store::{Completion, ObjectStore, WarmToken};
use nacre_txn::{ObjectView, Op, StoreToken, Transaction};
use nacre_types::{PgId, SpgId};

const PAGE_BYTES: u64 = PAGE_BLOCKS as u64 * BLOCK as u64;

/// Objects of four pages of places, none of which follows the one before, in a store that was opened since.
fn cold(rig: &mut Rig, objects: u64) -> BlockStore {
    let mut store = rig.open();
    for nth in 0..objects {
        let write = |page: u64| Op::Write {
            object: object(nth),
            offset: page * PAGE_BYTES + 2 * (nth % 3) * BLOCK as u64,
            data: vec![nth as u8; BLOCK].into(),
        };
        let ops = std::iter::once(Op::SetMeta { object: object(nth), meta: vec![nth as u8; 30].into() });
        let ops = ops.chain((0..4).map(write)).collect();
        store.submit(Transaction { collection: pg(), ops }, StoreToken::without_pg(nth)).expect("room");
    }
    store.finish_checkpoint();
    drop(store);
    rig.kv.with(nacre_kv::MemoryKv::set_cold);
    rig.open()
}

/// Ends the looks that are under way and those that follow, one by one; what is said to be warm then, and how many looks there were.
fn warm_all(rig: &Rig, store: &mut BlockStore) -> (Vec<WarmToken>, usize) {
    let (mut warm, mut looks) = (Vec::new(), 0);
    while rig.kv.with(nacre_kv::MemoryKv::step_warm) {
        looks += 1;
        let mut out = Vec::new();
        store.drain(&mut out);
        warm.extend(out.into_iter().filter_map(|completion| match completion {
            Completion::Warm(token) => Some(token),
            _ => None,
        }));
    }
    (warm, looks)
}

#[test]
fn what_was_warmed_is_in_memory_when_it_is_asked_for() {
    let mut rig = Rig::new(1, 64 << 20, Options::for_memory(16 << 20));
    let mut store = cold(&mut rig, 3);
    assert!(store.waits_for_metadata());
    let before = rig.metadata_looks();
    assert!(!store.warm(&pg(), &object(1), PAGE_BYTES..2 * PAGE_BYTES, WarmToken(7)));
    assert_eq!(rig.metadata_looks(), before, "nobody has waited");
    // The name with the record, a page.
    assert_eq!(warm_all(&rig, &mut store), (vec![WarmToken(7)], 2));
    let before = rig.metadata_looks();
    assert!(store.warm(&pg(), &object(1), PAGE_BYTES..2 * PAGE_BYTES, WarmToken(8)));
    assert_eq!(store.meta(&pg(), &object(1)).as_deref(), Some(&[1; 30][..]));
    let extents = store.extents(&pg(), &object(1), PAGE_BYTES, PAGE_BYTES);
    assert_eq!(extents, [(PAGE_BYTES + 2 * BLOCK as u64, BLOCK as u64)]);
    assert_eq!(rig.metadata_looks(), before);
    // Its other pages are not.
    assert!(!store.warm(&pg(), &object(1), 0..u64::MAX, WarmToken(9)));
    assert_eq!(warm_all(&rig, &mut store), (vec![WarmToken(9)], 1));
    let remove = Transaction { collection: pg(), ops: vec![Op::Remove(object(1))] };
    let before = rig.metadata_looks();
    store.submit(remove, StoreToken::without_pg(9)).expect("room");
    assert_eq!(rig.metadata_looks(), before);
}

#[test]
fn what_does_not_exist_is_looked_for_once() {
    let mut rig = Rig::new(2, 64 << 20, Options::for_memory(16 << 20));
    let mut store = cold(&mut rig, 3);
    assert!(!store.warm(&pg(), &object(8), 0..u64::MAX, WarmToken(1)));
    assert_eq!(warm_all(&rig, &mut store), (vec![WarmToken(1)], 1));
    assert!(store.warm(&pg(), &object(8), 0..u64::MAX, WarmToken(2)));
    let nowhere = SpgId::replicated(PgId::new(77, 0));
    assert!(store.warm(&nowhere, &object(1), 0..u64::MAX, WarmToken(3)));
    assert!(!rig.kv.with(|kv| kv.is_warming()));
}

#[test]
fn where_nothing_waits_for_the_device_nothing_is_read_ahead() {
    let mut rig = Rig::new(3, 64 << 20, Options::for_memory(16 << 20));
    let mut store = rig.open();
    assert!(!store.waits_for_metadata());
    let before = rig.metadata_looks();
    assert!(store.warm(&pg(), &object(1), 0..u64::MAX, WarmToken(1)));
    assert_eq!(rig.metadata_looks(), before);
}

/// Each look ends, and says so, although what was read for one is gone when it ends.
#[test]
fn memory_that_is_too_small_keeps_nobody_waiting() {
    let mut rig = Rig::new(4, 64 << 20, Options { metadata_bytes_max: 0, ..Options::tiny() });
    let mut store = cold(&mut rig, 200);
    let mut waiting = Vec::new();
    for nth in 0..200 {
        let token = WarmToken(nth);
        if !store.warm(&pg(), &object(nth), 0..u64::MAX, token) {
            waiting.push(token);
        }
    }
    assert!(waiting.len() > 150, "{} of 200", waiting.len());
    let (mut warm, looks) = warm_all(&rig, &mut store);
    warm.sort_unstable();
    assert_eq!(warm, waiting);
    assert!(looks <= 3 * waiting.len(), "{looks} looks");
    for nth in 0..200 {
        assert_eq!(store.meta(&pg(), &object(nth)).as_deref(), Some(&[nth as u8; 30][..]));
    }
}
