//! A simulated device with metadata beside it that survive the store above them.

use crate::device::Run;
use crate::superblock::{COPIES, Part, Superblock};
use crate::{BlockStore, MountReport, OpenError, Options, SplitDisk, mount};
use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_crypt::{CryptDisk, DataKey, Part as CryptPart};
use nacre_env::disk::{Disk, DiskCompletion, DiskInfo, DiskTag, Durability, blocking};
use nacre_kv::{COMMITTED, Follow, KvBatch, KvCompletion, KvError, KvStore, KvTag, MemoryKv, Pair, Warmed};
use nacre_simdisk::{SimConfig, SimDevice, SimDisk};
use nacre_store::{DiscardPolicy, ObjectStore};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Compression, CompressionHint, Entropy, PoolId};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

/// What is freed is discarded. Every other run flushes all large writes as those in many pieces are, which are rare in a small store. Every third one keeps nothing clean
/// of the metadata in memory: each page of an object's blocks is read whenever somebody asks.
pub(super) fn tiny(seed: u64) -> Options {
    let mut tiny = Options { discards: DiscardPolicy::Devices, ..Options::tiny() };
    if seed.is_multiple_of(2) {
        tiny.flushed_together_min = 1;
    }
    if seed.is_multiple_of(3) {
        tiny.metadata_bytes_max = 0;
    }
    tiny
}

/// Of the objects in the tests.
pub(super) const POOL: PoolId = 3;

/// Records in the tests are what was said of the data.
pub(super) fn hint_in(record: &Bytes) -> CompressionHint {
    match record.as_ref() {
        b"compressible" => CompressionHint::Compressible,
        b"incompressible" => CompressionHint::Incompressible,
        _ => CompressionHint::None,
    }
}

/// A log as large as that of [`Options::tiny`], with its superblocks.
pub(super) const SPLIT_LOG_BYTES: u64 = (256 << 10) + 8192;

/// A simulated disk that makes a few random steps whenever it is asked.
pub(super) struct Stepping {
    pub(super) disk: SimDisk,
    pub(super) device: SimDevice,
    pub(super) rng: SeededEntropy,
}

impl Disk for Stepping {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        self.disk.write(offset, data, durability, tag);
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        self.disk.read(offset, into, tag);
    }

    fn flush(&mut self, tag: DiskTag) {
        self.disk.flush(tag);
    }

    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag) {
        self.disk.discard(offset, length, tag);
    }

    fn submit(&mut self) {
        self.disk.submit();
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        for _ in 0..self.rng.u64() % 4 {
            self.device.step();
        }
        self.disk.drain(out);
    }

    fn wait(&mut self) {
        self.disk.wait();
    }

    fn info(&self) -> DiskInfo {
        self.disk.info()
    }
}

/// Metadata in memory, shared with the test. A submitted batch is carried out after a few looks for it, and told of
/// after a few more.
#[derive(Clone)]
pub(super) struct SharedKv(Arc<Mutex<SlowKv>>);

struct SlowKv {
    kv: MemoryKv,
    rng: SeededEntropy,
    looks_to_come: u64,
    /// Of the commit under way, in all.
    looks: u64,
    /// Of each commit; by chance when not given.
    looks_given: Option<u64>,
    reads_fail: bool,
    /// Values asked for.
    gets: u64,
    /// Ranges asked for.
    scans: u64,
}

impl SharedKv {
    pub(super) fn new(seed: u64) -> Self {
        let mut kv = MemoryKv::new();
        kv.hold();
        Self(Arc::new(Mutex::new(SlowKv {
            kv,
            rng: SeededEntropy(seed),
            looks_to_come: 0,
            looks: 0,
            looks_given: None,
            reads_fail: false,
            gets: 0,
            scans: 0,
        })))
    }

    fn refuse_failed(&self) -> Result<(), KvError> {
        match self.0.lock().expect("no test panics while it holds this").reads_fail {
            true => Err(KvError::Damaged("planted".to_owned())),
            false => Ok(()),
        }
    }

    /// Power goes and comes back: so many of the batches under way are there.
    pub(super) fn crash(&self, survivors: usize) {
        self.with(|kv| *kv = std::mem::take(kv).crash(survivors));
    }

    /// The process ends: all batches under way are lost, or none is.
    pub(super) fn lose_submitted(&self, all: bool) {
        self.crash(if all { 0 } else { usize::MAX });
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&mut MemoryKv) -> T) -> T {
        work(&mut self.0.lock().expect("no test panics while it holds this").kv)
    }
}

