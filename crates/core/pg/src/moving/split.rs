//! Splitting: the pool got more PGs, and some of this PG's objects belong to new ones now.
//!
//! Every copy splits by itself, in the map that raised `pg_num`, before anything else of that map:
//!
//! ```text
//!                    objects, snapshot entries, log entries, missing: by the object's hash
//!   parent 3.1  ----------------------------------------------------------------------------->  child 3.9
//!   (pg_num 8)       history, intervals, purged snapshots: the same            (pg_num 16, made whole)
//! ```
//! A copy and its child were the same PG in all intervals before, so the child's past is the parent's: it
//! peers with the OSDs that have split the same parent. Objects and snapshot entries move first, some at a time
//! ([`super`]); then all else, in one transaction. The head of each log is the newest entry that is left in it:
//! copies of one parent whose logs differ only in entries of the child do not differ at all afterwards.

use super::{Moves, change};
use crate::interval::Interval;
use crate::log::PgLog;
use crate::progress::Progress;
use crate::state::PgState;
use crate::storage::{self, begin_anew, log_append, save_info, save_interval};
use crate::tokens::OnDurable;
use crate::{Cx, Effect};
use nacre_maps::OsdMap;
use nacre_msg::peer::{Counters, LogEntry, PgInfo};
use nacre_txn::{Op, Transaction};
use nacre_types::{Eversion, HObject, PgId, SpgId, hash};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What goes to one child.
#[derive(Debug, Default)]
struct Share {
    entries: Vec<LogEntry>,
    /// Changes that record what is missing from before the log.
    records: Vec<Op>,
    counters: Counters,
    missing: bool,
}

/// What the info said of the copy before anything was taken from its log. The parent's own says less by the time that the children's are made:
/// what it lacks may all be a child's, and the newest version that all copies have, too.
#[derive(Debug, Clone, Copy)]
struct Undivided {
    /// It lacked nothing up to here.
    complete_to: Eversion,
    /// All members had had this.
    safe_to: Eversion,
}

/// The PGs that `parent` splits into, besides itself, when the pool goes from `old` to `new` PGs.
fn children(parent: PgId, old: u32, new: u32) -> impl Iterator<Item = PgId> {
    let seeds = if old == 0 { new..new } else { old..new };
    let is_child = move |seed: &u32| hash::stable_mod(*seed, old) == parent.seed;
    seeds.filter(is_child).map(move |seed| PgId::new(parent.pool, seed))
}

impl PgState {
    /// The objects have moved: divides all else. `before` is the last map of the interval that ended; `waiting` are those that
    /// came while the objects moved.
    pub(super) fn split_off(
        &mut self,
        cx: &mut Cx<'_>,
        before: &Arc<OsdMap>,
        waiting: &VecDeque<Arc<OsdMap>>,
        progress: Progress,
    ) {
        let new = progress.pg_num;
        let share = |(child, counters)| (child, Share { counters, ..Share::default() });
        let mut shares: BTreeMap<PgId, Share> = progress.shares.into_iter().map(share).collect();
        let mut txn = Transaction::new(self.spg);
        let undivided = Undivided { complete_to: self.info.last_complete, safe_to: self.info.safe_to };
        shares.values().for_each(|share| self.info.counters.subtract(&share.counters));
        if self.in_rubble {
            begin_anew(&mut txn);
        }
        self.share_log(new, &mut shares, &mut txn);
        let children: Vec<SpgId> = shares.keys().map(|child| SpgId::replicated(*child)).collect();
        for (child, share) in shares {
            let mut ops =
                if self.in_rubble { vec![Op::RemoveCollection, Op::CreateCollection] } else { Vec::new() };
            ops.extend(self.create_ops(share, undivided, before, new));
            txn.push(change(child, new, ops));
        }
        if let Some(ec) = &mut self.ec {
            let parent = self.spg.pg;
            ec.rollback_gens.retain(|_, kept| kept.name.pg(new) == parent); // what was kept goes with its object
        }
        txn.push(Op::LogRewind { to: self.log.tail() });
        txn.ops.extend(self.log_with_modified().map(|entry| log_append(&entry)));
        if new != self.pool.pg_num {
            // The map of this split is gone, and the one that came splits further.
            self.interval.pg_num = new;
        }
        txn.push(storage::forget_progress());
        self.save_state(&mut txn);
        self.submit(cx, txn, OnDurable::Nothing);
        for child in children {
            let maps = std::iter::once(&self.map).chain(waiting).cloned().collect();
            cx.effects.push(Effect::Split { child, before: Arc::clone(before), maps });
        }
    }

    /// Deals the log entries and the missing objects out.
    fn share_log(&mut self, new: u32, shares: &mut BTreeMap<PgId, Share>, txn: &mut Transaction) {
        let mut kept = Vec::with_capacity(self.log.len());
        for entry in self.log_with_modified() {
            match shares.get_mut(&entry.object.pg(new)) {
                Some(share) => share.entries.push(entry),
                None => kept.push(entry),
            }
        }
        let gone: Vec<HObject> = self
            .missing
            .iter()
            .map(|(object, _)| object.clone())
            .filter(|object| shares.contains_key(&object.pg(new)))
            .collect();
        for object in gone {
            let need = self.missing.remove(&object).unwrap_or_default();
            if let Some(share) = shares.get_mut(&object.pg(new)) {
                share.missing = true;
                if self.recorded.contains(&object) {
                    share.records.push(storage::record_missing(&object, need));
                }
            }
            self.forget_missing(txn, &object);
        }
        self.log.replace(self.log.tail(), &kept);
        self.follow_log();
        ends_with(&mut self.info, &self.log);
        self.info.last_complete = last_complete(
            self.info.last_complete,
            &self.log,
            self.missing.is_empty() && !self.info.is_incomplete(),
        );
    }

