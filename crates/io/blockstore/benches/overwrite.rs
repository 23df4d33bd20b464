//! 4 KiB random overwrites with checkpoints running: what a write waits for, and how long one `drain` keeps the
//! shard's thread. A real file in the folder `NACRE_BENCH_DIR` (default: the target folder's file system).
//!
//! `cargo bench -p nacre-blockstore` prints one line per run; `NACRE_BENCH_SECONDS`, `_DEPTH`, `_OBJECTS`, `_OBJECT_KIB`, `_MEMORY_MIB`
//! (target of the store), `_LOOKUPS` (1: each object is looked up once at first, as in a store that has run for a while), `_WARM_SECONDS`
//! (writes before those that are measured), `_JOURNAL_MIB` (each half of the journal before the KV
//! store, if it is to be another than an OSD has with that target; none with 0). `NACRE_BENCH_STORE` names a
//! folder whose store is used again, or made, and kept: runs in alternation need not fill theirs each time, and a store that was
//! filled long ago is faster than a new file. In the end the process is replaced by itself, which is to the store as if it had been
//! killed, and says how long it takes to open it.
//!
//! The time of a `drain` on the processor is what the store does to the shard; by the clock, it includes the machine's neighbours. Bytes
//! written and read are the process's, as the kernel counts them (`/proc/self/io`): data, log and metadata.

use nacre_blockstore::{BlockStore, Options};
use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_env::disk::{DiskCompletion, DiskInfo, DiskTag, Durability};
use nacre_env::real::{DriverChoice, RealDisk, RealNet};
use nacre_env::{Clock, Disk, Net, RealClock};
use nacre_kv::{JournalOptions, JournaledKv, KvBatch, KvOptions, KvStore, RedbKv};
use nacre_store::{Completion, ObjectStore, StoreState};
use nacre_txn::{ObjectView, Op, StoreToken, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Eversion, HObject, PgId, SpgId, Stamp};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const WRITE_BYTES: usize = 4096;
const PGS: u32 = 8;
/// Log entries that a PG keeps.
const LOG_ENTRIES: u64 = 2000;

