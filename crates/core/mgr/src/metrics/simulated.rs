//! A large cluster as its manager sees it, for tests and for `examples/scrape.rs`. No OSD runs.

use super::{Facts, Health, HealthDetail, MgrView, ModuleView, MonView, OsdView, View};
use crate::counters::Counters;
use crate::images::ImageSums;
use crate::pgmap::{PgMap, pool_usages};
use nacre_maps::{OsdMap, Pool, flags};
use nacre_msg::stats::{OsdPerfStat, OsdStat, PgStat, StoreStatfs, pg_state};
use nacre_msg::{
    DaemonHealthMetric, MgrReport, PerfCounterType, PgStats, counter_kind, daemon_metric, pack_counters,
};
use nacre_types::{AddrVec, EntityAddr, OsdId, PgId, PoolId, Stamp, UTime, Uuid};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Counters of an OSD of Ceph 16.2 with priority 5 or more number about as many.
const COUNTERS_PER_OSD: usize = 60;

/// Everything that such a cluster has reported.
#[derive(Debug)]
pub struct Simulated {
    map: Arc<OsdMap>,
    pgs: PgMap,
    counters: Counters,
    facts: Vec<Facts>,
}

fn osd_id(index: usize) -> OsdId {
    OsdId::try_from(index).expect("a few thousand")
}

fn map(osds: usize, pools: usize, pgs_per_pool: u32) -> OsdMap {
    let mut map = OsdMap::fresh(Uuid::NIL, UTime::ZERO, "host");
    map.set_max_osd(osds);
    let crush = Arc::make_mut(&mut map.crush);
    for index in 0..osds {
        let (id, host) = (osd_id(index), format!("host-{}", index / 10));
        let place = BTreeMap::from([("host".to_owned(), host), ("root".to_owned(), "default".to_owned())]);
        crush.insert_item(id, 0x1_0000, &format!("osd.{id}"), &place).expect("a fresh place");
        crush.set_item_class(id, "ssd");
    }
    for index in 0..osds {
        map.osd_state[index] = flags::osd::EXISTS | flags::osd::UP;
        map.osd_weight[index] = 0x1_0000;
        let port = u16::try_from(6800 + index % 1000).expect("a port");
        let at = AddrVec::of(EntityAddr::msgr2(SocketAddr::from(([10, 0, 0, 1], port)), 1));
        (map.client_addrs[index], map.cluster_addrs[index]) = (at.clone(), at);
    }
    for index in 0..pools {
        let id = PoolId::try_from(index + 1).expect("few");
        map.pools.insert(id, Pool { pg_num: pgs_per_pool, ..Pool::default() });
        map.pool_names.insert(id, format!("pool-{id}"));
    }
    map
}

