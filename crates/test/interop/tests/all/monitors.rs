//! Monitors are added, removed, moved, lost and made anew, as processes, with the stock `ceph` tool.

use nacre_interop::{Cluster, Shell};

/// What the scripts share: ports of their own, monitors as processes, and a client that sets and gets a key all the time.
const HEAD: &str = r#"
STARTED=; trap 'kill -9 $STARTED 2>/dev/null || :' EXIT
run_mon() { setsid $NACRE mon --dir $DIR --name $1 >> $DIR/log/mon.$1.log 2>&1 < /dev/null & STARTED="$STARTED $!"; }
pid_of() { cat $DIR/run/$([ $1 = a ] && echo mon || echo mon.$1).pid; }
quorum() { # waits until these are the quorum
    for try in $(seq 200); do
        [ "$(timeout 20 ceph quorum_status -f json | jq -r '.quorum_names | sort | join(",")')" = "$1" ] && return; sleep 0.1
    done
    timeout 20 ceph quorum_status; tail -n 20 $DIR/log/mon*.log; return 1
}
# Sets and gets a key until `stop` is there; writes the longest time that took, less what the machine took, and how often it was done.
cat > commander.py << END
import json, os, rados, sys, time
$STARVED
cluster = rados.Rados(conffile=''); cluster.connect()
def ask(**command):
    code, out, text = cluster.mon_command(json.dumps(command), b'')
    assert code == 0, (command, code, text)
    return out
count, worst = 0, 0
while not os.path.exists('stop'):
    before, began = waited(), time.monotonic()
    ask(prefix='config-key set', key='n', val=str(count)); assert int(ask(prefix='config-key get', key='n')) == count
    count += 1; worst = max(worst, time.monotonic() - began - starved(before))
    if os.path.exists('reset'): os.remove('reset'); worst = 0
    with open('said.new', 'w') as file: print(count, '%.3f' % worst, file=file)
    os.rename('said.new', 'said')
    time.sleep(0.02)
END
command_on() { rm -f stop said; /usr/bin/python3 commander.py > commander.out 2>&1 & COMMANDER=$!; until [ -e said ]; do kill -0 $COMMANDER; sleep 0.1; done; }
command_off() { touch stop; wait $COMMANDER || { cat commander.out; return 1; }; }
forget_pause() { touch reset; while [ -e reset ]; do kill -0 $COMMANDER; sleep 0.05; done; }
# The longest pause so far is at most so many seconds.
paused() { read COUNT WORST < said; echo "$2: longest pause of commands $WORST s"; /usr/bin/python3 -c "assert $WORST <= $1, $WORST"; }
"#;

fn sh(shell: &Shell, script: &str) -> String {
    shell.within(240).with("STARVED", include_str!("starved.py")).sh(&format!("{HEAD}{script}"))
}

