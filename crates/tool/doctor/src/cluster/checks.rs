//! Checks of what monitors and OSDs say of the cluster: health, slow requests, pings, clocks, work in the background, fill, PGs.

use super::Facts;
use super::session::Answer;
use super::watched::ping_ms;
use crate::report::{Finding, Rank, Report, Symptom};
use nacre_types::OsdId;
use serde_json::Value;
use std::collections::BTreeMap;

/// As monitors warn unless told otherwise: the default of `mon_clock_drift_allowed`.
const SKEW_S_MAX: f64 = 0.05;
/// Fuller than the mean by this, and at least so full in percent, before it is worth a word.
const FILL_TO_MEAN_MAX: f64 = 1.2;
const FILL_PERCENT_MIN: f64 = 50.0;
/// Copies of PGs on an OSD, on average.
const PGS_PER_OSD_MIN: f64 = 30.0;
/// What monitors warn of when an OSD gets full, which it does first when others are less full.
const FULL_WARNINGS: [&str; 6] =
    ["OSD_NEARFULL", "OSD_BACKFILLFULL", "OSD_FULL", "POOL_NEARFULL", "POOL_BACKFILLFULL", "POOL_FULL"];
/// Details of one health check that are shown.
const DETAILS_MAX: usize = 5;

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The answer, or its lack as unknown.
fn known<'a>(answer: &'a Answer, check: &'static str, report: &mut Report) -> Option<&'a Value> {
    answer.as_ref().map_err(|why| report.unknown(check, why.clone())).ok()
}

/// Answers of OSDs; of those that gave none, the first reason is told, with their number.
pub(super) fn of_osds<'a>(
    answers: &'a BTreeMap<OsdId, Answer>,
    check: &'static str,
    report: &mut Report,
) -> Vec<(OsdId, &'a Value)> {
    let mut missing = answers.iter().filter_map(|(osd, answer)| Some((osd, answer.as_ref().err()?)));
    if let Some((osd, why)) = missing.next() {
        report.unknown(check, format!("osd.{osd} and {} more: {why}", missing.count()));
    }
    answers.iter().filter_map(|(osd, answer)| Some((*osd, answer.as_ref().ok()?))).collect()
}

