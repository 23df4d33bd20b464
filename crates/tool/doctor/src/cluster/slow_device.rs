//! Checks of what OSDs did while they were watched: which device is slower than others of its class, and whether it is the device at all:
//! an OSD whose thread does not get to run, or has no time left, finds what its device has done late, too.

use super::Facts;
use super::watched::{Requests, Watched, median};
use crate::report::{Finding, Rank, Report, Symptom};
use nacre_types::{DeviceWork, LatencyHistogram, OsdId};
use std::collections::BTreeMap;

/// What clients wait for, which comes one by one; the others are those of checkpoints, and come in bursts.
const JUDGED: [DeviceWork; 2] = [DeviceWork::Read, DeviceWork::DurableWrite];
/// Requests in the window from which on they say something.
const REQUESTS_MIN: u64 = 20;
/// Requests from which on an OSD has a past.
const PAST_MIN: u64 = 100;
/// Other devices that there must be.
const PEERS_MIN: usize = 2;
/// A median so many times the others', and so much more, is slow.
const MEDIAN_TIMES: f64 = 3.0;
const MEDIAN_EXCESS_US: f64 = 1_000.0;
/// The same of the slowest hundredth.
const TAIL_TIMES: f64 = 6.0;
const TAIL_EXCESS_US: f64 = 20_000.0;
/// A device with so many times the others' requests has more to do: that it is slow says nothing, where they wait for each other.
const MORE_TO_DO_TIMES: f64 = 3.0;
/// Requests at a device at a time, on average, from which on they wait for each other. With fewer each takes as long as it does by itself.
const QUEUED_MIN: f64 = 1.5;
/// And there is so much to do that one with the others' slowest hundredth as its usual would be busy for so much of the time. With less it
/// is the device that lets them wait for each other.
const BUSY_MIN: f64 = 0.5;
/// A thread that is on a processor for more of the time has none left.
const BUSY_SHARE: f64 = 0.9;
/// An OSD that answers pings so many times later than others, and so much, does not get to run.
const PING_TIMES: f64 = 3.0;
const PING_EXCESS_MS: f64 = 4.0;
/// The one of its pingers that waits least waits so many times longer, too: it is no way to it.
const PING_TIMES_LEAST: f64 = 2.0;
/// And it is that, and not its device, where pings take at least so much of what requests take longer.
const PING_TO_DEVICE: f64 = 0.25;

/// A device beside others.
struct Slow {
    work: DeviceWork,
    times: f64,
    excess_ms: f64,
    requests: Requests,
    median_us: f64,
    p99_us: f64,
    peers_median_us: f64,
    peers_p99_us: f64,
    peers: usize,
    has_more_to_do: bool,
}

fn quantile_us(histogram: &LatencyHistogram, permille: u32) -> f64 {
    histogram.quantile_us(permille).unwrap_or(0.0)
}

fn requests_of(watched: &Watched, work: DeviceWork) -> Option<&Requests> {
    let requests = watched.requests.as_ref()?.get(work as usize)?;
    (requests.now.total() >= REQUESTS_MIN).then_some(requests)
}

