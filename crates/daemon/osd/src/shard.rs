//! [`Shard`]: one thread of an OSD. It owns PGs, their part of the store, and client
//! connections, and carries each request from socket to disk and back.
//!
//! | part | owns |
//! |---|---|
//! | [`ShardNet`] | sockets, sessions, the ways to other shards and other OSDs, the maps to hand on |
//! | [`PgDriver`] | the PGs, the store, and what goes between them |
//! | [`OsdControl`] | on the first shard: what the OSD does once |
//!
//! `turn.rs` has the loop, `dispatch.rs` says which part each event is for.

use crate::background::due_scrub;
use crate::bench::Bench;
use crate::config::OsdConfig;
use crate::control::{ControlCx, OsdControl};
use crate::control_event::ControlEvent;
use crate::links::NetCx;
use crate::peer_links::PeerLinks;
use crate::pg_driver::PgDriver;
use crate::sessions::{Limits, Sessions};
use crate::shard_msg::{ShardMsg, ShardRouter};
use crate::shard_net::{ShardCx, ShardNet};
use crate::storage::StoreConfig;
use crate::walk::Walk;
use nacre_auth::RotatingKeys;
use nacre_env::{Clock, ListenerId};
use nacre_heartbeat::Leases;
use nacre_maps::OsdMap;
use nacre_msg::MOsdMap;
use nacre_msg::peer::PeerVersions;
use nacre_options::Values;
use nacre_osd_core::{AdmissionGate, MapCache, MapRelease};
use nacre_pg::{Event, Planted};
use nacre_service::{Incoming, Mailbox, Messenger};
use nacre_store::ObjectStore;
use nacre_types::{Entropy, Stamp, UTime, seconds};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Finished messages kept for `dump_historic_ops`, whatever `osd_op_history_size` says.
const HISTORY_MAX: usize = 10_000;

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
    pub(crate) control: Option<OsdControl>,
    /// When OSD control is due: as it last said, since only [`Shard::lend_control`] changes that.
    pub(crate) control_due: Option<Stamp>,
    /// What OSD control has said and nobody has carried out yet.
    pub(crate) events: VecDeque<ControlEvent>,
    /// Where clients come in.
    pub(crate) public: ListenerId,
    pub(crate) walk: Walk,
    /// Maps that the PGs must not see yet, with the messages that brought them.
    pub(crate) map_release: MapRelease<(Vec<Arc<OsdMap>>, Arc<MOsdMap>)>,
    pub(crate) versions: PeerVersions,
    /// A mistake built in on purpose.
    pub(crate) planted: Planted,
    pub(crate) keys: Arc<RotatingKeys>,
    pub(crate) incoming: Vec<Incoming>,
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    pub(crate) tick_at: Stamp,
    pub(crate) report_at: Stamp,
    pub(crate) slow_ops_warned_at: Stamp,
    /// What [`crate::tracker::Tracker::commits`] was at the last report.
    pub(crate) commits_told: (u64, u64),
    booted: Arc<AtomicBool>,
    pub(crate) stopping: bool,
    pub(crate) bench: Option<Bench>,
    /// Blocks that benches have submitted so far, which number the tokens of the next.
    pub(crate) bench_blocks: u64,
    pub(crate) options: Arc<Values>,
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
    pub(crate) peers: Option<PeerLinks>,
    pub(crate) public: ListenerId,
    pub(crate) store: Box<dyn ObjectStore + Send>,
    /// The maps that the store holds.
    pub(crate) stored: Vec<Arc<OsdMap>>,
    /// The map behind which this shard wants others.
    pub(crate) begins_with: Option<Arc<OsdMap>>,
    pub(crate) booted: Arc<AtomicBool>,
    pub(crate) tuning: nacre_pg::Tuning,
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
        let sessions = Sessions::new(router.me, config.methods.clone());
        let leases = Leases::new(Duration::ZERO, now);
        let gate = AdmissionGate::new(config.id, leases, planted == Planted::LeaseIgnored);
        let mut pg_driver = PgDriver::new(config.id, parts.store, gate, parts.tuning);
        parts.stored.into_iter().for_each(|map| pg_driver.pgs.set_map(map));
        let garbles = planted == Planted::MessagesGarbled;
        let mut shard = Self {
            net: ShardNet::new(parts.messenger, (sessions, router), parts.peers, maps, garbles),
            pg_driver,
            config,
            clock: parts.clock,
            entropy: parts.entropy,
            mailbox: parts.mailbox,
            control: parts.control,
            control_due: None,
            events: VecDeque::new(),
            public: parts.public,
            walk: Walk::default(),
            map_release: MapRelease::default(),
            versions,
            planted,
            keys: Arc::default(),
            incoming: Vec::new(),
            now,
            wall,
            tick_at: now,
            report_at: now,
            slow_ops_warned_at: now,
            commits_told: (0, 0),
            booted: parts.booted,
            stopping: false,
            bench: None,
            bench_blocks: 0,
            options: Arc::default(),
        };
        if let (Some(option), StoreConfig::File { memory_bytes, .. }) =
            (nacre_options::find("osd_memory_target"), &shard.config.store)
        {
            Arc::make_mut(&mut shard.options).tell(option, memory_bytes.to_string()); // as it was started, for who asks
        }
        shard.follow_options();
        shard
    }

    /// The PGs, with what they borrow of the shard.
    pub(crate) fn pgs(&mut self) -> (&mut PgDriver, ShardCx<'_>) {
        let cx = ShardCx {
            now: self.now,
            wall: self.wall,
            clock: self.clock.as_ref(),
            entropy: self.entropy.as_mut(),
            net: &mut self.net,
        };
        (&mut self.pg_driver, cx)
    }

    /// Lets OSD control work, if this shard is it. What it has for the shard waits in [`Shard::events`], so that maps are seen in the
    /// order in which they came.
    pub(crate) fn lend_control<T>(
        &mut self,
        work: impl FnOnce(&mut OsdControl, &mut ControlCx<'_>) -> T,
    ) -> Option<T> {
        let (control, peers) = (self.control.as_mut()?, self.net.peers.as_mut()?);
        let mut events = Vec::new();
        let mut cx = ControlCx {
            net: NetCx {
                // Not the turn's: a promise given by a clock that was read before a pause would end before the lease does
                // that rests on it.
                now: self.clock.now(),
                wall: self.wall,
                entropy: self.entropy.as_mut(),
                messenger: &mut self.net.messenger,
            },
            peers,
            maps: &self.net.maps,
            options: &self.options,
            events: &mut events,
        };
        let result = work(control, &mut cx);
        self.booted.store(control.is_booted(), Ordering::Release);
        self.control_due = control.next_deadline().into_iter().chain(cx.peers.next_deadline()).min();
        self.events.extend(events);
        Some(result)
    }

    /// Takes new options over, on all shards.
    pub(crate) fn set_options(&mut self, options: Values) {
        self.options = Arc::new(options);
        self.follow_options();
        let options = Arc::clone(&self.options);
        self.net.router.send_others(|| ShardMsg::Options(Arc::clone(&options)));
        self.lend_control(OsdControl::follow_options);
    }

    /// Takes over what options say of this shard.
    pub(crate) fn follow_options(&mut self) {
        let options = &self.options;
        let places = options.count("osd_max_backfills").max(1);
        let objects = match options.count("osd_recovery_max_active") {
            0 => options.count("osd_recovery_max_active_ssd"),
            objects => objects,
        };
        let target = options.number("nacre_recovery_client_latency_target_ms").max(0.0);
        let pg_driver = &mut self.pg_driver;
        // All PGs that hold a place together keep to the number of objects.
        pg_driver.throttle.configure(seconds(target / 1e3), objects.div_ceil(places));
        pg_driver.reserver.set_places(places);
        // 0 means no limit.
        let limit = |name| Some(options.count(name)).filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let (messages, bytes) = (limit("osd_client_message_cap"), limit("osd_client_message_size_cap"));
        self.net.sessions.set_limits(Limits { messages, bytes });
        let kept_for = options.seconds("osd_op_history_duration");
        pg_driver.tracker.configure(options.count("osd_op_history_size").min(HISTORY_MAX), kept_for);
        pg_driver.tracker.enable(options.flag("osd_enable_op_tracker"));
        pg_driver.pgs.ignore_history_les(options.flag("osd_find_best_info_ignore_history_les"));
    }

    /// Begins the scrub that is due, if one is.
    pub(crate) fn start_scrub(&mut self) {
        if let Some((spg, deep)) = due_scrub(&self.pg_driver.pgs, &self.options, self.wall) {
            let (pgs, mut cx) = self.pgs();
            pgs.deliver(&mut cx, spg, Event::Scrub { deep, repair: false });
        }
    }

    /// True while the cluster has this OSD up, as far as the control shard knows.
    #[must_use]
    pub fn is_booted(&self) -> bool {
        self.control.as_ref().is_some_and(OsdControl::is_booted)
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.pg_driver.pgs.all().len();
        write!(f, "Shard({} of osd.{}, {count} PGs)", self.net.router.me, self.config.id)
    }
}
