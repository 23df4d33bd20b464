//! A client that uses up what it may have: operators hear of it, by its name.

use nacre_auth::CryptoKey;
use nacre_msg::SubOp;
use nacre_msg::osd_op::{Extent, code};
use nacre_objecter::Request;
use nacre_sim::{Config, Finished, Proc, World};
use nacre_types::{AuthName, EntityKind, ObjectLocator, PgId};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
/// Two of these are more than one client's share of an OSD's memory for unfinished messages.
const MESSAGE_BYTES: usize = 40 << 20;
const CODE: &str = "OSD_CLIENTS_THROTTLED";

fn greedy_access(world: &mut World) -> (AuthName, CryptoKey) {
    let caps = r#""caps": ["mon", "allow r", "osd", "allow rw"]"#;
    let key = world.command(&format!(
        r#"{{"prefix": "auth get-or-create-key", "entity": "client.greedy", {caps}, "format": "plain"}}"#
    ));
    (AuthName::new(EntityKind::CLIENT, "greedy"), CryptoKey::parse(&key).expect("a key"))
}

/// What the monitor's health says of clients that OSDs let wait.
fn warning(world: &World) -> Option<String> {
    let mon = world.mon().expect("it runs");
    let checks = nacre_mon::health::checks(mon.state());
    checks.iter().find(|check| check.code == CODE).map(|check| format!("{check:?}"))
}

/// A comparison with what is not there: a long message that leaves nothing behind.
fn send_much(world: &mut World, client: usize) {
    let extent = Extent { length: MESSAGE_BYTES as u64, ..Extent::default() };
    let op = SubOp::with_extent(code::CMPEXT, extent).with_indata(vec![7; MESSAGE_BYTES].into());
    let request = Request::new(ObjectLocator::in_pool(1), "object".to_owned(), vec![op]);
    world.order(client, |client| client.submit(request));
}

fn is_answered(world: &mut World, client: usize) -> bool {
    world.take_finished(client).iter().any(|done| matches!(done, Finished::Op { outcome: Ok(_), .. }))
}

/// The whole chain: what the messenger counts, the shard's report, the OSD's to the monitor, and its health.
#[test]
fn a_client_whose_budget_is_full_is_named_by_the_health() {
    let mut world = World::new(1, &Config::default());
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1}"#);
    world.op("object", SubOp::write_full(b"short".to_vec().into()));
    let (name, key) = greedy_access(&mut world);
    let (first, second) = (world.add_client_as(name.clone(), key.clone()), world.add_client_as(name, key));
    world.run_for(Duration::from_secs(10));
    assert_eq!(warning(&world), None);

    // The first message has begun and cannot go on; the second finds no room beside it.
    let map = world.mon().expect("it runs").state().osd.map().clone();
    let primary = map.pg_to_up_acting(PgId::new(1, 0)).acting_primary;
    let (from, to) = (Proc::Client(first).host(), Proc::Osd(primary).host());
    send_much(&mut world, first);
    world.run_for(Duration::from_millis(5));
    world.fabric().block(from, to);
    send_much(&mut world, second);
    assert!(world.run_until(PATIENCE, |world| warning(world).is_some()), "nobody hears of it: {world:?}");
    let text = warning(&world).unwrap_or_default();
    assert!(text.contains("client.greedy") && !text.contains("client.admin"), "{text}");
    assert!(text.contains(&format!("osd.{primary}")), "{text}");
    // Nobody else waits for that.
    assert_eq!(world.op("object", SubOp::read(0, 0)), b"short");

    world.fabric().heal();
    for client in [first, second] {
        assert!(world.run_until(PATIENCE, |world| is_answered(world, client)), "{world:?}");
    }
    assert!(world.run_until(3 * PATIENCE, |world| warning(world).is_none()), "it never ends");
}
