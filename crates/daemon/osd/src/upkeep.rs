//! What a shard does beside clients' work: scrubs in time, the manager's orders, merges; and rest.

use crate::letter::Letter;
use crate::shard::Shard;
use nacre_buf::AlignedBuf;
use nacre_maps::OsdMap;
use nacre_msg::{OsdForceRecovery, force_option};
use nacre_pg::{Event, RecoveryKind, ScrubIntervals};
use nacre_types::{SpgId, Stamp};
use std::sync::Arc;
use std::time::Duration;

/// A store that nobody used for so long brings its changes home, and free memory goes back to the system.
const REST_AFTER: Duration = Duration::from_secs(5);

/// Since when a shard's store rests.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    used_at: Stamp,
    /// Nothing is left to do until it is used again.
    is_done: bool,
}

impl Rest {
    /// The store is used.
    pub(crate) fn used(&mut self, now: Stamp) {
        *self = Self { used_at: now, is_done: false };
    }
}

impl Shard {
    /// Does what is best done while nobody waits.
    pub(crate) fn rest(&mut self) {
        if self.rest.is_done || self.now < self.rest.used_at + REST_AFTER || self.store.rest() {
            return;
        }
        self.rest.is_done = true;
        AlignedBuf::empty_pool();
        (self.config.give_back_memory)();
    }

    /// Has the copies of the group compared for which it is high time, if there are not enough scrubs already.
    pub(crate) fn start_scrub(&mut self) {
        let intervals = ScrubIntervals {
            shallow: self.options.seconds("osd_scrub_min_interval"),
            deep: self.options.seconds("osd_deep_scrub_interval"),
        };
        let scrubs_max = self.options.count("osd_max_scrubs");
        if let Some((spg, deep)) = self.groups.next_scrub(self.wall, &intervals, scrubs_max) {
            self.deliver(spg, Event::Scrub { deep, repair: false });
        }
    }

    /// Hands the manager's order to the groups that it names.
    pub(crate) fn force_recovery(&mut self, order: &OsdForceRecovery) {
        let forced = order.options & force_option::CANCEL == 0;
        let kinds = [
            (force_option::RECOVERY, RecoveryKind::Recovery),
            (force_option::BACKFILL, RecoveryKind::Backfill),
        ];
        for (_, kind) in kinds.into_iter().filter(|(bit, _)| order.options & bit != 0) {
            for spg in order.pgs.iter().copied() {
                self.post.send(self.post.home(&spg), Letter::Force { spg, kind, forced });
            }
        }
    }

    /// Hands the copies of groups that end with `map` to those that they are merged into, before these see it.
    pub(crate) fn merge_groups(&mut self, map: &Arc<OsdMap>) {
        for spg in self.groups.all() {
            self.merge_into(map, spg);
        }
    }

    /// Whether the map has this group: it may have been merged into another.
    pub(crate) fn exists(&self, spg: &SpgId) -> bool {
        self.groups.map().pool(spg.pg.pool).is_some_and(|pool| spg.pg.seed < pool.pg_num)
    }
}
