//! What cannot be served for long is held by clients, and comes back in order.

use crate::harness::{World, spg};
use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;

fn append(text: &str) -> Vec<SubOp> {
    vec![SubOp::append(text.as_bytes().to_vec().into())]
}

fn world(seed: u64) -> World {
    let mut world = World::new(seed, 2);
    world.clients[0].backs_off = true;
    world.run_until_idle();
    world.call(0, "log", append("a"));
    world
}

fn waiting(world: &mut World) -> usize {
    let primary = world.primary();
    world.pg(primary).map_or(0, |pg| pg.waiting().map(|(_, count)| count).sum())
}

fn content(world: &World, name: &str) -> String {
    String::from_utf8(world.stored(name).expect("an object").data.clone()).expect("text")
}

#[test]
fn below_min_size_clients_hold_what_they_want_in_order() {
    for seed in 0..50 {
        let mut world = world(seed);
        world.lose(1);
        world.lose(2);
        for text in ["b", "c", "d", "e"] {
            world.request(0, "log", append(text));
            for _ in 0..world.pick(6) {
                world.step();
            }
        }
        world.run_until_idle();
        assert_eq!(waiting(&mut world), 0, "seed {seed}: nothing is kept here");
        assert_eq!(world.clients[0].held.len(), 1);
        assert_eq!(world.clients[0].sent.len(), 4);
        // A client that cannot hold anything waits here.
        world.request(1, "other", append("x"));
        world.run_until_idle();
        assert_eq!(waiting(&mut world), 1);
        world.restart(1);
        for _ in 0..world.pick(200) {
            world.step();
        }
        for text in ["f", "g"] {
            world.request(0, "log", append(text));
        }
        world.run_until_idle();
        assert!(world.clients.iter().all(|client| client.sent.is_empty() && client.held.is_empty()));
        assert_eq!(content(&world, "log"), "abcdefg", "seed {seed}");
        assert_eq!(content(&world, "other"), "x");
    }
}

#[test]
fn a_pg_that_is_down_keeps_nothing() {
    let mut world = world(3);
    // osd.0 writes alone, as far as anybody knows.
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.min_size = 1));
    world.run_until_idle();
    world.lose(1);
    world.lose(2);
    world.call(0, "log", append("b"));
    world.lose(0);
    world.restart(1);
    world.run_until_idle();
    let primary = world.primary();
    let state = world.pg(primary).map_or(0, |pg| pg.state());
    assert!(state & pg_state::DOWN != 0, "{}", pg_state::text(state));
    world.request(0, "log", append("c"));
    world.run_until_idle();
    assert_eq!((waiting(&mut world), world.clients[0].held.len()), (0, 1));
    world.heal();
    assert_eq!(content(&world, "log"), "abc");
    assert!(world.clients[0].held.is_empty());
}

#[test]
fn an_object_that_nobody_has_is_held_alone() {
    let mut world = world(5);
    // osd.2 alone has the newest "log"; osd.1 has the log, but not the object.
    world.leave_alone(2, |world| drop(world.call(0, "log", append("b"))));
    let primary = world.primary();
    let state = world.pg(primary).map_or(0, |pg| pg.state());
    assert!(state & pg_state::ACTIVE != 0, "{}", pg_state::text(state));
    world.request(0, "log", append("c"));
    world.run_until_idle();
    assert_eq!((waiting(&mut world), world.clients[0].held.len()), (0, 1));
    assert_eq!(world.call(0, "other", append("x")).result, 0, "other objects are served");
    world.restart(2);
    world.take_places(1, false);
    world.heal();
    assert_eq!(content(&world, "log"), "abc");
    assert!(world.clients[0].held.is_empty());
}

#[test]
fn a_pg_that_moves_away_releases_its_clients() {
    let mut world = world(9);
    world.lose(1);
    world.lose(2);
    world.request(0, "log", append("b"));
    world.run_until_idle();
    assert_eq!(world.clients[0].held.len(), 1);
    world.publish(|map| drop(map.pg_upmap.insert(spg().pg, vec![3, 0, 4])));
    world.run_until_idle();
    world.heal();
    assert!(world.clients[0].held.is_empty());
    assert_eq!(content(&world, "log"), "ab");
}
