//! Faults and the alerts that they are to set off: between them all of Debian's rules but those that docs/metrics.md names.

use std::collections::BTreeSet;

/// One fault: how it is made and healed, and what it is to set off.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) make: &'static str,
    pub(super) heal: &'static str,
    /// With a question mark: true while the fault lasts, and seen or not as its moments fall; neither asked for nor wrong.
    alerts: &'static [&'static str],
}

impl Fault {
    /// Alerts that must fire, or those that may.
    pub(super) fn alerts(&self, may: bool) -> BTreeSet<String> {
        let of_kind = self.alerts.iter().filter(|name| name.ends_with('?') == may);
        of_kind.map(|name| name.trim_end_matches('?').to_owned()).collect()
    }
}

/// `kill_daemon NAME`, `stop_daemon NAME`, `start_osd ID`, `start_mon NAME`; `all_clean`; `two_copies`: makes a pool of 64 PGs, with the name
/// `two`, and `no_two_copies` removes it; `fs_whole`: of two servers of metadata one is active and one waits. `up COUNT` is of `osds.sh`.
pub(super) const KILLS: &str = concat!(
    include_str!("../osds.sh"),
    r#"
pid_of() { cat $DIR/run/$1.pid; }
kill_daemon() { kill -9 $(pid_of $1); }
stop_daemon() { local pid=$(pid_of $1); kill $pid; gone $pid; }
all_clean() { ceph pg stat -f json | jq -e '[(.pg_summary? // .).num_pg_by_state[].name] == ["active+clean"]'; }
start_osd() { setsid $NACRE osd --dir $DIR --id $1 > osd.$1.again 2>&1 < /dev/null & echo $! >> started; }
two_copies() {
  ceph osd pool create two 64 64 --autoscale-mode off; ceph osd pool set two size 2; ceph osd pool application enable two rbd
  until_true 60 all_clean
}
no_two_copies() { ceph osd pool rm two two --yes-i-really-really-mean-it; until_true 60 all_clean; }
start_mon() { setsid $NACRE mon --dir $DIR --name $1 > mon.$1.again 2>&1 < /dev/null & echo $! >> started; }
fs_whole() { mds_wait 'f:1 {0=.=up:active} 1 up:standby'; }
"#
);

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "an OSD is killed",
        make: "kill_daemon osd.2",
        heal: "start_osd 2",
        alerts: &["CephOSDDown", "CephOSDDownHigh", "CephPGsUnclean"],
    },
    Fault {
        name: "a monitor of three is killed",
        make: "kill_daemon mon.c",
        heal: "start_mon c",
        alerts: &["CephMonDown", "CephMonDownQuorumAtRisk"],
    },
    Fault {
        name: "OSDs are nearly full",
        make: "ceph osd set-nearfull-ratio 0.01",
        heal: "ceph osd set-nearfull-ratio 0.85",
        alerts: &["CephOSDNearFull"],
    },
    Fault {
        name: "metrics are switched off",
        make: "ceph mgr module disable prometheus",
        heal: "ceph mgr module enable prometheus",
        alerts: &["CephMgrPrometheusModuleInactive"],
    },
];

