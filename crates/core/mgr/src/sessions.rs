//! [`Mgr`]: what daemons tell the manager, and what it wants of them.

use crate::bill::Bill;
use crate::counters::Counters;
use crate::history::History;
use crate::images::Images;
use crate::least_pings::LeastPings;
use crate::pgmap::PgMap;
use crate::probes::Probes;
use crate::services::Services;
use crate::slow_requests::SlowRequests;
use nacre_maps::OsdMap;
use nacre_msg::{MgrConfigure, PerfQueries, PgStats, image_name_query, image_query};
use nacre_types::{OsdId, PgId, Stamp, UTime};
use std::collections::BTreeMap;

/// Seconds between reports that we ask for.
pub const STATS_PERIOD_S: u32 = 5;
const _: () =
    assert!(STATS_PERIOD_S as u64 == crate::history::SAMPLE_PERIOD.as_secs(), "each sample is of one report");
/// Least priority of counters that we ask for.
const STATS_THRESHOLD: u32 = 5;
/// Orders to OSDs that may wait to be sent.
pub const ORDERS_COUNT_MAX: usize = 65_536;

/// What an OSD shall do with PGs that it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PgOrderKind {
    /// Compare sizes and attributes.
    Scrub,
    /// Compare all data.
    DeepScrub,
    /// Compare all data and repair.
    Repair,
    /// Recover before others.
    ForceRecovery,
    /// Backfill before others.
    ForceBackfill,
    /// Recover in turn again.
    CancelForceRecovery,
    /// Backfill in turn again.
    CancelForceBackfill,
}

/// An order to one OSD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgOrder {
    /// The OSD that is to carry the order out.
    pub osd: OsdId,
    /// With which PGs.
    pub pgs: Vec<PgId>,
    /// What it is to do with the PG.
    pub kind: PgOrderKind,
}

/// The manager's state.
#[derive(Debug, Default)]
pub struct Mgr {
    /// Reports of PGs and OSDs.
    pub pgs: PgMap,
    /// Daemons of services.
    pub services: Services,
    /// OSDs that are connected, by their newest sessions.
    osds: BTreeMap<OsdId, u64>,
    /// Orders not sent yet.
    orders: Vec<PgOrder>,
    /// What daemons count.
    pub counters: Counters,
    /// What OSDs count of images.
    pub images: Images,
    /// Whom OSDs work for.
    pub bill: Bill,
    /// What clients' probes have found out.
    pub probes: Probes,
    /// What went on over the last hour.
    pub history: History,
    /// Requests that OSDs have had for too long.
    pub slow_requests: SlowRequests,
    /// How long the quickest pings between OSDs took.
    pub least_pings: LeastPings,
}

impl Mgr {
    /// What is asked of a daemon that opens its session.
    #[must_use]
    pub fn configure() -> MgrConfigure {
        MgrConfigure {
            stats_period_s: STATS_PERIOD_S,
            stats_threshold: STATS_THRESHOLD,
            ..MgrConfigure::default()
        }
    }

    /// And of an OSD: it counts what clients do with images, too.
    #[must_use]
    pub fn configure_osd() -> MgrConfigure {
        let queries = [image_query(), image_name_query()].map(|query| (query, Default::default()));
        MgrConfigure { perf_queries: PerfQueries::from(queries), ..Self::configure() }
    }

    /// An OSD's report.
    pub fn pg_stats(&mut self, from: OsdId, report: PgStats, wall: UTime) {
        self.pgs.report(from, report, wall);
    }

    /// A new OSD map: what it no longer has is forgotten.
    pub fn osd_map(&mut self, map: &OsdMap) {
        self.pgs.prune(map);
        self.images.prune(map);
        self.bill.prune(map);
        self.probes.retain(|pool| map.pools.contains_key(&pool));
    }

    /// Time passed; expected about once per second.
    pub fn tick(&mut self, now: Stamp) {
        self.pgs.sample(now);
        self.probes.tick(now);
    }

    /// An OSD has connected, in this session.
    pub fn osd_connected(&mut self, osd: OsdId, session: u64) {
        self.osds.insert(osd, session);
    }

    /// That session is over.
    pub fn osd_disconnected(&mut self, osd: OsdId, session: u64) {
        if self.session_of(osd) == Some(session) {
            self.osds.remove(&osd);
        }
    }

    /// The session of an OSD that is connected.
    #[must_use]
    pub fn session_of(&self, osd: OsdId) -> Option<u64> {
        self.osds.get(&osd).copied()
    }

    /// Notes an order to an OSD that is connected; false when too many wait already.
    pub fn order(&mut self, order: PgOrder) -> bool {
        let has_room = self.orders.len() < ORDERS_COUNT_MAX;
        if has_room {
            self.orders.push(order);
        }
        has_room
    }

    /// The orders to send to OSDs since the last call.
    pub fn take_orders(&mut self) -> Vec<PgOrder> {
        std::mem::take(&mut self.orders)
    }
}
