//! Two connections back to back over a pipe that cuts the stream anywhere.
#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

mod hostile;
mod resume;

use super::*;
use crate::{PeerPolicy, SessionAnswer, incoming_wins, mode};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;
use std::time::Duration;

const KEY: &[u8] = b"sixteen byte key";
const SECRET: &[u8] = &[7; 64];

pub(super) fn addr(text: &str) -> EntityAddr {
    EntityAddr::parse(text).expect("a valid address")
}

const CLIENT_SOCKET: &str = "10.0.0.9:40000";
const SERVER_ADDR: &str = "v2:10.0.0.1:6800/77";
const OTHER_ADDR: &str = "v2:10.0.0.2:6800/88";

/// One side with what it was told.
struct Side {
    connection: Connection,
    established: Option<Peer>,
    received: Vec<RawMessage>,
    keepalives: Vec<UTime>,
    lost: Option<usize>,
    answer: Option<SessionAnswer>,
    asked: Option<SessionRequest>,
    mode: u32,
}

impl Side {
    fn new(connection: Connection, mode: u32) -> Self {
        Self {
            connection,
            established: None,
            received: Vec::new(),
            keepalives: Vec::new(),
            lost: None,
            answer: None,
            asked: None,
            mode,
        }
    }

    /// Plays the authenticator and collects the rest.
    fn react(&mut self) -> Result<(), Fault> {
        while let Some(event) = self.connection.next_event() {
            let server = matches!(self.connection.role, Role::Server);
            match event {
                Event::Hello { .. } if server => {}
                Event::Hello { .. } => self.connection.auth_start(2, &[self.mode], b"it is me")?,
                Event::AuthRequest { .. } => self.connection.auth_reply_more(b"prove it")?,
                Event::AuthReplyMore { payload } => {
                    assert_eq!(&payload[..], b"prove it");
                    self.connection.auth_request_more(b"proof")?;
                }
                Event::AuthMore { .. } => {
                    self.connection.auth_done(4242, self.mode, b"done", KEY, SECRET)?;
                }
                Event::AuthDone { .. } => self.connection.auth_finish(KEY, SECRET)?,
                Event::AuthBad { .. } => return Err(Fault::Closed),
                Event::SessionRequest(request) => {
                    self.asked = Some(request);
                    let answer = self.answer.take().unwrap_or(SessionAnswer::New);
                    self.connection.answer_session(answer)?;
                }
                Event::SessionReset { lost_count } => self.lost = Some(lost_count),
                Event::Established(peer) => self.established = Some(peer),
                Event::Message(message) => self.received.push(message),
                Event::KeepaliveAck(stamp) => self.keepalives.push(stamp),
            }
            self.connection.check();
        }
        Ok(())
    }

    fn receive(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() && self.connection.wants_read() {
            let space = self.connection.recv_space();
            let count = bytes.len().min(space.len());
            space[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            let outcome = self.connection.received(Stamp(0), count);
            self.connection.check();
            self.react()?;
            outcome?;
        }
        Ok(())
    }
}

/// Changes one byte of a stream: which way, which byte, and how.
#[derive(Clone, Copy)]
struct Flip {
    to_server: bool,
    at: usize,
    with: u8,
}

struct Pair {
    client: Side,
    server: Side,
    entropy: SeededEntropy,
    /// Bytes carried so far, to the server and to the client.
    carried: [usize; 2],
    flip: Option<Flip>,
    /// Longest piece that the pipe carries at once.
    piece_max: usize,
}

fn opening(global_seq: u64) -> Opening {
    Opening { now: Stamp(0), global_seq, cookie: 1000 + global_seq }
}

fn osd_config(text: &str, id: i64) -> Arc<Config> {
    Arc::new(Config::osd(AddrVec::of(addr(text)), id))
}

fn target(kind: EntityKind) -> Target {
    Target { addr: addr(SERVER_ADDR), kind, gid: 3 }
}

fn accepted(config: Arc<Config>, global_seq: u64) -> Connection {
    Connection::accept(config, CLIENT_SOCKET.parse().expect("an address"), opening(global_seq))
}

impl Pair {
    fn of(client: Connection, server: Connection, mode: u32, seed: u64) -> Self {
        Self {
            client: Side::new(client, mode),
            server: Side::new(server, mode),
            entropy: SeededEntropy(seed),
            carried: [0; 2],
            flip: None,
            piece_max: usize::MAX,
        }
    }

