//! Alerts: Debian's rules for Ceph fire for faults that are injected, and for nothing else; precision and recall are printed. Minutes that rules
//! wait for are seconds here. docs/health-checks.md says which fault raises which check.

mod faults;

use crate::file_systems::{Servers, TOOLS as MDS};
use crate::metrics::{Started, ask, sh, start_prometheus, with_tools};
use faults::{FAULTS, FILE_SYSTEM, FILE_SYSTEM_FAULTS, Fault, KILLS, MORE_FAULTS, PLACEMENT_FAULTS};
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

/// Alerts fire as Debian's rules have them, where the minutes that they wait for are seconds, and nothing else does.
#[test]
#[ignore = "takes 2 minutes; run by hand: cargo test -p nacre-interop --test all alerts:: -- --ignored --nocapture"]
fn alerts_fire_for_what_is_wrong_and_for_nothing_else() {
    exam(FAULTS, "", "");
}

#[test]
#[ignore = "takes 15 minutes; run by hand: cargo test -p nacre-interop --test all alerts:: -- --ignored --nocapture"]
fn alerts_fire_for_every_fault_that_can_be_made() {
    exam(MORE_FAULTS, "", ERRORS_WERE_MEANT);
}

#[test]
#[ignore = "takes 6 minutes; run by hand: cargo test -p nacre-interop --test all alerts:: -- --ignored --nocapture"]
fn alerts_fire_for_every_fault_of_placement() {
    exam(PLACEMENT_FAULTS, "", ERRORS_WERE_MEANT);
}

#[test]
#[ignore = "takes 3 minutes; run by hand: cargo test -p nacre-interop --test all alerts:: -- --ignored --nocapture"]
fn alerts_fire_for_every_fault_of_a_file_system() {
    exam(FILE_SYSTEM_FAULTS, FILE_SYSTEM, ERRORS_WERE_MEANT);
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

/// Each fault sets off its alerts and no others, and they end with it. `before`: what the cluster has beside a pool; `after`: what is done in
/// the end.
#[allow(clippy::print_stdout, reason = "what fired, precision and recall are to be read")]
fn exam(faults: &[Fault], before: &str, after: &str) {
    let Some(cluster) = Cluster::start_quorum(3) else { return };
    let shell = with_tools(&cluster.pool("p", 8)).within(120);
    let _started = (Started(shell.clone()), Servers(shell.clone()));
    sh(
        &shell,
        &format!(
            r#"metrics_at $(free_port)
        # How full the disk of this machine is shall not matter.
        ceph config set mon mon_data_avail_warn 0; ceph config set mon mon_allow_pool_delete true; head -c 33554432 /dev/urandom > data; rados -p p put o data
        /usr/bin/python3 - $TOOLS/etc/prometheus/ceph/ceph_default_alerts.yml > quick.yml <<'END'
{QUICK}
END
        $TOOLS/usr/bin/promtool check rules quick.yml > /dev/null
        {KILLS}{MDS}{before}"#
        ),
    );
    let port = start_prometheus(&shell, "quick.yml");
    std::thread::sleep(Duration::from_secs(20));
    assert_eq!(firing(&shell, port), BTreeSet::new(), "nothing is wrong");
    let (mut expected_count, mut fired_count, mut both_count) = (0, 0, 0);
    let mut wrong = Vec::new();
    for fault in faults {
        let (expected, may) = (fault.alerts(false), fault.alerts(true));
        sh(&shell, &format!("{KILLS}{MDS}{}", fault.make));
        let mut fired = all_that_fire(&shell, port, &expected);
        fired.retain(|name| !may.contains(name));
        sh(&shell, &format!("{KILLS}{MDS}{}", fault.heal));
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
        println!("{}: fired {fired:?}, over after {over_s} s", fault.name);
        if fired != expected || !left.is_empty() {
            wrong.push(format!(
                "{}: fired {fired:?}, expected {expected:?}, still there {left:?}",
                fault.name
            ));
        }
    }
    sh(&shell, after);
    println!("precision {both_count}/{fired_count}, recall {both_count}/{expected_count}");
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// All alerts that have fired, until the expected ones do and none has been added for 15 s.
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
