//! Copies of large omaps. A clone is made at once, however many entries its source has; they follow some at a time, between what
//! the shard does for others.
//!
//! ```text
//!   clone of omap 5 as 9     copy 9: from 5, reached nothing      9 shows what 5 has
//!   5: k := new              9: k := old                          first, if 9 has not got its own k yet
//!   9: k removed             9: k hidden                          or 5's would show
//!   every step               9: the next entries, reached k2      up to k2, 9 has all that is its own
//!   the end                  the copy is forgotten
//!
//!   reading k of 9:  its own k  ->  nothing, if hidden or reached  ->  k of 5
//! ```
//! At most one copy is made from an omap: when 5 is cloned again, as 12, the older copy 9 goes on from 12, which is what 5 is at this
//! moment. So a change concerns one copy, and copies are chains. An omap whose object is gone stays as long as a copy needs it.
//!
//! What a step does is in no record of the log: after a crash the copies, which are stored like everything else, are where the last
//! checkpoint has them, and the steps are taken again.

use super::Table;
use crate::error::OpenError;
use crate::kv_schema::{self, OmapCopy, prefix};
use crate::options::Planted;
use nacre_buf::Bytes;
use nacre_kv::{KvStore, Pair, end_of_prefix};
use std::collections::{BTreeMap, BTreeSet};

/// Copies under way in one store, above which a clone copies at once: what is read may have to be looked for in all of them.
const COPIES_MAX: usize = 64;
/// Entries of a source looked at together at least.
const PAGE_ENTRIES_MIN: usize = 16;

/// Copies under way, by the number of the omap that they become.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    by_target: BTreeMap<u64, OmapCopy>,
    /// Entries that one step copies at most.
    step_entries_max: usize,
}

/// The key behind this one.
fn behind(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

impl OmapCopy {
    /// Whether the copy has all up to this key as its own.
    fn has_reached(&self, key: &[u8]) -> bool {
        self.reached.as_ref().is_some_and(|reached| key <= reached.as_ref())
    }

    /// The first key that it may lack.
    fn first(&self) -> Bytes {
        self.reached.as_deref().map_or_else(Bytes::new, behind)
    }
}

impl Copies {
    /// What a checkpoint left.
    pub(super) fn load(kv: &dyn KvStore, step_entries_max: usize) -> Result<Self, OpenError> {
        let mut by_target = BTreeMap::new();
        kv_schema::scan::<OpenError>(kv, &[prefix::COPY], |key, value| {
            by_target.insert(kv_schema::decode_number(key)?, OmapCopy::decode(value)?);
            Ok(())
        })?;
        Ok(Self { by_target, step_entries_max })
    }

    /// True when every omap has all of its entries itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_target.is_empty()
    }

    /// Copies under way.
    pub(crate) fn len(&self) -> usize {
        self.by_target.len()
    }

    /// The copy that is made from this omap.
    fn made_from(&self, source: u64) -> Option<u64> {
        self.by_target.iter().find(|(_, copy)| copy.source == source).map(|(target, _)| *target)
    }

    /// Whether only another copy needs this one any more: it takes what it needs through it.
    fn is_dead(&self, target: u64) -> bool {
        self.by_target.values().any(|copy| copy.source == target && copy.source_is_dead)
    }

    /// One whose source is not to be completed before it. There is one as long as there are copies: the first of a chain that
    /// is not dead, and the last one never is.
    fn next(&self) -> Option<(u64, OmapCopy)> {
        let is_next = |target: u64, copy: &OmapCopy| {
            !self.is_dead(target) && (copy.source_is_dead || !self.by_target.contains_key(&copy.source))
        };
        let found = self.by_target.iter().find(|(target, copy)| is_next(**target, copy));
        found.map(|(target, copy)| (*target, copy.clone()))
    }
}

/// Both in order, and of equal keys that of `own`.
fn merge(own: Vec<Pair>, below: Vec<Pair>, count_max: usize) -> Vec<Pair> {
    let mut out: Vec<Pair> = Vec::with_capacity(count_max.min(own.len() + below.len()));
    let (mut own, mut below) = (own.into_iter().peekable(), below.into_iter().peekable());
    while out.len() < count_max {
        let order = match (own.peek(), below.peek()) {
            (Some((own, _)), Some((below, _))) => own.cmp(below),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, _) => std::cmp::Ordering::Greater,
        };
        if order.is_eq() {
            below.next();
        }
        let Some(next) = (if order.is_le() { own.next() } else { below.next() }) else { break };
        out.push(next);
    }
    out
}

