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

use crate::awaiting_metadata::Held;
use crate::pg_driver::{PgDriver, room};
use crate::relocation_msg::{RelocationMsg, Run};
use crate::relocations::{Arrival, Awaited, Departure, Expected, Located, located, pg_exists};
use crate::shard_msg::{MovedPg, ShardMsg};
use crate::shard_net::ShardCx;
use nacre_maps::OsdMap;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_pg::{Arriving, CollectionCopy, CopyStep, Event, Pg};
use nacre_store::ObjectStore;
use nacre_txn::{FetchFrom, Op, StoreToken, Transaction};
use nacre_types::{Epoch, SpgId};
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Pieces of one copy that are under way at a time.
const PIECES_MAX: usize = 3;
/// What a change of data may take beside it: blocks that it fills in part, at both ends.
const ENDS_BYTES: u64 = 2 * nacre_txn::EXTENT_BYTES;

/// Whether a collection is a copy that is on its way from another partition, and no PG's yet.
#[must_use]
pub fn is_arriving(store: &dyn ObjectStore, spg: &SpgId) -> bool {
    Arriving::of(store, spg).is_some()
}

/// The partition with this number of a shard's store: all of one that is not divided.
fn partition(store: &dyn ObjectStore, number: usize) -> &dyn ObjectStore {
    let parts = store.each_partition();
    parts.into_iter().find(|(part, _)| *part == number).map_or(store, |(_, part)| part)
}

