//! The balancer of our own manager: copies of PGs come to lie evenly by themselves, where stock programs see them.

#![allow(clippy::print_stderr, reason = "what was measured is to be read")]

use nacre_interop::Cluster;

#[test]
fn copies_come_to_lie_evenly_by_themselves() {
    if std::env::var_os("NACRE_TEST_CEPH").is_some() {
        return;
    }
    let cluster = Cluster::start(5);
    let shell = cluster.shell().within(100);
    shell.sh(r#"
        ceph balancer status | jq -e '.active and .mode == "upmap"'
        ceph balancer off; ceph balancer status | jq -e '.active | not'
        ceph config set mgr mgr/balancer/sleep_interval 1
        nok ceph config set mgr mgr/balancer/sleep_interval 0
        nok ceph config set mgr mgr/balancer/mode crush-compat
        nok ceph balancer mode crush-compat
        ceph osd pool create even 32 32; ceph osd pool set even size 2
        for osd in 0 1 2 3; do ceph osd crush reweight osd.$osd 1; done; ceph osd crush reweight osd.4 2
        for n in $(seq 40); do head -c 300000 /dev/urandom > o$n; rados -p even put o$n o$n; done
        until_true 60 "ceph status -f json | jq -e '.pgmap.pgs_by_state | length == 1 and .[0].state_name == \"active+clean\"'"
        sleep 3; ceph osd dump -f json | jq -e '.pg_upmap_items == []'
        ceph balancer eval | grep -q 'current cluster score'
        ceph balancer eval -f json > before; jq -e '.count_deviation >= 1' before

        ceph balancer on
        until_true 60 "ceph balancer eval -f json | jq -e '.count_deviation < 1'"
        until_true 60 "ceph status -f json | jq -e '.pgmap.pgs_by_state | length == 1 and .[0].state_name == \"active+clean\"'"
        ceph osd dump -f json | jq -e '.pg_upmap_items | length > 0'
        # Ceph's own tool counts, by the map: what each OSD should have, to within one.
        ceph osd getmap -o map
        pool=$(ceph osd pool ls detail -f json | jq '.[] | select(.pool_name == "even") | .pool_id')
        osdmaptool map --test-map-pgs --pool $pool > counted
        total=$(ceph osd tree -f json | jq '[.nodes[] | select(.type == "osd") | .crush_weight] | add')
        for osd in 0 1 2 3 4; do
          count=$(awk -v osd=osd.$osd '$1 == osd { print $2 }' counted)
          weight=$(ceph osd tree -f json | jq ".nodes[] | select(.name == \"osd.$osd\") | .crush_weight")
          # No OSD takes more than one copy of a PG.
          python3 -c "
w, t, count = $weight, $total, $count
want = min(32, 64 * w / t) if w == 2 else (64 - min(32, 64 * 2 / t)) / 4
assert abs(count - want) < 1, ('osd.$osd', count, want)"
        done
        for n in $(seq 40); do rados -p even get o$n got; cmp o$n got; done
        ceph log last 100 info cluster | grep -q 'balancer: .* copies of PGs move'
        [ "$(ceph config get mgr mgr/balancer/active)" = true ]

        # Nothing goes back and forth.
        was=$(ceph osd dump -f json | jq -c .pg_upmap_items); sleep 4
        [ "$(ceph osd dump -f json | jq -c .pg_upmap_items)" = "$was" ]
        ceph balancer status | jq -e '.optimize_result | length > 0'"#);
}

/// By Ceph's own tool, too.
#[test]
fn primaries_come_to_be_even_but_for_those_of_an_operator() {
    if std::env::var_os("NACRE_TEST_CEPH").is_some() {
        return;
    }
    let cluster = Cluster::start(4);
    let shell = cluster.shell().within(100);
    shell.sh(r#"
        is_clean() { ceph status -f json | jq -e '.pgmap.pgs_by_state | length == 1 and .[0].state_name == "active+clean"'; }
        are_even() { ceph balancer eval -f json | jq -e '.primaries_deviation < 2'; }
        affinities() { ceph osd dump -f json | jq -c "[.osds[].primary_affinity] | $1"; }
        ceph balancer off; ceph config set mgr mgr/balancer/sleep_interval 1
        ceph osd pool create even 32 32
        until_true 60 is_clean
        # An operator has his way, then and later.
        ceph osd primary-affinity osd.1 0.5
        ceph balancer on
        until_true 60 'is_clean && are_even'
        ceph balancer eval | grep -q 'times its share of primaries'
        affinities '.[1] == 0.5' | grep true
        pool=$(ceph osd pool ls detail -f json | jq '.[] | select(.pool_name == "even") | .pool_id')
        same() {
          ceph osd getmap -o map; osdmaptool map --test-map-pgs --pool $pool > counted
          ceph pg dump pgs -f json | jq '[.. | objects | select(has("pgid")) | select(.pgid | startswith("'$pool'."))]' > pgs
          for osd in 0 1 2 3; do
            leads=$(jq "[.[] | select(.up_primary == $osd)] | length" pgs)
            [ "$(awk -v osd=osd.$osd '$1 == osd { print $4 }' counted)" = "$leads" ] || return 1
          done
        }
        until_true 20 same
        # Nobody wants it any more: what was set is taken back, one OSD at a time.
        ceph config set mgr mgr/balancer/primaries false
        until_true 30 "affinities '. == [1, 0.5, 1, 1]' | grep true""#);
}

/// The exam of milestone 10: OSDs of many sizes, the fullest of which has 90 %, come to be filled as evenly as PGs and copies allow, and
/// none is full meanwhile.
#[test]
#[ignore = "some minutes, and 7 GiB of disk"]
fn osds_of_many_sizes_that_are_nearly_full_are_evened_without_a_full_one() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    eprintln!("{}", cluster.shell().within(900).python(include_str!("nearly_full.py")));
}
