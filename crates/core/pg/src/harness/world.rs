//! The cluster: OSDs with one copy each, the wires between them, the monitor, the clients.

use super::client::Client;
use super::disk::{Disk, Touched};
use crate::log::LogLimits;
use crate::ops::MessageLimits;
use crate::tuning::SCAN_OBJECTS_MAX;
use crate::{
    ClientOp, Cx, Effect, Effects, Event, Pg, PgCreateInfo, QueueLimits, RecoveryThrottle, Reserver,
    SessionId, Side, StoreRoom, Tuning,
};
use nacre_buf::BufList;
use nacre_ec::Profile;
use nacre_maps::{OsdMap, Pool, flags};
use nacre_msg::peer::PeerMessage;
use nacre_msg::{OsdBackoff, OsdOpReply, RawMessage, WatchNotify};
use nacre_txn::{FetchFrom, Token};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Epoch, HObject, IntervalSet, OsdId, PgId, PoolId, SpgId, Stamp, UTime};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const POOL: PoolId = 3;
/// OSDs in the cluster; a PG has three of them.
pub(crate) const MEMBERS: OsdId = 5;

pub(crate) fn pg() -> PgId {
    PgId::new(POOL, 0)
}

pub(crate) fn spg() -> SpgId {
    SpgId::replicated(pg())
}

/// What travels on a wire.
pub(super) enum Packet {
    Peer(RawMessage),
    Op(ClientOp),
    Closed(SessionId),
    Reply(SessionId, u64, Box<OsdOpReply>),
    Watch(SessionId, Box<WatchNotify>),
    Backoff(SessionId, Box<OsdBackoff>),
    Ack(SessionId, u64),
}

/// End of a wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    Osd(OsdId),
    Client(usize),
}

pub(super) struct Osd {
    pub(super) running: bool,
    pub(super) pg: Option<Pg>,
    pub(super) disk: Disk,
    pub(super) epoch: Epoch,
    pub(super) fetches: VecDeque<(HObject, FetchFrom, Option<BufList>, Token)>,
    /// Messages of epochs that it has no map of, for a PG that it does not have.
    pub(super) early: Vec<(OsdId, PeerMessage)>,
    /// Clients' messages for a PG that it does not have.
    pub(super) held: Vec<ClientOp>,
    pub(super) reserver: Reserver,
    pub(super) throttle: RecoveryThrottle,
    /// The room that it says its store has.
    pub(super) room: StoreRoom,
}

impl Default for Osd {
    fn default() -> Self {
        Self {
            running: false,
            pg: None,
            disk: Disk::default(),
            epoch: 0,
            fetches: VecDeque::new(),
            early: Vec::new(),
            held: Vec::new(),
            reserver: Reserver::new(1),
            throttle: RecoveryThrottle::new(),
            room: StoreRoom::Ample,
        }
    }
}

/// What the monitor was asked for.
pub(super) enum Wish {
    UpThru(OsdId, Epoch),
    PgTemp(Vec<OsdId>),
    Boot(OsdId),
}

