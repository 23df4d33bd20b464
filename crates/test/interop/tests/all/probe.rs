//! Pools are probed as a client sees them: what does not serve is named, and not for longer than that lasts.

use nacre_interop::Cluster;

/// `failed`: lines of the check; `rounds N`: so many rounds of the pool have ended.
const TOOLS: &str = r#"
failed() { ceph health detail -f json | jq -r '.checks.POOL_PROBE_FAILED.detail[].message'; }
is_well() { ceph health detail -f json | jq -e '.checks | has("POOL_PROBE_FAILED") | not'; }
rounds() { [ $(ceph probe status -f json | jq "[.pools[] | select(.pool == \"$POOL\").rounds] | add // 0") -ge $1 ]; }
"#;

#[test]
fn a_pool_that_does_not_serve_is_named_until_it_serves_again() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("probe", 8).within(150);
    let sh = |script: &str| shell.sh(&format!("{TOOLS} {script}"));
    sh("for option in 'mon mon_allow_pool_delete true' 'mon nacre_probe_timeout 2' 'mon nacre_probe_interval 2'; do ceph config set $option; done
        ceph osd erasure-code-profile set two k=2 m=1 crush-failure-domain=osd; ceph osd pool create ec 4 4 erasure two; until_true 30 'rounds 2'; until_true 30 is_well || { ceph health detail; exit 1; }");
    // Nothing is left of it, nor counted.
    sh("[ -z \"$(rados -p $POOL ls --all)\" ]; [ $(ceph df -f json | jq '[.pools[].stats.objects] | add') = 0 ]
        ceph probe status | grep -q \"^$POOL\"; ceph probe status | grep -q '^ec'
        ceph auth get client.nacre-probe | grep -q 'allow rw namespace=.nacre-probe'
        curl -sS $(ceph mgr services | jq -r .prometheus)metrics > page; grep -q 'ceph_probe_pool_latency_us{pool=\"'$POOL'\",op=\"write\",quantile=\"0.5\"}' page
        grep -q 'ceph_probe_pool_failed_pgs{pool=\"'$POOL'\"} 0' page
        ceph osd pool rm ec ec --yes-i-really-really-mean-it");
    // An OSD that is frozen, and that nobody may mark down.
    sh("ceph osd set nodown; PID=$(cat $DIR/run/osd.1.pid); kill -STOP $PID; trap 'kill -CONT $PID' EXIT
        in_time 12 'failed | grep \"pool .$POOL.: .*no answer\"'
        in_time 12 'failed | grep \"led by osd.1: no answer\"'
        kill -CONT $PID; in_time 14 is_well; ceph osd unset nodown");
    // A PG with fewer members than it needs.
    sh("ceph osd set noout; ceph osd pool set $POOL min_size 3; kill -9 $(cat $DIR/run/osd.2.pid)
        until_true 20 'failed | grep \"pool .$POOL.\"'
        ceph osd pool set $POOL min_size 2; in_time 14 is_well
        ceph healthcheck history ls | grep POOL_PROBE_FAILED");
    // Not at all, if nobody wants it.
    sh(
        "ceph config set mon nacre_probe_interval 0; until_true 5 'ceph probe status | grep \"are not probed\"'",
    );
}

#[test]
fn a_host_of_clients_reports_how_long_its_writes_take() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("host", 8).within(60);
    let probe = "$NACRE probe --dir $DIR --pool $POOL --interval 0.2 --seconds 3";
    let shown = shell.sh(&format!(
        "ceph auth get-or-create client.host mon 'allow r, allow command \"probe report\"' osd \"allow rw pool=$POOL namespace=.nacre-probe\" -o host.keyring
        {probe} --id host --keyring host.keyring"
    ));
    assert!(shown.lines().last().is_some_and(|line| line.ends_with("; 0 failed")), "{shown}");
    let status = shell.json("ceph probe status -f json");
    let host = &status["hosts"][0];
    assert_eq!(host["host"], "127.0.0.1", "{status:#}");
    let writes = host["writes"].as_u64().expect("a number");
    assert!((5..=16).contains(&writes), "{status:#}");
    let page = shell.sh("curl -sS $(ceph mgr services | jq -r .prometheus)metrics");
    let bucket = page.lines().find(|line| {
        line.starts_with("ceph_probe_host_write_latency_us_bucket{host=\"127.0.0.1\"")
            && line.contains("le=\"+Inf\"")
    });
    assert!(bucket.is_some_and(|line| line.ends_with(&format!(" {writes}"))), "{page}");
    // Whose caps do not say so neither reports nor writes.
    shell.sh("ceph auth get-or-create client.mute mon 'allow r' osd \"allow rw pool=$POOL\" -o mute.keyring
        ceph auth get-or-create client.reader mon 'allow r' osd 'allow r' -o reader.keyring");
    shell.fails(&format!("{probe} --id mute --keyring mute.keyring")).expect_text("may not report");
    shell.fails(&format!("{probe} --id reader --keyring reader.keyring")).expect_text("may not write");
    shell.fails("$NACRE probe --dir $DIR --pool nowhere").expect_text("there is no pool");
    shell.fails("ceph probe report $POOL 1 0 1,2").expect_text("numbers with commas");
}
