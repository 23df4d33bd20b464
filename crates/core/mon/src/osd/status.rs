//! What the monitor knows of OSDs beyond the map, and what time does to them: silence, down, out.

use super::{OsdMaps, view};
use crate::config::ConfigDb;
use nacre_maps::{Incremental, OsdMap, WEIGHT_ONE, flags};
use nacre_types::{Epoch, OsdId, PgId, Stamp, UTime, seconds};
use std::collections::BTreeMap;
use std::time::Duration;

/// What we know of one OSD beyond the map; forgotten by a restart.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsdStatus {
    /// Its last sign of life.
    pub last_seen: Stamp,
    /// Since when it is down, while it is to be marked out.
    pub down_since: Option<Stamp>,
    /// Oldest epoch that its PGs may need, by its last beacon.
    pub last_epoch_clean_min: Option<Epoch>,
}

/// An OSD that time has moved, for the cluster log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimedOut {
    /// Marked down for its silence.
    Down(OsdId, Duration),
    /// Marked out for being down.
    Out(OsdId, Duration),
}

/// True when `bit` (noup, nodown, noin or noout) holds for `osd` by itself, its class or a bucket above it.
pub(crate) fn has_osd_flag(map: &OsdMap, osd: OsdId, bit: u32) -> bool {
    let own = map.state(osd) & bit != 0;
    let class = map.crush.item_classes.get(&osd);
    let of_class =
        class.and_then(|class| map.device_class_flags.get(class)).is_some_and(|bits| bits & bit != 0);
    let parents = view::ancestors(&map.crush, osd);
    let of_nodes =
        parents.iter().any(|node| map.crush_node_flags.get(node).is_some_and(|bits| bits & bit != 0));
    own || of_class || of_nodes
}

/// Takes back a boot that the next epoch was to bring.
fn forget_boot(change: &mut Incremental, osd: OsdId) {
    change.new_up_client.remove(&osd);
    change.new_up_cluster.remove(&osd);
    change.new_hb_back_up.remove(&osd);
    change.new_hb_front_up.remove(&osd);
}

