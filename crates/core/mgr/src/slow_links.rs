//! [`slow_links`]: which links between OSDs are slow beside the others, by the pings that OSDs report.
//!
//! A link is what lies between two OSDs in one network. It is judged by the quickest of its pings in half a minute, or in a whole one where
//! its OSDs tell of no other: a busy processor or a full queue makes pings late now and then, and their average with them, but of thirty
//! hardly each; a bad cable, a port that has fallen back to a lower speed or a detour does. A link is slow when that takes 5 ms, and ten
//! times the median of others. Where all are, there is too much to do, and none is named.
//!
//! Like is compared with like: links of one distance, which is the type of the nearest bucket that CRUSH has above both OSDs, since pings
//! between data centres always take longer than between the hosts of one; and with these and all that are farther, which should not be
//! quicker. A fault at one end shows in all links of that end: so a link is compared with those that one of its ends has no part in, and
//! with those that the other has no part in. Slow beside any of these is slow. An end is a host, whose OSDs share cards and cables, or an OSD
//! between those of one host; and it is the largest bucket that has only one of the two OSDs, such as a rack, whose hosts share its way to
//! others. There must be three links to compare with, so four hosts where each has one OSD: of two nobody can say anything, and of three not
//! which of them it is.

use nacre_types::OsdId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Microseconds below which no ping is slow, whatever others take.
pub const SLOW_MIN_US: u32 = 5_000;
/// A slow link takes so many times the median of others.
const SLOW_TIMES: u32 = 10;
/// Links that there must be to compare one with.
const OTHERS_MIN: usize = 3;
/// An end is named instead of its links when all of them are slow, and so many at least.
const ALL_MIN: usize = 3;
/// The distance between OSDs that have no bucket in common.
const FARTHEST: i32 = i32::MAX;

/// Where an OSD stands, by CRUSH.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The bucket of its host; `None` where it stands on none.
    pub host: Option<i32>,
    /// The buckets above it, nearest first, each with its type.
    pub above: Vec<(i32, i32)>,
}

/// What links begin and end at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// A host, with the links of its OSDs to other hosts; or a larger bucket, with those that lead out of it.
    Bucket(i32),
    /// An OSD, with all of its links.
    Osd(OsdId),
}

/// A link that is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLink {
    /// The two OSDs, the lower number first.
    pub osds: [OsdId; 2],
    /// What its quickest ping took, microseconds: by the later one of both OSDs, which do not measure at the same time.
    pub best_us: u32,
    /// The median of that over links that are not slow: of this distance, or of the next one that has such.
    pub others_us: u32,
}

/// An end all of whose links are slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowEnd {
    /// A host or a larger bucket, or an OSD where others of its host are well.
    pub end: End,
    /// Its OSDs that have slow links.
    pub osds: BTreeSet<OsdId>,
    /// How many links it has.
    pub links: usize,
    /// The quickest of its links.
    pub quickest: SlowLink,
}

/// What is slow in one network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowLinks {
    /// Ends all of whose links are slow, those with most links first.
    pub ends: Vec<SlowEnd>,
    /// Slow links of no such end, slowest first.
    pub links: Vec<SlowLink>,
    /// The OSDs of all slow links, with those of the ends.
    pub pairs: BTreeSet<[OsdId; 2]>,
}

/// A link as it was measured.
#[derive(Clone, Copy, Debug)]
struct Link {
    osds: [OsdId; 2],
    /// Of each OSD the nearest end and the farthest, which may be the same.
    ends: [[End; 2]; 2],
    distance: i32,
    best_us: u32,
}

/// Links of one distance: what the quickest ping of each took, ascending.
#[derive(Debug, Default)]
struct Alike {
    all: Vec<u32>,
    of_end: BTreeMap<End, Vec<u32>>,
}

impl Link {
    /// Its ends, each once.
    fn each_end(&self) -> impl Iterator<Item = End> {
        let of_side = |[near, far]: [End; 2]| std::iter::once(near).chain((far != near).then_some(far));
        self.ends.into_iter().flat_map(of_side)
    }

