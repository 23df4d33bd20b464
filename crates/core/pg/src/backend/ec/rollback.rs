//! What a write replaced, kept on each shard under a name of its own until the write cannot be taken back any more.
//!
//! ```text
//!   write 12 to o      keep o as o:kept(12)    write o    log + 12       one transaction on every shard
//!   all have 12        remove o:kept(12)                                 with the next write, or a tick later
//!   12 is divergent    put o:kept(12) back     remove o:kept(12)   log - 12
//! ```
//! The name is that of a clone with a snapshot id that no snapshot can have, so what is kept splits off with its object.
//!
//! A write that says which ranges of the data it changes ([`LogEntry::modified`]) has these kept and no others, and all that is not data: a
//! clone of the whole chunk would have a reference to each of its blocks, for a write of one. Several such writes are taken back one after
//! the other, the newest first, from the object as it is. Other writes have the whole object kept. In both cases the store shares blocks,
//! and reads and writes none.
//!
//! ```text
//!   o            | a | b | c | d |      12 writes b, 13 writes b and c       o:kept(12)  |   | b |   |   |
//!                                                                            o:kept(13)  |   | b'| c |   |
//!   back to 11   o with b' and c of o:kept(13), then with b of o:kept(12)
//! ```

use crate::coding::{RollbackGen, is_rollback_gen, partial_gen_name, rollback_gen_name, version_of_gen};
use crate::log::Change;
use crate::object::ObjectContext;
use crate::snap::mapper;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{Cx, Planted, storage};
use nacre_buf::Bytes;
use nacre_denc::Decode;
use nacre_msg::peer::{LogEntry, LogKind};
use nacre_txn::{ObjectView, Op, ReadError, Transaction};
use nacre_types::{Eversion, HObject, IntervalSet};
use std::collections::BTreeMap;

impl PgState {
    /// True for what was kept of an object, in a PG that does so.
    pub(crate) fn is_rollback_gen(&self, object: &HObject) -> bool {
        self.ec.is_some() && is_rollback_gen(object)
    }

    /// Finds what the store keeps.
    pub(crate) fn find_rollback_gens(&mut self, view: &dyn ObjectView) {
        let Some(ec) = &mut self.ec else { return };
        let mut in_part = Vec::new();
        for entry in self.log.iter() {
            let is_there = |name: &HObject| view.meta(&self.spg, name).is_some();
            let whole = rollback_gen_name(&entry.object, entry.version);
            let partial = partial_gen_name(&entry.object, entry.version);
            if is_there(&whole) {
                ec.rollback_gens.insert(entry.version.version, RollbackGen { name: whole, modified: None });
            } else if is_there(&partial) {
                in_part.push((entry.version.version, partial));
            }
        }
        if in_part.is_empty() {
            return;
        }
        let mut modified = modified_by(view.log(&self.spg));
        // One whose entry does not say what it modified leads nowhere: with nothing known of it, the object counts as missing.
        let known = |(version, name)| {
            let modified = Some(modified.remove(&version)?);
            Some((version, RollbackGen { name, modified }))
        };
        ec.rollback_gens.extend(in_part.into_iter().filter_map(known));
    }

