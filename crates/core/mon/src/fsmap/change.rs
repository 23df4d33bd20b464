//! [`Change`]: one epoch's changes of the file-system map.
//!
//! ```text
//!              promote                    state by beacon            stop
//! standby ----------------> creating ------------------> active ---------> (rank stopped, server gone)
//!    |                      starting                       |
//!    | follow               replay .. clientreplay --------|  erase: rank failed, server gone
//!    v        promote          ^                           |  damage: rank damaged, server gone
//! standby-replay --------------+                           v
//! ```
//! After each step a server is either in waiting or in one file system, and a rank that is in use is held, failed or damaged.
//! Source: Ceph `src/mds/FSMap.cc` at v16.2.15.

use nacre_maps::{Compat, FileSystem, FsMap, MdsInfo, MdsMap, Role, fs_flag};
use nacre_msg::mds_state as state;
use nacre_types::{Epoch, PoolId, UTime};

/// The map under change: its epoch is the next one.
#[derive(Debug)]
pub struct Change<'a> {
    /// The map. What is changed here directly is said to nobody but subscribers of the whole map.
    pub map: &'a mut FsMap,
    wall: UTime,
}

/// A file system that is to be made.
#[derive(Debug, Clone, Default)]
pub struct NewFs {
    /// Its name, which no other has.
    pub name: String,
    /// Pool of its metadata.
    pub metadata_pool: PoolId,
    /// First pool of its data.
    pub data_pool: PoolId,
    /// The id that it gets; the next free one if none is given.
    pub fscid: Option<i32>,
    /// Rank 0 exists in the pools already.
    pub recover: bool,
}

impl<'a> Change<'a> {
    pub(super) fn of(map: &'a mut FsMap, wall: UTime) -> Self {
        Self { map, wall }
    }

    /// Changes one file system; its clients and servers will know.
    pub fn fs(&mut self, fscid: i32, edit: impl FnOnce(&mut MdsMap)) {
        let (epoch, wall) = (self.map.epoch, self.wall);
        if let Some(fs) = self.map.file_system_mut(fscid) {
            edit(&mut fs.mds_map);
            fs.mds_map.epoch = epoch;
            fs.mds_map.modified = wall;
            // Once the count of a rank's servers; nobody reads it any more.
            fs.mds_map.inc.clear();
            let epoch = i32::try_from(epoch).unwrap_or(i32::MAX);
            fs.mds_map.inc.extend(fs.mds_map.in_ranks.iter().map(|rank| (*rank, epoch)));
        }
    }

    /// Changes one server; it will know, and so will those of its file system.
    pub fn server(&mut self, gid: u64, edit: impl FnOnce(&mut MdsInfo)) {
        match self.map.mds_roles.get(&gid).copied() {
            Some(-1) => {
                if let Some(info) = self.map.standby_daemons.get_mut(&gid) {
                    edit(info);
                }
                self.map.standby_epochs.insert(gid, self.map.epoch);
            }
            Some(fscid) => self.fs(fscid, |fs| {
                if let Some(info) = fs.mds_info.get_mut(&gid) {
                    edit(info);
                }
            }),
            None => (),
        }
    }

    /// A server has come, and waits.
    pub fn insert(&mut self, mut info: MdsInfo) {
        if info.compat.is_empty() {
            info.compat = Compat::pacific();
        }
        info.rank = -1;
        info.state = state::STANDBY;
        let gid = info.global_id;
        self.map.mds_roles.insert(gid, -1);
        self.map.standby_epochs.insert(gid, self.map.epoch);
        self.map.standby_daemons.insert(gid, info);
    }

    /// Takes a server out of those that wait, or out of those that follow a rank of `fscid`.
    fn take_waiting(&mut self, gid: u64, fscid: i32) -> Option<MdsInfo> {
        self.map.standby_epochs.remove(&gid);
        let waited = self.map.standby_daemons.remove(&gid);
        waited.or_else(|| self.map.file_system_mut(fscid)?.mds_map.mds_info.remove(&gid))
    }

    /// A server in waiting, or one that follows the rank, holds it from now on.
    pub fn promote(&mut self, gid: u64, role: Role) {
        let Some(mut info) = self.take_waiting(gid, role.fscid) else { return };
        let incarnation = i32::try_from(self.map.epoch).unwrap_or(i32::MAX);
        self.map.mds_roles.insert(gid, role.fscid);
        self.fs(role.fscid, |fs| {
            fs.compat.merge(&info.compat);
            info.state = if fs.stopped.remove(&role.rank) {
                state::STARTING
            } else if fs.in_ranks.contains(&role.rank) {
                state::REPLAY
            } else {
                state::CREATING
            };
            info.rank = role.rank;
            info.inc = incarnation;
            fs.failed.remove(&role.rank);
            fs.in_ranks.insert(role.rank);
            fs.up.insert(role.rank, gid);
            fs.mds_info.insert(gid, info);
        });
    }

    /// A server in waiting follows the journal of a rank from now on.
    pub fn follow(&mut self, gid: u64, role: Role) {
        let Some(mut info) = self.take_waiting(gid, role.fscid) else { return };
        self.map.mds_roles.insert(gid, role.fscid);
        info.rank = role.rank;
        info.state = state::STANDBY_REPLAY;
        self.fs(role.fscid, |fs| drop(fs.mds_info.insert(gid, info)));
    }

