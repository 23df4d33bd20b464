//! [`ControlPlane`]: whose monitors an OSD has, and which other OSDs are ours there.

use nacre_maps::OsdMap;
use nacre_types::{OsdId, features};

/// Whose monitors and manager an OSD has. Its operator says so when it is started; nothing that a peer sends changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ControlPlane {
    /// Ours: all OSDs that it lets come up are ours.
    #[default]
    Nacre,
    /// Ceph's: beside OSDs of ours there may be Ceph's, which understand clients, pings and monitors as ours do, but nothing of what ours
    /// say to each other.
    Ceph,
}

impl ControlPlane {
    /// Whether the OSD that the map has under this number says that it is ours. It says so as it boots, by a feature that no OSD of Ceph
    /// has; whether it is true shows when its session begins, with cephx and both sides' versions.
    #[must_use]
    pub fn is_ours(self, map: &OsdMap, osd: OsdId) -> bool {
        self == Self::Nacre || map.xinfo(osd).features & features::NACRE_OSD != 0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The map has `osd` as one of ours.
    pub(crate) fn mark_ours(map: &mut OsdMap, osd: OsdId) {
        let at = usize::try_from(osd).expect("a number");
        map.osd_xinfo[at].features = features::SUPPORTED | features::NACRE_OSD;
    }

    #[test]
    fn under_cephs_monitors_the_map_tells_ours_from_theirs() {
        let mut map = OsdMap::default();
        map.set_max_osd(2);
        map.osd_xinfo[0].features = features::SUPPORTED;
        mark_ours(&mut map, 1);
        assert!(!ControlPlane::Ceph.is_ours(&map, 0) && ControlPlane::Ceph.is_ours(&map, 1));
        assert!(!ControlPlane::Ceph.is_ours(&map, 7), "not in the map");
        assert!(ControlPlane::Nacre.is_ours(&map, 0), "our monitor lets no other come up");
    }
}
