//! A real ceph-osd under our monitor: what OSDs say to each other it does not understand, so it may not come up.

use nacre_interop::Cluster;

#[test]
fn a_ceph_osd_is_refused_with_a_sentence() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let shell = cluster.shell().within(120);
    if shell.run("type ceph-osd").code != 0 {
        eprintln!("skipped: there is no ceph-osd here (test/packages ceph-osd)");
        return;
    }
    shell.sh(
        r#"
        UUID=$(uuidgen); KEY=$(ceph-authtool --gen-print-key); mkdir foreign
        ID=$(echo "{\"cephx_secret\": \"$KEY\"}" | ceph osd new $UUID -i -)
        ceph-authtool --create-keyring foreign/keyring -n osd.$ID --add-key $KEY
        OSD=(ceph-osd -c $CEPH_CONF -i $ID --osd-objectstore memstore --osd-data $PWD/foreign --keyring $PWD/foreign/keyring
            --log-file $PWD/foreign.log --run-dir $PWD --admin-socket $PWD/foreign.asok)
        "${OSD[@]}" --mkfs --osd-uuid $UUID
        "${OSD[@]}" -f > foreign.out 2>&1 & PID=$!
        trap 'kill $PID 2>/dev/null || true; wait $PID || true' EXIT
        reason="osd.$ID may not boot: it is a ceph-osd"
        until_true 12 'ceph health detail | grep -q "$reason"'; ceph -s | grep -q '1 osds may not boot'
        ceph log last 50 | grep -q "$reason"
        sleep 3
        kill -0 $PID; ceph daemon $PWD/foreign.asok status | jq -e '.state != "active"' > /dev/null
        ceph osd dump -f json | jq -e ".osds | map(select(.osd == $ID)) | .[0].up == 0" > /dev/null
        [ $(ceph osd stat -f json | jq .num_up_osds) = 1 ]
        # It is forgotten when it has gone.
        kill $PID; wait $PID || true
        until_true 12 'ceph health detail > health && ! grep -q "$reason" health'"#,
    );
}
