//! `df`: the cluster's capacity and each pool's share.

use super::call::{Answer, Call};
use super::table::{Command, command};
use nacre_format::{Align, Node, Section, Table, bytes, percent, si};
use nacre_maps::{OsdMap, Pool};
use nacre_mgr::pgmap::{Digest, PoolSum, PoolUsage, pool_usage};
use nacre_msg::stats::StoreStatfs;
use nacre_types::PoolId;
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[command(
    "df name=detail,type=CephChoices,strings=detail,req=false",
    "mon",
    "r",
    "Capacity and use of the cluster and its pools",
    df,
)];

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// In single precision, as Ceph computes it.
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn used_ratio(statfs: &StoreStatfs) -> f64 {
    if statfs.total > 0 { f64::from(statfs.used_raw() as f32 / statfs.total as f32) } else { 0.0 }
}

/// Bytes that are not available, metadata of the stores included.
fn used(statfs: &StoreStatfs) -> i64 {
    statfs.used_raw()
}

fn by_class(call: &Call<'_>, map: &OsdMap) -> BTreeMap<String, StoreStatfs> {
    let mut classes: BTreeMap<String, StoreStatfs> = BTreeMap::new();
    for (osd, stat) in call.state.shown_pgs().osds().filter(|(osd, _)| map.exists(*osd)) {
        let class = map.crush.item_class_name(osd).unwrap_or("-").to_owned();
        *classes.entry(class).or_default() += &stat.statfs;
    }
    classes
}

fn capacity(statfs: &StoreStatfs) -> Section {
    Section::new()
        .with("total_bytes", statfs.total)
        .with("total_avail_bytes", statfs.available)
        .with("total_used_bytes", used(statfs))
        .with("total_used_raw_bytes", statfs.used_raw())
        .with("total_used_raw_ratio", used_ratio(statfs))
}

fn df(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let detail = call.args.text_opt("detail").is_some();
    let digest = call.state.shown_pgs().digest(map);
    let none = PoolSum::default();
    let pools: Vec<Row<'_>> = map
        .pools
        .iter()
        .map(|(id, pool)| {
            let sum = digest.pools.get(id).unwrap_or(&none);
            let usage = pool_usage(call.state.shown_pgs(), map, pool, sum);
            Row { id: *id, name: map.pool_name(*id).unwrap_or_default(), pool, sum, usage }
        })
        .collect();
    let classes = by_class(call, map);
    if call.is_plain() {
        let text = format!("{} \n{}", raw_text(&classes, &digest), pools_text(&pools, detail));
        return call.either("stats", text, Section::new());
    }
    let stats = capacity(&digest.osd_sum.statfs)
        .with("num_osds", digest.osd_sum.num_osds)
        .with("num_per_pool_osds", digest.osd_sum.num_per_pool_osds)
        .with("num_per_pool_omap_osds", digest.osd_sum.num_per_pool_omap_osds);
    let classes: Section = classes.into_iter().map(|(class, statfs)| (class, capacity(&statfs))).collect();
    let pools = pools.iter().map(|row| row.section(detail));
    let tree = Section::new()
        .with("stats", stats)
        .with("stats_by_class", classes)
        .with("pools", Node::array("pool", pools));
    call.tree("stats", tree)
}

fn raw_text(classes: &BTreeMap<String, StoreStatfs>, digest: &Digest) -> String {
    let right = ["SIZE", "AVAIL", "USED", "RAW USED", "%RAW USED"].map(|name| (name, Align::Right));
    let columns: Vec<_> = [("CLASS", Align::Left)].into_iter().chain(right).collect();
    let mut table = Table::aligned(&columns);
    let total = ("TOTAL".to_owned(), &digest.osd_sum.statfs);
    for (name, statfs) in classes.iter().map(|(class, statfs)| (class.clone(), statfs)).chain([total]) {
        let size = |value: i64| bytes(unsigned(value));
        table.row([
            name,
            size(statfs.total),
            size(statfs.available),
            size(used(statfs)),
            size(statfs.used_raw()),
            percent(100.0 * used_ratio(statfs)),
        ]);
    }
    format!("--- RAW STORAGE ---\n{}", table.render())
}

