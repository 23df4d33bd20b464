//! docs/runbooks/lost-objects.md with the stock `ceph`: what an operator does when copies are gone, and what is refused before it is time.

use nacre_interop::{Cluster, Shell};

/// Begins every script: hands for OSDs, and for what must be refused and why.
const HANDS: &str = r#"
    declare -A LINE
    pause() { sleep 0.1; }
    # Tries again for 30 s, or for as many tenths of a second as TRIES says.
    until_() { for try in $(seq ${TRIES:-300}); do "$@" && return; pause; done; echo "never: $*"; ceph -s; ceph health detail; return 1; }
    count() { ceph osd stat -f json | jq .num_up_osds; }
    is_up() { [ $(count) = $1 ]; }
    is_gone() { [ ! -e /proc/$1 ]; }
    stop() {
        local was=$(count) pid=$(cat $DIR/run/osd.$1.pid)
        LINE[$1]=$(tr '\0' ' ' < /proc/$pid/cmdline)
        kill $pid; until_ is_gone $pid; until_ is_up $((was - 1))
    }
    start() { local was=$(count); setsid ${LINE[$1]} >> $DIR/log/osd.$1.log 2>&1 < /dev/null & until_ is_up $((was + 1)); }
    states() { ceph pg dump pgs -f json 2>/dev/null | jq -r '(.pg_stats? // .)[] | .state'; }
    is_state() { states | grep -qE "$1"; }
    state() { TRIES=600 until_ is_state "$1"; }
    refused() {
        local text=$1; shift
        if SAID=$("$@" 2>&1); then echo "should have been refused: $*"; exit 1; fi
        grep -q -- "$text" <<< "$SAID" || { echo "$*: $SAID"; exit 1; }
    }
    PG=$(ceph pg dump pgs -f json 2>/dev/null | jq -r '(.pg_stats? // .)[0].pgid')
"#;

fn sh(shell: &Shell, script: &str) -> String {
    shell.within(240).sh(&format!("{HANDS}{script}"))
}

/// osd.0 alone has the newest version of "log" and all of "new"; osd.1 knows of both, and osd.0 goes.
const UNFOUND: &str = r#"
    ceph osd pool set $POOL size 2; ceph osd pool set $POOL min_size 1; state '^active\+clean$'
    put() { printf %s "$2" | rados -p $POOL put $1 -; }
    get() { rados -p $POOL get $1 -; }
    put log before; put other whole
    refused 'yes-i-really-mean-it' ceph osd lost 0
    refused 'not down' ceph osd lost 0 --yes-i-really-mean-it
    ceph pg $PG mark_unfound_lost delete 2>&1 | grep -q 'no unfound'
    refused '' ceph pg $PG mark_unfound_lost keep

    ceph osd set norecover
    stop 1; put log after; put new after
    start 1; state 'active.*degraded'; stop 0
    ceph osd unset norecover
    # A client that wants one of them waits.
    get log > waited & WAITS=$!
    unfound() { ceph pg $PG list_unfound | jq -c '[.num_unfound, ([.objects[].oid.oid] | sort)]'; }
    are_unfound() { [ "$(unfound)" = '[2,["log","new"]]' ]; }
    until_ are_unfound
    in_health() { ceph health detail > health; grep -q "pg $PG has 2 unfound objects" health; }
    until_ in_health
    kill -0 $WAITS
    ceph pg $PG list_unfound | jq -e '.objects[] | select(.oid.oid == "new") | .have == "0'"'"'0" and .locations == []' > /dev/null
    [ "$(get other)" = whole ]

    # osd.0 may come back, until somebody says that it does not.
    refused 'osd.0' ceph pg $PG mark_unfound_lost revert
    refused 'osd.0' ceph pg $PG mark_unfound_lost delete
    are_unfound
    ceph osd lost 0 --yes-i-really-mean-it
    sleep 1; until_ are_unfound
"#;

/// What has been given up stays so when the OSD comes back with what it had.
const BACK: &str = r#"
    [ "$(unfound)" = '[0,[]]' ]; state '^active\+undersized'
    nok grep -q unfound <(ceph health detail)
    start 0; state '^active\+clean$'
    ceph pg deep-scrub $PG; [ "$(get other)" = whole ]; nok get new; put new again; [ "$(get new)" = again ]
"#;

#[test]
fn unfound_objects_go_back_to_the_version_before() {
    let Some(cluster) = Cluster::start_processes(2) else { return };
    let shell = cluster.pool("revert", 1);
    let script = r#"
    ceph pg $PG mark_unfound_lost revert 2>&1 | grep -q '2 unfound objects are marked lost'
    wait $WAITS; [ "$(cat waited)" = before ]
    nok get new; [ "$(get log)" = before ]
    put log later; [ "$(get log)" = later ]
"#;
    sh(&shell, &format!("{UNFOUND}{script}{BACK}[ \"$(get log)\" = later ]"));
}

#[test]
fn unfound_objects_are_deleted() {
    let Some(cluster) = Cluster::start_processes(2) else { return };
    let shell = cluster.pool("delete", 1);
    let script = r#"
    ceph pg $PG mark_unfound_lost delete 2>&1 | grep -q '2 unfound objects are marked lost'
    nok wait $WAITS
    nok get new; nok get log
    [ "$(rados -p $POOL ls)" = other ]
"#;
    sh(&shell, &format!("{UNFOUND}{script}{BACK}nok get log"));
}

#[test]
fn a_group_whose_copies_are_all_gone_is_made_anew() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("anew", 1);
    sh(
        &shell,
        r#"
    ceph osd pool set $POOL size 2; ceph osd pool set $POOL min_size 1
    acting() { ceph pg map $PG -f json | jq -r '.acting | join(" ")'; }
    two() { [ $(acting | wc -w) = 2 ]; }
    until_ two; state '^active\+clean$'
    rados -p $POOL put old /etc/hostname
    refused 'is active' ceph osd force-create-pg $PG
    refused 'is active' ceph osd force-create-pg $PG --yes-i-really-mean-it
    GONE=$(acting)
    for osd in $GONE; do ceph osd set-group noin $osd 2>/dev/null || true; stop $osd; done
    ceph osd out $GONE
    state 'stale|down|incomplete|unknown' # who never had a copy does not know of it
    refused 'yes-i-really-mean-it' ceph osd force-create-pg $PG
    refused 'pg' ceph osd force-create-pg 77.0 --yes-i-really-mean-it
    for osd in $GONE; do ceph osd lost $osd --yes-i-really-mean-it; done
    sleep 2; nok grep -q '^active' <(states)
    ceph osd force-create-pg $PG --yes-i-really-mean-it
    state '^active'
    [ -z "$(rados -p $POOL ls)" ]
    rados -p $POOL put new /etc/hostname; rados -p $POOL get new - | cmp - /etc/hostname
    grep -q force-create-pg $DIR/mon/audit.log

    # What comes back holds a PG that is no more.
    for osd in $GONE; do start $osd; ceph osd unset-group noin $osd 2>/dev/null || true; ceph osd in $osd; done
    until_ two; state '^active\+clean$'
    [ "$(rados -p $POOL ls)" = new ]; rados -p $POOL get new - | cmp - /etc/hostname
    ceph pg deep-scrub $PG; nok rados -p $POOL get old -"#,
    );
}
