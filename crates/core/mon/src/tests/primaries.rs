//! Primaries: evened by affinity, and who owns an affinity.

use super::{ADMIN, World, clean_pg};
use crate::event::SessionId;
use nacre_maps::WEIGHT_ONE;
use nacre_mgr::primaries::{Evenness, Plan};
use nacre_msg::{DeviceReport, OsdPgCreated, PgStats};
use nacre_types::{DeviceLatencies, DeviceWork, OsdId, PgId, RequestClass};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const OSDS: OsdId = 9;

struct Cluster {
    world: World,
    admin: SessionId,
    osds: Vec<SessionId>,
}

impl Cluster {
    /// Nine OSDs on as many hosts, with a pool of 128 PGs; the balancer looks each second.
    fn start() -> Self {
        let mut world = World::new(OSDS);
        let osds = world.boot_all(OSDS);
        let admin = world.connect(ADMIN);
        let mut cluster = Self { world, admin, osds };
        cluster.set_option("sleep_interval", "1");
        cluster.ask(r#""prefix":"osd pool create","pool":"p","pg_num":128,"autoscale_mode":"off""#);
        cluster.pass(&[]);
        cluster
    }

    fn ask(&mut self, command: &str) -> String {
        let ack = self.world.ask(self.admin, &format!("{{{command}}}")).expect("an answer");
        assert_eq!(ack.result, 0, "{command}: {}", ack.status);
        String::from_utf8(ack.data.to_bytes().to_vec()).expect("text")
    }

    fn set_option(&mut self, name: &str, value: &str) {
        self.ask(&format!(
            r#""prefix":"config set","who":"mgr","name":"mgr/balancer/{name}","value":"{value}""#
        ));
    }

    fn set_affinity(&mut self, osd: usize, weight: f64) {
        self.ask(&format!(r#""prefix":"osd primary-affinity","id":"{osd}","weight":{weight}"#));
    }

    /// A second: each OSD reports the PGs that it leads, active and clean, and its device, which is slow for `slow`.
    fn pass(&mut self, slow: &[OsdId]) {
        let map = self.world.map().clone();
        for (osd, session) in (0..).zip(self.osds.clone()) {
            let mut stats = PgStats { fsid: self.world.mon.fsid(), ..PgStats::default() };
            for pg in
                map.pools.iter().flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId::new(*id, seed)))
            {
                let stat = clean_pg(&map, pg);
                if stat.acting_primary != osd {
                    continue;
                }
                stats.pg_stat.insert(pg, stat);
                self.world.message(session, 0, OsdPgCreated { version: 0, pg });
            }
            self.world.message(session, 0, stats);
            let mut latencies = DeviceLatencies::default();
            let histogram = latencies.class_mut(RequestClass::of(DeviceWork::DurableWrite, 0, 4096));
            let us = if slow.contains(&osd) { 5300 } else { 300 };
            (0..8).for_each(|nth| histogram.note((us + nth) * 1000));
            self.world.message(session, 0, DeviceReport { latencies, ..DeviceReport::default() });
        }
        self.world.pass(Duration::from_secs(1));
    }

    fn pass_seconds(&mut self, seconds: usize, slow: &[OsdId]) {
        (0..seconds).for_each(|_| self.pass(slow));
    }

    /// Until nothing is worth moving.
    fn settle(&mut self) {
        for _ in 0..300 {
            self.pass(&[]);
            let status: Value =
                serde_json::from_str(&self.ask(r#""prefix":"balancer status","format":"json""#))
                    .expect("JSON");
            if status["no_optimization_needed"] == true && self.world.mon.state().primaries.planner.is_none()
            {
                return;
            }
        }
        panic!("it never ends");
    }

    /// PGs that each OSD leads, by the map.
    fn led(&self) -> Vec<usize> {
        let map = self.world.map();
        let mut led = vec![0; self.osds.len()];
        for pg in map.pools.iter().flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId::new(*id, seed))) {
            led[usize::try_from(map.pg_to_up_acting(pg).up_primary).expect("a primary")] += 1;
        }
        led
    }

    fn affinities(&self) -> Vec<u32> {
        (0..OSDS).map(|osd| self.world.map().primary_affinity(osd)).collect()
    }

    fn eval(&mut self) -> Value {
        serde_json::from_str(&self.ask(r#""prefix":"balancer eval","format":"json""#)).expect("JSON")
    }
}

fn spread(led: &[usize]) -> usize {
    led.iter().max().expect("OSDs") - led.iter().min().expect("OSDs")
}

#[test]
fn primaries_come_to_be_even_and_eval_says_how_even() {
    let mut cluster = Cluster::start();
    cluster.set_option("primaries", "false");
    cluster.settle();
    let (before, found) = (cluster.led(), cluster.eval());
    assert!(spread(&before) >= 4 && cluster.affinities() == [WEIGHT_ONE; 9], "{before:?}");
    assert!(found["primaries_to_share"].as_f64() > Some(1.1), "{found}");
    cluster.set_option("primaries", "true");
    let mut most = 0;
    for _ in 0..60 {
        let led = cluster.led();
        cluster.pass(&[]);
        let moved = led.iter().zip(cluster.led()).map(|(one, other)| one.abs_diff(other)).sum::<usize>() / 2;
        most = most.max(moved);
    }
    assert!((1..26).contains(&most), "{most} at a time");
    let (after, found) = (cluster.led(), cluster.eval());
    assert!(spread(&after) <= 2, "{before:?} {after:?}");
    assert!(found["primaries_to_share"].as_f64() < Some(1.1), "{found}");
    assert!(cluster.ask(r#""prefix":"balancer eval""#).contains("times its share of primaries"));
    let said = cluster
        .world
        .mon
        .state()
        .log
        .entries()
        .any(|entry| entry.message.contains("PGs get other primaries"));
    assert!(said, "in the cluster log");
    let affinities = cluster.affinities();
    cluster.pass_seconds(20, &[]);
    assert_eq!(cluster.affinities(), affinities, "and it stays so");
    // One OSD after the other gets back what it had when nobody wants it any more.
    cluster.set_option("primaries", "false");
    cluster.pass_seconds(30, &[]);
    assert_eq!((cluster.affinities(), cluster.led()), (vec![WEIGHT_ONE; 9], before));
}

#[test]
fn an_operators_affinity_is_his() {
    let mut cluster = Cluster::start();
    cluster.set_affinity(2, 0.5);
    cluster.settle();
    let ours = (0..9).find(|osd| ![WEIGHT_ONE, WEIGHT_ONE / 2].contains(&cluster.affinities()[*osd]));
    let ours = ours.expect("one that the balancer has set");
    assert_eq!(cluster.affinities()[2], WEIGHT_ONE / 2);
    // What was the balancer's becomes the operator's, even when it is the same as before; 1 gives it back.
    cluster.set_affinity(ours, 0.25);
    cluster.settle();
    assert_eq!(cluster.affinities()[ours], WEIGHT_ONE / 4);
    cluster.set_option("primaries", "false");
    cluster.pass_seconds(30, &[]);
    let affinities = cluster.affinities();
    assert_eq!((affinities[2], affinities[ours]), (WEIGHT_ONE / 2, WEIGHT_ONE / 4));
    cluster.set_option("primaries", "true");
    cluster.set_affinity(2, 1.0);
    cluster.set_affinity(ours, 1.0);
    cluster.settle();
    assert!(spread(&cluster.led()) <= 2, "{:?}", cluster.led());
}

/// Nor does a plan replace what an operator has set a moment ago, which is in no map yet.
#[test]
fn a_change_that_is_under_way_is_not_replaced() {
    let mut cluster = Cluster::start();
    // While the log has not answered to the first, the second waits.
    cluster.world.commits_complete = false;
    cluster.world.command(cluster.admin, r#"{"prefix":"osd set","key":"noout"}"#);
    cluster.world.command(cluster.admin, r#"{"prefix":"osd primary-affinity","id":"2","weight":0.25}"#);
    let map = std::sync::Arc::clone(cluster.world.mon.state().osd.map());
    assert_eq!(map.primary_affinity(2), WEIGHT_ONE, "it is not in the map yet");
    let same = Evenness { busiest: None, spread: 1.0, deviation: 0.0 };
    let plan = Plan { affinities: BTreeMap::from([(2, 7)]), moves: 1, before: same, after: same };
    let wall = cluster.world.wall;
    assert_eq!(cluster.world.mon.carry_out_primaries(&plan, &map, wall), None);
    assert!(!cluster.world.mon.state().primaries.known().contains_key(&2), "it is the operator's");
}

/// While a device is slow its OSD leads nothing, whatever is even; and then it gets back what the balancer had set.
#[test]
fn relief_comes_before_evenness() {
    let mut cluster = Cluster::start();
    cluster.settle();
    let before = cluster.affinities();
    let slow = (0..9).find(|osd| before[*osd] != WEIGHT_ONE).expect("one that the balancer has set");
    let id = OsdId::try_from(slow).expect("few");
    cluster.pass_seconds(120, &[id]);
    assert_eq!((cluster.affinities()[slow], cluster.led()[slow]), (0, 0));
    let others: Vec<usize> = cluster.led().into_iter().filter(|led| *led > 0).collect();
    assert!(others.len() == 8 && spread(&others) <= 3, "the others share what it led: {others:?}");
    cluster.pass_seconds(75, &[]);
    assert_ne!(cluster.affinities()[slow], 0);
    cluster.settle();
    assert!(spread(&cluster.led()) <= 2, "{:?}", cluster.led());
}

/// The next leader knows which affinities are the balancer's.
#[test]
fn what_was_set_is_known_after_a_restart() {
    let mut cluster = Cluster::start();
    cluster.settle();
    assert_ne!(cluster.affinities(), [WEIGHT_ONE; 9]);
    let set = cluster.world.mon.state().primaries.known().clone();
    let now: Vec<(OsdId, u32)> =
        (0..).zip(cluster.affinities()).filter(|(_, at)| *at != WEIGHT_ONE).collect();
    assert_eq!(set.into_iter().collect::<Vec<_>>(), now);
    cluster.world.restart();
    let set = cluster.world.mon.state().primaries.known().clone();
    assert_eq!(set.into_iter().collect::<Vec<_>>(), now);
}
