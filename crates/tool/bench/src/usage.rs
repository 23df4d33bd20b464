//! What processes used of the machine between two looks at `/proc`.
//!
//! Processor time is that of all threads, in user and kernel mode, the kernel's workers of the process (io_uring's)
//! included: from `schedstat` of each thread, exact to the nanosecond, unless `stat`, which also knows threads that have
//! ended but counts in hundredths of a second, says that much is missing. What the kernel does in threads of its own (flushes of a device,
//! writes that wait for them, interrupts) is no process's: it is in the time of the whole machine only.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;

/// Hundredths of a second on every Linux that we run on.
const TICK_US: f64 = 10_000.0;

/// What one look at a process found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    processes: BTreeMap<u32, Process>,
    /// Hundredths of a second in which processors were busy, with whatever it was; `None` when we may not see it.
    machine_ticks: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Process {
    user_ticks: u64,
    system_ticks: u64,
    /// By thread: nanoseconds on a processor, and context switches.
    threads: BTreeMap<u32, (u64, u64)>,
    /// `None` when we may not see it.
    write_bytes: Option<u64>,
    rss_bytes: u64,
}

/// What was used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_us: f64,
    /// Of all processes of the machine, and of the kernel.
    pub(crate) machine_cpu_us: Option<f64>,
    /// Of the processor time, what was in the kernel; from 0 to 1.
    pub(crate) system_share: f64,
    /// Voluntary and involuntary.
    pub(crate) context_switches: u64,
    /// Bytes that the processes had written to the device.
    pub(crate) write_bytes: Option<u64>,
    /// Memory of the largest process at the later look.
    pub(crate) rss_bytes_max: u64,
}

impl Look {
    /// Looks at these processes.
    ///
    /// # Errors
    /// When one is gone.
    pub(crate) fn at(pids: &[u32]) -> Result<Self> {
        let look = |pid: &u32| anyhow::Ok((*pid, look_at(*pid)?));
        let processes = pids.iter().map(look).collect::<Result<_>>()?;
        let machine_ticks = std::fs::read_to_string("/proc/stat").ok().as_deref().and_then(parse_busy);
        Ok(Self { processes, machine_ticks })
    }

    /// What was used since `before`.
    pub(crate) fn since(&self, before: &Self) -> Usage {
        let (mut usage, mut user_us, mut system_us) = (Usage::default(), 0.0, 0.0);
        let mut written = Some(0);
        for (pid, process) in &self.processes {
            let none = Process::default();
            let before = before.processes.get(pid).unwrap_or(&none);
            let ticks = |after: u64, before: u64| after.saturating_sub(before) as f64 * TICK_US;
            let user = ticks(process.user_ticks, before.user_ticks);
            let system = ticks(process.system_ticks, before.system_ticks);
            let (mut exact_us, mut switches) = (0.0, 0);
            for (thread, (ns, count)) in &process.threads {
                let (ns_before, count_before) = before.threads.get(thread).copied().unwrap_or_default();
                exact_us += ns.saturating_sub(ns_before) as f64 / 1e3;
                switches += count.saturating_sub(count_before);
            }
            // Either end of a count in ticks may be one off, in either mode.
            usage.cpu_us += exact_us.max(user + system - 4.0 * TICK_US);
            usage.context_switches += switches;
            usage.rss_bytes_max = usage.rss_bytes_max.max(process.rss_bytes);
            (user_us, system_us) = (user_us + user, system_us + system);
            let bytes = process.write_bytes.zip(before.write_bytes);
            written = written.zip(bytes).map(|(sum, (after, before))| sum + after.saturating_sub(before));
        }
        let ticks = self.machine_ticks.zip(before.machine_ticks);
        usage.machine_cpu_us = ticks.map(|(after, before)| after.saturating_sub(before) as f64 * TICK_US);
        usage.system_share = system_us / (user_us + system_us).max(1.0);
        usage.write_bytes = written.filter(|_| !self.processes.is_empty());
        usage
    }
}

