//! Alerts: Debian's rules for Ceph fire for faults that are injected, and for nothing else; precision and recall are printed. Minutes that rules
//! wait for are seconds here. docs/health-checks.md says which fault raises which check.

use crate::metrics::{Started, ask, sh, start_prometheus, with_tools};
use nacre_interop::{Cluster, Shell};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Names of the alerts that fire now. What is wrong with the machine is none of the cluster's, nor what says that anything is wrong at all.
fn firing(shell: &Shell, port: u16) -> BTreeSet<String> {
    let alerts = ask(shell, port, "alerts");
    let of_the_cluster = |name: &&str| !name.starts_with("CephNode") && !name.starts_with("CephHealth");
    let all = alerts["alerts"].as_array().into_iter().flatten();
    let firing = all.filter(|alert| alert["state"] == "firing");
    firing
        .filter_map(|alert| alert["labels"]["alertname"].as_str())
        .filter(of_the_cluster)
        .map(str::to_owned)
        .collect()
}

/// One fault: how it is made and healed, and what it is to set off.
struct Fault {
    name: &'static str,
    make: &'static str,
    heal: &'static str,
    /// With a question mark: true while the fault lasts, and seen or not as its moments fall; neither asked for nor wrong.
    alerts: &'static [&'static str],
}

impl Fault {
    /// Alerts that must fire, or those that may.
    fn alerts(&self, may: bool) -> BTreeSet<String> {
        let of_kind = self.alerts.iter().filter(|name| name.ends_with('?') == may);
        of_kind.map(|name| name.trim_end_matches('?').to_owned()).collect()
    }
}

/// `kill_daemon NAME`, `stop_daemon NAME`, `start_osd ID`, `start_mon NAME`; `all_clean`.
const KILLS: &str = r#"
pid_of() { cat $DIR/run/$1.pid; }
kill_daemon() { kill -9 $(pid_of $1); }
stop_daemon() { local pid=$(pid_of $1); kill $pid; until_true 30 "[ ! -e /proc/$pid ]"; }
all_clean() { ceph pg stat -f json | jq -e '[(.pg_summary? // .).num_pg_by_state[].name] == ["active+clean"]'; }
start_osd() { setsid $NACRE osd --dir $DIR --id $1 > osd.$1.again 2>&1 < /dev/null & echo $! >> started; }
start_mon() { setsid $NACRE mon --dir $DIR --name $1 > mon.$1.again 2>&1 < /dev/null & echo $! >> started; }
"#;

const FAULTS: &[Fault] = &[
    Fault {
        name: "an OSD is killed",
        make: "kill_daemon osd.2",
        heal: "start_osd 2",
        alerts: &["CephOSDDown", "CephOSDDownHigh", "CephPGsUnclean"],
    },
    Fault {
        name: "a monitor of three is killed",
        make: "kill_daemon mon.c",
        heal: "start_mon c",
        alerts: &["CephMonDown", "CephMonDownQuorumAtRisk"],
    },
    Fault {
        name: "OSDs are nearly full",
        make: "ceph osd set-nearfull-ratio 0.01",
        heal: "ceph osd set-nearfull-ratio 0.85",
        alerts: &["CephOSDNearFull"],
    },
    Fault {
        name: "metrics are switched off",
        make: "ceph mgr module disable prometheus",
        heal: "ceph mgr module enable prometheus",
        alerts: &["CephMgrPrometheusModuleInactive"],
    },
];

