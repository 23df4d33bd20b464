//! Options of OSDs and of pools.

use crate::info::{Kind, Level, OptionInfo, row};

pub(super) static TABLE: &[OptionInfo] = &[
    row(
        "debug_heartbeat_testing_span",
        Kind::Int,
        "0",
        "For tests: seconds in place of the minute in which the times of pings are summed up",
    )
    .at_least("0")
    .at_most("3600")
    .level(Level::Dev),
    row(
        "nacre_recovery_client_latency_calm_multiple",
        Kind::Float,
        "2",
        "Clients' writes may take so many times what 99 of 100 took while nothing was recovered, where that is more than \
         nacre_recovery_client_latency_target_ms. `nacre recovery target` sets both",
    )
    .at_least("1")
    .at_most("1000"),
    row(
        "nacre_debug_device_delay_ms",
        Kind::Float,
        "0",
        "For tests: milliseconds by which every request to the device of a file takes longer, as if it were failing slowly",
    )
    .at_least("0")
    .at_most("10000")
    .level(Level::Dev),
    row(
        "nacre_discard_files",
        Kind::Bool,
        "false",
        "With bdev_enable_discard: stores in files give freed space back to their file system, which may have no room for them later, and \
         what is then written there costs more once",
    )
    .services(&["osd"]),
    row(
        "nacre_bill",
        Kind::Bool,
        "true",
        "An OSD counts for which client and image it works, for 'ceph bill' and metrics: see docs/metrics.md",
    ),
    row(
        "nacre_power_model_idle_watts",
        Kind::Float,
        "1",
        "Watts of a processor that does nothing, for machines that do not measure what they draw",
    )
    .at_least("0"),
    row("nacre_power_model_busy_watts", Kind::Float, "8", "The same of one that is busy").at_least("0"),
    row(
        "nacre_power_root",
        Kind::Text,
        "/",
        "Folder below which 'sys' and 'proc' of the machine are, where an OSD looks for what the machine draws; empty: it does not look",
    ),
    row(
        "nacre_device_probe_interval",
        Kind::Float,
        "3",
        "Seconds after which an OSD whose device had nothing to read, or nothing to write, reads or writes 4 KiB of its own there, so \
         that a slow device is found and found well again without load; each second where the OSD has no primary affinity. 0 never \
         does",
    )
    .at_least("0"),
    row(
        "nacre_recovery_client_latency_target_ms",
        Kind::Float,
        "10",
        "Milliseconds within which 99 of 100 client writes of an OSD shall be durable on all copies, once they are executed, \
         while it recovers; or within a multiple of what 99 of 100 took before, if that is more. Recovery slows down to keep to it, \
         and takes all there is when no client works. 0 never slows down; less than 0.1 is the multiple alone",
    ),
    row("osd_beacon_report_interval", Kind::Int, "300", "Seconds between an OSD's beacons to the monitor"),
    row(
        "osd_check_max_object_name_len_on_startup",
        Kind::Bool,
        "true",
        "Refuse to start where the store cannot hold the longest object names",
    )
    .level(Level::Dev),
    row("osd_class_update_on_start", Kind::Bool, "true", "An OSD sets its device class when it starts"),
    row("osd_client_message_cap", Kind::Uint, "256", "Client messages an OSD holds in memory at a time"),
    row(
        "osd_client_message_size_cap",
        Kind::Size,
        "524288000",
        "Bytes of client messages an OSD holds in memory at a time",
    ),
    row("osd_client_op_priority", Kind::Uint, "63", "Weight of client work beside recovery, up to 63"),
    row(
        "osd_crush_chooseleaf_type",
        Kind::Int,
        "1",
        "CRUSH type that the first rule spreads copies over; 0 is the OSD",
    )
    .level(Level::Dev)
    .at_start(),
    row(
        "osd_crush_initial_weight",
        Kind::Float,
        "-1",
        "CRUSH weight of a new OSD; negative means its size in TiB",
    ),
    row(
        "osd_crush_update_on_start",
        Kind::Bool,
        "true",
        "An OSD puts itself in its place in the CRUSH map when it starts",
    ),
    row("osd_data", Kind::Text, "/var/lib/ceph/osd/$cluster-$id", "Folder of an OSD's own files").at_start(),
    row(
        "osd_deep_scrub_interval",
        Kind::Float,
        "604800",
        "Compare all data of a PG at least this often, in seconds",
    ),
    row("osd_default_notify_timeout", Kind::Uint, "30", "Seconds a notify waits for its watchers"),
    row("osd_enable_op_tracker", Kind::Bool, "true", "Count how long requests spend in which stage, and keep the slowest"),
    row("osd_erasure_code_plugins", Kind::Text, "jerasure lrc isa", "Erasure-code plugins loaded at start")
        .services(&["mon", "osd"])
        .at_start(),
    row(
        "osd_failsafe_full_ratio",
        Kind::Float,
        "0.97",
        "Fraction of use at which an OSD refuses writes on its own",
    ),
    row(
        "osd_fast_fail_on_connection_refused",
        Kind::Bool,
        "true",
        "A refused connection marks a peer down at once",
    ),
    row("osd_fast_shutdown", Kind::Bool, "true", "An OSD that is told to stop skips the tidy-up"),
    row(
        "osd_find_best_info_ignore_history_les",
        Kind::Bool,
        "false",
        "Peering leaves out what copies know of intervals that none of them took part in. Gives up what was written \
         then: a last resort when an incomplete PG's other copies are gone for good",
    )
    .level(Level::Dev),
    row(
        "osd_heartbeat_grace",
        Kind::Int,
        "7",
        "Seconds of silence after which an OSD is reported down and marked down; set it globally, monitors read \
         it too. Ceph has 20: ours keeps the pause of clients below 10 s when a machine freezes",
    )
    .at_least("1")
    .at_most("3600"),
    row(
        "osd_heartbeat_interval",
        Kind::Int,
        "1",
        "Seconds between an OSD's pings to its peers. Ceph has 6",
    )
    .level(Level::Dev)
    .at_least("1")
    .at_most("60"),
    row(
        "osd_heartbeat_min_peers",
        Kind::Int,
        "10",
        "OSDs that an OSD pings at least, beside those that share PGs with it",
    ),
    row(
        "osd_heartbeat_stale",
        Kind::Int,
        "600",
        "Seconds after which the times of pings that have not changed are shown as stale",
    )
    .at_least("0"),
    row(
        "osd_mon_shutdown_timeout",
        Kind::Float,
        "5",
        "Seconds that an OSD which is to stop waits for the monitor to mark it down",
    ),
    row(
        "osd_max_markdown_count",
        Kind::Int,
        "5",
        "An OSD that is wrongly marked down more often than this within osd_max_markdown_period stops",
    ),
    row("osd_max_markdown_period", Kind::Int, "600", "Seconds for osd_max_markdown_count"),
    row("osd_map_cache_size", Kind::Int, "50", "Maps an OSD keeps in memory"),
    row("osd_map_message_max", Kind::Int, "40", "Maps in one message"),
    row("osd_max_attr_size", Kind::Uint, "0", "Largest extended attribute in bytes, 0 for no limit"),
    row(
        "osd_max_backfills",
        Kind::Uint,
        "3",
        "How many PGs an OSD may recover or backfill at a time, counted apart as primary and as target. Ceph has \
         1, for rotating disks",
    ),
    row("osd_max_object_name_len", Kind::Uint, "2048", "Longest name of an object in bytes"),
    row("osd_max_object_namespace_len", Kind::Uint, "256", "Longest namespace in bytes"),
    row("osd_max_object_size", Kind::Size, "134217728", "Largest object in bytes"),
    row("osd_max_omap_bytes_per_request", Kind::Size, "1073741824", "Most omap bytes in one answer"),
    row("osd_max_omap_entries_per_request", Kind::Uint, "1024", "Most omap entries in one answer"),
    row("osd_max_pg_log_entries", Kind::Uint, "10000", "PG log entries kept while a PG is not clean")
        .level(Level::Dev)
        .services(&["osd"]),
    row(
        "osd_max_pg_per_osd_hard_ratio",
        Kind::Float,
        "3",
        "An OSD refuses PGs beyond this multiple of mon_max_pg_per_osd",
    )
    .at_least("1"),
    row("osd_max_scrubs", Kind::Int, "1", "Scrubs that an OSD takes part in at a time"),
    row("osd_max_write_size", Kind::Size, "90", "Largest single write in MiB").at_least("4"),
    row(
        "osd_memory_cache_min",
        Kind::Size,
        "4194304",
        "Bytes of data and metadata that can be read again which an OSD keeps however much memory others need. Ceph has 128 MiB",
    ),
    row("osd_memory_target", Kind::Size, "1073741824", "Memory in bytes that an OSD tries to stay within. Ceph has 4 GiB")
        .level(Level::Basic)
        .at_least("67108864").at_start(),
    row("osd_min_pg_log_entries", Kind::Uint, "250", "PG log entries kept while nothing needs more")
        .level(Level::Dev)
        .services(&["osd"]),
    row("osd_mon_report_interval", Kind::Int, "5", "Least seconds between an OSD's reports to the monitor"),
    row("osd_objectstore", Kind::Text, "bluestore", "Kind of store that a new OSD makes")
        .one_of(&["bluestore", "filestore", "kstore", "memstore"])
        .at_start(),
    row("osd_op_complaint_time", Kind::Float, "30", "Seconds after which a request counts as slow"),
    row("osd_op_history_duration", Kind::Uint, "600", "Seconds for which finished requests are kept"),
    row("osd_op_history_size", Kind::Uint, "20", "Finished requests kept for dump_historic_ops"),
    row("osd_op_num_shards", Kind::Int, "0", "Shards of an OSD's work; 0 chooses by the kind of device")
        .at_start(),
    row("osd_pg_log_dups_tracked", Kind::Uint, "3000", "Requests remembered to recognise a resend")
        .level(Level::Dev)
        .services(&["osd"]),
    row("osd_pg_log_trim_max", Kind::Uint, "10000", "Log entries trimmed at a time").services(&["osd"]),
    row(
        "osd_pool_default_crush_rule",
        Kind::Int,
        "-1",
        "CRUSH rule of a new replicated pool; -1 picks the first that fits",
    )
    .services(&["mon"]),
    row(
        "osd_pool_default_erasure_code_profile",
        Kind::Text,
        "plugin=jerasure technique=reed_sol_van k=2 m=2",
        "Keys and values of the profile named default",
    )
    .services(&["mon"]),
    row("osd_pool_default_flag_bulk", Kind::Bool, "false", "New pools are expected to be large")
        .services(&["mon"]),
    row("osd_pool_default_flag_hashpspool", Kind::Bool, "true", "New pools hash to unlike OSDs")
        .services(&["mon"]),
    row("osd_pool_default_flag_nodelete", Kind::Bool, "false", "New pools cannot be deleted")
        .services(&["mon"]),
    row("osd_pool_default_flag_nopgchange", Kind::Bool, "false", "New pools keep their pg_num")
        .services(&["mon"]),
    row("osd_pool_default_flag_nosizechange", Kind::Bool, "false", "New pools keep their size")
        .services(&["mon"]),
    row(
        "osd_pool_default_min_size",
        Kind::Uint,
        "0",
        "Copies that must be up for I/O in a new pool; 0 means size minus half of it",
    )
    .at_least("0")
    .at_most("255")
    .services(&["mon"]),
    row("osd_pool_default_pg_autoscale_mode", Kind::Text, "on", "What the autoscaler may do with a new pool")
        .one_of(&["off", "on", "warn"])
        .services(&["mon"]),
    row("osd_pool_default_pg_num", Kind::Uint, "32", "Placement groups of a new pool").services(&["mon"]),
    row(
        "osd_pool_default_pgp_num",
        Kind::Uint,
        "0",
        "Placement groups of a new pool that count for placement; 0 means all",
    )
    .services(&["mon"]),
    row(
        "osd_pool_default_read_lease_ratio",
        Kind::Float,
        "0.8",
        "Length of read leases as a fraction of osd_heartbeat_grace: for so long after they last heard of a primary do \
         the other members wait before somebody takes over from it",
    )
    .at_least("0")
    .at_most("1")
    .level(Level::Dev),
    row("osd_pool_default_size", Kind::Uint, "3", "Copies that a new replicated pool keeps")
        .at_least("0")
        .at_most("10")
        .services(&["mon"]),
    row("osd_pool_default_type", Kind::Text, "replicated", "Kind of a new pool when none is given")
        .one_of(&["erasure", "replicated"])
        .services(&["mon"]),
    row(
        "osd_recovery_max_active",
        Kind::Uint,
        "0",
        "How many objects an OSD recovers at a time; 0 chooses by the kind of device",
    ),
    row(
        "osd_recovery_max_active_hdd",
        Kind::Uint,
        "3",
        "How many objects an OSD on a rotating disk recovers at a time",
    ),
    row(
        "osd_recovery_max_active_ssd",
        Kind::Uint,
        "10",
        "How many objects an OSD on a solid-state disk recovers at a time",
    ),
    row("osd_recovery_op_priority", Kind::Uint, "3", "Weight of recovery beside client work, up to 63"),
    row("osd_recovery_sleep", Kind::Float, "0", "Seconds of rest after each recovery or backfill step"),
    row(
        "osd_recovery_sleep_hdd",
        Kind::Float,
        "0.1",
        "Seconds of rest after each recovery step on rotating disks",
    ),
    row(
        "osd_recovery_sleep_ssd",
        Kind::Float,
        "0",
        "Seconds of rest after each recovery step on solid-state disks",
    ),
    row("osd_scrub_auto_repair", Kind::Bool, "false", "Scrub repairs what it finds when the errors are few"),
    row(
        "osd_scrub_begin_hour",
        Kind::Int,
        "0",
        "Hour of the day, in UTC, from which scrubs may start by themselves; the same as osd_scrub_end_hour means all day",
    )
        .at_least("0")
        .at_most("23"),
    row(
        "osd_scrub_begin_week_day",
        Kind::Int,
        "0",
        "Day of the week, in UTC, 0 for Sunday, from which scrubs may start by themselves; the same as \
         osd_scrub_end_week_day means all week",
    )
        .at_least("0")
        .at_most("7"),
    row("osd_scrub_chunk_max", Kind::Int, "25", "Objects that one step of a scrub looks at"),
    row("osd_scrub_during_recovery", Kind::Bool, "false", "Scrubs may start while the OSD recovers"),
    row(
        "osd_scrub_end_hour",
        Kind::Int,
        "0",
        "Hour of the day, in UTC, from which scrubs may not start by themselves any more",
    )
        .at_least("0")
        .at_most("23"),
    row(
        "osd_scrub_end_week_day",
        Kind::Int,
        "0",
        "Day of the week, in UTC, from which scrubs may not start by themselves any more",
    )
        .at_least("0")
        .at_most("7"),
    row(
        "osd_scrub_load_threshold",
        Kind::Float,
        "0.5",
        "Scrubs start by themselves while fewer threads than this per processor are busy, over a minute, or while it is calmer than usual",
    )
    .at_least("0"),
    row(
        "debug_asok_assert_abort",
        Kind::Bool,
        "false",
        "The command assert ends the daemon, for tests of what then happens",
    )
        .level(Level::Dev),
    row(
        "osd_scrub_max_interval",
        Kind::Float,
        "604800",
        "Scrub a PG at the latest after this many seconds, whatever the load",
    ),
    row(
        "osd_scrub_min_interval",
        Kind::Float,
        "86400",
        "Scrub a PG no sooner than this many seconds after the last time",
    ),
    row(
        "osd_smart_report_timeout",
        Kind::Uint,
        "5",
        "Seconds that smartctl may take to say how a device is",
    )
    .at_least("1")
    .at_most("600"),
    row("osd_snap_trim_sleep", Kind::Float, "0", "Seconds of rest after each object trimmed of a snapshot"),
];