    /// A client and an OSD.
    fn lossy(mode: u32, seed: u64) -> Self {
        let config = Arc::new(Config::client(55));
        let client = Connection::connect(config, target(EntityKind::OSD), opening(1));
        Self::of(client, accepted(osd_config(SERVER_ADDR, 1), 2), mode, seed)
    }

    /// Two OSDs, the first dialling, with these sessions of before.
    fn lossless(dialler: Option<Session>, answer: SessionAnswer, attempt: u64, seed: u64) -> Self {
        let (config, target) = (osd_config(OTHER_ADDR, 2), target(EntityKind::OSD));
        let client = match dialler {
            Some(session) => Connection::resume(config, target, session, opening(attempt)),
            None => Connection::connect(config, target, opening(attempt)),
        };
        let server = accepted(osd_config(SERVER_ADDR, 1), attempt);
        let mut pair = Self::of(client, server, mode::CRC, seed);
        pair.server.answer = Some(answer);
        pair
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.entropy.u64() % u64::try_from(bound).expect("small")) as usize
    }

    /// Carries one piece; false when there was none.
    fn carry(&mut self, to_server: bool) -> Result<bool, Fault> {
        let limit = self.piece_max.min(100_000);
        let piece = if limit == 1 { 1 } else { 1 + self.below(limit) };
        let (from, to) = match to_server {
            true => (&mut self.client, &mut self.server),
            false => (&mut self.server, &mut self.client),
        };
        let mut slices = [IoSlice::new(&[]); 7];
        let used = from.connection.out_slices(&mut slices);
        let all = slices[..used].iter().flat_map(|slice| slice.iter().copied());
        let mut bytes: Vec<u8> = all.take(piece).collect();
        from.connection.sent(bytes.len());
        from.connection.check();
        let carried = &mut self.carried[usize::from(to_server)];
        if let Some(flip) = self.flip.filter(|flip| flip.to_server == to_server)
            && let Some(byte) = flip.at.checked_sub(*carried).and_then(|at| bytes.get_mut(at))
        {
            *byte ^= flip.with;
        }
        *carried += bytes.len();
        to.receive(&bytes)?;
        Ok(!bytes.is_empty())
    }

    /// Carries until nothing moves.
    fn settle(&mut self) -> Result<(), Fault> {
        loop {
            let first = self.below(2) == 0;
            let moved = [self.carry(first)?, self.carry(!first)?];
            if moved == [false; 2] {
                return Ok(());
            }
        }
    }

    /// At most `steps` pieces in either direction.
    fn carry_some(&mut self, steps: usize) {
        for _ in 0..steps {
            let direction = self.below(2) == 0;
            let _anything = self.carry(direction).expect("no fault without a cause");
        }
    }
}

fn message(tid: u64, front: usize, data: usize) -> RawMessage {
    let fill = tid.to_le_bytes()[0];
    RawMessage {
        tid,
        kind: 42,
        version: 8,
        compat: 3,
        priority: 127,
        front: vec![fill; front].into(),
        middle: Bytes::new(),
        data: vec![fill; data].into(),
    }
}

#[test]
fn messages_flow_in_both_modes_over_any_cuts() {
    for (seed, piece_max) in [(1, 1), (2, 3), (3, 50), (4, 5000), (5, usize::MAX)] {
        for mode in [mode::CRC, mode::SECURE] {
            let mut pair = Pair::lossy(mode, seed);
            pair.piece_max = piece_max;
            let sent: Vec<RawMessage> = (0..20).map(|tid| message(tid, 30 * tid as usize, 4096)).collect();
            for message in &sent {
                pair.client.connection.send(message.clone()).expect("room");
            }
            assert!(pair.client.connection.queued_bytes() > 20 * 4096);
            pair.settle().expect("no fault");
            assert_eq!(pair.server.received, sent);
            pair.server.connection.send(message(7, 200, 0)).expect("room");
            pair.settle().expect("no fault");
            assert_eq!(pair.client.received, [message(7, 200, 0)]);
            assert_eq!(pair.client.connection.queued_bytes(), 0);
        }
    }
}

#[test]
fn both_sides_learn_who_the_other_is() {
    let mut pair = Pair::lossy(mode::SECURE, 1);
    pair.settle().expect("no fault");
    let server = pair.client.established.expect("established");
    assert_eq!((server.kind, server.gid, server.global_id, server.lossy), (EntityKind::OSD, 1, 4242, true));
    let client = pair.server.established.expect("established");
    assert_eq!((client.kind, client.gid, client.global_id), (EntityKind::CLIENT, 3, 4242));
    assert_eq!(client.addrs.to_string(), "any:10.0.0.9:0/55", "learned from the server's HELLO");
    assert!(pair.client.connection.into_session().is_none(), "lossy sessions are not resumed");
}