/// How a device does one kind of requests beside others of its class; `None` where nobody can say.
fn beside(facts: &Facts, all: &BTreeMap<OsdId, Watched>, osd: OsdId, work: DeviceWork) -> Option<Slow> {
    let own = all.get(&osd)?;
    let requests = *requests_of(own, work)?;
    let peers: Vec<&LatencyHistogram> = all
        .iter()
        .filter(|(other, watched)| **other != osd && watched.class == own.class)
        .filter_map(|(_, watched)| Some(&requests_of(watched, work)?.now))
        .collect();
    let of_peers = |permille| median(peers.iter().map(|peer| quantile_us(peer, permille)));
    let (peers_median_us, peers_p99_us) = (of_peers(500)?, of_peers(990)?);
    let their_count = median(peers.iter().map(|peer| peer.total() as f64))?;
    let (median_us, p99_us) = (quantile_us(&requests.now, 500), quantile_us(&requests.now, 990));
    let by_median = median_us - peers_median_us;
    let by_tail = p99_us - peers_p99_us;
    let (median_times, tail_times) = (median_us / peers_median_us.max(1.0), p99_us / peers_p99_us.max(1.0));
    let is_median_slow = median_times >= MEDIAN_TIMES && by_median >= MEDIAN_EXCESS_US;
    let is_tail_slow = tail_times >= TAIL_TIMES && by_tail >= TAIL_EXCESS_US;
    let (times, excess_us) = match (is_median_slow, is_tail_slow) {
        (true, _) => (median_times, by_median),
        (false, true) => (tail_times, by_tail),
        (false, false) => (0.0, 0.0),
    };
    let busy_share = requests.now.total() as f64 * peers_p99_us / 1e6 / facts.window_s;
    (peers.len() >= PEERS_MIN).then(|| Slow {
        work,
        times,
        excess_ms: excess_us / 1e3,
        requests,
        median_us,
        p99_us,
        peers_median_us,
        peers_p99_us,
        peers: peers.len(),
        has_more_to_do: requests.now.total() as f64 > their_count * MORE_TO_DO_TIMES
            && own.depth.is_none_or(|depth| depth >= QUEUED_MIN)
            && busy_share >= BUSY_MIN,
    })
}

/// By how many milliseconds pings of an OSD take longer than of others.
fn ping_excess_ms(all: &BTreeMap<OsdId, Watched>, osd: OsdId) -> Option<f64> {
    let own = all.get(&osd)?.ping_ms?;
    Some(own - others_ping_ms(all, osd)?)
}

fn others_ping_ms(all: &BTreeMap<OsdId, Watched>, osd: OsdId) -> Option<f64> {
    median(all.iter().filter(|(other, _)| **other != osd).filter_map(|(_, watched)| watched.ping_ms))
}

/// An OSD that does not get to run: whoever pings it waits, over every way. `None` where nobody can say.
fn is_stalled(all: &BTreeMap<OsdId, Watched>, osd: OsdId) -> Option<bool> {
    let (own, others_ms) = (all.get(&osd)?, others_ping_ms(all, osd)?);
    let (own_ms, least_ms) = own.ping_ms.zip(own.ping_ms_min.filter(|_| own.pingers >= PEERS_MIN))?;
    let is_later = own_ms >= others_ms * PING_TIMES && own_ms - others_ms >= PING_EXCESS_MS;
    Some(is_later && least_ms >= others_ms * PING_TIMES_LEAST)
}

