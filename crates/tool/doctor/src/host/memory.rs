//! Memory: how long tasks wait for it or for a processor (PSI), what is left, hugepages, reclaim within a node.

use super::{Host, chosen};
use crate::report::{Finding, Rank, Report};

/// Of a minute, in percent.
const MEMORY_WAIT_MAX: f64 = 1.0;
const PROCESSOR_WAIT_MAX: f64 = 20.0;
/// Memory that is left, of all.
const AVAILABLE_SHARE_MIN: f64 = 0.05;
/// Times an hour that somebody waits until the kernel has moved pages together.
const COMPACTIONS_PER_HOUR_MAX: f64 = 60.0;

pub(crate) fn check(host: &Host, report: &mut Report) {
    PRESSURES.iter().for_each(|of| pressure(host, report, of));
    left(host, report);
    hugepages(host, report);
    reclaim(host, report);
}

/// The minute's average behind `some` in a file of `/proc/pressure`.
fn waited(host: &Host, what: &str) -> Option<f64> {
    let text = host.text(format!("proc/pressure/{what}"))?;
    let line = text.lines().find(|line| line.starts_with("some"))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("avg60="))?.parse().ok()
}

/// What tasks may have to wait for.
struct Pressure {
    check: &'static str,
    /// The file of `/proc/pressure`.
    file: &'static str,
    /// As people call it.
    name: &'static str,
    /// Per cent of the last minute.
    wait_max: f64,
    /// Decimals of the per cent that are shown.
    decimals: usize,
    cost: &'static str,
    advice: &'static str,
}

const PRESSURES: [Pressure; 2] = [
    Pressure {
        check: "memory-pressure",
        file: "memory",
        name: "memory",
        wait_max: MEMORY_WAIT_MAX,
        decimals: 1,
        cost: "whoever waits serves nobody: operations stand still for as long",
        advice: "lower the OSDs' memory (--osd-memory-target), move what else runs here, or add memory",
    },
    Pressure {
        check: "processor-pressure",
        file: "cpu",
        name: "a processor",
        wait_max: PROCESSOR_WAIT_MAX,
        decimals: 0,
        cost: "an operation waits at each of its steps until another task leaves a processor",
        advice: "see with top who uses the processors; move it, or give OSDs processors of their own",
    },
];

fn pressure(host: &Host, report: &mut Report, of: &Pressure) {
    let Some(percent) = waited(host, of.file) else {
        let why = "the kernel does not count pressure (PSI; psi=1 on its command line)";
        return report.unknown(of.check, why);
    };
    report.judged(of.check);
    if percent <= of.wait_max {
        return;
    }
    report.findings.push(Finding {
        check: of.check,
        rank: Rank::Costly,
        weight: percent / of.wait_max,
        subject: format!("tasks wait for {}", of.name),
        measured: format!(
            "{percent:.*} % of the last minute some task waited for {} (PSI)",
            of.decimals, of.name
        ),
        cost: of.cost.to_owned(),
        advice: of.advice.to_owned(),
        ..Finding::default()
    });
}

fn left(host: &Host, report: &mut Report) {
    let kib = |name: &str| host.field("proc/meminfo", name).map(|kib| kib as f64);
    let Some((total, available)) = kib("MemTotal").zip(kib("MemAvailable")).filter(|(total, _)| *total > 0.0)
    else {
        return report.unknown("memory", "/proc/meminfo cannot be read");
    };
    report.judged("memory");
    report.fact("memory", format!("{:.1} GiB, {:.1} available", total / 1048576.0, available / 1048576.0));
    let share = available / total;
    if share < AVAILABLE_SHARE_MIN {
        report.findings.push(Finding {
            check: "memory",
            rank: Rank::Serious,
            weight: AVAILABLE_SHARE_MIN / share.max(0.001),
            subject: "little memory is left".to_owned(),
            measured: format!(
                "{:.0} MiB of {:.0} are available, {:.1} %",
                available / 1024.0,
                total / 1024.0,
                share * 100.0
            ),
            cost: "the kernel takes back memory while tasks wait, and ends processes when it finds none"
                .to_owned(),
            advice: "lower the OSDs' memory (--osd-memory-target), move what else runs here, or add memory"
                .to_owned(),
            ..Finding::default()
        });
    }
    if let Some(kills) = host.field("proc/vmstat", "oom_kill").filter(|kills| *kills > 0) {
        report.findings.push(Finding {
            check: "memory",
            rank: Rank::Serious,
            weight: 1.0,
            subject: "the kernel ended processes for lack of memory".to_owned(),
            measured: format!("{kills} since the machine's start (oom_kill)"),
            cost: "an OSD that it ends is down, and its data is copied anew".to_owned(),
            advice: "dmesg says which; lower the OSDs' memory (--osd-memory-target), or add memory"
                .to_owned(),
            ..Finding::default()
        });
    }
}

fn hugepages(host: &Host, report: &mut Report) {
    let folder = "sys/kernel/mm/transparent_hugepage";
    let Some(enabled) = host.chosen(format!("{folder}/enabled")) else {
        return report.unknown("hugepages", "the kernel has no transparent hugepages, or does not show them");
    };
    report.fact("transparent hugepages", enabled.clone());
    let stalls = host.field("proc/vmstat", "compact_stall").zip(host.uptime_s());
    let Some((stalls, uptime_s)) = stalls else {
        return report.unknown("hugepages", "/proc/vmstat does not say how often somebody waited for one");
    };
    report.judged("hugepages");
    let per_hour = stalls as f64 / (uptime_s / 3600.0).max(1.0);
    let defrag = host.text(format!("{folder}/defrag")).and_then(|text| chosen(&text)).unwrap_or_default();
    if enabled == "never" || per_hour <= COMPACTIONS_PER_HOUR_MAX {
        return;
    }
    report.findings.push(Finding {
        check: "hugepages",
        rank: Rank::Hint,
        weight: per_hour / COMPACTIONS_PER_HOUR_MAX,
        subject: "tasks wait while the kernel moves pages together".to_owned(),
        measured: format!(
            "{stalls} times since the start, {per_hour:.0} an hour; hugepages {enabled}, defrag {defrag}"
        ),
        cost: "each time whoever asked for memory waits, up to milliseconds".to_owned(),
        advice:
            "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag; Nacre's daemons ask for no hugepages"
                .to_owned(),
        ..Finding::default()
    });
}

fn reclaim(host: &Host, report: &mut Report) {
    let Some(mode) = host.number("proc/sys/vm/zone_reclaim_mode") else { return };
    report.judged("zone-reclaim");
    if mode == 0 {
        return;
    }
    report.findings.push(Finding {
        check: "zone-reclaim",
        rank: Rank::Costly,
        weight: 1.0,
        subject: "memory of a node is taken back while other nodes have some".to_owned(),
        measured: format!("vm.zone_reclaim_mode is {mode}"),
        cost: "tasks wait for memory that is there".to_owned(),
        advice: "sysctl vm.zone_reclaim_mode=0".to_owned(),
        ..Finding::default()
    });
}
