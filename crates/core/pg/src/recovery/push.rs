//! Objects that other copies lack.

use super::{Work, part};
use crate::peering::Phase;
use crate::tokens::{OnDurable, OnFetched};
use crate::{Cx, Effect, Pg};
use nacre_msg::peer::{Push, PushReply};
use nacre_txn::ReadError;
use nacre_types::{Eversion, HObject, OsdId};
use std::collections::BTreeSet;

impl Pg {
    /// Members that miss `object`, this one apart.
    pub(super) fn peers_without(&self, object: &HObject) -> BTreeSet<OsdId> {
        let misses = |peer: &crate::peering::Peer| peer.activated && peer.missing.need(object).is_some();
        self.peers.iter().filter(|(_, peer)| misses(peer)).map(|(osd, _)| *osd).collect()
    }

    /// Sends `object` to all members that miss it.
    pub(super) fn push(&mut self, cx: &mut Cx<'_>, object: HObject) {
        let targets = self.peers_without(&object);
        if targets.is_empty() {
            return self.recovered_everywhere(cx, &object);
        }
        if let Some(version) = self.copy_version(cx.view, &object).filter(|_| self.ec.is_some()) {
            return self.rebuild(cx, object, version);
        }
        let waiting = BTreeSet::new();
        self.recovery
            .active
            .insert(object.clone(), Work::Pushing { targets, waiting, offset: 0, next: None });
        self.push_on(cx, &object);
    }

    /// Sends the part that is due.
    pub(crate) fn push_on(&mut self, cx: &mut Cx<'_>, object: &HObject) {
        if self.is_rebuilding(object) {
            return self.read_own_part(cx, object);
        }
        let Some(Work::Pushing { offset, .. }) = self.recovery.active.get(object) else { return };
        let offset = *offset;
        let Some(version) = self.copy_version(cx.view, object) else {
            let txn = part::removal(self.spg, object);
            return self.send_part(cx, object, Eversion::ZERO, part::Part { txn, next: None });
        };
        match part::read(cx.view, self.spg, (object, object), offset, |size| size) {
            Ok(part) => self.send_part(cx, object, version, part),
            Err(ReadError::Pending { object: wanted, offset, length }) => {
                let token = self.tokens.issue_fetch(OnFetched::Push(object.clone()));
                cx.effects.push(Effect::Fetch { object: wanted, offset, length, token });
            }
            Err(ReadError::Damaged { .. }) => {
                self.recovery.active.remove(object);
                if !self.mend_here(cx, object) {
                    // Nobody is a source: it is out of reach until the interval changes.
                    self.is_out_of_reach(object.clone());
                }
            }
        }
    }

    fn send_part(&mut self, cx: &mut Cx<'_>, object: &HObject, version: Eversion, part: part::Part) {
        let header = self.header();
        let Some(Work::Pushing { targets, waiting, offset, next }) = self.recovery.active.get_mut(object)
        else {
            return;
        };
        waiting.clone_from(targets);
        *next = part.next;
        let (offset, targets) = (*offset, targets.clone());
        for osd in targets {
            let (object, next, txn) = (object.clone(), part.next, part.txn.clone());
            self.send(cx, osd, Push { header, object, version, offset, next, pulled: false, txn });
        }
    }

    /// A part came, asked for or by the primary's order.
    pub(crate) fn receive_push(&mut self, cx: &mut Cx<'_>, from: OsdId, push: Push) {
        if push.txn.collection != self.spg {
            return;
        }
        if push.pulled && self.is_rebuilding(&push.object) {
            return self.receive_part(cx, from, push);
        }
        if push.pulled {
            return self.receive_pulled(cx, from, push);
        }
        if from != self.interval.primary || !matches!(self.phase, Phase::Replica) {
            return;
        }
        let Push { object, version, offset, next, mut txn, .. } = push;
        if next.is_some() && offset == 0 && !self.info.is_incomplete() && self.missing.need(&object).is_none()
        {
            // A copy that was there and is replaced: it must not be taken for whole after a crash.
            self.missing.insert(object.clone(), version);
            self.note_missing(&mut txn, &object, version);
        }
        if next.is_none() {
            self.forget_missing(&mut txn, &object);
            self.missing.remove(&object);
            if self.missing.is_empty() && !self.info.is_incomplete() {
                self.info.last_complete = self.info.last_update;
            }
        }
        let reply = PushReply { header: self.header(), object, version, offset, absent: false };
        self.submit(cx, txn, OnDurable::Pushed { to: from, reply: Box::new(reply) });
    }

    /// A part is durable there, or a source has nothing to give.
    pub(crate) fn push_reply(&mut self, cx: &mut Cx<'_>, from: OsdId, reply: &PushReply) {
        if self.is_rebuilding(&reply.object) {
            return self.part_reply(cx, from, reply);
        }
        if reply.absent {
            return self.pull_is_absent(cx, from, reply);
        }
        let object = &reply.object;
        let Some(Work::Pushing { targets, waiting, offset, next }) = self.recovery.active.get_mut(object)
        else {
            return;
        };
        if *offset != reply.offset || !waiting.remove(&from) || !waiting.is_empty() {
            return;
        }
        if let Some(next) = next.take() {
            *offset = next;
            return self.recovery.parts.push_back(object.clone());
        }
        for osd in std::mem::take(targets) {
            if let Some(peer) = self.peers.get_mut(&osd) {
                peer.missing.remove(object);
            }
        }
        self.stamps.recovered_objects += 1;
        self.recovered_everywhere(cx, object);
    }
}
