//! Erasure-coded pools: every member keeps one chunk of each object, under the object's own name and with its whole
//! record and attributes. `k` chunks give the data back.
//!
//! | file | holds |
//! |---|---|
//! | `shard_txn` | a transaction of the primary as one for each shard |
//! | `shards` | which member holds which shard |
//! | `rollback` | what a write replaced, until nothing can roll the write back |
//! | `gather` | reads: chunks collected and decoded |
//! | `view` | the objects as execution sees them, with what was gathered |
//!
//! Log, missing objects, peering and order of messages are those of replicated pools. What differs:
//! - A write that only some shards have can be read in neither version. So each shard keeps what a write replaced
//!   until all members have the write durably, and peering takes the *shortest* log that has all that may have been
//!   acknowledged (`peering/choose.rs`); longer ones are rolled back.
//! - Nothing is served, and no earlier interval is passed over, with fewer than `k` shards.
//! - An object that is missing somewhere is computed from `k` others (`recovery/reconstruct.rs`).
//!
//! A shard belongs to an OSD's copy, not to a place in the acting set: the primary gives a new member a shard that is
//! free when the interval begins, and who has one keeps it. So a change of places moves no data. Two may have the same when
//! one returns that another had replaced: that is settled when nobody lacks anything any more.

mod gather;
mod rollback;
mod shard_txn;
mod shards;
mod view;

pub(crate) use gather::{GatherOutcome, Gathers, Piece};
pub(crate) use rollback::ROLLBACK_GEN;
#[cfg(test)]
pub(crate) use rollback::is_rollback_gen as is_rollback_gen_name;
pub(crate) use view::EcView;

use nacre_ec::{Codec, Layout};
use nacre_maps::{Pool, STRIPE_UNIT_BYTES};
use nacre_types::{Eversion, HObject, OsdId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The code of a pool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Coding {
    pub(crate) layout: Layout,
    pub(crate) codec: Codec,
}

impl Coding {
    /// What `pool` is coded with; `None` if it is not, or its numbers make no code.
    pub(crate) fn of(pool: &Pool) -> Option<Self> {
        let layout = layout_of(pool)?;
        let codec = Codec::new(layout.k, pool.size - layout.k)?;
        Some(Self { layout, codec })
    }
}

/// How `pool` cuts objects into chunks; `None` as for [`Coding::of`], which takes longer.
pub(crate) fn layout_of(pool: &Pool) -> Option<Layout> {
    if pool.is_replicated() {
        return None;
    }
    let k = u8::try_from(pool.stripe_width / STRIPE_UNIT_BYTES).ok()?;
    let parity = pool.size.checked_sub(k)?;
    Codec::exists(k, parity).then_some(Layout { k, unit_bytes: STRIPE_UNIT_BYTES })
}

/// What a copy of an erasure-coded PG has beside what every copy has.
#[derive(Debug)]
pub(crate) struct Ec {
    pub(crate) coding: Arc<Coding>,
    /// Which member holds which shard in this interval; at the primary, from the agreement on.
    pub(crate) shards: BTreeMap<OsdId, u8>,
    /// What writes replaced that may still be taken back, by the version number of the write.
    pub(crate) rollback_gens: BTreeMap<u64, HObject>,
    /// All members have everything: those whose chunks others hold as well may get another shard.
    pub(crate) may_change: bool,
    /// Members were told in this interval that writes up to here are safe.
    pub(crate) told_safe: Eversion,
}

impl Ec {
    pub(crate) fn new(coding: Coding) -> Self {
        let (shards, rollback_gens) = (BTreeMap::new(), BTreeMap::new());
        Self { coding: Arc::new(coding), shards, rollback_gens, may_change: false, told_safe: Eversion::ZERO }
    }

    /// Chunks that are needed to read anything.
    pub(crate) fn k(&self) -> usize {
        self.coding.codec.data_shards()
    }
}
