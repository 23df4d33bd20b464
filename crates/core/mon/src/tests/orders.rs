//! Orders to the OSDs that lead PGs: each goes out with the command, or the command is refused; scrubs last until they are done.

use super::{World, with_pool};
use crate::FrontEvent;
use crate::event::SessionId;
use nacre_msg::stats::PgStat;
use nacre_msg::{Message, PgStats};
use nacre_types::{Errno, OsdId, PgId, UTime};
use std::collections::BTreeSet;
use std::time::Duration;

/// PGs that an OSD was told to scrub, all data of them.
fn scrubs(world: &mut World, session: SessionId) -> BTreeSet<PgId> {
    let sent = world.take(session).into_iter();
    let scrub = |message| match message {
        Message::OsdScrub2(scrub) if scrub.deep && !scrub.repair => Some(scrub.pgs),
        _ => None,
    };
    sent.filter_map(scrub).flatten().map(|spg| spg.pg).collect()
}

#[test]
fn an_order_goes_to_osds_that_are_connected_or_is_refused() {
    let (mut world, admin, _) = with_pool(16);
    let led = |world: &World, osd: OsdId| -> BTreeSet<PgId> {
        let pgs = (0..16).map(|seed| PgId::new(1, seed));
        pgs.filter(|pg| world.map().pg_to_up_acting(*pg).acting_primary == osd).collect()
    };
    let pg = *led(&world, 0).first().expect("it leads some of them");
    let (of_pg, of_osd, of_pool) = (
        format!(r#"{{"prefix":"pg deep-scrub","pgid":"{pg}"}}"#),
        r#"{"prefix":"osd deep-scrub","who":"0"}"#,
        r#"{"prefix":"osd pool deep-scrub","who":["p"]}"#,
    );
    let said = |world: &mut World, order: &str| {
        let ack = world.ask(admin, order).expect("an answer");
        (ack.result, ack.status)
    };
    let again = Errno::EAGAIN.negated();
    let refusal = (again, format!("pg {pg} primary osd.0 is not currently connected"));
    assert_eq!(said(&mut world, &of_pg), refusal);
    let refusal = "osd.0 is not currently connected, so nothing was ordered: try again";
    assert_eq!(said(&mut world, of_osd), (again, refusal.to_owned()));

    let (before, first) = (world.connect_manager("osd.0"), world.connect_manager("osd.0"));
    let second = world.connect_manager("osd.1");
    assert_eq!(said(&mut world, &of_pg).0, 0);
    assert_eq!(scrubs(&mut world, first), [pg].into(), "at once, in the newest session");
    assert_eq!(said(&mut world, of_osd).0, 0);
    assert_eq!(scrubs(&mut world, first), led(&world, 0));
    assert_eq!(said(&mut world, of_pool), (again, refusal.replace("osd.0", "osd.2")));
    assert!(scrubs(&mut world, first).is_empty() && scrubs(&mut world, second).is_empty());
    let third = world.connect_manager("osd.2");
    assert_eq!(said(&mut world, of_pool), (0, "instructed 16 pgs to deep-scrub".to_owned()));
    for (osd, session) in [(0, first), (1, second), (2, third)] {
        assert_eq!(scrubs(&mut world, session), led(&world, osd));
    }
    // An older session that ends says nothing of the newest.
    world.front_event(FrontEvent::Closed { session: before });
    assert_eq!(said(&mut world, &of_pg).0, 0);
    world.front_event(FrontEvent::Closed { session: first });
    assert_eq!(said(&mut world, &of_pg).0, again);
}

/// Reports of one PG by whoever leads it.
struct Reports {
    pg: PgId,
    epoch: u32,
    scrubbed: UTime,
}

impl Reports {
    fn by(&mut self, world: &mut World, leader: OsdId) {
        self.epoch += 1;
        let stat = PgStat {
            acting_primary: leader,
            reported_epoch: self.epoch,
            last_deep_scrub_stamp: self.scrubbed,
            ..PgStat::default()
        };
        let fsid = world.mon.fsid();
        let session = world.connect(&format!("osd.{leader}"));
        world.message(session, 0, PgStats { fsid, pg_stat: [(self.pg, stat)].into(), ..PgStats::default() });
        world.pass(Duration::from_secs(1));
    }
}

#[test]
fn a_scrub_is_ordered_again_of_whoever_comes_to_lead_until_it_is_done() {
    let (mut world, admin, _) = with_pool(16);
    let pg = PgId::new(1, 0);
    let leader = world.map().pg_to_up_acting(pg).acting_primary;
    let other = (leader + 1) % 3;
    let [first, second] = [leader, other].map(|osd| world.connect_manager(&format!("osd.{osd}")));
    let mut reports = Reports { pg, epoch: 1, scrubbed: UTime { sec: 7, nsec: 0 } };
    reports.by(&mut world, leader);
    let order = |world: &mut World, what: &str| {
        let ack = world.ask(admin, &format!(r#"{{"prefix":"pg {what}","pgid":"{pg}"}}"#));
        assert_eq!(ack.map(|ack| ack.result), Some(0));
    };
    order(&mut world, "deep-scrub");
    assert_eq!(scrubs(&mut world, first), [pg].into());
    order(&mut world, "scrub");
    reports.by(&mut world, leader);
    assert!(scrubs(&mut world, first).is_empty(), "it has the order");
    // Another OSD leads, then the first again, in a new process.
    reports.by(&mut world, other);
    assert_eq!(scrubs(&mut world, second), [pg].into(), "all data, though a lesser one was ordered later");
    reports.by(&mut world, leader);
    assert_eq!(scrubs(&mut world, first), [pg].into());
    world.front_event(FrontEvent::Closed { session: first });
    reports.by(&mut world, leader);
    let anew = world.connect_manager(&format!("osd.{leader}"));
    world.pass(Duration::from_secs(1));
    assert_eq!(scrubs(&mut world, anew), [pg].into());
    world.pass(Duration::from_secs(3));
    assert!(scrubs(&mut world, anew).is_empty(), "once");
    reports.scrubbed.sec += 1;
    reports.by(&mut world, leader);
    reports.by(&mut world, other);
    assert!(scrubs(&mut world, second).is_empty() && scrubs(&mut world, anew).is_empty(), "it is done");
}
