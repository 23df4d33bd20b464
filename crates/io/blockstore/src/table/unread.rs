//! What of an object's metadata is not in memory.

use super::Table;
use crate::blocks::Blocks;
use crate::kv_schema;
use crate::objects;
use crate::page::page_of;
use nacre_buf::Bytes;
use nacre_types::{HObject, SpgId};
use std::sync::Arc;

/// What is looked at next of an object, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Step {
    Name,
    Record,
    Pages,
}

/// The first and the last block of a range, if there are any.
pub(crate) type BlockRange = Option<(u32, u32)>;

impl Table {
    /// The first step of a look at the object, and at the places of these blocks, that would ask the KV store, and the keys that it would ask
    /// for; `None` when all of it is in memory.
    pub(crate) fn unread(
        &self,
        at: &SpgId,
        name: &HObject,
        blocks: BlockRange,
    ) -> Option<(Step, Vec<Bytes>)> {
        let id = match self.recent.borrow().find(at, name) {
            Some(id) => id,
            None => {
                let key = kv_schema::name_key(&self.keyspace_of(at)?, name);
                match self.id_in_memory(&key) {
                    Some(id) => id?,
                    None => return Some((Step::Name, vec![key])),
                }
            }
        };
        let keys = |onode_blocks: &Blocks| self.unread_pages(id, onode_blocks, blocks);
        let keys = match self.onodes.get(&id) {
            Some(onode) => keys(&onode?.blocks),
            None if !self.clean.borrow().has_onode(id) => {
                return Some((Step::Record, vec![kv_schema::object_key(id)]));
            }
            None if blocks.is_none() => Vec::new(),
            None => {
                let onode = self.clean.borrow_mut().onode(id)?;
                keys(&onode.blocks)
            }
        };
        (!keys.is_empty()).then_some((Step::Pages, keys))
    }

    /// Keys of pages in a range that are neither with the object nor among the clean ones.
    fn unread_pages(&self, id: u64, blocks: &Blocks, range: BlockRange) -> Vec<Bytes> {
        let Some((first, last)) = range else { return Vec::new() };
        let clean = self.clean.borrow();
        let absent = blocks.absent(page_of(first), page_of(last));
        let unread = absent.numbers().filter(|number| !clean.has_page(id, *number));
        unread.map(|number| kv_schema::page_key(id, number)).collect()
    }

    /// Takes what the KV store has for a key of the object, which was read in the background: its name's, or that of its own record. What is
    /// in memory is newer.
    pub(crate) fn take_read(&self, at: &SpgId, name: &HObject, (key, value): (&Bytes, Option<Bytes>)) {
        if kv_schema::is_object_key(key) {
            return value.map_or((), |own| self.take_record(key, own));
        }
        // A collection that was removed meanwhile may be there again, without the name.
        let is_its_name = |space| kv_schema::name_key(&space, name) == *key;
        if self.keyspace_of(at).is_some_and(is_its_name) && self.id_in_memory(key).is_none() {
            let id = value.as_ref().and_then(|value| self.decode_id(value));
            self.clean_names.borrow_mut().insert(key.as_ref().into(), id, |_, _| ());
        }
    }

    /// One that is damaged is not taken: who looks for it hears of it.
    fn take_record(&self, key: &Bytes, own: Bytes) {
        let Ok(id) = kv_schema::decode_number(key.slice(1..)) else { return };
        if self.onodes.get(&id).is_some() || self.clean.borrow().has_onode(id) {
            return;
        }
        if let Ok(onode) = objects::decode_own(id, own, self.space.alloc.area()) {
            self.looked_up.1.set(self.looked_up.1.get() + 1);
            self.clean.borrow_mut().keep_onode(id, Arc::new(onode));
        }
    }

    /// What of the names and the objects' own records that are taken for clean is not as the KV store has it.
    pub(crate) fn wrong_clean_records(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, id) in self.clean_names.borrow().iter() {
            let stored = self.note(self.kv.get(key)).flatten().and_then(|value| self.decode_id(&value));
            if let Some(changed) = self.pairs.get(key.as_ref()) {
                wrong.push(format!("the name {key:02x?} is taken for {id:?}, and changed to {changed:02x?}"));
            } else if stored != *id {
                wrong.push(format!("the name {key:02x?} is taken for {id:?}, and stored for {stored:?}"));
            }
        }
        for (id, record) in self.clean.borrow().own() {
            let stored = self.note(self.kv.get(&kv_schema::object_key(id))).flatten();
            if self.onodes.get(&id).is_none() && stored.as_deref() != Some(record.as_ref()) {
                wrong.push(format!("object {id} is not what is stored"));
            }
        }
        wrong
    }

    /// Takes such a step: what it finds is in memory then, as long as there is room.
    pub(crate) fn look(&self, at: &SpgId, name: &HObject, blocks: BlockRange, step: Step) {
        match (step, blocks) {
            // Not among those that were asked for lately: it need not be asked for again.
            (Step::Name, _) => {
                self.keyspace_of(at).and_then(|space| self.id_at(&kv_schema::name_key(&space, name)));
            }
            (Step::Record, _) | (Step::Pages, None) => drop(self.object(at, name)),
            (Step::Pages, Some((first, last))) => {
                let onode = self.object(at, name);
                drop(onode.map(|onode| self.slots(&onode, first, last)));
            }
        }
    }
}
