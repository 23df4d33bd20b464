//! What an OSD asks of the store that keeps its PGs' objects: the trait [`ObjectStore`], which `nacre-blockstore` implements durably, and
//! [`MemStore`], which implements it in memory for tests and `nacre up --store memory`. [`conformance`] is the suite of tests that every
//! implementation passes. Layer: io; uses base.

pub mod conformance;
mod extents;
mod looks;
mod mem;

pub use extents::ExtentMap;
pub use looks::looks;
pub use mem::MemStore;

use nacre_buf::{BufList, Bytes};
use nacre_txn::{FetchFrom, ObjectView, StoreToken, Transaction};
use nacre_types::device_latency::LATENCY_BUCKETS;
use nacre_types::{
    Compression, CompressionHint, DeviceLatencies, DeviceWork, HObject, LatencyHistogram, PoolId, SpgId,
};
use std::collections::BTreeMap;
use std::ops::{AddAssign, Range};
use std::time::Duration;

/// What was submitted or asked for under a token is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// The transaction survives a crash; completions come in the order of submission.
    Durable(StoreToken),
    /// The data asked for with [`ObjectStore::fetch`] can now be read without waiting.
    Fetched(StoreToken),
    /// The data asked for with [`FetchFrom::AnywhereOnce`], cut at the object's end as [`ObjectView::read`] does: as it was at some
    /// moment since. What of the object was changed meanwhile may be in it or not.
    Brought(StoreToken, BufList),
    /// What [`ObjectStore::warm`] found to be missing was read.
    Warm(WarmToken),
}

/// Names a call of [`ObjectStore::warm`] to whoever makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WarmToken(pub u64);

/// The store takes no more: what it holds stays readable, but nothing is acknowledged any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No room for the transaction's data; nothing of it was applied.
    #[error("store is full: {wanted_bytes} bytes wanted, {free_bytes} free")]
    Full {
        /// What the transaction needs.
        wanted_bytes: u64,
        /// What is left.
        free_bytes: u64,
    },
    /// The device failed earlier; the store is read-only since.
    #[error("store stopped acknowledging after a device failure: {reason}")]
    Failed {
        /// What the device said.
        reason: String,
    },
}

/// What clients said of an object's data, by its record ([`nacre_txn::Op::SetMeta`]), which the store does not read.
pub type HintIn = fn(&Bytes) -> CompressionHint;

/// How full a store is. Ceph `store_statfs_t`, reduced to what we keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreUsage {
    /// Size of the store in bytes.
    pub total_bytes: u64,
    /// Bytes free for new data.
    pub available_bytes: u64,
    /// Bytes of object data as clients wrote them.
    pub stored_bytes: u64,
    /// Bytes allocated for object data.
    pub allocated_bytes: u64,
    /// Bytes of omap keys, values and headers.
    pub omap_bytes: u64,
    /// Bytes of everything else that the store keeps.
    pub metadata_bytes: u64,
}

/// What compressed data take. Ceph `store_statfs_t`, its `data_compressed*`. What clones share counts for each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PackedUsage {
    /// Bytes before compression.
    pub original_bytes: u64,
    /// Bytes allocated for them.
    pub allocated_bytes: u64,
    /// Bytes that compressing them has left.
    pub packed_bytes: u64,
}

impl AddAssign for PackedUsage {
    fn add_assign(&mut self, more: Self) {
        self.original_bytes += more.original_bytes;
        self.allocated_bytes += more.allocated_bytes;
        self.packed_bytes += more.packed_bytes;
    }
}

impl PackedUsage {
    /// Of all partitions of a store, for each pool.
    #[must_use]
    pub fn of_partitions(parts: impl Iterator<Item = BTreeMap<PoolId, Self>>) -> BTreeMap<PoolId, Self> {
        let mut sums = BTreeMap::<PoolId, Self>::new();
        for (pool, usage) in parts.flatten() {
            *sums.entry(pool).or_default() += usage;
        }
        sums
    }
}

