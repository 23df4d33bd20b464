//! What durable 4 KiB writes cost on this machine: both drivers as a shard uses them (one thread, asleep in the
//! net's epoll), beside fio on the same file. `cargo run --release -p nacre-env --example disk -- FILE [ROUNDS]`;
//! the file is made, and removed at the end.
//!
//! Rounds alternate between the candidates, since neighbours on the machine come and go. Each figure is
//! `best | median` of its rounds. CPU is of the whole process: kernel helpers, which count as its threads, too.
#![allow(clippy::print_stdout, reason = "what a benchmark is for")]

use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_env::disk::{Disk, DiskTag, Durability, blocking, probe};
use nacre_env::real::{DriverChoice, RealDisk, RealNet};
use nacre_env::{Clock, Net, RealClock};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SIZE_BYTES: u64 = 256 << 20;
const ROUND: Duration = Duration::from_secs(1);
/// Requests in flight, and bytes of each.
const SHAPES: [(usize, usize); 4] = [(1, 4096), (2, 65536), (32, 4096), (128, 4096)];

struct Figures {
    p50_us: f64,
    p99_us: f64,
    iops: f64,
    cpu_us: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: disk FILE [ROUNDS]")?;
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let path = Path::new(&path);
    let mut disk = RealDisk::create(path, SIZE_BYTES, DriverChoice::Auto)?;
    println!(
        "{}; direct {}, volatile cache {:?}",
        disk.info().driver,
        disk.is_direct(),
        disk.volatile_cache()
    );
    blocking::zero_fill(&mut disk, 0, SIZE_BYTES, &mut |_| ())?;
    println!("{}", probe(&mut disk, &RealClock::start(), 0)?);
    drop(disk);
    let result = compare(path, rounds);
    std::fs::remove_file(path)?;
    result
}

fn compare(path: &Path, rounds: usize) -> Result<(), Box<dyn Error>> {
    for (depth, bytes) in SHAPES {
        let mut all: BTreeMap<&str, Vec<Figures>> = BTreeMap::new();
        for _ in 0..rounds {
            for (name, choice) in [("ring", DriverChoice::Ring), ("threads", DriverChoice::Threads)] {
                if let Ok(disk) = RealDisk::open(path, choice) {
                    all.entry(name).or_default().push(ours(disk, depth, bytes)?);
                }
            }
            for engine in ["fio io_uring", "fio libaio", "fio psync"] {
                if depth == 1 || engine != "fio psync" {
                    all.entry(engine).or_default().push(fio(path, &engine[4..], depth, bytes)?);
                }
            }
        }
        println!("\nQD{depth}, {bytes} bytes: p50 us, p99 us, IOPS, CPU us/write");
        for (name, figures) in all {
            let column = |of: fn(&Figures) -> f64, up: bool| {
                let mut values: Vec<f64> = figures.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                let best = if up { values[values.len() - 1] } else { values[0] };
                format!("{best:8.1} | {:8.1}", values[values.len() / 2])
            };
            let (p50, p99) = (column(|f| f.p50_us, false), column(|f| f.p99_us, false));
            let (iops, cpu) = (column(|f| f.iops, true), column(|f| f.cpu_us, false));
            println!("{name:14} {p50}   {p99}   {iops}   {cpu}");
        }
    }
    Ok(())
}

/// One round as a shard works: submit, sleep, take what is done, submit as much again.
fn ours(mut disk: RealDisk, depth: usize, bytes: usize) -> Result<Figures, Box<dyn Error>> {
    let clock = RealClock::start();
    let mut net = RealNet::new()?;
    net.watch(disk.wake_fd())?;
    let data = payload(bytes);
    let (mut next, mut started, mut latencies) = (0, vec![clock.now(); depth], Vec::new());
    let (mut out, mut events) = (Vec::new(), Vec::new());
    let (begin, cpu) = (clock.now(), cpu_us()?);
    let mut free: Vec<u64> = (0..depth as u64).collect();
    while clock.now().since(begin) < ROUND {
        let now = clock.now();
        for slot in free.drain(..) {
            disk.write(next, data.clone(), Durability::Durable, DiskTag(slot));
            started[usize::try_from(slot)?] = now;
            next = (next + bytes as u64) % SIZE_BYTES;
        }
        disk.submit();
        while out.is_empty() {
            net.poll(None, &mut events)?;
            disk.drain(&mut out);
        }
        let now = clock.now();
        for done in out.drain(..) {
            done.result?;
            latencies.push(now.since(started[usize::try_from(done.tag.0)?]));
            free.push(done.tag.0);
        }
    }
    let (took, cpu) = (clock.now().since(begin), cpu_us()? - cpu);
    latencies.sort_unstable();
    let count = latencies.len() as f64;
    let at = |share: usize| latencies[latencies.len() * share / 100].as_secs_f64() * 1e6;
    Ok(Figures { p50_us: at(50), p99_us: at(99), iops: count / took.as_secs_f64(), cpu_us: cpu / count })
}

fn payload(bytes: usize) -> BufList {
    let mut buf = AlignedBuf::with_len(bytes);
    buf.iter_mut().zip((0..251_u8).cycle()).for_each(|(out, byte)| *out = byte);
    Bytes::into(buf.freeze())
}

/// CPU time of all threads of this process.
fn cpu_us() -> Result<f64, Box<dyn Error>> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        sum += text.split_whitespace().next().unwrap_or("0").parse::<f64>()? / 1e3;
    }
    Ok(sum)
}

fn fio(path: &Path, engine: &str, depth: usize, bytes: usize) -> Result<Figures, Box<dyn Error>> {
    let output = Command::new("fio")
        .args(["--name=raw", "--rw=write", "--direct=1", "--sync=dsync", "--thread", "--time_based"])
        .args(["--output-format=json", &format!("--runtime={}", ROUND.as_secs())])
        .args([format!("--filename={}", path.display()), format!("--ioengine={engine}")])
        .args([format!("--iodepth={depth}"), format!("--bs={bytes}"), format!("--size={SIZE_BYTES}")])
        .output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let job = &report["jobs"][0];
    let number = |value: &serde_json::Value| value.as_f64().ok_or("a figure missing in fio's report");
    let lat = &job["write"]["clat_ns"]["percentile"];
    let share = (number(&job["usr_cpu"])? + number(&job["sys_cpu"])?) / 100.0;
    let iops = number(&job["write"]["iops"])?;
    Ok(Figures {
        p50_us: number(&lat["50.000000"])? / 1e3,
        p99_us: number(&lat["99.000000"])? / 1e3,
        iops,
        cpu_us: share * 1e6 / iops,
    })
}
