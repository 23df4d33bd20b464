//! Pools and the states of their PGs.

use super::View;
use super::page::{Kind, Page};
use crate::pgmap::{PoolSum, PoolUsage, Rate};
use nacre_maps::{OsdMap, Pool, PoolKind};
use nacre_msg::stats::pg_state;
use nacre_types::{Compression, PoolId};

/// What a pool's series are made of.
struct Row<'a> {
    id: String,
    pool: &'a Pool,
    sum: &'a PoolSum,
    usage: PoolUsage,
    rate: Rate,
}

/// A family with one number of each pool.
struct Column {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&Row<'_>) -> f64,
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&Row<'_>) -> f64) -> Column {
    Column { name, kind: Kind::Gauge, help, value }
}

const fn counter(name: &'static str, help: &'static str, value: fn(&Row<'_>) -> f64) -> Column {
    Column { name, kind: Kind::Counter, help, value }
}

/// Prometheus has no other numbers.
#[expect(clippy::cast_precision_loss, reason = "values of metrics are doubles")]
fn signed(value: i64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "values of metrics are doubles")]
fn unsigned(value: u64) -> f64 {
    value as f64
}

const COLUMNS: &[Column] = &[
    gauge("ceph_pool_max_avail", "Bytes that clients can still store", |row| unsigned(row.usage.max_avail)),
    gauge("ceph_pool_avail_raw", "The same with all copies", |row| unsigned(row.usage.raw_avail)),
    gauge("ceph_pool_stored", "Bytes that clients have stored", |row| unsigned(row.usage.stored())),
    gauge("ceph_pool_stored_raw", "The same with all copies", |row| unsigned(row.usage.stored_raw)),
    gauge("ceph_pool_objects", "Objects", |row| signed(row.sum.stats.num_objects)),
    gauge("ceph_pool_dirty", "Objects that a cache tier has and its base does not", |_| 0.0),
    gauge("ceph_pool_quota_bytes", "Bytes that clients may store, 0 for any number", |row| {
        unsigned(row.pool.quota_max_bytes)
    }),
    gauge("ceph_pool_quota_objects", "Objects that clients may store, 0 for any number", |row| {
        unsigned(row.pool.quota_max_objects)
    }),
    counter("ceph_pool_rd", "Reads", |row| signed(row.sum.stats.num_rd)),
    counter("ceph_pool_rd_bytes", "Bytes read", |row| signed(row.sum.stats.num_rd_kb) * 1024.0),
    counter("ceph_pool_wr", "Writes", |row| signed(row.sum.stats.num_wr)),
    counter("ceph_pool_wr_bytes", "Bytes written", |row| signed(row.sum.stats.num_wr_kb) * 1024.0),
    gauge("ceph_pool_compress_bytes_used", "Bytes that compressed data takes up", |row| {
        unsigned(row.usage.compressed_used)
    }),
    gauge("ceph_pool_compress_under_bytes", "Bytes that it would take up otherwise", |row| {
        unsigned(row.usage.compressed_original)
    }),
    gauge("ceph_pool_bytes_used", "Bytes taken up on OSDs", |row| unsigned(row.usage.used())),
    gauge("ceph_pool_percent_used", "Share of what the pool could take at most, from 0 to 1", |row| {
        row.usage.used_ratio
    }),
    gauge("ceph_pool_recovering_objects_per_sec", "Objects recovered per second", |row| {
        unsigned(row.rate.recovered_objects)
    }),
    gauge("ceph_pool_recovering_bytes_per_sec", "Bytes recovered per second", |row| {
        unsigned(row.rate.recovered_bytes)
    }),
    gauge("ceph_pool_recovering_keys_per_sec", "Omap keys recovered per second", |row| {
        unsigned(row.rate.recovered_keys)
    }),
    gauge("ceph_pool_num_objects_recovered", "Objects recovered", |row| {
        signed(row.sum.stats.num_objects_recovered)
    }),
    gauge("ceph_pool_num_bytes_recovered", "Bytes recovered", |row| {
        signed(row.sum.stats.num_bytes_recovered)
    }),
    counter("ceph_pool_objects_repaired", "Damaged copies of objects that were replaced", |row| {
        signed(row.sum.stats.num_objects_repaired)
    }),
];

pub(super) fn write(view: &View, page: &mut Page) {
    let rows: Vec<Row<'_>> = view.map.pools.iter().filter_map(|(id, pool)| row(view, *id, pool)).collect();
    metadata(&view.map, page);
    for column in COLUMNS {
        page.family(column.name, column.kind, column.help);
        for row in &rows {
            page.sample(column.name, &[("pool_id", &row.id)], (column.value)(row));
        }
    }
    states(view, page);
}

fn row<'a>(view: &'a View, id: PoolId, pool: &'a Pool) -> Option<Row<'a>> {
    Some(Row {
        id: id.to_string(),
        pool,
        sum: view.digest.pools.get(&id)?,
        usage: view.usages.get(&id).copied().unwrap_or_default(),
        rate: view.rates.get(&id).copied().unwrap_or_default(),
    })
}

fn description(map: &OsdMap, pool: &Pool) -> String {
    if pool.kind == PoolKind::Replicated {
        return format!("replica:{}", pool.size);
    }
    let profile = map.erasure_code_profiles.get(&pool.erasure_code_profile);
    let number = |key: &str| profile.and_then(|profile| profile.get(key));
    match (number("k"), number("m")) {
        (Some(k), Some(m)) => format!("ec:{k}+{m}"),
        _ => "ec:unknown".to_owned(),
    }
}

fn metadata(map: &OsdMap, page: &mut Page) {
    page.family("ceph_pool_metadata", Kind::Untyped, "What is known of a pool");
    for (id, pool) in &map.pools {
        let kind = if pool.kind == PoolKind::Replicated { "replicated" } else { "erasure" };
        let (number, description) = (id.to_string(), description(map, pool));
        let compression = pool.compression(Compression::default()).mode;
        let labels: [(&str, &str); 5] = [
            ("pool_id", &number),
            ("name", map.pool_name(*id).unwrap_or_default()),
            ("type", kind),
            ("description", &description),
            // Its own setting; OSDs may have others for pools without one.
            ("compression_mode", compression.name()),
        ];
        page.sample("ceph_pool_metadata", &labels, 1);
    }
}

/// A PG counts under each word of its state. A new leader does not know states by pool until OSDs have reported to it.
fn states(view: &View, page: &mut Page) {
    let pools: Vec<_> = view.pool_states.iter().map(|(id, states)| (id.to_string(), states)).collect();
    page.family("ceph_pg_total", Kind::Gauge, "PGs of a pool");
    for (id, states) in &pools {
        page.sample("ceph_pg_total", &[("pool_id", id)], states.values().sum::<usize>());
    }
    for (bit, word) in pg_state::NAMES.iter().copied().chain([(0, "unknown")]) {
        let name = format!("ceph_pg_{word}");
        page.family(&name, Kind::Gauge, "PGs of a pool in this state, alone or with others");
        for (id, states) in &pools {
            let has = |state: u64| if bit == 0 { state == 0 } else { state & bit != 0 };
            let count: usize = states.iter().filter(|(state, _)| has(**state)).map(|(_, count)| count).sum();
            page.sample(&name, &[("pool_id", id)], count);
        }
    }
}
