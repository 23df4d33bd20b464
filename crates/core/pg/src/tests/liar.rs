//! Whoever has the key of an OSD may say what it likes to others: they may come to serve nobody, but they do not stop.

use crate::harness::World;
use nacre_msg::SubOp;
use nacre_types::OsdId;
use std::time::Duration;

/// Steps after which a story is over, however it stands: with a liar there need be no end.
const STEPS_MAX: usize = 3000;

fn steps(world: &mut World) {
    for _ in 0..STEPS_MAX {
        if !world.step() {
            return;
        }
    }
}

fn tell(seed: u64, liar: OsdId) {
    let mut world = World::new(seed, 2);
    world.run_until_idle();
    world.liar = Some((liar, 3));
    for round in 0..8_u64 {
        for client in 0..2 {
            let object = format!("object-{}", (seed + round) % 5);
            world.request(client, &object, vec![SubOp::append(vec![1; 100].into())]);
        }
        steps(&mut world);
        let victim = OsdId::try_from(world.pick(3)).expect("a small number");
        match world.pick(4) {
            0 if world.is_running(victim) => world.crash(victim),
            1 if !world.is_running(victim) => world.restart(victim),
            2 => world.mark_down(victim),
            _ => world.tick(Duration::from_secs(20)),
        }
        steps(&mut world);
        (0..3).for_each(|osd| {
            if !world.is_running(osd) {
                world.restart(osd);
            }
        });
        world.tick(Duration::from_secs(5));
        steps(&mut world);
    }
}

#[test]
fn a_peer_that_lies_stops_nobody() {
    for seed in 0..120 {
        for (nth, liar) in (0..3).zip(0..3) {
            tell(seed * 3 + nth, liar);
        }
    }
}
