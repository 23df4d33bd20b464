//! What the OSD map says: `osd stat`, `osd dump`, `osd map`, `osd metadata` and the like.

use super::call::{Answer, Call, Failure, fail, refuse};
use super::daemons::{count_values, metadata_section, osd_summary, osd_summary_text, osd_values};
use super::show;
use super::table::{Command, command};
use crate::command::Output;
use nacre_buf::Bytes;
use nacre_denc::{Decode, Encode};
use nacre_format::{Align, Format, Node, Section, Table, general};
use nacre_maps::OsdMap;
use nacre_types::{Epoch, Errno, ObjectLocator, OsdId, PgId};
use std::sync::Arc;

pub(super) const COMMANDS: &[Command] = &[
    command("osd stat", "osd", "r", "Summary of the OSDs", stat),
    command("osd dump name=epoch,type=CephInt,range=0,req=false", "osd", "r", "The OSD map", dump),
    command("osd info name=id,type=CephOsdName,req=false", "osd", "r", "One OSD, or all", info),
    command("osd ls name=epoch,type=CephInt,range=0,req=false", "osd", "r", "Numbers of all OSDs", ls),
    command(
        "osd getmap name=epoch,type=CephInt,range=0,req=false",
        "osd",
        "r",
        "The OSD map, encoded",
        getmap,
    ),
    command(
        "osd getcrushmap name=epoch,type=CephInt,range=0,req=false",
        "osd",
        "r",
        "The CRUSH map, encoded",
        getcrushmap,
    ),
    command("osd getmaxosd", "osd", "r", "Number of OSD slots", getmaxosd),
    command("osd find name=id,type=CephOsdName", "osd", "r", "Where an OSD is", find),
    command(
        "osd metadata name=id,type=CephOsdName,req=false",
        "osd",
        "r",
        "What OSDs say of themselves",
        metadata,
    ),
    command(
        "osd count-metadata name=property,type=CephString",
        "osd",
        "r",
        "OSDs by value of one metadata key",
        count_metadata,
    ),
    command("osd versions", "osd", "r", "Versions of OSDs", versions),
    command("osd numa-status", "osd", "r", "How OSDs are bound to processors", numa_status),
    command(
        "osd map name=pool,type=CephPoolname name=object,type=CephObjectname name=nspace,type=CephString,req=false",
        "osd",
        "r",
        "Where an object is",
        map,
    ),
    command("osd lspools", "osd", "r", "Pools by number", lspools),
    command("osd utilization", "osd", "r", "How evenly PGs are spread", utilization),
    command(
        "osd last-stat-seq name=id,type=CephOsdName",
        "osd",
        "r",
        "Number of an OSD's last report",
        last_stat_seq,
    ),
    command(
        "osd get-require-min-compat-client",
        "osd",
        "r",
        "Oldest client release that may connect",
        min_compat_client,
    ),
    command("pg map name=pgid,type=CephPgid", "pg", "r", "Where a PG is", pg_map),
];

/// The map of the epoch that was asked for, or the newest.
pub(super) fn wanted_map(call: &Call<'_>) -> Result<Arc<OsdMap>, Failure> {
    match call.args.int("epoch").filter(|epoch| *epoch != 0) {
        None => Ok(Arc::clone(call.state.osd.map())),
        Some(epoch) => {
            let bytes = encoded(call, epoch)?;
            OsdMap::from_bytes(bytes).map(Arc::new).map_err(|error| refuse(Errno::EIO, error.to_string()))
        }
    }
}

fn encoded(call: &Call<'_>, epoch: i64) -> Result<Bytes, Failure> {
    let found = Epoch::try_from(epoch).ok().and_then(|epoch| call.state.osd.full_map(epoch));
    found.ok_or_else(|| refuse(Errno::ENOENT, format!("there is no map for epoch {epoch}")))
}

/// An OSD that must exist.
pub(super) fn existing(map: &OsdMap, id: Option<i64>) -> Result<OsdId, Failure> {
    let id = id.unwrap_or(-1);
    let osd = OsdId::try_from(id).ok().filter(|osd| map.exists(*osd));
    osd.ok_or_else(|| refuse(Errno::ENOENT, format!("osd.{id} does not exist")))
}

/// A PG that must exist.
pub(super) fn existing_pg(map: &OsdMap, text: &str) -> Result<PgId, Failure> {
    let pg = PgId::parse(text).ok_or_else(|| refuse(Errno::EINVAL, format!("invalid pgid '{text}'")))?;
    let there = map.pool(pg.pool).is_some_and(|pool| pg.seed < pool.pg_num);
    if there { Ok(pg) } else { fail(Errno::ENOENT, format!("pg '{text}' does not exist")) }
}

fn stat(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let plain = format!("{}; epoch: e{}\n", osd_summary_text(call, map), map.epoch);
    call.either("osdmap", plain, osd_summary(call, map))
}

fn dump(call: &mut Call<'_>) -> Answer {
    let map = wanted_map(call)?;
    if call.is_plain() {
        return Ok(Output::data(show::osd_map_text(&map)));
    }
    call.tree("osdmap", show::osd_map(&map))
}

