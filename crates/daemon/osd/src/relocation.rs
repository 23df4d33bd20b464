//! A PG goes to another partition of its OSD's store: it is about to be merged with one that is there.
//!
//! Which partition a PG is to be in follows from the map (`ShardRouter::learn_map`), so that all shards agree on it: a PG that is about to be
//! merged belongs where the one is that takes it in, and stays there, merged or not. The map says so also to the PG, which begins an
//! interval with it: a copy that is on its way is silent, so its primary cannot say that it is ready to be merged before all copies have
//! arrived.
//!
//! ```text
//!   shard of the old partition                              shard of the new one, perhaps the same
//!   map: the PG ends here, as by a kill       --Begin-->    all that comes for it is kept; a collection "arriving: in part"
//!   reads, a piece in a turn                  <--More---    so many times as pieces may be under way, and as each is durable
//!                                             --Piece-->    written
//!   (the last one says "arriving: whole")     <-Complete-   all is durable
//!   removes the collection, durably           ---Gone--->   takes "arriving" away, loads the PG, leads it on from its last map
//! ```
//! The new shard begins once it has the map that called the PG, and both keep the maps that the PG has to see there. Pieces are bounded in
//! bytes and in what they look at: a shard reads one in a turn, and writes three for each shard at most, between which others are served.
//!
//! After a kill at any point: as long as there is a collection without the note, that is the PG, and the copy begins anew. Where there is
//! none, the one that is whole is the PG.

use crate::own_collection::OWN_COLLECTION;
use crate::pg_driver::{PgDriver, room};
use crate::shard_msg::{MovedPg, ShardMsg};
use crate::shard_net::ShardCx;
use nacre_maps::OsdMap;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_pg::{Arriving, CollectionCopy, CopyStep, Event, Pg};
use nacre_store::ObjectStore;
use nacre_txn::{FetchFrom, Op, StoreToken, Transaction};
use nacre_types::{Epoch, PgId, SpgId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Pieces of one copy that are under way at a time.
const PIECES_MAX: usize = 3;
/// What a change of data may take beside it: blocks that it fills in part, at both ends.
const ENDS_BYTES: u64 = 2 * nacre_txn::EXTENT_BYTES;
/// The store's names of what is asked of it here: behind those of the bench, which counts blocks.
const TOKENS_FROM: u64 = 1 << 63;

/// What two shards say to each other of a PG that changes its partition, or a shard to itself.
#[derive(Debug)]
pub(crate) enum RelocationMsg {
    /// To the new one: its copy has come to the map of `seen`; `epoch` is the map of the sender.
    Begin { from: usize, to: usize, seen: Epoch, epoch: Epoch },
    /// To the new one: there is no copy that could come; by the map of `epoch`.
    Absent { epoch: Epoch },
    /// To the new one: changes, perhaps the last ones.
    Piece { ops: Vec<Op>, is_last: bool },
    /// To the new one: the copy is where it was no more.
    Gone,
    /// To the old one: one piece more.
    More,
    /// To the old one: all is there.
    Complete,
}

/// A collection that a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) partition: usize,
    pub(crate) spg: SpgId,
    pub(crate) arriving: Option<Arriving>,
}

/// The PGs' collections in the partitions that a shard has.
pub(crate) fn located(store: &dyn ObjectStore, shard: usize) -> Vec<Located> {
    let of = |(partition, store): (usize, &dyn ObjectStore)| -> Vec<Located> {
        let pgs = store.collections().into_iter().filter(|spg| *spg != OWN_COLLECTION);
        pgs.map(|spg| Located { partition, spg, arriving: Arriving::of(store, &spg) }).collect()
    };
    match store.each_partition() {
        only if only.is_empty() => of((shard, store)),
        all => all.into_iter().flat_map(of).collect(),
    }
}

/// Whether a collection is a copy that is on its way from another partition, and no PG's yet.
#[must_use]
pub fn is_arriving(store: &dyn ObjectStore, spg: &SpgId) -> bool {
    Arriving::of(store, spg).is_some()
}

