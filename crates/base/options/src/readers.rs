//! Which daemons and clients read which option, and what holds instead of an option that none reads.
//!
//! `config set` refuses what would have no effect. The lists are checked against the reads in the code by
//! `tests/option_reads.rs`, which also writes `docs/options.md`.

use crate::{OptionInfo, client, debug, mds};

/// Options that OSDs read, from what `config set` keeps for the section `osd`, one OSD or `global`.
const OSD: &[&str] = &[
    "bdev_enable_discard",
    "bluestore_compression_algorithm",
    "bluestore_compression_max_blob_size",
    "bluestore_compression_min_blob_size",
    "bluestore_compression_mode",
    "bluestore_compression_required_ratio",
    "debug_asok_assert_abort",
    "debug_heartbeat_testing_span",
    "mon_warn_on_slow_ping_ratio",
    "mon_warn_on_slow_ping_time",
    "osd_heartbeat_stale",
    "osd_find_best_info_ignore_history_les",
    "ms_cluster_mode",
    "ms_mon_cluster_mode",
    "ms_service_mode",
    "nacre_recovery_client_latency_calm_multiple",
    "nacre_debug_device_delay_ms",
    "nacre_bill",
    "nacre_power_model_busy_watts",
    "nacre_power_model_idle_watts",
    "nacre_power_root",
    "nacre_device_probe_interval",
    "nacre_discard_files",
    "nacre_recovery_client_latency_target_ms",
    "osd_beacon_report_interval",
    "osd_class_update_on_start",
    "osd_client_message_cap",
    "osd_client_message_size_cap",
    "osd_crush_initial_weight",
    "osd_crush_update_on_start",
    "osd_deep_scrub_interval",
    "osd_enable_op_tracker",
    "osd_fast_fail_on_connection_refused",
    "osd_heartbeat_grace",
    "osd_heartbeat_interval",
    "osd_heartbeat_min_peers",
    "osd_max_backfills",
    "osd_max_markdown_count",
    "osd_max_markdown_period",
    "osd_max_scrubs",
    "osd_memory_cache_min",
    "osd_mon_shutdown_timeout",
    "osd_op_complaint_time",
    "osd_op_history_duration",
    "osd_op_history_size",
    "osd_pool_default_read_lease_ratio",
    "osd_recovery_max_active",
    "osd_recovery_max_active_ssd",
    "osd_scrub_begin_hour",
    "osd_scrub_begin_week_day",
    "osd_scrub_during_recovery",
    "osd_scrub_end_hour",
    "osd_scrub_end_week_day",
    "osd_scrub_load_threshold",
    "osd_scrub_max_interval",
    "osd_scrub_min_interval",
    "osd_smart_report_timeout",
];

/// Options that our monitor reads on behalf of an OSD, by that OSD's sections. Under Ceph's monitors an OSD reads them itself.
pub const FOR_OSD: &[&str] = &[
    "osd_class_update_on_start",
    "osd_crush_initial_weight",
    "osd_crush_update_on_start",
    "osd_deep_scrub_interval",
    "osd_scrub_max_interval",
    "osd_smart_report_timeout",
];