impl KvStore for SharedKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        self.refuse_failed()?;
        self.0.lock().expect("no test panics while it holds this").gets += 1;
        self.with(|kv| kv.get(key))
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        self.refuse_failed()?;
        self.0.lock().expect("no test panics while it holds this").scans += 1;
        self.with(|kv| kv.scan(start, end, count_max))
    }

    fn commit(&mut self, batch: &KvBatch, durability: nacre_kv::Durability) -> Result<(), KvError> {
        self.with(|kv| kv.commit(batch, durability))
    }

    fn submit(&mut self, batch: KvBatch, tag: KvTag) {
        let mut shared = self.0.lock().expect("no test panics while it holds this");
        shared.kv.submit(batch, tag);
        let longest = if shared.rng.u64().is_multiple_of(3) { 150 } else { 6 };
        let by_chance = shared.rng.u64() % longest;
        shared.looks = shared.looks_given.unwrap_or(by_chance);
        shared.looks_to_come = shared.looks;
    }

    fn drain(&mut self, out: &mut Vec<KvCompletion>) {
        let mut shared = self.0.lock().expect("no test panics while it holds this");
        shared.looks_to_come = shared.looks_to_come.saturating_sub(1);
        match shared.looks_to_come {
            0 => {
                shared.kv.step();
                shared.kv.drain(out);
            }
            1..=3 => shared.kv.step(),
            _ => (),
        }
    }

    fn waits_for_device(&self) -> bool {
        self.with(|kv| kv.waits_for_device())
    }

    fn warm(&mut self, keys: Vec<Bytes>, follow: Option<Follow>, tag: KvTag) -> bool {
        self.with(|kv| kv.warm(keys, follow, tag))
    }

    fn drain_warm(&mut self, out: &mut Vec<Warmed>) {
        self.with(|kv| kv.drain_warm(out));
    }

    fn progress(&self) -> u64 {
        let shared = self.0.lock().expect("no test panics while it holds this");
        (shared.looks - shared.looks_to_come) * COMMITTED / shared.looks.max(1)
    }

    fn wait(&mut self) {
        let mut shared = self.0.lock().expect("no test panics while it holds this");
        shared.kv.wait();
        shared.looks_to_come = 0;
    }
}

/// Writes both copies of a superblock.
pub(super) fn sign(device: &SimDevice, superblock: &Superblock) {
    for copy in 0..COPIES {
        let (at, block) = (BlockStore::offset(copy.into()), superblock.encode());
        let written = blocking::write(&mut device.open(), at, block.into(), Durability::Durable);
        written.expect("a healthy device");
    }
}

/// So many blocks: from the first one on that needs more than 32 bits, half of them before it, or a few.
pub(super) fn around_32_bits(seed: u64, count: u64) -> Run {
    let before = match seed % 3 {
        0 => 0,
        1 => count / 2,
        _ => 7,
    };
    Run { start: (1 << 32) - before, count }
}

/// Hardware and options of one store.
pub(super) struct Rig {
    pub(super) device: SimDevice,
    /// Of the log, when it has one of its own.
    pub(super) log_device: Option<SimDevice>,
    /// What both are encrypted by, if they are.
    key: Option<DataKey>,
    pub(super) kv: SharedKv,
    pub(super) options: Options,
    seed: u64,
    opened: u64,
    /// Of the pool whose objects the tests have.
    pub(super) compression: Option<Compression>,
}

impl Rig {
    /// A new store.
    pub(super) fn new(seed: u64, size_bytes: u64, options: Options) -> Self {
        let device = SimDevice::new(SimConfig::new(size_bytes, seed));
        let kv = SharedKv::new(seed);
        BlockStore::mkfs(&mut device.open(), &mut kv.clone(), [7; 16], &options)
            .expect("a store can be made");
        Self { device, log_device: None, key: None, kv, options, seed, opened: 0, compression: None }
    }

    /// A new store whose log is on a device of its own.
    pub(super) fn split(seed: u64, size_bytes: u64, options: Options) -> Self {
        let device = SimDevice::new(SimConfig::new(size_bytes, seed));
        let log = SimDevice::new(SimConfig::new(SPLIT_LOG_BYTES, !seed));
        let kv = SharedKv::new(seed);
        let mut disk = SplitDisk::new(Box::new(device.open()), Box::new(log.open())).expect("large enough");
        let options = Options { wal_bytes: Some(disk.log_bytes()), ..options };
        BlockStore::mkfs(&mut disk, &mut kv.clone(), [7; 16], &options).expect("a store can be made");
        disk.label().expect("healthy devices");
        Self { device, log_device: Some(log), key: None, kv, options, seed, opened: 0, compression: None }
    }

    /// A new store on an encrypted device, whose log is on another one.
    pub(super) fn encrypted(seed: u64, size_bytes: u64, options: Options) -> Self {
        let key = DataKey::generate(&mut SeededEntropy(seed));
        let device = SimDevice::new(SimConfig::new(size_bytes, seed));
        let log = SimDevice::new(SimConfig::new(SPLIT_LOG_BYTES, !seed));
        let kv = SharedKv::new(seed);
        let over = |device: &SimDevice, part| Box::new(CryptDisk::new(device.open(), Some(key.cipher(part))));
        let mut disk =
            SplitDisk::new(over(&device, CryptPart::Data), over(&log, CryptPart::Log)).expect("large enough");
        let options = Options { wal_bytes: Some(disk.log_bytes()), ..options };
        BlockStore::mkfs(&mut disk, &mut kv.clone(), [7; 16], &options).expect("a store can be made");
        disk.label().expect("healthy devices");
        Self {
            device,
            log_device: Some(log),
            key: Some(key),
            kv,
            options,
            seed,
            opened: 0,
            compression: None,
        }
    }

