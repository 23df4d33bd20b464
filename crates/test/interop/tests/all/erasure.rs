//! Erasure-coded pools under stock programs, with daemons killed meanwhile.

use nacre_interop::Cluster;

const KILLS: &str = include_str!("kills.sh");

/// What scripts begin with: a pool `ec` of two data and `m` parity shards, and hands for the daemons.
fn with_pool(m: u8, script: &str) -> String {
    format!(
        r#"
        ceph osd erasure-code-profile set prof k=2 m={m} crush-failure-domain=osd
        ceph osd pool create ec 8 8 erasure prof; ceph osd pool application enable ec rados
        {KILLS}
        wait clean
        {script}"#
    )
}

#[test]
fn objects_outlive_as_many_osds_as_there_is_parity() {
    let Some(cluster) = Cluster::start_processes(4) else { return };
    let script = with_pool(
        2,
        r#"
        ceph osd pool ls detail -f json | jq -e '.[] | select(.pool_name == "ec") | .type == 3 and .size == 4 and .min_size == 3'
        for size in 0 1 4096 300000 5000000; do
            head -c $size /dev/urandom > in.$size; rados -p ec put o$size in.$size
        done
        check() { for size in 0 1 4096 300000 5000000; do rados -p ec get o$size out; cmp in.$size out; done; }
        check
        [ "$(rados -p ec ls | sort | tr '\n' ' ')" = 'o0 o1 o300000 o4096 o5000000 ' ]
        rados -p ec stat o300000 | grep -q 'size 300000'
        rados -p ec setxattr o1 name value; [ $(rados -p ec getxattr o1 name) = value ]
        nok rados -p ec setomapval o1 key value
        head -c 8192 /dev/urandom > stripe; rados -p ec put grows stripe; rados -p ec append grows stripe
        nok rados -p ec append o1 in.1
        cat stripe stripe > grown; rados -p ec get grows out; cmp grown out

        one=$(line 1) two=$(line 2)
        kill9 1; wait up 3; check
        rados -p ec put o300000 in.4096; rados -p ec rm o4096; rados -p ec put new in.5000000
        cp in.4096 in.300000; rados -p ec put o4096 in.4096; check
        kill9 2; wait up 2
        # It waits for another copy; an error, or content that nobody can know, would be wrong.
        status=0; timeout 5 rados -p ec get new out || status=$?; [ $status = 124 ]
        start "$one"; wait up 3; check; rados -p ec get new out; cmp in.5000000 out
        start "$two"; wait up 4; wait clean; check
        for pg in $(ceph pg ls-by-pool ec -f json | jq -r .pg_stats[].pgid); do ceph pg deep-scrub $pg; done
        sleep 3; wait clean; nok grep -q inconsistent <(ceph health detail)
        kill9 0; wait up 3; kill9 3; wait up 2
        start "$(echo "$one" | sed 's/--id 1/--id 3/')"; wait up 3; check"#,
    );
    cluster.shell().within(300).sh(&script);
}

