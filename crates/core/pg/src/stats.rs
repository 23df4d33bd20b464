//! What the PG reports of itself: `pg_stat_t`, true at all times.

use crate::RecoveryKind as Kind;
use crate::interval::Interval;
use crate::phase::Phase;
use crate::state::PgState;
use nacre_maps::UpActing;
use nacre_msg::stats::{ObjStatColl, ObjStatSum, PgShard, PgStat, pg_state};
use nacre_types::{Epoch, HObject, OsdId, UTime};

/// What is under way in a PG, as far as its report says so.
pub(crate) struct Activity {
    /// Objects move to other PGs, or from them.
    pub(crate) is_moving: bool,
    /// What recovery has to do next.
    pub(crate) due: Option<Kind>,
    /// It has the slots for that, or works without for a client that waits.
    pub(crate) is_recovering: bool,
    /// Objects that no OSD that is up has.
    pub(crate) unfound: usize,
    pub(crate) forced_recovery: bool,
    pub(crate) forced_backfill: bool,
    /// Removed snapshots whose clones may still be here.
    pub(crate) trims_queued: u64,
    pub(crate) is_trimming: bool,
    /// All that are left of those have clones whose records are damaged.
    pub(crate) has_trim_failed: bool,
    pub(crate) is_scrubbing: bool,
    pub(crate) is_deep_scrub: bool,
    /// A scrub has what differs repaired.
    pub(crate) is_repairing: bool,
}

/// `bit` where `is`.
fn when(is: bool, bit: u64) -> u64 {
    if is { bit } else { 0 }
}

/// How far `cursor` is in the hashes of the PG `seed`, in parts of 2^32. They all begin (in the order of objects, so with
/// their last bits) with the bits that make the PG.
fn place(cursor: &HObject, seed: u32, pg_num: u32) -> u64 {
    if cursor.max {
        return 1 << 32;
    }
    let all = pg_num.max(1).next_power_of_two();
    let half = all / 2;
    let is_split = pg_num == all || seed >= half || seed + half < pg_num;
    let bits = if is_split { all.trailing_zeros() } else { half.trailing_zeros() };
    u64::from(cursor.bitwise_key().checked_shl(bits).unwrap_or(0))
}

