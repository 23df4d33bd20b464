//! Groups of which this OSD has no copy: when one must be made, and what to say without.

use crate::{Cx, Effect, Pg};
use nacre_msg::peer::{
    IntervalId, LogReply, Notify, PastIntervals, PeerHeader, PeerMessage, PgHistory, PgInfo, PushReply,
    QueryKind, ScanReply,
};
use nacre_types::{Epoch, HObject, OsdId};

/// How a copy comes into being.
#[derive(Debug, Clone)]
pub struct Birth {
    /// What is known of the group's past.
    pub history: PgHistory,
    /// Its intervals since it was last known active.
    pub past: PastIntervals,
    /// The epoch whose map [`Pg::create`] should see.
    pub epoch: Epoch,
    /// The interval at `epoch`, where a peer told.
    pub interval: Option<IntervalId>,
}

impl Birth {
    /// The monitor says that the group exists since `created` (`MOSDPGCreate2`). A driver that does not have
    /// the map of that epoch any more may create it with the oldest one it has: the monitor splits no group of a
    /// pool before all of them are made.
    #[must_use]
    pub fn ordered(created: Epoch) -> Self {
        let history = PgHistory { epoch_created: created, ..PgHistory::default() };
        let past = PastIntervals::default();
        Self { history, past, epoch: created, interval: None }
    }

    /// A peer's message for a group of which `whoami` has no copy calls for one: an order to take part, or
    /// news of the group to its primary. Anything else is served by [`Pg::answer_without`].
    #[must_use]
    pub fn called_for(message: &PeerMessage) -> Option<Self> {
        let (header, interval, info, past) = match message {
            PeerMessage::Activate(m) => (m.header, &m.interval, &m.info, &m.past),
            PeerMessage::Notify(m) if m.nonce == 0 => (m.header, &m.interval, &m.info, &m.past),
            _ => return None,
        };
        let (history, past, interval) = (info.history, past.clone(), Some(interval.clone()));
        Some(Self { history, past, epoch: header.epoch, interval })
    }
}

impl Pg {
    /// Answers a peer's message for a group of which this OSD has no copy. Messages of epochs behind
    /// `cx.map` only: the driver keeps others until that map is there.
    pub fn answer_without(cx: &mut Cx<'_>, from: OsdId, message: &PeerMessage) {
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
                let (object, version, offset) = (pull.object.clone(), pull.need, pull.offset);
                PushReply { header, object, version, offset, absent: true }.into()
            }
            _ => return,
        };
        cx.effects.push(Effect::Peer { osd: from, message: answer });
    }
}
