//! What OSDs report of their PGs and themselves.

use super::call::{Answer, Call, Failure, fail, refuse};
use super::osd_read::existing;
use super::pg_text;
use super::status::{client_rate_text, recovery_rate_text};
use super::table::{Command, command};
use crate::command::Output;
use nacre_format::{Align, Format, Node, Section, Table, bytes, stamp};
use nacre_maps::OsdMap;
use nacre_mgr::PgMap;
use nacre_mgr::pgmap::{self, Digest};
use nacre_msg::stats::{PgStat, pg_state};
use nacre_types::{Errno, OsdId, PgId, PoolId, seconds};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const COMMANDS: &[Command] = &[
    command("pg stat", "pg", "r", "Summary of the PGs", stat),
    command(
        "pg dump name=dumpcontents,type=CephChoices,strings=all|summary|sum|delta|pools|osds|pgs|pgs_brief,n=N,req=false",
        "pg",
        "r",
        "Everything about PGs, pools and OSDs, or parts of it",
        dump,
    ),
    command(
        "pg dump_json name=dumpcontents,type=CephChoices,strings=all|summary|sum|pools|osds|pgs,n=N,req=false",
        "pg",
        "r",
        "As pg dump, always as JSON",
        dump_json,
    ),
    command("pg dump_pools_json", "pg", "r", "Sums of the pools as JSON", dump_pools_json),
    command(
        "pg ls name=pool,type=CephInt,req=false name=states,type=CephString,n=N,req=false",
        "pg",
        "r",
        "PGs of a pool or in given states",
        ls,
    ),
    command(
        "pg ls-by-pool name=poolstr,type=CephString name=states,type=CephString,n=N,req=false",
        "pg",
        "r",
        "PGs of a pool",
        ls_by_pool,
    ),
    command(
        "pg ls-by-osd name=osd,type=CephOsdName name=pool,type=CephInt,req=false name=states,type=CephString,n=N,req=false",
        "pg",
        "r",
        "PGs that an OSD has",
        ls_by_osd,
    ),
    command(
        "pg ls-by-primary name=osd,type=CephOsdName name=pool,type=CephInt,req=false name=states,type=CephString,n=N,req=false",
        "pg",
        "r",
        "PGs that an OSD leads",
        ls_by_primary,
    ),
    command(
        "pg dump_stuck name=stuckops,type=CephChoices,strings=inactive|unclean|stale|undersized|degraded,n=N,req=false name=threshold,type=CephInt,req=false",
        "pg",
        "r",
        "PGs that have been in a bad state for long",
        dump_stuck,
    ),
    command(
        "pg debug name=debugop,type=CephChoices,strings=unfound_objects_exist|degraded_pgs_exist",
        "pg",
        "r",
        "Are there unfound objects or degraded PGs",
        debug,
    ),
    command("osd perf", "osd", "r", "Latency of the OSDs' stores", perf),
    command("osd blocked-by", "osd", "r", "OSDs that others wait for", blocked_by),
];

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn pg_summary(digest: &Digest) -> Section {
    let states =
        digest.states_by_bits().map(|(name, count)| Section::new().with("name", name).with("num", count));
    let statfs = &digest.osd_sum.statfs;
    Section::new()
        .with("num_pg_by_state", Node::array("num_pg_by_state", states))
        .with("num_pgs", digest.pg_count)
        .with("num_bytes", digest.sum.stats.num_bytes)
        .with("total_bytes", statfs.total)
        .with("total_avail_bytes", statfs.available)
        .with("total_used_bytes", statfs.used_raw())
        .with("total_used_raw_bytes", statfs.used_raw())
}

fn stat(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let digest = call.state.shown_pgs().digest(map);
    let rate = call.state.stats.pgs.rate(None);
    let states: Vec<String> =
        digest.states_by_bits().map(|(name, count)| format!("{count} {name}")).collect();
    let statfs = &digest.osd_sum.statfs;
    let mut plain = format!(
        "{} pgs: {}; {} data, {} used, {} / {} avail",
        digest.pg_count,
        states.join(", "),
        bytes(unsigned(digest.sum.stats.num_bytes)),
        bytes(unsigned(statfs.used_raw())),
        bytes(unsigned(statfs.available)),
        bytes(unsigned(statfs.total)),
    );
    for text in
        [client_rate_text(&rate), recovery_rate_text(&rate)].into_iter().filter(|text| !text.is_empty())
    {
        plain.push_str(&format!("; {text}"));
    }
    let mut summary = pg_summary(&digest);
    summary.extend(super::status::rate_tree(&rate));
    call.either("pg_stat", plain + "\n", Section::new().with("pg_ready", true).with("pg_summary", summary))
}