/// More faults, which together take too long for every run.
pub(super) const MORE_FAULTS: &[Fault] = &[
    Fault {
        name: "a copy rots, and a deep scrub finds it",
        make: r#"
/usr/bin/python3 -c 'open("rotten", "wb").write(b"\xa5this is to rot\x5a" * 4096)'; rados -p p put rotten rotten
pg=$(ceph osd map p rotten -f json | jq -r .pgid); osd=$(ceph pg map $pg -f json | jq '.acting[1]')
stop_daemon osd.$osd
/usr/bin/python3 - $DIR/osd.$osd/block <<'END'
import mmap, sys
pattern = b"\xa5this is to rot\x5a"
with open(sys.argv[1], "r+b") as file:
    data = mmap.mmap(file.fileno(), 0)
    at, count = data.find(pattern), 0
    while at >= 0:
        data[at + 3], count = data[at + 3] ^ 1, count + 1
        at = data.find(pattern, at)
    data.flush()
    assert count > 0, "the object's data lies somewhere"
END
start_osd $osd; until_true 60 all_clean
# What the restart sets off is over.
sleep 25; echo $pg > rotten.pg; ceph pg deep-scrub $pg; until_true 60 'ceph health detail | grep -q PG_DAMAGED'"#,
        heal: "ceph pg repair $(cat rotten.pg); until_true 60 '! ceph health detail | grep -q PG_DAMAGED'; rados -p p rm rotten",
        alerts: &["CephPGsDamaged"],
    },
    Fault {
        name: "an OSD had more copies repaired than it may",
        make: "ceph config set mon mon_osd_warn_num_repaired 0",
        heal: "ceph config rm mon mon_osd_warn_num_repaired",
        alerts: &["CephOSDTooManyRepairs"],
    },
    Fault {
        name: "an OSD's device hangs for seconds",
        make: r#"
ceph config set osd osd_op_complaint_time 1; ceph config set osd.1 nacre_debug_device_delay_ms 3000
(while [ -e $CEPH_CONF -a ! -e enough ]; do rados -p p bench 5 write -b 4096 -t 4; done) > slow.log 2>&1 & echo $! >> started"#,
        heal: "touch enough; ceph config rm osd.1 nacre_debug_device_delay_ms; ceph config rm osd osd_op_complaint_time",
        // Its OSD's PGs peer as others take their lead over, and wait for the device in that, too.
        alerts: &["CephDaemonSlowOps", "CephSlowOps", "CephPGsInactive?", "CephPGUnavilableBlockingIO?"],
    },
    Fault {
        name: "no scrub may begin",
        make: r#"ceph osd set noscrub; ceph osd set nodeep-scrub
ceph config set global osd_scrub_max_interval 4; ceph config set global osd_deep_scrub_interval 4"#,
        heal: r#"ceph config rm global osd_scrub_max_interval; ceph config rm global osd_deep_scrub_interval
ceph osd unset noscrub; ceph osd unset nodeep-scrub"#,
        alerts: &["CephPGNotDeepScrubbed", "CephPGNotScrubbed"],
    },
    Fault {
        name: "pings between OSDs are slow",
        make: "ceph config set osd debug_heartbeat_testing_span 2; ceph config set mon mon_warn_on_slow_ping_time 0.001",
        heal: "ceph config rm mon mon_warn_on_slow_ping_time; ceph config rm osd debug_heartbeat_testing_span",
        alerts: &["CephOSDTimeoutsClusterNetwork", "CephOSDTimeoutsPublicNetwork"],
    },
    Fault {
        name: "a pool is near its quota",
        make: "ceph config set mon mon_pool_quota_warn_threshold 1; ceph osd pool set-quota p max_objects 100",
        heal: "ceph osd pool set-quota p max_objects 0; ceph config rm mon mon_pool_quota_warn_threshold",
        alerts: &["CephPoolNearFull"],
    },
    Fault {
        name: "a pool is over its quota",
        make: "ceph osd pool set-quota p max_objects 1",
        heal: "ceph osd pool set-quota p max_objects 0",
        alerts: &["CephPoolFull"],
    },
    Fault {
        name: "OSDs have too many PGs",
        make: "ceph config set mon mon_max_pg_per_osd 1",
        heal: "ceph config rm mon mon_max_pg_per_osd",
        alerts: &["CephPGsHighPerOSD"],
    },
    Fault {
        name: "monitors have little room",
        make: "ceph config set mon mon_data_avail_warn 100",
        heal: "ceph config set mon mon_data_avail_warn 0",
        alerts: &["CephMonDiskspaceLow"],
    },
    Fault {
        name: "monitors have no room",
        make: "ceph config set mon mon_data_avail_crit 100",
        heal: "ceph config rm mon mon_data_avail_crit",
        alerts: &["CephMonDiskspaceCritical"],
    },
    Fault {
        name: "Prometheus does not scrape",
        make: "sed -i 's/^- { job_name: ceph,/#&/' prometheus.yml; kill -HUP $(tail -1 prometheus.pid)",
        heal: "sed -i 's/^#\\(- { job_name: ceph,\\)/\\1/' prometheus.yml; kill -HUP $(tail -1 prometheus.pid)",
        alerts: &["PrometheusJobMissing"],
    },
    Fault {
        name: "a daemon crashes",
        make: r#"ceph config set osd debug_asok_assert_abort true; until_true 20 'ceph tell osd.2 config get debug_asok_assert_abort | grep -q true'
ceph tell osd.2 assert || true; until_true 30 'ceph crash ls | grep -q osd.2'"#,
        heal: "start_osd 2; ceph crash archive-all",
        alerts: &["CephDaemonCrash", "CephOSDDown", "CephOSDDownHigh", "CephPGsUnclean"],
    },
    Fault {
        name: "two of three OSDs are killed",
        make: "kill_daemon osd.1; kill_daemon osd.2",
        heal: "start_osd 1; start_osd 2",
        alerts: &["CephOSDDown", "CephOSDDownHigh", "CephPGsInactive", "CephPGsUnclean"],
    },
    Fault {
        name: "a host is down",
        make: r#"ceph config set osd osd_crush_update_on_start false; ceph osd crush add-bucket other host root=default
ceph osd crush move osd.2 root=default host=other; until_true 30 all_clean; sleep 5; kill_daemon osd.2"#,
        heal: "start_osd 2",
        alerts: &["CephOSDDown", "CephOSDDownHigh", "CephOSDHostDown", "CephPGsUnclean"],
    },
    Fault {
        name: "the newest of an object is lost with its OSD",
        make: r#"
ceph osd pool create u 1 1; ceph osd pool application enable u rbd; ceph osd pool set u size 2; ceph osd pool set u min_size 1
pg() { ceph pg ls-by-pool u -f json | jq -r '.pg_stats[0]'; }
until_true 60 'pg | jq -e ".state == \"active+clean\""'
first=$(pg | jq '.acting[0]'); second=$(pg | jq '.acting[1]'); pg | jq -r .pgid > lost.pg; echo before | rados -p u put o -
ceph osd set norecover; kill_daemon osd.$second; up 2
echo after | rados -p u put o -
start_osd $second; up 3; sleep 3
kill_daemon osd.$first; up 2
ceph osd pool set p size 2; ceph osd lost $first --yes-i-really-mean-it; ceph osd purge $first --force --yes-i-really-mean-it; ceph osd unset norecover
until_true 60 'ceph health detail | grep -q OBJECT_UNFOUND'"#,
        heal: "ceph pg $(cat lost.pg) mark_unfound_lost delete",
        // For some seconds two OSDs are down, one after the other.
        alerts: &[
            "CephObjectMissing",
            "CephPGsDamaged",
            "CephPGsUnclean",
            "CephOSDDownHigh?",
            "CephOSDDown?",
        ],
    },
    // The last one: what predicts by two days goes on to see the jump.
    Fault {
        name: "OSDs are full",
        make: "ceph osd set-full-ratio 0.01",
        heal: "ceph osd set-full-ratio 0.95",
        alerts: &["CephOSDFull", "CephPoolFull", "CephPoolGrowthWarning"],
    },
];

