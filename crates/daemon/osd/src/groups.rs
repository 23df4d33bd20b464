//! [`Groups`]: the placement groups of a shard, the maps they have come to, and what waits for them.

use crate::letter::ShardReport;
use nacre_maps::OsdMap;
use nacre_msg::peer::PeerMessage;
use nacre_pg::{Birth, ClientOp, Cx, Event, Pg, ScrubIntervals, Tuning, UnderWay};
use nacre_store::{Completion, StoreUsage};
use nacre_txn::Token;
use nacre_types::{Epoch, OsdId, PoolId, SpgId, Stamp, UTime};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Clients' messages held for groups that the map gives us and that do not exist yet; more are dropped, and
/// the client sends them again after its next map.
const HELD_OPS_MAX: usize = 4096;
/// Peers' messages of epochs that we have no map of, for groups that do not exist here; more are dropped, and
/// the interval that they belong to waits for the next one.
const HELD_PEER_MESSAGES_MAX: usize = 4096;
/// Maps kept so that a new copy can begin with the map in which it was called for.
const MAPS_KEPT_MAX: usize = 100;

/// The groups of one shard.
pub(crate) struct Groups {
    map: Arc<OsdMap>,
    groups: BTreeMap<SpgId, Pg>,
    /// When groups that have a deadline of their own want a tick; most have none.
    deadlines: BTreeMap<SpgId, Stamp>,
    /// Transactions given to the store, in order: whose they are and what the group calls them.
    submitted: VecDeque<(Token, SpgId, Token)>,
    fetching: BTreeMap<Token, (SpgId, Token)>,
    last_ticket: u64,
    held: BTreeMap<SpgId, Vec<ClientOp>>,
    held_count: usize,
    held_peer: Vec<(OsdId, PeerMessage)>,
    /// Groups that the monitor ordered ahead of the map in which they exist.
    held_births: BTreeMap<SpgId, Birth>,
    /// The newest maps by epoch, the present one included.
    maps: BTreeMap<Epoch, Arc<OsdMap>>,
    tuning: Tuning,
    changed: bool,
}

