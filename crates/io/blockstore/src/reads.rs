//! Reading from the device: fetches, and what a checkpoint needs to put blocks together.

use crate::BLOCK;
use crate::blob::{Blob, Place};
use crate::cache::Pin;
use crate::device::{DeviceBlock, Run};
use crate::fetch::{Damage, DamageKind, Hand, ReadIo};
use crate::onode::Onode;
use crate::slot::Slot;
use crate::store::{BlockStore, IO_BLOCKS_MAX};
use crate::table::{index_of, within};
use nacre_buf::{BufList, Bytes, crc};
use nacre_env::disk::DiskCompletion;
use nacre_env::disk::blocking::READ_ATTEMPTS;
use nacre_txn::FetchFrom;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// Damaged blocks remembered; of more, the oldest by number are tried again.
const DAMAGED_MAX: usize = 10_000;
/// How long a block that the device did not give is not asked for again.
const UNREADABLE_FOR: Duration = Duration::from_secs(10);

impl BlockStore {
    /// Reads device blocks, ascending and each once: neighbours together. Gives the number of reads.
    pub(crate) fn start_reads(&mut self, blocks: &[DeviceBlock], fetch: Option<usize>) -> usize {
        let mut reads = 0;
        let follows = |a: &DeviceBlock, b: &DeviceBlock| a.block + 1 == b.block;
        for group in blocks.chunk_by(follows).flat_map(|group| group.chunks(IO_BLOCKS_MAX)) {
            let Some(first) = group.first() else { continue };
            let run = Run { start: first.block, count: group.len() as u64 };
            let crcs = group.iter().map(|device| device.crc).collect();
            self.request_read(ReadIo { run, crcs, fetch, frees: self.frees, attempt: 0 });
            reads += 1;
        }
        reads
    }

    pub(crate) fn read_completed(&mut self, read: ReadIo, completion: DiskCompletion) {
        let is_current = read.frees == self.frees;
        if is_current {
            let hand = read.fetch.and_then(|id| self.fetches.get(id)).and_then(|fetch| fetch.hand);
            let hand = hand.filter(|hand| hand.run == read.run);
            let content = completion.result.map_err(|error| error.to_string());
            let content = content.and_then(|()| completion.buffer.ok_or_else(|| "no data".to_owned()));
            let again = match content {
                Ok(bytes) => {
                    let bytes = bytes.freeze();
                    if let (Some(hand), Some(id)) = (hand, read.fetch)
                        && read.is_good(&bytes)
                    {
                        return self.hand_over(id, &read, &bytes, hand);
                    }
                    self.take_content(&read, &bytes)
                }
                Err(reason) => self.read_failed(&read, &reason),
            };
            let more = again.len();
            again.into_iter().for_each(|read| self.request_read(read));
            if more > 0 {
                return self.reads_split(read.fetch, more);
            }
        }
        let Some(id) = read.fetch else { return self.base_read() };
        let Some(fetch) = self.fetches.get_mut(id) else { return };
        fetch.reads_left -= 1;
        fetch.is_stale |= !is_current;
        if fetch.reads_left > 0 {
            return;
        }
        fetch.all_back();
        if fetch.is_single && is_current && read.run.blocks().all(|block| self.cache.holds(block)) {
            return self.end_fetch(id);
        }
        // What was in memory at the start may be gone, what was read may belong to somebody else by now.
        self.continue_fetch(id);
    }

    /// In place of one read there are `count` now.
    fn reads_split(&mut self, fetch: Option<usize>, count: usize) {
        match fetch {
            None => self.bases_split(count),
            Some(id) => {
                if let Some(fetch) = self.fetches.get_mut(id) {
                    fetch.reads_left += count - 1;
                    fetch.is_single &= count == 1;
                }
            }
        }
    }

    /// What is to be read again when the device answered with an error: all of it a few times, then each block by itself.
    fn read_failed(&mut self, read: &ReadIo, reason: &str) -> Vec<ReadIo> {
        if read.attempt + 1 < READ_ATTEMPTS {
            tracing::warn!(reason, attempt = read.attempt + 1, "a read failed and is tried again");
            let (run, crcs, attempt) = (read.run, read.crcs.clone(), read.attempt + 1);
            return vec![ReadIo { run, crcs, fetch: read.fetch, frees: read.frees, attempt }];
        }
        if read.run.count > 1 {
            let single = |(block, crc)| read.single(block, crc, READ_ATTEMPTS - 1);
            return read.run.blocks().zip(read.crcs.iter().copied()).map(single).collect();
        }
        if read.fetch.is_none() {
            self.base_unreadable(read.run.start);
        }
        let kind = DamageKind::Unreadable { since: self.shares.now() };
        self.note_damage(read, read.run.start, Damage { reason: reason.to_owned(), kind });
        Vec::new()
    }

