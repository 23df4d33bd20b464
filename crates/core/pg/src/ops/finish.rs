//! The end of a message: what its changes are worth, and the object's new record.

use super::execution::Execution;
use super::{Change, OpResult, Outcome, WRITE_OUTPUT_BYTES_MAX, Write};
use crate::object::{ObjectContext, ObjectInfo, clone_record};
use crate::snap::{NewClone, SnapContext, apply_snapset, mapper};
use nacre_buf::Bytes;
use nacre_msg::osd_op::flag;
use nacre_msg::peer::{Counters, LogEntry, LogKind, OpOutput};
use nacre_txn::{Op, ReadError};
use nacre_types::{EntityKind, Errno, Eversion, HObject, ReqId};

/// What comes of the message's changes.
enum Finish {
    /// It is a read, or failed like one.
    Nothing,
    /// Only the log takes note.
    Log,
    /// They are made.
    Write,
    /// The message is dropped, and its client not answered.
    Drop,
}

impl Execution<'_, '_> {
    /// Settles the message after its last operation.
    ///
    /// # Errors
    /// [`ReadError`] when what it changes in part must be read first.
    pub(super) fn finish(
        mut self,
        result: i32,
        ops: Vec<OpResult>,
        snapc: &SnapContext,
    ) -> Result<Outcome, ReadError> {
        let mut outcome = Outcome {
            result,
            ops,
            user_version: self.base.info.user_version,
            change: Change::None,
            watches: std::mem::take(&mut self.watches),
            notifies: std::mem::take(&mut self.notifies),
            acks: std::mem::take(&mut self.acks),
            counters: self.counters,
        };
        let mut kind = self.finish_kind(&mut outcome);
        if let (Finish::Write, Some(stripe)) = (&kind, self.env.pool.stripe_bytes)
            && !self.change_stripes(&mut outcome, u64::from(stripe.max(1)))?
        {
            kind = Finish::Log;
        }
        match kind {
            Finish::Nothing => {}
            Finish::Drop => outcome.change = Change::Dropped,
            Finish::Log => outcome.change = Change::Log(Box::new(self.note(&outcome))),
            Finish::Write => self.finalize(&mut outcome, snapc),
        }
        if outcome.result < 0 {
            outcome.watches.clear();
            outcome.notifies.clear();
            outcome.acks.clear();
        }
        Ok(outcome)
    }

    fn finish_kind(&self, outcome: &mut Outcome) -> Finish {
        if !self.request.intent.may_write() {
            return Finish::Nothing;
        }
        if outcome.result < 0 || !self.pending.changed {
            return Finish::Log;
        }
        if let Some(verdict) = self.refuse_growth(outcome) {
            return verdict;
        }
        if !self.request.op.has_flag(flag::RETURNVEC) {
            outcome.result = 0;
            outcome.ops.iter_mut().for_each(|op| op.out = nacre_buf::BufList::new());
        } else if bound_outputs(&mut outcome.ops) {
            outcome.result = Errno::EOVERFLOW.negated();
            return Finish::Nothing;
        }
        Finish::Write
    }

    /// A full pool takes only what makes it no fuller, or what the file system's servers insist on.
    fn refuse_growth(&self, outcome: &mut Outcome) -> Option<Finish> {
        let errno = self.env.pool.fullness.errno()?;
        let grows =
            self.pending.info.size > self.base.info.size || (self.pending.exists && !self.base.exists);
        let op = self.request.op;
        if !grows || op.has_flag(flag::FULL_FORCE) || self.request.caller.name.kind == EntityKind::MDS {
            return None;
        }
        if !op.has_flag(flag::FULL_TRY) {
            return Some(Finish::Drop);
        }
        outcome.result = errno.negated();
        Some(Finish::Nothing)
    }

    fn entry(&self, kind: LogKind, version: Eversion, outcome: &Outcome) -> LogEntry {
        LogEntry {
            kind,
            object: self.request.head.clone(),
            version,
            prior_version: self.base.info.version,
            user_version: outcome.user_version,
            reqid: self.request.reqid,
            mtime: self.request.op.mtime,
            result: outcome.result,
            outputs: outputs(&outcome.ops),
            snaps: Vec::new(),
            delta: Counters::default(),
            committed_to: Eversion::ZERO,
            modified: None,
        }
    }

    /// A write that failed or changed nothing.
    fn note(&self, outcome: &Outcome) -> LogEntry {
        self.entry(LogKind::Error, self.env.at_version, outcome)
    }

