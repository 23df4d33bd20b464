//! Devices that fail, rot or are full.

use super::model::{Model, Sizes, drain, newest, object, pg, random_txn, read};
use super::rig::Rig;
use crate::{BlockStore, Options};
use nacre_buf::{BufList, Bytes};
use nacre_simdisk::{Failing, Faults};
use nacre_store::{Completion, ObjectStore, StoreError};
use nacre_txn::{FetchFrom, ObjectView, Op, ReadError, StoreToken, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Eversion, HObject, PgId, SpgId};

const SEEDS: u64 = 60;

pub(super) fn write(nth: u64, offset: u64, data: Vec<u8>) -> Transaction {
    Transaction {
        collection: pg(),
        ops: vec![Op::Write { object: object(nth), offset, data: BufList::from(data) }],
    }
}

pub(super) fn wait(store: &mut BlockStore) -> Vec<StoreToken> {
    let mut acknowledged = Vec::new();
    while store.waiting() > 0 {
        drain(store, &mut acknowledged);
    }
    acknowledged
}

/// Lets all data reach its home and leave the cache.
pub(super) fn cold(rig: &mut Rig, mut store: BlockStore) -> BlockStore {
    wait(&mut store);
    store.finish_checkpoint();
    drop(store);
    rig.open()
}

/// The device fails from some request on, or a commit of metadata does: the store acknowledges nothing more, and what it acknowledged is there when reopened.
#[test]
fn a_failed_write_or_commit_ends_acknowledgements() {
    for seed in 0..SEEDS {
        let mut rng = SeededEntropy(seed);
        let sizes = Sizes { object_bytes_max: 100_000, write_bytes_max: 50_000 };
        let mut rig = Rig::new(seed, 8 << 20, Options::tiny());
        let mut store = rig.open();
        if seed % 3 == 0 {
            rig.fail_metadata_after(usize::try_from(rng.u64() % 4).unwrap_or_default());
        } else {
            rig.device.fail_after(rng.u64() % 300, Failing::FromThenOn);
        }
        let (mut states, mut acknowledged) = (vec![Model::default()], Vec::new());
        for number in 1..400 {
            let txn = random_txn(&mut rng, number, sizes);
            let mut state = states.last().cloned().unwrap_or_default();
            state.apply(&txn);
            if store.submit(txn, StoreToken::without_pg(number)).is_err() {
                break;
            }
            states.push(state);
            drain(&mut store, &mut acknowledged);
        }
        while store.waiting() > 0 && store.failure().is_none() {
            drain(&mut store, &mut acknowledged);
        }
        // Each flushes and commits at least.
        (0..300).for_each(|_| store.finish_checkpoint());
        assert!(store.failure().is_some(), "seed {seed}: nothing failed");
        drain(&mut store, &mut acknowledged);
        let before = acknowledged.len();
        (0..20).for_each(|_| drop(drain(&mut store, &mut acknowledged)));
        assert_eq!(acknowledged.len(), before, "seed {seed}: acknowledged after a failure");
        let refused = store.submit(write(1, 0, vec![1]), StoreToken::without_pg(0));
        assert!(matches!(refused, Err(StoreError::Failed { .. })), "seed {seed}: {refused:?}");
        drop(store);
        rig.device.heal();
        rig.crash(0);
        let mut store = rig.open();
        let found = newest(&store);
        assert!(
            found >= acknowledged.last().map_or(0, |token| token.token.0),
            "seed {seed}: lost to a failure"
        );
        let state = &states[usize::try_from(found).expect("small")];
        state.compare(&mut store, &mut Vec::new(), &format!("seed {seed}, after a failure"));
    }
}