impl StoreUsage {
    /// Of all partitions of a store, by parts of it that have so many each. What is available to one partition is to no other, and PGs are
    /// spread over them by hash: so a store is as full as the fullest.
    #[must_use]
    pub fn of_partitions(parts: impl Iterator<Item = (Self, u64)>) -> Self {
        let (mut sum, mut count) = (Self::default(), 0);
        for (usage, partitions) in parts {
            let both = [(sum.available_bytes, count), (usage.available_bytes, partitions)];
            sum.available_bytes = Self::available_together(both.into_iter());
            count += partitions;
            sum.total_bytes += usage.total_bytes;
            sum.stored_bytes += usage.stored_bytes;
            sum.allocated_bytes += usage.allocated_bytes;
            sum.omap_bytes += usage.omap_bytes;
            sum.metadata_bytes += usage.metadata_bytes;
        }
        sum
    }

    /// Likewise what is available, of pairs of bytes and of how many partitions have them together.
    #[must_use]
    pub fn available_together(parts: impl Iterator<Item = (u64, u64)>) -> u64 {
        let (mut least, mut count) = (u64::MAX, 0);
        for (bytes, partitions) in parts.filter(|(_, partitions)| *partitions > 0) {
            least = least.min(bytes / partitions);
            count += partitions;
        }
        least.saturating_mul(count)
    }
}

/// About how many bytes of memory a store takes, by what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreMemory {
    /// Blocks that were read, and may be read again.
    pub data_bytes: u64,
    /// Records and names of objects, likewise.
    pub metadata_bytes: u64,
    /// What was changed and is not at home yet, and the map of free space.
    pub changes_bytes: u64,
    /// Pages of the metadata's file.
    pub kv_bytes: u64,
    /// Most that it was opened to keep of the first two together.
    pub clean_bytes_max: u64,
}

/// What a store has counted since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreCounters {
    /// Records of objects, and of parts of their maps, that were in memory when somebody looked.
    pub object_hits: u64,
    /// Those that were read for that.
    pub object_misses: u64,
    /// Bytes of the write-ahead log, used or not.
    pub log_bytes: u64,
    /// Requests to its device, by [`DeviceWork`].
    pub device: [DeviceTotals; DeviceWork::ALL.len()],
    /// Free space of its device, by how it lies.
    pub free: FreeSpace,
    /// What of it the device was told is not needed any more.
    pub discards: DiscardTotals,
}

impl StoreCounters {
    /// Those of two stores together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            object_hits: self.object_hits + other.object_hits,
            object_misses: self.object_misses + other.object_misses,
            log_bytes: self.log_bytes + other.log_bytes,
            device: std::array::from_fn(|work| self.device[work].plus(&other.device[work])),
            free: self.free.plus(other.free),
            discards: self.discards.plus(other.discards),
        }
    }
}

/// Free space of a device: many short pieces make large writes many requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FreeSpace {
    /// All of it.
    pub bytes: u64,
    /// What of it lies in pieces of 1 MiB or more.
    pub long_bytes: u64,
    /// How many pieces it lies in.
    pub runs: u64,
}

impl FreeSpace {
    /// That of two stores together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            long_bytes: self.long_bytes + other.long_bytes,
            runs: self.runs + other.runs,
        }
    }
}

/// Discards of freed space, since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiscardTotals {
    /// How many the device has done.
    pub count: u64,
    /// Bytes that they were of.
    pub bytes: u64,
    /// Nanoseconds in which one was under way.
    pub spent_ns: u64,
}

impl DiscardTotals {
    /// Those of two stores together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            spent_ns: self.spent_ns + other.spent_ns,
        }
    }
}

/// Where freed space is discarded: given back to the device, or to the file system that a file is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiscardPolicy {
    /// Nowhere: what is freed stays with the device.
    #[default]
    Never,
    /// On block devices. A file keeps its blocks: others could have them when the store needs them again.
    Devices,
    /// On block devices and in files.
    DevicesAndFiles,
}

impl DiscardPolicy {
    /// Whether it is in a file, or on a block device.
    #[must_use]
    pub const fn covers(self, is_file: bool) -> bool {
        match self {
            Self::Never => false,
            Self::Devices => !is_file,
            Self::DevicesAndFiles => true,
        }
    }
}

