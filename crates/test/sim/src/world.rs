//! [`World`]: machines, processes and wires, and how processes start and end.
//!
//! | file | holds |
//! |---|---|
//! | `node` | an OSD: devices, metadata, threads |
//! | `devices` | faults and damage of devices, copies of what they hold, new ones |
//! | `mons` | monitors that come and go |
//! | `run` | the one loop that lets all of it go on |

mod devices;
mod mons;
mod node;
mod run;

pub use self::devices::{OsdCopy, Restored};

use self::node::{OsdNode, new_osd, store_options, uuid};
use self::run::{Due, NextTurn};

use crate::clock::SimClock;
use crate::kv::SimKv;
use crate::net::{Fabric, Host, Wires};
use nacre_auth::{AuthMethod, CryptoKey, Offer};
use nacre_blockstore::{BlockStore, OpenError};
use nacre_client::{Access, Client, Finished};
use nacre_env::Clock;
use nacre_kv::{KvStore, Pair};
use nacre_monitor::{Driver, MkfsOptions, MkfsOsd, MonitorConfig};
use nacre_msg::peer::PeerVersions;
use nacre_osd::{OsdConfig, Shard, StoreConfig};
use nacre_pg::Tuning;
use nacre_service::{Incoming, Messenger};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{
    AddrVec, AuthName, Compression, CompressionAlgorithm, EntityAddr, EntityKind, Entropy, OsdId, Stamp, Uuid,
};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Few, so that a monitor that was away for a while gets all tables.
const LOG_ENTRIES_KEPT: usize = 50;
/// Port of each monitor.
const MON_PORT: u16 = 3300;
/// Size of an OSD's device, usually.
const DEVICE_BYTES: u64 = 64 << 20;

/// By how many millionths a process's clock is fast or slow, at most: ten times what is usual.
const DRIFT_PPM_MAX: u64 = 1000;

/// What a world begins with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Monitors: `a`, `b`, and so on.
    pub mons: usize,
    /// OSDs, each a failure domain of its own.
    pub osds: OsdId,
    /// Number of clients at the beginning.
    pub clients: usize,
    /// Size of each OSD's device, and of each of them if it has several.
    pub device_bytes: u64,
    /// Threads of each OSD, each with a part of its PGs, a device and metadata of its own.
    pub shards: usize,
    /// Metadata of most devices are on them and not in memory: messages wait for them.
    pub cold: bool,
    /// How PGs behave.
    pub tuning: Tuning,
    /// By how much calendars of processes are ahead, for those that are; all others' are by less than 50 ms.
    pub skews: BTreeMap<Proc, Duration>,
    /// A mistake that is built into the monitors on purpose.
    pub planted: nacre_monitor::Planted,
}

impl Default for Config {
    fn default() -> Self {
        let tuning = Tuning { checked: true, ..Tuning::default() };
        Self {
            mons: 1,
            osds: 3,
            clients: 1,
            device_bytes: DEVICE_BYTES,
            shards: 1,
            cold: false,
            tuning,
            skews: BTreeMap::new(),
            planted: nacre_monitor::Planted::Nothing,
        }
    }
}

/// A process of the cluster or of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proc {
    /// A monitor, by its rank.
    Mon(usize),
    /// The process of an OSD.
    Osd(OsdId),
    /// The process of a client.
    Client(usize),
}

impl Proc {
    /// Where it runs.
    #[must_use]
    pub fn host(self) -> Host {
        let number = |base: u8, n: usize| Host(base + u8::try_from(n).unwrap_or(0));
        match self {
            Self::Mon(n) => number(1, n),
            Self::Osd(id) => number(10, usize::try_from(id).unwrap_or(0)),
            Self::Client(n) => number(100, n),
        }
    }
}

struct MonNode {
    kv: SimKv,
    driver: Option<Driver>,
    incoming: Vec<Incoming>,
}