/// Whether a map has this PG.
pub(crate) fn pg_exists(map: &OsdMap, pg: PgId) -> bool {
    map.pools.get(&pg.pool).is_some_and(|pool| pg.seed < pool.pg_num)
}

/// What a shard has to bring in order as its OSD starts.
#[derive(Debug, Default)]
pub(crate) struct MisplacedHere {
    /// PGs that come to its partitions.
    pub(crate) coming: BTreeSet<SpgId>,
    /// PGs that go from there.
    pub(crate) going: Vec<MovedPg>,
    /// Copies in its partitions that are nobody's.
    pub(crate) abandoned: Vec<Located>,
}

/// A copy that goes.
#[derive(Debug)]
struct Departure {
    spg: SpgId,
    to: usize,
    seen: Epoch,
    copy: CollectionCopy,
    /// Pieces that the other side waits for.
    wanted: usize,
    is_fetching: bool,
    is_sent: bool,
    /// What the manager hears of it meanwhile, where this OSD leads it.
    stat: Option<PgStat>,
}

/// A copy that comes.
#[derive(Debug)]
struct Arrival {
    from: usize,
    to: usize,
    seen: Epoch,
    epoch: Epoch,
    /// What is not written yet.
    pieces: VecDeque<(Vec<Op>, bool)>,
    is_told: bool,
    stage: Stage,
}

/// How far a copy is that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing of it is to be here before the map that called it: whatever map its PG has come to, the store must have it.
    AwaitsMap,
    Comes,
    /// All of it is here, and nowhere else any more.
    Gone,
}

/// What the store is asked to do.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Begun(SpgId),
    Written { spg: SpgId, is_last: bool },
    Fetched,
    Removed,
}

/// The PGs of a shard that change their partition.
#[derive(Debug, Default)]
pub(crate) struct Relocations {
    /// Those that go; the first one is copied.
    departures: VecDeque<Departure>,
    /// Those that come, or may come: nothing may be answered for them. They see the maps from that of this epoch on later.
    expected: BTreeMap<SpgId, Epoch>,
    arrivals: BTreeMap<SpgId, Arrival>,
    /// Those that do not come, by a map that is not here yet.
    absent: BTreeMap<SpgId, Epoch>,
    /// As the OSD started: those that go, and copies that do not come.
    going: Vec<MovedPg>,
    abandoned: Vec<Located>,
    awaited: BTreeMap<u64, Awaited>,
    tokens: u64,
}

impl Relocations {
    /// As the OSD starts.
    pub(crate) fn begin_with(&mut self, misplaced: MisplacedHere) {
        let MisplacedHere { coming, going, abandoned } = misplaced;
        // Which maps they lack is known when they have been loaded.
        self.expected = coming.into_iter().map(|spg| (spg, 0)).collect();
        (self.going, self.abandoned) = (going, abandoned);
    }

    /// The oldest map that a PG sees later which changes its partition.
    pub(crate) fn maps_needed_from(&self) -> Option<Epoch> {
        let going = self.going.iter().map(|_| 0);
        let gone = self.departures.iter().map(|departure| departure.seen);
        going.chain(gone).chain(self.expected.values().copied()).min()
    }

    /// What the manager is to know of those that go, and nobody serves.
    pub(crate) fn stats(&self) -> impl Iterator<Item = (PgId, PgStat)> + '_ {
        self.departures.iter().filter_map(|gone| Some((gone.spg.pg, gone.stat.clone()?)))
    }

    /// Whether the PG comes from another partition, or may.
    pub(crate) fn expects(&self, spg: &SpgId) -> bool {
        self.expected.contains_key(spg)
    }

    /// Whether a turn is due although nothing happens.
    pub(crate) fn has_work(&self) -> bool {
        self.departures.front().is_some_and(Departure::is_due)
    }

    /// Whether the store was asked here.
    pub(crate) fn is_own(&self, of: StoreToken) -> bool {
        !of.is_of_pg() && self.awaited.contains_key(&of.token.0)
    }

    fn token(&mut self, awaited: Awaited) -> StoreToken {
        self.tokens += 1;
        self.awaited.insert(TOKENS_FROM + self.tokens, awaited);
        StoreToken::without_pg(TOKENS_FROM + self.tokens)
    }
}

