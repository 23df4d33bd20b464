//! Checks of the ways between OSDs, by what both ends say of them (`dump_links`): an OSD that nobody reaches, a way that is cut in one
//! direction or both, and one on which segments get lost. A way is named only where both of its ends are well on others.

use super::Facts;
use super::slow_device::{symptoms_of, unavailable};
use super::watched::{grown, link, median};
use crate::report::{Finding, Rank, Report, Symptom};
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};

/// A ping that is not answered for so long gets no answer; healthy ones take milliseconds.
const SILENT_S: f64 = 4.0;
/// Segments that come on a connection after its last ping from which on the other end still gets through, and up to which it does not.
const STILL_COMES_MIN: f64 = 4.0;
const STILL_COMES_MAX: f64 = 2.0;
/// Segments in the window from which on losses are a share of something.
const SEGMENTS_MIN: f64 = 50.0;
const LOST_MIN: f64 = 5.0;
/// Losses that are too few to name a way by, and too many to say that it is well.
const DOUBTFUL_LOST_MIN: f64 = 2.0;
/// The part of a way's segments that may be lost before it is named.
const LOSS_SHARE: f64 = 0.005;
/// So many times the losses of the other ways.
const LOSS_TIMES: f64 = 4.0;

/// One OSD's word on the way to another.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    /// Since the oldest ping that is not answered.
    silent_s: f64,
    /// Since the other one's last ping.
    heard_s: Option<f64>,
    /// Segments of the other one that came since then: acknowledgements of our answer, or pings again and again to which our answers
    /// do not get through.
    since_heard: Option<f64>,
    segments: f64,
    /// Sent again, and had not arrived before.
    lost: f64,
}

impl Way {
    fn is_dead(&self) -> bool {
        self.silent_s >= SILENT_S
    }

    fn loss(&self) -> f64 {
        self.lost / self.segments.max(1.0)
    }

    fn is_lossy(&self) -> bool {
        self.lost >= LOST_MIN && self.loss() >= LOSS_SHARE
    }

    fn is_doubtful(&self) -> bool {
        (DOUBTFUL_LOST_MIN..LOST_MIN).contains(&self.lost) && self.loss() >= LOSS_SHARE
    }
}

/// All ways that somebody tells of, by its ends.
type Ways = BTreeMap<(OsdId, OsdId), Way>;

fn ways(facts: &Facts) -> Ways {
    let mut ways = Ways::new();
    for (from, answer) in &facts.after.links {
        let Ok(answer) = answer else { continue };
        for link_now in answer["links"].as_array().into_iter().flatten() {
            let Some(to) = link_now["osd"].as_i64().and_then(|osd| OsdId::try_from(osd).ok()) else {
                continue;
            };
            let Some(silent_s) = link_now["pings"]["silent_s"].as_f64() else { continue };
            let before = link(&facts.before, *from, to);
            let tcp = |name: &str| grown(before.map(|link| &link["tcp"][name]), &link_now["tcp"][name]);
            let way = Way {
                silent_s,
                heard_s: link_now["heard_s"].as_f64(),
                since_heard: link_now["segments_since_heard"].as_f64(),
                segments: tcp("segments").unwrap_or(0.0),
                lost: (tcp("resent").unwrap_or(0.0) - tcp("duplicates").unwrap_or(0.0)).max(0.0),
            };
            ways.insert((*from, to), way);
        }
    }
    ways
}

pub(super) fn check(facts: &Facts, report: &mut Report) {
    let ways = ways(facts);
    if ways.is_empty() {
        let why = facts.after.links.values().find_map(|answer| answer.as_ref().err());
        let why = why.map_or("no OSD tells of ways to others", String::as_str);
        ["osd-silent", "link-cut", "lossy-link"].iter().for_each(|check| report.unknown(check, why));
        return;
    }
    let silent = silent(facts, &ways, report);
    report.judged("link-cut");
    let cut: Vec<(OsdId, OsdId)> = ways
        .keys()
        .filter(|(a, b)| a < b && !silent.contains(a) && !silent.contains(b))
        .filter(|(a, b)| [(*a, *b), (*b, *a)].iter().any(|way| ways.get(way).is_some_and(Way::is_dead)))
        .copied()
        .collect();
    let lonely = lonely(&ways, &silent, &cut, report);
    for (a, b) in cut.iter().filter(|(a, b)| !lonely.contains(a) && !lonely.contains(b)) {
        report.findings.push(cut_between(&ways, *a, *b));
    }
    losses(&ways, report);
}

fn symptoms(osds: &[OsdId]) -> Vec<Symptom> {
    osds.iter().flat_map(|osd| symptoms_of(*osd)).chain(unavailable()).collect()
}

