//! Devices rot below a running cluster.

use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use nacre_sim::{Config, World};
use nacre_types::PgId;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

fn pg() -> PgId {
    PgId::new(1, 0)
}

fn is(world: &World, wanted: u64) -> bool {
    let Some(mon) = world.mon() else { return false };
    mon.state().stats.pgs.pgs(mon.state().osd.map()).all(|(_, stat)| stat.state == wanted)
}

/// The pool's only PG is as `wanted` after a scrub that began now.
fn scrubbed(world: &mut World, command: &str, wanted: u64) {
    let since = world.client(0).wall();
    world.run_for(Duration::from_secs(2));
    world.command(&format!(r#"{{"prefix": "pg {command}", "pgid": "{}"}}"#, pg()));
    let ended = world.run_until(PATIENCE, |world| {
        let Some(mon) = world.mon() else { return false };
        let mut pgs = mon.state().stats.pgs.pgs(mon.state().osd.map());
        let is_scrubbed = pgs.all(|(_, stat)| stat.last_deep_scrub_stamp > since);
        is_scrubbed && is(world, wanted)
    });
    let states: Vec<String> = world.mon().map_or_else(Vec::new, |mon| {
        let pgs = mon.state().stats.pgs.pgs(mon.state().osd.map());
        pgs.map(|(_, stat)| pg_state::text(stat.state)).collect()
    });
    assert!(ended, "{command}: {states:?} instead of {}", pg_state::text(wanted));
}

/// A block rots while its OSD has it in memory: clients are served from there, and a restart or a lack of memory would show it. A
/// deep scrub finds it, and a repair brings it back from the others.
#[test]
fn a_deep_scrub_finds_rot_below_the_cache() {
    let clean = pg_state::ACTIVE | pg_state::CLEAN;
    for seed in 1..=3 {
        let mut world = World::new(seed, &Config::default());
        world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1}"#);
        let content = vec![0xa5; 16 << 10];
        world.op("object", SubOp::write_full(content.clone().into()));
        assert!(world.run_until(PATIENCE, |world| is(world, clean)), "{world:?}");
        // Until checkpoints have brought it home, memory is where it is.
        world.run_for(Duration::from_secs(30));
        for victim in world.osd_ids() {
            assert_eq!(world.op("object", SubOp::read(0, 0)), content);
            let spoiled = world.spoil(victim, |block| block.iter().all(|byte| *byte == 0xa5));
            assert!(spoiled >= 4, "{spoiled} blocks at home");
            assert_eq!(world.op("object", SubOp::read(0, 0)), content, "memory still has it");
            scrubbed(&mut world, "deep-scrub", clean | pg_state::INCONSISTENT);
            scrubbed(&mut world, "repair", clean);
            assert_eq!(world.op("object", SubOp::read(0, 0)), content);
            scrubbed(&mut world, "deep-scrub", clean);
        }
    }
}

/// Makes a pool with one PG, and waits until it is clean.
fn pool(world: &mut World, coded: bool) {
    if coded {
        let profile = r#"["k=2", "m=1", "crush-failure-domain=osd"]"#;
        let name = r#""prefix": "osd erasure-code-profile set", "name": "e""#;
        world.command(&format!(r#"{{{name}, "profile": {profile}}}"#));
        let kind = r#""pool_type": "erasure", "erasure_code_profile": "e""#;
        world.command(&format!(r#"{{"prefix": "osd pool create", "pool": "p", "pg_num": 1, {kind}}}"#));
    } else {
        world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1}"#);
    }
    world.op("warm", SubOp::write_full(vec![1; 100].into()));
    become_clean(world, "at the beginning");
}

fn become_clean(world: &mut World, when: &str) {
    let wanted = pg_state::ACTIVE | pg_state::CLEAN;
    let all = i32::try_from(world.osd_ids().len()).unwrap_or(0);
    let healed = world.run_until(PATIENCE, |world| {
        let Some(mon) = world.mon() else { return false };
        let map = mon.state().osd.map();
        (0..all).all(|osd| map.is_up(osd)) && is(world, wanted)
    });
    assert!(healed, "{when}: {world:?}");
}

/// Data whose chunks travel in records of the log.
fn content(fill: u8) -> Vec<u8> {
    vec![fill; 6000]
}

/// A block of the log with a part of such a chunk; at home it fills the whole block.
fn holds(block: &[u8], fill: u8) -> bool {
    (1000..block.len()).contains(&block.iter().filter(|byte| **byte == fill).count())
}

/// The newest record of one log, acknowledged a moment ago, rots while its OSD is away: nothing behind it says that it was there. In
/// an erasure-coded pool the shortest log would win.
#[test]
fn the_newest_record_of_a_log_rots_and_nothing_is_taken_back() {
    let mut rotten = 0;
    for (seed, coded) in (1..=6).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut world = World::new(seed, &Config::default());
        pool(&mut world, coded);
        world.op("object", SubOp::write_full(content(0xa5).into()));
        world.run_for(Duration::from_secs(3));
        world.op("object", SubOp::write_full(content(0x5a).into()));
        let primary =
            world.mon().and_then(|mon| mon.state().osd.map().pg_to_up_acting(pg()).acting.first().copied());
        let others = world.osd_ids().into_iter().filter(|osd| Some(*osd) != primary);
        let victim = others.into_iter().find(|osd| world.spoil(*osd, |block| holds(block, 0x5a)) > 0);
        let victim = victim.unwrap_or_else(|| panic!("seed {seed}, {coded}: nobody has it in the log"));
        world.stop_osd(victim, false);
        if world.has_log_gap(victim) {
            world.give_up_groups(victim); // not the newest any more
        } else {
            rotten += 1;
        }
        world.start_osd(victim);
        become_clean(&mut world, "after the rot");
        let clean = pg_state::ACTIVE | pg_state::CLEAN;
        assert_eq!(world.op("object", SubOp::read(0, 0)), content(0x5a), "seed {seed}, {coded}");
        scrubbed(&mut world, "deep-scrub", clean);
    }
    assert!(rotten > 6, "{rotten} logs lost a record");
}

/// A record in the middle rots: the OSD does not start, gives its PGs up, and gets everything from the others.
#[test]
fn an_osd_that_gave_its_groups_up_recovers_them() {
    let clean = pg_state::ACTIVE | pg_state::CLEAN;
    for (seed, coded) in (1..=4).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut world = World::new(seed, &Config::default());
        pool(&mut world, coded);
        for nth in 0..10_u8 {
            world.op(&format!("object {nth}"), SubOp::write_full(content(nth + 100).into()));
        }
        let found = world.osd_ids().into_iter().find(|osd| {
            world.stop_osd(*osd, false);
            let has_gap = world.spoil(*osd, |block| holds(block, 108)) > 0 && world.has_log_gap(*osd);
            if !has_gap {
                world.start_osd(*osd);
                become_clean(&mut world, "without a gap");
            }
            has_gap
        });
        let victim = found.unwrap_or_else(|| panic!("seed {seed}: no log has a gap"));
        world.op("written while it is away", SubOp::write_full(content(9).into()));
        assert_eq!(world.give_up_groups(victim), 1);
        assert!(!world.has_log_gap(victim));
        world.start_osd(victim);
        become_clean(&mut world, "after it gave up its PGs");
        for nth in 0..10_u8 {
            let read = world.op(&format!("object {nth}"), SubOp::read(0, 0));
            assert_eq!(read, content(nth + 100), "seed {seed}, {coded}");
        }
        assert_eq!(world.op("written while it is away", SubOp::read(0, 0)), content(9));
        scrubbed(&mut world, "deep-scrub", clean);
    }
}
