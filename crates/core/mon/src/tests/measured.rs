//! What commands show of daemons and of work under way is what daemons have reported, and gone with them.

use super::{ADMIN, World};
use crate::event::SessionId;
use crate::front::FrontEvent;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_msg::{Message, MgrOpen, MgrReport, PgStats};
use nacre_types::PgId;
use std::collections::BTreeMap;
use std::time::Duration;

fn shown(world: &mut World, session: SessionId, prefix: &str) -> serde_json::Value {
    let ask = format!(r#"{{"prefix":"{prefix}","format":"json"}}"#);
    let ack = world.ask(session, &ask).expect("an answer");
    assert_eq!(ack.result, 0, "{prefix}: {}", ack.status);
    serde_json::from_slice(&ack.data.to_bytes()).expect("JSON")
}

/// OSD 0 reports that its commits take so long, and that so many of the 30 copies of its first PG's objects are missing.
fn report(world: &mut World, osd: SessionId, commit_ns: u64, degraded: i64) {
    let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
    let state = pg_state::ACTIVE | if degraded > 0 { pg_state::DEGRADED } else { pg_state::CLEAN };
    let mut stat = PgStat { state, acting: vec![0, 1], acting_primary: 0, ..PgStat::default() };
    (stat.stats.sum.num_object_copies, stat.stats.sum.num_objects_degraded) = (30, degraded);
    stats.pg_stat.insert(PgId::new(1, 0), stat);
    stats.osd_stat.perf_stat.commit_latency_ns = commit_ns;
    world.message(osd, 0, stats);
    world.pass(Duration::from_secs(1));
}

#[test]
fn latencies_and_progress_follow_the_reports() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    assert_eq!(world.ask(admin, r#"{"prefix":"osd pool create","pool":"p"}"#).map(|ack| ack.result), Some(0));
    let osd = world.connect("osd.0");
    let perf = |world: &mut World| {
        let infos = shown(world, admin, "osd perf")["osdstats"]["osd_perf_infos"].clone();
        let each = infos.as_array().expect("a list").iter();
        each.map(|one| (one["id"].clone(), one["perf_stats"]["commit_latency_ns"].clone()))
            .collect::<Vec<_>>()
    };
    let progress = |world: &mut World| shown(world, admin, "progress json")["events"].clone();
    assert_eq!((perf(&mut world), progress(&mut world)), (vec![], serde_json::json!([])));
    report(&mut world, osd, 1_234_567, 12);
    assert_eq!(perf(&mut world), [(0.into(), 1_234_567.into())]);
    assert_eq!(progress(&mut world)[0]["progress"], 0.6);
    let text = world.ask(admin, r#"{"prefix":"progress"}"#).expect("an answer").data.to_bytes();
    assert_eq!(
        std::str::from_utf8(&text),
        Ok("Recovery\n    60.0% of the copies are in place, 12 are not\n")
    );
    report(&mut world, osd, 7_000_000, 3);
    assert_eq!(perf(&mut world), [(0.into(), 7_000_000.into())]);
    assert_eq!(progress(&mut world)[0]["progress"], 0.9);
    report(&mut world, osd, 0, 0);
    assert_eq!((perf(&mut world), progress(&mut world)), (vec![], serde_json::json!([])));
}

#[test]
fn services_are_shown_while_they_are_connected() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    for who in ["client.rgw.a", "client.x"] {
        world.add_client(who, "allow r", "allow rwx");
    }
    let said = |state: &str| BTreeMap::from([("state".to_owned(), state.to_owned())]);
    let open = |state: &str| MgrOpen {
        service_name: "rgw".to_owned(),
        daemon_name: "a".to_owned(),
        service: Some((BTreeMap::new(), said(state))),
        ..MgrOpen::default()
    };
    let state =
        |world: &mut World| shown(world, admin, "service status")["rgw"]["a"]["status"]["state"].clone();
    let gateway = world.connect_manager("client.rgw.a");
    world.message(gateway, 0, open("starts"));
    assert!(matches!(world.take(gateway)[..], [Message::MgrConfigure(_)]));
    assert_eq!(state(&mut world), "starts");
    world.message(gateway, 0, MgrReport { daemon_status: Some(said("serves")), ..MgrReport::default() });
    assert_eq!(state(&mut world), "serves");
    // Another client cannot speak for it.
    let other = world.connect_manager("client.x");
    world.message(other, 0, open("is gone"));
    assert_eq!((world.take(other).len(), world.closed.contains(&other)), (0, true));
    assert_eq!(state(&mut world), "serves");
    assert!(world.logged("a service's daemon of client.x is turned away"));
    world.front_event(FrontEvent::Closed { session: gateway });
    assert_eq!(shown(&mut world, admin, "service status"), serde_json::json!({}));
}