/// Options that monitors read, from the section `mon`, one monitor or `global`.
const MON: &[&str] = &[
    "auth_mon_ticket_ttl",
    "auth_service_ticket_ttl",
    "mds_beacon_grace",
    "mds_beacon_interval",
    "mon_allow_pool_delete",
    "mon_allow_pool_size_one",
    "mon_clock_drift_allowed",
    "mon_crush_min_required_version",
    "mon_data_avail_crit",
    "mon_data_avail_warn",
    "mon_max_pg_per_osd",
    "mon_max_pool_pg_num",
    "mon_mds_blocklist_interval",
    "mon_mgr_beacon_grace",
    "mon_mgr_blocklist_interval",
    "mon_mgr_digest_period",
    "mon_osd_adjust_heartbeat_grace",
    "mon_osd_auto_mark_auto_out_in",
    "mon_osd_auto_mark_in",
    "mon_osd_auto_mark_new_in",
    "mon_osd_blocklist_default_expire",
    "mon_osd_down_out_interval",
    "mon_osd_down_out_subtree_limit",
    "mon_osd_laggy_halflife",
    "mon_osd_laggy_max_interval",
    "mon_osd_laggy_weight",
    "mon_osd_min_down_reporters",
    "mon_osd_min_in_ratio",
    "mon_osd_min_up_ratio",
    "mon_osd_report_timeout",
    "mon_osd_reporter_subtree_level",
    "mon_osd_snap_trim_queue_warn_on",
    "mon_osd_warn_num_repaired",
    "mon_pg_stuck_threshold",
    "mon_pg_warn_max_object_skew",
    "mon_pg_warn_min_objects",
    "mon_pg_warn_min_per_osd",
    "mon_pg_warn_min_pool_objects",
    "mon_pool_quota_crit_threshold",
    "mon_pool_quota_warn_threshold",
    "mon_warn_older_version_delay",
    "mon_warn_on_crush_straw_calc_version_zero",
    "mon_warn_on_legacy_crush_tunables",
    "mon_warn_on_misplaced",
    "mon_warn_on_older_version",
    "mon_warn_on_osd_down_out_interval_zero",
    "mon_warn_on_pool_no_app",
    "mon_warn_on_pool_no_redundancy",
    "mon_warn_on_pool_pg_num_not_power_of_two",
    "mon_warn_on_slow_ping_ratio",
    "mon_warn_on_slow_ping_time",
    "mon_warn_pg_not_deep_scrubbed_ratio",
    "mon_warn_pg_not_scrubbed_ratio",
    "ms_mon_cluster_mode",
    "ms_mon_service_mode",
    "nacre_bill_series_max",
    "nacre_probe_interval",
    "nacre_probe_timeout",
    "nacre_slow_device_out_after",
    "nacre_slow_device_ratio",
    "nacre_slow_device_relieve",
    "osd_heartbeat_grace",
    "osd_heartbeat_stale",
    "osd_pool_default_crush_rule",
    "osd_pool_default_flag_bulk",
    "osd_pool_default_flag_nodelete",
    "osd_pool_default_flag_nopgchange",
    "osd_pool_default_flag_nosizechange",
    "osd_pool_default_min_size",
    "osd_pool_default_pg_autoscale_mode",
    "osd_pool_default_pg_num",
    "osd_pool_default_pgp_num",
    "osd_pool_default_size",
];

/// Options that a `ceph-mgr` of Ceph's reads when the monitor sends them, beside those that it reads as a client.
const MGR: &[&str] =
    &["mgr_stats_period", "mon_max_pg_per_osd", "mon_target_pg_per_osd", "target_max_misplaced_ratio"];

/// Those of them that our own manager reads as well, from the same sections: `mgr` and `global`.
pub const FOR_OWN_MANAGER: &[&str] = &["mon_target_pg_per_osd", "target_max_misplaced_ratio"];

/// Options that Ceph's clients read when the monitor sends them, beside those of `client.rs` and `debug.rs`.
const CLIENT: &[&str] = &[
    "admin_socket",
    "crush_location",
    "err_to_stderr",
    "log_file",
    "log_max_recent",
    "log_to_file",
    "log_to_stderr",
    "ms_async_op_threads",
    "ms_client_mode",
    "ms_connection_idle_timeout",
    "ms_connection_ready_timeout",
    "ms_crc_data",
    "ms_crc_header",
    "ms_die_on_bad_msg",
    "ms_dispatch_throttle_bytes",
    "ms_mon_client_mode",
    "ms_tcp_nodelay",
    "perf",
    "rgw_dns_name",
    "rgw_frontends",
    "rgw_zone",
    "run_dir",
];

