//! [`BlockStore`] itself: submitting, completing, and reading from the device.

use crate::alloc::Run;
use crate::cache::{Cache, Pin};
use crate::checkpoint::Checkpoint;
use crate::onode::{DeviceBlock, Onode, Slot};
use crate::options::{Options, Planted};
use crate::superblock::Superblock;
use crate::table::{Table, index_of, within};
use crate::wal::{Placement, RecordWrite, TxnNumber, Wal};
use crate::{BLOCK, MountReport};
use nacre_buf::{AlignedBuf, BufList, Bytes, crc};
use nacre_env::disk::{Disk, DiskCompletion, DiskTag, Durability};
use nacre_kv::{KvCompletion, KvStore};
use nacre_store::{Completion, ObjectStore, StoreError, StoreUsage};
use nacre_txn::{ObjectView, Op, Token, Transaction};
use nacre_types::{HObject, SpgId};
use std::collections::BTreeMap;

/// Blocks of one read or write at most.
const IO_BLOCKS_MAX: usize = 256;
/// Damaged blocks remembered; of more, the oldest by number are tried again.
const DAMAGED_MAX: usize = 10_000;
/// Objects are addressed by 32-bit block numbers.
const OBJECT_BYTES_MAX: u64 = (u32::MAX as u64) * BLOCK as u64;

/// What a request to the device was for.
#[derive(Debug)]
pub(crate) enum Io {
    Record { seq: u64 },
    Placed { number: TxnNumber, first: u32 },
    Read(ReadIo),
    Home { first: u32 },
    Flush,
}

/// A read of a run of blocks with known checksums.
#[derive(Debug)]
pub(crate) struct ReadIo {
    run: Run,
    crcs: Vec<u32>,
    /// Which fetch waits for it; `None` for the checkpoint.
    fetch: Option<u64>,
    /// Frees so far: when there were more since, the blocks may hold something else by now.
    frees: u64,
}

#[derive(Debug)]
struct Fetch {
    at: SpgId,
    object: HObject,
    offset: u64,
    length: u64,
    token: Token,
    reads_left: usize,
    /// Runs in the cache that it brought.
    pins: Vec<u32>,
}

/// An [`ObjectStore`] on a file or block device. See the crate's documentation.
pub struct BlockStore {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) superblock: Superblock,
    pub(crate) options: Options,
    pub(crate) table: Table,
    pub(crate) wal: Wal,
    pub(crate) cache: Cache,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Requests on their way, by tag.
    io: BTreeMap<u64, Io>,
    next_tag: u64,
    fetches: BTreeMap<u64, Fetch>,
    /// Blocks that could not be read, and why; until they are written again.
    pub(crate) damaged: BTreeMap<u32, String>,
    pub(crate) durable: Vec<Token>,
    fetched: Vec<Token>,
    pub(crate) frees: u64,
    pub(crate) failed: Option<String>,
    /// Checkpoints completed since the store was opened.
    pub(crate) checkpoints: u64,
    completions: Vec<DiskCompletion>,
    commits: Vec<KvCompletion>,
    /// The checkpoint has more to do that waits for nothing.
    has_work: bool,
}

impl std::fmt::Debug for BlockStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockStore").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}

/// What an open store is made of.
pub(crate) struct Parts {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) superblock: Superblock,
    pub(crate) options: Options,
    pub(crate) table: Table,
    pub(crate) wal: Wal,
}

impl BlockStore {
    pub(crate) fn assemble(parts: Parts) -> Self {
        Self {
            cache: Cache::new(parts.options.cache_bytes_max),
            disk: parts.disk,
            superblock: parts.superblock,
            options: parts.options,
            table: parts.table,
            wal: parts.wal,
            checkpoint: None,
            io: BTreeMap::new(),
            next_tag: 1,
            fetches: BTreeMap::new(),
            damaged: BTreeMap::new(),
            durable: Vec::new(),
            fetched: Vec::new(),
            frees: 0,
            failed: None,
            checkpoints: 0,
            completions: Vec::new(),
            commits: Vec::new(),
            has_work: false,
        }
    }

