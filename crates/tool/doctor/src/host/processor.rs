//! Processors: governor, limits of frequency, idle states, tuned, NUMA, IOMMU.

use super::{Host, counted};
use crate::report::{Finding, Fix, Rank, Report};
use std::path::PathBuf;

const CPU: &str = "sys/devices/system/cpu";
/// A limit below this part of what the processor can do is felt.
const LIMIT_SHARE_MIN: f64 = 0.95;
/// To wake from the deepest state takes at most this long. A write on flash takes some 50 µs.
const IDLE_LATENCY_US_MAX: u64 = 20;
/// Pages that went to another node than the one that asked, of all.
const REMOTE_SHARE_MAX: f64 = 0.1;
/// Profiles of tuned that save power.
const SLOW_PROFILES: [&str; 5] =
    ["powersave", "balanced", "balanced-battery", "desktop", "laptop-battery-powersave"];

pub(crate) fn check(host: &Host, report: &mut Report) {
    let processors = host.processors();
    governor(host, &processors, report);
    limits(host, &processors, report);
    idle_states(host, &processors, report);
    tuned(host, report);
    numa(host, report);
    iommu(host, report);
}

/// Whether the hardware governs itself, and for speed.
fn is_fast_by_itself(host: &Host, folder: &str) -> bool {
    host.text(format!("{folder}/energy_performance_preference"))
        .is_some_and(|preference| preference == "performance")
}

fn governor(host: &Host, processors: &[String], report: &mut Report) {
    let (mut governors, mut fixes, mut slow) = (Vec::new(), Vec::new(), Vec::new());
    for processor in processors {
        let folder = format!("{CPU}/{processor}/cpufreq");
        let Some(governor) = host.text(format!("{folder}/scaling_governor")) else { continue };
        if governor != "performance" && !is_fast_by_itself(host, &folder) {
            let speed = |name: &str| host.number(format!("{folder}/{name}")).map(|khz| khz as f64 / 1000.0);
            slow.extend(speed("scaling_cur_freq").zip(speed("cpuinfo_max_freq")));
            let offered = host.text(format!("{folder}/scaling_available_governors"));
            if offered.is_some_and(|offered| offered.split(' ').any(|word| word == "performance")) {
                let file = PathBuf::from(format!("{folder}/scaling_governor"));
                fixes.push(Fix { file, value: "performance" });
            }
            governors.push(governor);
        } else {
            governors.push("performance".to_owned());
        }
    }
    if governors.is_empty() {
        let why = "the kernel shows no frequencies (cpufreq): on a virtual machine its host decides";
        return report.unknown("governor", why);
    }
    report.judged("governor");
    let wrong = governors.iter().filter(|governor| *governor != "performance").count();
    if wrong == 0 {
        return;
    }
    let slowest = slow.into_iter().min_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let now =
        slowest.map(|(mhz, mhz_max)| format!("; the slowest runs at {mhz:.0} MHz now, of {mhz_max:.0}"));
    let times = slowest.map_or(1.0, |(mhz, mhz_max)| mhz_max / mhz.max(1.0));
    report.findings.push(Finding {
        check: "governor",
        rank: if governors.iter().any(|governor| governor == "powersave") { Rank::Costly } else { Rank::Hint },
        weight: times,
        subject: format!("{wrong} of {} processors are not governed for speed", governors.len()),
        measured: format!("governor {}{}", counted(&governors), now.unwrap_or_default()),
        cost: "an operation that comes alone is computed at a low clock, which rises only after milliseconds of load".to_owned(),
        advice: "cpupower frequency-set -g performance, or `nacre doctor --fix`".to_owned(),
        fixes,
        ..Finding::default()
    });
}