impl Table {
    fn put_copy(&mut self, target: u64, copy: OmapCopy) {
        self.pairs.put(kv_schema::copy_key(target), copy.encode());
        self.copies.by_target.insert(target, copy);
    }

    /// A new omap with the same entries, which take so many bytes.
    pub(super) fn clone_omap(&mut self, source: u64, bytes: u64) -> u64 {
        let target = self.fresh_id();
        if bytes < self.omap_bytes_shared_min || self.copies.len() >= COPIES_MAX {
            for (key, value) in self.omap_range(source, b"", None, usize::MAX) {
                self.pairs.put(kv_schema::omap_key(target, &key), value);
            }
            return target;
        }
        if let Some(older) = self.copies.made_from(source)
            && let Some(copy) = self.copies.by_target.get(&older).cloned()
        {
            assert!(!copy.source_is_dead, "it is an object's, which is cloned");
            self.put_copy(older, OmapCopy { source: target, ..copy });
        }
        self.put_copy(target, OmapCopy { source, source_is_dead: false, reached: None });
        target
    }

    /// The value of a key.
    pub(crate) fn omap_value(&self, omap: u64, key: &[u8]) -> Option<Bytes> {
        let mut omap = omap;
        loop {
            let found = self.pair(&kv_schema::omap_key(omap, key));
            if found.is_some() || self.copies.is_empty() {
                return found;
            }
            let copy = self.copies.by_target.get(&omap)?;
            if copy.has_reached(key) || self.pair(&kv_schema::hidden_key(omap, key)).is_some() {
                return None;
            }
            omap = copy.source;
        }
    }

    /// Pairs under a prefix with keys from `from` on and before `end`, the keys without the prefix.
    fn under(&self, prefix: &[u8], from: &[u8], end: Option<&[u8]>, count_max: usize) -> Vec<Pair> {
        let end = match end {
            Some(end) => [prefix, end].concat(),
            None => end_of_prefix(prefix).unwrap_or_default(),
        };
        let found = self.scan(&[prefix, from].concat(), &end, count_max);
        found.into_iter().map(|(key, value)| (key.slice(prefix.len()..), value)).collect()
    }

    /// Entries with keys from `from` on and before `end`.
    pub(crate) fn omap_range(
        &self,
        omap: u64,
        from: &[u8],
        end: Option<&[u8]>,
        count_max: usize,
    ) -> Vec<Pair> {
        let own = self.under(&kv_schema::omap_prefix(omap), from, end, count_max);
        let Some(copy) = self.copies.by_target.get(&omap) else { return own };
        merge(own, self.entries_below(omap, copy, from, end, count_max), count_max)
    }

    /// Entries of the source that show through a copy, but for those that it has itself.
    fn entries_below(
        &self,
        omap: u64,
        copy: &OmapCopy,
        from: &[u8],
        end: Option<&[u8]>,
        count_max: usize,
    ) -> Vec<Pair> {
        let (mut from, mut out) = (copy.first().max(Bytes::copy_from_slice(from)), Vec::new());
        let hidden_prefix = kv_schema::hidden_prefix(omap);
        while out.len() < count_max {
            let wanted = (count_max - out.len()).max(PAGE_ENTRIES_MIN);
            let page = self.omap_range(copy.source, &from, end, wanted);
            let is_last = page.len() < wanted;
            let Some(next) = page.last().map(|(key, _)| behind(key)) else { break };
            let hidden = self.under(&hidden_prefix, &from, Some(&next), usize::MAX);
            let hidden: BTreeSet<Bytes> = hidden.into_iter().map(|(key, _)| key).collect();
            out.extend(page.into_iter().filter(|(key, _)| !hidden.contains(key)));
            if is_last {
                break;
            }
            from = next;
        }
        out
    }

