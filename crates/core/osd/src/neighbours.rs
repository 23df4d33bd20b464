//! Which other OSDs an OSD has connections with: for PGs, and for heartbeats (`OSD::maybe_update_heartbeat_peers`).

use crate::control_plane::ControlPlane;
use nacre_heartbeat::choose_peers;
use nacre_maps::OsdMap;
use nacre_types::{AddrVec, Epoch, OsdId};
use std::collections::BTreeSet;

/// Another OSD that PGs may have to speak with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerTarget<'a> {
    /// Number of the OSD.
    pub osd: OsdId,
    /// Where other OSDs reach it.
    pub addrs: &'a AddrVec,
    /// We dial it; else it dials us. So two never dial each other at once.
    pub dials: bool,
}

/// The OSDs that `me` is to have a connection with under `map`: all of ours that are up. What ours say to each other one of Ceph's does not
/// understand, and would hang up and have it sent again for ever.
pub fn peer_targets(map: &OsdMap, me: OsdId, plane: ControlPlane) -> impl Iterator<Item = PeerTarget<'_>> {
    let target = move |osd| Some(PeerTarget { osd, addrs: map.cluster_addr(osd)?, dials: me < osd });
    map.up_osds().filter(move |osd| *osd != me && plane.is_ours(map, *osd)).filter_map(target)
}

/// Of the OSDs that serve PGs with us those that are up and not ours: such PGs cannot be served.
pub fn strangers<'a>(
    map: &'a OsdMap,
    sharers: &'a BTreeSet<OsdId>,
    plane: ControlPlane,
) -> impl Iterator<Item = OsdId> + 'a {
    sharers.iter().copied().filter(move |osd| map.is_up(*osd) && !plane.is_ours(map, *osd))
}

/// Whether the connection with `osd` at `addrs` is to end under `map`: it is down, or another instance.
#[must_use]
pub fn ends_connection(map: &OsdMap, osd: OsdId, addrs: &AddrVec) -> bool {
    // One that is down has no address.
    map.cluster_addr(osd) != Some(addrs)
}

/// Another OSD that is to be pinged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatTarget<'a> {
    /// Number of the OSD.
    pub osd: OsdId,
    /// Where it listens for heartbeats on the cluster network and on the public one.
    pub addrs: Option<(&'a AddrVec, &'a AddrVec)>,
    /// The epoch in which this instance of it came up.
    pub up_from: Epoch,
}

/// The OSDs that `me` pings under `map`: those that are up and serve PGs with it (`sharers`), its neighbours by number, and others
/// until there are `count_min`.
#[must_use]
pub fn heartbeat_targets<'a>(
    map: &'a OsdMap,
    me: OsdId,
    sharers: &BTreeSet<OsdId>,
    count_min: usize,
) -> Vec<HeartbeatTarget<'a>> {
    let peers = choose_peers(me, sharers, &map.up_osds().collect(), count_min);
    let target =
        |osd| HeartbeatTarget { osd, addrs: map.heartbeat_addrs(osd), up_from: map.info(osd).up_from };
    peers.into_iter().map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_plane::tests::mark_ours;
    use nacre_maps::flags::osd::{EXISTS, UP};
    use nacre_types::EntityAddr;

    fn addrs(osd: OsdId, nonce: u32) -> AddrVec {
        AddrVec::of(EntityAddr::msgr2(format!("10.0.0.{osd}:6800").parse().expect("an address"), nonce))
    }

    /// osd.0 to osd.5; osd.3 is down.
    fn map() -> OsdMap {
        let mut map = OsdMap { epoch: 10, ..OsdMap::default() };
        map.set_max_osd(6);
        for (osd, number) in (0..6).zip(0_usize..) {
            map.osd_state[number] = if osd == 3 { EXISTS } else { EXISTS | UP };
            map.osd_info[number].up_from = 5;
            map.cluster_addrs[number] = addrs(osd, 1);
        }
        map
    }

    #[test]
    fn all_that_are_up_are_connected_and_the_lower_number_dials() {
        let map = map();
        let nacre = ControlPlane::Nacre;
        let targets: Vec<(OsdId, bool)> =
            peer_targets(&map, 2, nacre).map(|peer| (peer.osd, peer.dials)).collect();
        assert_eq!(targets, [(0, false), (1, false), (4, true), (5, true)]);
        assert_eq!(peer_targets(&map, 2, nacre).next().map(|peer| peer.addrs), Some(&addrs(0, 1)));
    }

    #[test]
    fn under_cephs_monitors_only_ours_are_connected_and_the_others_that_share_pgs_are_named() {
        let mut map = map();
        [2, 3, 5].into_iter().for_each(|osd| mark_ours(&mut map, osd));
        let targets: Vec<OsdId> = peer_targets(&map, 2, ControlPlane::Ceph).map(|peer| peer.osd).collect();
        assert_eq!(targets, [5], "osd.3 is down");
        let sharers = BTreeSet::from([0, 3, 5]);
        assert_eq!(Vec::from_iter(strangers(&map, &sharers, ControlPlane::Ceph)), [0]);
        assert_eq!(strangers(&map, &sharers, ControlPlane::Nacre).count(), 0);
    }

    #[test]
    fn a_connection_ends_with_the_instance_that_it_leads_to() {
        let map = map();
        assert!(!ends_connection(&map, 4, &addrs(4, 1)));
        assert!(ends_connection(&map, 4, &addrs(4, 2)), "another instance");
        assert!(ends_connection(&map, 3, &addrs(3, 1)), "it is down");
    }

    #[test]
    fn those_are_pinged_that_are_up_and_share_pgs_or_are_next() {
        let (map, sharers) = (map(), BTreeSet::from([0, 3]));
        let pinged = |count_min| -> Vec<OsdId> {
            heartbeat_targets(&map, 2, &sharers, count_min).iter().map(|target| target.osd).collect()
        };
        assert_eq!(pinged(0), [0, 1, 4], "osd.3 is down; 1 and 4 are next");
        assert_eq!(pinged(10), [0, 1, 4, 5]);
        assert_eq!(heartbeat_targets(&map, 2, &sharers, 0)[0].up_from, 5);
    }
}
