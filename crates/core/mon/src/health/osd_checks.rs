//! Checks on OSDs, by the OSDMap and by what they say of themselves.

use super::{Check, Severity, plural};
use crate::osd::{BootRefusal, view};
use crate::state::State;
use nacre_maps::{OsdMap, flags};
use nacre_msg::stats::{OsdStat, SlowOps, osd_alert};
use nacre_types::{OsdId, PoolId};
use std::collections::BTreeMap;

/// Flags that an operator set and may have forgotten.
const TEMPORARY_FLAGS: u32 = flags::osdmap::PAUSE_READ
    | flags::osdmap::PAUSE_WRITE
    | flags::osdmap::PAUSE_RECOVERY
    | flags::osdmap::NOUP
    | flags::osdmap::NODOWN
    | flags::osdmap::NOOUT
    | flags::osdmap::NOIN
    | flags::osdmap::NOBACKFILL
    | flags::osdmap::NORECOVER
    | flags::osdmap::NOSCRUB
    | flags::osdmap::NODEEP_SCRUB
    | flags::osdmap::NOTIERAGENT
    | flags::osdmap::NOSNAPTRIM
    | flags::osdmap::NOREBALANCE;

pub(super) fn checks(state: &State, map: &OsdMap) -> Vec<Check> {
    let mut out = down_checks(map);
    out.extend(fullness_checks(map));
    out.extend(flags_check(map));
    out.extend(ahead_check(state, map));
    out.extend(merges_check(state, map));
    out.extend(refused_check(state, map));
    out.extend(alert_checks(state, map));
    out.extend(slow_ops(state, map));
    out.extend(too_many_repairs(state, map));
    out.extend(too_few(state, map));
    out
}

/// `root=default,host=a`, as Ceph writes a place.
fn place(map: &OsdMap, osd: OsdId) -> String {
    let mut above = view::ancestors(&map.crush, osd);
    above.reverse();
    let name = |id: i32| {
        let kind = map.crush.type_names.get(&i32::from(map.crush.bucket(id)?.kind))?;
        Some(format!("{kind}={}", map.crush.item_name(id)?))
    };
    above.into_iter().filter_map(name).collect::<Vec<_>>().join(",")
}

fn down_checks(map: &OsdMap) -> Vec<Check> {
    let down: Vec<OsdId> = map.osds().filter(|osd| map.is_in(*osd) && map.is_down(*osd)).collect();
    if down.is_empty() {
        return Vec::new();
    }
    let line = |osd: &OsdId| format!("osd.{osd} ({}) is down", place(map, *osd));
    let lines = down.iter().map(line).collect();
    let mut out = vec![Check::new("OSD_DOWN", Severity::Warn, format!("{} osds down", down.len()), lines)];
    let of_in = map.osds().filter(|osd| map.is_in(*osd));
    let places: Vec<(BTreeMap<String, String>, bool)> =
        of_in.map(|osd| (view::location(&map.crush, osd), map.is_down(osd))).collect();
    let kinds = map.crush.type_names.iter().filter(|(kind, _)| **kind > 0);
    out.extend(kinds.filter_map(|(_, kind)| subtree_down(&places, kind)));
    out
}

/// Buckets of one type all of whose OSDs are down: `OSD_HOST_DOWN`, `OSD_RACK_DOWN` and so on. Of each OSD that is in: where it stands, and
/// whether it is down.
fn subtree_down(places: &[(BTreeMap<String, String>, bool)], kind: &str) -> Option<Check> {
    let mut buckets: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (place, is_down) in places {
        if let Some(name) = place.get(kind) {
            let (all, dead) = buckets.entry(name).or_default();
            *all += 1;
            *dead += usize::from(*is_down);
        }
    }
    buckets.retain(|_, (all, dead)| all == dead);
    let osds: usize = buckets.values().map(|(all, _)| all).sum();
    let line = |(name, (all, _)): (&&str, &(usize, usize))| format!("{kind} {name} ({all} osds) is down");
    let lines: Vec<String> = buckets.iter().map(line).collect();
    let plural_kind = format!("{kind}s");
    let summary = format!("{} ({osds} osds) down", plural(buckets.len(), kind, &plural_kind));
    let code = format!("OSD_{}_DOWN", kind.to_uppercase());
    (!lines.is_empty()).then(|| Check::new(code, Severity::Warn, summary, lines))
}

