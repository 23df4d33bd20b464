//! Beacons of stock managers: who becomes active, and who is given up.
//!
//! ```text
//! our own active --beacon of x--> x active, starting --beacon "available"--> x serves
//! x silent, without a session, failed by command, or started anew: a standby is active, starting; else our own serves at once
//! ```
//! Ceph's monitors (`src/mon/MgrMonitor.cc` at v16.2.15) only wait for beacons, 30 s long. Here the end of the session counts as well: the
//! kernel closes the connections of a process that has died.

use crate::event::{Endpoint, SessionId};
use crate::managers::MgrMaps;
use crate::mon::{Cx, Mon};
use crate::session::{Identity, Session};
use nacre_auth::Rwx;
use nacre_denc::Encode;
use nacre_maps::{MgrMap, StandbyMgr};
use nacre_msg::{LogPriority, MMgrMap, MgrBeacon};
use nacre_types::{EntityAddr, EntityKind, Epoch, Stamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a manager may be without a session. It dials again at once when its connection was cut.
const AWAY_MAX: Duration = Duration::from_secs(1);
/// The same while it may have to find another monitor first, or has been made to start anew.
const PATIENCE: Duration = Duration::from_secs(10);
/// Managers in waiting.
const STANDBYS_COUNT_MAX: usize = 64;
/// Commands, modules, services and clients that one says it has.
const COMMANDS_COUNT_MAX: usize = 4096;
const MODULES_COUNT_MAX: usize = 256;
const SERVICES_COUNT_MAX: usize = 256;
const CLIENTS_COUNT_MAX: usize = 1024;
/// Bytes of what one says of its machine.
const METADATA_BYTES_MAX: usize = 64 << 10;
/// Managers that are remembered as turned away.
const TURNED_AWAY_COUNT_MAX: usize = 64;

/// What a beacon is to the map.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Active,
    /// It believes that it is active.
    Deposed,
    Standby,
    /// Nobody but our own manager is active.
    Wanted,
    New,
}

impl MgrMaps {
    /// For a while a manager without a session is not given up.
    pub(crate) fn be_patient(&mut self, now: Stamp) {
        self.patient_until = now + PATIENCE;
    }

    fn place_of(&self, beacon: &MgrBeacon) -> Place {
        let map = self.map();
        if map.active_gid == beacon.gid && !self.own_is_active() {
            Place::Active
        } else if beacon.available {
            Place::Deposed
        } else if self.own_is_active() {
            Place::Wanted
        } else if map.standbys.contains_key(&beacon.gid) {
            Place::Standby
        } else {
            Place::New
        }
    }

    /// The active manager says what it is by now. True when it has become available.
    fn update_active(&mut self, beacon: MgrBeacon) -> bool {
        let map = self.map();
        let became_available = beacon.available && !map.available;
        let mut changed = MgrMap {
            available: beacon.available,
            available_modules: beacon.modules,
            active_mgr_features: beacon.features,
            clients: beacon.clients,
            client_names: beacon.client_names,
            ..map.clone()
        };
        // What stands in the map is where clients go; a manager that starts has no address yet.
        if beacon.available {
            (changed.active_addrs, changed.services) = (beacon.server_addrs, beacon.services);
        }
        if changed != *map {
            self.update(|map| *map = changed);
        }
        if became_available && beacon.commands != self.commands {
            self.set_commands(beacon.commands);
        }
        became_available
    }

    fn update_standby(&mut self, standby: StandbyMgr) {
        if self.map().standbys.get(&standby.gid) != Some(&standby) {
            self.update(|map| drop(map.standbys.insert(standby.gid, standby)));
        }
    }

    /// Managers that are not there any more: those in waiting first, then the active one. `open` are the gids of stock managers' sessions.
    fn silent(&mut self, now: Stamp, grace: Duration, open: &BTreeSet<u64>) -> Vec<u64> {
        let map = self.map.map();
        let active = (map.active_gid != self.own_gid).then_some(map.active_gid);
        let mut silent = Vec::new();
        for gid in map.standbys.keys().copied().chain(active) {
            let heard = *self.beacons.entry(gid).or_insert(now);
            if open.contains(&gid) {
                self.away.remove(&gid);
            }
            // While it loads its modules it begins its session anew.
            let starts = gid == map.active_gid && !map.available;
            let away_max = if starts { PATIENCE } else { AWAY_MAX };
            let is_away = |away: &Stamp| now.since(*away) >= away_max && now >= self.patient_until;
            let away = (!open.contains(&gid)).then(|| *self.away.entry(gid).or_insert(now));
            if now.since(heard) > grace || away.as_ref().is_some_and(is_away) {
                silent.push(gid);
            }
        }
        silent
    }
}

