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
//! Each step is one transaction, which says in the collection that the objects leave how far it is (`moving`). So after a
//! crash the copy is loaded as it was before the map, knows where the objects are that have left it already
//! (`Progress::place`), and goes on when the map comes to it again.

use crate::object::ObjectContext;
use crate::phase::Phase;
use crate::progress::Progress;
use crate::snap::mapper;
use crate::tokens::OnDurable;
use crate::{Cx, Event, Pg, split, storage};
use nacre_maps::OsdMap;
use nacre_txn::{ObjectView, Op, Transaction};
use nacre_types::{Epoch, HObject, PgId, SnapId, SpgId, Stamp, hash};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Objects, or entries of the snapshot mapper, that one step looks at.
const STEP_MAX: usize = 128;

impl Progress {
    /// Moves the next objects, at most `max`; with `count`, adds up what their heads stand for.
    fn move_objects(
        &mut self,
        view: &dyn ObjectView,
        (max, count): (usize, bool),
        from: &SpgId,
        txn: &mut Transaction,
    ) {
        let mut page = view.list(from, &self.next, max + 1);
        let until = if page.len() > max { page.pop() } else { None };
        let until = until.unwrap_or_else(HObject::max_value).detached();
        let mut targets: BTreeSet<PgId> = BTreeSet::new();
        for object in &page {
            let home = object.pg(self.pg_num);
            let Some(share) = self.shares.get_mut(&home) else { continue };
            targets.insert(home);
            // A damaged record counts for nothing; recovery and scrub deal with it in the child.
            if count
                && object.snap == SnapId::HEAD
                && let Ok(context) = ObjectContext::load(view, from, object)
            {
                split::add_head(share, &context);
            }
        }
        for target in targets {
            txn.push(Op::Move {
                target: SpgId::replicated(target),
                pg_num: self.pg_num,
                from: self.next.clone(),
                until: until.clone(),
                ops: Vec::new(),
            });
        }
        self.next = until;
    }

    /// Moves the next entries of the snapshot mapper, at most `max`.
    fn move_clones(&mut self, view: &dyn ObjectView, max: usize, from: &SpgId, txn: &mut Transaction) {
        let page = view.pg_meta_page(from, mapper::KEY_PREFIX, &self.clones_next, max);
        self.done = page.len() < max;
        if let Some((last, _)) = page.last() {
            // The least key behind it.
            self.clones_next = [&last[..], &[0]].concat().into();
        }
        let mut moved: BTreeMap<PgId, Vec<Op>> = BTreeMap::new();
        for (key, value) in page {
            let Some(home) = mapper::clone_of(&key).map(|clone| clone.pg(self.pg_num)) else { continue };
            if self.shares.contains_key(&home) {
                moved.entry(home).or_default().push(Op::MetaSet { key: key.clone(), value });
                txn.push(Op::MetaRemove { key });
            }
        }
        txn.ops.extend(moved.into_iter().map(|(target, ops)| change(target, self.pg_num, ops)));
    }
}

/// Changes of a collection beside the one that the transaction is about.
pub(crate) fn change(target: PgId, pg_num: u32, ops: Vec<Op>) -> Op {
    let (from, until) = (HObject::max_value(), HObject::max_value());
    Op::Move { target: SpgId::replicated(target), pg_num, from, until, ops }
}

/// A PG between two intervals, while its objects move.
pub(crate) struct Moving {
    /// The last map of the interval that ended.
    before: Arc<OsdMap>,
    /// Of a split: this copy's. Of a merge: that of the first of `sources` that is not done.
    progress: Progress,
    /// Copies that are taken in, and how many of them have moved.
    sources: Vec<Pg>,
    sources_done: usize,
    /// The next step is due.
    due: Stamp,
    /// Maps that came since, and what has to wait for the new interval.
    maps: VecDeque<Arc<OsdMap>>,
    kept: Vec<Event>,
}

impl Pg {
    /// Objects move, and nothing is served.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// This copy is, or was when it was stored, about to hand objects over to `spg`, which has no records of its own before
    /// that is done; or it will in one of the maps that wait until its objects have moved.
    #[must_use]
    pub fn is_splitting_off(&self, spg: &SpgId) -> bool {
        if spg.pg.pool != self.state.spg.pg.pool || *spg == self.state.spg {
            return false;
        }
        let Some(moving) = &self.moving else {
            return self.progress.as_ref().is_some_and(|progress| progress.shares.contains_key(&spg.pg));
        };
        let to_come =
            moving.maps.iter().filter_map(|map| map.pools.get(&spg.pg.pool)).map(|pool| pool.pg_num);
        let numbers = || to_come.clone().chain([moving.progress.pg_num]);
        let least = numbers().fold(self.state.interval.pg_num, u32::min);
        let most = numbers().max().unwrap_or(0);
        (least..most).contains(&spg.pg.seed) && hash::stable_mod(spg.pg.seed, least) == self.state.spg.pg.seed
    }

    /// Whether the map of `epoch`, or a newer one, has come.
    #[must_use]
    pub fn has_seen(&self, epoch: Epoch) -> bool {
        self.newest_seen().0 >= epoch
    }

