//! Omaps: entries are pairs of the KV store under the omap's number, read there and changed above it.

use super::{Table, detached};
use crate::kv_schema;
use nacre_buf::{ByteStr, Bytes};
use nacre_txn::Op;
use nacre_types::{HObject, SpgId};
use std::sync::Arc;

fn bytes_of(key: &[u8], value: &Bytes) -> i64 {
    i64::try_from(key.len() + value.len()).unwrap_or(i64::MAX)
}

impl Table {
    pub(super) fn apply_omap(&mut self, at: SpgId, op: Op) {
        match op {
            Op::OmapSet { object, entries } => self.set_entries(at, &object, entries),
            Op::OmapRemove { object, keys } => {
                let (id, omap) = self.omap_of(at, &object);
                self.remove_entries(id, omap, keys);
            }
            Op::OmapRemoveRange { object, first, last } => {
                let (id, omap) = self.omap_of(at, &object);
                self.remove_range(id, omap, &first, &last);
            }
            Op::OmapSetHeader { object, header } => self.set_header(at, &object, detached(&header)),
            Op::OmapClear(object) => self.clear_omap(at, &object),
            op => self.apply_meta(at, op),
        }
    }

    /// Numbers of the object, made if absent, and of its omap; zero when it has none.
    fn omap_of(&mut self, at: SpgId, name: &HObject) -> (u64, u64) {
        let id = self.touch(at, name);
        (id, self.onodes.change(&id, |onode| onode.omap).unwrap_or(0))
    }

    fn grow(&mut self, id: u64, by: i64) {
        self.omap_bytes = self.omap_bytes.saturating_add_signed(by);
        self.onodes.change(&id, |onode| {
            let onode = Arc::make_mut(onode);
            onode.omap_bytes = onode.omap_bytes.saturating_add_signed(by);
        });
    }

    fn set_entries(&mut self, at: SpgId, name: &HObject, entries: Vec<(ByteStr, Bytes)>) {
        let (id, mut omap) = self.omap_of(at, name);
        let is_new = omap == 0;
        if is_new && !entries.is_empty() {
            omap = self.fresh_id();
            self.onodes.change(&id, |onode| Arc::make_mut(onode).omap = omap);
        }
        let mut grown = 0;
        for (key, value) in entries {
            let at = kv_schema::omap_key(omap, &key);
            // Of a new omap the KV store has nothing: only what came before in the same operation.
            let old =
                if is_new { self.pairs.get(&at).flatten().cloned() } else { self.omap_value(omap, &key) };
            grown += bytes_of(&key, &value) - old.as_ref().map_or(0, |old| bytes_of(&key, old));
            self.keep_for_copy(omap, &key, old.as_ref());
            self.pairs.put(at, detached(&value));
        }
        self.grow(id, grown);
    }

    fn remove_entries(&mut self, id: u64, omap: u64, keys: Vec<ByteStr>) {
        let mut removed = 0;
        for key in keys {
            if let Some(old) = self.omap_value(omap, &key) {
                removed += self.remove_entry(omap, &key, &old);
            }
        }
        self.grow(id, -removed);
    }

    /// The scan that finds the entries brings their values: they are not looked for once more.
    fn remove_range(&mut self, id: u64, omap: u64, first: &ByteStr, last: &ByteStr) {
        if omap == 0 || first >= last {
            return;
        }
        let mut removed = 0;
        for (key, old) in self.omap_range(omap, first, Some(last), usize::MAX) {
            removed += self.remove_entry(omap, &key, &old);
        }
        self.grow(id, -removed);
    }

    /// Removes an entry that is there; gives its bytes.
    fn remove_entry(&mut self, omap: u64, key: &[u8], old: &Bytes) -> i64 {
        self.keep_for_copy(omap, key, Some(old));
        self.pairs.delete(kv_schema::omap_key(omap, key));
        self.hide_below(omap, key);
        bytes_of(key, old)
    }

    fn set_header(&mut self, at: SpgId, name: &HObject, header: Bytes) {
        let after = header.len() as u64;
        let before = self
            .change(at, name, |(onode, ..)| std::mem::replace(&mut onode.omap_header, header).len() as u64);
        self.omap_bytes = self.omap_bytes - before.unwrap_or(0) + after;
    }

    fn clear_omap(&mut self, at: SpgId, name: &HObject) {
        self.set_header(at, name, Bytes::new());
        let (id, omap) = self.omap_of(at, name);
        self.bury_omap(omap);
        let bytes = self.onodes.change(&id, |onode| {
            let onode = Arc::make_mut(onode);
            onode.omap = 0;
            std::mem::take(&mut onode.omap_bytes)
        });
        self.omap_bytes -= bytes.unwrap_or(0);
    }

    /// Entries from `from` on.
    pub(crate) fn omap_entries(&self, omap: u64, from: &[u8], count_max: usize) -> Vec<(ByteStr, Bytes)> {
        if omap == 0 {
            return Vec::new();
        }
        let found = self.omap_range(omap, from, None, count_max);
        found.into_iter().map(|(key, value)| (key.into(), value)).collect()
    }
}
