//! Clients' messages that wait for memory, from the socket to the shard of their PG, and clients that do not take their answers.

use crate::awaiting_memory::tests::osd_op;
use crate::client_limits::Limits;
use crate::config::{Bind, OsdConfig};
use crate::shard::Shard;
use crate::shard_msg::ShardMsg;
use crate::shard_net::KeptOut;
use crate::start::{Machine, assemble};
use crate::storage::StoreConfig;
use nacre_auth::{AuthMethod, CryptoKey};
use nacre_env::RealClock;
use nacre_env::real::RealNet;
use nacre_msg::osd_op::{WatchArgs, code, watch_op};
use nacre_msg::{Message, OsdBackoff, OsdOp, RawMessage, SubOp, backoff_op};
use nacre_msgr::{Config, Event, Target, mode};
use nacre_pg::{ClientOp, Tuning};
use nacre_service::{ConnId, Incoming, Messenger};
use nacre_store::MemStore;
use nacre_types::entropy::SeededEntropy;
use nacre_types::{AddrVec, AuthName, EntityAddr, EntityKind, HObject, PgId, SpgId, Stamp, UTime, Uuid};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of clients' messages and answers.
const MAX: usize = 4 << 20;
/// What of it is one client's.
const SHARE: u64 = 1 << 20;
/// Not taken by any socket at once.
const LONG_ANSWER_BYTES: usize = 32 << 20;

fn at(second: u64) -> Stamp {
    Stamp::default() + Duration::from_secs(second)
}

/// Of an OSD with so many shards that reaches no monitor.
pub(crate) fn config(shards: usize) -> OsdConfig {
    OsdConfig {
        id: 0,
        uuid: Uuid::default(),
        fsid: Uuid::default(),
        key: CryptoKey::generate(&mut SeededEntropy(2), UTime::ZERO),
        monitors: Vec::new(),
        methods: vec![AuthMethod::None],
        bind: Bind::any_port(Ipv4Addr::LOCALHOST.into()),
        ceph: None,
        shards: Some(shards),
        store: StoreConfig::Memory { capacity_bytes: 1 << 20 },
        host: "host".to_owned(),
        machine_facts: BTreeMap::new(),
        admin_socket: None,
        process_memory_bytes: 0,
        give_back_memory: || (),
    }
}

/// On the second shard.
fn spg() -> SpgId {
    SpgId::replicated(PgId::new(1, 0))
}

/// The first shard of an OSD, where clients are, and the second, where the PG would be: what it is sent is let go of as the test says.
struct Shards {
    first: Shard,
    second: Shard,
    clients: u64,
}

/// What the PG's shard was sent.
enum Sent {
    Op(ClientOp),
    Ack(u64),
}

/// An OSD of two shards that reaches no monitor.
pub(crate) fn two_shards() -> (Shard, Shard) {
    let machine = |_| {
        let net = RealNet::new().expect("an epoll");
        let waker = net.waker();
        Machine {
            clock: Box::new(RealClock::start()),
            entropy: Box::new(SeededEntropy(1)),
            net: Box::new(net),
            waker,
            store: Box::new(MemStore::new(1 << 20)),
            tuning: Tuning::default(),
        }
    };
    let osd = assemble(&config(2), 2, (0..2).map(machine).collect()).expect("ports");
    let mut shards = osd.shards.into_iter();
    (shards.next().expect("the first"), shards.next().expect("the second"))
}

impl Shards {
    /// With as many clients, on connections that end nowhere.
    fn new(clients: u64) -> Self {
        let (mut first, second) = two_shards();
        first.now = at(0);
        first.net.sessions.set_limits(Limits { bytes: MAX, ..Limits::default() }, &mut first.net.messenger);
        for number in 1..=clients {
            first.net.sessions.let_in(Self::conn(number), number);
        }
        Self { first, second, clients }
    }

    /// Of a client that has no socket.
    fn conn(client: u64) -> ConnId {
        ConnId(u64::MAX - client)
    }

    fn message(&mut self, client: u64, raw: RawMessage) {
        let (conn, event) = (Self::conn(client), Event::Message(raw));
        self.first.dispatch().incoming(Incoming::Event { conn, event });
    }

    /// A client sends a message with this one operation.
    fn op(&mut self, client: u64, tid: u64, op: SubOp) {
        let op = OsdOp { ops: vec![op], ..osd_op("object") };
        self.message(client, Message::from(op).encode(tid));
    }

    /// A client says that it holds its messages.
    fn ack(&mut self, client: u64, id: u64) {
        let (begin, end) = (HObject::MIN, HObject::max_value());
        let ack = OsdBackoff { spg: spg(), map_epoch: 1, op: backoff_op::ACK_BLOCK, id, begin, end };
        self.message(client, Message::from(ack).encode(0));
    }

    /// What the PG's shard was sent since; messages hold what they count for until they are dropped.
    fn sent(&mut self) -> Vec<Sent> {
        let sent = |msg| match msg {
            ShardMsg::Op(_, op) => Some(Sent::Op(op)),
            ShardMsg::BackoffAck { id, .. } => Some(Sent::Ack(id)),
            _ => None,
        };
        self.second.mailbox.take().filter_map(sent).collect()
    }