/// A pool's row of `ceph df`.
struct Row<'a> {
    id: PoolId,
    name: &'a str,
    pool: &'a Pool,
    sum: &'a PoolSum,
    usage: PoolUsage,
}

impl Row<'_> {
    fn section(&self, detail: bool) -> Section {
        let (usage, stats) = (&self.usage, &self.sum.stats);
        let mut out = Section::new().with("stored", usage.stored());
        if detail {
            out.put("stored_data", usage.stored_data);
            out.put("stored_omap", usage.stored_omap);
        }
        out.put("objects", stats.num_objects);
        let used = usage.used();
        out.put("kb_used", used.div_ceil(1024));
        out.put("bytes_used", used);
        if detail {
            out.put("data_bytes_used", usage.used_data);
            out.put("omap_bytes_used", usage.used_omap);
        }
        out.put("percent_used", usage.used_ratio);
        out.put("max_avail", usage.max_avail);
        if detail {
            out.put("quota_objects", self.pool.quota_max_objects);
            out.put("quota_bytes", self.pool.quota_max_bytes);
            out.put("dirty", 0);
            out.put("rd", stats.num_rd);
            out.put("rd_bytes", stats.num_rd_kb << 10);
            out.put("wr", stats.num_wr);
            out.put("wr_bytes", stats.num_wr_kb << 10);
            out.put("compress_bytes_used", usage.compressed_used);
            out.put("compress_under_bytes", usage.compressed_original);
            out.put("stored_raw", usage.stored_raw);
            out.put("avail_raw", usage.raw_avail);
        }
        Section::new().with("name", self.name).with("id", self.id).with("stats", out)
    }

    fn cells(&self, detail: bool) -> Vec<String> {
        let usage = &self.usage;
        let mut cells = vec![self.name.to_owned(), self.id.to_string(), self.pool.pg_num.to_string()];
        cells.push(bytes(usage.stored()));
        if detail {
            cells.extend([bytes(usage.stored_data), bytes(usage.stored_omap)]);
        }
        cells.push(si(unsigned(self.sum.stats.num_objects)));
        cells.push(bytes(usage.used()));
        if detail {
            cells.extend([bytes(usage.used_data), bytes(usage.used_omap)]);
        }
        cells.extend([percent(100.0 * usage.used_ratio), bytes(usage.max_avail)]);
        if detail {
            let quota =
                |quota: u64, show: fn(u64) -> String| if quota == 0 { "N/A".to_owned() } else { show(quota) };
            cells.extend([quota(self.pool.quota_max_objects, si), quota(self.pool.quota_max_bytes, bytes)]);
            cells.extend(["N/A".to_owned(), bytes(usage.compressed_used), bytes(usage.compressed_original)]);
        }
        cells
    }
}

fn pools_text(pools: &[Row<'_>], detail: bool) -> String {
    let plain = ["ID", "PGS", "STORED", "OBJECTS", "USED", "%USED", "MAX AVAIL"];
    let detailed = [
        "ID",
        "PGS",
        "STORED",
        "(DATA)",
        "(OMAP)",
        "OBJECTS",
        "USED",
        "(DATA)",
        "(OMAP)",
        "%USED",
        "MAX AVAIL",
        "QUOTA OBJECTS",
        "QUOTA BYTES",
        "DIRTY",
        "USED COMPR",
        "UNDER COMPR",
    ];
    let names: &[&'static str] = if detail { &detailed } else { &plain };
    let right = names.iter().map(|name| (*name, Align::Right));
    let columns: Vec<_> = [("POOL", Align::Left)].into_iter().chain(right).collect();
    let mut table = Table::aligned(&columns);
    for row in pools {
        table.row(row.cells(detail));
    }
    format!("--- POOLS ---\n{}", table.render())
}