    /// Epoch of the newest map that came, and the number of PGs by which the objects are divided then.
    pub(crate) fn newest_seen(&self) -> (Epoch, u32) {
        let Some(moving) = &self.moving else { return (self.state.map.epoch, self.state.interval.pg_num) };
        let map = moving.maps.back().unwrap_or(&self.state.map);
        (map.epoch, map.pools.get(&self.state.spg.pg.pool).map_or(0, |pool| pool.pg_num))
    }

    /// When the next step is due.
    pub(crate) fn moving_due(&self) -> Option<Stamp> {
        self.moving.as_ref().map(|moving| moving.due)
    }

    /// Ends the interval if objects are to move in the map that came; true while they do. `before` is the last map of the
    /// interval.
    pub(crate) fn begin_moving(&mut self, cx: &mut Cx<'_>, before: &Arc<OsdMap>) -> bool {
        let mut sources = self.sources.take();
        let progress = match sources.as_mut().map(|sources| sources.first_mut()) {
            Some(Some(source)) => {
                if self.state.in_rubble {
                    let mut txn = Transaction::new(self.state.spg);
                    storage::begin_anew(&mut txn);
                    self.state.submit(cx, txn, OnDurable::Nothing);
                }
                self.progress_of(source)
            }
            Some(None) => {
                self.take_in(&[]);
                return false;
            }
            None => match self.split_progress(cx, before) {
                Some(progress) => progress,
                None => return false,
            },
        };
        self.cancel(cx);
        self.backoffs.release_all(&self.state, cx);
        self.watches.forget();
        self.state.peers.clear();
        (self.state.phase, self.state.begun) = (Phase::Stray, false);
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

    /// How far a copy is that this one takes in.
    fn progress_of(&self, source: &mut Self) -> Progress {
        let begun =
            source.progress.take().filter(|progress| progress.shares.contains_key(&self.state.spg.pg));
        begun.unwrap_or_else(|| Progress::begin(self.state.pool.pg_num, std::iter::once(self.state.spg.pg)))
    }

    /// What happens while objects move: a step, or it has to wait.
    pub(crate) fn handle_while_moving(&mut self, cx: &mut Cx<'_>, event: Event) {
        let Some(moving) = &mut self.moving else { return };
        match event {
            Event::Tick => self.move_on(cx),
            Event::Map => moving.maps.push_back(Arc::clone(cx.map)),
            Event::ClientOp(_) | Event::Force { .. } | Event::MarkLost(_) | Event::Scrub { .. } => {
                moving.kept.push(event);
            }
            Event::SessionClosed(session) => {
                let is_its = |event: &Event| matches!(event, Event::ClientOp(op) if op.session.id == session);
                moving.kept.retain(|event| !is_its(event));
                self.session_closed(cx, session);
            }
            Event::Resume => {}
            event => self.react(cx, event),
        }
    }

    /// One step.
    fn move_on(&mut self, cx: &mut Cx<'_>) {
        let Some(mut moving) = self.moving.take() else { return };
        let from = moving.sources.get(moving.sources_done).map_or(self.state.spg, |source| source.state.spg);
        let (mut txn, max) = (Transaction::new(from), STEP_MAX.min(self.state.scan_objects));
        if !moving.progress.next.max {
            moving.progress.move_objects(cx.view, (max, moving.sources.is_empty()), &from, &mut txn);
        } else if !moving.progress.done {
            moving.progress.move_clones(cx.view, max, &from, &mut txn);
        } else {
            moving.sources_done += 1;
            let Some(next) = moving.sources.get_mut(moving.sources_done) else {
                return self.end_moving(cx, *moving);
            };
            moving.progress = self.progress_of(next);
        }
        moving.due = cx.now;
        txn.push(storage::save_progress(&moving.progress));
        self.moving = Some(moving);
        self.state.submit(cx, txn, OnDurable::Nothing);
    }

    /// All objects are where they belong.
    fn end_moving(&mut self, cx: &mut Cx<'_>, moving: Moving) {
        let Moving { before, progress, sources, mut maps, kept, .. } = moving;
        // The map of this split is gone, and the one that came splits further.
        let more = sources.is_empty() && progress.pg_num != self.state.pool.pg_num;
        if sources.is_empty() {
            self.state.split_off(cx, &before, &maps, progress);
        } else {
            self.take_in(&sources);
            self.taken_in = sources.iter().map(|source| source.state.spg.pg).collect();
        }
        if !(more && self.begin_moving(cx, &before)) {
            self.take_interval(cx, &before);
        }
        while let Some(map) = maps.pop_front() {
            if let Some(moving) = &mut self.moving {
                moving.maps.push_back(map);
                continue;
            }
            let (now, wall, view, room) = (cx.now, cx.wall, cx.view, cx.room);
            let (entropy, throttle, effects) = (&mut *cx.entropy, &mut *cx.throttle, &mut *cx.effects);
            self.advance_map(&mut Cx { now, wall, map: &map, view, room, entropy, throttle, effects });
        }
        self.taken_in.clear();
        for event in kept {
            if self.is_removed() {
                return;
            }
            match &mut self.moving {
                Some(moving) => moving.kept.push(event),
                None => self.react(cx, event),
            }
        }
    }
}
