//! [`Shard`]: one thread of an OSD. It owns PGs, their part of the store, and client
//! connections, and carries each request from socket to disk and back.
//!
//! | part | owns |
//! |---|---|
//! | [`ShardNet`] | sockets, sessions, the ways to other shards and other OSDs, the maps to hand on |
//! | [`PgDriver`] | the PGs, the store, and what goes between them |
//! | [`ControlHost`] | on the first shard: [`OsdControl`], what the OSD does once |
//! | [`Connections`] | by which secrets and versions connections are let in |
//! | [`MapIntake`] | maps on their way to the PGs |
//! | [`Periodic`], [`BenchSlot`], [`SmartSlot`] | what comes back every second; `ceph tell osd.N bench` and `smart` |
//! | [`Gatherings`] | commands that all shards answer together |
//!
//! `turn.rs` has the loop. [`Dispatch`] says which part each event is for, and borrows those parts only.

use crate::bench::BenchSlot;
use crate::config::OsdConfig;
use crate::connections::Connections;
use crate::control::OsdControl;
use crate::control_host::ControlHost;
use crate::dispatch::Dispatch;
use crate::gather::Gatherings;
use crate::lent_parts::LentParts;
use crate::map_intake::MapIntake;
use crate::memory::{Memory, MemoryTarget};
use crate::peer_links::PeerLinks;
use crate::periodic::Periodic;
use crate::pg_driver::PgDriver;
use crate::relocations::MisplacedHere;
use crate::sessions::Sessions;
use crate::shard_links::ShardLinks;
use crate::shard_msg::{ShardMsg, ShardRouter};
use crate::shard_net::{ShardCx, ShardNet};
use crate::smart::SmartSlot;
use crate::storage::StoreConfig;
use nacre_env::{Clock, ListenerId};
use nacre_heartbeat::Leases;
use nacre_maps::OsdMap;
use nacre_options::Values;
use nacre_osd_core::{AdmissionGate, MapCache};
use nacre_pg::Planted;
use nacre_service::{Incoming, Mailbox, Messenger};
use nacre_store::ObjectStore;
use nacre_types::{Entropy, Stamp, UTime};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// One thread's part of an OSD.
///
/// Its thread calls [`Shard::begin`] once and then [`Shard::turn`] until [`Shard::is_stopping`]. A turn takes what sockets, other shards, the
/// clock and the store have, hands each piece to the core that it concerns (a PG, OSD control), carries out the effects at once, and sends at
/// its end. A shard owns its sockets, its part of the store and its PGs; with other shards it shares messages only. The price: a turn that takes long
/// holds up everybody on this thread, heartbeats included, so work is bounded per turn and goes on in the next one. The simulation drives the
/// very same turns, with clock, randomness, sockets and disk of its own (`assemble`).
pub struct Shard {
    pub(crate) config: OsdConfig,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) entropy: Box<dyn Entropy + Send>,
    pub(crate) mailbox: Mailbox<ShardMsg>,
    pub(crate) net: ShardNet,
    pub(crate) pg_driver: PgDriver,
    pub(crate) control: ControlHost,
    pub(crate) connections: Connections,
    pub(crate) maps: MapIntake,
    pub(crate) periodic: Periodic,
    pub(crate) bench: BenchSlot,
    pub(crate) smart: SmartSlot,
    pub(crate) gatherings: Gatherings,
    pub(crate) options: Arc<Values>,
    /// What sockets have brought in this turn.
    pub(crate) incoming: Vec<Incoming>,
    /// The time of the turn.
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    pub(crate) stopping: bool,
}

/// What a shard does beside clients' work.
pub(crate) struct Background<'a> {
    pub(crate) periodic: &'a mut Periodic,
    pub(crate) bench: &'a mut BenchSlot,
    pub(crate) give_back_memory: fn(),
}

/// What a shard is made of.
pub(crate) struct Parts {
    pub(crate) config: OsdConfig,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) entropy: Box<dyn Entropy + Send>,
    pub(crate) messenger: Messenger,
    pub(crate) mailbox: Mailbox<ShardMsg>,
    pub(crate) router: ShardRouter,
    pub(crate) control: Option<OsdControl>,
    /// The links to other OSDs, and what a shard beside the first one needs for them.
    pub(crate) peers: (PeerLinks, Option<ShardLinks>),
    pub(crate) public: ListenerId,
    pub(crate) store: Box<dyn ObjectStore + Send>,
    /// The maps that the store holds.
    pub(crate) stored: Vec<Arc<OsdMap>>,
    /// The map behind which this shard wants others.
    pub(crate) begins_with: Option<Arc<OsdMap>>,
    /// What is not in the partition in which it is to be.
    pub(crate) misplaced: MisplacedHere,
    pub(crate) booted: Arc<AtomicBool>,
    pub(crate) tuning: nacre_pg::Tuning,
    /// What it is to keep to of memory.
    pub(crate) memory: Option<MemoryTarget>,
}