/// What holds instead of options that no daemon or client reads.
const MISSING: &[(&str, &[&str])] = &[
    (
        "it belongs into the ceph.conf of who is to read it",
        &["auth_client_required", "fsid", "host", "keyring", "mon_data", "mon_host", "osd_data"],
    ),
    (
        "it is given at start: nacre up, mon or osd with --auth",
        &["auth_cluster_required", "auth_service_required"],
    ),
    (
        "it is given at start: nacre up or nacre osd with --osd-memory-target",
        &["osd_memory_target", "bluestore_cache_size"],
    ),
    ("it is given when an OSD is made: nacre up or nacre osd with --shards", &["osd_op_num_shards"]),
    (
        "it is given at start: nacre up or nacre osd with --osd-size, when a store is made",
        &["bluestore_block_size"],
    ),
    (
        "it is given at start: nacre up, mon or osd with --listen; nacre osd --conf takes it from its ceph.conf",
        &["cluster_addr", "cluster_network", "public_addr", "public_network", "ms_bind_ipv4", "ms_bind_ipv6"],
    ),
    (
        "the system chooses OSDs' ports; nacre osd --conf takes them from its ceph.conf",
        &["ms_bind_port_max", "ms_bind_port_min"],
    ),
    (
        "reclaiming a global id always needs proof",
        &[
            "auth_allow_insecure_global_id_reclaim",
            "mon_warn_on_insecure_global_id_reclaim",
            "mon_warn_on_insecure_global_id_reclaim_allowed",
        ],
    ),
    (
        "discards never hold anybody up: they wait until the device has nothing else to do",
        &["bdev_async_discard"],
    ),
    ("stores always sum blocks of 4 KiB with CRC-32C", &["bluestore_csum_type", "bluestore_min_alloc_size"]),
    (
        "erasure codes are compiled in",
        &["erasure_code_dir", "osd_erasure_code_plugins", "osd_pool_default_erasure_code_profile"],
    ),
    ("the manager asks for a report every 5 s", &["osd_mon_report_interval"]),
    ("the cluster log is kept by the monitor alone", &["mon_cluster_log_to_file"]),
    ("500 maps are kept", &["mon_min_osdmap_epochs"]),
    (
        "new clusters have 0.95, 0.9 and 0.85; change them with ceph osd set-full-ratio, set-backfillfull-ratio, set-nearfull-ratio",
        &["mon_osd_backfillfull_ratio", "mon_osd_full_ratio", "mon_osd_nearfull_ratio"],
    ),
    ("there is one kind of store", &["osd_objectstore", "osd_check_max_object_name_len_on_startup"]),
    ("the first rule spreads copies over hosts", &["osd_crush_chooseleaf_type"]),
    (
        "recovery keeps to nacre_recovery_client_latency_target_ms instead of fixed weights and pauses",
        &[
            "osd_client_op_priority",
            "osd_recovery_op_priority",
            "osd_recovery_sleep",
            "osd_recovery_sleep_hdd",
            "osd_recovery_sleep_ssd",
            "osd_recovery_max_active_hdd",
            "osd_snap_trim_sleep",
        ],
    ),
    ("notifies bring their own timeout, or have 30 s", &["osd_default_notify_timeout"]),
    ("it is fixed at 0.97", &["osd_failsafe_full_ratio"]),
    ("an OSD always takes leave of the monitor", &["osd_fast_shutdown"]),
    (
        "it is fixed: see docs/options.md",
        &[
            "osd_map_cache_size",
            "osd_map_message_max",
            "osd_max_attr_size",
            "osd_max_object_name_len",
            "osd_max_object_namespace_len",
            "osd_max_object_size",
            "osd_max_omap_bytes_per_request",
            "osd_max_omap_entries_per_request",
            "osd_max_pg_log_entries",
            "osd_max_pg_per_osd_hard_ratio",
            "osd_max_write_size",
            "osd_min_pg_log_entries",
            "osd_pg_log_dups_tracked",
            "osd_pg_log_trim_max",
            "osd_scrub_chunk_max",
        ],
    ),
    (
        "pools always hash so, and are replicated unless the command says otherwise",
        &["osd_pool_default_flag_hashpspool", "osd_pool_default_type"],
    ),
    ("scrubs with repair are ordered with ceph pg repair", &["osd_scrub_auto_repair"]),
];

impl OptionInfo {
    /// Which read it: some of `osd`, `mon`, `mgr`, `mds` and `client`, or none.
    #[must_use]
    pub fn readers(&self) -> Vec<&'static str> {
        let of_client = |table: &[Self]| table.iter().any(|option| option.name == self.name);
        let is_in = |list: &[&str]| list.contains(&self.name);
        let client = is_in(CLIENT) || of_client(client::TABLE) || of_client(debug::TABLE);
        let mds = of_client(mds::TABLE) && self.services.contains(&"mds");
        let ours = [("osd", is_in(OSD) || is_in(FOR_OSD)), ("mon", is_in(MON))];
        ours.into_iter()
            .chain([("mgr", is_in(MGR)), ("mds", mds), ("client", client)])
            .filter_map(|(name, reads)| reads.then_some(name))
            .collect()
    }

    /// What holds instead, for an option that no daemon or client reads.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        MISSING.iter().find(|(_, names)| names.contains(&self.name)).map(|(reason, _)| *reason)
    }
}
