//! [`Mgr`]: what daemons tell the manager, and what it wants of them.

use crate::pgmap::PgMap;
use nacre_maps::OsdMap;
use nacre_msg::{MgrClose, MgrConfigure, MgrOpen, PgStats};
use nacre_types::{OsdId, PgId, Stamp, UTime};
use std::collections::BTreeMap;

/// Seconds between reports that we ask for.
pub const STATS_PERIOD_S: u32 = 5;
/// Least priority of counters that we ask for.
const STATS_THRESHOLD: u32 = 5;
/// Daemons that may register; more are answered and not remembered.
pub const DAEMONS_COUNT_MAX: usize = 65_536;
/// Orders to OSDs that may wait to be sent.
pub const ORDERS_COUNT_MAX: usize = 65_536;

/// A daemon that registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Daemon {
    /// What it says of itself, for service daemons.
    pub metadata: BTreeMap<String, String>,
    /// What it says of its condition, for service daemons.
    pub status: BTreeMap<String, String>,
    /// True for a daemon of a service, such as a gateway.
    pub is_service: bool,
}

/// What an OSD shall do with PGs that it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PgOrderKind {
    /// Compare sizes and attributes.
    Scrub,
    /// Compare all data.
    DeepScrub,
    /// Compare all data and mend.
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
    /// Who shall do it.
    pub osd: OsdId,
    /// With which PGs.
    pub pgs: Vec<PgId>,
    /// What.
    pub kind: PgOrderKind,
}

/// The manager's state.
#[derive(Debug, Default)]
pub struct Mgr {
    /// Reports of PGs and OSDs.
    pub pgs: PgMap,
    /// Registered daemons by service and name, such as `("osd", "3")`.
    daemons: BTreeMap<(String, String), Daemon>,
    /// Orders not sent yet.
    orders: Vec<PgOrder>,
}

impl Mgr {
    /// A daemon opens its session.
    pub fn open(&mut self, open: MgrOpen) -> MgrConfigure {
        let key = (open.service_name, open.daemon_name);
        let is_service = open.service.is_some();
        let (metadata, status) = open.service.unwrap_or_default();
        if self.daemons.len() < DAEMONS_COUNT_MAX || self.daemons.contains_key(&key) {
            self.daemons.insert(key, Daemon { metadata, status, is_service });
        }
        MgrConfigure { stats_period_s: STATS_PERIOD_S, stats_threshold: STATS_THRESHOLD }
    }

    /// A daemon says goodbye; it waits for the same words.
    pub fn close(&mut self, close: MgrClose) -> MgrClose {
        self.daemons.remove(&(close.service_name.clone(), close.daemon_name.clone()));
        close
    }

    /// An OSD's report.
    pub fn pg_stats(&mut self, from: OsdId, report: PgStats, wall: UTime) {
        self.pgs.report(from, report, wall);
    }

    /// Registered daemons: `((service, name), daemon)`.
    pub fn daemons(&self) -> impl Iterator<Item = (&(String, String), &Daemon)> {
        self.daemons.iter()
    }

    /// A new OSD map: what it no longer has is forgotten.
    pub fn osd_map(&mut self, map: &OsdMap) {
        self.pgs.prune(map);
    }

    /// Time passed; expected about once per second.
    pub fn tick(&mut self, now: Stamp) {
        self.pgs.sample(now);
    }

    /// Notes an order; false when too many wait already.
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
