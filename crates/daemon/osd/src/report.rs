//! What an OSD says of itself: to the monitor at boot, to the manager every few seconds.

use crate::config::OsdConfig;
use crate::osd_addrs::Addresses;
use crate::perf_counters::{Declared, PerfSums};
use crate::shard_msg::ShardReport;
use crate::storage::{StoreConfig, device_facts};
use nacre_buf::Bytes;
use nacre_denc::Encode;
use nacre_maps::OsdMap;
use nacre_msg::peer::PeerVersions;
use nacre_msg::stats::{OsdPerfStat, OsdStat, SlowOps, StoreStatfs, osd_alert};
use nacre_msg::{DaemonConfig, DaemonHealthMetric, MgrOpen, MgrReport, PgStats, config_level, daemon_metric};
use nacre_options::{Layer, Values};
use nacre_store::{PackedUsage, StoreUsage};
use nacre_types::{Compression, CompressionAlgorithm, OsdId, Uuid, version};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A report to the manager is due after this time even if nothing changed, unless it says otherwise.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// Class of a device of which nothing is known.
const DEVICE_CLASS: &str = "ssd";

/// What others hear of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreFacts {
    /// What it has for clients, in bytes: it weighs as much in CRUSH.
    pub(crate) capacity_bytes: u64,
    /// Parts of it between which PGs are divided, each with objects of its own.
    pub(crate) partitions: usize,
}

/// Facts about the OSD and its machine, for `ceph osd metadata`.
pub(crate) fn metadata(
    config: &OsdConfig,
    versions: PeerVersions,
    facts: StoreFacts,
    addrs: &Addresses,
) -> BTreeMap<String, String> {
    let (store, data, device) = match &config.store {
        StoreConfig::Memory { .. } => ("nacre-memory", "memory".to_owned(), BTreeMap::new()),
        StoreConfig::File { folder, .. } => {
            ("nacre-block", folder.display().to_string(), device_facts(folder))
        }
    };
    let StoreFacts { capacity_bytes, partitions } = facts;
    let facts = [
        ("arch", std::env::consts::ARCH.to_owned()),
        ("back_addr", addrs.cluster.to_string()),
        ("ceph_release", version::RELEASE.to_owned()),
        ("ceph_version", version::VERSION_TEXT.to_owned()),
        ("ceph_version_short", version::VERSION_SHORT.to_owned()),
        ("default_device_class", device_class(config)),
        ("front_addr", addrs.public.to_string()),
        ("hb_back_addr", addrs.hb_back.to_string()),
        ("hb_front_addr", addrs.hb_front.to_string()),
        ("hostname", config.host.clone()),
        ("journal_rotational", "0".to_owned()),
        (PeerVersions::METADATA_KEY, versions.to_string()),
        ("nacre_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("os", "Linux".to_owned()),
        ("osd_data", data),
        ("osd_objectstore", store.to_owned()),
        ("osd_size_bytes", capacity_bytes.to_string()),
        ("rotational", "0".to_owned()),
    ];
    // The monitor must know what can be merged, and how, and what can be compressed.
    let shards = [("nacre_shards", partitions.to_string()), ("nacre_relocates_pgs", "1".to_owned())];
    let shards = shards.into_iter().filter(|_| partitions > 1);
    let is_in_memory = matches!(config.store, StoreConfig::Memory { .. });
    let compression = (!is_in_memory).then(|| {
        let algorithms = CompressionAlgorithm::ALL.map(CompressionAlgorithm::name).join(" ");
        (Compression::METADATA_KEY, algorithms)
    });
    // What is known of the device is better than what is said of any.
    let own = facts.into_iter().chain(shards).chain(compression).map(|(key, value)| (key.to_owned(), value));
    config.machine_facts.clone().into_iter().chain(own).chain(device).collect()
}

/// The device class that we ask for: as the operator says, or under Ceph's monitors as they would have it of such a device.
pub(crate) fn device_class(config: &OsdConfig) -> String {
    let Some(ceph) = &config.ceph else { return DEVICE_CLASS.to_owned() };
    let facts = match &config.store {
        StoreConfig::Memory { .. } => BTreeMap::new(),
        StoreConfig::File { folder, .. } => device_facts(folder),
    };
    let is_rotational = facts.get("rotational").is_some_and(|text| text == "1");
    let by_kind = if is_rotational { "hdd" } else { DEVICE_CLASS };
    ceph.device_class.clone().unwrap_or_else(|| by_kind.to_owned())
}

/// What a session with the manager begins with.
pub(crate) fn mgr_open(osd: OsdId, options: &Values) -> MgrOpen {
    let defaults: BTreeMap<String, String> = nacre_options::all()
        .filter(|option| option.readers().contains(&"osd"))
        .map(|option| (option.name.to_owned(), option.default.to_owned()))
        .collect();
    MgrOpen {
        daemon_name: osd.to_string(),
        service_name: String::new(),
        service: None,
        config: config(options).to_bytes(),
        config_defaults: defaults.to_bytes(),
    }
}

/// What our options are set to, for the manager.
pub(crate) fn config(options: &Values) -> DaemonConfig {
    let mut config = DaemonConfig::default();
    for (name, layer, value) in options.set_in() {
        let level = match layer {
            Layer::Stored => config_level::MONITOR,
            Layer::File => config_level::FILE,
            Layer::Told => config_level::OVERRIDE,
        };
        config.values.entry(name.to_owned()).or_default().insert(level, value.to_owned());
    }
    config
}

/// Counters and complaints for the manager, summed over the shards. `config`: our options, where they have changed.
pub(crate) fn mgr_report<'a>(
    osd: OsdId,
    shards: impl Iterator<Item = &'a ShardReport> + Clone,
    (declared, priority_min): (&mut Declared, u32),
    config: Bytes,
) -> MgrReport {
    let sums = shards.clone().fold(PerfSums::default(), |sums, shard| sums.plus(&shard.sums));
    let slow = slow_ops(shards);
    let counters = declared.report(&sums, priority_min);
    MgrReport {
        daemon_name: osd.to_string(),
        declare_types: counters.declare,
        packed: counters.packed,
        undeclare_types: counters.undeclare,
        health_metrics: vec![DaemonHealthMetric {
            kind: daemon_metric::SLOW_OPS,
            value: u64::from(slow.count) | u64::from(slow.oldest_s) << 32,
        }],
        config,
        ..MgrReport::default()
    }
}

