//! Pools on their way to another number of PGs, at a pace at which clients do not suffer.
//!
//! More PGs come about by splits, which move nothing: at most twice as many at a time, when all that are there serve. Then they, or before
//! merges those that go, are placed on other OSDs, some at a time: no more than keeps `target_max_misplaced_ratio` of all copies in the wrong
//! place. Ceph: `DaemonServer::adjust_pgs` in the manager.

use super::OsdMaps;
use nacre_maps::{Pool, flags};
use nacre_mgr::PgMap;
use nacre_mgr::pgmap::Digest;
use nacre_msg::stats::{ObjStatSum, pg_state};
use nacre_types::{PgId, PoolId};

/// The next numbers of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    pg_num: u32,
    pgp_num: u32,
}

/// Copies that may be in the wrong place besides those that are.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Room {
    copies: f64,
}

#[expect(clippy::cast_precision_loss, reason = "shares of objects")]
fn real(count: i64) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
fn whole(number: f64) -> u32 {
    number as u32
}

impl Room {
    /// What the share leaves. None while more than the share of all copies are missing: those come first.
    fn of(sum: &ObjStatSum, share: f64) -> Self {
        let most = share * real(sum.num_object_copies);
        let is_hurt = real(sum.num_objects_degraded) > most;
        Self { copies: if is_hurt { -1.0 } else { most - real(sum.num_objects_misplaced) } }
    }

    /// How many of a pool's PGs may be placed elsewhere, `wanted` at most; they are taken off.
    fn take(&mut self, sum: &ObjStatSum, pg_num: u32, wanted: u32) -> u32 {
        if self.copies < 0.0 {
            return 0;
        }
        let of_pg = real(sum.num_object_copies) / f64::from(pg_num.max(1));
        // At least one: it would never end otherwise.
        let count = if of_pg > 0.0 { whole(self.copies / of_pg).clamp(1, wanted) } else { wanted };
        self.copies -= of_pg * f64::from(count);
        count
    }
}

/// Where placement is to go: up to what is wanted, as far as there are PGs; down before PGs are merged.
fn placed(pool: &Pool) -> u32 {
    pool.pgp_num_target.min(pool.pg_num_target).min(pool.pg_num).max(1)
}

/// A pool has as many PGs as it is to have, placed as they are to be: also where that is by fewer than there are (`pgp_num` set by hand).
pub(crate) fn has_its_pg_num(pool: &Pool) -> bool {
    // Maps of before there were targets have none.
    let has_targets = pool.pg_num_target > 0 && pool.pgp_num_target > 0;
    !has_targets || pool.pg_num >= pool.pg_num_target && pool.pgp_num == placed(pool)
}

/// All of a pool's PGs serve, as they say of the pool as it is now.
fn serves(id: PoolId, pool: &Pool, stats: &PgMap) -> bool {
    (0..pool.pg_num).all(|seed| {
        let stat = stats.pg(PgId::new(id, seed));
        stat.is_some_and(|stat| stat.reported_epoch >= pool.last_change && stat.state & pg_state::ACTIVE != 0)
    })
}

fn next(id: PoolId, pool: &Pool, stats: &PgMap, sum: &ObjStatSum, room: &mut Room) -> Option<Numbers> {
    // What the pool's first PGs wait for is told at `OsdMaps::grow_pool`; PGs that are about to be merged stand still.
    let waits = pool.has_flag(flags::pool::CREATING) || pool.pg_num_pending < pool.pg_num;
    if waits || has_its_pg_num(pool) || !serves(id, pool, stats) {
        return None;
    }
    if pool.pg_num < pool.pg_num_target {
        let pg_num = pool.pg_num_target.min(pool.pg_num.saturating_mul(2));
        return Some(Numbers { pg_num, pgp_num: pool.pgp_num });
    }
    let (now, goal) = (pool.pgp_num, placed(pool));
    let count = room.take(sum, pool.pg_num, now.abs_diff(goal));
    let pgp_num = if goal > now { now + count } else { now - count };
    (count > 0).then_some(Numbers { pg_num: pool.pg_num, pgp_num })
}

