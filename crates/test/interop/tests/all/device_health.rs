//! A device's own word on its health: an OSD whose `smartctl` is a program of this test is asked by the monitor by itself, and what it says is
//! health, wear and metrics until it says otherwise.

use nacre_interop::Cluster;

const HEALTHY: &str = include_str!("../../../../../testdata/smart/nvme-healthy.json");
const FAILING: &str = include_str!("../../../../../testdata/smart/nvme-failing.json");

/// An OSD that finds this program first. One that is not root calls it by `sudo`.
const FAKE: &str = r#"
mkdir fake; cp healthy.json said.json
cat > fake/smartctl <<END
#!/bin/sh
echo x >> $PWD/calls; cat $PWD/said.json; exit \$(sed -n 's/^  "exit_status": \([0-9]*\).*/\1/p' $PWD/said.json)
END
printf '#!/bin/sh\nshift; exec "$@"\n' > fake/sudo
chmod +x fake/*
pid=$(cat $DIR/run/osd.0.pid); mapfile -d '' -t line < /proc/$pid/cmdline
kill $pid; until_true 60 "! kill -0 $pid 2> /dev/null"
PATH=$PWD/fake:$PATH setsid "${line[@]}" >> $DIR/log/again.log 2>&1 < /dev/null &
until_true 60 'ceph daemon osd.0 status | jq -e ".state == \"active\""'
"#;

#[test]
fn what_a_device_says_is_health_until_it_says_otherwise() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let shell = cluster.shell().within(240).with("HEALTHY", HEALTHY).with("FAILING", FAILING);
    let device =
        shell.sh(r#"ceph osd metadata 0 | jq -r '.device_ids // "" | split(",")[0] | split("=")[1] // ""'"#);
    if device.trim().is_empty() {
        eprintln!(
            "skipped: the disk below the temporary folder has no serial number, so that nobody could name it"
        );
        return;
    }
    let shell = shell.with("DEVICE", device.trim());
    let script = r#"
        echo "$HEALTHY" > healthy.json; echo "$FAILING" > failing.json
        said() { ceph device get-health-metrics $DEVICE | jq -e "to_entries | last.value | $1" > /dev/null; }
        page() { curl -sS --max-time 10 $(ceph mgr services | jq -r .prometheus)metrics > page; grep "$@" page; }
        is_calm() { ceph health detail > health && grep -q '^HEALTH_' health && ! grep DEVICE_HEALTH health; }
        "#
    .to_owned()
        + FAKE
        + r#"
        # It is asked because its OSD has started, and nobody has to.
        until_true 60 'said ".nvme_smart_health_information_log.percentage_used == 2 and .health.smart_passed"'
        ceph device ls | grep -F "$DEVICE" | grep -q 'osd.0 *2%'
        [ "$(ceph device info $DEVICE -f json | jq .wear_level)" = 0.02 ]
        is_calm; page -qF "ceph_device_wear_percent{devid=\"$DEVICE\""
        [ $(wc -l < calls) = 1 ]

        # From now on it is asked often, and says that it fails.
        cp failing.json said.json
        ceph config set mgr mgr/devicehealth/scrape_frequency 10
        until_true 60 'ceph health detail | grep -q "DEVICE_HEALTH: 1 device(s) expected to fail soon"'
        ceph health detail > detail; grep -q 'it takes no more writes' detail
        grep -q '4 % of its spare blocks are left, below its limit of 10 %' detail; grep -q '117 % of its rated life is used' detail
        until_true 20 "page -q 'ceph_health_detail{name=\"DEVICE_HEALTH\",severity=\"HEALTH_WARN\"} 1'"
        page -F "ceph_device_smart_passed{devid=\"$DEVICE\"" | grep ' 0$'
        cp healthy.json said.json
        until_true 60 is_calm
        until_true 20 "page -q 'ceph_health_detail{name=\"DEVICE_HEALTH\",severity=\"HEALTH_WARN\"} 0'"

        # Asked by hand, when nobody asks by himself.
        ceph device monitoring off; sleep 15; calls=$(wc -l < calls); cp failing.json said.json
        ceph device scrape-health-metrics $DEVICE 2>&1 | grep -q 'is asked'
        until_true 60 'said ".health.smart_passed == false"'
        [ $(wc -l < calls) = $((calls + 1)) ]
        is_calm
        ceph device monitoring on; in_time 10 'ceph health detail | grep DEVICE_HEALTH'
        cp healthy.json said.json; ceph device scrape-daemon-health-metrics osd.0
        until_true 60 is_calm

        # What a person says of it.
        ceph device set-life-expectancy $DEVICE $(date -u -d '+10 days' +%F) $(date -u -d '+20 days' +%F)
        ceph device ls | grep -F "$DEVICE" | grep -q 'd to [0-9]*[dw]'
        in_time 10 'ceph health detail | grep -q "life expectancy between"'
        ceph device rm-life-expectancy $DEVICE; in_time 10 is_calm
        nok ceph device predict-life-expectancy $DEVICE; nok ceph device query-daemon-health-metrics osd.0
        nok ceph config set mgr mgr/devicehealth/self_heal true"#;
    shell.sh(&script);
}
