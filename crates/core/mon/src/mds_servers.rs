//! Metadata servers under supervision: who is given up, who takes over, how many ranks there are.
//!
//! ```text
//! a rank's server silent for mds_beacon_grace -------> laggy in the map; replaced where another server can take over
//! a rank's server without a session for AWAY_MAX ----> replaced where another server can take over
//! a server in waiting silent for mds_beacon_grace ---> out of the map
//! ```
//! Ceph's monitors (`src/mon/MDSMonitor.cc` at v16.2.15) only wait for beacons, 15 s long. Here the end of the session counts as well: the
//! kernel closes the connections of a process that has died. Who is given up is shut out by the OSDs first, and whoever takes over waits
//! for the map that says so (`last_failure_osd_epoch`): of two that believe to hold a rank only one can write.

use crate::fsmap::{available_standby, replacement_for};
use crate::state::State;
use nacre_maps::{MdsInfo, Role, fs_flag};
use nacre_msg::{LogPriority, mds_state};
use nacre_types::{Epoch, Stamp, UTime, seconds};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long the holder of a rank may be without a session. It dials again at once when its connection was cut.
const AWAY_MAX: Duration = Duration::from_secs(3);

/// Servers that do not speak any more.
#[derive(Debug, Default)]
struct Silent {
    /// Those without a beacon for as long as the grace is.
    overdue: Vec<u64>,
    /// Those that may be replaced.
    replaceable: Vec<u64>,
}

fn daemon(info: &MdsInfo) -> String {
    format!("daemon mds.{}", info.name)
}

impl State {
    /// Gives a server up, by its gid: it can write no more, and its rank is free.
    pub(crate) fn give_up_mds(&mut self, gid: u64, wall: UTime) {
        let shut_out_at = self.shut_mds_out(gid, wall);
        self.fs.update(wall, |change| change.erase(gid, shut_out_at));
    }

    /// A server says that the metadata of its rank are damaged: nobody takes it until operators say that it is repaired.
    pub(crate) fn give_up_damaged_mds(&mut self, gid: u64, wall: UTime) {
        let shut_out_at = self.shut_mds_out(gid, wall);
        self.fs.update(wall, |change| change.damage(gid, shut_out_at));
    }

    /// Lets the OSDs shut out a server that holds a rank; from which epoch of their map on. Others write nothing.
    fn shut_mds_out(&mut self, gid: u64, wall: UTime) -> Option<Epoch> {
        let info = self.fs.map().server(gid).filter(|info| info.holds_rank())?;
        let addrs = info.addrs.0.clone();
        let interval = self.config.number_of_monitor("mon_mds_blocklist_interval", 86_400.0);
        let until = wall.after(seconds(interval));
        // An address without a nonce would stand for all clients of a machine.
        for addr in addrs.into_iter().filter(|addr| addr.nonce != 0) {
            self.osd.blocklist_add(addr, until);
        }
        Some(self.osd.next_epoch())
    }

    /// Once per second: gives up who is silent, and sees to it that all ranks are held. `open` are the gids of servers with a session.
    pub(crate) fn look_after_mds(&mut self, now: Stamp, wall: UTime, open: &BTreeSet<u64>) {
        self.want_standbys(wall);
        let silent = self.find_silent(now, open);
        if self.is_warm() {
            self.mark_laggy(&silent.overdue, wall);
            for gid in silent.replaceable {
                self.replace_silent(gid, wall, open);
            }
        }
        self.prefer_affine(wall, open);
        self.arrange_ranks(wall, open);
    }

    /// Who has had a standby once is warned when it is missing: see Ceph's `MDSMap::check_health`.
    fn want_standbys(&mut self, wall: UTime) {
        let standbys = self.fs.map().standby_daemons.len();
        let wants = |fs: &&nacre_maps::FileSystem| {
            let fs = &fs.mds_map;
            let has_one = standbys > 0 || fs.followers().next().is_some();
            fs.standby_count_wanted == -1 && has_one && !fs.active_ranks().is_empty()
        };
        let undecided: Vec<i32> = self.fs.map().filesystems.iter().filter(wants).map(|fs| fs.fscid).collect();
        for fscid in undecided {
            self.fs.update(wall, |change| change.fs(fscid, |fs| fs.standby_count_wanted = 1));
        }
    }

