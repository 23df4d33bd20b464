//! Options of monitors.

use crate::info::{Kind, Level, OptionInfo, row};

pub(super) static TABLE: &[OptionInfo] = &[
    row(
        "mon_allow_pool_delete",
        Kind::Bool,
        "false",
        "Pools may be deleted, still only by their name given twice and the flag that says you mean it",
    )
    .services(&["mon"]),
    row("mon_allow_pool_size_one", Kind::Bool, "false", "Pools may keep a single copy").services(&["mon"]),
    row("mon_clock_drift_allowed", Kind::Float, "0.05", "Seconds that the clocks of monitors may differ")
        .at_least("0")
        .services(&["mon"]),
    row("mon_cluster_log_to_file", Kind::Bool, "true", "Write the cluster log to a file").services(&["mon"]),
    row("mon_data", Kind::Text, "/var/lib/ceph/mon/$cluster-$id", "Folder of a monitor's store")
        .services(&["mon"])
        .at_start(),
    row(
        "mon_data_avail_crit",
        Kind::Int,
        "5",
        "Per cent of free space on a monitor's file system with which there is an error, and no monitor starts",
    )
    .at_least("0")
    .at_most("100")
    .services(&["mon"]),
    row(
        "mon_data_avail_warn",
        Kind::Int,
        "30",
        "Per cent of free space on a monitor's file system with which there is a warning",
    )
    .at_least("0")
    .at_most("100")
    .services(&["mon"]),
    row("mon_host", Kind::Text, "", "Addresses of the monitors")
        .level(Level::Basic)
        .services(&["common"])
        .at_start(),
    row("mon_max_pg_per_osd", Kind::Uint, "250", "Most PG copies per OSD that a pool may lead to")
        .at_least("1")
        .services(&["mgr"]),
    row("mon_max_pool_pg_num", Kind::Uint, "65536", "Most placement groups of one pool"),
    row("mon_min_osdmap_epochs", Kind::Int, "500", "OSD maps kept at least").services(&["mon"]),
    row(
        "mon_mgr_beacon_grace",
        Kind::Seconds,
        "30",
        "Seconds without a beacon after which a manager is given up; one whose connection has ended is so after 2 or 3",
    )
    .at_least("1")
    .services(&["mon"]),
    row(
        "mon_mgr_blocklist_interval",
        Kind::Float,
        "86400",
        "Seconds for which the OSDs shut out a manager that was given up",
    )
    .at_least("1")
    .services(&["mon"]),
    row("mon_mgr_digest_period", Kind::Int, "5", "Seconds between what monitors tell managers of themselves")
        .at_least("1")
        .level(Level::Dev)
        .services(&["mon"]),
    row("mon_osd_adjust_heartbeat_grace", Kind::Bool, "true", "Grace grows for OSDs that were laggy before")
        .services(&["mon"]),
    row(
        "mon_osd_auto_mark_auto_out_in",
        Kind::Bool,
        "true",
        "OSDs marked out by the monitor are marked in when they boot",
    )
    .services(&["mon"]),
    row("mon_osd_auto_mark_in", Kind::Bool, "false", "OSDs that boot are marked in").services(&["mon"]),
    row("mon_osd_auto_mark_new_in", Kind::Bool, "true", "New OSDs are marked in when they boot")
        .services(&["mon"]),
    row(
        "mon_osd_backfillfull_ratio",
        Kind::Float,
        "0.9",
        "Fraction of use at which a new cluster's OSDs take no backfill",
    )
    .at_start(),
    row(
        "mon_osd_blocklist_default_expire",
        Kind::Float,
        "3600",
        "Seconds for which a client stays shut out when no time is given",
    )
    .services(&["mon"]),
    row("mon_osd_down_out_interval", Kind::Int, "600", "Seconds after which a down OSD is marked out")
        .services(&["mon"]),
    row(
        "mon_osd_down_out_subtree_limit",
        Kind::Text,
        "rack",
        "When all of a CRUSH bucket of this type or a larger one is down, its OSDs are not marked out",
    )
    .services(&["mon"]),
    row(
        "mon_osd_full_ratio",
        Kind::Float,
        "0.95",
        "Fraction of use at which a new cluster's OSDs count as full",
    )
    .at_start(),
    row(
        "mon_osd_laggy_halflife",
        Kind::Int,
        "3600",
        "Seconds after which half of what is known of an OSD's lagging is forgotten",
    )
    .services(&["mon"]),
    row(
        "mon_osd_laggy_max_interval",
        Kind::Int,
        "300",
        "Longest time down, in seconds, that counts as lagging",
    )
    .services(&["mon"]),
    row("mon_osd_laggy_weight", Kind::Float, "0.3", "Weight of the last time that an OSD lagged")
        .at_least("0")
        .at_most("1")
        .services(&["mon"]),
    row("mon_osd_min_down_reporters", Kind::Uint, "2", "Reporters it takes to mark an OSD down")
        .services(&["mon"]),
    row(
        "mon_osd_min_in_ratio",
        Kind::Float,
        "0.75",
        "Fraction of OSDs that must be in before more are marked out",
    )
    .services(&["mon"]),
    row(
        "mon_osd_min_up_ratio",
        Kind::Float,
        "0.3",
        "Fraction of OSDs that must be up before more are marked down",
    )
    .services(&["mon"]),
    row(
        "mon_osd_nearfull_ratio",
        Kind::Float,
        "0.85",
        "Fraction of use at which a new cluster's OSDs count as nearly full",
    )
    .at_start(),
    row(
        "mon_osd_report_timeout",
        Kind::Int,
        "900",
        "Seconds without a beacon after which an OSD is marked down",
    )
    .services(&["mon"]),
    row(
        "mon_osd_reporter_subtree_level",
        Kind::Text,
        "host",
        "CRUSH type within which all reporters count as one",
    )
    .services(&["mon"]),
    row(
        "mon_pg_stuck_threshold",
        Kind::Int,
        "60",
        "Seconds after which a PG that is not active, clean or heard of counts as stuck",
    )
    .at_least("0")
    .services(&["mon"]),
    row("mon_pg_warn_min_per_osd", Kind::Uint, "0", "Warn below this many PGs per OSD").services(&["mgr"]),
    row("mon_target_pg_per_osd", Kind::Uint, "100", "PGs per OSD that the autoscaler aims for").at_least("1"),
    row(
        "mon_warn_on_insecure_global_id_reclaim",
        Kind::Bool,
        "true",
        "Warn of clients that reclaim their global id without proof",
    )
    .services(&["mon"]),
    row(
        "mon_warn_on_insecure_global_id_reclaim_allowed",
        Kind::Bool,
        "true",
        "Warn while clients may reclaim their global id without proof",
    )
    .services(&["mon"]),
    row("mon_warn_on_pool_no_app", Kind::Bool, "true", "Warn of pools whose application nobody named")
        .level(Level::Dev)
        .services(&["mgr"]),
    row("mon_warn_on_pool_no_redundancy", Kind::Bool, "true", "Warn of pools with one copy")
        .services(&["mon"]),
    row(
        "mon_warn_on_slow_ping_ratio",
        Kind::Float,
        "0.05",
        "Pings between OSDs are slow from this fraction of osd_heartbeat_grace on, where mon_warn_on_slow_ping_time is 0",
    )
    .at_least("0")
    .services(&["mgr", "osd"]),
    row(
        "mon_warn_on_slow_ping_time",
        Kind::Float,
        "0",
        "Pings between OSDs are slow from so many milliseconds on; 0: by mon_warn_on_slow_ping_ratio",
    )
    .at_least("0")
    .services(&["mgr", "osd"]),
    row(
        "target_max_misplaced_ratio",
        Kind::Float,
        "0.05",
        "Share of copies that a pool on its way to another number of PGs may have in the wrong place",
    )
    .at_least("0")
    .at_most("1")
    .services(&["mgr"]),
    row(
        "nacre_probe_interval",
        Kind::Float,
        "60",
        "Seconds between two rounds in which the leading monitor writes and reads a little in PGs of every pool, as a client, and says by \
         POOL_PROBE_FAILED and POOL_PROBE_SLOW what comes of it; 0 does not",
    )
    .at_least("0")
    .services(&["mon"]),
    row(
        "nacre_probe_timeout",
        Kind::Float,
        "10",
        "Seconds after which such a write or read without an answer has failed",
    )
    .at_least("1")
    .services(&["mon"]),
    row(
        "nacre_bill_series_max",
        Kind::Uint,
        "1000",
        "Clients, and images, for which metrics say how much processor time OSDs spent on them; all others are one series",
    )
    .services(&["mon"]),
    row(
        "nacre_slow_device_ratio",
        Kind::Float,
        "2",
        "How many times as long as those of its class an OSD's device takes, in like requests at the same time, to be named as slow by \
         OSD_SLOW_DEVICE; 1.5 at least. 0 compares no devices",
    )
    .at_least("0")
    .services(&["mon"]),
    row(
        "nacre_slow_device_relieve",
        Kind::Bool,
        "true",
        "An OSD whose device is slow has primary affinity 0 until it is well; those of one host at a time, or one OSD where there is only \
         one host",
    )
    .services(&["mon"]),
    row(
        "nacre_slow_device_out_after",
        Kind::Float,
        "30",
        "Seconds that an OSD has had no primaries because its device has become slow after which it is marked out, so that its copies are \
         made elsewhere and no write waits for it: one OSD at a time, only while all PGs are active and clean and there is room, and until \
         its device is well. 0 marks none out",
    )
    .at_least("0")
    .services(&["mon"]),
    row("mon_crush_min_required_version", Kind::Text, "hammer", "Warn of CRUSH tunables from before this release")
        .one_of(&["argonaut", "bobtail", "firefly", "hammer", "jewel"])
        .services(&["mon"]),
    row("mon_osd_snap_trim_queue_warn_on", Kind::Uint, "32768", "Warn of PGs with more snapshots to trim; 0: never")
        .services(&["mgr"]),
    row("mon_osd_warn_num_repaired", Kind::Uint, "10", "Warn of OSDs that had more copies of objects repaired")
        .services(&["mon"]),
    row(
        "mon_pg_warn_max_object_skew",
        Kind::Float,
        "10",
        "Warn of pools whose PGs have so many times as many objects as the average; 0: never",
    )
    .at_least("0")
    .services(&["mgr"]),
    row("mon_pg_warn_min_objects", Kind::Int, "10000", "But not while all pools have fewer objects than these")
        .services(&["mgr"]),
    row("mon_pg_warn_min_pool_objects", Kind::Int, "1000", "Nor of pools that have fewer than these")
        .services(&["mgr"]),
    row(
        "mon_pool_quota_crit_threshold",
        Kind::Int,
        "0",
        "Per cent of a pool's quota from which on it is an error; 0: never",
    )
        .at_least("0")
        .at_most("100")
        .services(&["mgr"]),
    row(
        "mon_pool_quota_warn_threshold",
        Kind::Int,
        "0",
        "Per cent of a pool's quota from which on health warns; 0: never",
    )
        .at_least("0")
        .at_most("100")
        .services(&["mgr"]),
    row(
        "mon_warn_older_version_delay",
        Kind::Seconds,
        "604800",
        "Seconds that an upgrade may take before health warns of daemons left behind",
    )
        .services(&["mon"]),
    row(
        "mon_warn_on_crush_straw_calc_version_zero",
        Kind::Bool,
        "true",
        "Warn of the CRUSH tunable straw_calc_version=0",
    )
        .services(&["mon"]),
    row(
        "mon_warn_on_legacy_crush_tunables",
        Kind::Bool,
        "true",
        "Warn of CRUSH tunables older than mon_crush_min_required_version",
    )
        .services(&["mon"]),
    row("mon_warn_on_misplaced", Kind::Bool, "false", "Warn of objects that are on their way to another place")
        .services(&["mgr"]),
    row("mon_warn_on_older_version", Kind::Bool, "true", "Warn of daemons that an upgrade left behind").services(&["mon"]),
    row("mon_warn_on_osd_down_out_interval_zero", Kind::Bool, "true", "Warn when mon_osd_down_out_interval is 0")
        .services(&["mon"]),
    row(
        "mon_warn_on_pool_pg_num_not_power_of_two",
        Kind::Bool,
        "true",
        "Warn of pools whose number of PGs is no power of two",
    )
        .services(&["mon"]),
    row(
        "mon_warn_pg_not_deep_scrubbed_ratio",
        Kind::Float,
        "0.75",
        "Share of the deep scrub's interval beyond it from which on health warns; 0: never",
    )
        .at_least("0")
        .services(&["mgr"]),
    row(
        "mon_warn_pg_not_scrubbed_ratio",
        Kind::Float,
        "0.5",
        "Share of the scrub's longest interval beyond it from which on health warns; 0: never",
    )
        .at_least("0")
        .services(&["mgr"]),
];
