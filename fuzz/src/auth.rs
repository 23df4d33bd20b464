//! Both sides of cephx, with one payload of an honest conversation replaced.

use nacre_auth::{
    Authorizer, ClientAuth, GlobalIds, KeyServer, MonAuthContext, MonServer, Offer, ServiceAuthContext,
    ServiceServer, ServiceTickets, Step, TicketForm, TicketLifetimes,
};
use nacre_buf::Bytes;
use nacre_types::entropy::SeededEntropy;
use nacre_types::{AuthName, EntityKind, UTime};
use std::time::Duration;

const WALL: UTime = UTime { sec: 5000, nsec: 0 };

/// The first byte says which payload of the conversation the rest replaces. The receiver, be it monitor, OSD or client, refuses
/// it or goes on; nobody panics.
pub fn auth(input: &[u8]) {
    let Some((&replaced, with)) = input.split_first() else { return };
    let mut nth = 0;
    let _refused_or_done = converse(&mut |payload| {
        nth += 1;
        if nth - 1 == replaced { Bytes::copy_from_slice(with) } else { payload }
    });
}

/// Seeds of [`auth`]: each payload as it is.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    let whole = converse(&mut |payload| {
        let nth = u8::try_from(seeds.len()).expect("a dozen payloads");
        seeds.push([&[nth], &payload[..]].concat());
        payload
    });
    assert!(whole.is_some(), "an honest conversation comes to its end");
    seeds
}

/// A client authenticates at a monitor, asks for tickets anew, and opens a session with an OSD. Every payload goes through `wire`.
/// `None` when somebody refuses.
fn converse(wire: &mut dyn FnMut(Bytes) -> Bytes) -> Option<()> {
    let mut entropy = SeededEntropy(1);
    let keys = key_server(&mut entropy)?;
    let name = AuthName::new(EntityKind::CLIENT, "fuzz");
    let key = keys.entity(&name)?.key.clone();
    let mut client = ClientAuth::new(name, Some(key), Offer::crc_first(), &[EntityKind::OSD]);

    let mut server = MonServer::new(Offer::crc_first());
    let start = client.start();
    let mut ids = GlobalIds::default();
    ids.grant(1..10);
    let mut cx = MonAuthContext {
        keys: &keys,
        ids: &mut ids,
        wall: WALL,
        entropy: &mut entropy,
        tickets: ServiceTickets::Usable,
    };
    let Step::More(challenge) = server.request(&mut cx, start.method, &start.modes, wire(start.payload))
    else {
        return None;
    };
    let answer = client.more(wire(challenge), cx.entropy).ok()?;
    let Step::Done(done) = server.more(&mut cx, wire(answer)) else { return None };
    client.done(done.global_id, done.mode.code(), wire(done.payload.clone()), WALL).ok()?;

    let session = server.into_session()?;
    let later = WALL.after(Duration::from_secs(60));
    cx.wall = later;
    let renewal = client.renewal(later, cx.entropy).ok()?;
    for asked in renewal.into_iter().chain([ClientAuth::rotating_request()]) {
        let reply = session.handle(&mut cx, wire(asked));
        let taken = client.reply(reply.result, wire(reply.payload), later);
        // Clients get no service's secrets.
        drop(taken);
    }

    let rotating = keys.rotating(EntityKind::OSD)?.clone();
    let mut authorizer: Authorizer =
        client.authorizer(EntityKind::OSD, &Offer::crc_first(), later, &mut entropy)?;
    let mut service = ServiceServer::new(EntityKind::OSD, TicketForm::Sealed, Offer::crc_first());
    let mut cx = ServiceAuthContext { keys: &rotating, wall: later, entropy: &mut entropy };
    let start = authorizer.start();
    let Step::More(challenge) = service.request(&mut cx, start.method, &start.modes, wire(start.payload))
    else {
        return None;
    };
    let answer = authorizer.more(&wire(challenge)).ok()?;
    let Step::Done(done) = service.more(&mut cx, wire(answer)) else { return None };
    authorizer.done(done.mode.code(), wire(done.payload.clone())).ok().map(drop)
}

/// A monitor's keys with one client.
fn key_server(entropy: &mut SeededEntropy) -> Option<KeyServer> {
    let lifetimes = TicketLifetimes { auth: Duration::from_secs(1000), service: Duration::from_secs(100) };
    let mut keys = KeyServer::new(lifetimes);
    keys.rotate(WALL, entropy);
    let caps = [("mon", "allow r"), ("osd", "allow rw")];
    let caps = caps.iter().map(|(service, text)| ((*service).to_owned(), (*text).to_owned())).collect();
    let name = AuthName::new(EntityKind::CLIENT, "fuzz");
    let change = keys.decide_get_or_create(&name, &caps, WALL, entropy).ok()??;
    keys.apply(change);
    Some(keys)
}
