//! File systems and their metadata servers, as the map says to everybody.
//!
//! | file | |
//! | --- | --- |
//! | `mod.rs` | [`FsMaps`]: the map, and what belongs to it |
//! | `change.rs` | [`Change`]: the steps by which servers and ranks come and go |
//! | `choose.rs` | which server in waiting takes a rank |
//!
//! What servers say and hear is in `mds_messages`, who is given up and who takes over in `mds_servers.rs`.

mod change;
mod choose;

pub use change::{Change, NewFs};
pub use choose::{available_standby, replacement_for};

use crate::batch::{Batch, Snapshot};
use crate::stored_map::StoredMap;
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_maps::{FsMap, MdsMap};
use nacre_msg::{FsMapUserBody, FsMapUserEntry, MdsHealthMetric};
use nacre_types::{Epoch, Stamp, UTime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const TABLE: &str = "fsmap";
/// How long a server may be without a session while it may have to find another monitor.
const PATIENCE: Duration = Duration::from_secs(10);
/// The table of what servers say of themselves, by gid.
const METADATA_TABLE: &str = "mds-metadata";

/// Most file systems.
pub const FILE_SYSTEMS_COUNT_MAX: usize = 256;
/// Longest name of one.
pub const FS_NAME_BYTES_MAX: usize = 128;
/// Most ranks of one file system; Ceph `MAX_MDS`.
pub const RANKS_COUNT_MAX: i32 = 0x100;
/// Most data pools of one file system.
pub const DATA_POOLS_COUNT_MAX: usize = 256;

/// Facts about a server's machine, by key.
pub type Metadata = BTreeMap<String, String>;

/// What is known of servers beside the map. Not durable: whoever leads next hears it within seconds, and judges nobody before.
#[derive(Debug, Default)]
pub struct Heard {
    /// The newest beacon of each server, or when we began to wait for one.
    pub(crate) beacons: BTreeMap<u64, Stamp>,
    /// Since when a server has had no session.
    pub(crate) away: BTreeMap<u64, Stamp>,
    /// Until then a server without a session may be well: its monitor may have failed.
    pub(crate) patient_until: Stamp,
    /// What each complains about.
    pub(crate) health: BTreeMap<u64, Vec<MdsHealthMetric>>,
    /// Gids of servers that were turned away, and the cluster log knows it.
    pub(crate) turned_away: BTreeSet<u64>,
    /// When servers were looked after last.
    pub(crate) looked: Option<Stamp>,
}

/// The file-system map and what belongs to it. The map is durable, and its epoch with it: subscribers wait for a greater one than they have,
/// whoever leads.
#[derive(Debug)]
pub struct FsMaps {
    map: StoredMap<FsMap>,
    metadata: BTreeMap<u64, Metadata>,
    changes: Batch,
    /// What servers have said to this monitor since it leads.
    pub heard: Heard,
}

impl FsMaps {
    /// Epoch 1 in a store that has none.
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let metadata = snapshot.scan(METADATA_TABLE).into_iter();
        let metadata = metadata.filter_map(|(gid, value)| Some((gid.parse().ok()?, value)));
        Ok(Self {
            map: StoredMap::open(snapshot, TABLE, FsMap::empty(1))?,
            metadata: metadata
                .map(|(gid, value)| Ok((gid, Metadata::from_bytes(value)?)))
                .collect::<Result<_, DecodeError>>()?,
            changes: Batch::default(),
            heard: Heard::default(),
        })
    }

    /// This monitor leads from now on: servers have time to find it.
    pub(crate) fn begin(&mut self, now: Stamp) {
        let beacons = self.map().mds_roles.keys().map(|gid| (*gid, now)).collect();
        self.heard = Heard { beacons, looked: Some(now), ..Heard::default() };
        self.be_patient(now);
    }

    /// For a while a server without a session is not given up.
    pub(crate) fn be_patient(&mut self, now: Stamp) {
        self.heard.patient_until = now + PATIENCE;
    }

    /// Changes the map; the epoch grows by one.
    pub fn update<T>(&mut self, wall: UTime, edit: impl FnOnce(&mut Change<'_>) -> T) -> T {
        let outcome = self.map.update(|map| {
            map.epoch += 1;
            edit(&mut Change::of(map, wall))
        });
        self.forget_gone();
        outcome
    }

    /// Forgets what is known of servers that are not in the map any more.
    fn forget_gone(&mut self) {
        let map = self.map.map();
        let is_there = |gid: &u64| map.mds_roles.contains_key(gid);
        let gone: Vec<u64> = self.metadata.keys().filter(|gid| !is_there(gid)).copied().collect();
        self.heard.beacons.retain(|gid, _| is_there(gid));
        self.heard.away.retain(|gid, _| is_there(gid));
        self.heard.health.retain(|gid, _| is_there(gid));
        for gid in gone {
            self.metadata.remove(&gid);
            self.changes.delete(METADATA_TABLE, gid.to_string());
        }
    }

    pub(crate) fn set_metadata(&mut self, gid: u64, metadata: Metadata) {
        self.changes.put(METADATA_TABLE, gid.to_string(), metadata.to_bytes());
        self.metadata.insert(gid, metadata);
    }

    /// What a server says of its machine.
    #[must_use]
    pub fn metadata(&self, gid: u64) -> Option<&Metadata> {
        self.metadata.get(&gid)
    }

    /// What each server complains about.
    #[must_use]
    pub fn health(&self) -> &BTreeMap<u64, Vec<MdsHealthMetric>> {
        &self.heard.health
    }

    /// Bytes that wait to be committed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.map.pending_bytes() + self.changes.bytes()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.map.is_dirty() || !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        self.map.flush(batch);
        batch.append(&mut self.changes);
    }

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &FsMap {
        self.map.map()
    }

    /// The names of the file systems that `is_shown`.
    #[must_use]
    pub fn user_map(&self, is_shown: impl Fn(&str) -> bool) -> FsMapUserBody {
        let map = self.map();
        let shown = map.filesystems.iter().filter(|fs| is_shown(&fs.mds_map.fs_name));
        FsMapUserBody {
            epoch: map.epoch,
            legacy_fscid: map.legacy_client_fscid,
            filesystems: shown
                .map(|fs| FsMapUserEntry { cid: fs.fscid, name: fs.mds_map.fs_name.clone() })
                .collect(),
        }
    }

    /// The map for a server: its file system's, or one of no file system with itself alone.
    #[must_use]
    pub fn map_for_server(&self, gid: u64) -> MdsMap {
        let map = self.map();
        if let Some(fs) = map.file_system_of(gid) {
            return fs.mds_map.clone();
        }
        let standby = map.standby_daemons.get(&gid);
        let mds_info = standby.map(|info| (gid, info.clone())).into_iter().collect();
        let epoch = map.standby_epochs.get(&gid).copied().unwrap_or(map.epoch);
        MdsMap { epoch, mds_info, ..MdsMap::default() }
    }

    /// The map for a client of the file system `fscid`; none where that does not exist.
    #[must_use]
    pub fn map_for_client(&self, fscid: i32) -> Option<MdsMap> {
        self.map().file_system(fscid).map(|fs| fs.mds_map.clone())
    }

    /// A map of no file system.
    #[must_use]
    pub fn nobodys_map(&self, epoch: Epoch) -> MdsMap {
        MdsMap { epoch, ..MdsMap::default() }
    }
}