/// More faults, which together take too long for every run.
const MORE_FAULTS: &[Fault] = &[
    Fault {
        name: "a copy rots, and a deep scrub finds it",
        make: r#"
/usr/bin/python3 -c 'open("rotten", "wb").write(b"\xa5this is to rot\x5a" * 4096)'; rados -p p put rotten rotten
pg=$(ceph osd map p rotten -f json | jq -r .pgid); osd=$(ceph pg map $pg -f json | jq '.acting[1]')
stop_daemon osd.$osd
/usr/bin/python3 - $DIR/osd.$osd/block <<'END'
import mmap, sys
pattern = b"\xa5this is to rot\x5a"
with open(sys.argv[1], "r+b") as file:
    data = mmap.mmap(file.fileno(), 0)
    at, count = data.find(pattern), 0
    while at >= 0:
        data[at + 3], count = data[at + 3] ^ 1, count + 1
        at = data.find(pattern, at)
    data.flush()
    assert count > 0, "the object's data lies somewhere"
END
start_osd $osd; until_true 60 all_clean
# What the restart sets off is over.
sleep 25; echo $pg > rotten.pg; ceph pg deep-scrub $pg; until_true 60 'ceph health detail | grep -q PG_DAMAGED'"#,
        heal: "ceph pg repair $(cat rotten.pg); until_true 60 '! ceph health detail | grep -q PG_DAMAGED'; rados -p p rm rotten",
        alerts: &["CephPGsDamaged"],
    },
    Fault {
        name: "an OSD had more copies repaired than it may",
        make: "ceph config set mon mon_osd_warn_num_repaired 0",
        heal: "ceph config rm mon mon_osd_warn_num_repaired",
        alerts: &["CephOSDTooManyRepairs"],
    },
    Fault {
        name: "an OSD's device hangs for seconds",
        make: r#"
ceph config set osd osd_op_complaint_time 1; ceph config set osd.1 nacre_debug_device_delay_ms 3000
(while [ -e $CEPH_CONF -a ! -e enough ]; do rados -p p bench 5 write -b 4096 -t 4; done) > slow.log 2>&1 & echo $! >> started"#,
        heal: "touch enough; ceph config rm osd.1 nacre_debug_device_delay_ms; ceph config rm osd osd_op_complaint_time",
        // Its OSD's PGs peer as others take their lead over, and wait for the device in that, too.
        alerts: &["CephDaemonSlowOps", "CephSlowOps", "CephPGsInactive?", "CephPGUnavilableBlockingIO?"],
    },
    Fault {
        name: "no scrub may begin",
        make: r#"ceph osd set noscrub; ceph osd set nodeep-scrub
ceph config set global osd_scrub_max_interval 4; ceph config set global osd_deep_scrub_interval 4"#,
        heal: r#"ceph config rm global osd_scrub_max_interval; ceph config rm global osd_deep_scrub_interval
ceph osd unset noscrub; ceph osd unset nodeep-scrub"#,
        alerts: &["CephPGNotDeepScrubbed", "CephPGNotScrubbed"],
    },
    Fault {
        name: "pings between OSDs are slow",
        make: "ceph config set osd debug_heartbeat_testing_span 2; ceph config set mon mon_warn_on_slow_ping_time 0.001",
        heal: "ceph config rm mon mon_warn_on_slow_ping_time; ceph config rm osd debug_heartbeat_testing_span",
        alerts: &["CephOSDTimeoutsClusterNetwork", "CephOSDTimeoutsPublicNetwork"],
    },
    Fault {
        name: "OSDs take no backfill",
        make: "ceph osd set-backfillfull-ratio 0.01",
        heal: "ceph osd set-backfillfull-ratio 0.9",
        alerts: &["CephOSDBackfillFull", "CephPoolBackfillFull"],
    },
    Fault {
        name: "a pool is near its quota",
        make: "ceph config set mon mon_pool_quota_warn_threshold 1; ceph osd pool set-quota p max_objects 100",
        heal: "ceph osd pool set-quota p max_objects 0; ceph config rm mon mon_pool_quota_warn_threshold",
        alerts: &["CephPoolNearFull"],
    },
    Fault {
        name: "a pool is over its quota",
        make: "ceph osd pool set-quota p max_objects 1",
        heal: "ceph osd pool set-quota p max_objects 0",
        alerts: &["CephPoolFull"],
    },
    Fault {
        name: "OSDs have too many PGs",
        make: "ceph config set mon mon_max_pg_per_osd 1",
        heal: "ceph config rm mon mon_max_pg_per_osd",
        alerts: &["CephPGsHighPerOSD"],
    },
    Fault {
        name: "monitors have little room",
        make: "ceph config set mon mon_data_avail_warn 100",
        heal: "ceph config set mon mon_data_avail_warn 0",
        alerts: &["CephMonDiskspaceLow"],
    },
    Fault {
        name: "monitors have no room",
        make: "ceph config set mon mon_data_avail_crit 100",
        heal: "ceph config rm mon mon_data_avail_crit",
        alerts: &["CephMonDiskspaceCritical"],
    },
    Fault {
        name: "Prometheus does not scrape",
        make: "sed -i 's/^- { job_name: ceph,/#&/' prometheus.yml; kill -HUP $(tail -1 prometheus.pid)",
        heal: "sed -i 's/^#\\(- { job_name: ceph,\\)/\\1/' prometheus.yml; kill -HUP $(tail -1 prometheus.pid)",
        alerts: &["PrometheusJobMissing"],
    },
    Fault {
        name: "a daemon crashes",
        make: r#"ceph config set osd debug_asok_assert_abort true; until_true 20 'ceph tell osd.2 config get debug_asok_assert_abort | grep -q true'
ceph tell osd.2 assert || true; until_true 30 'ceph crash ls | grep -q osd.2'"#,
        heal: "start_osd 2; ceph crash archive-all",
        alerts: &["CephDaemonCrash", "CephOSDDown", "CephOSDDownHigh", "CephPGsUnclean"],
    },
    Fault {
        name: "two of three OSDs are killed",
        make: "kill_daemon osd.1; kill_daemon osd.2",
        heal: "start_osd 1; start_osd 2",
        alerts: &["CephOSDDown", "CephOSDDownHigh", "CephPGsInactive", "CephPGsUnclean"],
    },
    Fault {
        name: "a host is down",
        make: r#"ceph config set osd osd_crush_update_on_start false; ceph osd crush add-bucket other host root=default
ceph osd crush move osd.2 root=default host=other; until_true 30 all_clean; sleep 5; kill_daemon osd.2"#,
        heal: "start_osd 2",
        alerts: &["CephOSDDown", "CephOSDDownHigh", "CephOSDHostDown", "CephPGsUnclean"],
    },
    Fault {
        name: "the newest of an object is lost with its OSD",
        make: r#"
ceph osd pool create u 1 1; ceph osd pool application enable u rbd; ceph osd pool set u size 2; ceph osd pool set u min_size 1
pg() { ceph pg ls-by-pool u -f json | jq -r '.pg_stats[0]'; }
until_true 60 'pg | jq -e ".state == \"active+clean\""'
first=$(pg | jq '.acting[0]'); second=$(pg | jq '.acting[1]'); pg | jq -r .pgid > lost.pg; echo before | rados -p u put o -
ceph osd set norecover; kill_daemon osd.$second; until_true 30 'ceph osd stat -f json | jq -e ".num_up_osds == 2"'
echo after | rados -p u put o -
start_osd $second; until_true 30 'ceph osd stat -f json | jq -e ".num_up_osds == 3"'; sleep 3
kill_daemon osd.$first; until_true 30 'ceph osd stat -f json | jq -e ".num_up_osds == 2"'
ceph osd pool set p size 2; ceph osd lost $first --yes-i-really-mean-it; ceph osd purge $first --force --yes-i-really-mean-it; ceph osd unset norecover
until_true 60 'ceph health detail | grep -q OBJECT_UNFOUND'"#,
        heal: "ceph pg $(cat lost.pg) mark_unfound_lost delete",
        // For some seconds two OSDs are down, one after the other.
        alerts: &[
            "CephObjectMissing",
            "CephPGsDamaged",
            "CephPGsUnclean",
            "CephOSDDownHigh?",
            "CephOSDDown?",
        ],
    },
    // The last one: what predicts by two days goes on to see the jump.
    Fault {
        name: "OSDs are full",
        make: "ceph osd set-full-ratio 0.01",
        heal: "ceph osd set-full-ratio 0.95",
        alerts: &["CephOSDFull", "CephPoolFull", "CephPoolGrowthWarning"],
    },
];