fn is_busy(watched: &Watched) -> bool {
    watched.thread_share.is_some_and(|share| share >= BUSY_SHARE)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "an unknown part".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// What an OSD that is slow for whatever reason brings about.
pub(super) fn symptoms_of(osd: OsdId) -> Vec<Symptom> {
    let name = format!("osd.{osd}");
    let checks = ["osd-latency", "slow-ops", "slow-pings"].map(|check| Symptom::new(check, &[&name]));
    let named = ["OSD_SLOW_DEVICE", "OSD_SLOW_LINK", "OSD_SLOW_PING_TIME_BACK", "OSD_SLOW_PING_TIME_FRONT"]
        .map(|warning| Symptom::new("health", &[warning, &name]));
    let of_clients = ["SLOW_OPS", "POOL_PROBE_SLOW"].map(|warning| Symptom::new("health", &[warning]));
    checks.into_iter().chain(named).chain(of_clients).collect()
}

/// What monitors say of PGs of which an OSD does not take part as it should.
pub(super) fn unavailable() -> [Symptom; 2] {
    ["PG_AVAILABILITY", "PG_DEGRADED"].map(|name| Symptom::new("health", &[name]))
}

pub(super) fn check(facts: &Facts, all: &BTreeMap<OsdId, Watched>, report: &mut Report) {
    stalls(facts, all, report);
    let mut slow = BTreeMap::<OsdId, Slow>::new();
    let mut compared = 0;
    for osd in all.keys() {
        let of_osd: Vec<Slow> =
            JUDGED.into_iter().filter_map(|work| beside(facts, all, *osd, work)).collect();
        compared += usize::from(!of_osd.is_empty());
        let worst =
            of_osd.into_iter().filter(|slow| slow.times > 0.0).max_by(|a, b| a.times.total_cmp(&b.times));
        slow.extend(worst.map(|worst| (*osd, worst)));
    }
    if compared == 0 {
        let why = format!(
            "no three OSDs of one device class had {REQUESTS_MIN} requests of one kind to their devices in {:.1} s; --seconds watches longer",
            facts.window_s
        );
        return report.unknown("slow-device", why);
    }
    report.judged("slow-device");
    for (osd, found) in &slow {
        let Some(watched) = all.get(osd) else { continue };
        if found.has_more_to_do {
            report.findings.push(uneven(*osd, watched, found));
        } else if is_busy(watched) {
            report.findings.push(busy(*osd, watched, found));
        } else if is_stalled(all, *osd) != Some(true)
            && ping_excess_ms(all, *osd).is_none_or(|excess_ms| excess_ms < found.excess_ms * PING_TO_DEVICE)
        {
            report.findings.push(device(facts, all, &slow, *osd, found));
        }
    }
}

/// `median 5.4 ms, p99 7.9 ms beside 0.3 ms and 0.9 ms of 8 others`.
fn figures(found: &Slow) -> String {
    let past = found.requests.past;
    let before = if past.total() >= PAST_MIN {
        let (median_us, p99_us) = (quantile_us(&past, 500), quantile_us(&past, 990));
        format!("; before, since its start, {:.1} ms and {:.1} ms", median_us / 1e3, p99_us / 1e3)
    } else {
        String::new()
    };
    format!(
        "{} {} took {:.1} ms (median) and {:.1} ms (p99), of {} others {:.1} ms and {:.1} ms{before}",
        found.requests.now.total(),
        found.work.name(),
        found.median_us / 1e3,
        found.p99_us / 1e3,
        found.peers,
        found.peers_median_us / 1e3,
        found.peers_p99_us / 1e3,
    )
}

fn device(
    facts: &Facts,
    all: &BTreeMap<OsdId, Watched>,
    slow: &BTreeMap<OsdId, Slow>,
    osd: OsdId,
    found: &Slow,
) -> Finding {
    let blank = Watched::default();
    let watched = all.get(&osd).unwrap_or(&blank);
    let here: Vec<OsdId> =
        all.iter().filter(|(_, other)| other.host == watched.host).map(|(osd, _)| *osd).collect();
    let slow_here = here.iter().filter(|osd| slow.contains_key(osd)).count();
    // What would slow a whole machine down, slows all its devices.
    let (subject, whose) = match (here.len(), slow_here) {
        (1, _) => (
            watched.name(osd) + " is slower than others",
            "the only OSD there: the device or the machine".to_owned(),
        ),
        (count, slow) if count == slow => (
            format!("all devices on {} are slower than others, as osd.{osd}'s", watched.host),
            format!(
                "all {count} OSDs there: the machine (controller, memory, processors) rather than one device"
            ),
        ),
        (count, slow) => (
            watched.name(osd) + " is slower than others",
            format!("{} of {count} OSDs there are not slow: it is not the machine", count - slow),
        ),
    };
    let ping = watched
        .ping_ms
        .map_or_else(String::new, |ms| format!(", and answers pings after {ms:.1} ms: it is not the OSD"));
    let depth = watched
        .depth
        .map_or_else(String::new, |depth| format!(", {depth:.1} requests at the device at a time"));
    Finding {
        check: "slow-device",
        rank: Rank::Costly,
        weight: found.times,
        subject,
        measured: format!(
            "in {:.1} s {}{depth}; its thread was on a processor for {} of the time{ping}; {whose}",
            facts.window_s,
            figures(found),
            percent(watched.thread_share)
        ),
        cost: "every write with a copy there, and every read that it leads, waits for it".to_owned(),
        advice: format!(
            "ceph osd primary-affinity {osd} 0 takes reads off it; smartctl -a and `nacre doctor` on {}; replace the device, or ceph osd out {osd}",
            watched.host
        ),
        about: vec![format!("osd.{osd}")],
        explains: symptoms_of(osd),
        ..Finding::default()
    }
}

fn busy(osd: OsdId, watched: &Watched, found: &Slow) -> Finding {
    Finding {
        check: "osd-busy",
        rank: Rank::Costly,
        weight: found.times,
        subject: format!("osd.{osd} has no processor time left"),
        measured: format!(
            "its thread was on a processor for {} of the time; it looks late at what its device has done: {}",
            percent(watched.thread_share),
            figures(found)
        ),
        cost: "all of its PGs' operations wait for that thread".to_owned(),
        advice: format!(
            "ceph osd primary-affinity {osd} 0.5, more OSDs, or `nacre why-slow` for who asks so much of it"
        ),
        about: vec![format!("osd.{osd}")],
        explains: symptoms_of(osd),
        ..Finding::default()
    }
}

fn uneven(osd: OsdId, watched: &Watched, found: &Slow) -> Finding {
    Finding {
        check: "uneven-load",
        rank: Rank::Costly,
        weight: found.times,
        subject: format!("{} has more to do than others", watched.name(osd)),
        measured: format!(
            "{}: more than {MORE_TO_DO_TIMES} times as many as of others{}",
            figures(found),
            watched.depth.map_or_else(String::new, |depth| format!(", and {depth:.1} at a time"))
        ),
        cost: "requests queue there while other devices have time".to_owned(),
        advice: "ceph osd df and `nacre why-slow`: few PGs, uneven primaries, or one image or client that all the load is of".to_owned(),
        about: vec![format!("osd.{osd}")],
        explains: symptoms_of(osd),
        ..Finding::default()
    }
}

/// OSDs that are up and answer, and take their time for it.
fn stalls(facts: &Facts, all: &BTreeMap<OsdId, Watched>, report: &mut Report) {
    for (osd, watched) in all {
        let Some(is_stalled) = is_stalled(all, *osd) else { continue };
        report.judged("osd-stalled");
        let Some((own_ms, others_ms)) = watched.ping_ms.zip(others_ping_ms(all, *osd)).filter(|_| is_stalled)
        else {
            continue;
        };
        let why = if is_busy(watched) {
            "it has more to do than its thread can"
        } else {
            "something keeps its process from running (stopped, starved of processors or memory)"
        };
        report.findings.push(Finding {
            check: "osd-stalled",
            rank: Rank::Costly,
            weight: own_ms / others_ms.max(0.1),
            subject: format!("osd.{osd} on {} stands still again and again", watched.host),
            measured: format!(
                "in {:.1} s all {} OSDs that ping it waited {:.1} ms or more for answers ({own_ms:.1} ms in the middle; {others_ms:.1} ms for those of others); its thread was on a processor for {} of the time: {why}",
                facts.window_s,
                watched.pingers,
                watched.ping_ms_min.unwrap_or(own_ms),
                percent(watched.thread_share),
            ),
            cost: "whoever needs a copy there waits until it goes on".to_owned(),
            advice: format!("look on {} who takes processors and memory (`nacre doctor`: pressure), whether the process is stopped or traced, and for limits of its control group", watched.host),
            about: vec![format!("osd.{osd}")],
            explains: symptoms_of(*osd).into_iter().chain(unavailable()).collect(),
            ..Finding::default()
        });
    }
    if !report.judged.contains(&"osd-stalled") {
        report.unknown(
            "osd-stalled",
            format!("no OSD tells how long three others take to answer pings in {:.1} s", facts.window_s),
        );
    }
}
