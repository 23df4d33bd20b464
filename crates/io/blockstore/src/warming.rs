//! Metadata of an object that are read before they are asked for, so that who asks waits alone and not with the whole shard
//! (`docs/design/0003-metadata-reads.md`).
//!
//! The name gives the number, the number the object's record, and that says which pages of its blocks have records of their own. So there
//! are three steps. Each has the KV store read keys in the background, and what nobody has changed meanwhile is among the clean metadata
//! when the operation comes; for the rest the step looks itself, out of memory. The record is read along with the name: that saves the way
//! from one thread to another and back.

use crate::kv_schema;
use crate::page::PAGE_BLOCKS;
use crate::store::BlockStore;
use crate::table::{BlockRange, Step, Table, index_of};
use crate::warmings::{Warming, Warmings};
use nacre_buf::Bytes;
use nacre_kv::{Follow, KvTag, Warmed};
use nacre_store::WarmToken;
use nacre_types::{HObject, SpgId};
use std::ops::Range;

/// Pages of an object that are read for one operation, at most: those of 8 MiB. More would push each other out of memory.
const PAGES_MAX: u32 = 64;

/// The key of an object's record, by the value of its name.
fn record_of_name(value: &[u8]) -> Option<Bytes> {
    let number = kv_schema::decode_name_id(&Bytes::copy_from_slice(value)).ok()?;
    Some(kv_schema::object_key(number))
}

fn blocks_of(bytes: &Range<u64>) -> BlockRange {
    let last = bytes.end.checked_sub(1).filter(|last| bytes.start <= *last)?;
    let first = index_of(bytes.start);
    Some((first, index_of(last).min(first.saturating_add(PAGES_MAX * PAGE_BLOCKS - 1))))
}

impl BlockStore {
    /// See [`nacre_store::ObjectStore::warm`].
    pub(crate) fn begin_warming(
        &mut self,
        at: &SpgId,
        object: &HObject,
        bytes: Range<u64>,
        token: WarmToken,
    ) -> bool {
        if !self.table.kv.waits_for_device() {
            return true;
        }
        let (blocks, id) = (blocks_of(&bytes), self.warmings.under_way.vacant_key());
        let Some(step) = begin_step(&mut self.table, (at, object, blocks), None, id) else { return true };
        let warming = Warming { at: *at, object: object.clone(), blocks, token, step };
        self.warmings.under_way.insert(warming);
        false
    }

    /// Goes on with what was read.
    pub(crate) fn drain_warm(&mut self) {
        let Self { warmings: Warmings { under_way, read, done }, table, .. } = self;
        if under_way.is_empty() {
            return;
        }
        table.kv.drain_warm(read);
        for Warmed { tag, found } in read.drain(..) {
            let id = usize::try_from(tag.0).unwrap_or(usize::MAX);
            let Some(warming) = under_way.get_mut(id) else { continue };
            let Warming { at, object, blocks, token, step } = warming;
            found.into_iter().for_each(|(key, value)| table.take_read(at, object, (&key, value)));
            // The record was read along with the name.
            let read = (*step).max(Step::Record);
            match begin_step(table, (at, object, *blocks), Some(read), id) {
                Some(next) => *step = next,
                None => {
                    done.push(*token);
                    under_way.remove(id);
                }
            }
        }
    }
}

/// Has what an object lacks in memory read, behind the step to which all was, under the number of its warming. The step that is being read;
/// `None` when nothing is missing any more.
fn begin_step(
    table: &mut Table,
    (at, object, blocks): (&SpgId, &HObject, BlockRange),
    read: Option<Step>,
    id: usize,
) -> Option<Step> {
    let mut looked = None;
    // What was changed while it was read is looked for here. Where memory is too small to keep that, the same is missing again.
    while let Some((step, keys)) = table.unread(at, object, blocks)
        && looked < Some(step)
    {
        let follow = (step == Step::Name).then_some(record_of_name as Follow);
        if read < Some(step) && table.kv.warm(keys, follow, KvTag(id as u64)) {
            return Some(step);
        }
        table.look(at, object, blocks, step);
        looked = Some(step);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_the_record_of_its_object() {
        let name = HObject::head(1, "".into(), "".into(), "a".into());
        let value = kv_schema::encode_name(77, &name);
        assert_eq!(record_of_name(&value), Some(kv_schema::object_key(77)));
        assert_eq!(record_of_name(&value[..7]), None);
    }
}
