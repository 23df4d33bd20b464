//! Checks on file systems and their metadata servers, by the map and by what servers say in their beacons.
//!
//! Source: Ceph `MDSMap::get_health_checks`, `FSMap::get_health_checks`, `src/messages/MMDSBeacon.h` at v16.2.15.

use super::{Check, Severity};
use crate::fsmap::replacement_for;
use crate::state::State;
use nacre_maps::{FsMap, MdsInfo, MdsMap, Role, fs_flag};
use nacre_msg::MdsHealthMetric;
use std::collections::BTreeMap;

pub(super) fn checks(state: &State) -> Vec<Check> {
    let map = state.fs.map();
    let mut out = complaints(state, map);
    let each = |code, severity, words: fn(usize) -> String, line: &dyn Fn(&MdsMap) -> Option<String>| {
        let lines: Vec<String> = map.filesystems.iter().filter_map(|fs| line(&fs.mds_map)).collect();
        let summary = format!("{} {}", file_systems(lines.len()), words(lines.len()));
        (!lines.is_empty()).then(|| Check::new(code, severity, summary, lines))
    };
    let is_degraded = |count| format!("{} degraded", are(count));
    out.extend(each("FS_DEGRADED", Severity::Warn, is_degraded, &degraded));
    let has_fewer = |count| format!("{} online with fewer MDS than max_mds", are(count));
    out.extend(each("MDS_UP_LESS_THAN_MAX", Severity::Warn, has_fewer, &fewer));
    out.extend(each("MDS_ALL_DOWN", Severity::Error, |count| format!("{} offline", are(count)), &all_down));
    let has_inline = |_| "with deprecated feature inline_data".to_owned();
    out.extend(each("FS_INLINE_DATA_DEPRECATED", Severity::Warn, has_inline, &inline_data));
    let has_old = |count| format!("{} multi-active mds with old snapshots", are(count));
    out.extend(each("MULTIMDS_WITH_OLDSNAPS", Severity::Error, has_old, &old_snapshots));
    out.extend(failed_ranks(map));
    out.extend(missing_standbys(map));
    out
}

fn file_systems(count: usize) -> String {
    super::plural(count, "filesystem", "filesystems")
}

fn are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// Holders of ranks that are laggy: silent for `mds_beacon_grace`, and not replaced. Ceph's health does not speak of them.
fn silent(fs: &MdsMap) -> impl Iterator<Item = &MdsInfo> {
    fs.up.keys().filter_map(|rank| fs.holder(*rank)).filter(|info| info.is_laggy())
}

fn degraded(fs: &MdsMap) -> Option<String> {
    let name = &fs.fs_name;
    let silent: Vec<String> =
        silent(fs).map(|info| format!("mds.{} of rank {} sends no beacons", info.name, info.rank)).collect();
    match silent.is_empty() {
        false => Some(format!("fs {name} is degraded: {}", silent.join(", "))),
        true => fs.is_degraded().then(|| format!("fs {name} is degraded")),
    }
}

fn fewer(fs: &MdsMap) -> Option<String> {
    let count = i32::try_from(fs.in_ranks.len()).unwrap_or(i32::MAX);
    (count < fs.max_mds)
        .then(|| format!("fs {} has {count} MDS online, but wants {}", fs.fs_name, fs.max_mds))
}

fn all_down(fs: &MdsMap) -> Option<String> {
    let is_silent = |rank: &i32| fs.holder(*rank).is_none_or(MdsInfo::is_laggy);
    (fs.max_mds > 0 && fs.up.keys().all(is_silent))
        .then(|| format!("fs {} is offline because no MDS is active for it.", fs.fs_name))
}

fn inline_data(fs: &MdsMap) -> Option<String> {
    let name = &fs.fs_name;
    fs.inline_data_enabled.then(|| format!("fs {name} has deprecated feature inline_data enabled."))
}

fn old_snapshots(fs: &MdsMap) -> Option<String> {
    let had_snapshots = u32::from(fs.ever_allowed_features) & fs_flag::ALLOW_SNAPS != 0;
    (fs.max_mds > 1 && had_snapshots && !fs.has_flag(fs_flag::ALLOW_MULTIMDS_SNAPS))
        .then(|| format!("fs {} may have snapshots that were made before release 13", fs.fs_name))
}

