//! The code of an erasure-coded pool, and what a copy of one of its PGs has beside what every copy has.
//!
//! | file | holds |
//! |---|---|
//! | `shard_txn` | a transaction of the primary as one for each shard |
//! | `view` | the objects as execution sees them, with the data that was gathered |
//! | `rollback_gen` | what a shard keeps of an object that a write replaced, and the names of that |
//!
//! How chunks travel between members, and how writes are taken back, is in `backend/ec`.

mod rollback_gen;
mod shard_txn;
mod view;

pub(crate) use rollback_gen::{
    ROLLBACK_GEN, RollbackGen, is_rollback_gen, partial_gen_name, rollback_gen_name, version_of_gen,
};
pub(crate) use view::{EcView, Piece};

use nacre_ec::{Codec, Layout};
use nacre_maps::OsdMap;
use nacre_types::{Eversion, OsdId, PoolId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The code of a pool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Coding {
    pub(crate) layout: Layout,
    pub(crate) codec: Codec,
}

impl Coding {
    /// What `pool` is coded with, as [`OsdMap::code_of`] says; `None` if it is not.
    pub(crate) fn of(map: &OsdMap, pool: PoolId) -> Option<Self> {
        let code = map.code_of(map.pools.get(&pool)?)?;
        Some(Self { layout: code.layout(), codec: Codec::new(&code) })
    }
}

/// What a copy of an erasure-coded PG has beside what every copy has.
#[derive(Debug)]
pub(crate) struct Ec {
    pub(crate) coding: Arc<Coding>,
    /// Which member holds which shard in this interval; at the primary, from the agreement on.
    pub(crate) shards: BTreeMap<OsdId, u8>,
    /// What writes replaced that may still be taken back, by the version number of the write.
    pub(crate) rollback_gens: BTreeMap<u64, RollbackGen>,
    /// All members have everything: those whose chunks others hold as well may get another shard.
    pub(crate) may_change: bool,
    /// Members were told in this interval that writes up to here are safe.
    pub(crate) told_safe: Eversion,
    /// The store knows that writes up to here are safe, and keeps nothing that they replaced.
    pub(crate) kept_safe: Eversion,
}

impl Ec {
    pub(crate) fn new(coding: Coding) -> Self {
        let (shards, rollback_gens) = (BTreeMap::new(), BTreeMap::new());
        let (told_safe, kept_safe) = (Eversion::ZERO, Eversion::ZERO);
        Self { coding: Arc::new(coding), shards, rollback_gens, may_change: false, told_safe, kept_safe }
    }

    /// Chunks that are needed to read anything.
    pub(crate) fn k(&self) -> usize {
        self.coding.codec.data_shards()
    }
}
