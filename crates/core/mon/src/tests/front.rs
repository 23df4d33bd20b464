//! The front of a monitor: when it serves, what it holds, what it knows of keys.

use super::{ADMIN, World, name};
use crate::event::{Endpoint, Event, SessionId};
use crate::front::{Front, FrontEffect, FrontEvent, HANDSHAKES_COUNT_MAX};
use nacre_auth::{AuthChange, ClientAuth, CryptoKey, EntityAuth, GLOBAL_IDS_PER_GRANT, Offer, Step};
use nacre_buf::Bytes;
use nacre_msg::{Auth, Message};
use nacre_types::EntityKind;
use nacre_types::entropy::SeededEntropy;
use std::collections::BTreeSet;
use std::time::Duration;

impl World {
    fn client_of(&self, who: &str) -> ClientAuth {
        let key = self.keys.get(&name(who)).cloned();
        ClientAuth::new(name(who), key, Offer::secure_first(), &[EntityKind::OSD, EntityKind::MGR])
    }

    /// The first message of a handshake; nothing is answered yet if the front holds it.
    fn ask_in(&mut self, client: &mut ClientAuth, endpoint: Endpoint) -> (SessionId, Option<Step>) {
        let (session, start) = (self.new_session(), client.start());
        let (method, modes, payload) = (start.method, start.modes, start.payload);
        let kind = client.name().kind;
        self.front_event(FrontEvent::AuthRequest { session, endpoint, kind, method, modes, payload });
        (session, self.steps.remove(&session))
    }

    /// Lets some milliseconds pass, without the tick of each second.
    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        while self.front.next_deadline().is_some_and(|at| at <= self.now) {
            self.front_event(FrontEvent::Tick);
        }
    }

    fn change_key(&mut self, who: &str) {
        let key = CryptoKey::generate(&mut SeededEntropy(77), self.wall);
        let caps = self.mon.state().auth.keys().entity(&name(who)).expect("it is there").caps.clone();
        self.mon.state.auth.apply(AuthChange::Put(name(who), EntityAuth { key, caps }));
        self.settle();
    }
}

#[test]
fn handshakes_wait_while_no_leader_is_heard_and_go_on_when_one_is() {
    let mut world = World::new(1);
    world.front.serve(false);
    let mut client = world.client_of(ADMIN);
    let (session, step) = world.ask_in(&mut client, Endpoint::Mon);
    assert!(step.is_none() && world.closed.is_empty());
    world.pass_ms(2400);
    assert!(world.closed.is_empty());
    world.front.serve(true);
    world.settle();
    let Some(Step::More(challenge)) = world.steps.remove(&session) else { panic!("a challenge") };
    // It may also have to wait in the middle.
    world.front.serve(false);
    let payload = client.more(challenge, &mut SeededEntropy(3)).expect("a valid challenge");
    world.front_event(FrontEvent::AuthMore { session, payload });
    assert!(world.steps.is_empty());
    world.front.serve(true);
    world.settle();
    let Some(Step::Done(_)) = world.steps.remove(&session) else { panic!("accepted") };
}

#[test]
fn what_has_waited_too_long_is_closed() {
    let mut world = World::new(1);
    world.front.serve(false);
    let mut client = world.client_of(ADMIN);
    let (first, _) = world.ask_in(&mut client, Endpoint::Mon);
    world.pass_ms(1000);
    let (second, _) = world.ask_in(&mut client, Endpoint::Mon);
    world.pass_ms(1500);
    assert_eq!(world.closed, [first], "2.5 s, less than the 3 s of clients");
    world.pass_ms(1000);
    assert_eq!(world.closed, [first, second]);
    assert_eq!(world.front.next_deadline(), None);
}

