//! [`Fullness`]: an OSD tells Ceph's monitors how full it is. Ours see it by what it reports to the manager.
//!
//! Source of the behaviour: Ceph `OSDService::recalc_full_state`, `OSD::send_full_update`, v16.2.15.

use crate::failsafe_full::Room;
use nacre_maps::OsdMap;
use nacre_maps::flags::osd::{BACKFILLFULL, FULL, NEARFULL};
use nacre_types::{OsdId, Stamp};
use std::time::Duration;

/// The bits of an OSD's state in the map that say how full it is.
const BITS: u32 = FULL | BACKFILLFULL | NEARFULL;
/// While the map says otherwise, the monitor is told again.
const RETRY: Duration = Duration::from_secs(5);

/// What the monitor was told last.
#[derive(Debug, Default)]
pub struct Fullness {
    told: Option<(u32, Stamp)>,
}

/// The one bit that `room` calls for under the map's ratios; 0 for none.
fn wanted(map: &OsdMap, room: Room) -> u32 {
    if room.total_bytes == 0 {
        return 0;
    }
    let used = room.total_bytes.saturating_sub(room.available_bytes) as f32 / room.total_bytes as f32;
    let levels =
        [(map.full_ratio, FULL), (map.backfillfull_ratio, BACKFILLFULL), (map.nearfull_ratio, NEARFULL)];
    levels.iter().find(|(ratio, _)| *ratio > 0.0 && used >= *ratio).map_or(0, |(_, bit)| *bit)
}

impl Fullness {
    /// What to tell the monitor now, if anything: which of `FULL`, `BACKFILLFULL` and `NEARFULL` the map is to have of us, 0 for none.
    /// `room` is what the store has for clients.
    pub fn next_word(&mut self, map: &OsdMap, osd: OsdId, room: Room, now: Stamp) -> Option<u32> {
        let state = wanted(map, room);
        if map.state(osd) & BITS == state {
            self.told = None;
            return None;
        }
        let is_told = self.told.is_some_and(|(told, at)| told == state && now < at + RETRY);
        if is_told {
            return None;
        }
        self.told = Some((state, now));
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_maps::flags::osd::{EXISTS, UP};

    fn at(seconds: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(seconds)
    }

    fn map() -> OsdMap {
        let mut map =
            OsdMap { full_ratio: 0.95, backfillfull_ratio: 0.9, nearfull_ratio: 0.85, ..OsdMap::default() };
        map.set_max_osd(1);
        map.osd_state[0] = EXISTS | UP;
        map
    }

    fn used(percent: u64) -> Room {
        Room { total_bytes: 100, available_bytes: 100 - percent }
    }

    #[test]
    fn the_monitor_hears_of_each_level_and_that_it_is_over() {
        for (percent, state) in [(84, None), (85, Some(NEARFULL)), (91, Some(BACKFILLFULL)), (96, Some(FULL))]
        {
            assert_eq!(Fullness::default().next_word(&map(), 0, used(percent), at(1)), state, "{percent} %");
        }
        let mut full = map();
        full.osd_state[0] |= FULL;
        assert_eq!(Fullness::default().next_word(&full, 0, used(50), at(1)), Some(0));
        assert_eq!(Fullness::default().next_word(&full, 0, used(96), at(1)), None, "the map says so");
        let never = OsdMap { full_ratio: 0.0, backfillfull_ratio: 0.0, nearfull_ratio: 0.0, ..map() };
        assert_eq!(Fullness::default().next_word(&never, 0, used(99), at(1)), None, "no ratios");
        assert_eq!(
            Fullness::default().next_word(&map(), 0, Room { total_bytes: 0, available_bytes: 0 }, at(1)),
            None
        );
    }

    #[test]
    fn it_is_told_again_while_the_map_says_otherwise_but_not_each_time() {
        let (mut fullness, map) = (Fullness::default(), map());
        assert_eq!(fullness.next_word(&map, 0, used(96), at(1)), Some(FULL));
        assert_eq!(fullness.next_word(&map, 0, used(96), at(5)), None);
        assert_eq!(
            fullness.next_word(&map, 0, used(90), at(5)),
            Some(BACKFILLFULL),
            "another level, at once"
        );
        assert_eq!(fullness.next_word(&map, 0, used(90), at(10)), Some(BACKFILLFULL));
    }
}
