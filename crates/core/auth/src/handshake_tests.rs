//! Both halves of each handshake against each other, and what must not work.

use crate::cephx::{self, TicketBlob};
use crate::testing::below;
use crate::*;
use nacre_buf::Bytes;
use nacre_denc::{Decode, Encode, Reader, Writer};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{AuthName, EntityKind, Entropy, Errno, UTime};
use std::time::Duration;

const SERVICES: [EntityKind; 3] = [EntityKind::MON, EntityKind::OSD, EntityKind::MGR];

/// A monitor's book, a clock and a seed.
struct World {
    keys: KeyServer,
    ids: GlobalIds,
    wall: UTime,
    entropy: SeededEntropy,
}

fn name(text: &str) -> AuthName {
    AuthName::parse(text).expect("a name")
}

impl World {
    fn new() -> Self {
        let lifetimes =
            TicketLifetimes { auth: Duration::from_secs(1000), service: Duration::from_secs(100) };
        let mut world = Self {
            keys: KeyServer::new(lifetimes),
            ids: GlobalIds::default(),
            wall: UTime { sec: 5000, nsec: 0 },
            entropy: SeededEntropy(1),
        };
        assert!(world.keys.rotate(world.wall, &mut world.entropy));
        world.ids.grant(1..GLOBAL_IDS_PER_GRANT);
        world.add("client.admin", &[("mon", "allow *"), ("osd", "allow rw pool=p")]);
        world.add("osd.3", &[("mon", "allow profile osd"), ("osd", "allow *")]);
        world
    }

    fn add(&mut self, who: &str, caps: &[(&str, &str)]) {
        let caps = caps.iter().map(|(service, text)| ((*service).to_owned(), (*text).to_owned())).collect();
        let change = self.keys.decide_get_or_create(&name(who), &caps, self.wall, &mut self.entropy);
        self.keys.apply(change.expect("valid caps").expect("a new entity"));
    }

    fn client(&self, who: &str, offer: Offer) -> ClientAuth {
        let key = self.keys.entity(&name(who)).map(|auth| auth.key.clone());
        ClientAuth::new(name(who), key, offer, &SERVICES)
    }

    fn at_mon(&mut self) -> MonAuthContext<'_> {
        MonAuthContext {
            keys: &self.keys,
            ids: &mut self.ids,
            wall: self.wall,
            entropy: &mut self.entropy,
            tickets: ServiceTickets::Usable,
        }
    }

    /// Runs a handshake with a monitor that accepts `offer`.
    fn connect(
        &mut self,
        client: &mut ClientAuth,
        offer: Offer,
    ) -> Result<(AuthDone, MonSessionAuth), Refusal> {
        let mut server = MonServer::new(offer);
        let start = client.start();
        let mut step = server.request(&mut self.at_mon(), start.method, &start.modes, start.payload);
        if let Step::More(challenge) = step {
            let answer = client.more(challenge, &mut self.entropy).expect("a readable challenge");
            step = server.more(&mut self.at_mon(), answer);
        }
        match step {
            Step::Done(done) => {
                let keys = client.done(done.global_id, done.mode.code(), done.payload.clone(), self.wall);
                let keys = keys.expect("a readable reply");
                assert_eq!((&keys.session_key, keys.mode), (&done.session_key, done.mode));
                assert_eq!(keys.connection_secret, done.connection_secret);
                Ok((*done, server.into_session().expect("a session")))
            }
            Step::Bad(refusal) => Err(refusal),
            Step::More(_) => panic!("one challenge is enough"),
        }
    }

    fn mauth(
        &mut self,
        session: &MonSessionAuth,
        client: &mut ClientAuth,
        payload: Bytes,
    ) -> Result<ClientReply, ClientError> {
        let reply = session.handle(&mut self.at_mon(), payload);
        client.reply(reply.result, reply.payload, self.wall)
    }

    /// Runs an authorizer handshake with an OSD that holds `keys`.
    fn authorize(
        &mut self,
        client: &ClientAuth,
        keys: &RotatingKeys,
        offer: Offer,
    ) -> Result<AuthDone, Refusal> {
        let offer_of_client = Offer::crc_first();
        let authorizer = client.authorizer(EntityKind::OSD, &offer_of_client, self.wall, &mut self.entropy);
        let mut authorizer = authorizer.expect("a ticket");
        let mut server = ServiceServer::new(EntityKind::OSD, TicketForm::Sealed, offer);
        let mut cx = ServiceAuthContext { keys, wall: self.wall, entropy: &mut self.entropy };
        let start = authorizer.start();
        let mut step = server.request(&mut cx, start.method, &start.modes, start.payload);
        if let Step::More(challenge) = step {
            step = server.more(&mut cx, authorizer.more(&challenge).expect("a readable challenge"));
        }
        match step {
            Step::Done(done) => {
                let keys = authorizer.done(done.mode.code(), done.payload.clone()).expect("a readable reply");
                assert_eq!(keys.session_key, done.session_key);
                assert_eq!(keys.connection_secret, done.connection_secret);
                Ok(*done)
            }
            Step::Bad(refusal) => Err(refusal),
            Step::More(_) => panic!("one challenge is enough"),
        }
    }

    fn osd_keys(&self) -> RotatingKeys {
        self.keys.rotating(EntityKind::OSD).expect("rotating keys").clone()
    }
}

