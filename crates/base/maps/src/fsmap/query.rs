//! What the file-system map says of servers, ranks and pools.

use super::{FileSystem, FsMap, MdsInfo, MdsMap, fs_flag, mds_flag};
use nacre_msg::mds_state as state;
use nacre_types::PoolId;
use std::collections::BTreeSet;

/// A rank of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Role {
    /// Id of the file system.
    pub fscid: i32,
    /// The rank in it.
    pub rank: i32,
}

/// Why text names no [`Role`]. The texts are Ceph's, as tools show them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// There is only a rank, and no file system for those who name none.
    #[error("No filesystem selected")]
    NoDefault,
    /// No such file system.
    #[error("Invalid filesystem")]
    FileSystem,
    /// That is no number from 0 on.
    #[error("Invalid rank '{0}'")]
    Rank(String),
    /// The file system does not have it.
    #[error("Rank '{0}' not found")]
    NoRank(i32),
}

impl MdsInfo {
    /// It was silent for too long.
    #[must_use]
    pub fn is_laggy(&self) -> bool {
        !self.laggy_since.is_zero()
    }

    /// Operators have frozen it.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.flags & mds_flag::FROZEN != 0
    }

    /// It is on its way from reading its predecessor's journal to serving clients.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        (state::REPLAY..=state::CLIENTREPLAY).contains(&self.state)
    }

    /// It holds a rank, not only follows one.
    #[must_use]
    pub fn holds_rank(&self) -> bool {
        self.rank >= 0 && self.state != state::STANDBY_REPLAY
    }
}

impl MdsMap {
    /// True when all bits of `flag` are set.
    #[must_use]
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag == flag
    }

    /// Sets or clears bits of [`fs_flag`].
    pub fn set_flag(&mut self, flag: u32, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    /// The server that holds a rank.
    #[must_use]
    pub fn holder(&self, rank: i32) -> Option<&MdsInfo> {
        self.mds_info.get(self.up.get(&rank)?)
    }

    /// The server that follows a rank.
    #[must_use]
    pub fn follower(&self, rank: i32) -> Option<&MdsInfo> {
        self.followers().find(|info| info.rank == rank)
    }

    /// Servers that follow a rank.
    pub fn followers(&self) -> impl Iterator<Item = &MdsInfo> {
        self.mds_info.values().filter(|info| info.state == state::STANDBY_REPLAY)
    }

    /// Ranks whose server serves clients.
    #[must_use]
    pub fn active_ranks(&self) -> BTreeSet<i32> {
        let active = self.mds_info.values().filter(|info| info.state == state::ACTIVE);
        active.map(|info| info.rank).collect()
    }

    /// Some rank is not served, or not yet.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        !self.failed.is_empty()
            || !self.damaged.is_empty()
            || self.mds_info.values().any(MdsInfo::is_recovering)
    }

    /// No rank is coming or going: the count of ranks may change.
    #[must_use]
    pub fn is_resizeable(&self) -> bool {
        let moves =
            |info: &MdsInfo| [state::CREATING, state::STARTING, state::STOPPING].contains(&info.state);
        !self.is_degraded() && !self.mds_info.values().any(moves)
    }

    /// The features in use may grow: one rank at most could misunderstand them.
    #[must_use]
    pub fn is_upgradeable(&self) -> bool {
        let most = usize::from(!self.has_flag(fs_flag::ALLOW_STANDBY_REPLAY));
        self.in_ranks.len() <= most
    }

    /// A server in waiting may follow this rank.
    #[must_use]
    pub fn is_followable(&self, rank: i32) -> bool {
        self.holder(rank).is_some_and(|info| !info.is_recovering()) && self.follower(rank).is_none()
    }

    /// How many more servers in waiting are wanted than there are, `standbys` of no file system among them. Those that are laggy do not count.
    #[must_use]
    pub fn standbys_missing(&self, standbys: usize) -> usize {
        let followers = self.followers().filter(|info| !info.is_laggy());
        let following: BTreeSet<i32> = followers.map(|info| info.rank).collect();
        let wanted = usize::try_from(self.standby_count_wanted).unwrap_or(0);
        wanted.saturating_sub(following.len() + standbys)
    }
}

