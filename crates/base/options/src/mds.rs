//! Options of Ceph's metadata servers, those that operators change; and when monitors give one of these up.

use crate::info::{Kind, Level, OptionInfo, row};

pub(super) static TABLE: &[OptionInfo] = &[
    row("mds_bal_fragment_size_max", Kind::Uint, "100000", "Most entries of one fragment of a directory")
        .services(&["mds"]),
    row("mds_bal_interval", Kind::Int, "10", "Seconds between two rounds of balancing directories over ranks")
        .services(&["mds"]),
    row("mds_bal_split_size", Kind::Uint, "10000", "Entries with which a directory's fragment is split")
        .services(&["mds"]),
    row(
        "mds_beacon_grace",
        Kind::Float,
        "15",
        "Seconds without a beacon after which a metadata server is laggy and is replaced where another can take over; one whose connection has ended is after 3 or 4",
    )
    .at_least("1")
    .services(&["mds", "mon"]),
    row("mds_beacon_interval", Kind::Float, "4", "Seconds between two beacons of a metadata server")
        .at_least("0.1")
        .services(&["mds", "mon"]),
    row("mds_cache_memory_limit", Kind::Size, "4294967296", "Bytes of memory that a metadata server's cache is to keep to")
        .level(Level::Basic)
        .services(&["mds"]),
    row("mds_cache_reservation", Kind::Float, "0.05", "Part of that which is kept free").services(&["mds"]),
    row("mds_cache_trim_threshold", Kind::Size, "262144", "Entries that are trimmed from the cache at a time")
        .services(&["mds"]),
    row("mds_client_prealloc_inos", Kind::Int, "1000", "Inode numbers set aside for each client")
        .services(&["mds"]),
    row("mds_export_ephemeral_distributed", Kind::Bool, "true", "Directories may be spread over ranks by their inode number")
        .services(&["mds"]),
    row("mds_export_ephemeral_random", Kind::Bool, "true", "Directories may be spread over ranks at random")
        .services(&["mds"]),
    row("mds_heartbeat_grace", Kind::Float, "15", "Seconds after which a stuck metadata server sends no beacons any more")
        .services(&["mds"]),
    row("mds_join_fs", Kind::Text, "", "File system that a metadata server prefers").level(Level::Basic).services(&["mds"]),
    row("mds_log_events_per_segment", Kind::Int, "1024", "Events of one segment of the journal").services(&["mds"]),
    row("mds_log_max_segments", Kind::Uint, "128", "Segments of the journal beyond which it is trimmed").services(&["mds"]),
    row("mds_max_caps_per_client", Kind::Uint, "1048576", "Most capabilities of one client").services(&["mds"]),
    row("mds_max_purge_files", Kind::Uint, "64", "Deleted files that are purged at a time").services(&["mds"]),
    row("mds_max_purge_ops", Kind::Uint, "8192", "Operations under way to purge deleted files").services(&["mds"]),
    row("mds_max_snaps_per_dir", Kind::Uint, "100", "Most snapshots of one directory").services(&["mds"]),
    row("mds_min_caps_per_client", Kind::Uint, "100", "Capabilities that are left to each client").services(&["mds"]),
    row("mds_op_complaint_time", Kind::Float, "30", "Seconds after which a request is slow").services(&["mds"]),
    row("mds_recall_max_caps", Kind::Size, "30000", "Capabilities that a client is asked to give back at a time")
        .services(&["mds"]),
    row("mds_reconnect_timeout", Kind::Float, "45", "Seconds in which clients find the server that has taken over")
        .services(&["mds"]),
    row("mds_session_blocklist_on_evict", Kind::Bool, "true", "Clients that operators evict are shut out by the OSDs")
        .services(&["mds"]),
    row("mds_session_blocklist_on_timeout", Kind::Bool, "true", "Clients that fall silent are shut out by the OSDs")
        .services(&["mds"]),
    row("mds_standby_replay_damaged", Kind::Bool, "false", "A server that cannot follow a journal marks the rank damaged")
        .services(&["mds"]),
    row("mds_tick_interval", Kind::Float, "5", "Seconds between two looks at sessions and the journal").services(&["mds"]),
    row(
        "mon_mds_blocklist_interval",
        Kind::Float,
        "86400",
        "Seconds for which the OSDs shut out a metadata server that was given up",
    )
    .at_least("3600")
    .services(&["mon"]),
];
