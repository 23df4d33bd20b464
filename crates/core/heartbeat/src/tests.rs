//! Pings in, reports out.

use crate::{Effect, Event, Heartbeats, Settings, Side, choose_peers};
use nacre_msg::LeastPing;
use nacre_types::{OsdId, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(7);

struct World {
    machine: Heartbeats,
    now: Stamp,
    /// OSDs that answer pings.
    alive: BTreeSet<OsdId>,
    reports: Vec<Effect>,
}

impl World {
    fn new(peers: &[OsdId]) -> Self {
        let minute = Duration::from_secs(60);
        let settings = Settings { interval: INTERVAL, grace: GRACE, fast_fail: true, minute };
        let now = Stamp::default() + Duration::from_secs(100);
        let mut machine = Heartbeats::new(settings, now);
        machine.handle(now, Event::Peers(peers.iter().map(|osd| (*osd, 5)).collect()));
        Self { machine, now, alive: peers.iter().copied().collect(), reports: Vec::new() }
    }

    fn settle(&mut self) {
        let mut effects = Vec::new();
        self.machine.drain(&mut effects);
        for effect in effects {
            match effect {
                Effect::Ping { osd, sent } if self.alive.contains(&osd) => {
                    for side in [Side::Back, Side::Front] {
                        self.machine.handle(self.now, Event::Pong { osd, side, sent });
                    }
                }
                Effect::Ping { .. } => (),
                report => self.reports.push(report),
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.machine.handle(self.now, event);
        self.settle();
    }

    /// Lets the machine work whenever it is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.machine.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.event(Event::Tick);
            self.settle();
        }
        self.now = end;
    }
}

#[test]
fn who_answers_is_never_reported() {
    let mut world = World::new(&[1, 2]);
    world.pass(Duration::from_secs(3600));
    assert_eq!(world.reports, []);
    assert!(world.machine.is_healthy(world.now));
}

#[test]
fn silence_is_reported_once_within_interval_and_grace_and_taken_back() {
    let mut world = World::new(&[1, 2]);
    world.pass(Duration::from_millis(2500));
    world.alive.remove(&2);
    world.pass(INTERVAL + GRACE);
    let report = Effect::Failed { osd: 2, silent_for: GRACE, immediate: false };
    assert_eq!(world.reports, std::slice::from_ref(&report));
    assert!(world.machine.is_healthy(world.now), "one of two answers");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.reports, [report], "the report stands");
    world.alive.insert(2);
    world.pass(INTERVAL);
    assert_eq!(world.reports.last(), Some(&Effect::Alive { osd: 2 }));
}

#[test]
fn one_dead_network_of_two_counts_as_silence() {
    let mut world = World::new(&[1]);
    world.alive.clear();
    for _ in 0..10 {
        world.pass(INTERVAL);
        let mut effects = Vec::new();
        world.machine.drain(&mut effects);
        let sent = world.now;
        world.machine.handle(world.now, Event::Pong { osd: 1, side: Side::Back, sent });
    }
    assert!(matches!(world.reports[..], [Effect::Failed { osd: 1, immediate: false, .. }]));
}

#[test]
fn a_refused_connection_is_reported_at_once_and_again_to_the_next_monitor() {
    let mut world = World::new(&[1, 2]);
    world.event(Event::Refused(2));
    world.event(Event::Refused(2));
    world.event(Event::Refused(9));
    let report = |silent_for| Effect::Failed { osd: 2, silent_for, immediate: true };
    assert_eq!(world.reports, [report(Duration::ZERO)]);
    world.event(Event::MonitorOpened);
    assert_eq!(world.reports.len(), 2);
    // The map has another instance of it up.
    world.event(Event::Peers(BTreeMap::from([(1, 5), (2, 9)])));
    world.event(Event::MonitorOpened);
    assert_eq!(world.reports.len(), 2, "reports were about the instance before");
}

#[test]
fn without_fast_fail_only_the_grace_counts() {
    let mut world = World::new(&[1]);
    world.machine.set(Settings {
        interval: INTERVAL,
        grace: GRACE,
        fast_fail: false,
        minute: Duration::from_secs(60),
    });
    world.event(Event::Refused(1));
    assert_eq!(world.reports, []);
}

#[test]
fn who_was_frozen_itself_reports_nobody() {
    let mut world = World::new(&[1, 2]);
    world.pass(Duration::from_secs(3));
    world.alive.clear();
    world.pass(INTERVAL);
    world.alive = BTreeSet::from([1, 2]);
    world.now = world.now + Duration::from_secs(30);
    world.event(Event::Tick);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.reports, []);
}

#[test]
fn an_osd_that_hears_nobody_is_the_one_that_is_cut_off() {
    let mut world = World::new(&[1, 2, 3, 4]);
    world.alive = BTreeSet::from([1]);
    world.pass(GRACE + INTERVAL * 2);
    assert!(!world.machine.is_healthy(world.now), "one of four");
    world.alive = BTreeSet::from([1, 2]);
    world.pass(INTERVAL * 2);
    assert!(world.machine.is_healthy(world.now));
}

#[test]
fn the_quickest_pings_are_told_once_they_are_known() {
    let mut world = World::new(&[1, 2]);
    world.alive.remove(&2);
    let told = |world: &World| world.machine.least_pings(world.now).collect::<Vec<_>>();
    world.pass(Duration::from_secs(20));
    assert_eq!(told(&world), [], "too early");
    world.pass(Duration::from_secs(10));
    assert_eq!(told(&world), [LeastPing { osd: 1, back_us: 1, front_us: 1 }], "of one that answers");
    let half_a_minute = Duration::from_secs(30);
    world.alive.clear();
    world.pass(half_a_minute + INTERVAL);
    assert_eq!(told(&world), [], "it has not answered since");
    world.alive.insert(1);
    world.pass(half_a_minute);
    assert_eq!(told(&world).len(), 1, "it answers again");
    world.event(Event::Peers(BTreeMap::from([(1, 9)])));
    assert_eq!(told(&world), [], "another instance");
}

#[test]
fn the_quickest_pings_of_each_network_are_told_apart() {
    let mut world = World::new(&[1]);
    world.alive.clear();
    for second in 0..40 {
        let sent = world.now;
        world.event(Event::Opened(1));
        for (side, ms) in [(Side::Back, 20), (Side::Front, 1 + second % 7)] {
            let now = sent + Duration::from_millis(ms);
            world.machine.handle(now, Event::Pong { osd: 1, side, sent });
        }
        world.now = world.now + INTERVAL;
    }
    let told: Vec<LeastPing> = world.machine.least_pings(world.now).collect();
    assert_eq!(told, [LeastPing { osd: 1, back_us: 20_000, front_us: 1_000 }]);
}

#[test]
fn peers_are_sharers_neighbours_and_enough_others() {
    let set = |osds: &[OsdId]| osds.iter().copied().collect::<BTreeSet<_>>();
    let up: BTreeSet<OsdId> = (0..20).collect();
    assert_eq!(choose_peers(5, &set(&[11, 40]), &up, 2), set(&[4, 6, 11]));
    assert_eq!(choose_peers(19, &set(&[]), &up, 0), set(&[0, 18]));
    assert_eq!(choose_peers(18, &set(&[]), &up, 5), set(&[17, 19, 0, 1, 2]));
    assert_eq!(choose_peers(0, &set(&[]), &set(&[0]), 5), set(&[]));
    assert_eq!(choose_peers(7, &set(&[]), &set(&[1]), 5), set(&[1]));
    assert_eq!(choose_peers(1, &set(&[]), &set(&[0, 1, 2]), 10), set(&[0, 2]));
}