/// A cluster and all that it runs on.
pub struct World {
    rng: SeededEntropy,
    clock: SimClock,
    /// Each process's own.
    clocks: BTreeMap<Proc, SimClock>,
    fabric: Fabric,
    fsid: Uuid,
    tuning: Tuning,
    skews: BTreeMap<Proc, Duration>,
    planted: nacre_monitor::Planted,
    /// What OSDs speak that speak other versions than `tuning` says, from their next start on.
    versions: BTreeMap<OsdId, PeerVersions>,
    device_bytes: u64,
    shards: usize,
    cold: bool,
    admin_key: CryptoKey,
    mon_key: CryptoKey,
    mons: Vec<MonNode>,
    osds: BTreeMap<OsdId, OsdNode>,
    clients: Vec<Client>,
    next_turns: BTreeMap<Proc, NextTurn>,
    agenda: BTreeMap<(Stamp, u64), Due>,
    last_due: u64,
    trace: u64,
    steps: u64,
    /// Turns of each process so far.
    turns: BTreeMap<Proc, u64>,
    /// OSDs that ended by themselves.
    gave_up: Vec<OsdId>,
}

impl World {
    /// A new cluster: stores made, nothing running.
    ///
    /// # Panics
    /// When the cluster cannot be made, which is our mistake.
    #[must_use]
    pub fn new(seed: u64, config: &Config) -> Self {
        let mut rng = SeededEntropy(seed);
        let clock = SimClock::new();
        let fabric = Fabric::new(rng.u64(), Wires::default());
        let fsid = uuid(&mut rng);
        let mons = (0..config.mons).map(|n| (mon_name(n), AddrVec::of(mon_addr(n)))).collect();
        let mut mkfs = MkfsOptions::new(fsid, mons, clock.wall(), &mut rng);
        mkfs.osds_are_failure_domains = true;
        // Pools keep the numbers of PGs that a story gives them.
        let (option, off) = ("osd_pool_default_pg_autoscale_mode", "off");
        mkfs.config.push(("global".to_owned(), option.to_owned(), off.to_owned()));
        let mut osds = BTreeMap::new();
        for id in 0..config.osds {
            let node = new_osd(&mut rng, &clock, (config.device_bytes, config.shards, config.cold));
            mkfs.osds.push(MkfsOsd {
                id,
                store: Some(node.uuid),
                key: node.key.clone(),
                host: format!("host{id}"),
                weight: 0x10000,
                class: Some("ssd".to_owned()),
            });
            osds.insert(id, node);
        }
        let mon_node = || {
            let mut kv = SimKv::default();
            nacre_monitor::mkfs(&mut kv, &mkfs, clock.wall()).expect("a valid cluster");
            MonNode { kv, driver: None, incoming: Vec::new() }
        };
        let mons = (0..config.mons).map(|_| mon_node()).collect();
        let mut world = Self {
            rng,
            clock,
            clocks: BTreeMap::new(),
            fabric,
            fsid,
            tuning: config.tuning,
            skews: config.skews.clone(),
            planted: config.planted,
            versions: BTreeMap::new(),
            device_bytes: config.device_bytes,
            shards: config.shards,
            cold: config.cold,
            admin_key: mkfs.admin_key,
            mon_key: mkfs.mon_key,
            mons,
            osds,
            clients: Vec::new(),
            next_turns: BTreeMap::new(),
            agenda: BTreeMap::new(),
            last_due: 0,
            trace: 0,
            steps: 0,
            turns: BTreeMap::new(),
            gave_up: Vec::new(),
        };
        (0..config.mons).for_each(|n| world.start_mon(n));
        (0..config.osds).for_each(|id| world.start_osd(id));
        for _ in 0..config.clients {
            world.add_client();
        }
        world
    }

    /// The world's randomness.
    pub fn rng(&mut self) -> &mut SeededEntropy {
        &mut self.rng
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.rng.u64() % bound.max(1)
    }

    /// The time of the world, which no drift of clocks touches.
    #[must_use]
    pub fn now(&self) -> Stamp {
        self.clock.now()
    }