/// Why a beacon cannot be taken in.
fn refusal(identity: &Identity, beacon: &MgrBeacon) -> Option<&'static str> {
    let name = &identity.auth_name;
    let is_its_own = identity.allows_all || name.kind == EntityKind::MGR && name.id == beacon.name;
    let metadata: usize = beacon.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    if !is_its_own {
        Some("its key is of another entity than the manager that it says it is")
    } else if beacon.gid != identity.global_id {
        Some("it gives another global id than its session has")
    } else if beacon.commands.len() > COMMANDS_COUNT_MAX
        || beacon.modules.len() > MODULES_COUNT_MAX
        || beacon.services.len() > SERVICES_COUNT_MAX
        || beacon.clients.len() > CLIENTS_COUNT_MAX
        || beacon.client_names.len() > CLIENTS_COUNT_MAX
        || metadata > METADATA_BYTES_MAX
    {
        Some("it says more of itself than a manager has to say")
    } else {
        None
    }
}

impl Mon {
    /// A stock manager's beacon.
    pub(crate) fn manager_beacon(&mut self, cx: &Cx<'_>, session: SessionId, beacon: MgrBeacon) {
        let Some(identity) = self.identity_of(session) else { return };
        if !self.allows(session, "mgr", Rwx::X) || !self.is_ours(beacon.fsid) {
            return;
        }
        if let Some(reason) = refusal(identity, &beacon) {
            let (name, gid) = (identity.auth_name.clone(), identity.global_id);
            let known = &mut self.state.mgr.turned_away;
            if known.len() < TURNED_AWAY_COUNT_MAX && known.insert(gid) {
                let text = format!("a manager with the key of {name} is turned away: {reason}");
                self.state.clog(LogPriority::WARN, cx.wall, text);
            }
            return;
        }
        self.give_up_namesakes(cx, &beacon);
        let standby = StandbyMgr {
            gid: beacon.gid,
            name: beacon.name.clone(),
            available_modules: beacon.modules.clone(),
            features: beacon.features,
            ..StandbyMgr::default()
        };
        match self.state.mgr.place_of(&beacon) {
            Place::Deposed => return self.send(session, 0, MMgrMap { map: nobody().to_bytes() }),
            Place::Active => self.hear_active(cx, beacon.clone()),
            Place::Standby => self.state.mgr.update_standby(standby),
            Place::Wanted => {
                let text = format!("mgr.{} reports and becomes the active manager", standby.name);
                self.state.clog(LogPriority::INFO, cx.wall, text);
                self.state.mgr.activate(standby, cx.wall);
                self.end_own_sessions();
            }
            Place::New if self.state.mgr.map().standbys.len() < STANDBYS_COUNT_MAX => {
                let text = format!("mgr.{} reports and waits as a standby", standby.name);
                self.state.clog(LogPriority::INFO, cx.wall, text);
                self.state.mgr.update_standby(standby);
            }
            Place::New => return,
        }
        self.state.mgr.beacons.insert(beacon.gid, cx.now);
        self.state.mgr.set_metadata(&beacon.name, beacon.metadata);
    }

    fn hear_active(&mut self, cx: &Cx<'_>, beacon: MgrBeacon) {
        let name = beacon.name.clone();
        if self.state.mgr.update_active(beacon) {
            self.state.clog(LogPriority::INFO, cx.wall, format!("mgr.{name} is available"));
        }
    }

    /// A manager that was started anew has its name and another gid: its former self is gone.
    fn give_up_namesakes(&mut self, cx: &Cx<'_>, beacon: &MgrBeacon) {
        let map = self.state.mgr.map();
        let is_former = |(gid, name): (u64, &str)| name == beacon.name && gid != beacon.gid;
        let active = is_former((map.active_gid, &map.active_name)) && !self.state.mgr.own_is_active();
        let standbys = map.standbys.values().map(|standby| (standby.gid, standby.name.as_str()));
        let standbys: Vec<u64> = standbys.filter(|former| is_former(*former)).map(|(gid, _)| gid).collect();
        if active {
            self.give_up_active(cx, "has started anew");
        }
        standbys.into_iter().for_each(|gid| self.give_up_standby(gid));
    }

