//! The hierarchy: `osd tree`, `osd crush tree`, `osd df`.

use super::call::{Answer, Call, Failure, refuse};
use super::osd_read::{osd_list, wanted_map};
use super::show::{self, TreeItem, fraction};
use super::table::{Command, command};
use nacre_format::{Align, Node, Section, Table, weight};
use nacre_maps::{OsdMap, flags};
use nacre_types::{Errno, OsdId};
use std::collections::BTreeSet;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd tree name=epoch,type=CephInt,range=0,req=false name=states,type=CephChoices,strings=up|down|in|out|destroyed,n=N,req=false",
        "osd",
        "r",
        "The hierarchy with the state of each OSD",
        tree,
    ),
    command(
        "osd tree-from name=epoch,type=CephInt,range=0,req=false name=bucket,type=CephString name=states,type=CephChoices,strings=up|down|in|out|destroyed,n=N,req=false",
        "osd",
        "r",
        "The hierarchy below a bucket",
        tree,
    ),
    command(
        "osd ls-tree name=epoch,type=CephInt,range=0,req=false name=name,type=CephString",
        "osd",
        "r",
        "Numbers of the OSDs below a bucket",
        ls_tree,
    ),
    command(
        "osd crush tree name=shadow,type=CephChoices,strings=--show-shadow,req=false",
        "osd",
        "r",
        "The hierarchy with its weights",
        crush_tree,
    ),
];

fn state_word(map: &OsdMap, osd: OsdId) -> &'static str {
    match map.state(osd) {
        state if state & flags::osd::EXISTS == 0 => "DNE",
        state if state & flags::osd::UP != 0 => "up",
        state if state & flags::osd::DESTROYED != 0 => "destroyed",
        _ => "down",
    }
}

fn matches(map: &OsdMap, osd: OsdId, states: &[String]) -> bool {
    let fits = |state: &String| match state.as_str() {
        "up" => map.is_up(osd),
        "down" => !map.is_up(osd),
        "in" => map.is_in(osd),
        "out" => !map.is_in(osd),
        "destroyed" => map.state(osd) & flags::osd::DESTROYED != 0,
        _ => false,
    };
    // States of one kind (up, down) add up; those of different kinds narrow down.
    let wanted =
        |group: &[&str]| states.iter().filter(|state| group.contains(&state.as_str())).collect::<Vec<_>>();
    let groups = [wanted(&["up", "down", "destroyed"]), wanted(&["in", "out"])];
    groups.iter().all(|group| group.is_empty() || group.iter().any(|state| fits(state)))
}

/// Keeps OSDs in the wanted states and the buckets above them.
fn narrowed(map: &OsdMap, items: Vec<TreeItem>, states: &[String]) -> Vec<TreeItem> {
    if states.is_empty() {
        return items;
    }
    let mut kept: BTreeSet<i32> =
        items.iter().filter_map(TreeItem::osd).filter(|osd| matches(map, *osd, states)).collect();
    for item in items.iter().rev() {
        if let Some(parent) = item.parent.filter(|_| kept.contains(&item.id)) {
            kept.insert(parent);
        }
    }
    let mut items: Vec<TreeItem> = items.into_iter().filter(|item| kept.contains(&item.id)).collect();
    items.iter_mut().for_each(|item| item.children.retain(|child| kept.contains(child)));
    items
}

fn root(call: &Call<'_>, map: &OsdMap, key: &str) -> Result<Option<i32>, Failure> {
    let Some(name) = call.args.text_opt(key) else { return Ok(None) };
    let found = map.crush.item_by_name(name);
    found.map(Some).ok_or_else(|| refuse(Errno::ENOENT, format!("\"{name}\" does not exist")))
}

fn osd_node(map: &OsdMap, item: &TreeItem, section: &mut Section) {
    let Some(osd) = item.osd() else {
        section.put("children", show::tree_children(item));
        return;
    };
    section.put("exists", u32::from(map.exists(osd)));
    section.put("status", state_word(map, osd));
    section.put("reweight", fraction(map.weight(osd)));
    section.put("primary_affinity", fraction(map.primary_affinity(osd)));
}