/// OSDs that are up and answer neither us nor any other OSD.
fn silent(facts: &Facts, ways: &Ways, report: &mut Report) -> BTreeSet<OsdId> {
    report.judged("osd-silent");
    let mut silent = BTreeSet::new();
    for osd in facts.after.links.iter().filter(|(_, answer)| answer.is_err()).map(|(osd, _)| *osd) {
        let to: Vec<&Way> = ways.iter().filter(|((_, to), _)| *to == osd).map(|(_, way)| way).collect();
        let longest_s = to.iter().map(|way| way.silent_s).fold(0.0, f64::max);
        if to.is_empty() || !to.iter().all(|way| way.is_dead()) {
            continue;
        }
        silent.insert(osd);
        report.findings.push(Finding {
            check: "osd-silent",
            rank: Rank::Serious,
            weight: longest_s,
            subject: format!("osd.{osd} is up and answers nobody"),
            measured: format!(
                "pings of all {} OSDs that ping it are not answered, for {longest_s:.0} s; nor is what `nacre doctor` asks it: the OSD or its machine rather than one way to it",
                to.len()
            ),
            cost: "all of its PGs stand still until it is marked down, or goes on".to_owned(),
            advice: format!("look whether its process is stopped, and its machine reachable; ceph osd down {osd} lets others go on without it"),
            about: vec![format!("osd.{osd}")],
            explains: symptoms(&[osd]),
            ..Finding::default()
        });
    }
    silent
}

/// OSDs of whose ways, two or more, all are cut: their machines' networks rather than each of these ways.
fn lonely(
    ways: &Ways,
    silent: &BTreeSet<OsdId>,
    cut: &[(OsdId, OsdId)],
    report: &mut Report,
) -> BTreeSet<OsdId> {
    let mut lonely = BTreeSet::new();
    let ends: BTreeSet<OsdId> = cut.iter().flat_map(|(a, b)| [*a, *b]).collect();
    for osd in ends {
        let others: BTreeSet<OsdId> = ways
            .keys()
            .filter(|(from, to)| *from == osd && !silent.contains(to))
            .map(|(_, to)| *to)
            .collect();
        let lost = cut.iter().filter(|(a, b)| *a == osd || *b == osd).count();
        if others.len() < 2 || lost < others.len() {
            continue;
        }
        lonely.insert(osd);
        report.findings.push(Finding {
            check: "osd-cut-off",
            rank: Rank::Serious,
            weight: lost as f64,
            subject: format!("osd.{osd} is cut off from all other OSDs"),
            measured: format!("pings between it and each of {lost} others are not answered, while it answers `nacre doctor`: the cluster's network at its machine"),
            cost: "writes to its PGs stand still until it is marked down".to_owned(),
            advice: "look at the cards, cables, VLANs and firewalls of its cluster network (ceph osd metadata: back_addr)".to_owned(),
            about: vec![format!("osd.{osd}")],
            explains: symptoms(&[osd]),
            ..Finding::default()
        });
    }
    lonely
}

fn cut_between(ways: &Ways, a: OsdId, b: OsdId) -> Finding {
    let blank = Way::default();
    let (there, back) = (ways.get(&(a, b)).unwrap_or(&blank), ways.get(&(b, a)).unwrap_or(&blank));
    let heard = |way: &Way| {
        let ago = way.heard_s.map_or_else(|| "never".to_owned(), |ago| format!("{ago:.0} s ago"));
        let since = way.since_heard.map(|segments| format!(" and {segments:.0} segments since"));
        ago + &since.unwrap_or_default()
    };
    // Where both wait, TCP sends unanswered pings again: in the direction that works they still come.
    let still_comes = |way: &Way| way.since_heard.is_some_and(|segments| segments >= STILL_COMES_MIN);
    let comes_no_more = |way: &Way| way.since_heard.is_some_and(|segments| segments <= STILL_COMES_MAX);
    let one_way = match (there.is_dead(), back.is_dead()) {
        (true, false) => Some((a, b)),
        (false, true) => Some((b, a)),
        _ if still_comes(there) && comes_no_more(back) => Some((a, b)),
        _ if still_comes(back) && comes_no_more(there) => Some((b, a)),
        _ => None,
    };
    let subject = one_way.map_or_else(
        || format!("the way between osd.{a} and osd.{b} is cut"),
        |(from, to)| format!("the way from osd.{from} to osd.{to} is cut, in this direction"),
    );
    let answered = |from: OsdId, to: OsdId, way: &Way| {
        if way.is_dead() {
            format!("osd.{from}'s pings of osd.{to} are not answered for {:.0} s", way.silent_s)
        } else {
            format!("osd.{from}'s pings of osd.{to} are answered")
        }
    };
    Finding {
        check: if one_way.is_some() { "one-way-cut" } else { "link-cut" },
        rank: Rank::Serious,
        weight: there.silent_s.max(back.silent_s),
        subject,
        measured: format!(
            "{}, {}; a ping of osd.{a} came to osd.{b} {}, one of osd.{b} to osd.{a} {}; others answer both: neither of the two OSDs",
            answered(a, b, there),
            answered(b, a, back),
            heard(back),
            heard(there),
        ),
        cost: "writes to PGs that both have stand still, and monitors mark nobody down for it".to_owned(),
        advice: "look at firewalls, routes and switches between the two machines; a rule that lets connections in at one end only does this".to_owned(),
        about: vec![format!("osd.{a}"), format!("osd.{b}")],
        explains: symptoms(&[a, b]),
        ..Finding::default()
    }
}