/// Alerts fire as Debian's rules have them, where the minutes that they wait for are seconds, and nothing else does.
#[test]
#[ignore = "two minutes of waiting for a part of the next one: cargo test -p nacre-interop --test all alerts:: -- --ignored"]
fn alerts_fire_for_what_is_wrong_and_for_nothing_else() {
    let Some(outcome) = exam(FAULTS, "") else { return };
    println!("{}", outcome.report);
    assert!(outcome.wrong.is_empty(), "{:?}", outcome.wrong);
}

#[test]
#[ignore = "takes 15 minutes; run by hand: cargo test -p nacre-interop --test all alerts:: -- --ignored --nocapture"]
fn alerts_fire_for_every_fault_that_can_be_made() {
    let Some(outcome) = exam(MORE_FAULTS, ERRORS_WERE_MEANT) else { return };
    println!("{}", outcome.report);
    assert!(outcome.wrong.is_empty(), "{:?}", outcome.wrong);
}

/// A rule's times by sixty, but at least a second, and rates over no fewer than a few scrapes.
const QUICK: &str = r#"
import math, re, sys
seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}
def quick(at):
    count = max(1, math.ceil(int(at[2]) * seconds[at[3]] / 60))
    return f"{at[1]}{count}s{at[4]}"
text = open(sys.argv[1]).read()
text = re.sub(r'(for: ")(\d+)([smhd])(")', quick, text)
print(re.sub(r"(\[)(\d+)([mhd])(\])", lambda at: "[15s]" if at[3] == "m" else quick(at), text))"#;

