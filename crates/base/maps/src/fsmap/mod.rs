//! [`FsMap`]: file systems and their metadata servers.

mod codec;
mod query;

use nacre_types::{AddrVec, Epoch, PoolId, UTime};
use std::collections::{BTreeMap, BTreeSet};

pub use nacre_msg::Compat;
pub use query::{Role, RoleError};

/// Bits of [`MdsMap::flags`]. Ceph `CEPH_MDSMAP_*`.
pub mod fs_flag {
    /// No server may take a rank.
    pub const NOT_JOINABLE: u32 = 1;
    /// Clients may make snapshots.
    pub const ALLOW_SNAPS: u32 = 1 << 1;
    /// They may while several ranks are active.
    pub const ALLOW_MULTIMDS_SNAPS: u32 = 1 << 4;
    /// Servers in waiting may follow the journals of active ones.
    pub const ALLOW_STANDBY_REPLAY: u32 = 1 << 5;
}

/// Bits of [`MdsInfo::flags`]. Ceph `MDSMap::mds_flags`.
pub mod mds_flag {
    /// It is neither replaced nor promoted.
    pub const FROZEN: u64 = 1;
}

/// One metadata server. Ceph `MDSMap::mds_info_t`, version 10.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MdsInfo {
    /// Its global id.
    pub global_id: u64,
    /// Name of the daemon, as in `mds.NAME`.
    pub name: String,
    /// Its rank, or -1.
    pub rank: i32,
    /// Incarnation of that rank.
    pub inc: i32,
    /// One of [`nacre_msg::mds_state`].
    pub state: i32,
    /// Sequence number of its last beacon that changed state.
    pub state_seq: u64,
    /// Where it listens.
    pub addrs: AddrVec,
    /// When it was last seen to be slow, or zero.
    pub laggy_since: UTime,
    /// Ranks it exports directories to.
    pub export_targets: BTreeSet<i32>,
    /// Features of the sender, one bit each (`CEPH_FEATURE_*`).
    pub mds_features: u64,
    /// File system it prefers, or -1.
    pub join_fscid: i32,
    /// Bits of [`mds_flag`].
    pub flags: u64,
    /// On-disk features it knows.
    pub compat: Compat,
}

/// State of one file system. Ceph `MDSMap`, version 5 with extension 16.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsMap {
    /// Version of this map.
    pub epoch: Epoch,
    /// Bits of [`fs_flag`], 0x12 on a fresh file system.
    pub flags: u32,
    /// Epoch of the last failure.
    pub last_failure: Epoch,
    /// Rank of the root directory.
    pub root: i32,
    /// Seconds until a silent session is stale.
    pub session_timeout: u32,
    /// Seconds until it is closed.
    pub session_autoclose: u32,
    /// Largest file in bytes.
    pub max_file_size: u64,
    /// Wanted number of active ranks.
    pub max_mds: i32,
    /// Servers by global id.
    pub mds_info: BTreeMap<u64, MdsInfo>,
    /// Pools of file data.
    pub data_pools: Vec<PoolId>,
    /// On-disk features in use.
    pub compat: Compat,
    /// Pool of metadata.
    pub metadata_pool: PoolId,
    /// When the file system was made.
    pub created: UTime,
    /// When this version was made.
    pub modified: UTime,
    /// Rank of the table server.
    pub tableserver: i32,
    /// Ranks in use.
    pub in_ranks: BTreeSet<i32>,
    /// Incarnation of each rank.
    pub inc: BTreeMap<i32, i32>,
    /// Rank to the server that holds it.
    pub up: BTreeMap<i32, u64>,
    /// Ranks without a server.
    pub failed: BTreeSet<i32>,
    /// Ranks that have been stopped.
    pub stopped: BTreeSet<i32>,
    /// OSD map epoch of the last failure's blocklisting.
    pub last_failure_osd_epoch: Epoch,
    /// Snapshots were ever allowed (historic marks).
    pub ever_allowed_features: u8,
    /// Features explicitly allowed (historic marks).
    pub explicitly_allowed_features: u8,
    /// Small files may be kept in their inodes.
    pub inline_data_enabled: bool,
    /// The file system exists and may be used.
    pub enabled: bool,
    /// Name of the file system.
    pub fs_name: String,
    /// Ranks whose metadata is damaged.
    pub damaged: BTreeSet<i32>,
    /// Name of the object with the program that balances load.
    pub balancer: String,
    /// Standbys wanted, -1 = default.
    pub standby_count_wanted: i32,
    /// `max_mds` before it was taken down.
    pub old_max_mds: i32,
    /// Oldest client release.
    pub min_compat_client: u8,
    /// Client feature bits required, as bytes.
    pub required_client_features: Vec<u8>,
}

