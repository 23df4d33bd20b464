//! Which OSDs an OSD pings.

use nacre_types::OsdId;
use std::collections::BTreeSet;

/// The heartbeat peers of `me`: those that share a PG, its neighbours among the running OSDs by
/// number, and further ones in the same direction until there are `count_min`. So every OSD is watched by
/// another even before there is a pool, and by enough of them to be reported.
#[must_use]
pub fn choose_peers(
    me: OsdId,
    sharers: &BTreeSet<OsdId>,
    up: &BTreeSet<OsdId>,
    count_min: usize,
) -> BTreeSet<OsdId> {
    let mut peers: BTreeSet<OsdId> = sharers.intersection(up).copied().filter(|osd| *osd != me).collect();
    let before = up.range(..me).next_back().or_else(|| up.iter().next_back());
    peers.extend(before.filter(|osd| **osd != me));
    let after = up.range(me..).chain(up.range(..me)).copied().filter(|osd| *osd != me);
    for (position, osd) in after.enumerate() {
        if position > 0 && peers.len() >= count_min {
            break;
        }
        peers.insert(osd);
    }
    peers
}
