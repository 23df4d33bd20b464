//! What one part of a PG wants of another. No part changes another one: what it wants done comes back as a value, and is led on here.

use crate::backend::ec::GatherOutcome;
use crate::phase::Phase;
use crate::pipeline::ObjectUse;
use crate::recovery::{Recovery, RecoveryOutcome};
use crate::scrub::{Compared, Repair};
use crate::state::PgState;
use crate::tokens::OnFetched;
use crate::{Cx, Lost, Pg};
use nacre_types::HObject;

impl Pg {
    /// Ends watches whose time is up.
    pub(crate) fn expire_watches(&mut self, cx: &mut Cx<'_>) {
        let Self { state, watches, recovery, pipeline, .. } = self;
        let is_in_use = |head: &HObject| is_in_use(state, recovery, pipeline.object_use(), head);
        if let Some(change) = watches.expire(state, cx, is_in_use) {
            self.submit_own(cx, change);
        }
    }

    /// Ends watches of clients that the map shuts out.
    pub(crate) fn drop_blocklisted(&mut self, cx: &mut Cx<'_>) {
        let Self { state, watches, recovery, pipeline, .. } = self;
        let is_in_use = |head: &HObject| is_in_use(state, recovery, pipeline.object_use(), head);
        if let Some(change) = watches.drop_blocklisted(state, cx, is_in_use) {
            self.submit_own(cx, change);
        }
    }

    /// Has recovery repair what a scrub found, and writes wait for what it compares next, as the scrub goes on.
    pub(crate) fn repair_compared(&mut self, cx: &mut Cx<'_>, mut compared: Option<Compared>) {
        while let Some(Compared { repairs, hold }) = compared {
            self.pipeline.hold(hold);
            let Self { state, recovery, pipeline, .. } = self;
            let ops = pipeline.object_use();
            let is_begun = |repair: &&Repair| recovery.repair_copies(state, cx, ops, repair);
            let begun = repairs.iter().filter(is_begun).count();
            compared = self.scrub.go_on(&mut self.state, cx, begun as u64);
        }
    }

    /// Starts recoveries as far as the limit allows.
    pub(crate) fn start_recoveries(&mut self, cx: &mut Cx<'_>) {
        let Some(mut round) = self.recovery.begin_round(&self.state, !self.reservations.has_none()) else {
            return;
        };
        let is_active = matches!(self.state.phase, Phase::Active { .. });
        let due = if is_active { self.recovery.due(&self.state) } else { None };
        self.reservations.update(&self.state, cx, due);
        if !is_active {
            return;
        }
        loop {
            let Self { state, recovery, reservations, pipeline, .. } = self;
            let outcome = recovery.next(&mut round, state, cx, pipeline.object_use(), reservations);
            if outcome.is_none() {
                return;
            }
            self.follow_recovery(cx, outcome);
        }
    }

    /// Goes on with what came of a step of recovery.
    pub(crate) fn follow_recovery(&mut self, cx: &mut Cx<'_>, mut outcome: Option<RecoveryOutcome>) {
        while let Some(came) = outcome.take() {
            match came {
                RecoveryOutcome::GoOn(head) => self.go_on_with(cx, &head),
                RecoveryOutcome::OutOfReach(head) => self.pipeline.wake_recovered(&head),
                RecoveryOutcome::Here(object) => {
                    self.go_on_with(cx, &object.to_head());
                    let Self { state, recovery, pipeline, .. } = self;
                    outcome = recovery.recover(state, cx, pipeline.object_use(), object);
                }
                RecoveryOutcome::Everywhere(head) => {
                    self.go_on_with(cx, &head);
                    self.note_whole_peers(cx);
                }
                RecoveryOutcome::Compared => self.note_whole_peers(cx),
            }
        }
    }

    /// Goes on with what came of a step of collecting chunks.
    pub(crate) fn follow_gather(&mut self, cx: &mut Cx<'_>, mut outcome: Option<GatherOutcome>) {
        while let Some(came) = outcome.take() {
            let Self { state, pipeline, recovery, gathers, .. } = self;
            match came {
                GatherOutcome::DamagedHere(token, object) => {
                    recovery.repair_here(state, cx, &object);
                    outcome = gathers.chunk_is_damaged(state, cx, state.whoami, token);
                }
                GatherOutcome::DamagedThere(token, from, object, version) => {
                    recovery.repair_there(state, from, object, version);
                    outcome = gathers.chunk_is_damaged(state, cx, from, token);
                }
                GatherOutcome::Done(token, piece) => {
                    if let Some(mut op_ctx) = pipeline.take_parked(token) {
                        op_ctx.gathered.push(piece);
                        self.unpark(cx, op_ctx);
                    } else if let Some(OnFetched::Copy { from, get, mut gathered }) =
                        state.tokens.take_fetch(token)
                    {
                        gathered.push(piece);
                        self.answer_copy(cx, from, *get, gathered);
                    }
                }
                GatherOutcome::Failed(token) => {
                    if let Some(op_ctx) = pipeline.take_parked(token) {
                        self.unreadable(cx, *op_ctx);
                    } else if let Some(OnFetched::Copy { from, get, .. }) = state.tokens.take_fetch(token) {
                        state.refuse_copy(cx, from, &get);
                    }
                }
            }
        }
    }

    /// Messages that waited for an object go on.
    fn go_on_with(&mut self, cx: &mut Cx<'_>, head: &HObject) {
        self.pipeline.wake_recovered(head);
        self.pipeline.backoffs.release_object(&self.state, cx, head);
    }

    /// Tells copies once that they miss nothing any more, and goes on if that was what the PG waited for.
    fn note_whole_peers(&mut self, cx: &mut Cx<'_>) {
        self.state.tell_whole_peers(cx);
        let _clean = self.finish_if_clean(cx);
        self.reconsider_serving(cx);
    }

    /// The operator gives up what no copy has.
    pub(crate) fn mark_lost(&mut self, cx: &mut Cx<'_>, lost: Lost) {
        for object in self.recovery.lost_objects(&self.state, cx.view, lost) {
            let change = self.recovery.mark_object_lost(&mut self.state, cx, &object, lost);
            let head = change.head.clone();
            self.submit_own(cx, change);
            self.recovery.retry(&head);
            self.pipeline.backoffs.release_object(&self.state, cx, &head);
        }
    }

    /// Trims some clones of removed snapshots.
    pub(crate) fn trim_snaps(&mut self, cx: &mut Cx<'_>) {
        let mut round = self.snaptrim.begin_round(&mut self.state, cx.now);
        loop {
            let Self { state, snaptrim, recovery, pipeline, .. } = self;
            let is_in_use =
                |state: &PgState, head: &HObject| is_in_use(state, recovery, pipeline.object_use(), head);
            match snaptrim.next(&mut round, state, cx, is_in_use) {
                Some(change) => self.submit_own(cx, change),
                None => return,
            }
        }
    }
}

/// A change of the object by ourselves has to wait: some copy lacks it, or a message waits for data to look at it as it is.
fn is_in_use(state: &PgState, recovery: &Recovery, ops: ObjectUse<'_>, head: &HObject) -> bool {
    recovery.must_recover(state, head, true) || !ops.is_undisturbed(head)
}