impl Departure {
    fn is_due(&self) -> bool {
        self.wanted > 0 && !self.is_fetching && !self.is_sent
    }
}

/// Bytes that changes may take of a store.
fn room_for(ops: &[Op]) -> u64 {
    let of_one = |op: &Op| {
        let beside = match op {
            Op::CloneExtents { extents, .. } => extents.blocks() * nacre_txn::EXTENT_BYTES,
            Op::Write { .. } | Op::Truncate { .. } => ENDS_BYTES,
            _ => 0,
        };
        op.size_bytes() as u64 + beside
    };
    ops.iter().map(of_one).sum()
}

impl PgDriver {
    /// The collections to be loaded as the OSD starts; also of PGs that are to be elsewhere, and go there once they have come to the newest
    /// map (`depart_misplaced`).
    pub(crate) fn in_place(&mut self, cx: &mut ShardCx<'_>) -> Vec<SpgId> {
        let mut here = BTreeSet::new();
        let abandoned = std::mem::take(&mut self.relocations.abandoned);
        for Located { partition, spg, .. } in &abandoned {
            let remove = vec![Op::RemoveCollection];
            self.submit_to(cx, *partition, *spg, remove, StoreToken::without_pg(0));
        }
        for Located { partition, spg, arriving } in located(self.store.as_ref(), cx.net.router.me) {
            let is_expected = self.relocations.expects(&spg);
            match arriving {
                // It begins anew.
                Some(_) if is_expected => (),
                // What was copied is gone: nobody has waited for more than that.
                Some(Arriving::Whole) => {
                    self.submit_to(cx, partition, spg, vec![Arriving::end()], StoreToken::without_pg(0));
                    here.insert(spg);
                }
                Some(Arriving::InPart) | None => drop(here.insert(spg)),
            }
        }
        here.into_iter().collect()
    }

    /// What the OSD found in other partitions than those where it is to be as it started. PGs that it had taken in, or that were split off
    /// it, have come to it before.
    pub(crate) fn depart_misplaced(&mut self, cx: &mut ShardCx<'_>) {
        let map = Arc::clone(self.pgs.map());
        for moved in std::mem::take(&mut self.relocations.going) {
            self.depart(cx, &map, moved);
        }
    }

    /// A map is here, and no PG has seen it: those that belong to another partition from it on go there.
    pub(crate) fn relocate_in(&mut self, cx: &mut ShardCx<'_>, map: &Arc<OsdMap>) {
        for moved in cx.net.router.take_moved() {
            let MovedPg { spg, from, to } = moved;
            if !pg_exists(map, spg.pg) {
                continue;
            }
            let me = cx.net.router.me;
            if cx.net.router.shard_with(to) == me && self.relocations.absent.remove(&spg).is_none() {
                self.relocations.expected.insert(spg, map.epoch.saturating_sub(1));
            }
            if cx.net.router.shard_with(from) != me {
                continue;
            }
            let is_here = |at: &Located| at.spg == spg && at.partition == from && at.arriving.is_none();
            if located(self.store.as_ref(), me).iter().any(is_here) {
                self.depart(cx, map, moved);
            } else {
                self.tell(cx, to, spg, RelocationMsg::Absent { epoch: map.epoch });
            }
        }
        let epoch = map.epoch;
        self.relocations.absent.retain(|_, until| *until > epoch);
    }