impl Shard {
    pub(crate) fn new(parts: Parts) -> Self {
        let (now, wall, config) = (parts.clock.now(), parts.clock.wall(), parts.config);
        let (planted, versions) = (parts.tuning.planted, parts.tuning.versions);
        let mut maps = MapCache::new(config.fsid, parts.begins_with);
        if planted == Planted::MapGapAccepted {
            maps.take_gaps();
        }
        let router = parts.router;
        let gatherings = Gatherings::new(router.shard_count());
        let sessions = Sessions::new(router.me, config.methods.clone(), config.ticket_form());
        let leases = Leases::new(Duration::ZERO, now);
        let gate = AdmissionGate::new(config.id, leases, planted == Planted::LeaseIgnored);
        let memory = Memory::new(parts.memory, parts.store.memory(), parts.tuning.limits);
        let mut pg_driver = PgDriver::new(config.id, parts.store, gate, parts.tuning, memory);
        pg_driver.relocations.begin_with(parts.misplaced);
        parts.stored.into_iter().for_each(|map| pg_driver.pgs.set_map(map));
        let net = (parts.messenger, parts.public);
        let mut shard = Self {
            net: ShardNet::new(net, (sessions, router), parts.peers, maps, planted),
            pg_driver,
            control: ControlHost::new(parts.control, parts.booted),
            connections: Connections::new(config.id, versions),
            maps: MapIntake::new(config.id),
            config,
            clock: parts.clock,
            entropy: parts.entropy,
            mailbox: parts.mailbox,
            periodic: Periodic::new(now),
            bench: BenchSlot::default(),
            smart: SmartSlot::default(),
            gatherings,
            options: Arc::default(),
            incoming: Vec::new(),
            now,
            wall,
            stopping: false,
        };
        if let (Some(option), StoreConfig::File { memory_bytes, .. }) =
            (nacre_options::find("osd_memory_target"), &shard.config.store)
        {
            Arc::make_mut(&mut shard.options).tell(option, memory_bytes.to_string()); // as it was started, for `config show`
        }
        if let Some(ceph) = &shard.config.ceph {
            Arc::make_mut(&mut shard.options).read_file(&ceph.options);
        }
        shard.follow_options();
        shard
    }

    /// The parts between which events are shared out.
    pub(crate) fn dispatch(&mut self) -> Dispatch<'_> {
        self.lend().0
    }

    /// The same, and what works beside clients.
    pub(crate) fn lend(&mut self) -> (Dispatch<'_>, Background<'_>) {
        let cx = ShardCx {
            now: self.now,
            wall: self.wall,
            clock: self.clock.as_ref(),
            entropy: self.entropy.as_mut(),
            options: &self.options,
            net: &mut self.net,
        };
        let parts = LentParts { pgs: &mut self.pg_driver, control: &mut self.control, cx };
        let dispatch = Dispatch { parts, connections: &mut self.connections, maps: &mut self.maps };
        let give_back_memory = self.config.give_back_memory;
        (dispatch, Background { periodic: &mut self.periodic, bench: &mut self.bench, give_back_memory })
    }

    /// Takes new options over, on all shards.
    pub(crate) fn set_options(&mut self, options: Values) {
        self.options = Arc::new(options);
        self.follow_options();
        let options = Arc::clone(&self.options);
        self.net.router.send_others(|| ShardMsg::Options(Arc::clone(&options)));
        self.dispatch().parts.lend_control(OsdControl::follow_options);
    }

    /// Takes over what options say of this shard.
    pub(crate) fn follow_options(&mut self) {
        self.pg_driver.follow_options(&self.options);
        self.pg_driver.bill.enable(self.options.flag("nacre_bill"), self.clock.thread_cpu_ns().is_some());
        self.pg_driver.memory.follow_options(&self.options);
        self.net.follow_options(&self.options, self.pg_driver.memory.client_bytes());
    }

    /// How many times other OSDs were not read for the store's sake.
    #[must_use]
    pub fn peer_holds(&self) -> u64 {
        self.net.peer_holds
    }

    /// True while the cluster has this OSD up, as far as the control shard knows.
    #[must_use]
    pub fn is_booted(&self) -> bool {
        self.control.is_booted()
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.pg_driver.pgs.all().len();
        write!(f, "Shard({} of osd.{}, {count} PGs)", self.net.router.me, self.config.id)
    }
}