#[test]
fn a_client_authenticates_in_the_mode_it_prefers() {
    let mut world = World::new();
    for (offer, mode, secret) in
        [(Offer::secure_first(), ConnectionMode::Secure, 64), (Offer::crc_first(), ConnectionMode::Crc, 0)]
    {
        let mut client = world.client("client.admin", offer);
        let (done, _) = world.connect(&mut client, Offer::secure_first()).expect("the right key");
        assert_eq!((done.mode, done.connection_secret.len()), (mode, secret));
        assert_eq!(done.identity.caps, "allow *");
        assert_eq!(client.global_id(), done.global_id);
    }
}

#[test]
fn a_wrong_key_and_an_unknown_name_look_the_same() {
    let mut world = World::new();
    let other = world.keys.entity(&name("osd.3")).expect("an entity").key.clone();
    let mut answers = Vec::new();
    for who in ["client.admin", "client.nobody"] {
        let mut client = ClientAuth::new(name(who), Some(other.clone()), Offer::crc_first(), &SERVICES);
        answers.push(world.connect(&mut client, Offer::crc_first()).expect_err("another's key"));
    }
    assert_eq!((answers[0].errno, answers[0].reason), (Errno::EACCES, Reason::WrongKey));
    assert_eq!(answers[1].reason, Reason::UnknownEntity);
    answers[1].reason = answers[0].reason;
    assert_eq!(answers[0], answers[1], "all that goes over the wire");
}

#[test]
fn methods_and_modes_must_be_common() {
    let mut world = World::new();
    let mut client = world.client("client.admin", Offer::no_auth());
    let refusal = world.connect(&mut client, Offer::crc_first()).expect_err("no common method");
    assert_eq!((refusal.errno, refusal.reason), (Errno::EOPNOTSUPP, Reason::Method));
    assert_eq!(refusal.methods, [2]);
    let secure_only = Offer { methods: vec![AuthMethod::Cephx], modes: vec![ConnectionMode::Secure] };
    let crc_only = Offer { methods: vec![AuthMethod::Cephx], modes: vec![ConnectionMode::Crc] };
    let mut client = world.client("client.admin", crc_only);
    let refusal = world.connect(&mut client, secure_only).expect_err("no common mode");
    assert_eq!((refusal.errno, refusal.reason), (Errno::EOPNOTSUPP, Reason::Mode));
}

#[test]
fn an_instance_keeps_its_number_only_with_its_ticket() {
    let mut world = World::new();
    let mut client = world.client("client.admin", Offer::crc_first());
    let (first, _) = world.connect(&mut client, Offer::crc_first()).expect("the right key");
    let (again, _) = world.connect(&mut client, Offer::crc_first()).expect("a valid old ticket");
    assert_eq!(again.global_id, first.global_id);
    world.authorize(&client, &world.osd_keys(), Offer::crc_first()).expect("tickets work after a reclaim");
    let mut other = world.client("client.admin", Offer::crc_first());
    let (second, _) = world.connect(&mut other, Offer::crc_first()).expect("the right key");
    assert_ne!(second.global_id, first.global_id);

    // The secrets that sealed the old ticket are gone: refused, then a new instance.
    for _ in 0..5 {
        world.wall = world.wall.after(Duration::from_secs(1500));
        world.keys.rotate(world.wall, &mut world.entropy);
    }
    let refusal = world.connect(&mut client, Offer::crc_first()).expect_err("a ticket nobody can read");
    assert_eq!((refusal.errno, refusal.reason), (Errno::EACCES, Reason::Reclaim));
    assert!(client.refused(refusal.errno, &refusal.methods));
    let (third, _) = world.connect(&mut client, Offer::crc_first()).expect("a new instance");
    assert!(third.global_id > second.global_id);
    assert!(!client.refused(Errno::EACCES, &[2]) || client.global_id() == 0);
}