pub(crate) fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl OsdMaps {
    /// What we know of `osd` beyond the map.
    #[must_use]
    pub fn status(&self, osd: OsdId) -> Option<&OsdStatus> {
        self.status.get(&osd)
    }

    /// A leader begins. What OSDs said to the one before is not known: their silence counts from now.
    pub(crate) fn begin(&mut self, now: Stamp) {
        let up: Vec<OsdId> = self.latest.up_osds().collect();
        up.into_iter().for_each(|osd| self.seen(osd, now));
    }

    pub(crate) fn seen(&mut self, osd: OsdId, now: Stamp) {
        self.status.entry(osd).or_default().last_seen = now;
    }

    /// An OSD's beacon: it lives, and `pgs`, which it leads, need no epoch before `last_epoch_clean_min`.
    pub(crate) fn beacon(&mut self, osd: OsdId, pgs: &[PgId], last_epoch_clean_min: Epoch, now: Stamp) {
        self.seen(osd, now);
        self.status.entry(osd).or_default().last_epoch_clean_min = Some(last_epoch_clean_min);
        for pg in pgs.iter().filter(|pg| self.latest.pool(pg.pool).is_some_and(|pool| pg.seed < pool.pg_num))
        {
            let clean = self.clean.entry(*pg).or_default();
            *clean = last_epoch_clean_min.max(*clean); // what was clean once stays so
        }
    }

    /// An OSD has seen `epoch`, which we have not; true when that is news.
    pub(crate) fn is_ahead(&mut self, osd: OsdId, epoch: Epoch) -> bool {
        self.ahead.insert(osd, epoch).is_none()
    }

    /// OSDs that had newer maps than we, and the newest epoch that each spoke of.
    #[must_use]
    pub fn ahead(&self) -> &BTreeMap<OsdId, Epoch> {
        &self.ahead
    }

    /// True when rules and ratios let `osd` be marked down.
    pub(crate) fn may_mark_down(&mut self, osd: OsdId, config: &ConfigDb) -> bool {
        let ratio_min = config.number_of_monitor("mon_osd_min_up_ratio", 0.3);
        let map = self.upcoming();
        let known = map.osds().count();
        let up = map.up_osds().count();
        let held = map.flags & flags::osdmap::NODOWN != 0 || has_osd_flag(map, osd, flags::osd::NODOWN);
        !held && share(up, known) >= ratio_min
    }

    /// Marks an up OSD down in the next epoch.
    pub(crate) fn mark_down(&mut self, osd: OsdId, wall: UTime) {
        let map = self.upcoming();
        if !map.is_up(osd) {
            return;
        }
        let mut xinfo = map.xinfo(osd);
        xinfo.down_stamp = wall;
        let change = self.change();
        if change.new_up_client.contains_key(&osd) {
            // It was to come up with this very epoch; a state flip would be undone by that.
            forget_boot(change, osd);
        } else {
            *change.new_state.entry(osd).or_default() |= flags::osd::UP;
        }
        change.new_xinfo.insert(osd, xinfo);
        self.failures.forget_target(osd);
    }

    /// Notes of an OSD marked down with the next epoch that it certainly runs no more: an OSD that takes over from
    /// it need not wait until its leases run out.
    pub(crate) fn mark_dead(&mut self, osd: OsdId) {
        let epoch = self.next_epoch();
        let map = self.upcoming();
        if map.is_up(osd) {
            return;
        }
        let mut xinfo = map.xinfo(osd);
        xinfo.dead_epoch = epoch;
        self.change().new_xinfo.insert(osd, xinfo);
    }

    /// Marks OSDs down that are silent for too long, and out that are down for too long.
    pub(crate) fn tick(&mut self, now: Stamp, wall: UTime, config: &ConfigDb) -> Vec<TimedOut> {
        let mut out = Vec::new();
        self.mark_silent_down(now, wall, config, &mut out);
        self.track_down(now);
        self.mark_down_out(now, config, &mut out);
        out
    }

    fn mark_silent_down(&mut self, now: Stamp, wall: UTime, config: &ConfigDb, out: &mut Vec<TimedOut>) {
        let timeout = seconds(config.number_of_monitor("mon_osd_report_timeout", 900.0).max(1.0));
        let up: Vec<OsdId> = self.latest.up_osds().collect();
        for osd in up {
            // One that came up meanwhile was seen as it booted.
            let status =
                self.status.entry(osd).or_insert(OsdStatus { last_seen: now, ..OsdStatus::default() });
            let silent = now.since(status.last_seen);
            if silent > timeout && self.may_mark_down(osd, config) {
                self.mark_down(osd, wall);
                out.push(TimedOut::Down(osd, silent));
            }
        }
    }

    /// Starts and stops the down-to-out clocks by the map.
    fn track_down(&mut self, now: Stamp) {
        let latest = std::sync::Arc::clone(&self.latest);
        for (osd, state) in (0..).zip(&latest.osd_state) {
            let exists = state & flags::osd::EXISTS != 0;
            let waiting = exists && !latest.is_up(osd) && latest.weight(osd) > 0;
            if waiting {
                self.status.entry(osd).or_default().down_since.get_or_insert(now);
            } else if let Some(status) = self.status.get_mut(&osd) {
                status.down_since = None;
            }
        }
    }

    fn mark_down_out(&mut self, now: Stamp, config: &ConfigDb, out: &mut Vec<TimedOut>) {
        let interval = seconds(config.number_of_monitor("mon_osd_down_out_interval", 600.0));
        let noout = self.latest.flags & flags::osdmap::NOOUT != 0;
        if interval.is_zero() || noout {
            return;
        }
        let overdue: Vec<(OsdId, Duration)> = self
            .status
            .iter()
            .filter_map(|(osd, status)| Some((*osd, now.since(status.down_since?))))
            .filter(|(_, down)| *down >= interval)
            .collect();
        for (osd, down) in overdue {
            if self.may_mark_out(osd, config) {
                self.mark_out(osd);
                out.push(TimedOut::Out(osd, down));
            }
        }
    }

    fn may_mark_out(&mut self, osd: OsdId, config: &ConfigDb) -> bool {
        if config
            .of_monitor("mon_osd_down_out_subtree_limit")
            .is_some_and(|limit| self.lost_subtree(osd, limit))
        {
            return false;
        }
        let ratio_min = config.number_of_monitor("mon_osd_min_in_ratio", 0.75);
        let map = self.upcoming();
        let known = map.osds().count();
        let inside = map.osd_weight.iter().filter(|weight| **weight > 0).count();
        let held = has_osd_flag(map, osd, flags::osd::NOOUT);
        let down = !map.is_up(osd) && map.weight(osd) > 0;
        down && !held && share(inside, known) >= ratio_min
    }

    /// True when `osd` went down together with everything in a bucket of type `limit` or larger: that is a switch
    /// or a power supply, and copying all that it held would not help.
    fn lost_subtree(&self, osd: OsdId, limit: &str) -> bool {
        let map = &self.latest;
        let Some(limit) = map.crush.type_by_name(limit).filter(|kind| *kind > 0) else { return false };
        let is_down =
            |bucket: &i32| map.crush.devices_below(*bucket).into_iter().all(|device| !map.is_up(device));
        let kind = |bucket: &i32| map.crush.bucket(*bucket).map_or(0, |bucket| i32::from(bucket.kind));
        view::ancestors(&map.crush, osd)
            .iter()
            .take_while(|bucket| is_down(bucket))
            .any(|bucket| kind(bucket) >= limit)
    }

    /// Marks an OSD out by ourselves: its weight is kept for when it comes back.
    fn mark_out(&mut self, osd: OsdId) {
        let map = self.upcoming();
        let mut xinfo = map.xinfo(osd);
        xinfo.old_weight = if map.weight(osd) == WEIGHT_ONE { 0 } else { map.weight(osd) };
        let marked = map.state(osd) & flags::osd::AUTOOUT != 0;
        let change = self.change();
        change.new_weight.insert(osd, 0);
        if !marked {
            *change.new_state.entry(osd).or_default() |= flags::osd::AUTOOUT;
        }
        change.new_xinfo.insert(osd, xinfo);
    }

    /// Oldest epoch that an OSD may need: a primary that peers a PG must learn which OSDs served it since it was clean last. So every
    /// PG of every pool holds the maps since then, the more if it has no primary that reports.
    pub(crate) fn trim_floor(&self) -> Epoch {
        let needs = self.latest.up_osds().map(|osd| self.status.get(&osd)?.last_epoch_clean_min);
        let pools = self.latest.pools.iter();
        let pgs = pools.flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId::new(*id, seed)));
        let clean = pgs.map(|pg| self.clean.get(&pg).copied());
        // An OSD that has not reported since our start may need everything.
        needs.chain(clean).map(|need| need.unwrap_or(0)).min().unwrap_or(0)
    }

    pub(crate) fn trim(&mut self) {
        if !self.history.is_long() {
            return;
        }
        let latest = &self.latest;
        self.clean.retain(|pg, _| latest.pool(pg.pool).is_some_and(|pool| pg.seed < pool.pg_num));
        let floor = self.trim_floor();
        self.history.trim(floor, &mut self.changes);
    }

    /// Last signs of life, for `osd last-stat-seq` and the like.
    #[must_use]
    pub fn statuses(&self) -> &BTreeMap<OsdId, OsdStatus> {
        &self.status
    }
}