    /// The wires between the hosts.
    #[must_use]
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// A number that follows from everything that has happened, and how much that is.
    #[must_use]
    pub fn trace(&self) -> (u64, u64) {
        (self.trace, self.steps)
    }

    /// A client, to look at.
    ///
    /// # Panics
    /// When there is none of that number.
    #[must_use]
    pub fn client(&self, n: usize) -> &Client {
        &self.clients[n]
    }

    /// What a client has finished since the last look.
    pub fn take_finished(&mut self, n: usize) -> Vec<Finished> {
        self.clients[n].take_finished()
    }

    /// A client is to do something, which it does with its next turn.
    ///
    /// # Panics
    /// When it has far too much to do.
    pub fn order<T, E: Debug>(&mut self, n: usize, order: impl FnOnce(&mut Client) -> Result<T, E>) -> T {
        self.wake(Proc::Client(n));
        order(&mut self.clients[n]).expect("workloads bound themselves")
    }

    /// Number of clients so far.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// The cluster's state as the monitor has it that leads, if one does; of several that believe so, the one of the newest term.
    #[must_use]
    pub fn mon(&self) -> Option<&nacre_mon::Mon> {
        let leaders = self.mons.iter().filter_map(|node| node.driver.as_ref());
        leaders.filter(|driver| driver.mon().is_some()).max_by_key(|driver| driver.term())?.mon()
    }

    /// A monitor, if it runs.
    #[must_use]
    pub fn monitor(&self, n: usize) -> Option<&Driver> {
        self.mons.get(n)?.driver.as_ref()
    }

    /// The same, to be asked something.
    pub fn monitor_mut(&mut self, n: usize) -> Option<&mut Driver> {
        self.mons.get_mut(n)?.driver.as_mut()
    }

    /// Monitors, whether or not they run.
    #[must_use]
    pub fn mon_count(&self) -> usize {
        self.mons.len()
    }

    /// What the tables of a monitor's store hold: all of it but the log.
    ///
    /// # Panics
    /// When there is none of that number.
    #[must_use]
    pub fn tables_of(&self, n: usize) -> Vec<Pair> {
        let mut pairs = self.mons[n].kv.scan_prefix(b"").expect("memory can be read");
        pairs.retain(|(key, _)| !key.starts_with(b"raft\0"));
        pairs
    }

    /// Numbers of all OSDs.
    #[must_use]
    pub fn osd_ids(&self) -> Vec<OsdId> {
        self.osds.keys().copied().collect()
    }

    /// True when the process runs.
    #[must_use]
    pub fn runs(&self, proc: Proc) -> bool {
        match proc {
            Proc::Mon(n) => self.monitor(n).is_some(),
            Proc::Osd(id) => self.osds.get(&id).is_some_and(OsdNode::runs),
            Proc::Client(n) => n < self.clients.len(),
        }
    }

    fn mon_addrs(&self) -> Vec<EntityAddr> {
        (0..self.mons.len()).map(mon_addr).collect()
    }

    fn entropy(&mut self) -> Box<SeededEntropy> {
        Box::new(SeededEntropy(self.rng.u64()))
    }

    fn own_clock(&mut self, proc: Proc) -> Box<SimClock> {
        let skew = Duration::from_millis(self.below(50)) + self.skews.get(&proc).copied().unwrap_or_default();
        let drift = self.below(2 * DRIFT_PPM_MAX + 1).cast_signed() - DRIFT_PPM_MAX.cast_signed();
        let clock = self.clock.skewed(skew, drift);
        self.clocks.insert(proc, clock.clone());
        Box::new(clock)
    }

    /// Sets the calendar of a process, which is ahead by so much from now on.
    pub fn set_skew(&mut self, proc: Proc, skew: Duration) {
        self.skews.insert(proc, skew);
        if let Some(clock) = self.clocks.get(&proc) {
            clock.set_skew(skew);
        }
    }