pub(crate) struct World {
    pub(crate) rng: SeededEntropy,
    pub(crate) now: Stamp,
    pub(super) maps: Vec<Arc<OsdMap>>,
    pub(super) osds: BTreeMap<OsdId, Osd>,
    pub(super) wires: BTreeMap<(End, End), VecDeque<Packet>>,
    pub(crate) clients: Vec<Client>,
    pub(super) last_session: u64,
    pub(super) wishes: Vec<Wish>,
    pub(crate) limits: LogLimits,
    /// How long clients' messages may be, in PGs that begin from now on.
    message_limits: MessageLimits,
    /// Objects that one comparison of a backfill looks at.
    pub(crate) scan_objects: usize,
    /// Most that one event asked of a disk.
    pub(crate) most_touched: Touched,
    /// Messages sent to an OSD, by kind.
    pub(crate) sent: BTreeMap<(OsdId, u16), usize>,
    /// Bounds of queues in PGs that begin from now on.
    pub(crate) queues: QueueLimits,
    /// One in so many of the messages between OSDs is lost, and nobody hears of it; 0 for none.
    pub(crate) losses: u64,
    /// Has the key of an OSD and lies: one in so many of its messages says something else.
    pub(crate) liar: Option<(OsdId, u64)>,
    pub(crate) created: bool,
    pub(crate) purged: IntervalSet,
    pub(crate) watch_messages: Vec<(usize, WatchNotify)>,
    /// Who has split off what; nobody serves it here.
    pub(crate) children: Vec<(OsdId, SpgId)>,
    /// What each primary has said of a merge.
    pub(crate) merges: Vec<(OsdId, crate::MergeState)>,
    /// Bytes of the longest message from one OSD to another.
    pub(crate) longest_message: usize,
    /// OSDs that said with a write that their store is full.
    pub(crate) said_full: BTreeSet<OsdId>,
    pub(super) effects: Effects,
    pub(super) verbose: bool,
}

impl World {
    pub(crate) fn new(seed: u64, clients: usize) -> Self {
        let flags = flags::pool::HASHPSPOOL | flags::pool::CREATING;
        let pool = Pool { size: 3, min_size: 2, pg_num: 1, pgp_num: 1, flags, ..Pool::default() };
        Self::with_pool(seed, clients, pool, Profile::new())
    }

    /// A PG of this pool, whose erasure-code profile this is, on the first OSDs.
    pub(super) fn with_pool(seed: u64, clients: usize, pool: Pool, profile: Profile) -> Self {
        let erasure_code_profiles = [(pool.erasure_code_profile.clone(), profile)].into();
        let mut map = OsdMap { epoch: 1, erasure_code_profiles, ..OsdMap::default() };
        map.set_max_osd(usize::try_from(MEMBERS).expect("small"));
        map.osd_state.fill(flags::osd::EXISTS | flags::osd::UP);
        map.osd_weight.fill(nacre_maps::WEIGHT_ONE);
        map.osd_info.iter_mut().for_each(|info| info.up_from = 1);
        map.pg_upmap.insert(pg(), (0..OsdId::from(pool.size)).collect());
        map.pools.insert(POOL, pool);
        map.pool_names.insert(POOL, "p".to_owned());
        let osd = |id| (id, Osd { running: true, epoch: 1, ..Osd::default() });
        let mut world = Self {
            rng: SeededEntropy(seed),
            now: Stamp(1),
            maps: vec![Arc::new(map)],
            osds: (0..MEMBERS).map(osd).collect(),
            wires: BTreeMap::new(),
            clients: (0..clients).map(|n| Client::new(4000 + n as u64)).collect(),
            last_session: 0,
            wishes: Vec::new(),
            limits: LogLimits::default(),
            message_limits: MessageLimits::default(),
            scan_objects: SCAN_OBJECTS_MAX,
            most_touched: Touched::default(),
            sent: BTreeMap::new(),
            queues: QueueLimits::default(),
            losses: 0,
            liar: None,
            created: false,
            purged: IntervalSet::new(),
            watch_messages: Vec::new(),
            children: Vec::new(),
            merges: Vec::new(),
            longest_message: 0,
            said_full: BTreeSet::new(),
            effects: Effects::new(),
            verbose: std::env::var_os("CHAOS_LOG").is_some(),
        };
        world.order_creation(0);
        world
    }

