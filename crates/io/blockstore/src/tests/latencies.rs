//! How long the device takes, by a clock that the test sets; and probes of an idle device.

use super::faults::{wait, write};
use super::model::drain;
use super::rig::Rig;
use crate::{BlockStore, Options};
use nacre_env::Clock;
use nacre_store::{MeasuredDevice, ObjectStore};
use nacre_txn::StoreToken;
use nacre_types::{DeviceWork, Stamp, UTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const US: u64 = 1000;
const SECOND: Duration = Duration::from_secs(1);

/// Goes on by 300 us with each look: between the start of requests and their end there is one.
struct Ticking(Arc<AtomicU64>);

impl Clock for Ticking {
    fn now(&self) -> Stamp {
        Stamp(self.0.fetch_add(300 * US, Ordering::Relaxed))
    }

    fn wall(&self) -> UTime {
        UTime::default()
    }
}

pub(super) fn open(rig: &mut Rig) -> (BlockStore, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(1_000_000_000));
    let mut store = rig.open();
    store.set_clock(Box::new(Ticking(Arc::clone(&now))));
    (store, now)
}

fn probe(store: &mut BlockStore, idle: Duration) {
    store.probe(idle);
    for _ in 0..20 {
        drain(store, &mut Vec::new());
    }
    assert_eq!(store.at_device(), 0, "a probe ends");
}

fn counts(store: &mut BlockStore) -> [u64; 4] {
    let taken = store.take_latencies();
    DeviceWork::ALL.map(|work| taken.of(work).total())
}

#[test]
fn requests_are_counted_by_what_they_ask_for() {
    let mut rig = Rig::new(40, 8 << 20, Options::tiny());
    let (mut store, _) = open(&mut rig);
    for nth in 1..20 {
        store.submit(write(nth, 0, vec![1; 4096]), StoreToken::without_pg(nth)).expect("room");
        wait(&mut store);
    }
    let taken = store.take_latencies();
    let writes = taken.of(DeviceWork::DurableWrite);
    assert!(writes.total() >= 19, "{taken:?}");
    assert!(writes.quantile_us(500).is_some_and(|us| (200.0..5_000.0).contains(&us)), "{writes:?}");
    assert!(store.take_latencies().is_empty(), "taken");
    let total = store.counters().device[DeviceWork::DurableWrite as usize];
    assert!(total.count >= 19 && total.spent_ns >= total.count * 300 * US);
}

/// A write that other OSDs wake the shard for ends before anybody looks: that time is not the device's.
#[test]
fn what_nobody_is_woken_for_is_not_counted() {
    let mut rig = Rig::new(41, 8 << 20, Options::default());
    let (mut store, _) = open(&mut rig);
    counts(&mut store);
    store.submit(write(1, 0, vec![1; 4096]), StoreToken::without_pg(1)).expect("room");
    drain(&mut store, &mut Vec::new());
    store.set_wakeups(false);
    wait(&mut store);
    store.set_wakeups(true);
    store.submit(write(1, 0, vec![1; 4096]), StoreToken::without_pg(2)).expect("room");
    wait(&mut store);
    assert_eq!(counts(&mut store), [0, 0, 1, 0], "only the other one");
}

#[test]
fn an_idle_device_is_read_and_written_and_keeps_what_it_has() {
    let mut rig = Rig::new(42, 8 << 20, Options::tiny());
    let (mut store, now) = open(&mut rig);
    store.submit(write(1, 0, vec![7; 4096]), StoreToken::without_pg(1)).expect("room");
    wait(&mut store);
    counts(&mut store);
    let head = rig.device.peek(0, 2 * 4096);
    probe(&mut store, SECOND);
    assert_eq!(counts(&mut store)[DeviceWork::Read as usize], 1, "it was never read");
    now.fetch_add(2_000_000_000, Ordering::Relaxed);
    probe(&mut store, SECOND);
    assert_eq!(counts(&mut store), [1, 0, 1, 0]);
    probe(&mut store, SECOND);
    assert_eq!(counts(&mut store), [0; 4], "not so soon again");
    assert!(rig.device.peek(0, 2 * 4096) == head);
    // Who has written is not to write for nothing.
    now.fetch_add(2_000_000_000, Ordering::Relaxed);
    store.submit(write(1, 0, vec![8; 4096]), StoreToken::without_pg(2)).expect("room");
    wait(&mut store);
    counts(&mut store);
    probe(&mut store, SECOND);
    assert_eq!(counts(&mut store), [1, 0, 0, 0]);
}

/// Written again it would be whole and wrong, or lose what may still be saved.
#[test]
fn a_probe_leaves_a_damaged_copy_of_the_superblock_alone() {
    let mut rig = Rig::new(43, 8 << 20, Options::tiny());
    let (mut store, now) = open(&mut rig);
    assert!(rig.device.rot(4096, 4096));
    let rotten = rig.device.peek(4096, 4096);
    counts(&mut store);
    for _ in 0..3 {
        now.fetch_add(2_000_000_000, Ordering::Relaxed);
        probe(&mut store, SECOND);
    }
    assert_eq!(counts(&mut store)[DeviceWork::DurableWrite as usize], 0);
    assert!(rig.device.peek(4096, 4096) == rotten);
    assert!(store.failure().is_none());
}