#[test]
fn profiles_rules_and_what_a_pool_refuses() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let script = with_pool(
        1,
        r#"
        (ceph osd erasure-code-profile rm prof 2>&1 || true) | grep -q "pool 'ec' uses the erasure code profile 'prof'"
        nok ceph osd erasure-code-profile set bad k=2 m=1 plugin=lrc
        nok ceph osd erasure-code-profile set bad k=2 m=1 technique=liberation
        nok ceph osd erasure-code-profile set bad k=22 m=4 plugin=isa
        nok ceph osd erasure-code-profile set prof k=2 m=2 crush-failure-domain=osd
        (ceph osd erasure-code-profile set prof k=2 m=2 crush-failure-domain=osd --force 2>&1 || true) | grep -q 'EBUSY: pool .ec. is coded as'
        ceph osd erasure-code-profile set prof k=2 m=1 crush-failure-domain=osd
        ceph osd erasure-code-profile get prof | grep -qx nacre-parity=ceph
        nok ceph osd pool set ec min_size 1
        nok ceph osd pool create ec 8 8 replicated
        ceph osd crush rule create-erasure rule prof
        ceph osd crush rule dump rule -f json | jq -e '.type == 3 and .steps[3].op == "choose_indep"'
        ceph osd crush rule dump ec -f json | jq -e '.max_size == 3'
        ceph osd pool get ec erasure_code_profile | grep -q prof
        head -c 300000 /dev/urandom > in; rados -p ec put o in
        ceph osd pool set ec pg_num 16; ceph osd pool set ec pgp_num 16; wait clean; rados -p ec get o out; cmp in out
        rados -p ec mksnap s; rados -p ec put o /etc/hostname
        rados -p ec -s s get o out; cmp in out
        rados -p ec rollback o s; rados -p ec get o out; cmp in out
        rados -p ec cp o copy; rados -p ec get copy out; cmp in out
        rados -p ec bench 2 write -b 65536 --no-cleanup > /dev/null; rados -p ec bench 2 seq > /dev/null
        ceph osd pool rm ec ec --yes-i-really-really-mean-it; ceph osd erasure-code-profile rm prof"#,
    );
    let shell = cluster.shell();
    shell.sh("ceph config set mon mon_allow_pool_delete true");
    shell.within(240).sh(&script);
}

/// Copies of two PGs on the same OSDs, but of other shards since one PG was elsewhere for a while, become one; and many become few.
#[test]
fn a_pool_gets_fewer_pgs_whatever_shards_osds_hold_of_them() {
    let Some(cluster) = Cluster::start_processes(4) else { return };
    let script = with_pool(
        1,
        r#"
        ceph balancer off
        numbers() { [ "$(ceph osd pool ls detail -f json | jq -c '.[] | select(.pool_name == "ec") | [.pg_num, .pg_placement_num]')" = "[$1,$1]" ]; }
        ceph osd pool set ec allow_ec_overwrites true
        ceph osd pool set ec pg_num 1; wait numbers 1; wait clean
        ceph osd pool set ec pg_num 2; ceph osd pool set ec pgp_num 1; wait eval '[ $(ceph osd pool get ec pg_num -f json | jq .pg_num) = 2 ]'; wait clean
        pool=$(ceph osd pool ls detail -f json | jq '.[] | select(.pool_name == "ec") | .pool_id')
        acting() { ceph pg map $pool.$1 -f json | jq -c .acting; }
        [ $(acting 0) = $(acting 1) ]
        for n in $(seq 30); do head -c $((n * 3001)) /dev/urandom > in.$n; rados -p ec put o$n in.$n; done
        check() { for n in $(seq 30); do rados -p ec get o$n out; cmp in.$n out; done; }
        set -- $(acting 1 | tr '[],' '   '); for id in 0 1 2 3; do case " $* " in *" $id "*);; *) other=$id;; esac; done
        # By way of the fourth OSD the first and the second exchange their shards. What the map says of a PG is there before its OSDs
        # have heard of it, so their own report is waited for.
        report() { ceph pg dump pgs -f json 2> /dev/null | jq -c ".pg_stats[] | select(.pgid == \"$pool.1\") | [.state, .up, .acting]"; }
        at() { local at=[$(echo $* | tr ' ' ,)]; [ "$(report)" = "[\"active+clean\",$at,$at]" ]; }
        to() { ceph osd pg-upmap $pool.1 $*; wait at $*; }
        to $other $2 $3; to $other $1 $3; to $2 $1 $3; ceph osd rm-pg-upmap $pool.1; wait at $1 $2 $3; wait clean
        held() { ceph pg dump pgs -f json | jq -c ".pg_stats[] | select(.pgid == \"$pool.$1\") | .avail_no_missing"; }
        [ $(acting 0) = $(acting 1) ]; [ "$(held 0)" != "$(held 1)" ]; check
        ceph osd pool set ec pg_num 1; wait numbers 1; wait clean; check
        (head -c 5000 in.3; cat in.30) > changed; rados -p ec put o3 in.30 --offset 5000; mv changed in.3; check
        scrub() { for pg in $(ceph pg ls-by-pool ec -f json | jq -r .pg_stats[].pgid); do ceph pg deep-scrub $pg; done
            sleep 3; wait clean; nok grep -q inconsistent <(ceph health detail); }
        scrub
        # Each OSD in turn is away, so that what it has is computed from others; then it is lost, and made anew.
        for id in $1 $2 $3; do
            line=$(line $id); kill9 $id; wait up 3; check; rados -p ec put o$((id + 1)) in.$((id + 1))
            start "$line"; wait up 4; wait clean
        done
        ceph osd out $1; wait clean; check; ceph osd in $1; wait clean; check; scrub"#,
    );
    cluster.shell().within(300).sh(&script);
}

