//! The managers: which of them is active, as the managers' map says to everybody, and what the active one has told.
//!
//! A monitor that leads can be the active manager itself ("our own manager" here): it is while no `ceph-mgr` of Ceph's runs, steps back as
//! soon as one reports, and takes over again when that is gone.
//!
//! What managers say and hear is in `mgr_messages`, what their findings are to health in `health/mgr_checks.rs`.

use crate::autoscaler;
use crate::balancer;
use crate::batch::{Batch, Snapshot};
use crate::crashes;
use crate::dashboard_module;
use crate::device_module;
use crate::metrics_module::{self, Listening};
use crate::stored_map::StoredMap;
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_maps::{MgrMap, StandbyMgr};
use nacre_msg::{HealthChecks, MgrCommandDescription, ProgressEvent};
use nacre_types::{AddrVec, Stamp, UTime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) const TABLE: &str = "mgrmap";
/// Key of the gid under which our own manager was active last.
pub(crate) const OWN_GID_KEY: &str = "own_gid";
/// Key of the commands that the stock manager serves.
const COMMANDS_KEY: &str = "commands";
/// The table of what managers say of themselves, by name.
const METADATA_TABLE: &str = "mgr-metadata";

/// Modules that a new cluster's `ceph-mgr` runs beside those that are always on. Ceph's default of `mgr_initial_modules` has `restful` as well,
/// which Debian's Python cannot load beside `dashboard`, and so would be a health warning from the start.
const INITIAL_MODULES: [&str; 2] = ["iostat", metrics_module::MODULE];
/// Ceph's release 16, and what its managers always run (`src/mon/MgrMonitor.cc` at v16.2.15).
const PACIFIC: u32 = 16;
const ALWAYS_ON_MODULES: [&str; 10] = [
    "balancer",
    "crash",
    "devicehealth",
    "orchestrator",
    "pg_autoscaler",
    "progress",
    "rbd_support",
    "status",
    "telemetry",
    "volumes",
];

/// What the active stock manager has reported. Not durable: it reports anew every few seconds, whoever leads.
#[derive(Debug, Default)]
pub struct Reported {
    /// What it finds wrong with the cluster.
    pub checks: HealthChecks,
    /// Long changes under way, by id.
    pub progress: BTreeMap<String, ProgressEvent>,
}

/// The managers' map and what belongs to it. The map's epoch is durable, since subscribers compare it across restarts of ours.
#[derive(Debug)]
pub struct MgrMaps {
    pub(crate) map: StoredMap<MgrMap>,
    /// Under which gid our own manager is active, or was last.
    pub(crate) own_gid: u64,
    /// What the stock manager serves, as it said when it became available.
    pub(crate) commands: Vec<MgrCommandDescription>,
    /// What managers say of themselves, by name.
    pub(crate) metadata: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) changes: Batch,
    /// Where this monitor listens as the manager, and under which name.
    pub(crate) own: (String, AddrVec),
    pub(crate) reported: Reported,
    /// The newest beacon of each stock manager by gid, or when we began to wait for one.
    pub(crate) beacons: BTreeMap<u64, Stamp>,
    /// Since when a stock manager has had no session, by gid.
    pub(crate) away: BTreeMap<u64, Stamp>,
    /// Until then a manager without a session may be well: its monitor may have failed, or it starts anew.
    pub(crate) patient_until: Stamp,
    /// When managers are told next how the monitors are.
    pub(crate) next_digest: Stamp,
    /// Managers that an operator has given up, by gid.
    pub(crate) unwanted: BTreeSet<u64>,
    /// How long the active manager has been that.
    pub(crate) starts_for: Duration,
    /// Where our own manager shows its metrics.
    pub(crate) metrics: Listening,
    /// Where it shows its web page.
    pub(crate) page: Listening,
    /// Gids of managers that were turned away, and the cluster log knows it.
    pub(crate) turned_away: BTreeSet<u64>,
}

