//! What a shard does beside clients' work: scrubs in time, the manager's orders, merges; and rest.

use crate::shard::Shard;
use crate::shard_msg::ShardMsg;
use nacre_buf::AlignedBuf;
use nacre_maps::OsdMap;
use nacre_msg::{OsdForceRecovery, force_option};
use nacre_pg::{Event, Pg, RecoveryKind, ScrubIntervals};
use nacre_types::{SpgId, Stamp};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// A store that nobody used for so long brings its changes home, and free memory goes back to the system.
const IDLE_TRIM_AFTER: Duration = Duration::from_secs(5);

/// Since when a shard's store rests.
#[derive(Debug, Default)]
pub(crate) struct IdleTrim {
    used_at: Stamp,
    /// Nothing is left to do until it is used again.
    is_done: bool,
}

impl IdleTrim {
    /// The store is used.
    pub(crate) fn used(&mut self, now: Stamp) {
        *self = Self { used_at: now, is_done: false };
    }
}

/// May scrubs begin by themselves at `hour`? Until `end`, which is left out, and over midnight when that comes first.
fn is_scrub_hour(hour: u32, begin: u32, end: u32) -> bool {
    match begin.cmp(&end) {
        Ordering::Equal => true,
        Ordering::Less => (begin..end).contains(&hour),
        Ordering::Greater => hour >= begin || hour < end,
    }
}

impl Shard {
    /// Does what is best done while nobody waits.
    pub(crate) fn idle_trim(&mut self) {
        if self.idle_trim.is_done
            || self.now < self.idle_trim.used_at + IDLE_TRIM_AFTER
            || self.store.idle_trim()
        {
            return;
        }
        self.idle_trim.is_done = true;
        AlignedBuf::empty_pool();
        (self.config.give_back_memory)();
    }

    /// Has the copies of the PG compared for which it is high time, if there are not enough scrubs already.
    pub(crate) fn start_scrub(&mut self) {
        let intervals = ScrubIntervals {
            shallow: self.options.seconds("osd_scrub_min_interval"),
            deep: self.options.seconds("osd_deep_scrub_interval"),
        };
        let hour = |count| u32::try_from(count).unwrap_or(0);
        let begin = hour(self.options.count("osd_scrub_begin_hour"));
        let end = hour(self.options.count("osd_scrub_end_hour"));
        if !is_scrub_hour(self.wall.sec / 3600 % 24, begin, end) {
            return;
        }
        let scrubs_max = self.options.count("osd_max_scrubs");
        if let Some((spg, deep)) = self.pgs.next_scrub(self.wall, &intervals, scrubs_max) {
            self.deliver(spg, Event::Scrub { deep, repair: false });
        }
    }

    /// Hands the manager's order to the PGs that it names.
    pub(crate) fn force_recovery(&mut self, order: &OsdForceRecovery) {
        let forced = order.options & force_option::CANCEL == 0;
        let kinds = [
            (force_option::RECOVERY, RecoveryKind::Recovery),
            (force_option::BACKFILL, RecoveryKind::Backfill),
        ];
        for (_, kind) in kinds.into_iter().filter(|(bit, _)| order.options & bit != 0) {
            for spg in order.pgs.iter().copied() {
                self.router.send(self.router.shard_of(&spg), ShardMsg::Force { spg, kind, forced });
            }
        }
    }

    /// Hands a map to all PGs that have not come to it, those among them that are split off meanwhile. Where objects move to other
    /// PGs, they do so `at_once`, or some at a time.
    pub(crate) fn advance_pgs(&mut self, map: &Arc<OsdMap>, at_once: bool) {
        self.merge_pgs(map);
        let mut behind = self.pgs.behind(map.epoch);
        while !behind.is_empty() && !self.is_broken() {
            for spg in behind {
                self.deliver_under(map, spg, Event::Map);
                if at_once {
                    self.finish_moving(spg);
                }
            }
            behind = self.pgs.behind(map.epoch);
        }
    }

    /// Hands the copies of PGs that end with `map` to those that they are merged into, before these see it.
    fn merge_pgs(&mut self, map: &Arc<OsdMap>) {
        for spg in self.pgs.all() {
            self.merge_into(map, spg);
        }
    }

    /// Lets all objects of a PG move at once, that are on their way to others. Only where nobody waits for us yet, or where
    /// maps follow each other faster than the monitor lets them.
    pub(crate) fn finish_moving(&mut self, spg: SpgId) {
        while !self.is_broken() && self.pgs.get(&spg).is_some_and(Pg::is_moving) {
            self.deliver(spg, Event::Tick);
        }
    }

    /// A PG is there that was split off: what came for it meanwhile.
    pub(crate) fn deliver_held(&mut self, spg: SpgId) {
        for (from, message) in self.pgs.take_held_peer_for(&spg) {
            self.deliver(spg, Event::Peer { from, message });
        }
        for op in self.pgs.take_held_for(&spg) {
            self.client_op(spg, op);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_scrub_hour;

    #[test]
    fn scrubs_begin_in_their_hours_only() {
        for (hour, begin, end, may) in [
            (5, 0, 0, true),
            (23, 22, 6, true),
            (3, 22, 6, true),
            (6, 22, 6, false),
            (12, 22, 6, false),
            (9, 9, 17, true),
            (17, 9, 17, false),
            (8, 9, 17, false),
        ] {
            assert_eq!(is_scrub_hour(hour, begin, end), may, "{hour} of {begin} to {end}");
        }
    }
}