/// OSDs that a text names, alone (`osd.3`) or in a list (`osd.[1,2]`).
fn osds_named(text: &str) -> impl Iterator<Item = String> {
    text.split("osd.").skip(1).flat_map(|rest| {
        let list = rest.strip_prefix('[').and_then(|list| list.split(']').next());
        let numbers =
            list.unwrap_or_else(|| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
        let is_number =
            |number: &&str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        numbers.split(',').filter(is_number).map(|number| format!("osd.{number}"))
    })
}

pub(super) fn health(facts: &Facts, report: &mut Report) {
    let Some(health) = known(&facts.health, "health", report) else { return };
    report.judged("health");
    report.fact("health", text(&health["status"]));
    for (name, check) in health["checks"].as_object().into_iter().flatten() {
        if check["muted"] == true {
            continue;
        }
        let details = list(&check["detail"]).map(|detail| text(&detail["message"]));
        let details: Vec<&str> = details.take(DETAILS_MAX).collect();
        let is_error = check["severity"] == "HEALTH_ERR";
        report.findings.push(Finding {
            check: "health",
            rank: if is_error { Rank::Serious } else { Rank::Costly },
            weight: 1.0,
            subject: format!("the cluster warns: {name}"),
            measured: format!("{} ({})", text(&check["summary"]["message"]), details.join("; ")),
            cost: if is_error { "data cannot be reached, or is in danger" } else { "as the warning says" }
                .to_owned(),
            advice: "ceph health detail".to_owned(),
            about: std::iter::once(name.clone()).chain(osds_named(&details.join(" "))).collect(),
            ..Finding::default()
        });
    }
}

pub(super) fn slow_ops(facts: &Facts, report: &mut Report) {
    for (osd, blocked) in of_osds(&facts.blocked, "slow-ops", report) {
        report.judged("slow-ops");
        let count = blocked["num_blocked_ops"].as_u64().unwrap_or(0);
        let age = |op: &&Value| op["age"].as_f64().unwrap_or(0.0);
        let Some(oldest) =
            list(&blocked["ops"]).max_by(|a, b| age(a).total_cmp(&age(b))).filter(|_| count > 0)
        else {
            continue;
        };
        let waits_for = list(&oldest["type_data"]["events"]).last().map_or("", |event| text(&event["event"]));
        report.findings.push(Finding {
            check: "slow-ops",
            rank: Rank::Serious,
            weight: age(&oldest),
            subject: format!("osd.{osd} has requests of clients that do not end"),
            measured: format!("{count} for longer than {} s; the oldest for {:.0} s: {waits_for}", blocked["complaint_time"], age(&oldest)),
            cost: format!("these clients stand still, as {} does", text(&oldest["type_data"]["client_info"]["client"])),
            advice: format!("ceph tell osd.{osd} dump_blocked_ops says which they are; where they wait for disks of other OSDs, look at those"),
            about: std::iter::once(format!("osd.{osd}")).chain(osds_named(waits_for)).collect(),
            ..Finding::default()
        });
    }
}

pub(super) fn pings(facts: &Facts, report: &mut Report) {
    // Who is at either end of how many slow ways, so that one end can be told from one way.
    let mut slow: Vec<(OsdId, u64, String, f64)> = Vec::new();
    for (osd, network) in of_osds(&facts.pings, "slow-pings", report) {
        report.judged("slow-pings");
        // What was slow in the last five or fifteen minutes, and is not any more, is listed, too.
        let threshold_ms = network["threshold"].as_f64().unwrap_or(0.0);
        // The minute may have been slow at its beginning only.
        let is_well_now = |entry: &Value| {
            let to = entry["to osd"].as_i64().and_then(|to| OsdId::try_from(to).ok());
            to.and_then(|to| ping_ms(facts, osd, to)).is_some_and(|ms| ms < threshold_ms)
        };
        let is_slow = |entry: &&Value| {
            entry["stale"] != true
                && entry["average"]["1min"].as_f64() >= Some(threshold_ms)
                && !is_well_now(entry)
        };
        for entry in list(&network["entries"]).filter(is_slow) {
            let to = entry["to osd"].as_u64().unwrap_or(0);
            slow.push((
                osd,
                to,
                text(&entry["interface"]).to_owned(),
                entry["average"]["1min"].as_f64().unwrap_or(0.0),
            ));
        }
    }
    let Some((from, to, interface, ms)) = slow.iter().max_by(|a, b| a.3.total_cmp(&b.3)) else { return };
    let ends =
        |osd: u64| slow.iter().filter(|(from, to, ..)| u64::try_from(*from) == Ok(osd) || *to == osd).count();
    let common = slow
        .iter()
        .flat_map(|(from, to, ..)| [u64::try_from(*from).unwrap_or(0), *to])
        .find(|osd| slow.len() > 2 && ends(*osd) == slow.len());
    let subject = common.map_or_else(
        || format!("{} ways between OSDs are slow", slow.len()),
        |osd| format!("all {} slow ways between OSDs begin or end at osd.{osd}", slow.len()),
    );
    report.findings.push(Finding {
        check: "slow-pings",
        rank: Rank::Costly,
        weight: *ms,
        subject,
        measured: format!("a ping from osd.{from} to osd.{to} ({interface}) took {ms:.1} ms on average in the last minute"),
        cost: "each write that has a copy at the other end waits for as long".to_owned(),
        advice: "run `nacre doctor` on both machines (errors, drops, resends); a busy processor answers pings late, too".to_owned(),
        about: common.map_or_else(
            || vec![format!("osd.{from}"), format!("osd.{to}")],
            |osd| vec![format!("osd.{osd}"), format!("osd.{from}"), format!("osd.{to}")],
        ),
        ..Finding::default()
    });
}

pub(super) fn clocks(facts: &Facts, report: &mut Report) {
    // Our monitors say it with the health check MON_CLOCK_SKEW; Ceph's list each.
    let Ok(sync) = &facts.time_sync else { return };
    for (mon, status) in sync["time_skew_status"].as_object().into_iter().flatten() {
        report.judged("clock-skew");
        let Some(skew_s) = status["skew"].as_f64().filter(|skew| skew.abs() > SKEW_S_MAX) else { continue };
        report.findings.push(Finding {
            check: "clock-skew",
            rank: Rank::Costly,
            weight: skew_s.abs() / SKEW_S_MAX,
            subject: format!("mon.{mon}'s clock is wrong"),
            measured: format!("it is {skew_s:.3} s off the leader's"),
            cost: "leases run out too early or too late; tickets may be refused".to_owned(),
            advice: "run chrony on every machine".to_owned(),
            ..Finding::default()
        });
    }
}

/// Warnings that recovery makes good; none where OSDs are down, which is what they come from.
fn made_good(facts: &Facts, status: &Value) -> Vec<Symptom> {
    let is_down = |health: &Value| !health["checks"]["OSD_DOWN"].is_null();
    if facts.health.as_ref().is_ok_and(is_down) {
        return Vec::new();
    }
    // PGs peer and activate before they recover, which takes a moment.
    let is_passing = pgs_in(status, &["down", "incomplete", "unknown", "stale"]) == 0;
    let warnings =
        ["PG_DEGRADED", "OBJECT_MISPLACED"].into_iter().chain(is_passing.then_some("PG_AVAILABILITY"));
    warnings.map(|name| Symptom::new("health", &[name])).collect()
}

/// PGs whose state has one of these words.
pub(crate) fn pgs_in(status: &Value, words: &[&str]) -> u64 {
    let states = list(&status["pgmap"]["pgs_by_state"]);
    let is_in = |state: &&Value| text(&state["state_name"]).split('+').any(|word| words.contains(&word));
    states.filter(is_in).filter_map(|state| state["count"].as_u64()).sum()
}

/// A finding about work beside that of clients. OSDs that are slower than others while it goes on, and by nothing that was measured of
/// themselves, are slower by what they have of it: nobody can tell that from a slow device by the mean time of their writes.
fn beside_clients(pgs: u64, report: &Report) -> Finding {
    let slower: Vec<&Finding> = report.unexplained("osd-latency").collect();
    let symptom = |one: &&Finding| Symptom { check: one.check, about: one.about.clone() };
    Finding {
        check: "background",
        rank: Rank::Hint,
        // What it makes OSDs slower by, where it does.
        weight: slower.iter().map(|one| one.weight).reduce(f64::max).unwrap_or(pgs as f64),
        explains: slower.iter().map(symptom).collect(),
        ..Finding::default()
    }
}

/// To be asked last: it explains what nothing else does.
pub(super) fn background(facts: &Facts, report: &mut Report) {
    let Some(status) = known(&facts.status, "background", report) else { return };
    report.judged("background");
    let all = status["pgmap"]["num_pgs"].as_u64().unwrap_or(0);
    // What ended, or began, while OSDs were watched had its part in what was seen.
    let pgs = |words: &[&str]| {
        let before = facts.status_before.as_ref().map_or(0, |before| pgs_in(before, words));
        pgs_in(status, words).max(before)
    };
    let (recovering, scrubbing) = (pgs(&["recovering", "backfilling"]), pgs(&["scrubbing"]));
    // Of both before either is among the findings.
    let (recovery, scrub) = (beside_clients(recovering, report), beside_clients(scrubbing, report));
    if recovering > 0 {
        let bytes = status["pgmap"]["recovering_bytes_per_sec"].as_f64().unwrap_or(0.0);
        report.findings.push(Finding {
            subject: "copies of objects are being made".to_owned(),
            measured: format!("{recovering} of {all} PGs, {:.1} MB/s", bytes / 1e6),
            cost: "devices and network are shared with clients until it is done; `nacre why-slow` says how long these wait".to_owned(),
            advice: "wait, or `nacre recovery target p99=...`: it then goes as fast as clients' latency allows".to_owned(),
            explains: made_good(facts, status).into_iter().chain(recovery.explains).collect(),
            ..recovery
        });
    }
    if scrubbing > 0 {
        report.findings.push(Finding {
            subject: "copies are being compared (scrub)".to_owned(),
            measured: format!("{scrubbing} of {all} PGs, {} of them with their data", pgs(&["deep"])),
            cost: "their devices are read beside clients' work".to_owned(),
            advice: "wait; osd_scrub_begin_hour and osd_scrub_end_hour keep it to the night".to_owned(),
            ..scrub
        });
    }
}

/// OSDs that data may lie on, with how full they are in percent and their PGs.
fn osds_in(df: &Value) -> Vec<(OsdId, f64, f64)> {
    let is_in = |node: &&Value| {
        node["reweight"].as_f64().unwrap_or(0.0) > 0.0 && node["kb"].as_u64().unwrap_or(0) > 0
    };
    let one = |node: &Value| {
        let osd = OsdId::try_from(node["id"].as_i64()?).ok()?;
        Some((osd, node["utilization"].as_f64()?, node["pgs"].as_f64()?))
    };
    list(&df["nodes"]).filter(is_in).filter_map(one).collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

pub(super) fn fill(facts: &Facts, report: &mut Report) {
    let Some(df) = known(&facts.osd_df, "fill", report) else { return };
    let osds = osds_in(df);
    let Some((osd, percent, _)) = osds.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return report.unknown("fill", "no OSD tells how full it is");
    };
    report.judged("fill");
    let mean = mean(osds.iter().map(|(_, percent, _)| *percent));
    if *percent < FILL_PERCENT_MIN || *percent < mean * FILL_TO_MEAN_MAX {
        return;
    }
    report.findings.push(Finding {
        check: "fill",
        rank: Rank::Costly,
        weight: percent / mean.max(0.1),
        subject: format!("osd.{osd} is fuller than others"),
        measured: format!("{percent:.1} % of it is used, {mean:.1} % on average of {} OSDs", osds.len()),
        cost: format!(
            "the cluster is full when this one is: at {:.0} % of what it could hold",
            mean / percent * 100.0
        ),
        advice: "ceph balancer eval says how even it can be; ceph balancer on".to_owned(),
        about: vec![format!("osd.{osd}")],
        explains: FULL_WARNINGS.map(|name| Symptom::new("health", &[name])).to_vec(),
        ..Finding::default()
    });
}

pub(super) fn pg_counts(facts: &Facts, report: &mut Report) {
    let Some(df) = known(&facts.osd_df, "pg-count", report) else { return };
    let osds = osds_in(df);
    if osds.is_empty() {
        return report.unknown("pg-count", "no OSD tells how many PGs it has");
    }
    report.judged("pg-count");
    let pgs = mean(osds.iter().map(|(.., pgs)| *pgs));
    let used = osds.iter().any(|(.., pgs)| *pgs > 0.0);
    if !used || pgs >= PGS_PER_OSD_MIN {
        return;
    }
    let most = osds.iter().map(|(.., pgs)| *pgs).fold(0.0, f64::max);
    report.findings.push(Finding {
        check: "pg-count",
        rank: Rank::Hint,
        weight: PGS_PER_OSD_MIN / pgs.max(0.1),
        subject: "there are few PGs".to_owned(),
        measured: format!(
            "{pgs:.0} copies of PGs on an OSD on average, {most:.0} at most, of {} OSDs",
            osds.len()
        ),
        cost: "data and load cannot be spread evenly; little is recovered at a time".to_owned(),
        advice: "ceph osd pool set POOL pg_num N, for some 100 copies on each OSD in all".to_owned(),
        ..Finding::default()
    });
}
