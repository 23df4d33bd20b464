//! PGs that are in different partitions of their OSDs' stores are merged: one goes to the partition of the other first, whoever is killed
//! meanwhile, and at whichever moment. `SIM_SEED=n` tells one of these stories again; `SIM_SEEDS=count` tells many, from `SIM_FIRST` on.

use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use nacre_pg::Tuning;
use nacre_sim::{Config, World, mon_seeds};
use nacre_types::PgId;
use std::time::Duration;

/// Long enough for all merges of a pool and what they wait for.
const PATIENCE: Duration = Duration::from_secs(600);
const OBJECTS: usize = 60;

fn content(object: usize) -> Vec<u8> {
    // Some are of several blocks.
    format!("content {object} ").repeat(if object.is_multiple_of(7) { 3000 } else { 20 }).into_bytes()
}

fn pg_nums(world: &World) -> Option<(u32, u32)> {
    let pool = world.mon()?.state().osd.map().pools.get(&1)?;
    Some((pool.pg_num, pool.pg_num_pending))
}

fn is_clean(world: &World, pg_num: u32) -> bool {
    let Some(mon) = world.mon() else { return false };
    let clean = pg_state::ACTIVE | pg_state::CLEAN;
    let stats = &mon.state().stats.pgs;
    (0..pg_num).all(|seed| stats.pg(PgId::new(1, seed)).is_some_and(|stat| stat.state == clean))
}

/// Kills an OSD so many times while PGs are merged, each time at another moment, with its power or without.
fn merged(seed: u64, shards: usize, kills: usize) {
    let tuning = Tuning { checked: true, ..Tuning::default() };
    let mut world = World::new(seed, &Config { osds: 3, clients: 2, shards, tuning, ..Config::default() });
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 4}"#);
    for object in 0..OBJECTS {
        assert_eq!(world.op(&format!("object {object}"), SubOp::write_full(content(object).into())), b"");
    }
    assert!(world.run_until(PATIENCE, |world| is_clean(world, 4)), "seed {seed}: {world:?}");
    world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": "1"}"#);
    for _ in 0..kills {
        let pending =
            |world: &mut World| pg_nums(world).is_some_and(|(all, pending)| pending < all || all == 1);
        assert!(world.run_until(PATIENCE, pending), "seed {seed}: {:?} of {world:?}", pg_nums(&world));
        let moment = world.below(300);
        world.run_for(Duration::from_micros(moment * moment));
        let (osd, power) = (i32::try_from(world.below(3)).expect("small"), world.below(2) == 0);
        world.stop_osd(osd, power);
        let away = world.below(2000);
        world.run_for(Duration::from_millis(away));
        world.start_osd(osd);
    }
    let is_done = |world: &mut World| pg_nums(world) == Some((1, 1)) && is_clean(world, 1);
    assert!(world.run_until(PATIENCE, is_done), "seed {seed}: {:?} of {world:?}", pg_nums(&world));
    for object in 0..OBJECTS {
        assert_eq!(world.op(&format!("object {object}"), SubOp::read(0, 0)), content(object), "seed {seed}");
    }
    // As many again, in the place where they are; what was split off goes there, too.
    world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": "4"}"#);
    let has_four = |world: &mut World| pg_nums(world).is_some_and(|(all, _)| all == 4) && is_clean(world, 4);
    assert!(world.run_until(PATIENCE, has_four), "seed {seed}: {:?} of {world:?}", pg_nums(&world));
    for object in 0..OBJECTS {
        assert_eq!(world.op(&format!("object {object}"), SubOp::read(0, 0)), content(object), "seed {seed}");
    }
}

#[test]
fn pgs_of_different_partitions_are_merged_and_split_again() {
    for (seed, shards) in [(1, 2), (2, 3)] {
        merged(seed, shards, 0);
    }
}

#[test]
fn pgs_of_different_partitions_are_merged_though_osds_are_killed_meanwhile() {
    for seed in mon_seeds(6) {
        merged(seed, 2 + usize::from(seed % 2 == 0), 3);
    }
}
