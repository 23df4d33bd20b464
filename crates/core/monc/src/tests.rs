//! The client against a monitor made of nacre-auth's server half: events in, effects out.

use crate::*;
use nacre_auth::{
    AuthMethod, ClientAuth, ConnectionMode, GlobalIds, KeyServer, Keyring, MonAuthContext, MonServer,
    MonSessionAuth, Offer, ServiceTickets, Step, TicketLifetimes,
};
use nacre_buf::BufList;
use nacre_denc::Encode;
use nacre_msg::{AuthReply, Message, MonCommandAck, MonGetVersionReply};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{AddrVec, AuthName, EntityAddr, EntityKind, Errno, Stamp, UTime};
use std::time::Duration;

const SERVICE_LIFETIME: Duration = Duration::from_secs(100);

fn addr(n: u8) -> EntityAddr {
    EntityAddr::parse(&format!("v2:192.0.2.{n}:3300")).expect("a valid address")
}

/// One client, the monitors it may meet, both clocks.
struct World {
    client: MonClient,
    keys: KeyServer,
    ids: GlobalIds,
    entropy: SeededEntropy,
    elapsed: Duration,
    /// Effects not yet looked at.
    effects: Vec<Effect>,
    session: Option<MonSessionAuth>,
}

impl World {
    fn new(who: &str, mons: u8) -> Self {
        let mut entropy = SeededEntropy(1);
        let lifetimes = TicketLifetimes { auth: SERVICE_LIFETIME * 100, service: SERVICE_LIFETIME };
        let mut keys = KeyServer::new(lifetimes);
        let text =
            "[osd.3]\n\tkey = AQByaAFruKl8AxAA8Z0JFankF/SExDa9BmtaFw==\n\tcaps mon = \"profile osd\"\n";
        let ring = Keyring::parse(text).expect("a valid keyring");
        keys.decide_import(&ring).expect("valid caps").into_iter().for_each(|change| keys.apply(change));
        let name = AuthName::parse(who).expect("a name");
        let key = ring.get(&AuthName::new(EntityKind::OSD, "3")).expect("osd.3").key.clone();
        let offer = Offer { methods: vec![AuthMethod::Cephx], modes: vec![ConnectionMode::Crc] };
        let auth = ClientAuth::new(name, Some(key), offer, &[EntityKind::MON, EntityKind::OSD]);
        let config = Config { wants_rotating_keys: true, ..Config::new((1..=mons).map(addr).collect()) };
        let client = MonClient::new(config, auth);
        let mut ids = GlobalIds::default();
        ids.grant(1..10_000);
        let mut world =
            Self { client, keys, ids, entropy, elapsed: Duration::ZERO, effects: Vec::new(), session: None };
        world.keys.rotate(world.wall(), &mut world.entropy);
        entropy = world.entropy.clone();
        let (now, wall) = (world.now(), world.wall());
        world.client.start(&mut Context { now, wall, entropy: &mut entropy });
        world.client.drain(&mut world.effects);
        world
    }

    fn now(&self) -> Stamp {
        Stamp(7) + self.elapsed
    }

    fn wall(&self) -> UTime {
        UTime { sec: 1_000_000, nsec: 0 }.after(self.elapsed)
    }

    fn handle(&mut self, event: Event) {
        let (now, wall) = (self.now(), self.wall());
        self.client.handle(&mut Context { now, wall, entropy: &mut self.entropy }, event);
        self.client.drain(&mut self.effects);
    }

    /// Lets time pass, with ticks where the client wants them.
    fn pass(&mut self, time: Duration) {
        let end = self.elapsed + time;
        while let Some(at) = self.client.next_deadline().filter(|at| *at <= Stamp(7) + end) {
            self.elapsed = self.elapsed.max(Duration::from_nanos(at.0.saturating_sub(7)));
            self.handle(Event::Tick);
        }
        self.elapsed = end;
    }

    fn take<T>(&mut self, wanted: impl Fn(&Effect) -> Option<T>) -> Option<T> {
        let at = self.effects.iter().position(|effect| wanted(effect).is_some())?;
        wanted(&self.effects.remove(at))
    }