/// Faults of where PGs are and whether they get there, of OSDs that come and go, of clocks, and of devices.
pub(super) const PLACEMENT_FAULTS: &[Fault] = &[
    Fault {
        name: "an OSD comes and goes",
        make: r#"
(while [ -e $CEPH_CONF -a ! -e enough ]; do kill_daemon osd.2; up 2; start_osd 2; up 3; done) > flapping.log 2>&1 & echo $! | tee -a started > flapping.pid"#,
        heal: "touch enough; gone $(cat flapping.pid); up 3",
        // Most of the time it is away, and PGs peer, for less than these wait for.
        alerts: &[
            "CephOSDFlapping",
            "CephOSDDown?",
            "CephOSDDownHigh?",
            "CephPGUnavilableBlockingIO?",
            "CephPGsInactive?",
            "CephPGsUnclean?",
        ],
    },
    Fault {
        name: "a monitor's clock is wrong",
        make: r#"stop_daemon mon.c
LD_PRELOAD=$(ls $TOOLS/usr/lib/*/faketime/libfaketime.so.1) FAKETIME=+1s FAKETIME_DONT_FAKE_MONOTONIC=1 start_mon c"#,
        heal: r#"stop_daemon mon.c; start_mon c; until_true 30 "ceph quorum_status | jq -e '.quorum | length == 3'""#,
        // It is away while it starts.
        alerts: &["CephMonClockSkew", "CephMonDown?", "CephMonDownQuorumAtRisk?"],
    },
    Fault {
        name: "an OSD has few PGs beside the others",
        make: r#"ceph balancer off; weight=$(ceph osd tree -f json | jq '.nodes[] | select(.id == 0).crush_weight'); echo $weight > weight
ceph osd crush reweight osd.0 $(jq -n "$weight / 4"); two_copies"#,
        heal: "ceph osd crush reweight osd.0 $(cat weight); no_two_copies; ceph balancer on",
        // PGs of the new pool peer.
        alerts: &["CephPGImbalance", "CephPGUnavilableBlockingIO?"],
    },
    Fault {
        name: "an OSD is to be emptied, and the others take no backfill",
        make: "two_copies; rados -p two put data data; ceph osd set-backfillfull-ratio 0.01; sleep 5; ceph osd out 2",
        heal: "ceph osd in 2; ceph osd set-backfillfull-ratio 0.9; until_true 60 all_clean; no_two_copies",
        // What predicts sees the new pool's data, and the others have more PGs than the one that is out.
        alerts: &[
            "CephOSDBackfillFull",
            "CephPGBackfillAtRisk",
            "CephPGsUnclean",
            "CephPoolBackfillFull",
            "CephPGImbalance?",
            "CephPGUnavilableBlockingIO?",
            "CephPoolGrowthWarning?",
        ],
    },
    Fault {
        name: "a device is to fail soon, and its OSD that is out still has PGs",
        make: r#"ceph osd out 2; ceph osd metadata 0 | jq -r '.device_ids | split(",")[0] | split("=")[1]' > device
ceph device set-life-expectancy $(cat device) $(date -u -d '+10 days' +%F) $(date -u -d '+20 days' +%F)"#,
        heal: "ceph device rm-life-expectancy $(cat device); ceph osd in 2",
        // The OSDs' disk must have a serial number. All OSDs are on it, and two of them are in. PGs stay where they are: there is no other
        // place for third copies, but peer first.
        alerts: &[
            "CephDeviceFailurePredicted",
            "CephDeviceFailureRelocationIncomplete",
            "CephPGImbalance?",
            "CephPGUnavilableBlockingIO?",
        ],
    },
    Fault {
        name: "PGs have fewer copies than they need, and no OSD that is in is down",
        make: "ceph osd pool set p min_size 3; kill_daemon osd.2; up 2; ceph osd out 2",
        heal: "start_osd 2; ceph osd in 2; up 3; ceph osd pool set p min_size 2",
        alerts: &[
            "CephOSDDownHigh",
            "CephPGUnavilableBlockingIO",
            "CephPGsInactive",
            "CephPGsUnclean",
            "CephOSDDown?",
        ],
    },
    // The last one: what predicts by two days goes on to see the jump.
    Fault {
        name: "OSDs are full while one recovers",
        make: r#"ceph osd set norecover; kill_daemon osd.2; up 2; rados -p p put more data; start_osd 2; up 3
ceph osd set-full-ratio 0.01; until_true 30 'ceph health detail | grep -q OSD_FULL'; ceph osd unset norecover"#,
        heal: "ceph osd set-full-ratio 0.95; until_true 60 all_clean",
        alerts: &[
            "CephOSDFull",
            "CephPGRecoveryAtRisk",
            "CephPGsUnclean",
            "CephPoolFull",
            "CephPoolGrowthWarning",
            "CephOSDDown?",
            "CephOSDDownHigh?",
            "CephOSDFlapping?",
        ],
    },
];

/// A file system with two servers, a and b: one of them is active and one waits.
pub(super) const FILE_SYSTEM: &str = r#"
ceph config set global mds_beacon_grace 4; ceph config set global mds_beacon_interval 1
mds_start a; mds_start b; ceph osd pool create meta 8; ceph osd pool create data 8; ceph fs new f meta data
fs_whole"#;

/// Faults of a file system's servers.
pub(super) const FILE_SYSTEM_FAULTS: &[Fault] = &[
    Fault {
        name: "no server waits to take over",
        make: r#"ceph mds stat -f json | jq -r '.fsmap.standbys[0].name' > standby; mds_kill $(cat standby)"#,
        heal: "mds_start $(cat standby); fs_whole",
        alerts: &["CephFilesystemInsufficientStandby"],
    },
    Fault {
        name: "a file system has fewer servers than it is to have",
        make: "ceph fs set f max_mds 3",
        heal: "ceph fs set f max_mds 1; fs_whole",
        alerts: &["CephFilesystemInsufficientStandby", "CephFilesystemMDSRanksLow"],
    },
    Fault {
        name: "all servers are killed",
        make: "mds_kill a; mds_kill b",
        heal: "mds_start a; mds_start b; fs_whole",
        alerts: &["CephFilesystemDegraded", "CephFilesystemInsufficientStandby", "CephFilesystemOffline"],
    },
    Fault {
        name: "a rank has failed, and nobody can take it over",
        make: "mds_kill a; mds_kill b; until_true 30 'ceph health detail | grep -q MDS_ALL_DOWN'; ceph mds fail f:0",
        heal: "mds_start a; mds_start b; fs_whole",
        alerts: &[
            "CephFilesystemDegraded",
            "CephFilesystemFailureNoStandby",
            "CephFilesystemInsufficientStandby",
            "CephFilesystemOffline",
        ],
    },
    Fault {
        name: "the journal of a file system is lost",
        make: r#"ceph fs fail f; rados -p meta get 200.00000000 journal; rados -p meta rm 200.00000000; ceph fs set f joinable true
until_true 60 'ceph health detail | grep -q MDS_DAMAGE'"#,
        heal: r#"rados -p meta put 200.00000000 journal; ceph mds repaired f:0; for name in a b; do mds_kill $name || true; mds_start $name; done
fs_whole"#,
        alerts: &[
            "CephFilesystemDamaged",
            "CephFilesystemDegraded",
            // The servers have ended, or wait again.
            "CephFilesystemInsufficientStandby?",
            "CephFilesystemOffline",
        ],
    },
];
