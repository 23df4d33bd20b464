//! Lossless sessions: what is lost with a socket comes again, once and in order.

use super::*;

/// Two OSDs and what each has been told so far.
#[derive(Default)]
struct Cluster {
    sessions: [Option<Session>; 2],
    delivered: [Vec<u64>; 2],
    sent: [u64; 2],
    attempt: u64,
}

impl Cluster {
    /// Node `dialler` dials the other.
    fn dial(&mut self, dialler: usize, seed: u64) -> Pair {
        self.attempt += 1;
        let nodes = [(OTHER_ADDR, 2), (SERVER_ADDR, 1)];
        let ((ours, id), (theirs, other_id)) = (nodes[dialler], nodes[1 - dialler]);
        let target = Target { addr: addr(theirs), kind: EntityKind::OSD, gid: id };
        let (config, opening) = (osd_config(ours, id), opening(self.attempt));
        let client = match self.sessions[dialler].take() {
            Some(session) => Connection::resume(config, target, session, opening),
            None => Connection::connect(config, target, opening),
        };
        let server = accepted(osd_config(theirs, other_id), self.attempt);
        let mut pair = Pair::of(client, server, mode::CRC, seed);
        pair.server.answer = self.sessions[1 - dialler].take().map(existing);
        pair
    }

    fn chat(&mut self, pair: &mut Pair, dialler: usize, rounds: usize) {
        for _ in 0..rounds {
            let speaker = pair.below(2);
            let side = if speaker == dialler { &mut pair.client } else { &mut pair.server };
            let length = usize::try_from(self.sent[speaker] * 97 % 3000).expect("small");
            if side.connection.send(message(self.sent[speaker], length, 2 * length)).is_ok() {
                self.sent[speaker] += 1;
            }
            let steps = pair.below(4);
            pair.carry_some(steps);
        }
    }

    /// The socket is gone: keeps the sessions, drops what was on the wire.
    fn cut(&mut self, pair: Pair, dialler: usize) {
        for (node, side) in [(dialler, pair.client), (1 - dialler, pair.server)] {
            self.delivered[1 - node].extend(side.received.iter().map(|message| message.tid));
            assert_eq!(side.lost, None);
            let held = side.answer.and_then(|answer| match answer {
                SessionAnswer::Existing(session) => Some(*session),
                _ => None,
            });
            self.sessions[node] = side.connection.into_session().or(held);
            self.sessions[node].iter().for_each(Session::check);
        }
    }

    /// Node 0 opens the first session; later attempts come from where `seed` says.
    fn dialler(&self, seed: u64) -> usize {
        if self.sessions[1].is_none() { 0 } else { (seed / 3 % 2) as usize }
    }
}

#[test]
fn nothing_is_lost_or_doubled_over_many_cuts() {
    for seed in 0..60 {
        let mut cluster = Cluster::default();
        for round in 0..12 {
            let dialler = cluster.dialler(seed + round);
            let mut pair = cluster.dial(dialler, seed * 100 + round);
            pair.piece_max = 2000;
            cluster.chat(&mut pair, dialler, 30);
            if round == 11 {
                pair.settle().expect("no fault");
            }
            cluster.cut(pair, dialler);
        }
        for (sent, delivered) in cluster.sent.iter().zip(&cluster.delivered) {
            let all: Vec<u64> = (0..*sent).collect();
            assert_eq!(delivered, &all, "seed {seed}");
        }
        assert!(cluster.sent.iter().all(|sent| *sent > 20), "seed {seed}: {:?}", cluster.sent);
    }
}

fn talked() -> (Session, Session) {
    let mut pair = Pair::lossless(None, SessionAnswer::New, 5, 1);
    pair.client.connection.send(message(0, 10, 10)).expect("room");
    pair.settle().expect("no fault");
    assert_eq!(pair.server.asked.as_ref().map(|asked| asked.resume), Some(false));
    pair.server.connection.send(message(0, 10, 10)).expect("room");
    pair.settle().expect("no fault");
    let client = pair.client.connection.into_session().expect("lossless");
    (client, pair.server.connection.into_session().expect("lossless"))
}

fn existing(session: Session) -> SessionAnswer {
    SessionAnswer::Existing(Box::new(session))
}

#[test]
fn the_side_that_was_dialled_can_dial_back() {
    let (client, mut server) = talked();
    server.send(&osd_config(SERVER_ADDR, 1), message(1, 10, 10)).expect("room for what is said meanwhile");
    assert_eq!(client.peer_addrs(), &AddrVec::of(addr(SERVER_ADDR)));
    assert_eq!(server.peer_addrs(), &AddrVec::of(addr(OTHER_ADDR)));
    let target = Target { addr: addr(OTHER_ADDR), kind: EntityKind::OSD, gid: 1 };
    let dialler = Connection::resume(osd_config(SERVER_ADDR, 1), target, server, opening(6));
    let mut pair = Pair::of(dialler, accepted(osd_config(OTHER_ADDR, 2), 6), mode::SECURE, 3);
    pair.server.answer = Some(existing(client));
    pair.client.connection.send(message(2, 10, 10)).expect("room");
    pair.settle().expect("no fault");
    assert!(pair.client.established.is_some_and(|peer| peer.resumed && peer.gid == 3));
    assert_eq!(pair.server.received, [message(1, 10, 10), message(2, 10, 10)]);
}

