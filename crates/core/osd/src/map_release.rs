//! [`MapRelease`]: which maps the PGs may see, and when.
//!
//! An OSD that answered a ping has promised to act for a while on no map in which the pinger is down (see [`Leases`]). So a map that
//! has one down to which we promised is kept from our PGs, with all behind it, until the promise ends. Maps reach the PGs in
//! their order.
//!
//! Ceph has the same per PG: `PeeringState::check_prior_readable_down_osds` and `wait_for_prior_readable`; what a map does there when
//! it comes is `OSD::_committed_osd_maps`.

use crate::control_plane::ControlPlane;
use nacre_heartbeat::Leases;
use nacre_maps::OsdMap;
use nacre_types::{Epoch, OsdId, Stamp};

/// Until when the PGs of `osd` must not see `map`, since it has an OSD down to which we have promised otherwise; unless
/// that is certainly dead: its last death that is known is behind its last boot. To which OSDs an earlier process of ours promised is not known: that counts for all that went down
/// behind `started_at`, the newest epoch that the store had when this process started. Nobody promises anything to one that is not ours.
#[must_use]
pub fn keeps_maps_until(
    osd: OsdId,
    started_at: Epoch,
    leases: &Leases,
    map: &OsdMap,
    plane: ControlPlane,
) -> Stamp {
    let until = |other: OsdId| {
        let info = map.info(other);
        let is_dead = map.xinfo(other).dead_epoch > info.up_from;
        let counts = other != osd && !map.is_up(other) && !is_dead && plane.is_ours(map, other);
        let before = if info.down_at > started_at { leases.promised_before() } else { Stamp::default() };
        counts.then(|| leases.promised_until(other).max(before))
    };
    map.osds().filter_map(until).max().unwrap_or_default()
}

/// Maps that have come and that the PGs have not seen. `M` is whatever the driver makes of them.
#[derive(Debug)]
pub struct MapRelease<M> {
    waiting: Vec<M>,
    kept_until: Option<Stamp>,
}

impl<M> Default for MapRelease<M> {
    fn default() -> Self {
        Self { waiting: Vec::new(), kept_until: None }
    }
}

impl<M> MapRelease<M> {
    /// Maps have come.
    pub fn learned(&mut self, maps: M) {
        self.waiting.push(maps);
    }

    /// When those that are kept may be seen.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        self.kept_until
    }

    /// Yields what the PGs may see now, oldest first: all that has come, or `None` while a promise is kept.
    /// `until` is [`keeps_maps_until`] of the newest map; `None` where another has kept the promises before it handed on the maps.
    pub fn release(&mut self, until: Option<Stamp>, now: Stamp) -> Option<Vec<M>> {
        self.kept_until = until.filter(|until| *until > now);
        self.kept_until.is_none().then(|| std::mem::take(&mut self.waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_plane::tests::mark_ours;
    use nacre_maps::flags::osd::{EXISTS, UP};
    use std::time::Duration;

    const LENGTH: Duration = Duration::from_secs(6);
    const ME: OsdId = 0;
    const NACRE: ControlPlane = ControlPlane::Nacre;

    fn at(seconds: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(seconds)
    }

    /// osd.0, osd.1 and osd.2 are up, and have been down before.
    fn map() -> OsdMap {
        let mut map = OsdMap { epoch: 10, ..OsdMap::default() };
        map.set_max_osd(3);
        map.osd_state.fill(EXISTS | UP);
        map.osd_info.iter_mut().for_each(|info| info.down_at = 3);
        map
    }

    fn mark_down(map: &mut OsdMap, osd: usize, epoch: Epoch) {
        map.osd_state[osd] = EXISTS;
        map.osd_info[osd].down_at = epoch;
    }

    #[test]
    fn a_map_that_has_one_down_to_whom_we_promised_is_kept_until_the_promise_ends() {
        let (mut leases, mut map) = (Leases::new(LENGTH, at(0)), map());
        leases.promise(1, at(100));
        leases.promise(2, at(200));
        assert_eq!(keeps_maps_until(ME, 10, &leases, &map, NACRE), Stamp::default(), "all are up");
        mark_down(&mut map, 1, 9);
        assert_eq!(keeps_maps_until(ME, 10, &leases, &map, NACRE), leases.promised_until(1));
        mark_down(&mut map, 2, 10);
        assert_eq!(
            keeps_maps_until(ME, 10, &leases, &map, NACRE),
            leases.promised_until(2),
            "the last of them"
        );
        assert!(leases.promised_until(2) > at(206));
    }

    #[test]
    fn nobody_waits_for_one_that_is_dead_or_is_us() {
        let (mut leases, mut map) = (Leases::new(LENGTH, at(0)), map());
        leases.promise(1, at(100));
        leases.promise(ME, at(100));
        mark_down(&mut map, 0, 10);
        assert_eq!(keeps_maps_until(ME, 10, &leases, &map, NACRE), Stamp::default());
        mark_down(&mut map, 1, 10);
        map.osd_info[1].up_from = 8;
        map.osd_xinfo[1].dead_epoch = 7;
        assert!(keeps_maps_until(ME, 10, &leases, &map, NACRE) > at(106), "another life of it");
        // Ceph's monitors note the epoch of the OSD's own map, which is before the one that has it down.
        map.osd_xinfo[1].dead_epoch = 9;
        assert_eq!(keeps_maps_until(ME, 10, &leases, &map, NACRE), Stamp::default());
        map.osd_xinfo[1].dead_epoch = 10;
        assert_eq!(keeps_maps_until(ME, 10, &leases, &map, NACRE), Stamp::default());
    }

    #[test]
    fn what_an_earlier_life_promised_counts_for_who_went_down_since() {
        let (leases, mut map) = (Leases::new(LENGTH, at(100)), map());
        mark_down(&mut map, 1, 10);
        assert_eq!(keeps_maps_until(ME, 9, &leases, &map, NACRE), leases.promised_before());
        assert_eq!(keeps_maps_until(ME, 10, &leases, &map, NACRE), Stamp::default());
    }

    #[test]
    fn nobody_waits_for_a_stranger() {
        let (leases, mut map) = (Leases::new(LENGTH, at(100)), map());
        mark_down(&mut map, 1, 10);
        mark_down(&mut map, 2, 10);
        mark_ours(&mut map, 2);
        let until = |map: &OsdMap| keeps_maps_until(ME, 9, &leases, map, ControlPlane::Ceph);
        assert_eq!(until(&map), leases.promised_before());
        map.osd_xinfo[2].features = 0;
        assert_eq!(until(&map), Stamp::default());
    }

    #[test]
    fn kept_maps_are_seen_in_order_when_the_promise_has_ended() {
        let mut release = MapRelease::default();
        release.learned("11");
        assert_eq!(release.release(Some(at(5)), at(4)), None);
        assert_eq!(release.next_deadline(), Some(at(5)));
        release.learned("12, 13");
        assert_eq!(release.release(Some(at(5)), at(5)), Some(vec!["11", "12, 13"]));
        assert_eq!(release.next_deadline(), None);
        assert_eq!(release.release(Some(at(5)), at(5)), Some(vec![]), "once");
        release.learned("14");
        assert_eq!(release.release(None, at(6)), Some(vec!["14"]), "another has kept the promises");
    }
}
