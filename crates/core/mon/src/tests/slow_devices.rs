//! Slow devices: named, relieved, and given back what they had.

use super::{ADMIN, World};
use crate::event::SessionId;
use nacre_maps::UpActing;
use nacre_maps::WEIGHT_ONE;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_msg::{DeviceReport, OsdPgCreated, PgStats};
use nacre_types::{DeviceLatencies, DeviceWork, OsdId, PgId, RequestClass};
use std::time::Duration;

const CALM_US: u64 = 300;
const STALL_US: u64 = 5_300;

struct Cluster {
    world: World,
    admin: SessionId,
    osds: Vec<SessionId>,
}

impl Cluster {
    fn new(osds: OsdId) -> Self {
        let mut world = World::new(osds);
        world.boot_all(osds);
        let admin = world.connect(ADMIN);
        let osds = (0..osds).map(|osd| world.connect(&format!("osd.{osd}"))).collect();
        Self { world, admin, osds }
    }

    /// For so many seconds all report, those of `slow` that their devices stall.
    fn pass(&mut self, seconds: u64, slow: &[usize]) {
        for second in 0..seconds {
            for (osd, session) in self.osds.iter().enumerate().filter(|_| second % 5 == 0) {
                let us = if slow.contains(&osd) { STALL_US } else { CALM_US };
                let mut latencies = DeviceLatencies::default();
                let histogram = latencies.class_mut(RequestClass::of(DeviceWork::DurableWrite, 0, 4096));
                (0..40).for_each(|nth| histogram.note((us + nth) * 1000));
                self.world.message(*session, 0, DeviceReport { latencies, ..DeviceReport::default() });
            }
            self.world.pass(Duration::from_secs(1));
        }
    }

    fn affinities(&self) -> Vec<u32> {
        let map = self.world.mon.state().osd.map();
        (0..self.osds.len()).map(|osd| map.primary_affinity(OsdId::try_from(osd).expect("few"))).collect()
    }

    fn relieved(&self) -> Vec<usize> {
        let affinities = self.affinities();
        (0..affinities.len()).filter(|osd| affinities[*osd] == 0).collect()
    }

    /// The lines that the health check has, and its summary.
    fn check(&mut self) -> Option<(String, Vec<String>)> {
        self.world.health_check(self.admin, "OSD_SLOW_DEVICE").map(|(_, summary, lines)| (summary, lines))
    }

