//! Merging: the pool gets fewer PGs, and what belonged to the last one belongs to another.
//!
//! ```text
//!  pool: pg_num 8, pending 7     3.7 (source) and 3.3 (target) begin an interval in which they serve no client
//!                                primary: both clean? "ready", with the versions of both -> monitor
//!  pool: pg_num 7                every copy of 3.3 takes in the copy of 3.7 beside it, before anything else
//!                                of that map, and they peer as one
//! ```
//! What the monitor has recorded (`last_pg_merge_meta`) tells each OSD whether its two copies are the ones that
//! stood still: then the merged copy is whole. Any other, and one that found no source beside it, counts as
//! incomplete and is compared object by object with those that are whole.
//!
//! Versions of the two logs may be equal, and mean different things. So nothing can be brought up to date by
//! these entries any more; but requests that they record must not be executed again. They stay as entries that
//! change nothing, under versions of the epoch of the merge, which no copy from before it has: twice the old
//! number, odd for the source. Each copy finds the same versions by itself, however far back its log reaches.
//!
//! In erasure-coded pools an OSD may hold different shards of the two PGs. The members keep those of the target, and a [`ChunkMapping`]
//! says which chunks they hold of what came from the source. For that both primaries tell their members who holds which shard, with the
//! activation of the interval in which the PGs stand still. Of a copy that was not there then nobody knows which chunks it holds: it is
//! made anew when it is a member again.

use super::{Moves, Source};
use crate::log::{Missing, PgLog};
use crate::merge_role::{self, MergeState};
use crate::state::PgState;
use crate::storage::{forget_missing, log_append};
use crate::{Cx, Effect};
use nacre_maps::OsdMap;
use nacre_msg::peer::{ChunkMapping, Counters, LogEntry, LogKind, PgInfo};
use nacre_txn::Op;
use nacre_types::{Epoch, Eversion, HObject, PgId, SpgId, hash};

/// The PGs that `target` takes in when the pool goes from `old` to `new` PGs.
pub(crate) fn sources_of(target: PgId, old: u32, new: u32) -> impl Iterator<Item = PgId> {
    let of_target = move |seed: &u32| target.seed < new && hash::stable_mod(*seed, new) == target.seed;
    (new.max(1)..old).filter(of_target).map(move |seed| PgId::new(target.pool, seed))
}

/// An entry of one of the two logs, as the merged one has it.
fn kept(entry: &LogEntry, epoch: Epoch, from_source: bool) -> LogEntry {
    LogEntry {
        kind: LogKind::Error,
        version: Eversion::new(epoch, 2 * entry.version.version + u64::from(from_source)),
        prior_version: Eversion::ZERO,
        snaps: Vec::new(),
        delta: Counters::default(),
        committed_to: Eversion::ZERO, // of other numbers
        modified: None,
        ..entry.clone()
    }
}

impl PgState {
    /// This copy lacks nothing, and nothing was written since `version`.
    fn is_copy_of(&self, version: Eversion) -> bool {
        !self.info.is_incomplete() && self.missing.is_empty() && self.info.last_update == version
    }

    /// The objects of these copies are here: makes one of what else they have. Yields the changes that do so in the store, to be submitted with the interval that begins.
    pub(super) fn take_in(&mut self, sources: &[Source]) -> Vec<Op> {
        let Some(pool) = self.map.pools.get(&self.spg.pg.pool) else { return Vec::new() };
        let (record, epoch) = (pool.last_pg_merge, self.map.epoch);
        let due: Vec<PgId> = sources_of(self.spg.pg, self.interval.pg_num, pool.pg_num).collect();
        let whole = match (&due[..], sources) {
            ([due], [source]) => {
                *due == source.state.spg.pg
                    && *due == record.source
                    && source.state.is_copy_of(record.source_version)
                    && self.is_copy_of(record.target_version)
            }
            _ => false,
        };
        let mapping = sources.first().and_then(|source| self.mapping_with(source)).filter(|_| whole);
        let whole = whole && (self.ec.is_none() || mapping.is_some());
        let mut ops = Vec::new();
        if self.in_rubble {
            ops.extend([Op::RemoveCollection, Op::CreateCollection]);
        }
        ops.push(Op::LogRewind { to: Eversion::ZERO });
        for source in sources {
            self.add_source(source, &mut ops);
        }
        if let Some(ec) = &mut self.ec {
            let kept = std::mem::take(&mut ec.rollback_gens).into_values(); // the logs that it belongs to are gone
            ops.extend(kept.map(|kept| Op::Remove(kept.name)));
            self.info.mapping = mapping.unwrap_or_else(ChunkMapping::unknown);
            self.info.merge_shards.clear();
        }
        ops.extend(std::mem::take(&mut self.recorded).iter().map(forget_missing));
        self.missing = Missing::default();
        match sources.first().filter(|_| whole) {
            Some(source) => self.merge_logs(source, epoch),
            None => {
                self.log = PgLog::default();
                (self.info.last_complete, self.info.last_backfill) = (Eversion::ZERO, HObject::MIN);
            }
        }
        (self.info.last_update, self.info.log_tail) = (self.log.head(), self.log.tail());
        self.info.safe_to = Eversion::ZERO; // its numbers were others
        self.follow_log();
        if whole {
            self.info.last_complete = self.info.last_update;
        }
        ops.extend(self.log.iter().map(|entry| log_append(&entry)));
        ops
    }

