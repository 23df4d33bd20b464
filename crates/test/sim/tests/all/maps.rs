//! An OSD that was away for longer than others keep maps for. It must see every epoch since its own, or it would not know who
//! served meanwhile, and begin with what it had: the writes that were acknowledged without it would be gone.

use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use nacre_pg::{Planted, Tuning};
use nacre_sim::{Config, Proc, World};
use nacre_types::OsdId;
use std::time::Duration;

/// Long enough for anything that can happen.
const PATIENCE: Duration = Duration::from_secs(60);
const POOL: &str = r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1}"#;

fn write(world: &mut World, text: &'static str) {
    let op = SubOp::write_full(text.as_bytes().to_vec().into());
    assert!(world.op_within("object", op, PATIENCE).is_some(), "no answer: {world:?}");
}

fn read(world: &mut World, patience: Duration) -> Option<Vec<u8>> {
    world.op_within("object", SubOp::read(0, 0), patience)
}

fn is_up(world: &World, osd: OsdId) -> bool {
    world.mon().expect("it runs").state().osd.map().is_up(osd)
}

/// So many epochs, none of which says anything about the PG.
fn epochs(world: &mut World, count: u32) {
    for n in 0..count {
        let verb = if n % 2 == 0 { "set" } else { "unset" };
        world.command(&format!(r#"{{"prefix": "osd {verb}", "key": "noscrub"}}"#));
    }
}

/// A member is cut off, the others take writes without it and die, and it comes back, first to OSDs that have newer maps,
/// then to the monitor. What it yields, and what the PG yields once one of the others is back.
fn away_for(seed: u64, count: u32, planted: Planted) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let tuning = Tuning { checked: true, planted, ..Tuning::default() };
    let mut world = World::new(seed, &Config { osds: 6, clients: 1, tuning, ..Config::default() });
    world.command(POOL);
    write(&mut world, "old");
    let members = world.acting();
    let (away, others) = members.split_last().expect("three of them");
    let rest: Vec<Proc> = world.osd_ids().into_iter().map(Proc::Osd).chain([Proc::Mon(0)]).collect();
    for other in rest.iter().filter(|other| **other != Proc::Osd(*away)) {
        world.fabric().block(Proc::Osd(*away).host(), other.host());
        world.fabric().block(other.host(), Proc::Osd(*away).host());
    }
    write(&mut world, "new");
    assert!(!is_up(&world, *away), "seed {seed}: its fellows have missed it");
    epochs(&mut world, count);
    write(&mut world, "newer");
    for other in others {
        world.stop_osd(*other, true);
        world.command(&format!(r#"{{"prefix": "osd down", "ids": ["{other}"]}}"#));
    }
    world.fabric().heal();
    world.fabric().block(Proc::Osd(*away).host(), Proc::Mon(0).host());
    world.fabric().block(Proc::Mon(0).host(), Proc::Osd(*away).host());
    world.run_for(Duration::from_secs(20));
    world.fabric().heal();
    assert!(world.run_until(PATIENCE, |world| is_up(world, *away)), "seed {seed}: {world:?}");
    // One copy alone would not serve in any case.
    world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1"}"#);
    let alone = read(&mut world, Duration::from_secs(40));
    world.start_osd(others[0]);
    (alone, read(&mut world, PATIENCE))
}

#[test]
fn who_missed_maps_asks_for_all_of_them() {
    // More than one message holds, and more than other OSDs keep.
    for (seed, count) in [(0, 45), (1, 45), (2, 210)] {
        let (alone, then) = away_for(seed, count, Planted::Nothing);
        assert_eq!(alone, None, "seed {seed}: who has the newer writes is down, and so is the PG");
        assert_eq!(then.as_deref(), Some(&b"newer"[..]), "seed {seed}");
    }
}

fn is_clean(world: &World) -> bool {
    let mon = world.mon().expect("it runs");
    let (map, wanted) = (mon.state().osd.map(), pg_state::ACTIVE | pg_state::CLEAN);
    mon.state().stats.pgs.pgs(map).any(|(pg, stat)| {
        let current = stat.acting == map.pg_to_up_acting(pg).acting && stat.reported_epoch + 5 > map.epoch;
        stat.state == wanted && current
    })
}

fn oldest(world: &World) -> u32 {
    world.mon().expect("it runs").state().osd.oldest()
}

/// The monitor keeps no map that the OSD has seen: it begins with the oldest one, and the PG with its members.
#[test]
fn who_was_away_for_longer_than_the_monitor_keeps_maps_is_brought_up_to_date() {
    let mut world = World::new(7, &Config { osds: 5, clients: 1, ..Config::default() });
    world.command(POOL);
    write(&mut world, "old");
    let members = world.acting();
    let away = members[0];
    world.stop_osd(away, false);
    let (down, out) = (format!(r#"["{away}"]"#), format!(r#"["{away}"]"#));
    world.command(&format!(r#"{{"prefix": "osd down", "ids": {down}}}"#));
    let epoch = world.mon().expect("it runs").state().osd.map().epoch;
    epochs(&mut world, 300);
    world.run_for(Duration::from_secs(320));
    epochs(&mut world, 300);
    world.run_for(Duration::from_secs(320));
    assert!(oldest(&world) <= epoch, "the PG lacks a copy, so all since it was clean is kept");
    world.command(&format!(r#"{{"prefix": "osd out", "ids": {out}}}"#));
    write(&mut world, "newer");
    world.run_for(Duration::from_secs(700));
    epochs(&mut world, 300);
    assert!(world.run_until(Duration::from_secs(900), |world| oldest(world) > epoch), "{}", oldest(&world));
    world.start_osd(away);
    assert!(world.run_until(PATIENCE, |world| is_up(world, away)), "{world:?}");
    world.command(&format!(r#"{{"prefix": "osd in", "ids": {out}}}"#));
    let back = |world: &mut World| world.acting().first() == Some(&away) && is_clean(world);
    assert!(world.run_until(Duration::from_secs(300), back), "{:?} {world:?}", world.acting());
    assert_eq!(read(&mut world, PATIENCE).as_deref(), Some(&b"newer"[..]));
}

/// A monitor that forgot epochs makes others of the same number. OSDs that followed the first ones cannot follow these.
#[test]
fn a_monitor_on_an_old_copy_of_its_store_is_not_followed() {
    let mut world = World::new(3, &Config { osds: 3, clients: 1, ..Config::default() });
    world.command(POOL);
    let copy = world.back_up_mon();
    epochs(&mut world, 10);
    write(&mut world, "something");
    world.stop_mon(0, false);
    world.restore_mon(copy);
    world.start_mon(0);
    let told = |world: &mut World| {
        let checks = nacre_mon::health::checks(world.mon().expect("it runs").state());
        checks.iter().any(|check| check.code == "OSD_MAPS_AHEAD" && check.detail.len() == 3)
    };
    assert!(world.run_until(PATIENCE, told), "{world:?}");
    // More than it forgot, with what OSDs brought about meanwhile.
    epochs(&mut world, 30);
    let mut ended = Vec::new();
    let all = world.run_until(PATIENCE, |world| {
        ended.extend(world.take_gave_up());
        ended.len() == 3
    });
    assert!(all, "{ended:?} stop; {world:?}");
    // Nor do they when they start again.
    world.start_osd(0);
    let again = world.run_until(PATIENCE, |world| !world.take_gave_up().is_empty());
    assert!(again, "{world:?}");
}

/// The mistake shows: the PG serves, and the last write that was acknowledged is gone. Of the one before, the copy may have got the
/// message when the wires were whole again.
fn assert_found(count: u32, planted: Planted) {
    let (alone, _) = away_for(0, count, planted);
    assert!(matches!(alone.as_deref(), Some(b"old" | b"new")), "{alone:?}");
}

#[test]
fn a_map_gap_accepted_is_found() {
    assert_found(45, Planted::MapGapAccepted);
}

#[test]
fn an_interval_forgotten_is_found() {
    assert_found(3, Planted::IntervalForgotten);
}
