//! Ranges of pairs: what the KV store has, with what was changed since above it.

use super::Table;
use crate::kv_schema::{self, Keyspace};
use nacre_buf::Bytes;
use nacre_kv::{Pair, end_of_prefix};
use nacre_types::{HObject, SpgId};
use std::ops::Bound;

/// Pairs taken from the KV store at once.
const PAGE_PAIRS_MAX: usize = 1024;
const PAGE_PAIRS_MIN: usize = 16;

type Change<'a> = (&'a Bytes, &'a Option<Bytes>);

/// The next change at or before `until`, the one of `live` when both have the key.
fn next_change<'a>(
    live: &mut std::iter::Peekable<impl Iterator<Item = Change<'a>>>,
    cut: &mut std::iter::Peekable<impl Iterator<Item = Change<'a>>>,
    until: Option<&Bytes>,
) -> Option<Change<'a>> {
    let first = [live.peek(), cut.peek()].into_iter().flatten().map(|(key, _)| *key).min()?;
    if until.is_some_and(|until| first > until) {
        return None;
    }
    let newer = live.next_if(|(key, _)| *key == first);
    let older = cut.next_if(|(key, _)| *key == first);
    newer.or(older)
}

impl Table {
    /// Pairs with keys from `start` up to `end`, at most `count_max`.
    pub(crate) fn scan(&self, start: &[u8], end: &[u8], count_max: usize) -> Vec<Pair> {
        if start >= end {
            return Vec::new();
        }
        let range = (Bound::Included(start), Bound::Excluded(end));
        let mut live = self.pairs.mutable().range::<[u8], _>(range).peekable();
        let mut cut = self.pairs.frozen.range::<[u8], _>(range).peekable();
        let mut out: Vec<Pair> = Vec::new();
        let mut last: Option<Bytes> = None;
        loop {
            let from = last.as_deref().map_or(Bound::Included(start), Bound::Excluded);
            let size = count_max.saturating_sub(out.len()).clamp(PAGE_PAIRS_MIN, PAGE_PAIRS_MAX);
            let page = self.note(self.kv.scan(from, Bound::Excluded(end), size)).unwrap_or_default();
            let is_last = page.len() < size;
            last = page.last().map(|(key, _)| key.clone());
            for (key, value) in page {
                let mut is_hidden = false;
                while let Some((changed, newer)) = next_change(&mut live, &mut cut, Some(&key)) {
                    is_hidden |= *changed == key;
                    out.extend(newer.as_ref().map(|newer| (changed.clone(), newer.clone())));
                }
                if !is_hidden {
                    out.push((key, value));
                }
                if out.len() >= count_max {
                    out.truncate(count_max);
                    return out;
                }
            }
            if is_last {
                break;
            }
        }
        while out.len() < count_max
            && let Some((changed, newer)) = next_change(&mut live, &mut cut, None)
        {
            out.extend(newer.as_ref().map(|newer| (changed.clone(), newer.clone())));
        }
        out
    }

    pub(crate) fn scan_prefix(&self, prefix: &[u8]) -> Vec<Pair> {
        let end = end_of_prefix(prefix).unwrap_or_default();
        self.scan(prefix, &end, usize::MAX)
    }

    /// Objects of a collection from `from` on, with their numbers.
    pub(crate) fn names_from(&self, at: &SpgId, from: &HObject, count_max: usize) -> Vec<(u64, HObject)> {
        let Some(space) = self.keyspace_of(at) else { return Vec::new() };
        let end = end_of_prefix(&kv_schema::name_prefix(&space)).unwrap_or_default();
        let found = self.scan(&kv_schema::name_key(&space, from), &end, count_max);
        found.into_iter().filter_map(|(_, value)| self.note(kv_schema::decode_name(value))).collect()
    }

    /// Objects of a collection from `from` on and before `until`, with their numbers.
    pub(crate) fn names_between(&self, at: &SpgId, from: &HObject, until: &HObject) -> Vec<(u64, HObject)> {
        let Some(space) = self.keyspace_of(at) else { return Vec::new() };
        let (first, end) = (kv_schema::name_key(&space, from), kv_schema::name_key(&space, until));
        let found = self.scan(&first, &end, usize::MAX);
        found.into_iter().filter_map(|(_, value)| self.note(kv_schema::decode_name(value))).collect()
    }

    /// All objects of a collection, with their numbers.
    pub(crate) fn names(&self, at: &SpgId) -> Vec<(u64, HObject)> {
        self.keyspace_of(at).map_or_else(Vec::new, |space| self.names_in(&space))
    }

    /// All objects of a space, likewise.
    pub(crate) fn names_in(&self, space: &Keyspace) -> Vec<(u64, HObject)> {
        let found = self.scan_prefix(&kv_schema::name_prefix(space));
        found.into_iter().filter_map(|(_, value)| self.note(kv_schema::decode_name(value))).collect()
    }

    /// A collection's values whose keys begin with `prefix`, from `from` on.
    pub(crate) fn values(&self, at: &SpgId, prefix: &[u8], from: &[u8], count_max: usize) -> Vec<Pair> {
        let Some(space) = self.keyspace_of(at) else { return Vec::new() };
        let skip = kv_schema::meta_key(&space, b"").len();
        let (first, from) = (kv_schema::meta_key(&space, prefix), kv_schema::meta_key(&space, from));
        let end = end_of_prefix(&first).unwrap_or_default();
        let found = self.scan(first.max(from).as_ref(), &end, count_max);
        found.into_iter().map(|(key, value)| (key.slice(skip..), value)).collect()
    }
}
