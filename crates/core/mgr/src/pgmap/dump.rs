//! Statistics as trees, with the keys that Ceph's `pg dump` uses.

use super::PoolSum;
use nacre_format::{Node, Section, stamp};
use nacre_msg::stats::PgShard;
use nacre_msg::stats::{ObjStatSum, OsdStat, PgStat, StoreStatfs, pg_state};
use nacre_types::{OsdId, PgId, PoolId};

/// Counters of objects. Ceph `object_stat_sum_t::dump`.
#[must_use]
pub fn stat_sum(stats: &ObjStatSum) -> Section {
    let members: [(&'static str, Node); 40] = [
        ("num_bytes", stats.num_bytes.into()),
        ("num_objects", stats.num_objects.into()),
        ("num_object_clones", stats.num_object_clones.into()),
        ("num_object_copies", stats.num_object_copies.into()),
        ("num_objects_missing_on_primary", stats.num_objects_missing_on_primary.into()),
        ("num_objects_missing", stats.num_objects_missing.into()),
        ("num_objects_degraded", stats.num_objects_degraded.into()),
        ("num_objects_misplaced", stats.num_objects_misplaced.into()),
        ("num_objects_unfound", stats.num_objects_unfound.into()),
        ("num_objects_dirty", stats.num_objects_dirty.into()),
        ("num_whiteouts", stats.num_whiteouts.into()),
        ("num_read", stats.num_rd.into()),
        ("num_read_kb", stats.num_rd_kb.into()),
        ("num_write", stats.num_wr.into()),
        ("num_write_kb", stats.num_wr_kb.into()),
        ("num_scrub_errors", stats.num_scrub_errors.into()),
        ("num_shallow_scrub_errors", stats.num_shallow_scrub_errors.into()),
        ("num_deep_scrub_errors", stats.num_deep_scrub_errors.into()),
        ("num_objects_recovered", stats.num_objects_recovered.into()),
        ("num_bytes_recovered", stats.num_bytes_recovered.into()),
        ("num_keys_recovered", stats.num_keys_recovered.into()),
        ("num_objects_omap", stats.num_objects_omap.into()),
        ("num_objects_hit_set_archive", stats.num_objects_hit_set_archive.into()),
        ("num_bytes_hit_set_archive", stats.num_bytes_hit_set_archive.into()),
        ("num_flush", stats.num_flush.into()),
        ("num_flush_kb", stats.num_flush_kb.into()),
        ("num_evict", stats.num_evict.into()),
        ("num_evict_kb", stats.num_evict_kb.into()),
        ("num_promote", stats.num_promote.into()),
        ("num_flush_mode_high", stats.num_flush_mode_high.into()),
        ("num_flush_mode_low", stats.num_flush_mode_low.into()),
        ("num_evict_mode_some", stats.num_evict_mode_some.into()),
        ("num_evict_mode_full", stats.num_evict_mode_full.into()),
        ("num_objects_pinned", stats.num_objects_pinned.into()),
        ("num_legacy_snapsets", stats.num_legacy_snapsets.into()),
        ("num_large_omap_objects", stats.num_large_omap_objects.into()),
        ("num_objects_manifest", stats.num_objects_manifest.into()),
        ("num_omap_bytes", stats.num_omap_bytes.into()),
        ("num_omap_keys", stats.num_omap_keys.into()),
        ("num_objects_repaired", stats.num_objects_repaired.into()),
    ];
    members.into_iter().collect()
}

/// Capacity and use. Ceph `store_statfs_t::dump`.
#[must_use]
pub fn statfs(statfs: &StoreStatfs) -> Section {
    Section::new()
        .with("total", statfs.total)
        .with("available", statfs.available)
        .with("internally_reserved", statfs.internally_reserved)
        .with("allocated", statfs.allocated)
        .with("data_stored", statfs.data_stored)
        .with("data_compressed", statfs.data_compressed)
        .with("data_compressed_allocated", statfs.data_compressed_allocated)
        .with("data_compressed_original", statfs.data_compressed_original)
        .with("omap_allocated", statfs.omap_allocated)
        .with("internal_metadata", statfs.internal_metadata)
}

/// Sums over PGs. Ceph `pool_stat_t::dump`.
#[must_use]
pub fn pool_stat(sum: &PoolSum) -> Section {
    Section::new()
        .with("stat_sum", stat_sum(&sum.stats))
        .with("store_stats", statfs(&sum.store))
        .with("log_size", sum.log_size)
        .with("ondisk_log_size", sum.ondisk_log_size)
        .with("up", sum.up)
        .with("acting", sum.acting)
        .with("num_store_stats", sum.store_count)
}

/// One pool of `pg dump pools`.
#[must_use]
pub fn pool_row(id: PoolId, sum: &PoolSum) -> Section {
    let mut section = Section::new().with("poolid", id).with("num_pg", sum.pg_count);
    section.extend(pool_stat(sum));
    section
}

/// One OSD of `pg dump osds`.
#[must_use]
pub fn osd_stat(osd: OsdId, stat: &OsdStat) -> Section {
    let mut section = Section::new().with("osd", osd);
    section.extend(osd_stat_body(stat));
    section
}

/// An OSD's report. Ceph `osd_stat_t::dump`.
#[must_use]
pub fn osd_stat_body(stat: &OsdStat) -> Section {
    let latency = &stat.perf_stat;
    Section::new()
        .with("up_from", stat.up_from)
        .with("seq", stat.seq)
        .with("num_pgs", stat.num_pgs)
        .with("num_osds", stat.num_osds)
        .with("num_per_pool_osds", stat.num_per_pool_osds)
        .with("num_per_pool_omap_osds", stat.num_per_pool_omap_osds)
        .with("kb", stat.statfs.total >> 10)
        .with("kb_used", stat.statfs.used_raw() >> 10)
        .with("kb_used_data", stat.kb_used_data)
        .with("kb_used_omap", stat.kb_used_omap)
        .with("kb_used_meta", stat.kb_used_meta)
        .with("kb_avail", stat.statfs.available >> 10)
        .with("statfs", statfs(&stat.statfs))
        .with("hb_peers", Node::array("osd", stat.hb_peers.iter().copied()))
        .with("snap_trim_queue_len", stat.snap_trim_queue_len)
        .with("num_snap_trimming", stat.num_snap_trimming)
        .with("num_shards_repaired", stat.num_shards_repaired)
        .with("op_queue_age_hist", histogram(&stat.op_queue_age_hist))
        .with(
            "perf_stat",
            Section::new()
                .with("commit_latency_ms", latency.commit_latency_ns / 1_000_000)
                .with("apply_latency_ms", latency.apply_latency_ns / 1_000_000)
                .with("commit_latency_ns", latency.commit_latency_ns)
                .with("apply_latency_ns", latency.apply_latency_ns),
        )
        .with("alerts", Node::array("alert", Vec::<Node>::new()))
        .with("network_ping_times", Node::array("entry", Vec::<Node>::new()))
}

fn histogram(counts: &[i32]) -> Section {
    let upper = 1_u64.checked_shl(u32::try_from(counts.len()).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
    Section::new().with("histogram", Node::array("count", counts.iter().copied())).with("upper_bound", upper)
}

/// One PG of `pg dump pgs_brief`.
#[must_use]
pub fn pg_brief(pg: PgId, stat: &PgStat, state: u64) -> Section {
    let osds = |osds: &[OsdId]| Node::array("osd", osds.iter().copied());
    Section::new()
        .with("pgid", pg.to_string())
        .with("state", pg_state::text(state))
        .with("up", osds(&stat.up))
        .with("acting", osds(&stat.acting))
        .with("up_primary", stat.up_primary)
        .with("acting_primary", stat.acting_primary)
}

/// One PG of `pg dump pgs`. Ceph `pg_stat_t::dump`.
#[must_use]
pub fn pg_stat(pg: PgId, stat: &PgStat, state: u64) -> Section {
    let mut section = Section::new().with("pgid", pg.to_string());
    section.extend(pg_stat_body(stat, state));
    section
}

/// A PG's report without its name, as `pg query` has it.
#[must_use]
pub fn pg_stat_body(stat: &PgStat, state: u64) -> Section {
    let mut section = stamps(stat, state);
    section.extend(log(stat));
    section.extend(contents(stat));
    section
}

fn stamps(stat: &PgStat, state: u64) -> Section {
    Section::new()
        .with("version", stat.version.to_string())
        .with("reported_seq", stat.reported_seq)
        .with("reported_epoch", stat.reported_epoch)
        .with("state", pg_state::text(state))
        .with("last_fresh", stamp(stat.last_fresh))
        .with("last_change", stamp(stat.last_change))
        .with("last_active", stamp(stat.last_active))
        .with("last_peered", stamp(stat.last_peered))
        .with("last_clean", stamp(stat.last_clean))
        .with("last_became_active", stamp(stat.last_became_active))
        .with("last_became_peered", stamp(stat.last_became_peered))
        .with("last_unstale", stamp(stat.last_unstale))
        .with("last_undegraded", stamp(stat.last_undegraded))
        .with("last_fullsized", stamp(stat.last_fullsized))
}

fn log(stat: &PgStat) -> Section {
    Section::new()
        .with("mapping_epoch", stat.mapping_epoch)
        .with("log_start", stat.log_start.to_string())
        .with("ondisk_log_start", stat.ondisk_log_start.to_string())
        .with("created", stat.created)
        .with("last_epoch_clean", stat.last_epoch_clean)
        .with("parent", stat.parent.to_string())
        .with("parent_split_bits", stat.parent_split_bits)
        .with("last_scrub", stat.last_scrub.to_string())
        .with("last_scrub_stamp", stamp(stat.last_scrub_stamp))
        .with("last_deep_scrub", stat.last_deep_scrub.to_string())
        .with("last_deep_scrub_stamp", stamp(stat.last_deep_scrub_stamp))
        .with("last_clean_scrub_stamp", stamp(stat.last_clean_scrub_stamp))
        .with("log_size", stat.log_size)
        .with("ondisk_log_size", stat.ondisk_log_size)
}

/// A member of a PG: `3`, or `3(1)` for the second shard.
fn shard(at: PgShard) -> String {
    if at.shard < 0 { at.osd.to_string() } else { format!("{}({})", at.osd, at.shard) }
}

fn contents(stat: &PgStat) -> Section {
    let osds = |osds: &[OsdId]| Node::array("osd", osds.iter().copied());
    let locations = stat.object_location_counts.iter().map(|(shards, objects)| {
        let shards: Vec<String> = shards.iter().map(|at| shard(*at)).collect();
        Section::new().with("shards", shards.join(",")).with("objects", *objects)
    });
    let purged = stat.purged_snaps.iter().map(|(start, length)| {
        Section::new().with("start", format!("{start:x}")).with("length", format!("{length:x}"))
    });
    Section::new()
        .with("stats_invalid", stat.stats_invalid)
        .with("dirty_stats_invalid", stat.dirty_stats_invalid)
        .with("omap_stats_invalid", stat.omap_stats_invalid)
        .with("hitset_stats_invalid", stat.hitset_stats_invalid)
        .with("hitset_bytes_stats_invalid", stat.hitset_bytes_stats_invalid)
        .with("pin_stats_invalid", stat.pin_stats_invalid)
        .with("manifest_stats_invalid", stat.manifest_stats_invalid)
        .with("snaptrimq_len", stat.snaptrimq_len)
        .with("stat_sum", stat_sum(&stat.stats.sum))
        .with("up", osds(&stat.up))
        .with("acting", osds(&stat.acting))
        .with("avail_no_missing", Node::array("shard", stat.avail_no_missing.iter().map(|at| shard(*at))))
        .with("object_location_counts", Node::array("entry", locations))
        .with("blocked_by", osds(&stat.blocked_by))
        .with("up_primary", stat.up_primary)
        .with("acting_primary", stat.acting_primary)
        .with("purged_snaps", Node::array("interval", purged))
}
