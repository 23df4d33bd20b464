//! [`Incoming`]: what the messenger tells its owner.

use nacre_msgr::{Event, Session};

/// Names a connection; never used again while the messenger lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ConnId(pub u64);

impl ConnId {
    /// Where the messenger keeps it.
    pub(super) fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }
}

/// What a turn brought.
#[derive(Debug)]
pub enum Incoming {
    /// Something happened on a connection, in order. Session requests are answered here and not shown.
    Event {
        /// Connection that the event is of.
        conn: ConnId,
        /// What happened there.
        event: Event,
    },
    /// The connection is gone; nothing more comes of it.
    Closed {
        /// Connection that has ended.
        conn: ConnId,
        /// Why it ended, for logs.
        reason: String,
        /// Nothing listens where we dialled: the peer's process is gone.
        refused: bool,
        /// For one that we dialled, and that is lossless: the session to resume.
        session: Option<Box<Session>>,
    },
}
