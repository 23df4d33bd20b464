//! Objects that change their PG, because the pool gets more PGs or fewer: some at a time, for there may be millions.
//!
//! ```text
//!   split   3.1 -> 3.9, 3.17      every copy by itself, in the map that raised pg_num
//!   merge   3.7 -> 3.3            the copy of 3.3, in the map that lowered it
//!
//!   the old interval ends: nothing is served, what comes is kept
//!   steps, one per tick:   objects in order; then entries of the snapshot mapper
//!   the last one:          logs, what is missing, infos; the new interval begins, and what was kept has its turn
//! ```
//! Each step is one transaction, which says in the collection that the objects leave how far it is ([`Progress`]). So after a
//! crash the copy is loaded as it was before the map, knows where the objects are that have left it already
//! ([`Progress::place`]), and goes on when the map comes to it again.
//!
//! | file | holds |
//! |---|---|
//! | `split` | what a copy does not share with the PGs that it splits into |
//! | `merge` | what becomes of the logs and infos of copies that become one |
//! | `step` | one step: some objects, or entries of the snapshot mapper |

mod merge;
mod split;
mod step;

use crate::progress::Progress;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{Cx, Event, SessionId, storage};
use nacre_maps::OsdMap;
use nacre_txn::{Op, Transaction};
use nacre_types::{Epoch, HObject, PgId, SpgId, Stamp, hash};
use std::collections::VecDeque;
use std::sync::Arc;

/// Objects, or entries of the snapshot mapper, that one step looks at.
const STEP_MAX: usize = 128;

/// The copy of a PG that ends, as the one that takes it in has to know it.
pub(crate) struct Source {
    state: PgState,
    /// How far its objects had moved when it was stored.
    progress: Option<Progress>,
}

impl Source {
    /// Of a copy from which nothing more is to come.
    pub(crate) fn new(state: PgState, moves: Moves) -> Self {
        Self { state, progress: moves.progress }
    }

    /// How far its objects are on their way to `target`.
    fn take_progress(&mut self, target: &PgState) -> Progress {
        let begun = self.progress.take().filter(|progress| progress.shares.contains_key(&target.spg.pg));
        begun.unwrap_or_else(|| Progress::begin(target.pool.pg_num, std::iter::once(target.spg.pg)))
    }
}

/// A PG between two intervals, while its objects move.
struct Moving {
    /// The last map of the interval that ended.
    before: Arc<OsdMap>,
    /// Of a split: this copy's. Of a merge: that of the first of `sources` that is not done.
    progress: Progress,
    /// Copies that are taken in, and how many of them have moved.
    sources: Vec<Source>,
    sources_done: usize,
    /// The next step is due.
    due: Stamp,
    /// Maps that came since, and what has to wait for the new interval.
    maps: VecDeque<Arc<OsdMap>>,
    kept: Vec<Event>,
}

/// All objects are where they belong: what the PG goes on with.
#[must_use]
pub(crate) struct Moved {
    /// The last map of the interval that ended.
    pub(crate) before: Arc<OsdMap>,
    /// Its split was that of an older map: the present one splits further.
    pub(crate) splits_on: bool,
    /// Maps that came meanwhile, oldest first.
    pub(crate) maps: VecDeque<Arc<OsdMap>>,
    /// What else came meanwhile, in order.
    pub(crate) kept: Vec<Event>,
}

/// Splits and merges of one copy.
#[derive(Default)]
pub(crate) struct Moves {
    /// Changes that take in other PGs' copies, to be submitted with the interval that begins.
    pub(crate) absorbed: Vec<Op>,
    /// Copies to be taken in with the next map; `None` when it ends none for us.
    sources: Option<Vec<Source>>,
    /// PGs that were taken in with the present event. Until the next one the view shows their records.
    taken_in: Vec<PgId>,
    moving: Option<Box<Moving>>,
    /// How far objects were when this copy was stored, until the map comes again.
    progress: Option<Progress>,
}

impl Moves {
    /// Of a copy whose objects had moved so far when it was stored.
    pub(crate) fn stored(progress: Option<Progress>) -> Self {
        Self { progress, ..Self::default() }
    }

    /// Objects move, and nothing is served.
    pub(crate) fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// When the next step is due.
    pub(crate) fn due(&self) -> Option<Stamp> {
        self.moving.as_ref().map(|moving| moving.due)
    }

    /// This copy is, or was when it was stored, about to hand objects over to `spg`, which has no records of its own before
    /// that is done; or it will in one of the maps that wait until its objects have moved.
    pub(crate) fn is_splitting_off(&self, state: &PgState, spg: &SpgId) -> bool {
        if spg.pg.pool != state.spg.pg.pool || *spg == state.spg {
            return false;
        }
        let Some(moving) = &self.moving else {
            return self.progress.as_ref().is_some_and(|progress| progress.shares.contains_key(&spg.pg));
        };
        let to_come =
            moving.maps.iter().filter_map(|map| map.pools.get(&spg.pg.pool)).map(|pool| pool.pg_num);
        let numbers = || to_come.clone().chain([moving.progress.pg_num]);
        let least = numbers().fold(state.interval.pg_num, u32::min);
        let most = numbers().max().unwrap_or(0);
        (least..most).contains(&spg.pg.seed) && hash::stable_mod(spg.pg.seed, least) == state.spg.pg.seed
    }

