//! [`PgRegistry`]: the PGs of a shard, the maps they have come to, and what waits for them.

use crate::own_collection::ancestors;
use crate::shard_msg::ShardReport;
use nacre_maps::OsdMap;
use nacre_msg::peer::PeerMessage;
use nacre_osd_core::ScrubFacts;
use nacre_pg::{
    ClientOp, Cx, Event, LogLimits, MessageLimits, OpInFlight, OpStage, Pg, PgCreateInfo, ScrubIntervals,
    SessionId, Tuning,
};
use nacre_store::{Completion, StoreUsage, WarmToken};
use nacre_txn::StoreToken;
use nacre_types::{Epoch, OsdId, PgId, PoolId, SpgId, Stamp, UTime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maps kept so that a new copy can begin with the map in which it was called for.
const MAPS_KEPT_MAX: usize = 100;

/// PGs whose own deadline has come that one turn looks at, those first that wait longest: a step of each may take some
/// milliseconds, and all PGs of a pool divide at the same time.
const DUE_MAX: usize = 16;

/// Room for the tokens of one PG that was split off, before those of the next begin: more than it uses in years.
const CHILD_TOKENS_BITS: u32 = 40;

/// What the store has completed.
pub(crate) enum Completed {
    /// A transaction or a read of data, and as what its PG hears of it, if it is a PG's.
    OfToken(StoreToken, Event),
    /// A read of metadata that messages wait for.
    Metadata(WarmToken),
}

/// The PGs of one shard.
pub(crate) struct PgRegistry {
    map: Arc<OsdMap>,
    pgs: BTreeMap<SpgId, Pg>,
    /// When PGs that have a deadline of their own want a tick; most have none.
    deadlines: BTreeMap<SpgId, Stamp>,
    /// Transactions that the store has and that are not durable, and which PG submitted the newest.
    submitted: usize,
    newest_submitter: Option<SpgId>,
    /// Reads that the store has not answered.
    fetching: usize,
    /// PGs that were split off here.
    children: u64,
    held: BTreeMap<SpgId, Vec<ClientOp>>,
    held_peer: Vec<(OsdId, PeerMessage)>,
    /// PGs that the monitor ordered ahead of the map in which they exist.
    held_creates: BTreeMap<SpgId, PgCreateInfo>,
    /// PGs whose records are damaged, until it is known which OSDs served them.
    unread: BTreeSet<SpgId>,
    /// The newest maps by epoch, the present one included.
    maps: BTreeMap<Epoch, Arc<OsdMap>>,
    tuning: Tuning,
    ignores_history_les: bool,
    changed: bool,
}

impl PgRegistry {
    pub(crate) fn new(tuning: Tuning) -> Self {
        Self {
            tuning,
            map: Arc::new(OsdMap::default()),
            pgs: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            submitted: 0,
            newest_submitter: None,
            fetching: 0,
            children: 0,
            held: BTreeMap::new(),
            held_peer: Vec::new(),
            held_creates: BTreeMap::new(),
            unread: BTreeSet::new(),
            maps: BTreeMap::new(),
            ignores_history_les: false,
            changed: true,
        }
    }

    pub(crate) fn set_map(&mut self, map: Arc<OsdMap>) {
        self.maps.insert(map.epoch, Arc::clone(&map));
        if self.maps.len() > MAPS_KEPT_MAX {
            self.maps.pop_first();
        }
        self.map = map;
        self.changed = true;
    }

    pub(crate) fn all(&self) -> Vec<SpgId> {
        self.pgs.keys().copied().collect()
    }

    pub(crate) fn get(&self, spg: &SpgId) -> Option<&Pg> {
        self.pgs.get(spg)
    }

    pub(crate) fn contains(&self, spg: &SpgId) -> bool {
        self.pgs.contains_key(spg)
    }

    /// The PG with the map that it is to see. A caller that takes it this way may change it.
    pub(crate) fn get_mut(&mut self, spg: &SpgId) -> Option<(&mut Pg, &Arc<OsdMap>)> {
        self.changed = true;
        self.pgs.get_mut(spg).map(|pg| (pg, &self.map))
    }

    /// Takes `osd_find_best_info_ignore_history_les` over.
    pub(crate) fn ignore_history_les(&mut self, ignore: bool) {
        self.ignores_history_les = ignore;
        self.pgs.values_mut().for_each(|pg| pg.ignore_history_les(ignore));
    }

    /// The present map.
    pub(crate) fn map(&self) -> &Arc<OsdMap> {
        &self.map
    }

    /// The maps from `epoch` on, oldest first, as far back as we have them; at least the present one.
    pub(crate) fn maps_from(&self, epoch: Epoch) -> Vec<Arc<OsdMap>> {
        let maps: Vec<_> =
            self.maps.range(epoch.min(self.map.epoch)..).map(|(_, map)| Arc::clone(map)).collect();
        if maps.is_empty() { vec![Arc::clone(&self.map)] } else { maps }
    }

    /// The map of one epoch, where it is in memory.
    pub(crate) fn map_of(&self, epoch: Epoch) -> Option<Arc<OsdMap>> {
        self.maps.get(&epoch).cloned()
    }

    /// The oldest map behind which none is missing.
    pub(crate) fn all_since(&self) -> Epoch {
        let newest = self.map.epoch;
        let back = self.maps.keys().rev().zip((0..=newest).rev()).take_while(|(epoch, due)| **epoch == *due);
        back.last().map_or(newest, |(epoch, _)| *epoch)
    }

    /// What the store has of a PG cannot be read. Nothing is answered for it before it is known which OSDs served it.
    pub(crate) fn set_unread(&mut self, spg: SpgId) {
        self.unread.insert(spg);
    }

    /// Another shard has it from now on.
    pub(crate) fn forget_unread(&mut self, spg: &SpgId) {
        self.unread.remove(spg);
    }

    /// True while it is not known which OSDs served the PG, or the one of which it will be split off.
    pub(crate) fn is_unread(&self, spg: &SpgId) -> bool {
        let of_it = |unread: &&SpgId| ancestors(spg.pg).any(|pg| pg == unread.pg);
        self.unread.iter().any(|unread| of_it(&unread))
    }

    /// How long clients' messages and their answers may be.
    pub(crate) const fn message_limits(&self) -> MessageLimits {
        self.tuning.message_limits
    }

    /// Sets how long logs may be, of all PGs and of those that come.
    pub(crate) fn set_log_limits(&mut self, limits: LogLimits) {
        self.tuning.limits = limits;
        self.pgs.values_mut().for_each(|pg| pg.set_log_limits(limits));
    }

    pub(crate) fn insert(&mut self, mut pg: Pg) {
        self.unread.remove(&pg.spg());
        pg.tune(&self.tuning);
        pg.ignore_history_les(self.ignores_history_les);
        self.pgs.insert(pg.spg(), pg);
        self.changed = true;
    }

    /// Takes in a PG that was split off. An earlier copy of it may have been merged away while the store was still at its
    /// transactions: their completions must find nothing, so every child numbers its own from another place.
    pub(crate) fn insert_child(&mut self, mut pg: Pg) {
        self.children += 1;
        pg.number_tokens_from(self.children << CHILD_TOKENS_BITS);
        self.insert(pg);
    }

    /// Handles an event of a PG under another map than the present one.
    pub(crate) fn handle_under(&mut self, cx: &mut Cx<'_>, spg: &SpgId, event: Event) {
        if let Some(pg) = self.pgs.get_mut(spg) {
            pg.handle(cx, event);
            let due = pg.next_deadline();
            self.note_deadline(*spg, due);
        }
    }

    /// Those that have not come to the map of `epoch`.
    pub(crate) fn behind(&self, epoch: Epoch) -> Vec<SpgId> {
        let behind = self.pgs.iter().filter(|(_, pg)| !pg.has_seen(epoch));
        behind.map(|(spg, _)| *spg).collect()
    }

    /// Keeps the order to make a PG until the map of its epoch is here. The monitor orders only what it has
    /// placed on us, so there are never more than our PGs.
    pub(crate) fn hold_create(&mut self, spg: SpgId, create_info: PgCreateInfo) {
        self.held_creates.insert(spg, create_info);
    }

    /// The orders that came ahead of our map, to be looked at again.
    pub(crate) fn take_held_creates(&mut self) -> BTreeMap<SpgId, PgCreateInfo> {
        std::mem::take(&mut self.held_creates)
    }

    /// Keeps a peer's message for a PG that does not exist here until the map of its epoch is here. What is too much
    /// is dropped: an OSD that asks, or introduces itself, does so again when it hears nothing.
    pub(crate) fn hold_peer(&mut self, from: OsdId, message: PeerMessage) {
        if self.held_peer.len() < self.tuning.queues.held_max {
            self.held_peer.push((from, message));
        }
    }

    /// The PG is about to be split off one of ours, and must not be made otherwise.
    pub(crate) fn is_coming(&self, spg: &SpgId) -> bool {
        self.pgs.values().any(|pg| pg.is_splitting_off(spg))
    }

    /// What peers have sent to a PG before it was there.
    pub(crate) fn take_held_peer_for(&mut self, spg: &SpgId) -> Vec<(OsdId, PeerMessage)> {
        self.held_creates.remove(spg);
        let (its, others) = std::mem::take(&mut self.held_peer)
            .into_iter()
            .partition(|(_, message)| message.header().spg == *spg);
        self.held_peer = others;
        its
    }

    /// What peers have sent ahead of our map, to be looked at again.
    pub(crate) fn take_held_peer(&mut self) -> Vec<(OsdId, PeerMessage)> {
        std::mem::take(&mut self.held_peer)
    }

    /// Forgets a PG whose removal has been submitted; completions that are still due find nobody.
    pub(crate) fn remove(&mut self, spg: &SpgId) {
        self.pgs.remove(spg);
        self.deadlines.remove(spg);
        self.changed = true;
    }

    /// Copies that began anew because their records were damaged, and are not whole yet.
    fn lost(&self) -> impl Iterator<Item = PgId> + '_ {
        self.pgs.values().filter(|pg| pg.info().lost_through > 0).map(|pg| pg.spg().pg)
    }

    /// Takes a PG out that ends: its copy goes to another.
    pub(crate) fn take(&mut self, spg: &SpgId) -> Option<Pg> {
        self.changed = true;
        self.deadlines.remove(spg);
        self.pgs.remove(spg)
    }

    /// Hands a PG the copies of those that it takes in.
    pub(crate) fn absorb(&mut self, cx: &mut Cx<'_>, spg: &SpgId, sources: Vec<Pg>) {
        if let Some(pg) = self.pgs.get_mut(spg) {
            pg.absorb(cx, sources);
        }
    }

    /// The store is about to get a transaction.
    pub(crate) fn submitted(&mut self, token: StoreToken) {
        self.submitted += 1;
        self.newest_submitter = token.is_of_pg().then_some(token.spg);
    }

    /// The store is about to be asked for data.
    pub(crate) fn fetching(&mut self) {
        self.fetching += 1;
    }

    /// True when all that the store is at is one write for which its PG waits for other OSDs as well: what they
    /// answer comes in any case, and until then it makes no difference whether the store is done.
    pub(crate) fn wait_for_peers(&mut self) -> bool {
        // Transactions end in the order in which they came, so the only one left is the newest.
        let (1, 0, Some(spg)) = (self.submitted, self.fetching, &self.newest_submitter) else { return false };
        self.pgs.get_mut(spg).is_some_and(Pg::waits_for_others)
    }

    /// What the store has completed. The PG that it is for may be gone, or be another copy by now, whose tokens are others.
    ///
    /// # Panics
    /// When the store completes more than it was given: an acknowledgement would be early.
    pub(crate) fn completed(&mut self, completion: Completion) -> Completed {
        let (count, of, event) = match completion {
            Completion::Warm(token) => return Completed::Metadata(token),
            Completion::Durable(of) => (&mut self.submitted, of, Event::Durable(of.token)),
            Completion::Fetched(of) => (&mut self.fetching, of, Event::Fetched(of.token)),
            Completion::Brought(of, data) => (&mut self.fetching, of, Event::Brought(of.token, data)),
        };
        *count = count.checked_sub(1).expect("the store completes what it was given, once");
        Completed::OfToken(of, event)
    }

    /// Keeps a message for a PG that is about to exist here, or in a map that we do not have yet. None may be dropped,
    /// since its client would wait for an answer for ever; like everything else that clients have under way, they are
    /// bounded by not reading the clients' sockets (`Sessions::throttle`).
    pub(crate) fn hold(&mut self, spg: SpgId, op: ClientOp) {
        self.held.entry(spg).or_default().push(op);
    }

    /// Everything held, to be looked at again.
    pub(crate) fn take_held(&mut self) -> Vec<(SpgId, ClientOp)> {
        let held = std::mem::take(&mut self.held);
        held.into_iter().flat_map(|(spg, ops)| ops.into_iter().map(move |op| (spg, op))).collect()
    }

    /// Drops what is held of a closed session.
    pub(crate) fn drop_held(&mut self, session: SessionId) {
        self.held.values_mut().for_each(|ops| ops.retain(|op| op.session.id != session));
        self.held.retain(|_, ops| !ops.is_empty());
    }

    /// What is held for one PG.
    pub(crate) fn take_held_for(&mut self, spg: &SpgId) -> Vec<ClientOp> {
        self.held.remove(spg).unwrap_or_default()
    }

    /// Notes what a PG that has just handled something wants next.
    pub(crate) fn note_deadline(&mut self, spg: SpgId, due: Option<Stamp>) {
        match due {
            Some(at) => drop(self.deadlines.insert(spg, at)),
            None if self.deadlines.is_empty() => (),
            None => drop(self.deadlines.remove(&spg)),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        self.deadlines.values().min().copied()
    }

    /// Messages of clients that the PGs have not answered, and those that wait for a PG or a map.
    pub(crate) fn ops_in_flight(&self) -> impl Iterator<Item = OpInFlight<'_>> + '_ {
        let held = self.held.values().flatten().map(|op| OpInFlight::waiting(OpStage::Future, op));
        self.pgs.values().flat_map(Pg::ops_in_flight).chain(held)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.pgs.len()
    }

    /// About the memory that their logs take.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.pgs.values().map(Pg::log_bytes).sum()
    }

    /// PGs to tick: all, or some of those whose own deadline has come.
    pub(crate) fn due(&self, now: Stamp, all: bool) -> Vec<SpgId> {
        if all {
            return self.all();
        }
        let due = self.deadlines.iter().filter(|(_, at)| **at <= now);
        let mut due: Vec<(Stamp, SpgId)> = due.map(|(spg, at)| (*at, *spg)).collect();
        due.sort_unstable();
        due.into_iter().take(DUE_MAX).map(|(_, spg)| spg).collect()
    }

    /// What the schedule of scrubs has to know of each PG.
    pub(crate) fn scrub_facts(
        &self,
        wall: UTime,
        intervals: &ScrubIntervals,
    ) -> impl Iterator<Item = ScrubFacts> {
        self.pgs.iter().map(move |(spg, pg)| ScrubFacts {
            spg: *spg,
            is_scrubbing: pg.is_scrubbing(),
            due: pg.scrub_due(wall, intervals),
        })
    }

    /// True when there is something new to report.
    pub(crate) fn have_changed(&self) -> bool {
        self.changed
    }

    /// What the manager is to know.
    pub(crate) fn report(&mut self, shard: usize, usage: StoreUsage, wall: UTime) -> ShardReport {
        self.changed = false;
        let stats = self.pgs.values_mut().filter_map(|pg| Some((pg.spg().pg, pg.stat(wall)?)));
        let pgs = stats.collect();
        let mut pools: BTreeMap<PoolId, (i64, i64)> = BTreeMap::new();
        for (spg, pg) in &self.pgs {
            let counters = &pg.info().counters;
            let (data, omap) = pools.entry(spg.pg.pool).or_default();
            *data += counters.bytes;
            *omap += counters.omap_bytes;
        }
        let pg_count = u32::try_from(self.pgs.len()).unwrap_or(u32::MAX);
        let sharers = self.pgs.values().flat_map(Pg::members).collect();
        let lost = self.lost().collect();
        let repaired = self.pgs.values().map(Pg::repaired_objects).sum();
        ShardReport { shard, pgs, pools, pg_count, sharers, lost, repaired, usage, ..ShardReport::default() }
    }
}

#[cfg(test)]
mod tests;
