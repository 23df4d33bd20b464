//! A copy of an object that cannot be read, or is not as the others: it counts as missing from then on, and is
//! recovered as anything that is missing.

use super::Kind;
use crate::scrub::Repair;
use crate::state::PgState;
use crate::{Cx, Pg, storage};
use nacre_txn::{Op, Transaction};
use nacre_types::{Eversion, HObject};

impl PgState {
    /// Adds the record of a missing object to a transaction.
    pub(super) fn note_missing(&mut self, txn: &mut Transaction, object: &HObject, need: Eversion) {
        if self.recorded.insert(object.clone()) {
            let op: Op = storage::record_missing(object, need);
            txn.push(op);
        }
    }
}

impl Pg {
    /// This copy of `object` cannot be read: has it brought from another one. False when there is none to
    /// ask, or its own record is unreadable too, so that nobody knows what to ask for.
    pub(crate) fn repair_here(&mut self, cx: &mut Cx<'_>, object: &HObject) -> bool {
        if !self.is_primary() || self.recovery.unrepairable.contains(object) {
            return false;
        }
        let version = self.state.copy_version(cx.view, object).filter(|version| *version != Eversion::ZERO);
        let Some(need) = version else { return false };
        if !self.state.has_source(object, need) {
            return false;
        }
        self.miss_here(cx, object, need);
        true
    }

    /// Notes durably that this copy lacks `object`: what recovery brings may be half there at a crash.
    fn miss_here(&mut self, cx: &mut Cx<'_>, object: &HObject, need: Eversion) {
        self.state.missing.insert(object.clone(), need);
        let mut txn = Transaction::new(self.state.spg);
        self.state.note_missing(&mut txn, object, need);
        self.state.submit(cx, txn, crate::tokens::OnDurable::Nothing);
        self.recovery.repairing.insert(object.clone());
        self.search_again();
    }

    /// A scrub found copies that are not as the good ones. False when the object has changed since, or is changing: the next scrub
    /// will tell.
    pub(crate) fn repair_copies(&mut self, cx: &mut Cx<'_>, repair: &Repair) -> bool {
        let Repair { object, version, bad } = repair;
        let version = *version;
        let own = self.state.copy_version(cx.view, object);
        let own_is_bad = bad.contains(&self.state.whoami);
        let good = Some(version).filter(|version| *version != Eversion::ZERO);
        if self.pipeline.is_changing(&object.to_head()) || (!own_is_bad && own != good) {
            return false;
        }
        for osd in bad {
            if let Some(peer) = self.state.peers.get_mut(osd) {
                peer.missing.insert(object.clone(), version);
                peer.told_complete = false;
            }
        }
        if own_is_bad {
            self.miss_here(cx, object, version);
        }
        self.search_again();
        true
    }

    /// Nobody can give the object: what there is here of it stays, and reads of it fail.
    pub(super) fn give_up_repairing(&mut self, cx: &mut Cx<'_>, object: &HObject) -> bool {
        if !self.recovery.repairing.remove(object) {
            return false;
        }
        self.recovery.unrepairable.insert(object.clone());
        self.state.missing.remove(object);
        let mut txn = Transaction::new(self.state.spg);
        self.state.forget_missing(&mut txn, object);
        self.state.submit(cx, txn, crate::tokens::OnDurable::Nothing);
        self.go_on_with(cx, &object.to_head());
        true
    }

    pub(super) fn search_again(&mut self) {
        if self.recovery.kind == Some(Kind::Recovery) {
            self.recovery.kind = None;
        }
    }
}
