//! [`OsdBoot`]: an OSD asks to be marked up.
//!
//! Source: Ceph `MOSDBoot.h`, `OSDSuperblock` in `src/osd/osd_types.h`, v16.2.15.

use crate::body::body;
use crate::compat::Compat;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{AddrVec, Epoch, OsdId, UTime, Uuid};
use std::collections::BTreeMap;

/// `MOSDBoot`. The public addresses are the session's.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct OsdBoot {
    /// Epoch of the sender's map.
    pub version: u64,
    /// What the OSD knows of itself.
    pub superblock: Superblock,
    /// Where it answers heartbeats, cluster network.
    pub hb_back_addrs: AddrVec,
    /// Where it listens for other OSDs.
    pub cluster_addrs: AddrVec,
    /// Epoch in which it last became up, 0 after a restart.
    pub boot_epoch: Epoch,
    /// Where it answers heartbeats, public network.
    pub hb_front_addrs: AddrVec,
    /// About it and its machine.
    pub metadata: BTreeMap<String, String>,
    /// Features of the sender, one bit each (`CEPH_FEATURE_*`).
    pub features: u64,
}
body!(OsdBoot = 71, 7 / 7; @version;
    superblock, hb_back_addrs, cluster_addrs, boot_epoch, hb_front_addrs, metadata, features);

/// What an OSD knows of itself. Ceph `OSDSuperblock`, struct version 10, compat 5.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Superblock {
    /// Id of the cluster that the sender belongs to.
    pub cluster_fsid: Uuid,
    /// Number of the OSD.
    pub whoami: OsdId,
    /// Newest map that it has worked with.
    pub current_epoch: Epoch,
    /// Oldest map that it has.
    pub oldest_map: Epoch,
    /// Newest map that it has.
    pub newest_map: Epoch,
    /// Obsolete: nothing reads it.
    pub weight: f64,
    /// Features that its store on disk needs.
    pub compat_features: Compat,
    /// Last epoch in which all of its PGs were clean when it stopped in good order.
    pub clean_thru: Epoch,
    /// Last epoch in which it was up.
    pub mounted: Epoch,
    /// The OSD's identity, fixed at its creation.
    pub osd_fsid: Uuid,
    /// Epoch up to which it has recorded purged snapshots.
    pub purged_snaps_last: Epoch,
    /// When it last checked for leftovers of purged snapshots.
    pub last_purged_snaps_scrub: UTime,
    /// Maps before this one are of no use to the cluster any more.
    pub cluster_osdmap_trim_lower_bound: Epoch,
}

impl Encode for Superblock {
    fn encode(&self, w: &mut Writer) {
        w.envelope(10, 5, |w| {
            w.put(&self.cluster_fsid);
            w.i32(self.whoami);
            w.u32(self.current_epoch);
            w.u32(self.oldest_map);
            w.u32(self.newest_map);
            w.put(&self.weight);
            w.put(&self.compat_features);
            w.u32(self.clean_thru);
            w.u32(self.mounted);
            w.put(&self.osd_fsid);
            w.u32(0); // epoch of the last map marked full, obsolete
            w.u32(0); // past intervals by pool, obsolete
            w.u32(self.purged_snaps_last);
            w.put(&self.last_purged_snaps_scrub);
            w.u32(self.cluster_osdmap_trim_lower_bound);
        });
    }
}

impl Decode for Superblock {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("OSDSuperblock", 10, |version, r| {
            if version < 8 {
                return Err(DecodeError::Invalid { what: "OSDSuperblock version", value: version.into() });
            }
            let mut superblock = Self {
                cluster_fsid: r.get()?,
                whoami: r.i32()?,
                current_epoch: r.u32()?,
                oldest_map: r.u32()?,
                newest_map: r.u32()?,
                weight: r.get()?,
                compat_features: r.get()?,
                clean_thru: r.u32()?,
                mounted: r.u32()?,
                osd_fsid: r.get()?,
                ..Self::default()
            };
            superblock.decode_tail(version, r)?;
            Ok(superblock)
        })
    }
}

impl Superblock {
    fn decode_tail(&mut self, version: u8, r: &mut Reader) -> Result<(), DecodeError> {
        r.skip(4)?;
        let _obsolete: BTreeMap<i64, UTime> = r.get()?;
        if version >= 9 {
            (self.purged_snaps_last, self.last_purged_snaps_scrub) = (r.u32()?, r.get()?);
        }
        if version >= 10 {
            self.cluster_osdmap_trim_lower_bound = r.u32()?;
        }
        Ok(())
    }
}
