//! Bringing copies up to date, object by object.

use super::coded::{coded, coded_message, coded_with_txn};
use super::{PeerHeader, PgInfo};
use nacre_txn::Transaction;
use nacre_types::{Eversion, HObject};

/// Which objects do you have, from here on?
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// Placement group and epoch.
    pub header: PeerHeader,
    /// First object wanted.
    pub from: HObject,
}

coded_message!(Scan, "Scan", { header, from });

/// An object and the version of its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedObject {
    /// The object.
    pub object: HObject,
    /// Version of the copy; zero when it is only partly there.
    pub version: Eversion,
}

coded!(ScannedObject, "scanned object", { object, version });

/// These objects, in these versions.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanReply {
    /// Placement group and epoch.
    pub header: PeerHeader,
    /// Where it begins, echoed.
    pub from: HObject,
    /// Ascending.
    pub objects: Vec<ScannedObject>,
    /// First object not listed; the maximum when the list is complete.
    pub next: HObject,
}

coded_message!(ScanReply, "ScanReply", { header, from, objects, next });

/// Send me this object.
#[derive(Debug, Clone, PartialEq)]
pub struct Pull {
    /// Placement group and epoch.
    pub header: PeerHeader,
    /// The object.
    pub object: HObject,
    /// The version that is needed.
    pub need: Eversion,
    /// First byte of data wanted; 0 begins the object anew.
    pub offset: u64,
}

coded_message!(Pull, "Pull", { header, object, need, offset });

/// Here is (a part of) an object, or the order to drop it.
#[derive(Debug, Clone, PartialEq)]
pub struct Push {
    /// Placement group and epoch.
    pub header: PeerHeader,
    /// The object.
    pub object: HObject,
    /// Its version; zero when it must not exist.
    pub version: Eversion,
    /// This part begins here.
    pub offset: u64,
    /// The next part begins here; `None` when this is the last one.
    pub next: Option<u64>,
    /// True when the receiver asked for it with [`Pull`].
    pub pulled: bool,
    /// The change to apply.
    pub txn: Transaction,
}

coded_with_txn!(Push, "Push", { header, object, version, offset, next, pulled });

/// The part is durable here, or I cannot give the object.
#[derive(Debug, Clone, PartialEq)]
pub struct PushReply {
    /// Placement group and epoch.
    pub header: PeerHeader,
    /// The object.
    pub object: HObject,
    /// The version that was pushed or asked for.
    pub version: Eversion,
    /// The part that is durable.
    pub offset: u64,
    /// An answer to [`Pull`]: this copy does not have that version.
    pub absent: bool,
}

coded_message!(PushReply, "PushReply", { header, object, version, offset, absent });

/// What the primary knows of the receiver now: it misses nothing any more, or the PG's history moved on.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Placement group and epoch.
    pub header: PeerHeader,
    /// The primary's info; its history, purged snapshots and counters are taken over.
    pub info: PgInfo,
    /// The receiver has all objects as of `info.last_update`.
    pub complete: bool,
}

coded_message!(Progress, "Progress", { header, info, complete });

/// The PG is clean without you: drop your copy.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    /// Placement group and epoch.
    pub header: PeerHeader,
}

coded_message!(Release, "Release", { header });