    fn find_silent(&mut self, now: Stamp, open: &BTreeSet<u64>) -> Silent {
        let grace = seconds(self.config.number_of_monitor("mds_beacon_grace", 15.0));
        let interval = seconds(self.config.number_of_monitor("mds_beacon_interval", 4.0));
        let gids: Vec<u64> = self.fs.map().mds_roles.keys().copied().collect();
        let heard = &mut self.fs.heard;
        // This monitor itself was not there for so long that it may have missed beacons.
        let was_absent = heard.looked.is_some_and(|looked| now.since(looked) + interval > grace);
        if was_absent {
            heard.beacons.values_mut().for_each(|heard| *heard = now);
        }
        heard.looked = Some(now);
        let mut silent = Silent::default();
        let mut newest = Stamp::default();
        let mut away_for_long = Vec::new();
        for gid in gids {
            let at = *heard.beacons.entry(gid).or_insert(now);
            newest = newest.max(at);
            if now.since(at) >= grace {
                silent.overdue.push(gid);
            }
            if open.contains(&gid) {
                heard.away.remove(&gid);
                continue;
            }
            let since = *heard.away.entry(gid).or_insert(now);
            if now.since(since) >= AWAY_MAX && now >= heard.patient_until {
                away_for_long.push(gid);
            }
        }
        // Where nobody is heard the way to this monitor may be the fault.
        let others_are_heard = now.since(newest) < interval.max(grace / 2);
        if others_are_heard {
            silent.replaceable.clone_from(&silent.overdue);
        }
        let holds = |gid: &u64| self.fs.map().server(*gid).is_some_and(|info| info.rank >= 0);
        silent.replaceable.extend(away_for_long.into_iter().filter(holds));
        silent
    }

    fn mark_laggy(&mut self, overdue: &[u64], wall: UTime) {
        for gid in overdue {
            let name = match self.fs.map().server(*gid) {
                Some(info) if !info.is_laggy() => info.name.clone(),
                _ => continue,
            };
            self.fs.update(wall, |change| change.server(*gid, |info| info.laggy_since = wall));
            self.clog(LogPriority::WARN, wall, format!("mds.{name} sends no beacons: it is marked laggy"));
        }
    }

    /// A server in waiting goes; one that holds a rank does if another can take that over.
    fn replace_silent(&mut self, gid: u64, wall: UTime, open: &BTreeSet<u64>) {
        let Some(info) = self.fs.map().server(gid).cloned() else { return };
        if info.is_frozen() {
            return;
        }
        if !info.holds_rank() {
            self.give_up_mds(gid, wall);
            let text = format!("{} is gone or does not answer: it waits for a rank no more", daemon(&info));
            return self.clog(LogPriority::INFO, wall, text);
        }
        let Some(fs) = self.fs.map().file_system_of(gid) else { return };
        let role = Role { fscid: fs.fscid, rank: info.rank };
        let is_other = |other: u64| other != gid && open.contains(&other);
        let replacement = replacement_for(self.fs.map(), role, is_other);
        if let Some(next) = replacement.filter(|_| !fs.mds_map.has_flag(fs_flag::NOT_JOINABLE)) {
            self.replace(gid, role, next, "is gone or does not answer", wall);
        }
    }

    fn replace(&mut self, gid: u64, role: Role, next: u64, why: &str, wall: UTime) {
        let [old, new] = [gid, next].map(|gid| self.fs.map().server(gid).map(daemon).unwrap_or_default());
        let text = format!("{old} {why}: {new} takes over its rank {}", role.rank);
        self.give_up_mds(gid, wall);
        self.fs.update(wall, |change| change.promote(next, role));
        self.clog(LogPriority::WARN, wall, text);
    }

    /// A rank, or a place behind one, goes to a server that prefers its file system more than who has it (`mds_join_fs`); one per second.
    fn prefer_affine(&mut self, wall: UTime, open: &BTreeSet<u64>) {
        let settled = |fs: &&nacre_maps::FileSystem| {
            !fs.mds_map.has_flag(fs_flag::NOT_JOINABLE) && fs.mds_map.is_resizeable()
        };
        let ids: Vec<i32> = self.fs.map().filesystems.iter().filter(settled).map(|fs| fs.fscid).collect();
        for fscid in ids {
            let Some((held, next)) = self.better_affinity(fscid, open) else { continue };
            if held.holds_rank() {
                let role = Role { fscid, rank: held.rank };
                self.replace(held.global_id, role, next, "prefers another file system or none", wall);
            } else {
                self.give_up_mds(held.global_id, wall);
            }
        }
    }

