//! Pools on their way to fewer PGs, one PG at a time.
//!
//! ```text
//!  pg_num 8, target 4                 placement first: pgp_num 4, and wait until all data has moved
//!  pg_num 8, pending 7                7 and 3 are on the same OSDs, active and clean: they stop to serve
//!  pg_num 7, pending 7, last merge    the primary says that both stand still; they are one from this epoch on
//!  ...
//! ```
//! Ceph: `DaemonServer::adjust_pgs` in the manager, `OSDMonitor::prepare_pg_ready_to_merge`. More than there is
//! asked for: the members of both PGs must be the same OSDs when they stood still and when they become one, so that
//! each of these has both copies.

use super::OsdMaps;
use nacre_denc::Decode;
use nacre_maps::{AutoscaleMode, OsdMap, PgMerge, Pool, flags};
use nacre_mgr::PgMap;
use nacre_msg::OsdPgReadyToMerge;
use nacre_msg::peer::PeerVersions;
use nacre_msg::stats::{ObjStatSum, pg_state};
use nacre_types::{Epoch, OsdId, PgId, PoolId, hash};
use std::collections::BTreeMap;

/// What is to be done with a pool next.
enum Step {
    /// Place PGs as if there were only so many.
    Place(u32),
    /// PGs stay where they are only by exception: end it.
    Unmap(Vec<PgId>),
    /// Let the last PG and its target stop to serve.
    Prepare,
    /// Let them serve again.
    GiveUp,
}

/// Key of the metadata of an OSD of ours that says into how many partitions its store is divided, where there are several. PGs of different
/// ones cannot be merged where they are.
const SHARDS_KEY: &str = "nacre_shards";
/// Key of the metadata of those that bring the PG that ends to the partition of the other one first, as soon as both stand still: of them
/// the number counts only for the room that this takes.
const RELOCATES_KEY: &str = "nacre_relocates_pgs";

/// Whether the merge that leaves `pg_num` PGs may be one of PGs on different shards: a PG is on that of its seed, or of the seed that it
/// was split off (`ShardRouter::shard_of` in daemon/osd).
fn is_across_shards(pg_num: u32, shards: u32) -> bool {
    pg_num.checked_ilog2().is_some_and(|highest| !(1_u32 << highest).is_multiple_of(shards.max(1)))
}

/// An OSD whose store is divided.
#[derive(Debug, Clone, Copy)]
struct Divided {
    osd: OsdId,
    /// Into how many partitions.
    shards: u32,
    /// It brings PGs that are to be merged to one of them.
    relocates: bool,
}

/// What clones of a coded pool's objects are taken to be at least: objects of images and files, whatever others of their PG are.
const CLONE_BYTES_MIN: i64 = 4 << 20;
/// What a store gives to the end of each object beside its bytes.
const BLOCK_BYTES: i64 = 4096;

/// Bytes that a copy of a PG may take in a partition. How much of an OSD's omap is in one PG nobody counts.
fn copy_bytes(sum: &ObjStatSum, is_coded: bool, omap_bytes: i64) -> i64 {
    let (bytes, clones) = (sum.num_bytes.max(0), sum.num_object_clones.max(0));
    // What clones share is written once for each in an erasure-coded pool.
    let mean = bytes / sum.num_objects.saturating_sub(clones).max(1);
    let unshared = if is_coded { clones.saturating_mul(mean.max(CLONE_BYTES_MIN).min(bytes)) } else { 0 };
    let ends = sum.num_objects.max(0).saturating_mul(BLOCK_BYTES);
    let omap = if sum.num_objects_omap > 0 { omap_bytes.max(0) } else { 0 };
    bytes.saturating_add(unshared).saturating_add(ends).saturating_add(omap)
}

/// Whether a divided store may get a copy of `source` once more, in another partition, if it has one: what it reports is what its fullest
/// partition has, times their number. Twice as much is asked for, since others write meanwhile.
fn has_room(map: &OsdMap, stats: &PgMap, source: PgId, one: &Divided) -> bool {
    if !map.pg_to_up_acting(source).acting.contains(&one.osd) {
        return true;
    }
    if map.state(one.osd) & (flags::osd::FULL | flags::osd::BACKFILLFULL | flags::osd::NEARFULL) != 0 {
        return false;
    }
    let is_coded = map.pool(source.pool).is_some_and(|pool| !pool.is_replicated());
    let Some(statfs) = stats.osd(one.osd).map(|stat| &stat.statfs) else { return true };
    let bytes =
        stats.pg(source).map_or(0, |stat| copy_bytes(&stat.stats.sum, is_coded, statfs.omap_allocated));
    statfs.available.max(0) / i64::from(one.shards.max(1)) / 2 >= bytes
}