impl PgState {
    /// About the bytes of memory that the log takes.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.bytes() as u64
    }

    fn remapped(&self) -> u64 {
        when(self.interval.acting != self.interval.up, pg_state::REMAPPED)
    }

    /// Too few copies, or copies that lack objects. An empty PG is never degraded.
    fn strength(&self) -> u64 {
        when(!self.is_full_strength(), pg_state::UNDERSIZED) | when(self.is_degraded(), pg_state::DEGRADED)
    }

    /// Some object has fewer copies than the pool wants.
    pub(crate) fn is_degraded(&self) -> bool {
        self.copies_short().0 > 0
    }

    /// Object copies that should be there and are not (degraded), and those that are there, but not where
    /// CRUSH wants them (misplaced). Ceph `PeeringState::update_calc_stats`, in sums instead of per object.
    fn copies_short(&self) -> (i64, i64) {
        let (up, acting) = (&self.interval.up, &self.interval.acting);
        let objects = self.info.counters.objects.max(0);
        let lacks = |osd: &OsdId| {
            let peer = self.peers.get(osd).filter(|_| *osd != self.whoami);
            let missing =
                if *osd == self.whoami { Some(&self.missing) } else { peer.map(|peer| &peer.missing) };
            let missing = missing.map_or(0, |missing| i64::try_from(missing.len()).unwrap_or(i64::MAX));
            let unknown = peer.and_then(|peer| peer.backfill.as_ref());
            let unknown = unknown.map_or(0, |backfill| self.objects_behind(&backfill.compared));
            missing.saturating_add(unknown).min(objects)
        };
        let absent = usize::from(self.interval.size).saturating_sub(up.len());
        let absent = i64::try_from(absent).unwrap_or(i64::MAX).saturating_mul(objects);
        let short = up.iter().map(lacks).fold(absent, i64::saturating_add);
        let elsewhere = acting.iter().filter(|osd| !up.contains(osd)).map(|osd| objects - lacks(osd)).sum();
        let misplaced = short.min(elsewhere);
        (short - misplaced, misplaced)
    }

    /// About how many of the PG's objects are not before `cursor`: they lie evenly in the PG's part of the space of
    /// hashes.
    fn objects_behind(&self, cursor: &HObject) -> i64 {
        let objects = self.info.counters.objects.max(0);
        let behind = u128::from((1_u64 << 32) - place(cursor, self.spg.pg.seed, self.pool.pg_num));
        i64::try_from((u128::from(objects.unsigned_abs()) * behind) >> 32).unwrap_or(objects)
    }

    fn whole_copy(&self, osd: OsdId) -> PgShard {
        let shard = self.shard_of(osd).and_then(|shard| i8::try_from(shard).ok());
        PgShard { osd, shard: shard.unwrap_or(nacre_types::SHARD_NONE) }
    }

    /// Up and acting set as the map has them: in erasure-coded pools with the places of OSDs that are not there.
    fn placed(&self) -> UpActing {
        if self.ec.is_some() {
            return self.map.pg_to_up_acting(self.spg.pg);
        }
        let Interval { up, up_primary, acting, primary, .. } = self.interval.clone();
        UpActing { up, up_primary, acting, acting_primary: primary }
    }

    /// The OSDs that keep the PG down, and what was lost there through which epoch: 0 of one that is away.
    pub(crate) fn blockers(&self) -> Vec<(OsdId, Epoch)> {
        match &self.phase {
            Phase::Down { blocked_by } => {
                blocked_by.iter().map(|osd| (*osd, self.lost_through(*osd))).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl PgState {
    /// The state bits, as `ceph pg ls` shows them.
    pub(crate) fn report_bits(&self, activity: &Activity) -> u64 {
        let peering = when(self.info.history.last_epoch_started == 0, pg_state::CREATING) | pg_state::PEERING;
        match &self.phase {
            Phase::Stray if activity.is_moving => peering,
            Phase::Stray => 0,
            Phase::Replica => pg_state::ACTIVE,
            Phase::GetInfo { .. }
            | Phase::GetLog { .. }
            | Phase::WaitActingChange { .. }
            | Phase::WaitUpThru => peering | self.remapped(),
            Phase::Down { .. } => pg_state::DOWN | self.remapped(),
            Phase::Incomplete => pg_state::INCOMPLETE | self.remapped(),
            Phase::Activating { .. } => pg_state::ACTIVATING | self.strength() | self.remapped(),
            Phase::Active { serving } => self.active_bits(*serving, activity),
        }
    }

    fn active_bits(&self, started: bool, activity: &Activity) -> u64 {
        let serving = started && self.merge_role.is_none();
        let recovery = match activity.due {
            Some(Kind::Recovery) if activity.is_recovering => pg_state::RECOVERING,
            Some(kind @ Kind::Recovery) if self.is_too_full(kind) => pg_state::RECOVERY_TOOFULL,
            Some(Kind::Recovery) => pg_state::RECOVERY_WAIT,
            Some(Kind::Backfill) if activity.is_recovering => pg_state::BACKFILLING,
            Some(kind @ Kind::Backfill) if self.is_too_full(kind) => pg_state::BACKFILL_TOOFULL,
            Some(Kind::Backfill) => pg_state::BACKFILL_WAIT,
            None => 0,
        };
        let (trimming, failed) = (activity.is_trimming, activity.has_trim_failed);
        let waiting = activity.trims_queued > 0 && !trimming && !failed;
        when(serving, pg_state::ACTIVE)
            | when(!serving, pg_state::PEERED)
            | when(self.is_clean(), pg_state::CLEAN)
            | recovery
            | when(self.merge_role.is_some(), pg_state::PREMERGE)
            | when(activity.forced_recovery, pg_state::FORCED_RECOVERY)
            | when(activity.forced_backfill, pg_state::FORCED_BACKFILL)
            | when(activity.unfound > 0, pg_state::RECOVERY_UNFOUND)
            | when(trimming, pg_state::SNAPTRIM)
            | when(waiting, pg_state::SNAPTRIM_WAIT)
            | when(failed, pg_state::SNAPTRIM_ERROR)
            | when(activity.is_scrubbing, pg_state::SCRUBBING)
            | when(activity.is_deep_scrub, pg_state::DEEP_SCRUB)
            | when(activity.is_repairing, pg_state::REPAIR)
            | when(self.info.counters.scrub_errors > 0, pg_state::INCONSISTENT)
            | self.strength()
            | self.remapped()
    }

    fn sums(&self, unfound: usize) -> ObjStatSum {
        let counters = &self.info.counters;
        let size = i64::from(self.interval.size);
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let since_start = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let (degraded, misplaced) = self.copies_short();
        ObjStatSum {
            num_bytes: counters.bytes,
            num_objects: counters.objects,
            num_object_clones: counters.clones,
            num_object_copies: counters.objects.saturating_mul(size),
            num_objects_missing_on_primary: count(self.missing.len()),
            num_objects_degraded: degraded,
            num_objects_misplaced: misplaced,
            num_objects_unfound: count(unfound),
            num_rd: counters.reads,
            num_rd_kb: counters.read_bytes >> 10,
            num_wr: counters.writes,
            num_wr_kb: counters.write_bytes >> 10,
            num_scrub_errors: counters.scrub_errors,
            num_objects_recovered: since_start(self.stamps.recovered_objects),
            num_bytes_recovered: since_start(self.stamps.recovered_bytes),
            num_keys_recovered: since_start(self.stamps.recovered_keys),
            num_objects_repaired: since_start(self.stamps.repaired_objects),
            num_large_omap_objects: i64::try_from(self.info.history.large_omap_objects).unwrap_or(i64::MAX),
            num_objects_dirty: counters.objects,
            num_whiteouts: counters.whiteouts,
            num_objects_omap: counters.omap_objects,
            num_omap_bytes: counters.omap_bytes,
            num_omap_keys: counters.omap_keys,
            ..ObjStatSum::default()
        }
    }

    /// The report for the manager, of a primary.
    pub(crate) fn report(&mut self, wall: UTime, activity: &Activity) -> PgStat {
        let state = self.report_bits(activity);
        self.stamps.refresh(wall, state);
        self.stamps.reported_seq += 1;
        self.stamps.reported_epoch = self.map.epoch;
        let (history, stamps) = (&self.info.history, &self.stamps);
        let log_size = i64::try_from(self.log.len()).unwrap_or(i64::MAX);
        let blocked_by = match &self.phase {
            Phase::Down { blocked_by } => blocked_by.clone(),
            Phase::GetInfo { waiting } => waiting.iter().copied().collect(),
            _ => Vec::new(),
        };
        let whole = self.peers.iter().filter(|(_, peer)| peer.is_complete()).map(|(osd, _)| *osd);
        let me = self.missing.is_empty().then_some(self.whoami);
        let placed = self.placed();
        PgStat {
            version: self.info.last_update,
            reported_seq: stamps.reported_seq,
            reported_epoch: stamps.reported_epoch,
            state,
            log_start: self.log.tail(),
            ondisk_log_start: self.log.tail(),
            created: history.epoch_created,
            last_epoch_clean: history.last_epoch_clean,
            last_scrub: history.last_scrub,
            last_scrub_stamp: history.last_scrub_stamp,
            stats: ObjStatColl { sum: self.sums(activity.unfound) },
            log_size,
            ondisk_log_size: log_size,
            up: placed.up,
            acting: placed.acting,
            last_fresh: wall,
            last_change: stamps.change,
            last_active: stamps.active,
            last_clean: stamps.clean,
            last_unstale: wall,
            mapping_epoch: self.interval.since,
            last_deep_scrub: history.last_deep_scrub,
            last_deep_scrub_stamp: history.last_deep_scrub_stamp,
            last_clean_scrub_stamp: history.last_clean_scrub_stamp,
            last_became_active: stamps.became_active,
            up_primary: self.interval.up_primary,
            acting_primary: self.interval.primary,
            blocked_by,
            last_undegraded: stamps.undegraded,
            last_fullsized: stamps.full_size,
            last_peered: stamps.peered,
            last_became_peered: stamps.became_peered,
            snaptrimq_len: u32::try_from(activity.trims_queued).unwrap_or(u32::MAX),
            purged_snaps: self.info.purged_snaps.clone(),
            avail_no_missing: me.into_iter().chain(whole).map(|osd| self.whole_copy(osd)).collect(),
            ..PgStat::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_lies_in_its_pg_as_objects_do() {
        for (seed, pg_num) in [(0, 1), (3, 8), (2, 5), (4, 5), (0, 5), (11, 12), (6, 12)] {
            let mut objects: Vec<HObject> = (0..20_000)
                .map(|n| HObject::head(3, "".into(), "".into(), format!("o{n}").into()))
                .filter(|object| object.pg(pg_num).seed == seed)
                .collect();
            objects.sort();
            for (n, object) in objects.iter().enumerate() {
                let real = n as f64 / objects.len() as f64;
                let place = place(object, seed, pg_num) as f64 / (1_u64 << 32) as f64;
                assert!((place - real).abs() < 0.05, "{place} for {real} in {seed} of {pg_num}");
            }
        }
        assert_eq!((place(&HObject::MIN, 3, 8), place(&HObject::max_value(), 3, 8)), (0, 1 << 32));
    }
}
