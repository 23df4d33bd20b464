//! A stock ceph-mgr under our monitor: it becomes the active manager, its modules work on the cluster, and our own takes over when it dies.
//! docs/runbooks/stock-mgr.md has the same commands, for people.

use nacre_interop::{Cluster, Shell};

/// `mgr_start NAME`, `mgr_kill NAME`, `mgr_wait NAME`: until that one is active and available.
const TOOLS: &str = r#"
mgr_start() {
  # Tests beside this one have the same usual port.
  ceph mgr module disable prometheus
  ceph auth get-or-create mgr.$1 mon 'allow profile mgr' osd 'allow *' mds 'allow *' -o $PWD/mgr.$1.keyring
  mkdir -p $PWD/mgr.$1
  ceph-mgr -c $CEPH_CONF -i $1 -f --keyring $PWD/mgr.$1.keyring --mgr-data $PWD/mgr.$1 --log-file $PWD/mgr.$1.log \
    --run-dir $PWD/mgr.$1 --admin-socket $PWD/mgr.$1.asok > $PWD/mgr.$1.out 2>&1 &
  echo $! > $PWD/mgr.$1.pid
}
mgr_kill() { kill -9 $(cat $PWD/mgr.$1.pid); }
mgr_wait() {
  until_true 30 "ceph mgr stat -f json | jq -e '.available and .active_name == \"$1\"'" && return 0
  ceph mgr stat; tail -20 $PWD/mgr.*.log; return 1
}
"#;

/// Runs a script with the tools; managers that it leaves running end with the test.
fn sh(shell: &Shell, script: &str) -> String {
    shell.sh(&format!("{TOOLS}{script}"))
}

/// Ends what the test has started, however it ends.
struct Managers(Shell);

impl Drop for Managers {
    fn drop(&mut self) {
        self.0.run("for file in mgr.*.pid mds.*.pid; do kill -9 $(cat $file) || true; done");
    }
}

#[test]
fn a_stock_manager_serves_and_our_own_takes_over_when_it_dies() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("p", 8).within(150);
    let _managers = Managers(shell.clone());
    sh(&shell, "mgr_start x; mgr_wait x");
    sh(
        &shell,
        r#"
        # All that the tool knows of modules comes from it, and our own serves nobody.
        ceph mgr module ls | jq -e '.always_on_modules | index("balancer") != null' > /dev/null
        ceph mgr metadata x | jq -e '.ceph_version | contains("16.2")' > /dev/null
        ceph mgr versions | grep -q '16.2'; ceph versions | jq -e '.mgr | length == 1' > /dev/null
        # Its modules come to the cluster as clients of their own, which the next beacon names.
        until_true 120 "ceph mgr dump | jq -e '.active_clients | length > 0'"
        ceph -s | grep -q 'mgr: x(active'
        # The OSDs report to it, and to the monitor.
        until_true 120 "ceph osd df -f json | jq -e '.nodes | length == 3 and all(.kb > 0)'"
        until_true 120 "ceph pg stat | grep -q 'active+clean'"
        ceph osd perf | grep -q commit; ceph osd pool stats p | grep -q 'pool p'
        # The status module, the crash module, progress.
        until_true 120 "ceph osd status | grep -q 'exists,up'"
        echo '{"crash_id": "2026-11-25T00:00:00.000000Z_1", "timestamp": "2026-11-25T00:00:00.000000Z", "entity_name": "osd.0",
          "process_name": "x", "ceph_version": "16.2.15", "utsname_hostname": "h", "stack_sig": "s", "backtrace": []}' > crash.json
        ceph crash post -i crash.json; ceph crash ls | grep -q 2026-11-25
        ceph progress json | jq -e .events > /dev/null
        ceph telemetry show 2>/dev/null | jq -e '.report_id' > /dev/null || ceph telemetry show 2>&1 | grep -q -i telemetry
        [ "$(ceph fs volume ls -f json | jq length)" = 0 ]"#,
    );
    sh(
        &shell,
        r#"
        # The balancer's upmap mode changes the OSD map; the autoscaler changes pg_num.
        ceph osd set-require-min-compat-client luminous
        ceph balancer mode upmap; ceph balancer on; ceph balancer status | jq -e '.active and .mode == "upmap"' > /dev/null
        [ "$(ceph config get mgr mgr/balancer/mode)" = upmap ]
        ceph osd pool set p pg_num_min 32; ceph osd pool set p pg_autoscale_mode on
        until_true 120 "ceph osd pool autoscale-status -f json | jq -e 'map(select(.pool_name == \"p\")) | .[0].pg_autoscale_mode == \"on\"'"
        ceph config set mgr mgr/pg_autoscaler/sleep_interval 5
        until_true 120 "ceph osd pool get p pg_num -f json | jq -e '.pg_num > 8'""#,
    );
    sh(
        &shell,
        r#"
        # rbd_support: a clone is made a whole image by the manager.
        ceph osd pool create rbd 8; rbd pool init rbd
        rbd create rbd/parent --size 8M; rbd snap create rbd/parent@s; rbd snap protect rbd/parent@s
        rbd clone rbd/parent@s rbd/child
        ceph rbd task add flatten rbd/child
        until_true 120 "rbd info rbd/child --format json | jq -e 'has(\"parent\") | not'"
        rbd trash purge schedule add --pool rbd 1h; rbd trash purge schedule ls --pool rbd | grep -q 'every 1h'"#,
    );
    // What a client asks of the manager in the moment of its death our own answers.
    let took = shell.python(
        r#"
import json, os, rados, signal, time
cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
cluster.connect()
ask = lambda: cluster.mgr_command(json.dumps({"prefix": "balancer status", "format": "json"}), b"", 20)
assert json.loads(ask()[1])["mode"] == "upmap"
os.kill(int(open("mgr.x.pid").read()), signal.SIGKILL)
start = time.monotonic()
code, out, text = ask()
# It goes on in the mode that was set; only ours has not measured how long it took.
own = json.loads(out)
assert code == 0 and own["mode"] == "upmap" and own["last_optimize_duration"] == "", (code, out, text)
print(int((time.monotonic() - start) * 1000))
cluster.shutdown()"#,
    );
    let took_ms: u64 = took.trim().parse().expect("milliseconds");
    assert!(took_ms < 20_000, "our own manager answers after {took_ms} ms, not long before a grace of 30 s");
    // What it still had under way is shut out.
    sh(
        &shell,
        "ceph mgr stat | grep -q '\"active_name\": \"a\"'; ceph osd blocklist ls 2>/dev/null | grep -q :",
    );
    sh(
        &shell,
        r#"
        # It comes back, another waits beside it, and takes over by command.
        mgr_start x; mgr_wait x; mgr_start y
        until_true 120 "ceph mgr dump | jq -e '.standbys | map(.name) == [\"y\"]'"
        ceph mgr fail; mgr_wait y
        ceph osd df > /dev/null; ceph balancer status | jq -e '.mode == "upmap"' > /dev/null"#,
    );
}

