//! A PG in steady state: no OSD fails, and no map changes its members.

use crate::OpStage;
use crate::harness::World;
use nacre_msg::SubOp;
use nacre_msg::osd_op::code;
use nacre_msg::stats::pg_state;
use nacre_types::{Errno, UTime};

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(text.as_bytes().to_vec().into())]
}

fn append(text: &str) -> Vec<SubOp> {
    vec![SubOp::append(text.as_bytes().to_vec().into())]
}

fn read() -> Vec<SubOp> {
    vec![SubOp::read(0, 0)]
}

fn state(world: &mut World) -> String {
    let primary = world.primary();
    let stat = world.pg(primary).and_then(|pg| pg.stat(UTime::ZERO)).expect("a report");
    pg_state::text(stat.state)
}

#[test]
fn a_fresh_pg_becomes_clean_and_serves() {
    let mut world = World::new(1, 1);
    world.run_until_idle();
    assert_eq!(state(&mut world), "active+clean");
    assert!(world.created);
    let reply = world.call(0, "a", write("hello"));
    assert_eq!((reply.result, reply.replay_version.version, reply.user_version), (0, 1, 1));
    assert_eq!(reply.flags & 5, 5);
    let reply = world.call(0, "a", read());
    assert_eq!((reply.result, &reply.ops[0].outdata.to_bytes()[..]), (0, &b"hello"[..]));
    assert_eq!(world.call(0, "b", read()).result, Errno::ENOENT.negated());
    world.assert_equal_copies();
}

#[test]
fn writes_of_one_object_pipeline_and_a_read_waits_for_them() {
    let mut world = World::new(2, 2);
    world.run_until_idle();
    let appends: Vec<u64> = (0..10).map(|n| world.request(0, "a", append(&n.to_string()))).collect();
    let tid = world.request(0, "a", read());
    world.run_until_idle();
    for (n, tid) in appends.iter().enumerate() {
        assert_eq!(world.clients[0].replies[tid].user_version, n as u64 + 1);
    }
    assert_eq!(&world.clients[0].replies[&tid].ops[0].outdata.to_bytes()[..], b"0123456789");
    world.assert_equal_copies();
}

#[test]
fn a_resent_request_takes_effect_once_and_is_answered_alike() {
    for seed in 0..50 {
        let mut world = World::new(seed, 1);
        world.run_until_idle();
        let tid = world.request(0, "a", append("x"));
        for _ in 0..world.pick(30) {
            world.step();
        }
        world.reset_session(0, 0);
        world.run_until_idle();
        let first = world.clients[0].replies.remove(&tid).expect("an answer");
        assert_eq!((first.result, first.replay_version.version), (0, 1));
        assert_eq!(world.stored("a").expect("the object").data, b"x");
        let failed = world.call(0, "a", vec![SubOp::new(code::CREATE).with_flags(1)]);
        assert_eq!((failed.result, failed.replay_version.version), (Errno::EEXIST.negated(), 2));
    }
}

#[test]
fn reads_of_cold_data_wait_and_keep_the_order() {
    let mut world = World::new(3, 1);
    (0..3).for_each(|osd| world.disk(osd).slow = true);
    world.run_until_idle();
    world.call(0, "a", append("1"));
    (0..3).for_each(|osd| world.disk(osd).cool_down());
    let before = world.request(0, "a", read());
    let write = world.request(0, "a", append("2"));
    let after = world.request(0, "a", read());
    world.run_until_idle();
    let data = |tid: &u64| world.clients[0].replies[tid].ops[0].outdata.to_bytes();
    assert_eq!((&data(&before)[..], &data(&after)[..]), (&b"1"[..], &b"12"[..]));
    assert_eq!(world.clients[0].replies[&write].result, 0);
}

#[test]
fn without_min_size_nothing_is_served() {
    let mut world = World::new(4, 1);
    world.run_until_idle();
    world.crash(1);
    world.mark_down(1);
    world.run_until_idle();
    assert_eq!(state(&mut world), "active+undersized");
    world.call(0, "a", write("x"));
    assert_eq!(state(&mut world), "active+undersized+degraded");
    world.crash(2);
    world.mark_down(2);
    world.run_until_idle();
    assert_eq!(state(&mut world), "undersized+degraded+peered");
    let tid = world.request(0, "a", append("y"));
    world.run_until_idle();
    assert!(!world.clients[0].replies.contains_key(&tid));
    world.heal();
    assert!(world.clients[0].replies.contains_key(&tid));
    assert_eq!(state(&mut world), "active+clean");
    world.assert_equal_copies();
}

/// What a slow request's report is made of.
#[test]
fn a_write_under_way_names_the_members_that_it_waits_for() {
    for seed in 0..20 {
        let mut world = World::new(seed, 1);
        world.run_until_idle();
        let primary = world.primary();
        world.request(0, "a", write("hello"));
        let mut seen = Vec::new();
        for _ in 0..1_000 {
            if let Some(write) = world.pg(primary).and_then(|pg| pg.ops_in_flight().next()) {
                assert_eq!((write.stage, write.op.op.name.as_bytes()), (OpStage::Commit, &b"a"[..]));
                seen.push(write.waiting_on.len());
            }
            world.step();
        }
        assert_eq!(seen.first(), Some(&3), "seed {seed}");
        assert!(seen.windows(2).all(|pair| pair[1] <= pair[0] && pair[1] > 0), "seed {seed}: {seen:?}");
        world.run_until_idle();
        assert_eq!(world.pg(primary).map(|pg| pg.ops_in_flight().count()), Some(0));
    }
}