    fn dialled(&mut self) -> Option<(LinkId, EntityAddr)> {
        self.take(|effect| match effect {
            Effect::Connect { link, addr } => Some((*link, *addr)),
            _ => None,
        })
    }

    fn sent(&mut self) -> Option<(u64, Message)> {
        self.take(|effect| match effect {
            Effect::Send { tid, message, .. } => Some((*tid, message.clone())),
            _ => None,
        })
    }

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        self.handle(Event::Link(link, event));
    }

    /// Plays the monitor's part of the handshake on the link being dialled.
    fn open(&mut self) -> LinkId {
        let (link, _) = self.dialled().expect("a dial");
        self.link_event(link, LinkEvent::Hello);
        let start = self.take(|effect| match effect {
            Effect::AuthStart { start, .. } => Some(start.clone()),
            _ => None,
        });
        let start = start.expect("AUTH_REQUEST");
        let mut server = MonServer::new(Offer::crc_first());
        let wall = self.wall();
        let mut cx = MonAuthContext {
            keys: &self.keys,
            ids: &mut self.ids,
            wall,
            entropy: &mut self.entropy,
            tickets: ServiceTickets::Usable,
        };
        let Step::More(payload) = server.request(&mut cx, start.method, &start.modes, start.payload) else {
            panic!("no challenge")
        };
        self.link_event(link, LinkEvent::AuthMore { payload });
        let answer = self.take(|effect| match effect {
            Effect::AuthMore { payload, .. } => Some(payload.clone()),
            _ => None,
        });
        let mut cx = MonAuthContext {
            keys: &self.keys,
            ids: &mut self.ids,
            wall,
            entropy: &mut self.entropy,
            tickets: ServiceTickets::Usable,
        };
        let Step::Done(done) = server.more(&mut cx, answer.expect("AUTH_REQUEST_MORE")) else {
            panic!("refused")
        };
        let (global_id, mode) = (done.global_id, done.mode.code());
        self.link_event(link, LinkEvent::AuthDone { global_id, mode, payload: done.payload });
        assert!(self.take(|effect| matches!(effect, Effect::AuthFinish { .. }).then_some(())).is_some());
        self.link_event(link, LinkEvent::Established);
        self.session = server.into_session();
        let opened = self.take(|effect| match effect {
            Effect::Opened { global_id, .. } => Some(*global_id),
            _ => None,
        });
        assert_eq!(opened, Some(global_id));
        link
    }

    fn message(&mut self, link: LinkId, tid: u64, message: impl Into<Message>) {
        self.link_event(link, LinkEvent::Message { tid, message: message.into() });
    }

    fn send_monmap(&mut self, link: LinkId, mons: u8) {
        let mons: Vec<_> = (1..=mons).map(|n| (n.to_string(), AddrVec::of(addr(n)))).collect();
        let fsid = nacre_types::Uuid([9; 16]);
        let map = nacre_maps::MonMap { epoch: 3, ..nacre_maps::MonMap::fresh(fsid, UTime::ZERO, &mons) };
        self.message(link, 0, nacre_msg::MMonMap { map: map.to_bytes() });
    }

    /// Answers an MAuth that the client has sent; says what it was.
    fn answer_mauth(&mut self, link: LinkId) -> Option<u16> {
        let auth = self.take(|effect| match effect {
            Effect::Send { message: Message::Auth(auth), .. } => Some(auth.clone()),
            _ => None,
        })?;
        let kind = nacre_denc::Reader::new(auth.payload.clone()).u16().expect("a request");
        let wall = self.wall();
        let mut cx = MonAuthContext {
            keys: &self.keys,
            ids: &mut self.ids,
            wall,
            entropy: &mut self.entropy,
            tickets: ServiceTickets::Usable,
        };
        let reply = self.session.as_ref().expect("a session").handle(&mut cx, auth.payload);
        let (result, payload) = (reply.result, reply.payload);
        self.message(link, 0, AuthReply { protocol: 2, result, payload, ..AuthReply::default() });
        Some(kind)
    }

    fn subscribed(&mut self) -> Vec<(String, u64)> {
        let message = self.take(|effect| match effect {
            Effect::Send { message: Message::MonSubscribe(message), .. } => Some(message.clone()),
            _ => None,
        });
        let what = message.map(|message| message.what).unwrap_or_default();
        what.into_iter().map(|(what, found)| (what, found.start)).collect()
    }
}