#[test]
fn large_payloads_arrive_aligned() {
    for mode in [mode::CRC, mode::SECURE] {
        let mut pair = Pair::lossy(mode, 9);
        pair.client.connection.send(message(1, 300, 9 << 20)).expect("room");
        pair.client.connection.send(message(2, 0, 0)).expect("room");
        pair.settle().expect("no fault");
        assert_eq!(pair.server.received, [message(1, 300, 9 << 20), message(2, 0, 0)]);
        let start = pair.server.received[0].data.slices()[0].as_ptr() as usize;
        assert!(start.is_multiple_of(nacre_buf::ALIGNMENT_BYTES));
    }
}

#[test]
fn a_large_frame_waits_for_room() {
    for mode in [mode::CRC, mode::SECURE] {
        let mut pair = Pair::lossy(mode, 3);
        pair.settle().expect("no fault");
        pair.server.connection.ask_for_room_above(64 << 10);
        pair.client.connection.send(message(1, 300, 4096)).expect("room");
        pair.client.connection.send(message(2, 300, 9 << 20)).expect("room");
        // As a driver that reads only where it is wanted: what is on the wire stays there.
        let mut wire = take(&mut pair.client.connection);
        while pair.server.connection.wants_read() && !wire.is_empty() {
            let space = pair.server.connection.recv_space();
            let count = space.len().min(wire.len());
            space[..count].copy_from_slice(&wire[..count]);
            wire.drain(..count);
            pair.server.connection.received(Stamp(1), count).expect("no fault");
        }
        assert!(wire.len() > 8 << 20, "the rest was not read");
        let wanted = pair.server.connection.room_wanted().expect("it waits");
        assert!((9 << 20..10 << 20).contains(&wanted));
        assert_eq!(pair.server.connection.incoming_bytes(), 0);
        pair.server.connection.give_room().expect("no fault");
        assert_eq!(
            (pair.server.connection.incoming_bytes(), pair.server.connection.room_wanted()),
            (wanted, None)
        );
        pair.server.receive(&wire).expect("no fault");
        assert_eq!(pair.server.received, [message(1, 300, 4096), message(2, 300, 9 << 20)]);
    }
}

#[test]
fn keepalives_are_answered_and_limited() {
    let mut pair = Pair::lossy(mode::CRC, 1);
    pair.settle().expect("no fault");
    let stamp = UTime { sec: 5, nsec: 6 };
    pair.client.connection.send_keepalive(stamp);
    pair.settle().expect("no fault");
    assert_eq!(pair.client.keepalives, [stamp]);
    // Now the client asks on and never reads.
    let fault = loop {
        pair.client.connection.send_keepalive(stamp);
        if let Err(fault) = pair.carry(true) {
            break fault;
        }
    };
    assert!(matches!(fault, Fault::NotReading { .. }));
}

#[test]
fn a_refused_method_can_be_followed_by_another() {
    let mut pair = Pair::lossy(mode::CRC, 1);
    pair.client.connection.auth_start_after_hello(&mut pair.server.connection);
    let Some(Event::AuthRequest { method, .. }) = pair.server.connection.next_event() else { panic!() };
    pair.server.connection.auth_bad(method, -13, &[2], &[1, 2]).expect("owed");
    let bytes = take(&mut pair.server.connection);
    put(&mut pair.client.connection, &bytes).expect("good bytes");
    let Some(Event::AuthBad { result: -13, methods, .. }) = pair.client.connection.next_event() else {
        panic!()
    };
    assert_eq!(methods, [2]);
    pair.client.connection.auth_start(2, &[1], b"").expect("idle");
    pair.settle().expect("no fault");
    assert!(pair.server.established.is_some());
}

impl Connection {
    /// Carries banners and HELLOs and starts to authenticate with method 1.
    fn auth_start_after_hello(&mut self, server: &mut Self) {
        put(server, &take(self)).expect("good bytes");
        put(self, &take(server)).expect("good bytes");
        assert!(matches!(self.next_event(), Some(Event::Hello { .. })));
        assert!(matches!(server.next_event(), Some(Event::Hello { .. })));
        self.auth_start(1, &[1], b"").expect("idle");
        put(server, &take(self)).expect("good bytes");
    }
}

