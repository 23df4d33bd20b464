//! Which peers and clients are told of a map: a peer that pings us, and clients (`OSD::handle_osd_ping`, `OSDService::maybe_share_map`).

use crate::control_plane::ControlPlane;
use nacre_maps::OsdMap;
use nacre_types::{Epoch, OsdId};

/// What a peer that pings us is to hear beside the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingNotice {
    /// That it was marked down behind its own map (`YOU_DIED`).
    pub you_died: bool,
    /// Our promise to act for a while on no map in which it is down.
    pub promise: bool,
    /// The maps behind its own, as far as we have them.
    pub maps: bool,
}

/// What `from` is to hear that pings us and has come to the map of epoch `theirs`; 0: it does not say. `map` is our newest. One that is not
/// ours relies on no promise, and would take it for something else.
#[must_use]
pub fn ping_notice(map: &OsdMap, from: OsdId, theirs: Epoch, plane: ControlPlane) -> PingNotice {
    let is_up = map.is_up(from);
    PingNotice {
        you_died: !is_up && map.info(from).down_at > theirs,
        promise: is_up && plane.is_ours(map, from),
        maps: theirs > 0 && theirs < map.epoch,
    }
}

/// Whether clients are to hear of `map` at once, which follows `before`: an OSD went down, or is another instance. One that waits
/// for an OSD which is frozen or cut off hears nothing of it: it would ask for a newer map only after 10 to 15 s (librados,
/// `objecter_timeout`).
#[must_use]
pub fn warns_clients(before: &OsdMap, map: &OsdMap) -> bool {
    before.epoch > 0 && before.up_osds().any(|osd| map.client_addr(osd) != before.client_addr(osd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_maps::flags::osd::{EXISTS, UP};
    use nacre_types::{AddrVec, EntityAddr};

    const NACRE: ControlPlane = ControlPlane::Nacre;

    /// osd.0 and osd.1 are up; osd.1 was down before.
    fn map() -> OsdMap {
        let mut map = OsdMap { epoch: 10, ..OsdMap::default() };
        map.set_max_osd(2);
        map.osd_state.fill(EXISTS | UP);
        map.osd_info[1].down_at = 8;
        map
    }

    #[test]
    fn one_that_is_up_has_our_promise_and_one_that_is_down_hears_so_unless_it_knows() {
        let mut map = map();
        let up = PingNotice { you_died: false, promise: true, maps: true };
        assert_eq!(ping_notice(&map, 1, 7, NACRE), up);
        let stranger = ping_notice(&map, 1, 7, ControlPlane::Ceph);
        assert_eq!(stranger, PingNotice { promise: false, ..up }, "not ours");
        map.osd_state[1] = EXISTS;
        let down = PingNotice { you_died: true, promise: false, maps: true };
        assert_eq!(ping_notice(&map, 1, 7, NACRE), down);
        assert_eq!(ping_notice(&map, 1, 8, NACRE), PingNotice { you_died: false, ..down }, "it knows");
    }

    #[test]
    fn one_that_is_behind_gets_maps() {
        let maps = |theirs| ping_notice(&map(), 1, theirs, NACRE).maps;
        assert!(maps(9));
        assert!(!maps(10) && !maps(0));
    }

    #[test]
    fn clients_hear_at_once_of_an_osd_that_went_down_or_is_another_instance() {
        let (before, mut after) = (map(), map());
        after.epoch = 11;
        assert!(!warns_clients(&before, &after), "all are as they were");
        after.client_addrs[1] = AddrVec(vec![EntityAddr { nonce: 2, ..EntityAddr::default() }]);
        assert!(warns_clients(&before, &after), "another instance");
        let mut after = map();
        after.osd_state[1] = EXISTS;
        assert!(warns_clients(&before, &after), "down");
        assert!(!warns_clients(&after, &before), "up is no news");
        assert!(!warns_clients(&OsdMap { epoch: 0, ..before }, &after), "our first map");
    }
}
