//! Two messengers and other peers that dial, over sockets of this machine.

use super::*;
use nacre_env::real::RealNet;
use nacre_msgr::mode;
use nacre_types::EntityAddr;
use nacre_types::entropy::SeededEntropy;

fn osd(id: &str) -> AuthName {
    AuthName::new(EntityKind::OSD, id)
}

/// A messenger that dials, and what happened to it.
struct Dialler {
    messenger: Messenger,
    entropy: SeededEntropy,
    name: AuthName,
    open: bool,
}

impl Dialler {
    /// Dials as the OSD at `addrs`, and proves to be `name`.
    fn dial(addrs: &AddrVec, name: AuthName, server: &AddrVec, global_seq: u64) -> Self {
        let net = Box::new(RealNet::new().expect("an epoll"));
        let (mut messenger, mut entropy) = (Messenger::new(net, global_seq), SeededEntropy(global_seq));
        let config = Arc::new(Config::osd(addrs.clone(), 1));
        let target = Target { addr: server.front(), kind: EntityKind::OSD, gid: 1 };
        messenger.connect(config, target, None, Stamp(1), &mut entropy).expect("a socket");
        Self { messenger, entropy, name, open: false }
    }

    fn turn(&mut self) {
        let mut incoming = Vec::new();
        let wait = Some(Duration::from_millis(1));
        self.messenger.turn(Stamp(1), || Stamp(1), wait, &mut self.entropy, &mut incoming).expect("a poll");
        for what in incoming {
            let Incoming::Event { conn, event } = what else { continue };
            let name = self.name.to_string();
            self.messenger.drive(conn, |connection| match event {
                Event::Hello { .. } => connection.auth_start(1, &[mode::CRC], name.as_bytes()),
                Event::AuthDone { .. } => connection.auth_finish(&[], &[]),
                Event::Established(_) => {
                    self.open = true;
                    Ok(())
                }
                _ => Ok(()),
            });
        }
        self.messenger.flush();
    }
}

/// A messenger that is dialled, and what happened to it.
struct Server {
    messenger: Messenger,
    entropy: SeededEntropy,
    addrs: AddrVec,
    established: Vec<ConnId>,
    resets: usize,
    closed: Vec<ConnId>,
    messages: usize,
}

impl Server {
    fn new() -> Self {
        let mut messenger = Messenger::new(Box::new(RealNet::new().expect("an epoll")), 1);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listener, addr) = messenger.listen(any, false).expect("a port");
        let addrs = AddrVec::of(EntityAddr::msgr2(addr, 3));
        messenger.serve(listener, Arc::new(Config::osd(addrs.clone(), 0)));
        let entropy = SeededEntropy(1);
        Self {
            messenger,
            entropy,
            addrs,
            established: Vec::new(),
            resets: 0,
            closed: Vec::new(),
            messages: 0,
        }
    }

    fn turn(&mut self) {
        let mut incoming = Vec::new();
        let wait = Some(Duration::from_millis(1));
        self.messenger.turn(Stamp(1), || Stamp(1), wait, &mut self.entropy, &mut incoming).expect("a poll");
        for what in incoming {
            match what {
                Incoming::Event { conn, event: Event::AuthRequest { payload, .. } } => {
                    let name = AuthName::parse(&String::from_utf8_lossy(&payload)).expect("a name");
                    self.messenger.set_proved(conn, name);
                    self.messenger
                        .drive(conn, |connection| connection.auth_done(7, mode::CRC, &[], &[], &[]));
                }
                Incoming::Event { conn, event: Event::Established(peer) } => {
                    assert_eq!(peer.seen_at.socket.map(|at| at.ip().is_loopback()), Some(true));
                    self.established.push(conn);
                }
                Incoming::Event { event: Event::SessionReset { .. }, .. } => self.resets += 1,
                Incoming::Event { event: Event::Message(_), .. } => self.messages += 1,
                Incoming::Closed { conn, .. } => self.closed.push(conn),
                Incoming::Event { .. } => (),
            }
        }
        self.messenger.flush();
    }

    fn until_open(&mut self, dialler: &mut Dialler) {
        for _ in 0..2000 {
            self.turn();
            dialler.turn();
            if dialler.open {
                return;
            }
        }
        panic!("no session came about");
    }
}

