//! Where items stand in the hierarchy.

use nacre_crush::CrushMap;
use std::collections::BTreeMap;

/// Deeper trees are taken for cycles.
const DEPTH_MAX: usize = 64;

/// The bucket that holds `item`, shadow buckets aside.
pub(crate) fn parent(crush: &CrushMap, item: i32) -> Option<i32> {
    crush.parent(item)
}

/// The buckets above `item`, nearest first.
pub(crate) fn ancestors(crush: &CrushMap, item: i32) -> Vec<i32> {
    std::iter::successors(parent(crush, item), |at| parent(crush, *at)).take(DEPTH_MAX).collect()
}

/// Where `item` stands: names of the buckets above it by the names of their types.
pub(crate) fn location(crush: &CrushMap, item: i32) -> BTreeMap<String, String> {
    crush.location(item)
}
