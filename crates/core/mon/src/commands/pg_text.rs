//! The tables of `pg dump` and `pg ls`. Ceph `src/mon/PGMap.cc` at v16.2.15.

use super::call::Call;
use super::show::text_set;
use nacre_format::{Align, Table, age, bytes, stamp};
use nacre_maps::OsdMap;
use nacre_mgr::PgMap;
use nacre_mgr::pgmap::{Digest, PoolSum};
use nacre_msg::stats::{ObjStatSum, PgStat, StoreStatfs, pg_state};
use nacre_types::{Eversion, PgId};

/// Below the tables that show sizes of omap.
pub(super) const OMAP_NOTE: &str = "\n* Omap figures are of the last deep scrub.\n";

const SUM_NAMES: [&str; 10] = [
    "OBJECTS",
    "MISSING_ON_PRIMARY",
    "DEGRADED",
    "MISPLACED",
    "UNFOUND",
    "BYTES",
    "OMAP_BYTES*",
    "OMAP_KEYS*",
    "LOG",
    "DISK_LOG",
];

type Column = (&'static str, Align, Align);

fn left(name: &'static str) -> Column {
    (name, Align::Left, Align::Left)
}

fn right(name: &'static str) -> Column {
    (name, Align::Left, Align::Right)
}

fn sum_cells(stats: &ObjStatSum, log: i64, disk_log: i64) -> [String; 10] {
    [
        stats.num_objects,
        stats.num_objects_missing_on_primary,
        stats.num_objects_degraded,
        stats.num_objects_misplaced,
        stats.num_objects_unfound,
        stats.num_bytes,
        stats.num_omap_bytes,
        stats.num_omap_keys,
        log,
        disk_log,
    ]
    .map(|value| value.to_string())
}

fn version(at: Eversion) -> String {
    at.to_string()
}

/// Every PG with everything.
pub(super) fn full<'a>(map: &OsdMap, pgs: impl Iterator<Item = (PgId, &'a PgStat)>) -> String {
    let mut columns = vec![left("PG_STAT")];
    columns.extend(SUM_NAMES.map(right));
    columns.extend([
        right("STATE"),
        right("STATE_STAMP"),
        right("VERSION"),
        right("REPORTED"),
        right("UP"),
        right("UP_PRIMARY"),
    ]);
    columns.extend([right("ACTING"), right("ACTING_PRIMARY"), right("LAST_SCRUB"), right("SCRUB_STAMP")]);
    columns.extend([right("LAST_DEEP_SCRUB"), right("DEEP_SCRUB_STAMP"), right("SNAPTRIMQ_LEN")]);
    let mut table = Table::new(&columns);
    for (pg, stat) in pgs {
        let mut row = vec![pg.to_string()];
        row.extend(sum_cells(&stat.stats.sum, stat.log_size, stat.ondisk_log_size));
        row.extend([
            pg_state::text(PgMap::state_of(stat, map)),
            stamp(stat.last_change),
            version(stat.version),
            format!("{}:{}", stat.reported_epoch, stat.reported_seq),
            text_set(&stat.up),
            stat.up_primary.to_string(),
            text_set(&stat.acting),
            stat.acting_primary.to_string(),
            version(stat.last_scrub),
            stamp(stat.last_scrub_stamp),
            version(stat.last_deep_scrub),
            stamp(stat.last_deep_scrub_stamp),
            stat.snaptrimq_len.to_string(),
        ]);
        table.row(row);
    }
    table.render()
}

/// Every PG with its state and where it is.
pub(super) fn brief<'a>(map: &OsdMap, pgs: impl Iterator<Item = (PgId, &'a PgStat)>) -> String {
    let columns = [
        left("PG_STAT"),
        right("STATE"),
        right("UP"),
        right("UP_PRIMARY"),
        right("ACTING"),
        right("ACTING_PRIMARY"),
    ];
    let mut table = Table::new(&columns);
    for (pg, stat) in pgs {
        table.row([
            pg.to_string(),
            pg_state::text(PgMap::state_of(stat, map)),
            text_set(&stat.up),
            stat.up_primary.to_string(),
            text_set(&stat.acting),
            stat.acting_primary.to_string(),
        ]);
    }
    table.render()
}

