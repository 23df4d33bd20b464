//! What one part of a PG wants of another. No part knows another one: it is asked with what it may know, and what it wants done comes back
//! as a value, which is routed here.

use crate::{Cx, Pg};
use nacre_types::HObject;

impl Pg {
    /// Ends watches whose time is up.
    pub(crate) fn expire_watches(&mut self, cx: &mut Cx<'_>) {
        let Self { state, watches, recovery, pipeline, .. } = self;
        let is_in_use =
            |head: &HObject| recovery.must_recover(state, head, true) || !pipeline.is_undisturbed(head);
        if let Some(change) = watches.expire(state, cx, is_in_use) {
            self.submit_own(cx, change);
        }
    }

    /// Ends watches of clients that the map shuts out.
    pub(crate) fn drop_blocklisted(&mut self, cx: &mut Cx<'_>) {
        let Self { state, watches, recovery, pipeline, .. } = self;
        let is_in_use =
            |head: &HObject| recovery.must_recover(state, head, true) || !pipeline.is_undisturbed(head);
        if let Some(change) = watches.drop_blocklisted(state, cx, is_in_use) {
            self.submit_own(cx, change);
        }
    }
}