#[test]
fn nobody_takes_the_session_of_another() {
    let mut server = Server::new();
    // As an OSD would say it listens there.
    let addrs = AddrVec::of(EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], 9)), 5));
    let ours = server.addrs.clone();
    let mut osd_1 = Dialler::dial(&addrs, osd("1"), &ours, 10);
    server.until_open(&mut osd_1);
    let first = server.established[0];

    // A client's key without any caps, and another OSD's: both say that they are the OSD at that address.
    for (global_seq, thief) in [(20, AuthName::new(EntityKind::CLIENT, "x")), (30, osd("2"))] {
        let mut dialler = Dialler::dial(&addrs, thief, &ours, global_seq);
        server.until_open(&mut dialler);
        assert!(server.messenger.has(first) && !server.closed.contains(&first));
        assert_eq!(server.resets, 0, "the session of osd.1 goes on");
    }

    // The OSD itself, started anew: its predecessor's session is over.
    let mut again = Dialler::dial(&addrs, osd("1"), &ours, 40);
    server.until_open(&mut again);
    assert!(!server.messenger.has(first));
    assert_eq!(server.resets, 1);
}

/// Peers that have connected and say nothing, as long as their sockets live.
fn half_open(server: &mut Server, count: usize) -> RealNet {
    let addr = server.addrs.front().socket.expect("an address");
    let mut net = RealNet::new().expect("an epoll");
    for _ in 0..count {
        net.connect(addr).expect("a socket");
        server.turn();
    }
    net
}

#[test]
fn who_proves_nothing_is_bounded_in_number() {
    let mut server = Server::new();
    let sockets = half_open(&mut server, half_open::PER_ADDRESS_MAX + 20);
    (0..50).for_each(|_| server.turn());
    let report = server.messenger.intake();
    assert_eq!((report.half_open, report.half_open_refused), (half_open::PER_ADDRESS_MAX, 20));
    assert!(report.half_open_bytes < half_open::BYTES_PER_ADDRESS_MAX);
    drop(sockets);
    for _ in 0..1000 {
        server.turn();
    }
    assert_eq!(server.messenger.intake().half_open, 0, "who has gone is forgotten");
    let addrs = AddrVec::of(EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], 9)), 5));
    let ours = server.addrs.clone();
    server.until_open(&mut Dialler::dial(&addrs, osd("1"), &ours, 10));
    assert_eq!(server.messenger.intake().half_open, 0, "nor does one count that has proved itself");
}

#[test]
fn a_deadline_costs_a_look_at_one_connection() {
    let mut server = Server::new();
    let sockets = half_open(&mut server, 200);
    (0..20).for_each(|_| server.turn());
    assert_eq!(server.messenger.conns.len(), 200);
    assert_eq!(server.messenger.deadlines.len(), 200);
    // Each at a moment of its own.
    let listed: Vec<(Stamp, ConnId)> = std::mem::take(&mut server.messenger.deadlines).into_iter().collect();
    for (nth, (_, id)) in listed.iter().enumerate() {
        let due = Stamp(1000 + nth as u64);
        server.messenger.conn(*id).expect("there").due = Some(due);
        server.messenger.deadlines.insert((due, *id));
    }
    let looked: usize = (0..200).map(|nth| server.messenger.run_deadlines(Stamp(1000 + nth))).sum();
    assert_eq!(looked, 200, "which was 20,100 when each looked at all");
    let end = Stamp(1) + nacre_msgr::HANDSHAKE_TIMEOUT;
    assert_eq!(server.messenger.deadlines.first().map(|(at, _)| *at), Some(end));
    assert_eq!(server.messenger.run_deadlines(end), 200);
    assert!(server.messenger.conns.is_empty(), "half-open connections end by themselves");
    drop(sockets);
}

