//! [`PgStats`]: an OSD's report of its PGs to the manager.
//!
//! Source: Ceph `MPGStats.h`, v16.2.15; header version 2, compat 1.

use crate::body::{Body, read_psm, write_psm};
use crate::stats::{OsdStat, PgStat, StoreStatfs};
use nacre_buf::BufList;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{Epoch, PgId, PoolId, UTime, Uuid};
use std::collections::BTreeMap;

/// `MPGStats`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PgStats {
    /// Version that the sender knows.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// About the OSD.
    pub osd_stat: OsdStat,
    /// About the PGs of which it is the primary.
    pub pg_stat: BTreeMap<PgId, PgStat>,
    /// Epoch of the sender's map.
    pub epoch: Epoch,
    /// Capacity by pool.
    pub pool_stat: BTreeMap<PoolId, StoreStatfs>,
}

impl Body for PgStats {
    const NAME: &'static str = "PgStats";
    const KIND: u16 = 87;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;

    fn read(header: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let (version, fsid, osd_stat, pg_stat) = (read_psm(r)?, r.get()?, r.get()?, r.get()?);
        let epoch = r.u32()?;
        let _obsolete: UTime = r.get()?;
        let pool_stat = if header >= 2 { r.get()? } else { BTreeMap::new() };
        Ok(Self { version, fsid, osd_stat, pg_stat, epoch, pool_stat })
    }

    fn write(self, w: &mut Writer) -> BufList {
        write_psm(w, self.version);
        w.put(&self.fsid);
        w.put(&self.osd_stat);
        w.put(&self.pg_stat);
        w.u32(self.epoch);
        w.put(&UTime::ZERO);
        w.put(&self.pool_stat);
        BufList::new()
    }
}
