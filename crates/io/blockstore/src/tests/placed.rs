//! Short writes that are placed: together with others' in one request, beside the record, and nobody writes them home.

use super::faults::{cold, wait, write};
use super::model::{drain, object, read};
use super::rig::{POOL, Rig, hint_in};
use crate::{BLOCK, BlockStore, Options};
use nacre_buf::Bytes;
use nacre_env::disk::{Cost, DeviceReport};
use nacre_store::ObjectStore;
use nacre_txn::StoreToken;
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Compression, CompressionMode, Entropy};
use std::time::Duration;

/// Writes under way, more than go together at least.
const MANY: u64 = 32;
const CRASHING_SEEDS: u64 = 40;
const CRASHES: u64 = 8;

/// As on flash that keeps what it has when power goes.
fn options() -> Options {
    let cost = |us| Cost { median: Duration::from_micros(us), best: Duration::from_micros(us) };
    let report = DeviceReport {
        driver: "simulated",
        size_bytes: 64 << 20,
        durable_write: cost(20),
        cached_write: cost(20),
        flush: cost(30),
        read: cost(80),
    };
    Options::default().on_device(&report)
}

fn submit(store: &mut BlockStore, nth: u64, bytes: usize) {
    let content = u8::try_from(nth % 251).expect("below 251");
    store.submit(write(nth, 0, vec![content; bytes]), StoreToken::without_pg(nth)).expect("room");
}

/// Writes objects `first ..` at a time; gives the requests for durable writes that this took, and the bytes of all writes.
fn write_many(rig: &Rig, store: &mut BlockStore, first: u64, bytes: usize) -> (u64, u64) {
    let before = rig.device.counters();
    (first..first + MANY).for_each(|nth| submit(store, nth, bytes));
    wait(store);
    let after = rig.device.counters();
    assert_eq!(after.cached_writes, before.cached_writes);
    (after.durable_writes - before.durable_writes, after.written_bytes - before.written_bytes)
}

fn is_as_written(store: &mut BlockStore, nth: u64) -> bool {
    let content = u8::try_from(nth % 251).expect("below 251");
    let data: Bytes = read(store, &object(nth), 0, u64::MAX, &mut Vec::new()).expect("it was acknowledged");
    data.iter().all(|byte| *byte == content)
}

#[test]
fn short_writes_that_come_together_are_one_request_and_are_written_once() {
    let mut rig = Rig::new(1, 64 << 20, options());
    let mut store = rig.open();
    // Nobody knows yet that many come.
    write_many(&rig, &mut store, 0, BLOCK);
    let (requests, bytes) = write_many(&rig, &mut store, 0, BLOCK);
    assert_eq!(requests, 2, "the record, and the data of all");
    assert!(bytes < (MANY + MANY / 2) * BLOCK as u64, "{bytes} bytes");
    assert!((0..MANY).all(|nth| is_as_written(&mut store, nth)));
    // What a kill leaves, and then what a checkpoint does.
    drop(store);
    let mut store = rig.open();
    assert!((0..MANY).all(|nth| is_as_written(&mut store, nth)));
    let before = rig.device.counters().written_bytes;
    store.finish_checkpoint();
    assert_eq!(rig.device.counters().written_bytes, before, "they are at home");
    assert!(store.check(true).inconsistencies.is_empty());
}

#[test]
fn a_write_by_itself_and_parts_of_blocks_are_in_the_record() {
    let mut rig = Rig::new(2, 64 << 20, options());
    let mut store = rig.open();
    for nth in 0..2 * MANY {
        let before = rig.device.counters().durable_writes;
        submit(&mut store, nth, BLOCK);
        wait(&mut store);
        assert_eq!(rig.device.counters().durable_writes - before, 1);
    }
    write_many(&rig, &mut store, 0, BLOCK);
    let (requests, _) = write_many(&rig, &mut store, 0, BLOCK + 1);
    assert_eq!(requests, 1, "the record");
    // Of half of the objects that were written one by one it is two blocks, of the others one.
    assert_eq!(store.table.space.dirty_slots, 3 * MANY);
}

#[test]
fn what_a_checkpoint_compresses_is_in_the_record() {
    let mut rig = Rig::new(3, 64 << 20, options());
    let mut store = rig.open();
    let compression = Compression { mode: CompressionMode::Force, ..Compression::default() };
    store.set_compression(POOL, compression, hint_in);
    write_many(&rig, &mut store, 0, BLOCK);
    let (requests, _) = write_many(&rig, &mut store, 0, BLOCK);
    assert_eq!(requests, 1, "the record");
}