/// Both PGs of the next merge of a pool with `pg_num` PGs: source and target.
fn pair(id: PoolId, pg_num: u32) -> (PgId, PgId) {
    let left = pg_num.saturating_sub(1).max(1);
    (PgId::new(id, left), PgId::new(id, hash::stable_mod(left, left)))
}

/// The OSDs that serve a PG, primary first, if they are those that should, and complete.
fn members(map: &OsdMap, pool: &Pool, pg: PgId) -> Option<(OsdId, Vec<OsdId>)> {
    let placed = map.pg_to_up_acting(pg);
    let all =
        placed.acting.len() == usize::from(pool.size) && placed.acting.iter().all(|osd| map.is_up(*osd));
    (all && placed.up == placed.acting).then_some((placed.acting_primary, placed.acting))
}

fn common_members(map: &OsdMap, pool: PoolId, (source, target): (PgId, PgId)) -> Option<(OsdId, Vec<OsdId>)> {
    let pool = map.pool(pool)?;
    members(map, pool, source).filter(|of_source| members(map, pool, target).as_ref() == Some(of_source))
}

fn step(map: &OsdMap, stats: &PgMap, id: PoolId, pool: &Pool) -> Option<Step> {
    let under_way = pool.pg_num_pending < pool.pg_num;
    if pool.pg_num_target == 0 || pool.pg_num_target >= pool.pg_num {
        return under_way.then_some(Step::GiveUp);
    }
    let placed = pool.pgp_num_target.min(pool.pg_num_target).max(1);
    if pool.pgp_num > placed {
        // Where the autoscaler may be at work it takes its time: see `OsdMaps::pace_pools`.
        return (pool.pg_autoscale_mode == AutoscaleMode::Off).then_some(Step::Place(placed));
    }
    let pair = pair(id, if under_way { pool.pg_num_pending + 1 } else { pool.pg_num });
    let pgs = [pair.0, pair.1];
    let together = common_members(map, id, pair).is_some();
    if under_way {
        return (!together).then_some(Step::GiveUp);
    }
    let excepted = |pg: &&PgId| map.pg_upmap.contains_key(pg) || map.pg_upmap_items.contains_key(pg);
    let excepted: Vec<PgId> = pgs.iter().filter(excepted).copied().collect();
    if !excepted.is_empty() {
        return Some(Step::Unmap(excepted));
    }
    let clean = pg_state::ACTIVE | pg_state::CLEAN;
    let is_clean = |pg: &PgId| {
        let stat = stats.pg(*pg);
        stat.is_some_and(|stat| stat.state == clean && stat.reported_epoch >= pool.last_change)
    };
    let ready = together && !pool.has_flag(flags::pool::CREATING) && pgs.iter().all(is_clean);
    ready.then_some(Step::Prepare)
}

impl OsdMaps {
    /// Takes pools that are to have fewer PGs one step further.
    pub(crate) fn shrink_pools(&mut self, stats: &PgMap) {
        let divided = self.divided();
        let is_old = self.older_than(PeerVersions::MERGES_OF_CODED_PGS).is_some();
        let map = self.upcoming();
        let shrinks = |pool: &Pool| pool.pg_num_target < pool.pg_num || pool.pg_num_pending < pool.pg_num;
        // An OSD that came since may have several shards. Its PGs would stop and serve again for ever.
        let is_apart = |pool: &Pool| {
            let left = pool.pg_num.saturating_sub(1);
            let is_across = |one: &Divided| is_across_shards(left, one.shards);
            divided.iter().any(|one| !one.relocates && is_across(one)) || is_old && !pool.is_replicated()
        };
        let without_room = |id: PoolId, pool: &Pool| {
            let left = pool.pg_num.saturating_sub(1);
            let across: Vec<&Divided> =
                divided.iter().filter(|one| is_across_shards(left, one.shards)).collect();
            let (source, _) = pair(id, pool.pg_num);
            across.into_iter().find(|one| !has_room(map, stats, source, one)).map(|one| one.osd)
        };
        let mut waiting = BTreeMap::new();
        let steps: Vec<(PoolId, Step)> = { map.pools.iter() }
            .filter(|(_, pool)| shrinks(pool))
            .filter_map(|(id, pool)| Some((*id, pool, step(map, stats, *id, pool)?)))
            .filter(|(_, pool, step)| !matches!(step, Step::Prepare) || !is_apart(pool))
            .filter(|(id, pool, step)| {
                let Some(osd) = without_room(*id, pool).filter(|_| matches!(step, Step::Prepare)) else {
                    return true;
                };
                waiting.insert(*id, osd);
                false
            })
            .map(|(id, _, step)| (id, step))
            .collect();
        self.merges_without_room = waiting;
        for (id, step) in steps {
            let epoch = self.pending().incremental.epoch;
            match step {
                Step::Unmap(pgs) => {
                    let change = self.change();
                    for pg in pgs {
                        change.new_pg_upmap.remove(&pg);
                        change.new_pg_upmap_items.remove(&pg);
                        change.old_pg_upmap.insert(pg);
                        change.old_pg_upmap_items.insert(pg);
                    }
                }
                step => {
                    let Some(pool) = self.change_pool(id) else { continue };
                    match step {
                        Step::Place(pgp_num) => pool.pgp_num = pgp_num,
                        Step::Prepare => {
                            pool.pg_num_pending = pool.pg_num - 1;
                            resend(pool, epoch);
                        }
                        Step::GiveUp | Step::Unmap(_) => {
                            pool.pg_num_pending = pool.pg_num;
                            resend(pool, epoch);
                        }
                    }
                }
            }
        }
    }