#[test]
fn what_waits_is_bounded_and_one_message_of_each_peer() {
    let mut world = World::new(1);
    world.front.serve(false);
    let mut client = world.client_of(ADMIN);
    let held: Vec<SessionId> =
        (0..HANDSHAKES_COUNT_MAX).map(|_| world.ask_in(&mut client, Endpoint::Mon).0).collect();
    assert!(world.closed.is_empty());
    let (last, _) = world.ask_in(&mut client, Endpoint::Mon);
    assert_eq!(world.closed, [last]);
    world.front_event(FrontEvent::AuthMore { session: held[0], payload: Bytes::from_static(b"early") });
    assert_eq!(world.closed, [last, held[0]]);
    // Those that go make room, also in memory.
    held[1..].iter().for_each(|session| world.front_event(FrontEvent::Closed { session: *session }));
    let long = |world: &mut World| {
        let (session, endpoint, kind) = (world.new_session(), Endpoint::Mon, EntityKind::CLIENT);
        let payload = Bytes::from(vec![0; 1 << 20]);
        world.front_event(FrontEvent::AuthRequest {
            session,
            endpoint,
            kind,
            method: 2,
            modes: vec![1],
            payload,
        });
        session
    };
    world.closed.clear();
    let sessions: Vec<SessionId> = (0..17).map(|_| long(&mut world)).collect();
    assert_eq!(world.closed, sessions[15..], "bytes are bounded as well");
}

#[test]
fn the_manager_is_served_where_it_is_active_only() {
    let mut world = World::new(1);
    let mgr = world.connect_manager(ADMIN);
    let mon = world.connect(ADMIN);
    world.leads = false;
    world.settle();
    assert_eq!(world.closed, [mgr], "its sessions end with it");
    let mut client = world.client_of(ADMIN);
    let (elsewhere, step) = world.ask_in(&mut client, Endpoint::Mgr);
    assert!(step.is_none());
    assert_eq!(world.closed, [mgr, elsewhere]);
    assert!(world.mon.identity_of(mgr).is_none() && world.mon.identity_of(mon).is_some());
    world.front.end_sessions();
    world.settle();
    assert!(world.closed.contains(&mon));
    assert!(world.mon.identity_of(mon).is_none());
}

#[test]
fn no_two_fronts_hand_out_the_same_id() {
    let mut world = World::new(1);
    let mut seen = BTreeSet::new();
    let mut granted = Vec::new();
    for front in 0..5 {
        world.commits_complete = false;
        world.mon.handle(world.now, world.wall, &mut SeededEntropy(1), Event::WantGlobalIds { front });
        let mut effects = Vec::new();
        world.mon.drain(&mut effects);
        assert!(
            !effects.iter().any(|effect| matches!(effect, crate::Effect::GlobalIds { .. })),
            "not before"
        );
        let Some(crate::Effect::Commit { batch, token }) = effects.pop() else { panic!("a commit") };
        world.commits_complete = true;
        if front == 2 {
            // The leader dies: that range was never granted.
            world.restart();
            continue;
        }
        world.kv.apply(&batch);
        world.mon.handle(world.now, world.wall, &mut SeededEntropy(1), Event::Committed(token));
        world.mon.drain(&mut effects);
        let ids = effects.into_iter().find_map(|effect| match effect {
            crate::Effect::GlobalIds { front: to, ids } => Some((to, ids)),
            _ => None,
        });
        let (to, ids) = ids.expect("granted");
        assert_eq!((to, ids.end - ids.start), (front, GLOBAL_IDS_PER_GRANT));
        granted.push(ids);
        if front % 2 == 0 {
            world.restart();
        }
    }
    for ids in &granted {
        assert!(ids.clone().step_by(100).all(|id| id > 0 && seen.insert(id)), "{granted:?}");
    }
    let session = world.connect(ADMIN);
    let id = world.mon.identity_of(session).expect("a session").global_id;
    assert!(granted.iter().all(|ids| !ids.contains(&id)));
}

