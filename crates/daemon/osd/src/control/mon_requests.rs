//! [`MonRequest`]: what PGs want the monitor to know.

use super::{ControlCx, OsdControl};
use nacre_msg::{OsdPgCreated, OsdPgReadyToMerge};
use nacre_osd_core::Event as BootEvent;
use nacre_pg::{MergeRole, MergeState};
use nacre_types::{Epoch, OsdId, PgId};

/// Something that a PG wants the monitor to know.
#[derive(Debug, Clone)]
pub(crate) enum MonRequest {
    /// Raise our `up_thru`.
    UpThru(Epoch),
    /// Let these serve the PG for now.
    PgTemp(PgId, Vec<OsdId>),
    /// The PG has come to life.
    Created(PgId),
    /// How far a PG is that is to be merged.
    Merge(MergeState),
}

impl OsdControl {
    pub(crate) fn order(&mut self, cx: &mut ControlCx<'_>, order: MonRequest) {
        let epoch = cx.maps.newest().epoch;
        match order {
            MonRequest::UpThru(wanted) => self.boot_event(cx, BootEvent::WantUpThru(wanted)),
            MonRequest::PgTemp(pg, acting) => self.boot_event(cx, BootEvent::WantPgTemp(pg, acting)),
            MonRequest::Merge(state) => self.merge_state(cx, state),
            MonRequest::Created(pg) => self.tell_mon(OsdPgCreated { version: epoch.into(), pg }.into()),
        }
        self.settle(cx);
    }

    /// One of two PGs that are to be merged says how far it is. When both stand still the monitor may go on; when one
    /// cannot, it should let both serve again. Repeated by the PGs on each tick: nothing of it need be kept.
    fn merge_state(&mut self, cx: &ControlCx<'_>, state: MergeState) {
        let pool = cx.maps.newest().pool(state.source.pool);
        if pool
            .is_none_or(|pool| pool.pg_num_pending != state.source.seed || pool.pg_num <= state.source.seed)
        {
            self.merges.remove(&state.source);
            return;
        }
        let pair = self.merges.entry(state.source).or_default();
        match state.role {
            MergeRole::Source => pair.0 = Some(state),
            MergeRole::Target => pair.1 = Some(state),
        }
        let (source, target) = match *pair {
            (Some(source), Some(target)) => (source, target),
            _ if !state.clean => (state, state),
            _ => return,
        };
        self.merges.remove(&state.source);
        let ready = OsdPgReadyToMerge {
            version: source.epoch.min(target.epoch).into(),
            pg: state.source,
            source_version: source.version,
            target_version: target.version,
            last_epoch_started: target.last_epoch_started,
            last_epoch_clean: target.last_epoch_clean,
            ready: source.clean && target.clean,
        };
        self.tell_mon(ready.into());
    }
}