impl MgrMaps {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let modules = INITIAL_MODULES.map(str::to_owned).into();
        let map = StoredMap::open(snapshot, TABLE, MgrMap { modules, ..MgrMap::default() })?;
        let own_gid = snapshot.get(TABLE, OWN_GID_KEY).map(u64::from_bytes).transpose()?;
        let commands = snapshot.get(TABLE, COMMANDS_KEY).map(Vec::from_bytes).transpose()?;
        let metadata = snapshot.scan(METADATA_TABLE).into_iter();
        let metadata = metadata.map(|(name, value)| Ok((name, BTreeMap::from_bytes(value)?)));
        Ok(Self {
            // Stores of before stock managers were served have no such key: there our own was always active.
            own_gid: own_gid.unwrap_or(map.map().active_gid),
            map,
            commands: commands.unwrap_or_default(),
            metadata: metadata.collect::<Result<_, DecodeError>>()?,
            changes: Batch::default(),
            own: Default::default(),
            reported: Reported::default(),
            beacons: BTreeMap::new(),
            away: BTreeMap::new(),
            patient_until: Stamp::default(),
            next_digest: Stamp::default(),
            unwanted: BTreeSet::new(),
            starts_for: Duration::ZERO,
            metrics: Listening::Nowhere,
            page: Listening::Nowhere,
            turned_away: BTreeSet::new(),
        })
    }

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &MgrMap {
        self.map.map()
    }

    /// True while the monitor that leads is the active manager itself.
    #[must_use]
    pub fn own_is_active(&self) -> bool {
        self.map().active_gid == self.own_gid
    }

    /// Whether the active manager runs a module whatever operators enable. Of the web page the map does not say so: it is what a `ceph-mgr`
    /// is to run, which starts anew when that changes.
    #[must_use]
    pub fn is_always_on(&self, module: &str) -> bool {
        let is_own = self.own_is_active() && module == dashboard_module::MODULE;
        is_own || self.map().always_on_modules.values().any(|modules| modules.contains(module))
    }

    /// Commands that the stock manager serves; none while our own is active.
    #[must_use]
    pub fn commands(&self) -> &[MgrCommandDescription] {
        &self.commands
    }

    /// What stock managers that are in the map say of themselves, by name.
    pub fn metadata(&self) -> impl Iterator<Item = (&String, &BTreeMap<String, String>)> {
        let map = self.map();
        let is_there = |name: &String| {
            !self.own_is_active() && map.active_name == *name
                || map.standbys.values().any(|standby| standby.name == *name)
        };
        self.metadata.iter().filter(move |(name, _)| is_there(name))
    }

    /// What the active stock manager has reported; nothing while our own is active.
    #[must_use]
    pub fn reported(&self) -> &Reported {
        &self.reported
    }

    /// Changes the map; the epoch grows by one.
    pub fn update(&mut self, edit: impl FnOnce(&mut MgrMap)) {
        self.map.update(|map| {
            edit(map);
            map.epoch += 1;
        });
    }

    /// Switches a module on or off. The active manager starts anew then, to load it or to be rid of it.
    pub fn set_module(&mut self, module: &str, on: bool, now: Stamp) {
        self.update(|map| {
            if on {
                map.modules.insert(module.to_owned());
            } else {
                map.modules.remove(module);
            }
        });
        self.be_patient(now);
    }

    /// Where our own manager shows its metrics from now on. The map says it to everybody.
    pub(crate) fn set_metrics(&mut self, listening: Listening) {
        if self.own_is_active() && self.metrics != listening {
            self.set_service(metrics_module::MODULE, &listening);
            self.metrics = listening;
        }
    }

    /// Where our own manager shows its web page from now on.
    pub(crate) fn set_page(&mut self, listening: Listening) {
        if self.own_is_active() && self.page != listening {
            self.set_service(dashboard_module::MODULE, &listening);
            self.page = listening;
        }
    }

    fn set_service(&mut self, module: &str, listening: &Listening) {
        let url = match listening {
            Listening::At(url) | Listening::Otherwise(url, _) => Some(url),
            Listening::Nowhere | Listening::Failed(_) => None,
        };
        if self.map().services.get(module) != url {
            self.update(|map| match url {
                Some(url) => drop(map.services.insert(module.to_owned(), url.clone())),
                None => drop(map.services.remove(module)),
            });
        }
    }

    /// An operator has given a manager up.
    pub(crate) fn wish_gone(&mut self, gid: u64) {
        self.unwanted.insert(gid);
    }

    /// Says where this monitor, which leads from now on, listens as the manager. Our own manager is active from now on if it was when
    /// another monitor led; a stock one stays what it is, and has time to find us. `gid` is nobody else's.
    pub(crate) fn begin(&mut self, name: &str, gid: u64, addrs: AddrVec, now: Stamp, wall: UTime) {
        self.own = (name.to_owned(), addrs);
        if self.own_is_active() {
            return self.activate_own(gid, wall);
        }
        self.be_patient(now);
        let map = self.map.map();
        let known = map.standbys.keys().copied().chain([map.active_gid]);
        self.beacons = known.map(|gid| (gid, now)).collect();
    }

    /// Our own manager is active from now on.
    pub(crate) fn activate_own(&mut self, gid: u64, wall: UTime) {
        let (name, addrs) = self.own.clone();
        self.own_gid = gid;
        self.changes.put(TABLE, OWN_GID_KEY, gid.to_bytes());
        self.forget_active();
        self.update(|map| {
            vacate(map);
            map.active_name = name;
            map.active_gid = gid;
            map.active_addrs = addrs;
            map.available = true;
            map.active_change = wall;
            map.active_mgr_features = nacre_types::features::SUPPORTED;
            map.available_modules = vec![
                balancer::module(),
                crashes::module(),
                device_module::module(),
                autoscaler::module(),
                metrics_module::module(),
                dashboard_module::module(),
            ];
        });
        (self.metrics, self.page) = (Listening::Nowhere, Listening::Nowhere);
    }

    /// A stock manager is the active one from now on; it says itself when it is available, and where.
    pub(crate) fn activate(&mut self, manager: StandbyMgr, wall: UTime) {
        self.reported = Reported::default();
        self.update(|map| {
            vacate(map);
            map.standbys.remove(&manager.gid);
            map.active_gid = manager.gid;
            map.active_name = manager.name;
            map.available_modules = manager.available_modules;
            map.active_mgr_features = manager.features;
            map.active_change = wall;
        });
    }

    /// What the stock manager said that was active is true no more.
    pub(crate) fn forget_active(&mut self) {
        self.reported = Reported::default();
        if !self.commands.is_empty() {
            self.set_commands(Vec::new());
        }
    }

    pub(crate) fn set_commands(&mut self, commands: Vec<MgrCommandDescription>) {
        self.changes.put(TABLE, COMMANDS_KEY, commands.to_bytes());
        self.commands = commands;
    }

    pub(crate) fn set_metadata(&mut self, name: &str, metadata: BTreeMap<String, String>) {
        if self.metadata.get(name) != Some(&metadata) {
            self.changes.put(METADATA_TABLE, name, metadata.to_bytes());
            self.metadata.insert(name.to_owned(), metadata);
        }
    }

    /// Forgets a stock manager that is neither active nor waits any more.
    pub(crate) fn forget(&mut self, gid: u64, name: &str) {
        self.beacons.remove(&gid);
        self.away.remove(&gid);
        if self.metadata.remove(name).is_some() {
            self.changes.delete(METADATA_TABLE, name);
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.map.is_dirty() || !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        self.map.flush(batch);
        batch.append(&mut self.changes);
    }
}

/// Nobody is active. The modules stay: a `ceph-mgr` starts anew when it sees others than in the first map that it got.
fn vacate(map: &mut MgrMap) {
    let always_on = ALWAYS_ON_MODULES.map(str::to_owned).into();
    map.always_on_modules = BTreeMap::from([(PACIFIC, always_on)]);
    map.active_gid = 0;
    map.active_name = String::new();
    map.active_addrs = AddrVec::default();
    map.available = false;
    map.active_mgr_features = 0;
    map.services.clear();
    map.available_modules.clear();
    map.clients.clear();
    map.client_names.clear();
}