fn info(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    if call.args.int("id").is_some() {
        let osd = existing(map, call.args.int("id"))?;
        return call.either("osd_info", show::osd_line(map, osd) + "\n", show::osd_entry(map, osd));
    }
    let plain: String = map.osds().map(|osd| show::osd_line(map, osd) + "\n").collect();
    call.either("osd_info", plain, Node::array("osd", map.osds().map(|osd| show::osd_entry(map, osd))))
}

/// A list of OSDs: a number per line, or an array.
pub(super) fn osd_list(call: &Call<'_>, osds: &[OsdId]) -> Answer {
    let plain: String = osds.iter().map(|osd| format!("{osd}\n")).collect();
    call.either("osds", plain, Node::array("osd", osds.iter().copied()))
}

fn ls(call: &mut Call<'_>) -> Answer {
    let map = wanted_map(call)?;
    osd_list(call, &map.osds().collect::<Vec<_>>())
}

fn getmap(call: &mut Call<'_>) -> Answer {
    let map = wanted_map(call)?;
    let bytes = encoded(call, map.epoch.into())?;
    Ok(Output { text: format!("got osdmap epoch {}", map.epoch), ..Output::data(bytes) })
}

fn getcrushmap(call: &mut Call<'_>) -> Answer {
    let map = wanted_map(call)?;
    Ok(Output { text: map.crush_version.to_string(), ..Output::data(map.crush.to_bytes()) })
}

fn getmaxosd(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let (epoch, max) = (map.epoch, map.max_osd());
    let tree = Section::new().with("epoch", epoch).with("max_osd", max);
    call.either("getmaxosd", format!("max_osd = {max} in epoch {epoch}\n"), tree)
}

/// Names of the buckets above an item, by type.
fn location(map: &OsdMap, osd: OsdId) -> Section {
    let items = show::tree_items(&map.crush, None, false);
    let mut names = std::collections::BTreeMap::new();
    let mut at = items.iter().find(|item| item.id == osd);
    while let Some(parent) = at.and_then(|item| item.parent) {
        let kind =
            map.crush.bucket(parent).and_then(|bucket| map.crush.type_names.get(&i32::from(bucket.kind)));
        names.insert(
            kind.cloned().unwrap_or_default(),
            map.crush.item_name(parent).unwrap_or_default().to_owned(),
        );
        at = items.iter().find(|item| item.id == parent);
    }
    names.into_iter().collect()
}

fn find(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let osd = existing(map, call.args.int("id"))?;
    let uuid = usize::try_from(osd).ok().and_then(|at| map.osd_uuid.get(at)).copied().unwrap_or_default();
    let mut tree = Section::new()
        .with("osd", osd)
        .with("addrs", show::addr_vec(&map.client_addr(osd).cloned().unwrap_or_default()))
        .with("osd_fsid", uuid.to_string());
    if let Some(host) = call.state.osd.metadata(osd).and_then(|metadata| metadata.get("hostname")) {
        tree.put("host", host);
    }
    call.tree("osd_location", tree.with("crush_location", location(map, osd)))
}

fn metadata(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    if call.args.int("id").is_some() {
        let osd = existing(map, call.args.int("id"))?;
        return call.tree("osd_metadata", metadata_section(call, osd));
    }
    call.tree("osd_metadata", Node::array("osd", map.osds().map(|osd| metadata_section(call, osd))))
}

fn count_metadata(call: &mut Call<'_>) -> Answer {
    let counts = count_values(osd_values(call, call.args.text("property")));
    call.tree("osd", counts)
}

fn versions(call: &mut Call<'_>) -> Answer {
    let counts = count_values(osd_values(call, "ceph_version"));
    call.tree("osd", counts)
}

fn numa_status(call: &mut Call<'_>) -> Answer {
    let left = ["HOST", "CPUS"];
    let columns = ["OSD", "HOST", "NETWORK", "STORAGE", "AFFINITY", "CPUS"]
        .map(|name| (name, Align::Left, if left.contains(&name) { Align::Left } else { Align::Right }));
    let mut table = Table::new(&columns);
    let mut tree = Vec::new();
    for osd in call.state.osd.map().osds() {
        let host = call
            .state
            .osd
            .metadata(osd)
            .and_then(|metadata| metadata.get("hostname"))
            .cloned()
            .unwrap_or_default();
        let dash = || "-".to_owned();
        table.row([osd.to_string(), host.clone(), dash(), dash(), dash(), dash()]);
        tree.push(Section::new().with("osd", osd).with("host", host));
    }
    call.either("numa_status", table.render(), Node::array("osd", tree))
}

