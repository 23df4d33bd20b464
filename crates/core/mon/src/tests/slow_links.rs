//! Links between OSDs that are slow beside the others: named as long as OSDs report them so, by half minutes or by whole ones.

use super::{ADMIN, World};
use crate::event::SessionId;
use nacre_heartbeat::{Effect, Event, Heartbeats, Settings, Side};
use nacre_msg::stats::{PingTimes, PingWindow};
use nacre_msg::{DeviceReport, PgStats};
use nacre_types::OsdId;
use std::time::Duration;

const OSDS: OsdId = 6;
const CALM_US: u32 = 200;
const SLOW_US: u32 = 20_000;

struct Cluster {
    world: World,
    admin: SessionId,
    osds: Vec<SessionId>,
}

impl Cluster {
    fn new() -> Self {
        let mut world = World::new(OSDS);
        let osds = world.boot_all(OSDS);
        let admin = world.connect(ADMIN);
        world.pass(Duration::from_secs(2));
        Self { world, admin, osds }
    }

    /// All report a minute with busy moments, in which the quickest pings from one to another took `us` over the cluster network and the
    /// public one.
    fn report(&mut self, us: impl Fn(OsdId, OsdId) -> [u32; 2]) {
        let window =
            |us: u32| PingWindow { average: [90_000; 3], min: [us, 1, 1], max: [400_000; 3], last: 300_000 };
        for (from, session) in (0..).zip(self.osds.clone()) {
            let mut stats = PgStats { fsid: self.world.mon.fsid(), ..PgStats::default() };
            for to in (0..OSDS).filter(|to| *to != from) {
                let [back, front] = us(from, to).map(window);
                let times = PingTimes { last_update: self.world.wall.sec, back, front };
                stats.osd_stat.hb_pingtime.insert(to, times);
            }
            self.world.message(session, 0, stats);
        }
        self.world.pass(Duration::from_secs(1));
    }

    /// Severity, summary and lines of the health check.
    fn check(&mut self) -> Option<(String, String, Vec<String>)> {
        self.world.health_check(self.admin, "OSD_SLOW_LINK")
    }

    fn lines(&mut self) -> Vec<String> {
        self.check().map(|(.., lines)| lines).unwrap_or_default()
    }
}

fn calm(_from: OsdId, _to: OsdId) -> [u32; 2] {
    [CALM_US; 2]
}

/// The way between osd.1 and osd.4 is slow over the cluster network.
fn one_slow(from: OsdId, to: OsdId) -> [u32; 2] {
    let back = if [(1, 4), (4, 1)].contains(&(from, to)) { SLOW_US } else { CALM_US };
    [back, CALM_US]
}

#[test]
fn a_slow_link_is_named_until_it_is_as_others() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.check(), None, "nobody has reported");
    cluster.report(calm);
    assert_eq!(cluster.check(), None);
    // The minute of one of the two has passed first.
    cluster.report(|from, to| if from == 4 { one_slow(from, to) } else { calm(from, to) });
    let (severity, summary, lines) = cluster.check().expect("named");
    assert_eq!(
        (severity.as_str(), summary.as_str()),
        ("HEALTH_WARN", "1 link between OSDs is slow beside the others")
    );
    assert_eq!(
        lines,
        [
            "osd.1 (host host1) and osd.4 (host host4) on back: pings take 20.000 msec at best, those of others 0.200"
        ]
    );
    cluster.report(one_slow);
    assert_eq!(cluster.lines(), lines, "both directions in one line");
    cluster.report(|from, to| [SLOW_US, one_slow(from, to)[0]]);
    let lines = cluster.lines();
    assert!(
        lines.len() == 1 && lines[0].contains("osd.4 (host host4) on front: "),
        "the other has no others: {lines:?}"
    );
    cluster.report(calm);
    assert_eq!(cluster.check(), None);
}