#[test]
fn a_stolen_number_without_its_ticket_is_refused() {
    let mut world = World::new();
    let mut victim = world.client("client.admin", Offer::crc_first());
    let (done, _) = world.connect(&mut victim, Offer::crc_first()).expect("the right key");
    let key = world.keys.entity(&name("osd.3")).expect("an entity").key.clone();
    let reclaim = |world: &mut World, old_ticket: TicketBlob, claimed: u64| {
        let mut server = MonServer::new(Offer::crc_first());
        let request = cephx::MonRequest { name: name("osd.3"), global_id: claimed }.to_bytes();
        let Step::More(challenge) = server.request(&mut world.at_mon(), 2, &[1], request) else {
            panic!("no challenge")
        };
        let challenge = cephx::decode_challenge(&mut Reader::new(challenge)).expect("a challenge");
        let mut w = Writer::new();
        w.u16(cephx::GET_AUTH_SESSION_KEY);
        let proof = cephx::proof(&key, challenge, 9);
        w.put(&cephx::Authenticate { client_challenge: 9, proof, old_ticket, other_keys: 0x20 });
        match server.more(&mut world.at_mon(), w.finish()) {
            Step::Bad(refusal) => Some(refusal.reason),
            _ => None,
        }
    };
    assert_eq!(reclaim(&mut world, TicketBlob::default(), done.global_id), Some(Reason::Reclaim));
    let ticket = TicketBlob { secret_id: 2, blob: Bytes::from_static(&[7; 64]) };
    assert_eq!(reclaim(&mut world, ticket.clone(), done.global_id), Some(Reason::Reclaim));
    assert_eq!(reclaim(&mut world, ticket, 0), Some(Reason::SuperfluousTicket));
    assert_eq!(reclaim(&mut world, TicketBlob::default(), 0), None);
}

#[test]
fn a_service_learns_who_comes_from_the_ticket_alone() {
    let mut world = World::new();
    let mut client = world.client("client.admin", Offer::crc_first());
    let (at_mon, _) = world.connect(&mut client, Offer::crc_first()).expect("the right key");
    let secure_only = Offer { methods: vec![AuthMethod::Cephx], modes: vec![ConnectionMode::Secure] };
    for offer in [Offer::crc_first(), secure_only] {
        let done = world.authorize(&client, &world.osd_keys(), offer).expect("a valid ticket");
        assert_eq!((done.global_id, &done.identity.name), (at_mon.global_id, &name("client.admin")));
        assert_eq!(done.identity.caps, "allow rw pool=p");
        assert_eq!(done.identity.expires, Some(world.wall.after(Duration::from_secs(100))));
        assert_eq!(done.connection_secret.len(), done.mode.secret_bytes());
    }
}

/// One flipped bit used to make an administrator of any client: at a daemon of ours each is refused.
#[test]
fn a_service_refuses_a_ticket_with_any_bit_changed() {
    let mut world = World::new();
    let mut client = world.client("client.admin", Offer::crc_first());
    world.connect(&mut client, Offer::crc_first()).expect("the right key");
    let keys = world.osd_keys();
    let authorizer = client.authorizer(EntityKind::OSD, &Offer::crc_first(), world.wall, &mut world.entropy);
    let start = authorizer.expect("a ticket").start();
    // mode 1, global id 8, service 4, then the blob: version 1, which says nothing, secret's id 8, length 4, ticket.
    let length = u32::from_le_bytes(start.payload[22..26].try_into().expect("four bytes"));
    let ticket_end = 26 + usize::try_from(length).expect("a short ticket");
    for bit in (0..8 * ticket_end).filter(|bit| bit / 8 != 13) {
        let mut bytes = start.payload.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut server = ServiceServer::new(EntityKind::OSD, TicketForm::Sealed, Offer::crc_first());
        let mut cx = ServiceAuthContext { keys: &keys, wall: world.wall, entropy: &mut world.entropy };
        let step = server.request(&mut cx, start.method, &start.modes, bytes.into());
        assert!(matches!(step, Step::Bad(_)), "bit {bit}");
    }
}