/// What modules do by themselves, each shown by its effect: at a time of a schedule, when there is much to move, and while others work.
#[test]
fn modules_work_by_themselves() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.shell().within(170);
    let _managers = Managers(shell.clone());
    sh(
        &shell,
        r#"
        mgr_start x; mgr_wait x; ceph osd pool create rbd 8; rbd pool init rbd
        # Once a minute: an image's mirror snapshot, and the trash is emptied. What comes of it stands at the end. Which images there are the
        # module finds out as it starts, and then only once a minute.
        for name in load mirrored gone task; do rbd create rbd/$name --size 8M; done
        # There must be another cluster to mirror to, if only by name.
        rbd mirror pool enable rbd image; rbd mirror pool peer add rbd client.admin@elsewhere
        rbd mirror image enable rbd/mirrored snapshot
        rbd mirror snapshot schedule add --pool rbd 1m; rbd mirror snapshot schedule ls --pool rbd | grep -q 'every 1m'
        rbd trash purge schedule add --pool rbd 1m; rbd trash mv rbd/gone
        mgr_kill x; until_true 120 "ceph mgr stat -f json | jq -e '.active_name == \"a\"'"; mgr_start x; mgr_wait x
        # A task: one image is removed from the trash now.
        rbd trash mv rbd/task
        id=$(rbd trash ls rbd --format json | jq -r '.[] | select(.name == "task").id'); ceph rbd task add trash remove rbd/$id
        until_true 120 "rbd trash ls rbd --format json | jq -e 'map(.name) | index(\"task\") == null'""#,
    );
    sh(
        &shell,
        r#"
        # Which image has how many writes: the OSDs count what the manager asks them for.
        (while [ -e $CEPH_CONF ] && [ $SECONDS -lt 850 ]; do timeout 60 rbd bench rbd/load --io-type write --io-size 4K --io-threads 1 --io-total 1M; done > /dev/null 2>&1) &
        load=$!
        until_true 120 "ceph rbd perf image stats rbd | jq -e '.stats | map(to_entries[0] | select(.key | endswith(\"/load\")) | select(.value[0] > 0)) | length == 1'"
        ceph rbd perf image counters rbd > counters
        writes() { jq '.counters | map(to_entries[0] | select(.key | endswith("/load")).value[0]) | add' $1; }
        until_true 60 'ceph rbd perf image counters rbd > counters.later; [ $(writes counters.later) -gt $(writes counters) ]'
        until_true 60 'timeout 60 rbd perf image iostat rbd --iterations 1 | grep -q load'
        # What all clients do.
        (PYTHONUNBUFFERED=1 timeout 30 ceph iostat || true) | awk -F'|' '$6 + 0 > 0 { found = 1 } END { exit !found }'
        # The same for Prometheus, with the counters of the OSDs.
        port=$(free_port)
        ceph config set mgr mgr/prometheus/server_addr 127.0.0.1; ceph config set mgr mgr/prometheus/server_port $port
        ceph config set mgr mgr/prometheus/scrape_interval 2; ceph config set mgr mgr/prometheus/rbd_stats_pools rbd
        ceph mgr module enable prometheus; until_true 120 "ceph mgr services | jq -e .prometheus"
        # It has started anew for that, and while it was away the monitor's own may have served.
        mgr_wait x
        metric() { echo "curl -s http://127.0.0.1:$port/metrics | awk -v n='$1' 'index(\$1, n) == 1 && \$2 > 0 { found = 1 } END { exit !found }'"; }
        until_true 120 "$(metric 'ceph_osd_op_w{')"; until_true 120 "$(metric 'ceph_pool_objects{')"; until_true 120 "$(metric 'ceph_rbd_write_ops{')"
        kill $load || true
        # A pool whose copies lie unevenly: the balancer moves some.
        ceph osd pool create two 32 32; ceph osd pool set two size 2
        ceph osd set-require-min-compat-client luminous
        ceph config set mgr mgr/balancer/sleep_interval 2; ceph config set mgr mgr/balancer/upmap_max_deviation 1
        ceph balancer mode upmap; ceph balancer on
        until_true 120 "ceph osd dump -f json | jq -e '.pg_upmap_items | length > 0'"
        # What OSDs and modules say of themselves for a report, without sending it.
        ceph telemetry show > telemetry 2> /dev/null
        jq -en 'input | .osd.count == 3 and .mon.count == 1 and (.pools | length) >= 2' telemetry"#,
    );
    sh(
        &shell,
        r#"
        until_true 120 "rbd trash ls rbd --format json | jq -e '. == []'"
        until_true 120 "[ \$(rbd snap ls --all rbd/mirrored --format json | jq 'map(select(.namespace.type == \"mirror\")) | length') -ge 2 ]""#,
    );
}

