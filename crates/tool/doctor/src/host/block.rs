//! Block devices: what they are, their queues, what a flush costs, and one that is slower than its like.
//!
//! Times are those of `/sys/block/NAME/stat` since the machine's start (kernel: `Documentation/block/stat.rst`).

use super::Host;
use crate::report::{Finding, Fix, Rank, Report};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Names of what is no device of its own, or holds no store.
const PASSED_OVER: [&str; 8] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd"];
/// Means of fewer operations say little.
const OPERATIONS_MIN: u64 = 1000;
/// A flush that takes longer is felt by each synchronous write, in milliseconds.
const FLUSH_MS_MAX: f64 = 0.5;
/// So many times as slow as its like, and so much in milliseconds.
const SLOWER_TIMES: f64 = 3.0;
const SLOWER_MS: f64 = 1.0;
const PEERS_MIN: usize = 2;
/// Fewer requests than this keep flash from working side by side.
const REQUESTS_MIN: u64 = 32;

#[derive(Debug, Default)]
struct Device {
    name: String,
    model: String,
    firmware: String,
    is_rotational: bool,
    /// `write back` or `write through`.
    cache: Option<String>,
    has_fua: Option<bool>,
    scheduler: Option<String>,
    offers_none: bool,
    requests: Option<u64>,
    /// Mean milliseconds, of enough operations.
    write_ms: Option<f64>,
    flush_ms: Option<f64>,
    flushes: u64,
}

pub(crate) fn check(host: &Host, report: &mut Report) {
    let names = host.names("sys/block").into_iter();
    let devices: Vec<Device> = names
        .filter(|name| !PASSED_OVER.iter().any(|prefix| name.starts_with(prefix)))
        .map(|name| look(host, name))
        .collect();
    if devices.is_empty() {
        return report.unknown("devices", "/sys/block shows no device that could hold a store");
    }
    for device in &devices {
        report.fact(device.name.clone(), describe(device));
        write_cache(device, report);
        queue(device, report);
    }
    if devices.iter().any(|device| device.write_ms.is_some()) {
        slower(&devices, report);
    } else {
        let why = format!("no device has made {OPERATIONS_MIN} writes since the machine's start");
        report.unknown("device-latency", why);
    }
    firmware(&devices, report);
}

fn look(host: &Host, name: String) -> Device {
    let folder = format!("sys/block/{name}");
    let text = |path: &str| host.text(format!("{folder}/{path}")).filter(|text| !text.is_empty());
    let number = |path: &str| host.number(format!("{folder}/{path}"));
    let stat: Vec<u64> =
        text("stat").unwrap_or_default().split_whitespace().map_while(|word| word.parse().ok()).collect();
    let mean = |count: usize, ms: usize| {
        let (count, ms) = (*stat.get(count)?, *stat.get(ms)?);
        (count >= OPERATIONS_MIN).then(|| ms as f64 / count as f64)
    };
    let scheduler = text("queue/scheduler");
    Device {
        model: text("device/model").unwrap_or_default(),
        firmware: text("device/firmware_rev").or_else(|| text("device/rev")).unwrap_or_default(),
        is_rotational: number("queue/rotational") == Some(1),
        cache: text("queue/write_cache"),
        has_fua: number("queue/fua").map(|fua| fua != 0),
        offers_none: scheduler.as_ref().is_some_and(|all| all.split(' ').any(|word| word == "none")),
        scheduler: scheduler.and_then(|all| super::chosen(&all)),
        requests: number("queue/nr_requests"),
        write_ms: mean(4, 7),
        flush_ms: mean(15, 16),
        flushes: stat.get(15).copied().unwrap_or(0),
        name,
    }
}

fn describe(device: &Device) -> String {
    let Device { model, firmware, cache, scheduler, requests, write_ms, flush_ms, .. } = device;
    let word = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    let ms = |ms: &Option<f64>| ms.map_or_else(|| "unknown".to_owned(), |ms| format!("{ms:.2} ms"));
    format!(
        "model {}, firmware {}, {}, cache {}, fua {}, scheduler {}, nr_requests {}, mean write {}, mean flush {}",
        word(model),
        word(firmware),
        if device.is_rotational { "rotational" } else { "not rotational" },
        cache.as_deref().unwrap_or("unknown"),
        device.has_fua.map_or("unknown", |fua| if fua { "yes" } else { "no" }),
        scheduler.as_deref().unwrap_or("unknown"),
        requests.map_or_else(|| "unknown".to_owned(), |count| count.to_string()),
        ms(write_ms),
        ms(flush_ms),
    )
}

