//! Stock fio with its rbd engine: what is asked of it, and what its report (`json+`) says.

use crate::cell::{Cell, Operation};
use crate::latency::Latencies;
use crate::load::{Measured, Target, Timing};
use crate::pace::Pace;
use crate::shape::share;
use crate::usage::Look;
use anyhow::{Context, Result, bail};
use nacre_env::errln;
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// In flight while images are filled.
const FILL_DEPTH: usize = 4;
const MISSING: &str = "cannot run fio; is it installed?";

/// Writes all images once, so that nothing that is measured meets blocks that were never written.
pub(crate) fn prefill(target: Target<'_>) -> Result<()> {
    let arguments = ["--rw=write", "--bs=4M"].map(str::to_owned);
    let depth = FILL_DEPTH.max(target.place.names.len());
    report(&command(target, &arguments, depth).output().context(MISSING)?).map(drop)
}

/// One repetition of a cell; `pids` are the servers'.
///
/// fio does not say when its warm-up ends, and counts only its own threads, not librbd's. So we look at the processes
/// ourselves, at two moments in the midst of the load, and take the operations between them by the rate.
pub(crate) fn measure(target: Target<'_>, cell: Cell, timing: Timing, pids: &[u32]) -> Result<Measured> {
    let depth = if let Pace::Depth(depth) = cell.pace { depth } else { 1 };
    let child = command(target, &arguments(cell, timing), depth).spawn().context(MISSING)?;
    let (fio, start) = (child.id(), Instant::now());
    let end = Duration::from_secs((timing.warmup_s + timing.seconds).into());
    let begin = end - Duration::from_secs(timing.seconds.into()).saturating_sub(connecting(timing));
    let (output, looks) = std::thread::scope(|scope| {
        let output = scope.spawn(|| (child.wait_with_output(), start.elapsed()));
        let looks = [begin, end].map(|at| {
            std::thread::sleep(at.saturating_sub(start.elapsed()));
            let servers = Look::at(pids);
            (Instant::now(), servers, Look::at(&family(fio)).ok())
        });
        (output.join(), looks)
    });
    let (output, elapsed) = output.map_err(|_| anyhow::anyhow!("nobody waited for fio"))?;
    let report = report(&output.context(MISSING)?)?;
    let mut measured =
        read_report(&report, cell, timing).with_context(|| format!("fio's report of {}", cell.name()))?;
    if elapsed.saturating_sub(end) > begin {
        // It may have begun later than we looked.
        errln!("fio took {elapsed:?} for {end:?}: what was used is left out");
        return Ok(measured);
    }
    let [(began, servers_before, us_before), (ended, servers, us)] = looks;
    let between = ended.duration_since(began).as_secs_f64();
    measured.used_ios = measured.latencies.count() as f64 / measured.seconds * between;
    measured.servers = Some(servers?.since(&servers_before?)).filter(|_| !pids.is_empty());
    measured.client = us.zip(us_before).map(|(after, before)| after.since(&before));
    Ok(measured)
}

/// What fio needs at most, as a rule, before the load begins.
fn connecting(timing: Timing) -> Duration {
    Duration::from_secs(timing.seconds.into()).mul_f64(0.25).min(Duration::from_secs(1))
}

/// A process and its children.
fn family(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // State and parent stand behind the name.
        let parent_of = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        parent_of.and_then(|word| word.parse().ok()) == Some(parent)
    };
    std::iter::once(parent).chain(pids.filter(is_child)).collect()
}

fn arguments(cell: Cell, timing: Timing) -> Vec<String> {
    let mut all = vec![
        format!("--bs={}", cell.bytes),
        format!("--runtime={}s", timing.seconds),
        format!("--ramp_time={}s", timing.warmup_s),
        format!("--randseed={}", timing.seed),
    ];
    let mut add = |words: &[&str]| all.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["--time_based", "--norandommap"]);
    add(match cell.operation {
        Operation::Read => &["--rw=read"],
        Operation::Write => &["--rw=write"],
        Operation::RandomRead => &["--rw=randread"],
        Operation::RandomWrite => &["--rw=randwrite"],
        Operation::Mix => &["--rw=randrw", "--rwmixread=70"],
    });
    match cell.pace {
        // librbd's cache is off: a write is acknowledged when it is durable.
        Pace::Depth(_) | Pace::DataSync => (),
        Pace::Sync => add(&["--fsync=1"]),
        Pace::Clients(count) => {
            add(&["--rate_iops=1", "--rate_process=poisson", &format!("--numjobs={count}")]);
        }
        Pace::Rate(_) => unreachable!("Shape::check_driver refuses rates"),
    }
    all
}

