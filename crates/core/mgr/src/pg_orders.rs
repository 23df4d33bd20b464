//! [`PgOrders`]: what operators order OSDs to do with the PGs that they lead.
//!
//! A scrub is ordered of the OSD that leads the PG, and only that OSD knows of the order. When another one comes to lead before the scrub is
//! done, or the OSD starts anew, the order would be lost without anybody's notice, as with Ceph; so it is given again, until the PG is
//! reported with another stamp. A monitor that comes to lead knows nothing of what others had ordered.

use crate::pgmap::PgMap;
use nacre_msg::stats::PgStat;
use nacre_types::{OsdId, PgId, UTime};
use std::collections::BTreeMap;

/// What an OSD shall do with PGs that it leads. Of scrubs a later one does all that those before it do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

impl PgOrderKind {
    /// When a PG's last scrub of this kind was; `None` where it is no scrub.
    fn last(self, stat: &PgStat) -> Option<UTime> {
        match self {
            Self::Scrub => Some(stat.last_scrub_stamp),
            Self::DeepScrub | Self::Repair => Some(stat.last_deep_scrub_stamp),
            _ => None,
        }
    }
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

/// A scrub that was ordered.
#[derive(Debug)]
struct OrderedScrub {
    kind: PgOrderKind,
    /// In which session of an OSD.
    session: u64,
    /// The last one before.
    before: UTime,
}

/// The OSDs that are connected, and what they were ordered to do.
#[derive(Debug, Default)]
pub struct PgOrders {
    /// Newest sessions of OSDs.
    sessions: BTreeMap<OsdId, u64>,
    /// Not sent yet.
    waiting: Vec<PgOrder>,
    /// Not done yet, for all that is reported.
    scrubs: BTreeMap<PgId, OrderedScrub>,
}

impl PgOrders {
    /// An OSD has connected, in this session.
    pub fn connected(&mut self, osd: OsdId, session: u64) {
        self.sessions.insert(osd, session);
    }

    /// That session is over.
    pub fn disconnected(&mut self, osd: OsdId, session: u64) {
        if self.session_of(osd) == Some(session) {
            self.sessions.remove(&osd);
        }
    }

    /// The session of an OSD that is connected.
    #[must_use]
    pub fn session_of(&self, osd: OsdId) -> Option<u64> {
        self.sessions.get(&osd).copied()
    }

    /// Notes an order, to be sent at once; false when its OSD is not connected.
    pub fn order(&mut self, order: PgOrder, reported: &PgMap) -> bool {
        let Some(session) = self.session_of(order.osd) else { return false };
        let kind = order.kind;
        for pg in &order.pgs {
            let last = reported.pg(*pg).and_then(|stat| kind.last(stat));
            // One that does more stays, in the session that it was sent in.
            let is_most = self.scrubs.get(pg).is_none_or(|held| held.kind <= kind);
            if let Some(before) = last.filter(|_| is_most) {
                self.scrubs.insert(*pg, OrderedScrub { kind, session, before });
            }
        }
        self.waiting.push(order);
        true
    }

    /// Orders scrubs again that are not done and that whoever leads the PG does not know of.
    pub fn order_lost_again(&mut self, reported: &PgMap) {
        let Self { sessions, waiting, scrubs } = self;
        let mut again: BTreeMap<(OsdId, PgOrderKind), Vec<PgId>> = BTreeMap::new();
        scrubs.retain(|pg, scrub| {
            let Some(stat) = reported.pg(*pg).filter(|stat| scrub.kind.last(stat) == Some(scrub.before))
            else {
                return false;
            };
            let leader = stat.acting_primary;
            if let Some(session) = sessions.get(&leader).filter(|session| **session != scrub.session) {
                scrub.session = *session;
                again.entry((leader, scrub.kind)).or_default().push(*pg);
            }
            true
        });
        waiting.extend(again.into_iter().map(|((osd, kind), pgs)| PgOrder { osd, pgs, kind }));
    }

    /// The orders to send to OSDs since the last call.
    pub fn take(&mut self) -> Vec<PgOrder> {
        std::mem::take(&mut self.waiting)
    }
}
