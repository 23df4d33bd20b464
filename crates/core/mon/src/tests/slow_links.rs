//! Links between OSDs that are slow beside the others: named as long as OSDs report them so.

use super::{ADMIN, World};
use crate::event::SessionId;
use nacre_msg::PgStats;
use nacre_msg::stats::{PingTimes, PingWindow};
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
        let detail = r#"{"prefix":"health","detail":"detail","format":"json"}"#;
        let health = self.world.ask(self.admin, detail).expect("an answer").data.to_bytes();
        let health: serde_json::Value = serde_json::from_slice(&health).expect("JSON");
        let check = health["checks"].get("OSD_SLOW_LINK")?;
        let text = |value: &serde_json::Value| value["message"].as_str().expect("text").to_owned();
        let lines = check["detail"].as_array().expect("lines").iter().map(text).collect();
        Some((check["severity"].as_str()?.to_owned(), text(&check["summary"]), lines))
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
