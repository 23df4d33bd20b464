//! The cluster: OSDs with one copy each, the wires between them, the monitor, the clients.

use super::client::{Client, object};
use super::disk::{Disk, Touched};
use crate::log::LogLimits;
use crate::recovery::SCAN_OBJECTS_MAX;
use crate::{
    ClientOp, Cx, Effect, Effects, Event, Lineage, Pg, PgCreateInfo, QueueLimits, RecoveryThrottle, Reserver,
    SessionId, Side, StoreRoom, Tuning,
};
use nacre_buf::BufList;
use nacre_maps::{OsdMap, Pool, flags};
use nacre_msg::peer::PeerMessage;
use nacre_msg::size::{FRONT_BYTES_MAX, PEER_BYTES_MAX};
use nacre_msg::{OsdBackoff, OsdOpReply, RawMessage, SubOp, WatchNotify, backoff_op};
use nacre_txn::{FetchFrom, Token, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Epoch, HObject, IntervalSet, OsdId, PgId, PoolId, SnapId, SpgId, Stamp, UTime};
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
enum Packet {
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
enum End {
    Osd(OsdId),
    Client(usize),
}

struct Osd {
    running: bool,
    pg: Option<Pg>,
    disk: Disk,
    epoch: Epoch,
    fetches: VecDeque<(HObject, FetchFrom, Option<BufList>, Token)>,
    /// Messages of epochs that it has no map of, for a PG that it does not have.
    early: Vec<(OsdId, PeerMessage)>,
    /// Clients' messages for a PG that it does not have.
    held: Vec<ClientOp>,
    reserver: Reserver,
    throttle: RecoveryThrottle,
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
enum Wish {
    UpThru(OsdId, Epoch),
    PgTemp(Vec<OsdId>),
    Boot(OsdId),
}

pub(crate) struct World {
    pub(crate) rng: SeededEntropy,
    pub(crate) now: Stamp,
    maps: Vec<Arc<OsdMap>>,
    osds: BTreeMap<OsdId, Osd>,
    wires: BTreeMap<(End, End), VecDeque<Packet>>,
    pub(crate) clients: Vec<Client>,
    last_session: u64,
    wishes: Vec<Wish>,
    pub(crate) limits: LogLimits,
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
    /// Who has said what of a merge.
    pub(crate) merges: Vec<(OsdId, crate::MergeState)>,
    /// Bytes of the longest message from one OSD to another.
    pub(crate) longest_message: usize,
    /// OSDs that said with a write that their store is full.
    pub(crate) said_full: BTreeSet<OsdId>,
    effects: Effects,
    verbose: bool,
}

impl World {
    pub(crate) fn new(seed: u64, clients: usize) -> Self {
        let flags = flags::pool::HASHPSPOOL | flags::pool::CREATING;
        Self::with_pool(
            seed,
            clients,
            Pool { size: 3, min_size: 2, pg_num: 1, pgp_num: 1, flags, ..Pool::default() },
        )
    }