#[test]
fn a_session_brings_maps_keys_and_answers() {
    let mut world = World::new("osd.3", 1);
    let tid = world.client.command(vec!["{}".to_owned()], BufList::new()).expect("room");
    let handle = world.client.get_version("osdmap").expect("room");
    world.client.subscribe("osdmap", 7, Interest::Lasting);
    let link = world.open();
    assert_eq!(world.subscribed(), [("monmap".to_owned(), 0), ("osdmap".to_owned(), 7)]);
    assert_eq!(world.answer_mauth(link), Some(0x0400));
    assert!(world.take(|effect| matches!(effect, Effect::RotatingKeys(_)).then_some(())).is_some());
    assert!(matches!(world.sent(), Some((_, Message::MonGetVersion(_)))));
    assert!(world.sent().is_none(), "a command needs the cluster's id");

    world.send_monmap(link, 1);
    assert!(matches!(world.sent(), Some((sent, Message::MonCommand(_))) if sent == tid));
    let ack = MonCommandAck { result: -22, status: "no".to_owned(), ..MonCommandAck::default() };
    world.message(link, tid, ack.clone());
    world.message(link, tid, ack);
    world.message(link, handle, MonGetVersionReply { handle, newest: 9, oldest: 1 });
    let count =
        |world: &World, wanted: fn(&Effect) -> bool| world.effects.iter().filter(|e| wanted(e)).count();
    assert_eq!(count(&world, |effect| matches!(effect, Effect::CommandDone { result: -22, .. })), 1);
    assert_eq!(count(&world, |effect| matches!(effect, Effect::Version { newest: 9, .. })), 1);
}

#[test]
fn what_was_asked_survives_the_monitor() {
    let mut world = World::new("osd.3", 3);
    let link = world.open();
    world.send_monmap(link, 3);
    world.client.subscribe("osdmap", 0, Interest::Lasting);
    let tid = world.client.command(vec!["{}".to_owned()], BufList::new()).expect("room");
    world.client.got("osdmap", 41);
    world.pass(Duration::from_secs(5));
    let first = world.client.global_id();
    world.effects.clear();

    world.link_event(link, LinkEvent::Lost);
    assert!(world.take(|effect| matches!(effect, Effect::Lost).then_some(())).is_some());
    world.client.send(0, nacre_msg::MonGetMap.into()).expect("room");
    let again = world.open();
    assert_eq!(world.client.global_id(), first);
    assert_eq!(world.subscribed(), [("monmap".to_owned(), 4), ("osdmap".to_owned(), 42)]);
    let sent = |world: &mut World, kind: u16| {
        world.take(|effect| match effect {
            Effect::Send { tid, message, .. } if message.kind() == kind => Some(*tid),
            _ => None,
        })
    };
    assert_eq!(sent(&mut world, 50), Some(tid));
    assert_eq!(sent(&mut world, 5), Some(0));
    // The dead link cannot speak for the living one.
    world.link_event(link, LinkEvent::Lost);
    assert!(world.client.is_open());
    world.message(again, tid, MonCommandAck::default());
    assert!(world.take(|effect| matches!(effect, Effect::CommandDone { .. }).then_some(())).is_some());
}

#[test]
fn a_silent_monitor_is_left() {
    let mut world = World::new("osd.3", 2);
    let link = world.open();
    world.answer_mauth(link);
    world.pass(Duration::from_secs(10));
    assert!(world.take(|effect| matches!(effect, Effect::Keepalive { .. }).then_some(())).is_some());
    world.link_event(link, LinkEvent::KeepaliveAck);
    world.pass(Duration::from_secs(29));
    assert!(world.client.is_open());
    world.pass(Duration::from_secs(2));
    assert!(world.take(|effect| matches!(effect, Effect::Close { .. }).then_some(())).is_some());
    assert!(world.dialled().is_some(), "the next one at once");
}