    /// A server of the file system, and one in waiting that prefers it more.
    fn better_affinity(&self, fscid: i32, open: &BTreeSet<u64>) -> Option<(MdsInfo, u64)> {
        let map = self.fs.map();
        let fs = map.file_system(fscid)?;
        let is_here = |gid: u64| open.contains(&gid);
        for held in fs.mds_map.mds_info.values().filter(|info| info.join_fscid != fscid) {
            let next = match held.holds_rank() {
                true => replacement_for(map, Role { fscid, rank: held.rank }, is_here)?,
                false => available_standby(map, fs, is_here)?,
            };
            let prefers = map.server(next)?.join_fscid;
            if prefers == fscid || held.join_fscid != -1 && prefers == -1 {
                return Some((held.clone(), next));
            }
        }
        None
    }

    /// Sees to it that there are as many ranks as are wanted, and that all of them are held.
    pub(crate) fn arrange_ranks(&mut self, wall: UTime, open: &BTreeSet<u64>) {
        let ids: Vec<i32> = self.fs.map().filesystems.iter().map(|fs| fs.fscid).collect();
        for fscid in &ids {
            self.take_failed_over(*fscid, wall, open);
        }
        for fscid in &ids {
            self.resize(*fscid, wall, open);
        }
        for fscid in ids {
            self.let_follow(fscid, wall, open);
        }
    }

    fn take_failed_over(&mut self, fscid: i32, wall: UTime, open: &BTreeSet<u64>) {
        let Some(fs) = self.fs.map().file_system(fscid) else { return };
        if fs.mds_map.has_flag(fs_flag::NOT_JOINABLE) {
            return;
        }
        let name = fs.mds_map.fs_name.clone();
        for rank in fs.mds_map.failed.clone() {
            let role = Role { fscid, rank };
            let next = replacement_for(self.fs.map(), role, |gid| open.contains(&gid));
            let Some(next) = next else { continue };
            let who = self.fs.map().server(next).map(daemon).unwrap_or_default();
            self.fs.update(wall, |change| change.promote(next, role));
            self.clog(LogPriority::INFO, wall, format!("{who} takes over rank {rank} of filesystem {name}"));
        }
    }

    /// One rank more or fewer, as `max_mds` wants it.
    fn resize(&mut self, fscid: i32, wall: UTime, open: &BTreeSet<u64>) {
        let Some(fs) = self.fs.map().file_system(fscid) else { return };
        let (map, name) = (&fs.mds_map, fs.mds_map.fs_name.clone());
        let count = i32::try_from(map.in_ranks.len()).unwrap_or(i32::MAX);
        if !map.is_resizeable() {
            return;
        }
        if count > map.max_mds {
            let last = map.in_ranks.last().and_then(|rank| map.holder(*rank));
            let Some(last) = last.filter(|info| info.state == mds_state::ACTIVE).cloned() else { return };
            let stops = |info: &mut MdsInfo| info.state = mds_state::STOPPING;
            self.fs.update(wall, |change| change.server(last.global_id, stops));
            let text = format!("{} is to stop rank {} of filesystem {name}", daemon(&last), last.rank);
            self.clog(LogPriority::INFO, wall, text);
        } else if count < map.max_mds && !map.has_flag(fs_flag::NOT_JOINABLE) {
            let Some(rank) = (0..map.max_mds).find(|rank| !map.up.contains_key(rank)) else { return };
            let role = Role { fscid, rank };
            let next = replacement_for(self.fs.map(), role, |gid| open.contains(&gid));
            let Some(next) = next else { return };
            let who = self.fs.map().server(next).map(daemon).unwrap_or_default();
            self.fs.update(wall, |change| change.promote(next, role));
            let text = format!("{who} gets rank {rank} of filesystem {name}, which has {} now", count + 1);
            self.clog(LogPriority::INFO, wall, text);
        }
    }

    /// Servers in waiting follow the journals of ranks, where the file system allows it and misses nobody.
    fn let_follow(&mut self, fscid: i32, wall: UTime, open: &BTreeSet<u64>) {
        loop {
            let map = self.fs.map();
            let Some(fs) = map.file_system(fscid) else { return };
            let may_follow = fs.mds_map.has_flag(fs_flag::ALLOW_STANDBY_REPLAY) && !fs.mds_map.is_degraded();
            if !may_follow || fs.mds_map.has_flag(fs_flag::NOT_JOINABLE) {
                return;
            }
            let rank = fs.mds_map.in_ranks.iter().copied().find(|rank| fs.mds_map.is_followable(*rank));
            let standby = available_standby(map, fs, |gid| open.contains(&gid));
            let Some((rank, standby)) = rank.zip(standby) else { return };
            self.fs.update(wall, |change| change.follow(standby, Role { fscid, rank }));
        }
    }
}