/// docs/runbooks/mon-add-remove.md: one monitor becomes three, the first is lost, comes back, and goes.
#[test]
fn a_cluster_of_one_monitor_becomes_one_of_three_and_outlives_the_first() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let said = sh(
        &cluster.shell(),
        r#"
        command_on
        # With the stock tool first, or without it.
        B=$(free_port); ceph mon add b 127.0.0.1:$B
        $NACRE mon join --dir $DIR --name b; run_mon b; quorum a,b
        $NACRE mon join --dir $DIR --name c --addr 127.0.0.1:$(free_port); run_mon c; quorum a,b,c
        ceph mon dump -f json | jq -e '.epoch == 4 and (.mons | map(.name)) == ["a", "b", "c"]'
        ceph config set mon mon_data_avail_warn 0; ceph config set global mon_warn_on_slow_ping_time 100000
        until_true 60 'ceph health | grep HEALTH_OK'
        paused 1 'two monitors were added'
        # ceph.conf tells new clients of all three.
        [ $(grep 'mon host' $DIR/ceph.conf | tr ',' '\n' | wc -l) = 3 ]
        sed "s/^mon host.*/$(grep '^mon host' $DIR/ceph.conf)/" $CEPH_CONF > all.conf; export CEPH_CONF=$PWD/all.conf
        forget_pause; LINE=$(tr '\0' '\n' < /proc/$(pid_of a)/cmdline | tail -n 1)
        kill -9 $(pid_of a); quorum b,c; ceph osd pool create after 1; paused 2 'the first one was killed'
        until_true 30 "ceph health detail | grep 'mon.a (rank 0)'"

        # Its store is lost: it comes back under its name within ten seconds.
        rm -r $DIR/mon; forget_pause; BEGAN=$(date +%s%N)
        $NACRE mon join --dir $DIR --name a; run_mon a; quorum a,b,c
        TOOK=$(( ($(date +%s%N) - BEGAN) / 1000000 )); echo "a lost store was back after $TOOK ms"; [ $TOOK -lt 20000 ]
        paused 1 'a monitor without its store came back'
        ceph mon dump -f json | jq -e '.mons | map(.name) == ["a", "b", "c"]'

        # The leader goes, and then one of the two that are left.
        GONE=$(ceph quorum_status -f json | jq -r .quorum_leader_name); PID=$(pid_of $GONE)
        forget_pause; $NACRE mon rm --dir $DIR --name $GONE; gone $PID
        [ -e $DIR/$([ $GONE = a ] && echo mon || echo mon.$GONE)/removed ]
        [ $(ceph mon stat -f json | jq .num_mons) = 2 ]; paused 2 'the leader was removed'
        nok $NACRE mon --dir $DIR --name $GONE
        OTHER=$(ceph quorum_status -f json | jq -r '.quorum_names[1]'); PID=$(pid_of $OTHER)
        ceph mon rm $OTHER; gone $PID; LAST=$(ceph quorum_status -f json | jq -r '.quorum_names | join(",")'); [ ${#LAST} = 1 ]
        nok ceph mon rm $LAST; ceph mon rm nobody
        command_off; paused 2 'all of it'"#,
    );
    eprint!("{said}");
}

/// Exam Q10. In Ceph a cluster of one stops when a monitor is added that does not run.
#[test]
fn a_monitor_that_does_not_run_stops_nobody() {
    for three in [false, true] {
        let cluster = if three { Cluster::start_quorum(1) } else { Cluster::start_processes(1) };
        let Some(cluster) = cluster else { return };
        let said = sh(
            &cluster.shell(),
            r#"
            command_on; forget_pause
            ceph mon add d 127.0.0.1:1
            sleep 12; until_true 30 "ceph health detail | grep 'mon.d .*is down'"; ceph osd pool create p 1
            command_off; paused 1 'a dead address was added'
            ceph mon ok-to-rm d; ceph mon rm d; until_true 30 'ceph health detail > h && ! grep MON_DOWN h'"#,
        );
        eprint!("{said}");
    }
}

#[test]
fn what_cannot_join_says_why_in_a_line() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let said = sh(
        &cluster.shell(),
        r#"
        refused() { # what it says must have this
            local WANT=$1; shift; if "$@" > refused.out 2>&1; then cat refused.out; return 1; fi
            [ $(wc -l < refused.out) = 1 ]; grep -q "$WANT" refused.out || { cat refused.out; return 1; }
        }
        join() { $NACRE mon join --name z --addr 127.0.0.1:$(free_port) --dir $1; }
        mkdir -m 700 other; refused 'copy it from a machine of the cluster' join other
        cp $DIR/ceph.conf $DIR/keyring other/
        # Another cluster's key, another cluster's monitors, nobody.
        sed 's/key = .*/key = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==/' $DIR/keyring > other/keyring; chmod 600 other/keyring
        refused 'is the key of client.admin' join other; cp $DIR/keyring other/
        sed "s/^fsid = .*/fsid = $(uuidgen)/" $DIR/ceph.conf > other/ceph.conf; refused 'ceph.conf is of cluster' join other
        [ ! -e other/mon.z ]; ceph mon rm z
        refused 'mon.a runs' $NACRE mon join --name a --dir other
        refused 'no name of a monitor' $NACRE mon join --name ../z --dir $DIR
        refused 'holds the store of mon.a' $NACRE mon join --name a --dir $DIR
        refused 'has no mon.z' $NACRE mon --name z --dir $DIR
        kill -STOP $(pid_of a); cp $DIR/ceph.conf other/
        refused 'a majority of them must run' join other; kill -CONT $(pid_of a)
        ceph health"#,
    );
    eprint!("{said}");
}