impl FsMap {
    /// The file system of an id.
    #[must_use]
    pub fn file_system(&self, fscid: i32) -> Option<&FileSystem> {
        self.filesystems.iter().find(|fs| fs.fscid == fscid)
    }

    /// The file system of an id, to be changed.
    #[must_use]
    pub fn file_system_mut(&mut self, fscid: i32) -> Option<&mut FileSystem> {
        self.filesystems.iter_mut().find(|fs| fs.fscid == fscid)
    }

    /// The file system of a name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&FileSystem> {
        self.filesystems.iter().find(|fs| fs.mds_map.fs_name == name)
    }

    /// A server, in waiting or of a file system.
    #[must_use]
    pub fn server(&self, gid: u64) -> Option<&MdsInfo> {
        match self.mds_roles.get(&gid)? {
            -1 => self.standby_daemons.get(&gid),
            fscid => self.file_system(*fscid)?.mds_map.mds_info.get(&gid),
        }
    }

    /// A server, to be changed. What shows the change to others is up to the caller.
    #[must_use]
    pub fn server_mut(&mut self, gid: u64) -> Option<&mut MdsInfo> {
        match *self.mds_roles.get(&gid)? {
            -1 => self.standby_daemons.get_mut(&gid),
            fscid => self.file_system_mut(fscid)?.mds_map.mds_info.get_mut(&gid),
        }
    }

    /// The file system that a server belongs to.
    #[must_use]
    pub fn file_system_of(&self, gid: u64) -> Option<&FileSystem> {
        self.file_system(*self.mds_roles.get(&gid)?)
    }

    /// All servers: those in waiting first.
    pub fn servers(&self) -> impl Iterator<Item = &MdsInfo> {
        let of_fs = self.filesystems.iter().flat_map(|fs| fs.mds_map.mds_info.values());
        self.standby_daemons.values().chain(of_fs)
    }

    /// The server of a name.
    #[must_use]
    pub fn server_by_name(&self, name: &str) -> Option<&MdsInfo> {
        self.servers().find(|info| info.name == name)
    }

    /// The epoch that a server should know: that of its file system, or of its coming.
    #[must_use]
    pub fn epoch_for(&self, gid: u64) -> Option<u32> {
        match self.mds_roles.get(&gid)? {
            -1 => self.standby_epochs.get(&gid).copied(),
            fscid => self.file_system(*fscid).map(|fs| fs.mds_map.epoch),
        }
    }

    /// Some rank of some file system is not served.
    #[must_use]
    pub fn is_any_degraded(&self) -> bool {
        self.filesystems.iter().any(|fs| fs.mds_map.is_degraded())
    }

    /// The file system that keeps data or metadata in a pool.
    #[must_use]
    pub fn user_of_pool(&self, pool: PoolId) -> Option<&FileSystem> {
        let uses =
            |fs: &&FileSystem| fs.mds_map.metadata_pool == pool || fs.mds_map.data_pools.contains(&pool);
        self.filesystems.iter().find(uses)
    }

    /// Reads `RANK` of the default file system, `NAME:RANK` or `ID:RANK`.
    ///
    /// # Errors
    /// [`RoleError`].
    pub fn role(&self, text: &str) -> Result<Role, RoleError> {
        let (fs, rank) = match text.split_once(':') {
            None => (self.file_system(self.legacy_client_fscid).ok_or(RoleError::NoDefault)?, text),
            Some((fs, rank)) => {
                let by_id = fs.parse().ok().and_then(|fscid| self.file_system(fscid));
                (by_id.or_else(|| self.by_name(fs)).ok_or(RoleError::FileSystem)?, rank)
            }
        };
        let number = rank.parse().ok().filter(|rank: &i32| *rank >= 0);
        let number = number.ok_or_else(|| RoleError::Rank(rank.to_owned()))?;
        if !fs.mds_map.in_ranks.contains(&number) {
            return Err(RoleError::NoRank(number));
        }
        Ok(Role { fscid: fs.fscid, rank: number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn info(gid: u64, rank: i32, state: i32) -> MdsInfo {
        MdsInfo { global_id: gid, name: format!("m{gid}"), rank, state, ..MdsInfo::default() }
    }

    /// File systems `a` (id 1) and `b` (id 7), each with an active rank 0; gid 30 waits.
    fn map() -> FsMap {
        let fs = |fscid, name: &str, gid| {
            let mds_map = MdsMap {
                fs_name: name.to_owned(),
                in_ranks: [0].into(),
                up: BTreeMap::from([(0, gid)]),
                mds_info: BTreeMap::from([(gid, info(gid, 0, state::ACTIVE))]),
                metadata_pool: PoolId::from(fscid) * 10,
                data_pools: vec![PoolId::from(fscid) * 10 + 1],
                epoch: 5,
                ..MdsMap::default()
            };
            FileSystem::new(fscid, mds_map)
        };
        FsMap {
            filesystems: vec![fs(1, "a", 10), fs(7, "b", 20)],
            legacy_client_fscid: 1,
            mds_roles: BTreeMap::from([(10, 1), (20, 7), (30, -1)]),
            standby_daemons: BTreeMap::from([(30, info(30, -1, state::STANDBY))]),
            standby_epochs: BTreeMap::from([(30, 3)]),
            ..FsMap::empty(8)
        }
    }

    #[test]
    fn roles_are_named_by_rank_and_file_system() {
        let mut map = map();
        assert_eq!(map.role("0"), Ok(Role { fscid: 1, rank: 0 }));
        assert_eq!(map.role("b:0"), Ok(Role { fscid: 7, rank: 0 }));
        assert_eq!(map.role("7:0"), Ok(Role { fscid: 7, rank: 0 }));
        assert_eq!(map.role("c:0"), Err(RoleError::FileSystem));
        assert_eq!(map.role("b:1"), Err(RoleError::NoRank(1)));
        assert_eq!(map.role("b:-1"), Err(RoleError::Rank("-1".to_owned())));
        map.legacy_client_fscid = -1;
        assert_eq!(map.role("0"), Err(RoleError::NoDefault));
    }

    #[test]
    fn servers_and_pools_are_found() {
        let map = map();
        let found = [10, 20, 30, 40].map(|gid| map.server(gid).map(|info| info.global_id));
        assert_eq!(found, [Some(10), Some(20), Some(30), None]);
        assert_eq!([10, 30].map(|gid| map.epoch_for(gid)), [Some(5), Some(3)]);
        assert_eq!(map.server_by_name("m20").map(|info| info.global_id), Some(20));
        let user = |pool| map.user_of_pool(pool).map(|fs| fs.mds_map.fs_name.clone());
        assert_eq!([10, 11, 70, 12].map(user), [Some("a".into()), Some("a".into()), Some("b".into()), None]);
    }

    #[test]
    fn a_file_system_is_degraded_until_all_its_ranks_serve() {
        let mut map = map();
        assert!(!map.is_any_degraded());
        let fs = &mut map.file_system_mut(7).expect("b").mds_map;
        assert!(fs.is_resizeable() && fs.is_followable(0) && fs.is_upgradeable());
        fs.mds_info.get_mut(&20).expect("a server").state = state::REJOIN;
        assert!(fs.is_degraded() && !fs.is_resizeable() && !fs.is_followable(0));
        fs.mds_info.get_mut(&20).expect("a server").state = state::STOPPING;
        assert!(!fs.is_degraded() && !fs.is_resizeable());
        fs.failed.insert(1);
        assert!(fs.is_degraded());
        fs.set_flag(fs_flag::ALLOW_STANDBY_REPLAY, true);
        assert!(!fs.is_upgradeable());
    }

    #[test]
    fn standbys_are_missing_beyond_those_that_follow_or_wait() {
        let mut fs = map().filesystems.remove(0).mds_map;
        assert_eq!(fs.standbys_missing(0), 0, "none are wanted unless somebody says so");
        fs.standby_count_wanted = 2;
        assert_eq!((fs.standbys_missing(0), fs.standbys_missing(1), fs.standbys_missing(5)), (2, 1, 0));
        fs.mds_info.insert(11, info(11, 0, state::STANDBY_REPLAY));
        assert_eq!(fs.standbys_missing(0), 1);
        fs.mds_info.values_mut().for_each(|info| info.laggy_since = nacre_types::UTime { sec: 1, nsec: 0 });
        assert_eq!(fs.standbys_missing(0), 2);
    }

    #[test]
    fn a_fresh_file_system_has_the_mirror_settings_that_ceph_writes() {
        let made = FileSystem::new(1, MdsMap::default());
        assert_eq!(made.mirror_info[..], [1, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