    /// Which chunks the shards hold when `source` is taken in: as all members know by the shards that both PGs had when they stood still
    /// ([`PgInfo::merge_shards`]). Who of them serves in this moment does not matter. `None` when this copy was not among them.
    fn mapping_with(&self, source: &Source) -> Option<ChunkMapping> {
        let (ours, theirs) = (&self.info, &source.state.info);
        let is_known = |info: &PgInfo| {
            info.shard.is_some() && info.merge_shards.get(&self.whoami).copied() == info.shard
        };
        let fits = self.chunk_count() == Some(ours.merge_shards.len());
        if !fits || !is_known(ours) || !is_known(theirs) {
            return None;
        }
        let target = (self.spg.pg, &ours.mapping, &ours.merge_shards);
        let source = (source.state.spg.pg, &theirs.mapping, &theirs.merge_shards);
        ChunkMapping::of_merge(target, source, source.0.seed)
    }

    fn add_source(&mut self, source: &Source, ops: &mut Vec<Op>) {
        ops.push(Op::Merge { source: source.state.spg });
        let kept = source.state.ec.iter().flat_map(|ec| ec.rollback_gens.values());
        ops.extend(kept.map(|kept| Op::Remove(kept.name.clone())));
        let (info, theirs) = (&mut self.info, &source.state.info);
        info.counters.add(&theirs.counters);
        info.last_user_version = info.last_user_version.max(theirs.last_user_version);
        info.purged_snaps = info.purged_snaps.intersection(&theirs.purged_snaps);
        let (history, older) = (&mut info.history, &theirs.history);
        history.last_scrub_stamp = history.last_scrub_stamp.min(older.last_scrub_stamp);
        history.last_deep_scrub_stamp = history.last_deep_scrub_stamp.min(older.last_deep_scrub_stamp);
        history.last_clean_scrub_stamp = history.last_clean_scrub_stamp.min(older.last_clean_scrub_stamp);
        history.large_omap_objects = history.large_omap_objects.saturating_add(older.large_omap_objects);
    }

    fn merge_logs(&mut self, source: &Source, epoch: Epoch) {
        let (ours, theirs) = (self.log.head().version, source.state.log.head().version);
        let theirs = if source.state.log.head() == Eversion::ZERO { 0 } else { 2 * theirs + 1 };
        let head = Eversion::new(epoch, theirs.max(2 * ours));
        let mut entries: Vec<LogEntry> = self.log.iter().map(|entry| kept(&entry, epoch, false)).collect();
        entries.extend(source.state.log.iter().map(|entry| kept(&entry, epoch, true)));
        entries.sort_unstable_by_key(|entry| entry.version);
        // A log may hold nothing and have a head all the same: then all copies agree on that alone.
        if entries.last().is_some_and(|newest| newest.version == head) {
            self.log.replace(Eversion::new(epoch, 0), &entries);
        } else {
            self.log.replace(head, &[]);
        }
    }

    /// Tells how far a PG is that is to be merged.
    pub(crate) fn report_merge(&self, cx: &mut Cx<'_>) {
        let (Some(role), Some((source, target))) =
            (self.merge_role, merge_role::pair(&self.map, self.spg.pg.pool))
        else {
            return;
        };
        if !self.is_primary() || !matches!(self.phase, crate::phase::Phase::Active { .. }) {
            return;
        }
        let history = &self.info.history;
        cx.effects.push(Effect::Merge(MergeState {
            role,
            source,
            target,
            clean: self.is_clean() && self.interval.acting == self.interval.up && self.can_be_merged(),
            version: self.info.last_update,
            last_epoch_started: history.last_epoch_started,
            last_epoch_clean: history.last_epoch_clean,
            epoch: self.map.epoch,
        }));
    }
}

impl Moves {
    /// The PGs that this one takes in when `map` comes; none if it has come already, or it has taken them in.
    pub(crate) fn sources_in(&self, state: &PgState, map: &OsdMap) -> Vec<SpgId> {
        let (seen, old) = self.newest_seen(state);
        let is_ahead = map.epoch > seen && self.sources.is_none();
        let new = map.pools.get(&state.spg.pg.pool).filter(|_| is_ahead);
        let new = new.map_or(u32::MAX, |pool| pool.pg_num);
        sources_of(state.spg.pg, old, new).map(SpgId::replicated).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pg_that_ends_has_one_target() {
        for (old, new) in [(2, 1), (8, 7), (8, 4), (16, 5), (13, 12), (64, 6)] {
            let mut seen: Vec<u32> = (0..old)
                .flat_map(|seed| sources_of(PgId::new(3, seed), old, new))
                .map(|source| source.seed)
                .collect();
            seen.sort_unstable();
            assert_eq!(seen, (new..old).collect::<Vec<_>>(), "from {old} to {new}");
            for hash in (0..4096_u32).map(|n| n.wrapping_mul(0x9e37_79b9)) {
                let (before, after) = (hash::stable_mod(hash, old), hash::stable_mod(hash, new));
                let stays = before == after;
                assert!(
                    stays || sources_of(PgId::new(3, after), old, new).any(|source| source.seed == before)
                );
            }
        }
    }
}