/// Where free space is in single blocks, they go there: large writes need the long runs.
#[test]
fn they_go_into_holes_where_long_runs_are_rare() {
    let mut rig = Rig::new(4, 16 << 20, options());
    let mut store = rig.open();
    // All but a few blocks are used.
    let mut nth = 0;
    while store.usage().available_bytes > 120 * BLOCK as u64 {
        submit(&mut store, nth, BLOCK);
        wait(&mut store);
        nth += 1;
    }
    store.finish_checkpoint();
    assert_eq!(store.table.space.alloc.free().long_blocks(), 0);
    write_many(&rig, &mut store, 0, BLOCK);
    let dirty = store.table.space.dirty_slots;
    write_many(&rig, &mut store, MANY, BLOCK);
    assert_eq!(store.table.space.dirty_slots, dirty, "none is to go home");
    assert!((0..nth).all(|nth| is_as_written(&mut store, nth)));
    assert!(store.check(true).inconsistencies.is_empty());
}

#[test]
fn what_takes_the_place_of_cached_data_is_cached_and_nothing_else() {
    let mut rig = Rig::new(5, 64 << 20, options());
    let mut store = rig.open();
    write_many(&rig, &mut store, 0, BLOCK);
    let mut store = cold(&mut rig, store);
    (0..MANY / 2).for_each(|nth| assert!(is_as_written(&mut store, nth) && is_as_written(&mut store, nth)));
    let cached = store.cache.bytes();
    assert!(cached > 0);
    for _ in 0..3 {
        write_many(&rig, &mut store, 0, BLOCK);
        assert_eq!(store.cache.bytes(), cached, "what was there before is not");
    }
    let reads = rig.device.counters().reads;
    assert!((0..MANY / 2).all(|nth| is_as_written(&mut store, nth)));
    assert_eq!(rig.device.counters().reads, reads);
    assert!((MANY / 2..MANY).all(|nth| is_as_written(&mut store, nth)));
    assert!(rig.device.counters().reads > reads, "nobody had read those");
}

/// Objects that are written in turn, the block of each with the number of its transaction.
const OBJECTS: u64 = 12;

/// The newest number of an object's, when so many transactions are there.
fn newest_of(nth: u64, count: u64) -> u64 {
    let behind = (count + OBJECTS - nth) % OBJECTS;
    count.saturating_sub(behind)
}

fn number_in(store: &mut BlockStore, nth: u64) -> u64 {
    let data = read(store, &object(nth), 0, u64::MAX, &mut Vec::new()).unwrap_or_default();
    let numbers: Vec<u64> = data
        .chunks_exact(8)
        .map(|chunk| u64::from_le_bytes(chunk.try_into().expect("eight bytes")))
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[0] == pair[1]), "half of a write: {numbers:?}");
    numbers.first().copied().unwrap_or(0)
}

/// Requests with pieces of several transactions are torn by a loss of power, and records that go with them lost or not.
#[test]
fn power_that_goes_takes_whole_writes_and_none_that_was_acknowledged() {
    let (mut gathered, mut lost) = (0, 0);
    for seed in 0..CRASHING_SEEDS {
        let mut rng = SeededEntropy(seed);
        let options = Options { flushed_together_min: 4, ..Options::tiny() };
        let mut rig = Rig::new(seed, 4 << 20, options);
        let mut acknowledged = 0;
        for crash in 0..CRASHES {
            let mut store = rig.open();
            let found: Vec<u64> = (0..OBJECTS).map(|nth| number_in(&mut store, nth)).collect();
            let mut newest = found.iter().copied().max().unwrap_or(0);
            assert!(newest >= acknowledged, "seed {seed}, crash {crash}: {newest} of {acknowledged}");
            for (nth, found) in (0..).zip(&found) {
                assert_eq!(
                    *found,
                    newest_of(nth, newest),
                    "seed {seed}, crash {crash}, object {nth}, {newest}"
                );
            }
            for _ in 0..rng.u64() % 8 {
                for _ in 0..4 + rng.u64() % 5 {
                    newest += 1;
                    let data = newest.to_le_bytes().repeat(BLOCK / 8);
                    store
                        .submit(write(newest % OBJECTS, 0, data), StoreToken::without_pg(newest))
                        .expect("room");
                }
                gathered += store.requests.gathered();
                let mut durable = Vec::new();
                (0..rng.u64() % 8).for_each(|_| drop(drain(&mut store, &mut durable)));
                acknowledged = durable.last().map_or(acknowledged, |token| token.token.0);
            }
            rig.crash(usize::try_from(rng.u64() % 3).unwrap_or_default());
            drop(store);
            lost += newest - acknowledged;
        }
    }
    assert!(gathered > 200 && lost > 200, "{gathered} requests of several, {lost} lost");
}