    /// Messages that waited go on, if they may.
    fn admitted(&mut self) -> Vec<Sent> {
        self.first.dispatch().admit_waiting();
        self.sent()
    }

    /// What a shard does each second.
    fn tick(&mut self, second: u64) {
        self.first.now = at(second);
        let (dispatch, background) = self.first.lend();
        let mut parts = dispatch.parts;
        background.periodic.tick(parts.pgs, &mut parts.cx, background.give_back_memory);
    }

    /// A client dials, is sent more than its socket takes, and takes nothing of it.
    fn slow_client(&mut self) -> (Messenger, ConnId) {
        let own = &mut self.first.net.messenger;
        let (listener, addr) = own.listen(SocketAddr::from(([127, 0, 0, 1], 0)), false).expect("a port");
        let addr = EntityAddr::msgr2(addr, 3);
        own.serve(listener, Arc::new(Config::osd(AddrVec::of(addr), 0)));
        self.clients += 1;
        let mut client = Messenger::new(Box::new(RealNet::new().expect("an epoll")), self.clients);
        let (mut entropy, wait) = (SeededEntropy(self.clients), Some(Duration::from_millis(1)));
        let target = Target { addr, kind: EntityKind::OSD, gid: 0 };
        client.connect(Arc::new(Config::client(7)), target, None, at(0), &mut entropy).expect("a socket");
        let name = AuthName::new(EntityKind::CLIENT, "slow");
        let mut established = None;
        for _ in 0..2000 {
            let (own, mut events) = (&mut self.first.net.messenger, Vec::new());
            own.turn(at(0), || at(0), wait, &mut entropy, &mut events).expect("a poll");
            for event in events {
                match event {
                    Incoming::Event { conn, event: Event::AuthRequest { .. } } => {
                        own.set_proved(conn, name.clone());
                        own.drive(conn, |connection| connection.auth_done(7, mode::CRC, &[], &[], &[]));
                    }
                    Incoming::Event { conn, event: Event::Established(_) } => established = Some(conn),
                    _ => (),
                }
            }
            own.flush();
            if let Some(conn) = established {
                self.first.net.sessions.let_in(conn, self.clients);
                assert!(own.send(conn, answer()));
                own.flush();
                return (client, conn);
            }
            let mut events = Vec::new();
            client.turn(at(0), || at(0), wait, &mut entropy, &mut events).expect("a poll");
            for event in events {
                let Incoming::Event { conn, event } = event else { continue };
                client.drive(conn, |connection| match event {
                    Event::Hello { .. } => connection.auth_start(1, &[mode::CRC], b"slow"),
                    Event::AuthDone { .. } => connection.auth_finish(&[], &[]),
                    _ => Ok(()),
                });
            }
            client.flush();
        }
        panic!("no session came about");
    }

    /// Those of these connections that are there.
    fn open(&self, slow: &[(Messenger, ConnId)]) -> usize {
        slow.iter().filter(|(_, conn)| self.first.net.messenger.has(*conn)).count()
    }
}

fn answer() -> RawMessage {
    let [front, middle] = [vec![1; 8].into(), vec![].into()];
    let data = vec![7_u8; LONG_ANSWER_BYTES].into();
    RawMessage { tid: 1, kind: 43, version: 1, compat: 1, priority: 1, front, middle, data }
}

fn read(bytes: u64) -> SubOp {
    SubOp::read(0, bytes)
}

fn write(bytes: usize) -> SubOp {
    SubOp::write_full(vec![7; bytes].into())
}

/// Whose messages those are and their numbers; acknowledgements have their own number, and are nobody's.
fn numbers(sent: &[Sent]) -> Vec<(u64, u64)> {
    let number = |sent: &Sent| match sent {
        Sent::Op(op) => (op.session.id.0, op.tid),
        Sent::Ack(id) => (0, *id),
    };
    sent.iter().map(number).collect()
}

/// Else the PG would drop what the client sent first, and take what it sent later.
#[test]
fn an_acknowledgement_of_a_backoff_does_not_overtake_what_its_client_sent_before() {
    let mut shards = Shards::new(6);
    (1..=4).for_each(|client| shards.op(client, 1, read(SHARE)));
    let under_way = shards.sent();
    assert_eq!(numbers(&under_way), [(1, 1), (2, 1), (3, 1), (4, 1)]);
    shards.op(5, 1, read(SHARE));
    shards.op(5, 2, write(10));
    shards.ack(5, 77);
    shards.op(5, 3, write(10));
    shards.ack(6, 88);
    assert_eq!(numbers(&shards.sent()), [(0, 88)], "which sent nothing else");
    assert_eq!(numbers(&shards.admitted()), []);
    drop(under_way);
    assert_eq!(numbers(&shards.admitted()), [(5, 1), (5, 2), (0, 77), (5, 3)]);
}

