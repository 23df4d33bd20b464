//! Against a real Ceph cluster: authentication in both modes, maps, commands, rotating keys, and a session
//! with an OSD.
//!
//! Ignored, and counted as such, unless asked for: `cargo test -p nacre-monc --test real_cluster -- --ignored`. Needs
//! `NACRE_PEER_CONF` (a ceph.conf with `mon host`) and `NACRE_PEER_KEYRING` (with client.admin), and fails without them.
//! Writes nothing to the cluster. One test lasts three times as long as `NACRE_PEER_TICKET_TTL_S` says, which is to be what the
//! cluster's `auth_service_ticket_ttl` has been since it was made (20, say): secrets that were made for longer are renewed no sooner.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "this test is a driver with sockets and clocks, and says what it saw"
)]

use nacre_auth::{
    AuthMethod, Authorizer, ClientAuth, ConnectionMode, CryptoKey, Keyring, Offer, RotatingKeys,
    ServiceAuthContext, ServiceServer, Step, TicketForm,
};
use nacre_buf::BufList;
use nacre_denc::Decode;
use nacre_maps::OsdMap;
use nacre_monc::{Config, Context, Effect, Event as MoncEvent, Interest, LinkEvent, LinkId, MonClient};
use nacre_msg::Message;
use nacre_msgr::{Connection, Event, Opening, Target};
use nacre_types::{AuthName, EntityAddr, EntityKind, Entropy, Errno, Stamp, UTime};
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const PATIENCE: Duration = Duration::from_secs(20);

struct Kernel;

impl Entropy for Kernel {
    fn fill(&mut self, out: &mut [u8]) {
        getrandom::fill(out).expect("the kernel's generator");
    }
}

struct Clock(Instant);

impl Clock {
    fn now(&self) -> Stamp {
        Stamp(u64::try_from(self.0.elapsed().as_nanos()).expect("a short test"))
    }

    fn wall(&self) -> UTime {
        UTime::from_unix(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970"))
    }
}

/// A socket with the messenger on it.
struct Link {
    socket: TcpStream,
    connection: Connection,
}

impl Link {
    fn dial(addr: EntityAddr, kind: EntityKind, gid: i64, clock: &Clock) -> Self {
        let socket = TcpStream::connect(addr.socket.expect("a socket address")).expect("the daemon listens");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        socket.set_nodelay(true).expect("no delay");
        let config = Arc::new(nacre_msgr::Config::client(std::process::id()));
        let opening = Opening { now: clock.now(), global_seq: 1, cookie: Kernel.u64() | 1 };
        Self { socket, connection: Connection::connect(config, Target { addr, kind, gid }, opening) }
    }

    /// Writes what waits, reads what is there; false when the peer has gone.
    fn turn(&mut self, clock: &Clock) -> bool {
        while self.connection.wants_write() {
            let mut slices = [IoSlice::new(&[]); 16];
            let count = self.connection.out_slices(&mut slices);
            let written = self.socket.write_vectored(&slices[..count]).expect("a writable socket");
            self.connection.sent(written);
        }
        match self.socket.read(self.connection.recv_space()) {
            Ok(0) => false,
            Ok(count) => {
                self.connection.received(clock.now(), count).expect("valid frames");
                true
            }
            Err(error) => {
                matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
            }
        }
    }
}

/// A monitor client with its driver.
struct Driver {
    clock: Clock,
    client: MonClient,
    link: Option<(LinkId, Link)>,
    /// Effects for the caller.
    seen: Vec<Effect>,
    mode: Option<ConnectionMode>,
}

fn to_link_event(event: Event) -> Option<LinkEvent> {
    Some(match event {
        Event::Hello { .. } => LinkEvent::Hello,
        Event::AuthReplyMore { payload } => LinkEvent::AuthMore { payload },
        Event::AuthDone { global_id, mode, payload } => LinkEvent::AuthDone { global_id, mode, payload },
        Event::AuthBad { result, methods, .. } => LinkEvent::AuthBad { result, methods },
        Event::Established(_) => LinkEvent::Established,
        Event::Message(raw) => {
            LinkEvent::Message { tid: raw.tid, message: Message::decode(raw).expect("a valid message") }
        }
        Event::KeepaliveAck(_) => LinkEvent::KeepaliveAck,
        _ => return None,
    })
}

impl Driver {
    fn new(peer: &Peer, name: &str, key: &CryptoKey, offer: Offer, rotating: bool) -> Self {
        let services = [EntityKind::MON, EntityKind::OSD, EntityKind::MGR];
        let name = AuthName::parse(name).expect("a name");
        let auth = ClientAuth::new(name, Some(key.clone()), offer, &services);
        let config = Config { wants_rotating_keys: rotating, ..Config::new(vec![peer.mon]) };
        let mut driver = Self {
            clock: Clock(Instant::now()),
            client: MonClient::new(config, auth),
            link: None,
            seen: Vec::new(),
            mode: None,
        };
        let (now, wall) = (driver.clock.now(), driver.clock.wall());
        driver.client.start(&mut Context { now, wall, entropy: &mut Kernel });
        driver
    }