#[test]
fn a_ticket_from_before_a_change_of_caps_is_void() {
    let mut world = World::new();
    let mut client = world.client("client.admin", Offer::crc_first());
    world.connect(&mut client, Offer::crc_first()).expect("the right key");
    let keys = world.osd_keys();
    let (made, until) =
        (world.wall.after(Duration::from_secs(1)), world.wall.after(Duration::from_secs(100)));
    let mut void = VoidTickets::default();
    void.add(name("client.other"), made, until);
    world.authorize(&client, &keys.clone().with_void(void.clone()), Offer::crc_first()).expect("another's");
    void.add(name("client.admin"), made, until);
    let keys = keys.with_void(void);
    let refusal = world.authorize(&client, &keys, Offer::crc_first()).expect_err("made before");
    assert_eq!((refusal.errno, refusal.reason), (Errno::EACCES, Reason::Void));
    world.wall = made;
    world.connect(&mut client, Offer::crc_first()).expect("the right key");
    let done = world.authorize(&client, &keys, Offer::crc_first()).expect("a new ticket");
    assert_eq!(done.identity.created, Some(made));
}

#[test]
fn a_ticket_from_before_a_change_of_caps_gives_the_new_ones() {
    let mut world = World::new();
    let mut client = world.client("client.admin", Offer::crc_first());
    world.connect(&mut client, Offer::crc_first()).expect("the right key");
    let keys = world.osd_keys();
    let (since, until) =
        (world.wall.after(Duration::from_secs(1)), world.wall.after(Duration::from_secs(100)));
    let mut caps = ChangedCaps::default();
    assert!(caps.add(name("client.admin"), since, until, "allow r pool=p".to_owned()).is_empty());
    let done = world.authorize(&client, &keys.clone().with_caps(caps), Offer::crc_first()).expect("it holds");
    assert_eq!((done.identity.caps.as_str(), done.identity.allow_all), ("allow r pool=p", false));
    let done = world.authorize(&client, &keys, Offer::crc_first()).expect("it holds");
    assert_ne!(done.identity.caps, "allow r pool=p");
}

#[test]
fn a_service_refuses_what_it_cannot_read_and_what_is_over() {
    let mut world = World::new();
    let mut client = world.client("client.admin", Offer::crc_first());
    world.connect(&mut client, Offer::crc_first()).expect("the right key");
    let refusal = world.authorize(&client, &RotatingKeys::new(), Offer::crc_first()).expect_err("no secrets");
    assert_eq!((refusal.errno, refusal.reason), (Errno::EACCES, Reason::UnknownSecret));
    let mut foreign = RotatingKeys::new();
    foreign.rotate(world.wall, Duration::from_secs(100), &mut SeededEntropy(99));
    let refusal = world.authorize(&client, &foreign, Offer::crc_first()).expect_err("other secrets");
    assert_eq!(refusal.reason, Reason::BadTicket);

    let keys = world.osd_keys();
    let mut slow = ServiceServer::new(EntityKind::OSD, TicketForm::Sealed, Offer::crc_first());
    let authorizer = client
        .authorizer(EntityKind::OSD, &Offer::crc_first(), world.wall, &mut world.entropy)
        .expect("a ticket");
    let late = world.wall.after(Duration::from_secs(101));
    let mut cx = ServiceAuthContext { keys: &keys, wall: late, entropy: &mut world.entropy };
    let start = authorizer.start();
    let step = slow.request(&mut cx, start.method, &start.modes, start.payload.clone());
    assert!(matches!(step, Step::Bad(Refusal { reason: Reason::Expired, .. })));
    assert!(client.authorizer(EntityKind::OSD, &Offer::crc_first(), late, &mut world.entropy).is_none());

    // A recording of the first frame does not answer the challenge.
    let mut server = ServiceServer::new(EntityKind::OSD, TicketForm::Sealed, Offer::crc_first());
    let mut cx = ServiceAuthContext { keys: &keys, wall: world.wall, entropy: &mut world.entropy };
    let step = server.request(&mut cx, start.method, &start.modes, start.payload.clone());
    assert!(matches!(step, Step::More(_)));
    let step = server.more(&mut cx, start.payload.clone());
    assert!(matches!(step, Step::Bad(Refusal { reason: Reason::Challenge, .. })));
    let step = server.more(&mut cx, start.payload);
    assert!(matches!(step, Step::Bad(Refusal { reason: Reason::OutOfTurn, .. })));
    let mut at_mgr = ServiceServer::new(EntityKind::MGR, TicketForm::Sealed, Offer::crc_first());
    let start = authorizer.start();
    let step = at_mgr.request(&mut cx, start.method, &start.modes, start.payload);
    assert!(
        matches!(step, Step::Bad(Refusal { reason: Reason::BadTicket, .. })),
        "a ticket for another service"
    );
}

