//! `nacre doctor` and `nacre why-slow` beside a cluster that runs: faults are made, named and gone again.

use nacre_interop::{Cluster, Shell};
use serde_json::Value;

/// `doctor`: its report as JSON, whatever its exit status. Nothing of this machine counts: the tests' is not everybody's.
const TOOLS: &str = r#"
mkdir -p machine
doctor() { $NACRE doctor --root machine -c $DIR/ceph.conf -k $DIR/keyring --json --seconds ${WATCH:-0} "$@" || [ $? = 3 ]; }
finds() { doctor | jq -e --arg check "$1" --arg text "$2" '.findings | map(select(.check == $check) | .subject + " " + .measured) | map(test($text)) | any'; }
"#;

fn sh(shell: &Shell, script: &str) -> String {
    shell.sh(&format!("{TOOLS}{script}"))
}

#[test]
fn faults_of_a_cluster_are_named_while_they_last() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("p", 8).within(120);
    sh(
        &shell,
        r#"
        # Until each OSD leads enough writes while it is watched to be compared with others.
        rados -p p bench 600 write -b 4096 -t 16 --no-cleanup > bench.log & load=$!
        # It has asked for everything, and was answered.
        answered() {
          for check in health slow-ops slow-pings background fill pg-count osd-build device-driver osd-latency; do
            jq -e --arg check $check '(.judged | index($check) != null) and (.unknown | map(.check) | index($check) == null)' report.json || return 1
          done
        }
        until_true 50 'WATCH=2 doctor > report.json; answered' || { cat report.json; exit 1; }
        kill $load
        finds pg-count '8 copies of PGs on an OSD on average'
        nok finds health OSDMAP_FLAGS
        ceph osd set noout
        until_true 20 "finds health 'OSDMAP_FLAGS.*noout'"
        ceph osd unset noout
        until_true 20 '! finds health OSDMAP_FLAGS'
        # A request that does not end is named with what it waits for: an OSD that is frozen, and stays up.
        ceph config set osd osd_op_complaint_time 1; ceph osd set nodown
        kill -STOP $(cat $DIR/run/osd.2.pid)
        for n in 1 2 3 4 5 6 7 8; do timeout 500 rados -p p put held$n - < /dev/null & echo $! >> writers; done
        until_true 30 'finds slow-ops "osd.[01] .*: waiting for (the disks of osd.\\[2\\]|a lease)"' || { doctor; exit 1; }
        # It does not answer either, and of what only it could tell nothing is said.
        doctor | jq -e '.unknown | map(select(.check == "slow-ops") | .why | test("osd.2 .*no answer")) | any'
        kill -CONT $(cat $DIR/run/osd.2.pid); ceph osd unset nodown; for writer in $(cat writers); do wait $writer; done
        until_true 30 '! finds slow-ops longer'"#,
    );
    shell
        .run("$NACRE doctor --root machine -c $DIR/ceph.conf -k $DIR/keyring --user nobody")
        .expect_code(1)
        .expect_text("no key of client.nobody");
    shell.sh("mkdir -p away; sed 's/^mon host = .*/mon host = v2:127.0.0.1:1/' $DIR/ceph.conf > away/ceph.conf; cp $DIR/keyring away");
    let lost = shell.run("$NACRE doctor --root machine -c away/ceph.conf -k away/keyring");
    lost.expect_code(1).expect_text("no monitor answers");
    // Without one nothing is said of any.
    let alone = shell.run("$NACRE doctor --root machine");
    alone.expect_text("cluster: none was asked");
}

#[test]
fn fixes_reach_the_files_and_are_told() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let shell = cluster.shell();
    let governor = "machine/sys/devices/system/cpu/cpu0/cpufreq";
    shell.sh(&format!(
        "mkdir -p {governor}; echo powersave > {governor}/scaling_governor; echo performance powersave > {governor}/scaling_available_governors"
    ));
    let report = shell.json("$NACRE doctor --root machine --fix --json || [ $? = 3 ]");
    let fixed = &report["fixed"][0];
    assert_eq!(
        (&fixed["before"], &fixed["after"], &fixed["error"]),
        (&"powersave".into(), &"performance".into(), &Value::Null)
    );
    assert_eq!(shell.sh(&format!("cat {governor}/scaling_governor")), "performance");
    let again = shell.json("$NACRE doctor --root machine --fix --json || [ $? = 3 ]");
    assert_eq!(again["fixed"], serde_json::json!([]));
}

/// What is shown adds up to what clients waited, as their own counters and the samples say, too; and the OSD that is slow is named first.
#[test]
fn the_time_that_clients_wait_is_explained() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("p", 16).within(120);
    let watch = r#"
        ceph config set mon nacre_probe_interval 0
        rados -p p bench 300 write -b 4096 -t 8 > bench.log & load=$!
        until_true 30 'grep -Eq "^ +[2-9] " bench.log'
        $NACRE why-slow -c $DIR/ceph.conf -k $DIR/keyring --seconds 5 --json > why.json; kill $load; wait $load || true; cat why.json"#;
    let why = shell.json(watch);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number: {value}"));
    let total_s = number(&why["total_s"]);
    let parts = why["parts"].as_array().expect("a list");
    let sum: f64 = parts.iter().map(|part| number(&part["seconds"])).sum();
    assert!(total_s > 1.0 && (sum - total_s).abs() < total_s * 0.01, "{sum} of {total_s}: {why}");
    assert_eq!((why["osds"].as_u64(), why["unknown"].as_array().map(Vec::len)), (Some(3), Some(0)));
    // Eight writers keep eight messages under way, less what is on its way to and from OSDs.
    let (by_counters, by_samples) =
        (total_s / number(&why["window_s"]), number(&why["samples"]["in_flight"]));
    assert!(
        (2.0..8.5).contains(&by_counters) && (2.0..8.5).contains(&by_samples),
        "{by_counters} and {by_samples}: {why}"
    );
    assert_eq!(why["samples"]["clients"].as_array().map(Vec::len), Some(1), "one client: {why}");
    let busy = why["busy"].as_array().expect("a list");
    assert!(busy.len() == 3 && busy.iter().all(|osd| (0.001..1.1).contains(&number(&osd["share"]))), "{why}");
    assert!(number(&why["cpu_us_per_message"]) > 10.0, "{why}");
    // One OSD gets a moment of the processor now and then only: the others wait for it.
    let slow = shell.json(&format!(
        r#"
        pid=$(cat $DIR/run/osd.2.pid)
        (while :; do kill -STOP $pid; sleep 0.08; kill -CONT $pid; sleep 0.02; done) & brake=$!
        {watch}
        kill $brake; kill -CONT $pid"#
    ));
    // Of the one that leads more of the writes: the other may be seen waiting in a few samples only, of which nothing can be told.
    let led = |osd: u64| {
        let parts = slow["parts"].as_array().into_iter().flatten();
        let replicated = parts.filter(|part| part["osd"] == osd && part["stage"] == "replicated");
        replicated.filter_map(|part| part["count"].as_u64()).sum::<u64>()
    };
    let leader = if led(0) > led(1) { "0" } else { "1" };
    assert_eq!(slow["samples"]["waits_for"][leader][0]["osd"], 2, "{slow}");
    let text = shell.sh("$NACRE why-slow -c $DIR/ceph.conf -k $DIR/keyring --seconds 1");
    assert!(text.contains("No message of a client was answered"), "{text}");
    shell
        .fails("$NACRE why-slow -c $DIR/ceph.conf -k $DIR/keyring --seconds 0")
        .expect_text("from 1 to 3600");
}
