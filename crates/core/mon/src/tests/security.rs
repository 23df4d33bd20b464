//! Which peer may do what, from where, how often, and what the audit log has of it.

use super::{ADMIN, World, addr, name};
use crate::event::{Endpoint, SessionId};
use crate::front::FrontEvent;
use crate::health;
use nacre_auth::{ClientAuth, Offer, Step};
use nacre_msg::{Message, MgrCommand, PoolOp, pool_op_code};
use nacre_types::{EntityKind, Errno, UTime};
use std::net::IpAddr;
use std::time::Duration;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The line that was written last.
fn last_audit(world: &World) -> String {
    let audit = world.mon.state().log.entries().rev().find(|entry| entry.channel == "audit");
    audit.map(|entry| entry.message.clone()).unwrap_or_default()
}

impl World {
    fn client(&self, who: &str) -> ClientAuth {
        let key = self.keys.get(&name(who)).cloned();
        ClientAuth::new(name(who), key, Offer::secure_first(), &[EntityKind::OSD, EntityKind::MGR])
    }

    /// A session at the monitor from a socket at `from`, which claims an address of its own choice; none if it is refused.
    pub(super) fn connect_seen(&mut self, who: &str, from: &str) -> Option<SessionId> {
        let mut client = self.client(who);
        let (session, start) = (self.new_session(), client.start());
        let (method, modes, payload) = (start.method, start.modes, start.payload);
        let (endpoint, kind) = (Endpoint::Mon, EntityKind::CLIENT);
        let step =
            self.auth_event(FrontEvent::AuthRequest { session, endpoint, kind, method, modes, payload });
        let Step::More(challenge) = step else { return None };
        let mut entropy = nacre_types::entropy::SeededEntropy(9);
        let payload = client.more(challenge, &mut entropy).expect("a challenge");
        let Step::Done(_) = self.auth_event(FrontEvent::AuthMore { session, payload }) else { return None };
        self.front_event(FrontEvent::Established { session, kind, addrs: addr(5), seen_at: Some(ip(from)) });
        Some(session)
    }

    /// A session at the manager's address.
    pub(super) fn connect_mgr(&mut self, who: &str) -> SessionId {
        let mut client = self.client(who);
        let session = self.connect_as(&mut client).expect("the right key");
        self.front_event(FrontEvent::Closed { session });
        let mut entropy = nacre_types::entropy::SeededEntropy(11);
        let mut authorizer = client
            .authorizer(EntityKind::MGR, &Offer::crc_first(), self.wall, &mut entropy)
            .expect("a ticket");
        let session = self.new_session();
        let start = authorizer.start();
        let (method, modes, payload) = (start.method, start.modes, start.payload);
        let (endpoint, kind) = (Endpoint::Mgr, EntityKind::CLIENT);
        let step =
            self.auth_event(FrontEvent::AuthRequest { session, endpoint, kind, method, modes, payload });
        let Step::More(challenge) = step else { panic!("no challenge") };
        let payload = authorizer.more(&challenge).expect("a challenge");
        let Step::Done(_) = self.auth_event(FrontEvent::AuthMore { session, payload }) else {
            panic!("refused")
        };
        let seen_at = Some(ip("192.0.2.7"));
        self.front_event(FrontEvent::Established {
            session,
            kind: EntityKind::CLIENT,
            addrs: addr(0),
            seen_at,
        });
        session
    }

    pub(super) fn ask_mgr(&mut self, session: SessionId, json: &str) -> i32 {
        self.message(session, 3, MgrCommand { cmd: vec![json.to_owned()], ..MgrCommand::default() });
        let reply = self.take(session).into_iter().find_map(|message| match message {
            Message::MgrCommandReply(reply) => Some(reply.result),
            _ => None,
        });
        reply.expect("an answer")
    }

