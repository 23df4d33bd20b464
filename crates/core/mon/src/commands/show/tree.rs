//! The CRUSH hierarchy as a list, parents before children. Ceph `src/crush/CrushTreeDumper.h`.

use super::osdmap::fraction;
use nacre_crush::CrushMap;
use nacre_format::{Node, Section};
use nacre_types::OsdId;

/// Levels that are followed; a deeper map has a cycle.
const DEPTH_MAX: usize = 32;

/// A bucket or an OSD at its place.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::commands) struct TreeItem {
    /// Negative for buckets.
    pub(in crate::commands) id: i32,
    /// The bucket above.
    pub(in crate::commands) parent: Option<i32>,
    /// Number of levels above this one.
    pub(in crate::commands) depth: usize,
    /// Weight within the parent; a root's own weight.
    pub(in crate::commands) weight: f64,
    /// What stands below, in the order in which it is listed.
    pub(in crate::commands) children: Vec<i32>,
}

impl TreeItem {
    /// The OSD, if it is one.
    pub(in crate::commands) fn osd(&self) -> Option<OsdId> {
        (self.id >= 0).then_some(self.id)
    }

    /// Type and name, indented by depth.
    pub(in crate::commands) fn label(&self, crush: &CrushMap) -> String {
        let indent = "    ".repeat(self.depth);
        match self.osd() {
            Some(osd) => format!("{indent}osd.{osd}"),
            None => format!(
                "{indent}{} {}",
                type_name(crush, self.id),
                crush.item_name(self.id).unwrap_or_default()
            ),
        }
    }
}

fn type_of(crush: &CrushMap, id: i32) -> i32 {
    crush.bucket(id).map_or(0, |bucket| i32::from(bucket.kind))
}

fn type_name(crush: &CrushMap, id: i32) -> &str {
    crush.type_names.get(&type_of(crush, id)).map_or("", String::as_str)
}

/// OSDs by class and number, buckets by name.
fn sort_key(crush: &CrushMap, id: i32) -> String {
    if id >= 0 {
        format!("{}_{id:08}", crush.item_class_name(id).unwrap_or_default())
    } else {
        format!("_{}", crush.item_name(id).unwrap_or_default())
    }
}

fn children(crush: &CrushMap, id: i32) -> Vec<(i32, f64)> {
    let mut children: Vec<_> = crush.bucket(id).map_or_else(Vec::new, |bucket| bucket.entries().collect());
    children.sort_by_cached_key(|(child, _)| sort_key(crush, *child));
    children.into_iter().map(|(child, weight)| (child, fraction(weight))).collect()
}

fn visit(crush: &CrushMap, item: (i32, f64), parent: Option<i32>, depth: usize, out: &mut Vec<TreeItem>) {
    let (id, weight) = item;
    let below = if depth < DEPTH_MAX { children(crush, id) } else { Vec::new() };
    let ids = below.iter().map(|(child, _)| *child).collect();
    out.push(TreeItem { id, parent, depth, weight, children: ids });
    for child in below {
        visit(crush, child, Some(id), depth + 1, out);
    }
}

/// The hierarchy from its roots on, or from one bucket. `shadow` also shows the roots made for device classes.
pub(in crate::commands) fn tree_items(crush: &CrushMap, from: Option<i32>, shadow: bool) -> Vec<TreeItem> {
    let held: std::collections::BTreeSet<i32> =
        crush.each_bucket().flat_map(|bucket| bucket.items.iter().copied()).collect();
    let mut roots: Vec<i32> = match from {
        Some(id) => vec![id],
        None => crush.each_bucket().map(|bucket| bucket.id).filter(|id| !held.contains(id)).collect(),
    };
    roots.retain(|id| from.is_some() || shadow || !crush.is_shadow(*id));
    roots.sort_unstable();
    let mut out = Vec::new();
    for id in roots {
        let weight = crush.bucket(id).map_or(0, |bucket| bucket.weight);
        visit(crush, (id, fraction(weight)), None, 0, &mut out);
    }
    out
}

/// The members that every listing of the hierarchy has; `children` goes last and is not among them.
pub(in crate::commands) fn tree_item_section(crush: &CrushMap, item: &TreeItem) -> Section {
    let mut section = Section::new().with("id", item.id);
    if let Some(class) = crush.item_class_name(item.id) {
        section.put("device_class", class);
    }
    match item.osd() {
        Some(osd) => {
            section.put("name", format!("osd.{osd}"));
            section.put("type", crush.type_names.get(&0).map_or("osd", String::as_str));
            section.put("type_id", 0);
            section.put("crush_weight", item.weight);
            section.put("depth", item.depth);
        }
        None => {
            section.put("name", crush.item_name(item.id).unwrap_or_default());
            section.put("type", type_name(crush, item.id));
            section.put("type_id", type_of(crush, item.id));
        }
    }
    if item.parent.is_some() {
        section.put("pool_weights", Section::new());
    }
    section
}

/// The `children` member of a bucket: last listed first, as Ceph has them.
pub(in crate::commands) fn tree_children(item: &TreeItem) -> Node {
    Node::array("child", item.children.iter().rev().copied())
}