fn slow_ops<'a>(shards: impl Iterator<Item = &'a ShardReport>) -> SlowOps {
    shards.map(|shard| shard.slow_ops).fold(SlowOps::default(), SlowOps::plus)
}

fn kib(bytes: u64) -> i64 {
    (bytes >> 10).cast_signed()
}

fn statfs(usage: &StoreUsage, packed: PackedUsage) -> StoreStatfs {
    StoreStatfs {
        data_compressed: packed.packed_bytes.cast_signed(),
        data_compressed_allocated: packed.allocated_bytes.cast_signed(),
        data_compressed_original: packed.original_bytes.cast_signed(),
        total: usage.total_bytes.cast_signed(),
        available: usage.available_bytes.cast_signed(),
        allocated: usage.allocated_bytes.cast_signed(),
        data_stored: usage.stored_bytes.cast_signed(),
        omap_allocated: usage.omap_bytes.cast_signed(),
        internal_metadata: usage.metadata_bytes.cast_signed(),
        ..StoreStatfs::default()
    }
}

/// Of what clones share a store counts all for each of them, and PGs once: where more is compressed than there is, each has its part.
fn without_shared(packed: PackedUsage, data_bytes: i64) -> PackedUsage {
    let data_bytes = u64::try_from(data_bytes).unwrap_or(0);
    if packed.original_bytes <= data_bytes {
        return packed;
    }
    let part = |bytes: u64| {
        let scaled = u128::from(bytes) * u128::from(data_bytes) / u128::from(packed.original_bytes);
        u64::try_from(scaled).unwrap_or(bytes)
    };
    PackedUsage {
        original_bytes: data_bytes,
        allocated_bytes: part(packed.allocated_bytes),
        packed_bytes: part(packed.packed_bytes),
    }
}

/// What of a pool's data is compressed: they take less than they are.
fn add_packed(sum: &mut StoreStatfs, packed: PackedUsage) {
    let PackedUsage { original_bytes, allocated_bytes, packed_bytes } = packed;
    sum.data_compressed += packed_bytes.cast_signed();
    sum.data_compressed_allocated += allocated_bytes.cast_signed();
    sum.data_compressed_original += original_bytes.cast_signed();
    let saved = original_bytes.saturating_sub(allocated_bytes).cast_signed();
    // Data count by bytes, and what they take by blocks.
    sum.allocated = (sum.allocated - saved).max(sum.data_compressed_allocated);
}

/// The number of a report, the `count`th: it also tells the reports of different lives of an OSD apart.
pub(crate) fn stat_seq(map: &OsdMap, osd: OsdId, count: u64) -> u64 {
    u64::from(map.info(osd).up_from) << 32 | count
}

