//! What people look at to see how the cluster is, as one tree: the web page of the active manager and `nacre top` show it, so that both say
//! the same. It is bounded: of what there may be very many of, there are the worst or the largest.

pub(crate) mod clients;
mod osds;

use crate::health::{Check, checks, overall, words};
use crate::state::State;
use nacre_format::{Node, Section};
use nacre_maps::OsdMap;
use nacre_mgr::pgmap::{Digest, Rate, Recovery, pool_usages};
use nacre_mgr::{ImageSums, Sample};
use nacre_msg::SlowRequest;
use nacre_types::version::VERSION_TEXT;
use nacre_types::{OsdId, PoolId, Stamp, UTime};

/// Lines of each health check.
const DETAILS_COUNT_MAX: usize = 20;
/// Pools, those that use the most.
const POOLS_COUNT_MAX: usize = 200;
/// Images, those with the most requests since this manager began.
const IMAGES_COUNT_MAX: usize = 100;
/// Requests that are slow, the oldest.
const SLOW_REQUESTS_COUNT_MAX: usize = 50;

/// How the cluster is, now.
#[must_use]
pub fn tree(state: &State, now: Stamp, wall: UTime) -> Section {
    let map = state.osd.map();
    let digest = state.shown_pgs().digest(map);
    Section::new()
        .with("fsid", state.fsid.to_string())
        .with("version", VERSION_TEXT)
        .with("at", wall.sec)
        .with("manager", state.mgr.map().active_name.as_str())
        .with("own_manager", state.mgr.own_is_active())
        .with("health", health(state))
        .with("monitors", Node::array("monitor", monitors(state)))
        .with("osdmap", Section::new().with("epoch", map.epoch).with("flags", map.flag_names()))
        .with("usage", usage(&digest))
        .with("pgs", pgs(&digest))
        .with("io", rate(state, None))
        .with("recovery_known", state.is_warm())
        .with("recovery", recovery(state, now))
        .with("osds", Node::array("osd", osds::all(state, map, &digest)))
        .with("pools", Node::array("pool", pools(state, map, &digest)))
        .with("images", images(state, map))
        .with("clients", clients::all(state, map, now))
        .with("slow_requests", Node::array("request", slow_requests(state)))
}

/// Samples of the last hour, newer than the second `after` of the calendar.
#[must_use]
pub fn samples(state: &State, after: u32) -> Vec<Sample> {
    state.stats.history.samples(after).copied().collect()
}

/// Names of columns, and a row for each sample. What is not known is -1.
#[must_use]
pub fn history(samples: &[Sample]) -> Section {
    let columns = [
        "at",
        "read_ops",
        "write_ops",
        "read_bytes",
        "write_bytes",
        "recovered_bytes",
        "read_us",
        "write_us",
        "device_read_us_p99",
        "device_write_us_p99",
    ];
    let known = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok()).unwrap_or(-1);
    let row = |sample: &Sample| {
        let counts = sample.rate.map(|rate| {
            [rate.read_ops, rate.write_ops, rate.read_bytes, rate.write_bytes, rate.recovered_bytes].map(Some)
        });
        let times = [sample.read_us, sample.write_us, sample.device_read_us_p99, sample.device_write_us_p99];
        let values =
            counts.unwrap_or_default().into_iter().chain(times).map(|value| Node::from(known(value)));
        Node::array("value", [Node::from(sample.at.sec)].into_iter().chain(values))
    };
    Section::new()
        .with("period_s", nacre_mgr::SAMPLE_PERIOD.as_secs())
        .with("columns", Node::array("column", columns))
        .with("rows", Node::array("row", samples.iter().map(row)))
}

/// What the history is to keep of this moment.
pub(crate) fn sample(state: &State, wall: UTime) -> Sample {
    let counters = &state.stats.counters;
    let us = |path| counters.mean_of_late(path).map(|ns| ns / 1000);
    let [device_read_us_p99, device_write_us_p99] = osds::latest_p99(state);
    Sample {
        at: wall,
        rate: known_rate(state, None),
        read_us: us("osd.op_r_latency"),
        write_us: us("osd.op_w_latency"),
        device_read_us_p99,
        device_write_us_p99,
    }
}