    /// Writes down what happens when somebody looks for it.
    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{}", what());
        }
    }

    pub(crate) fn chance(&mut self, of: u64) -> bool {
        self.rng.u64().is_multiple_of(of)
    }

    pub(crate) fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.rng.u64() % count.max(1) as u64).expect("small")
    }

    pub(crate) fn map(&self) -> &Arc<OsdMap> {
        self.maps.last().expect("a first map")
    }

    pub(super) fn map_at(&self, epoch: Epoch) -> Arc<OsdMap> {
        Arc::clone(&self.maps[usize::try_from(epoch - 1).expect("small")])
    }

    /// The monitor publishes a map.
    pub(crate) fn publish(&mut self, change: impl FnOnce(&mut OsdMap)) {
        let mut map = OsdMap::clone(self.map());
        map.epoch += 1;
        change(&mut map);
        if self.created {
            map.pools.get_mut(&POOL).into_iter().for_each(|pool| pool.flags &= !flags::pool::CREATING);
        }
        self.note(|| format!("map {} {:?}", map.epoch, map.pg_to_up_acting(pg())));
        self.maps.push(Arc::new(map));
    }

    pub(crate) fn disk(&mut self, osd: OsdId) -> &mut Disk {
        &mut self.osds.get_mut(&osd).expect("an OSD").disk
    }

    pub(crate) fn pg(&mut self, osd: OsdId) -> Option<&mut Pg> {
        self.osds.get_mut(&osd).and_then(|osd| osd.pg.as_mut())
    }

    pub(crate) fn is_running(&self, osd: OsdId) -> bool {
        self.osds[&osd].running
    }

    pub(crate) fn primary(&self) -> OsdId {
        self.map().pg_to_up_acting(pg()).acting_primary
    }

    /// Runs `f` on the copy of `osd` and carries its orders out.
    pub(super) fn with(&mut self, osd: OsdId, f: impl FnOnce(&mut Cx<'_>, &mut Option<Pg>)) {
        let (now, map) = (self.now, self.map_at(self.osds[&osd].epoch));
        let wall = UTime::from_unix(Duration::from_nanos(now.0));
        let mut effects = std::mem::take(&mut self.effects);
        let this = self.osds.get_mut(&osd).expect("an OSD");
        this.disk.take_touched();
        let mut pg = this.pg.take();
        let entropy = &mut self.rng;
        let throttle = &mut this.throttle;
        let (view, room, effects_out) = (&this.disk, this.room, &mut effects);
        let mut cx = Cx { now, wall, map: &map, view, room, entropy, throttle, effects: effects_out };
        f(&mut cx, &mut pg);
        this.pg = pg;
        let orders: Vec<Effect> = effects.drain().collect();
        self.effects = effects;
        for order in orders {
            let resumes = matches!(order, Effect::Resume);
            if resumes {
                self.most_touched = self.most_touched.max(self.disk(osd).take_touched());
            }
            self.execute_effect(osd, order);
        }
        self.most_touched = self.most_touched.max(self.disk(osd).take_touched());
        let honest = self.liar.is_none();
        if let Some(pg) = self.pg(osd).filter(|_| honest) {
            pg.check();
        }
        self.hand_out_places(osd);
    }

    pub(super) fn hand_out_places(&mut self, osd: OsdId) {
        let decisions = self.osds.get_mut(&osd).expect("an OSD").reserver.take_decisions();
        for decision in decisions.into_iter().filter(|decision| decision.spg == spg()) {
            self.event(osd, Event::Reservation(decision));
        }
    }

    /// Another PG of `osd` has more urgent work, and takes all places; or it has done it.
    pub(crate) fn take_places(&mut self, osd: OsdId, take: bool) {
        let other = SpgId::replicated(PgId::new(POOL + 1, 0));
        for side in [Side::Local, Side::Remote] {
            let reserver = &mut self.osds.get_mut(&osd).expect("an OSD").reserver;
            if take {
                reserver.ask(other, side, 1, u32::MAX)
            } else {
                reserver.give_back(&other, side)
            }
            self.hand_out_places(osd);
        }
    }

    /// Another PG of `osd` holds the place of a primary, under this priority.
    pub(crate) fn take_places_at(&mut self, osd: OsdId, priority: u32) {
        let other = SpgId::replicated(PgId::new(POOL + 1, 0));
        self.osds.get_mut(&osd).expect("an OSD").reserver.ask(other, Side::Local, 1, priority);
        self.hand_out_places(osd);
    }

    /// From now on the store of `osd` has this room.
    pub(crate) fn set_room(&mut self, osd: OsdId, room: StoreRoom) {
        self.osds.get_mut(&osd).expect("an OSD").room = room;
    }

    pub(crate) fn throttle(&mut self, osd: OsdId) -> &mut RecoveryThrottle {
        &mut self.osds.get_mut(&osd).expect("an OSD").throttle
    }

    /// The disk gives what was asked for first; false when nothing is.
    pub(crate) fn fetch(&mut self, osd: OsdId) -> bool {
        let this = self.osds.get_mut(&osd).expect("an OSD");
        let Some((object, from, data, token)) = this.fetches.pop_front() else { return false };
        match data {
            Some(data) => self.event(osd, Event::Brought(token, data)),
            None => {
                this.disk.warm_up(object, from);
                self.event(osd, Event::Fetched(token));
            }
        }
        true
    }

    pub(crate) fn event(&mut self, osd: OsdId, event: Event) {
        self.note(|| {
            let mut text = format!("osd.{osd} {event:?}");
            text.truncate(900);
            text
        });
        self.with(osd, |cx, pg| {
            if let Some(pg) = pg {
                pg.handle(cx, event);
            }
        });
    }

    pub(super) fn tuning(&self) -> Tuning {
        Tuning {
            limits: self.limits,
            message_limits: self.message_limits,
            queues: self.queues,
            scan_objects: self.scan_objects,
            ..Tuning::default()
        }
    }

    /// Takes these bounds over where PGs are already.
    pub(crate) fn bound_queues(&mut self, queues: QueueLimits) {
        self.queues = queues;
        self.tune_all();
    }

    /// The same for clients' messages.
    pub(crate) fn bound_messages(&mut self, limits: MessageLimits) {
        self.message_limits = limits;
        self.tune_all();
    }

    fn tune_all(&mut self) {
        let tuning = self.tuning();
        self.osds.values_mut().filter_map(|osd| osd.pg.as_mut()).for_each(|pg| pg.tune(&tuning));
    }

    pub(super) fn execute_effect(&mut self, osd: OsdId, order: Effect) {
        match order {
            Effect::Reply { session, tid, message, .. } => {
                if let Some(client) = self.client_of(session) {
                    self.put(End::Osd(osd), End::Client(client), Packet::Reply(session, tid, message));
                }
            }
            Effect::Watch { session, message } => {
                if let Some(client) = self.client_of(session) {
                    self.put(End::Osd(osd), End::Client(client), Packet::Watch(session, message));
                }
            }
            Effect::Backoff { session, message } => {
                if let Some(client) = self.client_of(session) {
                    self.put(End::Osd(osd), End::Client(client), Packet::Backoff(session, message));
                }
            }
            Effect::Peer { osd: to, message } => {
                if matches!(&message, PeerMessage::RepOpReply(reply) if reply.is_failsafe_full) {
                    self.said_full.insert(osd);
                }
                self.put(End::Osd(osd), End::Osd(to), Packet::Peer(message.encode(0)));
            }
            Effect::Peers { osds, message } => {
                for to in osds {
                    self.put(End::Osd(osd), End::Osd(to), Packet::Peer(message.clone()));
                }
            }
            Effect::Submit { txn, token } => self.disk(osd).submit(txn, token),
            Effect::Fetch { object, offset, length, from, token } => {
                let this = self.osds.get_mut(&osd).expect("an OSD");
                let data = (from == FetchFrom::AnywhereOnce)
                    .then(|| this.disk.glimpse(&object, offset, length))
                    .flatten();
                this.fetches.push_back((object, from, data, token));
            }
            Effect::WantUpThru { epoch } => self.wishes.push(Wish::UpThru(osd, epoch)),
            Effect::WantPgTemp { acting, .. } => self.wishes.push(Wish::PgTemp(acting)),
            Effect::Created(_) => self.created = true,
            Effect::Purged { snaps, .. } => self.purged.union_with(&snaps),
            Effect::Reserve { side, number, priority } => {
                self.osds.get_mut(&osd).expect("an OSD").reserver.ask(spg(), side, number, priority);
            }
            Effect::Unreserve { side } => {
                self.osds.get_mut(&osd).expect("an OSD").reserver.give_back(&spg(), side);
            }
            Effect::Removed => {
                let this = self.osds.get_mut(&osd).expect("an OSD");
                this.pg = None;
                this.reserver.forget(&spg());
            }
            Effect::Merge(state) => self.merges.push((osd, state)),
            Effect::Split { child, .. } => self.children.push((osd, child)),
            Effect::Resume => self.event(osd, Event::Resume),
            Effect::PushMaps { .. } => {}
        }
    }

    /// The monitor tells `osd` to create the PG, as long as nobody has.
    pub(super) fn order_creation(&mut self, osd: OsdId) {
        self.create_info(osd, PgCreateInfo::ordered(1));
    }

    pub(super) fn create_info(&mut self, osd: OsdId, create_info: PgCreateInfo) {
        let (epoch, tuning) = (self.osds[&osd].epoch, self.tuning());
        let from = create_info.epoch.min(epoch);
        self.osds.get_mut(&osd).expect("an OSD").epoch = from;
        self.with(osd, |cx, pg| {
            let mut born = Pg::create(cx, osd, spg(), create_info);
            born.tune(&tuning);
            *pg = Some(born);
        });
        for next in from + 1..=epoch {
            self.osds.get_mut(&osd).expect("an OSD").epoch = next;
            self.event(osd, Event::Map);
        }
        for op in std::mem::take(&mut self.osds.get_mut(&osd).expect("an OSD").held) {
            self.event(osd, Event::ClientOp(op));
        }
    }

    /// A PG that ends is taken in by this one. Nobody serves it here, so its copy is as it was split off.
    pub(super) fn absorb(&mut self, osd: OsdId, map: &OsdMap) {
        let Some(sources) = self.pg(osd).map(|pg| pg.sources_in(map)).filter(|due| !due.is_empty()) else {
            return;
        };
        let before = self.map_at(self.osds[&osd].epoch);
        let load = |source: SpgId| Pg::load(&self.osds[&osd].disk, osd, source, &before);
        let copies: Vec<Pg> = sources.into_iter().filter_map(load).collect();
        self.osds.get_mut(&osd).expect("an OSD").epoch += 1;
        self.with(osd, |cx, pg| {
            if let Some(pg) = pg {
                pg.absorb(cx, copies);
            }
        });
        self.osds.get_mut(&osd).expect("an OSD").epoch -= 1;
    }

    pub(super) fn advance(&mut self, osd: OsdId) {
        let next = self.map_at(self.osds[&osd].epoch + 1);
        self.absorb(osd, &next);
        self.osds.get_mut(&osd).expect("an OSD").epoch += 1;
        self.event(osd, Event::Map);
        let this = self.osds.get_mut(&osd).expect("an OSD");
        let epoch = this.epoch;
        let (early, held) = (std::mem::take(&mut this.early), std::mem::take(&mut this.held));
        for (from, message) in early {
            self.peer_message(osd, from, message);
        }
        held.into_iter().for_each(|op| self.client_op(osd, op));
        if self.osds[&osd].pg.is_none()
            && !self.created
            && self.map_at(epoch).pg_to_up_acting(pg()).acting_primary == osd
        {
            self.order_creation(osd);
        }
    }

    /// An OSD learns of all maps.
    pub(crate) fn advance_to_newest(&mut self, osd: OsdId) {
        while self.osds[&osd].epoch < self.map().epoch {
            self.advance(osd);
        }
    }

    /// Clients' messages at OSDs that have no copy: held for one that may come.
    pub(crate) fn held_without_pg(&self) -> usize {
        self.osds.values().map(|osd| osd.held.len()).sum()
    }
}
