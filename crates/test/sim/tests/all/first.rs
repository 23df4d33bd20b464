//! The cluster comes up, takes writes and gives them back; the same seed does the same.

use nacre_msg::SubOp;
use nacre_sim::{Config, World};
use nacre_types::Entropy;

fn run(seed: u64) -> (u64, u64, u64, u64) {
    let mut world = World::new(seed, &Config::default());
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 4}"#);
    for object in 0..20 {
        let (name, data) = (format!("object {object}"), format!("content {object}").into_bytes());
        assert_eq!(world.op(&name, SubOp::write_full(data.clone().into())), b"");
        assert_eq!(world.op(&name, SubOp::read(0, 0)), data);
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