/// Jobs of the same kind, one for each image, which share `depth`; they report as one.
fn command(target: Target<'_>, arguments: &[String], depth: usize) -> Command {
    let mut command = Command::new("fio");
    command
        .args(["--output-format=json+", "--name=global", "--ioengine=rbd", "--group_reporting"])
        .arg(format!("--clientname={}", target.user))
        .arg(format!("--pool={}", target.pool))
        .arg(format!("--size={}", target.place.bytes))
        .args(arguments)
        .args(jobs(&target.place.names, depth))
        .env("CEPH_CONF", target.conf)
        .env_remove("CEPH_ARGS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn jobs(images: &[String], depth: usize) -> Vec<String> {
    let job = |(nth, image)| {
        let depth = share(depth, images.len(), nth);
        [format!("--name=bench{nth}"), format!("--rbdname={image}"), format!("--iodepth={depth}")]
    };
    images.iter().enumerate().flat_map(job).collect()
}

fn report(output: &Output) -> Result<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    // Warnings and errors may stand before the report.
    let (words, report) = text.split_at(text.find('{').unwrap_or(text.len()));
    if !output.status.success() {
        bail!("fio failed: {} {}", words.trim(), String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_str(report).context("fio's report is no JSON")
}

fn read_report(report: &Value, cell: Cell, timing: Timing) -> Result<Measured> {
    let job = &report["jobs"][0];
    if job["error"].as_i64() != Some(0) {
        bail!("error {}", job["error"]);
    }
    let mut latencies = Latencies::default();
    let mut seconds: f64 = 0.0;
    for direction in ["read", "write"] {
        let part = &job[direction];
        if part["total_ios"].as_u64().unwrap_or(0) == 0 {
            continue;
        }
        seconds = seconds.max(number(&part["runtime"])? / 1e3);
        add_latencies(&mut latencies, &part["clat_ns"])?;
    }
    if latencies.count() == 0 || seconds <= 0.0 {
        bail!("nothing was done within {} s", timing.seconds);
    }
    let flush = &job["sync"]["lat_ns"]["mean"];
    Ok(Measured {
        flush_mean_us: if cell.pace == Pace::Sync { Some(number(flush)? / 1e3) } else { None },
        used_ios: 0.0,
        client: None,
        servers: None,
        latencies,
        seconds,
    })
}

fn add_latencies(latencies: &mut Latencies, clat: &Value) -> Result<()> {
    let bins = clat["bins"].as_object().context("no bins: fio 3 and its format json+ are needed")?;
    let mut count = 0;
    for (ns, bin) in bins {
        let ns = ns.parse().context("a bin that is no number")?;
        let bin = bin.as_u64().context("a bin without a count")?;
        latencies.add_bucket(ns, bin);
        count += bin;
    }
    let max_ns = clat["max"].as_u64().context("no maximum")?;
    latencies.add_summary(number(&clat["mean"])? * count as f64, max_ns);
    Ok(())
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().context("a figure is missing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TIMING: Timing = Timing { seconds: 4, warmup_s: 1, seed: 7, planted_delay: None };

    fn cell(name: &str) -> Cell {
        Cell::parse(name).expect("a cell")
    }

    #[test]
    fn each_pace_has_its_arguments() {
        let words = |name: &str| arguments(cell(name), TIMING).join(" ");
        assert_eq!(
            words("mix70-4k-qd32"),
            "--bs=4096 --runtime=4s --ramp_time=1s --randseed=7 --time_based --norandommap --rw=randrw \
             --rwmixread=70"
        );
        assert!(words("write-4k-sync").ends_with("--rw=write --fsync=1"));
        assert!(words("randread-4k-clients9").ends_with("--rate_process=poisson --numjobs=9"));
    }

    #[test]
    fn images_share_the_depth() {
        let images = ["x", "y", "z"].map(str::to_owned);
        assert_eq!(jobs(&images[..1], 32), ["--name=bench0", "--rbdname=x", "--iodepth=32"]);
        let words = jobs(&images, 8).join(" ");
        assert!(words.starts_with("--name=bench0 --rbdname=x --iodepth=3 --name=bench1 "), "{words}");
        assert!(words.ends_with("--name=bench2 --rbdname=z --iodepth=2"), "{words}");
    }

    fn report() -> Value {
        json!({"jobs": [{
            "error": 0,
            "read": {"total_ios": 3, "runtime": 4000, "clat_ns": {"max": 3000, "mean": 2000.0, "bins": {"1000": 1, "2000": 1, "3000": 1}}},
            "write": {"total_ios": 1, "runtime": 3900, "clat_ns": {"max": 10000, "mean": 10000.0, "bins": {"10000": 1}}},
            "sync": {"lat_ns": {"mean": 5000.0}},
        }]})
    }

    #[test]
    fn a_report_is_read() {
        let measured = read_report(&report(), cell("mix70-4k-qd32"), TIMING).expect("a report");
        assert_eq!((measured.latencies.count(), measured.latencies.max_ns()), (4, 10_000));
        assert!((measured.latencies.mean_ns() - 4000.0).abs() < 0.1);
        assert_eq!((measured.seconds, measured.flush_mean_us), (4.0, None));
        let measured = read_report(&report(), cell("write-4k-sync"), TIMING).expect("a report");
        assert_eq!(measured.flush_mean_us, Some(5.0));
    }

    #[test]
    fn children_are_found() {
        let mut child = Command::new("sleep").arg("10").spawn().expect("sleep");
        let found = family(std::process::id());
        assert!(found.contains(&child.id()) && found.contains(&std::process::id()), "{found:?}");
        child.kill().and_then(|()| child.wait()).expect("our child");
    }

    #[test]
    fn a_report_of_nothing_is_refused() {
        let mut failed = report();
        failed["jobs"][0]["error"] = json!(5);
        let mut idle = report();
        for direction in ["read", "write"] {
            idle["jobs"][0][direction]["total_ios"] = json!(0);
        }
        let mut plain = report();
        plain["jobs"][0]["read"]["clat_ns"]["bins"] = Value::Null;
        for wrong in [failed, idle, plain, json!({})] {
            assert!(read_report(&wrong, cell("mix70-4k-qd32"), TIMING).is_err());
        }
    }
}
