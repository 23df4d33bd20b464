//! Which clients get in, and what they may do.

use super::{ADMIN, World, name};
use nacre_auth::{ClientAuth, CryptoKey, Offer};
use nacre_msg::{Auth, Message, MgrCommand, MgrOpen, MonGetMap, PoolOp, pool_op_code};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{EntityKind, Errno};
use std::time::Duration;

fn client(world: &World, who: &str) -> ClientAuth {
    ClientAuth::new(name(who), world.keys.get(&name(who)).cloned(), Offer::secure_first(), &[])
}

#[test]
fn a_wrong_key_and_an_unknown_name_are_refused_alike() {
    let mut world = World::new(1);
    for who in [ADMIN, "client.stranger"] {
        let key = CryptoKey::generate(&mut SeededEntropy(9), world.wall);
        let mut client = ClientAuth::new(name(who), Some(key), Offer::secure_first(), &[]);
        assert_eq!(world.connect_as(&mut client), None);
    }
}

#[test]
fn a_peer_that_lies_about_its_kind_or_speaks_too_early_is_dropped() {
    let mut world = World::new(1);
    let mut client = client(&world, ADMIN);
    let session = world.connect_as_kind(&mut client, EntityKind::OSD).expect("the right key");
    assert_eq!(world.closed, [session]);
    let stranger = world.new_session();
    world.message(stranger, 1, MonGetMap);
    assert_eq!(world.closed, [session, stranger]);
}

/// A stock `ceph-osd` opens its first session as a client with the OSD's key; refused, it never starts.
#[test]
fn a_daemon_may_fetch_maps_and_options_as_a_client() {
    let mut world = World::new(1);
    let daemon = world.connect("osd.0");
    let mut client = client(&world, "osd.0");
    let early = world.connect_as_kind(&mut client, EntityKind::CLIENT).expect("the right key");
    assert!(world.closed.is_empty());
    world.subscribe(early, "config", 0, false);
    world.subscribe(early, "monmap", 0, false);
    assert_eq!(world.take(early).len(), 2);
    world.boot(early, 0, 0);
    assert!(!world.map().is_up(0), "only the daemon boots");
    world.boot(daemon, 0, 0);
    assert!(world.map().is_up(0));
}

#[test]
fn commands_and_pool_operations_need_caps() {
    let mut world = World::new(3);
    world.boot_all(3);
    world.add_client("client.reader", "allow r", "allow rwx pool=other");
    let reader = world.connect("client.reader");
    let answer =
        world.ask(reader, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#).expect("an answer");
    assert_eq!((answer.result, answer.status.as_str()), (Errno::EACCES.negated(), "access denied"));
    let create = PoolOp { op: pool_op_code::CREATE, name: "p".to_owned(), ..PoolOp::default() };
    world.message(reader, 1, create);
    let messages = world.take(reader);
    let [Message::PoolOpReply(reply)] = &messages[..] else { panic!("a reply, not {messages:?}") };
    assert_eq!(reply.result, Errno::EPERM.negated());
    assert!(world.map().pools.is_empty());
}

#[test]
fn whoever_may_write_objects_of_a_pool_may_take_snapshots_there() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    for pool in ["p", "q"] {
        let create = format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":8}}"#);
        assert_eq!(world.ask(admin, &create).map(|ack| ack.result), Some(0));
    }
    world.add_client("client.rbd", "profile rbd", "profile rbd pool=p");
    let client = world.connect("client.rbd");
    for (pool, result) in [(1, 0), (2, Errno::EPERM.negated())] {
        let ask = PoolOp { pool, op: pool_op_code::CREATE_UNMANAGED_SNAP, ..PoolOp::default() };
        world.message(client, 1, ask);
        let messages = world.take(client);
        let [Message::PoolOpReply(reply)] = &messages[..] else { panic!("a reply, not {messages:?}") };
        assert_eq!(reply.result, result);
    }
}

#[test]
fn tickets_are_renewed_on_the_session() {
    let mut world = World::new(1);
    let mut client = ClientAuth::new(
        name(ADMIN),
        world.keys.get(&name(ADMIN)).cloned(),
        Offer::secure_first(),
        &[EntityKind::OSD],
    );
    let session = world.connect_as(&mut client).expect("the right key");
    world.pass(Duration::from_secs(3000));
    let payload =
        client.renewal(world.wall, &mut SeededEntropy(3)).expect("a challenge").expect("a ticket is due");
    world.message(session, 0, Auth { protocol: 2, payload, ..Auth::default() });
    let messages = world.take(session);
    let [Message::AuthReply(reply)] = &messages[..] else { panic!("tickets, not {messages:?}") };
    assert_eq!(reply.result, 0);
}

#[test]
fn the_manager_endpoint_takes_tickets_and_answers_commands() {
    let mut world = World::new(1);
    let session = world.connect_manager(ADMIN);
    world.message(session, 0, MgrOpen::default());
    world.message(
        session,
        0,
        MgrCommand { cmd: vec![r#"{"prefix":"no such"}"#.to_owned()], ..MgrCommand::default() },
    );
    let messages = world.take(session);
    let [Message::MgrConfigure(_), Message::MgrCommandReply(reply)] = &messages[..] else {
        panic!("not {messages:?}")
    };
    assert_eq!(reply.result, Errno::EINVAL.negated());
}
