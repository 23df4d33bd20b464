//! Pools that compress, on devices that give other data than they got: errors of the objects that have them, and of nothing else.

use super::faults::TestClock;
use super::model::{drain, object, pg, read};
use super::packing::{all_of, checkpoint, compressible, do_all, force, opened, write};
use super::rig::Rig;
use crate::{BLOCK, BlockStore, Options, PAGE_BLOCKS};
use nacre_buf::{AlignedBuf, Bytes, crc};
use nacre_env::disk::{Durability, blocking};
use nacre_store::{ObjectStore, StoreState};
use nacre_txn::{Op, ReadError};
use nacre_types::{CompressionAlgorithm, HObject};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: usize = PAGE_BLOCKS as usize * BLOCK;

/// The polynomial of CRC-32C.
const POLYNOMIAL: u64 = 0x1_1EDC_6F41;

/// Other data with the same checksum: a multiple of the polynomial is added.
fn forge(block: &mut [u8]) {
    let before = crc::crc32c(u32::MAX, block);
    for power in 0..=32 {
        let bit = 32 - power;
        block[bit / 8] ^= u8::from(POLYNOMIAL >> power & 1 == 1) << (bit % 8);
    }
    assert_eq!(crc::crc32c(u32::MAX, block), before);
}

/// Where the first stored block of the blob of a page is.
fn place(store: &BlockStore, name: &HObject, page: usize) -> u64 {
    let shape = store.shape(&pg(), name).expect("it is there");
    let offset = (page * PAGE_BYTES) as u64;
    shape.packed.iter().find(|packed| packed.offset == offset).expect("a blob").device_offsets[0]
}

fn is_damaged(store: &mut BlockStore, offset: usize, length: usize) -> bool {
    match read(store, &object(1), offset as u64, length as u64, &mut Vec::new()) {
        Ok(_) => false,
        Err(ReadError::Damaged { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_blob_that_cannot_be_decompressed_is_an_error_of_its_object_alone() {
    for algorithm in CompressionAlgorithm::ALL {
        let mut rig = Rig::new(1, 16 << 20, Options::tiny());
        let mut store = opened(&mut rig, force(algorithm));
        let mut data = compressible(1, 3 * PAGE_BLOCKS as usize);
        write(&mut store, 1, 0, &data);
        write(&mut store, 2, 0, &data);
        checkpoint(&mut store);
        let at = place(&store, &object(1), 1);
        drop(store);
        rig.kill();
        let mut block = AlignedBuf::with_len(BLOCK);
        block.copy_from_slice(&rig.device.peek(at, BLOCK));
        forge(&mut block);
        let written = blocking::write(&mut rig.device.open(), at, block.freeze().into(), Durability::Durable);
        written.expect("a healthy device");
        let mut store = rig.open();
        assert!(is_damaged(&mut store, 0, 3 * PAGE_BYTES), "{algorithm}");
        assert!(is_damaged(&mut store, PAGE_BYTES + 5, 10), "{algorithm}: known by now");
        assert!(
            !is_damaged(&mut store, 0, PAGE_BYTES) && !is_damaged(&mut store, 2 * PAGE_BYTES, PAGE_BYTES)
        );
        assert!(all_of(&mut store, &object(2)) == data, "{algorithm}: another object");
        let report = store.check(true);
        assert_eq!((report.inconsistencies.len(), report.damaged.len()), (0, 1), "{algorithm}");
        // What a checkpoint puts together with it stays damaged, and the checkpoint comes to its end.
        let part = Bytes::from_static(b"new").into();
        let offset = PAGE_BYTES as u64 + 10;
        do_all(&mut store, vec![Op::Write { object: object(1), offset, data: part }]);
        store.checkpoint_now().expect("a healthy device");
        assert!(is_damaged(&mut store, PAGE_BYTES, 100), "{algorithm}: written in part");
        assert!(is_damaged(&mut store, PAGE_BYTES + BLOCK, 100), "{algorithm}: beside it");
        assert_eq!((store.failure(), store.state() == StoreState::Failed), (None, false));
        data[PAGE_BYTES..2 * PAGE_BYTES].fill(7);
        write(&mut store, 1, PAGE_BLOCKS as usize, &data[PAGE_BYTES..2 * PAGE_BYTES]);
        checkpoint(&mut store);
        assert!(all_of(&mut store, &object(1)) == data, "{algorithm}: written again");
    }
}

/// An error of the device passes, unlike a wrong checksum.
#[test]
fn a_blob_that_cannot_be_read_is_an_error_until_it_can() {
    let mut rig = Rig::new(1, 16 << 20, Options::tiny());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Lz4));
    let data = compressible(1, 2 * PAGE_BLOCKS as usize);
    write(&mut store, 1, 0, &data);
    checkpoint(&mut store);
    let at = place(&store, &object(1), 1);
    drop(store);
    rig.kill();
    rig.device.fail_reads_at(at);
    let mut store = rig.open();
    let now = Arc::<AtomicU64>::default();
    store.set_clock(Box::new(TestClock(Arc::clone(&now))));
    assert!(is_damaged(&mut store, 0, 2 * PAGE_BYTES) && !is_damaged(&mut store, 0, PAGE_BYTES));
    assert_eq!(store.failure(), None);
    rig.device.heal();
    assert!(is_damaged(&mut store, PAGE_BYTES, 100), "not all the time");
    now.store(20_000_000_000, Ordering::Relaxed);
    drain(&mut store, &mut Vec::new());
    assert!(all_of(&mut store, &object(1)) == data);
}
