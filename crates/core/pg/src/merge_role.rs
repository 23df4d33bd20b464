//! [`MergeRole`] and [`MergeState`]: what a PG is in a merge that the monitor prepares, and how ready it is for it.

use nacre_maps::OsdMap;
use nacre_types::{Epoch, Eversion, PgId, PoolId, hash};

/// What a PG is in a merge that is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeRole {
    /// The PG ends, and the other takes its objects in.
    Source,
    /// It takes the other in.
    Target,
}

/// How far the primary of a PG that is to be merged is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeState {
    /// Which of the two.
    pub role: MergeRole,
    /// The PG that ends.
    pub source: PgId,
    /// The PG that takes it in.
    pub target: PgId,
    /// All copies are equal, and where they should be. False: this is not the time to merge.
    pub clean: bool,
    /// The PG's newest change.
    pub version: Eversion,
    /// `last_epoch_started` of the PG.
    pub last_epoch_started: Epoch,
    /// `last_epoch_clean` of the PG.
    pub last_epoch_clean: Epoch,
    /// Of which map this is true.
    pub epoch: Epoch,
}

/// The two PGs of a pool that are to be merged next: source and target.
pub(crate) fn pair(map: &OsdMap, pool: PoolId) -> Option<(PgId, PgId)> {
    let facts = map.pools.get(&pool)?;
    let pending = facts.pg_num_pending;
    let due = pending > 0 && pending < facts.pg_num;
    due.then(|| (PgId::new(pool, pending), PgId::new(pool, hash::stable_mod(pending, pending))))
}

/// What `pg` is in it.
pub(crate) fn role(map: &OsdMap, pg: PgId) -> Option<MergeRole> {
    let (source, target) = pair(map, pg.pool)?;
    match pg {
        pg if pg == source => Some(MergeRole::Source),
        pg if pg == target => Some(MergeRole::Target),
        _ => None,
    }
}