    fn handle(&mut self, event: MoncEvent) {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        self.client.handle(&mut Context { now, wall, entropy: &mut Kernel }, event);
    }

    fn carry_out(&mut self) {
        let mut effects = Vec::new();
        self.client.drain(&mut effects);
        for effect in effects {
            if let Effect::Connect { link, addr } = effect {
                self.link = Some((link, Link::dial(addr, EntityKind::MON, -1, &self.clock)));
                continue;
            }
            let Some((_, link)) = &mut self.link else {
                self.seen.push(effect);
                continue;
            };
            let connection = &mut link.connection;
            match effect {
                Effect::AuthStart { start, .. } => {
                    connection
                        .auth_start(start.method, &start.modes, &start.payload)
                        .expect("a live connection");
                }
                Effect::AuthMore { payload, .. } => {
                    connection.auth_request_more(&payload).expect("a live connection")
                }
                Effect::AuthFinish { keys, .. } => {
                    self.mode = Some(keys.mode);
                    connection
                        .auth_finish(&keys.session_key, &keys.connection_secret)
                        .expect("a live connection");
                }
                Effect::Send { tid, message, .. } => {
                    connection.send(message.encode(tid)).expect("a live connection")
                }
                Effect::Keepalive { .. } => connection.send_keepalive(self.clock.wall()),
                Effect::Close { .. } => self.link = None,
                other => self.seen.push(other),
            }
        }
    }

    fn turn(&mut self) {
        self.carry_out();
        let Some((id, link)) = &mut self.link else {
            std::thread::sleep(Duration::from_millis(10));
            return self.handle(MoncEvent::Tick);
        };
        let id = *id;
        let alive = link.turn(&self.clock);
        while let Some(event) = self.link.as_mut().and_then(|(_, link)| link.connection.next_event()) {
            if let Some(event) = to_link_event(event) {
                self.handle(MoncEvent::Link(id, event));
                self.carry_out();
            }
        }
        if !alive {
            self.link = None;
            self.handle(MoncEvent::Link(id, LinkEvent::Lost));
        }
        if self.client.next_deadline().is_some_and(|at| at <= self.clock.now()) {
            self.handle(MoncEvent::Tick);
        }
    }