#[test]
fn what_asks_for_nothing_passes_those_that_wait_for_memory() {
    let mut shards = Shards::new(9);
    (1..=4).for_each(|client| shards.op(client, 1, read(SHARE)));
    let under_way = shards.sent();
    shards.op(5, 1, read(SHARE));
    shards.op(6, 1, read(10));
    assert_eq!(numbers(&shards.sent()), []);
    shards.op(7, 1, SubOp::new(code::NOTIFY_ACK).with_indata(vec![0; 16].into()));
    shards.op(8, 1, SubOp::with_watch(WatchArgs { op: watch_op::PING, ..WatchArgs::default() }));
    shards.op(9, 1, write(10));
    assert_eq!(numbers(&shards.sent()), [(7, 1), (8, 1), (9, 1)]);
    assert_eq!(shards.first.net.sessions.paused(), [6, 5].map(Shards::conn), "those that wait");
    drop(under_way);
    assert_eq!(numbers(&shards.admitted()), [(5, 1), (6, 1)], "the longer was before");
}

/// Its length is not known, and it may wait there for long.
#[test]
fn a_read_to_the_end_of_an_object_that_is_in_its_pg_keeps_nobody_else_waiting() {
    let mut shards = Shards::new(2);
    shards.op(1, 1, read(0));
    let in_pg = shards.sent();
    assert_eq!(numbers(&in_pg), [(1, 1)]);
    shards.op(2, 1, read(SHARE));
    shards.op(2, 2, write(100 << 10));
    assert_eq!(numbers(&shards.sent()), [(2, 1), (2, 2)]);
    assert_eq!(shards.first.net.sessions.paused(), []);
    shards.op(1, 2, read(SHARE));
    assert_eq!(numbers(&shards.sent()), [], "its own share is spent");
    drop(in_pg);
    assert_eq!(numbers(&shards.admitted()), [(1, 2)]);
}

#[test]
fn a_message_longer_than_the_limit_that_is_in_its_pg_stops_neither_its_client_nor_others() {
    let mut shards = Shards::new(3);
    shards.op(1, 1, write(10 * MAX));
    let in_pg = shards.sent();
    shards.op(1, 2, read(SHARE / 2));
    shards.op(2, 1, write(10));
    assert_eq!(numbers(&shards.sent()), [(1, 2), (2, 1)]);
    assert_eq!(shards.first.net.sessions.paused(), []);
    shards.op(3, 1, write(10 * MAX));
    assert_eq!(shards.first.net.sessions.paused().len(), 3, "two of them are too much");
    assert_eq!(numbers(&in_pg), [(1, 1)]);
}

#[test]
fn clients_that_take_no_answers_are_hung_up_on_where_others_wait_for_just_that() {
    let mut shards = Shards::new(2);
    let slow: Vec<_> = (0..5).map(|_| shards.slow_client()).collect();
    let messenger = &shards.first.net.messenger;
    assert_eq!(messenger.shared_unsent_bytes(), 5 * SHARE as usize, "a share of each");
    // They keep nobody from writing.
    shards.op(1, 1, write(100 << 10));
    assert_eq!(numbers(&shards.sent()), [(1, 1)]);
    assert_eq!(shards.first.net.sessions.paused(), []);
    (1..=60).for_each(|second| shards.tick(second));
    assert_eq!(shards.open(&slow), 5, "nobody waits for them");
    shards.op(1, 2, read(4096));
    assert_eq!(numbers(&shards.sent()), []);
    let net = &shards.first.net;
    let kept_out = net.kept_out(&shards.first.pg_driver.awaiting_memory);
    assert_eq!(kept_out, KeptOut::One(Some(Shards::conn(1))));
    shards.tick(61);
    assert_eq!(shards.open(&slow), 5, "for a moment yet");
    shards.tick(62);
    assert_eq!(shards.open(&slow), 4, "as few as make room");
    assert_eq!(numbers(&shards.admitted()), [(1, 2)]);
    shards.op(2, 1, read(4096));
    (63..=120).for_each(|second| shards.tick(second));
    assert_eq!((numbers(&shards.sent()), shards.open(&slow)), (vec![(2, 1)], 4));
}

/// As long as they have had six seconds in which this thread sent.
#[test]
fn who_waits_for_others_to_take_their_answers_waits_no_longer_than_seconds() {
    let mut shards = Shards::new(1);
    let slow: Vec<_> = (0..5).map(|_| shards.slow_client()).collect();
    shards.tick(1);
    shards.op(1, 1, read(4096));
    (2..=5).for_each(|second| shards.tick(second));
    assert_eq!((shards.open(&slow), numbers(&shards.admitted())), (5, vec![]));
    // The thread did nothing for a while.
    (10..=15).for_each(|second| shards.tick(second));
    assert_eq!((shards.open(&slow), numbers(&shards.admitted())), (5, vec![]));
    shards.tick(16);
    assert_eq!((shards.open(&slow), numbers(&shards.admitted())), (4, vec![(1, 1)]));
}
