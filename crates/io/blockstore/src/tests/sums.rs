//! Checksums that come with data are those of the device, and what the device has verified goes with the data.

use super::model::{drain, object, pg, whole_blocks};
use super::rig::Rig;
use crate::{BLOCK, BlockStore, Options};
use nacre_buf::BufList;
use nacre_store::ObjectStore;
use nacre_txn::{FetchFrom, ObjectView, Op, ReadError, StoreToken, Transaction};

const BLOCK_U64: u64 = BLOCK as u64;

fn write(store: &mut BlockStore, index: u64, data: BufList) {
    let op = Op::Write { object: object(0), offset: index * BLOCK_U64, data };
    store.submit(Transaction { collection: pg(), ops: vec![op] }, StoreToken::without_pg(0)).expect("room");
    let mut acknowledged = Vec::new();
    while acknowledged.is_empty() {
        drain(store, &mut acknowledged);
    }
}

fn read(store: &mut BlockStore, offset: u64, length: u64) -> BufList {
    loop {
        match store.read(&pg(), &object(0), offset, length) {
            Ok(data) => return data,
            Err(ReadError::Pending { .. }) => {
                store.fetch(&pg(), &object(0), offset, length, FetchFrom::Anywhere, StoreToken::without_pg(1))
            }
            Err(error) => panic!("{error:?}"),
        }
        while drain(store, &mut Vec::new()).is_empty() {}
    }
}

/// Checksums that are known of the blocks of an aligned range, and that they are right.
fn known(store: &mut BlockStore, index: u64, count: u64) -> Vec<bool> {
    let data = read(store, index * BLOCK_U64, count * BLOCK_U64);
    assert_eq!(data.len(), count as usize * BLOCK);
    let plain = BufList::from(data.to_bytes());
    assert_eq!(data.block_crcs(), plain.block_crcs());
    let blocks = (0..count as usize).map(|nth| data.slice(nth * BLOCK, BLOCK).known_crc().is_some());
    let blocks: Vec<bool> = blocks.collect();
    assert_eq!(data.known_crc().is_some(), blocks.iter().all(|known| *known));
    blocks
}

/// Blocks 0 to 15 are placed, 16 to 19 a hole, 20 and 21 in memory.
fn filled(rig: &mut Rig) -> BlockStore {
    let mut store = rig.open();
    write(&mut store, 0, whole_blocks(1, 16));
    write(&mut store, 20, whole_blocks(2, 1));
    write(&mut store, 21, whole_blocks(3, 1));
    store
}

fn rig() -> Rig {
    Rig::new(21, 64 << 20, Options::default())
}

#[test]
fn what_was_written_is_read_with_its_checksums() {
    let mut store = filled(&mut rig());
    assert_eq!(known(&mut store, 0, 22), [true; 22]);
    assert_eq!(known(&mut store, 20, 1), [true]);
    assert_eq!(known(&mut store, 5, 1), [true]);
    assert_eq!(known(&mut store, 17, 1), [true], "a hole");
}

#[test]
fn what_the_device_has_is_read_with_its_checksums() {
    let mut rig = rig();
    let mut store = filled(&mut rig);
    store.finish_checkpoint();
    drop(store);
    let mut store = rig.open();
    assert_eq!(known(&mut store, 5, 1), [true], "from the device");
    assert_eq!(known(&mut store, 5, 1), [true], "from the cache");
    assert_eq!(known(&mut store, 0, 22), [true; 22]);
}

#[test]
fn nothing_is_known_of_what_was_changed_in_parts() {
    let mut store = filled(&mut rig());
    let op = Op::Write { object: object(0), offset: 3 * BLOCK_U64 + 7, data: vec![9; 100].into() };
    store.submit(Transaction { collection: pg(), ops: vec![op] }, StoreToken::without_pg(0)).expect("room");
    assert_eq!(known(&mut store, 0, 5), [true, true, true, false, false], "up to there");
    assert_eq!(known(&mut store, 3, 1), [false]);
    assert_eq!(known(&mut store, 4, 18), [true; 18]);
    for (offset, length) in [(512, 8192), (0, 5000), (3 * BLOCK_U64, 4000), (19 * BLOCK_U64 + 512, 8192)] {
        let data = read(&mut store, offset, length);
        assert_eq!((data.len() as u64, data.known_crc()), (length, None));
        assert_eq!(data.crc32c(7), BufList::from(data.to_bytes()).crc32c(7));
    }
}

/// That checksums which came are used shows by a wrong one: the device's block counts as damaged then.
#[test]
#[cfg_attr(debug_assertions, ignore = "lists refuse wrong checksums")]
fn a_wrong_checksum_that_came_along_is_stored() {
    let mut rig = rig();
    let mut store = filled(&mut rig);
    let data = whole_blocks(4, 16);
    let mut crcs = data.block_crcs();
    crcs[9] ^= 1;
    write(&mut store, 0, data.with_block_crcs(crcs));
    store.finish_checkpoint();
    drop(store);
    let mut store = rig.open();
    assert_eq!(known(&mut store, 0, 9), [true; 9]);
    assert_eq!(known(&mut store, 10, 6), [true; 6]);
    store.fetch(&pg(), &object(0), 9 * BLOCK_U64, BLOCK_U64, FetchFrom::Anywhere, StoreToken::without_pg(1));
    while drain(&mut store, &mut Vec::new()).is_empty() {}
    let found = store.read(&pg(), &object(0), 9 * BLOCK_U64, BLOCK_U64);
    assert!(matches!(found, Err(ReadError::Damaged { .. })), "{found:?}");
}
