//! Questions for capacity and usage.
//!
//! Source: Ceph `MStatfs.h`, `MStatfsReply.h`, `MGetPoolStats.h`, `MGetPoolStatsReply.h`, v16.2.15.

use crate::body::{Body, body};
use crate::stats::PoolStat;
use nacre_buf::BufList;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{PoolId, Uuid};
use std::collections::BTreeMap;

/// `MStatfs`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Statfs {
    /// Version of the statistics that the sender knows.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Only this pool, as a file system on it sees its space.
    pub data_pool: Option<PoolId>,
}

impl Body for Statfs {
    const NAME: &'static str = "Statfs";
    const KIND: u16 = 13;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;

    fn read(header: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let (version, fsid) = (crate::body::read_psm(r)?, r.get()?);
        let data_pool = if header >= 2 { r.get()? } else { None };
        Ok(Self { version, fsid, data_pool })
    }

    fn write(self, w: &mut Writer) -> BufList {
        crate::body::write_psm(w, self.version);
        w.put(&self.fsid);
        w.put(&self.data_pool);
        BufList::new()
    }
}

/// `MStatfsReply`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StatfsReply {
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Version of the statistics.
    pub version: u64,
    /// KiB in all.
    pub kb: u64,
    /// KiB in use.
    pub kb_used: u64,
    /// Bytes that can still be written, in KiB.
    pub kb_avail: u64,
    /// Number of objects.
    pub num_objects: u64,
}
body!(StatfsReply = 14, 1 / 1 [high]; fsid, version, kb, kb_used, kb_avail, num_objects);

/// `MGetPoolStats`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GetPoolStats {
    /// Version of the statistics that the sender knows.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Names of pools.
    pub pools: Vec<String>,
}
body!(GetPoolStats = 58, 1 / 1; @version; fsid, pools);

/// `MGetPoolStatsReply`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GetPoolStatsReply {
    /// Version of the statistics.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Sums of each pool, by its name.
    pub pool_stats: BTreeMap<String, PoolStat>,
    /// True when `StoreStatfs` of the pools is real.
    pub per_pool_stats: bool,
}

impl Body for GetPoolStatsReply {
    const NAME: &'static str = "GetPoolStatsReply";
    const KIND: u16 = 59;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = crate::priority::HIGH;

    fn read(header: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let (version, fsid, pool_stats) = (crate::body::read_psm(r)?, r.get()?, r.get()?);
        let per_pool_stats = header >= 2 && r.bool()?;
        Ok(Self { version, fsid, pool_stats, per_pool_stats })
    }

    fn write(self, w: &mut Writer) -> BufList {
        crate::body::write_psm(w, self.version);
        w.put(&self.fsid);
        w.put(&self.pool_stats);
        w.bool(self.per_pool_stats);
        BufList::new()
    }
}
