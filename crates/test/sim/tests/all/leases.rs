//! A primary that is cut off from all but one client, which is cut off with it: nobody tells either of them that
//! others have taken over. What the client asks then must not be answered with what was before.
//!
//! The first test fails when `AdmissionGate` grants every lease, as the last one shows, the second one when `OsdControl::keeps_maps_until` keeps
//! nothing back.

use nacre_msg::SubOp;
use nacre_objecter::Request;
use nacre_pg::{Planted, Tuning};
use nacre_sim::{Config, Finished, Proc, World};
use nacre_types::{HObject, ObjectLocator, OsdId, PgId};
use std::time::Duration;

/// The client that shares the primary's fate, and the other, which gives the commands.
const INSIDE: usize = 1;
const OUTSIDE: usize = 0;
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
    cluster_with(seed, Planted::Nothing, 1)
}

fn cluster_with(seed: u64, planted: Planted, shards: usize) -> (World, OsdId) {
    let tuning = Tuning { checked: true, planted, ..Tuning::default() };
    let mut world = World::new(seed, &Config { osds: 3, clients: 2, shards, tuning, ..Config::default() });
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1}"#);
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
        osds.chain([Proc::Mon(0), Proc::Client(OUTSIDE)]).filter(|proc| !inside.contains(proc)).collect();
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

/// What a primary answers that is marked down and does not hear of it, once another has taken over.
fn answer_of_one_marked_down((mut world, primary): (World, OsdId)) -> Option<Vec<u8>> {
    // Leases have just been renewed when somebody marks the primary down that hears nothing of it.
    world.run_for(Duration::from_secs(3));
    cut_off(&world, &[Proc::Osd(primary), Proc::Client(INSIDE)]);
    let down = format!(r#"{{"prefix": "osd down", "ids": ["{primary}"]}}"#);
    world.order(OUTSIDE, |client| client.command(&down));
    done(&mut world, OUTSIDE, write("new"));
    let tid = submit(&mut world, INSIDE, SubOp::read(0, 0));
    answer(&mut world, INSIDE, tid, Duration::from_secs(20))
}

#[test]
fn who_takes_over_waits_until_the_lease_has_run_out() {
    for seed in 0..5 {
        assert_eq!(answer_of_one_marked_down(cluster(seed)), None, "seed {seed}: it no longer leads");
    }
}

/// The PG is on the second shard, which hears of maps and promises from the first.
#[test]
fn who_takes_over_on_another_shard_waits_until_the_lease_has_run_out() {
    for seed in 0..5 {
        let cluster = cluster_with(seed, Planted::Nothing, 2);
        assert_eq!(answer_of_one_marked_down(cluster), None, "seed {seed}: it no longer leads");
    }
}

#[test]
fn a_primary_that_stopped_behind_its_clock_serves_nothing_old() {
    for seed in 0..3 {
        let (mut world, primary) = cluster(seed);
        // What has just been renewed lets it serve for some seconds.
        world.run_for(Duration::from_secs(3));
        cut_off(&world, &[Proc::Osd(primary), Proc::Client(INSIDE)]);
        let until = world.now() + Duration::from_secs(40);
        world.freeze_in_turn(Proc::Osd(primary), until);
        done(&mut world, OUTSIDE, write("new"));
        assert!(world.now() < until, "seed {seed}: others have taken over meanwhile");
        let tid = submit(&mut world, INSIDE, SubOp::read(0, 0));
        let meanwhile = answer(&mut world, INSIDE, tid, Duration::from_secs(45));
        assert_eq!(meanwhile, None, "seed {seed}: its clock says that it still leads, by what it last read");
    }
}

/// The mistake shows: what was acknowledged elsewhere is not there.
#[test]
fn a_lease_ignored_is_found() {
    let (mut world, primary) = cluster_with(0, Planted::LeaseIgnored, 1);
    cut_off(&world, &[Proc::Osd(primary), Proc::Client(INSIDE)]);
    done(&mut world, OUTSIDE, write("new"));
    let tid = submit(&mut world, INSIDE, SubOp::read(0, 0));
    let meanwhile = answer(&mut world, INSIDE, tid, Duration::from_secs(20));
    assert_eq!(meanwhile.as_deref(), Some(&b"old"[..]));
}

fn request(world: &mut World, client: usize, name: &str, op: SubOp) -> u64 {
    let request = Request::new(ObjectLocator::in_pool(1), name.to_owned(), vec![op]);
    world.order(client, |client| client.submit(request))
}

/// The OSDs that serve an object of the pool.
fn acting(world: &World, name: &str) -> Vec<OsdId> {
    let map = world.mon().expect("it runs").state().osd.map().clone();
    let object = HObject::head(1, "".into(), "".into(), name.into());
    map.pg_to_up_acting(object.pg(map.pools[&1].pg_num)).acting
}

/// Whether a copy succeeds from an object whose PG may not be served to one whose PG may: all members of the latter are
/// cut off together, and the one that leads the former is asked by another OSD, not by a client.
fn copies_from_one_that_is_cut_off(seed: u64, planted: Planted) -> bool {
    let tuning = Tuning { checked: true, planted, ..Tuning::default() };
    let mut world = World::new(seed, &Config { osds: 4, clients: 2, tuning, ..Config::default() });
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 32}"#);
    world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "size", "val": "2"}"#);
    world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1"}"#);
    let names: Vec<String> = (0..200).map(|n| format!("o{n}")).collect();
    let source = &names[0];
    let (leader, outside) = (acting(&world, source)[0], acting(&world, source)[1]);
    let is_inside = |osds: &[OsdId]| osds.contains(&leader) && !osds.contains(&outside);
    let target = names.iter().find(|name| is_inside(&acting(&world, name))).expect("one of so many");
    let inside = acting(&world, target);
    let put = |world: &mut World, client: usize, name: &str, text: &'static str| {
        let tid = request(world, client, name, write(text));
        assert!(answer(world, client, tid, PATIENCE).is_some(), "{name}: {world:?}");
    };
    put(&mut world, INSIDE, source, "old");
    put(&mut world, INSIDE, target, "nothing");
    let mut cut: Vec<Proc> = inside.iter().map(|osd| Proc::Osd(*osd)).collect();
    cut.push(Proc::Client(INSIDE));
    cut_off(&world, &cut);
    put(&mut world, OUTSIDE, source, "new");
    // The target is served, as far as these three know.
    put(&mut world, INSIDE, target, "still");
    let tid = request(&mut world, INSIDE, target, SubOp::copy_of(source, &ObjectLocator::in_pool(1), 0));
    answer(&mut world, INSIDE, tid, Duration::from_secs(20)).is_some()
}

#[test]
fn nothing_old_is_copied_from_a_primary_that_is_cut_off() {
    for seed in 0..3 {
        assert!(!copies_from_one_that_is_cut_off(seed, Planted::Nothing), "seed {seed}");
        assert!(
            copies_from_one_that_is_cut_off(seed, Planted::LeaseIgnored),
            "seed {seed}: the test sees nothing"
        );
    }
}
