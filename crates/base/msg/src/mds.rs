//! Metadata servers' beacons.
//!
//! Source: Ceph `MMDSBeacon.h`, `src/include/CompatSet.h`, v16.2.15.

use crate::body::{Body, fields, read_psm, write_psm};
use nacre_buf::BufList;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Uuid;
use std::collections::BTreeMap;

/// Values of [`MdsBeacon::state`] that matter here. Ceph `MDSMap::DaemonState`.
pub mod mds_state {
    /// Just started; the beacon carries `sys_info`.
    pub const BOOT: i32 = -4;
    /// Waiting for a rank.
    pub const STANDBY: i32 = -5;
    /// Making a new rank.
    pub const CREATING: i32 = -6;
    /// Reading a predecessor's journal.
    pub const REPLAY: i32 = 8;
    /// The MDS serves clients.
    pub const ACTIVE: i32 = 13;
}

/// Named features by number. Ceph `CompatSet::FeatureSet`; the mask on the wire follows from the names.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FeatureSet {
    /// Names by number (1 to 63).
    pub names: BTreeMap<u64, String>,
}

impl FeatureSet {
    /// Features by number and name.
    #[must_use]
    pub fn of(names: &[(u64, &str)]) -> Self {
        Self { names: names.iter().map(|(id, name)| (*id, (*name).to_owned())).collect() }
    }

    /// Bit per feature. Bit 0 means nothing and is clear on the wire.
    #[must_use]
    pub fn mask(&self) -> u64 {
        self.names.keys().filter(|id| (1..64).contains(*id)).fold(0, |mask, id| mask | 1 << id)
    }
}

impl Encode for FeatureSet {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.mask());
        w.put(&self.names);
    }
}

impl Decode for FeatureSet {
    const MIN_BYTES: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.skip(8)?;
        Ok(Self { names: r.get()? })
    }
}

/// What a reader must know to read, to write, or at all. Ceph `CompatSet`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Compat {
    /// May be ignored.
    pub compat: FeatureSet,
    /// Must be known to write.
    pub ro_compat: FeatureSet,
    /// Must be known.
    pub incompat: FeatureSet,
}

impl Encode for Compat {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.compat);
        w.put(&self.ro_compat);
        w.put(&self.incompat);
    }
}

impl Decode for Compat {
    const MIN_BYTES: usize = 36;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { compat: r.get()?, ro_compat: r.get()?, incompat: r.get()? })
    }
}

/// One complaint of a metadata server. Ceph `MDSHealthMetric`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MdsHealthMetric {
    /// What it complains about.
    pub kind: u16,
    /// Health status: 0 error, 1 warning, 2 fine.
    pub severity: u8,
    /// Text for people.
    pub message: String,
    /// Names and values of further details.
    pub metadata: BTreeMap<String, String>,
}
fields!(MdsHealthMetric, "MDSHealthMetric", 1, 1; kind, severity, message, metadata);

/// `MMDSBeacon`: the monitor echoes it with its own view of state and sequence.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MdsBeacon {
    /// Last epoch of the map that the sender saw.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Id of the daemon's instance, from its session with the monitors.
    pub global_id: u64,
    /// Wanted or acknowledged state.
    pub state: i32,
    /// Number of the beacon, counted by its sender.
    pub seq: u64,
    /// The daemon's name.
    pub name: String,
    /// What it can read and write.
    pub compat: Compat,
    /// What the daemon complains about.
    pub health: Vec<MdsHealthMetric>,
    /// About its machine; only in state [`mds_state::BOOT`].
    pub sys_info: BTreeMap<String, String>,
    /// Features of the sender, one bit each (`CEPH_FEATURE_*`).
    pub features: u64,
    /// File system that it wants to join, or empty.
    pub fs: String,
}

impl Body for MdsBeacon {
    const NAME: &'static str = "MdsBeacon";
    const KIND: u16 = 100;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 6;
    const OLDEST: u16 = 8;
    const PRIORITY: u16 = crate::priority::HIGH;

    fn read(_version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let (version, fsid, global_id, state) = (read_psm(r)?, r.get()?, r.u64()?, r.i32()?);
        let (seq, name) = (r.u64()?, r.text()?);
        r.skip(4)?; // rank to stand by for, obsolete
        r.str()?; // name of the same
        let compat = r.get()?;
        let health = r.envelope("MDSHealth", 1, |_, r| r.get())?;
        let sys_info = if state == mds_state::BOOT { r.get()? } else { BTreeMap::new() };
        let features = r.u64()?;
        r.skip(4 + 1)?; // file system and replay flag to stand by for, obsolete
        let fs = r.text()?;
        Ok(Self { version, fsid, global_id, state, seq, name, compat, health, sys_info, features, fs })
    }

    fn write(self, w: &mut Writer) -> BufList {
        write_psm(w, self.version);
        w.put(&self.fsid);
        w.u64(self.global_id);
        w.i32(self.state);
        w.u64(self.seq);
        w.str(&self.name);
        w.i32(-1);
        w.str("");
        w.put(&self.compat);
        w.envelope(1, 1, |w| w.put(&self.health));
        if self.state == mds_state::BOOT {
            w.put(&self.sys_info);
        }
        w.u64(self.features);
        w.i32(-1);
        w.bool(false);
        w.str(&self.fs);
        BufList::new()
    }
}
