//! Random overwrites, of 4 KiB by default, with checkpoints running: what a write waits for, and how long one `drain` keeps the
//! shard's thread. A real file in the folder `NACRE_BENCH_DIR` (default: the target folder's file system).
//!
//! `cargo bench -p nacre-blockstore` prints one line per run; `NACRE_BENCH_SECONDS`, `_DEPTH`, `_OBJECTS`, `_OBJECT_KIB`, `_MEMORY_MIB`
//! (target of the store), `_LOOKUPS` (1: each object is looked up once at first, as in a store that has run for a while), `_WARM_SECONDS`
//! (writes before those that are measured), `_JOURNAL_MIB` (each half of the journal before the KV store, if it is to be another than an
//! OSD has with that target; none with 0), `_WRITE_KIB` (of a write), `_INLINE_KIB` (writes of up to so much travel in the log's record),
//! `_RAW` (1: what the store asked of its files is asked of them again behind it, at the same moments and with no store above them, and the
//! store is gone then: [`replay`]), `_PLACED` (with so many writes under way shorter ones of whole blocks go beside the record, too),
//! `_WRITES` and `_WARM_WRITES` (so many in place of seconds: what is written per byte is compared at the same number of writes),
//! `_READ_OBJECTS` (so many are read whole behind the writes, one after the other), `_BLOCK_DEVICE` (such as `loop1`: what the device
//! counted meanwhile is said, too). `NACRE_BENCH_STORE` names a folder whose store is used again, or made, and kept: runs in alternation
//! need not fill theirs each time, and a store that was filled long ago is faster than a new file. In the end the process is replaced by
//! itself, which is to the store as if it had been killed, and says how long it takes to open it.
//!
//! The time of a `drain` on the processor is what the store does to the shard; by the clock, it includes the machine's neighbours. Bytes
//! written and read are the process's, as the kernel counts them (`/proc/self/io`): data, log and metadata. Of the data's file requests are
//! counted by kind: to the log's area; durable each, which are payload beside a record; and others, which are homes that a checkpoint
//! writes, or payload in four pieces and more.

mod recorded;
mod replay;

use nacre_blockstore::{BlockStore, Options, SplitDisk};
use nacre_buf::{AlignedBuf, Bytes};
use nacre_env::real::{DriverChoice, RealDisk, RealNet};
use nacre_env::{Clock, File, Net, RealClock};
use nacre_kv::{JournalOptions, JournaledKv, KvBatch, KvOptions, KvStore, RedbKv};
use nacre_store::{Completion, ObjectStore, StoreState};
use nacre_txn::{FetchFrom, ObjectView, Op, StoreToken, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Eversion, HObject, PgId, SpgId, Stamp};
use recorded::{KINDS, READ, Record, RecordedDisk, RecordedFile};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const PGS: u32 = 8;
/// Log entries that a PG keeps.
const LOG_ENTRIES: u64 = 2000;