#[test]
fn unfinished_messages_are_bounded_in_sum() {
    let mut server = Server::new();
    server.messenger.limit_intake(IntakeLimits { client_bytes: 64 << 20, peer_bytes: 16 << 20 });
    let ours = server.addrs.clone();
    let addrs = |port: u16| AddrVec::of(EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], port)), 5));
    let mut diallers: Vec<Dialler> = Vec::new();
    for nth in 0..8_u16 {
        let mut dialler = Dialler::dial(&addrs(10 + nth), osd(&nth.to_string()), &ours, 10 + u64::from(nth));
        server.until_open(&mut dialler);
        let conn = dialler.messenger.conns.iter().next().map(|(_, conn)| conn.id).expect("connected");
        let data = vec![7_u8; 6 << 20].into();
        let message = RawMessage {
            tid: 1,
            kind: 42,
            version: 1,
            compat: 1,
            priority: 1,
            front: vec![1; 8].into(),
            middle: vec![].into(),
            data,
        };
        assert!(dialler.messenger.send(conn, message));
        diallers.push(dialler);
    }
    // All have begun and none is complete: what a socket takes at once is less than a message.
    for _ in 0..3 {
        diallers.iter_mut().for_each(|dialler| dialler.messenger.flush());
        server.turn();
    }
    let held: usize = server.messenger.conns.iter().map(|(_, conn)| conn.connection.incoming_bytes()).sum();
    let report = server.messenger.intake();
    assert!(held <= 16 << 20, "{held} bytes in all");
    assert_eq!(report.peer_bytes, held);
    assert_eq!(report.waiting, 6, "nobody was dropped: {report:?}");
    // They wait, and all come through.
    for _ in 0..20_000 {
        server.turn();
        diallers.iter_mut().for_each(Dialler::turn);
        if server.messages == 8 {
            break;
        }
    }
    assert_eq!(server.messages, 8);
    let report = server.messenger.intake();
    assert_eq!((report.peer_bytes, report.waiting, server.closed.len()), (0, 0, 0));
}

#[test]
fn of_what_one_client_does_not_take_only_a_share_counts_for_others() {
    let mut server = Server::new();
    let addrs = AddrVec::of(EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], 10)), 5));
    let client = AuthName::new(EntityKind::CLIENT, "slow");
    let mut dialler = Dialler::dial(&addrs, client, &server.addrs.clone(), 10);
    server.until_open(&mut dialler);
    let (conn, share, long) = (server.established[0], 1 << 20, Duration::from_secs(60));
    server.messenger.share_unsent(share);
    let [front, middle] = [vec![1; 8].into(), vec![].into()];
    let (tid, kind, version, compat, priority) = (1, 42, 1, 1, 1);
    let data = vec![7_u8; 32 << 20].into();
    let message = RawMessage { tid, kind, version, compat, priority, front, middle, data };
    assert!(server.messenger.send(conn, message));
    server.messenger.flush();
    let messenger = &mut server.messenger;
    assert_eq!(
        (messenger.shared_unsent_bytes(), messenger.unsent_client_bytes()),
        (share, messenger.queued_bytes(conn))
    );
    assert!(messenger.unsent_client_bytes() > 16 << 20, "no socket takes all of it at once");
    messenger.share_unsent(2 * share);
    assert_eq!(messenger.shared_unsent_bytes(), 2 * share, "another share holds for what waits already");
    // It takes what the sockets hold, which is not enough.
    dialler.turn();
    messenger.flush();
    let in_time = Stamp(1) + long;
    messenger.excuse_unread(in_time);
    assert!(!messenger.end_unread(in_time, long, None));
    assert!(!messenger.end_unread(in_time + long, long, Some(conn)), "spared");
    assert!(messenger.end_unread(in_time + long, long, None));
    assert!(!messenger.end_unread(in_time + long, long, None), "there is no other");
    assert_eq!((messenger.shared_unsent_bytes(), messenger.unsent_client_bytes()), (0, 0));
    server.turn();
    assert_eq!(server.closed, [conn]);
}