#[test]
fn acknowledgements_go_out_in_time_without_answers() {
    let mut pair = Pair::lossless(None, SessionAnswer::New, 1, 1);
    pair.settle().expect("no fault");
    pair.client.connection.send(message(0, 10, 10)).expect("room");
    pair.settle().expect("no fault");
    assert_eq!(pair.client.connection.unacked_bytes(), 20);
    let at = pair.server.connection.next_deadline().expect("an acknowledgement is owed");
    assert!(at < Stamp(0) + Duration::from_secs(1));
    pair.server.connection.tick(at).expect("nothing else is due");
    pair.settle().expect("no fault");
    assert_eq!(pair.client.connection.unacked_bytes(), 0);
    for tid in 1..200 {
        pair.client.connection.send(message(tid, 10, 10)).expect("room");
    }
    pair.settle().expect("no fault");
    assert!(pair.client.connection.unacked_bytes() < 32 * 20, "acknowledged on the way");
}

/// Whoever begins sessions with a greeting says it then.
#[test]
fn who_has_said_nothing_in_a_session_is_told_that_it_is_new() {
    let mut pair = Pair::lossless(None, SessionAnswer::New, 5, 1);
    pair.client.connection.send(message(0, 10, 10)).expect("room");
    pair.settle().expect("no fault");
    let client = pair.client.connection.into_session().expect("lossless");
    let server = pair.server.connection.into_session().expect("lossless");
    let mut pair = Pair::lossless(Some(client), existing(server), 6, 1);
    pair.settle().expect("no fault");
    let resumed = |peer: &Option<Peer>| peer.as_ref().map(|peer| peer.resumed);
    assert_eq!(
        [resumed(&pair.client.established), resumed(&pair.server.established)],
        [Some(true), Some(false)]
    );
}

#[test]
fn a_forgotten_session_is_reset_on_the_side_that_remembers() {
    let (mut client, _) = talked();
    client.send(&osd_config(OTHER_ADDR, 2), message(1, 10, 10)).expect("room");
    let kept = client.kept_count();
    let mut pair = Pair::lossless(Some(client), SessionAnswer::New, 6, 1);
    pair.settle().expect("no fault");
    assert_eq!(pair.client.lost, Some(kept));
    assert!(pair.client.established.as_ref().is_some_and(|peer| !peer.resumed));
    pair.client.connection.send(message(9, 10, 10)).expect("room");
    pair.settle().expect("no fault");
    assert_eq!(pair.server.received, [message(9, 10, 10)]);
}

#[test]
fn a_restarted_peer_resets_the_session_that_is_kept_for_it() {
    let (_, mut server) = talked();
    server.send(&osd_config(SERVER_ADDR, 1), message(1, 10, 10)).expect("room");
    let mut pair = Pair::lossless(None, existing(server), 6, 1);
    pair.settle().expect("no fault");
    assert!(pair.server.lost.is_some_and(|lost| lost > 0));
    assert!(pair.client.received.is_empty());
    pair.server.connection.send(message(9, 10, 10)).expect("room");
    pair.settle().expect("no fault");
    assert_eq!(pair.client.received, [message(9, 10, 10)]);
}

#[test]
fn late_attempts_are_retried_with_later_numbers() {
    let (client, mut server) = talked();
    (server.peer_global_seq, server.connect_seq) = (50, 7);
    let mut pair = Pair::lossless(Some(client), existing(server), 6, 1);
    pair.settle().expect("no fault");
    assert!(pair.client.established.as_ref().is_some_and(|peer| peer.resumed));
    assert_eq!(pair.client.connection.global_seq(), 51);
    assert_eq!(pair.client.connection.into_session().expect("lossless").connect_seq, 8);
}

#[test]
fn a_stale_identification_is_dropped_and_the_session_kept() {
    let (_, mut server) = talked();
    server.peer_global_seq = 50;
    let mut pair = Pair::lossless(None, existing(server), 6, 1);
    assert_eq!(pair.settle(), Err(Fault::Stale { global_seq: 6, known: 50 }));
    assert!(pair.server.connection.into_session().is_some());
}

#[test]
fn of_two_attempts_the_lower_address_wins() {
    let (lower, higher) = (AddrVec::of(addr(SERVER_ADDR)), AddrVec::of(addr(OTHER_ADDR)));
    assert!(incoming_wins(&higher, &lower) && !incoming_wins(&lower, &higher));
    let mut pair = Pair::lossless(None, SessionAnswer::Wait, 1, 1);
    pair.client.connection.send(message(1, 10, 10)).expect("room");
    assert_eq!(pair.settle(), Err(Fault::Wait));
    let waiting = pair.client.connection.into_session().expect("lossless");
    assert_eq!(waiting.kept_count(), 1);
    // The other side's attempt arrives and takes the waiting session over.
    let target = Target { addr: addr(OTHER_ADDR), kind: EntityKind::OSD, gid: 1 };
    let dialler = Connection::connect(osd_config(SERVER_ADDR, 1), target, opening(2));
    let mut pair = Pair::of(dialler, accepted(osd_config(OTHER_ADDR, 2), 2), mode::CRC, 3);
    pair.server.answer = Some(existing(waiting));
    pair.settle().expect("no fault");
    assert_eq!(pair.client.received, [message(1, 10, 10)]);
}

#[test]
fn an_acknowledgement_of_the_future_is_refused() {
    let (client, mut server) = talked();
    server.in_seq = 99;
    let mut pair = Pair::lossless(Some(client), existing(server), 6, 1);
    assert!(matches!(pair.settle(), Err(Fault::Ack { acked: 99, .. })));
}