    /// A PG of this pool, on the first OSDs.
    pub(super) fn with_pool(seed: u64, clients: usize, pool: Pool) -> Self {
        let mut map = OsdMap { epoch: 1, ..OsdMap::default() };
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

    fn map_at(&self, epoch: Epoch) -> Arc<OsdMap> {
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
    fn with(&mut self, osd: OsdId, f: impl FnOnce(&mut Cx<'_>, &mut Option<Pg>)) {
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

    fn hand_out_places(&mut self, osd: OsdId) {
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

    fn put(&mut self, from: End, to: End, mut packet: Packet) {
        if let Packet::Peer(raw) = &mut packet
            && !self.may_lie(from, raw)
        {
            return;
        }
        if let Packet::Peer(raw) = &packet {
            if self.loses(raw) {
                return;
            }
            // No messenger would take it.
            assert!(raw.front.len() <= FRONT_BYTES_MAX as usize, "a front of {} bytes", raw.front.len());
            assert!(raw.data.len() <= PEER_BYTES_MAX as usize, "{} bytes of data", raw.data.len());
            self.longest_message = self.longest_message.max(raw.front.len() + raw.data.len());
            if let End::Osd(osd) = to {
                *self.sent.entry((osd, raw.kind)).or_default() += 1;
            }
            self.note(|| {
                format!(
                    "  {from:?} -> {to:?} {:?}",
                    PeerMessage::decode(raw.clone()).map(|m| (m.name(), m.header().epoch))
                )
            });
        }
        self.wires.entry((from, to)).or_default().push_back(packet);
    }

    /// False when what the liar says cannot be read: its session is reset.
    fn may_lie(&mut self, from: End, raw: &mut RawMessage) -> bool {
        let Some((_, of)) = self.liar.filter(|(liar, _)| from == End::Osd(*liar)) else { return true };
        // What it writes in its own copies it may write in ours: that is no lie.
        let is_write = raw.kind == nacre_msg::peer::RepOp::KIND || raw.kind == nacre_msg::peer::Push::KIND;
        if is_write || !self.chance(of) {
            return true;
        }
        let mut front = raw.front.to_vec();
        for _ in 0..=self.pick(3) {
            let at = self.pick(front.len());
            front[at] = match self.pick(3) {
                0 => front[at] ^ 1 << self.pick(8),
                1 => front[at].wrapping_add(1),
                _ => u8::try_from(self.pick(256)).unwrap_or(0),
            };
        }
        raw.front = front.into();
        PeerMessage::decode(raw.clone()).is_ok()
    }

    fn loses(&mut self, raw: &RawMessage) -> bool {
        const LOST: [&str; 15] = [
            "Query",
            "Notify",
            "LogReply",
            "Activate",
            "Activated",
            "Scan",
            "ScanReply",
            "RepOp",
            "RepOpReply",
            "Pull",
            "Push",
            "PushReply",
            "Release",
            "ScrubRequest",
            "ScrubReply",
        ];
        let named = |name: &str| PeerMessage::decode(raw.clone()).is_ok_and(|message| message.name() == name);
        self.losses > 0 && self.chance(self.losses) && LOST.into_iter().any(named)
    }

    fn tuning(&self) -> Tuning {
        Tuning {
            limits: self.limits,
            queues: self.queues,
            scan_objects: self.scan_objects,
            ..Tuning::default()
        }
    }

    /// Takes these bounds over where PGs are already.
    pub(crate) fn bound_queues(&mut self, queues: QueueLimits) {
        self.queues = queues;
        let tuning = self.tuning();
        self.osds.values_mut().filter_map(|osd| osd.pg.as_mut()).for_each(|pg| pg.tune(&tuning));
    }

    fn client_of(&self, session: SessionId) -> Option<usize> {
        let owns = |client: &Client| client.sessions.values().any(|open| open.id == session);
        self.clients.iter().position(owns)
    }

    fn execute_effect(&mut self, osd: OsdId, order: Effect) {
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
    fn order_creation(&mut self, osd: OsdId) {
        self.create_info(osd, PgCreateInfo::ordered(1));
    }

    fn create_info(&mut self, osd: OsdId, create_info: PgCreateInfo) {
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

    /// An OSD's process dies, and everybody learns of it.
    pub(crate) fn lose(&mut self, osd: OsdId) {
        self.crash(osd);
        self.mark_down(osd);
        self.run_until_idle();
    }

    /// osd.`alone` of the first three serves what `writes` brings all by itself, and is gone then. The one below it has the log of
    /// that, and not the objects; the third is away.
    pub(crate) fn leave_alone(&mut self, alone: OsdId, writes: impl FnOnce(&mut Self)) {
        let (next, third) = ((alone + 2) % 3, (alone + 1) % 3);
        self.publish(|map| map.pools.values_mut().for_each(|pool| pool.min_size = 1));
        self.run_until_idle();
        self.lose(next);
        self.lose(third);
        writes(self);
        self.restart(next);
        (0..3).for_each(|osd| self.take_places(osd, true));
        self.run_until_idle();
        self.take_places(next, true);
        self.run_until_idle();
        self.lose(alone);
    }

    /// An operator gives up all that the PG held; its primary makes it anew.
    pub(crate) fn recreate(&mut self) {
        self.publish(|_| ());
        self.run_until_idle();
        let (primary, epoch) = (self.primary(), self.map().epoch);
        self.event(primary, Event::GiveUp);
        self.create_info(primary, PgCreateInfo::ordered(epoch));
    }

    /// A PG that ends is taken in by this one. Nobody serves it here, so its copy is as it was split off.
    fn absorb(&mut self, osd: OsdId, map: &OsdMap) {
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

    fn advance(&mut self, osd: OsdId) {
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

    fn peer_message(&mut self, osd: OsdId, from: OsdId, message: PeerMessage) {
        if self.osds[&osd].pg.is_none() {
            if message.header().epoch > self.osds[&osd].epoch {
                return self.osds.get_mut(&osd).expect("an OSD").early.push((from, message));
            }
            match PgCreateInfo::called_for(&message) {
                None => return self.with(osd, |cx, _| Pg::reply_without_pg(cx, from, &message)),
                Some(create_info) => self.create_info(osd, create_info),
            }
        }
        self.event(osd, Event::Peer { from, message });
    }

    fn client_op(&mut self, osd: OsdId, op: ClientOp) {
        if self.osds[&osd].pg.is_none() {
            return self.osds.get_mut(&osd).expect("an OSD").held.push(op);
        }
        self.event(osd, Event::ClientOp(op));
    }

    /// Clients' messages at OSDs that have no copy: held for one that may come.
    pub(crate) fn held_without_pg(&self) -> usize {
        self.osds.values().map(|osd| osd.held.len()).sum()
    }

    /// Delivers the oldest packet of a wire.
    fn deliver(&mut self, wire: (End, End)) {
        let Some(packet) = self.wires.get_mut(&wire).and_then(VecDeque::pop_front) else { return };
        match (wire.1, packet) {
            (End::Osd(osd), _) if !self.osds[&osd].running => {}
            (End::Osd(osd), Packet::Peer(raw)) => {
                let End::Osd(from) = wire.0 else { unreachable!("peers are OSDs") };
                let message = PeerMessage::decode(raw).expect("what a peer encoded");
                self.peer_message(osd, from, message);
            }
            (End::Osd(osd), Packet::Op(op)) => self.client_op(osd, op),
            (End::Osd(osd), Packet::Closed(session)) => {
                self.osds.get_mut(&osd).expect("an OSD").held.retain(|op| op.session.id != session);
                self.event(osd, Event::SessionClosed(session));
            }
            (End::Osd(osd), Packet::Ack(session, id)) => {
                self.event(osd, Event::BackoffAck { session, id });
            }
            (End::Client(at), Packet::Backoff(session, message)) => {
                let End::Osd(osd) = wire.0 else { unreachable!("OSDs send backoffs") };
                self.on_backoff(at, osd, session, *message);
            }
            (End::Client(at), Packet::Reply(session, tid, message)) => {
                let client = &mut self.clients[at];
                let open = client.sessions.values().any(|open| open.id == session);
                if open && client.sent.remove(&tid).is_some() {
                    client.replies.insert(tid, *message);
                }
            }
            (End::Client(at), Packet::Watch(session, message)) => {
                if self.clients[at].sessions.values().any(|open| open.id == session) {
                    self.watch_messages.push((at, *message));
                }
            }
            _ => unreachable!("a packet for the other kind of end"),
        }
    }

    fn on_backoff(&mut self, at: usize, osd: OsdId, session: SessionId, message: OsdBackoff) {
        let client = &mut self.clients[at];
        if client.sessions.get(&osd).is_none_or(|open| open.id != session) {
            return;
        }
        if message.op == backoff_op::BLOCK {
            client.held.insert((osd, message.id), (message.begin, message.end));
            return self.put(End::Client(at), End::Osd(osd), Packet::Ack(session, message.id));
        }
        let (begin, end) = client.held.remove(&(osd, message.id)).expect("it was told to hold");
        let covers = |name: &str| {
            let object = object(name);
            object == begin || (begin < object && object < end)
        };
        self.resend(at, |sent| sent.target == Some(osd) && covers(&sent.object));
    }

    /// Sends a request, or one more time.
    pub(crate) fn send(&mut self, at: usize, tid: u64) {
        let epoch = self.clients[at].epoch;
        let primary = self.map_at(epoch).pg_to_up_acting(pg()).acting_primary;
        let client = &mut self.clients[at];
        let Some(sent) = client.sent.get_mut(&tid) else { return };
        sent.retries += i32::from(sent.target.is_some());
        sent.target = None;
        if primary < 0 || !self.osds[&primary].running {
            return; // goes out with the next map
        }
        sent.target = Some(primary);
        if client.holds(primary, &client.sent[&tid].object) {
            return;
        }
        let session = client.session(primary, &mut self.last_session);
        let message = client.message(tid, session);
        self.put(End::Client(at), End::Osd(primary), Packet::Op(message));
    }

    /// A client sends a new request.
    pub(crate) fn request(&mut self, at: usize, object: &str, ops: Vec<SubOp>) -> u64 {
        let tid = self.clients[at].request(object, ops);
        self.send(at, tid);
        tid
    }

    /// A client sends a request that was answered once more.
    pub(crate) fn repeat(&mut self, at: usize, tid: u64, object: &str, ops: Vec<SubOp>) {
        let (object, snaps) = (object.to_owned(), Vec::new());
        let sent = super::Sent { object, ops, snaps, flags: 0, target: None, retries: 1 };
        self.clients[at].replies.remove(&tid);
        self.clients[at].sent.insert(tid, sent);
        self.send(at, tid);
    }

    /// The same under a snapshot context, newest first.
    pub(crate) fn request_with_snaps(
        &mut self,
        at: usize,
        object: &str,
        ops: Vec<SubOp>,
        snaps: Vec<SnapId>,
    ) -> u64 {
        let tid = self.clients[at].request(object, ops);
        self.clients[at].sent.get_mut(&tid).expect("just made").snaps = snaps;
        self.send(at, tid);
        tid
    }

    /// The monitor takes a running OSD for dead; it says otherwise.
    pub(crate) fn defame(&mut self, osd: OsdId) {
        if self.osds[&osd].running && self.map().is_up(osd) {
            self.mark_down(osd);
            self.wishes.push(Wish::Boot(osd));
        }
    }

    pub(crate) fn has_wishes(&self) -> bool {
        !self.wishes.is_empty()
    }

    /// The connection between two OSDs breaks, with all that is on it.
    pub(crate) fn cut(&mut self, one: OsdId, other: OsdId) {
        for (from, to) in [(one, other), (other, one)] {
            self.wires.remove(&(End::Osd(from), End::Osd(to)));
        }
        for (osd, peer) in [(one, other), (other, one)] {
            if self.osds[&osd].running {
                self.osds.get_mut(&osd).expect("an OSD").early.retain(|(from, _)| *from != peer);
                self.event(osd, Event::PeerReset(peer));
            }
        }
    }

    /// A client's connection breaks; it makes a new one and sends everything again.
    pub(crate) fn reset_session(&mut self, at: usize, osd: OsdId) {
        let Some(session) = self.clients[at].sessions.remove(&osd) else { return };
        self.clients[at].held.retain(|(of, _), _| *of != osd);
        self.wires.remove(&(End::Osd(osd), End::Client(at)));
        self.wires.remove(&(End::Client(at), End::Osd(osd)));
        if self.osds[&osd].running {
            self.put(End::Client(at), End::Osd(osd), Packet::Closed(session.id));
        }
        self.resend(at, |sent| sent.target == Some(osd));
    }

    fn resend(&mut self, at: usize, which: impl Fn(&super::Sent) -> bool) {
        let again = self.clients[at].sent.iter().filter(|(_, sent)| which(sent)).map(|(tid, _)| *tid);
        let again: Vec<u64> = again.collect();
        again.into_iter().for_each(|tid| self.send(at, tid));
    }

    /// A client learns of the next map; what another primary serves now goes there.
    fn inform(&mut self, at: usize) {
        self.clients[at].epoch += 1;
        let map = self.map_at(self.clients[at].epoch);
        let primary = map.pg_to_up_acting(pg()).acting_primary;
        self.resend(at, |sent| sent.target.is_none() || sent.target != Some(primary));
    }

    /// An OSD's process dies.
    pub(crate) fn crash(&mut self, osd: OsdId) {
        self.note(|| format!("osd.{osd} crashes"));
        let this = self.osds.get_mut(&osd).expect("an OSD");
        if !this.running {
            return;
        }
        this.running = false;
        this.pg = None;
        this.reserver = Reserver::new(1);
        this.disk.crash();
        this.fetches.clear();
        (this.early, this.held) = (Vec::new(), Vec::new());
        self.wires.retain(|(from, to), _| *from != End::Osd(osd) && *to != End::Osd(osd));
        for at in 0..self.clients.len() {
            self.clients[at].sessions.remove(&osd);
            self.clients[at].held.retain(|(of, _), _| *of != osd);
            for sent in self.clients[at].sent.values_mut().filter(|sent| sent.target == Some(osd)) {
                sent.target = None;
            }
        }
    }

    /// It comes back: tells the monitor, which marks it down and up again.
    pub(crate) fn restart(&mut self, osd: OsdId) {
        self.note(|| format!("osd.{osd} restarts"));
        let this = self.osds.get_mut(&osd).expect("an OSD");
        if this.running {
            return;
        }
        this.running = true;
        self.wishes.push(Wish::Boot(osd));
        if Pg::stored_epoch(&self.osds[&osd].disk, &spg()).is_none() {
            let this = self.osds.get_mut(&osd).expect("an OSD");
            let (through, note) = Pg::note_damage(&this.disk, spg(), this.epoch);
            this.epoch = self.maps.last().expect("a first map").epoch;
            if this.disk.has_collection() {
                this.disk.submit(note.unwrap_or_else(|| Transaction::new(spg())), Token(u64::MAX));
                self.begin_in_rubble(osd, through);
            }
            return;
        }
        let disk = &self.osds[&osd].disk;
        let epoch = Pg::stored_epoch(disk, &spg()).expect("readable records");
        let mut pg = Pg::load(disk, osd, spg(), &self.map_at(epoch)).expect("readable records");
        pg.tune(&self.tuning());
        let this = self.osds.get_mut(&osd).expect("an OSD");
        (this.pg, this.epoch) = (Some(pg), epoch);
    }

    /// What lies there cannot be read: the copy begins with what the maps tell, as the shard does it.
    fn begin_in_rubble(&mut self, osd: OsdId, through: Epoch) {
        let (first, rest) = self.maps.split_first().expect("a first map");
        let mut lineage = Lineage::begin(spg(), first, false);
        rest.iter().for_each(|map| lineage.advance(map));
        self.create_info(osd, lineage.into_lost(through));
    }

    /// The monitor marks a dead OSD down.
    pub(crate) fn mark_down(&mut self, osd: OsdId) {
        let at = usize::try_from(osd).expect("small");
        self.publish(|map| {
            map.osd_state[at] &= !flags::osd::UP;
            map.osd_info[at].down_at = map.epoch;
        });
    }

    fn grant(&mut self, wish: Wish) {
        match wish {
            Wish::UpThru(osd, epoch) => {
                let at = usize::try_from(osd).expect("small");
                if self.map().is_up(osd) && self.map().osd_info[at].up_thru < epoch {
                    let thru = self.map().epoch;
                    self.publish(|map| map.osd_info[at].up_thru = thru);
                }
            }
            Wish::PgTemp(acting) => {
                if acting.is_empty() && self.map().pg_temp.contains_key(&pg()) {
                    self.publish(|map| drop(map.pg_temp.remove(&pg())));
                } else if !acting.is_empty() && acting.iter().all(|osd| self.map().is_up(*osd)) {
                    self.publish(|map| drop(map.pg_temp.insert(pg(), acting)));
                }
            }
            Wish::Boot(osd) => {
                let at = usize::try_from(osd).expect("small");
                if self.map().is_up(osd) {
                    self.mark_down(osd);
                }
                self.publish(|map| {
                    map.osd_state[at] |= flags::osd::UP;
                    map.osd_info[at].up_from = map.epoch;
                });
            }
        }
    }

    /// One thing that can happen happens; false when nothing can.
    pub(crate) fn step(&mut self) -> bool {
        self.now = self.now + Duration::from_micros(100);
        let mut choices: Vec<Choice> = Vec::new();
        let busy = self.wires.iter().filter(|(_, packets)| !packets.is_empty());
        choices.extend(busy.map(|(wire, _)| Choice::Deliver(*wire)));
        let newest = self.map().epoch;
        for (id, osd) in self.osds.iter().filter(|(_, osd)| osd.running) {
            choices.extend(osd.disk.has_pending().then_some(Choice::Sync(*id)));
            choices.extend((!osd.fetches.is_empty()).then_some(Choice::Fetch(*id)));
            choices.extend((osd.epoch < newest).then_some(Choice::Advance(*id)));
            let due = osd.pg.as_ref().and_then(Pg::next_deadline).filter(|due| *due <= self.now);
            choices.extend(due.map(|_| Choice::Due(*id)));
        }
        let behind = self.clients.iter().enumerate().filter(|(_, client)| client.epoch < newest);
        choices.extend(behind.map(|(at, _)| Choice::Inform(at)));
        choices.extend((!self.wishes.is_empty()).then_some(Choice::Grant));
        if choices.is_empty() {
            return false;
        }
        let at = self.pick(choices.len());
        match choices.swap_remove(at) {
            Choice::Deliver(wire) => self.deliver(wire),
            Choice::Sync(osd) => {
                if let Some(token) = self.disk(osd).sync_one() {
                    self.event(osd, Event::Durable(token));
                }
            }
            Choice::Fetch(osd) => {
                self.fetch(osd);
            }
            Choice::Advance(osd) => self.advance(osd),
            Choice::Due(osd) => self.event(osd, Event::Tick),
            Choice::Inform(at) => self.inform(at),
            Choice::Grant => {
                let wish = self.wishes.remove(0);
                self.grant(wish);
            }
        }
        true
    }

    /// Time passes for everybody.
    pub(crate) fn tick(&mut self, passed: Duration) {
        self.now = self.now + passed;
        for osd in 0..MEMBERS {
            if self.osds[&osd].running {
                self.event(osd, Event::Tick);
            }
        }
    }

    /// Goes on until nothing more happens.
    pub(crate) fn run_until_idle(&mut self) {
        for _ in 0..200_000 {
            if !self.step() {
                return;
            }
        }
        panic!("no end: {}", self.describe());
    }

    /// Everybody comes back; time passes until the PG is clean.
    pub(crate) fn heal(&mut self) {
        for osd in 0..MEMBERS {
            self.restart(osd);
            self.take_places(osd, false);
        }
        for _ in 0..20 {
            self.run_until_idle();
            self.tick(Duration::from_secs(1));
        }
        self.run_until_idle();
    }

    /// Sends and waits for the answer.
    pub(crate) fn call(&mut self, at: usize, object: &str, ops: Vec<SubOp>) -> OsdOpReply {
        let tid = self.request(at, object, ops);
        self.run_until_idle();
        self.clients[at].replies.remove(&tid).unwrap_or_else(|| panic!("no reply: {}", self.describe()))
    }

    /// For people who look at a failure.
    pub(crate) fn describe(&self) -> String {
        let up: Vec<OsdId> = self.map().up_osds().collect();
        let mut out = format!("map {} up {up:?} {:?}", self.map().epoch, self.map().pg_to_up_acting(pg()));
        for (id, osd) in &self.osds {
            let copy = osd.pg.as_ref().map(|pg| {
                let info = pg.info();
                format!(
                    "{} at {} knows {:?} update {} complete {} tail {} les {} incomplete {} missing {:?} {:?}",
                    pg.phase_name(),
                    pg.epoch(),
                    pg.state.peers.iter().map(|(osd, peer)| (osd, peer.activated, peer.missing.len())).collect::<Vec<_>>(),
                    info.last_update,
                    info.last_complete,
                    info.log_tail,
                    info.last_epoch_started,
                    info.is_incomplete(),
                    pg.state.missing,
                    pg.waiting().collect::<Vec<_>>(),
                )
            });
            out += &format!("\n osd.{id} running {} epoch {}: {copy:?}", osd.running, osd.epoch);
        }
        for client in &self.clients {
            out += &format!("\n client {} epoch {} waits for {:?}", client.gid, client.epoch, client.sent);
        }
        out
    }

    /// Members hold the same objects.
    pub(crate) fn assert_equal_copies(&mut self) {
        if self.is_coded() {
            return self.assert_related_chunks();
        }
        let members = self.map().pg_to_up_acting(pg()).acting;
        let first = self.osds[&members[0]].disk.objects().clone();
        for osd in members {
            assert_eq!(self.osds[&osd].disk.objects(), &first, "osd.{osd} differs");
        }
    }

    /// An object, or a clone, on the primary's disk.
    pub(crate) fn stored_as(&self, object: &HObject) -> Option<&crate::ops::testing::Stored> {
        self.osds[&self.primary()].disk.objects().get(object)
    }

    /// The object on the primary's disk.
    pub(crate) fn stored(&self, name: &str) -> Option<&crate::ops::testing::Stored> {
        self.osds[&self.primary()].disk.objects().get(&object(name))
    }
}

enum Choice {
    Deliver((End, End)),
    Sync(OsdId),
    Fetch(OsdId),
    Advance(OsdId),
    Due(OsdId),
    Inform(usize),
    Grant,
}