/// OSDs that exist and stand nowhere.
fn strays(map: &OsdMap, items: &[TreeItem]) -> Vec<TreeItem> {
    let placed: BTreeSet<i32> = items.iter().map(|item| item.id).collect();
    let stray = map.osds().filter(|osd| !placed.contains(osd));
    stray.map(|osd| TreeItem { id: osd, parent: None, depth: 0, weight: 0.0, children: Vec::new() }).collect()
}

fn tree(call: &mut Call<'_>) -> Answer {
    let map = wanted_map(call)?;
    let from = root(call, &map, "bucket")?;
    let all = show::tree_items(&map.crush, from, false);
    let stray = if from.is_none() { strays(&map, &all) } else { Vec::new() };
    let states = call.args.list("states");
    let (items, stray) = (narrowed(&map, all, states), narrowed(&map, stray, states));
    if call.is_plain() {
        return call.either("tree", tree_text(&map, items.iter().chain(&stray)), Section::new());
    }
    let node = |item: &TreeItem| {
        let mut section = show::tree_item_section(&map.crush, item);
        osd_node(&map, item, &mut section);
        section
    };
    let tree = Section::new()
        .with("nodes", Node::array("item", items.iter().map(node)))
        .with("stray", Node::array("item", stray.iter().map(node)));
    call.tree("tree", tree)
}

fn tree_text<'a>(map: &OsdMap, items: impl Iterator<Item = &'a TreeItem>) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("ID", Left, Right),
        ("CLASS", Left, Right),
        ("WEIGHT", Left, Right),
        ("TYPE NAME", Left, Left),
        ("STATUS", Left, Right),
        ("REWEIGHT", Left, Right),
        ("PRI-AFF", Left, Right),
    ]);
    for item in items {
        let mut row = base_row(map, item).to_vec();
        if let Some(osd) = item.osd() {
            row.push(state_word(map, osd).to_owned());
            if map.exists(osd) {
                row.push(weight(fraction(map.weight(osd))));
                row.push(weight(fraction(map.primary_affinity(osd))));
            } else {
                row.push("0".to_owned());
            }
        }
        table.row(row);
    }
    table.render()
}

/// Id, class, weight and name of an item.
fn base_row(map: &OsdMap, item: &TreeItem) -> [String; 4] {
    [
        item.id.to_string(),
        map.crush.item_class_name(item.id).unwrap_or_default().to_owned(),
        weight(item.weight),
        item.label(&map.crush),
    ]
}

fn crush_tree(call: &mut Call<'_>) -> Answer {
    use Align::{Left, Right};
    let map = call.state.osd.map();
    let items = show::tree_items(&map.crush, None, call.args.text_opt("shadow").is_some());
    let mut table = Table::new(&[
        ("ID", Left, Right),
        ("CLASS", Left, Right),
        ("WEIGHT", Left, Right),
        ("TYPE NAME", Left, Left),
    ]);
    let mut nodes = Vec::new();
    for item in &items {
        table.row(base_row(map, item));
        let mut section = show::tree_item_section(&map.crush, item);
        if item.osd().is_none() {
            section.put("children", show::tree_children(item));
        }
        nodes.push(section);
    }
    let tree = Section::new()
        .with("nodes", Node::array("item", nodes))
        .with("stray", Node::array("item", Vec::<Node>::new()));
    call.either("tree", table.render(), tree)
}

fn ls_tree(call: &mut Call<'_>) -> Answer {
    let map = wanted_map(call)?;
    let from = root(call, &map, "name")?;
    let osds: BTreeSet<OsdId> =
        show::tree_items(&map.crush, from, false).iter().filter_map(TreeItem::osd).collect();
    osd_list(call, &osds.into_iter().collect::<Vec<_>>())
}
