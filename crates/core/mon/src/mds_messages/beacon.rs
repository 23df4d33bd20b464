//! Beacons of metadata servers.
//!
//! A beacon says which state its server wants to have; the monitor grants it by the next map, and answers with the same beacon as a sign that
//! it is heard. A server that is not in the map is sent one without it, and starts anew.
//! Source: Ceph `src/mon/MDSMonitor.cc`, `MDSMap::state_transition_valid` at v16.2.15.

use crate::event::{Endpoint, SessionId};
use crate::mon::{Cx, Mon};
use crate::session::Session;
use nacre_auth::Rwx;
use nacre_denc::Encode;
use nacre_maps::MdsInfo;
use nacre_msg::{LogPriority, MMdsMap, MdsBeacon, MdsHealthMetric, MdsLoadTargets, mds_state as state};
use nacre_types::{EntityAddr, EntityKind, Epoch, features};
use std::collections::{BTreeMap, BTreeSet};

/// Servers in the map at a time.
const SERVERS_COUNT_MAX: usize = 1024;
/// Bytes of a server's name.
const NAME_BYTES_MAX: usize = 256;
/// Bytes of what one says of its machine.
const METADATA_BYTES_MAX: usize = 64 << 10;
/// On-disk features that one names, and bytes of each.
const FEATURES_COUNT_MAX: usize = 128;
const FEATURE_BYTES_MAX: usize = 128;
/// Complaints of one server that are kept, and their bytes.
const COMPLAINTS_COUNT_MAX: usize = 256;
const COMPLAINT_BYTES_MAX: usize = 4096;
/// Ranks that one says it hands directories to.
const TARGETS_COUNT_MAX: usize = 256;
/// Servers that are remembered as turned away.
const TURNED_AWAY_COUNT_MAX: usize = 64;

/// What becomes of the state that a beacon asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transition {
    /// It is what the map says already, or may not be.
    Nothing,
    Granted,
    /// The rank has nothing left to serve.
    Stopped,
    /// The rank cannot be used.
    Damaged,
    /// The process ends.
    Gone,
}

/// Whether a server that holds a rank may go from one state to another.
fn is_next(held: i32, wanted: i32) -> bool {
    match held {
        state::CREATING | state::STARTING => wanted == state::ACTIVE,
        state::REPLAY => wanted == state::RESOLVE || wanted == state::RECONNECT,
        // No client has anything to be done again, or the rank has no directories left.
        state::REJOIN if wanted == state::ACTIVE || wanted == state::STOPPED => true,
        state::RESOLVE..=state::CLIENTREPLAY => wanted == held + 1,
        state::ACTIVE => wanted == state::STOPPING,
        state::STOPPING => wanted == state::STOPPED,
        _ => false,
    }
}

/// What a beacon that asks for `wanted` brings a server that is in the map.
fn transition(info: &MdsInfo, wanted: i32) -> Transition {
    match wanted {
        wanted if wanted == info.state => Transition::Nothing,
        state::DNE => Transition::Gone,
        state::DAMAGED if info.holds_rank() => Transition::Damaged,
        // Who waits or follows takes no rank by itself.
        _ if !info.holds_rank() || !is_next(info.state, wanted) => Transition::Nothing,
        state::STOPPED => Transition::Stopped,
        _ => Transition::Granted,
    }
}

/// Why a beacon cannot be taken in.
fn refusal(entry: &Session, beacon: &MdsBeacon, known: Option<&MdsInfo>) -> Option<&'static str> {
    let (identity, name) = (&entry.identity, &entry.identity.auth_name);
    let is_its_own = identity.allows_all || name.kind == EntityKind::MDS && name.id == beacon.name;
    let metadata: usize = beacon.sys_info.iter().map(|(key, value)| key.len() + value.len()).sum();
    let features = [&beacon.compat.compat, &beacon.compat.ro_compat, &beacon.compat.incompat];
    let mut feature_names = features.into_iter().flat_map(BTreeMap::values);
    if !is_its_own {
        Some("its key is of another entity than the server that it says it is")
    } else if beacon.global_id != identity.global_id {
        Some("it gives another global id than its session has")
    } else if known.is_some_and(|info| info.addrs != entry.addrs || info.name != beacon.name) {
        Some("it has another name or address than the server of its global id")
    } else if !entry.addrs.0.iter().any(is_own_address) {
        Some("it has no address of its own to be reached and to be shut out at")
    } else if beacon.name.is_empty()
        || beacon.name.len() > NAME_BYTES_MAX
        || metadata > METADATA_BYTES_MAX
        || beacon.compat.count() > FEATURES_COUNT_MAX
        || feature_names.any(|name| name.len() > FEATURE_BYTES_MAX)
    {
        Some("it says more of itself than a server has to say")
    } else {
        None
    }
}

