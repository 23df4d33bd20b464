//! [`Request`]: what the caller wants done.

use nacre_buf::ByteStr;
use nacre_maps::full_hash;
use nacre_msg::osd_op::flag;
use nacre_msg::{OsdOp, SubOp};
use nacre_types::{Epoch, HObject, ObjectLocator, PgId, ReqId, SnapId, SpgId, UTime};

/// Operations on one object, executed in order and as one.
#[derive(Debug, Clone)]
pub struct Request {
    /// Pool, key and namespace.
    pub locator: ObjectLocator,
    /// Name of the object, without pool and namespace.
    pub name: ByteStr,
    /// What to do.
    pub ops: Vec<SubOp>,
    /// Beside `READ` and `WRITE`, which follow from the operations; see [`flag`].
    pub flags: u32,
    /// What to read from.
    pub snap: SnapId,
    /// Newest snapshot of the write's context.
    pub snap_seq: SnapId,
    /// Snapshots of the context, newest first.
    pub snaps: Vec<SnapId>,
    /// The caller's clock.
    pub mtime: UTime,
}

impl Request {
    /// Operations on the newest state of an object, without snapshots.
    #[must_use]
    pub fn new(locator: ObjectLocator, name: impl Into<ByteStr>, ops: Vec<SubOp>) -> Self {
        Self {
            locator,
            name: name.into(),
            ops,
            flags: 0,
            snap: SnapId::HEAD,
            snap_seq: SnapId::default(),
            snaps: Vec::new(),
            mtime: UTime::ZERO,
        }
    }

    /// True when it may change the object. Class calls count by the flag that the caller sets.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.flags & flag::WRITE != 0 || self.ops.iter().any(|op| nacre_msg::osd_op::code::is_write(op.code))
    }

    /// A full pool does not hold it back: its OSD is to say whether there is room for it.
    pub(crate) fn goes_out_when_full(&self) -> bool {
        self.flags & (flag::FULL_TRY | flag::FULL_FORCE) != 0
    }

    /// What it is about, as OSDs compare it with the range of a backoff.
    pub(crate) fn target(&self, pg: PgId) -> HObject {
        if self.name.is_empty() {
            return HObject { hash: pg.seed, snap: SnapId::HEAD, pool: pg.pool, ..HObject::MIN };
        }
        let locator = &self.locator;
        HObject::head(locator.pool, locator.namespace.clone(), locator.key.clone(), self.name.clone())
    }

    /// The message, for the PG `pg` of the map of `epoch`. `attempt` counts from 0.
    pub(crate) fn message(&self, pg: PgId, epoch: Epoch, attempt: i32) -> OsdOp {
        let mode = if self.is_write() { flag::WRITE } else { flag::READ };
        let retry = if attempt > 0 { flag::RETRY } else { 0 };
        OsdOp {
            spg: SpgId::replicated(pg),
            hash: full_hash(&self.name, &self.locator),
            epoch,
            flags: self.flags | mode | retry | flag::ONDISK | flag::KNOWN_REDIR,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: self.mtime,
            locator: self.locator.clone(),
            name: self.name.clone(),
            ops: self.ops.clone(),
            snap: self.snap,
            snap_seq: self.snap_seq,
            snaps: self.snaps.clone(),
            retry_attempt: attempt,
            features: nacre_types::features::SUPPORTED,
        }
    }
}
