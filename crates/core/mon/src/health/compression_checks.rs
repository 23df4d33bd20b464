//! The check on OSDs that store data as they are which their pool wants compressed.
//!
//! Ceph's OSDs raise it themselves (`src/os/bluestore/BlueStore.cc: _set_compression_alert` at v16.2.15). Ours say by which algorithms they
//! can compress as they boot, and one of an older version, which says nothing of it, must be found as well.

use super::{Check, Severity};
use crate::state::State;
use nacre_maps::{OsdMap, Pool};
use nacre_types::{Compression, CompressionAlgorithm, CompressionMode, OsdId, PoolId};

/// Pools that are compressed by their own settings: their names, and by what.
fn compressed(map: &OsdMap) -> impl Iterator<Item = (&str, CompressionAlgorithm)> {
    let names = &map.pool_names;
    let of = |(id, pool): (&PoolId, &Pool)| (*id, pool.compression(Compression::default()));
    let pools = map.pools.iter().map(of).filter(|(_, how)| how.mode != CompressionMode::None);
    pools.filter_map(|(id, how)| Some((names.get(&id)?.as_ref(), how.algorithm)))
}

pub(super) fn check(state: &State) -> Option<Check> {
    let map = state.osd.map();
    let pools: Vec<_> = compressed(map).collect();
    let line = |osd: OsdId| {
        let cannot = pools.iter().filter(|(_, algorithm)| !state.osd.can_compress(osd, Some(*algorithm)));
        let names: Vec<String> = cannot.map(|(name, _)| format!("'{name}'")).collect();
        (!names.is_empty()).then(|| {
            format!(
                "osd.{osd} stores what it has of {} {} as it is: it cannot compress so, since it is of another version or has everything in memory",
                if names.len() == 1 { "pool" } else { "pools" },
                names.join(", ")
            )
        })
    };
    // Others than ours say it themselves, to their manager.
    let is_ours =
        |osd: &OsdId| state.osd.metadata(*osd).is_some_and(|facts| facts.contains_key("nacre_version"));
    let lines: Vec<String> = map.up_osds().filter(is_ours).filter_map(line).collect();
    let summary = format!("{} OSD(s) have broken BlueStore compression", lines.len());
    (!lines.is_empty()).then(|| Check::new("BLUESTORE_NO_COMPRESSION", Severity::Warn, summary, lines))
}
