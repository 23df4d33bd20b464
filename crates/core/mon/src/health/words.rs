//! What health checks mean and what to do about them, in words for people who have not met them before. What is wrong this time, the check's
//! own lines say.

/// What a check means, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) means: &'static str,
    pub(crate) advice: &'static str,
}

/// Code, meaning, advice; in order of codes.
const WORDS: &[(&str, &str, &str)] = &[
    (
        "BLUESTORE_NO_COMPRESSION",
        "A pool is to be compressed, and an OSD stores what it has of it as it is: it takes more room than is reckoned with.",
        "Upgrade the OSD that is named; what was written meanwhile is compressed when it is written again.",
    ),
    (
        "CONFIG_VALUE_UNUSABLE",
        "An option has a value that daemons cannot use; they go on with the default.",
        "Set another with 'ceph config set', or remove it with 'ceph config rm'.",
    ),
    (
        "DEVICE_HEALTH",
        "A device says that it fails or is worn out, or somebody has said so of it. It may still serve for a long time, or end today.",
        "'ceph device get-health-metrics ID' has all that it says. 'ceph osd out ID' moves its data away; then replace it.",
    ),
    (
        "DEVICE_HEALTH_IN_USE",
        "An OSD is out because its device is expected to fail, and still has PGs: they are on their way, or have nowhere to go.",
        "Wait while 'ceph progress' moves. If it does not, there is no room, or CRUSH finds no other place.",
    ),
    (
        "FS_DEGRADED",
        "A file system has a rank without a server that serves: clients of it wait.",
        "Usually a standby takes over within a minute. 'ceph fs status'; start another metadata server if none waits.",
    ),
    (
        "FS_INLINE_DATA_DEPRECATED",
        "A file system keeps small files inside their inodes, which is deprecated.",
        "'ceph fs set NAME inline_data no'.",
    ),
    (
        "FS_WITH_FAILED_MDS",
        "A rank of a file system has failed and no standby takes its place.",
        "Start another metadata server.",
    ),
    (
        "LARGE_OMAP_OBJECTS",
        "Single objects have so many keys that recovery and scrubs of them hold up others.",
        "Usually the index of a bucket with too few shards: reshard it. The cluster log names the objects.",
    ),
    (
        "MDS_ALL_DOWN",
        "No metadata server of a file system is there, or none sends beacons: nobody can use it.",
        "Start one; see the log of the one that ended or is silent, and whether it reaches the monitors.",
    ),
    (
        "MDS_DAMAGE",
        "A metadata server has found damaged metadata; what it cannot read is not served.",
        "'ceph tell mds.NAME damage ls' shows it. Repair with the file system's tools, after a backup.",
    ),
    (
        "MDS_INSUFFICIENT_STANDBY",
        "Fewer metadata servers wait than a file system wants.",
        "Start another, or lower 'ceph fs set NAME standby_count_wanted'.",
    ),
    (
        "MDS_SLOW_METADATA_IO",
        "A metadata server waits for its pool: the OSDs below it are slow.",
        "Look at slow requests and at OSDs by latency.",
    ),
    (
        "MDS_SLOW_REQUEST",
        "Requests of clients take too long on a metadata server.",
        "'ceph tell mds.NAME dump_ops_in_flight' shows what they wait for.",
    ),
    (
        "MDS_UP_LESS_THAN_MAX",
        "A file system has fewer active metadata servers than it is to have.",
        "Start another, or lower 'ceph fs set NAME max_mds'.",
    ),
    (
        "MGR_DOWN",
        "No manager serves: statistics stand still, and nothing is balanced. Clients' data is not touched.",
        "See the manager's log, or choose another with 'ceph mgr fail'.",
    ),
    (
        "MGR_MODULE_ERROR",
        "A part of the manager, such as the page of metrics or this web page, could not begin.",
        "The lines below say why, and which option to change.",
    ),
    (
        "MON_CLIENTS_THROTTLED",
        "Clients send the monitors more than these take, and wait.",
        "Find what sends so much by the addresses below.",
    ),
    (
        "MON_CLOCK_SKEW",
        "The clocks of monitors differ: times in logs do, and keys may expire early.",
        "Have all machines follow the same time servers (chrony, systemd-timesyncd).",
    ),
    (
        "MON_DISK_CRIT",
        "A monitor's file system is nearly full: it will end when it is.",
        "Make room on it now.",
    ),
    ("MON_DISK_LOW", "A monitor's file system fills up.", "Make room on it; logs are the usual reason."),
    (
        "MON_DOWN",
        "A monitor is not in the quorum. While more than half of them are, everything works.",
        "Start it, or see whether the others reach its machine; 'nacre mon' of a lost one can join anew.",
    ),
    (
        "MON_RECOVERY_SNAPSHOT",
        "OSDs do not keep a fresh snapshot from which lost monitors could be made anew.",
        "See that OSDs are up; 'ceph mon recovery-status' says which have one.",
    ),
    (
        "OBJECT_MISPLACED",
        "Copies are not yet where they belong. None is missing.",
        "They move by themselves; the recovery below says until when.",
    ),
    (
        "OBJECT_UNFOUND",
        "The cluster knows of writes to objects of which no OSD that is up has the newest copy: clients that want them wait.",
        "Bring back the OSDs that are down; only when those are lost for good, see docs/runbooks/lost-objects.md.",
    ),
    (
        "OSDMAP_FLAGS",
        "An operator has set flags such as 'noout' or 'norecover': the cluster does not heal itself as it would.",
        "'ceph osd unset FLAG' when the work is done.",
    ),
    (
        "OSD_BACKFILLFULL",
        "An OSD is too full to take copies of others: healing stops at it.",
        "Add OSDs or delete data. 'ceph osd df' shows who is full.",
    ),
    (
        "OSD_BOOT_REFUSED",
        "An OSD wants to come up and may not: its store or version does not fit this cluster.",
        "The lines below say why.",
    ),
    (
        "OSD_CLIENTS_THROTTLED",
        "A client has more under way than an OSD takes, and waits.",
        "Usually harmless: that client alone is slowed down. See which it is.",
    ),
    (
        "OSD_COPIES_LOST",
        "Copies on an OSD were damaged and began anew; others had them.",
        "They are filled again. If it happens twice, replace the device.",
    ),
    (
        "OSD_DOWN",
        "An OSD does not run, or others do not reach it. What it has is served by other copies.",
        "See its log and its machine. After ten minutes ('mon_osd_down_out_interval') its data is copied to others.",
    ),
    (
        "OSD_FULL",
        "An OSD is full: writes to all pools that it is part of are refused.",
        "Delete data, or add OSDs. For the moment 'ceph osd set-full-ratio' lets writes in again.",
    ),
    (
        "OSD_HOST_DOWN",
        "All OSDs of a host are down.",
        "See that machine: its power, its network, its switch.",
    ),
    (
        "OSD_MAPS_AHEAD",
        "OSDs know newer maps than the monitors: these run on an old copy of their store.",
        "Stop the monitor and start it on its newest store.",
    ),
    (
        "OSD_NEARFULL",
        "An OSD fills up; when it is full, writes stop.",
        "Add OSDs or delete data; 'ceph balancer status' tells whether the others could take more.",
    ),
    (
        "OSD_PEER_MESSAGES",
        "An OSD got messages from another that it could not read: versions that do not fit, or a network that damages data.",
        "Compare versions ('ceph versions'); check the link between the two.",
    ),
    (
        "OSD_ROOT_DOWN",
        "All OSDs below a root of the CRUSH map are down.",
        "Power or network of all those machines.",
    ),
    (
        "OSD_SCRUB_ERRORS",
        "A scrub has found copies that differ.",
        "'ceph pg repair PG' repairs by the copies whose checksums are right. Replace a device that does it again.",
    ),
    (
        "OSD_SLOW_DEVICE",
        "A device takes several times as long as others of its class: writes of its PGs wait for it.",
        "Its OSD leads no PGs meanwhile, and is marked out where others have room for its copies. Replace the device (docs/runbooks/slow-devices.md).",
    ),
    (
        "OSD_SLOW_LINK",
        "Between two OSDs every ping takes many times as long as between others: writes that pass there wait for it.",
        "Look at the network card, cable and switch port of the end that is named; nothing is moved for it (docs/runbooks/slow-devices.md).",
    ),
    (
        "OSD_SLOW_PING_TIME_BACK",
        "Pings between OSDs over their own network take too long.",
        "'ceph tell osd.N dump_osd_network' shows which pairs: cables, duplex, MTU, an overloaded switch.",
    ),
    (
        "OSD_SLOW_PING_TIME_FRONT",
        "Pings between OSDs over the clients' network take too long.",
        "'ceph tell osd.N dump_osd_network' shows which pairs: cables, duplex, MTU, an overloaded switch.",
    ),
    (
        "PG_AVAILABILITY",
        "Some PGs serve nobody at the moment: clients that want data of them wait.",
        "Bring back OSDs that are down; 'ceph pg dump_stuck inactive' shows which PGs and whom they wait for.",
    ),
    (
        "PG_BACKFILL_FULL",
        "Copies cannot be made because the OSDs for them are too full.",
        "Add OSDs or delete data.",
    ),
    (
        "PG_DAMAGED",
        "PGs have copies that differ, or could not be read.",
        "'ceph health detail' names them; 'ceph pg repair PG'.",
    ),
    (
        "PG_DEGRADED",
        "Some data has fewer copies than it is to have. It is served; another failure comes closer to a loss.",
        "It heals by itself while there are OSDs enough: the recovery below says until when.",
    ),
    (
        "PG_NOT_DEEP_SCRUBBED",
        "PGs were not read and compared for longer than wanted.",
        "Let scrubs run: see 'noscrub', 'nodeep-scrub' and the hours in which they may.",
    ),
    (
        "PG_NOT_SCRUBBED",
        "PGs were not compared for longer than wanted.",
        "Let scrubs run: see 'noscrub' and the hours in which they may.",
    ),
    ("PG_RECOVERY_FULL", "Recovery cannot go on because OSDs are full.", "Add OSDs or delete data, now."),
    (
        "POOL_APP_NOT_ENABLED",
        "A pool does not say what it is for.",
        "'ceph osd pool application enable POOL rbd' (or rgw, cephfs, a name of your own).",
    ),
    ("POOL_BACKFILLFULL", "OSDs of a pool are too full to take copies.", "Add OSDs or delete data."),
    (
        "POOL_FULL",
        "A pool has reached its quota, or its OSDs are full: writes to it are refused.",
        "Delete data, or raise the quota ('ceph osd pool set-quota').",
    ),
    (
        "POOL_MERGE_WAITS",
        "A pool is to have fewer PGs. Two that are to be merged are in different parts of an OSD's store, and neither has room for both.",
        "Delete data or add OSDs; or set the pool's pg_num back.",
    ),
    ("POOL_NEARFULL", "OSDs of a pool fill up.", "Add OSDs or delete data."),
    (
        "POOL_NEAR_FULL",
        "A pool comes near its quota.",
        "Delete data, or raise the quota ('ceph osd pool set-quota').",
    ),
    (
        "POOL_NO_REDUNDANCY",
        "A pool has one copy only: a failed device loses its data.",
        "'ceph osd pool set POOL size 3'; or mute this if the data may be lost.",
    ),
    (
        "POOL_PROBE_FAILED",
        "A client of the monitor's own has written to a pool and got no answer in time, or a wrong one: so do other clients.",
        "The lines below name PGs and the OSDs that lead them: see those OSDs, and 'ceph pg PG query'.",
    ),
    (
        "POOL_PROBE_SLOW",
        "A small write or read takes several times as long as it did in the hour before.",
        "'nacre why-slow' says where the time goes: often more load, or a device that has become slow.",
    ),
    (
        "POOL_TARGET_SIZE_BYTES_OVERCOMMITTED",
        "Pools are told to become larger than there is room.",
        "Lower 'target_size_bytes' of pools, or add OSDs.",
    ),
    (
        "POOL_TOO_FEW_PGS",
        "A pool has too few PGs for its data, so OSDs fill unevenly.",
        "'ceph osd pool set POOL pg_autoscale_mode on' does it by itself.",
    ),
    (
        "POOL_TOO_MANY_PGS",
        "A pool has more PGs than its data needs, which costs memory.",
        "'ceph osd pool set POOL pg_autoscale_mode on' does it by itself.",
    ),
    (
        "PROBES_FAILED",
        "The monitor's own client cannot begin to probe pools: nobody looks at them as clients see them. Clients' data is not touched.",
        "The lines below say why; 'ceph config set mon nacre_probe_interval 0' if nobody wants it.",
    ),
    (
        "RECENT_CRASH",
        "A daemon ended by a crash not long ago.",
        "'ceph crash ls-new', 'ceph crash info ID'; 'ceph crash archive-all' when you have seen them.",
    ),
    (
        "SLOW_OPS",
        "Requests of clients are under way for longer than 'osd_op_complaint_time' (30 s).",
        "The slow requests below say where each of them waits.",
    ),
    (
        "TOO_FEW_OSDS",
        "There are fewer OSDs than pools have copies by default.",
        "Add OSDs, or lower 'osd_pool_default_size'.",
    ),
    ("TOO_MANY_PGS", "OSDs have more PGs than is good for them.", "Let the autoscaler choose, or add OSDs."),
];

/// The words for a check, where there are any.
pub(crate) fn words(code: &str) -> Option<Words> {
    let at = WORDS.binary_search_by_key(&code, |(of, ..)| of).ok()?;
    WORDS.get(at).map(|(_, means, advice)| Words { means, advice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_in_order_and_whole_sentences() {
        assert!(WORDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(WORDS.iter().all(|(_, means, advice)| means.ends_with('.') && advice.ends_with('.')));
        assert!(words("OSD_DOWN").is_some_and(|words| words.means.starts_with("An OSD does not run")));
        assert_eq!(words("nobody raises this"), None);
    }
}
