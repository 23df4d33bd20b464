//! An OSD that was away gets the logs of all its PGs at once: it reads other OSDs by turns, as its store keeps up.

use nacre_msg::SubOp;
use nacre_objecter::Request;
use nacre_sim::{Config, Finished, World};
use nacre_types::{ObjectLocator, OsdId};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
/// The one that is away.
const AWAY: OsdId = 1;
/// With names of a thousand bytes: ten megabytes of logs. A turn reads a megabyte of each peer, and checkpoints begin with 64 KiB.
const WRITES: usize = 8000;
const AT_A_TIME: usize = 100;

fn write(world: &mut World) {
    for first in (0..WRITES).step_by(AT_A_TIME) {
        for number in first..first + AT_A_TIME {
            let op = SubOp::write_full(b"data".to_vec().into());
            let request = Request::new(ObjectLocator::in_pool(1), format!("{:01000}", number % 50), vec![op]);
            world.order(0, |client| client.submit(request));
        }
        let mut left = AT_A_TIME;
        let all_done = world.run_until(PATIENCE, |world| {
            let is_done = |done: &Finished| matches!(done, Finished::Op { outcome: Ok(_), .. });
            left -= world.take_finished(0).iter().filter(|done| is_done(done)).count();
            left == 0
        });
        assert!(all_done, "{world:?}");
    }
}

/// How much memory that spares only real logs show, which take seconds to come (`memory.rs` of `crates/test/interop`): here as much comes in
/// a turn as there is to spare.
#[test]
fn peers_are_held_while_logs_come_at_once_and_everything_goes_on() {
    for seed in 0..3 {
        let mut world = World::new(seed, &Config { osds: 3, clients: 1, ..Config::default() });
        world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 32, "size": 3}"#);
        assert!(world.run_until(PATIENCE, |world| world.is_clean()), "{world:?}");
        world.stop_osd(AWAY, false);
        world.command(&format!(r#"{{"prefix": "osd down", "ids": ["{AWAY}"]}}"#));
        write(&mut world);
        world.start_osd(AWAY);
        assert!(world.run_until(PATIENCE, |world| world.is_clean()), "seed {seed}: {world:?}");
        let holds = world.shard(AWAY).expect("it runs").peer_holds();
        assert!(holds > 2, "seed {seed}: {holds} times");
    }
}
