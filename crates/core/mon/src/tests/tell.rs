//! `ceph tell mon.b`: answered by that monitor, also while nobody leads.

use super::{ADMIN, World, name};
use crate::event::{Endpoint, SessionId};
use crate::front::FrontEvent;
use crate::own_view::{MonitorPhase, OwnView};
use nacre_auth::{ClientAuth, Offer, Step, UNUSABLE_TICKET_TTL};
use nacre_msg::{Command, CommandReply, Message, MonGetMap, MonSubscribe};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{EntityKind, Errno, Uuid};
use serde_json::{Value, json};
use std::time::Duration;

impl World {
    fn tell(&mut self, session: SessionId, json: &str) -> CommandReply {
        let fsid = self.mon.fsid();
        self.message(session, 3, Command { fsid, cmd: vec![json.to_owned()], ..Command::default() });
        let replies = self.take(session);
        let [Message::CommandReply(reply)] = &replies[..] else { panic!("one reply, not {replies:?}") };
        reply.clone()
    }

    fn told(&mut self, session: SessionId, prefix: &str) -> Value {
        let reply = self.tell(session, &format!(r#"{{"prefix":"{prefix}","format":"json"}}"#));
        assert_eq!(reply.result, 0, "{}", reply.status);
        serde_json::from_slice(&reply.data.to_bytes()).expect("JSON")
    }

    /// A new client comes while nobody leads, and asks for the monitors' map first, as stock clients do. Gives its session, if it is let in
    /// within 2.5 s.
    fn come_for_tell(&mut self, client: &mut ClientAuth) -> Option<SessionId> {
        let (session, start) = (self.new_session(), client.start());
        let (method, modes, payload) = (start.method, start.modes, start.payload);
        let (endpoint, kind) = (Endpoint::Mon, client.name().kind);
        self.front_event(FrontEvent::AuthRequest { session, endpoint, kind, method, modes, payload });
        assert!(self.steps.is_empty() && self.closed.is_empty(), "it waits for a leader first");
        self.now = self.now + Duration::from_millis(2000);
        self.front_event(FrontEvent::Tick);
        let Some(Step::More(challenge)) = self.steps.remove(&session) else { return None };
        let payload = client.more(challenge, &mut SeededEntropy(3)).expect("a valid challenge");
        self.front_event(FrontEvent::AuthMore { session, payload });
        let Some(Step::Done(done)) = self.steps.remove(&session) else { return None };
        client.done(done.global_id, done.mode.code(), done.payload, self.wall).expect("a valid reply");
        let (addrs, seen_at) = (super::addr(0), None);
        self.front_event(FrontEvent::Established { session, kind, addrs, seen_at });
        self.message(session, 1, MonGetMap);
        assert!(
            self.closed.is_empty() && self.take(session).is_empty(),
            "that has no answer before somebody leads"
        );
        Some(session)
    }
}

fn client(world: &World, who: &str) -> ClientAuth {
    let key = world.keys.get(&name(who)).cloned();
    ClientAuth::new(name(who), key, Offer::secure_first(), &[EntityKind::OSD, EntityKind::MGR])
}

/// It is monitor a, and nobody leads.
fn unled() -> World {
    let mut world = World::new(1);
    world.front.serve(false);
    world.own =
        OwnView { phase: MonitorPhase::Electing, leader: None, quorum: Vec::new(), ..world.own.clone() };
    world
}

#[test]
fn a_monitor_answers_for_itself() {
    let mut world = World::new(1);
    world.mon.state.mon.add("b", super::addr(3301), world.wall);
    world.own = OwnView {
        name: "b".to_owned(),
        phase: MonitorPhase::Peon,
        term: 7,
        map: world.mon.state().mon.map().clone(),
        ..world.own.clone()
    };
    let admin = world.connect(ADMIN);
    let status = world.told(admin, "mon_status");
    assert_eq!(
        (&status["name"], &status["rank"], &status["state"]),
        (&json!("b"), &json!(1), &json!("peon"))
    );
    assert_eq!((&status["election_epoch"], &status["quorum"]), (&json!(14), &json!([0])));
    assert_eq!((&status["outside_quorum"], &status["monmap"]["epoch"]), (&json!(["b"]), &json!(2)));
    let status = world.told(admin, "quorum_status");
    assert_eq!((&status["quorum_leader_name"], &status["quorum_names"]), (&json!("a"), &json!(["a"])));
    assert_eq!(world.told(admin, "version")["version"], "16.2.15");
    world.connect_manager(ADMIN);
    let sessions = world.told(admin, "sessions");
    assert_eq!(sessions.as_array().map(Vec::len), Some(2), "the manager's are not the monitor's");
    assert_eq!(sessions[0]["entity_name"], "client.admin");
    assert_eq!(sessions[0]["caps"]["text"], "allow *");
    let known = world.told(admin, "get_command_descriptions");
    assert_eq!(known.as_object().map(serde_json::Map::len), Some(8));
}

/// At its socket it is asked by somebody without a session, and may not be served by a leader.
#[test]
fn who_may_open_its_socket_is_told_of_it_and_its_options() {
    let mut world = unled();
    let own = world.own.clone();
    let asked = |world: &World, json: &str| world.front.tell_admin(&own, json);
    let shown = |world: &World, json: &str| -> Value {
        let reply = asked(world, json);
        assert_eq!(reply.result, 0, "{}", reply.status);
        serde_json::from_slice(&reply.data.to_bytes()).expect("JSON")
    };
    assert_eq!(shown(&world, r#"{"prefix":"mon_status"}"#)["state"], "electing");
    assert_eq!(shown(&world, r#"{"prefix":"sessions"}"#), json!([]));
    assert!(shown(&world, r#"{"prefix":"help"}"#)["config show"].is_string());
    let grace = r#"{"prefix":"config get","var":"osd_heartbeat_grace"}"#;
    assert_eq!(shown(&world, grace), json!({ "osd_heartbeat_grace": "7" }));
    for (wrong, errno) in [
        (r#"{"prefix":"config get","var":"nonsense"}"#, Errno::ENOENT),
        (r#"{"prefix":"config get","var":"osd_max_backfills"}"#, Errno::ENOENT),
        (r#"{"prefix":"config get"}"#, Errno::EINVAL),
        (r#"{"prefix":"osd tree"}"#, Errno::EINVAL),
        ("mon_status", Errno::EINVAL),
    ] {
        assert_eq!(asked(&world, wrong).result, errno.negated(), "{wrong}");
    }
    world.front.serve(true);
    let admin = world.connect(ADMIN);
    let set = r#"{"prefix":"config set","who":"mon.a","name":"osd_heartbeat_grace","value":"9"}"#;
    assert_eq!(world.ask(admin, set).map(|ack| ack.result), Some(0));
    assert_eq!(shown(&world, grace), json!({ "osd_heartbeat_grace": "9" }));
    let diff = shown(&world, r#"{"prefix":"config diff"}"#);
    assert_eq!(diff["diff"]["osd_heartbeat_grace"], json!({ "default": "7", "final": "9" }));
    assert_eq!(shown(&world, r#"{"prefix":"config show"}"#)["osd_heartbeat_grace"], "9");
}

#[test]
fn other_commands_are_refused_with_what_to_do() {
    let mut world = World::new(1);
    world.add_client("client.r", "allow r", "allow r");
    let (admin, reader) = (world.connect(ADMIN), world.connect("client.r"));
    let reply = world.tell(admin, r#"{"prefix":"osd tree"}"#);
    assert_eq!(reply.result, Errno::EINVAL.negated());
    assert!(reply.status.contains("without tell") && reply.status.contains("mon_status"), "{}", reply.status);
    let reply = world.tell(admin, r#"{"prefix":"injectargs"}"#);
    assert_eq!(reply.result, Errno::EINVAL.negated());
    assert_eq!(world.tell(reader, r#"{"prefix":"mon_status"}"#).result, 0);
    assert_eq!(world.tell(reader, r#"{"prefix":"sessions"}"#).result, Errno::EACCES.negated());
    world.message(admin, 3, Command { fsid: Uuid::from_random([9; 16]), ..Command::default() });
    let replies = world.take(admin);
    let [Message::CommandReply(reply)] = &replies[..] else { panic!("one reply, not {replies:?}") };
    assert_eq!(reply.result, Errno::EACCES.negated());
}

#[test]
fn while_nobody_leads_open_sessions_and_new_clients_may_ask_how_it_is() {
    let mut world = World::new(1);
    let open = world.connect(ADMIN);
    world.front.serve(false);
    world.own = unled().own;
    assert_eq!(world.told(open, "mon_status")["state"], "electing");
    let mut admin = client(&world, ADMIN);
    let session = world.come_for_tell(&mut admin).expect("let in");
    let status = world.told(session, "mon_status");
    assert_eq!((&status["state"], &status["election_epoch"]), (&json!("electing"), &json!(3)));
    assert_eq!((&status["quorum"], &status["outside_quorum"]), (&json!([]), &json!([])));
    assert!(world.mon.identity_of(session).is_none(), "the leader does not know of it");
    // It wants more than that, and is to look elsewhere.
    world.message(session, 4, MonSubscribe::default());
    assert_eq!(world.closed, [session]);
    assert!(world.take(session).is_empty());
}

#[test]
fn who_is_let_in_while_nobody_leads_has_no_use_of_its_tickets_but_comes_back_by_them() {
    let mut world = unled();
    let mut admin = client(&world, ADMIN);
    let session = world.come_for_tell(&mut admin).expect("let in");
    let mut entropy = SeededEntropy(5);
    let authorizer = admin.authorizer(EntityKind::MGR, &Offer::crc_first(), world.wall, &mut entropy);
    let start = authorizer.expect("a ticket").start();
    world.front.serve(true);
    let mgr = world.new_session();
    let step = world.auth_event(FrontEvent::AuthRequest {
        session: mgr,
        endpoint: Endpoint::Mgr,
        kind: EntityKind::CLIENT,
        method: start.method,
        modes: start.modes,
        payload: start.payload,
    });
    assert!(matches!(step, Step::Bad(_)), "{step:?}");
    world.front_event(FrontEvent::Closed { session });
    world.wall = world.wall.after(UNUSABLE_TICKET_TTL);
    let session = world.connect_as(&mut admin).expect("it proves that it was here");
    assert!(world.mon.identity_of(session).is_some());
    let authorizer = admin.authorizer(EntityKind::MGR, &Offer::crc_first(), world.wall, &mut entropy);
    assert!(authorizer.is_some(), "it has asked for others");
}

#[test]
fn daemons_and_clients_that_were_here_before_wait_for_a_leader() {
    let mut world = World::new(1);
    let mut admin = client(&world, ADMIN);
    world.connect_as(&mut admin).expect("the right key");
    world.front.serve(false);
    assert_eq!(world.come_for_tell(&mut admin), None, "it would lose its tickets");
    let mut world = unled();
    let mut osd = client(&world, "osd.0");
    assert_eq!(world.come_for_tell(&mut osd), None);
    let mut world = unled();
    let mut stranger = client(&World::new(1), ADMIN);
    world.keys.clear();
    world.front = crate::Front::open(&crate::MemorySnapshot::default(), "a").expect("empty tables");
    assert_eq!(world.come_for_tell(&mut stranger), None, "there are no secrets yet");
}