impl Groups {
    pub(crate) fn new(tuning: Tuning) -> Self {
        Self {
            tuning,
            map: Arc::new(OsdMap::default()),
            groups: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            submitted: VecDeque::new(),
            fetching: BTreeMap::new(),
            last_ticket: 0,
            held: BTreeMap::new(),
            held_count: 0,
            held_peer: Vec::new(),
            held_births: BTreeMap::new(),
            maps: BTreeMap::new(),
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
        self.groups.keys().copied().collect()
    }

    pub(crate) fn get(&self, spg: &SpgId) -> Option<&Pg> {
        self.groups.get(spg)
    }

    pub(crate) fn contains(&self, spg: &SpgId) -> bool {
        self.groups.contains_key(spg)
    }

    /// The group with the map that it is to see. Whoever takes it this way may change it.
    pub(crate) fn get_mut(&mut self, spg: &SpgId) -> Option<(&mut Pg, &Arc<OsdMap>)> {
        self.changed = true;
        self.groups.get_mut(spg).map(|group| (group, &self.map))
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

    pub(crate) fn insert(&mut self, mut group: Pg) {
        group.tune(&self.tuning);
        self.groups.insert(group.spg(), group);
        self.changed = true;
    }

    /// Handles an event of a group under another map than the present one.
    pub(crate) fn handle_under(&mut self, cx: &mut Cx<'_>, spg: &SpgId, event: Event) {
        if let Some(group) = self.groups.get_mut(spg) {
            group.handle(cx, event);
        }
    }

    /// Keeps the order to make a group until the map of its epoch is here. The monitor orders only what it has
    /// placed on us, so there are never more than our groups.
    pub(crate) fn hold_birth(&mut self, spg: SpgId, birth: Birth) {
        self.held_births.insert(spg, birth);
    }

    /// The orders that came ahead of our map, to be looked at again.
    pub(crate) fn take_held_births(&mut self) -> BTreeMap<SpgId, Birth> {
        std::mem::take(&mut self.held_births)
    }

    /// Keeps a peer's message until the map of its epoch is here.
    pub(crate) fn hold_peer(&mut self, from: OsdId, message: PeerMessage) {
        if self.held_peer.len() < HELD_PEER_MESSAGES_MAX {
            self.held_peer.push((from, message));
        }
    }

    /// What peers have sent ahead of our map, to be looked at again.
    pub(crate) fn take_held_peer(&mut self) -> Vec<(OsdId, PeerMessage)> {
        std::mem::take(&mut self.held_peer)
    }

    /// Forgets a group whose removal has been submitted; completions that are still due find nobody.
    pub(crate) fn remove(&mut self, spg: &SpgId) {
        self.groups.remove(spg);
        self.deadlines.remove(spg);
        self.changed = true;
    }

    /// Takes a group out that ends: its copy goes to another.
    pub(crate) fn take(&mut self, spg: &SpgId) -> Option<Pg> {
        self.changed = true;
        self.deadlines.remove(spg);
        self.groups.remove(spg)
    }

    /// Hands a group the copies of those that it takes in.
    pub(crate) fn absorb(&mut self, cx: &mut Cx<'_>, spg: &SpgId, sources: Vec<Pg>) {
        if let Some(group) = self.groups.get_mut(spg) {
            group.absorb(cx, sources);
        }
    }

    fn ticket(&mut self) -> Token {
        self.last_ticket += 1;
        Token(self.last_ticket)
    }

    /// Numbers a transaction of a group for the store.
    pub(crate) fn submitted(&mut self, spg: SpgId, token: Token) -> Token {
        let ticket = self.ticket();
        self.submitted.push_back((ticket, spg, token));
        ticket
    }

    /// True when the transaction of this number, and with it all before, are durable.
    pub(crate) fn is_durable(&self, ticket: Token) -> bool {
        self.submitted.front().is_none_or(|(oldest, _, _)| *oldest > ticket)
    }

    /// True when all that the store is at is one write for which its group waits for other OSDs as well: what they
    /// answer comes in any case, and until then it makes no difference whether the store is done.
    pub(crate) fn wait_for_peers(&mut self) -> bool {
        let (1, true, Some((_, spg, _))) =
            (self.submitted.len(), self.fetching.is_empty(), self.submitted.front())
        else {
            return false;
        };
        self.groups.get_mut(spg).is_some_and(Pg::waits_for_others)
    }

    /// Numbers a read of a group for the store.
    pub(crate) fn fetching(&mut self, spg: SpgId, token: Token) -> Token {
        let ticket = self.ticket();
        self.fetching.insert(ticket, (spg, token));
        ticket
    }

    /// Whom a completion is for.
    ///
    /// # Panics
    /// When the store completes another transaction than the oldest: an acknowledgement would be early.
    pub(crate) fn completed(&mut self, completion: Completion) -> Option<(SpgId, Event)> {
        match completion {
            Completion::Durable(ticket) => {
                let (oldest, spg, token) = self.submitted.pop_front().expect("a transaction is under way");
                assert_eq!(oldest, ticket, "the store completes transactions in order");
                Some((spg, Event::Durable(token)))
            }
            Completion::Fetched(ticket) => {
                self.fetching.remove(&ticket).map(|(spg, token)| (spg, Event::Fetched(token)))
            }
        }
    }

    /// Keeps a message for a group that is about to exist here, or in a map that we do not have yet.
    pub(crate) fn hold(&mut self, spg: SpgId, op: ClientOp) {
        if self.held_count < HELD_OPS_MAX {
            self.held_count += 1;
            self.held.entry(spg).or_default().push(op);
        }
    }

    /// Everything held, to be looked at again.
    pub(crate) fn take_held(&mut self) -> Vec<(SpgId, ClientOp)> {
        self.held_count = 0;
        let held = std::mem::take(&mut self.held);
        held.into_iter().flat_map(|(spg, ops)| ops.into_iter().map(move |op| (spg, op))).collect()
    }

    /// What is held for one group.
    pub(crate) fn take_held_for(&mut self, spg: &SpgId) -> Vec<ClientOp> {
        let held = self.held.remove(spg).unwrap_or_default();
        self.held_count -= held.len();
        held
    }

    /// Notes what a group that has just handled something wants next.
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

    /// Messages of clients that the groups have not answered.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = UnderWay<'_>> + '_ {
        self.groups.values().flat_map(Pg::under_way)
    }

    /// About the memory that their logs take.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.groups.values().map(Pg::log_bytes).sum()
    }

    /// Groups to tick: all, or those whose own deadline has come.
    pub(crate) fn due(&self, now: Stamp, all: bool) -> Vec<SpgId> {
        if all {
            return self.all();
        }
        self.deadlines.iter().filter(|(_, at)| **at <= now).map(|(spg, _)| *spg).collect()
    }

    /// The group that is to be scrubbed next without anybody's order, and whether deeply; `None` while `scrubs_max` are
    /// under way, or none is due.
    pub(crate) fn next_scrub(
        &self,
        wall: UTime,
        intervals: &ScrubIntervals,
        scrubs_max: usize,
    ) -> Option<(SpgId, bool)> {
        if self.groups.values().filter(|group| group.is_scrubbing()).count() >= scrubs_max {
            return None;
        }
        let due =
            self.groups.iter().filter_map(|(spg, group)| Some((group.scrub_due(wall, intervals)?, *spg)));
        due.min().map(|((_, deep), spg)| (spg, deep))
    }

    /// True when there is something new to report.
    pub(crate) fn have_changed(&self) -> bool {
        self.changed
    }

    /// What the manager is to know.
    pub(crate) fn report(&mut self, shard: usize, usage: StoreUsage, wall: UTime) -> ShardReport {
        self.changed = false;
        let stats = self.groups.values_mut().filter_map(|group| Some((group.spg().pg, group.stat(wall)?)));
        let groups = stats.collect();
        let mut pools: BTreeMap<PoolId, (i64, i64)> = BTreeMap::new();
        for (spg, group) in &self.groups {
            let counters = &group.info().counters;
            let (data, omap) = pools.entry(spg.pg.pool).or_default();
            *data += counters.bytes;
            *omap += counters.omap_bytes;
        }
        let group_count = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        let sharers = self.groups.values().flat_map(Pg::members).collect();
        ShardReport { shard, groups, pools, group_count, sharers, usage }
    }
}
