//! Services that are not the cluster's own daemons: gateways, mirrors.
//!
//! Source: Ceph `MServiceMap.h`, `src/mgr/ServiceMap.h`, v16.2.15.

use crate::body::{Body, fields};
use nacre_buf::BufList;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{EntityAddr, Epoch, UTime};
use std::collections::BTreeMap;

/// `MServiceMap`, the map itself.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ServiceMap {
    /// The map's epoch.
    pub epoch: Epoch,
    /// When it changed.
    pub modified: UTime,
    /// Services by name.
    pub services: BTreeMap<String, ServiceEntry>,
}
fields!(ServiceMap, "ServiceMap", 1, 1; epoch, modified, services);

impl Body for ServiceMap {
    const NAME: &'static str = "ServiceMap";
    const KIND: u16 = 1799;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = crate::priority::HIGH;

    fn read(_version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        Self::decode(r)
    }

    fn write(self, w: &mut Writer) -> BufList {
        self.encode(w);
        BufList::new()
    }
}

/// One service. Ceph `ServiceMap::Service`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ServiceEntry {
    /// Daemons of the service by id.
    pub daemons: BTreeMap<String, ServiceDaemon>,
    /// Replaces the list of daemons in `ceph status`, when not empty.
    pub summary: String,
}
fields!(ServiceEntry, "ServiceMap::Service", 1, 1; daemons, summary);

/// One daemon. Ceph `ServiceMap::Daemon`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ServiceDaemon {
    /// Id of the daemon's instance.
    pub gid: u64,
    /// Address that the daemon serves at.
    pub addr: EntityAddr,
    /// Epoch of the map in which it appeared.
    pub start_epoch: Epoch,
    /// When it started.
    pub start_stamp: UTime,
    /// About it and its machine.
    pub metadata: BTreeMap<String, String>,
    /// Long running tasks.
    pub task_status: BTreeMap<String, String>,
}
fields!(ServiceDaemon, "ServiceMap::Daemon", 2, 1; gid, addr, start_epoch, start_stamp, metadata; 2 => task_status);
