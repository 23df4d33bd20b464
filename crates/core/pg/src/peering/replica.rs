//! A copy that is not primary: what the primary's orders do to it.

use super::Peering;
use crate::Cx;
use crate::phase::Phase;
use crate::state::PgState;
use crate::storage::begin_anew;
use crate::tokens::OnDurable;
use nacre_msg::peer::{Activate, Activated, Progress};
use nacre_txn::Transaction;
use nacre_types::HObject;

impl PgState {
    /// The activation is durable: tell the primary.
    pub(crate) fn activation_is_durable(&self, cx: &mut Cx<'_>) {
        let (info, missing) = (self.info.clone(), self.missing.to_items());
        self.send(cx, self.interval.primary, Activated { header: self.header(), info, missing });
    }

    /// The primary says how the PG stands.
    pub(crate) fn on_progress(&mut self, cx: &mut Cx<'_>, progress: &Progress) {
        if !matches!(self.phase, Phase::Replica) {
            return;
        }
        self.info.history.merge(&progress.info.history);
        self.info.purged_snaps = progress.info.purged_snaps.clone();
        self.info.counters.reads = progress.info.counters.reads;
        self.info.counters.read_bytes = progress.info.counters.read_bytes;
        self.info.counters.scrub_errors = progress.info.counters.scrub_errors;
        self.past.trim_before(self.info.history.last_epoch_started);
        if progress.complete {
            self.missing = Default::default();
            self.info.last_backfill = HObject::max_value();
            self.info.last_complete = self.info.last_update;
        } else if progress.last_backfill > self.info.last_backfill {
            self.info.last_backfill = progress.last_backfill.detached();
        }
        if self.info.history.last_interval_clean >= self.interval.since {
            self.past.clear();
            self.info.lost_through = 0; // others have all of it
        }
        let mut txn = Transaction::new(self.spg);
        if progress.complete {
            self.forget_all_missing(&mut txn);
        }
        self.save_state(&mut txn);
        self.submit(cx, txn, OnDurable::Nothing);
    }
}

impl Peering {
    /// The primary hands out the authoritative log.
    pub(crate) fn activate_replica(&mut self, state: &mut PgState, cx: &mut Cx<'_>, activate: Activate) {
        let known = state.chunk_count().is_none_or(|count| activate.info.mapping.fits(count));
        if state.is_primary() || state.is_of_the_future(activate.info.last_update) || !known {
            return;
        }
        self.patience.is_called();
        state.drop_staged(cx); // the primary begins its copies again
        let Activate { info, since, entries, backfill, past, .. } = activate;
        let mut txn = Transaction::new(state.spg);
        if state.in_rubble {
            begin_anew(&mut txn);
        }
        state.become_shard(&mut txn, info.shard, &info.mapping);
        state.info.merge_shards.clone_from(&info.merge_shards);
        if backfill || state.in_rubble {
            state.rebuild_log(&mut txn, &info, since, &entries);
        } else if !state.take_over(cx, &mut txn, &info, since, &entries) {
            state.info.last_backfill = HObject::MIN; // the primary asks again, and compares all objects
        }
        state.past = past;
        state.info.history.merge(&info.history);
        state.save_state(&mut txn);
        self.set_phase(state, Phase::Replica);
        state.submit(cx, txn, OnDurable::Activated);
    }
}