    /// Who is named in its place if all of their links are slow.
    fn owners(&self) -> impl Iterator<Item = End> {
        let buckets = self.each_end().filter(|end| matches!(end, End::Bucket(_)));
        buckets.chain(self.osds.map(End::Osd))
    }

    /// Its OSDs that are, or stand on, an end.
    fn osds_at(&self, end: End) -> impl Iterator<Item = OsdId> {
        let sides = self.osds.into_iter().zip(self.ends);
        sides.filter(move |(osd, of)| of.contains(&end) || End::Osd(*osd) == end).map(|(osd, _)| osd)
    }
}

impl Alike {
    fn by_distance(links: &[Link]) -> BTreeMap<i32, Self> {
        let mut ascending: Vec<&Link> = links.iter().collect();
        ascending.sort_unstable_by_key(|link| link.best_us);
        let mut out: BTreeMap<i32, Self> = BTreeMap::new();
        for link in ascending {
            let alike = out.entry(link.distance).or_default();
            alike.all.push(link.best_us);
            for end in link.each_end() {
                alike.of_end.entry(end).or_default().push(link.best_us);
            }
        }
        out
    }

    /// Of the links that `end` has no part in: how many there are, and how many of them a link that takes `us` is slow beside.
    fn others(&self, end: End, us: u32) -> (usize, usize) {
        let own = self.of_end.get(&end).map(Vec::as_slice).unwrap_or_default();
        let quick = |ascending: &[u32]| ascending.partition_point(|other| *other <= us / SLOW_TIMES);
        (self.all.len() - own.len(), quick(&self.all) - quick(own))
    }

    fn median(&self) -> u32 {
        self.all.get(self.all.len() / 2).copied().unwrap_or_default()
    }
}

/// The links of which something is known; none where none could be slow.
fn links(
    measured: impl IntoIterator<Item = (OsdId, OsdId, u32)>,
    place: impl Fn(OsdId) -> Place,
) -> Vec<Link> {
    let known = measured
        .into_iter()
        .filter_map(|(from, to, us)| (us > 0 && from != to).then_some(([from.min(to), from.max(to)], us)));
    let mut best: Vec<([OsdId; 2], u32)> = known.collect();
    if best.iter().all(|(_, us)| *us < SLOW_MIN_US) {
        return Vec::new();
    }
    // Of what both say the later one.
    best.sort_unstable_by_key(|(osds, us)| (*osds, Reverse(*us)));
    best.dedup_by_key(|(osds, _)| *osds);
    let osds: BTreeSet<OsdId> = best.iter().flat_map(|(osds, _)| *osds).collect();
    let places: BTreeMap<OsdId, Place> = osds.into_iter().map(|osd| (osd, place(osd))).collect();
    let nowhere = Place::default();
    let link = |(osds, best_us): ([OsdId; 2], u32)| {
        let [a, b] = osds.map(|osd| places.get(&osd).unwrap_or(&nowhere));
        let is_one_host = a.host == b.host;
        let common = a.above.iter().find(|bucket| b.above.contains(bucket));
        let ends = |osd: OsdId, place: &Place| {
            let near = place.host.filter(|_| !is_one_host).map_or(End::Osd(osd), End::Bucket);
            let below = place.above.iter().take_while(|bucket| Some(*bucket) != common).last();
            [near, below.map_or(near, |(bucket, _)| End::Bucket(*bucket))]
        };
        let distance = common.map_or(FARTHEST, |(_, kind)| *kind);
        Link { osds, ends: [ends(osds[0], a), ends(osds[1], b)], distance, best_us }
    };
    best.into_iter().map(link).collect()
}