    /// Starts a monitor. One that finds out that it was removed from the cluster loses its store instead, as an operator would have it.
    ///
    /// # Panics
    /// When it cannot start.
    pub fn start_mon(&mut self, n: usize) {
        let config = MonitorConfig {
            store: PathBuf::new(),
            name: mon_name(n),
            methods: vec![AuthMethod::Cephx],
            host: format!("machine{n}"),
            machine_facts: BTreeMap::new(),
            admin_socket: None,
            planted: self.planted,
            log_entries_kept: LOG_ENTRIES_KEPT,
        };
        let machine = nacre_monitor::Machine {
            clock: self.own_clock(Proc::Mon(n)),
            entropy: self.entropy(),
            net: Box::new(self.fabric.start(Proc::Mon(n).host())),
            store: Box::new(self.mons[n].kv.clone()),
        };
        match nacre_monitor::assemble(&config, machine) {
            Ok((driver, _)) => self.mons[n].driver = Some(driver),
            Err(error) if error.is_removed() => return self.wipe_mon(n),
            Err(error) => panic!("the monitor starts: {error}"),
        }
        self.wake(Proc::Mon(n));
    }

    /// Starts an OSD on what its device and metadata hold.
    ///
    /// # Panics
    /// When it cannot start.
    pub fn start_osd(&mut self, id: OsdId) {
        let started = self.try_start_osd(id);
        started.unwrap_or_else(|error| panic!("the store of osd.{id} does not open: {error}"));
    }

    /// As [`World::start_osd`], of an OSD whose device may be damaged.
    ///
    /// # Errors
    /// Why its store does not open.
    ///
    /// # Panics
    /// When it cannot start for another reason.
    pub fn try_start_osd(&mut self, id: OsdId) -> Result<(), OpenError> {
        let versions = self.versions.get(&id).copied().unwrap_or(self.tuning.versions);
        let Some(node) = self.osds.get(&id) else { return Ok(()) };
        let calls = Arc::clone(&node.calls);
        let mut stores = Vec::new();
        for drive in &node.drives {
            let (disk, kv) = drive.hardware();
            stores.push(BlockStore::open(disk, kv, store_options())?.0);
        }
        let (host, monitors) = (Proc::Osd(id).host(), self.mon_addrs());
        // The threads are of one machine, and tell the time by one clock.
        let clock = self.own_clock(Proc::Osd(id));
        let mut machines = Vec::new();
        for store in stores {
            let entropy = self.entropy();
            let net =
                if machines.is_empty() { self.fabric.start(host) } else { self.fabric.start_thread(host) };
            machines.push(nacre_osd::Machine {
                clock: clock.clone(),
                entropy,
                net: Box::new(net),
                waker: Fabric::waker(&calls),
                store: Box::new(store),
                tuning: Tuning { versions, ..self.tuning },
            });
        }
        let Some(node) = self.osds.get_mut(&id) else { return Ok(()) };
        let config = OsdConfig {
            id,
            uuid: node.uuid,
            fsid: self.fsid,
            key: node.key.clone(),
            monitors,
            methods: vec![AuthMethod::Cephx],
            bind: nacre_osd::Bind::any_port(host.ip()),
            ceph: None,
            shards: Some(machines.len()),
            store: StoreConfig::Memory { capacity_bytes: 0 },
            host: format!("host{id}"),
            machine_facts: BTreeMap::from([(
                Compression::METADATA_KEY.to_owned(),
                CompressionAlgorithm::ALL.map(CompressionAlgorithm::name).join(" "),
            )]),
            admin_socket: None,
            process_memory_bytes: 0,
            give_back_memory: || (),
        };
        let osd = nacre_osd::assemble(&config, machines.len(), machines).expect("simulated sockets listen");
        node.shards = osd.shards;
        node.shards.iter_mut().for_each(Shard::begin);
        self.wake(Proc::Osd(id));
        Ok(())
    }

    /// An OSD is of another program from its next start on, which speaks these versions of the messages between OSDs.
    pub fn set_versions(&mut self, id: OsdId, versions: PeerVersions) {
        self.versions.insert(id, versions);
    }