/// A place to be reached at, and to be shut out at: without a nonce it would stand for all of a machine.
fn is_own_address(addr: &EntityAddr) -> bool {
    addr.nonce != 0 && addr.socket.is_some_and(|socket| socket.port() != 0)
}

/// Complaints, cut to what is kept.
fn complaints(mut health: Vec<MdsHealthMetric>) -> Vec<MdsHealthMetric> {
    let bytes = |metric: &MdsHealthMetric| {
        metric.message.len()
            + metric.metadata.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    };
    health.retain(|metric| bytes(metric) <= COMPLAINT_BYTES_MAX);
    health.truncate(COMPLAINTS_COUNT_MAX);
    health
}

impl Mon {
    /// Gids of metadata servers with a session.
    pub(crate) fn open_mds(&self) -> BTreeSet<u64> {
        let is_server = |entry: &&Session| entry.endpoint == Endpoint::Mon && entry.kind == EntityKind::MDS;
        self.sessions.values().filter(is_server).map(|entry| entry.identity.global_id).collect()
    }

    /// A metadata server's beacon.
    pub(crate) fn mds_beacon(&mut self, cx: &Cx<'_>, session: SessionId, beacon: MdsBeacon) {
        let Some(entry) = self.sessions.get(&session) else { return };
        if !self.allows(session, "mds", Rwx::X) || !self.is_ours(beacon.fsid) {
            return;
        }
        let known = self.state.fs.map().server(beacon.global_id);
        if let Some(reason) = refusal(entry, &beacon, known) {
            let (name, gid) = (entry.identity.auth_name.clone(), entry.identity.global_id);
            return self.turn_mds_away(cx, &name.to_string(), gid, reason);
        }
        match known.map(|info| info.state_seq) {
            None if beacon.state == state::BOOT => self.boot_mds(cx, session, beacon),
            None => self.send_nobodys_map(session),
            // An older one that comes late.
            Some(seq) if seq > beacon.seq => (),
            Some(_) => self.hear_mds(cx, session, beacon),
        }
    }

    fn turn_mds_away(&mut self, cx: &Cx<'_>, name: &str, gid: u64, reason: &str) {
        let known = &mut self.state.fs.heard.turned_away;
        if known.len() < TURNED_AWAY_COUNT_MAX && known.insert(gid) {
            let text = format!("a metadata server with the key of {name} is turned away: {reason}");
            self.state.clog(LogPriority::WARN, cx.wall, text);
        }
    }

    /// Tells a server that it is not in the map, whatever map it has.
    fn send_nobodys_map(&mut self, session: SessionId) {
        let (fsid, epoch) = (self.state.fsid, Epoch::MAX);
        let map = self.state.fs.nobodys_map(epoch);
        self.send(session, 0, MMdsMap { fsid, epoch, map: map.to_bytes(), fs_name: map.fs_name });
    }

    /// The sign that a beacon is heard.
    fn answer_beacon(&mut self, session: SessionId, beacon: &MdsBeacon, epoch: Epoch) {
        let answer = MdsBeacon {
            version: epoch.into(),
            fsid: self.state.fsid,
            global_id: beacon.global_id,
            state: beacon.state,
            seq: beacon.seq,
            name: beacon.name.clone(),
            features: features::SUPPORTED,
            ..MdsBeacon::default()
        };
        self.send(session, 0, answer);
    }