fn write_cache(device: &Device, report: &mut Report) {
    let name = &device.name;
    let Some(cache) = &device.cache else {
        return report.unknown("write-cache", format!("{name}: the kernel does not say whether it has one"));
    };
    report.judged("write-cache");
    if cache != "write back" {
        return;
    }
    // Flushes are counted since Linux 5.5; where a device has one and is asked for none, nothing is lost.
    let Some(flush_ms) = device.flush_ms else {
        let why = format!(
            "{name} has a volatile cache (write back); what a flush costs is not known: {} were made since the start",
            device.flushes
        );
        return report.unknown("flush-cost", why);
    };
    report.judged("flush-cost");
    if flush_ms <= FLUSH_MS_MAX {
        return;
    }
    let fua = if device.has_fua == Some(false) { " and knows no FUA" } else { "" };
    report.findings.push(Finding {
        check: "flush-cost",
        rank: Rank::Costly,
        weight: flush_ms / FLUSH_MS_MAX,
        subject: format!("{name} flushes slowly"),
        measured: format!("a flush took {flush_ms:.2} ms on average, of {}; its cache is volatile (write back){fua}", device.flushes),
        cost: format!("each write of a client waits for a flush on each copy's device: {flush_ms:.2} ms or more"),
        advice: "devices with power-loss protection (write through) answer at once; under a virtual machine the host's cache \
                 mode decides. Never tell the kernel that a volatile cache is none"
            .to_owned(),
        ..Finding::default()
    });
}

fn queue(device: &Device, report: &mut Report) {
    let name = &device.name;
    match &device.scheduler {
        None => report.unknown("scheduler", format!("{name}: the kernel does not say which it has")),
        Some(scheduler) => {
            report.judged("scheduler");
            if !device.is_rotational && scheduler != "none" && device.offers_none {
                report.findings.push(Finding {
                    check: "scheduler",
                    rank: Rank::Hint,
                    weight: 1.0,
                    subject: format!("{name} has an I/O scheduler that flash does not need"),
                    measured: format!("{scheduler}, and the device does not rotate"),
                    cost: "processor time for each request, and one lock for all of them".to_owned(),
                    advice: format!("echo none > /sys/block/{name}/queue/scheduler, or `nacre doctor --fix`"),
                    fixes: vec![Fix {
                        file: PathBuf::from(format!("sys/block/{name}/queue/scheduler")),
                        value: "none",
                    }],
                    ..Finding::default()
                });
            }
        }
    }
    let Some(requests) = device.requests else {
        return report.unknown("queue-depth", format!("{name}: the kernel does not say its nr_requests"));
    };
    report.judged("queue-depth");
    if requests < REQUESTS_MIN {
        report.findings.push(Finding {
            check: "queue-depth",
            rank: Rank::Costly,
            weight: REQUESTS_MIN as f64 / requests.max(1) as f64,
            subject: format!("{name} takes few requests at a time"),
            measured: format!("nr_requests is {requests}"),
            cost: format!(
                "what is beyond {requests} waits in the kernel, though the device could work on it"
            ),
            advice: format!("echo 256 > /sys/block/{name}/queue/nr_requests"),
            ..Finding::default()
        });
    }
}

/// Model, and whether it rotates: what may be compared.
fn kinds(devices: &[Device]) -> BTreeMap<(&str, bool), Vec<&Device>> {
    let mut kinds = BTreeMap::<_, Vec<&Device>>::new();
    for device in devices {
        kinds.entry((device.model.as_str(), device.is_rotational)).or_default().push(device);
    }
    kinds
}

fn slower(devices: &[Device], report: &mut Report) {
    for ((model, _), devices) in kinds(devices) {
        let times: Vec<(&str, f64)> =
            devices.iter().filter_map(|device| Some((device.name.as_str(), device.write_ms?))).collect();
        for (name, ms) in &times {
            let mut others: Vec<f64> =
                times.iter().filter(|(other, _)| other != name).map(|(_, ms)| *ms).collect();
            if others.len() < PEERS_MIN {
                continue;
            }
            report.judged("device-latency");
            others.sort_by(f64::total_cmp);
            let median = others.get(others.len() / 2).copied().unwrap_or_default();
            if *ms < median * SLOWER_TIMES || ms - median < SLOWER_MS {
                continue;
            }
            report.findings.push(Finding {
                check: "device-latency",
                rank: Rank::Costly,
                weight: ms / median.max(0.01),
                subject: format!("{name} is slower than its like"),
                measured: format!(
                    "a write takes {ms:.2} ms on average, the median of {} others of model {model} takes {median:.2} ms",
                    others.len()
                ),
                cost: "every write whose PG has a copy there waits for it".to_owned(),
                advice: "smartctl -a; ceph osd perf; where its OSD is as slow by itself, replace the device".to_owned(),
                ..Finding::default()
            });
        }
    }
}

fn firmware(devices: &[Device], report: &mut Report) {
    for ((model, _), devices) in kinds(devices) {
        let mut by_firmware = BTreeMap::<&str, Vec<&str>>::new();
        for device in devices.iter().filter(|device| !device.firmware.is_empty()) {
            by_firmware.entry(&device.firmware).or_default().push(&device.name);
        }
        if by_firmware.is_empty() {
            continue;
        }
        report.judged("firmware");
        if by_firmware.len() < 2 {
            continue;
        }
        let shown = by_firmware.iter().map(|(firmware, names)| format!("{firmware} on {}", names.join(" ")));
        report.findings.push(Finding {
            check: "firmware",
            rank: Rank::Hint,
            weight: by_firmware.len() as f64,
            subject: format!("devices of model {model} have different firmware"),
            measured: shown.collect::<Vec<_>>().join(", "),
            cost: "what is slow or faulty may be one firmware's; whether it is, their latencies above tell"
                .to_owned(),
            advice: "bring them to the one that the maker recommends".to_owned(),
            ..Finding::default()
        });
    }
}