    /// A PG ends here; what waits for it goes after it.
    fn depart(&mut self, cx: &mut ShardCx<'_>, map: &Arc<OsdMap>, moved: MovedPg) {
        let MovedPg { spg, to, .. } = moved;
        self.finish_moving(cx, spg);
        let seen = match self.pgs.get(&spg) {
            Some(pg) => pg.epoch(),
            None => Pg::stored_epoch(self.store.as_ref(), &spg).unwrap_or(0),
        };
        // Under the map that it has seen: what it says in its new place is newer.
        let stat = self.pgs.get_mut(&spg).and_then(|(pg, _)| pg.stat(cx.wall));
        let stat = stat.map(|stat| PgStat { state: pg_state::PEERING, last_change: cx.wall, ..stat });
        self.with_pgs(cx, map, spg, |pgs, pg_cx| {
            if let Some(pg) = pgs.take(&spg) {
                pg.leave(pg_cx);
            }
        });
        self.reserver.forget(&spg);
        self.pgs.forget_unread(&spg);
        let shard = cx.net.router.shard_with(to);
        let waiting = self.ops_awaiting_lease.remove(&spg).unwrap_or_default();
        for op in waiting.into_iter().chain(self.pgs.take_held_for(&spg)) {
            cx.net.router.send(shard, ShardMsg::Op(spg, op));
        }
        for (from, message) in self.pgs.take_held_peer_for(&spg) {
            cx.net.router.send(shard, ShardMsg::Peer(from, Box::new(message)));
        }
        let is_coded = map.pools.get(&spg.pg.pool).is_some_and(|pool| !pool.is_replicated());
        tracing::info!(osd = self.osd, pg = %spg, partition = to, "a PG goes to another partition, where it is to be merged");
        self.relocations.departures.push_back(Departure {
            spg,
            to,
            seen,
            copy: CollectionCopy::new(spg, is_coded),
            wanted: 0,
            is_fetching: false,
            is_sent: false,
            stat,
        });
        if self.relocations.departures.len() == 1 {
            self.begin_departure(cx);
        }
    }

    /// Tells the other side of the first one that goes.
    fn begin_departure(&mut self, cx: &mut ShardCx<'_>) {
        let Some(first) = self.relocations.departures.front() else { return };
        let (spg, to, seen) = (first.spg, first.to, first.seen);
        let (from, epoch) = (cx.net.router.me, self.pgs.map().epoch);
        self.tell(cx, to, spg, RelocationMsg::Begin { from, to, seen, epoch });
    }

    fn tell(&self, cx: &mut ShardCx<'_>, partition: usize, spg: SpgId, msg: RelocationMsg) {
        let shard = cx.net.router.shard_with(partition);
        cx.net.router.send(shard, ShardMsg::Relocation(spg, msg));
    }

    /// The other side says something.
    pub(crate) fn relocation_msg(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, msg: RelocationMsg) {
        if self.broken {
            return;
        }
        match msg {
            RelocationMsg::Begin { from, to, seen, epoch } => {
                let (pieces, is_told, stage) = (VecDeque::new(), false, Stage::AwaitsMap);
                self.relocations.expected.insert(spg, seen);
                let arrival = Arrival { from, to, seen, epoch, pieces, is_told, stage };
                self.relocations.arrivals.insert(spg, arrival);
                self.begin_arrivals(cx);
            }
            RelocationMsg::Absent { epoch } => {
                if epoch > self.pgs.map().epoch {
                    self.relocations.absent.insert(spg, epoch);
                } else if self.relocations.expected.remove(&spg).is_some() {
                    self.without_arrival(cx, spg);
                }
            }
            RelocationMsg::Piece { ops, is_last } => {
                if let Some(arrival) = self.relocations.arrivals.get_mut(&spg) {
                    arrival.pieces.push_back((ops, is_last));
                }
                self.write_pieces(cx);
            }
            RelocationMsg::Gone => {
                let Some(arrival) = self.relocations.arrivals.get_mut(&spg) else { return };
                arrival.stage = Stage::Gone;
                self.finish_arrivals(cx);
            }
            RelocationMsg::More => {
                let first = self.relocations.departures.front_mut().filter(|first| first.spg == spg);
                first.into_iter().for_each(|first| first.wanted += 1);
            }
            RelocationMsg::Complete => {
                if self.relocations.departures.front().is_some_and(|first| first.spg == spg) {
                    let token = self.relocations.token(Awaited::Removed);
                    let txn = Transaction { collection: spg, ops: vec![Op::RemoveCollection] };
                    self.submit(cx, txn, token);
                }
            }
        }
    }

