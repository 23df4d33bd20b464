//! Removing a snapshot from one of the clones that it keeps. Ceph `PrimaryLogPG::trim_object`.

use crate::log::own_entry;
use crate::object::{CloneInfo, ObjectContext, ObjectInfo, SnapSet, clone_record};
use crate::ops::Env;
use crate::snap::mapper;
use nacre_msg::peer::{Counters, LogEntry, LogKind};
use nacre_txn::Op;
use nacre_types::{Eversion, HObject, SnapId};

/// Why a clone could not be trimmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TrimError {
    /// The head's snapshot set does not know the clone. The mapper's entry is stale: drop it with
    /// [`mapper::remove`].
    #[error("{object} has no clone {clone:?}")]
    UnknownClone {
        /// Head of the object.
        object: HObject,
        /// The clone that the mapper named.
        clone: SnapId,
    },
    /// The clone's record is damaged, or not there while a snapshot is to keep the clone: a scrub must repair it first.
    #[error("the record of clone {clone:?} of {object} is damaged")]
    Damaged {
        /// Head of the object.
        object: HObject,
        /// Snapshot id of the clone.
        clone: SnapId,
    },
}

/// A clone trimmed: a change of the clone and of its head.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trim {
    /// The changes, without the log.
    pub(crate) ops: Vec<Op>,
    /// Two entries, of the clone and of the head; the last one carries the difference of the sums.
    pub(crate) entries: Vec<LogEntry>,
    /// The head afterwards; it does not exist when it only stood for its clones.
    pub(crate) object: ObjectContext,
}

/// Takes `snap`, and all other snapshots under removal, from the clone's list, and removes the clone when no
/// snapshot is left. `context` is that of `head`. Uses two versions from `env.at_version` on. A clone without a record, as one
/// that was given up for lost, goes from the head's snapshot set with its last snapshot.
///
/// # Errors
/// [`TrimError`].
pub(crate) fn trim_object(
    env: &Env<'_>,
    head: &HObject,
    context: &ObjectContext,
    clone: SnapId,
    snap: SnapId,
) -> Result<Trim, TrimError> {
    let at = context.snaps.clones.iter().position(|candidate| candidate.id == clone);
    let at = at.ok_or_else(|| TrimError::UnknownClone { object: head.clone(), clone })?;
    let object = head.with_snap(clone);
    let damaged = || TrimError::Damaged { object: head.clone(), clone };
    let record = ObjectContext::load(env.view, &env.collection, &object).map_err(|_| damaged())?;
    let mut trimmer =
        Trimmer { env, version: env.at_version, trim: start(context), counters: Counters::default() };
    let gone = |id: &SnapId| *id == snap || env.pool.removed_snaps.contains(id.0);
    let (old, left): (Vec<SnapId>, Vec<SnapId>) =
        context.snaps.clones[at].snaps.iter().copied().partition(gone);
    mapper::remove(&object, &old, &mut trimmer.trim.ops);
    if !old.contains(&snap) {
        // The mapper may name a snapshot that the clone does not have; that entry must go all the same.
        mapper::remove(&object, &[snap], &mut trimmer.trim.ops);
    }
    if left.is_empty() {
        trimmer.remove_clone(object, &record.info, at);
    } else if record.exists {
        trimmer.keep_clone(object, record.info, at, left);
    } else {
        return Err(damaged());
    }
    trimmer.finish_head(head);
    Ok(trimmer.trim)
}

fn start(context: &ObjectContext) -> Trim {
    Trim { ops: Vec::new(), entries: Vec::new(), object: context.clone() }
}

struct Trimmer<'a, 'e> {
    env: &'a Env<'e>,
    version: Eversion,
    trim: Trim,
    counters: Counters,
}

impl Trimmer<'_, '_> {
    fn log(
        &mut self,
        kind: LogKind,
        object: HObject,
        prior: Eversion,
        user_version: u64,
        snaps: Vec<SnapId>,
    ) {
        let entry = own_entry(kind, object, (self.version, prior), user_version, self.env.now);
        self.trim.entries.push(LogEntry { snaps, ..entry });
        self.version.version += 1;
    }

    fn remove_clone(&mut self, object: HObject, info: &ObjectInfo, at: usize) {
        let shrink = forget_clone(&mut self.trim.object.snaps, at);
        self.counters.bytes -= shrink;
        self.counters.objects -= 1;
        self.counters.clones -= 1;
        self.counters.omap_objects -= i64::from(info.has_omap);
        self.log(LogKind::Delete, object.clone(), info.version, info.user_version, Vec::new());
        self.trim.ops.push(Op::Remove(object));
    }

    fn keep_clone(&mut self, object: HObject, mut info: ObjectInfo, at: usize, left: Vec<SnapId>) {
        self.trim.object.snaps.clones[at].snaps.clone_from(&left);
        (info.prior_version, info.version) = (info.version, self.version);
        self.log(LogKind::Modify, object.clone(), info.prior_version, info.user_version, left);
        self.trim.ops.push(Op::SetMeta { object, meta: clone_record(&info) });
    }

    /// Records the new snapshot set with the head, or removes a head that was kept for its clones only.
    fn finish_head(&mut self, head: &HObject) {
        let (prior, user_version) = (self.trim.object.info.version, self.trim.object.info.user_version);
        let version = self.version;
        if self.trim.object.info.whiteout && self.trim.object.snaps.clones.is_empty() {
            self.counters.objects -= 1;
            self.counters.whiteouts -= 1;
            self.log(LogKind::Delete, head.clone(), prior, user_version, Vec::new());
            self.trim.ops.push(Op::Remove(head.clone()));
            self.trim.object = ObjectContext::default();
        } else {
            self.log(LogKind::Modify, head.clone(), prior, user_version, Vec::new());
            let info = &mut self.trim.object.info;
            (info.prior_version, info.version) = (prior, version);
            let meta = self.trim.object.to_record();
            self.trim.ops.push(Op::SetMeta { object: head.clone(), meta });
        }
        if let Some(entry) = self.trim.entries.last_mut() {
            entry.delta = self.counters;
        }
    }
}

/// Takes a clone out of the set; what the next older clone shared with it, it now shares with the one
/// behind. Returns by how much the bytes in use shrink.
fn forget_clone(snaps: &mut SnapSet, at: usize) -> i64 {
    let own = |clone: &CloneInfo| i64::try_from(clone.own_bytes()).unwrap_or(i64::MAX);
    let gone = snaps.clones.remove(at);
    let mut shrink = own(&gone);
    if let Some(older) = at.checked_sub(1).and_then(|older| snaps.clones.get_mut(older)) {
        let before = own(older);
        older.overlap = older.overlap.intersection(&gone.overlap);
        shrink -= own(older) - before;
    }
    shrink
}