fn map(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let name = call.args.text("pool");
    let Some(pool) = map.pool_by_name(name) else {
        return fail(Errno::ENOENT, format!("pool {name} does not exist"));
    };
    let (object, namespace) = (call.args.text("object"), call.args.text("nspace"));
    let locator = ObjectLocator { namespace: namespace.into(), ..ObjectLocator::in_pool(pool) };
    let raw = nacre_maps::full_hash(object.as_bytes(), &locator);
    let pg = map.object_to_pg(object.as_bytes(), &locator).unwrap_or_default();
    let raw_pg = PgId::new(pool, raw);
    let set = map.pg_to_up_acting(pg);
    let full = if namespace.is_empty() { object.to_owned() } else { format!("{namespace}/{object}") };
    let plain = format!(
        "osdmap e{} pool '{name}' ({pool}) object '{full}' -> pg {raw_pg} ({pg}) -> up ({}, p{}) acting ({}, p{})\n",
        map.epoch,
        show::text_set(&set.up),
        set.up_primary,
        show::text_set(&set.acting),
        set.acting_primary,
    );
    let tree = Section::new()
        .with("epoch", map.epoch)
        .with("pool", name)
        .with("pool_id", pool)
        .with("objname", full)
        .with("raw_pgid", raw_pg.to_string())
        .with("pgid", pg.to_string())
        .with("up", Node::array("osd", set.up))
        .with("up_primary", set.up_primary)
        .with("acting", Node::array("osd", set.acting))
        .with("acting_primary", set.acting_primary);
    call.either("osd_map", plain, tree)
}

fn pg_map(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let pg = existing_pg(map, call.args.text("pgid"))?;
    let set = map.pg_to_up_acting(pg);
    let plain = format!(
        "osdmap e{} pg {pg} ({pg}) -> up {} acting {}\n",
        map.epoch,
        show::text_set(&set.up),
        show::text_set(&set.acting)
    );
    let tree = Section::new()
        .with("epoch", map.epoch)
        .with("raw_pgid", pg.to_string())
        .with("pgid", pg.to_string())
        .with("up", Node::array("osd", set.up))
        .with("acting", Node::array("osd", set.acting));
    call.either("pg_map", plain, tree)
}

fn lspools(call: &mut Call<'_>) -> Answer {
    let names = &call.state.osd.map().pool_names;
    let plain: String = names.iter().map(|(id, name)| format!("{id} {name}\n")).collect();
    let tree = names.iter().map(|(id, name)| Section::new().with("poolnum", *id).with("poolname", name));
    call.either("pools", plain, Node::array("pool", tree))
}

/// Ceph computes these in single precision.
#[expect(clippy::cast_possible_truncation, reason = "that is the point")]
fn single(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_precision_loss, reason = "counts of PGs")]
fn utilization(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let mut counts: std::collections::BTreeMap<OsdId, u64> =
        map.osds().filter(|osd| map.is_in(*osd)).map(|osd| (osd, 0)).collect();
    for (id, pool) in &map.pools {
        for seed in 0..pool.pg_num {
            for osd in map.pg_to_up_acting(PgId::new(*id, seed)).up {
                counts.entry(osd).and_modify(|count| *count += 1);
            }
        }
    }
    let number = counts.len().max(1) as f64;
    let total: u64 = counts.values().sum();
    let average = total as f64 / number;
    let spread: f32 = counts.values().map(|count| (single(average) - single(*count as f64)).powi(2)).sum();
    let deviation = f64::from((spread / single(number)).sqrt());
    let expected = (total as f64 / number * (1.0 - 1.0 / number)).sqrt();
    let least = counts.iter().min_by_key(|(osd, count)| (**count, **osd)).map(|(osd, count)| (*osd, *count));
    let most = counts.iter().max_by_key(|(osd, count)| (**count, -**osd)).map(|(osd, count)| (*osd, *count));
    let (least, most) = (least.unwrap_or((-1, 0)), most.unwrap_or((-1, 0)));
    let mean = |count: u64| general(if average > 0.0 { count as f64 / average } else { 0.0 }, 6);
    let plain = format!(
        "avg {}\nstddev {} (expected baseline {})\nmin osd.{} with {} pgs ({} * mean)\nmax osd.{} with {} pgs ({} * mean)\n",
        general(average, 6),
        general(deviation, 6),
        general(expected, 6),
        least.0,
        least.1,
        mean(least.1),
        most.0,
        most.1,
        mean(most.1),
    );
    let tree = Section::new()
        .with("avg_pgs", single(average))
        .with("std_dev", single(deviation))
        .with("expected_baseline_std_dev", single(expected))
        .with("min_osd", least.0)
        .with("min_osd_pgs", least.1)
        .with("max_osd", most.0)
        .with("max_osd_pgs", most.1);
    call.either("utilization", plain, tree)
}

fn last_stat_seq(call: &mut Call<'_>) -> Answer {
    let osd = existing(call.state.osd.map(), call.args.int("id"))?;
    let seq = call.state.stats.pgs.osd(osd).map_or(0, |stat| stat.seq);
    let text = if call.is_plain() { format!("{seq}\n") } else { Node::from(seq).render(Format::Json, "seq") };
    Ok(Output::data(text))
}

fn min_compat_client(call: &mut Call<'_>) -> Answer {
    let name = show::release_name(call.state.osd.map().require_min_compat_client);
    Ok(Output::data(format!("{name}\n")))
}
