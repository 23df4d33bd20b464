//! PGs of which this OSD has no copy: when one must be made, and what to say without.

use crate::{Cx, Effect};
use nacre_msg::peer::{
    IntervalId, LogReply, Notify, PastIntervals, PeerHeader, PeerMessage, PgHistory, PgInfo, PushReply,
    QueryKind, ScanReply,
};
use nacre_types::{Epoch, HObject, OsdId};

/// How a copy comes into being.
#[derive(Debug, Clone)]
pub struct PgCreateInfo {
    /// What is known of the PG's past.
    pub history: PgHistory,
    /// Its intervals since it was last known active.
    pub past: PastIntervals,
    /// The epoch whose map [`crate::Pg::create`] should see.
    pub epoch: Epoch,
    /// The interval at `epoch`, where it is known for longer.
    pub interval: Option<IntervalId>,
    /// By the monitor, which does so only until the PG has been active once.
    pub is_ordered: bool,
    /// What this OSD stored of the PG under maps up to this one is damaged, and cannot be read; 0: there is nothing.
    pub lost_through: Epoch,
}

impl PgCreateInfo {
    /// The monitor says that the PG exists since `created` (`MOSDPGCreate2`). A driver that does not have all maps since
    /// that epoch must get them first, and follow them by a [`crate::Lineage`]: others may have served the PG meanwhile.
    #[must_use]
    pub fn ordered(created: Epoch) -> Self {
        let history = PgHistory { epoch_created: created, ..PgHistory::default() };
        let past = PastIntervals::default();
        Self { history, past, epoch: created, interval: None, is_ordered: true, lost_through: 0 }
    }

    /// A peer's message for a PG of which `whoami` has no copy calls for one: an order to take part, or
    /// news of the PG to its primary. Anything else is served by [`reply_without_pg`].
    #[must_use]
    pub fn called_for(message: &PeerMessage) -> Option<Self> {
        let (header, interval, info, past) = match message {
            PeerMessage::Activate(m) => (m.header, &m.interval, &m.info, &m.past),
            PeerMessage::Notify(m) if m.nonce == 0 => (m.header, &m.interval, &m.info, &m.past),
            _ => return None,
        };
        let (history, past, interval) = (info.history, past.clone(), Some(interval.clone()));
        Some(Self { history, past, epoch: header.epoch, interval, is_ordered: false, lost_through: 0 })
    }
}

/// Answers a peer's message for a PG of which this OSD has no copy. Messages of epochs behind
/// `cx.map` only: the driver keeps others until that map is there.
pub fn reply_without_pg(cx: &mut Cx<'_>, from: OsdId, message: &PeerMessage) {
    let header = PeerHeader { spg: message.header().spg, epoch: cx.map.epoch };
    let info = || PgInfo::empty(PgHistory::default());
    let answer: PeerMessage = match message {
        PeerMessage::Query(query) => match query.kind {
            QueryKind::Info => Notify {
                header,
                nonce: query.nonce,
                interval: IntervalId::default(),
                info: info(),
                past: PastIntervals::default(),
            }
            .into(),
            QueryKind::Log => {
                LogReply { header, info: info(), entries: Vec::new(), missing: Vec::new() }.into()
            }
        },
        PeerMessage::Scan(scan) => {
            let (from, next) = (scan.from.clone(), HObject::max_value());
            ScanReply { header, from, objects: Vec::new(), next }.into()
        }
        PeerMessage::Pull(pull) => {
            let (object, version, at) = (pull.object.clone(), pull.need, pull.at.clone());
            PushReply { header, object, version, at, absent: true }.into()
        }
        _ => return,
    };
    cx.effects.push(Effect::Peer { osd: from, message: answer });
}