impl Simulated {
    /// So many OSDs, all of them up, and pools with so many PGs each, all active and clean.
    ///
    /// # Panics
    /// More of them than a map has room for.
    #[must_use]
    pub fn new(osds: usize, pools: usize, pgs_per_pool: u32) -> Self {
        let map = map(osds, pools, pgs_per_pool);
        let mut all = Self {
            map: Arc::new(map),
            pgs: PgMap::default(),
            counters: Counters::default(),
            facts: Vec::new(),
        };
        let pools = all.map.pools.iter();
        let pgs: Vec<PgId> =
            pools.flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId::new(*id, seed))).collect();
        for index in 0..osds {
            all.report(index, osds, &pgs);
        }
        all
    }

    fn report(&mut self, index: usize, osds: usize, pgs: &[PgId]) {
        let osd = osd_id(index);
        let osd_stat = OsdStat {
            perf_stat: OsdPerfStat { commit_latency_ns: 2_000_000, apply_latency_ns: 3_000_000 },
            statfs: StoreStatfs { total: 1 << 40, available: 1 << 39, ..StoreStatfs::default() },
            num_osds: 1,
            ..OsdStat::default()
        };
        let mut stats = PgStats { osd_stat, ..PgStats::default() };
        for (nth, pg) in pgs.iter().enumerate().skip(index).step_by(osds) {
            let members: Vec<OsdId> = (0..3).map(|next| osd_id((nth + next) % osds)).collect();
            let mut stat = PgStat {
                state: pg_state::ACTIVE | pg_state::CLEAN,
                up: members.clone(),
                acting: members,
                up_primary: osd,
                acting_primary: osd,
                ..PgStat::default()
            };
            (stat.stats.sum.num_objects, stat.stats.sum.num_wr) = (1000, 123_456_789);
            stats.pg_stat.insert(*pg, stat);
        }
        self.pgs.report(osd, stats, UTime::ZERO);
        let session = index as u64 + 1;
        self.counters.open(session, &format!("osd.{osd}"));
        self.counters.report(session, &counters(), Stamp::default());
        let facts = [
            ("hostname", format!("host-{}", index / 10)),
            ("ceph_version", nacre_types::version::VERSION_TEXT.to_owned()),
            ("osd_objectstore", "nacre-block".to_owned()),
            ("devices", format!("nvme{}n1", index % 10)),
            ("device_ids", format!("nvme{}n1=ACME_{index}", index % 10)),
        ];
        self.facts.push(Arc::new(facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect()));
    }

    /// What the thread of the manager does for a scrape.
    #[must_use]
    pub fn view(&self) -> View {
        let map = Arc::clone(&self.map);
        let digest = self.pgs.digest(&map);
        let osd = |(index, facts): (usize, &Facts)| OsdView {
            id: osd_id(index),
            perf: self.pgs.osd(osd_id(index)).map(|stat| stat.perf_stat.clone()),
            facts: Arc::clone(facts),
        };
        let detail = |name: &str, is_active| HealthDetail {
            name: name.to_owned(),
            severity: "HEALTH_WARN",
            is_active,
        };
        View {
            pool_states: self.pgs.states_by_pool(&map),
            usages: pool_usages(&self.pgs, &map, &digest.pools),
            rates: map.pools.keys().map(|id| (*id, self.pgs.rate(Some(*id)))).collect(),
            class_used_bytes: BTreeMap::from([("ssd".to_owned(), 1 << 39)]),
            health: Health {
                status: 1,
                slow_ops: 3,
                details: vec![detail("OSD_DOWN", false), detail("SLOW_OPS", true)],
            },
            osds: self.facts.iter().enumerate().map(osd).collect(),
            mons: vec![MonView { name: "a".to_owned(), is_in_quorum: true, ..MonView::default() }],
            mgrs: vec![MgrView { name: "a".to_owned(), is_active: true, ..MgrView::default() }],
            modules: vec![ModuleView { name: "prometheus".to_owned(), status: 1, can_run: true }],
            sessions: vec![("a".to_owned(), self.facts.len())],
            counters: self.counters.all(),
            images: vec![(
                1,
                String::new(),
                "disk".to_owned(),
                ImageSums { write_ops: 7, ..ImageSums::default() },
            )],
            digest,
            map,
            ..View::default()
        }
    }
}

/// Half of them averages.
fn counters() -> MgrReport {
    let kind = |nth: usize| {
        if nth.is_multiple_of(2) {
            counter_kind::U64 | counter_kind::COUNTER
        } else {
            counter_kind::TIME | counter_kind::AVERAGE
        }
    };
    let paths: Vec<String> = (0..COUNTERS_PER_OSD).map(|nth| format!("osd.op_simulated_{nth:02}")).collect();
    let declared = |(nth, path): (usize, &String)| PerfCounterType {
        path: path.clone(),
        description: "A number that something comes to".to_owned(),
        kind: kind(nth),
        priority: 5,
        ..PerfCounterType::default()
    };
    let values = paths.iter().enumerate();
    let values = values.map(|(nth, path)| (path.as_str(), (kind(nth), 1_234_567_890_123, 987_654_321)));
    let slow = DaemonHealthMetric { kind: daemon_metric::SLOW_OPS, value: 3 | 40 << 32 };
    MgrReport {
        declare_types: paths.iter().enumerate().map(declared).collect(),
        packed: pack_counters(&values.collect()),
        health_metrics: vec![slow],
        ..MgrReport::default()
    }
}