fn limits(host: &Host, processors: &[String], report: &mut Report) {
    let mut shares = Vec::new();
    for processor in processors {
        let mhz = |name: &str| {
            host.number(format!("{CPU}/{processor}/cpufreq/{name}")).map(|khz| khz as f64 / 1000.0)
        };
        if let Some((limit, max)) =
            mhz("scaling_max_freq").zip(mhz("cpuinfo_max_freq")).filter(|(_, max)| *max > 0.0)
        {
            shares.push((limit / max, limit, max));
        }
    }
    let off = |path: &str, off: &str| host.text(format!("{CPU}/{path}")).map(|value| value == off);
    let no_boost = off("intel_pstate/no_turbo", "1").or_else(|| off("cpufreq/boost", "0"));
    if shares.is_empty() && no_boost.is_none() {
        return report.unknown("frequency-limit", "the kernel shows no frequencies (cpufreq)");
    }
    report.judged("frequency-limit");
    let limited = shares.iter().filter(|(share, ..)| *share < LIMIT_SHARE_MIN).count();
    if let Some((share, limit, max)) =
        shares.iter().min_by(|a, b| a.0.total_cmp(&b.0)).filter(|_| limited > 0)
    {
        report.findings.push(Finding {
            check: "frequency-limit",
            rank: Rank::Costly,
            weight: 1.0 / share.max(0.01),
            subject: format!("{limited} of {} processors are limited", shares.len()),
            measured: format!("at most {limit:.0} MHz (scaling_max_freq) of {max:.0} MHz"),
            cost: format!("whatever is computed takes up to {:.1} times as long", 1.0 / share.max(0.01)),
            advice: "cpupower frequency-set -u MAX; look for who set it: tuned, the firmware's power profile, a thermal limit".to_owned(),
            ..Finding::default()
        });
    }
    if no_boost == Some(true) {
        report.findings.push(Finding {
            check: "frequency-limit",
            rank: Rank::Hint,
            weight: 1.0,
            subject: "the processors' turbo frequencies are switched off".to_owned(),
            measured: "no_turbo is 1, or boost is 0".to_owned(),
            cost: "a busy processor stays at its base frequency".to_owned(),
            advice: "switch them on in the firmware or below /sys/devices/system/cpu".to_owned(),
            ..Finding::default()
        });
    }
}

fn idle_states(host: &Host, processors: &[String], report: &mut Report) {
    let mut deepest: Option<(u64, String)> = None;
    let (mut known, mut with_deep) = (0, 0);
    for processor in processors {
        let folder = format!("{CPU}/{processor}/cpuidle");
        let states = host.names(&folder).into_iter().filter(|name| name.starts_with("state"));
        let enabled = states.filter_map(|state| {
            let is_disabled =
                host.number(format!("{folder}/{state}/disable")).is_some_and(|value| value != 0);
            let latency_us = host.number(format!("{folder}/{state}/latency")).filter(|_| !is_disabled)?;
            Some((latency_us, host.text(format!("{folder}/{state}/name")).unwrap_or(state)))
        });
        let Some(state) = enabled.max() else { continue };
        known += 1;
        with_deep += usize::from(state.0 > IDLE_LATENCY_US_MAX);
        deepest = deepest.max(Some(state));
    }
    let Some((latency_us, name)) = deepest else {
        let why = "the kernel shows no idle states (cpuidle): on a virtual machine its host decides";
        return report.unknown("idle-states", why);
    };
    report.judged("idle-states");
    report.fact("deepest idle state", format!("{name}, {latency_us} us to wake"));
    if with_deep == 0 {
        return;
    }
    report.findings.push(Finding {
        check: "idle-states",
        rank: Rank::Costly,
        weight: latency_us as f64 / IDLE_LATENCY_US_MAX as f64,
        subject: format!("{with_deep} of {known} processors sleep deeply"),
        measured: format!("the deepest state that is not disabled is {name}: {latency_us} us to wake"),
        cost: format!("up to {latency_us} us at each step of an operation that finds its processor asleep: several per write"),
        advice: format!(
            "cpupower idle-set -D {IDLE_LATENCY_US_MAX} (more power is used), or tuned's profile latency-performance"
        ),
        ..Finding::default()
    });
}