/// Everything that is queued.
fn take(connection: &mut Connection) -> Vec<u8> {
    let mut out = Vec::new();
    while connection.wants_write() {
        let mut slices = [IoSlice::new(&[]); 4];
        let used = connection.out_slices(&mut slices);
        let before = out.len();
        slices[..used].iter().for_each(|slice| out.extend_from_slice(slice));
        connection.sent(out.len() - before);
    }
    out
}

fn put(connection: &mut Connection, bytes: &[u8]) -> Result<(), Fault> {
    let space = connection.recv_space();
    space[..bytes.len()].copy_from_slice(bytes);
    connection.received(Stamp(0), bytes.len())
}

#[test]
fn without_keys_signatures_are_zero_and_secure_mode_impossible() {
    let mut pair = Pair::lossy(mode::CRC, 1);
    pair.client.connection.auth_start_after_hello(&mut pair.server.connection);
    assert!(matches!(pair.server.connection.next_event(), Some(Event::AuthRequest { .. })));
    pair.server.connection.auth_done(5, mode::CRC, b"", b"", b"").expect("owed");
    let bytes = take(&mut pair.server.connection);
    put(&mut pair.client.connection, &bytes).expect("good bytes");
    assert!(matches!(pair.client.connection.next_event(), Some(Event::AuthDone { .. })));
    pair.client.connection.auth_finish(b"", b"").expect("owed");
    pair.settle().expect("no fault");
    assert!(pair.client.established.is_some());

    let mut pair = Pair::lossy(mode::CRC, 1);
    pair.client.connection.auth_start_after_hello(&mut pair.server.connection);
    assert!(matches!(pair.server.connection.next_event(), Some(Event::AuthRequest { .. })));
    let outcome = pair.server.connection.auth_done(5, mode::SECURE, b"", b"", b"");
    assert!(matches!(outcome, Err(Fault::Secret { .. })));
}

#[test]
fn different_keys_are_noticed() {
    let mut pair = Pair::lossy(mode::CRC, 1);
    pair.client.connection.auth_start_after_hello(&mut pair.server.connection);
    assert!(matches!(pair.server.connection.next_event(), Some(Event::AuthRequest { .. })));
    pair.server.connection.auth_done(5, mode::CRC, b"", b"one key", b"").expect("owed");
    let bytes = take(&mut pair.server.connection);
    put(&mut pair.client.connection, &bytes).expect("good bytes");
    assert_eq!(pair.client.connection.auth_finish(b"another", b""), Err(Fault::Signature));
    assert_eq!(pair.client.connection.fault(), Some(&Fault::Signature));
    assert_eq!(pair.client.connection.send(message(1, 1, 1)), Err(Fault::Closed));
}

#[test]
fn silence_is_noticed() {
    let mut pair = Pair::lossy(mode::CRC, 1);
    let at = pair.server.connection.next_deadline().expect("a handshake has a deadline");
    assert_eq!(at, Stamp(0) + crate::HANDSHAKE_TIMEOUT);
    pair.server.connection.tick(Stamp(at.0 - 1)).expect("not yet");
    assert!(matches!(pair.server.connection.tick(at), Err(Fault::Timeout { .. })));

    let mut pair = Pair::lossy(mode::CRC, 1);
    pair.settle().expect("no fault");
    assert_eq!(pair.client.connection.next_deadline(), None);
    let at = pair.server.connection.next_deadline().expect("an idle deadline");
    assert_eq!(at, Stamp(0) + crate::IDLE_TIMEOUT);
    assert!(matches!(pair.server.connection.tick(at), Err(Fault::Timeout { phase: "open" })));
}

#[test]
fn back_pressure_refuses_before_memory_grows() {
    let mut config = Config::client(1);
    (config.queued_bytes_max, config.queued_count_max) = (10_000, 3);
    let mut client = Connection::connect(Arc::new(config), target(EntityKind::OSD), opening(1));
    client.send(message(1, 9_000, 0)).expect("room");
    assert!(matches!(client.send(message(2, 1_001, 0)), Err(Fault::QueueFull { .. })));
    client.send(message(3, 0, 0)).expect("room");
    client.send(message(4, 0, 0)).expect("room");
    assert!(matches!(client.send(message(5, 0, 0)), Err(Fault::QueueFull { count: 4, .. })));
    let too_long = message(6, crate::FRONT_BYTES_MAX as usize + 1, 0);
    assert!(matches!(client.send(too_long), Err(Fault::SegmentLength { segment: 1, .. })));
    client.check();
}