fn asked(name: &str, default: u64) -> u64 {
    std::env::var(format!("NACRE_BENCH_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Bench {
    record: Record,
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
    write_bytes: u64,
    /// Transactions of earlier processes.
    earlier: u64,
}

/// How long writes go on.
#[derive(Clone, Copy)]
enum Until {
    Passed(Duration),
    Submitted(u64),
}

impl Until {
    /// A number of writes, where one is asked for.
    fn asked(writes: &str, seconds: &str, default_seconds: u64) -> Self {
        match asked(writes, 0) {
            0 => Self::Passed(Duration::from_secs(asked(seconds, default_seconds))),
            count => Self::Submitted(count),
        }
    }
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
        let record = Record::new(RealClock::start());
        if block.exists() {
            let earlier = std::fs::read_to_string(folder.join("transactions"))?.trim().parse()?;
            let (mut disk, kv) =
                (RealDisk::open(&block, DriverChoice::Auto)?, open_kv(folder, &options, &net, &record)?);
            if let Some(report) = nacre_blockstore::probe(&mut disk, &RealClock::start())? {
                let costs = [report.durable_write, report.cached_write, report.flush, report.read];
                let [durable, cached, flush, read] = costs.map(|cost| cost.median.as_micros());
                let mut out = std::io::stdout();
                writeln!(
                    out,
                    "device, us: durable write {durable}, cached {cached}, flush {flush}, read {read}"
                )?;
            }
            let rng = SeededEntropy(1 + earlier);
            return Ok(Self {
                earlier,
                rng,
                ..Self::open(disk, kv, net, options, record, objects, object_bytes)?
            });
        }
        let size_bytes = (objects * object_bytes * 3 / 2).max(1 << 30);
        let mut disk = RealDisk::create(&block, size_bytes, DriverChoice::Auto)?;
        let mut kv = open_kv(folder, &options, &net, &record)?;
        BlockStore::mkfs(&mut disk, kv.as_mut(), ID, &options)?;
        let mut bench = Self::open(disk, kv, net, options, record, objects, object_bytes)?;
        bench.fill();
        Ok(bench)
    }

    fn open(
        mut disk: RealDisk,
        kv: Box<dyn KvStore + Send>,
        net: RealNet,
        options: Options,
        record: Record,
        objects: u64,
        object_bytes: u64,
    ) -> anyhow::Result<Self> {
        net.watch(disk.wake_fd())?;
        let log_end = SplitDisk::HEAD_BYTES + nacre_blockstore::log_bytes(&mut disk)?;
        let disk = RecordedDisk { disk, record: record.clone(), log_end };
        let (mut store, _) = BlockStore::open(Box::new(disk), kv, options)?;
        store.set_clock(Box::new(RealClock::start()));
        Ok(Self {
            record,
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
            write_bytes: asked("WRITE_KIB", 4) << 10,
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
                self.record.note_writes(done);
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

    fn overwrite(&mut self, depth: usize, until: Until) {
        let bytes = self.write_bytes;
        let mut data = AlignedBuf::with_len(usize::try_from(bytes).expect("of an object"));
        data.fill(5);
        let data = data.freeze();
        self.latencies = Vec::with_capacity(1 << 20);
        self.drain_worst = Duration::ZERO;
        self.drain_worst_cpu = Duration::ZERO;
        let (begin, first) = (self.clock.now(), self.submitted.len() as u64);
        let mut in_flight = 0;
        let goes_on = |bench: &Self| match until {
            Until::Passed(length) => bench.clock.now().since(begin) < length,
            Until::Submitted(count) => (bench.submitted.len() as u64 - first) < count,
        };
        while goes_on(self) {
            while in_flight < depth {
                let object = self.rng.u64() % self.objects;
                let offset = self.rng.u64() % (self.object_bytes / bytes) * bytes;
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

impl Bench {
    /// Brings all home, then reads so many objects whole, each with one request of a client, from the device.
    fn read_whole(&mut self, objects: u64) -> std::io::Result<()> {
        while self.store.idle_trim() {
            self.turn();
            self.sleep();
        }
        let (before, cpus) = (self.record.counts(), on_processors());
        let (begin, mut done) = (self.clock.now(), Vec::new());
        let mut latencies = Vec::new();
        for object in 0..objects.min(self.objects) {
            let (since, token) = (self.clock.now(), StoreToken::without_pg(object));
            let (pg, name) = (Self::pg(object), Self::name(object));
            self.store.fetch(&pg, &name, 0, self.object_bytes, FetchFrom::Device, token);
            while done.is_empty() {
                self.store.drain(&mut done);
                if done.is_empty() {
                    self.sleep();
                }
            }
            done.clear();
            latencies.push(self.clock.now().since(since));
        }
        let (took, cpus) = (self.clock.now().since(begin), on_processors() - cpus);
        let count = latencies.len().max(1) as f64;
        latencies.sort_unstable();
        let median = latencies.get(latencies.len() / 2).copied().unwrap_or_default();
        let reads = self.record.counts()[READ][0] - before[READ][0];
        let free = self.store.counters().free;
        writeln!(
            std::io::stdout(),
            "read whole: {:.0} MB/s, median {median:?}, {:.0} us of all threads, {:.1} requests for each object; {} MiB free in {} pieces, {} MiB of it in long ones",
            count * self.object_bytes as f64 / took.as_secs_f64() / 1e6,
            cpus.as_micros() as f64 / count,
            reads as f64 / count,
            free.bytes >> 20,
            free.runs,
            free.long_bytes >> 20
        )
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
    let options = Options::for_memory(memory_bytes()?).with_journal(journal_bytes()?);
    let inline_kib = asked("INLINE_KIB", (options.inline_bytes_max >> 10) as u64);
    let together = usize::try_from(asked("PLACED", 0))?;
    let placed_together_min = (together > 0).then_some(together);
    Ok(Options { inline_bytes_max: usize::try_from(inline_kib << 10)?, placed_together_min, ..options })
}

const TREE: &str = "meta.redb";
const JOURNAL: &str = "meta.journal";

fn open_kv(
    folder: &Path,
    options: &Options,
    net: &RealNet,
    record: &Record,
) -> anyhow::Result<Box<dyn KvStore + Send>> {
    let kv_options = KvOptions { cache_bytes: options.kv_cache_bytes, ..KvOptions::default() };
    let recorded = |name| {
        let record = record.clone();
        move |file| -> Arc<dyn File> { Arc::new(RecordedFile { file, record: record.clone(), name }) }
    };
    let tree = RedbKv::open_through(&folder.join(TREE), recorded(TREE), kv_options)?;
    let (half_bytes, path) = (journal_bytes()? as u64, folder.join(JOURNAL));
    let kv: Box<dyn KvStore + Send> = if half_bytes == 0 {
        Box::new(tree)
    } else if nacre_kv::has_journal(&tree)? {
        Box::new(JournaledKv::open(tree, recorded(JOURNAL)(nacre_kv::open_file(&path)?), Some(half_bytes))?)
    } else {
        let journal = JournalOptions { id: ID, half_bytes, mark: KvBatch::default() };
        let made = JournaledKv::make(tree, recorded(JOURNAL)(nacre_kv::create_file(&path)?), journal);
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
    let kv = open_kv(folder, &options, &net, &Record::new(clock))?;
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

/// What is counted of the process and its devices.
struct Counts {
    at: Stamp,
    /// Written, read and asked of the kernel.
    process: [u64; 3],
    asked: [[u64; 2]; KINDS.len()],
    /// Requests and bytes written, as the block device counts them.
    device: [u64; 2],
    checkpoints: u64,
    objects: [u64; 2],
    /// Of this thread, and of all.
    cpu: [Duration; 2],
}

impl Counts {
    fn of(bench: &Bench) -> Self {
        let counters = bench.store.counters();
        Self {
            at: bench.clock.now(),
            process: ["write_bytes", "read_bytes", "rchar"].map(io),
            asked: bench.record.counts(),
            device: device_counts(),
            checkpoints: bench.store.checkpoints(),
            objects: [counters.object_hits, counters.object_misses],
            cpu: [on_processor(), on_processors()],
        }
    }
}

/// Requests and bytes written of the block device that was named; it counts sectors of 512 bytes.
fn device_counts() -> [u64; 2] {
    let Ok(name) = std::env::var("NACRE_BENCH_BLOCK_DEVICE") else { return [0, 0] };
    let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap_or_default();
    let field = |nth| text.split_whitespace().nth(nth).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    [field(4), field(6) * 512]
}

fn report(bench: &mut Bench, depth: u64, before: &Counts) -> std::io::Result<()> {
    let now = Counts::of(bench);
    let mut sorted = std::mem::take(&mut bench.latencies);
    sorted.sort_unstable();
    let (count, bytes) = (sorted.len().max(1) as f64, bench.write_bytes as f64);
    let at = |per_mille: usize| sorted.get(sorted.len() * per_mille / 1000).copied().unwrap_or_default();
    let per_byte = |bytes_written: u64| bytes_written as f64 / count / bytes;
    let per_byte_of = |nth: usize| per_byte(now.process[nth] - before.process[nth]);
    let per_write = |duration: Duration| duration.as_nanos() as f64 / 1e3 / count;
    writeln!(
        std::io::stdout(),
        "depth {depth}, {} KiB: {:.0} writes/s, {:.1} us of the thread each, {:.1} of all threads, p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}; \
         worst drain {:?}, on the processor {:?}; {} checkpoints; per byte of a client {:.2} written, {:.2} read from the device, \
         {:.2} asked of the kernel; objects {} found in memory, {} read; resident {} MiB, at most {} MiB; by the store's own count {} MiB",
        bench.write_bytes >> 10,
        count / now.at.since(before.at).as_secs_f64(),
        per_write(now.cpu[0] - before.cpu[0]),
        per_write(now.cpu[1] - before.cpu[1]),
        at(500),
        at(990),
        at(999),
        sorted.last().copied().unwrap_or_default(),
        bench.drain_worst,
        bench.drain_worst_cpu,
        now.checkpoints - before.checkpoints,
        per_byte_of(0),
        per_byte_of(1),
        per_byte_of(2),
        now.objects[0] - before.objects[0],
        now.objects[1] - before.objects[1],
        counted("/proc/self/status", "VmRSS") >> 10,
        counted("/proc/self/status", "VmHWM") >> 10,
        bench.store.memory_bytes() >> 20,
    )?;
    let kinds = KINDS.iter().zip(now.asked.iter().zip(before.asked)).map(|(name, (now, before))| {
        let requests = (now[0] - before[0]) as f64 / count;
        format!("{name} {requests:.3} and {:.3}", per_byte(now[1] - before[1]))
    });
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    let device = [0, 1].map(|nth| now.device[nth] - before.device[nth]);
    writeln!(
        std::io::stdout(),
        "requests per write and bytes per byte: {kinds}; counted by the block device {:.3} and {:.3}",
        device[0] as f64 / count,
        per_byte(device[1])
    )
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
    let depth = asked("DEPTH", 32);
    let mut bench = Bench::make(&folder, asked("OBJECTS", 96), asked("OBJECT_KIB", 4096) << 10)?;
    if asked("LOOKUPS", 0) == 1 {
        bench.look_up_all();
    }
    bench.overwrite(usize::try_from(depth)?, Until::asked("WARM_WRITES", "WARM_SECONDS", 0));
    let is_replayed = asked("RAW", 0) == 1;
    bench.record.keep(is_replayed);
    let before = Counts::of(&bench);
    bench.overwrite(usize::try_from(depth)?, Until::asked("WRITES", "SECONDS", 20));
    bench.record.keep(false);
    report(&mut bench, depth, &before)?;
    if is_replayed {
        let kept = bench.record.take();
        drop(bench);
        replay::replay(&folder, kept)?;
        std::fs::remove_dir_all(folder)?;
        return Ok(());
    }
    match asked("READ_OBJECTS", 0) {
        0 => (),
        count => bench.read_whole(count)?,
    }
    std::fs::write(folder.join("transactions"), (bench.earlier + bench.submitted.len() as u64).to_string())?;
    // Replaces the process, unless it fails; `bench` is never dropped then.
    Err(std::process::Command::new(std::env::current_exe()?).env("NACRE_BENCH_OPEN", &folder).exec().into())
}