    /// What makes the child: as [`crate::Pg::load`] reads it, at the end of the interval that it shares with us.
    fn create_ops(&self, share: Share, undivided: Undivided, before: &OsdMap, new: u32) -> Vec<Op> {
        let mut log = PgLog::default();
        log.replace(self.log.tail(), &share.entries);
        let mut info = PgInfo { safe_to: undivided.safe_to, ..self.info.clone() };
        ends_with(&mut info, &log);
        info.last_complete =
            last_complete(undivided.complete_to, &log, !share.missing && !info.is_incomplete());
        info.counters = share.counters;
        info.history.large_omap_objects = 0; // the parent goes on counting those of all, until deep scrubs tell them apart
        let mut txn = Transaction { collection: self.spg, ops: share.records };
        txn.ops.extend(share.entries.iter().map(log_append));
        let skipped = new != self.pool.pg_num;
        let pg_num = if skipped { new } else { self.interval.pg_num };
        save_interval(&mut txn, &Interval { pg_num, ..self.interval.clone() }, &self.past);
        save_info(&mut txn, &info, before.epoch);
        txn.ops
    }
}

impl Moves {
    /// How far the objects are that belong to new PGs in the map that came; `None` when none do.
    pub(super) fn split_progress(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        before: &Arc<OsdMap>,
    ) -> Option<Progress> {
        let (old, new) = (state.interval.pg_num, state.pool.pg_num);
        // Not of a merge whose map is yet to come.
        if let Some(begun) = self.progress.take_if(|begun| begun.pg_num > old && begun.pg_num <= new) {
            return Some(begun);
        }
        // A peer may have called for the child already: then this copy was born just now, late and empty.
        let is_known = |child: &PgId| storage::load_info(cx.view, &SpgId::replicated(*child)).is_some();
        let is_new = |child: &PgId| self.taken_in.contains(child) || !is_known(child);
        let children = children(state.spg.pg, old, new).filter(is_new);
        let progress = Progress::begin(new, children);
        if progress.shares.is_empty() {
            return None;
        }
        if state.in_rubble {
            // Nothing of what lies there counts: the children are as empty as this one.
            state.split_off(cx, before, &VecDeque::new(), progress);
            return None;
        }
        let mut txn = Transaction::new(state.spg);
        for child in progress.shares.keys() {
            // Something unreadable may lie there.
            txn.push(change(*child, new, vec![Op::RemoveCollection, Op::CreateCollection]));
        }
        txn.push(storage::save_progress(&progress));
        state.submit(cx, txn, OnDurable::Nothing);
        Some(progress)
    }

    /// PGs that were being split off when this copy was stored, and never came to be.
    pub(crate) fn remove_unborn(&mut self, state: &mut PgState, cx: &mut Cx<'_>) {
        let targets = self.progress.take().into_iter().flat_map(|progress| progress.shares.into_keys());
        for target in targets.map(SpgId::replicated) {
            if target != state.spg && storage::load_info(cx.view, &target).is_none() {
                let txn = Transaction { collection: target, ops: vec![Op::RemoveCollection] };
                state.submit(cx, txn, OnDurable::Nothing);
            }
        }
    }
}

/// What is left of the log is this. Of the versions that all copies had, the newest that is left: the others are no longer in any
/// copy's log, and none could show that it had them.
fn ends_with(info: &mut PgInfo, log: &PgLog) {
    info.set_head(log.head());
    info.safe_to = log.newest_up_to(info.safe_to);
}

/// A copy that lacks nothing is complete up to its head; others are up to where they were.
fn last_complete(was: Eversion, log: &PgLog, whole: bool) -> Eversion {
    if whole { log.head() } else { was.min(log.head()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::entry;
    use nacre_msg::peer::PgHistory;

    /// Two copies of which one has more than all are known to have.
    #[test]
    fn what_all_copies_had_is_of_the_part_that_is_left() {
        let mut log = PgLog::default();
        for (object, version) in [("a", 7), ("b", 8), ("b", 9), ("a", 10)] {
            log.append(&entry(object, (5, version), (0, 0), version));
        }
        let at = |version| Eversion::new(5, version);
        let with = |safe_to, object: &str| {
            let mut info = PgInfo { safe_to, last_update: log.head(), ..PgInfo::empty(PgHistory::default()) };
            let mut part = PgLog::default();
            let its = log.iter().filter(|entry| entry.object.name == object).collect::<Vec<_>>();
            part.replace(Eversion::ZERO, &its);
            ends_with(&mut info, &part);
            (info.last_update, info.safe_to)
        };
        assert_eq!(with(at(9), "a"), (at(10), at(7)));
        assert_eq!(with(at(9), "b"), (at(9), at(9)));
        assert_eq!(with(at(7), "b"), (at(9), Eversion::ZERO));
    }

    #[test]
    fn every_new_pg_has_one_parent() {
        for (old, new) in [(1, 2), (1, 8), (8, 16), (5, 12), (12, 13), (6, 64)] {
            let mut seen: Vec<u32> = (0..old)
                .flat_map(|seed| children(PgId::new(3, seed), old, new))
                .map(|child| child.seed)
                .collect();
            seen.sort_unstable();
            assert_eq!(seen, (old..new).collect::<Vec<_>>(), "from {old} to {new}");
            for hash in (0..4096_u32).map(|n| n.wrapping_mul(0x9e37_79b9)) {
                let (before, after) = (hash::stable_mod(hash, old), hash::stable_mod(hash, new));
                let stays = before == after;
                assert!(stays || children(PgId::new(3, before), old, new).any(|child| child.seed == after));
            }
        }
        assert_eq!(children(PgId::new(3, 0), 0, 4).count(), 0);
    }
}
