//! [`Seed`]: what a monitor needs to find the others of its cluster and to be known to them; [`recover`]: a cluster begins anew from the
//! tables of one monitor.

use crate::auth;
use crate::batch::{Batch, Snapshot};
use crate::mon_members::MonMembers;
use crate::monmap::MonMaps;
use nacre_auth::{CryptoKey, EntityAuth};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_maps::MonMap;
use nacre_types::{AddrVec, AuthName, EntityKind, UTime};

/// Version of what monitors keep in their log and tell each other. It grows where programs of the version before would misunderstand.
pub const MONITOR_VERSION: u16 = 2;
/// The oldest version with whose programs this one gets on.
pub const MONITOR_VERSION_MIN: u16 = 1;

/// The answer to `mon join`: the monitors, of which the one that asked is a member of the log from now on. With the key of `mon.` it is all
/// that a monitor begins with; the leader sends the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    /// The monitors' map, with the new one.
    pub map: MonMap,
    /// Which member of the log each is.
    pub members: MonMembers,
    /// Version of the leader's program, see [`MONITOR_VERSION`].
    pub version: u16,
    /// The oldest with which that gets on.
    pub version_min: u16,
}

impl Seed {
    /// That of the cluster as it is now.
    #[must_use]
    pub(crate) fn of(maps: &MonMaps) -> Self {
        let (map, members) = (maps.map().clone(), maps.members().clone());
        Self { map, members, version: MONITOR_VERSION, version_min: MONITOR_VERSION_MIN }
    }

    /// The first tables of the new monitor.
    #[must_use]
    pub fn tables(&self, mon_key: CryptoKey) -> Batch {
        let mut batch = Batch::default();
        MonMaps::put(&self.map, &self.members, &mut batch);
        let of_mon = EntityAuth { key: mon_key, caps: std::collections::BTreeMap::default() };
        auth::create(&[(AuthName::new(EntityKind::MON, ""), of_mon)], &mut batch);
        batch
    }
}

/// In an envelope (version 1, compat 1): the monmap as a blob, the members, the two versions.
impl Encode for Seed {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.blob_of(&self.map.to_bytes());
            w.put(&self.members);
            w.u16(self.version);
            w.u16(self.version_min);
        });
    }
}

impl Decode for Seed {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Seed", 1, |_, r| {
            let map = MonMap::from_bytes(r.blob()?)?;
            Ok(Self { map, members: r.get()?, version: r.u16()?, version_min: r.u16()? })
        })
    }
}

/// What makes the tables of one monitor those of a cluster that begins anew with it alone, as `name` at `addrs`; with it, which member of the
/// new log it is. Monitors of before are of another incarnation then, and members of nothing. `None` where there is no cluster.
///
/// # Errors
/// [`DecodeError`] of stored values.
pub fn recover(
    tables: &dyn Snapshot,
    name: &str,
    addrs: AddrVec,
    wall: UTime,
) -> Result<Option<(Batch, u64)>, DecodeError> {
    let Some(mut maps) = MonMaps::open(tables)? else { return Ok(None) };
    let id = maps.begin_anew(name, addrs, wall);
    let mut batch = Batch::default();
    maps.flush(&mut batch);
    Ok(Some((batch, id)))
}

/// What gives monitors other addresses in tables that nobody uses at the moment; those that are not named keep theirs. It is the same for
/// each monitor's tables, whenever it is made. `None` where there is no cluster.
///
/// # Errors
/// [`DecodeError`] of stored values.
pub fn set_addrs(tables: &dyn Snapshot, addrs: &[(String, AddrVec)]) -> Result<Option<Batch>, DecodeError> {
    let Some(mut maps) = MonMaps::open(tables)? else { return Ok(None) };
    let wall = maps.map().last_changed;
    for (name, addrs) in addrs {
        maps.set_addrs(name, addrs.clone(), wall);
    }
    let mut batch = Batch::default();
    maps.flush(&mut batch);
    Ok(Some(batch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::MemorySnapshot;
    use nacre_types::entropy::SeededEntropy;
    use nacre_types::{EntityAddr, Uuid};

    fn addr(port: u16) -> AddrVec {
        AddrVec::of(EntityAddr::parse(&format!("v2:10.0.0.1:{port}/0")).expect("an address"))
    }

    fn cluster() -> MemorySnapshot {
        let mons = ["a", "b", "c"].into_iter().zip(1..).map(|(name, port)| (name.to_owned(), addr(port)));
        let map = MonMap::fresh(Uuid::from_random([7; 16]), UTime::default(), &mons.collect::<Vec<_>>());
        let (mut tables, mut batch) = (MemorySnapshot::default(), Batch::default());
        MonMaps::create(&map, &mut batch);
        tables.apply(&batch);
        tables
    }

    fn open(tables: &MemorySnapshot) -> MonMaps {
        MonMaps::open(tables).expect("its own encoding").expect("a cluster")
    }

    #[test]
    fn a_seed_is_what_a_monitor_begins_with() {
        let seed = Seed::of(&open(&cluster()));
        let bytes = seed.to_bytes();
        assert_eq!(Seed::from_bytes(bytes.clone()).as_ref(), Ok(&seed));
        for length in 0..bytes.len() {
            assert!(Seed::from_bytes(bytes.slice(..length)).is_err(), "{length} of {} bytes", bytes.len());
        }
        let key = CryptoKey::generate(&mut SeededEntropy(1), UTime::default());
        let mut tables = MemorySnapshot::default();
        tables.apply(&seed.tables(key.clone()));
        assert_eq!(open(&tables).map(), &seed.map);
        let front = crate::Front::open(&tables, "b").expect("its own encoding");
        assert_eq!(front.key_of(&AuthName::new(EntityKind::MON, "")), Some(&key));
    }

    #[test]
    fn a_cluster_begins_anew_with_one_monitor_alone() {
        let mut tables = cluster();
        let made = recover(&tables, "b", addr(9), UTime { sec: 5, nsec: 0 }).expect("its own encoding");
        let (batch, id) = made.expect("a cluster");
        tables.apply(&batch);
        let maps = open(&tables);
        assert_eq!((id, maps.members().id_of("b"), maps.members().incarnation()), (4, Some(4), 1));
        assert_eq!((maps.map().epoch, &maps.map().ranks[..]), (2, &["b".to_owned()][..]));
        assert_eq!((maps.map().mons["b"].addrs.clone(), maps.map().mons.len()), (addr(9), 1));
        assert_eq!(recover(&MemorySnapshot::default(), "b", addr(9), UTime::default()), Ok(None));
    }

    #[test]
    fn addresses_change_in_tables_that_nobody_uses() {
        let mut tables = cluster();
        let all = [("a".to_owned(), addr(7)), ("c".to_owned(), addr(8))];
        let batch = set_addrs(&tables, &all).expect("its own encoding").expect("a cluster");
        tables.apply(&batch);
        let maps = open(&tables);
        let ports = ["a", "b", "c"].map(|name| maps.map().mons[name].addrs.clone());
        assert_eq!((ports, maps.members().id_of("c")), ([addr(7), addr(2), addr(8)], Some(3)));
    }
}