/// Requests of one kind to a device, since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceTotals {
    /// How many there were.
    pub count: u64,
    /// Nanoseconds that they took, all together.
    pub spent_ns: u64,
    /// How many took how long, in buckets as those of [`LatencyHistogram`].
    pub counts: [u64; LATENCY_BUCKETS],
}

impl DeviceTotals {
    /// Adds to the buckets.
    pub fn add(&mut self, histogram: &LatencyHistogram) {
        for (sum, more) in self.counts.iter_mut().zip(histogram.counts()) {
            *sum += u64::from(*more);
        }
    }

    /// The requests of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.count += other.count;
        self.spent_ns += other.spent_ns;
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
        self
    }
}

/// A device whose requests are timed.
pub trait MeasuredDevice {
    /// How long those took that were done since the last call.
    fn take_latencies(&mut self) -> DeviceLatencies;

    /// Makes a small request whose time is counted as any other's, when the device had none of its kind for `idle`: a read,
    /// and a durable write of what is there. What is kept does not change.
    fn probe(&mut self, idle: Duration);

    /// Where space is discarded that is freed from now on; [`DiscardPolicy::Never`] at first.
    fn set_discards(&mut self, policy: DiscardPolicy);

    /// For tests: has each request take so much longer from now on; zero ends it.
    ///
    /// # Errors
    /// When the device's driver cannot.
    fn delay(&mut self, each: Duration) -> std::io::Result<()>;
}

/// What a store's owner has to do about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreState {
    /// Nothing, until it submits or the device completes something.
    Idle,
    /// The store has work of its own left that waits for nothing: call [`ObjectStore::drain`] again soon, after what else there is to
    /// do, without sleeping.
    HasWork,
    /// The store could not read what it keeps, or not write it: what it has answered since is not to be relied on, and must leave the
    /// OSD in no message. It takes no more transactions.
    Failed,
}

/// How transactions come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SubmitHint {
    /// Several before the store is drained: they may begin together then.
    #[default]
    Batch,
    /// One by one: there is no use in waiting for more, and the store may begin with each at once.
    Now,
}

/// Keeps the objects, logs and metadata of one OSD's PGs. Owned by one shard.
pub trait ObjectStore: ObjectView {
    /// Applies `txn`: visible to reads at once, durable when [`Completion::Durable`] of `token` is drained.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing of the transaction is visible.
    fn submit(&mut self, txn: Transaction, token: StoreToken) -> Result<(), StoreError>;

    /// Brings data from the device to where [`ObjectView::read`] finds it; with [`FetchFrom::Device`] also what is there already.
    /// With [`FetchFrom::AnywhereOnce`] it may come as [`Completion::Brought`] instead.
    fn fetch(
        &mut self,
        collection: &SpgId,
        object: &HObject,
        offset: u64,
        length: u64,
        from: FetchFrom,
        token: StoreToken,
    );

    /// Whether looks at metadata wait for the device so often of late that it pays to ask [`ObjectStore::warm`] first.
    fn waits_for_metadata(&self) -> bool {
        false
    }

    /// Whether an operation on `bytes` of an object (none, if it is about none) finds in memory what it looks at of the object's
    /// metadata, but for its omap. If not, that is being read, and [`Completion::Warm`] of `token` follows. Who goes on without it has the whole
    /// shard wait; what it sees is the same.
    fn warm(&mut self, collection: &SpgId, object: &HObject, bytes: Range<u64>, token: WarmToken) -> bool {
        let _all_in_memory = (collection, object, bytes, token);
        true
    }

    /// Moves what has completed to the end of `out`.
    fn drain(&mut self, out: &mut Vec<Completion>);

    /// Whether to wake the owner for what the store completes. Without wake-ups the next event makes somebody drain, and
    /// nothing that is under way matters before; a store may wake nevertheless. They are on at first.
    fn set_wakeups(&mut self, wakeups: bool) {
        let _always = wakeups;
    }

    /// Says how what is submitted from now on comes, [`SubmitHint::Batch`] at first.
    fn set_submit_hint(&mut self, hint: SubmitHint) {
        let _begins_when_drained = hint;
    }

