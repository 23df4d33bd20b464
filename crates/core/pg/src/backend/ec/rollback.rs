//! What a write replaced, kept on each shard under a name of its own until the write cannot be taken back any more.
//!
//! ```text
//!   write 12 to o      clone o -> o:kept(12)   write o     log + 12       one transaction on every shard
//!   all have 12        remove o:kept(12)                                  with the next write, or a tick later
//!   12 is divergent    clone o:kept(12) -> o   remove o:kept(12)   log - 12
//! ```
//! The name is that of a clone with a snapshot id that no snapshot can have, so what is kept splits off with its object.
//! Clones share their data in the store.

use crate::coding::{ROLLBACK_GEN, is_rollback_gen, rollback_gen_name};
use crate::log::Change;
use crate::object::ObjectContext;
use crate::snap::mapper;
use crate::state::PgState;
use crate::{Planted, storage};
use nacre_msg::peer::{LogEntry, LogKind};
use nacre_txn::{ObjectView, Op, Transaction};
use nacre_types::{Eversion, HObject};

impl PgState {
    /// True for what was kept of an object, in a PG that does so.
    pub(crate) fn is_rollback_gen(&self, object: &HObject) -> bool {
        self.ec.is_some() && is_rollback_gen(object)
    }

    /// Finds what the store keeps.
    pub(crate) fn find_rollback_gens(&mut self, view: &dyn ObjectView) {
        let Some(ec) = &mut self.ec else { return };
        for entry in self.log.iter() {
            let rollback_gen = rollback_gen_name(&entry.object, entry.version);
            if view.meta(&self.spg, &rollback_gen).is_some() {
                ec.rollback_gens.insert(entry.version.version, rollback_gen);
            }
        }
    }

    /// Keeps what `entries` replace, in front of the changes that do.
    pub(super) fn keep_replaced(&self, view: &dyn ObjectView, entries: &[LogEntry], ops: &mut Vec<Op>) {
        let replaces = |entry: &&LogEntry| entry.changes_object() && entry.kind != LogKind::Clone;
        let there =
            entries.iter().filter(replaces).filter(|entry| view.meta(&self.spg, &entry.object).is_some());
        let keep = |entry: &LogEntry| {
            let (source, target) = (entry.object.clone(), rollback_gen_name(&entry.object, entry.version));
            Op::Clone { source, target }
        };
        ops.splice(0..0, there.map(keep));
    }

    /// Notes what a transaction keeps.
    pub(crate) fn note_rollback_gen(&mut self, ops: &[Op]) {
        let Some(ec) = &mut self.ec else { return };
        for op in ops {
            if let Op::Clone { target, .. } = op
                && is_rollback_gen(target)
            {
                ec.rollback_gens.insert(target.snap.0 & !ROLLBACK_GEN, target.detached());
            }
        }
    }

    /// Writes up to `to` cannot be taken back any more.
    pub(crate) fn drop_rollback_gens(&mut self, txn: &mut Transaction, to: Eversion) {
        let Some(ec) = &mut self.ec else { return };
        while let Some(oldest) = ec.rollback_gens.first_entry().filter(|oldest| *oldest.key() <= to.version) {
            txn.push(Op::Remove(oldest.remove()));
        }
    }

    /// Nothing of this copy counts any more.
    pub(crate) fn drop_all_rollback_gens(&mut self, txn: &mut Transaction) {
        self.drop_rollback_gens(txn, Eversion::new(0, u64::MAX));
    }

    /// Where `object` is kept in the version `need`.
    pub(crate) fn rollback_gen_of(
        &self,
        view: &dyn ObjectView,
        object: &HObject,
        need: Eversion,
    ) -> Option<HObject> {
        let ec = self.ec.as_ref()?;
        let is_it = |rollback_gen: &&HObject| {
            rollback_gen.to_head() == object.to_head()
                && storage::copy_version(view, &self.spg, rollback_gen) == Some(need)
        };
        let made = |rollback_gen: &HObject| {
            self.log.iter().any(|entry| {
                rollback_gen_name(&entry.object, entry.version) == *rollback_gen && entry.object == *object
            })
        };
        ec.rollback_gens.values().find(|rollback_gen| is_it(rollback_gen) && made(rollback_gen)).cloned()
    }

    /// Takes back what the oldest of the `divergent` entries did to `object`, which was `change` before; false when
    /// that was not kept.
    pub(crate) fn rollback(
        &self,
        view: &dyn ObjectView,
        txn: &mut Transaction,
        divergent: &[LogEntry],
        object: &HObject,
        change: Change,
    ) -> bool {
        let (Some(ec), Change::Need(need)) = (&self.ec, change) else { return false };
        let mut of_object =
            divergent.iter().filter(|entry| entry.changes_object() && entry.object == *object);
        let Some(source) = of_object.next().and_then(|entry| ec.rollback_gens.get(&entry.version.version))
        else {
            return false;
        };
        if storage::copy_version(view, &self.spg, source) != Some(need) {
            return false;
        }
        if self.planted == Planted::RollbackSkipped {
            return true;
        }
        txn.push(Op::Clone { source: source.clone(), target: object.clone() });
        let record = view.meta(&self.spg, source).unwrap_or_default();
        if let Ok(head) = ObjectContext::from_record(record) {
            // Trimming may have taken these out of the mapper.
            for clone in &head.snaps.clones {
                mapper::insert(&object.with_snap(clone.id), &clone.snaps, &mut txn.ops);
            }
        }
        true
    }

    /// Entries above `common` are taken back: what they kept is of no use any more.
    pub(crate) fn drop_rollback_gens_above(&mut self, txn: &mut Transaction, common: Eversion) {
        let Some(ec) = &mut self.ec else { return };
        let above = ec.rollback_gens.split_off(&(common.version + 1));
        txn.ops.extend(above.into_values().map(Op::Remove));
    }
}
