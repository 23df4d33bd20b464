//! An OSD whose device fails ends by itself, and says so first.

use nacre_msg::SubOp;
use nacre_msg::peer::PeerVersions;
use nacre_pg::{Planted, Tuning};
use nacre_sim::{Config, World};
use nacre_types::OsdId;
use std::time::Duration;

const BROKEN: OsdId = 1;

fn name(object: u64) -> String {
    format!("object {object}")
}

#[test]
fn an_osd_whose_device_fails_takes_leave_of_the_monitor_and_ends() {
    for seed in 1..=5 {
        let mut world = World::new(seed, &Config::default());
        world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 8}"#);
        let content = |object: u64, round: u64| format!("content {object} {round}").into_bytes();
        for object in 0..10 {
            world.op(&name(object), SubOp::write_full(content(object, 0).into()));
        }
        world.break_device(BROKEN);
        for object in 0..10 {
            world.op(&name(object), SubOp::write_full(content(object, 1).into()));
        }
        let ended = world.run_until(Duration::from_secs(10), |world| world.take_gave_up() == [BROKEN]);
        assert!(ended, "seed {seed}: {world:?}");
        let log = world.command(r#"{"prefix": "log last", "num": 50, "format": "json"}"#);
        assert!(
            log.contains("osd.1 marked itself down"),
            "seed {seed}: the monitor heard of it by others: {log}"
        );
        for object in 0..10 {
            assert_eq!(world.op(&name(object), SubOp::read(0, 0)), content(object, 1), "seed {seed}");
        }
    }
}

/// A member says twice what others cannot read, in the midst of writes.
#[test]
fn a_message_that_does_not_decode_resets_the_session_and_hangs_nothing() {
    for seed in 1..=5 {
        let tuning = Tuning { checked: true, planted: Planted::MessagesGarbled, ..Tuning::default() };
        let mut world = World::new(seed, &Config { tuning, ..Config::default() });
        world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 4}"#);
        let mut told = None;
        for round in 0..150_u64 {
            let content = format!("content {round}").into_bytes();
            world.op(&name(round % 10), SubOp::write_full(content.clone().into()));
            assert_eq!(world.op(&name(round % 10), SubOp::read(0, 0)), content, "seed {seed}");
            told = told.or_else(|| warning(&world));
        }
        world.run_until(Duration::from_secs(30), |world| warning(world).is_some());
        let told = told.or_else(|| warning(&world)).unwrap_or_else(|| panic!("seed {seed}: nobody was told"));
        assert!(told.contains("does not decode"), "seed {seed}: {told}");
        // It is over some time after the last one.
        let over = world.run_until(Duration::from_secs(1300), |world| warning(world).is_none());
        assert!(over, "seed {seed}: {:?}", warning(&world));
    }
}

/// The monitor lets them up, as one would that does not know of versions.
#[test]
fn osds_that_speak_other_versions_refuse_each_other_and_say_so() {
    let tuning = Tuning { checked: true, planted: Planted::VersionsUnknown, ..Tuning::default() };
    let mut world = World::new(1, &Config { tuning, ..Config::default() });
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 4}"#);
    assert!(world.run_until(Duration::from_secs(30), |world| warning(world).is_some()));
    let (told, ours) = (warning(&world).expect("a warning"), PeerVersions::OURS);
    let theirs = ours.newest + 1;
    let text = format!("speaks versions {theirs}-{theirs} of the messages between OSDs, and osd.");
    assert!(told.contains(&text) && told.contains(&format!(" {ours}; upgrade the older one")), "{told}");
    // None of their PGs serves.
    let status = world.command(r#"{"prefix": "pg stat", "format": "json"}"#);
    assert!(!status.contains("active"), "{status}");
}

fn warning(world: &World) -> Option<String> {
    let checks = nacre_mon::health::checks(world.mon().expect("it runs").state());
    checks.iter().find(|check| check.code == "OSD_PEER_MESSAGES").map(|check| check.detail.join("; "))
}
