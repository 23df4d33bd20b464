//! `ceph daemon`: each daemon answers at a socket in its cluster's folder, whoever leads; and what an OSD says of its network and its machine.

use nacre_interop::{Cluster, Shell};

/// `asok NAME`: the path of a daemon's socket.
const TOOLS: &str = r#"
asok() { echo $DIR/run/ceph-$1.asok; }
"#;

fn sh(shell: &Shell, script: &str) -> String {
    shell.sh(&format!("{TOOLS}{script}"))
}

#[test]
fn daemons_answer_at_their_sockets() {
    let Some(cluster) = Cluster::start_processes(2) else { return };
    let shell = cluster.pool("p", 1).within(120);
    sh(
        &shell,
        r#"
        # By name, by path, and as the older form of it; each only for its owner.
        [ $(ceph daemon osd.0 status | jq -r '.state, .whoami' | tr '\n' ' ' | tr -d ' ') = active0 ]
        [ $(ceph daemon $(asok osd.1) status | jq .whoami) = 1 ]
        [ $(ceph --admin-daemon $(asok osd.1) version | jq -r .release) = pacific ]
        for name in osd.0 osd.1 mon.a; do [ $(stat -c %a $(asok $name)) = 600 ]; done
        for name in osd.0 mon.a; do ceph daemon $name help | jq -e 'has("help") and has("config show")'; done
        ceph daemon osd.0 perf schema | jq -e '.osd.op.type'; ceph daemon osd.0 dump_ops_in_flight | jq -e .num_ops
        ceph daemon osd.0 dump_historic_ops | jq -e .ops; ceph daemon osd.0 flush_pg_stats | jq -e '. > 0'

        # Counters count, by either way the same ones.
        ops() { ceph $1 osd.0 perf dump | jq .osd.op; }
        primary=$(ceph osd map p x -f json | jq .acting_primary)
        ceph daemon osd.$primary perf dump | jq .osd.op_w > before
        for n in $(seq 10); do echo $n | rados -p p put x -; done
        [ $(ceph daemon osd.$primary perf dump | jq .osd.op_w) -ge $(($(cat before) + 10)) ]
        [ $(ceph tell osd.$primary perf dump | jq .osd.op_w) = $(ceph daemon osd.$primary perf dump | jq .osd.op_w) ]

        # An option is set for this daemon alone; what is wrong is said.
        ceph daemon osd.0 config set osd_max_backfills 2
        [ $(ceph tell osd.0 config get osd_max_backfills | jq -r .osd_max_backfills) = 2 ]
        [ $(ceph daemon osd.1 config get osd_max_backfills | jq -r .osd_max_backfills) = 3 ]
        ceph daemon osd.0 config diff | jq -e '.diff.osd_max_backfills.final == "2"'
        ceph daemon osd.0 config get nonsense | grep -q 'ERROR: (2) No such file or directory'
        ceph daemon osd.0 config set osd_max_backfills many | grep -q 'ERROR: (22) Invalid argument'

        # The monitor: itself, its clients, its options.
        ceph daemon mon.a mon_status | jq -e '.name == "a" and .state == "leader" and .quorum == [0]'
        ceph daemon mon.a quorum_status | jq -e '.quorum_names == ["a"]'
        ceph daemon mon.a sessions | jq -e 'map(.entity_name) | index("osd.0") != null'
        [ $(ceph daemon mon.a config get mon_allow_pool_delete | jq -r .mon_allow_pool_delete) = false ]
        ceph config set mon.a mon_allow_pool_delete true
        [ $(ceph tell mon.a config get mon_allow_pool_delete | jq -r .mon_allow_pool_delete) = true ]
        ceph daemon mon.a config diff | jq -e '.diff.mon_allow_pool_delete == {"default": "false", "final": "true"}'
        ceph daemon mon.a config show | jq -e '.osd_heartbeat_grace == "7"'
        nok ceph daemon mon.a osd tree"#,
    );
    sh(
        &shell,
        r#"
        # Who connects and says nothing, or half of it, is in nobody's way.
        cat > silent.py << 'END'
import os, socket, sys, time
all = []
for n in range(6):
    for name in ("osd.0", "mon.a"):
        s = socket.socket(socket.AF_UNIX); s.connect("%s/run/ceph-%s.asok" % (os.environ["DIR"], name)); s.send(b'{"prefix'); all.append(s)
print("there", flush=True); time.sleep(60)
END
        /usr/bin/python3 silent.py > silent.out & silent=$!
        until_true 60 'grep -q there silent.out'
        ceph daemon osd.0 status > /dev/null; ceph daemon mon.a mon_status > /dev/null
        echo x | timeout 60 rados -p p put y -; ceph -s > /dev/null; kill $silent

        # What a killed daemon leaves is replaced; one that is stopped leaves nothing.
        pid=$(cat $DIR/run/osd.1.pid); mapfile -d '' -t line < /proc/$pid/cmdline
        kill -9 $pid; until_true 60 "! kill -0 $pid"; [ -S $(asok osd.1) ]; nok ceph daemon osd.1 status
        setsid "${line[@]}" >> $DIR/log/again.log 2>&1 < /dev/null &
        until_true 60 'ceph daemon osd.1 status | jq -e ".state == \"active\""'
        kill $(cat $DIR/run/osd.1.pid); until_true 60 "[ ! -e $(asok osd.1) ]"
        [ -S $(asok osd.0) ]"#,
    );
}