/// What `pg dump` is asked for.
fn parts(call: &Call<'_>) -> BTreeSet<String> {
    let mut parts: BTreeSet<String> = call.args.list("dumpcontents").iter().cloned().collect();
    if parts.is_empty() || parts.contains("all") {
        parts.extend(["summary", "sum", "pools", "osds", "pgs", "delta"].map(str::to_owned));
        parts.insert("all".to_owned());
    }
    parts
}

fn pg_nodes<'a>(map: &'a OsdMap, pgs: impl Iterator<Item = (PgId, &'a PgStat)> + 'a) -> Node {
    Node::array("pg_stat", pgs.map(|(pg, stat)| pgmap::pg_stat(pg, stat, PgMap::state_of(stat, map))))
}

fn basic(call: &Call<'_>) -> Section {
    Section::new()
        .with("version", call.state.stats.pgs.version)
        .with("stamp", stamp(call.state.stats.pgs.stamp))
        .with("last_osdmap_epoch", 0)
        .with("last_pg_scan", 0)
}

fn sums(digest: &Digest) -> Section {
    Section::new()
        .with("pg_stats_sum", pgmap::pool_stat(&digest.sum))
        .with("osd_stats_sum", pgmap::osd_stat_body(&digest.osd_sum))
}

fn no_delta() -> Section {
    pgmap::pool_stat(&pgmap::PoolSum::default()).with("stamp_delta", "0.000000")
}

fn pool_nodes(digest: &Digest) -> Node {
    Node::array("pool_stat", digest.pools.iter().rev().map(|(id, sum)| pgmap::pool_row(*id, sum)))
}

fn osd_nodes(call: &Call<'_>) -> Node {
    Node::array("osd_stat", call.state.stats.pgs.osds().rev().map(|(osd, stat)| pgmap::osd_stat(osd, stat)))
}

fn dump_tree(call: &Call<'_>, parts: &BTreeSet<String>) -> Section {
    let map = call.state.osd.map();
    let digest = call.state.stats.pgs.digest(map);
    let has = |part: &str| parts.contains(part);
    let pgs = || pg_nodes(map, call.state.stats.pgs.pgs(map));
    let mut tree = Section::new().with("pg_ready", true);
    if has("all") || has("summary") || has("sum") {
        let mut inner = basic(call);
        inner.extend(sums(&digest));
        inner.put("pg_stats_delta", no_delta());
        if has("all") {
            inner.put("pg_stats", pgs());
            inner.put("pool_stats", pool_nodes(&digest));
            inner.put("osd_stats", osd_nodes(call));
            inner.put("pool_statfs", Node::array("pool", Vec::<Node>::new()));
        }
        tree.put("pg_map", inner);
        return tree;
    }
    if has("pools") {
        tree.put("pool_stats", pool_nodes(&digest));
    }
    if has("osds") {
        tree.put("osd_stats", osd_nodes(call));
    }
    if has("pgs") {
        tree.put("pg_stats", pgs());
    }
    if has("pgs_brief") {
        let brief = call
            .state
            .stats
            .pgs
            .pgs(map)
            .map(|(pg, stat)| pgmap::pg_brief(pg, stat, PgMap::state_of(stat, map)));
        tree.put("pg_stats", Node::array("pg_stat", brief));
    }
    if has("delta") {
        tree.put("pg_stats_delta", no_delta());
    }
    tree
}

fn dump_text(call: &Call<'_>, parts: &BTreeSet<String>) -> String {
    let map = call.state.osd.map();
    let digest = call.state.stats.pgs.digest(map);
    let has = |part: &str| parts.contains(part);
    let mut out = String::new();
    if has("all") || has("summary") || has("sum") {
        let pgs = &call.state.stats.pgs;
        out.push_str(&format!(
            "version {}\nstamp {}\nlast_osdmap_epoch 0\nlast_pg_scan 0\n",
            pgs.version,
            stamp(pgs.stamp)
        ));
    }
    if has("all") || has("pgs") {
        out.push_str(&pg_text::full(map, call.state.stats.pgs.pgs(map)));
        out.push('\n');
    }
    if has("pgs_brief") {
        out.push_str(&pg_text::brief(map, call.state.stats.pgs.pgs(map)));
    }
    if has("all") || has("pools") {
        out.push_str(&pg_text::pools(&digest));
        out.push('\n');
    }
    if has("all") || has("summary") || has("sum") {
        out.push_str(&pg_text::sums(&digest));
    }
    if has("all") || has("osds") {
        out.push_str(&pg_text::osds(call, &digest));
    } else if has("summary") || has("sum") {
        out.push_str(&pg_text::osd_sum(&digest));
    }
    if ["all", "summary", "sum", "pools", "pgs"].iter().any(|part| has(part)) {
        out.push_str(pg_text::OMAP_NOTE);
    }
    out
}