    /// A server is gone. `shut_out_at` is the epoch of the OSDs' map from which on it can write no more, where it held a rank: whoever
    /// takes that over waits for this epoch.
    pub fn erase(&mut self, gid: u64, shut_out_at: Option<Epoch>) {
        self.map.standby_daemons.remove(&gid);
        self.map.standby_epochs.remove(&gid);
        let Some(fscid) = self.map.mds_roles.remove(&gid).filter(|fscid| *fscid != -1) else { return };
        self.fs(fscid, |fs| {
            let Some(info) = fs.mds_info.remove(&gid) else { return };
            if info.holds_rank() {
                fs.up.remove(&info.rank);
                if info.state == state::CREATING {
                    // It has made nothing yet that another could read.
                    fs.in_ranks.remove(&info.rank);
                } else {
                    fs.failed.insert(info.rank);
                }
            }
            if let Some(epoch) = shut_out_at {
                fs.last_failure_osd_epoch = epoch;
            }
        });
    }

    /// A server is gone, and says that its rank cannot be used as it is.
    pub fn damage(&mut self, gid: u64, shut_out_at: Option<Epoch>) {
        let role = self.map.server(gid).filter(|info| info.holds_rank()).map(|info| info.rank);
        let role = role.zip(self.map.mds_roles.get(&gid).copied());
        self.erase(gid, shut_out_at);
        if let Some((rank, fscid)) = role {
            self.fs(fscid, |fs| {
                fs.failed.remove(&rank);
                fs.in_ranks.insert(rank);
                fs.damaged.insert(rank);
            });
        }
    }

    /// A rank may be used again; false when it was not damaged.
    pub fn repair(&mut self, role: Role) -> bool {
        let fs = self.map.file_system(role.fscid);
        let is_damaged = fs.is_some_and(|fs| fs.mds_map.damaged.contains(&role.rank));
        if is_damaged {
            self.fs(role.fscid, |fs| {
                fs.damaged.remove(&role.rank);
                fs.failed.insert(role.rank);
            });
        }
        is_damaged
    }

    /// A rank has nothing left to serve, and its server is gone, with those that followed it.
    pub fn stop(&mut self, gid: u64) {
        let Some(fscid) = self.map.file_system_of(gid).map(|fs| fs.fscid) else { return };
        let mut gone = vec![gid];
        self.fs(fscid, |fs| {
            let Some(info) = fs.mds_info.remove(&gid) else { return };
            fs.up.remove(&info.rank);
            fs.in_ranks.remove(&info.rank);
            fs.stopped.insert(info.rank);
            gone.extend(fs.followers().filter(|other| other.rank == info.rank).map(|other| other.global_id));
            fs.mds_info.retain(|gid, _| !gone.contains(gid));
        });
        self.map.mds_roles.retain(|gid, _| !gone.contains(gid));
    }

    /// Makes a file system; its id.
    pub fn create(&mut self, new: NewFs) -> i32 {
        let next = i32::try_from(self.map.next_filesystem_id).unwrap_or(i32::MAX);
        let fscid = new.fscid.unwrap_or(next);
        self.map.next_filesystem_id = self.map.next_filesystem_id.max(u64::try_from(fscid).unwrap_or(0) + 1);
        let mut mds_map = MdsMap {
            fs_name: new.name,
            data_pools: vec![new.data_pool],
            metadata_pool: new.metadata_pool,
            compat: self.map.default_compat.with_inline_data(),
            created: self.wall,
            enabled: true,
            ..MdsMap::default()
        };
        if new.recover {
            mds_map.in_ranks.insert(0);
            mds_map.failed.insert(0);
            mds_map.set_flag(fs_flag::NOT_JOINABLE, true);
        }
        if self.map.filesystems.is_empty() {
            self.map.legacy_client_fscid = fscid;
        }
        let at = self.map.filesystems.partition_point(|fs| fs.fscid < fscid);
        self.map.filesystems.insert(at, FileSystem::new(fscid, mds_map));
        self.fs(fscid, |_| ());
        fscid
    }

    /// Makes a file system as it was made first, but that all ranks exist already: rank 0 is to be taken up, the others were stopped.
    pub fn reset(&mut self, fscid: i32) {
        let (wall, compat) = (self.wall, self.map.default_compat.with_inline_data());
        self.fs(fscid, |fs| {
            let mut stopped: std::collections::BTreeSet<i32> = &fs.in_ranks | &fs.stopped;
            stopped.remove(&0);
            *fs = MdsMap {
                in_ranks: [0].into(),
                failed: [0].into(),
                stopped,
                inline_data_enabled: fs.inline_data_enabled,
                data_pools: std::mem::take(&mut fs.data_pools),
                metadata_pool: fs.metadata_pool,
                fs_name: std::mem::take(&mut fs.fs_name),
                compat,
                created: wall,
                standby_count_wanted: fs.standby_count_wanted,
                enabled: true,
                ..MdsMap::default()
            };
        });
    }

    /// Removes a file system that no server belongs to. Those that preferred it prefer none.
    pub fn remove(&mut self, fscid: i32) {
        self.map.filesystems.retain(|fs| fs.fscid != fscid);
        if self.map.legacy_client_fscid == fscid {
            self.map.legacy_client_fscid = -1;
        }
        let prefers = |info: &&MdsInfo| info.join_fscid == fscid;
        let preferring: Vec<u64> = self.map.servers().filter(prefers).map(|info| info.global_id).collect();
        for gid in preferring {
            self.server(gid, |info| info.join_fscid = -1);
        }
    }
}
