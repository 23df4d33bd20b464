//! Execution of a client's message: operations in order, as one, into a transaction and outputs.
//!
//! [`classify`] says what a message is before it runs (caps, ordering, replicas); [`check_limits`] refuses
//! what is malformed; [`execute`] runs it against the state before the message. Reads see that state: only
//! existence, size and "has omap" follow earlier operations of the same message (`mutation::Mutation`
//! keeps them), as a real OSD was measured to do; radosgw's metadata updates rely on it.
//!
//! Source: behaviour of ceph-osd v16.2.15 (`PrimaryLogPG::do_osd_ops`), measured on the wire.

mod attr;
mod budget;
mod call;
mod check;
mod checksum;
mod classify;
mod copied;
mod copy;
mod exec;
mod execution;
mod expected;
mod finish;
mod looks;
mod mutation;
mod omap;
mod outcome;
mod read;
mod snaps;
mod stripes;
mod watch;
mod write;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use crate::turn::WORK_BYTES_MAX;
pub use budget::{LISTED_MAX, MessageLimits, OMAP_KEYS_MAX, OPS_MAX, REPLY_BYTES_MAX, SNAPS_MAX};
pub use check::check_limits;
pub use classify::{ClassUse, Intent, classify};
pub(crate) use copied::PART_BYTES_MAX;
pub use copied::{Copied, CopiedObject, CopyCursor, CopyPart, CopySource, Staged, extract};
pub use exec::execute;
pub use expected::expected_bytes;
pub(crate) use expected::expected_of_object;
pub(crate) use looks::head_of;
pub use looks::looks;
pub use nacre_msg::size::{CLIENT_INPUT_BYTES_MAX, OBJECT_BYTES_MAX, TRANSACTION_BYTES_MAX};
pub use outcome::{Change, Notify, NotifyAck, OpResult, Outcome, Suspend, WatchChange, Write};
pub use read::PlainRead;

use crate::snap::SnapContext;
use nacre_buf::Bytes;
use nacre_cls::Caller;
use nacre_maps::{OsdMap, flags};
use nacre_msg::OsdOp;
use nacre_txn::ObjectView;
use nacre_types::{Entropy, Epoch, Errno, Eversion, HObject, IntervalSet, PoolId, ReqId, SpgId, UTime};
use std::collections::BTreeMap;

/// Longest object name and locator key in bytes (`osd_max_object_name_len`).
pub const NAME_BYTES_MAX: usize = 2048;
/// Longest namespace in bytes (`osd_max_object_namespace_len`).
pub const NAMESPACE_BYTES_MAX: usize = 256;
/// Longest attribute name in bytes (`osd_max_attr_name_len`).
pub const ATTR_NAME_BYTES_MAX: u32 = 100;
/// Longest attribute value in bytes. A real OSD has no limit but the message's (`osd_max_attr_size` 0).
pub const ATTR_VALUE_BYTES_MAX: u32 = 4 << 20;
/// Most omap entries in one answer (`osd_max_omap_entries_per_request`).
pub const OMAP_ENTRIES_MAX: usize = 1024;
/// About the most bytes of omap in one answer (`osd_max_omap_bytes_per_request`).
pub const OMAP_BYTES_MAX: usize = 8 << 20;
/// Longest output of one operation of a write (`osd_max_write_op_reply_len`).
pub const WRITE_OUTPUT_BYTES_MAX: usize = 64;

// What the log keeps of one message, twice in a write on its way to the replicas.
const _: () = assert!(
    2 * (OPS_MAX * (WRITE_OUTPUT_BYTES_MAX + 16)
        + 8 * SNAPS_MAX
        + 4 * (2 * NAME_BYTES_MAX + NAMESPACE_BYTES_MAX))
        < nacre_msg::size::PEER_REST_BYTES_MAX / 2
);

/// Why a pool takes no more data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fullness {
    /// There is room.
    #[default]
    Room,
    /// Its quota is used up.
    Quota,
    /// The OSDs are full.
    Space,
}