/// One file system. Ceph `Filesystem`, version 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Id of the file system.
    pub fscid: i32,
    /// Its metadata servers and pools.
    pub mds_map: MdsMap,
    /// Mirror settings as they stand on the wire.
    pub mirror_info: nacre_buf::Bytes,
}

impl FileSystem {
    /// A file system that is mirrored nowhere.
    #[must_use]
    pub fn new(fscid: i32, mds_map: MdsMap) -> Self {
        // Envelope (1, 1) of 5 bytes: not mirrored, no peers.
        let mirror_info = nacre_buf::Bytes::from_static(&[1, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
        Self { fscid, mds_map, mirror_info }
    }
}

/// All file systems. Ceph `FSMap`, version 7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsMap {
    /// Version of this map.
    pub epoch: Epoch,
    /// Number of the next file system.
    pub next_filesystem_id: u64,
    /// File system of clients that name none, or -1.
    pub legacy_client_fscid: i32,
    /// On-disk features of new file systems.
    pub default_compat: Compat,
    /// Several file systems are allowed.
    pub enable_multiple: bool,
    /// The file systems.
    pub filesystems: Vec<FileSystem>,
    /// Server to its file system, -1 = standby.
    pub mds_roles: BTreeMap<u64, i32>,
    /// Servers in waiting.
    pub standby_daemons: BTreeMap<u64, MdsInfo>,
    /// Epoch of each one's last change.
    pub standby_epochs: BTreeMap<u64, Epoch>,
    /// Several file systems were ever allowed.
    pub ever_enabled_multiple: bool,
}

impl Default for MdsMap {
    fn default() -> Self {
        Self {
            epoch: 0,
            flags: 0x12,
            last_failure: 0,
            root: 0,
            session_timeout: 60,
            session_autoclose: 300,
            max_file_size: 1 << 40,
            max_mds: 1,
            mds_info: BTreeMap::new(),
            data_pools: Vec::new(),
            compat: Compat::default(),
            metadata_pool: -1,
            created: UTime::ZERO,
            modified: UTime::ZERO,
            tableserver: 0,
            in_ranks: BTreeSet::new(),
            inc: BTreeMap::new(),
            up: BTreeMap::new(),
            failed: BTreeSet::new(),
            stopped: BTreeSet::new(),
            last_failure_osd_epoch: 0,
            ever_allowed_features: 0,
            explicitly_allowed_features: 0,
            inline_data_enabled: false,
            enabled: false,
            fs_name: "cephfs".to_owned(), // as Ceph's map of no file system says
            damaged: BTreeSet::new(),
            balancer: String::new(),
            standby_count_wanted: -1,
            old_max_mds: 0,
            min_compat_client: 0,
            required_client_features: Vec::new(),
        }
    }
}

impl FsMap {
    /// The map of a cluster without file systems.
    #[must_use]
    pub fn empty(epoch: Epoch) -> Self {
        Self {
            epoch,
            next_filesystem_id: 1,
            legacy_client_fscid: -1,
            default_compat: Compat::fresh(),
            enable_multiple: true,
            filesystems: Vec::new(),
            mds_roles: BTreeMap::new(),
            standby_daemons: BTreeMap::new(),
            standby_epochs: BTreeMap::new(),
            ever_enabled_multiple: true,
        }
    }
}
