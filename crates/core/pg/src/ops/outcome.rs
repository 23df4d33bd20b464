//! What an execution yields: [`Outcome`], or why it must wait: [`Suspend`].

use super::CopySource;
use crate::object::{ObjectContext, WatchKey, Watcher};
use nacre_buf::{BufList, Bytes};
use nacre_msg::peer::{Counters, LogEntry};
use nacre_txn::{Op, ReadError};

/// The message cannot be executed yet, or not here; nothing has changed. Execution it again once that is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suspend {
    /// Object data is on its way from the device, or damaged and must be repaired first.
    Read(ReadError),
    /// The operation with this index copies an object that must be fetched first; hand it in as
    /// [`super::Copied`].
    Copy {
        /// Index of the operation in the message.
        op_index: usize,
        /// What to fetch.
        source: Box<CopySource>,
    },
    /// The class call with this index has done what a turn is for: hand in its progress in a later one. Nothing may change the object
    /// meanwhile.
    Pause {
        /// Index of the operation in the message.
        op_index: usize,
        /// How far it came.
        progress: Bytes,
    },
}

impl From<ReadError> for Suspend {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// Result and output of one operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpResult {
    /// 0, a positive result or a negated errno; 0 for operations behind the one that failed.
    pub rval: i32,
    /// Output of the operation.
    pub out: BufList,
}

/// A change of an object, to be submitted as one transaction with its log entries.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The changes, without the log.
    pub ops: Vec<Op>,
    /// What the log records, in order, with ascending versions: a clone if one was made, then the head. The
    /// last one carries the request, its result and [`Outcome::counters`].
    pub entries: Vec<LogEntry>,
    /// The head afterwards.
    pub object: ObjectContext,
}

/// What a message does to the PG.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Nothing; reply at once.
    None,
    /// A write that failed or changed nothing: only the log takes note, so that a resend is answered alike.
    Log(Box<LogEntry>),
    /// A change of the object; reply when it is durable.
    Write(Box<Write>),
    /// The pool is full and the client did not ask to try: send no reply, the client waits for room.
    Dropped,
}

/// A watch changed; carried out only with a result that is not negative.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchChange {
    /// The caller watches, anew or again.
    Connect {
        /// The caller's cookie.
        cookie: u64,
        /// As recorded in the object info.
        watcher: Watcher,
        /// False for old clients, which never ping: only the connection's end begins the timeout.
        will_ping: bool,
    },
    /// The caller says it is there. If its watch is not connected now, the operation's result must become
    /// `ETIMEDOUT`: only the watch registry knows.
    Ping {
        /// The caller's cookie.
        cookie: u64,
    },
    /// A watch ended.
    Disconnect {
        /// Client and cookie of the watch.
        key: WatchKey,
        /// The object was deleted: tell the watcher.
        tell: bool,
    },
}

/// A notify to send to all watchers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notify {
    /// The id that the client was told.
    pub id: u64,
    /// The notifier's handle.
    pub cookie: u64,
    /// Seconds to wait for acknowledgements.
    pub timeout_s: u32,
    /// What the watchers get.
    pub payload: Bytes,
}

/// A watcher's acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyAck {
    /// Number of the notify that is acknowledged.
    pub id: u64,
    /// Which watch of the caller; `None` from old clients means all.
    pub cookie: Option<u64>,
    /// What the notifier gets.
    pub reply: Bytes,
}

/// What came of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The message's result.
    pub result: i32,
    /// One per operation.
    pub ops: Vec<OpResult>,
    /// The object's user version, after the message.
    pub user_version: u64,
    /// Changes of the object, and of others for it.
    pub change: Change,
    /// Changes of watches, in order.
    pub watches: Vec<WatchChange>,
    /// Notifies to start.
    pub notifies: Vec<Notify>,
    /// Acknowledgements of notifies.
    pub acks: Vec<NotifyAck>,
    /// What the message adds to the PG's sums; for a write also in its last log entry.
    pub counters: Counters,
}
