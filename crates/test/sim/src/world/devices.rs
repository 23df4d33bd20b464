//! What a world does to the devices of its OSDs and to what they hold: faults, damage, copies, new devices.

use super::World;
use super::node::{Drive, new_osd, store_options};
use crate::kv::SimKv;
use nacre_auth::CryptoKey;
use nacre_blockstore::{BlockStore, SplitDisk};
use nacre_simdisk::{Failing, Faults, Image, SimDevice};
use nacre_store::{Completion, ObjectStore};
use nacre_txn::{StoreToken, Transaction};
use nacre_types::{OsdId, Uuid};
use std::fmt::Debug;

/// What an OSD's store held at some time: its device and its metadata, of each shard.
pub struct OsdCopy(Vec<(Image, SimKv)>);

/// Which part of a store goes back to what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restored {
    /// All of it.
    Both,
    /// The device, not its metadata.
    Device,
    /// The metadata, not the device.
    Metadata,
}

impl World {
    /// Changes what the store of an OSD holds that does not run, behind its back.
    ///
    /// # Panics
    /// When it runs, or the store does not take the change.
    pub fn edit_store(&mut self, id: OsdId, txn: Transaction) {
        let node = self.osds.get_mut(&id).expect("an OSD");
        assert!(!node.runs(), "it has its store open");
        let [node] = &mut node.drives[..] else { panic!("where several shards have parts, which is it?") };
        let (disk, kv) = node.hardware();
        let opened = BlockStore::open(disk, kv, store_options());
        let (mut store, _) = opened.expect("a sound store");
        store.submit(txn, StoreToken::without_pg(1)).expect("a change that it takes");
        let mut done = Vec::new();
        while !done.contains(&Completion::Durable(StoreToken::without_pg(1))) {
            store.drain(&mut done);
            node.device.step();
            node.kv.step();
        }
        drop(store);
        node.kv.stop(false, 0);
    }

    /// The devices of an OSD, one of each shard.
    fn devices(&self, id: OsdId) -> impl Iterator<Item = &SimDevice> {
        let drives = self.osds.get(&id).map_or(&[][..], |node| &node.drives);
        drives.iter().map(|drive| &drive.device)
    }

    /// Every request to an OSD's device fails from now on.
    pub fn break_device(&mut self, id: OsdId) {
        self.devices(id).for_each(|device| device.fail_after(0, Failing::FromThenOn));
    }

    /// Spoils those blocks of an OSD's device of which `is_wanted`, by their content. Gives their number.
    pub fn spoil(&mut self, id: OsdId, is_wanted: impl Fn(&[u8]) -> bool) -> usize {
        const BLOCK: usize = nacre_env::disk::BLOCK_BYTES;
        let spoil = |device: &SimDevice| {
            let places = (0..self.device_bytes).step_by(BLOCK);
            let wanted = places.filter(|place| is_wanted(&device.peek(*place, BLOCK)));
            wanted.filter(|place| device.rot(*place, BLOCK as u64)).count()
        };
        self.devices(id).map(spoil).sum()
    }

    /// What goes wrong by itself on an OSD's device from now on.
    pub fn set_faults(&mut self, id: OsdId, faults: Faults) {
        self.devices(id).for_each(|device| device.set_faults(faults));
    }

    /// The request after the next `requests` to an OSD's device fails.
    pub fn fail_once(&mut self, id: OsdId, requests: u64) {
        self.devices(id).for_each(|device| device.fail_after(requests, Failing::Once));
    }

    /// Nothing goes wrong on an OSD's device any more; what is damaged remains so.
    pub fn mend_device(&mut self, id: OsdId) {
        for device in self.devices(id) {
            device.set_faults(Faults::default());
            device.heal();
        }
    }

    /// Looks at metadata that messages have waited for, on devices that are there now.
    pub(crate) fn looks(&self) -> u64 {
        self.osds.values().flat_map(|node| &node.drives).map(|drive| drive.kv.looks()).sum()
    }

    /// Flips a bit of what an OSD's device holds. False when it holds nothing.
    pub fn rot(&mut self, id: OsdId) -> bool {
        self.devices(id).any(|device| device.rot(0, self.device_bytes))
    }

    /// As [`World::rot`], but not of the store's log: whoever loses the newest record of that cannot tell it from one that was never
    /// finished.
    pub fn rot_beside_log(&mut self, id: OsdId) -> bool {
        let log_end = SplitDisk::HEAD_BYTES + store_options().wal_bytes(self.device_bytes);
        self.devices(id).any(|device| device.rot(log_end, self.device_bytes - log_end))
    }

    /// Puts a new store in the place of that of an OSD which does not run. Yields its id and the key it will use, both of which
    /// the monitor must hear of.
    ///
    /// # Panics
    /// When there is no such OSD, or it runs.
    pub fn replace_device(&mut self, id: OsdId) -> (Uuid, CryptoKey) {
        let node = new_osd(&mut self.rng, &self.clock, (self.device_bytes, self.shards, self.cold));
        let new = (node.uuid, node.key.clone());
        let old = self.osds.insert(id, node).expect("one of the world's OSDs");
        assert!(!old.runs(), "osd.{id} runs");
        self.note(0x53, 0);
        new
    }

    /// A copy of what the store of an OSD holds that does not run.
    ///
    /// # Panics
    /// When there is no such OSD, or it runs.
    #[must_use]
    pub fn back_up_osd(&self, id: OsdId) -> OsdCopy {
        let node = self.osds.get(&id).filter(|node| !node.runs()).expect("an OSD that does not run");
        OsdCopy(node.drives.iter().map(|drive| (drive.device.image(), drive.kv.copy())).collect())
    }

    /// Puts a copy of before, or a part of it, in the place of what the store of an OSD holds that does not run.
    ///
    /// # Panics
    /// When there is no such OSD, or it runs.
    pub fn restore_osd(&mut self, id: OsdId, copy: &OsdCopy, what: Restored) {
        let node = self.osds.get_mut(&id).filter(|node| !node.runs());
        let node = node.expect("an OSD that does not run");
        for (drive, (device, kv)) in node.drives.iter_mut().zip(&copy.0) {
            if what != Restored::Metadata {
                drive.device.restore(device);
            }
            if what != Restored::Device {
                drive.kv = kv.copy();
                drive.kv.hold();
            }
        }
        self.note(0x54, 0);
    }

    /// Whether the log of a stopped OSD has a gap, so that it does not start.
    ///
    /// # Panics
    /// When its store cannot be looked at.
    #[must_use]
    pub fn has_log_gap(&self, id: OsdId) -> bool {
        self.osds.get(&id).is_some_and(|node| node.drives.iter().any(Drive::has_log_gap))
    }

    /// What `nacre store repair --give-up-groups` does to a stopped OSD whose log has a gap. Gives the number of PGs.
    ///
    /// # Panics
    /// When it cannot be done.
    pub fn give_up_groups(&mut self, id: OsdId) -> usize {
        let keep = nacre_osd::storage::OWN_COLLECTION;
        let give_up = |drive: &Drive| {
            let (disk, kv) = drive.hardware();
            nacre_blockstore::give_up_groups(disk, kv, store_options(), &keep)
                .expect("a store with a gap")
                .len()
        };
        let drives = self.osds.get(&id).map_or(&[][..], |node| &node.drives);
        drives.iter().filter(|drive| drive.has_log_gap()).map(give_up).sum()
    }
}

impl Debug for OsdCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OsdCopy")
    }
}