    /// Begins the copies whose map is here.
    pub(crate) fn begin_arrivals(&mut self, cx: &mut ShardCx<'_>) {
        let epoch = self.pgs.map().epoch;
        let due = |arrival: &Arrival| arrival.stage == Stage::AwaitsMap && arrival.epoch <= epoch;
        let due = self.relocations.arrivals.iter_mut().filter(|(_, arrival)| due(arrival));
        let due = due.map(|(spg, arrival)| {
            arrival.stage = Stage::Comes;
            (*spg, arrival.to)
        });
        for (spg, to) in due.collect::<Vec<_>>() {
            let there = located(self.store.as_ref(), cx.net.router.me);
            if there.iter().any(|at| at.spg == spg && at.partition == to && at.arriving.is_none()) {
                let reason = format!("{spg} is in two partitions of the store, {to} is one of them");
                return self.break_down(cx.net, &reason);
            }
            let token = self.relocations.token(Awaited::Begun(spg));
            self.submit_to(cx, to, spg, Arriving::begin(), token);
        }
    }

    /// The PG was not there: what was kept for it has its turn.
    fn without_arrival(&mut self, cx: &mut ShardCx<'_>, spg: SpgId) {
        for (spg, create_info) in self.pgs.take_held_creates() {
            self.create_pg(cx, spg, create_info);
        }
        for (from, message) in self.pgs.take_held_peer_for(&spg) {
            self.peer_message(cx, from, message);
        }
        for op in self.pgs.take_held_for(&spg) {
            self.client_op(cx, spg, op);
        }
    }

    /// Hands changes to one of the partitions.
    fn submit_to(
        &mut self,
        cx: &mut ShardCx<'_>,
        partition: usize,
        spg: SpgId,
        ops: Vec<Op>,
        token: StoreToken,
    ) {
        let txn = Transaction { collection: spg, ops };
        self.idle_trim.used(cx.now);
        self.pgs.submitted(token);
        if self.broken {
            return;
        }
        if let Err(error) = self.store.submit_to(partition, txn, token) {
            self.break_down(cx.net, &format!("the store does not take a transaction: {error}"));
        }
    }

    /// A turn's part of the work: a piece of a copy that goes, and what there is room for of those that come.
    pub(crate) fn relocate(&mut self, cx: &mut ShardCx<'_>) {
        if self.broken {
            return;
        }
        self.write_pieces(cx);
        let Some(first) = self.relocations.departures.front_mut().filter(|first| first.is_due()) else {
            return;
        };
        let (store, spg, to) = (self.store.as_ref(), first.spg, first.to);
        let size_of = |object: &_| store.data_bytes(&spg, object).unwrap_or(0);
        let step = first.copy.step(store, &size_of);
        match step {
            CopyStep::Fetch { object, offset, length } => {
                first.is_fetching = true;
                let token = self.relocations.token(Awaited::Fetched);
                self.idle_trim.used(cx.now);
                self.pgs.fetching();
                self.store.fetch(&spg, &object, offset, length, FetchFrom::Anywhere, token);
            }
            CopyStep::Piece(ops) => {
                first.wanted -= 1;
                self.tell(cx, to, spg, RelocationMsg::Piece { ops, is_last: false });
            }
            CopyStep::Last(ops) => {
                (first.wanted, first.is_sent) = (0, true);
                self.tell(cx, to, spg, RelocationMsg::Piece { ops, is_last: true });
            }
        }
    }

    /// Writes what has come, as far as there is room beside what clients have under way.
    fn write_pieces(&mut self, cx: &mut ShardCx<'_>) {
        let with_pieces = self.relocations.arrivals.iter().filter(|(_, arrival)| !arrival.pieces.is_empty());
        for spg in with_pieces.map(|(spg, _)| *spg).collect::<Vec<_>>() {
            while let Some((to, ops, is_last)) = self.next_piece(spg) {
                let token = self.relocations.token(Awaited::Written { spg, is_last });
                self.submit_to(cx, to, spg, ops, token);
            }
        }
    }

