//! The only OSD that has the newest writes is gone for good. Its PG waits for it until an operator says that it is lost, and
//! goes on with what there is; the OSD's number is used again.

use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use nacre_sim::{Config, World};
use nacre_types::OsdId;
use std::time::Duration;

/// Long enough for anything that can happen.
const PATIENCE: Duration = Duration::from_secs(120);

fn write(world: &mut World, text: &'static str) {
    world.op("object", SubOp::write_full(text.as_bytes().to_vec().into()));
}

fn read(world: &mut World, patience: Duration) -> Option<Vec<u8>> {
    world.op_within("object", SubOp::read(0, 0), patience)
}

fn end(world: &mut World, osd: OsdId) {
    world.stop_osd(osd, true);
    world.command(&format!(r#"{{"prefix": "osd down", "ids": ["{osd}"], "definitely_dead": true}}"#));
}

fn become_clean(world: &mut World, seed: u64) {
    let clean = pg_state::ACTIVE | pg_state::CLEAN;
    let healed = world.run_until(PATIENCE, |world| {
        let mon = world.mon().expect("it runs");
        let map = mon.state().osd.map();
        let all_up = map.up_count() == world.osd_ids().len();
        all_up && mon.state().stats.pgs.pgs(map).all(|(_, stat)| stat.state == clean)
    });
    assert!(healed, "seed {seed}: {world:?}");
}

/// Another OSD comes under the number of one that is gone.
fn come_anew(world: &mut World, osd: OsdId) {
    world.command(&format!(
        r#"{{"prefix": "osd purge", "id": {osd}, "force": true, "yes_i_really_mean_it": true}}"#
    ));
    let (uuid, key) = world.replace_device(osd);
    let secret = format!(r#"{{"cephx_secret": "{}"}}"#, key.to_text()).into_bytes();
    let json = format!(r#"{{"prefix": "osd new", "uuid": "{uuid}", "id": "{osd}"}}"#);
    world.order(0, |client| client.command_with(&json, secret.into()));
    world.run_for(Duration::from_secs(2));
    let place = format!(r#""weight": 1.0, "args": ["host=host{osd}", "root=default"]"#);
    world.command(&format!(r#"{{"prefix": "osd crush create-or-move", "id": {osd}, {place}}}"#));
    world.command(&format!(r#"{{"prefix": "osd in", "ids": ["{osd}"]}}"#));
    world.start_osd(osd);
}

#[test]
fn what_only_a_lost_osd_had_is_given_up_by_order_and_its_number_used_again() {
    for seed in 0..3 {
        let mut world = World::new(seed, &Config { osds: 2, ..Config::default() });
        world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1, "size": 2}"#);
        world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1"}"#);
        write(&mut world, "old");
        let members = world.acting();
        let (gone, other) = (members[0], members[1]);
        end(&mut world, other);
        write(&mut world, "new");
        end(&mut world, gone);
        world.start_osd(other);
        let without = read(&mut world, Duration::from_secs(60));
        assert_eq!(without, None, "seed {seed}: osd.{gone} may have newer writes");

        world.command(&format!(r#"{{"prefix": "osd lost", "id": {gone}, "yes_i_really_mean_it": true}}"#));
        assert_eq!(read(&mut world, PATIENCE).as_deref(), Some(&b"old"[..]), "seed {seed}");
        write(&mut world, "newer");
        world.command(&format!(r#"{{"prefix": "osd out", "ids": ["{gone}"]}}"#));
        world.run_for(Duration::from_secs(20));
        come_anew(&mut world, gone);
        become_clean(&mut world, seed);
        // It has all that there is.
        end(&mut world, other);
        assert_eq!(read(&mut world, PATIENCE).as_deref(), Some(&b"newer"[..]), "seed {seed}");
    }
}
