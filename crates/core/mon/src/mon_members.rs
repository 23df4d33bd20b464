//! [`MonMembers`]: which member of the monitors' log each monitor is.
//!
//! A member's id is a counter that starts at 1: never a rank, and never given to a second one. A monitor that lost its store comes back
//! under its name with a new id, since the old one may have voted. The table is kept as `mon-members`, always in the same batch as the
//! monmap; a store without it is that of a cluster with one monitor, which is member 1.

use crate::batch::{Batch, Snapshot};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_maps::MonMap;
use std::collections::BTreeMap;

pub(crate) const PREFIX: &str = "mon-members";
const KEY: &str = "current";

/// Ids of the monitors' log by the monitors' names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonMembers {
    ids: BTreeMap<String, u64>,
    /// The id that the next new member gets.
    next: u64,
    /// How often the cluster was made anew from the store of one monitor.
    incarnation: u64,
}

impl MonMembers {
    /// Of a new cluster: 1, 2, and so on in order of rank.
    #[must_use]
    pub fn fresh(map: &MonMap) -> Self {
        let ids: BTreeMap<String, u64> = map.ranks.iter().cloned().zip(1..).collect();
        let next = ids.len() as u64 + 1;
        Self { ids, next, incarnation: 0 }
    }

    /// The table as it is stored; that of a cluster with one monitor when none is.
    ///
    /// # Errors
    /// When it does not decode.
    pub fn read(snapshot: &dyn Snapshot, map: &MonMap) -> Result<Self, DecodeError> {
        snapshot.get(PREFIX, KEY).map_or_else(|| Ok(Self::fresh(map)), Self::from_bytes)
    }

    /// The member that a monitor is.
    #[must_use]
    pub fn id_of(&self, name: &str) -> Option<u64> {
        self.ids.get(name).copied()
    }

    /// The monitor that a member is; none for a member that was replaced or removed.
    #[must_use]
    pub fn name_of(&self, id: u64) -> Option<&str> {
        self.ids.iter().find(|(_, known)| **known == id).map(|(name, _)| name.as_str())
    }

    /// True of a member that was replaced or removed. That stays so: ids are never used again.
    #[must_use]
    pub fn is_gone(&self, id: u64) -> bool {
        id < self.next && self.name_of(id).is_none()
    }

    /// How often the cluster was made anew from the store of one monitor, see [`crate::recover`]. Monitors of different incarnations are
    /// none of one cluster any more.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// All monitors, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.ids.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Makes a monitor a new member, in place of the one that it was; yields its id.
    pub(crate) fn add(&mut self, name: &str) -> u64 {
        let id = self.next;
        self.next += 1;
        self.ids.insert(name.to_owned(), id);
        id
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.ids.remove(name);
    }

    /// The cluster begins anew with this monitor alone, which is a new member; yields its id.
    pub(crate) fn begin_anew(&mut self, name: &str) -> u64 {
        self.ids.clear();
        self.incarnation += 1;
        self.add(name)
    }

    pub(crate) fn store(&self, batch: &mut Batch) {
        batch.put(PREFIX, KEY, self.to_bytes());
    }
}

/// In an envelope (version 2, compat 1): name and id of each monitor, then the id of the next; since version 2 the incarnation.
impl Encode for MonMembers {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.ids);
            w.u64(self.next);
            w.u64(self.incarnation);
        });
    }
}

impl Decode for MonMembers {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MonMembers", 2, |version, r| {
            let (ids, next) = (r.get()?, r.u64()?);
            let incarnation = if version >= 2 { r.u64()? } else { 0 };
            Ok(Self { ids, next, incarnation })
        })
    }
    const MIN_BYTES: usize = 6;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::MemorySnapshot;
    use nacre_types::{AddrVec, UTime, Uuid};

    fn map(names: &[&str]) -> MonMap {
        let mons: Vec<_> = names.iter().map(|name| ((*name).to_owned(), AddrVec::default())).collect();
        MonMap::fresh(Uuid::from_random([7; 16]), UTime::default(), &mons)
    }

    #[test]
    fn ids_follow_ranks_at_first_and_are_never_used_again() {
        let mut members = MonMembers::fresh(&map(&["b", "a", "c"]));
        assert_eq!(members.iter().collect::<Vec<_>>(), [("a", 2), ("b", 1), ("c", 3)]);
        members.remove("c");
        assert_eq!(members.add("c"), 4);
        assert_eq!(members.add("a"), 5, "a monitor that lost its store");
        assert_eq!((members.id_of("a"), members.name_of(2), members.name_of(5)), (Some(5), None, Some("a")));
        assert!(members.is_gone(3) && members.is_gone(2) && !members.is_gone(4) && !members.is_gone(6));
        let (mut snapshot, mut batch) = (MemorySnapshot::default(), Batch::default());
        members.store(&mut batch);
        snapshot.apply(&batch);
        assert_eq!(MonMembers::read(&snapshot, &map(&["a"])), Ok(members));
    }

    #[test]
    fn a_cluster_that_begins_anew_has_no_member_of_before() {
        let mut members = MonMembers::fresh(&map(&["a", "b", "c"]));
        assert_eq!(members.begin_anew("b"), 4);
        assert_eq!((members.iter().collect::<Vec<_>>(), members.incarnation()), (vec![("b", 4)], 1));
        assert!([1, 2, 3].into_iter().all(|id| members.is_gone(id)));
        assert_eq!(MonMembers::from_bytes(members.to_bytes()), Ok(members));
    }

    #[test]
    fn a_table_of_version_1_has_no_incarnation() {
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.put(&BTreeMap::from([("a".to_owned(), 1_u64)]));
            w.u64(2);
        });
        let members = MonMembers::from_bytes(w.finish()).expect("version 1");
        assert_eq!(members, MonMembers::fresh(&map(&["a"])));
    }

    #[test]
    fn a_store_of_a_program_before_the_table_has_one_member() {
        let members = MonMembers::read(&MemorySnapshot::default(), &map(&["a"])).expect("nothing to decode");
        assert_eq!((members.id_of("a"), members.next), (Some(1), 2));
    }
}
