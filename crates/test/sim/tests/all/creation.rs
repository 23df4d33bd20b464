//! Copies that begin with nothing: others may have served the PG, or this OSD itself, which cannot read its records any more.

use nacre_msg::SubOp;
use nacre_sim::{Config, Proc, World};
use nacre_txn::{Op, Transaction};
use nacre_types::{OsdId, PgId, SpgId};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// More maps than an OSD keeps in memory.
const EPOCHS: u32 = 120;

fn op(world: &mut World, op: SubOp, patience: Duration) -> Option<Vec<u8>> {
    world.op_within("object", op, patience)
}

fn ids(osd: OsdId, verb: &str) -> String {
    format!(r#"{{"prefix": "osd {verb}", "ids": ["{osd}"]}}"#)
}

fn health(world: &World) -> String {
    format!("{:?}", nacre_mon::health::checks(world.mon().expect("it runs").state()))
}

/// The records of the only copy of the newest writes are damaged; or only its log's.
#[test]
fn what_a_damaged_copy_alone_had_is_missed() {
    for (seed, key) in [(0, "info"), (1, "interval"), (2, "info")] {
        let mut world = World::new(seed, &Config { osds: 3, clients: 1, ..Config::default() });
        world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1, "size": 3}"#);
        world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1"}"#);
        assert!(op(&mut world, SubOp::write_full(b"old".to_vec().into()), PATIENCE).is_some());
        let members = world.acting();
        let (alone, others) = members.split_last().expect("three of them");
        for osd in others {
            world.stop_osd(*osd, false);
            world.command(&ids(*osd, "down"));
        }
        assert!(op(&mut world, SubOp::write_full(b"new".to_vec().into()), PATIENCE).is_some());
        world.run_for(Duration::from_secs(5));
        world.stop_osd(*alone, false);
        world.command(&ids(*alone, "down"));
        let spg = SpgId::replicated(PgId::new(1, 0));
        let mut txn = Transaction::new(spg);
        txn.push(Op::MetaSet { key: key.into(), value: nacre_buf::Bytes::from_static(b"rot") });
        world.edit_store(*alone, txn);
        world.start_osd(*alone);
        if seed == 2 {
            world.run_for(Duration::from_secs(30)); // all alone at first
        }
        others.iter().for_each(|osd| world.start_osd(*osd));
        assert_eq!(op(&mut world, SubOp::read(0, 0), PATIENCE), None, "seed {seed}");
        let told = health(&world);
        assert!(told.contains("OSD_COPIES_LOST") && told.contains("1.0"), "seed {seed}: {told}");
        // Started anew, it says the same.
        world.stop_osd(*alone, true);
        world.command(&ids(*alone, "down"));
        world.start_osd(*alone);
        assert_eq!(op(&mut world, SubOp::read(0, 0), PATIENCE), None, "seed {seed}");
        // Until an operator gives up what it had.
        world.stop_osd(*alone, false);
        world.command(&ids(*alone, "down"));
        world.command(&format!(r#"{{"prefix": "osd lost", "id": {alone}, "yes_i_really_mean_it": true}}"#));
        world.start_osd(*alone);
        assert_eq!(op(&mut world, SubOp::read(0, 0), PATIENCE).as_deref(), Some(&b"old"[..]), "seed {seed}");
        let healed = |world: &mut World| !health(world).contains("OSD_COPIES_LOST");
        assert!(world.run_until(PATIENCE, healed), "seed {seed}: {}", health(&world));
    }
}

/// The monitor never hears that the PG was created, and orders it of an OSD that has seen no map of that time.
#[test]
fn an_order_to_create_a_group_of_long_ago_finds_out_who_served_it() {
    for seed in 0..3 {
        let mut world = World::new(seed, &Config { osds: 4, clients: 1, ..Config::default() });
        world.run_for(Duration::from_secs(5));
        world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1, "size": 3}"#);
        let members = world.acting();
        let fresh = world.osd_ids().into_iter().find(|osd| !members.contains(osd)).expect("four of them");
        for osd in &members {
            world.fabric().block(Proc::Osd(*osd).host(), Proc::Mon(0).host());
        }
        assert!(op(&mut world, SubOp::write_full(b"kept".to_vec().into()), PATIENCE).is_some(), "{world:?}");
        assert!(
            world.mon().expect("it runs").state().osd.creating().count() > 0,
            "seed {seed}: it was heard of"
        );
        for n in 0..EPOCHS {
            let verb = if n % 2 == 0 { "set" } else { "unset" };
            world.command(&format!(r#"{{"prefix": "osd {verb}", "key": "noscrub"}}"#));
        }
        for osd in &members {
            world.stop_osd(*osd, true);
            world.command(&format!(r#"{{"prefix": "osd down", "ids": ["{osd}"]}}"#));
            world.command(&format!(r#"{{"prefix": "osd out", "ids": ["{osd}"]}}"#));
        }
        world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1"}"#);
        world.fabric().heal();
        assert!(
            world.run_until(PATIENCE, |world| world.acting() == [fresh]),
            "seed {seed}: {:?}",
            world.acting()
        );
        let alone = op(&mut world, SubOp::read(0, 0), Duration::from_secs(40));
        assert_eq!(alone, None, "seed {seed}: who has the write is away");
        world.start_osd(members[0]);
        let then = op(&mut world, SubOp::read(0, 0), PATIENCE);
        assert_eq!(then.as_deref(), Some(&b"kept"[..]), "seed {seed}");
    }
}
