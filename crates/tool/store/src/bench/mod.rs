//! `nacre store bench`: the store alone, and beside it the raw device, in alternating rounds of one run.
//!
//! *Raw* is the same [`Disk`] with durable writes (or reads) of the same size at random places, as many in flight: what
//! the store could reach at best. A write to the store is what an OSD makes of one: data, the object's record and an entry
//! of the log. Figures are medians over the rounds; processor time is summed over them, kernel threads of ours
//! included.

mod figures;
mod fio;
mod raw;
mod slow;
mod stored;

use crate::bench::figures::{Figures, InFlight, Round, cpu_us, summary};
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_buf::Bytes;
use nacre_crypt::{CryptDisk, DataKey, Part, Xts};
use nacre_env::disk::zero_fill;
use nacre_env::outln;
use nacre_env::real::{DriverChoice, RealDisk, private};
use nacre_env::{Clock, Disk, RealClock, SystemEntropy};
use serde_json::{Value, json};
use slow::SlowFlush;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const KIB: u64 = 1 << 10;
/// A part of the device is the log.
const DEVICE_BYTES_MIN: u64 = 256 << 20;
const DEPTH_MAX: usize = 1024;

/// Options of `nacre store bench`.
#[derive(Debug, Args)]
pub struct Options {
    /// Folder for the files of the bench; they are removed at the end.
    dir: PathBuf,
    /// Mebibytes of the store, and of the raw file beside it.
    #[arg(long, default_value_t = 1024)]
    size_mib: u64,
    /// Kibibytes of one operation: powers of two from 4 to 4096.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 64, 4096])]
    kib: Vec<u64>,
    /// Operations in flight.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 32])]
    depths: Vec<usize>,
    /// Rounds of each case; figures are their medians.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of a round.
    #[arg(long, default_value_t = 1000)]
    round_ms: u64,
    /// Reads as well as writes.
    #[arg(long)]
    reads: bool,
    /// Let fio measure the raw device as well (direct, O_DSYNC).
    #[arg(long)]
    fio: bool,
    /// Pretend that the device has a volatile cache whose flush takes so many microseconds, one flush at a time.
    #[arg(long)]
    flush_us: Option<u64>,
    /// Leave both files as they were allocated. The first write to a block then costs a commit of the file system's
    /// journal, as in a new OSD on a file; by default all blocks are written before.
    #[arg(long)]
    fresh: bool,
    /// Measure an encrypted store as well, in turn with the other: what encryption at rest costs.
    #[arg(long)]
    encrypted: bool,
    /// Tell the store's latencies by what its checkpoint was at when the operations ended.
    #[arg(long)]
    stages: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// One kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) is_read: bool,
    pub(crate) bytes: u64,
    pub(crate) depth: usize,
}

/// Something that can be measured.
pub(crate) trait Engine {
    /// Name in the output.
    fn name(&self) -> &'static str;
    /// Works for about `length`.
    fn round(&mut self, case: Case, length: Duration) -> Result<Round>;
}

/// An engine of ours: operations that begin and end.
pub(crate) trait Work {
    /// Begins an operation; true when it is done already.
    fn start(&mut self, case: Case, data: &Bytes, number: u64) -> Result<bool>;
    /// Lets begun operations go on and waits until something happens; tells which have ended.
    fn turn(&mut self, finished: &mut Vec<u64>) -> Result<()>;
    /// What is done in the background, beside the operations.
    fn background(&self) -> Option<&'static str> {
        None
    }
}

/// Keeps operations of a kind in flight for `length`, then lets them end.
pub(crate) fn work_for(
    work: &mut impl Work,
    clock: &RealClock,
    case: Case,
    length: Duration,
) -> Result<Round> {
    let (data, mut in_flight) = (content(case.bytes), InFlight::default());
    let (mut round, mut finished) = (Round::with_memory(), Vec::new());
    let (cpu, begin) = (cpu_us(), clock.now());
    let end = begin + length;
    loop {
        while in_flight.len() < case.depth && clock.now() < end {
            let number = in_flight.start(clock.now());
            if work.start(case, &data, number)? {
                round.bytes += case.bytes;
                in_flight.finish(number, clock.now(), &mut round);
            }
        }
        if in_flight.len() == 0 {
            break;
        }
        // Read before the turn as well: what ends with it was waited for while that went on.
        let before = work.background();
        work.turn(&mut finished)?;
        let now = clock.now();
        round.background = before.or_else(|| work.background());
        for number in finished.drain(..) {
            round.bytes += case.bytes;
            in_flight.finish(number, now, &mut round);
        }
    }
    round.elapsed_ns = clock.now().nanos_since(begin);
    round.cpu_us = cpu_us().zip(cpu).map(|(after, before)| after - before);
    Ok(round)
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    check(options)?;
    let folder = Scratch::new(&options.dir)?;
    let clock = RealClock::start();
    let bytes = options.size_mib << 20;
    let disk = |name: &str, key: Option<&DataKey>| {
        let cipher = key.map(|key| key.cipher(Part::Data));
        let mut disk = open(&folder.0.join(name), bytes, cipher, options.flush_us, clock)?;
        if !options.fresh {
            zero_fill(disk.as_mut(), 0, bytes, &mut |_| ())?;
        }
        anyhow::Ok(disk)
    };
    let mut raw = raw::Raw::new(disk("raw", None)?, clock);
    let mut stored = stored::Stored::new(disk("block", None)?, &folder.0.join("meta.redb"), None, clock)?;
    let mut encrypted = match options.encrypted {
        true => {
            let key = DataKey::generate(&mut SystemEntropy::default());
            let meta = folder.0.join("encrypted.redb");
            Some(stored::Stored::new(disk("encrypted", Some(&key))?, &meta, Some(&key), clock)?)
        }
        false => None,
    };
    let mut fio = match options.fio {
        true => Some(fio::Fio::new(&folder.0.join("raw"))?),
        false => None,
    };
    let mut results = Vec::new();
    if !options.json {
        outln!("{}", figures::HEAD);
    }
    for case in cases(options) {
        let mut engines: Vec<&mut dyn Engine> = vec![&mut raw, &mut stored];
        engines.extend(encrypted.as_mut().map(|encrypted| encrypted as &mut dyn Engine));
        // fio would not see the pretended flushes.
        engines.extend(fio.as_mut().map(|fio| fio as &mut dyn Engine));
        let measured = measure(&mut engines, case, options)?;
        if !options.json {
            figures::print(case, &measured, options.stages);
        }
        results.push(as_json(case, &measured));
    }
    let about = stored.about();
    if options.json {
        let document = json!({
            "device": about,
            "size_mib": options.size_mib,
            "rounds": options.rounds,
            "round_ms": options.round_ms,
            "flush_us": options.flush_us,
            "fresh": options.fresh,
            "results": results,
        });
        outln!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        outln!("device: {about}");
    }
    Ok(ExitCode::SUCCESS)
}

