//! `osd df`: use of each OSD, flat or along the hierarchy. Ceph `print_osd_utilization` at v16.2.15.

use super::call::{Answer, Call};
use super::show::{self, TreeItem, fraction};
use super::table::{Command, command};
use crate::state::State;
use nacre_format::{Align, Node, Section, Table, bytes, fixed, low_precision, weight};
use nacre_maps::OsdMap;
use nacre_mgr::pgmap::Digest;
use nacre_types::OsdId;
use std::collections::BTreeSet;

pub(super) const COMMANDS: &[Command] = &[command(
    "osd df name=output_method,type=CephChoices,strings=plain|tree,req=false name=filter_by,type=CephChoices,strings=class|name,req=false name=filter,type=CephString,req=false",
    "osd",
    "r",
    "Use of each OSD",
    df,
)];

/// Kibibytes of one OSD or of all below a bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    total: i64,
    used: i64,
    data: i64,
    omap: i64,
    meta: i64,
    avail: i64,
}

impl Use {
    fn of(state: &State, osd: OsdId) -> Self {
        let Some(stat) = state.shown_pgs().osd(osd) else { return Self::default() };
        Self {
            total: stat.statfs.total >> 10,
            used: stat.statfs.used_raw() >> 10,
            data: stat.kb_used_data,
            omap: stat.kb_used_omap,
            meta: stat.kb_used_meta,
            avail: stat.statfs.available >> 10,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            total: self.total + other.total,
            used: self.used + other.used,
            data: self.data + other.data,
            omap: self.omap + other.omap,
            meta: self.meta + other.meta,
            avail: self.avail + other.avail,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    fn percent(self) -> f64 {
        if self.total > 0 { 100.0 * self.used as f64 / self.total as f64 } else { 0.0 }
    }

    fn cells(self) -> [String; 6] {
        let kib = |value: i64| bytes(u64::try_from(value).unwrap_or(0) << 10);
        [self.total, self.used, self.data, self.omap, self.meta, self.avail].map(kib)
    }

    fn section(self) -> Section {
        Section::new()
            .with("kb", self.total)
            .with("kb_used", self.used)
            .with("kb_used_data", self.data)
            .with("kb_used_omap", self.omap)
            .with("kb_used_meta", self.meta)
            .with("kb_avail", self.avail)
    }
}

/// A line of `ceph osd df`.
struct Line {
    item: TreeItem,
    usage: Use,
    reweight: f64,
    variance: f64,
    pgs: usize,
    status: &'static str,
}

struct Report {
    lines: Vec<Line>,
    sum: Use,
    variance_min: f64,
    variance_max: f64,
    deviation: f64,
}

/// OSDs that the `filter` argument leaves.
fn wanted(call: &Call<'_>, map: &OsdMap) -> Option<BTreeSet<OsdId>> {
    let filter = call.args.text("filter");
    match call.args.text_opt("filter_by")? {
        "class" => Some(map.osds().filter(|osd| map.crush.item_class_name(*osd) == Some(filter)).collect()),
        _ => {
            let from = map.crush.item_by_name(filter);
            let items = from.map(|from| show::tree_items(&map.crush, Some(from), false)).unwrap_or_default();
            Some(items.iter().filter_map(TreeItem::osd).collect())
        }
    }
}

/// Use of everything below an item that stands in the tree and is in.
fn below(state: &State, map: &OsdMap, items: &[TreeItem], id: i32) -> Use {
    if id >= 0 {
        return if map.is_in(id) { Use::of(state, id) } else { Use::default() };
    }
    let children = items.iter().find(|item| item.id == id).map_or(&[][..], |item| &item.children);
    children.iter().fold(Use::default(), |sum, child| sum.plus(below(state, map, items, *child)))
}

fn line(
    state: &State,
    map: &OsdMap,
    digest: &Digest,
    items: &[TreeItem],
    item: &TreeItem,
    average: f64,
) -> Line {
    let (usage, reweight, pgs, status) = match item.osd() {
        Some(osd) => (
            if map.is_in(osd) { Use::of(state, osd) } else { Use::default() },
            fraction(map.weight(osd)),
            digest.osd_pgs.get(&osd).map_or(0, |pgs| pgs.members),
            if map.is_up(osd) { "up" } else { "down" },
        ),
        None => (below(state, map, items, item.id), -1.0, 0, ""),
    };
    let variance = if average > 0.0 { usage.percent() / average } else { 0.0 };
    Line { item: item.clone(), usage, reweight, variance, pgs, status }
}

fn report(call: &Call<'_>, map: &OsdMap, tree: bool) -> Report {
    let state = &*call.state;
    let items = show::tree_items(&map.crush, None, false);
    let digest = state.shown_pgs().digest(map);
    let only = wanted(call, map);
    let is_wanted = |osd: OsdId| only.as_ref().is_none_or(|only| only.contains(&osd));
    let osds: BTreeSet<OsdId> =
        items.iter().filter_map(TreeItem::osd).filter(|osd| map.exists(*osd) && is_wanted(*osd)).collect();
    let used: Vec<Use> = osds.iter().filter(|osd| map.is_in(**osd)).map(|osd| Use::of(state, *osd)).collect();
    let sum = used.iter().fold(Use::default(), |sum, one| sum.plus(*one));
    let average = sum.percent();
    let shown = items.iter().filter(|item| item.osd().map_or(tree, |osd| osds.contains(&osd)));
    let mut lines: Vec<Line> = shown.map(|item| line(state, map, &digest, &items, item, average)).collect();
    if !tree {
        lines.sort_by_key(|line| (map.crush.item_class_name(line.item.id).map(str::to_owned), line.item.id));
        lines.dedup_by_key(|line| line.item.id);
    }
    let variances: Vec<f64> = lines
        .iter()
        .filter(|line| line.item.osd().is_some_and(|osd| map.is_in(osd)))
        .map(|line| line.variance)
        .collect();
    let spread: f64 = used.iter().map(|one| (one.percent() - average).powi(2)).sum();
    #[expect(clippy::cast_precision_loss, reason = "a count of OSDs")]
    let deviation = (spread / used.len().max(1) as f64).sqrt();
    Report {
        lines,
        sum,
        variance_min: variances.iter().copied().fold(f64::INFINITY, f64::min),
        variance_max: variances.iter().copied().fold(0.0, f64::max),
        deviation,
    }
}

fn df(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let tree = call.args.text_opt("output_method") == Some("tree");
    let mut report = report(call, map, tree);
    if !report.variance_min.is_finite() {
        report.variance_min = 0.0;
    }
    call.either("nodes", text(map, &report, tree), section(map, &report))
}

fn section(map: &OsdMap, report: &Report) -> Section {
    let nodes = report.lines.iter().map(|line| {
        let mut section = show::tree_item_section(&map.crush, &line.item);
        section.put("reweight", line.reweight);
        section.extend(line.usage.section());
        section.put("utilization", line.usage.percent());
        section.put("var", line.variance);
        section.put("pgs", line.pgs);
        match line.item.osd() {
            Some(_) => section.put("status", line.status),
            None => section.put("children", show::tree_children(&line.item)),
        }
        section
    });
    let sum = report.sum;
    let summary = Section::new()
        .with("total_kb", sum.total)
        .with("total_kb_used", sum.used)
        .with("total_kb_used_data", sum.data)
        .with("total_kb_used_omap", sum.omap)
        .with("total_kb_used_meta", sum.meta)
        .with("total_kb_avail", sum.avail)
        .with("average_utilization", sum.percent())
        .with("min_var", report.variance_min)
        .with("max_var", report.variance_max)
        .with("dev", report.deviation);
    Section::new()
        .with("nodes", Node::array("osd", nodes))
        .with("stray", Node::array("osd", Vec::<Node>::new()))
        .with("summary", summary)
}

fn text(map: &OsdMap, report: &Report, tree: bool) -> String {
    let names = [
        "ID", "CLASS", "WEIGHT", "REWEIGHT", "SIZE", "RAW USE", "DATA", "OMAP", "META", "AVAIL", "%USE",
        "VAR", "PGS", "STATUS",
    ];
    let mut columns: Vec<_> = names.map(|name| (name, Align::Left, Align::Right)).to_vec();
    if tree {
        columns.push(("TYPE NAME", Align::Left, Align::Left));
    }
    let mut table = Table::new(&columns);
    for line in &report.lines {
        let class = map.crush.item_class_name(line.item.id).unwrap_or_default().to_owned();
        let is_osd = line.item.osd().is_some();
        let mut row = vec![line.item.id.to_string(), class, weight(line.item.weight), weight(line.reweight)];
        row.extend(line.usage.cells());
        row.extend([low_precision(line.usage.percent()), low_precision(line.variance)]);
        row.push(if is_osd { line.pgs.to_string() } else { "-".to_owned() });
        row.extend([line.status.to_owned(), line.item.label(&map.crush)]);
        table.row(row);
    }
    let mut total = vec![String::new(), String::new(), String::new(), "TOTAL".to_owned()];
    total.extend(report.sum.cells());
    total.push(low_precision(report.sum.percent()));
    table.row(total);
    let two = |value: f64| fixed(value, 2);
    let deviation = low_precision(report.deviation);
    let (least, most) = (two(report.variance_min), two(report.variance_max));
    format!("{}MIN/MAX VAR: {least}/{most}  STDDEV: {deviation}\n", table.render())
}