    /// A server has come. One of its name that is in the map is its former self.
    fn boot_mds(&mut self, cx: &Cx<'_>, session: SessionId, beacon: MdsBeacon) {
        let Some(addrs) = self.sessions.get(&session).map(|entry| entry.addrs.clone()) else { return };
        let former = |info: &&MdsInfo| info.name == beacon.name;
        let former: Vec<u64> =
            self.state.fs.map().servers().filter(former).map(|info| info.global_id).collect();
        for gid in former {
            self.state.clog(
                LogPriority::INFO,
                cx.wall,
                format!("daemon mds.{} has started anew", beacon.name),
            );
            self.state.give_up_mds(gid, cx.wall);
        }
        if self.state.fs.map().mds_roles.len() >= SERVERS_COUNT_MAX {
            let text = format!("there are {SERVERS_COUNT_MAX} metadata servers already, which is the most");
            return self.turn_mds_away(cx, &format!("mds.{}", beacon.name), beacon.global_id, &text);
        }
        let info = MdsInfo {
            global_id: beacon.global_id,
            name: beacon.name.clone(),
            rank: -1,
            state: state::STANDBY,
            state_seq: beacon.seq,
            addrs,
            mds_features: beacon.features,
            join_fscid: self.preferred(&beacon),
            compat: beacon.compat.clone(),
            ..MdsInfo::default()
        };
        self.state.fs.update(cx.wall, |change| change.insert(info));
        self.state.fs.heard.beacons.insert(beacon.global_id, cx.now);
        self.state.fs.set_metadata(beacon.global_id, beacon.sys_info.clone());
        let epoch = self.state.fs.map().epoch;
        self.answer_beacon(session, &beacon, epoch);
    }

    /// The file system that the server prefers, or -1.
    fn preferred(&self, beacon: &MdsBeacon) -> i32 {
        self.state.fs.map().by_name(&beacon.fs).map_or(-1, |fs| fs.fscid)
    }

    /// A server that is in the map.
    fn hear_mds(&mut self, cx: &Cx<'_>, session: SessionId, beacon: MdsBeacon) {
        let gid = beacon.global_id;
        self.state.fs.heard.beacons.insert(gid, cx.now);
        let map = self.state.fs.map();
        let (Some(info), Some(epoch)) = (map.server(gid), map.epoch_for(gid)) else { return };
        let (is_laggy, join_fscid) = (info.is_laggy(), info.join_fscid);
        let wanted = transition(info, beacon.state);
        if is_laggy {
            let found = |info: &mut MdsInfo| info.laggy_since = nacre_types::UTime::ZERO;
            self.state.fs.update(cx.wall, |change| change.server(gid, found));
        }
        // What it asks for follows from an older map.
        if u64::from(epoch) != beacon.version {
            return self.answer_beacon(session, &beacon, epoch);
        }
        // It does not know yet that it is in the map.
        if beacon.state == state::BOOT {
            return;
        }
        let preferred = self.preferred(&beacon);
        if preferred != join_fscid {
            self.state.fs.update(cx.wall, |change| change.server(gid, |info| info.join_fscid = preferred));
        }
        self.state.fs.heard.health.insert(gid, complaints(beacon.health.clone()));
        self.grant(cx, session, &beacon, wanted);
    }

    fn grant(&mut self, cx: &Cx<'_>, session: SessionId, beacon: &MdsBeacon, wanted: Transition) {
        let gid = beacon.global_id;
        let fs = self.state.fs.map().file_system_of(gid).map(|fs| fs.mds_map.fs_name.clone());
        let rank = self.state.fs.map().server(gid).map_or(-1, |info| info.rank);
        let place = format!("rank {rank} of filesystem {}", fs.unwrap_or_default());
        let mut say = |priority, text: &str| {
            self.state.clog(priority, cx.wall, format!("daemon mds.{} {text} {place}", beacon.name));
        };
        match wanted {
            Transition::Nothing => (),
            Transition::Granted => {
                if beacon.state == state::ACTIVE {
                    say(LogPriority::INFO, "is active now with");
                }
                self.state.fs.update(cx.wall, |change| {
                    change.server(gid, |info| (info.state, info.state_seq) = (beacon.state, beacon.seq));
                });
            }
            Transition::Stopped => {
                say(LogPriority::INFO, "has stopped");
                self.state.fs.update(cx.wall, |change| change.stop(gid));
                return self.send_nobodys_map(session);
            }
            Transition::Damaged => {
                say(LogPriority::ERROR, "finds the metadata damaged of");
                self.state.give_up_damaged_mds(gid, cx.wall);
            }
            Transition::Gone => self.state.give_up_mds(gid, cx.wall),
        }
        let map = self.state.fs.map();
        let epoch = map.epoch_for(gid).unwrap_or(map.epoch);
        self.answer_beacon(session, beacon, epoch);
    }

