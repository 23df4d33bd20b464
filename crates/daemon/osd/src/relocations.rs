//! What a shard knows of PGs that change their partition: see `relocation`.

use crate::own_collection::{ancestors, is_of_pool};
use crate::relocation_msg::Run;
use crate::shard_msg::MovedPg;
use nacre_maps::OsdMap;
use nacre_msg::stats::PgStat;
use nacre_pg::{Arriving, CollectionCopy, Pg};
use nacre_store::ObjectStore;
use nacre_txn::{Op, StoreToken};
use nacre_types::{Epoch, PgId, SpgId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The store's names of what is asked of it here: behind those of the bench, which counts blocks.
const TOKENS_FROM: u64 = 1 << 63;

/// A collection that a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) partition: usize,
    pub(crate) spg: SpgId,
    pub(crate) arriving: Option<Arriving>,
    /// The map that it has come to; `None` where it has no records of a PG, like one that is being split off.
    pub(crate) seen: Option<Epoch>,
}

impl Located {
    /// Its PG ended with a map that its partition had not seen yet, and was made anew in another one with a later map.
    pub(crate) fn is_outlived_by(&self, other: &Self) -> bool {
        self.spg == other.spg && self.seen.zip(other.seen).is_some_and(|(seen, newer)| seen < newer)
    }
}

/// The partitions that a shard has, by their numbers: of a store that is not divided the one with the shard's.
pub(crate) fn partitions(store: &dyn ObjectStore, shard: usize) -> Vec<(usize, &dyn ObjectStore)> {
    let all = store.each_partition();
    if all.is_empty() { vec![(shard, store)] } else { all }
}

/// The PGs' collections in the partitions that a shard has.
pub(crate) fn located(store: &dyn ObjectStore, shard: usize) -> Vec<Located> {
    let of = |(partition, store): (usize, &dyn ObjectStore)| -> Vec<Located> {
        let pgs = store.collections().into_iter().filter(is_of_pool);
        let at = |spg| {
            let (arriving, seen) = (Arriving::of(store, &spg), Pg::stored_epoch(store, &spg));
            Located { partition, spg, arriving, seen }
        };
        pgs.map(at).collect()
    };
    partitions(store, shard).into_iter().flat_map(of).collect()
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
    /// The newest map that any shard has: the PGs are in it.
    pub(crate) since: Epoch,
}

/// A copy that goes.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) spg: SpgId,
    pub(crate) run: Run,
    pub(crate) to: usize,
    pub(crate) seen: Epoch,
    pub(crate) copy: CollectionCopy,
    /// Pieces that the other side waits for.
    pub(crate) wanted: usize,
    pub(crate) is_fetching: bool,
    pub(crate) is_sent: bool,
    /// All is there; it is removed here.
    pub(crate) is_leaving: bool,
    /// What the manager hears of it meanwhile, where this OSD leads it.
    pub(crate) stat: Option<PgStat>,
}

/// A copy that comes.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) run: Run,
    pub(crate) to: usize,
    pub(crate) seen: Epoch,
    /// Nothing of it is to be here before that map: whatever map its PG has come to, the store must have it.
    pub(crate) epoch: Epoch,
    pub(crate) has_begun: bool,
    /// What is not written yet.
    pub(crate) pieces: VecDeque<(Vec<Op>, bool)>,
    /// It was said that there is no room.
    pub(crate) is_told: bool,
}

/// What the store is asked to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Awaited {
    Begun(SpgId, Run),
    Written { spg: SpgId, run: Run, is_last: bool },
    Fetched(Run),
    Removed(Run),
}

/// What is known of a PG that comes, or may.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// It sees the maps from that of this epoch on later.
    pub(crate) needs_from: Epoch,
    /// The map that it was called with, or a later one that has it.
    pub(crate) since: Epoch,
}