#[test]
fn an_osd_all_of_whose_links_are_slow_is_named_and_overload_names_nobody() {
    let mut cluster = Cluster::new();
    cluster.report(|from, to| if from == 3 || to == 3 { [SLOW_US + 5, CALM_US] } else { [CALM_US; 2] });
    let (_, summary, lines) = cluster.check().expect("named");
    assert_eq!(summary, "5 links between OSDs are slow beside the others");
    assert_eq!(
        lines,
        [
            "all 5 links of osd.3 (host host3) are slow on back: pings take 20.005 msec at best, those of others 0.200: \
          its network card, cable or switch port, or the OSD itself"
        ]
    );
    cluster.report(|_, _| [SLOW_US; 2]);
    assert_eq!(cluster.check(), None);
}

#[test]
fn of_many_links_the_slowest_are_named() {
    let mut cluster = Cluster::new();
    // Each with the next: two of each OSD's five.
    cluster.report(|from, to| {
        if [1, 5].contains(&(from - to).rem_euclid(OSDS)) { [SLOW_US, 2 * SLOW_US] } else { [CALM_US; 2] }
    });
    let (_, summary, lines) = cluster.check().expect("named");
    assert_eq!(summary, "6 links between OSDs are slow beside the others");
    assert_eq!(lines.len(), 11, "{lines:?}");
    assert!(
        lines[0].starts_with("osd.0 (host host0) and osd.1 (host host1) on front: pings take 40.000 msec"),
        "{lines:?}"
    );
    assert!(
        lines[6].starts_with("osd.0 (host host0) and osd.1 (host host1) on back: pings take 20.000 msec"),
        "{lines:?}"
    );
    assert_eq!(lines[10], "and 2 more: 'ceph tell osd.N dump_osd_network 5' shows those of an OSD");
}

