//! Daemons that root starts and that do not stay root's.

use nacre_interop::Cluster;

/// A user that owns nothing.
const USER: u32 = 46_464;

#[test]
fn a_cluster_runs_as_the_user_that_it_is_given() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let shell = cluster.shell().with("AS", USER);
    if shell.sh("id -u").trim() != "0" {
        eprintln!("skipped: only root can give its rights up");
        return;
    }
    shell.sh(
        r#"
        home=$(mktemp -d); chmod 711 $home; cp $NACRE $home/nacre; chmod 755 $home/nacre
        trap 'kill $pid 2>/dev/null || true; rm -rf $home' EXIT
        $home/nacre up --dir $home/cluster --osds 1 --osd-size 2G --user $AS >$home/out 2>&1 &
        pid=$!
        for n in $(seq 1200); do grep -q ready $home/out && break; kill -0 $pid || { cat $home/out; exit 1; }; sleep 0.1; done
        grep -q ready $home/out
        grep -E "^(Uid|Gid):" /proc/$pid/status | while read name real effective saved fs; do
            test "$real $effective $saved $fs" = "$AS $AS $AS $AS"
        done
        test "$(grep ^Groups: /proc/$pid/status | tr -d '[:space:]')" = Groups:
        test -z "$(find $home/cluster ! -uid $AS)"
        ceph -c $home/cluster/ceph.conf -k $home/cluster/keyring osd set noout
        grep -q "osd set" $home/cluster/mon/audit.log
        test "$(stat -c %a $home/cluster/mon/audit.log)" = 600
        kill $pid; wait $pid
        mkdir $home/roots; ! $home/nacre up --dir $home/roots --user $AS >$home/out 2>&1; grep -q chown $home/out"#,
    );
}