    /// Epoch of the newest map that came, and the number of PGs by which the objects are divided then.
    pub(crate) fn newest_seen(&self, state: &PgState) -> (Epoch, u32) {
        let Some(moving) = &self.moving else { return (state.map.epoch, state.interval.pg_num) };
        let map = moving.maps.back().unwrap_or(&state.map);
        (map.epoch, map.pools.get(&state.spg.pg.pool).map_or(0, |pool| pool.pg_num))
    }

    /// Keeps copies to be taken in with the next map.
    pub(crate) fn absorb(&mut self, sources: Vec<Source>) {
        self.sources = Some(sources);
    }

    /// Begins to move what belongs elsewhere in the map that came; true when there is anything, and the interval is to end.
    /// `before` is the last map of it.
    pub(crate) fn begin(&mut self, state: &mut PgState, cx: &mut Cx<'_>, before: &Arc<OsdMap>) -> bool {
        let mut sources = self.sources.take();
        let progress = match sources.as_mut().map(|sources| sources.first_mut()) {
            Some(Some(source)) => {
                if state.in_rubble {
                    let mut txn = Transaction::new(state.spg);
                    storage::begin_anew(&mut txn);
                    state.submit(cx, txn, OnDurable::Nothing);
                }
                source.take_progress(state)
            }
            Some(None) => {
                self.absorbed = state.take_in(&[]);
                return false;
            }
            None => match self.split_progress(state, cx, before) {
                Some(progress) => progress,
                None => return false,
            },
        };
        self.moving = Some(Box::new(Moving {
            before: Arc::clone(before),
            progress,
            sources: sources.unwrap_or_default(),
            sources_done: 0,
            due: cx.now,
            maps: VecDeque::new(),
            kept: Vec::new(),
        }));
        true
    }

    /// One step. Yields what the PG goes on with when it was the last one.
    pub(crate) fn step(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<Moved> {
        let mut moving = self.moving.take()?;
        let from = moving.sources.get(moving.sources_done).map_or(state.spg, |source| source.state.spg);
        let (mut txn, max) = (Transaction::new(from), STEP_MAX.min(state.scan_objects));
        if !moving.progress.next.max {
            moving.progress.move_objects(cx.view, (max, moving.sources.is_empty()), &from, &mut txn);
        } else if !moving.progress.done {
            moving.progress.move_clones(cx.view, max, &from, &mut txn);
        } else {
            moving.sources_done += 1;
            let Some(next) = moving.sources.get_mut(moving.sources_done) else {
                return Some(self.end(state, cx, *moving));
            };
            moving.progress = next.take_progress(state);
        }
        moving.due = cx.now;
        txn.push(storage::save_progress(&moving.progress));
        self.moving = Some(moving);
        state.submit(cx, txn, OnDurable::Nothing);
        None
    }

    /// All objects are where they belong: so is all else from now on.
    fn end(&mut self, state: &mut PgState, cx: &mut Cx<'_>, moving: Moving) -> Moved {
        let Moving { before, progress, sources, maps, kept, .. } = moving;
        let splits_on = sources.is_empty() && progress.pg_num != state.pool.pg_num;
        if sources.is_empty() {
            state.split_off(cx, &before, &maps, progress);
        } else {
            self.absorbed = state.take_in(&sources);
            self.taken_in = sources.iter().map(|source| source.state.spg.pg).collect();
        }
        Moved { before, splits_on, maps, kept }
    }

    /// Keeps a map until objects have moved; gives it back if none do.
    pub(crate) fn keep_map(&mut self, map: Arc<OsdMap>) -> Option<Arc<OsdMap>> {
        let Some(moving) = &mut self.moving else { return Some(map) };
        moving.maps.push_back(map);
        None
    }

    /// Keeps an event likewise.
    pub(crate) fn keep(&mut self, event: Event) -> Option<Event> {
        let Some(moving) = &mut self.moving else { return Some(event) };
        moving.kept.push(event);
        None
    }

    /// The session is gone: its messages are not to be kept any more.
    pub(crate) fn drop_session(&mut self, session: SessionId) {
        let is_its = |event: &Event| matches!(event, Event::ClientOp(op) if op.session.id == session);
        if let Some(moving) = &mut self.moving {
            moving.kept.retain(|event| !is_its(event));
        }
    }

    /// The event that took other PGs in is over, and with the next one the view shows that.
    pub(crate) fn forget_taken_in(&mut self) {
        self.taken_in.clear();
    }
}

/// Changes of a collection beside the one that the transaction is about.
fn change(target: PgId, pg_num: u32, ops: Vec<Op>) -> Op {
    let (from, until) = (HObject::max_value(), HObject::max_value());
    Op::Move { target: SpgId::replicated(target), pg_num, from, until, ops }
}