    /// Blocks that the device would not give are asked for again after a while.
    pub(crate) fn forgive(&mut self) {
        if self.damaged.is_empty() {
            return;
        }
        let Some(now) = self.shares.now() else { return };
        self.damaged.retain(|_, damage| match damage.kind {
            DamageKind::Unreadable { since: Some(since) } => now.since(since) < UNREADABLE_FOR,
            _ => true,
        });
    }

    /// From here on the number may be another fetch's: no read of this one is under way, and it pins nothing.
    fn end_fetch(&mut self, id: usize) {
        let Some(fetch) = self.fetches.try_remove(id) else { return };
        fetch.pins.iter().for_each(|first| self.cache.unpin(*first, Pin::Fetch(id)));
        fetch.unpacked.iter().for_each(|first| self.unpacked.unpin(*first));
        self.fetched.push(fetch.token);
    }

    /// Gives what was read to the reader that asked for it. Memory keeps it when it was asked for before, and not long ago.
    fn hand_over(&mut self, id: usize, read: &ReadIo, bytes: &Bytes, hand: Hand) {
        self.cache.passed(read.run, bytes);
        let Some(fetch) = self.fetches.try_remove(id) else { return };
        fetch.pins.iter().for_each(|first| self.cache.unpin(*first, Pin::Fetch(id)));
        fetch.unpacked.iter().for_each(|first| self.unpacked.unpin(*first));
        let data = BufList::from(bytes.slice(hand.from..hand.from + hand.bytes));
        let data = match (hand.from, read.crcs.as_slice()) {
            (0, [one]) if hand.bytes == BLOCK => data.with_crc(*one),
            (0, crcs) => data.with_block_crcs(crcs.iter().copied().take(hand.bytes / BLOCK).collect()),
            _ => data,
        };
        self.brought.push((fetch.token, data));
    }

    /// Checks what was read, block by block, and gives the cache what is good. What is to be read again: a wrong checksum may
    /// come of the way from the device.
    fn take_content(&mut self, read: &ReadIo, bytes: &Bytes) -> Vec<ReadIo> {
        if self.is_all_good(read, bytes) {
            self.keep_read(read, bytes, &[read.run]);
            return Vec::new();
        }
        let (mut good, mut again) = (Vec::with_capacity(read.crcs.len()), Vec::new());
        for (nth, (block, crc)) in read.run.blocks().zip(&read.crcs).enumerate() {
            let verdict = verify(bytes.get(nth * BLOCK..(nth + 1) * BLOCK).unwrap_or_default(), *crc);
            good.push(verdict.is_ok() && self.cache.find(block).is_none());
            match verdict {
                Ok(()) => (),
                Err(_) if read.attempt + 1 < READ_ATTEMPTS => {
                    again.push(read.single(block, *crc, read.attempt + 1));
                }
                Err(reason) => self.note_damage(read, block, Damage { reason, kind: DamageKind::Lost }),
            }
        }
        let (mut parts, mut start) = (Vec::new(), read.run.start);
        for group in good.chunk_by(|a, b| a == b) {
            let part = Run { start, count: group.len() as u64 };
            start = part.end();
            parts.extend(group.first().is_some_and(|is_good| *is_good).then_some(part));
        }
        self.keep_read(read, bytes, &parts);
        again
    }

    /// Whether every block of it is what it should be, and none is in memory yet.
    fn is_all_good(&self, read: &ReadIo, bytes: &Bytes) -> bool {
        read.run.blocks().all(|block| self.cache.find(block).is_none()) && read.is_good(bytes)
    }

    /// Gives the cache the parts of what was read that it does not have, pinned for the reader that asked for it.
    fn keep_read(&mut self, read: &ReadIo, bytes: &Bytes, parts: &[Run]) {
        let Some(Run { start: first, .. }) = parts.first().copied() else { return };
        self.cache.insert_parts(read.run, bytes, parts, read.fetch.map_or(Pin::Checkpoint, Pin::Fetch));
        match read.fetch {
            Some(id) => self.fetches.get_mut(id).into_iter().for_each(|fetch| fetch.pins.push(first)),
            None => self.base_pinned(first),
        }
    }

    /// What memory still has of the block counts no more when the device itself was asked.
    fn note_damage(&mut self, read: &ReadIo, block: u64, damage: Damage) {
        let fetch = read.fetch.and_then(|id| self.fetches.get(id));
        if fetch.is_some_and(|fetch| fetch.from == FetchFrom::Device) && !self.cache.forget_clean(block) {
            // A checkpoint is about to write what memory has to another place.
            return;
        }
        self.unpacked.forget_damaged(block);
        tracing::error!(block, reason = damage.reason, "a block of the device is damaged");
        self.remember_damage(block, damage);
    }

    pub(crate) fn remember_damage(&mut self, block: u64, damage: Damage) {
        if self.damaged.len() >= DAMAGED_MAX {
            self.damaged.pop_first();
        }
        self.damaged.insert(block, damage);
    }

