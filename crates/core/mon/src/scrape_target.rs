//! [`ScrapeTarget`]: where a monitor is to show metrics, and the web page.

use crate::batch::{Batch, Snapshot};
use crate::config::{self, Who};
use crate::dashboard_module::{self, WantedPage};
use crate::managers;
use crate::metrics_module::{MODULE, OPTIONS, SERVER_ADDR, SERVER_PORT};
use crate::stored_map::KEY;
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError};
use nacre_maps::MgrMap;
use nacre_mgr::metrics::PORT;
use nacre_types::{AuthName, EntityKind};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Where an operator wants them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Instead of the monitor's own address.
    pub addr: Option<IpAddr>,
    /// The TCP port to listen at.
    pub port: u16,
    /// The options say so; else another port will do where that one is taken.
    pub is_port_fixed: bool,
}

/// Where a monitor is to show metrics, by what its tables say: while it leads, as the active manager, and else as one that waits, with an
/// empty page.
#[derive(Debug)]
pub struct ScrapeTarget {
    /// `mgr.a`: whom the options are for.
    name: AuthName,
    values: BTreeMap<(Who, String), String>,
    map: MgrMap,
    own_gid: u64,
}

impl ScrapeTarget {
    /// Of the monitor `name`, such as `a`, with these tables.
    ///
    /// # Errors
    /// [`DecodeError`] of stored values.
    pub fn open(snapshot: &dyn Snapshot, name: &str) -> Result<Self, DecodeError> {
        let map = snapshot.get(managers::TABLE, KEY).map(MgrMap::from_bytes).transpose()?;
        let own_gid =
            snapshot.get(managers::TABLE, managers::OWN_GID_KEY).map(u64::from_bytes).transpose()?;
        let mut target = Self {
            name: AuthName::new(EntityKind::MGR, name),
            values: BTreeMap::new(),
            own_gid: own_gid.unwrap_or_default(),
            map: map.unwrap_or_default(),
        };
        for (key, value) in snapshot.scan(config::PREFIX) {
            target.take_in(&key, Some(&value));
        }
        Ok(target)
    }

    /// Takes in changes that the tables have taken in.
    ///
    /// # Errors
    /// [`DecodeError`]: the batch is a newer program's.
    pub fn applied(&mut self, batch: &Batch) -> Result<(), DecodeError> {
        for op in batch.ops() {
            match (op.prefix.as_ref(), op.key.as_str(), &op.value) {
                (config::PREFIX, key, value) => self.take_in(key, value.as_ref()),
                (managers::TABLE, KEY, Some(value)) => self.map = MgrMap::from_bytes(value.clone())?,
                (managers::TABLE, managers::OWN_GID_KEY, Some(value)) => {
                    self.own_gid = u64::from_bytes(value.clone())?;
                }
                _ => (),
            }
        }
        Ok(())
    }

    fn take_in(&mut self, key: &str, value: Option<&Bytes>) {
        let is_known =
            |name: &str| [OPTIONS, dashboard_module::OPTIONS].iter().any(|of| name.starts_with(of));
        let entry = config::parse_key(key).filter(|(_, name)| is_known(name));
        match (entry, value) {
            (Some(entry), Some(value)) => {
                self.values.insert(entry, String::from_utf8_lossy(value).into_owned());
            }
            (Some(entry), None) => drop(self.values.remove(&entry)),
            (None, _) => (),
        }
    }

    /// A module's option for this manager.
    fn value(&self, options: &str, option: &str) -> Option<&str> {
        config::of_manager(&self.values, &self.name.id, &format!("{options}{option}"))
    }

    /// Nowhere while a stock manager is active, or the module is switched off.
    #[must_use]
    pub fn wanted(&self) -> Option<Wanted> {
        if self.map.active_gid != self.own_gid || !self.map.modules.contains(MODULE) {
            return None;
        }
        let port =
            self.value(OPTIONS, SERVER_PORT).and_then(|text| text.parse().ok()).filter(|port| *port != 0);
        Some(Wanted {
            addr: self.value(OPTIONS, SERVER_ADDR).and_then(|text| text.parse().ok()),
            port: port.unwrap_or(PORT),
            is_port_fixed: port.is_some(),
        })
    }

    /// Where the active manager is to show its web page; nowhere while a stock manager is active, or where the options say so.
    ///
    /// # Errors
    /// Why it cannot be shown so, and what to do.
    pub fn wanted_page(&self) -> Result<Option<WantedPage>, String> {
        if self.map.active_gid != self.own_gid {
            return Ok(None);
        }
        dashboard_module::wanted(|option| self.value(dashboard_module::OPTIONS, option))
    }
}
