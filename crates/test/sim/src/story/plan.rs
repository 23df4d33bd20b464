//! [`Plan`]: what a story is about: its pool, its devices, what goes on, and for how long.

use super::upgrade;
use crate::world::Config;
use nacre_pg::Tuning;
use nacre_types::OsdId;
use std::time::Duration;

/// What the pool is like that everything happens in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Copies, two of which serve at least.
    Replicated,
    /// Copies, any one of which serves alone at times.
    OneServes,
    /// Erasure-coded, with a code that the seed chooses.
    Coded,
    /// Likewise, with objects that are changed in part (`allow_ec_overwrites`).
    Overwritten,
}

impl Kind {
    pub(super) fn is_coded(self) -> bool {
        matches!(self, Self::Coded | Self::Overwritten)
    }
}

/// What is wrong with one of the devices. It is replaced at times, and always when its store does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// It rots, and fails at times.
    Fails,
    /// It says of writes that they are durable, and has lost them or written them elsewhere.
    Lies,
    /// No flush empties its cache: when it loses power, what it acknowledged in the last moments is gone.
    Forgets,
    /// Somebody puts back what it or its metadata held some time ago, or both.
    GoesBack,
    /// It is gone for good, with all that it held, and so is the one that comes in its place: its OSD is marked lost. Everything
    /// acknowledged is elsewhere, too, unless one copy serves: then what only this one had is given up, and nothing else.
    Dies,
}

/// How a pool is coded: data and parity shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) k: u64,
    pub(super) m: u64,
}

/// Size of devices that run full. Behind the log of 256 KiB there are 188 blocks; the 47 of them that are kept for what is under way
/// take one write of the largest (100 kB, 27 blocks) of each of a client's. With 640 KiB they are 23: one such write fills the device.
pub(super) const SMALL_DEVICE_BYTES: u64 = 1 << 20;

/// Codes that stories of erasure-coded pools use.
pub(super) const CODES: [Code; 4] =
    [Code { k: 2, m: 1 }, Code { k: 2, m: 2 }, Code { k: 3, m: 1 }, Code { k: 3, m: 2 }];

/// How long a story is, and how dense.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// What the pool is like.
    pub kind: Kind,
    /// One of the devices is bad.
    pub flaw: Option<Flaw>,
    /// Threads of each OSD, each with a part of its PGs.
    pub shards: usize,
    /// Devices are so small that they run full, and one of the clients deletes then.
    pub small_devices: bool,
    /// More than reads and writes of one pool: clients are shut out, pools come and go, classes are called, objects copied, watched
    /// and notified. With good devices.
    pub bustle: bool,
    /// The pool is compressed.
    pub compressed: bool,
    /// Metadata are on most devices and not in memory.
    pub cold: bool,
    /// OSDs are upgraded one after the other, each program with versions of the messages between OSDs of its own; now and then one
    /// is too new for the others.
    pub upgrades: bool,
    /// How long things go wrong.
    pub troubles: Duration,
    /// Most messages of one client.
    pub messages_max: u64,
    /// How many objects they are about; by chance if not given.
    pub objects: Option<u64>,
    /// How PGs behave.
    pub tuning: Tuning,
}

impl Default for Plan {
    fn default() -> Self {
        let tuning = Tuning { checked: true, ..Tuning::default() };
        Self {
            kind: Kind::Replicated,
            flaw: None,
            shards: 1,
            small_devices: false,
            bustle: false,
            compressed: false,
            cold: false,
            upgrades: false,
            troubles: Duration::from_secs(60),
            messages_max: 150,
            objects: None,
            tuning,
        }
    }
}

impl Plan {
    pub(super) fn config(&self, osds: OsdId) -> Config {
        let versions = if self.upgrades { upgrade::versions(0) } else { self.tuning.versions };
        let tuning = Tuning { versions, ..self.tuning };
        let (shards, cold) = (self.shards, self.cold);
        let usual = Config { osds, clients: 4, shards, cold, tuning, ..Config::default() };
        let device_bytes = if self.small_devices { SMALL_DEVICE_BYTES } else { usual.device_bytes };
        Config { device_bytes, ..usual }
    }
}