impl Fullness {
    /// What a client that insisted on trying gets.
    #[must_use]
    pub fn errno(self) -> Option<Errno> {
        match self {
            Self::Room => None,
            Self::Quota => Some(Errno::EDQUOT),
            Self::Space => Some(Errno::ENOSPC),
        }
    }
}

/// What execution needs to know of a pool; made once per map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolFacts {
    /// Id of the pool.
    pub id: PoolId,
    /// Number of its PGs.
    pub pg_num: u32,
    /// Bytes of a full stripe when erasure-coded: such a pool has no omap.
    pub stripe_bytes: Option<u32>,
    /// When erasure-coded: objects may be changed in part, and not only grow by whole stripes (`allow_ec_overwrites`).
    pub overwrites: bool,
    /// When erasure-coded: reads ask all members, and take what comes first.
    pub fast_read: bool,
    /// The pool's own snapshots, in pools whose snapshots are the pool's and not the clients'.
    pub snaps: Option<SnapContext>,
    /// Snapshots removed and not yet trimmed.
    pub removed_snaps: IntervalSet,
    /// Whether it takes more data.
    pub fullness: Fullness,
}

impl PoolFacts {
    /// What `map` says of the pool; `None` when it is not there.
    #[must_use]
    pub fn of(map: &OsdMap, id: PoolId) -> Option<Self> {
        let pool = map.pools.get(&id)?;
        let fullness = match (pool.has_flag(flags::pool::FULL), pool.has_flag(flags::pool::FULL_QUOTA)) {
            (_, true) => Fullness::Quota,
            (true, false) => Fullness::Space,
            (false, false) => Fullness::Room,
        };
        let snaps = pool
            .has_flag(flags::pool::POOL_SNAPS)
            .then(|| SnapContext { seq: pool.snap_seq, snaps: pool.snaps.keys().rev().copied().collect() });
        Some(Self {
            id,
            pg_num: pool.pg_num,
            stripe_bytes: (!pool.is_replicated()).then_some(pool.stripe_width),
            fast_read: pool.fast_read,
            overwrites: pool.has_flag(flags::pool::EC_OVERWRITES),
            snaps,
            removed_snaps: map.removed_snaps_queue.get(&id).cloned().unwrap_or_default(),
            fullness,
        })
    }
}

/// What an execution sees of the PG.
pub struct Env<'a> {
    /// Objects as of the last submitted transaction.
    pub view: &'a dyn ObjectView,
    /// The PG's collection.
    pub collection: SpgId,
    /// What the operations must know of the pool.
    pub pool: &'a PoolFacts,
    /// Epoch of the map.
    pub epoch: Epoch,
    /// The calendar clock.
    pub now: UTime,
    /// Version of the first log entry that the message makes; a clone takes one before the head's.
    pub at_version: Eversion,
    /// Largest user version given out in the PG.
    pub last_user_version: u64,
    /// Id of the first notify of the message; further ones count on.
    pub notify_id: u64,
    /// Randomness for object classes.
    pub entropy: &'a mut dyn Entropy,
    /// How long messages and answers may be.
    pub limits: MessageLimits,
    /// Work done, as [`WORK_BYTES_MAX`] counts it: of messages that have to wait for something, too.
    pub work: u64,
}

/// A message to execute.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The client's message.
    pub op: &'a OsdOp,
    /// What [`classify`] said of it.
    pub intent: &'a Intent,
    /// Its object's head, also when it reads a snapshot.
    pub head: &'a HObject,
    /// Which request it is.
    pub reqid: ReqId,
    /// The client that sent it.
    pub caller: &'a Caller,
    /// Sources of its `copy-from` operations, as far as they are fetched.
    pub copied: &'a [Copied],
    /// How far its class calls came that have paused, by the operation's index.
    pub progress: &'a BTreeMap<usize, Bytes>,
}