/// Ranks that nobody can take over. Those that somebody can are so for a moment only.
fn failed_ranks(map: &FsMap) -> Option<Check> {
    let stuck = |fs: &nacre_maps::FileSystem| {
        let is_stuck =
            |rank: &&i32| replacement_for(map, Role { fscid: fs.fscid, rank: **rank }, |_| true).is_none();
        let count = fs.mds_map.failed.iter().filter(is_stuck).count();
        let plural = if count > 1 { "s" } else { "" };
        (count > 0).then(|| format!("fs {} has {count} failed mds{plural}", fs.mds_map.fs_name))
    };
    let lines: Vec<String> = map.filesystems.iter().filter_map(stuck).collect();
    let has = if lines.len() == 1 { "has" } else { "have" };
    let summary = format!("{} {has} a failed mds daemon", file_systems(lines.len()));
    (!lines.is_empty()).then(|| Check::new("FS_WITH_FAILED_MDS", Severity::Warn, summary, lines))
}

fn missing_standbys(map: &FsMap) -> Option<Check> {
    let standbys = map.standby_daemons.values().filter(|info| !info.is_laggy()).count();
    let missing = map.filesystems.iter().map(|fs| fs.mds_map.standbys_missing(standbys)).max()?;
    let line = format!("have {standbys}; want {missing} more");
    let summary = "insufficient standby MDS daemons available";
    (missing > 0).then(|| Check::new("MDS_INSUFFICIENT_STANDBY", Severity::Warn, summary, vec![line]))
}

/// What servers complain about: the check's code, and what is said of so many of them.
fn kind(metric: u16) -> Option<(&'static str, &'static str)> {
    Some(match metric {
        1 => ("MDS_TRIM", "MDSs behind on trimming"),
        2 => ("MDS_CLIENT_RECALL", "clients failing to respond to cache pressure"),
        3 => ("MDS_CLIENT_LATE_RELEASE", "clients failing to respond to capability release"),
        4 => ("MDS_CLIENT_RECALL_MANY", "MDSs have many clients failing to respond to cache pressure"),
        5 => (
            "MDS_CLIENT_LATE_RELEASE_MANY",
            "MDSs have many clients failing to respond to capability release",
        ),
        6 => ("MDS_CLIENT_OLDEST_TID", "clients failing to advance oldest client/flush tid"),
        7 => ("MDS_CLIENT_OLDEST_TID_MANY", "MDSs have clients failing to advance oldest client/flush tid"),
        8 => ("MDS_DAMAGE", "MDSs report damaged metadata"),
        9 => ("MDS_READ_ONLY", "MDSs are read only"),
        10 => ("MDS_SLOW_REQUEST", "MDSs report slow requests"),
        11 => ("MDS_CACHE_OVERSIZED", "MDSs report oversized cache"),
        12 => ("MDS_SLOW_METADATA_IO", "MDSs report slow metadata IOs"),
        13 => ("MDS_CLIENTS_LAGGY", "client(s) laggy due to laggy OSDs"),
        _ => return None,
    })
}

fn severity(metric: &MdsHealthMetric) -> Severity {
    match metric.severity {
        0 => Severity::Error,
        1 => Severity::Warn,
        _ => Severity::Ok,
    }
}

fn line(info: &MdsInfo, metric: &MdsHealthMetric) -> String {
    let facts: Vec<String> = metric.metadata.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" {}", facts.join(", ")) };
    format!("mds.{}(mds.{}): {}{facts}", info.name, info.rank, metric.message)
}