fn look_at(pid: u32) -> Result<Process> {
    let folder = Path::new("/proc").join(pid.to_string());
    let stat = std::fs::read_to_string(folder.join("stat"))
        .with_context(|| format!("process {pid} of the cluster is not there"))?;
    let Some((user_ticks, system_ticks)) = parse_stat(&stat) else {
        bail!("/proc/{pid}/stat reads differently from what Linux writes");
    };
    let mut threads = BTreeMap::new();
    let entries = std::fs::read_dir(folder.join("task")).with_context(|| format!("/proc/{pid}/task"))?;
    for entry in entries.flatten() {
        let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A thread may end while we look; `stat` has what it used.
        let text = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let ns = text("schedstat").split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        threads.insert(thread, (ns, parse_switches(&text("status"))));
    }
    let io = std::fs::read_to_string(folder.join("io")).ok();
    let write_bytes = io.and_then(|io| field(&io, "write_bytes:"));
    let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
    let rss_bytes = field(&status, "VmRSS:").unwrap_or(0) * 1024;
    Ok(Process { user_ticks, system_ticks, threads, write_bytes, rss_bytes })
}

/// The number behind a name; what is behind the number, such as `kB`, is left to the caller.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn parse_switches(status: &str) -> u64 {
    let names = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
    names.iter().filter_map(|name| field(status, name)).sum()
}

/// Ticks in user and in kernel mode. The second field is the name, which may hold blanks and brackets.
fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((ticks(11)?, ticks(12)?))
}

/// Ticks in which processors were neither idle, nor waiting for a device, nor another machine's: in user and kernel mode and in interrupts.
fn parse_busy(text: &str) -> Option<u64> {
    const IDLE: usize = 3;
    const IOWAIT: usize = 4;
    const STEAL: usize = 7;
    let counts = text.lines().find_map(|line| line.strip_prefix("cpu "))?.split_whitespace().take(STEAL);
    let busy = counts.enumerate().filter(|(nth, _)| *nth != IDLE && *nth != IOWAIT);
    busy.map(|(_, count)| count.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_proc_are_read() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 111 222 0 0 20 0 1 0";
        assert_eq!(parse_stat(stat), Some((111, 222)));
        assert_eq!(parse_stat("12 a S"), None);
        assert_eq!(field("VmPeak:\t 9 kB\nVmRSS:\t   5124 kB\n", "VmRSS:"), Some(5124));
        assert_eq!(parse_switches("voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n"), 10);
        assert_eq!(parse_busy("cpu  1 20 300 4000 50000 600 7000 80000 9 9\ncpu0 1 1 1 1\n"), Some(7921));
        assert_eq!(parse_busy("cpu  1 x 300 4000 50000 600 7000 80000 9 9\n"), None);
        assert_eq!(parse_busy("intr 1"), None);
    }

    #[test]
    fn our_own_work_is_seen() {
        let me = [std::process::id()];
        let before = Look::at(&me).expect("ourselves");
        let start = std::time::Instant::now();
        let mut sum = 0_u64;
        while start.elapsed().as_millis() < 60 {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        let usage = Look::at(&me).expect("ourselves").since(&before);
        assert!(usage.cpu_us > 5_000.0, "{usage:?} {sum}");
        assert!(usage.rss_bytes_max > 100_000, "{usage:?}");
        assert!(usage.machine_cpu_us.is_some_and(|us| us >= 30_000.0), "{usage:?}");
        assert!(Look::at(&[u32::MAX]).is_err());
    }

    #[test]
    fn threads_that_ended_count_by_ticks() {
        let process = |ticks, ns| Process {
            user_ticks: ticks,
            system_ticks: 0,
            threads: BTreeMap::from([(1, (ns, 5))]),
            write_bytes: Some(ns),
            rss_bytes: 0,
        };
        let look = |process| Look { processes: BTreeMap::from([(1, process)]), machine_ticks: None };
        let usage = look(process(100, 2_000_000)).since(&look(process(0, 0)));
        assert!((usage.cpu_us - 960_000.0).abs() < 1.0, "{usage:?}");
        let usage = look(process(1, 2_000_000)).since(&look(process(0, 0)));
        assert!((usage.cpu_us - 2_000.0).abs() < 1.0, "{usage:?}");
        assert_eq!(usage.write_bytes, Some(2_000_000));
    }
}