/// Whether a link is slow beside others, which are kept by distance.
fn is_slow(link: &Link, by_distance: &BTreeMap<i32, Alike>) -> bool {
    let beside = |end: End, farthest: i32| {
        let mut sum = (0, 0);
        for (_, alike) in by_distance.range(link.distance..=farthest) {
            let (others, quick) = alike.others(end, link.best_us);
            sum = (sum.0 + others, sum.1 + quick);
        }
        let (others, quick) = sum;
        // The median is among the quick ones.
        others >= OTHERS_MIN && quick * 2 >= others
    };
    let is_beside = |end: End| beside(end, link.distance) || beside(end, FARTHEST);
    link.best_us >= SLOW_MIN_US && link.each_end().any(is_beside)
}

/// The ends all of whose links are slow, and how many these are.
fn slow_ends(slow: &[Link], well: &[Link]) -> BTreeMap<End, usize> {
    let mut counts: BTreeMap<End, (usize, usize)> = BTreeMap::new();
    let all = slow.iter().map(|link| (link, true)).chain(well.iter().map(|link| (link, false)));
    for (link, is_slow) in all {
        for end in link.owners() {
            let (links, slow) = counts.entry(end).or_default();
            *links += 1;
            *slow += usize::from(is_slow);
        }
    }
    let is_all = |(links, slow): (usize, usize)| links == slow && links >= ALL_MIN;
    counts.into_iter().filter(|(_, count)| is_all(*count)).map(|(end, (links, _))| (end, links)).collect()
}

