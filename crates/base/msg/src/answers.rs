//! [`Message::answer`]: what a monitor answers a client's request with.

use crate::body::Body;
use crate::*;

/// By what a sender knows the answer to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The type in its header.
    pub kind: u16,
    /// The transaction number in its header.
    pub tid: u64,
}

impl Message {
    /// What a monitor answers this request of a client with, sent under transaction number `tid`; none where that is not one message, or of no
    /// client.
    #[must_use]
    pub fn answer(&self, tid: u64) -> Option<Answer> {
        let kind = match self {
            Self::MonCommand(_) => MonCommandAck::KIND,
            Self::MonGetVersion(_) => MonGetVersionReply::KIND,
            Self::PoolOp(_) => PoolOpReply::KIND,
            Self::Statfs(_) => StatfsReply::KIND,
            Self::GetPoolStats(_) => GetPoolStatsReply::KIND,
            Self::Log(_) => LogAck::KIND,
            Self::Ping(_) => Ping::KIND,
            // Comes as it does to subscribers.
            Self::MonGetMap(_) => return Some(Answer { kind: MMonMap::KIND, tid: 0 }),
            _ => return None,
        };
        Some(Answer { kind, tid })
    }
}