/// One report to the manager, summed over the shards.
pub(crate) fn pg_stats<'a>(
    (osd, fsid): (OsdId, Uuid),
    map: &OsdMap,
    count: u64,
    shards: impl Iterator<Item = &'a ShardReport> + Clone,
    hb_peers: impl Iterator<Item = OsdId>,
) -> PgStats {
    let mut report = PgStats { fsid, epoch: map.epoch, ..PgStats::default() };
    let usage = StoreUsage::of_partitions(shards.clone().map(|shard| (shard.usage, shard.partitions)));
    let mut pg_count = 0;
    let (mut commits, mut commits_ns, mut repaired) = (0_u64, 0_u64, 0_u64);
    let packed = PackedUsage::of_partitions(shards.clone().map(|shard| shard.packed.clone()));
    for shard in shards {
        pg_count += shard.pg_count;
        commits += shard.commits.0;
        commits_ns += shard.commits.1;
        repaired += shard.repaired;
        report.pg_stat.extend(shard.pgs.iter().cloned());
        for (pool, (data, omap)) in &shard.pools {
            let sum = report.pool_stat.entry(*pool).or_default();
            sum.allocated += data;
            sum.data_stored += data;
            sum.omap_allocated += omap;
        }
    }
    let mut all_packed = PackedUsage::default();
    for (pool, usage) in packed {
        // Of a pool whose PGs are all gone from here, what is left is being removed.
        let Some(sum) = report.pool_stat.get_mut(&pool) else {
            all_packed += usage;
            continue;
        };
        let usage = without_shared(usage, sum.data_stored);
        all_packed += usage;
        add_packed(sum, usage);
    }
    report.osd_stat = OsdStat {
        hb_peers: hb_peers.collect(),
        up_from: map.info(osd).up_from,
        seq: stat_seq(map, osd, count),
        num_pgs: pg_count,
        kb_used_data: kib(usage.allocated_bytes),
        kb_used_omap: kib(usage.omap_bytes),
        kb_used_meta: kib(usage.metadata_bytes),
        statfs: statfs(&usage, all_packed),
        // An overlay serves what is submitted at once: what takes time is the device, for both.
        perf_stat: OsdPerfStat {
            commit_latency_ns: commits_ns / commits.max(1),
            apply_latency_ns: commits_ns / commits.max(1),
        },
        num_shards_repaired: repaired,
        num_osds: 1,
        num_per_pool_osds: 1,
        num_per_pool_omap_osds: 1,
        ..OsdStat::default()
    };
    report
}

/// PGs that an alert names; of more it gives the number.
const ALERT_PGS_MAX: usize = 10;

