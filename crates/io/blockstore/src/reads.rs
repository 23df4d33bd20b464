//! Reading from the device: fetches, and what a checkpoint needs to put blocks together.

use crate::BLOCK;
use crate::alloc::Run;
use crate::cache::Pin;
use crate::onode::{DeviceBlock, Onode, Slot};
use crate::store::{BlockStore, IO_BLOCKS_MAX};
use crate::table::{index_of, within};
use nacre_buf::{AlignedBuf, Bytes, crc};
use nacre_env::disk::DiskCompletion;
use nacre_txn::Token;
use nacre_types::{HObject, SpgId};

/// Damaged blocks remembered; of more, the oldest by number are tried again.
const DAMAGED_MAX: usize = 10_000;
/// A read of a run of blocks with known checksums.
#[derive(Debug)]
pub(crate) struct ReadIo {
    run: Run,
    crcs: Vec<u32>,
    /// Which fetch waits for it; `None` for the checkpoint.
    fetch: Option<usize>,
    /// Frees so far: when there were more since, the blocks may hold something else by now.
    frees: u64,
}

impl ReadIo {
    pub(crate) const fn run(&self) -> Run {
        self.run
    }
}

#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) at: SpgId,
    pub(crate) object: HObject,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) token: Token,
    pub(crate) reads_left: usize,
    /// One read brings all that it asks for: when that is good there is nothing left to look at.
    pub(crate) is_single: bool,
    /// Runs in the cache that it brought.
    pub(crate) pins: Vec<u32>,
}

impl BlockStore {
    /// Reads device blocks into the cache: neighbours at once. Gives the number of reads.
    pub(crate) fn start_reads(&mut self, mut blocks: Vec<DeviceBlock>, fetch: Option<usize>) -> usize {
        blocks.sort_unstable_by_key(|device| device.block);
        blocks.dedup_by_key(|device| device.block);
        let mut reads = 0;
        let follows = |a: &DeviceBlock, b: &DeviceBlock| a.block + 1 == b.block;
        for group in blocks.chunk_by(follows).flat_map(|group| group.chunks(IO_BLOCKS_MAX)) {
            let Some(first) = group.first() else { continue };
            let run = Run { start: first.block, count: u32::try_from(group.len()).expect("bounded") };
            let crcs = group.iter().map(|device| device.crc).collect();
            self.request_read(ReadIo { run, crcs, fetch, frees: self.frees });
            reads += 1;
        }
        reads
    }

    pub(crate) fn read_completed(&mut self, read: ReadIo, completion: DiskCompletion) {
        let mut is_whole = false;
        if read.frees == self.frees {
            let content = completion.result.map_err(|error| error.to_string());
            let content = content.and_then(|()| completion.buffer.ok_or_else(|| "no data".to_owned()));
            is_whole = self.take_content(&read, content.map(AlignedBuf::freeze));
        }
        let Some(id) = read.fetch else { return self.base_read() };
        let Some(fetch) = self.fetches.get_mut(id) else { return };
        fetch.reads_left -= 1;
        if fetch.reads_left > 0 {
            return;
        }
        if fetch.is_single && is_whole {
            return self.end_fetch(id);
        }
        // What was in memory at the start may be gone, what was read may belong to somebody else by now.
        self.continue_fetch(id);
    }

    /// From here on the number may be another fetch's: no read of this one is under way, and it pins nothing.
    fn end_fetch(&mut self, id: usize) {
        let Some(fetch) = self.fetches.try_remove(id) else { return };
        fetch.pins.iter().for_each(|first| self.cache.unpin(*first, Pin::Fetch(id)));
        self.fetched.push(fetch.token);
    }

