//! What can be chosen when a store is made or opened.

use nacre_store::DiscardPolicy;

/// Part of a device that the log takes by default.
const WAL_DIVISOR: u64 = 16;
/// Bytes that it has at least then, and at most.
pub(crate) const WAL_BYTES_MIN: u64 = 1 << 20;
const WAL_BYTES_MAX: u64 = 256 << 20;

/// Bytes of transactions that make a log record full, where no device asks for more.
pub(crate) const RECORD_BYTES_MAX: usize = 256 << 10;

/// Both halves of the journal that the metadata have take one part of so many of the device at most.
const JOURNAL_DEVICE_DIVISOR: u64 = 32;

/// A mistake built in on purpose, to prove that the crash test would find it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Planted {
    /// No mistake is built in.
    #[default]
    Nothing,
    /// Transactions are acknowledged when their record is queued, not when it is durable.
    EarlyAcknowledgement,
    /// Freed blocks are used again at once.
    EarlyReuse,
    /// The log is let go when the KV store is given the checkpoint, not when it has it.
    EarlyTrim,
    /// A changed omap entry is not kept for the clone that still shows it.
    SharedChange,
    /// What was released is discarded before a checkpoint is durable that knows it.
    EarlyDiscard,
    /// Blocks that are being discarded may be taken.
    UnheldDiscard,
    /// A page of an object's blocks that was changed again during a checkpoint goes from memory at its end.
    ChangedPage,
    /// A slab is allocated in as soon as it is taken.
    EarlyLease,
    /// A slab that leaves is another partition's before a checkpoint is durable that knows it.
    EarlyReturn,
}

/// Sizes and limits. Those of the making are in the superblock; the others may change at each opening.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the log; `None`: 1/16 of the device, at least 1 MiB and at most 256 MiB. Only when making.
    pub wal_bytes: Option<u64>,
    /// Blocks of a slab of a store that is made of several partitions; `None`: 1/1024 of the data area, rounded up to a power of two, at
    /// least 1 MiB and at most 8 TiB. Only when making.
    pub slab_blocks: Option<u32>,
    /// Bytes that each partition of a divided store keeps free in slabs of its own for what may be under way to it, so that others cannot
    /// fill them first.
    pub ready_bytes: u64,
    /// Whether other threads have partitions of the store, and may give slabs while one waits for them.
    pub others_run: bool,
    /// Writes of up to so many bytes travel in the log record; of larger ones, the whole blocks go to the device
    /// beside it.
    pub inline_bytes_max: usize,
    /// With so many transactions under way, now or the last time that any became durable, shorter writes that are whole blocks go beside the
    /// record, too, those of a turn together; `None`: never.
    pub placed_together_min: Option<usize>,
    /// Bytes of transactions that make a log record full, unless a single one is larger.
    pub record_bytes_max: usize,
    /// Bytes of dirty blocks in memory at which a checkpoint begins. On the way to twice as many, acknowledgements wait for
    /// it more and more.
    pub overlay_bytes_max: u64,
    /// Percentage of the log in use at which a checkpoint begins.
    pub wal_percent_max: u64,
    /// Changed objects, names, omap entries and chunks of logs at which a checkpoint begins.
    pub marks_max: usize,
    /// Bytes of them in memory at which a checkpoint begins; bounds the batch for the KV store. On the way to twice as many,
    /// acknowledgements wait for it more and more.
    pub dirty_metadata_bytes_max: usize,
    /// Bytes of dirty blocks and of that together at which a checkpoint begins, likewise.
    pub changes_bytes_max: u64,
    /// Bytes of clean metadata kept in memory; less than [`Options::clean_bytes_max`].
    pub metadata_bytes_max: usize,
    /// Bytes of memory that the KV store is to have for pages of its file: the caller opens it with that.
    pub kv_cache_bytes: usize,
    /// Bytes of each half of the journal that the metadata have: the caller makes it. Of memory, both halves are set apart.
    pub journal_half_bytes: usize,
    /// Bytes of clean metadata and clean blocks kept in memory: blocks have what metadata does not need.
    pub clean_bytes_max: usize,
    /// Per mille of the data area kept for deletes and checkpoints when the store is full.
    pub reserve_permille: u64,
    /// Steps of a checkpoint, of some 50 us each, that one call of `drain` may take.
    pub checkpoint_steps_max: usize,
    /// Pieces of a large write from which on they are written without durability each, and flushed together.
    pub flushed_together_min: usize,
    /// Bytes of an omap's keys and values from which on a clone shares them at first, and has them copied step by step. Smaller
    /// ones are copied at once.
    pub omap_bytes_shared_min: u64,
    /// Entries that such a step copies at most.
    pub omap_step_entries_max: usize,
    /// Where freed space is discarded from the opening on.
    pub discards: DiscardPolicy,
    /// Blocks of the least that is discarded, and of the parts of the device in which it is noted that something was freed.
    pub discard_unit_blocks: u32,
    /// Discards under way at a time at most.
    pub discards_max: usize,
    /// Bytes of all of them together.
    pub discard_bytes_max: u64,
    /// Whether discards wait until nothing else is asked of the device.
    pub discards_yield: bool,
    #[doc(hidden)]
    pub planted: Planted,
}

