//! Checks on settings of the OSDMap that make no sense together, or are of an age that is over.
//!
//! Source: Ceph `src/osd/OSDMap.cc: check_health` at v16.2.15.

use super::{Check, Severity};
use crate::state::State;
use nacre_crush::{BucketAlg, CrushMap, Tunables};
use nacre_maps::OsdMap;
use std::collections::BTreeSet;

pub(super) fn checks(state: &State, map: &OsdMap) -> Vec<Check> {
    let checks = [
        orphans(map),
        ratios_out_of_order(map),
        old_tunables(state, &map.crush),
        old_straw(state, &map.crush),
        never_out(state),
    ];
    checks.into_iter().flatten().collect()
}

/// A check without lines that affects one thing.
fn one(code: &'static str, summary: String) -> Check {
    Check::new(code, Severity::Warn, summary, Vec::new()).counting(1)
}

/// OSDs that CRUSH places data on and that the map does not have.
fn orphans(map: &OsdMap) -> Option<Check> {
    let items: BTreeSet<i32> =
        map.crush.each_bucket().flat_map(|bucket| bucket.items.iter().copied()).collect();
    let orphans = items.into_iter().filter(|item| *item >= 0 && !map.exists(*item));
    let lines: Vec<String> =
        orphans.map(|osd| format!("osd.{osd} exists in crush map but not in osdmap")).collect();
    let summary = format!("{} osds exist in the crush map but not in the osdmap", lines.len());
    (!lines.is_empty()).then(|| Check::new("OSD_ORPHAN", Severity::Warn, summary, lines))
}

/// An OSD should be near full before it takes no backfill, and that before it is full.
fn ratios_out_of_order(map: &OsdMap) -> Option<Check> {
    let ratios = [
        ("nearfull_ratio", map.nearfull_ratio),
        ("backfillfull_ratio", map.backfillfull_ratio),
        ("full_ratio", map.full_ratio),
    ];
    let pairs = ratios.windows(2).filter(|pair| pair[1].1 < pair[0].1);
    let line =
        |pair: &[(&str, f32)]| format!("{} ({}) < {} ({})", pair[1].0, pair[1].1, pair[0].0, pair[0].1);
    let lines: Vec<String> = pairs.map(line).collect();
    let summary = "full ratio(s) out of order";
    (!lines.is_empty()).then(|| Check::new("OSD_OUT_OF_ORDER_FULL", Severity::Error, summary, lines))
}

/// The oldest release whose clients can place objects by this map. Names ascend by the alphabet.
fn min_release(crush: &CrushMap) -> &'static str {
    let tunables = &crush.tunables;
    let has_straw2 = crush.each_bucket().any(|bucket| bucket.alg() == BucketAlg::Straw2);
    let legacy = Tunables { straw_calc_version: tunables.straw_calc_version, ..Tunables::LEGACY };
    match tunables {
        tunables if tunables.chooseleaf_stable > 0 => "jewel",
        _ if has_straw2 => "hammer",
        tunables if tunables.chooseleaf_vary_r > 0 => "firefly",
        tunables if Tunables { allowed_bucket_algs: legacy.allowed_bucket_algs, ..*tunables } != legacy => {
            "bobtail"
        }
        _ => "argonaut",
    }
}

fn old_tunables(state: &State, crush: &CrushMap) -> Option<Check> {
    let wanted = state.config.of_monitor("mon_crush_min_required_version").unwrap_or("hammer");
    let release = min_release(crush);
    let is_old = release < wanted && state.config.flag_of_monitor("mon_warn_on_legacy_crush_tunables");
    let summary = format!("crush map has legacy tunables (require {release}, min is {wanted})");
    is_old.then(|| one("OLD_CRUSH_TUNABLES", summary))
}

fn old_straw(state: &State, crush: &CrushMap) -> Option<Check> {
    let is_old = crush.tunables.straw_calc_version == 0
        && state.config.flag_of_monitor("mon_warn_on_crush_straw_calc_version_zero");
    is_old.then(|| one("OLD_CRUSH_STRAW_CALC_VERSION", "crush map has straw_calc_version=0".to_owned()))
}

/// OSDs that are down stay in for ever, and what they had is never copied elsewhere.
fn never_out(state: &State) -> Option<Check> {
    let is_never = state.config.number_of_monitor("mon_osd_down_out_interval", 600.0) <= 0.0
        && state.config.flag_of_monitor("mon_warn_on_osd_down_out_interval_zero");
    let summary = format!("mon_osd_down_out_interval is 0: mon.{} marks no OSD out that is down", state.name);
    is_never.then(|| one("OSD_NO_DOWN_OUT_INTERVAL", summary))
}
