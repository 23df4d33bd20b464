//! Options that OSDs read, each by the difference that it makes in a running cluster: the option goes the whole way from `ceph config set`.

use nacre_msg::SubOp;
use nacre_objecter::Request;
use nacre_sim::{Config, Proc, World};
use nacre_types::{ObjectLocator, OsdId, UTime};
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

    // What is late waits for no hour, and by an interval of seconds everything is.
    set(&mut world, "osd_deep_scrub_interval", "86400");
    let hour = world.client(0).wall().sec / 3600 % 24;
    set(&mut world, "osd_scrub_begin_hour", &((hour + 2) % 24).to_string());
    set(&mut world, "osd_scrub_end_hour", &((hour + 3) % 24).to_string());
    world.run_for(10 * SECOND);
    let last = scrubs(&world);
    world.run_for(minute);
    assert_eq!(scrubs(&world), last, "not in this hour");

    set(&mut world, "osd_scrub_end_hour", &((hour + 2) % 24).to_string());
    let day = (world.client(0).wall().sec / 86_400 + 4) % 7;
    set(&mut world, "osd_scrub_begin_week_day", &((day + 2) % 7).to_string());
    set(&mut world, "osd_scrub_end_week_day", &((day + 3) % 7).to_string());
    world.run_for(10 * SECOND);
    let last = scrubs(&world);
    world.run_for(minute);
    assert_eq!(scrubs(&world), last, "not on this day");
    set(&mut world, "osd_scrub_max_interval", "10");
    world.run_for(minute);
    assert!(
        scrubs(&world).iter().zip(&last).all(|(now, then)| now.0 > then.0),
        "what is late waits for no day"
    );
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
    assert!(is_up_after(&[("osd_heartbeat_interval", "30")], false, 12 * SECOND), "nobody has asked it yet");
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

/// What the monitor's health says of messages that OSDs let wait.
fn slow_ops(world: &World) -> Option<String> {
    let checks = nacre_mon::health::checks(world.mon().expect("it runs").state());
    checks.iter().find(|check| check.code == "SLOW_OPS").map(|check| check.summary.clone())
}

/// Clients' writes while OSD 0 stands still and is not missed yet.
fn stalled(options: &[(&str, &str)]) -> World {
    let mut world = World::new(1, &Config::default());
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 8}"#);
    options.iter().for_each(|(name, value)| set(&mut world, name, value));
    set(&mut world, "osd_heartbeat_grace", "60");
    world.op("object", SubOp::write_full(b"content".to_vec().into()));
    world.run_for(10 * SECOND);
    assert_eq!(slow_ops(&world), None);
    let until = world.now() + 20 * SECOND;
    world.freeze(Proc::Osd(0), until);
    for n in 0..32 {
        let write = SubOp::write_full(b"content".to_vec().into());
        let request = Request::new(ObjectLocator::in_pool(1), format!("o{n}"), vec![write]);
        world.order(0, |client| client.submit(request));
    }
    world.run_for(15 * SECOND);
    world
}

/// The whole way: a PG's messages, the shard's report, the OSD's, the monitor's health, by the option of the moment.
#[test]
fn messages_are_slow_after_the_time_that_the_option_says_and_operators_hear_of_it() {
    assert_eq!(slow_ops(&stalled(&[])), None, "15 s are not 30");
    assert_eq!(slow_ops(&stalled(&[("osd_op_complaint_time", "0")])), None, "nobody asks");
    let mut world = stalled(&[("osd_op_complaint_time", "3")]);
    let text = slow_ops(&world).unwrap_or_default();
    let (count, rest) = text.split_once(" slow ops, oldest one blocked for ").expect(&text);
    let (oldest_s, who) = rest.split_once(" sec, ").expect(&text);
    assert_eq!(who, "daemons [osd.1,osd.2] have slow ops.");
    assert!((2..=32).contains(&count.parse::<usize>().expect("a number")), "{text}");
    assert!((10..=16).contains(&oldest_s.parse::<u64>().expect("a number")), "{text}");
    // It goes on in 5 s.
    assert!(world.run_until(15 * SECOND, |world| slow_ops(world).is_none()), "{:?}", slow_ops(&world));
}

/// Two OSDs are gone, one of them for good with the only whole copy of what was written last: the one that came back has had a part of it,
/// the one that comes now has only what was before.
#[test]
fn what_copies_know_of_lost_ones_is_left_out_as_the_option_says() {
    let limits = nacre_pg::LogLimits { target: 4, trim_min: 1, max: 8, ..Default::default() };
    let tuning = nacre_pg::Tuning { limits, ..Config::default().tuning };
    let mut world = World::new(1, &Config { tuning, ..Config::default() });
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1, "size": 3}"#);
    world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1"}"#);
    let write = |world: &mut World, text: &str| {
        world.op("object", SubOp::write_full(text.as_bytes().to_vec().into()));
        (0..20).for_each(|n| drop(world.op(&format!("o{n}"), SubOp::write_full(b"content".to_vec().into()))));
    };
    let end = |world: &mut World, osd: OsdId| {
        world.stop_osd(osd, true);
        let down = format!(r#"{{"prefix": "osd down", "ids": ["{osd}"], "definitely_dead": true}}"#);
        world.command(&down);
    };
    write(&mut world, "old");
    let acting = world.acting();
    let [whole, partial, old] = acting[..] else { panic!("three: {acting:?}") };
    end(&mut world, partial);
    end(&mut world, old);
    write(&mut world, "new");
    world.command(r#"{"prefix": "osd set", "key": "nobackfill"}"#);
    world.start_osd(partial);
    world.run_for(20 * SECOND);
    end(&mut world, whole);
    world.command(&format!(r#"{{"prefix": "osd lost", "id": {whole}, "yes_i_really_mean_it": true}}"#));
    world.start_osd(old);
    let read = |world: &mut World| world.op_within("object", SubOp::read(0, 0), 30 * SECOND);
    assert_eq!(read(&mut world), None, "what there is ended before the last writes");
    set(&mut world, "osd_find_best_info_ignore_history_les", "true");
    assert_eq!(read(&mut world).as_deref(), Some(&b"old"[..]));
}