    fn set_affinity(&mut self, osd: usize, weight: f64) {
        self.ask_quietly(&format!(r#"{{"prefix":"osd primary-affinity","id":"{osd}","weight":{weight}}}"#));
    }

    fn set_option(&mut self, name: &str, value: &str) {
        self.ask_quietly(&format!(
            r#"{{"prefix":"config set","who":"mon","name":"{name}","value":"{value}"}}"#
        ));
    }

    fn ask_quietly(&mut self, command: &str) {
        let ack = self.world.ask(self.admin, command).expect("an answer");
        assert_eq!(ack.result, 0, "{command}: {}", ack.status);
    }

    /// The leaders of all PGs report them as active and clean, and all OSDs that so many of 100 GiB are used.
    fn serve(&mut self, used_gib: i64) {
        let map = self.world.map().clone();
        for (osd, session) in (0..).zip(self.osds.clone()) {
            let mut stats = PgStats { fsid: self.world.mon.fsid(), ..PgStats::default() };
            for (id, pool) in &map.pools {
                for pg in (0..pool.pg_num).map(|seed| PgId::new(*id, seed)) {
                    let UpActing { up, acting, acting_primary, .. } = map.pg_to_up_acting(pg);
                    if acting_primary == osd {
                        let state = pg_state::ACTIVE | pg_state::CLEAN;
                        let stat = PgStat { state, up, acting, acting_primary, ..PgStat::default() };
                        stats.pg_stat.insert(pg, stat);
                        self.world.message(session, 0, OsdPgCreated { version: 0, pg });
                    }
                }
            }
            stats.osd_stat.statfs.total = 100 << 30;
            stats.osd_stat.statfs.available = (100 - used_gib) << 30;
            self.world.message(session, 0, stats);
        }
    }

    fn weight(&self, osd: OsdId) -> u32 {
        self.world.map().weight(osd)
    }

    fn logged(&self, what: &str) -> bool {
        self.world.mon.state().log.entries().any(|entry| entry.message.contains(what))
    }
}

#[test]
fn a_slow_device_is_named_relieved_and_given_back_what_it_had() {
    let mut cluster = Cluster::new(9);
    cluster.set_affinity(4, 0.5);
    let half = cluster.affinities()[4];
    cluster.pass(120, &[]);
    assert_eq!((cluster.check(), cluster.relieved()), (None, vec![]), "calm");
    cluster.pass(34, &[4]);
    let (summary, lines) = cluster.check().expect("named");
    assert_eq!(summary, "1 OSD has a slow device");
    assert!(lines[0].starts_with("osd.4") && lines[0].contains("durable writes"), "{lines:?}");
    assert!(lines[0].contains("8 others") && lines[0].contains("it keeps its PGs for now"), "{lines:?}");
    cluster.pass(20, &[4]);
    assert_eq!(cluster.relieved(), [4], "within 60 s");
    let lines = cluster.check().expect("still").1;
    assert!(lines[0].contains("its primary affinity is 0 and will be 0.5 again"), "{lines:?}");
    assert!(cluster.logged("osd.4 (host host4) has a slow device: durable writes take"));
    assert!(cluster.logged(
        "osd.4 (host host4) leads no PGs while its device is slow: primary affinity 0 instead of 0.5"
    ));
    cluster.pass(600, &[4]);
    assert_eq!(cluster.relieved(), [4], "as long as it lasts");
    cluster.pass(75, &[]);
    assert_eq!((cluster.check(), cluster.affinities()[4]), (None, half));
    assert!(cluster.logged("osd.4 (host host4): its device is as fast as others again"));
    assert!(cluster.logged("osd.4 leads its PGs again: primary affinity 0.5"));
}

#[test]
fn one_failure_domain_is_relieved_at_a_time() {
    let mut cluster = Cluster::new(9);
    cluster.pass(120, &[2, 6]);
    assert_eq!(cluster.check().expect("both are named").0, "2 OSDs have slow devices");
    let relieved = cluster.relieved();
    assert_eq!(relieved.len(), 1);
    let other = if relieved == [2] { 6 } else { 2 };
    // The other one's turn comes when the first is well.
    cluster.pass(120, &[other]);
    assert_eq!(cluster.relieved(), [other]);
    // On one host they are of one failure domain, and there is no other.
    let mut cluster = Cluster::new(9);
    for osd in 0..9 {
        cluster.ask_quietly(&format!(
            r#"{{"prefix":"osd crush set","id":"{osd}","weight":1.0,"args":["root=default","host=one"]}}"#
        ));
    }
    cluster.pass(120, &[2, 6]);
    assert_eq!(cluster.relieved().len(), 1, "one OSD where there is one host");
    // With a second host, all of the first may be relieved.
    for osd in [0, 1, 3, 4] {
        cluster.ask_quietly(&format!(
            r#"{{"prefix":"osd crush set","id":"{osd}","weight":1.0,"args":["root=default","host=two"]}}"#
        ));
    }
    cluster.pass(20, &[2, 6]);
    assert_eq!(cluster.relieved(), [2, 6]);
}

#[test]
fn an_operator_has_the_last_word() {
    let mut cluster = Cluster::new(9);
    cluster.pass(60, &[4]);
    assert_eq!(cluster.relieved(), [4]);
    cluster.set_affinity(4, 1.0);
    cluster.pass(300, &[4]);
    assert_eq!(cluster.relieved(), [] as [usize; 0], "it is his");
    let lines = cluster.check().expect("named").1;
    assert!(lines[0].contains("set by hand"), "{lines:?}");
    cluster.set_affinity(4, 0.0);
    cluster.pass(80, &[]);
    assert_eq!((cluster.check(), cluster.relieved()), (None, vec![4]), "it is not set back");
    // The next time it is slow is another time.
    cluster.set_affinity(4, 1.0);
    cluster.pass(60, &[4]);
    assert_eq!(cluster.relieved(), [4]);
    // Also before anything was done.
    cluster.pass(300, &[]);
    cluster.pass(32, &[7]);
    assert!(cluster.check().is_some() && cluster.relieved().is_empty());
    cluster.set_affinity(7, 0.25);
    cluster.pass(120, &[7]);
    assert_eq!(cluster.affinities()[7], WEIGHT_ONE / 4);
}

#[test]
fn what_was_done_is_known_to_the_next_leader() {
    let mut cluster = Cluster::new(9);
    cluster.pass(60, &[4]);
    assert_eq!(cluster.relieved(), [4]);
    cluster.world.restart();
    cluster.world.boot_all(9);
    cluster.admin = cluster.world.connect(ADMIN);
    cluster.osds = (0..9).map(|osd| cluster.world.connect(&format!("osd.{osd}"))).collect();
    cluster.pass(12, &[4]);
    let lines = cluster.check().expect("named at once").1;
    assert!(
        lines[0].contains("durable writes") && lines[0].contains("affinity is 0 and will be 1"),
        "{lines:?}"
    );
    cluster.pass(100, &[]);
    assert_eq!((cluster.check(), cluster.affinities()[4]), (None, WEIGHT_ONE));
}

#[test]
fn options_switch_it_off() {
    let mut cluster = Cluster::new(9);
    cluster.set_option("nacre_slow_device_relieve", "false");
    cluster.pass(120, &[4]);
    assert!(cluster.check().is_some() && cluster.relieved().is_empty(), "named only");
    cluster.set_option("nacre_slow_device_relieve", "true");
    cluster.pass(2, &[4]);
    assert_eq!(cluster.relieved(), [4]);
    cluster.set_option("nacre_slow_device_relieve", "false");
    cluster.pass(2, &[4]);
    assert!(cluster.check().is_some() && cluster.relieved().is_empty(), "given back");
    cluster.set_option("nacre_slow_device_relieve", "true");
    cluster.pass(60, &[4]);
    assert_eq!(cluster.relieved(), [4]);
    cluster.set_option("nacre_slow_device_ratio", "0");
    cluster.pass(120, &[4]);
    assert_eq!((cluster.check(), cluster.relieved()), (None, vec![]));
    cluster.set_option("nacre_slow_device_ratio", "30");
    cluster.pass(120, &[4]);
    assert_eq!((cluster.check(), cluster.relieved()), (None, vec![]), "17 times is not 30 times");
}

#[test]
fn an_osd_that_is_removed_leaves_nothing_behind() {
    let mut cluster = Cluster::new(9);
    cluster.pass(60, &[4]);
    assert_eq!(cluster.relieved(), [4]);
    cluster.ask_quietly(r#"{"prefix":"osd down","ids":["4"]}"#);
    cluster.ask_quietly(r#"{"prefix":"osd purge","id":"osd.4","yes_i_really_mean_it":true}"#);
    cluster.osds.truncate(4);
    cluster.pass(10, &[]);
    assert_eq!(cluster.check(), None);
    assert!(!cluster.logged("osd.4 leads its PGs again"));
}

#[test]
fn an_osd_that_stays_slow_is_out_until_it_is_well() {
    let mut cluster = Cluster::new(9);
    cluster.ask_quietly(r#"{"prefix":"osd pool create","pool":"p","pg_num":32,"autoscale_mode":"off"}"#);
    cluster.set_option("nacre_slow_device_out_after", "0");
    cluster.serve(10);
    cluster.pass(70, &[]);
    cluster.pass(60, &[4]);
    assert_eq!(cluster.relieved(), [4]);
    cluster.serve(10);
    cluster.pass(600, &[4]);
    assert_eq!(cluster.weight(4), WEIGHT_ONE, "nobody wants it out");
    cluster.ask_quietly(r#"{"prefix":"osd reweight","id":4,"weight":0.75}"#);
    let weight = cluster.weight(4);
    cluster.serve(10);

    // What keeps it in is said.
    let kept_in = |cluster: &mut Cluster, reason: &str| {
        cluster.pass(20, &[4]);
        assert_eq!(cluster.weight(4), weight, "{reason}");
        let line = cluster.check().expect("named").1.remove(0);
        assert!(line.contains("it is not marked out: ") && line.contains(reason), "{reason}: {line}");
    };
    cluster.ask_quietly(r#"{"prefix":"osd set","key":"noout"}"#);
    cluster.set_option("nacre_slow_device_out_after", "30");
    kept_in(&mut cluster, "the flag noout is set");
    cluster.ask_quietly(r#"{"prefix":"osd unset","key":"noout"}"#);
    cluster.serve(80);
    kept_in(&mut cluster, "the others would be 90 % full");
    cluster.set_option("mon_osd_min_in_ratio", "0.95");
    kept_in(&mut cluster, "mon_osd_min_in_ratio");
    cluster.set_option("mon_osd_min_in_ratio", "0.75");

    cluster.serve(10);
    cluster.pass(3, &[4]);
    assert_eq!(cluster.weight(4), 0);
    assert!(cluster.logged("osd.4 is marked out because its device stays slow"));
    let line = cluster.check().expect("named").1.remove(0);
    assert!(line.contains("it is out, and will be in again with weight 0.75"), "{line}");
    // The leader that comes next knows.
    cluster.world.restart();
    cluster.world.boot_all(9);
    cluster.admin = cluster.world.connect(ADMIN);
    cluster.osds = (0..9).map(|osd| cluster.world.connect(&format!("osd.{osd}"))).collect();
    cluster.serve(10);
    cluster.pass(60, &[4]);
    assert_eq!(cluster.weight(4), 0);
    cluster.pass(80, &[]);
    assert_eq!((cluster.check(), cluster.weight(4), cluster.affinities()[4]), (None, weight, WEIGHT_ONE));
    assert!(cluster.logged("osd.4 is in again, with weight 0.75"));
}

#[test]
fn an_operator_who_marks_a_slow_osd_in_has_the_last_word() {
    let mut cluster = Cluster::new(9);
    cluster.serve(10);
    cluster.pass(70, &[]);
    cluster.pass(90, &[4]);
    assert_eq!(cluster.weight(4), 0, "by default");
    cluster.ask_quietly(r#"{"prefix":"osd in","ids":["4"]}"#);
    cluster.pass(300, &[4]);
    assert_eq!(cluster.weight(4), WEIGHT_ONE, "it is his");
    // With the option it ends at once.
    cluster.pass(300, &[]);
    cluster.pass(120, &[7]);
    assert_eq!(cluster.weight(7), 0);
    cluster.set_option("nacre_slow_device_out_after", "0");
    cluster.pass(3, &[7]);
    assert_eq!(cluster.weight(7), WEIGHT_ONE);
}

#[test]
fn an_osd_that_an_operator_has_marked_out_meanwhile_stays_out() {
    for command in [r#"{"prefix":"osd out","ids":["4"]}"#, r#"{"prefix":"osd reweight","id":4,"weight":0.0}"#]
    {
        let mut cluster = Cluster::new(9);
        cluster.serve(10);
        cluster.pass(70, &[]);
        cluster.pass(90, &[4]);
        assert_eq!(cluster.weight(4), 0);
        cluster.ask_quietly(command);
        cluster.pass(300, &[]);
        assert_eq!((cluster.check(), cluster.weight(4)), (None, 0), "{command}");
    }
}

/// Nobody has seen it well: its model may be a slower one, which it would be out for good for.
#[test]
fn an_osd_that_was_slow_from_the_beginning_stays_in() {
    let mut cluster = Cluster::new(9);
    cluster.serve(10);
    cluster.pass(30, &[]);
    cluster.pass(600, &[4]);
    assert_eq!((cluster.relieved(), cluster.weight(4)), (vec![4], WEIGHT_ONE));
    let line = cluster.check().expect("named").1.remove(0);
    assert!(line.contains("it is not marked out: its device was not seen well before"), "{line}");
    // When it was well for a while and becomes slow, that is another matter.
    cluster.pass(80, &[]);
    assert_eq!(cluster.check(), None);
    cluster.pass(90, &[4]);
    assert_eq!(cluster.weight(4), 0);
}

/// With three hosts and three copies there is no other place.
#[test]
fn no_pg_loses_a_copy_because_an_osd_is_slow() {
    let mut cluster = Cluster::new(4);
    for (osd, host) in [(0, "a"), (1, "b"), (2, "c"), (3, "c")] {
        cluster.ask_quietly(&format!(
            r#"{{"prefix":"osd crush set","id":"{osd}","weight":1.0,"args":["root=default","host={host}"]}}"#
        ));
    }
    cluster.ask_quietly(r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"autoscale_mode":"off"}"#);
    cluster.serve(10);
    cluster.pass(70, &[]);
    cluster.pass(120, &[0]);
    assert_eq!((cluster.relieved(), cluster.weight(0)), (vec![0], WEIGHT_ONE));
    let line = cluster.check().expect("named").1.remove(0);
    assert!(line.contains("8 of its PGs would have fewer copies"), "{line}");
    // Its host has another OSD, which takes them.
    cluster.pass(120, &[]);
    cluster.serve(10);
    cluster.pass(120, &[3]);
    assert_eq!(cluster.weight(3), 0);
}