fn asked(name: &str, default: u64) -> u64 {
    std::env::var(format!("NACRE_BENCH_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Bytes written to the device: those that wait to be durable, which are the log's, and others, which are blocks' homes.
#[derive(Clone, Default)]
struct Written(Arc<[AtomicU64; 2]>);

impl Written {
    fn bytes(&self) -> [u64; 2] {
        [0, 1].map(|nth| self.0.get(nth).map_or(0, |bytes: &AtomicU64| bytes.load(Ordering::Relaxed)))
    }
}

struct Counted {
    disk: RealDisk,
    written: Written,
}

impl Disk for Counted {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        let nth = usize::from(durability != Durability::Durable);
        if let Some(count) = self.written.0.get(nth) {
            count.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
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
        self.disk.drain(out);
    }

    fn wait(&mut self) {
        self.disk.wait();
    }

    fn set_wakeups(&mut self, wakeups: bool) {
        self.disk.set_wakeups(wakeups);
    }

    fn info(&self) -> DiskInfo {
        self.disk.info()
    }
}

struct Bench {
    written: Written,
    store: BlockStore,
    net: RealNet,
    clock: RealClock,
    rng: SeededEntropy,
    completions: Vec<Completion>,
    /// When each transaction was submitted, by token.
    submitted: Vec<Stamp>,
    latencies: Vec<Duration>,
    drain_worst: Duration,
    drain_worst_cpu: Duration,
    objects: u64,
    object_bytes: u64,
    /// Transactions of earlier processes.
    earlier: u64,
}

/// A count of the kernel's about this process, such as `write_bytes`.
fn counted(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    line.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn io(name: &str) -> u64 {
    counted("/proc/self/io", name)
}

/// Time that this thread has had a processor.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    Duration::from_nanos(ns)
}

/// Time that all threads have had one.
fn on_processors() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let times = tasks.map(|task| std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default());
    Duration::from_nanos(times.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum())
}

impl Bench {
    fn make(folder: &Path, objects: u64, object_bytes: u64) -> anyhow::Result<Self> {
        let (options, net, block) = (options()?, RealNet::new()?, folder.join("block"));
        if block.exists() {
            let earlier = std::fs::read_to_string(folder.join("transactions"))?.trim().parse()?;
            let (disk, kv) = (RealDisk::open(&block, DriverChoice::Auto)?, open_kv(folder, &options, &net)?);
            let rng = SeededEntropy(1 + earlier);
            return Ok(Self { earlier, rng, ..Self::open(disk, kv, net, options, objects, object_bytes)? });
        }
        let size_bytes = (objects * object_bytes * 3 / 2).max(1 << 30);
        let mut disk = RealDisk::create(&block, size_bytes, DriverChoice::Auto)?;
        let mut kv = open_kv(folder, &options, &net)?;
        BlockStore::mkfs(&mut disk, kv.as_mut(), ID, &options)?;
        let mut bench = Self::open(disk, kv, net, options, objects, object_bytes)?;
        bench.fill();
        Ok(bench)
    }

    fn open(
        disk: RealDisk,
        kv: Box<dyn KvStore + Send>,
        net: RealNet,
        options: Options,
        objects: u64,
        object_bytes: u64,
    ) -> anyhow::Result<Self> {
        net.watch(disk.wake_fd())?;
        let written = Written::default();
        let disk = Counted { disk, written: written.clone() };
        let (store, _) = BlockStore::open(Box::new(disk), kv, options)?;
        Ok(Self {
            written,
            store,
            net,
            clock: RealClock::start(),
            rng: SeededEntropy(1),
            completions: Vec::new(),
            submitted: Vec::new(),
            latencies: Vec::new(),
            drain_worst: Duration::ZERO,
            drain_worst_cpu: Duration::ZERO,
            objects,
            object_bytes,
            earlier: 0,
        })
    }

    fn pg(object: u64) -> SpgId {
        SpgId::replicated(PgId::new(1, u32::try_from(object).unwrap_or_default() % PGS))
    }

    fn name(object: u64) -> HObject {
        HObject::head(1, "".into(), "".into(), format!("rbd_data.1234567890.{object:016x}").into())
    }

    /// What memory has room for is there then.
    fn look_up_all(&self) {
        for object in 0..self.objects {
            assert!(self.store.meta(&Self::pg(object), &Self::name(object)).is_some(), "object {object}");
        }
    }

    fn submit(&mut self, object: u64, offset: u64, data: Bytes) {
        let mut txn = Transaction::new(Self::pg(object));
        let name = Self::name(object);
        let token = self.submitted.len() as u64;
        let number = self.earlier + token + 1;
        txn.push(Op::Write { object: name.clone(), offset, data: data.into() });
        txn.push(Op::SetMeta { object: name, meta: vec![7; 200].into() });
        txn.push(Op::LogAppend { version: Eversion::new(1, number), entry: vec![8; 180].into() });
        if number > LOG_ENTRIES * u64::from(PGS) && number.is_multiple_of(32) {
            txn.push(Op::LogTrim { to: Eversion::new(1, number - LOG_ENTRIES * u64::from(PGS)) });
        }
        txn.push(Op::MetaSet { key: "info".into(), value: vec![9; 600].into() });
        self.submitted.push(self.clock.now());
        self.store.submit(txn, StoreToken::without_pg(token)).expect("room");
    }

    /// One turn, as the shard's: drain until nothing comes, then sleep. Gives how many writes completed.
    fn turn(&mut self) -> usize {
        let mut done = 0;
        loop {
            let (before, before_cpu) = (self.clock.now(), on_processor());
            self.store.drain(&mut self.completions);
            let (now, now_cpu) = (self.clock.now(), on_processor());
            self.drain_worst = self.drain_worst.max(now.since(before));
            self.drain_worst_cpu = self.drain_worst_cpu.max(now_cpu.saturating_sub(before_cpu));
            if self.completions.is_empty() {
                return done;
            }
            for completion in self.completions.drain(..) {
                let Completion::Durable(token) = completion else { continue };
                done += 1;
                let at = usize::try_from(token.token.0).ok().and_then(|at| self.submitted.get(at));
                self.latencies.extend(at.map(|at| now.since(*at)));
            }
            if done > 0 {
                return done;
            }
        }
    }

    fn sleep(&mut self) {
        let timeout = if self.store.state() == StoreState::HasWork {
            Duration::ZERO
        } else {
            Duration::from_millis(100)
        };
        self.net.poll(Some(timeout), &mut Vec::new()).expect("an open epoll");
    }

    fn fill(&mut self) {
        for object in 0..self.objects {
            self.submit(object, 0, vec![3; usize::try_from(self.object_bytes).unwrap_or(0)].into());
            let depth = usize::try_from((4 << 20) / self.object_bytes).unwrap_or(1).min(64);
            while self.store.waiting() >= depth {
                if self.turn() == 0 {
                    self.sleep();
                }
            }
        }
        while self.store.waiting() > 0 {
            self.turn();
            self.sleep();
        }
    }

    fn overwrite(&mut self, depth: usize, length: Duration) {
        let mut data = AlignedBuf::with_len(WRITE_BYTES);
        data.fill(5);
        let data = data.freeze();
        self.latencies = Vec::with_capacity(1 << 20);
        self.drain_worst = Duration::ZERO;
        self.drain_worst_cpu = Duration::ZERO;
        let begin = self.clock.now();
        let mut in_flight = 0;
        while self.clock.now().since(begin) < length {
            while in_flight < depth {
                let object = self.rng.u64() % self.objects;
                let offset = self.rng.u64() % (self.object_bytes / 4096) * 4096;
                self.submit(object, offset, data.clone());
                in_flight += 1;
            }
            let done = self.turn();
            in_flight -= done;
            if done == 0 {
                self.sleep();
            }
        }
        while self.store.waiting() > 0 {
            if self.turn() == 0 {
                self.sleep();
            }
        }
    }
}

/// Names the store, and its journal if there is one.
const ID: [u8; 16] = [9; 16];

/// Bytes of a half of the journal; none with 0.
fn journal_bytes() -> anyhow::Result<usize> {
    let usual = Options::for_memory(memory_bytes()?).journal_half_bytes >> 20;
    Ok(usize::try_from(asked("JOURNAL_MIB", usual as u64) << 20)?)
}

fn memory_bytes() -> anyhow::Result<usize> {
    Ok(usize::try_from(asked("MEMORY_MIB", 1024) << 20)?)
}

fn options() -> anyhow::Result<Options> {
    Ok(Options::for_memory(memory_bytes()?).with_journal(journal_bytes()?))
}

fn open_kv(folder: &Path, options: &Options, net: &RealNet) -> anyhow::Result<Box<dyn KvStore + Send>> {
    let kv_options = KvOptions { cache_bytes: options.kv_cache_bytes, ..KvOptions::default() };
    let tree = RedbKv::open_with(&folder.join("meta.redb"), kv_options)?;
    let (half_bytes, path) = (journal_bytes()? as u64, folder.join("meta.journal"));
    let kv: Box<dyn KvStore + Send> = if half_bytes == 0 {
        Box::new(tree)
    } else if nacre_kv::has_journal(&tree)? {
        Box::new(JournaledKv::open(tree, nacre_kv::open_file(&path)?, Some(half_bytes))?)
    } else {
        let journal = JournalOptions { id: ID, half_bytes, mark: KvBatch::default() };
        let made = JournaledKv::make(tree, nacre_kv::create_file(&path)?, journal);
        Box::new(made.map_err(|(_, error)| error)?)
    };
    for fd in kv.wake_fds() {
        net.watch(fd)?;
    }
    Ok(kv)
}

/// Opens the store of a process that is gone.
fn open_again(folder: &Path) -> anyhow::Result<()> {
    let (clock, options, net) = (RealClock::start(), options()?, RealNet::new()?);
    let begin = clock.now();
    let kv = open_kv(folder, &options, &net)?;
    let kv_is_open = clock.now();
    let disk = RealDisk::open(&folder.join("block"), DriverChoice::Auto)?;
    let (_store, report) = BlockStore::open(Box::new(disk), kv, options)?;
    let (in_kv, in_all) = (kv_is_open.since(begin), clock.now().since(begin));
    writeln!(
        std::io::stdout(),
        "opened again in {in_all:?}, of which {in_kv:?} the KV store; {} records of the log",
        report.records
    )?;
    if std::env::var_os("NACRE_BENCH_STORE").is_none() {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    if let Some(folder) = std::env::var_os("NACRE_BENCH_OPEN") {
        return open_again(Path::new(&folder));
    }
    let kept = std::env::var_os("NACRE_BENCH_STORE").map(PathBuf::from);
    let base = std::env::var("NACRE_BENCH_DIR")
        .map_or_else(|_| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let folder = kept.unwrap_or_else(|| base.join(format!("store-bench-{}", std::process::id())));
    std::fs::create_dir_all(&folder)?;
    let (depth, seconds) = (asked("DEPTH", 32), asked("SECONDS", 20));
    let mut bench = Bench::make(&folder, asked("OBJECTS", 96), asked("OBJECT_KIB", 4096) << 10)?;
    if asked("LOOKUPS", 0) == 1 {
        bench.look_up_all();
    }
    bench.overwrite(usize::try_from(depth)?, Duration::from_secs(asked("WARM_SECONDS", 0)));
    let checkpoints = bench.store.checkpoints();
    let written = bench.written.bytes();
    let before = (io("write_bytes"), io("read_bytes"), io("rchar"));
    let (hits, misses) = (bench.store.counters().object_hits, bench.store.counters().object_misses);
    let (cpu, cpus) = (on_processor(), on_processors());
    bench.overwrite(usize::try_from(depth)?, Duration::from_secs(seconds));
    let (cpu, cpus) = (on_processor() - cpu, on_processors() - cpus);
    let [log, home] = bench.written.bytes();
    let mut sorted = std::mem::take(&mut bench.latencies);
    sorted.sort_unstable();
    let at = |per_mille: usize| sorted.get(sorted.len() * per_mille / 1000).copied().unwrap_or_default();
    let per_write = |bytes: u64| bytes as f64 / (sorted.len() * WRITE_BYTES).max(1) as f64;
    writeln!(
        std::io::stdout(),
        "depth {depth}: {} writes/s, {:.1} us of the thread each, {:.1} of all threads, p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}; worst drain {:?}, on the processor {:?}; {} checkpoints; \
         per byte of a client {:.2} written ({:.2} to the log, {:.2} home), {:.2} read from the device, {:.2} asked of the kernel; objects {} found in memory, {} read; \
         resident {} MiB, at most {} MiB; by the store's own count {} MiB",
        sorted.len() as u64 / seconds,
        cpu.as_micros() as f64 / sorted.len().max(1) as f64,
        cpus.as_micros() as f64 / sorted.len().max(1) as f64,
        at(500),
        at(990),
        at(999),
        sorted.last().copied().unwrap_or_default(),
        bench.drain_worst,
        bench.drain_worst_cpu,
        bench.store.checkpoints() - checkpoints,
        per_write(io("write_bytes") - before.0),
        per_write(log - written[0]),
        per_write(home - written[1]),
        per_write(io("read_bytes") - before.1),
        per_write(io("rchar") - before.2),
        bench.store.counters().object_hits - hits,
        bench.store.counters().object_misses - misses,
        counted("/proc/self/status", "VmRSS") >> 10,
        counted("/proc/self/status", "VmHWM") >> 10,
        bench.store.memory_bytes() >> 20,
    )?;
    std::fs::write(folder.join("transactions"), (bench.earlier + bench.submitted.len() as u64).to_string())?;
    // Replaces the process, unless it fails; `bench` is never dropped then.
    Err(std::process::Command::new(std::env::current_exe()?).env("NACRE_BENCH_OPEN", &folder).exec().into())
}