    /// Makes a store on `disk`, overwriting what is there. `id` must be unique: take it from the kernel's entropy.
    /// `kv` must be empty.
    ///
    /// # Errors
    /// [`crate::OpenError`].
    pub fn mkfs(
        disk: &mut dyn Disk,
        kv: &mut dyn KvStore,
        id: [u8; 16],
        options: &Options,
    ) -> Result<(), crate::OpenError> {
        crate::mount::mkfs(disk, kv, id, options)
    }

    /// Opens a store and replays its log.
    ///
    /// # Errors
    /// [`crate::OpenError`]; the store is as it was.
    pub fn open(
        disk: Box<dyn Disk>,
        kv: Box<dyn KvStore + Send>,
        options: Options,
    ) -> Result<(Self, MountReport), crate::OpenError> {
        crate::mount::open(disk, kv, options)
    }

    /// Why the store stopped acknowledging, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Checkpoints completed since the store was opened.
    #[must_use]
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints
    }

    /// About how many bytes of memory the store takes: metadata, dirty blocks and the cache, by its own count. Not in it:
    /// the KV store's cache, and what is in flight.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let dirty = usize::try_from(self.table.space.dirty_slots).unwrap_or(usize::MAX).saturating_mul(BLOCK);
        self.table.bytes() + self.cache.bytes() + dirty
    }

    /// Transactions submitted and not acknowledged.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.wal.waiting()
    }

    /// The table could not read its metadata: what it says since may be wrong.
    fn note_table_failure(&mut self) {
        if self.table.has_failed()
            && let Some(reason) = self.table.failure()
        {
            self.fail(reason);
        }
    }

    pub(crate) fn fail(&mut self, reason: String) {
        if self.failed.is_none() {
            tracing::error!(reason, "the store stops acknowledging");
            self.failed = Some(reason);
        }
    }

    fn tag(&mut self, io: Io) -> DiskTag {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.io.insert(tag, io);
        DiskTag(tag)
    }

    pub(crate) fn offset(block: u32) -> u64 {
        u64::from(block) * BLOCK as u64
    }

    pub(crate) fn start_write(&mut self, first: u32, data: Bytes, durability: Durability, io: Io) {
        let tag = self.tag(io);
        self.disk.write(Self::offset(first), data.into(), durability, tag);
    }

    pub(crate) fn start_flush(&mut self) {
        let tag = self.tag(Io::Flush);
        self.disk.flush(tag);
    }

    /// Reads device blocks into the cache: neighbours at once. Gives the number of reads.
    pub(crate) fn start_reads(&mut self, mut blocks: Vec<DeviceBlock>, fetch: Option<u64>) -> usize {
        blocks.sort_unstable_by_key(|device| device.block);
        blocks.dedup_by_key(|device| device.block);
        let mut reads = 0;
        let follows = |a: &DeviceBlock, b: &DeviceBlock| a.block + 1 == b.block;
        for group in blocks.chunk_by(follows).flat_map(|group| group.chunks(IO_BLOCKS_MAX)) {
            let Some(first) = group.first() else { continue };
            let run = Run { start: first.block, count: u32::try_from(group.len()).expect("bounded") };
            let crcs = group.iter().map(|device| device.crc).collect();
            let tag = self.tag(Io::Read(ReadIo { run, crcs, fetch, frees: self.frees }));
            self.disk.read(Self::offset(run.start), AlignedBuf::with_len(group.len() * BLOCK), tag);
            reads += 1;
        }
        reads
    }

    fn start_record(&mut self, write: RecordWrite) {
        let tag = self.tag(Io::Record { seq: write.seq });
        self.disk.write(write.offset, write.data.into(), Durability::Durable, tag);
        if self.options.planted == Planted::EarlyAcknowledgement {
            self.wal.written(write.seq);
        }
    }

    /// Writes records as long as some may be written.
    fn write_records(&mut self) {
        if self.failed.is_some() || self.is_overfull() {
            return;
        }
        while let Some(write) = self.wal.next_write() {
            self.start_record(write);
        }
    }

    /// Writes all that was submitted, as far as the ring has room, before a cut.
    pub(crate) fn write_all_records(&mut self) {
        while let Some(write) = self.wal.seal() {
            self.start_record(write);
        }
    }

    /// So much is dirty that acknowledgements wait for the running checkpoint.
    fn is_overfull(&self) -> bool {
        let dirty = self.table.space.dirty_slots * BLOCK as u64;
        let metadata = self.table.live().1;
        let is_over = dirty > 2 * self.options.overlay_bytes_max
            || metadata > 2 * self.options.dirty_metadata_bytes_max;
        self.checkpoint.is_some() && is_over
    }

    /// Takes what the device and the KV store have finished.
    fn poll_devices(&mut self) {
        let mut commits = std::mem::take(&mut self.commits);
        self.table.kv.drain(&mut commits);
        commits.drain(..).for_each(|commit| self.committed(commit.result));
        self.commits = commits;
        let mut completions = std::mem::take(&mut self.completions);
        self.disk.drain(&mut completions);
        for completion in completions.drain(..) {
            self.completed(completion);
        }
        self.completions = completions;
    }

    fn completed(&mut self, completion: DiskCompletion) {
        let Some(io) = self.io.remove(&completion.tag.0) else { return };
        let io = match io {
            Io::Read(read) => return self.read_completed(read, completion),
            io => io,
        };
        if let Err(error) = completion.result {
            return self.fail(error.to_string());
        }
        match io {
            Io::Record { seq } => self.wal.written(seq),
            Io::Placed { number, first } => {
                self.cache.unpin(first, Pin::Write);
                self.wal.placed(number);
            }
            Io::Home { first } => {
                self.cache.unpin(first, Pin::Write);
                self.home_written();
            }
            Io::Flush => self.flushed(),
            Io::Read(_) => (),
        }
    }

    fn read_completed(&mut self, read: ReadIo, completion: DiskCompletion) {
        if read.frees == self.frees {
            let content = completion.result.map_err(|error| error.to_string());
            let content = content.and_then(|()| completion.buffer.ok_or_else(|| "no data".to_owned()));
            self.take_content(&read, content.map(AlignedBuf::freeze));
        }
        let Some(id) = read.fetch else { return self.base_read() };
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        fetch.reads_left -= 1;
        if fetch.reads_left == 0
            && let Some(fetch) = self.fetches.remove(&id)
        {
            // What was in memory at the start may be gone, what was read may belong to somebody else by now.
            self.continue_fetch(id, fetch);
        }
    }

    /// Checks what was read, block by block.
    fn take_content(&mut self, read: &ReadIo, content: Result<Bytes, String>) {
        let mut good = Vec::with_capacity(read.crcs.len());
        for (nth, (block, crc)) in read.run.blocks().zip(&read.crcs).enumerate() {
            let verdict = match &content {
                Err(reason) => Err(reason.clone()),
                Ok(bytes) => verify(&bytes.slice(nth * BLOCK..(nth + 1) * BLOCK), *crc),
            };
            good.push(verdict.is_ok() && self.cache.find(block).is_none());
            if let Err(reason) = verdict {
                self.note_damage(block, reason);
            }
        }
        let Ok(bytes) = content else { return };
        let mut at = 0;
        for group in good.chunk_by(|a, b| a == b) {
            let first = read.run.start + u32::try_from(at).expect("within the run");
            if group.first() == Some(&true) {
                let pin = read.fetch.map_or(Pin::Checkpoint, Pin::Fetch);
                self.cache.insert(first, bytes.slice(at * BLOCK..(at + group.len()) * BLOCK), pin);
                match read.fetch {
                    Some(id) => {
                        self.fetches.get_mut(&id).into_iter().for_each(|fetch| fetch.pins.push(first))
                    }
                    None => self.base_pinned(first),
                }
            }
            at += group.len();
        }
    }

    fn note_damage(&mut self, block: u32, reason: String) {
        tracing::error!(block, reason, "a block of the device is damaged");
        if self.damaged.len() >= DAMAGED_MAX {
            self.damaged.pop_first();
        }
        self.damaged.insert(block, reason);
    }

    /// Device blocks needed to read a range of an object that are neither in memory nor known to be damaged.
    fn missing(&self, onode: &Onode, offset: u64, length: u64) -> Vec<DeviceBlock> {
        let end = offset.saturating_add(length).min(onode.size);
        if offset >= end {
            return Vec::new();
        }
        let slots = onode.blocks.range(index_of(offset)..=index_of(end - 1));
        let needed = slots.filter_map(|(index, slot)| match slot {
            Slot::Device(device) => Some(*device),
            Slot::Memory(dirty) => {
                let from = if *index == index_of(offset) { within(offset) } else { 0 };
                let to = if *index == index_of(end - 1) { within(end - 1) + 1 } else { BLOCK };
                dirty.base().filter(|_| !dirty.covers(from, to))
            }
        });
        needed
            .filter(|device| {
                self.cache.find(device.block).is_none() && !self.damaged.contains_key(&device.block)
            })
            .collect()
    }

    /// Starts the reads that a fetch still needs; without any, it is complete.
    fn continue_fetch(&mut self, id: u64, mut fetch: Fetch) {
        let missing = self
            .table
            .object(&fetch.at, &fetch.object)
            .map(|onode| self.missing(&onode, fetch.offset, fetch.length))
            .unwrap_or_default();
        if missing.is_empty() {
            fetch.pins.iter().for_each(|first| self.cache.unpin(*first, Pin::Fetch(id)));
            return self.fetched.push(fetch.token);
        }
        fetch.reads_left = self.start_reads(missing, Some(id));
        self.fetches.insert(id, fetch);
    }

    /// Blocks that the reserve keeps for deletes and checkpoints.
    pub(crate) fn reserve_blocks(&self) -> u64 {
        (u64::from(self.superblock.data.count) * self.options.reserve_permille / 1000).max(8)
    }

    /// Blocks that are promised already: to dirty blocks, and to a checkpoint that has not taken them yet.
    pub(crate) fn promised_blocks(&self) -> u64 {
        let held = self.checkpoint.as_ref().map_or(0, Checkpoint::held_blocks);
        self.table.space.dirty_slots + held
    }

    /// Blocks that a transaction may take, at most.
    fn needed_blocks(&self, txn: &Transaction) -> u64 {
        let mut needed = 0;
        for op in &txn.ops {
            needed += match op {
                Op::Write { data, .. } => (data.len() / BLOCK) as u64 + 2,
                Op::Zero { .. } | Op::Truncate { .. } => 2,
                Op::Split { ops, .. } => 2 * ops.len() as u64 + (split_data_bytes(op) / BLOCK) as u64,
                Op::Clone { source, .. } => {
                    let is_dirty = |slot: &&Slot| matches!(slot, Slot::Memory(_));
                    let source = self.table.object(&txn.collection, source);
                    needed + source.map_or(0, |onode| onode.blocks.values().filter(is_dirty).count() as u64)
                }
                _ => 0,
            };
        }
        needed
    }

    /// Makes sure that the blocks a transaction needs can be had, if need be by waiting for checkpoints that free
    /// what was released.
    fn make_room(&mut self, txn: &Transaction) -> Result<(), StoreError> {
        let needed = self.needed_blocks(txn);
        if needed == 0 {
            return Ok(());
        }
        let reserve = if txn.data_bytes() > 0 { self.reserve_blocks() } else { 0 };
        for _ in 0..2 {
            let free = self.table.space.alloc.free_count();
            if free >= self.promised_blocks() + needed + reserve {
                return Ok(());
            }
            let reachable = free + self.table.space.alloc.pending_count() + self.table.space.dirty_slots;
            if reachable < needed + reserve {
                break;
            }
            self.finish_checkpoint();
        }
        let free_blocks =
            self.table.space.alloc.free_count().saturating_sub(self.promised_blocks() + reserve);
        if free_blocks >= needed {
            return Ok(());
        }
        let (wanted_bytes, free_bytes) = (needed * BLOCK as u64, free_blocks * BLOCK as u64);
        Err(StoreError::Full { wanted_bytes, free_bytes })
    }

    /// Runs a whole checkpoint now, waiting for the device; a running one is finished and a new one made.
    pub(crate) fn finish_checkpoint(&mut self) {
        self.end_checkpoint();
        if self.failed.is_none() {
            self.start_checkpoint();
        }
        self.end_checkpoint();
    }

    /// Waits for the end of the running checkpoint, if there is one.
    fn end_checkpoint(&mut self) {
        while self.checkpoint.is_some() && self.failed.is_none() {
            self.poll_devices();
            self.write_records();
            self.advance_checkpoint(usize::MAX);
            self.disk.submit();
            if self.checkpoint.is_some() {
                self.wait_for_devices();
            }
            self.wal.durable(&mut self.durable);
        }
    }

    /// Waits for what is on its way. While the metadata is being committed, requests to the device end on their own.
    pub(crate) fn wait_for_anything(&mut self) {
        if self.io.is_empty() { self.wait_for_devices() } else { self.disk.wait() }
    }

    /// Waits for what the checkpoint waits for.
    fn wait_for_devices(&mut self) {
        if self.checkpoint.as_ref().is_some_and(Checkpoint::is_committing) {
            self.table.kv.wait();
        } else {
            self.disk.wait();
        }
    }

    /// Finds places for the large writes of a transaction. A write for which there is no room goes into the record.
    fn place(&mut self, txn: &Transaction) -> Vec<(Placement, BufList)> {
        let mut placed = Vec::new();
        let mut data_offset = 0;
        for (op, change) in txn.ops.iter().enumerate() {
            let Op::Write { offset, data, .. } = change else {
                data_offset += split_data_bytes(change);
                continue;
            };
            let head = (BLOCK - within(*offset)) % BLOCK;
            let blocks = data.len().saturating_sub(head) / BLOCK;
            if data.len() > self.options.inline_bytes_max && blocks > 0 {
                let count = u32::try_from(blocks).unwrap_or(u32::MAX);
                if let Some(runs) = self.table.space.alloc.allocate(count) {
                    let body = data.slice(head, blocks * BLOCK);
                    let crcs = block_crcs(&body);
                    placed.push((Placement { op, data_offset: data_offset + head, runs, crcs }, body));
                }
            }
            data_offset += data.len();
        }
        placed
    }

    /// Sends placed data to the device; until it is there, the cache has it.
    fn start_placed(&mut self, placement: &Placement, body: &BufList) {
        let mut at = 0;
        for run in &placement.runs {
            let mut left = *run;
            while left.count > 0 {
                let count = left.count.min(u32::try_from(IO_BLOCKS_MAX).expect("small"));
                let bytes = aligned(&body.slice(at, count as usize * BLOCK));
                at += bytes.len();
                let number = self.wal.next_number();
                self.wal.placing(number);
                self.cache.insert(left.start, bytes.clone(), Pin::Write);
                self.start_write(
                    left.start,
                    bytes,
                    Durability::Durable,
                    Io::Placed { number, first: left.start },
                );
                left = Run { start: left.start + count, count: left.count - count };
            }
        }
    }

    fn advance(&mut self) {
        self.write_records();
        if self.failed.is_none() {
            self.consider_checkpoint();
            self.has_work = self.advance_checkpoint(self.options.checkpoint_steps_max);
            self.write_records();
        }
    }

    fn refuse_impossible(&self, txn: &Transaction) -> Result<(), StoreError> {
        if let Some(reason) = &self.failed {
            return Err(StoreError::Failed { reason: reason.clone() });
        }
        for op in &txn.ops {
            let Op::Write { offset, data, .. } = op else { continue };
            let wanted_bytes = offset.saturating_add(data.len() as u64);
            if wanted_bytes > OBJECT_BYTES_MAX {
                return Err(StoreError::Full { wanted_bytes, free_bytes: OBJECT_BYTES_MAX });
            }
        }
        Ok(())
    }
}

