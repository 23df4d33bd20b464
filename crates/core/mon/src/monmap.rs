//! The monitors' own map, and which members of their log they are.

use crate::batch::{Batch, Snapshot};
use crate::mon_members::{self, MonMembers};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_maps::{MonInfo, MonMap};
use nacre_types::{AddrVec, UTime};
use std::collections::{BTreeMap, BTreeSet};

const PREFIX: &str = "monmap";
const KEY: &str = "current";

/// Monitors of one cluster. Each change waits for a majority of them.
pub const MONS_MAX: usize = 31;

/// The monmap and the members of the log, which change together: at mkfs, when monitors are added or removed, and when an address does.
#[derive(Debug)]
pub struct MonMaps {
    map: MonMap,
    members: MonMembers,
    changes: Batch,
}

/// The stored monmap, for those that need no more of the monitors' state; none in a store without a cluster.
///
/// # Errors
/// When it does not decode.
pub fn read_monmap(snapshot: &dyn Snapshot) -> Result<Option<MonMap>, DecodeError> {
    snapshot.get(PREFIX, KEY).map(MonMap::from_bytes).transpose()
}

/// Whether a batch changes the monmap, or which members of the log the monitors are.
#[must_use]
pub fn changes_monitors(batch: &Batch) -> bool {
    batch.ops().iter().any(|op| op.prefix == PREFIX || op.prefix == mon_members::PREFIX)
}

impl MonMaps {
    pub(crate) fn create(map: &MonMap, batch: &mut Batch) {
        Self::put(map, &MonMembers::fresh(map), batch);
    }

    pub(crate) fn put(map: &MonMap, members: &MonMembers, batch: &mut Batch) {
        batch.put(PREFIX, KEY, map.to_bytes());
        members.store(batch);
    }

    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Option<Self>, DecodeError> {
        let Some(map) = read_monmap(snapshot)? else { return Ok(None) };
        let members = MonMembers::read(snapshot, &map)?;
        Ok(Some(Self { map, members, changes: Batch::default() }))
    }

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &MonMap {
        &self.map
    }

    /// Which member of the log each monitor is.
    #[must_use]
    pub fn members(&self) -> &MonMembers {
        &self.members
    }

    /// The current map as clients read it.
    #[must_use]
    pub fn encoded(&self) -> Bytes {
        self.map.to_bytes()
    }

    /// Replaces the map by its successor; the epoch grows by one.
    pub fn update(&mut self, edit: impl FnOnce(&mut MonMap)) {
        self.map.removed_ranks.clear(); // it tells of the newest change only
        edit(&mut self.map);
        self.map.epoch += 1;
        self.changes.put(PREFIX, KEY, self.map.to_bytes());
    }

    /// Adds a monitor, with the last rank, as a new member; yields its id. One that is there already gets the address, and is a new member
    /// in place of the one that it was: it has lost its store.
    pub fn add(&mut self, name: &str, addrs: AddrVec, wall: UTime) -> u64 {
        self.add_at(name, addrs, BTreeMap::new(), wall)
    }

    /// As [`MonMaps::add`]; a new monitor stands at this place, level to name.
    pub fn add_at(
        &mut self,
        name: &str,
        addrs: AddrVec,
        crush_location: BTreeMap<String, String>,
        wall: UTime,
    ) -> u64 {
        self.update(|map| {
            map.last_changed = wall;
            let new = || MonInfo { crush_location, ..MonInfo::default() };
            let info = map.mons.entry(name.to_owned()).or_insert_with(new);
            (info.name, info.addrs) = (name.to_owned(), addrs);
            if map.rank_of(name).is_none() {
                map.ranks.push(name.to_owned());
            }
        });
        let id = self.members.add(name);
        self.members.store(&mut self.changes);
        id
    }

    /// A monitor is to be found at another address.
    pub fn set_addrs(&mut self, name: &str, addrs: AddrVec, wall: UTime) {
        self.update(|map| {
            map.last_changed = wall;
            if let Some(info) = map.mons.get_mut(name) {
                info.addrs = addrs;
            }
        });
    }

    /// The cluster begins anew with this monitor alone, at this address, as a new member of a new log; yields its id.
    pub(crate) fn begin_anew(&mut self, name: &str, addrs: AddrVec, wall: UTime) -> u64 {
        self.update(|map| {
            map.last_changed = wall;
            let info = map.mons.remove(name).unwrap_or_default();
            map.ranks = vec![name.to_owned()];
            map.mons = BTreeMap::from([(name.to_owned(), MonInfo { name: name.to_owned(), addrs, ..info })]);
            map.disallowed_leaders.clear();
        });
        let id = self.members.begin_anew(name);
        self.members.store(&mut self.changes);
        id
    }

    /// Removes a monitor; those behind it move up by one rank.
    pub fn remove(&mut self, name: &str, wall: UTime) {
        self.update(|map| {
            map.last_changed = wall;
            map.removed_ranks =
                map.rank_of(name).and_then(|rank| u32::try_from(rank).ok()).into_iter().collect();
            map.mons.remove(name);
            map.ranks.retain(|known| known != name);
            map.disallowed_leaders.remove(name);
        });
        self.members.remove(name);
        self.members.store(&mut self.changes);
    }

    /// How the monitors elect, and who of them may not lead.
    pub fn set_election(&mut self, strategy: u8, disallowed_leaders: BTreeSet<String>, wall: UTime) {
        self.update(|map| {
            map.last_changed = wall;
            (map.strategy, map.disallowed_leaders) = (strategy, disallowed_leaders);
        });
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}