/// `pg ls`.
pub(super) fn listing<'a>(
    call: &Call<'_>,
    map: &OsdMap,
    pgs: impl Iterator<Item = (PgId, &'a PgStat)>,
) -> String {
    let names = [
        "OBJECTS",
        "DEGRADED",
        "MISPLACED",
        "UNFOUND",
        "BYTES",
        "OMAP_BYTES*",
        "OMAP_KEYS*",
        "LOG",
        "STATE",
        "SINCE",
        "VERSION",
        "REPORTED",
        "UP",
        "ACTING",
        "SCRUB_STAMP",
        "DEEP_SCRUB_STAMP",
    ];
    let mut columns = vec![left("PG")];
    columns.extend(names.map(right));
    let mut table = Table::new(&columns);
    for (pg, stat) in pgs {
        let sum = &stat.stats.sum;
        let counts = [
            sum.num_objects,
            sum.num_objects_degraded,
            sum.num_objects_misplaced,
            sum.num_objects_unfound,
            sum.num_bytes,
            sum.num_omap_bytes,
            sum.num_omap_keys,
            stat.log_size,
        ];
        let mut row = vec![pg.to_string()];
        row.extend(counts.map(|value| value.to_string()));
        row.extend([
            pg_state::text(PgMap::state_of(stat, map)),
            age(call.wall.since(stat.last_change)),
            version(stat.version),
            format!("{}:{}", stat.reported_epoch, stat.reported_seq),
            format!("{}p{}", text_set(&stat.up), stat.up_primary),
            format!("{}p{}", text_set(&stat.acting), stat.acting_primary),
            stamp(stat.last_scrub_stamp),
            stamp(stat.last_deep_scrub_stamp),
        ]);
        table.row(row);
    }
    table.render()
}

fn sum_row(name: String, sum: &PoolSum) -> Vec<String> {
    let cells = sum_cells(&sum.stats, sum.log_size, sum.ondisk_log_size);
    std::iter::once(name).chain(cells).collect()
}

fn sum_table(name: &'static str) -> Table {
    let columns: Vec<Column> = [left(name)].into_iter().chain(SUM_NAMES.map(right)).collect();
    Table::new(&columns)
}

/// Sums of the pools.
pub(super) fn pools(digest: &Digest) -> String {
    let mut table = sum_table("POOLID");
    for (id, sum) in digest.pools.iter().rev() {
        table.row(sum_row(id.to_string(), sum));
    }
    table.render()
}

/// The sum of everything.
pub(super) fn sums(digest: &Digest) -> String {
    let mut table = sum_table("PG_STAT");
    table.row(sum_row("sum".to_owned(), &digest.sum));
    table.render()
}

fn use_cells(statfs: &StoreStatfs) -> [String; 4] {
    [statfs.used_raw(), statfs.available, statfs.used_raw(), statfs.total]
        .map(|value| bytes(u64::try_from(value).unwrap_or(0)))
}

/// The sum of the OSDs.
pub(super) fn osd_sum(digest: &Digest) -> String {
    let mut table =
        Table::new(&[left("OSD_STAT"), right("USED"), right("AVAIL"), right("USED_RAW"), right("TOTAL")]);
    table.row(std::iter::once("sum".to_owned()).chain(use_cells(&digest.osd_sum.statfs)));
    table.render()
}

/// Every OSD and their sum.
pub(super) fn osds(call: &Call<'_>, digest: &Digest) -> String {
    let names = ["USED", "AVAIL", "USED_RAW", "TOTAL", "HB_PEERS", "PG_SUM", "PRIMARY_PG_SUM"];
    let columns: Vec<Column> = [left("OSD_STAT")].into_iter().chain(names.map(right)).collect();
    let mut table = Table::new(&columns);
    for (osd, stat) in call.state.stats.pgs.osds().rev() {
        let pgs = digest.osd_pgs.get(&osd).copied().unwrap_or_default();
        let mut row = vec![osd.to_string()];
        row.extend(use_cells(&stat.statfs));
        row.extend([text_set(&stat.hb_peers), pgs.members.to_string(), pgs.primary.to_string()]);
        table.row(row);
    }
    table.row(std::iter::once("sum".to_owned()).chain(use_cells(&digest.osd_sum.statfs)));
    table.render()
}