    /// A collection that does not exist yet is to be in this partition of the OSD's store, if this is several. False when it has no such
    /// partition.
    fn place(&mut self, collection: &SpgId, partition: usize) -> bool {
        let _in_the_only_one = (collection, partition);
        true
    }

    /// Where it is several partitions: the number of that which a collection is in, or would be. `None` of one that is the only one of its
    /// owner.
    fn partition_of(&self, collection: &SpgId) -> Option<usize> {
        let _in_the_only_one = collection;
        None
    }

    /// Likewise: the partitions, by their numbers.
    fn each_partition(&self) -> Vec<(usize, &dyn ObjectStore)> {
        Vec::new()
    }

    /// [`ObjectStore::submit`] to the partition with this number, wherever the collection is else. One that has no such keeps it itself.
    ///
    /// # Errors
    /// Likewise.
    fn submit_to(&mut self, partition: usize, txn: Transaction, token: StoreToken) -> Result<(), StoreError> {
        let _has_no_number = partition;
        self.submit(txn, token)
    }

    /// Bytes of an object's data, holes among them; `None` when it does not exist.
    fn data_bytes(&self, collection: &SpgId, object: &HObject) -> Option<u64>;

    /// How the data of a pool that are written from now on are to be compressed, until the store is closed; not at all at first. A store that
    /// has everything in memory compresses nothing.
    fn set_compression(&mut self, pool: PoolId, compression: Compression, hint_in: HintIn) {
        let _keeps_all_as_it_is = (pool, compression, hint_in);
    }

    /// Whether a transaction finds no room here but what other partitions of the same store may give. A partition cannot wait for others of its
    /// own thread: whoever has them lets them give it first, with [`ObjectStore::spare_room`], one after the other as long as this holds.
    fn lacks_room(&mut self, _txn: &Transaction) -> bool {
        false
    }

    /// Gives other partitions of the same store what this one can spare. Waits for the device.
    fn spare_room(&mut self) {}

    /// What the store's owner has to do about it. Asked before each effect of a PG.
    fn state(&self) -> StoreState;

    /// Whether there are so many changes that to acknowledge nothing does not slow down those who bring them. They are to wait until this ends,
    /// which it does by itself; what is submitted meanwhile is taken, and is in memory until then.
    fn is_overrun(&self) -> bool {
        false
    }

    /// Nothing is asked of the store just now: begins what would have to be done later anyway. True while some of it is left;
    /// call again later then. May wait for the device, and give back memory that is cheap to fill again.
    fn idle_trim(&mut self) -> bool {
        false
    }

    /// The collections that exist, ascending.
    fn collections(&self) -> Vec<SpgId>;

    /// How full the store is. Asked for each write.
    fn usage(&self) -> StoreUsage;

    /// Of it what is compressed, of the pools that have such data.
    fn packed(&self) -> BTreeMap<PoolId, PackedUsage> {
        BTreeMap::new()
    }

    /// Of how many parts it is, each of which has its part of [`ObjectStore::usage`] and no more.
    fn partitions(&self) -> u64 {
        1
    }

    /// What the store has in memory; adds up many parts.
    fn memory(&self) -> StoreMemory {
        StoreMemory::default()
    }

    /// Keeps at most so many bytes of what could be read again from now on, data and metadata together, and never more than it was opened
    /// to keep. What is above goes step by step, as the store is drained.
    fn limit_clean(&mut self, bytes: u64) {
        let _keeps_nothing_twice = bytes;
    }

    /// Lets threads of the store's own call `give_back`, which gives what the calling thread has freed back to the system, as soon as they
    /// have nothing else to do. Waits for none of them.
    fn give_back(&mut self, give_back: fn()) {
        let _has_no_threads = give_back;
    }

    /// The device that it is on; `None` where it is all in memory.
    fn device(&mut self) -> Option<&mut dyn MeasuredDevice> {
        None
    }

    /// What it has counted; a store that is all in memory has nothing to count.
    fn counters(&self) -> StoreCounters {
        StoreCounters::default()
    }
}
