//! Pools that compress, under stock programs.

use nacre_interop::Cluster;

#[test]
fn a_pool_that_compresses_takes_less_and_gives_back_what_was_written() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let shell = cluster.pool("compressed", 8).within(240);
    shell.sh(
        r#"
        df() { ceph df detail -f json | jq -e ".pools[] | select(.name == \"$POOL\").stats | $1" > /dev/null; }
        wait_df() { until_true 25 "df '$1'" || { ceph df detail; return 1; }; }
        same() { for nth in $(seq 40); do rados -p $POOL get text.$nth - | cmp - text; done; rados -p $POOL get noise - | cmp - noise; }
        ceph osd metadata 0 -f json | jq -e '.nacre_compression == "zstd lz4 snappy"'
        for wrong in 'compression_algorithm zlib' 'compression_max_blob_size 1M' 'compression_required_ratio 2' 'compression_mode often'; do
            nok ceph osd pool set $POOL $wrong
        done
        ceph osd pool set $POOL compression_algorithm zstd; ceph osd pool set $POOL compression_mode aggressive
        [ "$(ceph osd pool get $POOL compression_mode)" = 'compression_mode: aggressive' ]
        head -c 4194304 <(yes 'a line that comes again and again') > text; head -c 4194304 /dev/urandom > noise
        rados -p $POOL put noise noise
        for nth in $(seq 40); do rados -p $POOL put text.$nth text; done
        wait_df '.compress_under_bytes > 60000000 and .compress_bytes_used * 4 < .compress_under_bytes'
        wait_df '.stored > 160000000 and .bytes_used < 120000000'
        same
        LINE=$(tr '\0' ' ' < /proc/$(cat $DIR/run/osd.0.pid)/cmdline)
        pid=$(cat $DIR/run/osd.0.pid); kill -9 $pid; gone $pid; setsid $LINE >> $DIR/log/again.log 2>&1 < /dev/null &
        sleep 1; same
        for pg in $(ceph pg ls-by-pool $POOL -f json | jq -r .pg_stats[].pgid); do ceph pg deep-scrub $pg; done
        sleep 3; nok grep -q inconsistent <(ceph health detail)
        ceph osd pool set $POOL compression_mode unset; nok ceph osd pool get $POOL compression_mode
        for nth in $(seq 40); do rados -p $POOL put text.$nth noise; done
        rados -p $POOL get text.7 - | cmp - noise
        "#,
    );
}
