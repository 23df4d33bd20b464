//! [`MgrMap`]: which manager is active and what it serves.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_msg::ModuleInfo;
use nacre_types::{AddrVec, Epoch, UTime};
use std::collections::{BTreeMap, BTreeSet};

/// A manager in waiting. Ceph `MgrMap::StandbyInfo`, version 4.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StandbyMgr {
    /// Its global id.
    pub gid: u64,
    /// Name of the daemon, as in `mgr.NAME`.
    pub name: String,
    /// Module names (historic).
    pub legacy_modules: BTreeSet<String>,
    /// Modules it could run.
    pub available_modules: Vec<ModuleInfo>,
    /// Features of the sender, one bit each (`CEPH_FEATURE_*`).
    pub features: u64,
}

/// The managers. Ceph `MgrMap`, version 12.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MgrMap {
    /// Version of this map.
    pub epoch: Epoch,
    /// Where the active manager listens.
    pub active_addrs: AddrVec,
    /// Its global id, 0 = none.
    pub active_gid: u64,
    /// It has loaded its modules and answers commands.
    pub available: bool,
    /// Name of the active manager; empty while there is none.
    pub active_name: String,
    /// Managers in waiting by global id.
    pub standbys: BTreeMap<u64, StandbyMgr>,
    /// Modules switched on.
    pub modules: BTreeSet<String>,
    /// Services offered: module to URL.
    pub services: BTreeMap<String, String>,
    /// Modules that the active manager could run.
    pub available_modules: Vec<ModuleInfo>,
    /// When the active manager took over.
    pub active_change: UTime,
    /// Modules always on, by release.
    pub always_on_modules: BTreeMap<u32, BTreeSet<String>>,
    /// Feature bits of the active manager.
    pub active_mgr_features: u64,
    /// OSD map epoch of the last failure's blocklisting.
    pub last_failure_osd_epoch: Epoch,
    /// Addresses of the active manager's own clients.
    pub clients: Vec<AddrVec>,
    /// Their names, in the same order.
    pub client_names: Vec<String>,
}

const VERSION: u8 = 12;

impl Encode for StandbyMgr {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.u64(self.gid);
            w.str(&self.name);
            w.put(&self.legacy_modules);
            w.put(&self.available_modules);
            w.u64(self.features);
        });
    }
}

impl Decode for StandbyMgr {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MgrMap::StandbyInfo", 4, |version, r| {
            let mut info = Self { gid: r.u64()?, name: r.text()?, ..Self::default() };
            if version >= 2 {
                info.legacy_modules = r.get()?;
            }
            if version >= 3 {
                info.available_modules = r.get()?;
            }
            if version >= 4 {
                info.features = r.u64()?;
            }
            Ok(info)
        })
    }
}

impl Encode for MgrMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(VERSION, 6, |w| {
            w.u32(self.epoch);
            w.put(&self.active_addrs);
            w.u64(self.active_gid);
            w.bool(self.available);
            w.str(&self.active_name);
            w.put(&self.standbys);
            w.put(&self.modules);
            w.put(&self.services);
            w.put(&self.available_modules);
            w.put(&self.active_change);
            w.put(&self.always_on_modules);
            w.u64(self.active_mgr_features);
            w.u32(self.last_failure_osd_epoch);
            w.put(&self.clients);
            w.put(&self.client_names);
        });
    }
}

impl Decode for MgrMap {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MgrMap", VERSION, |version, r| {
            // Older encodings are written for older peers only.
            if version < VERSION {
                return Err(DecodeError::Invalid { what: "MgrMap version", value: version.into() });
            }
            Ok(Self {
                epoch: r.u32()?,
                active_addrs: r.get()?,
                active_gid: r.u64()?,
                available: r.bool()?,
                active_name: r.text()?,
                standbys: r.get()?,
                modules: r.get()?,
                services: r.get()?,
                available_modules: r.get()?,
                active_change: r.get()?,
                always_on_modules: r.get()?,
                active_mgr_features: r.u64()?,
                last_failure_osd_epoch: r.u32()?,
                clients: r.get()?,
                client_names: r.get()?,
            })
        })
    }
}