    /// Once per second: gives up who is gone.
    pub(crate) fn tick_managers(&mut self, cx: &Cx<'_>) {
        let is_manager = |entry: &&Session| entry.endpoint == Endpoint::Mon && entry.kind == EntityKind::MGR;
        let open = self.sessions.values().filter(is_manager).map(|entry| entry.identity.global_id).collect();
        let grace = self.state.config.number_of_monitor("mon_mgr_beacon_grace", 30.0);
        let silent = self.state.mgr.silent(cx.now, nacre_types::seconds(grace), &open);
        for gid in silent {
            if gid == self.state.mgr.map().active_gid {
                self.give_up_active(cx, "is gone or does not answer");
            } else {
                self.give_up_standby(gid);
            }
        }
        self.state.mgr.starts_for = cx.wall.since(self.state.mgr.map().active_change);
        self.publish_services(cx);
        self.send_digests(cx);
    }

    /// Gives up those that operators do not want any more.
    pub(crate) fn give_up_unwanted(&mut self, cx: &Cx<'_>) {
        for gid in std::mem::take(&mut self.state.mgr.unwanted) {
            if gid != self.state.mgr.map().active_gid {
                self.give_up_standby(gid);
            } else if !self.state.mgr.own_is_active() {
                self.give_up_active(cx, "was given up by command");
            }
        }
    }

    /// A standby is no more.
    pub(crate) fn give_up_standby(&mut self, gid: u64) {
        let standbys = &self.state.mgr.map().standbys;
        let Some(name) = standbys.get(&gid).map(|standby| standby.name.clone()) else { return };
        self.state.mgr.update(|map| drop(map.standbys.remove(&gid)));
        self.state.mgr.forget(gid, &name);
    }

    /// The active stock manager is no more, or shall be no more: what it still does is shut out by the OSDs, and another takes over.
    pub(crate) fn give_up_active(&mut self, cx: &Cx<'_>, why: &str) {
        let map = self.state.mgr.map();
        let (gid, name) = (map.active_gid, map.active_name.clone());
        let standby = map.standbys.values().next().cloned();
        let addrs = map.clients.iter().chain([&map.active_addrs]).flat_map(|addrs| addrs.0.clone());
        // An address without a nonce would stand for all clients of a machine.
        let addrs: Vec<EntityAddr> = addrs.filter(|addr| addr.nonce != 0).collect();
        self.shut_out(cx, addrs);
        self.state.mgr.forget(gid, &name);
        let next = standby
            .as_ref()
            .map_or("the monitor's own manager".to_owned(), |next| format!("mgr.{}", next.name));
        self.state.clog(LogPriority::WARN, cx.wall, format!("mgr.{name} {why}: {next} takes over"));
        match standby {
            Some(standby) => self.state.mgr.activate(standby, cx.wall),
            None => {
                let own_gid = self.state.auth.grant_ids().start;
                self.state.mgr.activate_own(own_gid, cx.wall);
            }
        }
    }

    fn shut_out(&mut self, cx: &Cx<'_>, addrs: Vec<EntityAddr>) {
        if addrs.is_empty() {
            return;
        }
        let seconds = self.state.config.number_of_monitor("mon_mgr_blocklist_interval", 86_400.0);
        let until = cx.wall.after(nacre_types::seconds(seconds));
        for addr in addrs {
            self.state.osd.blocklist_add(addr, until);
        }
        let epoch: Epoch = self.state.osd.next_epoch();
        // Not an epoch more: whoever takes over changes the map.
        self.state.mgr.map.update(|map| map.last_failure_osd_epoch = epoch);
    }

    /// Our own manager steps back: whoever is connected to it goes to the other.
    fn end_own_sessions(&mut self) {
        let own = self.sessions.iter().filter(|(_, entry)| entry.endpoint == Endpoint::Mgr);
        let own: Vec<SessionId> = own.map(|(session, _)| *session).collect();
        own.into_iter().for_each(|session| self.close(session));
    }

    /// The way to another monitor's front is lost, and its peers have to find another.
    pub(crate) fn front_lost(&mut self, cx: &Cx<'_>) {
        self.state.mgr.be_patient(cx.now);
        self.state.fs.be_patient(cx.now);
    }
}

/// The map that tells a manager that it is not the active one, whatever map it has.
fn nobody() -> MgrMap {
    MgrMap { epoch: Epoch::MAX, ..MgrMap::default() }
}