fn null() -> Node {
    Node::Raw("null".to_owned())
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn health(state: &State) -> Section {
    let all = checks(state);
    let check = |check: &Check| {
        let lines = check.detail.iter().take(DETAILS_COUNT_MAX);
        let words = words(&check.code);
        Section::new()
            .with("code", check.code.as_ref())
            .with("severity", check.severity.as_str())
            .with("muted", check.muted)
            .with("summary", check.summary.as_str())
            .with("means", words.map_or("", |words| words.means))
            .with("advice", words.map_or("", |words| words.advice))
            .with("detail", Node::array("line", lines))
            .with("details_left_out", check.detail.len().saturating_sub(DETAILS_COUNT_MAX))
    };
    Section::new()
        .with("status", overall(&all).as_str())
        .with("checks", Node::array("check", all.iter().map(check)))
}

fn monitors(state: &State) -> Vec<Section> {
    let fact = |name: &String| state.monitor_facts.get(name).and_then(|facts| facts.get("hostname"));
    let one = |name: &String| {
        Section::new()
            .with("name", name)
            .with("host", fact(name).map_or("", String::as_str))
            .with("in_quorum", state.quorum.has(name))
            .with("leads", *name == state.name)
    };
    state.mon.map().ranks.iter().map(one).collect()
}

fn usage(digest: &Digest) -> Section {
    let statfs = &digest.osd_sum.statfs;
    Section::new()
        .with("total_bytes", statfs.total)
        .with("used_bytes", statfs.used_raw())
        .with("available_bytes", statfs.available)
        .with("objects", digest.sum.stats.num_objects)
        .with("data_bytes", digest.sum.stats.num_bytes)
}

fn pgs(digest: &Digest) -> Section {
    let stats = &digest.sum.stats;
    Section::new()
        .with("count", digest.pg_count)
        .with("states", digest.states().into_iter().collect::<Section>())
        .with("unknown", digest.unknown_count)
        .with("inactive", digest.inactive_count())
        .with("copies", stats.num_object_copies)
        .with("degraded", stats.num_objects_degraded)
        .with("misplaced", stats.num_objects_misplaced)
        .with("unfound", stats.num_objects_unfound)
}

/// What goes on, unless too little has been reported yet to tell.
fn known_rate(state: &State, pool: Option<PoolId>) -> Option<Rate> {
    state.stats.pgs.known_rate(pool).filter(|_| state.is_warm())
}

fn rate(state: &State, pool: Option<PoolId>) -> Node {
    let Some(rate) = known_rate(state, pool) else { return null() };
    Section::new()
        .with("read_ops", rate.read_ops)
        .with("write_ops", rate.write_ops)
        .with("read_bytes", rate.read_bytes)
        .with("write_bytes", rate.write_bytes)
        .with("recovered_objects", rate.recovered_objects)
        .with("recovered_bytes", rate.recovered_bytes)
        .into()
}

fn recovery(state: &State, now: Stamp) -> Node {
    let tree = |recovery: &Recovery| {
        let remaining = recovery.remaining(now).map(|left| left.as_secs());
        Section::new()
            .with("copies_left", recovery.copies_left)
            .with("share_done", recovery.share())
            .with("lasts_s", recovery.lasts(now).as_secs())
            .with("remaining_s", remaining.map_or_else(null, Node::from))
            .into()
    };
    state.stats.pgs.progress.recovery.as_ref().map_or_else(null, tree)
}

fn pools(state: &State, map: &OsdMap, digest: &Digest) -> Vec<Section> {
    let usages = pool_usages(state.shown_pgs(), map, &digest.pools);
    let used =
        |id: &PoolId| usages.get(id).map_or(0, |usage| usage.used_data.saturating_add(usage.used_omap));
    let mut ids: Vec<PoolId> = map.pools.keys().copied().collect();
    ids.sort_by_key(|id| (std::cmp::Reverse(used(id)), *id));
    ids.truncate(POOLS_COUNT_MAX);
    let one = |id: PoolId| {
        let usage = usages.get(&id);
        let objects = digest.pools.get(&id).map_or(0, |sum| unsigned(sum.stats.num_objects));
        Section::new()
            .with("id", id)
            .with("name", map.pool_names.get(&id).map_or("", String::as_str))
            .with("pgs", map.pools.get(&id).map_or(0, |pool| pool.pg_num))
            .with("size", map.pools.get(&id).map_or(0, |pool| pool.size))
            .with("objects", objects)
            .with(
                "stored_bytes",
                usage.map_or(0, |usage| usage.stored_data.saturating_add(usage.stored_omap)),
            )
            .with("used_bytes", used(&id))
            .with("available_bytes", usage.map_or(0, |usage| usage.max_avail))
            .with("io", rate(state, Some(id)))
    };
    ids.into_iter().map(one).collect()
}

/// Sums since this manager began: who looks twice knows the rates. OSDs tell them to our own manager alone.
fn images(state: &State, map: &OsdMap) -> Node {
    if !state.mgr.own_is_active() {
        return null();
    }
    let mut all = state.stats.images.all();
    let ops = |sums: &ImageSums| sums.read_ops.saturating_add(sums.write_ops);
    all.sort_by_key(|(.., sums)| std::cmp::Reverse(ops(sums)));
    all.truncate(IMAGES_COUNT_MAX);
    let one = |(pool, namespace, name, sums): (PoolId, String, String, ImageSums)| {
        let us = |(ns, _): (u64, u64)| ns / 1000;
        Section::new()
            .with("pool", map.pool_names.get(&pool).map_or("", String::as_str))
            .with("namespace", namespace)
            .with("name", name)
            .with("read_ops", sums.read_ops)
            .with("write_ops", sums.write_ops)
            .with("read_bytes", sums.read_bytes)
            .with("write_bytes", sums.write_bytes)
            .with("read_us", us(sums.read_latency))
            .with("write_us", us(sums.write_latency))
    };
    Node::array("image", all.into_iter().map(one))
}

fn slow_requests(state: &State) -> Vec<Section> {
    let stage = |(name, at_ms): &(String, u64)| Section::new().with("stage", name).with("at_ms", *at_ms);
    let one = |(osd, request): (OsdId, &SlowRequest)| {
        Section::new()
            .with("osd", osd)
            .with("description", request.description.as_str())
            .with("age_ms", request.age_ms)
            .with("waits_for", request.waits_for.as_str())
            .with("stages", Node::array("stage", request.stages.iter().map(stage)))
    };
    state.stats.slow_requests.oldest(SLOW_REQUESTS_COUNT_MAX).into_iter().map(one).collect()
}
