//! What every [`Disk`] must do, as cases that any implementation runs: [`run`].

use super::{BLOCK_BYTES, Disk, DiskCompletion, DiskTag, Durability, blocking};
use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the cases need.
pub const SIZE_BYTES: u64 = 16 << 20;
/// Seeds of the random case in a normal run.
const SEEDS: u64 = 4;
/// Rounds per seed.
const ROUNDS: u64 = 40;
/// Requests in flight in the random case.
const REQUESTS: u64 = 64;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Runs all cases on disks from `open`, which gives the same device of at least [`SIZE_BYTES`] each time, after
/// the earlier disk was dropped.
///
/// # Panics
/// When the disk does not conform; the message says what and, in the random case, from which seed.
pub fn run<D: Disk>(mut open: impl FnMut() -> D) {
    idle_disks_do_not_wait(&mut open());
    misuse_panics(&mut open());
    reads_give_what_was_written(&mut open());
    lists_of_any_length_are_written(&mut open());
    nothing_starts_before_submit(&mut open());
    every_tag_comes_back_once(&mut open());
    flush_and_discard_complete(&mut open());
    zero_fill_reports_progress(&mut open());
    for seed in 0..SEEDS {
        agrees_with_the_model(&mut open, seed);
    }
}

/// A buffer of `blocks` blocks, each full of a number derived from `seed` and its index.
fn pattern(seed: u64, blocks: usize) -> Bytes {
    let mut buf = AlignedBuf::with_len(blocks * BLOCK_BYTES);
    for (block, word) in buf.chunks_mut(BLOCK_BYTES).zip(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)..) {
        block.chunks_mut(8).for_each(|out| out.copy_from_slice(&word.to_le_bytes()));
    }
    buf.freeze()
}

/// Submits and waits until `count` requests are done.
fn finish(disk: &mut dyn Disk, count: usize) -> Vec<DiskCompletion> {
    disk.submit();
    let mut out = Vec::new();
    while out.len() < count {
        disk.wait();
        disk.drain(&mut out);
    }
    assert_eq!(out.len(), count, "a completion nobody asked for");
    out
}

fn idle_disks_do_not_wait(disk: &mut dyn Disk) {
    disk.submit();
    disk.wait();
    let mut out = Vec::new();
    disk.drain(&mut out);
    assert!(out.is_empty());
    assert!(disk.info().size_bytes >= SIZE_BYTES);
    assert!(disk.info().size_bytes.is_multiple_of(BLOCK));
}

fn misuse_panics(disk: &mut dyn Disk) {
    let size = disk.info().size_bytes;
    let mut panics = |what: &str, work: &dyn Fn(&mut dyn Disk)| {
        assert!(catch_unwind(AssertUnwindSafe(|| work(disk))).is_err(), "{what} was accepted");
    };
    let block = || BufList::from(pattern(1, 1));
    let tag = DiskTag(0);
    panics("a write between blocks", &|disk| disk.write(512, block(), Durability::Cached, tag));
    panics("a write beyond the end", &|disk| disk.write(size, block(), Durability::Cached, tag));
    panics("an empty write", &|disk| disk.write(0, BufList::new(), Durability::Cached, tag));
    panics("a write of half a block", &|disk| {
        disk.write(0, block().slice(0, BLOCK_BYTES / 2), Durability::Cached, tag);
    });
    panics("unaligned memory", &|disk| {
        disk.write(0, BufList::from(pattern(1, 2)).slice(512, BLOCK_BYTES), Durability::Cached, tag);
    });
    panics("a read of half a block", &|disk| disk.read(0, AlignedBuf::with_len(BLOCK_BYTES / 2), tag));
    panics("a read across the end", &|disk| {
        disk.read(size - BLOCK, AlignedBuf::with_len(2 * BLOCK_BYTES), tag);
    });
    panics("a discard that overflows", &|disk| disk.discard(u64::MAX - BLOCK + 1, BLOCK, tag));
    assert!(finish(disk, 0).is_empty());
}

fn reads_give_what_was_written(disk: &mut dyn Disk) {
    let last = disk.info().size_bytes - BLOCK;
    for (offset, blocks, durability) in [
        (0, 1, Durability::Durable),
        (BLOCK, 16, Durability::Cached),
        (1 << 20, 1024, Durability::Cached),
        (last, 1, Durability::Durable),
    ] {
        for seed in 0..2 {
            let data = pattern(offset + seed, blocks);
            blocking::write(disk, offset, data.clone().into(), durability).expect("write");
            let read = blocking::read(disk, offset, data.len()).expect("read");
            assert!(*read == *data, "{blocks} blocks at {offset}");
        }
    }
}

/// More slices than the system takes in one call (1024).
fn lists_of_any_length_are_written(disk: &mut dyn Disk) {
    const SLICES: usize = 2500;
    for durability in [Durability::Cached, Durability::Durable] {
        let list: BufList = (0..SLICES as u64).map(|seed| pattern(seed, 1)).collect();
        blocking::write(disk, BLOCK, list.clone(), durability).expect("write");
        let read = blocking::read(disk, BLOCK, list.len()).expect("read");
        assert!(list == BufList::from(read.freeze()));
    }
}