    /// Runs until `wanted` finds something among the effects.
    fn until<T>(&mut self, what: &str, wanted: impl Fn(&Effect) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = self.seen.iter().find_map(&wanted) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "waited for {what}, saw {:?}", self.seen);
            self.turn();
        }
    }

    fn opened(&mut self) -> u64 {
        self.until("a session", |effect| match effect {
            Effect::Opened { global_id, .. } => Some(*global_id),
            _ => None,
        })
    }

    fn command(&mut self, json: &str) -> (i32, String) {
        let wanted = self.client.command(vec![json.to_owned()], BufList::new()).expect("room");
        self.until("a command's answer", |effect| match effect {
            Effect::CommandDone { tid, result, data, .. } if *tid == wanted => {
                Some((*result, String::from_utf8_lossy(&data.to_bytes()).into_owned()))
            }
            _ => None,
        })
    }

    fn osdmap(&mut self) -> OsdMap {
        self.client.subscribe("osdmap", 0, Interest::Once);
        let bytes = self.until("an OSD map", |effect| match effect {
            Effect::Deliver { message: Message::MOsdMap(map), .. } => map.full.values().next_back().cloned(),
            _ => None,
        });
        OsdMap::from_bytes(bytes).expect("a valid map")
    }

    fn authorizer(&mut self, offer: &Offer) -> Authorizer {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let mut cx = Context { now, wall, entropy: &mut Kernel };
        self.client.authorizer(&mut cx, EntityKind::OSD, offer).expect("an OSD ticket")
    }
}

/// Where the cluster is and the key to it.
struct Peer {
    mon: EntityAddr,
    admin: CryptoKey,
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: see the head of this file"))
}

fn peer() -> Peer {
    let (conf, keyring) = (variable("NACRE_PEER_CONF"), variable("NACRE_PEER_KEYRING"));
    let conf = std::fs::read_to_string(conf).expect("a readable ceph.conf");
    let hosts = conf.lines().filter_map(|line| line.split_once('='));
    let host = hosts.into_iter().find(|(name, _)| name.trim().replace('_', " ") == "mon host");
    let host = host.expect("a line `mon host`").1.split(',').next().expect("a host").trim().to_owned();
    let keyring = std::fs::read_to_string(keyring).expect("a readable keyring");
    let keyring = Keyring::parse(&keyring).expect("a valid keyring");
    let admin = keyring.get(&AuthName::new(EntityKind::CLIENT, "admin")).expect("client.admin");
    Peer { mon: EntityAddr::parse(&host).expect("v2:ip:port"), admin: admin.key.clone() }
}

fn only(mode: ConnectionMode) -> Offer {
    Offer { methods: vec![AuthMethod::Cephx], modes: vec![mode] }
}