#[test]
fn an_osd_says_how_long_pings_take_and_what_its_machine_is() {
    let Some(cluster) = Cluster::start_processes(2) else { return };
    // Before a minute has passed, which is two seconds below.
    sh(&cluster.shell(), "ceph tell osd.0 dump_osd_network 0 | jq -e '.entries == [] and .threshold == 0'");
    let shell = cluster.pool("p", 1).within(120);
    sh(
        &shell,
        r#"
        for n in 0 1; do
          ceph osd metadata $n | jq -e '.arch and .cpu and .kernel_version and .kernel_description and .distro and .mem_total_kb and
            .mem_swap_kb and .back_addr and .front_addr and .hb_back_addr and .hb_front_addr and .osd_data and .rotational'
        done
        [ "$(ceph osd metadata 0 | jq -r .kernel_version)" = "$(uname -r)" ]
        [ $(ceph osd metadata 0 | jq -r .mem_total_kb) = $(awk '/^MemTotal/ {print $2}' /proc/meminfo) ]

        # What the device says of its health, or why it says nothing; under the device's id, as `ceph device ls` has it.
        ceph tell osd.0 smart > smart.json
        device=$(ceph osd metadata 0 | jq -r '.device_ids // "" | split(",")[0] | split("=")[1] // ""')
        if [ -n "$device" ]; then
          jq -e --arg id "$device" '.[$id] | .device or (.error == "smartctl failed" and .smartctl_error_code < 0)' smart.json
          nok ceph tell osd.0 smart no-such-device
        fi

        ceph config set osd debug_heartbeat_testing_span 2
        until_true 60 'ceph tell osd.0 dump_osd_network 0 | jq -e ".entries | length == 2"'
        ceph daemon osd.0 dump_osd_network 0 | jq -e '.entries | map(.interface) | sort == ["back", "front"]'
        ceph daemon osd.0 dump_osd_network 0 | jq -e '.entries | all(."from osd" == 0 and ."to osd" == 1 and .last > 0 and (.stale | not) and
          .min."1min" > 0 and .min."15min" <= .average."15min" and .average."15min" <= .max."15min")'
        # None is slow; one that is stopped for a moment is.
        until_true 60 'ceph tell osd.0 dump_osd_network | jq -e ".threshold == 350 and .entries == []"'
        nok ceph tell osd.0 dump_osd_network much
        stopped=$(cat $DIR/run/osd.1.pid)
        (while true; do kill -STOP $stopped; sleep 0.9; kill -CONT $stopped; sleep 0.2; done) & stops=$!
        until_true 60 'ceph tell osd.0 dump_osd_network 200 | jq -e ".entries | map(.max.\"15min\") | max > 200"'
        kill $stops; kill -CONT $stopped

        # What is slow by the options is a warning, and none when they say otherwise.
        ceph config set global mon_warn_on_slow_ping_time 0.001
        until_true 60 'ceph health detail | grep "OSD_SLOW_PING_TIME_BACK: Slow OSD heartbeats on back (longest"'
        ceph health detail | grep -q 'Slow OSD heartbeats on front from osd.[01] to osd.[01] [0-9.]* msec'
        ceph config set global mon_warn_on_slow_ping_time 100000
        until_true 60 '! ceph health detail | grep SLOW_PING'"#,
    );
}
