//! Devices that fail, rot or are full.

use super::model::{Model, Sizes, drain, newest, object, pg, random_txn, read};
use super::rig::Rig;
use crate::{BlockStore, Options};
use nacre_buf::BufList;
use nacre_simdisk::{Failing, Faults};
use nacre_store::{ObjectStore, StoreError};
use nacre_txn::{ObjectView, Op, ReadError, Token, Transaction};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

const SEEDS: u64 = 60;

pub(super) fn write(nth: u64, offset: u64, data: Vec<u8>) -> Transaction {
    Transaction {
        collection: pg(),
        ops: vec![Op::Write { object: object(nth), offset, data: BufList::from(data) }],
    }
}

fn wait(store: &mut BlockStore) -> Vec<Token> {
    let mut acknowledged = Vec::new();
    while store.waiting() > 0 {
        drain(store, &mut acknowledged);
    }
    acknowledged
}

/// Lets all data reach its home and leave the cache.
fn cold(rig: &mut Rig, mut store: BlockStore) -> BlockStore {
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
            if store.submit(txn, Token(number)).is_err() {
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
        let refused = store.submit(write(1, 0, vec![1]), Token(0));
        assert!(matches!(refused, Err(StoreError::Failed { .. })), "seed {seed}: {refused:?}");
        drop(store);
        rig.device.heal();
        rig.crash(0);
        let mut store = rig.open();
        let found = newest(&store);
        assert!(found >= acknowledged.last().map_or(0, |token| token.0), "seed {seed}: lost to a failure");
        let state = &states[usize::try_from(found).expect("small")];
        state.compare(&mut store, &mut Vec::new(), &format!("seed {seed}, after a failure"));
    }
}

#[test]
fn rot_and_unreadable_blocks_are_errors_of_their_object() {
    let mut rig = Rig::new(5, 8 << 20, Options::tiny());
    let mut store = rig.open();
    store.submit(write(1, 0, vec![1; 40_000]), Token(1)).expect("room");
    store.submit(write(2, 0, vec![2; 3000]), Token(2)).expect("room");
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
    store.submit(write(2, 10, vec![9; 100]), Token(3)).expect("room");
    let mut store = cold(&mut rig, store);
    let outcome = read(&mut store, &object(2), 0, 4096, &mut Vec::new());
    assert!(matches!(outcome, Err(ReadError::Damaged { .. })), "{outcome:?}");
    // One over all of it repairs it.
    store.submit(write(2, 0, vec![7; 4096]), Token(4)).expect("room");
    let mut store = cold(&mut rig, store);
    assert_eq!(read(&mut store, &object(2), 0, 4096, &mut Vec::new()).map(|data| data.len()), Ok(4096));
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
            match store.submit(write(count, 0, vec![1; size]), Token(count)) {
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
        assert_eq!(store.list(&pg(), &nacre_types::HObject::MIN, 1000).len() as u64, count, "round {round}");
        for nth in 0..count {
            let txn = Transaction { collection: pg(), ops: vec![Op::Remove(object(nth))] };
            store.submit(txn, Token(nth)).expect("a full store deletes");
        }
        wait(&mut store);
        assert_eq!(store.usage().stored_bytes, 0);
        assert!(store.check(false).inconsistencies.is_empty());
    }
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
            store.submit(txn, Token(number)).expect("room");
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
