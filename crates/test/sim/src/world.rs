//! [`World`]: machines, processes and wires, and the one loop that lets them go on.

use crate::clock::SimClock;
use crate::kv::SimKv;
use crate::net::{Fabric, Host, Wires};
use nacre_auth::{AuthMethod, CryptoKey, Offer};
use nacre_blockstore::{BlockStore, OpenError, Options};
use nacre_client::{Access, Client, Finished};
use nacre_env::{Clock, Disk};
use nacre_kv::KvStore;
use nacre_monitor::{Driver, MkfsOptions, MkfsOsd, MonitorConfig};
use nacre_msg::peer::PeerVersions;
use nacre_osd::{OsdConfig, Shard, StoreConfig};
use nacre_pg::Tuning;
use nacre_service::{Incoming, Messenger};
use nacre_simdisk::{Failing, Faults, Image, SimConfig, SimDevice};
use nacre_store::{Completion, ObjectStore};
use nacre_txn::{StoreToken, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{AddrVec, AuthName, EntityAddr, EntityKind, Entropy, OsdId, Stamp, Uuid};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Port of the monitor.
const MON_PORT: u16 = 3300;
/// Size of an OSD's device, usually.
const DEVICE_BYTES: u64 = 64 << 20;
/// How long a process takes from being woken to its turn, at most.
const TURN_DELAY: Duration = Duration::from_micros(20);
/// How long a device takes for a step, at most: half of the requests' time.
const DISK_DELAY: Duration = Duration::from_micros(200);

/// Turns that a process may want at once, one after the other: more is a loop that burns a processor.
const HURRIED_TURNS_MAX: u32 = 2000;

/// How often a turn reads the clock before it has looked at the sockets.
const READS_BEFORE_SOCKETS: u64 = 2;

/// By how many millionths a process's clock is fast or slow, at most: ten times what is usual.
const DRIFT_PPM_MAX: u64 = 1000;

/// What a world begins with.
#[derive(Debug, Clone)]
pub struct Config {
    /// OSDs, each a failure domain of its own.
    pub osds: OsdId,
    /// Clients.
    pub clients: usize,
    /// Size of each OSD's device.
    pub device_bytes: u64,
    /// How PGs behave.
    pub tuning: Tuning,
}

impl Default for Config {
    fn default() -> Self {
        let tuning = Tuning { checked: true, ..Tuning::default() };
        Self { osds: 3, clients: 1, device_bytes: DEVICE_BYTES, tuning }
    }
}

/// What an OSD's store held at some time: its device and its metadata.
pub struct OsdCopy {
    device: Image,
    kv: SimKv,
}

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

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proc {
    /// The monitor.
    Mon,
    /// An OSD.
    Osd(OsdId),
    /// A client.
    Client(usize),
}

impl Proc {
    /// Where it runs.
    #[must_use]
    pub fn host(self) -> Host {
        let number = |base: u8, n: usize| Host(base + u8::try_from(n).unwrap_or(0));
        match self {
            Self::Mon => Host(1),
            Self::Osd(id) => number(10, usize::try_from(id).unwrap_or(0)),
            Self::Client(n) => number(100, n),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Due {
    Turn(Proc),
    Disk(OsdId),
}

/// When a process has its next turn, and what holds it up.
#[derive(Debug, Default)]
struct RecoveryThrottle {
    turn_at: Option<Stamp>,
    frozen_until: Option<Stamp>,
    /// It froze in a turn, behind its clock.
    frozen_at: Option<Stamp>,
    slow: u32,
    /// Turns in a row after which the next was due at once.
    hurried: u32,
}

struct MonNode {
    kv: SimKv,
    driver: Option<Driver>,
    incoming: Vec<Incoming>,
}

struct OsdNode {
    uuid: Uuid,
    key: CryptoKey,
    device: SimDevice,
    kv: SimKv,
    shard: Option<Shard>,
    disk_at: Option<Stamp>,
    disk_slow: u32,
}

impl OsdNode {
    fn hardware(&self) -> (Box<dyn Disk>, Box<dyn KvStore + Send>) {
        (Box::new(self.device.open()), Box::new(self.kv.clone()))
    }
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
    /// What OSDs speak that speak other versions than `tuning` says, from their next start on.
    versions: BTreeMap<OsdId, PeerVersions>,
    device_bytes: u64,
    admin_key: CryptoKey,
    mon: MonNode,
    osds: BTreeMap<OsdId, OsdNode>,
    clients: Vec<Client>,
    paces: BTreeMap<Proc, RecoveryThrottle>,
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
        let addr = mon_addr();
        let mut mkfs = MkfsOptions::new(fsid, "a", AddrVec::of(addr), clock.wall(), &mut rng);
        mkfs.osds_are_failure_domains = true;
        let mut osds = BTreeMap::new();
        for id in 0..config.osds {
            let node = new_osd(&mut rng, &clock, config.device_bytes);
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
        let mut kv = SimKv::default();
        nacre_monitor::mkfs(&mut kv, &mkfs, clock.wall()).expect("a valid cluster");
        let mut world = Self {
            rng,
            clock,
            clocks: BTreeMap::new(),
            fabric,
            fsid,
            tuning: config.tuning,
            versions: BTreeMap::new(),
            device_bytes: config.device_bytes,
            admin_key: mkfs.admin_key,
            mon: MonNode { kv, driver: None, incoming: Vec::new() },
            osds,
            clients: Vec::new(),
            paces: BTreeMap::new(),
            agenda: BTreeMap::new(),
            last_due: 0,
            trace: 0,
            steps: 0,
            turns: BTreeMap::new(),
            gave_up: Vec::new(),
        };
        world.start_mon();
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

    /// The time.
    #[must_use]
    pub fn now(&self) -> Stamp {
        self.clock.now()
    }

    /// The network.
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

    /// Clients.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// The monitor, if it runs.
    #[must_use]
    pub fn mon(&self) -> Option<&nacre_mon::Mon> {
        self.mon.driver.as_ref().map(Driver::mon)
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
            Proc::Mon => self.mon.driver.is_some(),
            Proc::Osd(id) => self.osds.get(&id).is_some_and(|osd| osd.shard.is_some()),
            Proc::Client(n) => n < self.clients.len(),
        }
    }

    fn entropy(&mut self) -> Box<SeededEntropy> {
        Box::new(SeededEntropy(self.rng.u64()))
    }

    fn own_clock(&mut self, proc: Proc) -> Box<SimClock> {
        let skew = Duration::from_millis(self.below(50));
        let drift = self.below(2 * DRIFT_PPM_MAX + 1).cast_signed() - DRIFT_PPM_MAX.cast_signed();
        let clock = self.clock.skewed(skew, drift);
        self.clocks.insert(proc, clock.clone());
        Box::new(clock)
    }

    /// Starts the monitor.
    ///
    /// # Panics
    /// When it cannot start.
    pub fn start_mon(&mut self) {
        let config = MonitorConfig {
            store: PathBuf::new(),
            name: "a".to_owned(),
            methods: vec![AuthMethod::Cephx],
            host: String::new(),
        };
        let machine = nacre_monitor::Machine {
            clock: self.own_clock(Proc::Mon),
            entropy: self.entropy(),
            net: Box::new(self.fabric.start(Proc::Mon.host())),
            store: Box::new(self.mon.kv.clone()),
        };
        let (driver, _) = nacre_monitor::assemble(&config, machine).expect("the monitor starts");
        self.mon.driver = Some(driver);
        self.wake(Proc::Mon);
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
        let Some(node) = self.osds.get_mut(&id) else { return Ok(()) };
        let (disk, kv) = node.hardware();
        let (store, _) = BlockStore::open(disk, kv, store_options())?;
        let (clock, entropy, tuning) =
            (self.own_clock(Proc::Osd(id)), self.entropy(), Tuning { versions, ..self.tuning });
        let net = Box::new(self.fabric.start(Proc::Osd(id).host()));
        let Some(node) = self.osds.get_mut(&id) else { return Ok(()) };
        let config = OsdConfig {
            id,
            uuid: node.uuid,
            fsid: self.fsid,
            key: node.key.clone(),
            monitors: vec![mon_addr()],
            methods: vec![AuthMethod::Cephx],
            listen: Proc::Osd(id).host().ip(),
            shards: 1,
            store: StoreConfig::Memory { capacity_bytes: 0 },
            host: format!("host{id}"),
            give_back_memory: || (),
        };
        let machine = nacre_osd::Machine {
            clock,
            entropy,
            net,
            waker: Fabric::waker(),
            store: Box::new(store),
            tuning,
        };
        let osd = nacre_osd::assemble(&config, vec![machine]).expect("simulated sockets listen");
        node.shard = osd.shards.into_iter().next();
        if let Some(shard) = &mut node.shard {
            shard.begin();
        }
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
        let access = Access { monitors: vec![mon_addr()], name, key, modes };
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
        if power {
            node.device.crash();
        }
        node.kv.stop(power, survivors);
        node.shard = None;
        node.disk_at = None;
        self.note(0x51, u64::from(power));
        self.forget(Proc::Osd(id));
    }

    /// Changes what the store of an OSD holds that does not run, behind its back.
    ///
    /// # Panics
    /// When it runs, or the store does not take the change.
    pub fn edit_store(&mut self, id: OsdId, txn: Transaction) {
        let node = self.osds.get_mut(&id).expect("an OSD");
        assert!(node.shard.is_none(), "it has its store open");
        let disk = Box::new(node.device.open());
        let opened = BlockStore::open(disk, Box::new(node.kv.clone()), store_options());
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

    /// Every request to an OSD's device fails from now on.
    pub fn break_device(&mut self, id: OsdId) {
        if let Some(node) = self.osds.get(&id) {
            node.device.fail_after(0, Failing::FromThenOn);
        }
    }

    /// Spoils those blocks of an OSD's device of which `is_wanted`, by their content. Gives their number.
    pub fn spoil(&mut self, id: OsdId, is_wanted: impl Fn(&[u8]) -> bool) -> usize {
        const BLOCK: usize = nacre_env::disk::BLOCK_BYTES;
        let Some(node) = self.osds.get(&id) else { return 0 };
        let places = (0..self.device_bytes).step_by(BLOCK);
        let wanted = places.filter(|place| is_wanted(&node.device.peek(*place, BLOCK)));
        wanted.filter(|place| node.device.rot(*place, BLOCK as u64)).count()
    }

    /// What goes wrong by itself on an OSD's device from now on.
    pub fn set_faults(&mut self, id: OsdId, faults: Faults) {
        if let Some(node) = self.osds.get(&id) {
            node.device.set_faults(faults);
        }
    }

    /// The request after the next `requests` to an OSD's device fails.
    pub fn fail_once(&mut self, id: OsdId, requests: u64) {
        if let Some(node) = self.osds.get(&id) {
            node.device.fail_after(requests, Failing::Once);
        }
    }

    /// Nothing goes wrong on an OSD's device any more; what is damaged remains so.
    pub fn mend_device(&mut self, id: OsdId) {
        if let Some(node) = self.osds.get(&id) {
            node.device.set_faults(Faults::default());
            node.device.heal();
        }
    }

    /// Flips a bit of what an OSD's device holds. False when it holds nothing.
    pub fn rot(&mut self, id: OsdId) -> bool {
        self.osds.get(&id).is_some_and(|node| node.device.rot(0, self.device_bytes))
    }

    /// Puts a new store in the place of that of an OSD which does not run. Yields its id and the key it will use, both of which
    /// the monitor must hear of.
    ///
    /// # Panics
    /// When there is no such OSD, or it runs.
    pub fn replace_device(&mut self, id: OsdId) -> (Uuid, CryptoKey) {
        let node = new_osd(&mut self.rng, &self.clock, self.device_bytes);
        let new = (node.uuid, node.key.clone());
        let old = self.osds.insert(id, node).expect("one of the world's OSDs");
        assert!(old.shard.is_none(), "osd.{id} runs");
        self.note(0x53, 0);
        new
    }

    /// A copy of what the store of an OSD holds that does not run.
    ///
    /// # Panics
    /// When there is no such OSD, or it runs.
    #[must_use]
    pub fn back_up_osd(&self, id: OsdId) -> OsdCopy {
        let node = self.osds.get(&id).filter(|node| node.shard.is_none()).expect("an OSD that does not run");
        OsdCopy { device: node.device.image(), kv: node.kv.copy() }
    }

    /// Puts a copy of before, or a part of it, in the place of what the store of an OSD holds that does not run.
    ///
    /// # Panics
    /// When there is no such OSD, or it runs.
    pub fn restore_osd(&mut self, id: OsdId, copy: &OsdCopy, what: Restored) {
        let node = self.osds.get_mut(&id).filter(|node| node.shard.is_none());
        let node = node.expect("an OSD that does not run");
        if what != Restored::Metadata {
            node.device.restore(&copy.device);
        }
        if what != Restored::Device {
            node.kv = copy.kv.copy();
            node.kv.hold();
        }
        self.note(0x54, 0);
    }

    /// Whether the log of a stopped OSD has a gap, so that it does not start.
    ///
    /// # Panics
    /// When its store cannot be looked at.
    #[must_use]
    pub fn has_log_gap(&self, id: OsdId) -> bool {
        let Some((disk, kv)) = self.osds.get(&id).map(OsdNode::hardware) else { return false };
        nacre_blockstore::log_gap(disk, kv, store_options()).expect("a store").is_some()
    }

    /// What `nacre store repair --give-up-groups` does to a stopped OSD whose log has a gap. Gives the number of PGs.
    ///
    /// # Panics
    /// When it cannot be done.
    pub fn give_up_groups(&mut self, id: OsdId) -> usize {
        let Some((disk, kv)) = self.osds.get(&id).map(OsdNode::hardware) else { return 0 };
        let keep = nacre_osd::storage::OWN_COLLECTION;
        nacre_blockstore::give_up_groups(disk, kv, store_options(), &keep).expect("a store with a gap").len()
    }

    /// Ends the monitor's process, or its machine.
    pub fn stop_mon(&mut self, power: bool) {
        let survivors = usize::try_from(self.below(3)).unwrap_or(0);
        self.fabric.stop(Proc::Mon.host(), power);
        self.mon.kv.stop(power, survivors);
        self.mon.driver = None;
        self.mon.incoming.clear();
        self.note(0x52, u64::from(power));
        self.forget(Proc::Mon);
    }

    /// OSDs that ended by themselves since the last look, as those do that are marked down too often.
    pub fn take_gave_up(&mut self) -> Vec<OsdId> {
        std::mem::take(&mut self.gave_up)
    }

    fn forget(&mut self, proc: Proc) {
        self.paces.remove(&proc);
        self.fabric.set_slow(proc.host(), 1);
    }

    /// A process gets no turn before `until`; its sockets and its device go on.
    pub fn freeze(&mut self, proc: Proc, until: Stamp) {
        self.paces.entry(proc).or_default().frozen_until = Some(until);
    }

    /// As [`World::freeze`], but the process is in a turn: it has read its clock and not yet its sockets.
    pub fn freeze_in_turn(&mut self, proc: Proc, until: Stamp) {
        let now = self.now();
        self.freeze(proc, until);
        self.paces.entry(proc).or_default().frozen_at = Some(now);
        self.turn_by(proc, until);
    }

    /// A copy of what the monitor's store holds.
    #[must_use]
    pub fn back_up_mon(&self) -> SimKv {
        self.mon.kv.copy()
    }

    /// Puts a copy in the place of the store of the monitor, which does not run.
    ///
    /// # Panics
    /// When it runs.
    pub fn restore_mon(&mut self, copy: SimKv) {
        assert!(self.mon.driver.is_none(), "it has its store open");
        self.mon.kv = copy;
    }

    /// Makes all that a process does, sends and gets take so many times as long.
    pub fn set_slow(&mut self, proc: Proc, factor: u32) {
        self.paces.entry(proc).or_default().slow = factor;
        self.fabric.set_slow(proc.host(), factor);
        if let Proc::Osd(id) = proc
            && let Some(node) = self.osds.get_mut(&id)
        {
            node.disk_slow = factor;
        }
    }

    fn note(&mut self, kind: u64, what: u64) {
        let mut mixed = self.trace ^ self.now().0.rotate_left(17) ^ (kind << 56) ^ what;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.trace = mixed ^ (mixed >> 27);
    }

    fn schedule(&mut self, at: Stamp, due: Due) {
        self.last_due += 1;
        self.agenda.insert((at, self.last_due), due);
    }

    fn wake(&mut self, proc: Proc) {
        let delay = Duration::from_nanos(self.rng.u64() % u64::try_from(TURN_DELAY.as_nanos()).unwrap_or(1));
        let slow = self.paces.get(&proc).map_or(1, |throttle| throttle.slow.max(1));
        self.turn_by(proc, self.now() + delay * slow);
    }

    /// Sees to it that a process has a turn at `at` or before.
    fn turn_by(&mut self, proc: Proc, at: Stamp) {
        let throttle = self.paces.entry(proc).or_default();
        let at = throttle.frozen_until.map_or(at, |until| until.max(at));
        if throttle.turn_at.is_none_or(|planned| planned > at) {
            throttle.turn_at = Some(at);
            self.schedule(at, Due::Turn(proc));
        }
    }

    /// The next thing happens, if it does by `end`; false when it is `end` instead.
    pub fn step(&mut self, end: Stamp) -> bool {
        let planned = self.agenda.keys().next().map(|(at, _)| *at);
        let arrival = self.fabric.next_at();
        let Some(next) = planned.into_iter().chain(arrival).min().filter(|next| *next <= end) else {
            self.clock.set(end);
            return false;
        };
        let now = next.max(self.now());
        self.clock.set(now);
        self.steps += 1;
        if arrival.is_some_and(|at| at <= now) {
            let woken = self.fabric.advance(now);
            let procs: Vec<Proc> =
                self.procs().into_iter().filter(|proc| woken.contains(&proc.host())).collect();
            procs.into_iter().for_each(|proc| self.wake(proc));
            self.note(1, woken.len() as u64);
        } else if let Some((_, due)) = self.agenda.pop_first() {
            match due {
                Due::Turn(proc) => self.turn(proc),
                Due::Disk(id) => self.step_disk(id),
            }
        }
        true
    }

    /// All processes, whether or not they run.
    #[must_use]
    pub fn procs(&self) -> Vec<Proc> {
        let clients = (0..self.clients.len()).map(Proc::Client);
        [Proc::Mon].into_iter().chain(self.osds.keys().map(|id| Proc::Osd(*id))).chain(clients).collect()
    }

    fn turn(&mut self, proc: Proc) {
        let now = self.now();
        let Some(throttle) =
            self.paces.get_mut(&proc).filter(|throttle| throttle.turn_at.is_some_and(|at| at <= now))
        else {
            return; // a turn that came earlier has done it
        };
        throttle.turn_at = None;
        if let Some(until) = throttle.frozen_until {
            if until > now {
                return self.turn_by(proc, until);
            }
            throttle.frozen_until = None;
            if let Some((at, clock)) = throttle.frozen_at.take().zip(self.clocks.get(&proc)) {
                clock.stall(READS_BEFORE_SOCKETS, clock.shown_at(at));
            }
        }
        let Some(next) = self.run(proc) else { return };
        let next = self.clocks.get(&proc).map_or(next, |clock| clock.moment_of(next));
        self.note(2, proc.host().0.into());
        *self.turns.entry(proc).or_default() += 1;
        let throttle = self.paces.entry(proc).or_default();
        throttle.hurried = if next <= now { throttle.hurried + 1 } else { 0 };
        assert!(throttle.hurried < HURRIED_TURNS_MAX, "{proc:?} turns and turns and never waits");
        // Nobody turns twice in the same moment.
        self.turn_by(proc, next.max(now + Duration::from_micros(1)));
    }

    /// One turn; yields when the next is due.
    fn run(&mut self, proc: Proc) -> Option<Stamp> {
        match proc {
            Proc::Mon => {
                let driver = self.mon.driver.as_mut()?;
                driver.turn(&mut self.mon.incoming).expect("a healthy monitor");
                Some(driver.next_deadline())
            }
            Proc::Osd(id) => {
                let node = self.osds.get_mut(&id)?;
                let shard = node.shard.as_mut()?;
                shard.turn().expect("simulated sockets can be waited for");
                if shard.is_stopping() {
                    self.gave_up.push(id);
                    self.stop_osd(id, false);
                    return None;
                }
                // The store may want to hear now of what it did not want to be woken for before.
                let next = if node.device.calls() { Stamp::default() } else { shard.next_deadline() };
                self.plan_disk(id);
                Some(next)
            }
            Proc::Client(n) => {
                let client = self.clients.get_mut(n)?;
                client.turn(Duration::ZERO).expect("sockets can be waited for, and daemons make sense");
                assert_eq!(client.bad_messages(), 0, "daemons speak so that clients understand");
                Some(client.next_deadline())
            }
        }
    }

    fn plan_disk(&mut self, id: OsdId) {
        let delay = Duration::from_nanos(self.rng.u64() % u64::try_from(DISK_DELAY.as_nanos()).unwrap_or(1));
        let now = self.now();
        let Some(node) = self.osds.get_mut(&id) else { return };
        if node.disk_at.is_none() && (node.device.in_flight() > 0 || node.kv.is_busy()) {
            let at = now + delay * node.disk_slow.max(1);
            node.disk_at = Some(at);
            self.schedule(at, Due::Disk(id));
        }
    }

    fn step_disk(&mut self, id: OsdId) {
        let now = self.now();
        let Some(node) = self.osds.get_mut(&id).filter(|node| node.disk_at == Some(now)) else { return };
        node.disk_at = None;
        let metadata =
            node.kv.is_busy() && (node.device.in_flight() == 0 || self.rng.u64().is_multiple_of(4));
        if metadata {
            node.kv.step();
        } else {
            node.device.step();
        }
        let calls = metadata || node.device.calls();
        self.note(3, id.unsigned_abs().into());
        if calls {
            self.wake(Proc::Osd(id));
        }
        self.plan_disk(id);
    }

    /// Lets time pass.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now() + duration;
        while self.step(end) {}
    }

    /// Runs until `done` says so, looked at after every step, or `patience` is over; true when done.
    pub fn run_until(&mut self, patience: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now() + patience;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return done(self);
            }
        }
    }
}

fn mon_addr() -> EntityAddr {
    EntityAddr::msgr2(SocketAddr::new(Proc::Mon.host().ip(), MON_PORT), 0)
}

/// Limits so small that every branch is taken often.
fn store_options() -> Options {
    Options::tiny()
}

fn uuid(rng: &mut SeededEntropy) -> Uuid {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    Uuid::from_random(bytes)
}

fn new_osd(rng: &mut SeededEntropy, clock: &SimClock, device_bytes: u64) -> OsdNode {
    let device = SimDevice::new(SimConfig::new(device_bytes, rng.u64()));
    let mut kv = SimKv::default();
    let id = uuid(rng);
    BlockStore::mkfs(&mut device.open(), &mut kv, id.0, &store_options()).expect("a store can be made");
    kv.hold();
    let key = CryptoKey::generate(rng, clock.wall());
    OsdNode { uuid: id, key, device, kv, shard: None, disk_at: None, disk_slow: 1 }
}

impl Debug for OsdCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OsdCopy")
    }
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
