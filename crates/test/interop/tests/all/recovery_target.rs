//! `nacre recovery`: what clients may feel of recovery, and when it will have ended.

use nacre_interop::Cluster;

/// With clients beside it, recovery counts the seconds, and those in which it kept to the target: all of them where writes may take a
/// minute; none at all where there is no target. `ceph -s` shows how far it is.
#[test]
fn recovery_keeps_to_the_target_that_is_set_and_says_how_far_it_is() {
    let Some(cluster) = Cluster::start_processes(4) else { return };
    let script = concat!(
        include_str!("kills.sh"),
        r#"
        ceph balancer off
        ceph osd pool create data 32; ceph osd pool application enable data rados; wait clean
        recovery() { $NACRE recovery "$@" --dir $DIR; }
        recovery target | grep -qx 'p99=10ms, or 2 times what clients. writes take while nothing is recovered, if that is more'
        recovery status | grep -qx 'nothing is being recovered'
        (recovery target p99=5 2>&1 || true) | grep -q 'a target is 0.1ms to 60s'
        recovery target p99=3x | grep -q '^p99=3x'; recovery target | grep -q '^p99=3x'
        head -c 1M /dev/urandom > m; for n in $(seq 120); do rados -p data put m$n m; done
        sum() { for id in 0 1 2; do ceph tell osd.$id perf dump | jq .osd.$1; done | jq -s add; }
        # An OSD goes and comes while clients write.
        move() {
            recovery target $1; multiple=1; [ $1 = off ] && multiple=2
            for id in 0 1 2; do until_true 10 "ceph tell osd.$id config get nacre_recovery_client_latency_calm_multiple | jq -e '.[] == \"$multiple\"'"; done
            sleep 1; before=$(sum nacre_recovery_seconds) kept=$(sum nacre_recovery_seconds_kept)
            rados -p data bench 900 write -b 4096 -t 4 > bench.log & client=$!
            until_true 60 'grep -Eq "^ +[1-9]" bench.log'; ceph osd $2 3; shown= rate= calm=0
            for try in $(seq 600); do
                [ -n "$shown" -a -n "$rate" ] || {
                    ceph -s > s; ! grep -A 1 'Global Recovery Event' s | grep -qE '\[=*\.*\]' || shown=1
                    ! grep -qE 'recovery: [1-9][0-9.]* [KMG]iB/s, [1-9][0-9.]*k? objects/s' s || rate=1
                }
                clean && calm=$((calm + 1)) || calm=0
                [ $calm -lt 15 ] && [ $calm -lt 5 -o -z "$shown" -o -z "$rate" ] || break; sleep 0.1
            done
            kill $client; wait_for $client; wait clean
            seconds=$(($(sum nacre_recovery_seconds) - before)) kept=$(($(sum nacre_recovery_seconds_kept) - kept))
            echo "$1: kept in $kept of $seconds seconds"
        }
        wait_for() { while kill -0 $1 2> /dev/null; do sleep 0.1; done; }
        # As slowly as it ever goes; what writes take without recovery counts if it is more.
        move p99=0.1ms out; [ $seconds -gt 0 ]; [ $kept -le $seconds ]; [ -n "$shown" ]; [ -n "$rate" ]
        move p99=60s in; [ $kept = $seconds ]
        until_true 30 "ceph progress json | jq -e '.events == [] and (.completed | length) >= 2'"
        move off out; [ $seconds = 0 ]
        # What it moved is counted in bytes, too.
        ceph pg dump pgs -f json | jq -e '[.pg_stats[].stat_sum.num_bytes_recovered] | add > 30000000'
        recovery target | grep -q '^off'"#
    );
    cluster.shell().within(200).sh(script);
}
