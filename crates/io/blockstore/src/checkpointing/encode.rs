//! The batch that a checkpoint gives to the KV store: changed objects, pairs, logs, and the free map.

use super::{CHUNKS_PER_STEP, ENTRIES_PER_STEP, OBJECTS_PER_STEP, PAIRS_PER_STEP};
use crate::blob::{Blob, Place};
use crate::checkpoint::{Checkpoint, Home, Stage, blobs_of};
use crate::device::Run;
use crate::freemap::{FreeMapShard, RefChange, first_of};
use crate::kv_schema;
use crate::objects;
use crate::store::BlockStore;
use nacre_buf::Bytes;
use nacre_kv::KvBatch;
use nacre_types::{Eversion, SpgId};
use std::ops::Bound;

impl BlockStore {
    pub(super) fn encode_objects(&mut self, checkpoint: &mut Checkpoint, from: u64, home: usize) -> bool {
        let Checkpoint { homes, batch, period, changes, left_blobs, state, .. } = checkpoint;
        let mut homes_left = homes.get(home..).unwrap_or_default().iter();
        let (mut entries, mut next) = (0, None);
        for (nth, (id, onode)) in self.table.onodes.frozen.range(from..).enumerate() {
            if nth == OBJECTS_PER_STEP || entries >= ENTRIES_PER_STEP {
                next = Some(*id);
                break;
            }
            match onode {
                Some(onode) => {
                    let of_object = homes_left.as_slice();
                    entries += objects::encode(batch, onode, *period, |index| {
                        let home = homes_left.next().expect("each block in memory has a home");
                        assert_eq!((home.object, home.index), (*id, index), "homes are in order");
                        home.target.clone()
                    });
                    let count = of_object.len() - homes_left.len();
                    let of_object = of_object.get(..count).unwrap_or_default();
                    let mut change = |blob: &Blob, by: i32| {
                        blob.stored().iter().for_each(|device| changes.add(one(device.block), by));
                    };
                    for (_, blob) in blobs_of(of_object, Home::new_blob) {
                        change(blob, 1);
                        state.sums.packed.add(blob);
                    }
                    of_object
                        .iter()
                        .filter_map(Home::new_blob)
                        .for_each(|blob| state.sums.packed.add_block(blob));
                    for (index, blob) in blobs_of(of_object, Home::base_blob) {
                        if !onode.blocks.has_in(index, blob) {
                            change(blob, -1);
                            state.sums.packed.remove(blob);
                            left_blobs.insert((*id, blob.first()));
                        }
                    }
                }
                None => batch.delete(kv_schema::object_key(*id)),
            }
        }
        let home = homes.len() - homes_left.len();
        assert!(next.is_some() || home == homes.len(), "each home is that of a block of an object");
        checkpoint.stage = next.map_or(Stage::Pairs { last: None }, |from| Stage::Objects { from, home });
        true
    }

    pub(super) fn encode_pairs(&mut self, checkpoint: &mut Checkpoint, mut last: Option<Bytes>) -> bool {
        let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let pairs = self.table.pairs.frozen.range::<Bytes, _>((from, Bound::Unbounded));
        let mut count = 0;
        for (key, value) in pairs.take(PAIRS_PER_STEP) {
            put_or_delete(&mut checkpoint.batch, key.clone(), value.clone());
            count += 1;
            if count == PAIRS_PER_STEP {
                last = Some(key.clone());
            }
        }
        let is_last = count < PAIRS_PER_STEP;
        checkpoint.stage = if is_last { Stage::Logs { last: None } } else { Stage::Pairs { last } };
        true
    }

    pub(super) fn encode_logs(
        &mut self,
        checkpoint: &mut Checkpoint,
        mut last: Option<(SpgId, Eversion)>,
    ) -> bool {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut count = 0;
        for (key, chunk) in self.table.log.frozen.range((from, Bound::Unbounded)).take(CHUNKS_PER_STEP) {
            let value = chunk.as_ref().map(kv_schema::encode_log);
            put_or_delete(&mut checkpoint.batch, kv_schema::log_key(&key.0, key.1), value);
            (count, last) = (count + 1, Some(*key));
        }
        let is_last = count < CHUNKS_PER_STEP;
        checkpoint.stage = if is_last { Stage::Space { home: 0 } } else { Stage::Logs { last } };
        true
    }

    /// The free map as it will be once the homes are taken and what lay below them is not needed any more.
    pub(super) fn encode_space(&mut self, checkpoint: &mut Checkpoint, home: usize) -> bool {
        let Checkpoint { homes, changes, batch, .. } = checkpoint;
        let end = homes.len().min(home + ENTRIES_PER_STEP);
        // Blobs were counted with the objects.
        for home in homes.get(home..end).unwrap_or_default().iter().filter(|home| !home.stays()) {
            if let Some(target) = home.target.device() {
                changes.add(one(target.block), 1);
            }
            if let Some(base) = home.base.as_ref().and_then(Place::device) {
                changes.add(one(base.block), -1);
            }
        }
        checkpoint.stage = Stage::Space { home: end };
        if end < homes.len() {
            return true;
        }
        let Some((nth, changes)) = changes.pop() else {
            self.commit(checkpoint);
            return true;
        };
        match self.changed_portion(nth, &changes) {
            Ok(value) => put_or_delete(batch, kv_schema::free_key(nth), value),
            Err(reason) => {
                self.fail(reason);
                return false;
            }
        }
        true
    }

    fn changed_portion(&self, nth: u32, changes: &[RefChange]) -> Result<Option<Bytes>, String> {
        let value = self.table.kv.get(&kv_schema::free_key(nth)).map_err(|error| error.to_string())?;
        let shard = value.map(FreeMapShard::decode).transpose().map_err(|error| error.to_string())?;
        let mut shard = shard.unwrap_or_default();
        shard
            .apply(changes)
            .map_err(|at| format!("block {} is released too often", first_of(nth) + u64::from(at)))?;
        Ok(shard.encode())
    }
}

const fn one(block: u64) -> Run {
    Run { start: block, count: 1 }
}

fn put_or_delete(batch: &mut KvBatch, key: Bytes, value: Option<Bytes>) {
    match value {
        Some(value) => batch.put(key, value),
        None => batch.delete(key),
    }
}