/// The PGs of a shard that change their partition.
#[derive(Debug, Default)]
pub(crate) struct Relocations {
    /// Those that go; the first one is copied.
    pub(crate) departures: VecDeque<Departure>,
    /// Those that come, or may come: nothing may be answered for them.
    pub(crate) expected: BTreeMap<SpgId, Expected>,
    pub(crate) arrivals: BTreeMap<SpgId, Arrival>,
    /// Those that do not come, by the map of this epoch, which is not here yet.
    pub(crate) absent: BTreeMap<SpgId, Epoch>,
    /// As the OSD started: those that go, and copies that do not come.
    pub(crate) going: Vec<MovedPg>,
    /// The map with which these go.
    pub(crate) departs_with: Epoch,
    pub(crate) abandoned: Vec<Located>,
    pub(crate) awaited: BTreeMap<u64, Awaited>,
    tokens: u64,
    runs: u64,
}

impl Relocations {
    /// As the OSD starts.
    pub(crate) fn begin_with(&mut self, misplaced: MisplacedHere) {
        let MisplacedHere { coming, going, abandoned, since } = misplaced;
        // Which maps they lack is known when they have been loaded.
        let expected = Expected { needs_from: 0, since };
        self.expected = coming.into_iter().map(|spg| (spg, expected)).collect();
        (self.going, self.abandoned, self.departs_with) = (going, abandoned, since);
    }

    /// The oldest map that a PG sees later which changes its partition.
    pub(crate) fn maps_needed_from(&self) -> Option<Epoch> {
        let going = self.going.iter().map(|_| 0);
        let gone = self.departures.iter().map(|departure| departure.seen);
        going.chain(gone).chain(self.expected.values().map(|it| it.needs_from)).min()
    }

    /// What the manager is to know of those that go, and nobody serves.
    pub(crate) fn stats(&self) -> impl Iterator<Item = (PgId, PgStat)> + '_ {
        self.departures.iter().filter_map(|gone| Some((gone.spg.pg, gone.stat.clone()?)))
    }

    /// Whether the PG comes from another partition, or may, or the one that it is to be split off.
    pub(crate) fn expects(&self, spg: &SpgId) -> bool {
        !self.expected.is_empty()
            && ancestors(spg.pg).any(|pg| self.expected.contains_key(&SpgId::replicated(pg)))
    }

    /// The PG does not come, unless it does so already.
    pub(crate) fn note_absent(&mut self, spg: &SpgId) {
        if !self.arrivals.contains_key(spg) {
            self.expected.remove(spg);
        }
    }

    /// Whether a copy goes from here.
    pub(crate) fn is_leaving(&self, spg: &SpgId) -> bool {
        self.departures.iter().any(|departure| departure.spg == *spg)
    }

    /// A name for a copy that goes from shard `from`.
    pub(crate) fn new_run(&mut self, from: usize) -> Run {
        self.runs += 1;
        Run { from, number: self.runs }
    }

    /// The copy on its way that this is about.
    pub(crate) fn arrival(&mut self, spg: &SpgId, run: Run) -> Option<&mut Arrival> {
        self.arrivals.get_mut(spg).filter(|arrival| arrival.run == run)
    }

    /// Likewise where it goes from.
    pub(crate) fn departure(&mut self, run: Run) -> Option<&mut Departure> {
        self.departures.front_mut().filter(|first| first.run == run)
    }

    /// Whether a turn is due although nothing happens.
    pub(crate) fn has_work(&self) -> bool {
        self.departures.front().is_some_and(Departure::is_due)
    }

    /// Whether the store was asked here.
    pub(crate) fn is_own(&self, of: StoreToken) -> bool {
        !of.is_of_pg() && self.awaited.contains_key(&of.token.0)
    }

    pub(crate) fn token(&mut self, awaited: Awaited) -> StoreToken {
        self.tokens += 1;
        self.awaited.insert(TOKENS_FROM + self.tokens, awaited);
        StoreToken::without_pg(TOKENS_FROM + self.tokens)
    }
}

impl Departure {
    pub(crate) fn is_due(&self) -> bool {
        self.wanted > 0 && !self.is_fetching && !self.is_sent
    }
}
