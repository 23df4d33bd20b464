//! After the authoritative log is chosen: which members come to it by the log and which by backfill, and the temporary acting set to ask
//! for until then. Ceph `PeeringState::choose_acting`.

use super::{Peering, PeeringOutcome};
use crate::interval::{Interval, is_up};
use crate::peer::Sync;
use crate::phase::Phase;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{Cx, Effect};
use nacre_msg::peer::{ChunkMapping, PgInfo};
use nacre_txn::Transaction;
use nacre_types::{Eversion, HObject, OsdId};
use std::collections::BTreeSet;

impl PgState {
    /// How `osd`'s copy comes to our log.
    pub(crate) fn sync_of(&self, osd: OsdId) -> Sync {
        match self.peers.get(&osd) {
            Some(peer) if !self.changes_shard(osd) && !self.is_filled_anew(&peer.info) => {
                self.sync_of_info(&peer.info)
            }
            _ => Sync::Backfill,
        }
    }

    /// A new copy, of a PG that serves without it: it is compared even if the log reaches back to the beginning. Every object is
    /// missing there, and clients' writes would wait for all that they write to.
    fn is_filled_anew(&self, info: &PgInfo) -> bool {
        let is_new = |info: &PgInfo| info.last_update == Eversion::ZERO;
        if !is_new(info) || is_new(&self.info) {
            return false;
        }
        let members = self.interval.members();
        let leads = |osd: &OsdId| match self.peers.get(osd) {
            Some(peer) => !is_new(&peer.info) && leads(&peer.info, self.log.tail()),
            None => *osd == self.whoami && !self.info.is_incomplete(),
        };
        members.iter().filter(|osd| leads(osd)).count() >= usize::from(self.interval.min_size)
    }

    fn sync_of_info(&self, info: &PgInfo) -> Sync {
        if info.last_backfill == HObject::MIN || info.last_update < self.log.tail() {
            Sync::Backfill
        } else if self.log.reaches(info.last_update) {
            Sync::From(info.last_update)
        } else {
            Sync::Whole
        }
    }

    /// What `osd`'s copy lacks the log tells, for all objects.
    pub(crate) fn is_whole(&self, osd: OsdId) -> bool {
        if osd == self.whoami {
            return !self.info.is_incomplete();
        }
        let incomplete = self.peers.get(&osd).is_none_or(|peer| peer.info.is_incomplete());
        !incomplete && self.sync_of(osd) != Sync::Backfill
    }

    /// This copy holds the shard that it was dealt, from now on.
    fn take_own_shard(&mut self, cx: &mut Cx<'_>) {
        let shard = self.shard_of(self.whoami);
        if shard == self.info.shard {
            return;
        }
        let mut txn = Transaction::new(self.spg);
        let mapping = self.info.mapping.clone();
        self.become_shard(&mut txn, shard, &mapping);
        self.save_state(&mut txn);
        self.submit(cx, txn, OnDurable::Nothing);
    }

    /// Whether this copy may serve as primary with a log that begins behind `tail`.
    pub(super) fn can_lead(&self, tail: Eversion) -> bool {
        leads(&self.info, tail)
    }
}

impl Peering {
    /// The log is agreed upon, and this copy has it.
    pub(crate) fn agree(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<PeeringOutcome> {
        state.assign_shards();
        state.take_own_shard(cx);
        self.ready_to_activate(state, cx)
    }

    /// Lets those members serve that can lead with a log that begins behind `tail`, and in an erasure-coded pool hold chunks by that
    /// `mapping`; this copy is brought up to date by them. Ceph's
    /// `NeedActingChange`.
    pub(super) fn leave_to_others(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        tail: Eversion,
        mapping: Option<&ChunkMapping>,
    ) -> PeeringOutcome {
        let mut wanted = Vec::new();
        let mut shards = BTreeSet::new();
        let can_lead =
            |info: &PgInfo| leads(info, tail) && mapping.is_none_or(|mapping| info.mapping == *mapping);
        let Interval { up, acting, size, .. } = &state.interval;
        for osd in up.iter().chain(acting).chain(state.peers.keys()).copied() {
            let Some(peer) =
                state.peers.get(&osd).filter(|peer| is_up(&state.map, osd) && can_lead(&peer.info))
            else {
                continue;
            };
            let adds = state.ec.is_none() || peer.info.shard.is_some_and(|shard| shards.insert(shard));
            if adds && wanted.len() < usize::from(*size) && !wanted.contains(&osd) {
                wanted.push(osd);
            }
        }
        cx.effects.push(Effect::WantPgTemp { pg: state.spg.pg, acting: wanted.clone() });
        self.set_phase(state, Phase::WaitActingChange { wanted });
        PeeringOutcome::Stuck
    }
}

/// The authoritative log, which begins behind `tail`, tells what the copy lacks. A primary must know that of every
/// object, for it answers for all of them.
fn leads(info: &PgInfo, tail: Eversion) -> bool {
    !info.is_incomplete() && info.last_update >= tail
}