/// The module for volumes works on a file system through a stock ceph-mds: folders with quotas and snapshots of their own.
#[test]
fn subvolumes_are_made_by_the_manager() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.shell().within(120);
    let _managers = Managers(shell.clone());
    let tools = super::file_systems::TOOLS;
    let script = r#"
        ceph osd pool create meta 8; ceph osd pool create data 8; ceph fs new f meta data; mgr_start x
        mds_start a; mgr_wait x; mds_wait up:active
        ceph fs volume ls -f json | jq -e 'map(.name) == ["f"]'
        ceph fs status f | grep -q active
        ceph fs subvolumegroup create f csi; ceph fs subvolume create f one --group_name csi --size 1000000
        ceph fs subvolume getpath f one csi | grep -q '^/volumes/csi/one/'
        ceph fs subvolume resize f one 2000000 csi
        ceph fs subvolume info f one csi | jq -e '.bytes_quota == 2000000 and .data_pool == "data" and .state == "complete"'
        ceph fs subvolume snapshot create f one before csi
        ceph fs subvolume snapshot ls f one csi | jq -e 'map(.name) == ["before"]'
        nok ceph fs subvolume rm f one csi
        ceph fs subvolume snapshot rm f one before csi; ceph fs subvolume rm f one csi
        ceph fs subvolume ls f csi | jq -e '. == []'"#;
    sh(&shell, &format!("{tools}{script}"));
}

/// With three monitors: the leader is killed, and the manager goes on with the next one.
#[test]
fn the_manager_outlives_the_leading_monitor() {
    let Some(cluster) = Cluster::start_quorum(3) else { return };
    let shell = cluster.pool("p", 8).within(120);
    let _managers = Managers(shell.clone());
    let said = sh(
        &shell,
        r#"
        mgr_start x; mgr_wait x
        until_true 120 "ceph osd df -f json | jq -e '.nodes | length == 3 and all(.kb > 0)'"
        ceph balancer mode upmap
        leader=$(ceph quorum_status -f json | jq -r .quorum_leader_name)
        kill -9 $(cat $DIR/run/$([ $leader = a ] && echo mon || echo mon.$leader).pid); began=$(date +%s%N)
        until_true 120 "ceph quorum_status -f json | jq -e '.quorum_names | length == 2'"; mgr_wait x
        echo "the manager is active under another leader after $(( ($(date +%s%N) - began) / 1000000 )) ms"
        kill -0 $(cat mgr.x.pid)
        ceph osd df -f json | jq -e '.nodes | length == 3 and all(.kb > 0)' > /dev/null
        ceph balancer status | jq -e '.mode == "upmap"' > /dev/null
        # What it is told is kept, and what it finds reaches the new leader.
        ceph balancer mode none; [ "$(ceph config get mgr mgr/balancer/mode)" = none ]
        ceph osd pool set p pg_num_min 32; ceph osd pool set p pg_autoscale_mode on; ceph config set mgr mgr/pg_autoscaler/sleep_interval 5
        until_true 120 "ceph osd pool get p pg_num -f json | jq -e '.pg_num > 8'"
        # It has not been given up meanwhile: its first epoch as the active one is still its own.
        ceph mgr dump | jq -e '.active_name == "x" and .available'
        ceph osd blocklist ls 2>/dev/null | (! grep -q :)"#,
    );
    eprint!("{said}");
}
