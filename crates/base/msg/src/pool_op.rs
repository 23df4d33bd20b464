//! Pools and snapshots without commands.
//!
//! Source: Ceph `MPoolOp.h`, `MPoolOpReply.h`, `MRemoveSnaps.h`, v16.2.15.

use crate::body::{Body, body};
use nacre_buf::{BufList, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{Epoch, SnapId, Uuid};
use std::collections::BTreeMap;

/// Values of [`PoolOp::op`].
pub mod pool_op_code {
    /// Create a pool called `name`.
    pub const CREATE: u32 = 0x01;
    /// Delete the pool.
    pub const DELETE: u32 = 0x02;
    /// Change its owner (obsolete).
    pub const AUID_CHANGE: u32 = 0x03;
    /// Create a pool snapshot called `name`.
    pub const CREATE_SNAP: u32 = 0x11;
    /// Delete the pool snapshot called `name`.
    pub const DELETE_SNAP: u32 = 0x12;
    /// Allocate a self-managed snapshot's number.
    pub const CREATE_UNMANAGED_SNAP: u32 = 0x21;
    /// Delete the self-managed snapshot `snap`.
    pub const DELETE_UNMANAGED_SNAP: u32 = 0x22;
}

/// `MPoolOp`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolOp {
    /// Version of the OSD map that the sender knows.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// The pool; 0 for creation.
    pub pool: u32,
    /// See [`pool_op_code`].
    pub op: u32,
    /// Obsolete: nothing reads it.
    pub auid: u64,
    /// Snapshot to delete.
    pub snap: SnapId,
    /// Name of a pool or pool snapshot.
    pub name: String,
    /// CRUSH rule for creation, -1 for the default.
    pub crush_rule: i16,
}

impl Body for PoolOp {
    const NAME: &'static str = "PoolOp";
    const KIND: u16 = 49;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 2;
    const OLDEST: u16 = 4;

    fn read(_version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let (version, fsid, pool, op) = (crate::body::read_psm(r)?, r.get()?, r.u32()?, r.u32()?);
        let (auid, snap, name) = (r.u64()?, r.get()?, r.text()?);
        r.skip(1)?; // an 8-bit rule id of old
        Ok(Self { version, fsid, pool, op, auid, snap, name, crush_rule: r.get()? })
    }

    fn write(self, w: &mut Writer) -> BufList {
        crate::body::write_psm(w, self.version);
        w.put(&self.fsid);
        w.u32(self.pool);
        w.u32(self.op);
        w.u64(self.auid);
        w.put(&self.snap);
        w.str(&self.name);
        w.u8(0);
        w.put(&self.crush_rule);
        BufList::new()
    }
}

/// `MPoolOpReply`: sent when the map that has the change is committed.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolOpReply {
    /// Version of the OSD map.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// 0 or a negated errno.
    pub result: i32,
    /// Epoch that has the change; the client waits for it.
    pub epoch: Epoch,
    /// The new self-managed snapshot's number, 8 bytes.
    pub response: Option<Bytes>,
}
body!(PoolOpReply = 48, 1 / 1 [high]; @version; fsid, result, epoch, response);

/// `MRemoveSnaps`: from a metadata server; answered with the same type once removal is in the map.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RemoveSnaps {
    /// Version of the OSD map that the sender knows.
    pub version: u64,
    /// Snapshots by pool.
    pub snaps: BTreeMap<i32, Vec<SnapId>>,
}
body!(RemoveSnaps = 90, 1 / 1; @version; snaps);