#[test]
fn tickets_are_renewed_before_they_end() {
    let mut world = World::new();
    let mut client = world.client("client.admin", Offer::crc_first());
    let (_, session) = world.connect(&mut client, Offer::crc_first()).expect("the right key");
    assert_eq!(client.renew_after(), Some(world.wall.after(Duration::from_secs(75))));
    assert_eq!(client.renewal(world.wall, &mut world.entropy), Ok(None));

    world.wall = world.wall.after(Duration::from_secs(75));
    let payload = client.renewal(world.wall, &mut world.entropy).expect("ready").expect("due");
    assert_eq!(Reader::new(payload.clone()).u16(), Ok(cephx::GET_SERVICE_TICKETS));
    assert_eq!(world.mauth(&session, &mut client, payload), Ok(ClientReply::Tickets));
    assert_eq!(client.renew_after(), Some(world.wall.after(Duration::from_secs(75))));

    world.wall = world.wall.after(Duration::from_secs(700));
    world.keys.rotate(world.wall, &mut world.entropy);
    let payload = client.renewal(world.wall, &mut world.entropy).expect("ready").expect("due");
    assert_eq!(Reader::new(payload.clone()).u16(), Ok(cephx::GET_AUTH_SESSION_KEY));
    assert_eq!(world.mauth(&session, &mut client, payload), Ok(ClientReply::Tickets));
    assert_eq!(client.renewal(world.wall, &mut world.entropy), Ok(None), "service tickets came along");
    let keys = world.osd_keys();
    world.authorize(&client, &keys, Offer::crc_first()).expect("a renewed ticket");
}

#[test]
fn only_a_daemon_gets_the_secrets_of_its_service() {
    let mut world = World::new();
    let mut osd = world.client("osd.3", Offer::crc_first());
    let (_, session) = world.connect(&mut osd, Offer::crc_first()).expect("the right key");
    let reply = world.mauth(&session, &mut osd, ClientAuth::rotating_request());
    assert_eq!(reply, Ok(ClientReply::Rotating(world.osd_keys())));

    let mut client = world.client("client.admin", Offer::crc_first());
    let (_, session) = world.connect(&mut client, Offer::crc_first()).expect("the right key");
    let reply = world.mauth(&session, &mut client, ClientAuth::rotating_request());
    assert_eq!(reply, Err(ClientError::Refused(Errno::EACCES)));
}

#[test]
fn without_authentication_everybody_may_do_everything() {
    let mut world = World::new();
    let mut client = world.client("client.x", Offer::no_auth());
    let (done, _) = world.connect(&mut client, Offer::no_auth()).expect("anybody");
    assert!(done.identity.mon_caps().expect("all").allows_everything());
    assert!(done.session_key.is_empty() && done.global_id > 0);
    let at_osd = world.authorize(&client, &RotatingKeys::new(), Offer::no_auth()).expect("anybody");
    assert_eq!((at_osd.global_id, &at_osd.identity.name), (done.global_id, &name("client.x")));
    assert!(at_osd.identity.osd_caps().expect("all").allows_everything());
}

#[test]
fn an_entity_without_monitor_caps_stays_outside() {
    let mut world = World::new();
    world.add("client.idle", &[("osd", "allow *")]);
    let mut client = world.client("client.idle", Offer::crc_first());
    let refusal = world.connect(&mut client, Offer::crc_first()).expect_err("no mon caps");
    assert_eq!((refusal.errno, refusal.reason), (Errno::EACCES, Reason::NoCaps));
}