/// What lies in the stores is what Ceph's own code (`ceph-erasure-code-tool`) makes of the same content: written whole, written while
/// a shard is missing, rebuilt for the one that missed it.
#[test]
fn stored_chunks_have_the_bytes_of_ceph() {
    let Some(cluster) = Cluster::start_processes(5) else { return };
    let script = with_pool(
        2,
        r#"
        profile() { case $1 in
            rsv) echo plugin=jerasure technique=reed_sol_van;; good) echo plugin=jerasure technique=cauchy_good packetsize=512;;
            isa) echo plugin=isa technique=reed_sol_van;; cauchy) echo plugin=isa technique=cauchy;; esac; echo k=3 m=2; }
        unit() { [ $1 = isa ] && echo 4096 || echo 16384; }
        POOLS='rsv good isa cauchy'
        for p in $POOLS; do
            ceph osd erasure-code-profile set $p $(profile $p) stripe_unit=$(unit $p) crush-failure-domain=osd
            ceph osd pool create $p 4 4 erasure $p; ceph osd pool application enable $p rados
            ceph osd pool set $p allow_ec_overwrites true
        done
        ceph osd pool ls detail -f json | jq -e '[.[] | select(.pool_name == "rsv" or .pool_name == "isa") | .stripe_width] == [49152, 12288]'
        wait clean
        head -c 500000 /dev/urandom > before; head -c 500000 /dev/urandom > during
        for p in $POOLS; do rados -p $p put before before; rados -p $p put parts during; done
        one=$(line 1); kill9 1; wait up 4
        for p in $POOLS; do
            rados -p $p get before out; cmp before out; rados -p $p put during during
            rados -p $p put parts before --offset 100000; rados -p $p get parts out
            cmp <(head -c 100000 during; cat before) out
        done
        start "$one"; wait up 5; wait clean
        (head -c 100000 during; cat before) > parts
        for pg in $(ceph pg ls -f json | jq -r .pg_stats[].pgid); do ceph pg deep-scrub $pg; done
        sleep 4; wait clean; nok grep -q inconsistent <(ceph health detail)
        for p in $POOLS; do for o in before during parts; do ceph osd map $p $o -f json | jq -r .pgid > $p.$o.pg; done; done
        for id in 0 1 2 3 4; do kill9 $id; done; sleep 0.5
        chunks() { for id in 0 1 2 3 4; do
            $NACRE store dump $DIR/osd.$id --pgid $(cat $1.$2.pg) --object $2 --data 0~4000000 | cut -c 11-57 | tr -d ' \n' | sha256sum; done | sort; }
        for p in $POOLS; do for o in before during parts; do
            ceph-erasure-code-tool encode $(profile $p | tr ' \n' ,, | sed 's/,$//') $(unit $p) 0,1,2,3,4 $o 2> /dev/null
            for shard in 0 1 2 3 4; do od -An -v -tx1 $o.$shard | tr -d ' \n' | sha256sum; done | sort > wanted
            [ $(uniq wanted | wc -l) = 5 ]; diff wanted <(chunks $p $o)
        done; done"#,
    );
    cluster.shell().within(300).sh(&script);
}