/// What servers complain about, and ranks that cannot be used.
fn complaints(state: &State, map: &FsMap) -> Vec<Check> {
    let mut found: BTreeMap<&str, (&str, Severity, Vec<String>)> = BTreeMap::new();
    for (gid, metrics) in state.fs.health() {
        let Some(info) = map.server(*gid) else { continue };
        for metric in metrics {
            // A newer server may have words that nobody here knows.
            let (code, words) =
                kind(metric.kind).unwrap_or(("MDS_UNKNOWN", "complaints of MDSs of a newer release"));
            let entry = found.entry(code).or_insert((words, severity(metric), Vec::new()));
            entry.1 = entry.1.max(severity(metric));
            entry.2.push(line(info, metric));
        }
    }
    let damaged = |fs: &nacre_maps::FileSystem| -> Vec<String> {
        let name = &fs.mds_map.fs_name;
        fs.mds_map.damaged.iter().map(|rank| format!("fs {name} mds.{rank} is damaged")).collect()
    };
    let damaged: Vec<String> = map.filesystems.iter().flat_map(damaged).collect();
    if !damaged.is_empty() {
        let words = if damaged.len() == 1 { "mds daemon damaged" } else { "mds daemons damaged" };
        let entry = found.entry("MDS_DAMAGE").or_insert((words, Severity::Error, Vec::new()));
        entry.1 = Severity::Error;
        entry.2.extend(damaged);
    }
    let check = |(code, (words, severity, lines)): (&str, (&str, Severity, Vec<String>))| {
        Check::new(code.to_owned(), severity, format!("{} {words}", lines.len()), lines)
    };
    found.into_iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_msg::mds_state;
    use nacre_types::UTime;

    #[test]
    fn who_is_silent_is_named_and_all_have_to_be_for_a_file_system_to_be_offline() {
        let mut fs = MdsMap { fs_name: "f".to_owned(), max_mds: 2, ..MdsMap::default() };
        for (gid, rank, state) in
            [(10, 0, mds_state::ACTIVE), (11, 1, mds_state::ACTIVE), (12, 1, mds_state::STANDBY_REPLAY)]
        {
            let name = format!("m{gid}");
            fs.mds_info.insert(gid, MdsInfo { name, global_id: gid, rank, state, ..MdsInfo::default() });
        }
        fs.up.extend([(0, 10), (1, 11)]);
        let silence = |fs: &mut MdsMap, gid| {
            if let Some(info) = fs.mds_info.get_mut(&gid) {
                info.laggy_since = UTime { sec: 1, nsec: 0 };
            }
            (degraded(fs), all_down(fs).is_some())
        };
        assert_eq!(silence(&mut fs, 12), (None, false), "it holds no rank");
        let first = "fs f is degraded: mds.m10 of rank 0 sends no beacons";
        assert_eq!(silence(&mut fs, 10), (Some(first.to_owned()), false));
        assert_eq!(
            silence(&mut fs, 11),
            (Some(format!("{first}, mds.m11 of rank 1 sends no beacons")), true)
        );
    }

    /// No command of ours makes one; a file system that comes from an old release may be so.
    #[test]
    fn several_ranks_over_snapshots_of_old_releases_are_an_error() {
        let flags = u32::from(MdsMap::default().ever_allowed_features) | fs_flag::ALLOW_SNAPS;
        let old = MdsMap {
            max_mds: 2,
            ever_allowed_features: flags.try_into().expect("a byte"),
            flags: fs_flag::ALLOW_SNAPS,
            ..MdsMap::default()
        };
        assert!(old_snapshots(&old).is_some());
        assert!(old_snapshots(&MdsMap { max_mds: 1, ..old.clone() }).is_none());
        assert!(old_snapshots(&MdsMap { flags: old.flags | fs_flag::ALLOW_MULTIMDS_SNAPS, ..old }).is_none());
    }

    #[test]
    fn every_complaint_of_servers_has_its_code() {
        let codes: Vec<&str> = (1..=13).filter_map(kind).map(|(code, _)| code).collect();
        let expected = [
            "MDS_TRIM",
            "MDS_CLIENT_RECALL",
            "MDS_CLIENT_LATE_RELEASE",
            "MDS_CLIENT_RECALL_MANY",
            "MDS_CLIENT_LATE_RELEASE_MANY",
            "MDS_CLIENT_OLDEST_TID",
            "MDS_CLIENT_OLDEST_TID_MANY",
            "MDS_DAMAGE",
            "MDS_READ_ONLY",
            "MDS_SLOW_REQUEST",
            "MDS_CACHE_OVERSIZED",
            "MDS_SLOW_METADATA_IO",
            "MDS_CLIENTS_LAGGY",
        ];
        assert_eq!((codes, kind(14)), (expected.to_vec(), None));
    }
}
