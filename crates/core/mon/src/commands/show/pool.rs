//! Pools as trees and as text.

use nacre_format::{Node, Section, general, stamp};
use nacre_maps::{Pool, PoolOption, flags};
use nacre_types::{IntervalSet, PoolId};

/// Type of an optional setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::commands) enum PoolOptionKind {
    /// A text value.
    Text,
    /// The value is an integer.
    Int,
    /// Number with a fraction.
    Float,
}

/// Optional settings in order of names: name, key, type. Ceph `pool_opts_t::key_t` at v16.2.15.
pub(in crate::commands) const POOL_OPTIONS: &[(&str, i32, PoolOptionKind)] = &[
    ("compression_algorithm", 7, PoolOptionKind::Text),
    ("compression_max_blob_size", 9, PoolOptionKind::Int),
    ("compression_min_blob_size", 10, PoolOptionKind::Int),
    ("compression_mode", 6, PoolOptionKind::Text),
    ("compression_required_ratio", 8, PoolOptionKind::Float),
    ("csum_max_block", 12, PoolOptionKind::Int),
    ("csum_min_block", 13, PoolOptionKind::Int),
    ("csum_type", 11, PoolOptionKind::Int),
    ("dedup_cdc_chunk_size", 22, PoolOptionKind::Int),
    ("dedup_chunk_algorithm", 21, PoolOptionKind::Text),
    ("dedup_tier", 20, PoolOptionKind::Int),
    ("deep_scrub_interval", 2, PoolOptionKind::Float),
    ("fingerprint_algorithm", 14, PoolOptionKind::Text),
    ("pg_autoscale_bias", 18, PoolOptionKind::Float),
    ("pg_num_max", 23, PoolOptionKind::Int),
    ("pg_num_min", 15, PoolOptionKind::Int),
    ("read_lease_interval", 19, PoolOptionKind::Float),
    ("recovery_op_priority", 4, PoolOptionKind::Int),
    ("recovery_priority", 3, PoolOptionKind::Int),
    ("scrub_max_interval", 1, PoolOptionKind::Float),
    ("scrub_min_interval", 0, PoolOptionKind::Float),
    ("scrub_priority", 5, PoolOptionKind::Int),
    ("target_size_bytes", 16, PoolOptionKind::Int),
    ("target_size_ratio", 17, PoolOptionKind::Float),
];

/// Names of the flags, joined with commas.
pub(in crate::commands) fn pool_flags(pool: &Pool) -> String {
    flags::join(pool.flags, flags::pool::NAMES)
}

/// An optional setting as a tree's value.
pub(in crate::commands) fn option_node(value: &PoolOption) -> Node {
    match value {
        PoolOption::Text(text) => text.into(),
        PoolOption::Int(value) => (*value).into(),
        PoolOption::Float(value) => (*value).into(),
    }
}

/// An optional setting as text.
pub(in crate::commands) fn option_text(value: &PoolOption) -> String {
    match value {
        PoolOption::Text(text) => text.clone(),
        PoolOption::Int(value) => value.to_string(),
        PoolOption::Float(value) => general(*value, 6),
    }
}

fn options(pool: &Pool) -> impl Iterator<Item = (&'static str, &PoolOption)> {
    POOL_OPTIONS.iter().filter_map(|(name, key, _)| Some((*name, pool.options.get(key)?)))
}

fn intervals(set: &IntervalSet) -> String {
    let all: Vec<String> = set.iter().map(|(start, length)| format!("{start:x}~{length:x}")).collect();
    format!("[{}]", all.join(","))
}

fn layout(pool: &Pool) -> Section {
    Section::new()
        .with("create_time", stamp(pool.create_time))
        .with("flags", pool.flags)
        .with("flags_names", pool_flags(pool))
        .with("type", pool.kind as u32)
        .with("size", pool.size)
        .with("min_size", pool.min_size)
        .with("crush_rule", pool.crush_rule)
        .with("peering_crush_bucket_count", 0)
        .with("peering_crush_bucket_target", 0)
        .with("peering_crush_bucket_barrier", 0)
        .with("peering_crush_bucket_mandatory_member", nacre_crush::ITEM_NONE)
        .with("object_hash", pool.object_hash)
        .with("pg_autoscale_mode", pool.pg_autoscale_mode.as_str())
        .with("pg_num", pool.pg_num)
        .with("pg_placement_num", pool.pgp_num)
        .with("pg_placement_num_target", pool.pgp_num_target)
        .with("pg_num_target", pool.pg_num_target)
        .with("pg_num_pending", pool.pg_num_pending)
}

fn history(pool: &Pool) -> Section {
    let merge = &pool.last_pg_merge;
    let merge = Section::new()
        .with("source_pgid", merge.source.to_string())
        .with("ready_epoch", merge.ready_epoch)
        .with("last_epoch_started", merge.last_epoch_started)
        .with("last_epoch_clean", merge.last_epoch_clean)
        .with("source_version", merge.source_version.to_string())
        .with("target_version", merge.target_version.to_string());
    Section::new()
        .with("last_pg_merge_meta", merge)
        .with("last_change", pool.last_change.to_string())
        .with("last_force_op_resend", pool.last_force_op_resend.to_string())
        .with("last_force_op_resend_prenautilus", pool.last_force_op_resend_prenautilus.to_string())
        .with("last_force_op_resend_preluminous", pool.last_force_op_resend_preluminous.to_string())
        .with("auid", pool.auid)
}