/// What is slow in a network, by what each OSD of `measured` has measured to which other one: the microseconds of its quickest ping, 0 where
/// that is not known. `place`: where an OSD stands.
#[must_use]
pub fn slow_links(
    measured: impl IntoIterator<Item = (OsdId, OsdId, u32)>,
    place: impl Fn(OsdId) -> Place,
) -> SlowLinks {
    let links = links(measured, place);
    let by_distance = Alike::by_distance(&links);
    let (slow, well): (Vec<Link>, Vec<Link>) =
        links.into_iter().partition(|link| is_slow(link, &by_distance));
    if slow.is_empty() {
        return SlowLinks::default();
    }
    let well_by_distance = Alike::by_distance(&well);
    let shown = |link: &Link| {
        let others = well_by_distance.range(link.distance..).next();
        let others_us = others.map(|(_, alike)| alike.median()).unwrap_or_default();
        SlowLink { osds: link.osds, best_us: link.best_us, others_us }
    };
    let pairs = slow.iter().map(|link| link.osds).collect();
    let named = slow_ends(&slow, &well);
    let mut ends: Vec<SlowEnd> = Vec::new();
    let mut rest = slow;
    for (end, links) in named {
        let (own, others): (Vec<Link>, Vec<Link>) =
            rest.into_iter().partition(|link| link.owners().any(|owner| owner == end));
        rest = others;
        // Those of an OSD are its host's where that is named.
        let quickest = own.iter().min_by_key(|link| link.best_us).map(shown);
        let osds = own.iter().flat_map(|link| link.osds_at(end)).collect();
        ends.extend(quickest.map(|quickest| SlowEnd { end, osds, links, quickest }));
    }
    ends.sort_by_key(|slow| (Reverse(slow.links), slow.osds.first().copied()));
    let mut links: Vec<SlowLink> = rest.iter().map(shown).collect();
    links.sort_by_key(|link| (Reverse(link.best_us), link.osds));
    SlowLinks { ends, links, pairs }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM_US: u32 = 200;
    const SLOW_US: u32 = 20_000;

    fn place(site: i32, host: i32) -> Place {
        Place { host: Some(-100 - host), above: vec![(-100 - host, 1), (-10 - site, 8), (-1, 11)] }
    }

    /// `hosts` hosts at one site with `osds` OSDs each, numbered host by host.
    fn places(hosts: i32, osds: i32) -> Vec<Place> {
        (0..hosts * osds).map(|osd| place(0, osd / osds)).collect()
    }

    /// Each OSD reports of each other one that its quickest ping took `us`.
    fn judge(places: &[Place], us: impl Fn(OsdId, OsdId) -> u32) -> SlowLinks {
        let osds = || (0..).take(places.len());
        let of = |from: OsdId| osds().map(move |to| (from, to));
        let measured = osds().flat_map(of).map(|(from, to)| (from, to, us(from, to)));
        slow_links(measured, |osd| places[usize::try_from(osd).expect("a number")].clone())
    }

    /// Pings of these OSDs, to and from all others, are slow.
    fn slow_osds(osds: &[OsdId]) -> impl Fn(OsdId, OsdId) -> u32 {
        move |from, to| if osds.contains(&from) || osds.contains(&to) { SLOW_US } else { CALM_US }
    }

    /// Pings between these two are slow, in the word of either.
    fn slow_pair(a: OsdId, b: OsdId) -> impl Fn(OsdId, OsdId) -> u32 {
        move |from, to| if [(a, b), (b, a)].contains(&(from, to)) { SLOW_US } else { CALM_US }
    }

    fn ends(slow: &SlowLinks) -> Vec<(End, Vec<OsdId>, usize)> {
        assert!(slow.links.is_empty(), "{slow:?}");
        slow.ends.iter().map(|slow| (slow.end, slow.osds.iter().copied().collect(), slow.links)).collect()
    }

    #[test]
    fn one_slow_link_is_named() {
        let link = SlowLink { osds: [1, 2], best_us: SLOW_US, others_us: CALM_US };
        let expected =
            SlowLinks { links: vec![link], pairs: BTreeSet::from([[1, 2]]), ..SlowLinks::default() };
        assert_eq!(judge(&places(4, 1), slow_pair(1, 2)), expected);
        assert_eq!(judge(&places(3, 2), slow_pair(1, 2)), expected, "two of a host");
        let by_one = |from: OsdId, to: OsdId| if (from, to) == (2, 1) { SLOW_US } else { CALM_US };
        assert_eq!(judge(&places(4, 1), by_one), expected, "the other's half minute has not passed yet");
    }

    #[test]
    fn an_end_all_of_whose_links_are_slow_is_named() {
        for hosts in [4, 5, 9] {
            let slow = judge(&places(hosts, 1), slow_osds(&[3]));
            let links = usize::try_from(hosts - 1).expect("few");
            assert_eq!(ends(&slow), [(End::Bucket(-103), vec![3], links)]);
            assert_eq!((slow.pairs.len(), slow.ends[0].quickest.others_us), (links, CALM_US));
        }
        let slow = judge(&places(6, 1), slow_osds(&[1, 4]));
        assert_eq!(ends(&slow), [(End::Bucket(-101), vec![1], 5), (End::Bucket(-104), vec![4], 5)]);
        // All but one of them: links, then.
        let most = |from: OsdId, to: OsdId| {
            if from.min(to) == 0 && from.max(to) > 1 { SLOW_US } else { CALM_US }
        };
        let slow = judge(&places(5, 1), most);
        assert_eq!((slow.ends.len(), slow.links.len()), (0, 3));
    }

    #[test]
    fn osds_of_one_host_share_its_links() {
        let between_hosts = |from: OsdId, to: OsdId| {
            let (a, b) = (from / 4, to / 4);
            if a != b && (a == 1 || b == 1) { SLOW_US } else { CALM_US }
        };
        let slow = judge(&places(3, 4), between_hosts);
        assert_eq!(ends(&slow), [(End::Bucket(-101), vec![4, 5, 6, 7], 32)]);
        let slow = judge(&places(3, 4), slow_osds(&[5]));
        assert_eq!(ends(&slow), [(End::Osd(5), vec![5], 11)], "to those of its own host, too");
        let slow = judge(&places(1, 4), slow_osds(&[2]));
        assert_eq!(ends(&slow), [(End::Osd(2), vec![2], 3)], "a cluster on one machine");
        let nowhere = vec![Place::default(); 4];
        assert_eq!(ends(&judge(&nowhere, slow_osds(&[2]))), [(End::Osd(2), vec![2], 3)]);
    }

    #[test]
    fn nobody_is_named_where_all_are_slow_or_nobody_can_say() {
        let none = SlowLinks::default();
        assert_eq!(judge(&places(9, 1), |_, _| SLOW_US), none, "overload");
        assert_eq!(judge(&places(9, 1), |_, _| CALM_US), none, "late now and then");
        let most = |from: OsdId, to: OsdId| if from.max(to) > 2 { SLOW_US } else { CALM_US };
        assert_eq!(judge(&places(9, 1), most), none, "those that are quick are the odd ones");
        assert_eq!(judge(&places(2, 1), |_, _| SLOW_US), none);
        assert_eq!(judge(&places(3, 1), slow_osds(&[2])), none, "one link is left to compare with");
        assert_eq!(judge(&places(2, 4), |from, to| if from / 4 == to / 4 { CALM_US } else { SLOW_US }), none);
    }

    #[test]
    fn slow_is_both_late_and_many_times_later_than_others() {
        let count = |slow_us: u32, calm_us: u32| {
            let us =
                |from: OsdId, to: OsdId| if from.min(to) + from.max(to) == 1 { slow_us } else { calm_us };
            judge(&places(5, 1), us).links.len()
        };
        assert_eq!((count(4_999, 100), count(5_000, 100)), (0, 1));
        assert_eq!((count(5_000, 501), count(5_000, 500), count(60_000, 6_001)), (0, 1, 0));
    }

    #[test]
    fn links_between_sites_are_compared_with_each_other() {
        let places: Vec<Place> = (0..6).map(|osd| place(osd / 4, osd)).collect();
        let far = |from: OsdId, to: OsdId| if from / 4 == to / 4 { CALM_US } else { 8_000 };
        assert_eq!(judge(&places, far), SlowLinks::default());
        let slow = |from: OsdId, to: OsdId| {
            if (from.min(to), from.max(to)) == (0, 5) { 80_000 } else { far(from, to) }
        };
        assert_eq!(
            judge(&places, slow).links,
            [SlowLink { osds: [0, 5], best_us: 80_000, others_us: 8_000 }]
        );
    }

    #[test]
    fn links_within_a_rack_are_compared_with_those_between_racks_where_they_are_few() {
        let places: Vec<Place> = (0..6).map(|osd| place(osd / 2, osd)).collect();
        assert_eq!(ends(&judge(&places, slow_osds(&[3]))), [(End::Bucket(-103), vec![3], 5)]);
        let far = |from: OsdId, to: OsdId| if from / 2 == to / 2 { CALM_US } else { 8_000 };
        assert_eq!(judge(&places, far), SlowLinks::default(), "but not the other way round");
    }

    /// Of three racks one, however many hosts there are in each.
    #[test]
    fn a_rack_whose_way_to_the_others_is_slow_is_named() {
        for hosts in [2, 3, 5] {
            let places: Vec<Place> = (0..3 * hosts).map(|osd| place(osd / hosts, osd)).collect();
            let slow_rack = |from: OsdId, to: OsdId| {
                let (a, b) = (from / hosts, to / hosts);
                if a != b && (a == 2 || b == 2) { SLOW_US } else { CALM_US }
            };
            let links = usize::try_from(2 * hosts * hosts).expect("few");
            let osds = (2 * hosts..3 * hosts).collect();
            assert_eq!(ends(&judge(&places, slow_rack)), [(End::Bucket(-12), osds, links)]);
        }
    }

    /// An OSD tells of those that it pings, once it has pinged them for a while.
    #[test]
    fn what_is_not_reported_is_no_link() {
        let by_osd_0 = |from: OsdId, to: OsdId| match (from, to) {
            (0, 4) => SLOW_US,
            (0, _) => CALM_US,
            _ => 0,
        };
        assert_eq!(judge(&places(6, 1), by_osd_0).pairs, BTreeSet::from([[0, 4]]));
        let few = |from: OsdId, to: OsdId| if to < 3 { by_osd_0(from, to + 2) } else { 0 };
        assert_eq!(judge(&places(6, 1), few), SlowLinks::default(), "two links");
        assert_eq!(judge(&[], |_, _| SLOW_US), SlowLinks::default());
    }
}