/// Memory for one store, by default.
const MEMORY_BYTES: usize = 1 << 30;
/// Memory for what is not the store's, or such a part of a small target.
const OTHERS_BYTES: usize = 64 << 20;
const OTHERS_DIVISOR: usize = 4;
/// Of a target above this, three quarters of the rest are for what is clean: what else there is needs no more with more memory.
const LARGE_BYTES: usize = 512 << 20;
/// Dirty blocks kept at most: more only makes checkpoints longer.
const OVERLAY_BYTES_MAX: usize = 64 << 20;
/// Of what a target has above [`LARGE_BYTES`], one part of so many is for the journal of the metadata.
const JOURNAL_DIVISOR: usize = 6;
/// Of clean bytes and both halves together, clean ones have one part of so many at least, however large a journal was made before.
const CLEAN_DIVISOR: usize = 4;
/// Bytes of a half of it at most: more only makes openings longer.
const JOURNAL_HALF_BYTES_MAX: usize = 128 << 20;

impl Default for Options {
    fn default() -> Self {
        Self::for_memory(MEMORY_BYTES)
    }
}

impl Options {
    /// Sizes with which an OSD keeps to about `target_bytes` of memory. A part of it, 64 MiB or a quarter, is for what the
    /// store does not know: the program, pooled buffers, logs of PGs, sessions. Of the rest:
    ///
    /// | share | for |
    /// | --- | --- |
    /// | 1/6 | dirty blocks, at most 64 MiB, and dirty metadata, at most half of it; twice as much while a checkpoint is late |
    /// | up to 1/12 | dirty metadata that is being written |
    /// | 1/12 | pages of the KV store |
    /// | 5/48 | what is in the journal of the metadata, both halves; and a sixth of what a target has above 512 MiB, up to 256 MiB in all |
    /// | 1/16 | clean metadata and clean blocks; and three quarters of what a target has above 512 MiB, without what the journal has of it |
    /// | the rest | that second part, the batch, pages that the KV store writes, the free map, what is in flight, and what the allocator cannot give back |
    ///
    /// Writes all over an image change little metadata each, new small objects much. What the one leaves the other has: the more a
    /// checkpoint brings home, the fewer times it writes the same pages of the KV store.
    ///
    /// The journal has a quarter more than its twelfth, and what is clean as much less, so that with 256 MiB a half has room for two
    /// batches of checkpoints that come in time, 4.6 MiB each where an image lies in single blocks: 3.5 bytes at the device for each byte
    /// of 4 KiB writes all over one of twenty times as much, and 3.9 where they come late; 3.9 to 4.0 before (docs/experiments/0012).
    ///
    /// Of the clean, metadata has what it needs, up to seven eighths: a block is of no use without the record of its object,
    /// which says where it is, takes less memory, and serves all other blocks of the object. The KV store's pages are for its
    /// commits, half of them for what one changes: with 24 MiB in place of 80, 4 KiB writes to a million objects took it
    /// 72 us each, not 61, and writers waited for it.
    ///
    /// Seen with OSDs of 256 MiB that had written 4 KiB blocks all over an image, shares being parts of all of the target:
    /// 324 MiB with eighths, 284 to 292 MiB with twelfths; as it is now, 195 to 208 MiB at most.
    #[must_use]
    pub fn for_memory(target_bytes: usize) -> Self {
        let share = (target_bytes - OTHERS_BYTES.min(target_bytes / OTHERS_DIVISOR)) / 12;
        let above = target_bytes.saturating_sub(LARGE_BYTES);
        let journal_bytes = share + share / 4 + above / JOURNAL_DIVISOR;
        let journal_half_bytes = (journal_bytes / 2).min(JOURNAL_HALF_BYTES_MAX);
        let clean_bytes_max = 2 * share + above / 4 * 3 - 2 * journal_half_bytes;
        Self {
            wal_bytes: None,
            slab_blocks: None,
            ready_bytes: 0,
            others_run: true,
            inline_bytes_max: 32 << 10,
            placed_together_min: None,
            record_bytes_max: RECORD_BYTES_MAX,
            overlay_bytes_max: (2 * share).min(OVERLAY_BYTES_MAX) as u64,
            changes_bytes_max: (share + share.min(OVERLAY_BYTES_MAX)) as u64,
            wal_percent_max: 50,
            marks_max: 65_536,
            dirty_metadata_bytes_max: share,
            metadata_bytes_max: clean_bytes_max / 8 * 7,
            kv_cache_bytes: share,
            journal_half_bytes,
            clean_bytes_max,
            reserve_permille: 10,
            checkpoint_steps_max: 1,
            flushed_together_min: 4,
            omap_bytes_shared_min: 64 << 10,
            omap_step_entries_max: 128,
            discards: DiscardPolicy::Never,
            discard_unit_blocks: 16,
            discards_max: 16,
            discard_bytes_max: 32 << 20,
            discards_yield: true,
            planted: Planted::Nothing,
        }
    }