    /// An OSD that may have PGs on different shards that must be merged when a pool goes from `pg_num` PGs down to `wanted`,
    /// with the number of its shards.
    pub(crate) fn divided_below(&self, pg_num: u32, wanted: u32) -> Option<(OsdId, u32)> {
        let is_across = |shards: u32| (wanted..pg_num).any(|left| is_across_shards(left, shards));
        let fixed = self.divided().into_iter().filter(|one| !one.relocates);
        fixed.map(|one| (one.osd, one.shards)).find(|(_, shards)| is_across(*shards))
    }

    /// Pools whose next merge waits until an OSD has room in the other partition of its store, with that OSD.
    pub(crate) fn merges_without_room(&self) -> &BTreeMap<PoolId, OsdId> {
        &self.merges_without_room
    }

    /// An OSD that is up and of a version that cannot merge PGs of this pool.
    pub(crate) fn older_than_merges_of(&mut self, pool: &Pool) -> Option<OsdId> {
        if pool.is_replicated() { None } else { self.older_than(PeerVersions::MERGES_OF_CODED_PGS) }
    }

    /// OSDs that have said that they have several shards, with the number of these. Those that are away come back with the copies that they have.
    fn divided(&self) -> Vec<Divided> {
        let divided = |osd: OsdId| {
            let metadata = self.metadata(osd)?;
            let shards = metadata.get(SHARDS_KEY)?.parse().ok()?;
            Some(Divided { osd, shards, relocates: metadata.contains_key(RELOCATES_KEY) })
        };
        self.map().osds().filter_map(divided).collect()
    }

    /// The primary of two PGs that are to be merged says how they stand. What is not so any more, or not yet,
    /// changes nothing: it says so again.
    pub(crate) fn ready_to_merge(&mut self, from: OsdId, message: &OsdPgReadyToMerge) {
        let id = message.pg.pool;
        let Some(pool) = self.upcoming().pool(id).cloned() else { return };
        let since = Epoch::try_from(message.version).unwrap_or(0);
        let due = pool.pg_num_pending == message.pg.seed && pool.pg_num == message.pg.seed + 1;
        if !due || message.pg.seed == 0 || since < pool.last_change {
            return;
        }
        let pair = pair(id, pool.pg_num);
        let now = common_members(self.upcoming(), id, pair);
        if now.as_ref().is_none_or(|(primary, _)| *primary != from) {
            return;
        }
        let then = self.full_map(since).and_then(|bytes| OsdMap::from_bytes(bytes).ok());
        if then.and_then(|map| common_members(&map, id, pair)) != now {
            return;
        }
        let epoch = self.pending().incremental.epoch;
        let Some(pool) = self.change_pool(id) else { return };
        if message.ready {
            pool.pg_num = message.pg.seed;
            pool.last_pg_merge = PgMerge {
                source: message.pg,
                ready_epoch: since,
                last_epoch_started: message.last_epoch_started,
                last_epoch_clean: message.last_epoch_clean,
                source_version: message.source_version,
                target_version: message.target_version,
            };
        }
        pool.pg_num_pending = pool.pg_num;
        resend(pool, epoch);
    }
}

/// Clients that know nothing of merges send what is in flight again.
fn resend(pool: &mut Pool, epoch: Epoch) {
    pool.last_force_op_resend_preluminous = epoch;
    pool.last_force_op_resend_prenautilus = epoch;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_of_pgs_on_different_shards_are_known() {
        for shards in 1..6 {
            for pg_num in 2..40 {
                let (source, target) = pair(1, pg_num);
                let apart = source.seed % shards != target.seed % shards;
                assert_eq!(
                    is_across_shards(pg_num - 1, shards),
                    apart,
                    "{source} into {target}, {shards} shards"
                );
            }
        }
    }
}
