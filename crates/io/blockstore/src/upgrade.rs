//! Stores of format 1 had neither names nor a free map in the KV store: both were made anew in memory at each opening. The
//! first opening by this version writes them.

use crate::device::Run;
use crate::error::OpenError;
use crate::freemap::{self, FreeMapShard, RefChanges};
use crate::kv_schema::{self, State, StoredState, Sums, prefix};
use crate::objects;
use crate::onode::Stored;
use crate::slot::Slot;
use nacre_buf::Bytes;
use nacre_kv::{Durability, KvBatch, KvStore};
use std::collections::BTreeMap;

/// Changes of one commit.
const BATCH_OPS_MAX: usize = 8192;
/// Runs of blocks that are noted before they are counted: 12 MB.
const CHANGES_MAX: usize = 1 << 20;

/// Brings the KV store to the present format. Interrupted, it begins anew: the state, which says the format, comes last.
pub(crate) fn from_version_1(kv: &mut dyn KvStore, state: State) -> Result<State, OpenError> {
    let omaps = omap_sizes(kv)?;
    let mut batches = vec![KvBatch::default()];
    objects::each::<OpenError>(kv, |records| {
        let id = records.number()?;
        if batches.last().is_none_or(|batch| batch.ops().len() >= BATCH_OPS_MAX) {
            batches.push(KvBatch::default());
        }
        let Stored { mut onode, name } = records.decode()?;
        let (Some((at, name)), Some(batch)) = (name, batches.last_mut()) else {
            // Done, by an upgrade that was interrupted.
            return Ok(());
        };
        batch.put(kv_schema::name_key(&at.into(), &name), kv_schema::encode_name(id, &name));
        if let Some(bytes) = omaps.get(&id) {
            (onode.omap, onode.omap_bytes) = (id, *bytes);
        }
        objects::encode(batch, &onode, 0, |_| unreachable!("what was read is at home"));
        Ok(())
    })?;
    for batch in &batches {
        kv.commit(batch, Durability::Buffered)?;
    }
    count(kv, state)
}

/// Makes the free map and the sums anew, if the store's format has them. False when they were right.
pub(crate) fn recount(kv: &mut dyn KvStore) -> Result<bool, OpenError> {
    let value = kv.get(&kv_schema::state_key())?.ok_or(OpenError::ForeignMetadata)?;
    let StoredState { state, is_version_1 } = State::decode(value)?;
    if is_version_1 {
        return Ok(false);
    }
    let (sums, shards) = counted(kv)?;
    let (mut stored, mut are_right) = (0, true);
    kv_schema::scan::<OpenError>(kv, &[prefix::FREE], |key, value| {
        stored += 1;
        let nth = kv_schema::decode_number(key)?;
        are_right &= u32::try_from(nth).is_ok_and(|nth| shards.get(&nth) == Some(&value));
        Ok(())
    })?;
    let right = sums == state.sums && stored == shards.len() && are_right;
    if !right {
        write_counted(kv, &State { sums, ..state }, shards)?;
    }
    Ok(!right)
}

fn count(kv: &mut dyn KvStore, state: State) -> Result<State, OpenError> {
    let (sums, shards) = counted(kv)?;
    let state = State { sums, ..state };
    write_counted(kv, &state, shards)?;
    Ok(state)
}

/// What the objects refer to, as sums and as shards of the free map.
fn counted(kv: &dyn KvStore) -> Result<(Sums, BTreeMap<u32, Bytes>), OpenError> {
    let mut sums = Sums::default();
    let (mut changes, mut shards) = (RefChanges::default(), BTreeMap::new());
    objects::each::<OpenError>(kv, |records| {
        let onode = records.decode()?.onode;
        for (_, slot) in onode.blocks.here() {
            sums.slots += 1;
            if let Slot::Blob(blob, _) = slot {
                sums.packed.add_block(blob);
            }
            let Some(device) = slot.device() else { continue };
            changes.add(Run { start: device.block, count: 1 }, 1);
        }
        for blob in onode.blocks.pages(0, u32::MAX).flat_map(|(_, page)| page.blobs()) {
            blob.stored().iter().for_each(|device| changes.add(Run { start: device.block, count: 1 }, 1));
            sums.packed.add(&blob);
        }
        if changes.len() >= CHANGES_MAX {
            apply(&mut changes, &mut shards)?;
        }
        sums.objects += 1;
        sums.omap_bytes += onode.omap_bytes + onode.omap_header.len() as u64;
        Ok(())
    })?;
    apply(&mut changes, &mut shards)?;
    Ok((sums, shards.into_iter().filter_map(|(nth, shard)| Some((nth, shard.encode()?))).collect()))
}

/// What was found in objects so far, as bits: it is as large as the free map, not as the objects.
fn apply(changes: &mut RefChanges, shards: &mut BTreeMap<u32, FreeMapShard>) -> Result<(), OpenError> {
    while let Some((nth, changes)) = changes.pop() {
        shards.entry(nth).or_default().apply(&changes).map_err(|at| OpenError::Inconsistent {
            what: "block released too often",
            value: freemap::first_of(nth) + u64::from(at),
        })?;
    }
    Ok(())
}

fn write_counted(kv: &mut dyn KvStore, state: &State, shards: BTreeMap<u32, Bytes>) -> Result<(), OpenError> {
    let mut batch = KvBatch::default();
    batch.delete_prefix(vec![prefix::FREE]);
    shards.into_iter().for_each(|(nth, value)| batch.put(kv_schema::free_key(nth), value));
    batch.put(kv_schema::state_key(), state.encode());
    kv.commit(&batch, Durability::Durable)?;
    tracing::info!(objects = state.sums.objects, "free map made anew from the objects");
    Ok(())
}

/// Bytes of the omaps, by object.
fn omap_sizes(kv: &dyn KvStore) -> Result<BTreeMap<u64, u64>, OpenError> {
    let number_bytes = kv_schema::omap_prefix(0).len() - 1;
    let mut sizes = BTreeMap::new();
    kv_schema::scan::<OpenError>(kv, &[prefix::OMAP], |key, value| {
        let id = kv_schema::decode_number(key.clone())?;
        *sizes.entry(id).or_default() += (key.len() - number_bytes + value.len()) as u64;
        Ok(())
    })?;
    Ok(sizes)
}
