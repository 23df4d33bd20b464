//! OSDs of different programs in one cluster: those that follow each other understand each other, others are refused until they do.

use nacre_msg::SubOp;
use nacre_msg::peer::PeerVersions;
use nacre_pg::Tuning;
use nacre_sim::{Config, Proc, World};
use nacre_types::OsdId;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

fn program(number: u32) -> PeerVersions {
    let oldest = PeerVersions::OURS.oldest + number;
    PeerVersions { oldest, newest: oldest + 1 }
}

fn restart(world: &mut World, osd: OsdId, versions: PeerVersions) {
    world.stop_osd(osd, false);
    world.set_versions(osd, versions);
    // The monitor may refuse it, and does not learn from it that its predecessor is gone.
    world.command(&format!(r#"{{"prefix": "osd down", "ids": ["{osd}"]}}"#));
    world.start_osd(osd);
}

fn is_up(world: &World, osd: OsdId) -> bool {
    world.mon().expect("it runs").state().osd.map().is_up(osd)
}

fn refused(world: &World) -> Option<String> {
    let checks = nacre_mon::health::checks(world.mon().expect("it runs").state());
    checks.iter().find(|check| check.code == "OSD_BOOT_REFUSED").map(|check| check.detail.join("; "))
}

fn upgrade(world: &mut World, osd: OsdId, number: u32, seed: u64) {
    restart(world, osd, program(number));
    assert!(
        world.run_until(PATIENCE, |world| world.is_clean()),
        "seed {seed}: osd.{osd} with program {number}: {world:?}"
    );
    let content = format!("{osd} has program {number}").into_bytes();
    world.op("object", SubOp::write_full(content.clone().into()));
    assert_eq!(world.op("object", SubOp::read(0, 0)), content, "seed {seed}");
}

#[test]
fn osds_are_upgraded_one_after_the_other_and_one_that_is_ahead_waits() {
    for seed in 0..3 {
        let tuning = Tuning { checked: true, versions: program(0), ..Tuning::default() };
        let mut world = World::new(seed, &Config { tuning, ..Config::default() });
        world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 4}"#);
        for osd in 0..3 {
            upgrade(&mut world, osd, 1, seed);
        }
        upgrade(&mut world, 0, 2, seed);
        // Two programs ahead of the last ones.
        restart(&mut world, 2, program(3));
        assert!(world.run_until(PATIENCE, |world| refused(world).is_some()), "seed {seed}: nobody was told");
        let told = refused(&world).expect("a warning");
        let (own, theirs) = (program(3), program(1));
        let text = format!(
            "it speaks versions {own} of the messages between OSDs, and osd.1, which is up, {theirs}; upgrade the older one"
        );
        assert!(told.contains("osd.2") && told.contains(&text), "seed {seed}: {told}");
        world.op("object", SubOp::write_full(b"without it".to_vec().into()));
        world.run_for(Duration::from_secs(60));
        assert!(world.runs(Proc::Osd(2)) && !is_up(&world, 2), "seed {seed}: it waits");
        // As soon as the others understand it, it comes up by itself, and they have what it lacks.
        restart(&mut world, 1, program(2));
        assert!(world.run_until(PATIENCE, |world| world.is_clean()), "seed {seed}: {world:?}");
        assert!(
            world.run_until(PATIENCE, |world| refused(world).is_none()),
            "seed {seed}: {:?}",
            refused(&world)
        );
        for osd in [0, 1] {
            world.stop_osd(osd, false);
            world.command(&format!(r#"{{"prefix": "osd down", "ids": ["{osd}"]}}"#));
        }
        world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1"}"#);
        assert_eq!(world.op("object", SubOp::read(0, 0)), b"without it", "seed {seed}");
    }
}