fn snaps(pool: &Pool) -> Section {
    let mode = if pool.has_flag(flags::pool::POOL_SNAPS) { "pool" } else { "selfmanaged" };
    let snaps = pool.snaps.values().map(|snap| {
        Section::new()
            .with("snapid", snap.id.0)
            .with("stamp", stamp(snap.stamp))
            .with("name", snap.name.as_str())
    });
    Section::new()
        .with("snap_mode", mode)
        .with("snap_seq", pool.snap_seq.0)
        .with("snap_epoch", pool.snap_epoch)
        .with("pool_snaps", Node::array("pool_snap_info", snaps))
        .with("removed_snaps", intervals(&pool.removed_snaps))
        .with("quota_max_bytes", pool.quota_max_bytes)
        .with("quota_max_objects", pool.quota_max_objects)
}

fn tiering(pool: &Pool) -> Section {
    Section::new()
        .with("tiers", Node::array("pool_id", pool.tiers.iter().copied()))
        .with("tier_of", pool.tier_of)
        .with("read_tier", pool.read_tier)
        .with("write_tier", pool.write_tier)
        .with("cache_mode", "none")
        .with("target_max_bytes", pool.target_max_bytes)
        .with("target_max_objects", pool.target_max_objects)
        .with("cache_target_dirty_ratio_micro", pool.cache_target_dirty_ratio_micro)
        .with("cache_target_dirty_high_ratio_micro", pool.cache_target_dirty_high_ratio_micro)
        .with("cache_target_full_ratio_micro", pool.cache_target_full_ratio_micro)
        .with("cache_min_flush_age", pool.cache_min_flush_age)
        .with("cache_min_evict_age", pool.cache_min_evict_age)
        .with("erasure_code_profile", pool.erasure_code_profile.as_str())
        .with("hit_set_params", Section::new().with("type", "none"))
        .with("hit_set_period", pool.hit_set_period)
        .with("hit_set_count", pool.hit_set_count)
        .with("use_gmt_hitset", pool.use_gmt_hitset)
        .with("min_read_recency_for_promote", pool.min_read_recency_for_promote)
        .with("min_write_recency_for_promote", pool.min_write_recency_for_promote)
        .with("hit_set_grade_decay_rate", pool.hit_set_grade_decay_rate)
        .with("hit_set_search_last_n", pool.hit_set_search_last_n)
        .with("grade_table", Node::array("value", Vec::<Node>::new()))
}

/// A pool without its name and id. Ceph `pg_pool_t::dump`.
pub(in crate::commands) fn pool_tree(pool: &Pool) -> Section {
    let applications = pool.application_metadata.iter().map(|(name, keys)| {
        (name.clone(), keys.iter().map(|(key, value)| (key.clone(), value.as_str())).collect::<Section>())
    });
    let mut section = layout(pool);
    section.extend(history(pool));
    section.extend(snaps(pool));
    section.extend(tiering(pool));
    section
        .with("stripe_width", pool.stripe_width)
        .with("expected_num_objects", pool.expected_num_objects)
        .with("fast_read", pool.fast_read)
        .with("options", options(pool).map(|(name, value)| (name, option_node(value))).collect::<Section>())
        .with("application_metadata", applications.collect::<Section>())
}

/// A pool as text.
pub(in crate::commands) fn pool_line(id: PoolId, name: &str, pool: &Pool) -> String {
    let mut line = format!("pool {id} '{name}' {}", pool.kind.as_str());
    let mut put = |name: &str, value: String| line.push_str(&format!(" {name} {value}"));
    if !pool.is_replicated() {
        put("profile", pool.erasure_code_profile.clone());
    }
    put("size", pool.size.to_string());
    put("min_size", pool.min_size.to_string());
    put("crush_rule", pool.crush_rule.to_string());
    put("object_hash", "rjenkins".to_owned());
    put("pg_num", pool.pg_num.to_string());
    put("pgp_num", pool.pgp_num.to_string());
    let targets = [
        ("pg_num_target", pool.pg_num_target, pool.pg_num),
        ("pgp_num_target", pool.pgp_num_target, pool.pgp_num),
        ("pg_num_pending", pool.pg_num_pending, pool.pg_num),
    ];
    for (name, target, _) in targets.into_iter().filter(|(_, target, current)| target != current) {
        put(name, target.to_string());
    }
    put("autoscale_mode", pool.pg_autoscale_mode.as_str().to_owned());
    put("last_change", pool.last_change.to_string());
    let resend = [
        pool.last_force_op_resend,
        pool.last_force_op_resend_prenautilus,
        pool.last_force_op_resend_preluminous,
    ];
    if resend.iter().any(|epoch| *epoch != 0) {
        put("lfor", resend.map(|epoch| epoch.to_string()).join("/"));
    }
    if pool.flags != 0 {
        put("flags", pool_flags(pool));
    }
    for (name, quota) in [("max_bytes", pool.quota_max_bytes), ("max_objects", pool.quota_max_objects)] {
        if quota != 0 {
            put(name, quota.to_string());
        }
    }
    put("stripe_width", pool.stripe_width.to_string());
    if pool.expected_num_objects != 0 {
        put("expected_num_objects", pool.expected_num_objects.to_string());
    }
    if pool.fast_read {
        put("fast_read", "1".to_owned());
    }
    for (name, value) in options(pool) {
        put(name, option_text(value));
    }
    if !pool.application_metadata.is_empty() {
        let names: Vec<&str> = pool.application_metadata.keys().map(String::as_str).collect();
        put("application", names.join(","));
    }
    line
}

/// The lines of a pool's snapshots, below its own.
pub(in crate::commands) fn pool_snap_lines(pool: &Pool) -> Vec<String> {
    let mut lines: Vec<String> = pool
        .snaps
        .values()
        .map(|snap| format!("\tsnap {} '{}' {}", snap.id.0, snap.name, snap.stamp))
        .collect();
    if !pool.removed_snaps.is_empty() {
        lines.push(format!("\tremoved_snaps {}", intervals(&pool.removed_snaps)));
    }
    lines
}