    /// Turns the pending changes into a transaction, log entries and the head's new record.
    fn finalize(mut self, outcome: &mut Outcome, snapc: &SnapContext) {
        let mut ops = Vec::new();
        let mut entries = Vec::with_capacity(1);
        let mut version = self.env.at_version;
        let clone = NewClone::due(self.base, snapc);
        if let Some(clone) = &clone {
            entries.push(self.make_clone(clone, version, &mut ops));
            version.version += 1;
        }
        let (snaps, unshared) = apply_snapset(&self.head.snaps, clone, snapc, &self.pending.modified);
        outcome.user_version = self.user_version(version);
        let whiteout = !self.pending.exists && !snaps.clones.is_empty();
        let mut object =
            ObjectContext { exists: self.pending.exists || whiteout, info: ObjectInfo::default(), snaps };
        if ops.is_empty() {
            ops = std::mem::take(&mut self.pending.ops);
        } else {
            ops.append(&mut self.pending.ops);
        }
        if object.exists {
            object.info = self.final_info(version, outcome.user_version, whiteout);
            ops.push(Op::SetMeta { object: self.request.head.clone(), meta: object.to_record() });
        } else {
            object = ObjectContext::default();
        }
        self.count(&mut outcome.counters, &object, unshared);
        let kind = if object.exists { LogKind::Modify } else { LogKind::Delete };
        let modified = self.modified.take().filter(|_| kind == LogKind::Modify);
        entries.push(LogEntry { delta: outcome.counters, modified, ..self.entry(kind, version, outcome) });
        outcome.change = Change::Write(Box::new(Write { ops, entries, object }));
    }

    /// Preserves the head as it was; must come before every other change.
    fn make_clone(&self, clone: &NewClone, version: Eversion, ops: &mut Vec<Op>) -> LogEntry {
        let head: &HObject = self.request.head;
        let object = head.with_snap(clone.0.id);
        let info = ObjectInfo {
            version,
            prior_version: self.base.info.version,
            watchers: std::collections::BTreeMap::new(),
            ..self.base.info.clone()
        };
        ops.push(Op::Clone { source: head.clone(), target: object.clone() });
        ops.push(Op::SetMeta { object: object.clone(), meta: clone_record(&info) });
        mapper::insert(&object, &clone.0.snaps, ops);
        LogEntry {
            kind: LogKind::Clone,
            object,
            version,
            prior_version: self.base.info.version,
            user_version: self.base.info.user_version,
            reqid: ReqId::default(),
            mtime: self.base.info.mtime,
            result: 0,
            outputs: Vec::new(),
            snaps: clone.0.snaps.clone(),
            delta: Counters::default(),
            committed_to: Eversion::ZERO,
            modified: None,
        }
    }

    /// Users' versions never go back within a PG, and are never below the version that the log has.
    fn user_version(&self, version: Eversion) -> u64 {
        let pending = self.pending.info.user_version;
        if !self.pending.user_modify {
            return pending;
        }
        version.version.max(pending + 1).max(self.env.last_user_version + 1)
    }

    fn final_info(&mut self, version: Eversion, user_version: u64, whiteout: bool) -> ObjectInfo {
        let mut info = std::mem::take(&mut self.pending.info);
        (info.version, info.prior_version) = (version, self.base.info.version);
        (info.user_version, info.whiteout) = (user_version, whiteout);
        let by_client = Some(self.request.op.mtime).filter(|mtime| !mtime.is_zero());
        info.mtime = self.pending.mtime.or(by_client).unwrap_or(info.mtime);
        info
    }

    fn count(&self, counters: &mut Counters, object: &ObjectContext, unshared: u64) {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.head;
        let clones = object.snaps.clones.len().saturating_sub(before.snaps.clones.len());
        let clones = signed(clones as u64);
        counters.objects += i64::from(object.exists) - i64::from(before.exists) + clones;
        counters.clones += clones;
        counters.bytes += signed(object.info.size) - signed(before.info.size) + signed(unshared);
        counters.whiteouts += i64::from(object.info.whiteout) - i64::from(before.info.whiteout);
        counters.omap_objects += i64::from(object.info.has_omap) - i64::from(before.info.has_omap)
            + clones * i64::from(before.info.has_omap);
    }
}

/// Empties outputs that are longer than a write may return; true when there was one.
fn bound_outputs(ops: &mut [OpResult]) -> bool {
    let mut found = false;
    for op in ops.iter_mut().filter(|op| op.out.len() > WRITE_OUTPUT_BYTES_MAX) {
        *op = OpResult { rval: Errno::EOVERFLOW.negated(), ..OpResult::default() };
        found = true;
    }
    found
}

/// What the log keeps of the results, so that a resend is answered alike; nothing in the usual case. Long
/// outputs of failed writes are not kept.
fn outputs(ops: &[OpResult]) -> Vec<OpOutput> {
    if ops.iter().all(|op| op.rval == 0 && op.out.is_empty()) {
        return Vec::new();
    }
    let short = |op: &OpResult| op.out.len() <= WRITE_OUTPUT_BYTES_MAX;
    let data = |op: &OpResult| if short(op) { op.out.to_bytes() } else { Bytes::new() };
    ops.iter().map(|op| OpOutput { rval: op.rval, data: data(op) }).collect()
}
