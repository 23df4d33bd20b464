//! The only OSD that has the newest writes is gone for good. Its PG waits for it until an operator says that it is lost, and
//! goes on with what there is; the OSD's number is used again.

use nacre_msg::SubOp;
use nacre_objecter::Request;
use nacre_sim::{Config, Finished, World};
use nacre_types::{ObjectLocator, OsdId};
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
    let healed = world.run_until(PATIENCE, |world| world.is_clean());
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

/// Has a client write what nobody answers yet. Gives the message's number.
fn ask(world: &mut World) -> u64 {
    let op = SubOp::write_full(b"asked".to_vec().into());
    let request = Request::new(ObjectLocator::in_pool(1), "object".to_owned(), vec![op]);
    world.order(ASKER, |client| client.submit(request))
}

/// Who asks, and gives no commands.
const ASKER: usize = 1;

/// Whether the copy that is left is given up, or there is none, and whether or not clients were told to wait: nobody waits for ever.
#[test]
fn what_was_asked_of_a_pg_before_it_was_made_anew_is_answered() {
    for seed in 0..6 {
        let mut world = World::new(seed, &Config { osds: 2, clients: 2, ..Config::default() });
        world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1, "size": 2}"#);
        world.command(r#"{"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1"}"#);
        write(&mut world, "old");
        let members = world.acting();
        let (gone, other) = (members[0], members[1]);
        end(&mut world, other);
        write(&mut world, "new");
        let mut asked = vec![];
        end(&mut world, gone);
        asked.push(ask(&mut world));
        if seed % 2 == 0 {
            world.start_osd(other);
        } else {
            come_anew(&mut world, other);
        }
        asked.push(ask(&mut world));
        world.run_for(Duration::from_secs(30));
        asked.push(ask(&mut world));
        world.order(0, |client| {
            client
                .command(r#"{"prefix": "osd force-create-pg", "pgid": "1.0", "yes_i_really_mean_it": true}"#)
        });
        for pause in [1, 10, 100, 1000] {
            world.run_for(Duration::from_millis(pause));
            asked.push(ask(&mut world));
        }
        let answered = world.run_until(PATIENCE, |world| {
            for done in world.take_finished(ASKER) {
                if let Finished::Op { tid, outcome } = done {
                    assert_eq!(outcome.expect("a pool that is there").result, 0, "seed {seed}");
                    asked.retain(|one| *one != tid);
                }
            }
            asked.is_empty()
        });
        assert!(answered, "seed {seed}: {asked:?} are not answered: {world:?}");
        assert_eq!(read(&mut world, PATIENCE).as_deref(), Some(&b"asked"[..]), "seed {seed}");
    }
}