    /// The next piece of a copy that comes, if there is one and room for it.
    fn next_piece(&mut self, spg: SpgId) -> Option<(usize, Vec<Op>, bool)> {
        let arrival = self.relocations.arrivals.get_mut(&spg)?;
        let (ops, _) = arrival.pieces.front()?;
        let bytes = room_for(ops);
        let its = self.store.each_partition().into_iter().find(|(number, _)| *number == arrival.to);
        let room = match its {
            Some((_, partition)) => room(partition),
            None => room(self.store.as_ref()),
        };
        if !room.has_room_for_copy(bytes) {
            if !std::mem::replace(&mut arrival.is_told, true) {
                tracing::warn!(
                    osd = self.osd,
                    pg = %spg,
                    partition = arrival.to,
                    "a PG that is to be merged waits: the partition of the store that it is to be in has no room for it; delete something, \
                     or give the OSD more room"
                );
            }
            return None;
        }
        arrival.is_told = false;
        let to = arrival.to;
        arrival.pieces.pop_front().map(|(ops, is_last)| (to, ops, is_last))
    }

    /// The store has done what was asked of it here.
    pub(crate) fn relocation_completed(&mut self, cx: &mut ShardCx<'_>, of: StoreToken) {
        let Some(awaited) = self.relocations.awaited.remove(&of.token.0) else { return };
        match awaited {
            Awaited::Begun(spg) => {
                let from = self.relocations.arrivals.get(&spg).map(|arrival| arrival.from);
                for from in from.into_iter().flat_map(|from| [from; PIECES_MAX]) {
                    cx.net.router.send(from, ShardMsg::Relocation(spg, RelocationMsg::More));
                }
            }
            Awaited::Written { spg, is_last } => {
                let Some(arrival) = self.relocations.arrivals.get(&spg) else { return };
                let msg = if is_last { RelocationMsg::Complete } else { RelocationMsg::More };
                cx.net.router.send(arrival.from, ShardMsg::Relocation(spg, msg));
            }
            Awaited::Fetched => {
                self.relocations.departures.front_mut().into_iter().for_each(|it| it.is_fetching = false);
            }
            Awaited::Removed => {
                let Some(Departure { spg, to, .. }) = self.relocations.departures.pop_front() else { return };
                self.tell(cx, to, spg, RelocationMsg::Gone);
                self.begin_departure(cx);
            }
        }
    }

    /// Loads the PGs that have arrived.
    fn finish_arrivals(&mut self, cx: &mut ShardCx<'_>) {
        let arrivals = self.relocations.arrivals.iter();
        let ready = arrivals.filter(|(_, arrival)| arrival.stage == Stage::Gone);
        for spg in ready.map(|(spg, _)| *spg).collect::<Vec<_>>() {
            let Some(arrival) = self.relocations.arrivals.remove(&spg) else { continue };
            self.submit_to(cx, arrival.to, spg, vec![Arriving::end()], StoreToken::without_pg(0));
            if self.is_broken(cx.net) || !self.store.place(&spg, arrival.to) {
                return;
            }
            self.open_arrived(cx, spg, arrival.seen);
            tracing::info!(osd = self.osd, pg = %spg, partition = arrival.to, "a PG has come from another partition");
        }
    }

    /// Takes up a PG that saw maps up to `seen` before it came.
    fn open_arrived(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, seen: Epoch) {
        self.relocations.expected.remove(&spg);
        let maps = self.pgs.maps_from(seen);
        let Some(first) = maps.first() else { return };
        let Some(pg) = Pg::load(self.store.as_ref(), self.osd, spg, first) else {
            return self.note_damage(cx, spg);
        };
        self.pgs.insert_child(pg);
        // The first map left is the PG's first to see, too.
        let seen_first = usize::from(first.epoch <= seen);
        for map in maps.iter().skip(seen_first) {
            self.deliver_under(cx, map, spg, Event::Map);
            self.finish_moving(cx, spg);
        }
        self.deliver_held(cx, spg);
    }
}

#[cfg(test)]
mod tests;