fn fullness_checks(map: &OsdMap) -> Vec<Check> {
    let kinds = [
        (flags::osd::FULL, "OSD_FULL", Severity::Error, "full osd(s)", "is full"),
        (
            flags::osd::BACKFILLFULL,
            "OSD_BACKFILLFULL",
            Severity::Warn,
            "backfillfull osd(s)",
            "is backfill full",
        ),
        (flags::osd::NEARFULL, "OSD_NEARFULL", Severity::Warn, "nearfull osd(s)", "is near full"),
    ];
    let check = |(bit, code, severity, what, is): (u32, &'static str, Severity, &str, &str)| {
        let lines: Vec<String> = map
            .osds()
            .filter(|osd| map.state(*osd) & bit != 0)
            .map(|osd| format!("osd.{osd} {is}"))
            .collect();
        (!lines.is_empty()).then(|| Check::new(code, severity, format!("{} {what}", lines.len()), lines))
    };
    kinds.into_iter().filter_map(check).collect()
}

/// PGs that are to be merged lie in different partitions of an OSD's store, and must come together first.
fn merges_check(state: &State, map: &OsdMap) -> Option<Check> {
    let line = |(pool, osd): (&PoolId, &OsdId)| {
        let name = map.pool_name(*pool).unwrap_or_default();
        format!("pool '{name}': osd.{osd} has no room to bring both pgs to one part of its store")
    };
    let lines: Vec<String> = state.osd.merges_without_room().iter().map(line).collect();
    let summary = format!("{} pool(s) wait for room to merge pgs", lines.len());
    (!lines.is_empty()).then(|| Check::new("POOL_MERGE_WAITS", Severity::Warn, summary, lines))
}

fn flags_check(map: &OsdMap) -> Option<Check> {
    let set = map.flags & TEMPORARY_FLAGS;
    let names = flags::join(set, flags::osdmap::NAMES);
    let summary = format!("{names} flag(s) set");
    (set != 0)
        .then(|| Check::new("OSDMAP_FLAGS", Severity::Warn, summary, Vec::new()).counting(set.count_ones()))
}

/// What OSDs say of themselves: code and text.
const ALERTS: [(&str, &str); 3] = [
    (osd_alert::PEER_MESSAGES, "osds cannot read what others say to them"),
    (osd_alert::CLIENTS_THROTTLED, "osds let clients wait that ask for too much"),
    (osd_alert::COPIES_LOST, "osds have lost copies of pgs, whose records were damaged"),
];

fn alert_checks(state: &State, map: &OsdMap) -> Vec<Check> {
    let check = |(code, what): (&'static str, &str)| {
        let stats = state.stats.pgs.osds().filter(|(osd, _)| map.is_up(*osd));
        let alert = |stat: &OsdStat, osd| stat.alerts.get(&osd)?.get(code).cloned();
        let lines: Vec<String> =
            stats.filter_map(|(osd, stat)| Some(format!("osd.{osd}: {}", alert(stat, osd)?))).collect();
        let summary = format!("{} {what}", lines.len());
        (!lines.is_empty()).then(|| Check::new(code, Severity::Warn, summary, lines))
    };
    ALERTS.into_iter().filter_map(check).collect()
}

/// OSDs that [`slow_ops`] names.
const SLOW_OSDS_MAX: usize = 10;