/// Data of writes inside of a split, which always travels in the record.
fn split_data_bytes(op: &Op) -> usize {
    let Op::Split { ops, .. } = op else { return 0 };
    ops.iter().map(|op| if let Op::Write { data, .. } = op { data.len() } else { 0 }).sum()
}

fn verify(block: &[u8], crc: u32) -> Result<(), String> {
    let found = crc::crc32c(u32::MAX, block);
    if found == crc { Ok(()) } else { Err(format!("checksum {found:08x} instead of {crc:08x}")) }
}

fn block_crcs(body: &BufList) -> Vec<u32> {
    (0..body.len() / BLOCK).map(|nth| body.slice(nth * BLOCK, BLOCK).crc32c(u32::MAX)).collect()
}

/// One slice at an address that the device takes: shared when it is such already.
fn aligned(data: &BufList) -> Bytes {
    if let [one] = data.slices()
        && one.as_ptr().addr().is_multiple_of(BLOCK)
    {
        return one.clone();
    }
    let mut out = AlignedBuf::with_len(data.len());
    crate::gather(&mut out, data.slices());
    out.freeze()
}

impl ObjectStore for BlockStore {
    fn submit(&mut self, txn: Transaction, token: Token) -> Result<(), StoreError> {
        self.refuse_impossible(&txn)?;
        self.make_room(&txn)?;
        if let Some(reason) = &self.failed {
            return Err(StoreError::Failed { reason: reason.clone() });
        }
        let placed = self.place(&txn);
        let (placements, bodies): (Vec<Placement>, Vec<BufList>) = placed.into_iter().unzip();
        let encoded = Wal::encode(&txn, &placements);
        if !self.wal.takes(encoded.len()) {
            let blocks = placements.iter().flat_map(|placement| &placement.runs).flat_map(|run| run.blocks());
            blocks.for_each(|block| self.table.space.alloc.release(block));
            return Err(StoreError::Full { wanted_bytes: encoded.len() as u64, free_bytes: 0 });
        }
        for (placement, body) in placements.iter().zip(&bodies) {
            self.start_placed(placement, body);
        }
        self.table.apply(txn, &placements);
        self.note_table_failure();
        if let Some(reason) = &self.failed {
            return Err(StoreError::Failed { reason: reason.clone() });
        }
        self.wal.push(encoded, token);
        Ok(())
    }