    /// One more client. Gives its number.
    pub fn add_client(&mut self) -> usize {
        let key = self.admin_key.clone();
        self.add_client_as(AuthName::new(EntityKind::CLIENT, "admin"), key)
    }

    /// One more client, which is `name` and has its key. Gives its number.
    pub fn add_client_as(&mut self, name: AuthName, key: CryptoKey) -> usize {
        let number = self.clients.len();
        let proc = Proc::Client(number);
        let net = Box::new(self.fabric.start(proc.host()));
        let (clock, entropy) = (self.own_clock(proc), self.entropy());
        let messenger = Messenger::new(net, clock.wall().sec.into());
        let modes = (Offer::secure_first(), Offer::crc_first());
        let access = Access { monitors: self.mon_addrs(), name, key, modes };
        let mut client = Client::new(access, clock, entropy, messenger);
        client.begin();
        self.clients.push(client);
        self.wake(proc);
        number
    }

    /// Ends an OSD's process. With `power` the machine goes with it: nobody hears of it, and what its device and
    /// its metadata had not made durable is kept, torn or lost.
    pub fn stop_osd(&mut self, id: OsdId, power: bool) {
        let survivors = usize::try_from(self.below(3)).unwrap_or(0);
        self.fabric.stop(Proc::Osd(id).host(), power);
        let Some(node) = self.osds.get_mut(&id) else { return };
        for drive in &mut node.drives {
            if power {
                drive.device.crash();
            }
            drive.kv.stop(power, survivors);
            drive.disk_at = None;
        }
        node.shards.clear();
        node.held = None;
        self.note(0x51, u64::from(power));
        self.forget(Proc::Osd(id));
    }

    /// Ends a monitor's process, or its machine.
    ///
    /// # Panics
    /// When there is none of that number.
    pub fn stop_mon(&mut self, n: usize, power: bool) {
        let survivors = usize::try_from(self.below(3)).unwrap_or(0);
        self.fabric.stop(Proc::Mon(n).host(), power);
        let node = &mut self.mons[n];
        node.kv.stop(power, survivors);
        node.driver = None;
        node.incoming.clear();
        self.note(0x52, u64::from(power));
        self.forget(Proc::Mon(n));
    }

    /// The first thread of an OSD, while that runs.
    #[must_use]
    pub fn shard(&self, id: OsdId) -> Option<&Shard> {
        self.osds.get(&id)?.shards.first()
    }

    /// OSDs that ended by themselves since the last look, as those do that are marked down too often.
    pub fn take_gave_up(&mut self) -> Vec<OsdId> {
        std::mem::take(&mut self.gave_up)
    }

    /// A copy of what the first monitor's store holds.
    #[must_use]
    pub fn back_up_mon(&self) -> SimKv {
        self.mons[0].kv.copy()
    }

    /// Puts a copy in the place of the store of the first monitor, which does not run.
    ///
    /// # Panics
    /// When it runs.
    pub fn restore_mon(&mut self, copy: SimKv) {
        assert!(self.mons[0].driver.is_none(), "it has its store open");
        self.mons[0].kv = copy;
    }

    /// All processes, whether or not they run.
    #[must_use]
    pub fn procs(&self) -> Vec<Proc> {
        let clients = (0..self.clients.len()).map(Proc::Client);
        (0..self.mons.len())
            .map(Proc::Mon)
            .chain(self.osds.keys().map(|id| Proc::Osd(*id)))
            .chain(clients)
            .collect()
    }
}

/// `a`, `b`, and so on.
fn mon_name(n: usize) -> String {
    char::from(b'a' + u8::try_from(n).unwrap_or(25)).to_string()
}

fn mon_addr(n: usize) -> EntityAddr {
    EntityAddr::msgr2(SocketAddr::new(Proc::Mon(n).host().ip(), MON_PORT), 0)
}

impl Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "World(at {:?}, {} steps, {:?}, turns {:?})",
            self.now(),
            self.steps,
            self.fabric,
            self.turns
        )
    }
}