#[test]
fn tickets_and_secrets_stay_fresh() {
    let mut world = World::new("osd.3", 1);
    let link = world.open();
    world.answer_mauth(link);
    world.effects.clear();
    let (mut tickets, mut secrets) = (0, 0);
    for _ in 0..1000 {
        world.pass(Duration::from_secs(1));
        let wall = world.wall();
        world.keys.rotate(wall, &mut world.entropy);
        match world.answer_mauth(link) {
            Some(0x0200) => tickets += 1,
            Some(0x0400) => secrets += 1,
            Some(other) => panic!("unexpected request {other:#x}"),
            None => {}
        }
        world.link_event(link, LinkEvent::KeepaliveAck);
        let now = world.now();
        let mut entropy = SeededEntropy(3);
        let mut cx = Context { now, wall, entropy: &mut entropy };
        assert!(world.client.authorizer(&mut cx, EntityKind::OSD, &Offer::crc_first()).is_some());
    }
    assert_eq!(tickets, 13, "every 75 seconds");
    assert!((8..=10).contains(&secrets), "{secrets}: about every 100 seconds");
}

#[test]
fn a_refused_ticket_is_replaced_at_once() {
    let mut world = World::new("osd.3", 1);
    let link = world.open();
    world.answer_mauth(link);
    world.client.ticket_refused(EntityKind::OSD);
    assert_eq!(world.client.next_deadline(), Some(Stamp(0)));
    world.handle(Event::Tick);
    assert_eq!(world.answer_mauth(link), Some(0x0200));
}

#[test]
fn a_monitor_that_does_not_renew_is_left() {
    let mut world = World::new("osd.3", 1);
    let link = world.open();
    for _ in 0..3 {
        world.pass(Duration::from_secs(10));
        world.link_event(link, LinkEvent::KeepaliveAck);
    }
    assert!(!world.client.is_open(), "MAuth was not answered");
    assert!(world.take(|effect| matches!(effect, Effect::Close { .. }).then_some(())).is_some());
}

#[test]
fn all_monitors_are_tried_then_there_is_a_pause() {
    let mut world = World::new("osd.3", 3);
    let mut tried = Vec::new();
    while let Some((link, addr)) = world.dialled() {
        tried.push(addr);
        world.link_event(link, LinkEvent::Lost);
    }
    tried.sort();
    assert_eq!(tried, [addr(1), addr(2), addr(3)]);
    world.pass(Duration::from_millis(99));
    assert!(world.dialled().is_none());
    world.pass(Duration::from_millis(1));
    assert!(world.dialled().is_some());
    world.pass(Duration::from_secs(6));
    assert!(world.take(|effect| matches!(effect, Effect::Close { .. }).then_some(())).is_some(), "too slow");
    assert!(world.dialled().is_some());
}

#[test]
fn a_monitor_that_throws_us_out_is_not_dialled_without_end() {
    let mut world = World::new("osd.3", 1);
    let link = world.open();
    world.link_event(link, LinkEvent::Lost);
    assert!(world.dialled().is_none(), "a pause first");
    world.pass(Duration::from_millis(100));
    assert!(world.dialled().is_some());
}

#[test]
fn a_refusal_is_told_and_tried_again_later() {
    let mut world = World::new("osd.3", 1);
    let (link, _) = world.dialled().expect("a dial");
    world.link_event(link, LinkEvent::Hello);
    world.link_event(link, LinkEvent::AuthBad { result: -13, methods: vec![2] });
    let errno = world.take(|effect| match effect {
        Effect::Refused { errno } => Some(*errno),
        _ => None,
    });
    assert_eq!(errno, Some(Errno::EACCES));
    assert!(world.dialled().is_none());
    world.pass(Duration::from_millis(100));
    world.open();
}

#[test]
fn a_stopped_client_is_quiet() {
    let mut world = World::new("osd.3", 1);
    let link = world.open();
    world.client.stop();
    world.handle(Event::Tick);
    assert!(world.take(|effect| matches!(effect, Effect::Close { .. }).then_some(())).is_some());
    assert_eq!(world.client.next_deadline(), None);
    world.effects.clear();
    world.link_event(link, LinkEvent::Lost);
    assert!(world.effects.is_empty());
}