/// The majority is lost for good, and what one monitor has left is what the cluster goes on with; those that come back all the same are none
/// of it.
#[test]
fn a_cluster_begins_anew_from_the_store_of_one_monitor() {
    let Some(cluster) = Cluster::start_quorum(1) else { return };
    let said = sh(
        &cluster.shell(),
        r#"
        ceph config-key set kept yes; ceph osd pool create kept 1
        for NAME in a b c; do PID=$(pid_of $NAME); kill -9 $PID; gone $PID; done
        mv $DIR/mon.b left; mv $DIR/mon.c old; rm -r $DIR/mon
        # At its old address, where the others look for it.
        PORT=$(grep '^mon host' $DIR/ceph.conf | tr ',' '\n' | sed -n '2s/.*://p')
        $NACRE mon recover --from left --dir $DIR --name b --addr 127.0.0.1:$PORT
        run_mon b
        sed "s/^mon host.*/mon host = v2:127.0.0.1:$PORT/" $CEPH_CONF > b.conf; export CEPH_CONF=$PWD/b.conf
        quorum b; [ $(ceph config-key get kept) = yes ]; ceph osd pool ls | grep kept
        # The one that comes back with its old store ends, and says what to do; then it joins.
        mv old $DIR/mon.c
        if timeout 20 $NACRE mon --dir $DIR --name c > c.out 2>&1; then false; fi; grep -q 'was made anew from another monitor' c.out || { cat c.out; false; }
        rm -r $DIR/mon.c; $NACRE mon join --dir $DIR --name c --addr 127.0.0.1:$(free_port); run_mon c; quorum b,c"#,
    );
    eprint!("{said}");
}

#[test]
fn monitors_move_while_they_run_and_while_they_do_not() {
    let Some(cluster) = Cluster::start_quorum(1) else { return };
    let said = sh(
        &cluster.shell(),
        r#"
        command_on; forget_pause
        TO=$(free_port); $NACRE mon move --dir $DIR --name b 127.0.0.1:$TO
        ceph mon dump -f json | jq -e ".mons[] | select(.name == \"b\") | .public_addr == \"127.0.0.1:$TO/0\""
        sleep 3; quorum a,b,c; paused 1 'a monitor moved'; command_off
        sed "s/^mon host.*/mon host = v2:127.0.0.1:$TO/" $CEPH_CONF > b.conf; CEPH_CONF=$PWD/b.conf ceph mon stat
        # All of them elsewhere.
        A=$(free_port); B=$(free_port); C=$(free_port)
        for NAME in a b c; do PID=$(pid_of $NAME); kill $PID; gone $PID; done
        for NAME in a b c; do $NACRE mon set-addrs --dir $DIR --name $NAME a=127.0.0.1:$A b=127.0.0.1:$B c=127.0.0.1:$C; done
        for NAME in a b c; do run_mon $NAME; done
        sed "s/^mon host.*/$(grep '^mon host' $DIR/ceph.conf)/" $CEPH_CONF > all.conf; export CEPH_CONF=$PWD/all.conf
        quorum a,b,c; [ $(ceph mon dump -f json | jq -r '.mons[2].public_addr') = 127.0.0.1:$C/0 ]"#,
    );
    eprint!("{said}");
}