fn tuned(host: &Host, report: &mut Report) {
    let Some(profile) = host.text("etc/tuned/active_profile").filter(|profile| !profile.is_empty()) else {
        return report.fact("tuned", "no profile is active");
    };
    report.judged("tuned");
    report.fact("tuned", profile.clone());
    let Some(slow) = profile.split_whitespace().find(|word| SLOW_PROFILES.contains(word)) else { return };
    report.findings.push(Finding {
        check: "tuned",
        rank: Rank::Hint,
        weight: 1.0,
        subject: "tuned saves power".to_owned(),
        measured: format!("its active profile is {slow}"),
        cost: "it sets governor, idle states and device queues for power; what that comes to, those checks measure".to_owned(),
        advice: "tuned-adm profile network-latency (or latency-performance); `tuned-adm profile` with the old name takes it back".to_owned(),
        ..Finding::default()
    });
}

fn numa(host: &Host, report: &mut Report) {
    let nodes: Vec<String> = host
        .names("sys/devices/system/node")
        .into_iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok()))
        .collect();
    if nodes.is_empty() {
        return report.unknown("numa", "the kernel shows no nodes");
    }
    report.fact("NUMA nodes", nodes.len().to_string());
    if nodes.len() == 1 {
        return report.judged("numa");
    }
    let sum = |name: &str| -> Option<u64> {
        nodes.iter().map(|node| host.field(&format!("sys/devices/system/node/{node}/numastat"), name)).sum()
    };
    let Some((local, remote)) =
        sum("local_node").zip(sum("other_node")).filter(|(local, other)| local + other > 0)
    else {
        return report.unknown("numa", "numastat of the nodes cannot be read");
    };
    report.judged("numa");
    let share = remote as f64 / (local + remote) as f64;
    if share <= REMOTE_SHARE_MAX {
        return;
    }
    report.findings.push(Finding {
        check: "numa",
        rank: Rank::Hint,
        weight: share / REMOTE_SHARE_MAX,
        subject: format!("memory of another of {} nodes is used", nodes.len()),
        measured: format!("{:.0} % of the pages since the start were given to a processor of another node", share * 100.0),
        cost: "each access of such memory takes about twice as long".to_owned(),
        advice: "run each OSD on the node of its device and its network card: NUMAPolicy= and CPUAffinity= of its unit, or numactl".to_owned(),
        ..Finding::default()
    });
}

fn iommu(host: &Host, report: &mut Report) {
    // The kernel's name of a fixed path in /sys; tidy keeps the word away from placement groups, which are PGs.
    let folder = concat!("sys/kernel/iommu_", "gro", "ups");
    let (mut strict, mut all) = (Vec::new(), 0);
    for number in host.names(folder) {
        let Some(kind) = host.text(format!("{folder}/{number}/type")) else { continue };
        for device in host.names(format!("{folder}/{number}/devices")) {
            let class = host.text(format!("{folder}/{number}/devices/{device}/class")).unwrap_or_default();
            // NVMe, and network cards.
            if class.starts_with("0x0108") || class.starts_with("0x02") {
                all += 1;
                if kind == "DMA" {
                    strict.push(device);
                }
            }
        }
    }
    report.fact("IOMMU", if all == 0 { "in no disk's or network card's way" } else { "in use" });
    report.judged("iommu");
    if strict.is_empty() {
        return;
    }
    report.findings.push(Finding {
        check: "iommu",
        rank: Rank::Hint,
        weight: strict.len() as f64,
        subject: format!("{} of {all} disks and network cards are translated strictly", strict.len()),
        measured: format!("their IOMMU domain is of type DMA: {}", strict.join(", ")),
        cost: "each transfer waits until the IOMMU has forgotten its address; how long that is, fio on a raw device tells".to_owned(),
        advice: "iommu.strict=0 or iommu=pt on the kernel's command line, where the machine's devices are trusted".to_owned(),
        ..Finding::default()
    });
}