/// Clients wait for OSDs. Worded and counted as Ceph's manager does (`DaemonHealthMetricCollector.cc`): its summary is what people and
/// tools take numbers from, a check is one however many OSDs it names, and there are no lines of detail.
fn slow_ops(state: &State, map: &OsdMap) -> Option<Check> {
    let said = |(osd, stat): (OsdId, &OsdStat)| {
        let text = stat.alerts.get(&osd)?.get(osd_alert::SLOW_OPS)?;
        Some((format!("osd.{osd}"), SlowOps::from_alert(text)?))
    };
    let up = state.stats.pgs.osds().filter(|(osd, _)| map.is_up(*osd));
    let (names, slow): (Vec<String>, Vec<SlowOps>) = up.filter_map(said).unzip();
    let SlowOps { count, oldest_s } = slow.into_iter().fold(SlowOps::default(), SlowOps::plus);
    let who = match &names[..] {
        [] => return None,
        [name] => format!("{name} has slow ops"),
        [named @ .., _] if names.len() > SLOW_OSDS_MAX => {
            format!("daemons [{}]... have slow ops.", named[..SLOW_OSDS_MAX].join(","))
        }
        names => format!("daemons [{}] have slow ops.", names.join(",")),
    };
    let summary = format!("{count} slow ops, oldest one blocked for {oldest_s} sec, {who}");
    Some(Check::new("SLOW_OPS", Severity::Warn, summary, Vec::new()).counting(1))
}

/// Devices that give back other data than was written, again and again, will be past repair one day.
fn too_many_repairs(state: &State, map: &OsdMap) -> Option<Check> {
    let repairs_max = state.config.number_of_monitor("mon_osd_warn_num_repaired", 10.0);
    let stats = state.stats.pgs.osds().filter(|(osd, _)| map.is_up(*osd));
    let repaired = stats.map(|(osd, stat)| (osd, stat.num_shards_repaired));
    let many = repaired.filter(|(_, count)| *count as f64 > repairs_max);
    let lines: Vec<String> =
        many.map(|(osd, count)| format!("osd.{osd} had {count} reads repaired")).collect();
    let summary = format!("Too many repaired reads on {} OSDs", lines.len());
    (!lines.is_empty()).then(|| Check::new("OSD_TOO_MANY_REPAIRS", Severity::Warn, summary, lines))
}

/// OSDs have seen epochs that this monitor has not made.
fn ahead_check(state: &State, map: &OsdMap) -> Option<Check> {
    let newest = state.osd.published().epoch;
    let line =
        |(osd, epoch): (&OsdId, &u32)| format!("osd.{osd} had epoch {epoch}, this monitor has {newest}");
    let lines: Vec<String> =
        state.osd.ahead().iter().filter(|(osd, _)| map.exists(**osd)).map(line).collect();
    let summary =
        format!("{} osds have newer maps than the monitor, whose store is an older copy", lines.len());
    (!lines.is_empty()).then(|| Check::new("OSD_MAPS_AHEAD", Severity::Error, summary, lines))
}

/// OSDs that are here and may not come up, because of what they are; not those that only have to wait.
fn refused_check(state: &State, map: &OsdMap) -> Option<Check> {
    let told_elsewhere =
        |reason: &BootRefusal| matches!(reason, BootRefusal::NoUp | BootRefusal::Ahead { .. });
    let refused = state.osd.refused_boots.iter().filter(|(osd, _)| map.exists(**osd));
    let lines: Vec<String> = refused
        .filter(|(_, reason)| !told_elsewhere(reason))
        .map(|(osd, reason)| format!("osd.{osd} may not boot: {reason}"))
        .collect();
    let summary = format!("{} osds may not boot", lines.len());
    (!lines.is_empty()).then(|| Check::new("OSD_BOOT_REFUSED", Severity::Warn, summary, lines))
}

fn too_few(state: &State, map: &OsdMap) -> Option<Check> {
    let wanted = state.config.number_of_monitor("osd_pool_default_size", 3.0);
    let count = map.osd_count();
    let summary = format!("OSD count {count} < osd_pool_default_size {wanted}");
    let missing = (count as f64) < wanted;
    missing.then(|| Check::new("TOO_FEW_OSDS", Severity::Warn, summary, Vec::new()).counting(1))
}