    /// A new store whose log was moved to a device of its own.
    pub(super) fn moved(seed: u64, size_bytes: u64, options: Options) -> Self {
        Self::new(seed, size_bytes, options).with_log_moved()
    }

    fn with_log_moved(self) -> Self {
        let log = SimDevice::new(SimConfig::new(SPLIT_LOG_BYTES, !self.seed));
        let whole = mount::read_superblock(&mut self.device.open()).expect("a healthy device");
        for (device, part) in [(&self.device, Part::DataInPlace), (&log, Part::LogMoved)] {
            sign(device, &Superblock { part, ..whole });
        }
        Self { log_device: Some(log), ..self }
    }

    /// A new store as that of [`Rig::new`], but for its data: they lie around the block behind which numbers have more than 32 bits. What is
    /// before them is used by nobody. The log of every other one was moved to a device of its own.
    pub(super) fn wide(seed: u64, size_bytes: u64, options: Options) -> Self {
        let rig = Self::new(seed, (1 << 44) + size_bytes, options);
        let whole = mount::read_superblock(&mut rig.device.open()).expect("a healthy device");
        let data = around_32_bits(seed, size_bytes / crate::BLOCK as u64 - whole.wal.end());
        sign(&rig.device, &Superblock { data, ..whole });
        if seed.is_multiple_of(2) { rig } else { rig.with_log_moved() }
    }

    pub(super) fn try_open(&mut self) -> Result<(BlockStore, MountReport), OpenError> {
        self.opened += 1;
        // The process that had it open may have ended in the middle of a commit.
        self.kv.lose_submitted(self.opened.is_multiple_of(2));
        let stepping = |device: &SimDevice, part: CryptPart, salt: u64| {
            let rng = SeededEntropy(self.seed ^ (self.opened << 32) ^ salt);
            let disk = Stepping { disk: device.open(), device: device.clone(), rng };
            Box::new(CryptDisk::new(disk, self.key.as_ref().map(|key| key.cipher(part))))
        };
        let data = stepping(&self.device, CryptPart::Data, 0);
        let disk: Box<dyn Disk> = match &self.log_device {
            None => data,
            Some(log) => Box::new(SplitDisk::open(data, stepping(log, CryptPart::Log, 1 << 20))?),
        };
        let (mut store, report) = BlockStore::open(disk, Box::new(self.kv.clone()), self.options.clone())?;
        self.compression.iter().for_each(|compression| store.set_compression(POOL, *compression, hint_in));
        Ok((store, report))
    }

    /// Opens the store.
    pub(super) fn open(&mut self) -> BlockStore {
        self.try_open().expect("the store opens").0
    }

    /// Power goes and comes back.
    pub(super) fn crash(&mut self, survivors: usize) {
        self.device.crash();
        self.log_device.iter().for_each(SimDevice::crash);
        self.kv.crash(survivors);
    }

    /// The process is killed; the machine runs on.
    pub(super) fn kill(&mut self) {
        self.device.kill();
        self.log_device.iter().for_each(SimDevice::kill);
    }

    /// A copy of the metadata as they are, without what is under way.
    pub(super) fn copy_metadata(&self) -> Vec<Pair> {
        self.with_kv(|kv| kv.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX)).expect("memory")
    }

    /// Puts a copy back in place of what there is.
    pub(super) fn restore_metadata(&self, pairs: &[Pair]) {
        let mut batch = KvBatch::default();
        batch.delete_prefix(Bytes::new());
        pairs.iter().for_each(|(key, value)| batch.put(key.clone(), value.clone()));
        self.with_kv(|kv| kv.commit(&batch, nacre_kv::Durability::Durable)).expect("memory");
    }

    fn with_kv<T>(&self, work: impl FnOnce(&mut MemoryKv) -> T) -> T {
        self.kv.lose_submitted(true);
        self.kv.with(work)
    }

    /// From now on a commit of metadata takes so many turns.
    pub(super) fn commits_take(&self, looks: u64) {
        self.kv.0.lock().expect("no test panics while it holds this").looks_given = Some(looks);
    }

    /// Values and ranges that the store has asked its metadata for so far.
    pub(super) fn metadata_looks(&self) -> u64 {
        let kv = self.kv.0.lock().expect("no test panics while it holds this");
        kv.gets + kv.scans
    }

    /// Values of the metadata asked for so far, but for scans.
    pub(super) fn metadata_gets(&self) -> u64 {
        self.kv.0.lock().expect("no test panics while it holds this").gets
    }

    /// From now on nothing of the metadata can be read.
    pub(super) fn fail_metadata_reads(&self) {
        self.kv.0.lock().expect("no test panics while it holds this").reads_fail = true;
    }

    /// From now on they can again.
    pub(super) fn mend_metadata_reads(&self) {
        self.kv.0.lock().expect("no test panics while it holds this").reads_fail = false;
    }

    /// Lets some commits of metadata succeed and then one fail.
    pub(super) fn fail_metadata_after(&self, commits: usize) {
        self.kv.with(|kv| kv.fail_after(commits));
    }
}