#[test]
#[ignore = "needs a real Ceph: see the head of the file"]
fn a_session_in_each_mode_gets_maps_versions_and_answers() {
    let peer = peer();
    for mode in [ConnectionMode::Crc, ConnectionMode::Secure] {
        let mut driver = Driver::new(&peer, "client.admin", &peer.admin, only(mode), false);
        assert!(driver.opened() > 0);
        assert_eq!(driver.mode, Some(mode));
        assert!(driver.osdmap().up_count() > 0);
        let (result, output) = driver.command(r#"{"prefix":"mon stat","format":"json"}"#);
        assert_eq!(result, 0, "{output}");
        let (result, _) = driver.command(r#"{"prefix":"no such command"}"#);
        assert_eq!(Errno(-result), Errno::EINVAL);
        let handle = driver.client.get_version("osdmap").expect("room");
        let newest = driver.until("a version", |effect| match effect {
            Effect::Version { handle: found, newest, .. } if *found == handle => Some(*newest),
            _ => None,
        });
        assert!(newest > 0);
        assert!(driver.client.monmap().is_some_and(|map| !map.mons.is_empty()));
    }
}

#[test]
#[ignore = "needs a real Ceph: see the head of the file"]
fn wrong_keys_and_unknown_names_are_refused_alike() {
    let peer = peer();
    let wrong = CryptoKey::generate(&mut Kernel, UTime::ZERO);
    for name in ["client.admin", "client.nobody-of-this-name"] {
        let mut driver = Driver::new(&peer, name, &wrong, only(ConnectionMode::Crc), false);
        let errno = driver.until("a refusal", |effect| match effect {
            Effect::Refused { errno } => Some(*errno),
            _ => None,
        });
        assert_eq!(errno, Errno::EACCES, "{name}");
    }
}

#[test]
#[ignore = "needs a real Ceph: see the head of the file"]
fn a_method_that_is_not_allowed_is_refused() {
    let peer = peer();
    let mut driver = Driver::new(&peer, "client.admin", &peer.admin, Offer::no_auth(), false);
    let errno = driver.until("a refusal", |effect| match effect {
        Effect::Refused { errno } => Some(*errno),
        _ => None,
    });
    assert_eq!(errno, Errno::EOPNOTSUPP);
}

#[test]
#[ignore = "needs a real Ceph: see the head of the file"]
fn a_session_is_found_again_under_the_same_number() {
    let peer = peer();
    let mut driver = Driver::new(&peer, "client.admin", &peer.admin, only(ConnectionMode::Secure), false);
    let first = driver.opened();
    driver.command(r#"{"prefix":"mon stat"}"#);
    let (id, _link) = driver.link.take().expect("a link");
    driver.seen.clear();
    driver.handle(MoncEvent::Link(id, LinkEvent::Lost));
    assert_eq!(driver.opened(), first, "the old ticket proves that the number is ours");
    assert!(driver.osdmap().epoch > 0);
}

fn rotating_keys(driver: &mut Driver) -> Result<RotatingKeys, Errno> {
    driver.until("rotating keys", |effect| match effect {
        Effect::RotatingKeys(keys) => Some(Ok(keys.clone())),
        Effect::RotatingRefused { errno } => Some(Err(*errno)),
        _ => None,
    })
}

#[test]
#[ignore = "needs a real Ceph: see the head of the file"]
fn secrets_are_for_daemons_and_open_real_tickets() {
    let peer = peer();
    let mut admin = Driver::new(&peer, "client.admin", &peer.admin, only(ConnectionMode::Secure), true);
    let refused = rotating_keys(&mut admin).expect_err("a client is no daemon");
    println!("rotating keys for a client: {refused}");
    let (result, keyring) = admin.command(r#"{"prefix":"auth get","entity":"osd.0"}"#);
    assert_eq!(result, 0);
    let keyring = Keyring::parse(&keyring).expect("a valid keyring");
    let osd = keyring.get(&AuthName::new(EntityKind::OSD, "0")).expect("osd.0").key.clone();
    let mut daemon = Driver::new(&peer, "osd.0", &osd, only(ConnectionMode::Crc), true);
    let keys = rotating_keys(&mut daemon).expect("an OSD gets them");
    assert_eq!(keys.iter().count(), 3);

    // The real monitor made the ticket and the secrets; our service half must understand both.
    let mut authorizer = admin.authorizer(&Offer::crc_first());
    let mut server = ServiceServer::new(EntityKind::OSD, TicketForm::Ceph, Offer::crc_first());
    let wall = admin.clock.wall();
    let mut cx = ServiceAuthContext { keys: &keys, wall, entropy: &mut Kernel };
    let start = authorizer.start();
    let Step::More(challenge) = server.request(&mut cx, start.method, &start.modes, start.payload) else {
        panic!("the ticket was not understood")
    };
    let answer = authorizer.more(&challenge).expect("our own challenge");
    let Step::Done(done) = server.more(&mut cx, answer) else { panic!("the answer was not understood") };
    assert_eq!(done.identity.name.to_string(), "client.admin");
    assert_eq!(done.identity.caps, "allow *");
    assert!(
        done.identity.expires.is_some_and(|at| at > wall && at < wall.after(Duration::from_secs(86_400)))
    );
    assert_eq!(done.global_id, admin.client.global_id());
}

/// Opens a session with an OSD by a ticket; gives the mode that it chose.
fn open_osd(driver: &mut Driver, addr: EntityAddr, offer: &Offer) -> ConnectionMode {
    let mut authorizer = driver.authorizer(offer);
    let gid = i64::try_from(driver.client.global_id()).expect("a small number");
    let mut link = Link::dial(addr, EntityKind::OSD, gid, &driver.clock);
    let (start, mut chosen) = (Instant::now(), None);
    loop {
        assert!(link.turn(&driver.clock), "the OSD hung up");
        assert!(start.elapsed() < PATIENCE, "the OSD does not answer");
        while let Some(event) = link.connection.next_event() {
            match event {
                Event::Hello { .. } => {
                    let start = authorizer.start();
                    link.connection.auth_start(start.method, &start.modes, &start.payload).expect("alive");
                }
                Event::AuthReplyMore { payload } => {
                    let answer = authorizer.more(&payload).expect("a readable challenge");
                    link.connection.auth_request_more(&answer).expect("alive");
                }
                Event::AuthDone { mode, payload, .. } => {
                    let keys = authorizer.done(mode, payload).expect("a proof");
                    chosen = Some(keys.mode);
                    link.connection.auth_finish(&keys.session_key, &keys.connection_secret).expect("alive");
                }
                Event::AuthBad { result, .. } => panic!("the OSD refuses: {result}"),
                Event::Established(_) => return chosen.expect("authenticated before"),
                _ => {}
            }
        }
    }
}

#[test]
#[ignore = "needs a real Ceph: see the head of the file"]
fn an_osd_accepts_our_ticket_in_both_modes() {
    let peer = peer();
    let mut driver = Driver::new(&peer, "client.admin", &peer.admin, only(ConnectionMode::Crc), false);
    driver.opened();
    let map = driver.osdmap();
    let osd = map.up_osds().next().expect("an OSD that is up");
    let addr = map.client_addr(osd).and_then(|addrs| addrs.msgr2()).expect("a messenger v2 address");
    for mode in [ConnectionMode::Crc, ConnectionMode::Secure] {
        assert_eq!(open_osd(&mut driver, addr, &only(mode)), mode);
    }
}

/// Runs through several ticket lifetimes: tickets and rotating keys must be renewed in time, all the time.
#[test]
#[ignore = "needs a real Ceph: see the head of the file"]
fn a_long_session_never_runs_out_of_tickets() {
    let ttl: u64 = variable("NACRE_PEER_TICKET_TTL_S").parse().expect("seconds");
    let peer = peer();
    let mut admin = Driver::new(&peer, "client.admin", &peer.admin, only(ConnectionMode::Crc), false);
    let first = admin.opened();
    let (_, keyring) = admin.command(r#"{"prefix":"auth get","entity":"osd.0"}"#);
    let keyring = Keyring::parse(&keyring).expect("a valid keyring");
    let osd = keyring.get(&AuthName::new(EntityKind::OSD, "0")).expect("osd.0").key.clone();
    let mut daemon = Driver::new(&peer, "osd.0", &osd, only(ConnectionMode::Crc), true);
    let map = admin.osdmap();
    let up = map.up_osds().next().expect("an OSD that is up");
    let addr = map.client_addr(up).and_then(|addrs| addrs.msgr2()).expect("a messenger v2 address");
    let (start, mut dialled) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(3 * ttl) {
        admin.turn();
        daemon.turn();
        if start.elapsed() > Duration::from_secs(dialled * ttl / 5) {
            dialled += 1;
            open_osd(&mut admin, addr, &only(ConnectionMode::Crc));
            let keys = daemon.seen.iter().rev().find_map(|effect| match effect {
                Effect::RotatingKeys(keys) => Some(keys.clone()),
                _ => None,
            });
            let Some(keys) = keys else { continue };
            let start = admin.authorizer(&Offer::crc_first()).start();
            let mut server = ServiceServer::new(EntityKind::OSD, TicketForm::Ceph, Offer::crc_first());
            let wall = admin.clock.wall();
            let mut cx = ServiceAuthContext { keys: &keys, wall, entropy: &mut Kernel };
            let step = server.request(&mut cx, start.method, &start.modes, start.payload);
            assert!(matches!(step, Step::More(_)), "our copy of the secrets is stale: {step:?}");
        }
    }
    let fetched = daemon.seen.iter().filter(|effect| matches!(effect, Effect::RotatingKeys(_))).count();
    println!("{dialled} sessions with an OSD, secrets fetched {fetched} times");
    assert!(fetched >= 2);
    for driver in [&admin, &daemon] {
        assert!(!driver.seen.iter().any(|effect| matches!(effect, Effect::Lost)), "one session all the time");
    }
    assert_eq!(admin.client.global_id(), first);
}
