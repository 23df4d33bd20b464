//! Maps on their way: each message carries encoded maps, which nacre-maps decodes.
//!
//! Source: Ceph `MMonMap.h`, `MMonGetMap.h`, `MMonGetOSDMap.h`, `MOSDMap.h`, `MMDSMap.h`, `MFSMap.h`, `MFSMapUser.h`,
//! `MMgrMap.h`, v16.2.15.

use crate::body::{Body, body, fields};
use nacre_buf::{BufList, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{Epoch, IntervalSet, PoolId, Uuid};
use std::collections::BTreeMap;

/// `MMonMap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MMonMap {
    /// Encoded `MMonMap`.
    pub map: Bytes,
}
body!(MMonMap = 4, 1 / 1 [high]; map);

/// `MMonGetMap`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MonGetMap;

impl Body for MonGetMap {
    const NAME: &'static str = "MonGetMap";
    const KIND: u16 = 5;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn read(_version: u16, _r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        Ok(Self)
    }

    fn write(self, _w: &mut Writer) -> BufList {
        BufList::new()
    }
}

/// `MMonGetOSDMap`: asks for epochs by number; answered by [`MOsdMap`] with those that are kept. 0 and 0 for none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MonGetOsdMap {
    /// Not looked at; 0.
    pub version: u64,
    /// First full map.
    pub full_first: Epoch,
    /// Last full map.
    pub full_last: Epoch,
    /// First incremental that is wanted; 0 for none.
    pub inc_first: Epoch,
    /// Last incremental that is wanted.
    pub inc_last: Epoch,
}
body!(MonGetOsdMap = 6, 1 / 1; @version; full_first, full_last, inc_first, inc_last);

/// `MOSDMap`: consecutive incrementals, or a full map and the incrementals behind it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MOsdMap {
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Encoded `OSDMap::Incremental` by the epoch that it leads to.
    pub incrementals: BTreeMap<Epoch, Bytes>,
    /// Encoded `OSDMap`.
    pub full: BTreeMap<Epoch, Bytes>,
    /// Oldest epoch that the sender still has.
    pub oldest: Epoch,
    /// Newest epoch that the sender has.
    pub newest: Epoch,
    /// Snapshots removed in epochs that the message skips.
    pub gap_removed_snaps: BTreeMap<PoolId, IntervalSet>,
}

impl Body for MOsdMap {
    const NAME: &'static str = "MOsdMap";
    const KIND: u16 = 41;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 3;
    const OLDEST: u16 = 1;
    const PRIORITY: u16 = crate::priority::HIGH;

    fn read(version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let mut map = Self { fsid: r.get()?, incrementals: r.get()?, full: r.get()?, ..Self::default() };
        if version >= 2 {
            (map.oldest, map.newest) = (r.u32()?, r.u32()?);
        }
        if version >= 4 {
            map.gap_removed_snaps = r.get()?;
        }
        Ok(map)
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.put(&self.fsid);
        w.put(&self.incrementals);
        w.put(&self.full);
        w.u32(self.oldest);
        w.u32(self.newest);
        w.put(&self.gap_removed_snaps);
        BufList::new()
    }
}

/// `MMDSMap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MMdsMap {
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// The map's epoch.
    pub epoch: Epoch,
    /// Encoded `MDSMap`.
    pub map: Bytes,
    /// The file system's name; empty from version 1.
    pub fs_name: String,
}

impl Body for MMdsMap {
    const NAME: &'static str = "MMdsMap";
    const KIND: u16 = 21;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = crate::priority::HIGH;

    fn read(version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let (fsid, epoch, map) = (r.get()?, r.u32()?, r.blob()?);
        let fs_name = if version >= 2 { r.text()? } else { String::new() };
        Ok(Self { fsid, epoch, map, fs_name })
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.put(&self.fsid);
        w.u32(self.epoch);
        w.put(&self.map);
        w.str(&self.fs_name);
        BufList::new()
    }
}

/// `MFSMap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MFsMap {
    /// The map's epoch.
    pub epoch: Epoch,
    /// Encoded `FSMap`; on the wire without a length, it fills the rest of the front.
    pub map: Bytes,
}

impl Body for MFsMap {
    const NAME: &'static str = "MFsMap";
    const KIND: u16 = 45;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = crate::priority::HIGH;

    fn read(_version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        Ok(Self { epoch: r.u32()?, map: r.rest() })
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.u32(self.epoch);
        w.raw(&self.map);
        BufList::new()
    }
}

/// `MFSMapUser`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MFsMapUser {
    /// The map's epoch.
    pub epoch: Epoch,
    /// The map itself, `FSMapUser`.
    pub map: FsMapUserBody,
}
body!(MFsMapUser = 103, 1 / 1 [high]; epoch, map);

/// `FSMapUser`: what file systems there are.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FsMapUserBody {
    /// The map's epoch.
    pub epoch: Epoch,
    /// The file system of clients that name none, or -1.
    pub legacy_fscid: i32,
    /// All file systems.
    pub filesystems: Vec<FsMapUserEntry>,
}
fields!(FsMapUserBody, "FSMapUser", 1, 1; epoch, legacy_fscid, filesystems);

/// `FSMapUser::fs_info_t`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FsMapUserEntry {
    /// The file system's number.
    pub cid: i32,
    /// Name of the file system.
    pub name: String,
}
fields!(FsMapUserEntry, "FSMapUser::fs_info_t", 1, 1; cid, name);

/// `MMgrMap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MMgrMap {
    /// Encoded `MMgrMap`; on the wire without a length, it fills the front.
    pub map: Bytes,
}

impl Body for MMgrMap {
    const NAME: &'static str = "MMgrMap";
    const KIND: u16 = 1796;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = crate::priority::HIGH;

    fn read(_version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        Ok(Self { map: r.rest() })
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.raw(&self.map);
        BufList::new()
    }
}