    /// A server says which ranks it hands directories to.
    pub(crate) fn mds_load_targets(&mut self, cx: &Cx<'_>, session: SessionId, message: MdsLoadTargets) {
        let is_its_own = self.identity_of(session).is_some_and(|own| own.global_id == message.global_id);
        if !is_its_own || !self.allows(session, "mds", Rwx::X) || message.targets.len() > TARGETS_COUNT_MAX {
            return;
        }
        let holds = |info: &MdsInfo| info.holds_rank() && info.export_targets != message.targets;
        if self.state.fs.map().server(message.global_id).is_some_and(holds) {
            self.state.fs.update(cx.wall, |change| {
                change.server(message.global_id, |info| info.export_targets = message.targets);
            });
        }
    }

    /// Once per second.
    pub(crate) fn tick_mds(&mut self, cx: &Cx<'_>) {
        let open = self.open_mds();
        self.state.look_after_mds(cx.now, cx.wall, &open);
    }

    /// Ranks that a command has freed, or made, go to who is there at once.
    pub(crate) fn arrange_ranks(&mut self, cx: &Cx<'_>) {
        let open = self.open_mds();
        self.state.arrange_ranks(cx.wall, &open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_go_from_state_to_state_as_ceph_lets_them() {
        let all = [
            state::CREATING,
            state::STARTING,
            state::REPLAY,
            state::RESOLVE,
            state::RECONNECT,
            state::REJOIN,
            state::CLIENTREPLAY,
            state::ACTIVE,
            state::STOPPING,
            state::STOPPED,
            state::STANDBY,
            state::STANDBY_REPLAY,
        ];
        let ways = |held: i32| -> Vec<i32> { all.into_iter().filter(|to| is_next(held, *to)).collect() };
        assert_eq!(ways(state::CREATING), [state::ACTIVE]);
        assert_eq!(ways(state::STARTING), [state::ACTIVE]);
        assert_eq!(ways(state::REPLAY), [state::RESOLVE, state::RECONNECT]);
        assert_eq!(ways(state::RESOLVE), [state::RECONNECT]);
        assert_eq!(ways(state::RECONNECT), [state::REJOIN]);
        assert_eq!(ways(state::REJOIN), [state::CLIENTREPLAY, state::ACTIVE, state::STOPPED]);
        assert_eq!(ways(state::CLIENTREPLAY), [state::ACTIVE]);
        assert_eq!(ways(state::ACTIVE), [state::STOPPING]);
        assert_eq!(ways(state::STOPPING), [state::STOPPED]);
        assert!([state::STANDBY, state::STANDBY_REPLAY, state::STOPPED].map(ways).concat().is_empty());
    }

    #[test]
    fn who_waits_takes_no_rank_by_itself() {
        let info = |rank, state| MdsInfo { rank, state, ..MdsInfo::default() };
        let waiting = info(-1, state::STANDBY);
        let following = info(0, state::STANDBY_REPLAY);
        for wanted in [state::ACTIVE, state::REPLAY, state::CREATING, state::DAMAGED, state::STOPPED] {
            assert_eq!(transition(&waiting, wanted), Transition::Nothing, "{wanted}");
            assert_eq!(transition(&following, wanted), Transition::Nothing, "{wanted}");
        }
        assert_eq!(transition(&waiting, state::DNE), Transition::Gone);
        let holder = info(0, state::REPLAY);
        assert_eq!(transition(&holder, state::RECONNECT), Transition::Granted);
        assert_eq!(transition(&holder, state::ACTIVE), Transition::Nothing);
        assert_eq!(transition(&holder, state::DAMAGED), Transition::Damaged);
        assert_eq!(transition(&info(0, state::STOPPING), state::STOPPED), Transition::Stopped);
    }
}
