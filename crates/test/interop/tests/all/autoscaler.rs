//! The autoscaler of our own manager, as stock programs see it: pools get other numbers of PGs by themselves.

use nacre_interop::Cluster;

#[test]
fn pools_get_the_pgs_that_they_should_have() {
    if std::env::var_os("NACRE_TEST_CEPH").is_some() {
        return;
    }
    let cluster = Cluster::start(3);
    let shell = cluster.shell().within(240);
    shell.sh(r#"
        row() { ceph osd pool autoscale-status --format json | jq -c ".[] | select(.pool_name == \"$1\")"; }
        numbers() { ceph osd dump -f json | jq -c ".pools[] | select(.pool_name == \"$1\") | [.pg_num, .pg_placement_num, .pg_num_target]"; }
        ceph osd pool create small 4 --pg-num-max 16 --autoscale-mode on; ceph osd pool create still 4 --autoscale-mode off
        ceph osd pool create told 4 --autoscale-mode warn
        ceph osd pool create big --bulk --autoscale-mode on
        [ "$(numbers small)$(numbers still)" = '[4,4,4][4,4,4]' ]
        row small | jq -e '.pg_num_final == 16 and .would_adjust and .pg_num_target == 4 and .raw_used_rate == 3 and .bias == 1 and (.bulk | not)'
        row still | jq -e '.pg_num_final == 32 and (.would_adjust | not) and .pg_autoscale_mode == "off"'
        row big | jq -e '.bulk and .subtree_capacity > 2000000000'
        ceph osd pool autoscale-status > table; cat table
        head -1 table | grep -q 'POOL  *SIZE  *TARGET SIZE  *RATE  *RAW CAPACITY  *RATIO  *TARGET RATIO  *EFFECTIVE RATIO  *BIAS  *PG_NUM  *NEW PG_NUM  *AUTOSCALE  *BULK'
        grep -Eq '^small .* 4  +16  +on  +False' table
        ceph health detail > health; grep -q 'Pool told has 4 placement groups, should have 32' health; grep -q POOL_TOO_FEW_PGS health
        ceph osd getmap -o map; osdmaptool map --dump json | jq -e '[.pools[] | select(.flags_names | split(",") | index("bulk"))] | length == 1 and .[0].pool_name == "big"'
        for n in $(seq 60); do head -c 100000 /dev/urandom > o$n; rados -p small put o$n o$n; rados -p still put o$n o$n; done

        # By itself, while clients read and write.
        ceph config set mgr mgr/pg_autoscaler/sleep_interval 1
        until_true 120 '[ "$(numbers small)" = "[16,16,16]" ]'
        [ "$(numbers still)$(numbers told)" = '[4,4,4][4,4,4]' ]
        row small | jq -e '.would_adjust | not'
        until_true 60 "ceph status -f json | jq -e '.pgmap.pgs_by_state | length == 1 and .[0].state_name == \"active+clean\"'"
        for n in $(seq 60); do rados -p small get o$n got; cmp o$n got; rados -p still get o$n got; cmp o$n got; done
        [ $(rados -p small ls | wc -l) = 60 ]
        ceph log last 100 info cluster | grep -q "autoscaler: pool 'small' goes from 4 to 16 PGs"

        # An expected share, and back: PGs are merged.
        ceph osd pool set told pg_autoscale_mode on
        until_true 60 '[ "$(numbers told)" = "[32,32,32]" ]'
        in_time 10 'ceph health detail > health; ! grep -q POOL_TOO_FEW_PGS health'
        ceph osd pool set small pg_num_max 5; ceph osd pool get small pg_num_max | grep -q 5
        until_true 120 '[ "$(numbers small)" = "[5,5,5]" ]'
        until_true 60 "ceph status -f json | jq -e '.pgmap.pgs_by_state | length == 1 and .[0].state_name == \"active+clean\"'"
        for n in $(seq 60); do rados -p small get o$n got; cmp o$n got; done

        # What cannot be done is said.
        ceph osd erasure-code-profile set coded k=2 m=1 crush-failure-domain=osd
        ceph osd pool create coded 8 8 erasure coded --autoscale-mode off; rados -p coded put o1 o1
        ceph osd pool set coded nopgchange true; ceph osd pool set coded pg_num_max 4; ceph osd pool set coded pg_autoscale_mode on
        row coded | jq -e '.would_adjust and .pg_num_final == 4 and .raw_used_rate == 1.5'
        ceph osd pool autoscale-status 2> said > table; grep -q "pool 'coded' keeps its PGs: the pool's flag nopgchange forbids" said
        sleep 3; [ "$(numbers coded)" = '[8,8,8]' ]
        ceph osd pool set coded nopgchange false; until_true 120 '[ "$(numbers coded)" = "[4,4,4]" ]'
        rados -p coded get o1 got; cmp o1 got

        ceph osd pool get noautoscale 2>&1 | grep -q 'noautoscale is off'
        ceph osd pool set noautoscale
        ceph osd dump -f json | jq -e '.pools | all(.pg_autoscale_mode == "off")'
        [ "$(ceph config get mon osd_pool_default_pg_autoscale_mode)" = off ]
        nok ceph osd pool set small pg_autoscale_mode on
        ceph osd pool unset noautoscale
        ceph osd dump -f json | jq -e '.pools | all(.pg_autoscale_mode == "on")'"#);
}
