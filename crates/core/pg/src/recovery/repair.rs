//! A copy of an object that cannot be read, or is not as the others: it counts as missing from then on, and is
//! recovered as anything that is missing.

use super::{Kind, Recovery, RecoveryOutcome};
use crate::Cx;
use crate::pipeline::ObjectUse;
use crate::scrub::Repair;
use crate::state::PgState;
use nacre_txn::Transaction;
use nacre_types::{Eversion, HObject};

impl Recovery {
    /// This copy of `object` cannot be read: has it brought from another one. False when there is none to
    /// ask, or its own record is unreadable too, so that nobody knows what to ask for.
    pub(crate) fn repair_here(&mut self, state: &mut PgState, cx: &mut Cx<'_>, object: &HObject) -> bool {
        if !state.is_primary() || self.unrepairable.contains(object) {
            return false;
        }
        let version = state.copy_version(cx.view, object).filter(|version| *version != Eversion::ZERO);
        let Some(need) = version else { return false };
        if !state.has_source(object, need) {
            return false;
        }
        self.miss_here(state, cx, object, need);
        true
    }

    /// Notes durably that this copy lacks `object`: what recovery brings may be half there at a crash.
    fn miss_here(&mut self, state: &mut PgState, cx: &mut Cx<'_>, object: &HObject, need: Eversion) {
        state.missing.insert(object.clone(), need);
        let mut txn = Transaction::new(state.spg);
        state.note_missing(&mut txn, object, need);
        state.submit(cx, txn, crate::tokens::OnDurable::Nothing);
        self.repairing.insert(object.clone());
        self.search_again();
    }

    /// A scrub found copies that are not as the good ones. False when the object has changed since, or is changing: the next scrub
    /// will tell.
    pub(crate) fn repair_copies(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
        repair: &Repair,
    ) -> bool {
        let Repair { object, version, bad } = repair;
        let version = *version;
        let own = state.copy_version(cx.view, object);
        let own_is_bad = bad.contains(&state.whoami);
        let good = Some(version).filter(|version| *version != Eversion::ZERO);
        if ops.is_changing(&object.to_head()) || (!own_is_bad && own != good) {
            return false;
        }
        for osd in bad {
            if let Some(peer) = state.peers.get_mut(osd) {
                peer.missing.insert(object.clone(), version);
                peer.told_complete = false;
            }
        }
        if own_is_bad {
            self.miss_here(state, cx, object, version);
        }
        self.search_again();
        true
    }

    /// No copy that is up can give the object. If this one's is damaged, what there is here of it stays, and reads of it fail.
    pub(super) fn cannot_recover(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        object: &HObject,
    ) -> RecoveryOutcome {
        self.active.remove(object);
        if !self.repairing.remove(object) {
            return self.is_out_of_reach(object.clone());
        }
        self.unrepairable.insert(object.clone());
        state.missing.remove(object);
        let mut txn = Transaction::new(state.spg);
        state.forget_missing(&mut txn, object);
        state.submit(cx, txn, crate::tokens::OnDurable::Nothing);
        RecoveryOutcome::GoOn(object.to_head())
    }

    /// A write gave the object with this head up, or what it was: all copies may be brought to that.
    pub(crate) fn retry(&mut self, head: &HObject) {
        self.want(head);
        self.search_again();
    }

    pub(super) fn search_again(&mut self) {
        if self.kind == Some(Kind::Recovery) {
            self.kind = None;
        }
    }
}
