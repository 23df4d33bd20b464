//! The cluster comes up, takes writes and gives them back; the same seed does the same.

use nacre_msg::SubOp;
use nacre_objecter::Request;
use nacre_sim::{Config, Finished, World};
use nacre_types::{Entropy, ObjectLocator};
use std::time::Duration;

fn run(seed: u64) -> (u64, u64, u64, u64) {
    let mut world = World::new(seed, &Config::default());
    let tid =
        world.order(0, |client| client.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 4}"#));
    let created = world.run_until(Duration::from_secs(30), |world| {
        world
            .take_finished(0)
            .iter()
            .any(|done| matches!(done, Finished::Command { tid: of, result: 0, .. } if *of == tid))
    });
    assert!(created, "{world:?}");
    for object in 0..20 {
        let data = format!("content {object}").into_bytes();
        let request = |ops| Request::new(ObjectLocator::in_pool(1), format!("object {object}"), ops);
        for ops in [vec![SubOp::write_full(data.clone().into())], vec![SubOp::read(0, 0)]] {
            let tid = world.order(0, |client| client.submit(request(ops)));
            let mut answer = None;
            world.run_until(Duration::from_secs(60), |world| {
                for done in world.take_finished(0) {
                    if let Finished::Op { tid: of, outcome: Ok(reply) } = done
                        && of == tid
                    {
                        answer = Some(reply);
                    }
                }
                answer.is_some()
            });
            let answer = answer.unwrap_or_else(|| panic!("no answer: {world:?} {:?}", world.client(0)));
            assert_eq!(answer.result, 0);
        }
    }
    let (trace, steps) = world.trace();
    (trace, steps, world.now().0, world.rng().u64())
}

#[test]
fn a_client_writes_and_reads() {
    let start = std::time::Instant::now();
    let first = run(1);
    eprintln!("{first:?} in {:?}", start.elapsed());
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
}
