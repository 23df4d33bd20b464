//! What is freed is discarded, when nothing can need it any more and nobody wants the device.

use super::faults::{TestClock, wait, write};
use super::model::{drain, object, pg, read};
use super::rig::Rig;
use crate::{BLOCK, BlockStore, Options};
use nacre_simdisk::Failing;
use nacre_store::{DiscardPolicy, MeasuredDevice, ObjectStore, SubmitHint};
use nacre_txn::{Op, StoreToken, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OBJECT_BYTES: usize = 4 << 20;
const SECOND: u64 = 1_000_000_000;

fn remove(nth: u64) -> Transaction {
    Transaction { collection: pg(), ops: vec![Op::Remove(object(nth))] }
}

fn rig(discards: DiscardPolicy) -> Rig {
    Rig::new(3, 64 << 20, Options { discards, ..Options::default() })
}

fn submit(store: &mut BlockStore, txn: Transaction) {
    store.submit(txn, StoreToken::without_pg(1)).expect("room");
    wait(store);
}

fn turns(store: &mut BlockStore, count: usize) {
    (0..count).for_each(|_| drop(drain(store, &mut Vec::new())));
}

/// Objects written and removed, and that is home.
fn freed(store: &mut BlockStore, objects: u64) {
    (0..objects).for_each(|nth| submit(store, write(nth, 0, vec![7; OBJECT_BYTES])));
    (0..objects).for_each(|nth| submit(store, remove(nth)));
    store.finish_checkpoint();
}

#[test]
fn what_is_freed_is_discarded_after_the_checkpoint() {
    let mut rig = rig(DiscardPolicy::Devices);
    let mut store = rig.open();
    submit(&mut store, write(1, 0, vec![7; OBJECT_BYTES]));
    submit(&mut store, write(2, 0, vec![8; OBJECT_BYTES]));
    store.finish_checkpoint();
    submit(&mut store, remove(1));
    turns(&mut store, 50);
    assert_eq!(rig.device.counters().discards, 0, "a crash would bring it back");
    let usage = store.usage();
    store.finish_checkpoint();
    turns(&mut store, 50);
    let (device, counted) = (rig.device.counters(), store.counters().discards);
    assert_eq!((device.discards, device.discarded_bytes), (counted.count, counted.bytes));
    // Less what is not a whole unit at both ends; and once.
    let unit = 16 * BLOCK as u64;
    let bytes = OBJECT_BYTES as u64;
    assert!((bytes - 2 * unit..=bytes).contains(&counted.bytes), "{counted:?}");
    assert_eq!((store.usage().available_bytes, store.discards.marked()), (usage.available_bytes, 0));
    assert!(store.check(true).damaged.is_empty());
    let kept = read(&mut store, &object(2), 0, u64::MAX, &mut Vec::new()).expect("not discarded");
    assert!(kept.iter().all(|byte| *byte == 8) && kept.len() == OBJECT_BYTES);
}

#[test]
fn nothing_is_discarded_unless_it_is_wanted() {
    let mut rig = rig(DiscardPolicy::Never);
    let mut store = rig.open();
    freed(&mut store, 2);
    turns(&mut store, 50);
    assert_eq!((rig.device.counters().discards, store.discards.bytes()), (0, 0));
    store.set_discards(DiscardPolicy::Devices);
    turns(&mut store, 50);
    assert_eq!(rig.device.counters().discards, 0, "what was free before");
    freed(&mut store, 2);
    turns(&mut store, 50);
    assert!(rig.device.counters().discarded_bytes > OBJECT_BYTES as u64);
    store.set_discards(DiscardPolicy::Never);
    let before = rig.device.counters().discards;
    freed(&mut store, 2);
    turns(&mut store, 50);
    assert_eq!(rig.device.counters().discards, before);
}

/// What is written in small pieces and freed in another order is discarded where the whole of a unit is free.
#[test]
fn pieces_are_discarded_when_all_of_their_unit_is_free() {
    let mut rig = rig(DiscardPolicy::Devices);
    let mut store = rig.open();
    let small = |nth| write(nth, 0, vec![7; BLOCK]);
    (0..256).for_each(|nth| submit(&mut store, small(nth)));
    store.finish_checkpoint();
    (0..256).step_by(2).for_each(|nth| submit(&mut store, remove(nth)));
    store.finish_checkpoint();
    turns(&mut store, 50);
    assert_eq!(
        (store.counters().discards.bytes, store.discards.marked()),
        (0, 0),
        "half of each unit is used"
    );
    (1..256).step_by(2).for_each(|nth| submit(&mut store, remove(nth)));
    store.finish_checkpoint();
    turns(&mut store, 50);
    assert!(store.counters().discards.bytes >= 240 * BLOCK as u64, "{:?}", store.counters().discards);
}

#[test]
fn a_write_that_needs_the_room_waits_for_the_discards() {
    let mut rig = Rig::new(4, 16 << 20, Options { discards: DiscardPolicy::Devices, ..Options::tiny() });
    let mut store = rig.open();
    let mut most_held = 0;
    for round in 0..20 {
        // As much as there is.
        let mut nth = 0;
        while store.submit(write(nth, 0, vec![round; 100_000]), StoreToken::without_pg(1)).is_ok() {
            most_held = most_held.max(store.table.space.alloc.held_count());
            nth += 1;
        }
        assert!(nth >= 140, "{nth} objects in round {round}");
        wait(&mut store);
        (0..nth).for_each(|nth| submit(&mut store, remove(nth)));
        store.finish_checkpoint();
        turns(&mut store, 3);
        most_held = most_held.max(store.table.space.alloc.held_count());
    }
    assert!(most_held > 0, "nothing was held");
    assert!(store.check(false).inconsistencies.is_empty());
}

#[test]
fn a_device_that_does_not_discard_is_asked_once_and_serves_on() {
    let mut rig = rig(DiscardPolicy::Devices);
    let mut store = rig.open();
    freed(&mut store, 2);
    rig.device.fail_after(0, Failing::FromThenOn);
    turns(&mut store, 30);
    rig.device.heal();
    let errors = rig.device.counters().errors;
    assert!(errors > 0 && store.failure().is_none() && store.table.space.alloc.held_count() == 0);
    freed(&mut store, 2);
    turns(&mut store, 50);
    assert_eq!((rig.device.counters().errors, rig.device.counters().discards), (errors, 0));
}

/// A tool hears of it.
#[test]
fn a_trim_says_that_the_device_does_not_discard() {
    let refused_at = |request| {
        let mut rig = rig(DiscardPolicy::Never);
        let mut store = rig.open();
        freed(&mut store, 2);
        rig.device.fail_after(request, Failing::Once);
        store.trim_free_space().ok().and_then(|report| report.refused)
    };
    // Before it there are those of a checkpoint.
    assert!((0..6).any(|request| refused_at(request).is_some()));
}

#[test]
fn all_free_space_is_discarded_at_once_for_tools() {
    let mut rig = rig(DiscardPolicy::Never);
    let mut store = rig.open();
    submit(&mut store, write(9, 0, vec![9; OBJECT_BYTES]));
    freed(&mut store, 5);
    drop(store);
    let mut store = rig.open();
    let report = store.trim_free_space().expect("a healthy device");
    let free = store.counters().free.bytes;
    assert_eq!((report.free_bytes, report.refused), (free, None));
    assert!(report.discarded_bytes <= free && report.discarded_bytes + (1 << 20) > free, "{report:?}");
    assert_eq!(rig.device.counters().discarded_bytes, report.discarded_bytes);
    drop(store);
    let mut store = rig.open();
    let kept = read(&mut store, &object(9), 0, u64::MAX, &mut Vec::new()).expect("not discarded");
    assert!(kept.iter().all(|byte| *byte == 9) && kept.len() == OBJECT_BYTES);
}

#[test]
fn nothing_is_discarded_while_a_checkpoint_has_the_device() {
    let mut rig = rig(DiscardPolicy::Devices);
    let mut store = rig.open();
    freed(&mut store, 4);
    submit(&mut store, write(1, 0, vec![1; 100]));
    rig.commits_take(200);
    let before = rig.device.counters().discards;
    store.start_checkpoint();
    // One may be under way.
    while store.checkpoint_stage().is_some() {
        turns(&mut store, 1);
    }
    assert!(rig.device.counters().discards <= before + 1);
    turns(&mut store, 50);
    assert!(rig.device.counters().discards > before + 1);
}

/// Beside clients it is a batch in a second; a device that nobody uses gets one after the other.
#[test]
fn discards_keep_out_of_the_way() {
    let mut rig = rig(DiscardPolicy::Devices);
    let mut store = rig.open();
    let now = Arc::new(AtomicU64::new(10 * SECOND));
    store.set_clock(Box::new(TestClock(now.clone())));
    store.set_submit_hint(SubmitHint::Now);
    freed(&mut store, 8);
    // A client writes all the time, a millisecond each: a batch in a second.
    let begin = now.load(Ordering::Relaxed);
    while now.load(Ordering::Relaxed) < begin + 5 * SECOND {
        store.submit(write(1, 0, vec![1; 100]), StoreToken::without_pg(1)).expect("room");
        while store.waiting() > 0 {
            drain(&mut store, &mut Vec::new());
            now.fetch_add(SECOND / 1000, Ordering::Relaxed);
        }
    }
    let busy = store.counters().discards;
    assert!(busy.bytes > 0 && busy.bytes <= 6 * (32 << 20) / 2, "{busy:?}");
    // Nobody is there: all of it at once.
    freed(&mut store, 8);
    for _ in 0..100 {
        now.fetch_add(SECOND / 5, Ordering::Relaxed);
        // Those that are begun now also end now.
        turns(&mut store, 60);
    }
    assert_eq!(store.discards.marked(), 0);
    assert!(store.counters().discards.spent_ns > 0);
}