    fn add_with_mgr(&mut self, who: &str, mon: &str, mgr: &str) {
        let admin = self.connect(ADMIN);
        let caps = format!(r#""caps":["mon","{mon}","mgr","{mgr}"]"#);
        let json = format!(r#"{{"prefix":"auth get-or-create-key","entity":"{who}",{caps}}}"#);
        let ack = self.ask(admin, &json).expect("an answer");
        assert_eq!(ack.result, 0, "{}", ack.status);
        let key = self.mon.state().auth.keys().entity(&name(who)).expect("it was made").key.clone();
        self.keys.insert(name(who), key);
    }
}

#[test]
fn a_network_is_where_the_socket_is_not_what_the_peer_says() {
    let mut world = World::new(1);
    world.add_client("client.inside", "allow r network 10.0.0.0/8, allow command \"mon dump\"", "allow r");
    let read = r#"{"prefix":"osd dump"}"#;
    let inside = world.connect_seen("client.inside", "10.1.2.3").expect("the right key");
    assert_eq!(world.ask(inside, read).map(|ack| ack.result), Some(0));
    // It says 127.0.0.1, whatever it says does not count.
    let outside = world.connect_seen("client.inside", "192.0.2.1").expect("the right key");
    assert_eq!(world.ask(outside, read).map(|ack| ack.result), Some(Errno::EACCES.negated()));
    let line = last_audit(&world);
    assert!(line.contains("client.inside") && line.contains("at='192.0.2.1'"), "{line}");
    assert!(line.ends_with("access denied") && line.contains("osd dump"), "{line}");
}

#[test]
fn the_manager_asks_for_caps_of_its_own() {
    let mut world = World::new(1);
    world.add_with_mgr("client.mononly", "allow *", "allow command \\\"osd df\\\"");
    let session = world.connect_mgr("client.mononly");
    assert_eq!(world.ask_mgr(session, r#"{"prefix":"osd df"}"#), 0);
    let denied = Errno::EACCES.negated();
    assert_eq!(world.ask_mgr(session, r#"{"prefix":"pg dump"}"#), denied);
    assert_eq!(world.ask_mgr(session, r#"{"prefix":"crash ls"}"#), denied);
    world.add_with_mgr("client.reader", "allow r", "allow r");
    let session = world.connect_mgr("client.reader");
    assert_eq!(world.ask_mgr(session, r#"{"prefix":"pg dump"}"#), 0);
    assert_eq!(world.ask_mgr(session, r#"{"prefix":"crash ls"}"#), 0);
    assert_eq!(world.ask_mgr(session, r#"{"prefix":"pg scrub","pgid":"1.0"}"#), denied);
    // What the monitor serves is not to be had there, whatever the caps are.
    let monitors = world.ask_mgr(session, r#"{"prefix":"auth ls"}"#);
    assert_eq!(monitors, Errno::EINVAL.negated());
}

#[test]
fn a_removed_or_replaced_key_ends_its_sessions() {
    let mut world = World::new(1);
    world.add_client("client.a", "allow r", "allow rw");
    world.add_client("client.b", "allow r", "allow rw");
    let (a, b, admin) = (
        world.connect_seen("client.a", "10.0.0.1").expect("the right key"),
        world.connect("client.b"),
        world.connect(ADMIN),
    );
    let rotate = world.ask(admin, r#"{"prefix":"auth rotate","entity":"client.a"}"#).expect("an answer");
    assert_eq!(rotate.result, 0);
    let line = last_audit(&world);
    assert!(
        line.contains("auth rotate") && line.contains("client.admin") && line.ends_with("finished"),
        "{line}"
    );
    world.pass(Duration::from_secs(1));
    assert!(world.closed.contains(&a) && !world.closed.contains(&b) && !world.closed.contains(&admin));
    let shut_out: Vec<_> = world.map().blocklist.keys().filter_map(|addr| Some(addr.socket?.ip())).collect();
    assert_eq!(
        shut_out,
        [ip("10.0.0.1")],
        "it is shut out of the OSDs as long as its ticket would be good, by where it is, not by what it says"
    );
    let mut old = world.client("client.a");
    assert!(world.connect_as(&mut old).is_none(), "the old key");
    assert_eq!(
        world.ask(admin, r#"{"prefix":"auth rm","entity":"client.b"}"#).map(|ack| ack.result),
        Some(0)
    );
    world.pass(Duration::from_secs(1));
    assert!(world.closed.contains(&b));
    assert!(world.wall > UTime::ZERO);
}

/// The last message of one kind that an OSD was told.
fn told<T>(world: &mut World, osd: SessionId, pick: fn(Message) -> Option<T>) -> Option<T> {
    world.take(osd).into_iter().filter_map(pick).last()
}

/// What it was told of tickets that hold no more.
fn void_told(world: &mut World, osd: SessionId) -> Option<nacre_msg::VoidTickets> {
    told(world, osd, |message| if let Message::VoidTickets(void) = message { Some(void) } else { None })
}

/// What it was told of caps that have changed.
fn caps_told(world: &mut World, osd: SessionId) -> Option<nacre_msg::EntityCaps> {
    told(world, osd, |message| if let Message::EntityCaps(caps) = message { Some(caps) } else { None })
}

#[test]
fn osds_hear_of_keys_that_changed_also_after_a_restart() {
    let mut world = World::new(1);
    world.add_client("client.a", "allow r", "allow rw");
    world.add_client("client.b", "allow r", "allow rw");
    let (osd, admin) = (world.connect("osd.0"), world.connect(ADMIN));
    world.subscribe(osd, nacre_msg::VoidTickets::TOPIC, 0, false);
    assert_eq!(void_told(&mut world, osd), Some(nacre_msg::VoidTickets::default()));
    let caps = r#"{"prefix":"auth caps","entity":"client.a","caps":["mon","allow r","osd","allow r"]}"#;
    assert_eq!(world.ask(admin, caps).map(|ack| ack.result), Some(0));
    world.pass(Duration::from_secs(1));
    assert_eq!(void_told(&mut world, osd), None, "a client would be kept out until it renews its ticket");
    let rotate = r#"{"prefix":"auth rotate","entity":"client.a"}"#;
    assert_eq!(world.ask(admin, rotate).map(|ack| ack.result), Some(0));
    world.pass(Duration::from_secs(1));
    let told = void_told(&mut world, osd).expect("told");
    assert_eq!(told.of.keys().map(ToString::to_string).collect::<Vec<_>>(), ["client.a"]);
    assert!(told.of[&name("client.a")] <= world.wall && told.of[&name("client.a")] > UTime::ZERO);
    // Only OSDs.
    let client = world.connect("client.b");
    world.subscribe(client, nacre_msg::VoidTickets::TOPIC, 0, false);
    assert_eq!(void_told(&mut world, client), None);
    world.restart();
    let osd = world.connect("osd.0");
    world.subscribe(osd, nacre_msg::VoidTickets::TOPIC, 7, false);
    assert_eq!(void_told(&mut world, osd), Some(told));
    world.pass(Duration::from_secs(3600));
    assert_eq!(void_told(&mut world, osd), Some(nacre_msg::VoidTickets::default()), "they have expired");
}

#[test]
fn changed_caps_hold_at_once_in_sessions_that_are_open() {
    let mut world = World::new(1);
    world.add_client("client.a", "allow r", "allow rw");
    world.add_client("client.b", "allow r", "allow rw");
    let (osd, admin) = (world.connect("osd.0"), world.connect(ADMIN));
    let (a, b) = (world.connect("client.a"), world.connect("client.b"));
    world.subscribe(osd, nacre_msg::EntityCaps::TOPIC, 0, false);
    assert_eq!(caps_told(&mut world, osd), Some(nacre_msg::EntityCaps::default()));
    let write = r#"{"prefix":"config-key set","key":"k","val":"v"}"#;
    let denied = Some(Errno::EACCES.negated());
    assert_eq!(world.ask(a, write).map(|ack| ack.result), denied);
    let give = |world: &mut World, mon: &str, osd: &str| {
        let caps =
            format!(r#"{{"prefix":"auth caps","entity":"client.a","caps":["mon","{mon}","osd","{osd}"]}}"#);
        assert_eq!(world.ask(admin, &caps).map(|ack| ack.result), Some(0));
    };
    give(&mut world, "allow *", "allow r");
    let told = caps_told(&mut world, osd).expect("told with the answer");
    assert_eq!(told.of[&name("client.a")].1, "allow r");
    assert_eq!(told.of.len(), 1);
    assert_eq!(world.ask(a, write).map(|ack| ack.result), Some(0), "more than before, without a new session");
    give(&mut world, "allow r", "allow rwx pool=p");
    assert_eq!(world.ask(a, write).map(|ack| ack.result), denied, "and less");
    let told = caps_told(&mut world, osd).expect("told");
    assert_eq!(told.of[&name("client.a")].1, "allow rwx pool=p");
    world.pass(Duration::from_secs(2));
    assert!(!world.closed.contains(&a) && !world.closed.contains(&b));
    assert!(world.map().blocklist.is_empty());
    // Only OSDs hear of it; also after a restart, until no ticket says otherwise.
    world.subscribe(b, nacre_msg::EntityCaps::TOPIC, 0, false);
    assert_eq!(caps_told(&mut world, b), None);
    world.restart();
    let osd = world.connect("osd.0");
    world.subscribe(osd, nacre_msg::EntityCaps::TOPIC, 9, false);
    assert_eq!(caps_told(&mut world, osd), Some(told));
    world.pass(Duration::from_secs(3600));
    assert_eq!(caps_told(&mut world, osd), Some(nacre_msg::EntityCaps::default()));
}

#[test]
fn changed_caps_hold_at_the_manager_whatever_the_ticket_says() {
    let mut world = World::new(1);
    world.add_with_mgr("client.reader", "allow r", "allow r");
    let session = world.connect_mgr("client.reader");
    assert_eq!(world.ask_mgr(session, r#"{"prefix":"pg dump"}"#), 0);
    let admin = world.connect(ADMIN);
    let caps = r#"{"prefix":"auth caps","entity":"client.reader","caps":["mon","allow r"]}"#;
    assert_eq!(world.ask(admin, caps).map(|ack| ack.result), Some(0));
    assert_eq!(world.ask_mgr(session, r#"{"prefix":"pg dump"}"#), Errno::EACCES.negated());
    assert!(!world.closed.contains(&session));
}

#[test]
fn new_osds_do_not_take_the_keys_of_others() {
    let mut world = World::new(2);
    let admin = world.connect(ADMIN);
    let new = |world: &mut World, id: &str, uuid: &str, secret: u8| {
        let key = nacre_auth::CryptoKey::from_parts([secret; 16], UTime::ZERO).to_text();
        let json = format!(r#"{{"prefix":"osd new","uuid":"{uuid}"{id}}}"#);
        let data = format!(r#"{{"cephx_secret":"{key}"}}"#);
        let command = nacre_msg::MonCommand {
            cmd: vec![json],
            data: nacre_buf::Bytes::from(data).into(),
            ..nacre_msg::MonCommand::default()
        };
        world.message(admin, 9, command);
        let ack = world.take(admin).into_iter().find_map(|message| match message {
            Message::MonCommandAck(ack) => Some(ack.result),
            _ => None,
        });
        ack.expect("an answer")
    };
    let uuid = "0e1c2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4f";
    assert_eq!(new(&mut world, "", uuid, 1), 0);
    let key =
        |world: &World| world.mon.state().auth.keys().entity(&name("osd.2")).map(|auth| *auth.key.secret());
    assert_eq!(key(&world), Some([1; 16]));
    assert_eq!(new(&mut world, "", uuid, 1), 0, "asked again");
    assert_eq!(new(&mut world, "", uuid, 2), Errno::EEXIST.negated(), "another's secret");
    assert_eq!(key(&world), Some([1; 16]));
    // The first OSDs have no store yet, so their UUIDs are zeros: no daemon becomes one of them by saying so.
    let zeros = "00000000-0000-0000-0000-000000000000";
    assert_eq!(new(&mut world, "", zeros, 3), Errno::EINVAL.negated());
}

#[test]
fn modes_are_those_of_the_options_for_new_connections() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let offered = |world: &mut World, kind: EntityKind, who: &str, modes: Vec<u32>| {
        let mut client = world.client(who);
        let (session, start) = (world.new_session(), client.start());
        let (endpoint, method, payload) = (Endpoint::Mon, start.method, start.payload);
        let step =
            world.auth_event(FrontEvent::AuthRequest { session, endpoint, kind, method, modes, payload });
        matches!(step, Step::More(_))
    };
    let (crc, secure) = (vec![1], vec![2]);
    assert!(offered(&mut world, EntityKind::CLIENT, ADMIN, crc.clone()));
    for (who, option) in [("mon", "ms_mon_service_mode"), ("global", "ms_mon_cluster_mode")] {
        let json = format!(r#"{{"prefix":"config set","who":"{who}","name":"{option}","value":"secure"}}"#);
        assert_eq!(world.ask(admin, &json).map(|ack| ack.result), Some(0));
        if option == "ms_mon_service_mode" {
            assert!(!offered(&mut world, EntityKind::CLIENT, ADMIN, crc.clone()));
            assert!(offered(&mut world, EntityKind::CLIENT, ADMIN, secure.clone()));
            assert!(offered(&mut world, EntityKind::OSD, "osd.0", crc.clone()), "that is another option");
        }
    }
    assert!(!offered(&mut world, EntityKind::OSD, "osd.0", crc));
    assert!(offered(&mut world, EntityKind::OSD, "osd.0", secure));
    let wrong = r#"{"prefix":"config set","who":"mon","name":"ms_mon_service_mode","value":"plain"}"#;
    assert_eq!(world.ask(admin, wrong).map(|ack| ack.result), Some(Errno::EINVAL.negated()));
}

#[test]
fn snapshots_in_a_loop_take_their_time() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let create = r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#;
    assert_eq!(world.ask(admin, create).map(|ack| ack.result), Some(0));
    world.add_client("client.loop", "allow r", "allow rw pool=p");
    world.add_client("client.tag", "allow r", "allow rw tag rbd data=p");
    world.add_client("client.part", "allow r", "allow rw pool=p namespace=n");
    let pool = u32::try_from(world.map().pool_by_name("p").expect("a pool")).expect("a small number");
    let fsid = world.mon.fsid();
    let snap = move || PoolOp { fsid, pool, op: pool_op_code::CREATE_UNMANAGED_SNAP, ..PoolOp::default() };
    let answers = |world: &mut World, session| {
        let replies = world.take(session).into_iter().filter_map(|message| match message {
            Message::PoolOpReply(reply) => Some(reply.result),
            _ => None,
        });
        replies.collect::<Vec<_>>()
    };
    let looping = world.connect("client.loop");
    let before = world.map().epoch;
    (0..300).for_each(|tid| world.message(looping, tid, snap()));
    let at_once = answers(&mut world, looping);
    assert_eq!(at_once.iter().filter(|result| **result == 0).count(), 64);
    assert_eq!(at_once.iter().filter(|result| **result == Errno::EAGAIN.negated()).count(), 300 - 64 - 64);
    assert!(world.map().epoch <= before + 64);
    world.pass(Duration::from_secs(2));
    assert_eq!(answers(&mut world, looping), vec![0; 20], "ten per second");
    let checks = health::checks(&world.mon.state);
    let check = checks.iter().find(|check| check.code == "MON_CLIENTS_THROTTLED").expect("a warning");
    assert!(check.detail[0].starts_with("client.loop:"), "{:?}", check.detail);
    let other = world.connect("client.part");
    world.message(other, 1, snap());
    assert_eq!(answers(&mut world, other), [0], "others have their own; a namespace of the pool is enough");
    let tagged = world.connect("client.tag");
    world.message(tagged, 1, snap());
    assert_eq!(answers(&mut world, tagged), [Errno::EPERM.negated()], "a tag is not");
}
