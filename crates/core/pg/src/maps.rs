//! What a map does to a PG: objects move, intervals end and begin.

use crate::moving::{Moved, Source};
use crate::ops::PoolFacts;
use crate::phase::Phase;
use crate::{ClientOp, Cx, Effect, Event, Pg};
use nacre_maps::OsdMap;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Pg {
    /// Takes in the copies of PGs that end with `cx.map`, as far as this OSD has them; [`crate::Event::Map`] with
    /// that map must come next. Their objects come some at a time (`moving/`).
    pub fn absorb(&mut self, cx: &mut Cx<'_>, sources: Vec<Self>) {
        let sources = sources.into_iter().map(|source| source.end(cx)).collect();
        self.moves.absorb(sources);
    }

    /// The copy goes to another store of its OSD, as it is stored, and begins there with the next map as after a restart; in this one its
    /// clients are to send again. Nothing of it changes any more. Yields messages of clients that know a newer map: they do not send these
    /// again.
    pub fn leave(mut self, cx: &mut Cx<'_>) -> Vec<ClientOp> {
        let ahead = self.pipeline.take_future();
        self.pipeline.backoffs.release_all(&self.state, cx);
        let sessions: BTreeSet<_> = self.ops_in_flight().map(|waiting| waiting.op.session.id).collect();
        for session in sessions {
            cx.effects.push(Effect::PushMaps { session, since: self.state.map.epoch });
        }
        ahead
    }

    /// The PG is no more: its clients are to look for their objects elsewhere.
    fn end(mut self, cx: &mut Cx<'_>) -> Source {
        self.pipeline.backoffs.release_all(&self.state, cx);
        for session in self.pipeline.sessions() {
            cx.effects.push(Effect::PushMaps { session, since: self.state.map.epoch });
        }
        Source::new(self.state, self.moves)
    }

    /// Follows the map that came: what belongs elsewhere moves first, then its interval may begin.
    pub(crate) fn advance_map(&mut self, cx: &mut Cx<'_>) {
        let before = std::mem::replace(&mut self.state.map, Arc::clone(cx.map));
        let Some(pool) = PoolFacts::of(cx.map, self.state.spg.pg.pool) else {
            return self.remove(cx);
        };
        if self.state.spg.pg.seed >= pool.pg_num {
            return self.remove(cx); // merged, and there was no copy here of what it was merged into
        }
        self.state.follow_map(&before, pool);
        if !self.begin_moving(cx, &before) {
            self.take_interval(cx, &before);
        }
    }

    /// What belongs to other PGs is there, and what is ours is here: the map's interval may begin.
    fn take_interval(&mut self, cx: &mut Cx<'_>, before: &OsdMap) {
        self.advance_interval(cx, before);
        self.drop_blocklisted(cx);
        self.snaptrim.queue_removed_snaps(&mut self.state);
        self.pipeline.wake_for_epoch(self.state.map.epoch);
        self.handle_early(cx);
    }

    /// Ends the interval if objects are to move in the map that came; true while they do. `before` is the last map of the
    /// interval.
    fn begin_moving(&mut self, cx: &mut Cx<'_>, before: &Arc<OsdMap>) -> bool {
        let moves = self.moves.begin(&mut self.state, cx, before);
        if moves {
            self.end_interval(cx);
            self.state.begun = false;
        }
        moves
    }

    /// What happens while objects move: a step, or it has to wait.
    pub(crate) fn handle_while_moving(&mut self, cx: &mut Cx<'_>, event: Event) {
        let now = match event {
            Event::Tick => return self.move_on(cx),
            Event::Map => return drop(self.moves.keep_map(Arc::clone(cx.map))),
            Event::Resume => return,
            Event::ClientOp(_) | Event::Force { .. } | Event::MarkLost(_) | Event::Scrub { .. } => {
                self.moves.keep(event)
            }
            Event::SessionClosed(session) => {
                self.moves.drop_session(session);
                Some(event)
            }
            event => Some(event),
        };
        if let Some(event) = now {
            self.react(cx, event);
        }
    }

    /// One step of moving objects; behind the last one all that came meanwhile has its turn.
    fn move_on(&mut self, cx: &mut Cx<'_>) {
        let Some(moved) = self.moves.step(&mut self.state, cx) else { return };
        let Moved { before, splits_on, maps, kept } = moved;
        if !(splits_on && self.begin_moving(cx, &before)) {
            self.take_interval(cx, &before);
        }
        for map in maps {
            if let Some(map) = self.moves.keep_map(map) {
                let (now, wall, view, room) = (cx.now, cx.wall, cx.view, cx.room);
                let (entropy, throttle, effects) = (&mut *cx.entropy, &mut *cx.throttle, &mut *cx.effects);
                self.advance_map(&mut Cx { now, wall, map: &map, view, room, entropy, throttle, effects });
            }
        }
        self.moves.forget_taken_in();
        for event in kept {
            if self.is_removed() {
                return;
            }
            if let Some(event) = self.moves.keep(event) {
                self.react(cx, event);
            }
        }
    }

    /// Looks whether the map that came begins a new interval; `before` is the last map of the current one.
    pub(crate) fn advance_interval(&mut self, cx: &mut Cx<'_>, before: &OsdMap) {
        if self.state.advance_interval(cx, before, &mut self.moves.absorbed) {
            self.begin_interval(cx);
            self.state.notify_primary(cx);
        } else {
            let outcome = self.peering.reconsider(&mut self.state, cx);
            self.follow_peering(cx, outcome);
        }
    }

    /// Forgets all that belonged to the interval before and begins this one.
    pub(crate) fn begin_interval(&mut self, cx: &mut Cx<'_>) {
        self.state.begun = true;
        self.peering.patience.renew();
        if let Some(ec) = &mut self.state.ec {
            ec.may_change = false; // a member may have come that lacks something
        }
        self.end_interval(cx);
        if !self.is_primary() {
            self.reservations.forget_forced();
        } else {
            self.state.phase = Phase::GetInfo { waiting: BTreeSet::new() };
            let outcome = self.peering.start(&mut self.state, cx);
            self.follow_peering(cx, outcome);
        }
    }

    /// Forgets all that belonged to the interval.
    fn end_interval(&mut self, cx: &mut Cx<'_>) {
        self.cancel(cx);
        self.pipeline.backoffs.release_all(&self.state, cx);
        self.watches.forget(); // clients watch again when the interval changes
        self.state.peers.clear();
        self.state.phase = Phase::Stray;
    }
}
