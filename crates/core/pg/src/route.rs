//! What one part of a PG wants of another. No part knows another one: it is asked with what it may know, and what it wants done comes back
//! as a value, which is routed here.

use crate::pipeline::Pipeline;
use crate::recovery::Recovery;
use crate::scrub::Compared;
use crate::state::PgState;
use crate::{Cx, Pg};
use nacre_types::HObject;

impl Pg {
    /// Ends watches whose time is up.
    pub(crate) fn expire_watches(&mut self, cx: &mut Cx<'_>) {
        let Self { state, watches, recovery, pipeline, .. } = self;
        let is_in_use = |head: &HObject| is_in_use(state, recovery, pipeline, head);
        if let Some(change) = watches.expire(state, cx, is_in_use) {
            self.submit_own(cx, change);
        }
    }

    /// Ends watches of clients that the map shuts out.
    pub(crate) fn drop_blocklisted(&mut self, cx: &mut Cx<'_>) {
        let Self { state, watches, recovery, pipeline, .. } = self;
        let is_in_use = |head: &HObject| is_in_use(state, recovery, pipeline, head);
        if let Some(change) = watches.drop_blocklisted(state, cx, is_in_use) {
            self.submit_own(cx, change);
        }
    }

    /// Has recovery repair what a scrub found, chunk by chunk as the scrub goes on.
    pub(crate) fn repair_compared(&mut self, cx: &mut Cx<'_>, mut compared: Option<Compared>) {
        while let Some(Compared { repairs }) = compared {
            let begun = repairs.iter().filter(|repair| self.repair_copies(cx, repair)).count();
            compared = self.scrub.go_on(&mut self.state, cx, begun as u64);
        }
    }

    /// Trims some clones of removed snapshots.
    pub(crate) fn trim_snaps(&mut self, cx: &mut Cx<'_>) {
        let mut round = self.snaptrim.begin_round();
        loop {
            let Self { state, snaptrim, recovery, pipeline, .. } = self;
            let is_in_use = |state: &PgState, head: &HObject| is_in_use(state, recovery, pipeline, head);
            match snaptrim.next(&mut round, state, cx, is_in_use) {
                Some(change) => self.submit_own(cx, change),
                None => return,
            }
        }
    }
}

/// A change of the object by ourselves has to wait: some copy lacks it, or a message waits for data to look at it as it is.
fn is_in_use(state: &PgState, recovery: &Recovery, pipeline: &Pipeline, head: &HObject) -> bool {
    recovery.must_recover(state, head, true) || !pipeline.is_undisturbed(head)
}
