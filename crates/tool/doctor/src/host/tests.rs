//! A clean machine is silent; each thing that is wrong with it is found, and nothing else with it.

use super::*;
use crate::report::Rank;

/// The files of a machine with which nothing is wrong: two processors, two equal devices and a third, one network card.
const CLEAN: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors", "performance powersave schedutil"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3600000"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "3600000"),
    ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3600000"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_available_governors", "performance powersave schedutil"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3600000"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq", "3600000"),
    ("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "3600000"),
    ("sys/devices/system/cpu/cpufreq/boost", "1"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C1"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state2/name", "C6"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state2/latency", "133"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "1"),
    ("etc/tuned/active_profile", "latency-performance\n"),
    ("sys/devices/system/node/node0/numastat", "numa_hit 1000\nlocal_node 990\nother_node 10"),
    ("sys/devices/system/node/node1/numastat", "numa_hit 1000\nlocal_node 990\nother_node 10"),
    ("sys/kernel/iommu_X/3/type", "DMA-FQ"),
    ("sys/kernel/iommu_X/3/devices/0000:01:00.0/class", "0x010802"),
    ("sys/kernel/iommu_X/4/type", "DMA"),
    ("sys/kernel/iommu_X/4/devices/0000:02:00.0/class", "0x0c0330"),
    (
        "proc/pressure/memory",
        "some avg10=0.00 avg60=0.10 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0",
    ),
    ("proc/pressure/cpu", "some avg10=50.00 avg60=3.00 avg300=0.00 total=9"),
    ("proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 100 kB\nMemAvailable:    8000000 kB\n"),
    ("proc/vmstat", "compact_stall 7\noom_kill 0\noom_kill_other 3\n"),
    ("proc/uptime", "36000.5 7200.0"),
    ("proc/sys/vm/zone_reclaim_mode", "0"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ("sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never"),
    ("sys/block/loop0/queue/write_cache", "write back"),
    ("sys/class/net/eth0/operstate", "up"),
    ("sys/class/net/eth0/device/vendor", "0x15b3"),
    ("sys/class/net/eth0/mtu", "9000"),
    ("sys/class/net/eth0/speed", "25000"),
    ("sys/class/net/eth0/duplex", "full"),
    ("sys/class/net/eth0/statistics/rx_packets", "40000000"),
    ("sys/class/net/eth0/statistics/tx_packets", "40000000"),
    ("sys/class/net/eth0/statistics/rx_errors", "0"),
    ("sys/class/net/eth0/statistics/tx_errors", "0"),
    ("sys/class/net/eth0/statistics/rx_dropped", "12"),
    ("sys/class/net/eth0/statistics/tx_dropped", "0"),
    ("sys/class/net/eth1/operstate", "down"),
    ("sys/class/net/eth1/device/vendor", "0x15b3"),
    ("sys/class/net/eth1/mtu", "1500"),
    ("sys/class/net/lo/operstate", "unknown"),
    (
        "proc/net/snmp",
        "Ip: A B\nIp: 1 2\nTcp: RtoAlgorithm OutSegs RetransSegs InErrs\nTcp: 1 5000000 500 0\n",
    ),
    ("proc/42/comm", "nacre\n"),
    ("proc/42/status", "Name:\tnacre\nVmRSS:\t 9000 kB\nVmSwap:\t       0 kB\n"),
];

/// Reads, and 5,000 writes of 0.2 ms; 4,000 flushes of 0.1 ms.
const STAT: &str = "100 0 800 50 5000 0 40000 1000 0 900 1050 0 0 0 0 4000 400";

struct Machine(tempfile::TempDir);

impl Machine {
    fn clean() -> Self {
        let machine = Self(tempfile::tempdir().expect("a folder"));
        CLEAN.iter().for_each(|(path, text)| machine.put(path, text));
        for name in ["nvme0n1", "nvme1n1", "nvme2n1"] {
            for (file, text) in [
                ("queue/rotational", "0"),
                ("queue/write_cache", "write back"),
                ("queue/fua", "1"),
                ("queue/scheduler", "[none] mq-deadline"),
                ("queue/nr_requests", "1023"),
                ("device/model", "FLASH 4"),
                ("device/firmware_rev", "1.2"),
                ("stat", STAT),
            ] {
                machine.put(&format!("sys/block/{name}/{file}"), text);
            }
        }
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(real(path));
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    fn remove(&self, path: &str) {
        let path = self.0.path().join(real(path));
        let gone = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        gone.expect("it was there");
    }

    fn host(&self) -> Host {
        Host {
            clock: Ok(ClockState { is_synchronised: true, error_us_max: 900, offset_us: 3 }),
            build: BuildKind { opt_level: "3".to_owned(), debug_assertions: false },
            ..Host::new(self.0.path())
        }
    }

    fn report(&self) -> Report {
        checked(&self.host())
    }
}

/// The kernel's name of the folder.
fn real(path: &str) -> String {
    path.replace("iommu_X", concat!("iommu_", "gro", "ups"))
}

fn checked(host: &Host) -> Report {
    let mut report = Report::default();
    check(host, &mut report);
    report.sort();
    report
}

const CHECKS: [&str; 24] = [
    "build",
    "governor",
    "frequency-limit",
    "idle-states",
    "tuned",
    "numa",
    "iommu",
    "memory-pressure",
    "processor-pressure",
    "memory",
    "hugepages",
    "zone-reclaim",
    "write-cache",
    "flush-cost",
    "scheduler",
    "queue-depth",
    "device-latency",
    "firmware",
    "network-speed",
    "network-losses",
    "mtu",
    "tcp-resends",
    "clock",
    "swap",
];

#[test]
fn a_clean_machine_is_silent_and_nothing_of_it_unknown() {
    let report = Machine::clean().report();
    assert_eq!((report.findings.as_slice(), report.unknown.as_slice()), (&[][..], &[][..]));
    for check in CHECKS {
        assert!(report.judged.contains(&check), "{check} is not among {:?}", report.judged);
    }
    assert!(report.to_text().starts_with("Nothing found"));
}

/// Check, rank, what is changed of a clean machine, and what the finding measures.
type Case = (&'static str, Rank, &'static [(&'static str, &'static str)], &'static str);

const CASES: &[Case] = &[
    (
        "governor",
        Rank::Costly,
        &[
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "1200000"),
        ],
        "performance on 1, powersave on 1; the slowest runs at 1200 MHz now, of 3600",
    ),
    (
        "governor",
        Rank::Hint,
        &[("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil")],
        "schedutil on 1",
    ),
    (
        "frequency-limit",
        Rank::Costly,
        &[("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "1800000")],
        "at most 1800 MHz (scaling_max_freq) of 3600 MHz",
    ),
    ("frequency-limit", Rank::Hint, &[("sys/devices/system/cpu/cpufreq/boost", "0")], "boost is 0"),
    (
        "idle-states",
        Rank::Costly,
        &[("sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "0")],
        "C6: 133 us to wake",
    ),
    ("tuned", Rank::Hint, &[("etc/tuned/active_profile", "balanced")], "its active profile is balanced"),
    (
        "numa",
        Rank::Hint,
        &[("sys/devices/system/node/node1/numastat", "local_node 610\nother_node 390")],
        "20 % of the pages",
    ),
    ("iommu", Rank::Hint, &[("sys/kernel/iommu_X/3/type", "DMA")], "of type DMA: 0000:01:00.0"),
    (
        "memory-pressure",
        Rank::Costly,
        &[("proc/pressure/memory", "some avg10=0.00 avg60=12.30 avg300=0.00 total=9")],
        "12.3 % of the last minute",
    ),
    (
        "processor-pressure",
        Rank::Costly,
        &[("proc/pressure/cpu", "some avg10=0.00 avg60=61.00 avg300=0.00 total=9")],
        "61 % of the last minute",
    ),
    (
        "memory",
        Rank::Serious,
        &[("proc/meminfo", "MemTotal: 16384000 kB\nMemAvailable: 163840 kB\n")],
        "160 MiB of 16000 are available, 1.0 %",
    ),
    (
        "memory",
        Rank::Serious,
        &[("proc/vmstat", "compact_stall 7\noom_kill 2\n")],
        "2 since the machine's start",
    ),
    (
        "hugepages",
        Rank::Hint,
        &[("proc/vmstat", "compact_stall 100000\noom_kill 0\n")],
        "100000 times since the start, 10000 an hour",
    ),
    ("zone-reclaim", Rank::Costly, &[("proc/sys/vm/zone_reclaim_mode", "1")], "zone_reclaim_mode is 1"),
    (
        "flush-cost",
        Rank::Costly,
        &[("sys/block/nvme0n1/stat", "100 0 800 50 5000 0 40000 1000 0 900 1050 0 0 0 0 4000 20000")],
        "a flush took 5.00 ms on average, of 4000",
    ),
    (
        "scheduler",
        Rank::Hint,
        &[("sys/block/nvme0n1/queue/scheduler", "none [bfq]")],
        "bfq, and the device does not rotate",
    ),
    ("queue-depth", Rank::Costly, &[("sys/block/nvme0n1/queue/nr_requests", "2")], "nr_requests is 2"),
    (
        "device-latency",
        Rank::Costly,
        &[("sys/block/nvme2n1/stat", "100 0 800 50 5000 0 40000 25000 0 900 1050 0 0 0 0 4000 400")],
        "a write takes 5.00 ms on average, the median of 2 others of model FLASH 4 takes 0.20 ms",
    ),
    (
        "firmware",
        Rank::Hint,
        &[("sys/block/nvme2n1/device/firmware_rev", "0.9")],
        "0.9 on nvme2n1, 1.2 on nvme0n1 nvme1n1",
    ),
    ("network-speed", Rank::Costly, &[("sys/class/net/eth0/speed", "1000")], "its link has 1000 Mbit/s"),
    ("network-speed", Rank::Serious, &[("sys/class/net/eth0/duplex", "half")], "half duplex"),
    (
        "network-losses",
        Rank::Costly,
        &[("sys/class/net/eth0/statistics/rx_errors", "800")],
        "800 errors of 80000000 packets, 10 in a million",
    ),
    (
        "network-losses",
        Rank::Costly,
        &[("sys/class/net/eth0/statistics/tx_dropped", "80000")],
        "80012 drops of 80000000 packets",
    ),
    ("mtu", Rank::Hint, &[("sys/class/net/eth0/mtu", "1500")], "an MTU of at most 1500"),
    (
        "mtu",
        Rank::Hint,
        &[("sys/class/net/eth1/operstate", "up"), ("sys/class/net/eth1/mtu", "8000")],
        "9000 on eth0, 8000 on eth1",
    ),
    (
        "tcp-resends",
        Rank::Costly,
        &[("proc/net/snmp", "Tcp: OutSegs RetransSegs\nTcp: 1000000 20000\n")],
        "20000 of 1000000 segments",
    ),
    ("swap", Rank::Costly, &[("proc/42/status", "VmSwap:\t 204800 kB\n")], "200 MiB of it"),
];

#[test]
fn each_fault_is_found_alone() {
    for (check, rank, changes, measured) in CASES {
        let machine = Machine::clean();
        changes.iter().for_each(|(path, text)| machine.put(path, text));
        let report = machine.report();
        let [finding] = report.findings.as_slice() else { panic!("{check}: {:?}", report.findings) };
        assert_eq!((finding.check, finding.rank), (*check, *rank), "{finding:?}");
        assert!(finding.measured.contains(measured), "{check}: {}", finding.measured);
    }
}

#[test]
fn what_is_not_in_files_is_found_too() {
    let machine = Machine::clean();
    let slow = BuildKind { opt_level: "0".to_owned(), debug_assertions: true };
    let report = checked(&Host { build: slow, ..machine.host() });
    assert_eq!((report.findings[0].check, report.findings[0].rank), ("build", Rank::Serious));
    assert_eq!(report.findings[0].measured, "compiled with opt-level 0, debug assertions");
    for (state, measured) in [
        (ClockState { is_synchronised: false, error_us_max: 16_000_000, offset_us: 0 }, "unsynchronised"),
        (
            ClockState { is_synchronised: true, error_us_max: 200_000, offset_us: 150_000 },
            "wrong by 0.200 s, 0.150 s",
        ),
    ] {
        let report = checked(&Host { clock: Ok(state), ..machine.host() });
        assert!(
            report.findings[0].check == "clock" && report.findings[0].measured.contains(measured),
            "{report:?}"
        );
    }
    let report = checked(&Host { clock: Err("EPERM".to_owned()), ..machine.host() });
    assert!(report.findings.is_empty() && report.unknown[0].why == "EPERM");
}

#[test]
fn a_processor_that_governs_itself_for_speed_is_left_alone() {
    let machine = Machine::clean();
    for processor in ["cpu0", "cpu1"] {
        let folder = format!("sys/devices/system/cpu/{processor}/cpufreq");
        machine.put(&format!("{folder}/scaling_governor"), "powersave");
        machine.put(&format!("{folder}/energy_performance_preference"), "performance");
    }
    assert_eq!(machine.report().findings, []);
    machine.put("sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "balance_power");
    assert_eq!(machine.report().findings.len(), 1);
}

/// Nothing is guessed where nothing can be read; least of all that it is in order.
#[test]
fn what_cannot_be_read_is_unknown() {
    let empty = Machine(tempfile::tempdir().expect("a folder"));
    let report = empty.report();
    assert_eq!(report.findings, []);
    assert_eq!(report.judged, ["build", "iommu", "clock"]);
    let unknown: Vec<&str> = report.unknown.iter().map(|one| one.check).collect();
    for check in [
        "governor",
        "idle-states",
        "numa",
        "memory",
        "memory-pressure",
        "devices",
        "network",
        "tcp-resends",
        "swap",
    ] {
        assert!(unknown.contains(&check), "{check} is not among {unknown:?}");
    }
    let machine = Machine::clean();
    machine.remove("sys/block/nvme1n1/queue/write_cache");
    // Eleven fields before Linux 4.18, fifteen before 5.5.
    machine.put("sys/block/nvme0n1/stat", "100 0 800 50 5000 0 40000 1000 0 900 1050");
    machine.put("sys/class/net/eth0/speed", "-1");
    let report = machine.report();
    assert_eq!(report.findings, []);
    let unknown: Vec<&str> = report.unknown.iter().map(|one| one.check).collect();
    assert_eq!(unknown, ["flush-cost", "write-cache", "network-speed"]);
}

#[test]
fn fixes_take_effect_and_say_how_to_take_them_back() {
    let machine = Machine::clean();
    let governor = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
    let scheduler = "sys/block/nvme1n1/queue/scheduler";
    machine.put(governor, "powersave\n");
    machine.put(scheduler, "none [mq-deadline]");
    // Nothing is done about what is not safe.
    machine.put("proc/sys/vm/zone_reclaim_mode", "1");
    let (host, mut report) = (machine.host(), machine.report());
    fix(&host, &mut report);
    assert_eq!(
        (host.text(governor), host.text(scheduler)),
        (Some("performance".to_owned()), Some("none".to_owned()))
    );
    assert_eq!(host.number("proc/sys/vm/zone_reclaim_mode"), Some(1));
    let done: Vec<_> = report
        .fixed
        .iter()
        .map(|fixed| (fixed.before.as_str(), fixed.after.as_str(), fixed.error.is_none()))
        .collect();
    assert_eq!(done, [("powersave", "performance", true), ("mq-deadline", "none", true)]);
    assert!(report.to_text().contains("to take it back: echo powersave > "), "{}", report.to_text());
    let left: Vec<&str> = machine.report().findings.iter().map(|finding| finding.check).collect();
    assert_eq!(left, ["zone-reclaim"]);
    // What cannot be set says so.
    machine.put(governor, "powersave");
    let mut report = machine.report();
    machine.remove(governor);
    fix(&host, &mut report);
    assert!(
        report.fixed[0].error.as_ref().is_some_and(|error| error.contains("are you root?")),
        "{:?}",
        report.fixed
    );
    assert!(!host.exists(governor), "nothing is made");
}

/// Who made a copy has not the say over this machine.
#[test]
fn what_a_copy_links_to_outside_is_neither_read_nor_written() {
    let machine = Machine::clean();
    let governor = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
    let path = machine.0.path().join(governor);
    machine.put(governor, "powersave");
    let (host, mut report) = (machine.host(), machine.report());
    assert_eq!(report.findings.len(), 1, "it is to be fixed");
    let outside = tempfile::tempdir().expect("a folder");
    let target = outside.path().join("passwd");
    std::fs::write(&target, "powersave").expect("a file");
    let link = |target: &Path, path: &Path| std::os::unix::fs::symlink(target, path).expect("a link");

    machine.remove(governor);
    link(&target, &path);
    assert_eq!((host.text(governor), host.exists(governor)), (None, false));
    assert_eq!(machine.report().findings, []);
    fix(&host, &mut report);
    let error = report.fixed[0].error.as_ref();
    assert!(error.is_some_and(|error| error.contains("outside")), "{:?}", report.fixed);
    assert_eq!(std::fs::read_to_string(&target).expect("it is there"), "powersave");
    // A folder likewise.
    link(outside.path(), &machine.0.path().join("sys/block/nvme9n1"));
    assert_eq!((host.names("sys/block/nvme9n1"), host.text("sys/block/nvme9n1/passwd")), (vec![], None));

    // What stays below the root is followed: /sys is full of it, and a copy of it, too.
    machine.remove(governor);
    machine.put("sys/governor", "powersave");
    link(Path::new("../../../../../governor"), &path);
    assert_eq!(host.text(governor).as_deref(), Some("powersave"));
    fix(&host, &mut report);
    assert_eq!((&report.fixed[0].error, host.text("sys/governor").as_deref()), (&None, Some("performance")));
}

#[test]
fn what_is_no_regular_file_is_neither_waited_for_nor_written() {
    let machine = Machine::clean();
    let governor = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
    machine.put(governor, "powersave");
    let (host, mut report) = (machine.host(), machine.report());
    machine.remove(governor);
    let made = std::process::Command::new("mkfifo").arg(machine.0.path().join(governor)).status();
    assert!(made.expect("coreutils").success());
    // Nobody is at its other end.
    assert_eq!(host.text(governor), None);
    fix(&host, &mut report);
    let error = report.fixed[0].error.as_ref();
    assert!(error.is_some_and(|error| error.contains("no regular file")), "{:?}", report.fixed);
    assert_eq!(host.text("sys/devices"), None);
}

#[test]
fn words_in_brackets_are_the_chosen_ones() {
    assert_eq!(chosen("none [mq-deadline] bfq").as_deref(), Some("mq-deadline"));
    assert_eq!(chosen("none\n").as_deref(), Some("none"));
    assert_eq!(chosen("a b"), None);
    assert_eq!(chosen(""), None);
    assert_eq!(field("oom_kill_other 3\noom_kill 5", "oom_kill"), Some(5));
}
