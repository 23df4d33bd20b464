//! Reads that look at the data once (`FetchFrom::AnywhereOnce`): it comes with the completion, and memory keeps it while there is room, or if it is asked for again.

use super::faults::{cold, wait, write};
use super::model::{drain, object, pg, read_once};
use super::rig::Rig;
use crate::{BLOCK, BlockStore, Options};
use nacre_buf::PAYLOAD_CRC_SEED;
use nacre_simdisk::Failing;
use nacre_store::{Completion, ObjectStore};
use nacre_txn::{FetchFrom, ObjectView, ReadError, StoreToken};

/// Of the read that something else happens beside.
const FETCH: StoreToken = StoreToken::without_pg(77);

fn once(store: &mut BlockStore, offset: u64, length: u64) -> Option<Vec<u8>> {
    let data = read_once(store, &object(1), offset, length, &mut Vec::new())?;
    let bytes = data.to_bytes();
    let plain = nacre_buf::BufList::from(bytes.clone());
    assert_eq!(
        data.crc32c(PAYLOAD_CRC_SEED),
        plain.crc32c(PAYLOAD_CRC_SEED),
        "what goes with {offset}~{length}"
    );
    Some(bytes.to_vec())
}

fn is_in_memory(store: &BlockStore, offset: u64, length: u64) -> bool {
    match store.read(&pg(), &object(1), offset, length) {
        Ok(_) => true,
        Err(ReadError::Pending { .. }) => false,
        Err(error) => panic!("{error:?}"),
    }
}

fn roomy() -> Options {
    Options { clean_bytes_max: 1 << 20, ..Options::tiny() }
}

/// Ten blocks and a half at the device, each full of its number.
fn filled(rig: &mut Rig) -> BlockStore {
    let mut store = rig.open();
    store.submit(write(1, 0, content()), StoreToken::without_pg(1)).expect("room");
    cold(rig, store)
}

fn content() -> Vec<u8> {
    (0..10 * BLOCK + 2048).map(|at| u8::try_from(at / BLOCK).expect("ten")).collect()
}

#[test]
fn what_is_read_once_comes_with_the_completion_and_stays_when_it_is_read_again() {
    // No room: what stays when it is read again does so until the next turn.
    let mut rig = Rig::new(51, 8 << 20, Options { clean_bytes_max: 0, ..Options::tiny() });
    let mut store = filled(&mut rig);
    for (offset, length) in [(0, 4096), (8192, 4096), (12_288, 8192), (20_980, 7000), (40_960, 9999)] {
        let end = content().len().min((offset + length) as usize);
        let expected = &content()[offset as usize..end];
        assert_eq!(once(&mut store, offset, length).as_deref(), Some(expected), "{offset}~{length}");
        assert!(!is_in_memory(&store, offset, length), "{offset}~{length} was read once");
        assert_eq!(once(&mut store, offset, length).as_deref(), Some(expected), "{offset}~{length} again");
        assert!(is_in_memory(&store, offset, length), "{offset}~{length} was read twice");
    }
    assert!(store.fetches.is_empty());
}

#[test]
fn what_is_read_once_stays_while_there_is_room() {
    let mut rig = Rig::new(55, 8 << 20, roomy());
    let mut store = filled(&mut rig);
    assert_eq!(once(&mut store, 4096, 8192).as_deref(), Some(&content()[4096..12_288]));
    let before = rig.device.counters().reads;
    assert!(is_in_memory(&store, 4096, 8192));
    assert_eq!(once(&mut store, 4096, 8192), None, "it is where the view reads it");
    assert_eq!(rig.device.counters().reads, before);
}

/// What is not at the device as it is, all of it and in one piece, is put together where the view reads it.
#[test]
fn what_is_in_memory_in_part_is_read_from_there() {
    let mut rig = Rig::new(52, 8 << 20, roomy());
    let mut store = filled(&mut rig);
    store.submit(write(1, 8292, vec![99; 100]), StoreToken::without_pg(2)).expect("room");
    store.submit(write(1, 60 * 4096, vec![98; 100]), StoreToken::without_pg(3)).expect("room");
    wait(&mut store);
    let mut expected = content();
    expected[8292..8392].fill(99);
    // A changed block, alone and with others; a hole, alone and behind others; a part that another read has brought.
    for (offset, length) in [(8192, 4096), (4096, 12_288), (50 * 4096, 4096), (36_864, 100_000)] {
        assert_eq!(once(&mut store, offset, length), None, "{offset}~{length}");
        let found = store.read(&pg(), &object(1), offset, length).expect("fetched").to_bytes();
        let zeros = std::iter::repeat(&0);
        let expected = expected.iter().chain(zeros).skip(offset as usize).take(length as usize);
        assert!(found.iter().eq(expected), "{offset}~{length}");
    }
}

#[test]
fn a_read_that_fails_once_brings_the_data_and_rot_never_does() {
    let mut rig = Rig::new(53, 8 << 20, roomy());
    let mut store = filled(&mut rig);
    rig.device.fail_after(0, Failing::Once);
    assert_eq!(once(&mut store, 4096, 8192).as_deref(), Some(&content()[4096..12_288]));
    rig.device.fail_after(0, Failing::Once);
    assert_eq!(once(&mut store, 0, 4096).as_deref(), Some(&content()[..4096]));
    let extents = store.shape(&pg(), &object(1)).expect("there").extents;
    assert!(rig.device.rot(extents[0].device_offset + 5 * 4096, 4096));
    for (offset, length) in [(20_480, 4096), (16_384, 12_288)] {
        assert_eq!(once(&mut store, offset, length), None, "{offset}~{length}");
        let outcome = store.read(&pg(), &object(1), offset, length);
        assert!(matches!(outcome, Err(ReadError::Damaged { offset: 20_480, .. })), "{outcome:?}");
    }
    assert!(store.fetches.is_empty());
}

/// Blocks that were freed and used again while they were read hold something else: what comes is the object's.
#[test]
fn what_was_moved_while_it_was_read_is_read_anew() {
    let mut rig = Rig::new(54, 8 << 20, roomy());
    let mut store = filled(&mut rig);
    store.fetch(&pg(), &object(1), 4096, 4096, FetchFrom::AnywhereOnce, FETCH);
    store.submit(write(1, 0, vec![50; 10 * BLOCK]), StoreToken::without_pg(2)).expect("room");
    // Frees what is being read, and writes to it.
    store.start_checkpoint();
    store.end_checkpoint();
    store.submit(write(2, 0, vec![60; 40 * BLOCK]), StoreToken::without_pg(3)).expect("room");
    let mut done = Vec::new();
    let came = |done: &[Completion]| {
        done.iter().any(|done| matches!(done, Completion::Fetched(FETCH) | Completion::Brought(FETCH, _)))
    };
    while !came(&done) {
        store.drain(&mut done);
    }
    for completion in &done {
        if let Completion::Brought(FETCH, data) = completion {
            let found = data.to_bytes();
            assert!(found.iter().all(|byte| *byte == 1) || found.iter().all(|byte| *byte == 50), "{found:?}");
        }
    }
    assert!(drain(&mut store, &mut Vec::new()).is_empty());
    assert!(store.damaged.is_empty() && store.fetches.is_empty());
}