impl OsdMaps {
    /// Takes all pools that are not there yet one step further. `share` is `target_max_misplaced_ratio`; without it everything happens at
    /// once.
    pub(crate) fn pace_pools(&mut self, stats: &PgMap, digest: &Digest, share: Option<f64>) {
        let on_the_way: Vec<PoolId> = self
            .upcoming()
            .pools
            .iter()
            .filter(|(_, pool)| !has_its_pg_num(pool))
            .map(|(id, _)| *id)
            .collect();
        if on_the_way.is_empty() {
            return;
        }
        let mut room = share.map(|share| Room::of(&digest.sum.stats, share));
        for id in on_the_way {
            let Some(room) = &mut room else {
                self.grow_pool(id);
                let place = |pool: &Pool| Numbers { pg_num: pool.pg_num, pgp_num: placed(pool) };
                let place = self.upcoming().pool(id).filter(|pool| !has_its_pg_num(pool)).map(place);
                place.into_iter().for_each(|numbers| self.set_numbers(id, numbers));
                continue;
            };
            let none = ObjStatSum::default();
            let sum = digest.pools.get(&id).map_or(&none, |sum| &sum.stats);
            // What changes within this epoch nobody has reported on.
            let changed = self.upcoming().pool(id).map(|pool| pool.last_change);
            let pool = self.map().pool(id).filter(|pool| changed == Some(pool.last_change));
            if let Some(numbers) = pool.and_then(|pool| next(id, pool, stats, sum, room)) {
                self.set_numbers(id, numbers);
            }
        }
    }

    fn set_numbers(&mut self, id: PoolId, numbers: Numbers) {
        let epoch = self.pending().incremental.epoch;
        let Some(pool) = self.change_pool(id) else { return };
        if pool.pg_num != numbers.pg_num {
            (pool.pg_num, pool.pg_num_pending) = (numbers.pg_num, numbers.pg_num);
            // Clients send what is in flight again: its PG may have split.
            pool.last_force_op_resend_preluminous = epoch;
        }
        pool.pgp_num = numbers.pgp_num;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(copies: i64, misplaced: i64, degraded: i64) -> ObjStatSum {
        ObjStatSum {
            num_object_copies: copies,
            num_objects_misplaced: misplaced,
            num_objects_degraded: degraded,
            ..ObjStatSum::default()
        }
    }

    #[test]
    fn no_more_is_misplaced_than_the_share_allows() {
        let all = objects(10_000, 0, 0);
        // 500 copies of 10,000; a PG has 100.
        let mut room = Room::of(&all, 0.05);
        assert_eq!(room.take(&all, 100, 60), 5);
        assert_eq!(Room::of(&objects(10_000, 300, 0), 0.05).take(&all, 100, 60), 2);
        assert_eq!(Room::of(&objects(10_000, 500, 0), 0.05).take(&all, 100, 60), 1, "one at least");
        assert_eq!(Room::of(&objects(10_000, 501, 0), 0.05).take(&all, 100, 60), 0);
        assert_eq!(
            Room::of(&objects(10_000, 0, 501), 0.05).take(&all, 100, 60),
            0,
            "copies that are missing first"
        );
        // A small pool of a large cluster goes at once, and so does one without objects.
        assert_eq!(Room::of(&all, 0.05).take(&objects(300, 0, 0), 32, 24), 24);
        assert_eq!(Room::of(&objects(0, 0, 0), 0.05).take(&objects(0, 0, 0), 32, 24), 24);
        // Two pools share the room.
        let mut room = Room::of(&all, 0.05);
        assert_eq!(
            (room.take(&objects(5000, 0, 0), 50, 60), room.take(&objects(5000, 0, 0), 50, 60)),
            (5, 1)
        );
        assert_eq!(room.take(&objects(5000, 0, 0), 50, 60), 0);
    }

    #[test]
    fn a_pool_is_there_when_both_numbers_are() {
        let pool = |pg_num, pgp_num, pg_num_target, pgp_num_target| Pool {
            pg_num,
            pgp_num,
            pg_num_target,
            pgp_num_target,
            ..Pool::default()
        };
        assert!(has_its_pg_num(&pool(8, 8, 8, 8)));
        assert!(has_its_pg_num(&pool(8, 4, 8, 4)), "by hand");
        assert!(has_its_pg_num(&pool(8, 8, 0, 0)), "an old map");
        assert!(!has_its_pg_num(&pool(8, 8, 32, 32)));
        assert!(!has_its_pg_num(&pool(32, 8, 32, 32)));
        // Downwards: placement first, then merges, which are not ours.
        assert!(!has_its_pg_num(&pool(32, 32, 8, 8)));
        assert!(has_its_pg_num(&pool(32, 8, 8, 8)));
    }
}