    /// Limits small enough that every branch is taken within a few dozen transactions.
    #[must_use]
    pub fn tiny() -> Self {
        Self {
            wal_bytes: Some(256 << 10),
            inline_bytes_max: 8 << 10,
            placed_together_min: Some(2),
            overlay_bytes_max: 128 << 10,
            marks_max: 64,
            dirty_metadata_bytes_max: 64 << 10,
            changes_bytes_max: 160 << 10,
            metadata_bytes_max: 4 << 10,
            journal_half_bytes: 64 << 10,
            clean_bytes_max: 68 << 10,
            checkpoint_steps_max: 1,
            // Space in many pieces is rare in small tests.
            flushed_together_min: 2,
            omap_bytes_shared_min: 1,
            omap_step_entries_max: 1,
            discard_unit_blocks: 1,
            discards_max: 3,
            discard_bytes_max: 32 << 10,
            discards_yield: false,
            ..Self::default()
        }
    }

    /// For metadata whose journal has such halves, of none with 0: what it needs less than was set apart, clean blocks and metadata have.
    #[must_use]
    pub fn with_journal(mut self, half_bytes: usize) -> Self {
        let both = self.clean_bytes_max + 2 * self.journal_half_bytes;
        let clean_bytes_max = both.saturating_sub(2 * half_bytes).max(both / CLEAN_DIVISOR);
        let metadata_bytes = self.metadata_bytes_max as u128 * clean_bytes_max as u128;
        let metadata_bytes_max = metadata_bytes / (self.clean_bytes_max as u128).max(1);
        self.metadata_bytes_max = usize::try_from(metadata_bytes_max).unwrap_or(usize::MAX);
        (self.journal_half_bytes, self.clean_bytes_max) = (half_bytes, clean_bytes_max);
        self
    }

    /// Bytes of each half of a journal at most, whatever the memory.
    pub const JOURNAL_HALF_BYTES_MAX: u64 = JOURNAL_HALF_BYTES_MAX as u64;

    /// Bytes of each half of the journal of a store on a device of `device_bytes`: of a small one a small part.
    #[must_use]
    pub fn journal_half_bytes(&self, device_bytes: u64) -> u64 {
        (self.journal_half_bytes as u64).min(device_bytes / JOURNAL_DEVICE_DIVISOR / 2)
    }

    /// Bytes of the log of a new store on a device of `device_bytes`.
    #[must_use]
    pub fn wal_bytes(&self, device_bytes: u64) -> u64 {
        self.wal_bytes.unwrap_or_else(|| (device_bytes / WAL_DIVISOR).clamp(WAL_BYTES_MIN, WAL_BYTES_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_takes_its_memory_from_what_is_clean() {
        let mib = |bytes: usize| bytes >> 20;
        let shares = [256, 512, 1024, 4096].map(|target| {
            let options = Options::for_memory(target << 20);
            (target, mib(options.journal_half_bytes), mib(options.clean_bytes_max))
        });
        assert_eq!(shares, [(256, 10, 12), (512, 23, 28), (1024, 92, 358), (4096, 128, 3104)]);
    }

    #[test]
    fn what_a_journal_does_not_need_clean_blocks_have() {
        let options = Options::default();
        let all = options.clean_bytes_max + 2 * options.journal_half_bytes;
        let without = options.clone().with_journal(0);
        assert_eq!((without.clean_bytes_max, without.journal_half_bytes), (all, 0));
        assert!(without.metadata_bytes_max.abs_diff(all / 8 * 7) < 8);
        let small = options.clone().with_journal(1 << 20);
        assert_eq!(small.clean_bytes_max, all - (2 << 20));
        assert_eq!(options.clone().with_journal(usize::MAX / 4).clean_bytes_max, all / 4);
        assert_eq!(options.with_journal(0).with_journal(1 << 20).clean_bytes_max, small.clean_bytes_max);
    }

    #[test]
    fn a_small_device_has_a_small_journal() {
        let options = Options::default();
        assert_eq!(options.journal_half_bytes(8 << 20), 128 << 10);
        assert_eq!(options.journal_half_bytes(1 << 40), options.journal_half_bytes as u64);
    }
}
