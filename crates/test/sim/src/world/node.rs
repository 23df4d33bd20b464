//! [`OsdNode`]: an OSD as the world has it: its devices and metadata, and its threads while it runs.

use crate::clock::SimClock;
use crate::kv::SimKv;
use nacre_auth::CryptoKey;
use nacre_blockstore::{BlockStore, Options};
use nacre_env::{Clock, Disk};
use nacre_kv::KvStore;
use nacre_osd::Shard;
use nacre_simdisk::{SimConfig, SimDevice};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Stamp, Uuid};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One OSD: what it runs on, and its threads while it runs.
pub(super) struct OsdNode {
    pub(super) uuid: Uuid,
    pub(super) key: CryptoKey,
    pub(super) drives: Vec<Drive>,
    /// As many as drives, while it runs.
    pub(super) shards: Vec<Shard>,
    /// One of its threads has something for another.
    pub(super) calls: Arc<AtomicBool>,
    /// One of several threads that gets no turn, and until when.
    pub(super) held: Option<(usize, Stamp)>,
    pub(super) disk_slow: u32,
}

/// What a shard has its part of the store on.
pub(super) struct Drive {
    pub(super) device: SimDevice,
    pub(super) kv: SimKv,
    pub(super) disk_at: Option<Stamp>,
}

impl Drive {
    pub(super) fn new(seed: u64, id: Uuid, (device_bytes, cold): (u64, bool)) -> Self {
        let device = SimDevice::new(SimConfig::new(device_bytes, seed));
        let mut kv = SimKv::default();
        BlockStore::mkfs(&mut device.open(), &mut kv, id.0, &store_options()).expect("a store can be made");
        kv.hold();
        // Of a third of the devices metadata come out of memory all the same.
        if cold && !seed.is_multiple_of(3) {
            kv.set_cold();
        }
        Self { device, kv, disk_at: None }
    }

    pub(super) fn hardware(&self) -> (Box<dyn Disk>, Box<dyn KvStore + Send>) {
        (Box::new(self.device.open()), Box::new(self.kv.clone()))
    }

    pub(super) fn has_log_gap(&self) -> bool {
        let (disk, kv) = self.hardware();
        nacre_blockstore::log_gap(disk, kv, store_options()).expect("a store").is_some()
    }
}

impl OsdNode {
    pub(super) fn runs(&self) -> bool {
        !self.shards.is_empty()
    }
}

/// An OSD with devices of so many bytes, so many of them, whose metadata are on them and not in memory, or in memory.
pub(super) fn new_osd(
    rng: &mut SeededEntropy,
    clock: &SimClock,
    (device_bytes, shards, cold): (u64, usize, bool),
) -> OsdNode {
    let seeds: Vec<u64> = (0..shards.max(1)).map(|_| rng.u64()).collect();
    let uuid = uuid(rng);
    let drives = seeds.into_iter().map(|seed| Drive::new(seed, uuid, (device_bytes, cold))).collect();
    let key = CryptoKey::generate(rng, clock.wall());
    OsdNode { uuid, key, drives, shards: Vec::new(), calls: Arc::default(), held: None, disk_slow: 1 }
}

/// Limits so small that every branch is taken often.
pub(super) fn store_options() -> Options {
    Options::tiny()
}

pub(super) fn uuid(rng: &mut SeededEntropy) -> Uuid {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    Uuid::from_random(bytes)
}
