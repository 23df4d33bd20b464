//! A primary that is cut off from all but one client, which is cut off with it: nobody tells either of them that
//! others have taken over. What the client asks then must not be answered with what was before.
//!
//! The first test fails when `Shard::is_leased` always says yes, the second one when `Lead::keeps_maps_until` keeps
//! nothing back.

use nacre_msg::SubOp;
use nacre_objecter::Request;
use nacre_sim::{Config, Finished, Proc, World};
use nacre_types::{ObjectLocator, OsdId, PgId};
use std::time::Duration;

/// The client that shares the primary's fate, and the other.
const INSIDE: usize = 0;
const OUTSIDE: usize = 1;
/// Long enough for anything that can happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn submit(world: &mut World, client: usize, op: SubOp) -> u64 {
    let request = Request::new(ObjectLocator::in_pool(1), "object".to_owned(), vec![op]);
    world.order(client, |client| client.submit(request))
}

/// What an operation gave within `patience`.
fn answer(world: &mut World, client: usize, tid: u64, patience: Duration) -> Option<Vec<u8>> {
    let mut answer = None;
    world.run_until(patience, |world| {
        for done in world.take_finished(client) {
            if let Finished::Op { tid: of, outcome: Ok(reply) } = done
                && of == tid
            {
                assert_eq!(reply.result, 0);
                answer = reply.ops.first().map(|op| op.outdata.to_bytes().to_vec());
            }
        }
        answer.is_some()
    });
    answer
}

fn done(world: &mut World, client: usize, op: SubOp) -> Vec<u8> {
    let tid = submit(world, client, op);
    answer(world, client, tid, PATIENCE).unwrap_or_else(|| panic!("no answer: {world:?}"))
}

fn write(text: &'static str) -> SubOp {
    SubOp::write_full(text.as_bytes().to_vec().into())
}

fn cluster(seed: u64) -> (World, OsdId) {
    let mut world = World::new(seed, &Config { osds: 3, clients: 2, ..Config::default() });
    let create = r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1}"#;
    let tid = world.order(OUTSIDE, |client| client.command(create));
    let created = world.run_until(PATIENCE, |world| {
        let finished = world.take_finished(OUTSIDE);
        finished.iter().any(|done| matches!(done, Finished::Command { tid: of, result: 0, .. } if *of == tid))
    });
    assert!(created, "{world:?}");
    done(&mut world, INSIDE, write("old"));
    done(&mut world, OUTSIDE, SubOp::read(0, 0));
    let map = world.mon().expect("it runs").state().osd.map().clone();
    let primary = map.pg_to_up_acting(PgId::new(1, 0)).acting_primary;
    (world, primary)
}

/// Nothing passes between `inside` and the rest, in either direction.
fn cut_off(world: &World, inside: &[Proc]) {
    let osds = world.osd_ids().into_iter().map(Proc::Osd);
    let rest: Vec<Proc> =
        osds.chain([Proc::Mon, Proc::Client(OUTSIDE)]).filter(|proc| !inside.contains(proc)).collect();
    for (one, other) in inside.iter().flat_map(|one| rest.iter().map(move |other| (one, other))) {
        world.fabric().block(one.host(), other.host());
        world.fabric().block(other.host(), one.host());
    }
}

#[test]
fn a_primary_that_is_cut_off_serves_nothing_old() {
    for seed in 0..5 {
        let (mut world, primary) = cluster(seed);
        cut_off(&world, &[Proc::Osd(primary), Proc::Client(INSIDE)]);
        let tid = submit(&mut world, INSIDE, SubOp::read(0, 0));
        let just_before = answer(&mut world, INSIDE, tid, Duration::from_secs(1));
        assert_eq!(just_before.as_deref(), Some(&b"old"[..]), "the lease still holds");

        done(&mut world, OUTSIDE, write("new"));
        let tid = submit(&mut world, INSIDE, SubOp::read(0, 0));
        let meanwhile = answer(&mut world, INSIDE, tid, Duration::from_secs(20));
        assert_eq!(meanwhile, None, "seed {seed}: osd.{primary} no longer leads");

        world.fabric().heal();
        let after = answer(&mut world, INSIDE, tid, PATIENCE);
        assert_eq!(after.as_deref(), Some(&b"new"[..]), "seed {seed}");
    }
}

#[test]
fn who_takes_over_waits_until_the_lease_has_run_out() {
    for seed in 0..5 {
        let (mut world, primary) = cluster(seed);
        // Leases have just been renewed when somebody marks the primary down that hears nothing of it.
        world.run_for(Duration::from_secs(3));
        cut_off(&world, &[Proc::Osd(primary), Proc::Client(INSIDE)]);
        let down = format!(r#"{{"prefix": "osd down", "ids": ["{primary}"]}}"#);
        world.order(OUTSIDE, |client| client.command(&down));
        done(&mut world, OUTSIDE, write("new"));
        let tid = submit(&mut world, INSIDE, SubOp::read(0, 0));
        let meanwhile = answer(&mut world, INSIDE, tid, Duration::from_secs(20));
        assert_eq!(meanwhile, None, "seed {seed}: osd.{primary} no longer leads");
    }
}