#[test]
fn ids_are_asked_for_in_time_and_again_when_they_do_not_come() {
    let mut world = World::new(1);
    let mut front = Front::open(&world.kv, "a").expect("a fresh store");
    let mut entropy = SeededEntropy(5);
    let wall = world.wall;
    let mut wants = |front: &mut Front, now| {
        let mut effects = Vec::new();
        front.drain(now, wall, &mut entropy, &mut effects);
        effects.iter().filter(|effect| matches!(effect, FrontEffect::WantGlobalIds)).count()
    };
    assert_eq!(wants(&mut front, world.now), 0, "nobody to ask");
    front.serve(true);
    assert_eq!((wants(&mut front, world.now), wants(&mut front, world.now)), (1, 0));
    world.now = world.now + Duration::from_secs(2);
    assert_eq!((wants(&mut front, world.now), wants(&mut front, world.now)), (1, 0));
    front.serve(false);
    front.serve(true);
    assert_eq!(wants(&mut front, world.now), 1, "the next leader knows nothing of it");
    front.granted(1..GLOBAL_IDS_PER_GRANT / 2 + 2);
    assert_eq!(wants(&mut front, world.now), 0, "more than half a range");
    front.granted(0..0);
    let mut front = Front::open(&world.kv, "a").expect("a fresh store");
    front.serve(true);
    front.granted(1..GLOBAL_IDS_PER_GRANT / 2 + 1);
    assert_eq!(wants(&mut front, world.now), 1);
}

#[test]
fn keys_count_once_they_are_durable() {
    let mut world = World::new(1);
    world.commits_complete = false;
    world.add_client("client.a", "allow r", "allow r");
    let mut client = world.client_of("client.a");
    assert!(world.connect_as(&mut client).is_none(), "a crash could take it back");
    world.commits_complete = true;
    world.restart();
    world.add_client("client.a", "allow r", "allow r");
    let mut client = world.client_of("client.a");
    assert!(world.connect_as(&mut client).is_some());
    world.change_key("client.a");
    let mut client = world.client_of("client.a");
    assert!(world.connect_as(&mut client).is_none(), "the old key");
}

#[test]
fn no_session_outlives_its_key_wherever_it_was_when_that_changed() {
    let mut world = World::new(1);
    world.add_client("client.a", "allow r", "allow r");
    let mut client = world.client_of("client.a");
    let (proved, step) = world.ask_in(&mut client, Endpoint::Mon);
    let Some(Step::More(challenge)) = step else { panic!("a challenge") };
    let payload = client.more(challenge, &mut SeededEntropy(3)).expect("a valid challenge");
    let Step::Done(_) = world.auth_event(FrontEvent::AuthMore { session: proved, payload }) else {
        panic!("accepted")
    };
    let other = world.connect(ADMIN);
    let open = world.connect("client.a");
    world.change_key("client.a");
    assert_eq!(world.closed, [proved], "the leader has never heard of it");
    // One that the leader heard of too late.
    world.event(Event::Closed { session: open });
    world.pass(Duration::from_secs(4));
    assert_eq!(world.closed, [proved, open]);
    assert!(world.mon.identity_of(other).is_some());
    world.pass(Duration::from_secs(10));
    assert_eq!(world.closed, [proved, open]);
}

#[test]
fn tickets_are_not_renewed_while_no_leader_is_heard() {
    let mut world = World::new(1);
    let mut client = world.client_of(ADMIN);
    let session = world.connect_as(&mut client).expect("the right key");
    world.pass(Duration::from_secs(3000));
    world.front.serve(false);
    let payload = client.renewal(world.wall, &mut SeededEntropy(3)).expect("a challenge").expect("it is due");
    world.message(session, 0, Auth { protocol: 2, payload, ..Auth::default() });
    assert!(world.take(session).is_empty());
    world.front.serve(true);
    world.settle();
    let messages = world.take(session);
    let [Message::AuthReply(reply)] = &messages[..] else { panic!("tickets, not {messages:?}") };
    assert_eq!(reply.result, 0);
}

#[test]
fn tables_that_are_replaced_are_taken_up_anew() {
    let mut world = World::new(1);
    world.add_client("client.a", "allow r", "allow r");
    let (a, admin) = (world.connect("client.a"), world.connect(ADMIN));
    let mut elsewhere = World::new(1);
    elsewhere.add_client("client.b", "allow r", "allow r");
    world.front.reload(&elsewhere.kv, "a").expect("a usable store");
    let mut client = elsewhere.client_of("client.b");
    assert!(world.connect_as(&mut client).is_some());
    world.pass(Duration::from_secs(4));
    assert!(world.closed.contains(&a) && !world.closed.contains(&admin), "its entity is not there");
}
