//! Recovery snapshots: a leader makes one from its tables, and a store is made from one when all monitors are lost.

use crate::driver::Driver;
use crate::driver_error::DriverError;
use crate::monitor::{Monitor, StartError, open_store};
use crate::offline::{at, make};
use crate::replica::{self, ReplicaError};
use crate::store;
use nacre_auth::RecoveryKey;
use nacre_maps::{MonMap, OsdMap};
use nacre_mon::recovery::{self, LogPlace, OpenedSnapshot};
use nacre_mon::{Event, monmap};
use nacre_types::{AddrVec, Epoch, UTime};
use std::path::{Path, PathBuf};

impl Driver {
    /// Seals what of the tables OSDs are to keep, for the leader.
    pub(crate) fn take_snapshot(&mut self) -> Result<(), DriverError> {
        let applied = self.replica.applied();
        let incarnation = self.monitors.incarnation();
        let place = LogPlace { incarnation, index: applied.index, term: applied.term };
        let (wall, entropy) = (self.clock.wall(), self.entropy.as_mut());
        let tables = self.replica.tables()?;
        let taken = store::read(tables, |tables| recovery::take_snapshot(tables, place, wall, entropy));
        let taken = taken.map_err(ReplicaError::from)?;
        if let Err(error) = &taken {
            tracing::error!(%error, "no recovery snapshot can be made: OSDs keep what they have");
        }
        self.mon_event(Event::SnapshotTaken(taken.map(|snapshot| snapshot.map(Box::new))));
        Ok(())
    }
}

/// What stopped OSDs had: an opened snapshot, its key, and the newest OSD map.
#[derive(Debug)]
pub struct Found<'a> {
    /// The newest snapshot that the key opens.
    pub snapshot: &'a OpenedSnapshot,
    /// What opened it, and opens those that the new monitor hands out.
    pub key: &'a RecoveryKey,
    /// The newest map that any of them has stored.
    pub newest_map: Option<&'a OsdMap>,
}

impl Monitor {
    /// Makes `folder` the store of the only monitor of a cluster, `name` at `addrs`, from what OSDs have kept. All monitors of before are of
    /// an earlier incarnation from then on. Yields the monitors' map, the keyring of `client.admin` as a file's text, and the epoch of the
    /// OSD map that the cluster goes on from.
    ///
    /// # Errors
    /// [`StartError`], among others when `folder` holds a store already.
    pub fn recover_from_osds(
        found: &Found<'_>,
        folder: &Path,
        (name, addrs): (&str, AddrVec),
        wall: UTime,
    ) -> Result<(MonMap, String, Epoch), StartError> {
        let Found { snapshot, key, newest_map } = *found;
        let restored = nacre_mon::restore(snapshot, key, newest_map, (name, addrs), wall)?;
        make(folder, |draft| {
            let store_error = |source| at(draft, StartError::Store { path: PathBuf::new(), source });
            let mut kv = open_store(draft)?;
            replica::begin_anew(&mut kv, &restored, snapshot.place).map_err(store_error)?;
            let read = store::read(&kv, |tables| {
                let map = monmap::read_monmap(tables).map_err(nacre_mon::OpenError::from)?;
                let front = nacre_mon::Front::open(tables, name).map_err(nacre_mon::OpenError::from)?;
                Ok::<_, StartError>((map.ok_or(nacre_mon::OpenError::NotInitialised)?, front))
            });
            let (map, front) = read.map_err(store_error)??;
            Ok((map, crate::monitor::admin_keyring(&front), restored.osdmap))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs;
    use crate::monitor::STORE_FILE;
    use crate::replica::Replica;
    use nacre_kv::{MemoryKv, RedbKv};
    use nacre_mon::MkfsOptions;
    use nacre_mon::recovery::SealedSnapshot;
    use nacre_types::entropy::SeededEntropy;
    use nacre_types::{EntityAddr, Uuid};

    fn addr(port: u16) -> AddrVec {
        AddrVec::of(EntityAddr::parse(&format!("v2:127.0.0.1:{port}/0")).expect("an address"))
    }

    fn sealed(key: &RecoveryKey) -> SealedSnapshot {
        let mons = ["a", "b", "c"].into_iter().zip(1..).map(|(name, port)| (name.to_owned(), addr(port)));
        let (fsid, mut entropy) = (Uuid::from_random([7; 16]), SeededEntropy(7));
        let mut options = MkfsOptions::new(fsid, mons.collect(), UTime::default(), &mut entropy);
        options.recovery_key = Some(key.clone());
        let mut kv = MemoryKv::new();
        mkfs(&mut kv, &options, UTime::default()).expect("valid options");
        let place = LogPlace { incarnation: 0, index: 900, term: 30 };
        let taken = store::read(&kv, |tables| {
            recovery::take_snapshot(tables, place, UTime { sec: 9, nsec: 0 }, &mut entropy)
        });
        taken.expect("memory does not fail").expect("a cluster").expect("it has a key")
    }

    #[test]
    fn a_store_from_a_snapshot_is_that_of_a_cluster_with_one_monitor() {
        let key = RecoveryKey::generate(&mut SeededEntropy(1));
        let snapshot = sealed(&key).open(&key).expect("its key");
        let found = Found { snapshot: &snapshot, key: &key, newest_map: None };
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("mon.b");
        let wall = UTime { sec: 10, nsec: 0 };
        let made = Monitor::recover_from_osds(&found, &folder, ("b", addr(9)), wall);
        let (map, keyring, epoch) = made.expect("nothing is in the way");
        assert_eq!((map.ranks, map.mons["b"].addrs.clone(), epoch), (vec!["b".to_owned()], addr(9), 1));
        assert!(keyring.contains("[client.admin]"), "{keyring}");
        let again = Monitor::recover_from_osds(&found, &folder, ("b", addr(9)), wall);
        assert!(matches!(again, Err(StartError::Exists(_))), "a store that is there stays");

        let kv = RedbKv::open(&folder.join(STORE_FILE)).expect("our own");
        let mut replica = Replica::open(Box::new(kv), "b", 10).expect("a member of its log");
        let mut events = Vec::new();
        replica.drain(&mut events).expect("the device is well");
        while replica.must_write() {
            replica.write(&mut events).expect("the device is well");
            replica.drain(&mut events).expect("the device is well");
        }
        let quorum = replica.quorum();
        assert_eq!((quorum.leader(), quorum.id().0), (Some(quorum.id()), 4), "{events:?}");
        assert!(quorum.term() > 30);
        assert!(replica.applied().index > 900);
    }
}