fn dump(call: &mut Call<'_>) -> Answer {
    let parts = parts(call);
    let words = call.args.list("dumpcontents");
    let name = if words.is_empty() { "all".to_owned() } else { words.join(",") };
    let output = if call.is_plain() {
        Output::data(dump_text(call, &parts))
    } else {
        call.tree("pg_dump", dump_tree(call, &parts))?
    };
    Ok(Output { text: format!("dumped {name}"), ..output })
}

fn dump_json(call: &mut Call<'_>) -> Answer {
    call.format = call.format.or(Format::Json);
    dump(call)
}

fn dump_pools_json(call: &mut Call<'_>) -> Answer {
    call.format = call.format.or(Format::Json);
    let digest = call.state.stats.pgs.digest(call.state.osd.map());
    call.tree("pg_dump", Section::new().with("pg_ready", true).with("pool_stats", pool_nodes(&digest)))
}

/// Which PGs a listing wants.
#[derive(Default)]
struct Filter {
    pool: Option<PoolId>,
    member: Option<OsdId>,
    primary: Option<OsdId>,
    /// All of these bits; any one of the entries suffices.
    states: Vec<u64>,
}

/// The bit of a state's name.
fn state_bit(name: &str) -> Option<u64> {
    (0..64).map(|bit| 1_u64 << bit).find(|bit| pg_state::text(*bit) == name)
}

impl Filter {
    fn states(words: &[String]) -> Result<Vec<u64>, Failure> {
        let bits = |word: &String| {
            let wrong = || refuse(Errno::EINVAL, format!("'{word}' is not a valid pg state"));
            word.split('+')
                .filter(|name| *name != "all")
                .map(|name| state_bit(name).ok_or_else(wrong))
                .try_fold(0, |all, bit| Ok(all | bit?))
        };
        words.iter().map(bits).collect()
    }

    fn takes(&self, pg: PgId, stat: &PgStat, state: u64) -> bool {
        let has = |osd: OsdId| stat.up.contains(&osd) || stat.acting.contains(&osd);
        self.pool.is_none_or(|pool| pool == pg.pool)
            && self.member.is_none_or(has)
            && self.primary.is_none_or(|osd| osd == stat.acting_primary)
            && (self.states.is_empty() || self.states.iter().any(|bits| state & bits == *bits))
    }
}

fn list(call: &Call<'_>, filter: &Filter) -> Answer {
    let map = call.state.osd.map();
    let wanted = || {
        call.state.stats.pgs.pgs(map).filter(|(pg, stat)| filter.takes(*pg, stat, PgMap::state_of(stat, map)))
    };
    if call.is_plain() {
        let text = pg_text::listing(call, map, wanted()) + pg_text::OMAP_NOTE;
        return Ok(Output::data(text));
    }
    call.tree("pg_ls", Section::new().with("pg_ready", true).with("pg_stats", pg_nodes(map, wanted())))
}

fn pool_argument(call: &Call<'_>) -> Result<Option<PoolId>, Failure> {
    match call.args.int("pool") {
        Some(pool) if call.state.osd.map().pool(pool).is_none() => {
            fail(Errno::ENOENT, format!("pool {pool} does not exist"))
        }
        pool => Ok(pool),
    }
}

fn states_argument(call: &Call<'_>) -> Result<Vec<u64>, Failure> {
    Filter::states(call.args.list("states"))
}

fn ls(call: &mut Call<'_>) -> Answer {
    let filter = Filter { pool: pool_argument(call)?, states: states_argument(call)?, ..Filter::default() };
    list(call, &filter)
}

fn ls_by_pool(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("poolstr");
    let Some(pool) = call.state.osd.map().pool_by_name(name) else {
        return fail(Errno::ENOENT, format!("pool {name} does not exist"));
    };
    list(call, &Filter { pool: Some(pool), states: states_argument(call)?, ..Filter::default() })
}

fn ls_by_osd(call: &mut Call<'_>) -> Answer {
    let osd = existing(call.state.osd.map(), call.args.int("osd"))?;
    let (pool, states) = (pool_argument(call)?, states_argument(call)?);
    list(call, &Filter { pool, member: Some(osd), states, ..Filter::default() })
}