    /// Checks what was read, block by block. True when all of it is good and in the cache now.
    fn take_content(&mut self, read: &ReadIo, content: Result<Bytes, String>) -> bool {
        if let Ok(bytes) = &content
            && self.is_all_good(read, bytes)
        {
            self.keep_read(read, bytes, &[read.run]);
            return true;
        }
        let mut good = Vec::with_capacity(read.crcs.len());
        for (nth, (block, crc)) in read.run.blocks().zip(&read.crcs).enumerate() {
            let verdict = match &content {
                Err(reason) => Err(reason.clone()),
                Ok(bytes) => verify(bytes.get(nth * BLOCK..(nth + 1) * BLOCK).unwrap_or_default(), *crc),
            };
            good.push(verdict.is_ok() && self.cache.find(block).is_none());
            if let Err(reason) = verdict {
                self.note_damage(block, reason);
            }
        }
        let Ok(bytes) = content else { return false };
        let (mut parts, mut start) = (Vec::new(), read.run.start);
        for group in good.chunk_by(|a, b| a == b) {
            let part = Run { start, count: u32::try_from(group.len()).expect("within the run") };
            start = part.end();
            parts.extend(group.first().is_some_and(|is_good| *is_good).then_some(part));
        }
        self.keep_read(read, &bytes, &parts);
        parts.as_slice() == [read.run]
    }

    /// Whether every block of it is what it should be, and none is in memory yet.
    fn is_all_good(&self, read: &ReadIo, bytes: &Bytes) -> bool {
        let mut blocks = read.run.blocks().zip(&read.crcs).zip(bytes.chunks_exact(BLOCK));
        blocks.all(|((block, crc), bytes)| {
            self.cache.find(block).is_none() && crc::crc32c(u32::MAX, bytes) == *crc
        })
    }

    /// Gives the cache the parts of what was read that it does not have, pinned for who asked for it.
    fn keep_read(&mut self, read: &ReadIo, bytes: &Bytes, parts: &[Run]) {
        let Some(Run { start: first, .. }) = parts.first().copied() else { return };
        self.cache.insert_parts(read.run, bytes, parts, read.fetch.map_or(Pin::Checkpoint, Pin::Fetch));
        match read.fetch {
            Some(id) => self.fetches.get_mut(id).into_iter().for_each(|fetch| fetch.pins.push(first)),
            None => self.base_pinned(first),
        }
    }

    fn note_damage(&mut self, block: u32, reason: String) {
        tracing::error!(block, reason, "a block of the device is damaged");
        if self.damaged.len() >= DAMAGED_MAX {
            self.damaged.pop_first();
        }
        self.damaged.insert(block, reason);
    }

    /// Device blocks needed to read a range of an object that are neither in memory nor known to be damaged, and how many
    /// blocks of any kind the range has.
    fn missing(&self, onode: &Onode, offset: u64, length: u64) -> (Vec<DeviceBlock>, usize) {
        let end = offset.saturating_add(length).min(onode.size);
        if offset >= end {
            return (Vec::new(), 0);
        }
        let mut count = 0;
        let slots = onode.blocks.range(index_of(offset), index_of(end - 1)).inspect(|_| count += 1);
        let needed = slots.filter_map(|(index, slot)| match slot {
            Slot::Device(device) => Some(*device),
            Slot::Memory(dirty) => {
                let from = if index == index_of(offset) { within(offset) } else { 0 };
                let to = if index == index_of(end - 1) { within(end - 1) + 1 } else { BLOCK };
                dirty.base().filter(|_| !dirty.covers(from, to))
            }
        });
        let missing = needed
            .filter(|device| {
                self.cache.find(device.block).is_none() && !self.damaged.contains_key(&device.block)
            })
            .collect();
        (missing, count)
    }

    /// Starts the reads that a fetch still needs; without any, it is complete.
    pub(crate) fn continue_fetch(&mut self, id: usize) {
        let Some(fetch) = self.fetches.get(id) else { return };
        let (missing, count) = self
            .table
            .object(&fetch.at, &fetch.object)
            .map(|onode| self.missing(&onode, fetch.offset, fetch.length))
            .unwrap_or_default();
        if missing.is_empty() {
            return self.end_fetch(id);
        }
        let is_all = missing.len() == count;
        let reads = self.start_reads(missing, Some(id));
        let Some(fetch) = self.fetches.get_mut(id) else { return };
        (fetch.reads_left, fetch.is_single) = (reads, is_all && reads == 1);
    }
}

fn verify(block: &[u8], crc: u32) -> Result<(), String> {
    let found = crc::crc32c(u32::MAX, block);
    if found == crc { Ok(()) } else { Err(format!("checksum {found:08x} instead of {crc:08x}")) }
}
