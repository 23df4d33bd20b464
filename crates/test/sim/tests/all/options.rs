//! Options that OSDs read, each by the difference that it makes in a running cluster: the option goes the whole way from `ceph config set`.

use nacre_msg::SubOp;
use nacre_sim::{Config, Proc, World};
use nacre_types::{OsdId, UTime};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A cluster of three OSDs with a pool, and these options.
fn with(options: &[(&str, &str)]) -> World {
    let mut world = World::new(1, &Config::default());
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 2}"#);
    world.op("object", SubOp::write_full(b"content".to_vec().into()));
    options.iter().for_each(|(name, value)| set(&mut world, name, value));
    world.run_for(SECOND);
    world
}

fn set(world: &mut World, name: &str, value: &str) {
    world.command(&format!(
        r#"{{"prefix": "config set", "who": "global", "name": "{name}", "value": "{value}"}}"#
    ));
}

fn is_up(world: &World, osd: OsdId) -> bool {
    world.mon().expect("it runs").state().osd.map().is_up(osd)
}

/// When each PG was scrubbed last, and deeply.
fn scrubs(world: &World) -> Vec<(UTime, UTime)> {
    let state = world.mon().expect("it runs").state();
    let stats = state.stats.pgs.pgs(state.osd.map());
    stats.map(|(_, stat)| (stat.last_scrub_stamp, stat.last_deep_scrub_stamp)).collect()
}

#[test]
fn scrubs_come_as_the_options_say() {
    let mut world = with(&[]);
    let (begin, minute) = (scrubs(&world), 60 * SECOND);
    world.run_for(minute);
    assert_eq!(scrubs(&world), begin, "once a day");

    set(&mut world, "osd_scrub_min_interval", "10");
    world.run_for(minute);
    let shallow = scrubs(&world);
    assert!(shallow.iter().zip(&begin).all(|(now, then)| now.0 > then.0 && now.1 == then.1), "{shallow:?}");

    set(&mut world, "osd_deep_scrub_interval", "10");
    world.run_for(minute);
    let deep = scrubs(&world);
    assert!(deep.iter().zip(&begin).all(|(now, then)| now.1 > then.1), "{deep:?}");

    let hour = world.client(0).wall().sec / 3600 % 24;
    set(&mut world, "osd_scrub_begin_hour", &((hour + 2) % 24).to_string());
    set(&mut world, "osd_scrub_end_hour", &((hour + 3) % 24).to_string());
    world.run_for(10 * SECOND);
    let last = scrubs(&world);
    world.run_for(minute);
    assert_eq!(scrubs(&world), last, "not in this hour");
}

/// Whether OSD 0 is up so long after its process was killed, or stands still.
fn is_up_after(options: &[(&str, &str)], killed: bool, passed: Duration) -> bool {
    let mut world = with(options);
    if killed {
        world.stop_osd(0, false);
    } else {
        let until = world.now() + 60 * SECOND;
        world.freeze(Proc::Osd(0), until);
    }
    world.run_for(passed);
    is_up(&world, 0)
}

#[test]
fn an_osd_is_missed_as_the_options_say() {
    assert!(!is_up_after(&[], true, 2 * SECOND), "nobody listens there any more");
    assert!(is_up_after(&[("osd_fast_fail_on_connection_refused", "false")], true, 2 * SECOND));
    assert!(!is_up_after(&[], false, 12 * SECOND));
    assert!(is_up_after(&[("osd_heartbeat_grace", "30")], false, 12 * SECOND));
}

/// Whether OSD 0 goes on although it is marked down this often, every 5 s.
fn goes_on(options: &[(&str, &str)], count: usize) -> bool {
    let mut world = with(options);
    for _ in 0..count {
        world.command(r#"{"prefix": "osd down", "ids": ["0"]}"#);
        world.run_for(5 * SECOND);
    }
    world.run_for(5 * SECOND);
    is_up(&world, 0)
}

#[test]
fn an_osd_gives_up_when_it_is_marked_down_as_often_as_the_options_say() {
    assert!(goes_on(&[], 3));
    assert!(!goes_on(&[], 7));
    assert!(!goes_on(&[("osd_max_markdown_count", "1")], 3));
    assert!(goes_on(&[("osd_max_markdown_count", "1"), ("osd_max_markdown_period", "2")], 3));
}

/// Whether no OSD was marked down in a minute in which nothing happened.
fn all_stay(options: &[(&str, &str)]) -> bool {
    let mut world = with(options);
    let up_from = |world: &World| -> Vec<_> {
        let map = world.mon().expect("it runs").state().osd.map();
        map.osds().map(|osd| map.info(osd).up_from).collect()
    };
    let before = up_from(&world);
    world.run_for(60 * SECOND);
    up_from(&world) == before
}

#[test]
fn osds_send_beacons_as_often_as_the_option_says() {
    assert!(all_stay(&[]));
    assert!(!all_stay(&[("mon_osd_report_timeout", "20")]));
    assert!(all_stay(&[("osd_beacon_report_interval", "5"), ("mon_osd_report_timeout", "20")]));
}

/// Whether one of six OSDs that stands still is marked down, where three must say so.
fn three_miss_it(options: &[(&str, &str)]) -> bool {
    let mut world = World::new(1, &Config { osds: 6, ..Config::default() });
    set(&mut world, "mon_osd_min_down_reporters", "3");
    options.iter().for_each(|(name, value)| set(&mut world, name, value));
    world.run_for(10 * SECOND);
    let until = world.now() + 60 * SECOND;
    world.freeze(Proc::Osd(0), until);
    world.run_for(12 * SECOND);
    !is_up(&world, 0)
}

#[test]
fn an_osd_is_pinged_by_as_many_as_the_option_says() {
    assert!(three_miss_it(&[]));
    assert!(!three_miss_it(&[("osd_heartbeat_min_peers", "1")]), "its two neighbours alone");
}

/// How long writes take of which some had a primary that stands still and is marked down at once: others wait for what they promised it.
fn takes(options: &[(&str, &str)]) -> Duration {
    let mut world = World::new(1, &Config::default());
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 8}"#);
    options.iter().for_each(|(name, value)| set(&mut world, name, value));
    let write_all = |world: &mut World| {
        // By its sessions with the others the client hears of the map at once.
        (0..16).for_each(|n| drop(world.op(&format!("o{n}"), SubOp::write_full(b"content".to_vec().into()))));
    };
    write_all(&mut world);
    world.run_for(10 * SECOND);
    let begin = world.now();
    world.freeze(Proc::Osd(0), begin + 60 * SECOND);
    world.command(r#"{"prefix": "osd down", "ids": ["0"]}"#);
    write_all(&mut world);
    world.now().since(begin)
}

#[test]
fn leases_are_as_long_as_the_options_say() {
    let (long, short) = (takes(&[]), takes(&[("osd_pool_default_read_lease_ratio", "0.3")]));
    assert!(long > short + 2 * SECOND, "0.8 of 7 s against 0.3: {long:?}, {short:?}");
}
