//! Options about OSDs, each by the difference that it makes: the same story with its default, and with another value.

use super::osds::report;
use super::{ADMIN, World};
use nacre_msg::{OsdBeacon, OsdFailure};
use nacre_types::OsdId;
use std::time::Duration;

fn run(world: &mut World, command: &str) {
    let admin = world.connect(ADMIN);
    let answer = world.ask(admin, command).map(|ack| (ack.result, ack.status));
    assert_eq!(answer.as_ref().map(|(result, _)| *result), Some(0), "{command}: {answer:?}");
}

fn set(world: &mut World, option: &str, value: &str) {
    let json = format!(r#"{{"prefix":"config set","who":"mon","name":"{option}","value":"{value}"}}"#);
    run(world, &json);
}

/// Asserts that `story` ends with `usual`, and with `other` once `option` is `value`.
fn differs<T: PartialEq + std::fmt::Debug>(
    (option, value): (&str, &str),
    (usual, other): (T, T),
    story: impl Fn(&mut World) -> T,
) {
    let mut world = World::new(4);
    assert_eq!(story(&mut world), usual, "without {option}");
    let mut world = World::new(4);
    set(&mut world, option, value);
    assert_eq!(story(&mut world), other, "with {option} {value}");
    world.check();
}

/// Reports of `reporters` that `target` was silent for `seconds`; whether it is down then.
fn fails(world: &mut World, reporters: &[OsdId], target: OsdId, seconds: i32) -> bool {
    for osd in reporters {
        let session = world.connect(&format!("osd.{osd}"));
        let failed = OsdFailure { failed_for_s: seconds, ..report(world, target, 1) };
        world.message(session, 0, failed);
    }
    !world.map().is_up(target)
}

/// All are up, and OSD 3 was marked down wrongly for 40 s once.
fn lagged(world: &mut World) {
    let sessions = world.boot_all(4);
    assert!(fails(world, &[0, 1, 2], 3, 20));
    world.pass(Duration::from_secs(40));
    world.boot_again(sessions[3], 3, 1, 5);
    assert!(world.map().is_up(3));
}

#[test]
fn reporters_count_as_the_options_say() {
    let two_fail = |world: &mut World| {
        world.boot_all(4);
        fails(world, &[0, 1], 3, 20)
    };
    differs(("mon_osd_min_down_reporters", "3"), (true, false), two_fail);
    differs(("mon_osd_min_down_reporters", "1"), (false, true), |world| {
        world.boot_all(4);
        fails(world, &[0], 3, 20)
    });
    differs(("mon_osd_reporter_subtree_level", "osd"), (false, true), |world| {
        run(world, r#"{"prefix":"osd crush move","name":"osd.1","args":["host=host0"]}"#);
        two_fail(world)
    });
    differs(("mon_osd_min_up_ratio", "0.9"), ([true, true], [true, false]), |world| {
        world.boot_all(4);
        [fails(world, &[0, 1], 3, 20), fails(world, &[0, 1], 2, 20)]
    });
}

#[test]
fn lag_buys_time_as_the_options_say() {
    let fails_after_8_s = |world: &mut World| {
        lagged(world);
        fails(world, &[0, 1, 2], 3, 8)
    };
    differs(("mon_osd_adjust_heartbeat_grace", "false"), (false, true), fails_after_8_s);
    differs(("mon_osd_laggy_halflife", "1"), (false, true), fails_after_8_s);
    let interval = |world: &mut World| {
        lagged(world);
        world.map().xinfo(3).laggy_interval
    };
    differs(("mon_osd_laggy_weight", "1"), (12, 40), interval);
    differs(("mon_osd_laggy_max_interval", "10"), (12, 3), interval);
}

/// OSDs 2 and 3 of four are down for `seconds`; which are in then.
fn two_down_for(world: &mut World, seconds: u64) -> [bool; 2] {
    let sessions = world.boot_all(4);
    for osd in [2, 3] {
        world.mon.state.osd.mark_down(osd, world.wall);
    }
    world.settle();
    for _ in 0..seconds.div_ceil(10) {
        world.pass(Duration::from_secs(10));
        for session in &sessions[..2] {
            world.message(*session, 0, OsdBeacon::default());
        }
    }
    [2, 3].map(|osd| world.map().is_in(osd))
}

#[test]
fn osds_go_out_as_the_options_say() {
    differs(("mon_osd_report_timeout", "20"), (false, true), |world| {
        world.boot_all(4);
        world.pass(Duration::from_secs(30));
        (0..4).any(|osd| !world.map().is_up(osd))
    });
    let (stay, go) = ([true, true], [false, false]);
    differs(("mon_osd_down_out_interval", "30"), (stay, go), |world| two_down_for(world, 60));
    differs(("mon_osd_down_out_interval", "0"), (go, stay), |world| two_down_for(world, 700));
    differs(("mon_osd_min_in_ratio", "0.9"), (go, [false, true]), |world| two_down_for(world, 700));
    differs(("mon_osd_down_out_subtree_limit", "host"), (go, stay), |world| two_down_for(world, 700));
}

#[test]
fn osds_come_in_as_the_options_say() {
    differs(("mon_osd_auto_mark_auto_out_in", "false"), (true, false), |world| {
        assert_eq!(two_down_for(world, 700), [false, false]);
        let session = world.connect("osd.3");
        world.boot(session, 3, 1);
        world.map().is_in(3)
    });
    differs(("mon_osd_auto_mark_in", "true"), (false, true), |world| {
        let sessions = world.boot_all(4);
        run(world, r#"{"prefix":"osd out","ids":["3"]}"#);
        world.mon.state.osd.mark_down(3, world.wall);
        world.settle();
        world.boot(sessions[3], 3, 1);
        world.map().is_in(3)
    });
    differs(("mon_osd_auto_mark_new_in", "false"), (true, false), |world| {
        world.add_client("osd.5", "allow profile osd", "allow *");
        let session = world.connect("osd.5");
        world.boot(session, 5, 0);
        assert!(world.map().is_up(5));
        world.map().is_in(5)
    });
}

#[test]
fn warnings_follow_their_options() {
    differs(("mon_warn_on_pool_no_redundancy", "false"), (true, false), |world| {
        world.boot_all(4);
        set(world, "mon_allow_pool_size_one", "true");
        run(world, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
        run(
            world,
            r#"{"prefix":"osd pool set","pool":"p","var":"size","val":"1","yes_i_really_mean_it":true}"#,
        );
        let checks = crate::health::checks(world.mon.state());
        checks.iter().any(|check| check.code == "POOL_NO_REDUNDANCY")
    });
}
