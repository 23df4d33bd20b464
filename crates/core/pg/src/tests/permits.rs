//! However a client's message ends, its permit is given back: else its client would not be read any more one day.

use crate::Event;
use crate::harness::World;
use nacre_msg::SubOp;
use nacre_types::Errno;
use std::sync::Arc;

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(text.as_bytes().to_vec().into())]
}

fn held(world: &World) -> usize {
    world.clients[0].budget.held_messages()
}

/// A cluster that has the object `a`, whose primary takes long to read.
fn slow_world(seed: u64) -> World {
    let mut world = World::new(seed, 1);
    world.disk(0).slow = true;
    world.run_until_idle();
    assert_eq!(world.call(0, "a", write("content")).result, 0);
    world.disk(0).cool_down();
    world
}

/// A read that waits for the disk, and a write that waits for the read: both are in the PG.
fn park_two(world: &mut World) {
    let session = world.clients[0].session(0, &mut 0);
    for ops in [vec![SubOp::read(0, 0)], write("behind")] {
        let tid = world.clients[0].request("a", ops);
        let op = world.clients[0].message(tid, Arc::clone(&session));
        world.event(0, Event::ClientOp(op));
    }
    assert_eq!(held(world), 2);
}

#[test]
fn an_answer_gives_the_permit_back() {
    let mut world = slow_world(1);
    assert_eq!(held(&world), 0, "a write");
    park_two(&mut world);
    world.run_until_idle();
    assert_eq!((held(&world), world.clients[0].replies.len()), (0, 2));
}

#[test]
fn a_refusal_gives_the_permit_back() {
    let mut world = slow_world(2);
    world.clients[0].is_beyond_room = true;
    assert_eq!(world.call(0, "b", write("no room")).result, Errno::ENOSPC.negated());
    assert_eq!(held(&world), 0);
}

#[test]
fn the_end_of_its_session_gives_the_permit_back() {
    let mut world = slow_world(3);
    park_two(&mut world);
    let session = world.clients[0].session(0, &mut 0).id;
    world.event(0, Event::SessionClosed(session));
    world.run_until_idle();
    assert_eq!(held(&world), 0);
}

#[test]
fn the_end_of_its_interval_gives_the_permit_back() {
    let mut world = slow_world(4);
    park_two(&mut world);
    world.clients[0].sent.clear(); // it does not send them again
    world.publish(|map| map.osd_state[1] = nacre_maps::flags::osd::EXISTS);
    world.advance_to_newest(0);
    world.run_until_idle();
    assert_eq!(held(&world), 0);
}

#[test]
fn the_end_of_its_pg_gives_the_permit_back() {
    let mut world = slow_world(5);
    park_two(&mut world);
    world.clients[0].sent.clear();
    world.crash(0); // drops the PG, as an OSD does with one that was removed
    assert_eq!(held(&world), 0);
}

/// It may ask for far more than there is: to the end, above all.
#[test]
fn a_read_counts_for_what_there_is_of_its_object_once_that_is_known() {
    let mut world = slow_world(6);
    let session = world.clients[0].session(0, &mut 0);
    let tid = world.clients[0].request("a", vec![SubOp::read(0, 0)]);
    let mut op = world.clients[0].message(tid, session);
    op.permit.expect(128 << 20);
    world.event(0, Event::ClientOp(op));
    assert_eq!((held(&world), world.clients[0].budget.expected_bytes()), (1, "content".len()));
    world.run_until_idle();
    assert_eq!((held(&world), world.clients[0].budget.expected_bytes()), (0, 0));
}
