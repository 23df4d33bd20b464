//! Two recorded conversations between `ceph` and `ceph-mon` 16.2.15 (one in CRC, one in SECURE mode) replayed.
//!
//! Our client is fed what the real monitor sent, our server what the real client sent; each gives the other
//! the authentication payloads that it finds. Both must then have written, byte for byte, what the real ones
//! wrote: banner, HELLO, AUTH frames, signature, identification. The files hold the raw streams and the keys,
//! recovered from the tickets with the (throw-away) cluster's admin key.

use nacre_msgr::{Config, Connection, Event, Opening, Peer, PeerPolicy, Target};
use nacre_types::{AddrVec, EntityAddr, EntityKind, Stamp};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;

/// Features that a monitor of 16.2.15 insists on.
const MON_REQUIRED: u64 = 0x0c01_0200_4204_0000;

struct Recording {
    key: Vec<u8>,
    secret: Vec<u8>,
    client: Vec<u8>,
    server: Vec<u8>,
    cookie: u64,
    nonce: u32,
    server_seq: u64,
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl Recording {
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.filter(|(word, _)| *word == name).flat_map(|(_, hex)| unhex(hex)).collect::<Vec<u8>>()
        };
        Self {
            key: field("key"),
            secret: field("secret"),
            client: field("client"),
            server: field("server"),
            cookie: number(&field("cookie")),
            nonce: u32::try_from(number(&field("nonce"))).expect("four bytes"),
            server_seq: number(&field("server_seq")),
        }
    }
}

fn feed(connection: &mut Connection, bytes: &[u8]) {
    let space = connection.recv_space();
    space[..bytes.len()].copy_from_slice(bytes);
    connection.received(Stamp(0), bytes.len()).expect("a real peer's bytes are good");
    connection.check();
}

fn written(connection: &mut Connection) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); 16];
    let count = connection.out_slices(&mut slices);
    slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect()
}

fn client_side(recording: &Recording) -> Connection {
    let addr = EntityAddr::parse("v2:127.0.0.1:6790/0").expect("a valid address");
    let mut config = Config::client(recording.nonce);
    // The first connection of a 16.2.15 client asks for a lossless session; the monitor declines.
    config.policies = vec![(EntityKind::MON, PeerPolicy::LOSSLESS)];
    let target = Target { addr, kind: EntityKind::MON, gid: -1 };
    let opening = Opening { now: Stamp(0), global_seq: 1, cookie: recording.cookie };
    Connection::connect(Arc::new(config), target, opening)
}

fn server_side(recording: &Recording, peer: SocketAddr) -> Connection {
    let addr = EntityAddr::parse("v2:127.0.0.1:6790/0").expect("a valid address");
    let mut config = Config::mon(AddrVec::of(addr), 0);
    config.default_policy.features_required = MON_REQUIRED;
    let opening = Opening { now: Stamp(0), global_seq: recording.server_seq, cookie: 1 };
    Connection::accept(Arc::new(config), peer, opening)
}

/// Takes the events that follow the identification: the peer, and the kinds of the messages.
fn outcome(connection: &mut Connection) -> (Peer, Vec<u16>) {
    let Some(Event::Established(peer)) = connection.next_event() else { panic!("not established") };
    let kinds = std::iter::from_fn(|| connection.next_event()).map(|event| match event {
        Event::Message(message) => message.kind,
        event => panic!("{event:?}"),
    });
    (peer, kinds.collect())
}

fn replay(text: &str) {
    let recording = Recording::parse(text);
    let mut client = client_side(&recording);
    feed(&mut client, &recording.server);
    let Some(Event::Hello { my_addr, kind: EntityKind::MON }) = client.next_event() else {
        panic!("no HELLO from the monitor");
    };
    let mut server = server_side(&recording, my_addr.socket.expect("the client's address"));
    feed(&mut server, &recording.client);
    assert!(matches!(server.next_event(), Some(Event::Hello { kind: EntityKind::CLIENT, .. })));
    let Some(Event::AuthRequest { method, modes, payload }) = server.next_event() else { panic!() };
    client.auth_start(method, &modes, &payload).expect("good bytes");
    let Some(Event::AuthReplyMore { payload }) = client.next_event() else { panic!() };
    server.auth_reply_more(&payload).expect("good bytes");
    let Some(Event::AuthMore { payload }) = server.next_event() else { panic!() };
    client.auth_request_more(&payload).expect("good bytes");
    let Some(Event::AuthDone { global_id, mode, payload }) = client.next_event() else { panic!() };
    client.auth_finish(&recording.key, &recording.secret).expect("the monitor's signature");
    server
        .auth_done(global_id, mode, &payload, &recording.key, &recording.secret)
        .expect("the client's signature");
    client.check();
    server.check();

    let (ours, theirs) = (written(&mut client), &recording.client);
    assert_eq!(ours, theirs[..ours.len()], "client's bytes");
    let (ours, theirs) = (written(&mut server), &recording.server);
    assert_eq!(ours, theirs[..ours.len()], "server's bytes");

    let (peer, kinds) = outcome(&mut client);
    assert!(peer.lossy && peer.gid == 0 && peer.global_id == global_id);
    assert_eq!(kinds, [4, 62, 4], "MMonMap, MConfig, MMonMap");
    let (peer, kinds) = outcome(&mut server);
    assert_eq!(peer.addrs.front().nonce, recording.nonce);
    assert_eq!(kinds, [5, 15], "MMonGetMap, MMonSubscribe");
}

#[test]
fn a_conversation_in_crc_mode() {
    replay(include_str!("golden/mon-crc.txt"));
}

#[test]
fn a_conversation_in_secure_mode() {
    replay(include_str!("golden/mon-secure.txt"));
}