#[test]
fn rot_and_unreadable_blocks_are_errors_of_their_object() {
    let mut rig = Rig::new(5, 8 << 20, Options::tiny());
    let mut store = rig.open();
    store.submit(write(1, 0, vec![1; 40_000]), StoreToken::without_pg(1)).expect("room");
    store.submit(write(2, 0, vec![2; 3000]), StoreToken::without_pg(2)).expect("room");
    let mut store = cold(&mut rig, store);
    let data = BlockStore::offset(store.superblock.data.start);
    let rotten = (0..200).filter(|nth| rig.device.rot(data + nth * 4096, 4096)).count();
    assert!(rotten >= 11);
    for nth in [1, 2] {
        let outcome = read(&mut store, &object(nth), 0, 4096, &mut Vec::new());
        assert!(matches!(outcome, Err(ReadError::Damaged { offset: 0, .. })), "{outcome:?}");
    }
    assert!(!store.check(true).damaged.is_empty());
    // A write over a part of a damaged block must not make the rest of it good.
    store.submit(write(2, 10, vec![9; 100]), StoreToken::without_pg(3)).expect("room");
    let mut store = cold(&mut rig, store);
    let outcome = read(&mut store, &object(2), 0, 4096, &mut Vec::new());
    assert!(matches!(outcome, Err(ReadError::Damaged { .. })), "{outcome:?}");
    // One over all of it repairs it.
    store.submit(write(2, 0, vec![7; 4096]), StoreToken::without_pg(4)).expect("room");
    let mut store = cold(&mut rig, store);
    assert_eq!(read(&mut store, &object(2), 0, 4096, &mut Vec::new()).map(|data| data.len()), Ok(4096));
}

/// What was under a write that reaches to the object's end is not read for it, and need not be whole.
#[test]
fn a_write_to_the_objects_end_repairs_a_part_of_a_block() {
    let mut rig = Rig::new(5, 8 << 20, Options::tiny());
    let mut store = rig.open();
    store.submit(write(1, 0, vec![1; 4100]), StoreToken::without_pg(1)).expect("room");
    let mut store = cold(&mut rig, store);
    let data = BlockStore::offset(store.superblock.data.start);
    assert!((0..200).filter(|nth| rig.device.rot(data + nth * 4096, 4096)).count() >= 2);
    store.submit(write(1, 4096, vec![2; 4]), StoreToken::without_pg(2)).expect("room");
    let mut store = cold(&mut rig, store);
    let mut whole = |offset, length| {
        read(&mut store, &object(1), offset, length, &mut Vec::new()).map(|data| data.to_vec())
    };
    assert_eq!(whole(4096, 4096), Ok(vec![2; 4]));
    assert!(matches!(whole(0, 4096), Err(ReadError::Damaged { .. })));
    // Longer than what was covered: zeros, not what there was below.
    store.submit(write(1, 4196, vec![3; 4]), StoreToken::without_pg(3)).expect("room");
    let mut store = cold(&mut rig, store);
    let longer = read(&mut store, &object(1), 4096, 4096, &mut Vec::new()).map(|data| data.to_vec());
    assert_eq!(longer, Ok([vec![2; 4], vec![0; 96], vec![3; 4]].concat()));
}

#[test]
fn one_bad_superblock_is_survived_two_are_not() {
    let mut rig = Rig::new(6, 8 << 20, Options::tiny());
    drop(rig.open());
    rig.device.fail_reads_at(0);
    drop(rig.open());
    rig.device.rot(4096, 4096);
    assert!(rig.try_open().is_err());
}

#[test]
fn a_full_store_refuses_writes_deletes_and_takes_writes_again() {
    let mut rig = Rig::new(7, 4 << 20, Options::tiny());
    let mut store = rig.open();
    for round in 0..3 {
        let mut count = 0;
        let refused = loop {
            let size = if count % 2 == 0 { 70_000 } else { 5000 };
            match store.submit(write(count, 0, vec![1; size]), StoreToken::without_pg(count)) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
            drain(&mut store, &mut Vec::new());
        };
        assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
        assert!(count > 60, "round {round}: full after {count} objects");
        assert!(store.usage().available_bytes < 100_000, "{:?}", store.usage());
        wait(&mut store);
        drop(store);
        store = rig.open();
        assert_eq!(store.list(&pg(), &HObject::MIN, 1000).len() as u64, count, "round {round}");
        for nth in 0..count {
            let txn = Transaction { collection: pg(), ops: vec![Op::Remove(object(nth))] };
            store.submit(txn, StoreToken::without_pg(nth)).expect("a full store deletes");
        }
        wait(&mut store);
        assert_eq!(store.usage().stored_bytes, 0);
        assert!(store.check(false).inconsistencies.is_empty());
    }
}