/// What daemons log of damage and of a crash is no failure of this test.
const ERRORS_WERE_MEANT: &str = r"for log in $DIR/log/*.log; do sed -i '/ERROR\|panicked/d' $log; done";

/// What an exam came to.
struct Outcome {
    /// A line for each fault, and one for all.
    report: String,
    /// Faults that set off other alerts than expected, or whose alerts stayed.
    wrong: Vec<String>,
}

/// `after`: what is done in the end.
fn exam(faults: &[Fault], after: &str) -> Option<Outcome> {
    let cluster = Cluster::start_quorum(3)?;
    let shell = with_tools(&cluster.pool("p", 8)).within(120);
    let _started = Started(shell.clone());
    sh(
        &shell,
        &format!(
            r#"metrics_at $(free_port)
        # How full the disk of this machine is shall not matter.
        ceph config set mon mon_data_avail_warn 0; head -c 33554432 /dev/urandom > data; rados -p p put o data
        /usr/bin/python3 - $TOOLS/etc/prometheus/ceph/ceph_default_alerts.yml > quick.yml <<'END'
{QUICK}
END
        $TOOLS/usr/bin/promtool check rules quick.yml > /dev/null"#
        ),
    );
    let port = start_prometheus(&shell, "quick.yml");
    std::thread::sleep(Duration::from_secs(20));
    assert_eq!(firing(&shell, port), BTreeSet::new(), "nothing is wrong");
    let (mut expected_count, mut fired_count, mut both_count) = (0, 0, 0);
    let mut outcome = Outcome { report: String::new(), wrong: Vec::new() };
    for fault in faults {
        let (expected, may) = (fault.alerts(false), fault.alerts(true));
        sh(&shell, &format!("{KILLS}{}", fault.make));
        let mut fired = all_that_fire(&shell, port, &expected);
        fired.retain(|name| !may.contains(name));
        sh(&shell, &format!("{KILLS}{}", fault.heal));
        expected_count += expected.len();
        fired_count += fired.len();
        both_count += fired.intersection(&expected).count();
        let start = Instant::now();
        let still = || {
            let mut left = firing(&shell, port);
            left.remove("CephPoolGrowthWarning");
            left
        };
        while !still().is_empty() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_secs(1));
        }
        let left = still();
        let over_s = start.elapsed().as_secs();
        let line = format!("{}: fired {fired:?}, over after {over_s} s\n", fault.name);
        outcome.report += &line;
        if fired != expected || !left.is_empty() {
            outcome.wrong.push(format!(
                "{}: fired {fired:?}, expected {expected:?}, still there {left:?}",
                fault.name
            ));
        }
    }
    sh(&shell, after);
    outcome.report += &format!("precision {both_count}/{fired_count}, recall {both_count}/{expected_count}");
    Some(outcome)
}

/// All alerts that have fired, until the expected ones do and none has been added for 20 s.
fn all_that_fire(shell: &Shell, port: u16, expected: &BTreeSet<String>) -> BTreeSet<String> {
    let (mut fired, mut since, start) = (BTreeSet::new(), Instant::now(), Instant::now());
    while since.elapsed() < Duration::from_secs(15) || !expected.is_subset(&fired) {
        let before = fired.len();
        fired.extend(firing(shell, port));
        if fired.len() > before {
            since = Instant::now();
        }
        if start.elapsed() > Duration::from_secs(60) {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    fired
}