    /// Device blocks needed to read a range of an object that are neither known to be damaged nor in memory (or, when the device
    /// is asked, only there yet), in the object's order; how many blocks of any kind the range has; and the blobs that it has a part of,
    /// each once, but for damaged ones.
    fn missing(&self, onode: &Onode, offset: u64, length: u64, from: FetchFrom) -> Needed {
        let end = offset.saturating_add(length).min(onode.size);
        if offset >= end {
            return Needed::default();
        }
        let (mut count, mut blobs) = (0, Vec::<Arc<Blob>>::new());
        let slots = self.table.slots(onode, index_of(offset), index_of(end - 1));
        let needed = slots.iter().inspect(|_| count += 1).filter_map(|(index, slot)| match slot {
            Slot::Device(_) | Slot::Blob(..) => slot.place(),
            Slot::Memory(dirty) => {
                let from = if index == index_of(offset) { within(offset) } else { 0 };
                let to = if index == index_of(end - 1) { within(end - 1) + 1 } else { BLOCK };
                dirty.base().filter(|_| !dirty.covers(from, to)).cloned()
            }
        });
        let is_here = |block| match from {
            FetchFrom::Anywhere | FetchFrom::AnywhereOnce => self.cache.find(block).is_some(),
            FetchFrom::Device => self.cache.is_being_written(block),
        };
        let is_missing =
            |device: &DeviceBlock| !is_here(device.block) && !self.damaged.contains_key(&{ device.block });
        let mut missing = Missing::new();
        for place in needed {
            match place {
                Place::Block(device) => missing.extend(Some(device).filter(is_missing)),
                // The blocks of a blob are seldom far from each other.
                Place::Blob(blob, _) if blobs.last().is_some_and(|last| last.first() == blob.first()) => (),
                Place::Blob(blob, _) if self.damage_of(&blob).is_some() => (),
                Place::Blob(blob, _) => {
                    let is_unpacked = from != FetchFrom::Device && self.unpacked.get(&blob).is_some();
                    let stored = blob.stored().iter().copied();
                    missing.extend(stored.filter(|device| !is_unpacked && is_missing(device)));
                    blobs.push(blob);
                }
            }
        }
        Needed { missing, count, blobs }
    }

    /// Starts the reads that a fetch still needs; without any, it is complete.
    pub(crate) fn continue_fetch(&mut self, id: usize) {
        let Some(fetch) = self.fetches.get(id) else { return };
        let Some(onode) = self.table.object(&fetch.at, &fetch.object) else { return self.end_fetch(id) };
        let Needed { mut missing, count, blobs } =
            self.missing(&onode, fetch.offset, fetch.length, fetch.from);
        if missing.is_empty() {
            if self.unpack_for(id, &blobs) {
                self.end_fetch(id);
            }
            return;
        }
        let is_all = missing.len() == count && blobs.is_empty();
        let hand = if fetch.from == FetchFrom::AnywhereOnce {
            self.hand(&onode, fetch.offset, fetch.length, &missing)
        } else {
            None
        };
        missing.sort_unstable_by_key(|device| device.block);
        missing.dedup_by_key(|device| device.block);
        let reads = self.start_reads(&missing, Some(id));
        let Some(fetch) = self.fetches.get_mut(id) else { return };
        (fetch.reads_left, fetch.is_single, fetch.hand) = (reads, is_all && reads == 1, hand);
    }

    /// How a range comes out of one read, if it does; `missing` is what of it is to be read, in the object's order.
    fn hand(&self, onode: &Onode, offset: u64, length: u64, missing: &[DeviceBlock]) -> Option<Hand> {
        let end = offset.saturating_add(length).min(onode.size);
        let (first, last) = (index_of(offset), index_of(end.checked_sub(1)?));
        let count = missing.len() as u64;
        let start = missing.first()?.block;
        let is_run = u64::from(last - first) + 1 == count
            && missing.len() <= IO_BLOCKS_MAX
            && missing.iter().zip(start..).all(|(device, block)| device.block == block)
            // What shows of a block in memory is not what the device has.
            && self.table.slots(onode, first, last).iter().all(|(_, slot)| matches!(slot, Slot::Device(_)));
        let bytes = usize::try_from(end - offset).ok()?;
        is_run.then_some(Hand { run: Run { start, count }, from: within(offset), bytes })
    }
}

/// What a range of an object needs: see [`BlockStore::missing`].
#[derive(Default)]
struct Needed {
    missing: Missing,
    count: usize,
    blobs: Vec<Arc<Blob>>,
}

/// Most reads want one block.
type Missing = SmallVec<[DeviceBlock; 2]>;

fn verify(block: &[u8], crc: u32) -> Result<(), String> {
    let found = crc::crc32c(u32::MAX, block);
    if found == crc { Ok(()) } else { Err(format!("checksum {found:08x} instead of {crc:08x}")) }
}
