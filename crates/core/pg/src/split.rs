//! Splitting: the pool got more groups, and some of this group's objects belong to new ones now.
//!
//! Every copy splits by itself, in the map that raised `pg_num`, before anything else of that map:
//!
//! ```text
//!                    objects, snapshot entries, log entries, missing: by the object's hash
//!   parent 3.1  ----------------------------------------------------------------------------->  child 3.9
//!   (pg_num 8)       history, intervals, purged snapshots: the same            (pg_num 16, made whole)
//! ```
//! A copy and its child were the same group in all intervals before, so the child's past is the parent's: it
//! peers with whoever has split the same parent. The head of each log is the newest entry that is left in it:
//! copies of one parent whose logs differ only in entries of the child do not differ at all afterwards.

use crate::log::PgLog;
use crate::object::ObjectContext;
use crate::snap::mapper;
use crate::storage::{self, log_append, save_info, save_interval};
use crate::tokens::OnDurable;
use crate::{Cx, Effect, Pg};
use nacre_maps::OsdMap;
use nacre_msg::peer::{Counters, LogEntry};
use nacre_txn::{ObjectView, Op, Transaction};
use nacre_types::{Eversion, HObject, PgId, SnapId, SpgId, hash};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects looked at in one go.
const OBJECTS_PER_PAGE_MAX: usize = 1024;

/// What goes to one child.
#[derive(Debug, Default)]
struct Share {
    entries: Vec<LogEntry>,
    /// Changes that record which snapshots see which clone, and what is missing from before the log.
    records: Vec<Op>,
    counters: Counters,
    missing: bool,
}

/// The groups that `parent` splits into, besides itself, when the pool goes from `old` to `new` groups.
fn children(parent: PgId, old: u32, new: u32) -> impl Iterator<Item = PgId> {
    let seeds = if old == 0 { new..new } else { old..new };
    let is_child = move |seed: &u32| hash::stable_mod(*seed, old) == parent.seed;
    seeds.filter(is_child).map(move |seed| PgId::new(parent.pool, seed))
}

impl Pg {
    /// Hands over what belongs to new groups in the map that came. `before` is the last map of this interval.
    pub(crate) fn split(&mut self, cx: &mut Cx<'_>, before: &Arc<OsdMap>) {
        let (parent, new) = (self.spg.pg, self.pool.pg_num);
        // A peer may have called for the child already: then this copy was born just now, late and empty.
        let is_new = |child: &PgId| storage::load_info(cx.view, &SpgId::replicated(*child)).is_none();
        let mut shares: BTreeMap<PgId, Share> = children(parent, self.interval.pg_num, new)
            .filter(is_new)
            .map(|child| (child, Share::default()))
            .collect();
        if shares.is_empty() {
            return;
        }
        let mut txn = Transaction::new(self.spg);
        // Of the undivided copy: what the parent lacks may all be the child's, and the parent then be complete.
        let complete_to = self.info.last_complete;
        self.count_shares(cx.view, new, &mut shares);
        self.share_snaps(cx.view, new, &mut shares, &mut txn);
        self.share_log(new, &mut shares, &mut txn);
        let children: Vec<SpgId> = shares.keys().map(|child| SpgId::replicated(*child)).collect();
        for (child, share) in shares {
            let ops = self.birth_ops(share, complete_to, before);
            txn.push(Op::Split { child: SpgId::replicated(child), pg_num: new, ops });
        }
        if let Some(ec) = &mut self.ec {
            ec.kept.retain(|_, object| object.pg(new) == parent); // what was kept goes with its object
        }
        txn.push(Op::LogRewind { to: self.log.tail() });
        txn.ops.extend(self.log.iter().map(|entry| log_append(&entry)));
        self.save_state(&mut txn);
        self.submit(cx, txn, OnDurable::Nothing);
        for child in children {
            cx.effects.push(Effect::Split { child, before: Arc::clone(before) });
        }
    }

    /// Adds up what the children's heads stand for, and takes it from our own sums.
    fn count_shares(&mut self, view: &dyn ObjectView, new: u32, shares: &mut BTreeMap<PgId, Share>) {
        let mut from = HObject::MIN;
        loop {
            let page = view.list(&self.spg, &from, OBJECTS_PER_PAGE_MAX + 1);
            for object in page.iter().take(OBJECTS_PER_PAGE_MAX) {
                let Some(share) = shares.get_mut(&object.pg(new)).filter(|_| object.snap == SnapId::HEAD)
                else {
                    continue;
                };
                // A damaged record counts for nothing; recovery and scrub deal with it in the child.
                if let Ok(context) = ObjectContext::load(view, &self.spg, object) {
                    add_head(&mut share.counters, &context);
                }
            }
            match page.into_iter().nth(OBJECTS_PER_PAGE_MAX) {
                Some(next) => from = next,
                None => break,
            }
        }
        for share in shares.values() {
            self.info.counters.subtract(&share.counters);
        }
    }

    fn share_snaps(
        &self,
        view: &dyn ObjectView,
        new: u32,
        shares: &mut BTreeMap<PgId, Share>,
        txn: &mut Transaction,
    ) {
        for (snap, clone) in mapper::all(view, &self.spg) {
            if let Some(share) = shares.get_mut(&clone.pg(new)) {
                mapper::insert(&clone, &[snap], &mut share.records);
                mapper::remove(&clone, &[snap], &mut txn.ops);
            }
        }
    }

    /// Deals the log entries and the missing objects out.
    fn share_log(&mut self, new: u32, shares: &mut BTreeMap<PgId, Share>, txn: &mut Transaction) {
        let mut kept = Vec::with_capacity(self.log.len());
        for entry in self.log.iter() {
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
        self.info.last_update = self.log.head();
        self.info.last_complete = last_complete(
            self.info.last_complete,
            &self.log,
            self.missing.is_empty() && !self.info.is_incomplete(),
        );
    }

    /// What makes the child: as [`Pg::load`] reads it, at the end of the interval that it shares with us, from a copy that
    /// lacked nothing up to `complete_to`.
    fn birth_ops(&self, share: Share, complete_to: Eversion, before: &OsdMap) -> Vec<Op> {
        let mut log = PgLog::default();
        log.replace(self.log.tail(), &share.entries);
        let mut info = self.info.clone();
        info.last_update = log.head();
        info.last_complete = last_complete(complete_to, &log, !share.missing && !info.is_incomplete());
        info.counters = share.counters;
        let mut txn = Transaction { collection: self.spg, ops: share.records };
        txn.ops.extend(share.entries.iter().map(log_append));
        save_interval(&mut txn, &self.interval, &self.past);
        save_info(&mut txn, &info, before.epoch);
        txn.ops
    }
}

/// A copy that lacks nothing is complete up to its head; others are up to where they were.
fn last_complete(was: Eversion, log: &PgLog, whole: bool) -> Eversion {
    if whole { log.head() } else { was.min(log.head()) }
}

/// What one head and its clones add to a group's sums.
fn add_head(sums: &mut Counters, head: &ObjectContext) {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let clones = signed(head.snaps.clones.len() as u64);
    let own: u64 = head.snaps.clones.iter().map(crate::object::CloneInfo::own_bytes).sum();
    sums.add(&Counters {
        objects: 1 + clones,
        clones,
        bytes: signed(head.info.size.saturating_add(own)),
        whiteouts: i64::from(head.info.whiteout),
        omap_objects: i64::from(head.info.has_omap) * (1 + clones),
        ..Counters::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_new_group_has_one_parent() {
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
