//! [`Mgr`]: what daemons tell the manager, and what it wants of them.

use crate::bill::Bill;
use crate::counters::Counters;
use crate::history::History;
use crate::images::Images;
use crate::least_pings::LeastPings;
use crate::pg_orders::PgOrders;
use crate::pgmap::PgMap;
use crate::probes::Probes;
use crate::services::Services;
use crate::slow_requests::SlowRequests;
use nacre_maps::OsdMap;
use nacre_msg::{MgrConfigure, PerfQueries, PgStats, image_name_query, image_query};
use nacre_types::{OsdId, Stamp, UTime};

/// Seconds between reports that we ask for.
pub const STATS_PERIOD_S: u32 = 5;
const _: () =
    assert!(STATS_PERIOD_S as u64 == crate::history::SAMPLE_PERIOD.as_secs(), "each sample is of one report");
/// Least priority of counters that we ask for.
const STATS_THRESHOLD: u32 = 5;

/// The manager's state.
#[derive(Debug, Default)]
pub struct Mgr {
    /// Reports of PGs and OSDs.
    pub pgs: PgMap,
    /// Daemons of services.
    pub services: Services,
    /// What operators order OSDs to do.
    pub orders: PgOrders,
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
        self.orders.order_lost_again(&self.pgs);
    }
}