/// What moves to another collection stays where it is on the device, and logs are metadata.
#[test]
fn a_full_store_divides_a_collection() {
    let mut rig = Rig::new(9, 4 << 20, Options::tiny());
    let mut store = rig.open();
    let full = |nth: &u64| store.submit(write(*nth, 0, vec![1; 5000]), StoreToken::without_pg(*nth)).is_err();
    let count = (0..10_000).find(full).expect("it runs full");
    wait(&mut store);
    let entry = |nth| Op::LogAppend { version: Eversion::new(1, nth), entry: Bytes::from(vec![2; 100]) };
    let target = SpgId::replicated(PgId::new(pg().pg.pool, pg().pg.seed + 4));
    let step = Op::Move {
        target,
        pg_num: 8,
        from: HObject::MIN,
        until: HObject::max_value(),
        ops: (1..=200).map(entry).collect(),
    };
    let txn = Transaction { collection: pg(), ops: vec![step] };
    store.submit(txn, StoreToken::without_pg(count)).expect("nothing new comes to the device");
    wait(&mut store);
    drop(store);
    let mut store = rig.open();
    let found = |at: &SpgId| store.list(at, &HObject::MIN, usize::MAX).len() as u64;
    assert!(found(&target) > 0 && found(&target) + found(&pg()) == count);
    assert!(store.check(false).inconsistencies.is_empty());
}

/// A client's message may put an object back to a snapshot as often as it has operations: each time that takes what the snapshot has in
/// memory, not twice what all before it took.
#[test]
fn many_clones_in_one_transaction_need_what_they_take() {
    let mut rig = Rig::new(9, 4 << 20, Options::tiny());
    let mut store = rig.open();
    let (snapshot, head) = (object(1), object(2));
    store.submit(write(1, 0, vec![1; 5000]), StoreToken::without_pg(1)).expect("room");
    let mut txn = write(2, 0, vec![2; 100]);
    for nth in 0..80 {
        txn.push(Op::Clone { source: snapshot.clone(), target: head.clone() });
        txn.push(Op::Write { object: head.clone(), offset: nth, data: vec![3; 100].into() });
    }
    store.submit(txn, StoreToken::without_pg(2)).expect("room");
    wait(&mut store);
    drop(store);
    let mut store = rig.open();
    let data = read(&mut store, &head, 0, 5000, &mut Vec::new()).expect("it is there");
    assert!(data[..79] == [1; 79] && data[79..179] == [3; 100] && data[179..] == [1; 4821]);
}

#[test]
fn a_probe_changes_nothing_and_leaves_a_damaged_copy_alone() {
    let mut rig = Rig::new(8, 8 << 20, Options::tiny());
    drop(rig.open());
    let clock = nacre_env::RealClock::start();
    let block =
        |rig: &Rig| nacre_env::disk::blocking::read(&mut rig.device.open(), 4096, 4096).expect("healthy");
    let before = block(&rig);
    let report = crate::probe(&mut rig.device.open(), &clock).expect("a store").expect("two copies");
    assert!(*block(&rig) == *before && !report.to_string().is_empty());
    drop(rig.open());
    // Whatever power leaves of a rewrite is what was there.
    rig.device.fail_after(3, Failing::FromThenOn);
    assert!(crate::probe(&mut rig.device.open(), &clock).is_err());
    rig.device.heal();
    rig.crash(0);
    assert!(*block(&rig) == *before);
    assert!(rig.device.rot(4096, 4096));
    let rotten = block(&rig);
    assert_eq!(crate::probe(&mut rig.device.open(), &clock).expect("a store"), None);
    assert!(*block(&rig) == *rotten);
    // Either copy is enough, also where the device does not give the second one any more.
    rig.device.fail_reads_at(4096);
    assert_eq!(crate::probe(&mut rig.device.open(), &clock).expect("a store"), None);
    drop(rig.open());
}

