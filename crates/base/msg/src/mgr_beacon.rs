//! [`MgrBeacon`]: a manager's sign of life to the monitor.
//!
//! Source: Ceph `MMgrBeacon.h`, `src/mon/MgrMap.h`, `src/mon/MonCommand.h`, v16.2.15.

use crate::body::{Body, fields, read_psm, write_psm};
use nacre_buf::BufList;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{AddrVec, Uuid};
use std::collections::{BTreeMap, BTreeSet};

/// A command that the manager serves. Ceph `MonCommand` (the description, not the message).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgrCommandDescription {
    /// The command's words and arguments, as in `get_command_descriptions`.
    pub signature: String,
    /// Sentence for people.
    pub help: String,
    /// The module that serves it.
    pub module: String,
    /// Permissions that it needs.
    pub permissions: String,
    /// Obsolete: `cli`, `rest`.
    pub availability: String,
    /// 8: served by the manager.
    pub flags: u64,
}
fields!(MgrCommandDescription, "MonCommand", 1, 1; signature, help, module, permissions, availability, flags);

/// A module's option. Ceph `MgrMap::ModuleOption`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ModuleOption {
    /// Name of the option.
    pub name: String,
    /// Type of its value.
    pub kind: u8,
    /// 0 basic, 1 advanced, 2 developers'.
    pub level: u8,
    /// Bit 0: applies at runtime.
    pub flags: u32,
    /// Default, as text.
    pub default: String,
    /// Least value, as text.
    pub min: String,
    /// Greatest value, as text.
    pub max: String,
    /// Values that it may have.
    pub enum_allowed: BTreeSet<String>,
    /// Sentence for people.
    pub description: String,
    /// Paragraph for people.
    pub long_description: String,
    /// Keywords for a search.
    pub tags: BTreeSet<String>,
    /// Names of options to look at with it.
    pub see_also: BTreeSet<String>,
}
fields!(ModuleOption, "MgrMap::ModuleOption", 1, 1;
    name, kind, level, flags, default, min, max, enum_allowed, description, long_description, tags, see_also);

/// A module. Ceph `MgrMap::ModuleInfo`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ModuleInfo {
    /// Name of the module.
    pub name: String,
    /// Whether it can run here.
    pub can_run: bool,
    /// Why the module cannot run.
    pub error: String,
    /// Options by name.
    pub options: BTreeMap<String, ModuleOption>,
}
fields!(ModuleInfo, "MgrMap::ModuleInfo", 2, 1; name, can_run, error; 2 => options);

/// `MMgrBeacon`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgrBeacon {
    /// Version of the map that the sender knows.
    pub version: u64,
    /// Where it listens.
    pub server_addrs: AddrVec,
    /// Id of the manager's instance, from its session with the monitors.
    pub gid: u64,
    /// Ready to serve.
    pub available: bool,
    /// The daemon's name.
    pub name: String,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Commands that it serves; only in its first beacon.
    pub commands: Vec<MgrCommandDescription>,
    /// About its machine; only in its first beacon.
    pub metadata: BTreeMap<String, String>,
    /// Addresses of its services, by name.
    pub services: BTreeMap<String, String>,
    /// Modules that it has.
    pub modules: Vec<ModuleInfo>,
    /// Features of the sender, one bit each (`CEPH_FEATURE_*`).
    pub features: u64,
    /// Addresses of its own clients, to be blocklisted when it fails.
    pub clients: Vec<AddrVec>,
    /// Names of those clients.
    pub client_names: Vec<String>,
}

impl Body for MgrBeacon {
    const NAME: &'static str = "MgrBeacon";
    const KIND: u16 = 1795;
    const VERSION: u16 = 11;
    const COMPAT: u16 = 8;
    const OLDEST: u16 = 8;

    fn read(header: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let version = read_psm(r)?;
        let (server_addrs, gid, available, name, fsid) = (r.get()?, r.u64()?, r.bool()?, r.text()?, r.get()?);
        let _module_names: BTreeSet<String> = r.get()?; // follows from `modules`
        Ok(Self {
            version,
            server_addrs,
            gid,
            available,
            name,
            fsid,
            commands: r.get()?,
            metadata: r.get()?,
            services: r.get()?,
            modules: r.get()?,
            features: if header >= 9 { r.u64()? } else { 0 },
            clients: if header >= 10 { r.get()? } else { Vec::new() },
            client_names: if header >= 11 { r.get()? } else { Vec::new() },
        })
    }

    fn write(self, w: &mut Writer) -> BufList {
        let module_names: BTreeSet<String> = self.modules.iter().map(|module| module.name.clone()).collect();
        write_psm(w, self.version);
        w.put(&self.server_addrs);
        w.u64(self.gid);
        w.bool(self.available);
        w.str(&self.name);
        w.put(&self.fsid);
        w.put(&module_names);
        w.put(&self.commands);
        w.put(&self.metadata);
        w.put(&self.services);
        w.put(&self.modules);
        w.u64(self.features);
        w.put(&self.clients);
        w.put(&self.client_names);
        BufList::new()
    }
}
