//! [`Peer`]: what a primary knows of another copy, and how that one is brought up to date.

use crate::log::Missing;
use nacre_msg::peer::{PgInfo, ScanReply};
use nacre_types::{Eversion, HObject};

/// How a copy is brought to the authoritative log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// It holds this entry; what is above suffices.
    From(Eversion),
    /// Its log overlaps but is divergent: it needs all entries to find the common point.
    Whole,
    /// Its log does not reach ours: compared object by object, from the first one on.
    Backfill,
}

/// How far a copy is that is compared with this one.
#[derive(Debug)]
pub(crate) struct Backfill {
    /// Objects before this were compared: what the copy lacks of them is among its missing objects.
    pub(crate) compared: HObject,
    /// Its list from there on was asked for.
    pub(crate) asked: bool,
    /// The list, until what this event submitted shows in our own.
    pub(crate) list: Option<ScanReply>,
}

impl Backfill {
    /// From `last_backfill` on.
    pub(crate) fn from(last_backfill: HObject) -> Self {
        Self { compared: last_backfill, asked: false, list: None }
    }

    /// All objects were compared.
    pub(crate) fn has_compared_all(&self) -> bool {
        self.compared.max
    }
}

/// What a primary knows of another copy.
#[derive(Debug)]
pub(crate) struct Peer {
    /// As it said itself.
    pub(crate) info: PgInfo,
    /// What it lacks, as far as it was compared; true once it is activated.
    pub(crate) missing: Missing,
    /// It is compared object by object. What it lacks behind `info.last_backfill` is known to this primary alone.
    pub(crate) backfill: Option<Backfill>,
    /// It has confirmed the authoritative log.
    pub(crate) activated: bool,
    /// It was told that it misses nothing any more.
    pub(crate) told_complete: bool,
}

impl Peer {
    /// A copy that said `info`.
    pub(crate) fn new(info: PgInfo) -> Self {
        Self { info, missing: Missing::default(), backfill: None, activated: false, told_complete: false }
    }

    /// Active, and nothing is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.activated && self.missing.is_empty() && self.is_compared()
    }

    /// All of the copy was compared, or need not be.
    pub(crate) fn is_compared(&self) -> bool {
        self.backfill.as_ref().is_none_or(Backfill::has_compared_all)
    }

    /// It has `object` as the log demands, for all that is known.
    pub(crate) fn has(&self, object: &HObject) -> bool {
        self.missing.need(object).is_none() && self.knows(object)
    }

    /// It has `head` and its clones as the log demands, for all that is known.
    pub(crate) fn has_family(&self, head: &HObject) -> bool {
        !self.missing.has_family(head) && self.knows(head)
    }

    /// What it lacks of `object` is known.
    pub(crate) fn knows(&self, object: &HObject) -> bool {
        self.backfill.as_ref().is_none_or(|backfill| *object < backfill.compared)
    }

    /// It lacks `head` or a clone of it, and counts as having it: writes to the object wait until it does.
    pub(crate) fn needs_first(&self, head: &HObject) -> bool {
        self.activated && self.info.covers(head) && self.missing.has_family(head)
    }

    /// Of a write to `head` it gets the log entry alone, for the comparison has not come to the object, or what it found
    /// missing is not there yet. Ceph's `should_send_op`, turned round.
    pub(crate) fn deferred_by_backfill(&self, head: &HObject) -> bool {
        self.backfill.is_some() && !self.has_family(head)
    }

    /// Counts for `min_size`: it has the log, and what it misses the log can tell.
    pub(crate) fn counts(&self) -> bool {
        self.activated && self.backfill.is_none()
    }
}