/// What a probe says decides how long records are.
#[test]
fn an_expensive_flush_makes_records_long() {
    let cost = |us| nacre_env::disk::Cost {
        median: std::time::Duration::from_micros(us),
        best: std::time::Duration::from_micros(us),
    };
    let report = |flush| nacre_env::disk::DeviceReport {
        driver: "simulated",
        size_bytes: 0,
        durable_write: cost(20 + flush),
        cached_write: cost(20),
        flush: cost(flush),
        read: cost(20),
    };
    let (cheap, expensive) =
        (Options::default().on_device(&report(30)), Options::default().on_device(&report(2000)));
    assert_eq!(cheap.record_bytes_max, Options::default().record_bytes_max);
    assert!(expensive.record_bytes_max > cheap.record_bytes_max, "{}", expensive.commit_text());
}

/// Writes that the device says are done and that are not, or land elsewhere: the store never gives wrong data. What it
/// cannot notice is a lost record at the end of the log, so the log is written home before the store is opened again.
#[test]
fn lost_and_misdirected_writes_are_noticed() {
    let sizes = Sizes { object_bytes_max: 100_000, write_bytes_max: 50_000 };
    let (mut betrayals, mut refused, mut damaged, mut good) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut rng = SeededEntropy(seed);
        let mut rig = Rig::new(seed, 8 << 20, Options::tiny());
        let (mut store, mut model) = (rig.open(), Model::default());
        rig.device.set_faults(Faults { lost_ppm: 15_000, misdirected_ppm: 15_000, ..Faults::default() });
        for number in 1..300 {
            let txn = random_txn(&mut rng, number, sizes);
            model.apply(&txn);
            store.submit(txn, StoreToken::without_pg(number)).expect("room");
            drain(&mut store, &mut Vec::new());
        }
        let Ok(mut store) = cold_if_it_opens(&mut rig, store) else {
            refused += 1;
            continue;
        };
        rig.device.set_faults(Faults::default());
        betrayals += rig.device.counters().betrayals;
        for (name, expected) in &model.objects {
            match read(&mut store, name, 0, u64::MAX, &mut Vec::new()) {
                Ok(data) => {
                    assert!(data == expected.data, "seed {seed}: {name} reads wrong");
                    good += 1;
                }
                Err(ReadError::Damaged { .. }) => damaged += 1,
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
    }
    assert!(
        betrayals > 200 && damaged > 10 && good > 100,
        "{betrayals} betrayals: {refused} refused, {damaged} damaged, {good} good"
    );
}

fn cold_if_it_opens(rig: &mut Rig, mut store: BlockStore) -> Result<BlockStore, crate::OpenError> {
    wait(&mut store);
    store.finish_checkpoint();
    drop(store);
    rig.try_open().map(|(store, _)| store)
}

/// Errors that pass.
fn failing_reads(rig: &Rig, ppm: u32) {
    rig.device.set_faults(Faults { read_errors_ppm: ppm, ..Faults::default() });
}

#[test]
fn a_read_that_fails_once_costs_nothing() {
    for blocks in [1, 10] {
        let mut rig = Rig::new(31, 8 << 20, Options::tiny());
        let mut store = rig.open();
        store.submit(write(1, 0, vec![1; blocks * 4096]), StoreToken::without_pg(1)).expect("room");
        let mut store = cold(&mut rig, store);
        let before = rig.device.counters();
        // The first of the fetch.
        rig.device.fail_after(0, Failing::Once);
        let outcome = read(&mut store, &object(1), 0, u64::MAX, &mut Vec::new());
        assert_eq!(outcome.map(|bytes| bytes.len()), Ok(blocks * 4096));
        let after = rig.device.counters();
        assert_eq!((after.errors - before.errors, after.reads - before.reads), (1, 2));
        assert!(store.damaged.is_empty());
    }
}

/// Of a read of many blocks only those are damaged that the device does not give.
#[test]
fn one_unreadable_block_does_not_take_its_neighbours_along() {
    let mut rig = Rig::new(32, 8 << 20, Options::tiny());
    let mut store = rig.open();
    store.submit(write(1, 0, vec![1; 10 * 4096]), StoreToken::without_pg(1)).expect("room");
    let mut store = cold(&mut rig, store);
    let extents = store.shape(&pg(), &object(1)).expect("there").extents;
    rig.device.fail_reads_at(extents[0].device_offset + 4096);
    let outcome = read(&mut store, &object(1), 0, u64::MAX, &mut Vec::new());
    assert!(matches!(outcome, Err(ReadError::Damaged { offset: 4096, .. })), "{outcome:?}");
    assert_eq!(store.damaged.len(), 1);
    assert!(read(&mut store, &object(1), 8192, u64::MAX, &mut Vec::new()).is_ok());
}

pub(super) struct TestClock(pub(super) std::sync::Arc<std::sync::atomic::AtomicU64>);

impl nacre_env::Clock for TestClock {
    fn now(&self) -> nacre_types::Stamp {
        nacre_types::Stamp(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn wall(&self) -> nacre_types::UTime {
        nacre_types::UTime::default()
    }
}

/// An error of the device is not yet lost data, unlike a wrong checksum.
#[test]
fn what_could_not_be_read_is_asked_for_again_later() {
    let mut rig = Rig::new(33, 8 << 20, Options::tiny());
    let mut store = rig.open();
    for nth in [1, 2] {
        store.submit(write(nth, 0, vec![1; 4096]), StoreToken::without_pg(nth)).expect("room");
    }
    let mut store = cold(&mut rig, store);
    let now = std::sync::Arc::<std::sync::atomic::AtomicU64>::default();
    store.set_clock(Box::new(TestClock(now.clone())));
    let place =
        |store: &BlockStore, nth| store.shape(&pg(), &object(nth)).expect("there").extents[0].device_offset;
    rig.device.fail_reads_at(place(&store, 1));
    assert!(rig.device.rot(place(&store, 2), 4096));
    let outcomes = |store: &mut BlockStore| {
        [1, 2].map(|nth| read(store, &object(nth), 0, 4096, &mut Vec::new()).is_ok())
    };
    assert_eq!(outcomes(&mut store), [false, false]);
    rig.device.heal();
    now.store(5_000_000_000, std::sync::atomic::Ordering::Relaxed);
    drain(&mut store, &mut Vec::new());
    assert_eq!(outcomes(&mut store), [false, false], "not all the time");
    now.store(20_000_000_000, std::sync::atomic::Ordering::Relaxed);
    drain(&mut store, &mut Vec::new());
    assert_eq!(outcomes(&mut store), [true, false]);
}

/// What a checkpoint must read to put a block together is not lost because somebody could not read it once.
#[test]
fn a_checkpoint_reads_again_what_could_not_be_read() {
    let mut rig = Rig::new(34, 8 << 20, Options::tiny());
    let mut store = rig.open();
    store.submit(write(1, 0, vec![1; 4096]), StoreToken::without_pg(1)).expect("room");
    let mut store = cold(&mut rig, store);
    let place = store.shape(&pg(), &object(1)).expect("there").extents[0].device_offset;
    rig.device.fail_reads_at(place);
    assert!(read(&mut store, &object(1), 0, 4096, &mut Vec::new()).is_err());
    rig.device.heal();
    store.submit(write(1, 10, vec![9; 100]), StoreToken::without_pg(2)).expect("room");
    let mut store = cold(&mut rig, store);
    let bytes = read(&mut store, &object(1), 0, 4096, &mut Vec::new()).expect("nothing was lost");
    assert_eq!((bytes[0], bytes[10], bytes[109], bytes[110]), (1, 9, 9, 1));
}

/// A store that takes random transactions, and what it should hold.
struct Churn {
    rng: SeededEntropy,
    rig: Rig,
    store: BlockStore,
    model: Model,
}

impl Churn {
    fn new(seed: u64) -> Self {
        let mut rig = Rig::new(seed, 8 << 20, Options::tiny());
        Self { rng: SeededEntropy(seed), store: rig.open(), model: Model::default(), rig }
    }

    fn submit(&mut self, number: u64) {
        let sizes = Sizes { object_bytes_max: 100_000, write_bytes_max: 50_000 };
        let txn = random_txn(&mut self.rng, number, sizes);
        self.model.apply(&txn);
        self.store.submit(txn, StoreToken::without_pg(number)).expect("room");
    }
}

/// One read of ten fails, of those of checkpoints and of replay as well: nothing is lost by that.
#[test]
fn reads_that_fail_now_and_then_lose_nothing() {
    for seed in 0..SEEDS / 3 {
        let mut churn = Churn::new(seed);
        for number in 1..300 {
            failing_reads(&churn.rig, 2000);
            churn.submit(number);
            drain(&mut churn.store, &mut Vec::new());
            if number % 100 == 0 {
                wait(&mut churn.store);
                let Churn { rng, mut rig, store, model } = churn;
                drop(store);
                churn = Churn { rng, store: rig.open(), rig, model };
                churn.model.compare(&mut churn.store, &mut Vec::new(), &format!("seed {seed}, {number}"));
            }
        }
    }
}

/// Asks the device for a range, whatever is in memory.
fn ask_device(store: &mut BlockStore, name: &HObject, offset: u64, length: u64) {
    let token = StoreToken::without_pg(u64::MAX - 9);
    store.fetch(&pg(), name, offset, length, FetchFrom::Device, token);
    let mut done = Vec::new();
    for _ in 0..1000 {
        if done.contains(&Completion::Fetched(token)) {
            return;
        }
        store.drain(&mut done);
    }
    panic!("{name} never came");
}

/// What memory has of a block says nothing of the device: a read that asks the device finds rot and unreadable blocks below it.
#[test]
fn the_device_is_asked_past_the_memory() {
    let rot: fn(&Rig, u64) = |rig, place| assert!(rig.device.rot(place, 4096));
    let fail: fn(&Rig, u64) = |rig, place| rig.device.fail_reads_at(place);
    for spoil in [rot, fail] {
        let mut rig = Rig::new(41, 8 << 20, Options::tiny());
        let mut store = rig.open();
        store.submit(write(1, 0, vec![1; 10 * 4096]), StoreToken::without_pg(1)).expect("room");
        let mut store = cold(&mut rig, store);
        read(&mut store, &object(1), 0, u64::MAX, &mut Vec::new()).expect("healthy");
        let before = rig.device.counters().reads;
        ask_device(&mut store, &object(1), 0, u64::MAX);
        assert_eq!(rig.device.counters().reads, before + 1);
        assert!(store.read(&pg(), &object(1), 0, u64::MAX).is_ok(), "and keeps what is good");

        let extents = store.shape(&pg(), &object(1)).expect("there").extents;
        spoil(&rig, extents[0].device_offset + 3 * 4096);
        assert!(store.read(&pg(), &object(1), 0, u64::MAX).is_ok(), "memory has it");
        ask_device(&mut store, &object(1), 0, u64::MAX);
        let outcome = store.read(&pg(), &object(1), 0, u64::MAX);
        assert!(matches!(outcome, Err(ReadError::Damaged { offset: 12_288, .. })), "{outcome:?}");
        assert!(store.read(&pg(), &object(1), 4 * 4096, u64::MAX).is_ok());
        // As any other, it is repaired by a write over it.
        store.submit(write(1, 3 * 4096, vec![2; 4096]), StoreToken::without_pg(2)).expect("room");
        ask_device(&mut store, &object(1), 0, u64::MAX);
        assert!(store.read(&pg(), &object(1), 0, u64::MAX).is_ok());
    }
}

/// The device is asked all the time while blocks are written, moved and freed: nothing of a healthy device is damaged by that.
#[test]
fn asking_the_device_finds_nothing_on_a_healthy_one() {
    for seed in 0..SEEDS / 3 {
        let mut churn = Churn::new(seed);
        for number in 1..300 {
            churn.submit(number);
            let Churn { rng, store, .. } = &mut churn;
            let token = StoreToken::without_pg(u64::MAX - 9 - number);
            store.fetch(&pg(), &object(rng.u64() % 6), rng.u64() % 50_000, 50_000, FetchFrom::Device, token);
            drain(store, &mut Vec::new());
            assert!(store.damaged.is_empty(), "seed {seed}, {number}: {:?}", store.damaged);
        }
        let Churn { mut store, model, .. } = churn;
        wait(&mut store);
        (0..6).for_each(|nth| ask_device(&mut store, &object(nth), 0, u64::MAX));
        for _ in 0..1000 {
            // Some of those that were asked for meanwhile are under way.
            if !store.fetches.is_empty() {
                drain(&mut store, &mut Vec::new());
            }
        }
        assert!(store.damaged.is_empty() && store.fetches.is_empty(), "seed {seed}: {:?}", store.damaged);
        model.compare(&mut store, &mut Vec::new(), &format!("seed {seed}"));
    }
}