/// Whether a partition has a PG, not only a copy that is on its way.
fn has_pg(store: &dyn ObjectStore, number: usize, spg: &SpgId) -> bool {
    let part = partition(store, number);
    part.collections().contains(spg) && !is_arriving(part, spg)
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
        for Located { partition, spg, .. } in abandoned {
            let remove = vec![Op::RemoveCollection];
            self.submit_to(cx, partition, spg, remove, StoreToken::without_pg(0));
        }
        for Located { partition, spg, arriving, .. } in located(self.store.as_ref(), cx.net.router.me) {
            let is_expected = self.relocations.expected.contains_key(&spg);
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

    /// As the OSD starts: what was in other partitions than those where it is to be, and has come to the newest map of all shards there, goes.
    /// So do PGs that it has split into on the way, these first: as long as it is expected, they are.
    pub(crate) fn depart_misplaced(&mut self, cx: &mut ShardCx<'_>) {
        let map = Arc::clone(self.pgs.map());
        if map.epoch < self.relocations.departs_with {
            return;
        }
        self.relocations.departs_with = Epoch::MAX;
        let mut going = std::mem::take(&mut self.relocations.going);
        // What is split off them meanwhile is here then, and goes as well.
        let mut found = Vec::new();
        loop {
            let misplaced = self.misplaced(cx, &map);
            if misplaced.len() == found.len() {
                break;
            }
            misplaced.iter().for_each(|moved| self.finish_moving(cx, moved.spg));
            found = misplaced;
        }
        found.retain(|moved| !going.iter().any(|known| known.spg == moved.spg));
        going.extend(found);
        going.sort_by_key(|moved| Reverse(moved.spg.pg.seed));
        for moved in going {
            self.depart_or_deny(cx, &map, moved);
        }
    }

    /// The PGs of this shard that are to be in other partitions.
    fn misplaced(&self, cx: &ShardCx<'_>, map: &OsdMap) -> Vec<MovedPg> {
        let moved = |spg: SpgId| {
            let from = self.store.partition_of(&spg).unwrap_or(cx.net.router.me);
            let to = cx.net.router.partition_of(&spg);
            (from != to && pg_exists(map, spg.pg)).then_some(MovedPg { spg, from, to })
        };
        self.pgs.all().into_iter().filter_map(moved).collect()
    }

    /// With this map these PGs are no more, or it makes them anew: nothing of what is on its way is to come.
    fn end_relocations(&mut self, cx: &mut ShardCx<'_>, map: &OsdMap) {
        let is_over = |spg: &SpgId| !pg_exists(map, spg.pg);
        // A shard that is behind others meets maps from before.
        self.relocations.expected.retain(|spg, expected| map.epoch <= expected.since || !is_over(spg));
        let arrivals = self.relocations.arrivals.iter().filter(|(_, arrival)| map.epoch > arrival.epoch);
        let over: Vec<SpgId> = arrivals.map(|(spg, _)| *spg).filter(is_over).collect();
        for spg in over {
            let arrival = self.relocations.arrivals.remove(&spg);
            if let Some(arrival) = arrival.filter(|arrival| arrival.has_begun) {
                self.submit_to(cx, arrival.to, spg, vec![Op::RemoveCollection], StoreToken::without_pg(0));
            }
        }
        let departures = std::mem::take(&mut self.relocations.departures);
        let first = departures.front().map(|first| first.run);
        let is_to_end = |gone: &Departure| is_over(&gone.spg) && !gone.is_leaving;
        let (over, others): (VecDeque<_>, VecDeque<_>) = departures.into_iter().partition(is_to_end);
        self.relocations.departures = others;
        for Departure { spg, .. } in over {
            let txn = Transaction { collection: spg, ops: vec![Op::RemoveCollection] };
            self.submit(cx, txn, StoreToken::without_pg(0));
        }
        if self.relocations.departures.front().map(|first| first.run) != first {
            self.begin_departure(cx);
        }
    }

    /// A map is here, and no PG has seen it: those that belong to another partition from it on go there.
    pub(crate) fn relocate_in(&mut self, cx: &mut ShardCx<'_>, map: &Arc<OsdMap>) {
        self.end_relocations(cx, map);
        for moved in cx.net.router.take_moved() {
            let MovedPg { spg, from, to } = moved;
            if !pg_exists(map, spg.pg) {
                continue;
            }
            let me = cx.net.router.me;
            if cx.net.router.shard_with(to) == me && self.relocations.absent.remove(&spg).is_none() {
                let expected = Expected { needs_from: map.epoch.saturating_sub(1), since: map.epoch };
                self.relocations.expected.insert(spg, expected);
            }
            if cx.net.router.shard_with(from) != me {
                continue;
            }
            self.depart_or_deny(cx, map, moved);
        }
        let absent = std::mem::take(&mut self.relocations.absent);
        let (later, now) = absent.into_iter().partition(|(_, since)| *since > map.epoch);
        self.relocations.absent = later;
        now.keys().for_each(|spg| self.relocations.note_absent(spg));
    }

    /// A PG goes, if it is here.
    fn depart_or_deny(&mut self, cx: &mut ShardCx<'_>, map: &Arc<OsdMap>, moved: MovedPg) {
        let MovedPg { spg, from, to } = moved;
        if self.relocations.is_leaving(&spg) {
            return;
        }
        if has_pg(self.store.as_ref(), from, &spg) {
            self.depart(cx, map, moved);
        } else {
            self.tell(cx, to, spg, RelocationMsg::Absent { epoch: map.epoch });
        }
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
        let mut ahead = Vec::new();
        self.with_pgs(cx, map, spg, |pgs, pg_cx| {
            if let Some(pg) = pgs.take(&spg) {
                ahead = pg.leave(pg_cx);
            }
        });
        self.reserver.forget(&spg);
        self.pgs.forget_unread(&spg);
        let shard = cx.net.router.shard_with(to);
        let waiting = self.ops_awaiting_lease.remove(&spg).unwrap_or_default();
        // Those of the maps that it has seen are sent again, like those that it had.
        let (waiting, old): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|op| op.op.epoch > seen);
        old.iter().for_each(|op| cx.net.push_maps(op.session.id, op.op.epoch));
        for op in ahead.into_iter().chain(waiting).chain(self.pgs.take_held_for(&spg)) {
            cx.net.router.send(shard, ShardMsg::Op(spg, op));
        }
        for (from, message) in self.pgs.take_held_peer_for(&spg) {
            cx.net.router.send(shard, ShardMsg::Peer(from, Box::new(message)));
        }
        self.send_awaiting_metadata(cx, spg, (seen, shard));
        let is_coded = map.pools.get(&spg.pg.pool).is_some_and(|pool| !pool.is_replicated());
        tracing::info!(osd = self.osd, pg = %spg, partition = to, "a PG goes to another partition, where it is to be merged");
        let run = self.relocations.new_run(cx.net.router.me);
        self.relocations.departures.push_back(Departure {
            spg,
            run,
            to,
            seen,
            copy: CollectionCopy::new(spg, is_coded),
            wanted: 0,
            is_fetching: false,
            is_sent: false,
            is_leaving: false,
            stat,
        });
        if self.relocations.departures.len() == 1 {
            self.begin_departure(cx);
        }
    }

    /// What waits for metadata has come behind all else that waits.
    fn send_awaiting_metadata(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, (seen, shard): (Epoch, usize)) {
        for held in self.awaiting_metadata.take_pg(&spg) {
            match held {
                Held::Op(op) if op.op.epoch <= seen => cx.net.push_maps(op.session.id, op.op.epoch),
                Held::Op(op) => cx.net.router.send(shard, ShardMsg::Op(spg, op)),
                Held::Peer(from, message) => {
                    cx.net.router.send(shard, ShardMsg::Peer(from, Box::new(message)));
                }
            }
        }
    }

    /// Tells the other side of the first one that goes.
    fn begin_departure(&mut self, cx: &mut ShardCx<'_>) {
        let Some(first) = self.relocations.departures.front() else { return };
        let (spg, run, to, seen) = (first.spg, first.run, first.to, first.seen);
        let epoch = self.pgs.map().epoch;
        self.tell(cx, to, spg, RelocationMsg::Begin { run, to, seen, epoch });
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
        let epoch_here = self.pgs.map().epoch;
        match msg {
            // The PG was no more, or made anew, in a map behind the sender's.
            RelocationMsg::Begin { epoch, .. }
                if epoch <= epoch_here
                    && !(self.relocations.expects(&spg) && pg_exists(self.pgs.map(), spg.pg)) => {}
            RelocationMsg::Begin { run, to, seen, epoch } => {
                let (has_begun, pieces, is_told) = (false, VecDeque::new(), false);
                self.relocations.expected.insert(spg, Expected { needs_from: seen, since: epoch });
                let arrival = Arrival { run, to, seen, epoch, has_begun, pieces, is_told };
                self.relocations.arrivals.insert(spg, arrival);
                self.begin_arrivals(cx);
            }
            RelocationMsg::Absent { epoch } => {
                if epoch > epoch_here {
                    self.relocations.absent.insert(spg, epoch);
                } else {
                    self.relocations.note_absent(&spg);
                    self.look_at_held(cx);
                }
            }
            RelocationMsg::Piece { run, ops, is_last } => {
                if let Some(arrival) = self.relocations.arrival(&spg, run) {
                    arrival.pieces.push_back((ops, is_last));
                }
                self.write_pieces(cx);
            }
            RelocationMsg::Gone { run } => self.finish_arrival(cx, spg, run),
            RelocationMsg::More { run } => {
                self.relocations.departure(run).into_iter().for_each(|first| first.wanted += 1);
            }
            RelocationMsg::Complete { run } => {
                if let Some(first) = self.relocations.departure(run) {
                    first.is_leaving = true;
                    let token = self.relocations.token(Awaited::Removed(run));
                    let txn = Transaction { collection: spg, ops: vec![Op::RemoveCollection] };
                    self.submit(cx, txn, token);
                }
            }
        }
    }

    /// Begins copies whose map is here, one for each partition at a time: two could take the room that each of them needs.
    pub(crate) fn begin_arrivals(&mut self, cx: &mut ShardCx<'_>) {
        let epoch = self.pgs.map().epoch;
        let arrivals = &mut self.relocations.arrivals;
        let mut busy: BTreeSet<usize> =
            arrivals.values().filter(|arrival| arrival.has_begun).map(|arrival| arrival.to).collect();
        let mut due = Vec::new();
        for (spg, arrival) in arrivals {
            if !arrival.has_begun && arrival.epoch <= epoch && busy.insert(arrival.to) {
                arrival.has_begun = true;
                due.push((*spg, arrival.run, arrival.to));
            }
        }
        for (spg, run, to) in due {
            if has_pg(self.store.as_ref(), to, &spg) {
                let reason = format!("{spg} is in two partitions of the store, {to} is one of them");
                return self.break_down(cx.net, &reason);
            }
            let token = self.relocations.token(Awaited::Begun(spg, run));
            self.submit_to(cx, to, spg, Arriving::begin(), token);
        }
    }

    /// Hands changes to one of the partitions.
    pub(crate) fn submit_to(
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
        self.send_piece(cx);
    }

    /// What comes next of the copy that goes, if the other side waits for it.
    fn send_piece(&mut self, cx: &mut ShardCx<'_>) {
        let Some(first) = self.relocations.departures.front_mut().filter(|first| first.is_due()) else {
            return;
        };
        let (store, spg, run, to) = (self.store.as_ref(), first.spg, first.run, first.to);
        let size_of = |object: &_| store.data_bytes(&spg, object).unwrap_or(0);
        let step = first.copy.step(store, &size_of);
        // What was read may be less than there is.
        if self.is_broken(cx.net) {
            return;
        }
        let Some(first) = self.relocations.departure(run) else { return };
        match step {
            CopyStep::Fetch { object, offset, length } => {
                first.is_fetching = true;
                let token = self.relocations.token(Awaited::Fetched(run));
                self.idle_trim.used(cx.now);
                self.pgs.fetching();
                self.store.fetch(&spg, &object, offset, length, FetchFrom::Anywhere, token);
            }
            CopyStep::Piece(ops) => {
                first.wanted -= 1;
                self.tell(cx, to, spg, RelocationMsg::Piece { run, ops, is_last: false });
            }
            CopyStep::Last(ops) => {
                (first.wanted, first.is_sent) = (0, true);
                self.tell(cx, to, spg, RelocationMsg::Piece { run, ops, is_last: true });
            }
        }
    }

    /// Writes what has come, as far as there is room beside what clients have under way.
    fn write_pieces(&mut self, cx: &mut ShardCx<'_>) {
        let with_pieces = self.relocations.arrivals.iter().filter(|(_, arrival)| !arrival.pieces.is_empty());
        for spg in with_pieces.map(|(spg, _)| *spg).collect::<Vec<_>>() {
            while let Some((run, to, ops, is_last)) = self.next_piece(spg) {
                let token = self.relocations.token(Awaited::Written { spg, run, is_last });
                self.submit_to(cx, to, spg, ops, token);
            }
        }
    }

    /// The next piece of a copy that comes, if there is one and room for it.
    fn next_piece(&mut self, spg: SpgId) -> Option<(Run, usize, Vec<Op>, bool)> {
        let arrival = self.relocations.arrivals.get_mut(&spg)?;
        let (ops, _) = arrival.pieces.front()?;
        let bytes = room_for(ops);
        let room = room(partition(self.store.as_ref(), arrival.to));
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
        let (run, to) = (arrival.run, arrival.to);
        arrival.pieces.pop_front().map(|(ops, is_last)| (run, to, ops, is_last))
    }

    /// The store has done what was asked of it here.
    pub(crate) fn relocation_completed(&mut self, cx: &mut ShardCx<'_>, of: StoreToken) {
        let Some(awaited) = self.relocations.awaited.remove(&of.token.0) else { return };
        match awaited {
            Awaited::Begun(spg, run) => {
                if self.relocations.arrival(&spg, run).is_some() {
                    for _ in 0..PIECES_MAX {
                        cx.net.router.send(run.from, ShardMsg::Relocation(spg, RelocationMsg::More { run }));
                    }
                }
            }
            Awaited::Written { spg, run, is_last } => {
                if self.relocations.arrival(&spg, run).is_some() {
                    let msg =
                        if is_last { RelocationMsg::Complete { run } } else { RelocationMsg::More { run } };
                    cx.net.router.send(run.from, ShardMsg::Relocation(spg, msg));
                }
            }
            Awaited::Fetched(run) => {
                // At once: the store keeps it for this turn.
                self.relocations.departure(run).into_iter().for_each(|first| first.is_fetching = false);
                self.send_piece(cx);
            }
            Awaited::Removed(run) => {
                if self.relocations.departure(run).is_none() {
                    return;
                }
                let Some(Departure { spg, to, .. }) = self.relocations.departures.pop_front() else { return };
                self.tell(cx, to, spg, RelocationMsg::Gone { run });
                self.begin_departure(cx);
            }
        }
    }

    /// Loads a PG that has arrived, and is nowhere else any more.
    fn finish_arrival(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, run: Run) {
        if self.relocations.arrival(&spg, run).is_none() {
            return;
        }
        let Some(arrival) = self.relocations.arrivals.remove(&spg) else { return };
        self.submit_to(cx, arrival.to, spg, vec![Arriving::end()], StoreToken::without_pg(0));
        if self.is_broken(cx.net) || !self.store.place(&spg, arrival.to) {
            return;
        }
        self.open_arrived(cx, spg, arrival.seen);
        tracing::info!(osd = self.osd, pg = %spg, partition = arrival.to, "a PG has come from another partition");
        self.begin_arrivals(cx);
        self.look_at_held(cx);
    }

    /// Takes up a PG that saw maps up to `seen` before it came.
    fn open_arrived(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, seen: Epoch) {
        self.relocations.expected.remove(&spg);
        let epochs = self.map_epochs();
        let first = self.first_map_from(&epochs, seen);
        let Some(mut pg) = Pg::load(self.store.as_ref(), self.osd, spg, &first) else {
            return self.note_damage(cx, spg);
        };
        pg.resent_through(seen);
        self.pgs.insert_child(pg);
        // The first map left is the PG's first to see, too.
        for epoch in epochs.range(first.epoch.max(seen + 1)..) {
            let Some(map) = self.map_of(*epoch) else { continue };
            self.deliver_under(cx, &map, spg, Event::Map);
            self.finish_moving(cx, spg);
        }
        self.deliver_held(cx, spg);
    }
}

#[cfg(test)]
mod tests;