    /// An entry is about to be changed: the copy that is made from this omap keeps it as it was.
    pub(super) fn keep_for_copy(&mut self, omap: u64, key: &[u8], before: Option<&Bytes>) {
        let Some(target) = self.copies.made_from(omap) else { return };
        if self.copies.by_target.get(&target).is_none_or(|copy| copy.has_reached(key)) {
            return;
        }
        let (own, hidden) = (kv_schema::omap_key(target, key), kv_schema::hidden_key(target, key));
        let is_kept = self.pair(&own).is_some() || self.pair(&hidden).is_some();
        if is_kept || self.planted == Planted::SharedChange {
            return;
        }
        match before {
            Some(before) => self.pairs.put(own, before.clone()),
            None => self.pairs.put(hidden, Bytes::new()),
        }
    }

    /// An entry was removed: what the source has under its key must not show instead.
    pub(super) fn hide_below(&mut self, omap: u64, key: &[u8]) {
        if self.copies.by_target.get(&omap).is_some_and(|copy| !copy.has_reached(key)) {
            self.pairs.put(kv_schema::hidden_key(omap, key), Bytes::new());
        }
    }

    /// Copies some entries of large omaps that were cloned; true while there is more.
    pub(crate) fn copy_some(&mut self) -> bool {
        let Some((target, copy)) = self.copies.next() else { return false };
        let (count_max, first) = (self.copies.step_entries_max, copy.first());
        let hidden_prefix = kv_schema::hidden_prefix(target);
        let theirs = self.omap_range(copy.source, &first, None, count_max);
        let own = self.under(&kv_schema::omap_prefix(target), &first, None, count_max);
        let hidden = self.under(&hidden_prefix, &first, None, count_max);
        // As far as all three are known.
        let full = [&theirs, &own, &hidden].into_iter().filter(|found| found.len() >= count_max);
        let reached = full.filter_map(|found| found.last()).map(|(key, _)| key.clone()).min();
        let is_within = |key: &Bytes| reached.as_ref().is_none_or(|reached| key <= reached);
        let other: BTreeSet<Bytes> =
            own.into_iter().chain(hidden.iter().cloned()).map(|(key, _)| key).collect();
        for (key, value) in theirs.into_iter().filter(|(key, _)| is_within(key) && !other.contains(key)) {
            self.pairs.put(kv_schema::omap_key(target, &key), value);
        }
        for (key, _) in hidden.into_iter().filter(|(key, _)| is_within(key)) {
            self.pairs.delete(kv_schema::hidden_key(target, &key));
        }
        match reached {
            Some(_) => self.put_copy(target, OmapCopy { reached, ..copy }),
            None => self.end_copy(target),
        }
        !self.copies.is_empty()
    }

    /// The copy has all that is its own, or nobody needs it.
    fn end_copy(&mut self, target: u64) {
        let Some(copy) = self.copies.by_target.remove(&target) else { return };
        self.pairs.delete(kv_schema::copy_key(target));
        if copy.source_is_dead {
            self.bury_omap(copy.source);
        }
    }

    /// No object refers to the omap any more: what the KV store has of it goes with the next checkpoint, at once; if a copy is
    /// being made from it, once that is complete.
    pub(super) fn bury_omap(&mut self, omap: u64) {
        if omap == 0 {
            return;
        }
        if let Some(target) = self.copies.made_from(omap) {
            if let Some(copy) = self.copies.by_target.get(&target).cloned() {
                self.put_copy(target, OmapCopy { source_is_dead: true, ..copy });
            }
            return;
        }
        self.drop_prefix(kv_schema::omap_prefix(omap));
        if self.copies.by_target.contains_key(&omap) {
            self.drop_prefix(kv_schema::hidden_prefix(omap));
            self.end_copy(omap);
        }
    }

    fn drop_prefix(&mut self, prefix: Bytes) {
        let changed = self.pairs.mutable().range(prefix.clone()..);
        let changed = changed.map(|(key, _)| key).take_while(|key| key.starts_with(&prefix));
        let changed: Vec<Bytes> = changed.cloned().collect();
        changed.iter().for_each(|key| self.pairs.forget(key));
        self.dead_prefixes.push(prefix);
    }
}