#[test]
fn what_is_not_measured_any_more_is_not_named() {
    let mut cluster = Cluster::new();
    cluster.report(one_slow);
    assert_eq!(cluster.lines().len(), 1);
    // As long as `osd_heartbeat_stale` says.
    cluster.world.pass(Duration::from_secs(590));
    assert_eq!(cluster.lines().len(), 1);
    cluster.world.pass(Duration::from_secs(20));
    assert_eq!(cluster.check(), None);
    cluster.report(one_slow);
    assert_eq!(cluster.lines().len(), 1);
    cluster.world.ask(cluster.admin, r#"{"prefix":"osd down","ids":["4"]}"#);
    cluster.world.pass(Duration::from_secs(1));
    assert_eq!(cluster.check(), None);
}

/// OSDs that ping each other by the heartbeats' own machine, and report what it knows each five seconds.
struct Pinging {
    cluster: Cluster,
    machines: Vec<Heartbeats>,
    seconds: u64,
    /// They tell only of whole minutes, as OSDs of an older version.
    is_old: bool,
}

impl Pinging {
    fn new(interval_s: u64) -> Self {
        let (cluster, seconds) = (Cluster::new(), Duration::from_secs);
        let (interval, grace, minute) = (seconds(interval_s), seconds(7), seconds(60));
        let settings = Settings { interval, grace, fast_fail: true, minute };
        let now = cluster.world.now;
        let machine = |from: OsdId| {
            let mut machine = Heartbeats::new(settings, now);
            machine.handle(now, Event::Peers((0..OSDS).filter(|to| *to != from).map(|to| (to, 1)).collect()));
            machine
        };
        Self { cluster, machines: (0..OSDS).map(machine).collect(), seconds: 0, is_old: false }
    }

    /// A second in which each ping takes as long as `us` says.
    fn second(&mut self, us: impl Fn(OsdId, OsdId) -> [u32; 2]) {
        self.cluster.world.pass(Duration::from_secs(1));
        self.seconds += 1;
        let now = self.cluster.world.now;
        for (from, machine) in (0..).zip(&mut self.machines) {
            let mut effects = Vec::new();
            machine.handle(now, Event::Tick);
            machine.drain(&mut effects);
            for effect in effects {
                let Effect::Ping { osd, sent } = effect else { panic!("all answer: {effect:?}") };
                for (side, us) in [Side::Back, Side::Front].into_iter().zip(us(from, osd)) {
                    let answered = now + Duration::from_micros(us.into());
                    machine.handle(answered, Event::Pong { osd, side, sent });
                }
            }
        }
        if self.seconds.is_multiple_of(5) {
            self.report();
        }
    }

    fn report(&mut self) {
        let (now, wall) = (self.cluster.world.now, self.cluster.world.wall);
        for (machine, session) in self.machines.iter().zip(self.cluster.osds.clone()) {
            let mut stats = PgStats { fsid: self.cluster.world.mon.fsid(), ..PgStats::default() };
            for (to, trips) in machine.round_trips() {
                let times = PingTimes { last_update: wall.sec, back: trips.back, front: trips.front };
                stats.osd_stat.hb_pingtime.insert(to, times);
            }
            self.cluster.world.message(session, 0, stats);
            let pings = if self.is_old { Vec::new() } else { machine.least_pings(now).collect() };
            let report = DeviceReport { pings, ..DeviceReport::default() };
            self.cluster.world.message(session, 0, report);
        }
    }

    /// After how many seconds of this the check is on, or not any more.
    fn seconds_until(&mut self, is_on: bool, us: impl Fn(OsdId, OsdId) -> [u32; 2]) -> Option<u64> {
        (1..=200).find(|_| {
            self.second(&us);
            self.cluster.check().is_some() == is_on
        })
    }
}

#[test]
fn a_slow_link_is_named_within_a_minute_and_not_any_more_within_ten_seconds() {
    for begin in 0..5 {
        let mut pinging = Pinging::new(1);
        (0..100 + begin).for_each(|_| pinging.second(calm));
        let named = pinging.seconds_until(true, one_slow).expect("named");
        assert!((25..=37).contains(&named), "after {named} s");
        let lines = pinging.cluster.lines();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("osd.1 (host host1) and osd.4 (host host4) on back: "), "{lines:?}");
        // Until the whole minutes say so, too.
        (0..130).for_each(|_| pinging.second(one_slow));
        assert_eq!(pinging.cluster.lines(), lines);
        let well = pinging.seconds_until(false, calm).expect("well again");
        assert!(well <= 10, "after {well} s");
        // Though the last whole minute was slow: of OSDs that tell no other it counts.
        pinging.is_old = true;
        assert_eq!(pinging.seconds_until(true, calm).map(|named| named <= 5), Some(true));
        assert!(pinging.seconds_until(false, calm).is_some_and(|well| well <= 65));
    }
}

#[test]
fn an_interval_of_ceph_is_often_enough() {
    let mut pinging = Pinging::new(6);
    (0..100).for_each(|_| pinging.second(calm));
    let named = pinging.seconds_until(true, one_slow).expect("named");
    assert!((25..=37).contains(&named), "after {named} s");
}

#[test]
fn osds_that_tell_only_of_minutes_are_judged_by_these() {
    let mut pinging = Pinging::new(1);
    pinging.is_old = true;
    (0..100).for_each(|_| pinging.second(calm));
    let named = pinging.seconds_until(true, one_slow).expect("named");
    assert!((60..=125).contains(&named), "after {named} s");
}

#[test]
fn late_pings_among_others_name_nobody() {
    let mut pinging = Pinging::new(1);
    (0..60).for_each(|_| pinging.second(calm));
    for nth in 0..200 {
        // One of them, and then for 25 of 30 seconds.
        let is_late = nth == 10 || (nth > 60 && nth % 30 < 25);
        pinging.second(if is_late { one_slow } else { calm });
        assert_eq!(pinging.cluster.check(), None, "{nth}");
    }
}