fn losses(ways: &Ways, report: &mut Report) {
    let measured: Ways = ways
        .iter()
        .filter(|(_, way)| way.segments >= SEGMENTS_MIN && !way.is_dead())
        .map(|(ends, way)| (*ends, *way))
        .collect();
    if measured.is_empty() {
        return report.unknown(
            "lossy-link",
            "OSDs sent each other too little while they were watched; --seconds watches longer",
        );
    }
    match measured.iter().find(|(_, way)| way.is_doubtful()) {
        None => report.judged("lossy-link"),
        Some(((from, to), way)) => report.unknown(
            "lossy-link",
            format!(
                "{:.0} of {:.0} segments from osd.{from} to osd.{to} were lost: too few to tell a bad way from chance; --seconds watches longer",
                way.lost, way.segments
            ),
        ),
    }
    let lossy: Vec<(OsdId, OsdId)> =
        measured.iter().filter(|(_, way)| way.is_lossy()).map(|(ends, _)| *ends).collect();
    // All that one end sends, or gets, is lost: that end. What both ways between two lose is one way's.
    for (index, end) in ["sends", "is sent"].into_iter().enumerate() {
        let osd_of = |ends: &(OsdId, OsdId)| if index == 0 { ends.0 } else { ends.1 };
        let osds: BTreeSet<OsdId> = lossy.iter().map(osd_of).collect();
        for osd in osds {
            let all = measured.keys().filter(|ends| osd_of(ends) == osd).count();
            let lost = lossy.iter().filter(|ends| osd_of(ends) == osd).count();
            if all >= 2 && lost == all {
                let of = measured.iter().filter(|(ends, _)| osd_of(ends) == osd).map(|(_, way)| *way);
                report.findings.push(loss_of(
                    &[osd],
                    format!("what osd.{osd} {end} gets lost, on all {all} ways"),
                    of,
                    None,
                ));
                return;
            }
        }
    }
    for (a, b) in &lossy {
        if a > b && lossy.contains(&(*b, *a)) {
            continue;
        }
        let of: Vec<Way> =
            [(*a, *b), (*b, *a)].iter().filter_map(|ends| measured.get(ends)).copied().collect();
        let between = BTreeSet::from([*a, *b]);
        let others = measured.iter().filter(|((from, to), _)| BTreeSet::from([*from, *to]) != between);
        let elsewhere = median(others.map(|(_, way)| way.loss()));
        let worst = of.iter().map(Way::loss).fold(0.0, f64::max);
        // With all as bad, and with nothing beside it, it is not this way.
        if elsewhere.is_some_and(|elsewhere| worst >= elsewhere * LOSS_TIMES) {
            let subject = if lossy.contains(&(*b, *a)) {
                format!("the way between osd.{a} and osd.{b} loses what is sent")
            } else {
                format!("the way from osd.{a} to osd.{b} loses what is sent")
            };
            report.findings.push(loss_of(&[*a, *b], subject, of.into_iter(), elsewhere));
        }
    }
}

fn loss_of(
    osds: &[OsdId],
    subject: String,
    of: impl Iterator<Item = Way>,
    elsewhere: Option<f64>,
) -> Finding {
    let sum = of.fold(Way::default(), |sum, way| Way {
        segments: sum.segments + way.segments,
        lost: sum.lost + way.lost,
        ..sum
    });
    let beside = elsewhere.map_or_else(
        || "ways that do not touch it lose less: its machine's card, cable or port".to_owned(),
        |share| format!("{:.2} % on the other ways in the middle, which both ends have, too: this way rather than a machine", share * 100.0),
    );
    Finding {
        check: "lossy-link",
        rank: Rank::Costly,
        weight: sum.loss() / LOSS_SHARE,
        subject,
        measured: format!(
            "{:.0} of {:.0} segments were lost on the way and sent again ({:.2} %, TCP); {beside}",
            sum.lost,
            sum.segments,
            sum.loss() * 100.0
        ),
        cost: "what is lost comes again after 200 ms or a few round trips: some writes take so much longer".to_owned(),
        advice: "look at cables, ports and duplex on that way (ethtool -S on both machines: errors, drops), and at MTUs".to_owned(),
        about: osds.iter().map(|osd| format!("osd.{osd}")).collect(),
        explains: osds.iter().flat_map(|osd| symptoms_of(*osd)).collect(),
        ..Finding::default()
    }
}