    /// The log as it must be stored while something is kept: an entry in memory does not say what it changed.
    pub(crate) fn log_with_modified(&self) -> impl Iterator<Item = LogEntry> + '_ {
        self.log.iter().map(|mut entry| {
            let kept = self.ec.as_ref().and_then(|ec| ec.rollback_gens.get(&entry.version.version));
            entry.modified = kept.and_then(|kept| kept.modified.clone());
            entry
        })
    }

    /// What `entries` replace is kept by these changes, which each shard makes in front of its own: its number makes them.
    pub(super) fn keep_replaced<'a>(
        &'a self,
        view: &dyn ObjectView,
        entries: &'a [LogEntry],
    ) -> impl Fn(u8) -> Vec<Op> + use<'a> {
        let replaces = |entry: &&LogEntry| entry.changes_object() && entry.kind != LogKind::Clone;
        let there = entries.iter().filter(replaces).filter_map(|entry| {
            let record = view.meta(&self.spg, &entry.object)?;
            let size = entry.modified.as_ref().map(|_| size_of(record));
            Some((entry, size.flatten().unwrap_or_default()))
        });
        let there: Vec<(&LogEntry, u64)> = there.collect();
        move |shard| there.iter().filter_map(|(entry, size)| self.keep(entry, *size, shard)).collect()
    }

    fn keep(&self, entry: &LogEntry, size: u64, shard: u8) -> Option<Op> {
        let source = entry.object.clone();
        Some(match &entry.modified {
            None => Op::Clone { source, target: rollback_gen_name(&entry.object, entry.version) },
            Some(modified) => {
                let chunk = self.info.mapping.chunk_of(source.hash, shard);
                let extents = self.ec.as_ref()?.coding.kept_extents(modified, chunk, size);
                Op::CloneExtents { source, target: partial_gen_name(&entry.object, entry.version), extents }
            }
        })
    }

    /// Notes what a transaction keeps of what these `entries` replace.
    pub(crate) fn note_rollback_gens(&mut self, ops: &[Op], entries: &[LogEntry]) {
        let Some(ec) = &mut self.ec else { return };
        for op in ops {
            let (Op::Clone { target, .. } | Op::CloneExtents { target, .. }) = op else { continue };
            if !is_rollback_gen(target) {
                continue;
            }
            let version = version_of_gen(target);
            let entry = entries.iter().find(|entry| entry.version.version == version);
            let modified = match op {
                Op::Clone { .. } => None,
                // As a peer's entry should say, or nothing else was changed either.
                _ => Some(entry.and_then(|entry| entry.modified.clone()).unwrap_or_default()),
            };
            ec.rollback_gens.insert(version, RollbackGen { name: target.detached(), modified });
        }
    }

    /// Writes up to `to` cannot be taken back any more.
    pub(crate) fn drop_rollback_gens(&mut self, txn: &mut Transaction, to: Eversion) {
        let Some(ec) = &mut self.ec else { return };
        while let Some(oldest) = ec.rollback_gens.first_entry().filter(|oldest| *oldest.key() <= to.version) {
            txn.push(Op::Remove(oldest.remove().name));
        }
    }

    /// Nothing of this copy counts any more.
    pub(crate) fn drop_all_rollback_gens(&mut self, txn: &mut Transaction) {
        self.drop_rollback_gens(txn, Eversion::new(0, u64::MAX));
    }

    /// What leads from `object` as it is back to its version `need`, by the writes of it from the one that made the next version on,
    /// ascending: what these replaced, the oldest first. Only the last one may be the whole object; if it is a part as well, the way
    /// begins at the object as it is. `None` when something of that was not kept.
    fn way_back(
        &self,
        view: &dyn ObjectView,
        object: &HObject,
        need: Eversion,
        writes: impl Iterator<Item = Eversion>,
    ) -> Option<Vec<&RollbackGen>> {
        let (ec, _shard) = (self.ec.as_ref()?, self.info.shard?);
        let (mut steps, mut before) = (Vec::new(), need);
        let is_here = |version| storage::copy_version(view, &self.spg, object) == Some(version);
        for version in writes {
            if !steps.is_empty() && is_here(before) {
                return Some(steps); // the later ones have not come to the object yet
            }
            let kept = ec.rollback_gens.get(&version.version)?;
            if storage::copy_version(view, &self.spg, &kept.name) != Some(before) {
                return None;
            }
            steps.push(kept);
            if kept.modified.is_none() {
                return Some(steps);
            }
            before = version;
        }
        (!steps.is_empty() && is_here(before)).then_some(steps)
    }

    /// The changes that make `target` what `steps` lead back to; it is the object as it is, or a clone of that.
    fn go_back(&self, view: &dyn ObjectView, steps: &[&RollbackGen], target: &HObject) -> Vec<Op> {
        let Some((ec, shard)) = self.ec.as_ref().zip(self.info.shard) else { return Vec::new() };
        let back = |kept: &&RollbackGen| {
            let (source, target) = (kept.name.clone(), target.clone());
            let Some(modified) = &kept.modified else { return Op::Clone { source, target } };
            let size = view.meta(&self.spg, &kept.name).and_then(size_of).unwrap_or_default();
            let chunk = self.info.mapping.chunk_of(source.hash, shard);
            Op::CloneExtents { source, target, extents: ec.coding.kept_extents(modified, chunk, size) }
        };
        steps.iter().rev().map(back).collect()
    }

    /// Where `object` is kept in the version `need`, as a whole. What is kept in part is put together first.
    ///
    /// # Errors
    /// [`ReadError::Pending`] while it is.
    pub(crate) fn kept_version(
        &mut self,
        cx: &mut Cx<'_>,
        object: &HObject,
        need: Eversion,
    ) -> Result<Option<HObject>, ReadError> {
        let Some(ec) = &self.ec else { return Ok(None) };
        let is_it = |kept: &RollbackGen| {
            kept.name.to_head() == object.to_head()
                && storage::copy_version(cx.view, &self.spg, &kept.name) == Some(need)
        };
        let of_object = |version: u64| {
            move |entry: &LogEntry| entry.version.version >= version && entry.object == *object
        };
        let made = |version: u64| {
            self.log.iter().find(of_object(version)).is_some_and(|entry| entry.version.version == version)
        };
        let found = ec.rollback_gens.iter().find(|(version, kept)| is_it(kept) && made(**version));
        let Some((version, kept)) = found.map(|(version, kept)| (*version, kept.clone())) else {
            return Ok(None);
        };
        if kept.modified.is_none() {
            return Ok(Some(kept.name));
        }
        let writes = self.log.iter().filter(of_object(version)).filter(LogEntry::changes_object);
        let writes: Vec<Eversion> = writes.map(|entry| entry.version).collect();
        let Some(steps) = self.way_back(cx.view, object, need, writes.into_iter()) else { return Ok(None) };
        let whole = rollback_gen_name(object, Eversion::new(0, version));
        let mut txn = Transaction::new(self.spg);
        if steps.last().is_some_and(|last| last.modified.is_some()) {
            txn.push(Op::Clone { source: object.clone(), target: whole.clone() });
        }
        txn.ops.extend(self.go_back(cx.view, &steps, &whole));
        txn.push(Op::Remove(kept.name));
        if let Some(ec) = &mut self.ec {
            ec.rollback_gens.insert(version, RollbackGen { name: whole.clone(), modified: None });
        }
        self.submit(cx, txn, OnDurable::Nothing);
        Err(ReadError::Pending { object: whole, offset: 0, length: 1 })
    }

    /// Takes back what the `divergent` entries did to `object`, which was `change` before; false when that was not kept.
    pub(crate) fn rollback(
        &self,
        view: &dyn ObjectView,
        txn: &mut Transaction,
        divergent: &[LogEntry],
        object: &HObject,
        change: Change,
    ) -> bool {
        let Change::Need(need) = change else { return false };
        let of_object = divergent.iter().filter(|entry| entry.changes_object() && entry.object == *object);
        let Some(steps) = self.way_back(view, object, need, of_object.map(|entry| entry.version)) else {
            return false;
        };
        if self.planted == Planted::RollbackSkipped {
            return true;
        }
        txn.ops.extend(self.go_back(view, &steps, object));
        let record = steps.first().and_then(|oldest| view.meta(&self.spg, &oldest.name)).unwrap_or_default();
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
        txn.ops.extend(above.into_values().map(|kept| Op::Remove(kept.name)));
    }
}

/// The size of the object of this record.
fn size_of(record: Bytes) -> Option<u64> {
    ObjectContext::from_record(record).ok().map(|context| context.info.size)
}

/// What entries of a stored log say that they changed in part, by number.
fn modified_by(log: Vec<Bytes>) -> BTreeMap<u64, IntervalSet> {
    let entries = log.into_iter().filter_map(|entry| LogEntry::from_bytes(entry).ok());
    entries.filter_map(|entry| Some((entry.version.version, entry.modified?))).collect()
}