#[test]
fn connections_take_turns_with_the_same_buffers() {
    let mut pair = Pair::lossy(mode::SECURE, 1);
    pair.settle().expect("no fault");
    let mut workspace = Workspace::default();
    // What they had themselves is the workspace's from now on.
    pair.client.connection.give_back(&mut workspace);
    for connection in [&mut pair.server.connection, &mut pair.client.connection] {
        connection.lend(&mut workspace);
        assert_eq!(workspace.staging.capacity(), 0, "lent");
        connection.give_back(&mut workspace);
        assert_eq!(connection.handshake_bytes(), 0, "and it holds nothing");
    }
    let held = workspace.bytes();
    assert!(held > 0);
    pair.client.connection.lend(&mut workspace);
    pair.client.connection.send(message(1, 10, 5000)).expect("room");
    pair.settle().expect("no fault");
    pair.client.connection.give_back(&mut workspace);
    assert_eq!(pair.server.received.len(), 1);
    workspace.clear();
    assert_eq!(workspace.bytes(), 0);
}

#[test]
fn who_sends_is_lent_nothing_to_read_into() {
    let mut pair = Pair::lossy(mode::CRC, 1);
    pair.settle().expect("no fault");
    let (mut workspace, client) = (Workspace::default(), &mut pair.client.connection);
    client.give_back(&mut workspace);
    let (staging, chunks) = (workspace.staging.as_ptr(), workspace.chunks.len());
    assert!(workspace.staging.capacity() > 0 && chunks > 0);
    client.lend_to_send(&mut workspace);
    assert_eq!((workspace.staging.as_ptr(), workspace.chunks.len()), (staging, 0));
    client.send(message(1, 10, 5000)).expect("room");
    client.give_back_sent(&mut workspace);
    assert_eq!((workspace.staging.as_ptr(), workspace.chunks.len()), (staging, chunks - 1));
}

/// A frame that comes in pieces goes on in whichever buffer there is.
#[test]
fn what_is_not_parsed_stays_with_the_connection() {
    for mode in [mode::CRC, mode::SECURE] {
        let mut pair = Pair::lossy(mode, 1);
        pair.settle().expect("no fault");
        pair.client.connection.send(message(1, 10, 5000)).expect("room");
        let mut slices = [IoSlice::new(&[]); 64];
        let count = pair.client.connection.out_slices(&mut slices);
        let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
        let (mut workspace, server) = (Workspace::default(), &mut pair.server.connection);
        for piece in bytes.chunks(7) {
            server.lend(&mut workspace);
            server.recv_space()[..piece.len()].copy_from_slice(piece);
            server.received(Stamp(1), piece.len()).expect("no fault");
            server.give_back(&mut workspace);
            server.check();
            // Another connection has used it meanwhile.
            workspace.staging.fill(0xff);
        }
        assert!(matches!(server.next_event(), Some(Event::Message(message)) if message.data.len() == 5000));
    }
}

#[test]
fn identities_are_verified() {
    let fault = |client: Config, target: Target, server: Config| {
        let client = Connection::connect(Arc::new(client), target, opening(1));
        let mut pair = Pair::of(client, accepted(Arc::new(server), 2), mode::CRC, 1);
        pair.settle().expect_err("a fault")
    };
    let osd = || Config::osd(AddrVec::of(addr(SERVER_ADDR)), 1);
    let client = || Config::client(55);
    let earlier = Target { addr: addr("v2:10.0.0.1:6800/76"), ..target(EntityKind::OSD) };
    assert!(matches!(fault(client(), earlier.clone(), osd()), Fault::NotForUs { .. }));
    let anywhere = Config { any_local_address: true, ..osd() };
    assert!(matches!(fault(client(), earlier, anywhere), Fault::WrongPeer { .. }));
    assert!(matches!(fault(client(), target(EntityKind::MON), osd()), Fault::PeerKind { .. }));
    let nobody = Config { addrs: AddrVec::default(), ..client() };
    assert_eq!(fault(nobody, target(EntityKind::OSD), osd()), Fault::NoAddress);
    let old = Config { features: 0, ..client() };
    let missing = nacre_types::features::REQUIRED;
    assert_eq!(fault(old, target(EntityKind::OSD), osd()), Fault::Features { missing });
    let mut strict = client();
    strict.default_policy = PeerPolicy { features_required: 1 << 62, ..PeerPolicy::LOSSY };
    assert!(matches!(fault(strict, target(EntityKind::OSD), osd()), Fault::Features { .. }));
}