fn nothing_starts_before_submit(disk: &mut dyn Disk) {
    blocking::write(disk, 0, pattern(1, 1).into(), Durability::Cached).expect("write");
    disk.write(0, pattern(2, 1).into(), Durability::Cached, DiskTag(7));
    let mut out = Vec::new();
    disk.drain(&mut out);
    assert!(out.is_empty());
    assert_eq!(finish(disk, 1)[0].tag, DiskTag(7));
    assert!(*blocking::read(disk, 0, BLOCK_BYTES).expect("read") == *pattern(2, 1));
}

fn every_tag_comes_back_once(disk: &mut dyn Disk) {
    const COUNT: u64 = 1500;
    for index in 0..COUNT {
        disk.write(index * BLOCK, pattern(index, 1).into(), Durability::Cached, DiskTag(index));
    }
    let mut tags: Vec<u64> = finish(disk, 1500).iter().map(|done| done.tag.0).collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..COUNT));
    for index in 0..COUNT {
        disk.read(index * BLOCK, AlignedBuf::with_len(BLOCK_BYTES), DiskTag(index));
    }
    for done in finish(disk, 1500) {
        assert_eq!(done.result, Ok(()));
        let buffer = done.buffer.expect("a read gives its buffer back");
        assert!(*buffer == *pattern(done.tag.0, 1), "block {}", done.tag.0);
    }
}

fn flush_and_discard_complete(disk: &mut dyn Disk) {
    let data = pattern(3, 16);
    blocking::write(disk, 0, data.clone().into(), Durability::Cached).expect("write");
    blocking::flush(disk).expect("flush");
    let discarded = blocking::discard(disk, 4 * BLOCK, 8 * BLOCK);
    let read = blocking::read(disk, 0, data.len()).expect("read");
    for (index, (read, data)) in read.chunks(BLOCK_BYTES).zip(data.chunks(BLOCK_BYTES)).enumerate() {
        let may_differ = discarded.is_ok() && (4..12).contains(&index);
        assert!(read == data || may_differ, "block {index} after a discard: {discarded:?}");
    }
    blocking::write(disk, 4 * BLOCK, data.slice(..BLOCK_BYTES).into(), Durability::Durable).expect("write");
    let read = blocking::read(disk, 4 * BLOCK, BLOCK_BYTES).expect("read");
    assert!(*read == data[..BLOCK_BYTES], "written again after a discard");
}

fn zero_fill_reports_progress(disk: &mut dyn Disk) {
    const LENGTH: u64 = (5 << 20) + BLOCK;
    blocking::write(disk, 0, pattern(9, 1).into(), Durability::Cached).expect("write");
    blocking::write(disk, BLOCK + LENGTH, pattern(9, 1).into(), Durability::Cached).expect("write");
    let mut seen = Vec::new();
    blocking::zero_fill(disk, BLOCK, LENGTH, &mut |done| seen.push(done)).expect("zeros");
    assert!(seen.is_sorted() && seen.last() == Some(&LENGTH), "{seen:?}");
    let read = blocking::read(disk, 0, (2 * BLOCK + LENGTH) as usize).expect("read");
    let (before, rest) = read.split_at(BLOCK_BYTES);
    let (zeros, after) = rest.split_at(LENGTH as usize);
    assert!(*before == *pattern(9, 1) && *after == *pattern(9, 1));
    assert!(zeros.iter().all(|byte| *byte == 0));
}

/// Rounds of many requests at once, no two on the same blocks, reopening between them.
fn agrees_with_the_model<D: Disk>(open: &mut impl FnMut() -> D, seed: u64) {
    const SPAN: u64 = 32;
    let mut rng = SeededEntropy(seed);
    let mut model: BTreeMap<u64, Bytes> = BTreeMap::new();
    let mut disk = open();
    for round in 0..ROUNDS {
        let mut wanted = BTreeMap::new();
        for request in 0..REQUESTS {
            let blocks = 1 + rng.u64() % SPAN;
            let first = request * SPAN + rng.u64() % (SPAN - blocks + 1);
            let length = (blocks * BLOCK) as usize;
            if rng.u64().is_multiple_of(2) {
                let data = pattern(rng.u64(), blocks as usize);
                for (block, index) in (first..first + blocks).zip(0..) {
                    model.insert(block, data.slice(index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES));
                }
                let durability =
                    if rng.u64().is_multiple_of(4) { Durability::Durable } else { Durability::Cached };
                disk.write(first * BLOCK, data.into(), durability, DiskTag(request));
            } else {
                wanted.insert(request, first);
                disk.read(first * BLOCK, AlignedBuf::with_len(length), DiskTag(request));
            }
            if rng.u64().is_multiple_of(8) {
                disk.submit();
            }
        }
        for done in finish(&mut disk, REQUESTS as usize) {
            assert_eq!(done.result, Ok(()), "seed {seed} round {round}");
            let (Some(buffer), Some(first)) = (done.buffer, wanted.get(&done.tag.0)) else { continue };
            for (read, block) in buffer.chunks(BLOCK_BYTES).zip(*first..) {
                let good = model.get(&block).is_none_or(|data| *read == **data);
                assert!(good, "seed {seed} round {round}: block {block} reads wrong");
            }
        }
        if rng.u64().is_multiple_of(8) {
            drop(disk);
            disk = open();
        }
    }
}
