//! A daemon of ours that panics leaves a report, which another process of its folder posts; `ceph crash` shows it, and health speaks of it until an
//! operator has archived it.

use nacre_interop::Cluster;

#[test]
fn a_daemon_that_panics_is_reported_until_somebody_has_looked() {
    let Some(cluster) = Cluster::start_processes(2) else { return };
    let shell = cluster.shell().within(90);
    shell.sh(r#"
        ceph crash stat | grep -qx '0 crashes recorded'
        if ceph tell osd.1 assert > refused 2>&1; then exit 1; fi; grep -q debug_asok_assert_abort refused
        ceph config set osd.1 debug_asok_assert_abort true
        until_true 20 'ceph tell osd.1 config get debug_asok_assert_abort | grep -q true'
        ceph tell osd.1 assert > /dev/null 2>&1 || true
        until_true 30 "ceph crash ls | grep -q 'osd.1 .*\*'"
        id=$(ceph crash ls -f json | jq -r '.[0].crash_id')
        ceph crash info $id > report
        jq -e '.entity_name == "osd.1" and .process_name == "nacre" and (.assert_file | endswith("admin.rs")) and .nacre_version' report > /dev/null
        jq -e '.backtrace | map(select(contains("nacre"))) | length > 0' report > /dev/null
        jq -e --arg host "$(hostname -s)" '.utsname_hostname | startswith($host)' report > /dev/null
        in_time 10 "ceph health detail | grep -q 'osd.1 crashed on host'"
        [ -e $DIR/crash/posted/$id/meta ]
        ceph crash archive $id
        in_time 10 '! ceph health detail | grep -q RECENT_CRASH'
        ceph crash ls | grep -q osd.1; [ -z "$(ceph crash ls-new)" ]
        # It was meant.
        : > $DIR/log/osd.1.log
        ceph crash rm $id; ceph crash stat | grep -qx '0 crashes recorded'"#);
}