fn check(options: &Options) -> Result<()> {
    let good = |kib: &u64| kib.is_power_of_two() && (4..=4096).contains(kib);
    if !options.kib.iter().all(good) {
        bail!("--kib: powers of two from 4 to 4096");
    }
    if !options.depths.iter().all(|depth| (1..=DEPTH_MAX).contains(depth)) {
        bail!("--depths: from 1 to {DEPTH_MAX}");
    }
    if options.rounds == 0 || options.round_ms == 0 || options.size_mib << 20 < DEVICE_BYTES_MIN {
        bail!("--rounds and --round-ms are at least 1, --size-mib {}", DEVICE_BYTES_MIN >> 20);
    }
    if options.fio && options.flush_us.is_some() {
        bail!("fio cannot see the flushes that --flush-us pretends");
    }
    Ok(())
}

fn cases(options: &Options) -> Vec<Case> {
    let kinds: &[bool] = if options.reads { &[false, true] } else { &[false] };
    let mut all = Vec::new();
    for is_read in kinds {
        for kib in &options.kib {
            all.extend(options.depths.iter().map(|depth| Case {
                is_read: *is_read,
                bytes: kib * KIB,
                depth: *depth,
            }));
        }
    }
    all
}

/// Rounds in turn, so that a neighbour's load falls on all alike.
fn measure(engines: &mut [&mut dyn Engine], case: Case, options: &Options) -> Result<Vec<Figures>> {
    let length = Duration::from_millis(options.round_ms);
    let mut rounds: Vec<Vec<Round>> = engines.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (engine, rounds) in engines.iter_mut().zip(&mut rounds) {
            rounds.push(engine.round(case, length).with_context(|| format!("{} {case:?}", engine.name()))?);
        }
    }
    Ok(engines.iter().zip(rounds).map(|(engine, rounds)| summary(engine.name(), &rounds)).collect())
}

fn as_json(case: Case, measured: &[Figures]) -> Value {
    json!({
        "operation": if case.is_read { "read" } else { "write" },
        "bytes": case.bytes,
        "depth": case.depth,
        "measured": measured.iter().map(|figures| (figures.name.to_owned(), figures.as_json())).collect::<serde_json::Map<_, _>>(),
    })
}

fn open(
    path: &Path,
    bytes: u64,
    cipher: Option<Arc<Xts>>,
    flush_us: Option<u64>,
    clock: RealClock,
) -> Result<Box<dyn Disk>> {
    let disk = CryptDisk::new(RealDisk::create(path, bytes, DriverChoice::Auto)?, cipher);
    Ok(match flush_us {
        None => Box::new(disk),
        Some(us) => Box::new(SlowFlush::over(Box::new(disk), Duration::from_micros(us), Box::new(clock))),
    })
}

/// A folder of the bench's own, removed with all that is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path) -> Result<Self> {
        let path = dir.join(format!("nacre-bench-{}", std::process::id()));
        private::make_folder(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            outln!("{} is left behind: {error}", self.0.display());
        }
    }
}

/// Numbers from a seed: places of operations.
pub(crate) struct Places(u64);

impl Places {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

/// Data that does not compress.
pub(crate) fn content(bytes: u64) -> Bytes {
    let mut buffer = nacre_buf::AlignedBuf::with_len(usize::try_from(bytes).expect("at most 4 MiB"));
    let mut numbers = Places::new(bytes);
    for word in buffer.chunks_mut(8) {
        let number = numbers.below(u64::MAX).to_le_bytes();
        word.copy_from_slice(number.get(..word.len()).unwrap_or(&number));
    }
    buffer.freeze()
}