    fn fetch(&mut self, collection: &SpgId, object: &HObject, offset: u64, length: u64, token: Token) {
        let (at, object) = (*collection, object.clone());
        let id = self.next_tag;
        self.next_tag += 1;
        self.continue_fetch(id, Fetch { at, object, offset, length, token, reads_left: 0, pins: Vec::new() });
    }

    fn drain(&mut self, out: &mut Vec<Completion>) {
        self.cache.next_turn();
        self.poll_devices();
        self.has_work = false;
        self.note_table_failure();
        self.advance();
        self.disk.submit();
        if self.failed.is_none() {
            self.wal.durable(&mut self.durable);
        }
        out.extend(self.durable.drain(..).map(Completion::Durable));
        out.extend(self.fetched.drain(..).map(Completion::Fetched));
    }

    fn has_work(&self) -> bool {
        self.has_work
    }

    fn has_failed(&self) -> bool {
        self.failed.is_some() || self.table.has_failed()
    }

    fn collections(&self) -> Vec<SpgId> {
        self.table.collections.keys().copied().collect()
    }

    fn usage(&self) -> StoreUsage {
        let (alloc, area) = (&self.table.space.alloc, u64::from(self.superblock.data.count));
        let reachable = alloc.free_count() + alloc.pending_count();
        let available = reachable.saturating_sub(self.promised_blocks() + self.reserve_blocks());
        let on_device = area - reachable;
        let block = BLOCK as u64;
        StoreUsage {
            total_bytes: area * block,
            available_bytes: available * block,
            stored_bytes: self.table.space.slots * block,
            allocated_bytes: (on_device + self.table.space.dirty_slots) * block,
            omap_bytes: self.table.omap_bytes,
            metadata_bytes: u64::from(self.superblock.wal.count) * block,
        }
    }

    fn as_view(&self) -> &dyn ObjectView {
        self
    }
}