/// What an OSD has to say of itself, by the code of the health warning.
pub(crate) fn alerts<'a>(
    misunderstood: impl Iterator<Item = &'a str>,
    shards: impl Iterator<Item = &'a ShardReport> + Clone,
) -> BTreeMap<String, String> {
    let mut alerts = BTreeMap::new();
    let texts: Vec<&str> = misunderstood.collect();
    if !texts.is_empty() {
        alerts.insert(osd_alert::PEER_MESSAGES.to_owned(), texts.join("; "));
    }
    let throttled: BTreeSet<&str> =
        shards.clone().flat_map(|shard| &shard.throttled).map(String::as_str).collect();
    if !throttled.is_empty() {
        alerts.insert(osd_alert::CLIENTS_THROTTLED.to_owned(), Vec::from_iter(throttled).join("; "));
    }
    if let Some(text) = slow_ops(shards.clone()).to_alert() {
        alerts.insert(osd_alert::SLOW_OPS.to_owned(), text);
    }
    let lost: Vec<String> = shards.flat_map(|shard| &shard.lost).map(ToString::to_string).collect();
    if !lost.is_empty() {
        let named = lost.iter().take(ALERT_PGS_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = lost.len().saturating_sub(ALERT_PGS_MAX);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!(
            "the records of its copies of {named}{rest} were damaged: what it alone had of them is lost"
        );
        alerts.insert(osd_alert::COPIES_LOST.to_owned(), text);
    }
    alerts
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_denc::Decode;
    use nacre_types::PoolId;

    /// Ceph's manager decodes both maps without a look at what is there, and ends where one is missing.
    #[test]
    fn the_manager_hears_of_options_in_two_maps_and_of_all_defaults() {
        let mut options = Values::default();
        options.store(&BTreeMap::from([("osd_max_backfills".to_owned(), "2".to_owned())]));
        let open = mgr_open(3, &options);
        let config = DaemonConfig::from_bytes(open.config.clone()).expect("two maps");
        assert_eq!(config.to_bytes(), open.config, "and nothing behind them");
        let backfills = config.values.get("osd_max_backfills").and_then(|at| at.get(&config_level::MONITOR));
        assert_eq!(backfills.map(String::as_str), Some("2"));
        let defaults = BTreeMap::<String, String>::from_bytes(open.config_defaults).expect("a map");
        assert_eq!(defaults.get("osd_max_backfills").map(String::as_str), Some("3"));
        let nothing_set = mgr_open(3, &Values::default());
        assert!(
            DaemonConfig::from_bytes(nothing_set.config)
                .is_ok_and(|config| config == DaemonConfig::default())
        );
    }

    #[test]
    fn what_is_compressed_takes_less_than_it_is() {
        let usage = |original_bytes, allocated_bytes, packed_bytes| PackedUsage {
            original_bytes,
            allocated_bytes,
            packed_bytes,
        };
        let shard = |data, packed: &[(PoolId, PackedUsage)]| ShardReport {
            pools: BTreeMap::from([(2, (data, 7)), (3, (5000, 0))]),
            packed: packed.iter().copied().collect(),
            ..ShardReport::default()
        };
        // Pool 9 has no PG here any more.
        let shards = [
            shard(400_000, &[(2, usage(262_144, 65_536, 60_000)), (9, usage(8192, 4096, 3000))]),
            shard(100_000, &[(2, usage(65_536, 32_768, 30_000)), (3, usage(8192, 4096, 100))]),
        ];
        let map = OsdMap::default();
        let report = pg_stats((0, Uuid::default()), &map, 1, shards.iter(), std::iter::empty());
        let of = |pool: PoolId| {
            let sum = &report.pool_stat[&pool];
            let packed = [sum.data_compressed_original, sum.data_compressed_allocated, sum.data_compressed];
            (sum.data_stored, sum.allocated, packed)
        };
        assert_eq!(of(2), (500_000, 500_000 - 327_680 + 98_304, [327_680, 98_304, 90_000]));
        assert_eq!(of(3), (10_000, 10_000 - 4096, [8192, 4096, 100]));
        assert_eq!(report.pool_stat.len(), 2);
        let all = &report.osd_stat.statfs;
        assert_eq!(
            (all.data_compressed_original, all.data_compressed_allocated, all.data_compressed),
            (344_064, 106_496, 93_100)
        );
    }

    /// A store counts a blob for each clone that has it.
    #[test]
    fn what_snapshots_share_is_compressed_once() {
        const GIB: u64 = 1 << 30;
        // 100 GiB that ten snapshots have as well, at a ratio of 0.3: counters of PGs have them once.
        let packed =
            PackedUsage { original_bytes: 1100 * GIB, allocated_bytes: 330 * GIB, packed_bytes: 319 * GIB };
        let shard = ShardReport {
            pools: BTreeMap::from([(2, ((100 * GIB).cast_signed(), 0)), (3, (0, 0))]),
            packed: BTreeMap::from([(2, packed), (3, packed)]),
            ..ShardReport::default()
        };
        let map = OsdMap::default();
        let report = pg_stats((0, Uuid::default()), &map, 1, [shard].iter(), std::iter::empty());
        let found = |sum: &StoreStatfs| {
            let packed = [sum.data_compressed_original, sum.data_compressed_allocated, sum.data_compressed];
            (sum.data_stored >> 30, sum.allocated >> 30, packed.map(|bytes| bytes >> 30))
        };
        assert_eq!(found(&report.pool_stat[&2]), (100, 30, [100, 30, 29]));
        assert_eq!(found(&report.pool_stat[&3]), (0, 0, [0, 0, 0]), "its data are all gone");
        assert_eq!(found(&report.osd_stat.statfs).2, [100, 30, 29]);
    }

    #[test]
    fn slow_messages_of_all_shards_are_complained_of() {
        let slow = |count, oldest_s| SlowOps { count, oldest_s };
        let shard = |slow_ops| ShardReport { slow_ops, ..ShardReport::default() };
        let shards = [shard(slow(2, 40)), shard(slow(1, 90))];
        let report = mgr_report(3, shards.iter(), (&mut Declared::default(), 5), Bytes::new());
        assert_eq!(report.health_metrics[0].value, 3 | 90 << 32);
        let alert = |shards: &[ShardReport]| {
            let text = alerts(std::iter::empty(), shards.iter()).remove(osd_alert::SLOW_OPS)?;
            SlowOps::from_alert(&text)
        };
        assert_eq!(alert(&shards), Some(slow(3, 90)));
        assert_eq!(alert(&[shard(slow(0, 0))]), None);
    }
}