fn ls_by_primary(call: &mut Call<'_>) -> Answer {
    let osd = existing(call.state.osd.map(), call.args.int("osd"))?;
    let (pool, states) = (pool_argument(call)?, states_argument(call)?);
    list(call, &Filter { pool, primary: Some(osd), states, ..Filter::default() })
}

/// Since when a PG has been stuck so, if it is.
fn stuck_since(kind: &str, stat: &PgStat, state: u64) -> Option<nacre_types::UTime> {
    let without = |bit: u64| state & bit == 0;
    match kind {
        "inactive" => without(pg_state::ACTIVE).then_some(stat.last_active),
        "unclean" => without(pg_state::CLEAN).then_some(stat.last_clean),
        "stale" => (!without(pg_state::STALE)).then_some(stat.last_unstale),
        "undersized" => (!without(pg_state::UNDERSIZED)).then_some(stat.last_fullsized),
        "degraded" => (!without(pg_state::DEGRADED)).then_some(stat.last_undegraded),
        _ => None,
    }
}

fn dump_stuck(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let kinds = match call.args.list("stuckops") {
        [] => vec!["unclean".to_owned()],
        kinds => kinds.to_vec(),
    };
    let default = call.state.config.number_of_monitor("mon_pg_stuck_threshold", 60.0);
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let threshold = seconds(call.args.int("threshold").map_or(default, |value| value as f64));
    let wanted = || {
        call.state.stats.pgs.pgs(map).filter(|(_, stat)| {
            let state = PgMap::state_of(stat, map);
            let since = kinds.iter().find_map(|kind| stuck_since(kind, stat, state));
            since.is_some_and(|since| call.wall.since(since) >= threshold)
        })
    };
    let output = if call.is_plain() {
        let text = if wanted().next().is_some() { pg_text::brief(map, wanted()) } else { String::new() };
        Output::data(text)
    } else {
        call.tree(
            "pg_stuck",
            Section::new().with("pg_ready", true).with("stuck_pg_stats", pg_nodes(map, wanted())),
        )?
    };
    Ok(Output { text: "ok".to_owned(), ..output })
}

fn debug(call: &mut Call<'_>) -> Answer {
    let digest = call.state.stats.pgs.digest(call.state.osd.map());
    let found = match call.args.text("debugop") {
        "unfound_objects_exist" => digest.sum.stats.num_objects_unfound > 0,
        _ => digest.sum.stats.num_objects_degraded > 0,
    };
    Ok(Output::data(if found { "TRUE\n" } else { "FALSE\n" }))
}

fn perf(call: &mut Call<'_>) -> Answer {
    let right = |name| (name, Align::Left, Align::Right);
    let mut table = Table::new(&[right("osd"), right("commit_latency(ms)"), right("apply_latency(ms)")]);
    let mut tree = Vec::new();
    for (osd, stat) in call.state.stats.pgs.osds().rev() {
        let latency = &stat.perf_stat;
        let (commit, apply) = (latency.commit_latency_ns, latency.apply_latency_ns);
        if (commit, apply) == (0, 0) {
            continue; // no write of clients was committed in the time of its last report
        }
        table.row([osd.to_string(), (commit / 1_000_000).to_string(), (apply / 1_000_000).to_string()]);
        let stats = Section::new()
            .with("commit_latency_ms", commit / 1_000_000)
            .with("apply_latency_ms", apply / 1_000_000)
            .with("commit_latency_ns", commit)
            .with("apply_latency_ns", apply);
        tree.push(Section::new().with("id", osd).with("perf_stats", stats));
    }
    let infos = Section::new().with("osd_perf_infos", Node::array("osd", tree));
    call.either("osd_perf", table.render(), Section::new().with("pg_ready", true).with("osdstats", infos))
}

fn blocked_by(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let mut counts: BTreeMap<OsdId, usize> = BTreeMap::new();
    for (_, stat) in call.state.stats.pgs.pgs(map) {
        for osd in &stat.blocked_by {
            *counts.entry(*osd).or_default() += 1;
        }
    }
    let mut table = Table::aligned(&[("osd", Align::Right), ("num_blocked", Align::Right)]);
    for (osd, count) in &counts {
        table.row([osd.to_string(), count.to_string()]);
    }
    let infos = counts.iter().map(|(osd, count)| Section::new().with("id", *osd).with("num_blocked", *count));
    let tree = Section::new().with("osd_blocked_by_infos", Node::array("osd", infos));
    call.either(
        "osd_blocked_by",
        table.render(),
        Section::new().with("pg_ready", true).with("osd_blocked_by", tree),
    )
}
