//! The exams of several monitors (`test/quorum-exams`) in their short form, and what operators see of each monitor.

#![allow(clippy::print_stderr, reason = "what was measured is to be read, also where a bar is missed")]

use nacre_interop::Cluster;
use std::process::Command;

/// Takes some exams in their short form. A bar that the machine misses is printed, for it has other work, too; what is wrong fails.
fn exams(names: &[&str]) {
    if std::env::var_os("NACRE_TEST_CEPH").is_some() {
        return;
    }
    let binary = nacre_interop::binary();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../test/quorum-exams");
    let ran = Command::new(script).arg("--short").args(names).env("NACRE_BIN", binary).output();
    let ran = ran.expect("the exams can be started");
    let said = String::from_utf8_lossy(&ran.stdout);
    eprint!("{said}");
    let code = ran.status.code();
    assert!(matches!(code, Some(0 | 2)), "{code:?}\n{said}\n{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn the_leader_is_killed_alone_and_with_an_osd() {
    exams(&["Q1", "Q2"]);
}

#[test]
#[ignore = "takes half a minute; test/quorum-exams takes it by hand"]
fn monitors_are_frozen_killed_and_fail() {
    exams(&["Q3", "Q5", "Q7"]);
}

#[test]
#[ignore = "takes half a minute; test/quorum-exams takes it by hand"]
fn all_monitors_are_killed_and_flags_stay() {
    exams(&["Q8", "Q14"]);
}

#[test]
#[ignore = "takes half a minute; test/quorum-exams takes it by hand"]
fn sessions_come_back_and_two_of_five_may_be_dead() {
    exams(&["Q9", "Q15"]);
}

/// `tell` is answered by the monitor that is asked, also when it is alone, and stock `ceph` refuses what it does not know.
#[test]
fn each_monitor_answers_for_itself_also_when_it_is_alone() {
    let Some(cluster) = Cluster::start_quorum(1) else { return };
    let shell = cluster.shell();
    shell.within(120).sh(r#"
        told() { ceph tell mon.$1 mon_status -f json; }
        for mon in a b c; do [ "$(told $mon | jq -r .name)" = $mon ]; done
        # On a busy machine another one may just have been elected.
        states() { for mon in a b c; do told $mon | jq -r .state; done | sort | tr '\n' ' '; }
        until_true 30 '[ "$(states)" = "leader peon peon " ] && [ $(told c | jq -c .quorum) = "[0,1,2]" ]'
        [ "$(ceph tell mon.b version | jq -r .release)" = pacific ]
        ceph tell mon.b quorum_status | jq -e '.quorum_leader_name | length == 1'
        ceph tell mon.c sessions | jq -e 'map(.entity_name) | index("client.admin") != null'
        nok ceph tell mon.b osd tree
        ceph mon metadata | jq -e 'map(select(.hostname and .kernel_version and .mem_total_kb and .addrs)) | length == 3'
        ceph mon versions | jq -e 'to_entries == [{"key": (keys[0]), "value": 3}] and (keys[0] | startswith("ceph version 16"))'
        ceph versions | jq -e '.mon | to_entries[0].value == 3'

        # Two are killed. Whoever is left answers for itself although nobody leads, through a session that is open, and a new one.
        cat > alone.py << 'END'
import json, os, rados, signal, subprocess, time
DIR = os.environ['DIR']
cluster = rados.Rados(conffile=''); cluster.connect()
def tell(mon, **command):
    return cluster.mon_command(json.dumps(dict(command, format='json')), b'', 20, mon)
for daemon in ('mon', 'mon.b'): os.kill(int(open('%s/run/%s.pid' % (DIR, daemon)).read()), signal.SIGKILL)
end = time.monotonic() + 30
def status_of_c():
    code, out, text = tell('c', prefix='mon_status')
    assert code == 0, (code, text)
    return json.loads(out)
while (status := status_of_c())['state'] != 'probing': assert time.monotonic() < end, status
# That answer may have waited for what became of the leader; these begin when it is known that there is none. A busy machine stretches some.
took = 3
for attempt in range(5):
    began = time.monotonic()
    status = status_of_c()
    took = min(took, time.monotonic() - began)
assert status['state'] == 'probing' and status['quorum'] == [] and status['election_epoch'] % 2 == 1 and status['rank'] == 2, status
assert took < 3, 'a new session waits two seconds for a leader, this one %.2f s' % took
print('answered without a leader after %.2f s' % took, flush=True)
os._exit(0)
END
        lines() { tr '\0' '\n' < /proc/$(cat $DIR/run/$1.pid)/cmdline; }
        mapfile -t a < <(lines mon); mapfile -t b < <(lines mon.b)
        /usr/bin/python3 alone.py
        # So it does at its admin socket, for which nobody needs a session.
        ceph daemon mon.c mon_status | jq -e '.name == "c" and .state == "probing" and .quorum == [] and .rank == 2'
        for line in a b; do
            declare -n words=$line
            setsid "${words[@]}" >> $DIR/log/again.log 2>&1 < /dev/null &
        done
        until_true 60 '[ "$(timeout 20 ceph quorum_status | jq ".quorum | length")" = 3 ]'"#);
}

/// The room of a monitor's file system is measured: with little there is a warning, with less an error, and no start.
#[test]
fn a_monitor_without_room_warns_and_does_not_start() {
    let Some(cluster) = Cluster::start_quorum(1) else { return };
    let shell = cluster.shell();
    shell.within(120).sh(r#"
        free() { df --output=avail,size $DIR | tail -1 | awk '{print int($1 * 100 / $2)}'; }
        # What is said lies between what is free before and after, or one below: other tests take room and give it back.
        measured() {
            local before=$(free) said=$(ceph health detail | sed -n 's/.*mon\.b has \([0-9]*\)% avail.*/\1/p') after=$(free)
            [ $said -ge $(((before < after ? before : after) - 1)) ] && [ $said -le $(((before > after ? before : after) + 1)) ]
        }
        for mon in a b c; do
            ceph config set mon.$mon mon_data_avail_crit 0; ceph config set mon.$mon mon_data_avail_warn 0
        done
        check() { until_true 30 "ceph health detail | grep -q '$1'" || { ceph health detail; return 1; }; }
        ceph config set mon.b mon_data_avail_warn 100
        check 'MON_DISK_LOW.*mon b is low on available space'
        until_true 60 measured
        ceph config set mon.b mon_data_avail_crit 100
        check 'MON_DISK_CRIT.*mon b is very low on available space'
        mapfile -t line < <(tr '\0' '\n' < /proc/$(cat $DIR/run/mon.b.pid)/cmdline)
        # That the change is committed it hears with the leader's next message.
        until_true 30 '[ "$(ceph tell mon.b config get mon_data_avail_crit | jq -r .mon_data_avail_crit)" = 100 ]'
        kill $(cat $DIR/run/mon.b.pid); until_true 60 "[ ! -e $DIR/run/mon.b.pid ]"
        nok timeout 20 "${line[@]}"
        { "${line[@]}" 2>&1 || true; } | grep -q 'of its room left.*make room there'"#);
}