/// Damaged and random frames at every door: errors, never a panic, never a way in.
#[test]
fn random_bytes_open_nothing() {
    let mut world = World::new();
    let mut client = world.client("client.admin", Offer::crc_first());
    let (_, session) = world.connect(&mut client, Offer::crc_first()).expect("the right key");
    let keys = world.osd_keys();
    let authorizer = client.authorizer(EntityKind::OSD, &Offer::crc_first(), world.wall, &mut world.entropy);
    let authorizer = authorizer.expect("a ticket").start().payload;
    let renewal = client.renewal(world.wall.after(Duration::from_secs(80)), &mut world.entropy);
    let renewal = renewal.expect("ready").expect("due");
    for round in 0..4000_u64 {
        let mut bytes = match round % 3 {
            0 => authorizer.to_vec(),
            1 => renewal.to_vec(),
            _ => vec![0; below(&mut world.entropy, 200)],
        };
        if round % 3 == 2 {
            world.entropy.fill(&mut bytes);
            bytes.first_mut().into_iter().for_each(|byte| *byte = if round % 2 == 0 { 1 } else { 10 });
        } else {
            let at = below(&mut world.entropy, bytes.len());
            bytes[at] ^= 1 << (world.entropy.u64() % 8);
            bytes.truncate(below(&mut world.entropy, 2 * bytes.len()));
        }
        let bytes = Bytes::from(bytes);
        let mut mon = MonServer::new(Offer::crc_first());
        let first = mon.request(&mut world.at_mon(), 2, &[1], bytes.clone());
        assert!(!matches!(first, Step::Done(_)));
        if matches!(first, Step::More(_)) {
            assert!(matches!(mon.more(&mut world.at_mon(), bytes.clone()), Step::Bad(_)));
        }
        let _reply = session.handle(&mut world.at_mon(), bytes.clone());
        let mut osd = ServiceServer::new(EntityKind::OSD, TicketForm::Sealed, Offer::crc_first());
        let mut cx = ServiceAuthContext { keys: &keys, wall: world.wall, entropy: &mut world.entropy };
        assert!(!matches!(osd.request(&mut cx, 2, &[1], bytes.clone()), Step::Done(_)));
        assert!(!matches!(osd.more(&mut cx, bytes.clone()), Step::Done(_)));
        drop(client.reply(0, bytes.clone(), world.wall));
        drop(EntityAuth::from_bytes(bytes.clone()));
        drop(CryptoKey::from_bytes(bytes));
    }
}

#[test]
fn the_book_survives_its_encoding() {
    let mut world = World::new();
    let auth = world.keys.entity(&name("client.admin")).expect("an entity").clone();
    assert_eq!(EntityAuth::from_bytes(auth.to_bytes()), Ok(auth.clone()));
    let mut copy = KeyServer::new(world.keys.lifetimes());
    copy.restore_rotating(world.keys.encode_rotating()).expect("our own encoding");
    assert_eq!(copy.rotating(EntityKind::OSD), world.keys.rotating(EntityKind::OSD));
    assert_eq!(copy.next_rotation(), world.keys.next_rotation());

    let ring = world.keys.keyring(None);
    let parsed = Keyring::parse(&ring.to_string()).expect("our own text");
    assert_eq!(parsed, ring);
    for change in copy.decide_import(&parsed).expect("valid caps") {
        copy.apply(change);
    }
    assert_eq!(copy.entities().collect::<Vec<_>>(), world.keys.entities().collect::<Vec<_>>());
    assert!(
        world
            .keys
            .decide_add(&name("client.admin"), Some(auth.key), &auth.caps, world.wall, &mut world.entropy)
            .is_ok_and(|change| change.is_none())
    );
}

#[test]
fn commands_on_entities_refuse_as_ceph_does() {
    let mut world = World::new();
    let caps = |text: &str| Caps::from([("mon".to_owned(), text.to_owned())]);
    let admin = name("client.admin");
    let mut entropy = SeededEntropy(5);
    let same = world.keys.decide_get_or_create(&admin, &caps("allow *"), world.wall, &mut entropy);
    assert_eq!(same, Ok(None), "a subset of the caps is enough");
    let other = world.keys.decide_get_or_create(&admin, &caps("allow r"), world.wall, &mut entropy);
    let other = other.expect_err("other caps");
    assert_eq!(other.to_string(), "key for client.admin exists but cap mon does not match");
    assert_eq!(Errno::from(&other), Errno::EINVAL);
    let add = world.keys.decide_add(&admin, None, &caps("allow *"), world.wall, &mut entropy);
    assert_eq!(add.expect_err("other caps").to_string(), "entity client.admin exists but caps do not match");
    let missing = world.keys.decide_caps(&name("client.x"), &caps("allow r")).expect_err("no such entity");
    assert_eq!(
        (missing.to_string().as_str(), Errno::from(&missing)),
        ("couldn't find entry client.x", Errno::ENOENT)
    );
    let bad = world.keys.decide_caps(&admin, &Caps::from([("foo".to_owned(), "x".to_owned())]));
    assert_eq!(bad.expect_err("unknown service").to_string(), "unknown cap type 'foo'");
    let change = world.keys.decide_caps(&admin, &caps("allow r")).expect("an entity");
    world.keys.apply(change);
    assert_eq!(world.keys.caps_of(&admin, EntityKind::OSD), Some(""));
}
