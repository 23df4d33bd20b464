//! [`Order`]: what placement groups want the monitor to know.

use super::{Lead, LeadCx};
use nacre_msg::{OsdAlive, OsdPgCreated, OsdPgReadyToMerge, OsdPgTemp};
use nacre_pg::{MergeRole, MergeState};
use nacre_types::{Epoch, OsdId, PgId};

/// Something that a placement group wants the monitor to know.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// Raise our `up_thru`.
    UpThru(Epoch),
    /// Let these serve the group for now.
    PgTemp(PgId, Vec<OsdId>),
    /// The group has come to life.
    Created(PgId),
    /// How far a group is that is to be merged.
    Merge(MergeState),
}

impl Lead {
    pub(crate) fn order(&mut self, cx: &mut LeadCx<'_>, order: Order) {
        let epoch = cx.maps.newest().epoch;
        match order {
            Order::UpThru(wanted) if wanted > self.up_thru_wanted => {
                self.up_thru_wanted = wanted;
                self.send_alive(epoch);
            }
            Order::UpThru(_) => (),
            Order::PgTemp(pg, acting) => {
                self.pg_temp_wanted.insert(pg, acting);
                self.send_pg_temp(epoch);
            }
            Order::Merge(state) => self.merge_state(cx, state),
            Order::Created(pg) => self.tell_mon(OsdPgCreated { version: epoch.into(), pg }.into()),
        }
        self.settle(cx);
    }

    /// One of two groups that are to be merged says how far it is. When both stand still the monitor may go on; when one
    /// cannot, it should let both serve again. Repeated by the groups on each tick: nothing of it need be kept.
    fn merge_state(&mut self, cx: &LeadCx<'_>, state: MergeState) {
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

    pub(super) fn send_alive(&mut self, epoch: Epoch) {
        let want = self.up_thru_wanted;
        self.tell_mon(OsdAlive { version: epoch.into(), want }.into());
    }

    pub(super) fn send_pg_temp(&mut self, epoch: Epoch) {
        if self.pg_temp_wanted.is_empty() {
            return;
        }
        let pg_temp = self.pg_temp_wanted.clone();
        self.tell_mon(OsdPgTemp { version: epoch.into(), map_epoch: epoch, pg_temp, forced: false }.into());
    }
}
