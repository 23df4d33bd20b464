//! [`OsdConfig`]: identity, key, addresses and store of an OSD, as whatever starts it gives them.

use crate::memory::MemoryTarget;
use crate::storage::StoreConfig;
use nacre_auth::{AuthMethod, CryptoKey, TicketForm};
use nacre_osd_core::ControlPlane;
use nacre_types::{EntityAddr, EntityKind, OsdId, Uuid};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Where an OSD listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// For clients, monitors and heartbeats of the public network.
    pub public: IpAddr,
    /// For other OSDs and heartbeats of the cluster network.
    pub cluster: IpAddr,
    /// Ports to choose from; the system chooses where there are none.
    pub ports: Option<RangeInclusive<u16>>,
}

impl Bind {
    /// One address for all, on ports that the system chooses.
    #[must_use]
    pub fn any_port(addr: IpAddr) -> Self {
        Self { public: addr, cluster: addr, ports: None }
    }
}

/// What a `ceph.conf` has for an OSD under Ceph's monitors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CephConfig {
    /// Type and name of each CRUSH bucket above it.
    pub crush_location: Vec<(String, String)>,
    /// The device class to take; by the kind of device where none is given.
    pub device_class: Option<String>,
    /// Options that the file sets, by name: they count before those of the monitors.
    pub options: BTreeMap<String, String>,
}

/// Identity, place and size of one OSD.
#[derive(Debug, Clone)]
pub struct OsdConfig {
    /// Number of the OSD.
    pub id: OsdId,
    /// Identity of its store.
    pub uuid: Uuid,
    /// Id of the cluster.
    pub fsid: Uuid,
    /// Key of the entity `osd.<id>`.
    pub key: CryptoKey,
    /// Where monitors listen.
    pub monitors: Vec<EntityAddr>,
    /// Methods of authentication that it accepts.
    pub methods: Vec<AuthMethod>,
    /// Where it listens.
    pub bind: Bind,
    /// Under Ceph's monitors: what its `ceph.conf` has for it. `None` under ours.
    pub ceph: Option<CephConfig>,
    /// Threads that share its PGs; `None`: as many as the store has partitions, or one of a store in memory.
    pub shards: Option<usize>,
    /// Where its objects are.
    pub store: StoreConfig,
    /// The machine, as CRUSH and people know it.
    pub host: String,
    /// What else is known of the machine, under the names of Ceph's `osd metadata`.
    pub machine_facts: BTreeMap<String, String>,
    /// Where it is to answer `ceph daemon`; nowhere without.
    pub admin_socket: Option<PathBuf>,
    /// Bytes of memory that all OSDs of the process are to keep to; not less than this one's own.
    pub process_memory_bytes: u64,
    /// Gives memory that the calling thread has freed back to the system.
    pub give_back_memory: fn(),
}

impl OsdConfig {
    /// Whose monitors it has.
    #[must_use]
    pub fn plane(&self) -> ControlPlane {
        match self.ceph {
            Some(_) => ControlPlane::Ceph,
            None => ControlPlane::Nacre,
        }
    }

    /// What it is to keep to of memory; nothing where all of its objects are there.
    #[must_use]
    pub fn memory_target(&self) -> Option<MemoryTarget> {
        match &self.store {
            StoreConfig::Memory { .. } => None,
            StoreConfig::File { memory_bytes, .. } => {
                let bytes = *memory_bytes as u64;
                Some(MemoryTarget { bytes, process_bytes: self.process_memory_bytes.max(bytes) })
            }
        }
    }

    /// The form of the tickets that peers show: that of whoever makes them.
    #[must_use]
    pub fn ticket_form(&self) -> TicketForm {
        match self.ceph {
            Some(_) => TicketForm::Ceph,
            None => TicketForm::under_our_monitor(EntityKind::OSD),
        }
    }
}
