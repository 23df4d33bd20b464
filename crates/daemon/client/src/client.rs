//! [`Client`]: the client of the monitors and the objecter over connections.

mod tells;

use crate::Access;
use nacre_auth::{Authorizer, ClientAuth, Offer};
use nacre_buf::BufList;
use nacre_denc::Decode;
use nacre_env::Clock;
use nacre_maps::MapError;
use nacre_monc::{
    Config as MoncConfig, Context, Effect, Event, Interest, LinkEvent, LinkId, MonClient,
    TooMany as TooManyQuestions,
};
use nacre_msg::{Message, OsdOpReply, PoolOp, RawMessage, WatchNotify};
use nacre_msgr::{Config as MsgrConfig, Event as ConnEvent, Target};
use nacre_objecter::{Effect as ObjecterEffect, Objecter, Request, TooMany};
use nacre_service::{ConnId, Incoming, Messenger, mon_link_event};
use nacre_types::{AddrVec, EntityAddr, EntityKind, Entropy, Errno, OsdId, SnapId, Stamp, UTime};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tells::Tell;

/// Pool operations under way at most.
const POOL_OPS_MAX: usize = 1024;
/// A pool operation that is not answered is sent again.
const POOL_OP_RETRY: Duration = Duration::from_secs(2);

/// Something that the client was asked for is finished.
#[derive(Debug)]
pub enum Finished {
    /// An operation on an object.
    Op {
        /// Number under which it was begun.
        tid: u64,
        /// The OSD's answer, or why there is none.
        outcome: Result<Box<OsdOpReply>, Errno>,
    },
    /// A command has been answered.
    Command {
        /// Number under which it was begun.
        tid: u64,
        /// 0 or a negative errno.
        result: i32,
        /// The status line.
        status: String,
        /// Output of the command.
        data: BufList,
    },
    /// A self-managed snapshot exists.
    Snapshot(SnapId),
    /// An OSD speaks of a watch or a notify of this client.
    Notified(Box<WatchNotify>),
}

/// Why a client cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The monitors do not let us in.
    #[error("the monitor refuses us: {0}")]
    Refused(Errno),
    /// A map does not decode, or does not follow the one before.
    #[error("an OSD map does not decode or does not follow ours")]
    Map(#[source] MapError),
    /// The system cannot wait for sockets any more.
    #[error("cannot wait for sockets")]
    Sockets(#[source] std::io::Error),
    /// The epoch of a map is larger than epochs can be.
    #[error("the monitors report an epoch out of range")]
    Epoch,
}

struct Link {
    conn: ConnId,
    addr: EntityAddr,
    authorizer: Option<Authorizer>,
    is_open: bool,
}

/// See the module's documentation.
pub struct Client {
    clock: Box<dyn Clock>,
    entropy: Box<dyn Entropy + Send>,
    messenger: Messenger,
    msgr: Arc<MsgrConfig>,
    monc: MonClient,
    /// What is offered to OSDs.
    offer: Offer,
    mon_link: Option<(LinkId, ConnId)>,
    objecter: Objecter,
    links: BTreeMap<OsdId, Link>,
    tells: BTreeMap<u64, Tell>,
    wanted: bool,
    pool_ops: BTreeMap<u64, (PoolOp, Stamp)>,
    /// Questions for the newest map, and the operations that they are for.
    questions: BTreeMap<u64, u64>,
    finished: Vec<Finished>,
    incoming: Vec<Incoming>,
    bad_messages: u64,
    failure: Option<Failure>,
}

impl Client {
    /// A client that does nothing before [`Client::begin`].
    #[must_use]
    pub fn new(
        access: Access,
        clock: Box<dyn Clock>,
        mut entropy: Box<dyn Entropy + Send>,
        messenger: Messenger,
    ) -> Self {
        let services = [EntityKind::MON, EntityKind::OSD];
        let (mon_offer, offer) = access.modes;
        let auth = ClientAuth::new(access.name, Some(access.key), mon_offer, &services);
        let nonce = u32::try_from(entropy.u64() >> 32).unwrap_or(0).max(1);
        let mut monc = MonClient::new(MoncConfig::new(access.monitors), auth);
        monc.subscribe("osdmap", 0, Interest::Once);
        Self {
            clock,
            entropy,
            messenger,
            msgr: Arc::new(MsgrConfig::client(nonce)),
            monc,
            offer,
            mon_link: None,
            objecter: Objecter::default(),
            links: BTreeMap::new(),
            tells: BTreeMap::new(),
            wanted: false,
            pool_ops: BTreeMap::new(),
            questions: BTreeMap::new(),
            finished: Vec::new(),
            incoming: Vec::new(),
            bad_messages: 0,
            failure: None,
        }
    }

    /// Looks for a monitor.
    pub fn begin(&mut self) {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        self.monc.start(&mut Context { now, wall, entropy: self.entropy.as_mut() });
        self.flush();
    }

    /// Sends what was begun since the last turn; [`Client::turn`] does so at its end.
    pub fn flush(&mut self) {
        self.run_effects();
        self.messenger.flush();
    }

    /// Messages of peers that did not decode. Each ended its connection.
    #[must_use]
    pub fn bad_messages(&self) -> u64 {
        self.bad_messages
    }

    /// The global id of this client, as outcomes of notifies name it; 0 before a monitor has said so.
    #[must_use]
    pub fn global_id(&self) -> u64 {
        self.monc.global_id()
    }

    /// Where the monitor is with which it has a session.
    #[must_use]
    pub fn monitor(&self) -> Option<EntityAddr> {
        self.monc.monitor()
    }

    /// The objecter, to look at.
    #[must_use]
    pub fn objecter(&self) -> &Objecter {
        &self.objecter
    }

    /// Takes what is finished.
    pub fn take_finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    /// Begins an operation. It goes out with [`Client::flush`].
    ///
    /// # Errors
    /// When far too many are under way.
    pub fn submit(&mut self, request: Request) -> Result<u64, TooMany> {
        self.objecter.submit(self.clock.now(), request)
    }

    /// Begins a command, JSON. It goes out with [`Client::flush`].
    ///
    /// # Errors
    /// When far too many are under way.
    pub fn command(&mut self, json: &str) -> Result<u64, TooManyQuestions> {
        self.command_with(json, BufList::new())
    }

    /// As [`Client::command`], with input.
    ///
    /// # Errors
    /// When far too many are under way.
    pub fn command_with(&mut self, json: &str, input: BufList) -> Result<u64, TooManyQuestions> {
        self.monc.command(vec![json.to_owned()], input)
    }

    /// Asks for a self-managed snapshot.
    ///
    /// # Errors
    /// When far too much is asked for.
    pub fn create_snapshot(&mut self, pool: u32) -> Result<(), TooMany> {
        self.pool_op(pool, nacre_msg::pool_op_code::CREATE_UNMANAGED_SNAP, SnapId::default())
    }

    /// Removes one.
    ///
    /// # Errors
    /// When far too much is asked for.
    pub fn remove_snapshot(&mut self, pool: u32, snap: SnapId) -> Result<(), TooMany> {
        self.pool_op(pool, nacre_msg::pool_op_code::DELETE_UNMANAGED_SNAP, snap)
    }

    fn pool_op(&mut self, pool: u32, op: u32, snap: SnapId) -> Result<(), TooMany> {
        if self.pool_ops.len() >= POOL_OPS_MAX {
            return Err(TooMany);
        }
        let (version, fsid) = (self.objecter.map().epoch.into(), self.objecter.map().fsid);
        let op = PoolOp { version, fsid, pool, op, snap, ..PoolOp::default() };
        let tid = self.monc.next_tid();
        self.pool_ops.insert(tid, (op, Stamp::default()));
        Ok(())
    }

    /// When the next turn is due even if nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Stamp {
        let now = self.clock.now();
        let messenger = self.messenger.next_deadline(now);
        let others = self.monc.next_deadline().into_iter().chain(self.objecter.next_deadline());
        let pool_ops = self.pool_ops.values().filter(|_| self.monc.is_open());
        let pool_ops = pool_ops.map(|(_, sent)| *sent + POOL_OP_RETRY);
        others.chain(messenger).chain(pool_ops).min().unwrap_or(now + Duration::from_secs(3600))
    }

    /// Waits until sockets have something, or something of our own is due, at most for `wait`; then reacts, and sends.
    ///
    /// # Errors
    /// See [`Failure`]; a client that has failed stays so.
    pub fn turn(&mut self, wait: Duration) -> Result<(), Failure> {
        let mut incoming = std::mem::take(&mut self.incoming);
        let (clock, began) = (&self.clock, self.clock.now());
        let wait = wait.min(self.next_deadline().since(began));
        self.messenger
            .turn(began, || clock.now(), Some(wait), self.entropy.as_mut(), &mut incoming)
            .map_err(Failure::Sockets)?;
        for what in incoming.drain(..) {
            match what {
                Incoming::Event { conn, event } => self.conn_event(conn, event),
                Incoming::Closed { conn, .. } => self.conn_closed(conn),
            }
        }
        self.incoming = incoming;
        let (now, wall) = (self.clock.now(), self.clock.wall());
        if self.monc.next_deadline().is_some_and(|at| at <= now) {
            self.monc.handle(&mut Context { now, wall, entropy: self.entropy.as_mut() }, Event::Tick);
        }
        if self.objecter.next_deadline().is_some_and(|at| at <= now) {
            self.objecter.tick(now);
        }
        self.send_pool_ops(now);
        self.flush();
        self.failure.take().map_or(Ok(()), Err)
    }

    fn send_pool_ops(&mut self, now: Stamp) {
        if !self.monc.is_open() {
            return;
        }
        for (tid, (op, sent)) in &mut self.pool_ops {
            if *sent == Stamp::default() || now >= *sent + POOL_OP_RETRY {
                *sent = now;
                // Refused when too much waits; then the next try has more luck.
                let _refused = self.monc.send(*tid, op.clone().into());
            }
        }
    }

    fn conn_event(&mut self, conn: ConnId, event: ConnEvent) {
        match self.mon_link {
            Some((link, mon)) if mon == conn => self.mon_event(link, event),
            _ => match self.links.iter().find(|(_, link)| link.conn == conn).map(|(osd, _)| *osd) {
                Some(osd) => self.osd_event(osd, event),
                None => self.messenger.close(conn),
            },
        }
    }

    fn conn_closed(&mut self, conn: ConnId) {
        if let Some((link, _)) = self.mon_link.filter(|(_, mon)| *mon == conn) {
            self.mon_link = None;
            return self.link_event(link, LinkEvent::Lost);
        }
        if let Some(osd) = self.links.iter().find(|(_, link)| link.conn == conn).map(|(osd, _)| *osd) {
            self.links.remove(&osd);
            self.link_lost(self.clock.now(), osd);
        }
    }

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        self.monc
            .handle(&mut Context { now, wall, entropy: self.entropy.as_mut() }, Event::Link(link, event));
    }

    fn mon_event(&mut self, link: LinkId, event: ConnEvent) {
        match mon_link_event(event) {
            Ok(event) => event.into_iter().for_each(|event| self.link_event(link, event)),
            Err(error) => {
                tracing::warn!(%error, "the monitor's message does not decode");
                self.bad_messages += 1;
                if let Some((_, conn)) = self.mon_link.take() {
                    self.messenger.close(conn);
                }
                self.link_event(link, LinkEvent::Lost);
            }
        }
    }

    fn osd_event(&mut self, osd: OsdId, event: ConnEvent) {
        let going_on = match event {
            ConnEvent::Hello { .. } => self.start_auth(osd),
            ConnEvent::AuthReplyMore { payload } => self.more_auth(osd, &payload),
            ConnEvent::AuthDone { mode, payload, .. } => self.finish_auth(osd, mode, payload),
            ConnEvent::AuthBad { .. } => {
                self.monc.ticket_refused(EntityKind::OSD);
                false
            }
            ConnEvent::Established(_) => {
                if let Some(link) = self.links.get_mut(&osd) {
                    link.is_open = true;
                }
                self.objecter.opened(self.clock.now(), osd);
                self.send_tells(osd);
                true
            }
            ConnEvent::Message(raw) => self.osd_message(osd, raw),
            _ => true,
        };
        if !going_on && let Some(link) = self.links.remove(&osd) {
            self.messenger.close(link.conn);
            self.link_lost(self.clock.now(), osd);
        }
    }

    fn start_auth(&mut self, osd: OsdId) -> bool {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let mut cx = Context { now, wall, entropy: self.entropy.as_mut() };
        let authorizer = self.monc.authorizer(&mut cx, EntityKind::OSD, &self.offer);
        let (Some(authorizer), Some(link)) = (authorizer, self.links.get_mut(&osd)) else { return false };
        let start = authorizer.start();
        link.authorizer = Some(authorizer);
        self.messenger.drive(link.conn, |c| c.auth_start(start.method, &start.modes, &start.payload))
    }

    fn more_auth(&mut self, osd: OsdId, payload: &[u8]) -> bool {
        let Some(link) = self.links.get_mut(&osd) else { return false };
        let answer = link.authorizer.as_mut().map(|authorizer| authorizer.more(payload));
        let Some(Ok(answer)) = answer else { return false };
        self.messenger.drive(link.conn, |c| c.auth_request_more(&answer))
    }

    fn finish_auth(&mut self, osd: OsdId, mode: u32, payload: nacre_buf::Bytes) -> bool {
        let Some(link) = self.links.get_mut(&osd) else { return false };
        let keys = link.authorizer.as_ref().map(|authorizer| authorizer.done(mode, payload));
        let Some(Ok(keys)) = keys else { return false };
        self.messenger.drive(link.conn, |c| c.auth_finish(&keys.session_key, &keys.connection_secret))
    }

    /// False when the connection is good for nothing.
    fn osd_message(&mut self, osd: OsdId, raw: RawMessage) -> bool {
        let tid = raw.tid;
        let message = match Message::decode(raw) {
            Ok(message) => message,
            Err(error) => {
                tracing::warn!(osd, %error, "an OSD's message does not decode");
                self.bad_messages += 1;
                return false;
            }
        };
        match message {
            Message::OsdOpReply(reply) => self.objecter.reply(self.clock.now(), osd, tid, reply),
            Message::MOsdMap(maps) => self.learn_maps(&maps),
            Message::OsdBackoff(backoff) => self.objecter.backoff(self.clock.now(), osd, backoff),
            Message::WatchNotify(message) => self.finished.push(Finished::Notified(Box::new(message))),
            Message::CommandReply(reply) => self.told(osd, tid, reply),
            _ => {}
        }
        true
    }

    fn learn_maps(&mut self, maps: &nacre_msg::MOsdMap) {
        self.wanted = false;
        if let Err(error) = self.objecter.maps(self.clock.now(), maps) {
            self.failure = Some(Failure::Map(error));
        }
        let epoch = self.objecter.map().epoch;
        self.monc.got("osdmap", epoch.into());
    }

    /// Carries out what the cores want, until they want nothing more.
    fn run_effects(&mut self) {
        loop {
            let (mut of_monc, mut of_objecter) = (Vec::new(), Vec::new());
            self.objecter.drain(&mut of_objecter);
            let idle = of_objecter.is_empty();
            of_objecter.into_iter().for_each(|effect| self.objecter_effect(effect));
            self.monc.drain(&mut of_monc);
            if idle && of_monc.is_empty() {
                return;
            }
            of_monc.into_iter().for_each(|effect| self.monc_effect(effect));
        }
    }

    fn objecter_effect(&mut self, effect: ObjecterEffect) {
        let now = self.clock.now();
        match effect {
            ObjecterEffect::Open { osd, addrs } => self.dial(now, osd, &addrs),
            ObjecterEffect::Close { osd } => {
                if let Some(link) = self.links.remove(&osd) {
                    self.messenger.close(link.conn);
                    self.fail_tells(osd);
                }
            }
            ObjecterEffect::Send { osd, tid, message } => {
                if let Some(link) = self.links.get(&osd) {
                    self.messenger.send(link.conn, Message::OsdOp(*message).encode(tid));
                }
            }
            ObjecterEffect::Acknowledge { osd, message } => {
                if let Some(link) = self.links.get(&osd) {
                    self.messenger.send(link.conn, Message::OsdBackoff(*message).encode(0));
                }
            }
            ObjecterEffect::Done { tid, outcome } => self.finished.push(Finished::Op { tid, outcome }),
            ObjecterEffect::AskNewest { tid } => {
                // With far too many questions open this operation waits until its pool comes with a map.
                if let Ok(handle) = self.monc.get_version("osdmap") {
                    self.questions.insert(handle, tid);
                }
            }
            ObjecterEffect::WantMap { from } => {
                // The wish for a whole map goes before one that waits for the next.
                if !std::mem::replace(&mut self.wanted, true) || from == 0 {
                    self.monc.subscribe("osdmap", from.into(), Interest::Once);
                }
            }
        }
    }

    fn dial(&mut self, now: Stamp, osd: OsdId, addrs: &AddrVec) {
        let Some(addr) = addrs.msgr2() else { return self.link_lost(now, osd) };
        match self.links.get(&osd).filter(|link| link.addr == addr) {
            // Made for a command.
            Some(link) if link.is_open => return self.objecter.opened(now, osd),
            Some(_) => return,
            None => {}
        }
        if let Some(old) = self.links.remove(&osd) {
            self.messenger.close(old.conn);
            self.fail_tells(osd);
        }
        let gid = i64::try_from(self.monc.global_id()).unwrap_or(-1);
        let target = Target { addr, kind: EntityKind::OSD, gid };
        let config = Arc::clone(&self.msgr);
        match self.messenger.connect(config, target, None, now, self.entropy.as_mut()) {
            Ok(conn) => drop(self.links.insert(osd, Link { conn, addr, authorizer: None, is_open: false })),
            Err(_) => self.link_lost(now, osd),
        }
    }

    fn on_link(&self, link: LinkId) -> Option<ConnId> {
        self.mon_link.filter(|(current, _)| *current == link).map(|(_, conn)| conn)
    }

    fn monc_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Connect { link, addr } => {
                let target = Target { addr, kind: EntityKind::MON, gid: -1 };
                let config = Arc::clone(&self.msgr);
                match self.messenger.connect(config, target, None, self.clock.now(), self.entropy.as_mut()) {
                    Ok(conn) => self.mon_link = Some((link, conn)),
                    Err(_) => self.link_event(link, LinkEvent::Lost),
                }
            }
            Effect::AuthStart { link, start } => {
                self.drive(link, |c| c.auth_start(start.method, &start.modes, &start.payload));
            }
            Effect::AuthMore { link, payload } => self.drive(link, |c| c.auth_request_more(&payload)),
            Effect::AuthFinish { link, keys } => {
                self.drive(link, |c| c.auth_finish(&keys.session_key, &keys.connection_secret));
            }
            Effect::Send { link, tid, message } => {
                if let Some(conn) = self.on_link(link) {
                    self.messenger.send(conn, message.encode(tid));
                }
            }
            Effect::Keepalive { link } => {
                if let Some(conn) = self.on_link(link) {
                    self.messenger.send_keepalive(conn, self.clock.wall());
                }
            }
            Effect::Close { link } => {
                if let Some(conn) = self.on_link(link) {
                    self.messenger.close(conn);
                    self.mon_link = None;
                }
            }
            Effect::Opened { .. } => {
                // What was sent on the session before is lost with it.
                self.pool_ops.values_mut().for_each(|(_, sent)| *sent = Stamp::default());
                self.send_pool_ops(self.clock.now());
            }
            Effect::Deliver { tid, message } => self.delivered(tid, message),
            Effect::CommandDone { tid, result, status, data } => {
                self.finished.push(Finished::Command { tid, result, status, data });
            }
            Effect::Refused { errno } => self.failure = Some(Failure::Refused(errno)),
            Effect::Version { handle, newest, .. } => {
                if let Some(tid) = self.questions.remove(&handle) {
                    match u32::try_from(newest) {
                        Ok(epoch) => self.objecter.newest(self.clock.now(), tid, epoch),
                        Err(_) => self.failure = Some(Failure::Epoch),
                    }
                }
            }
            Effect::Lost | Effect::RotatingKeys(_) | Effect::RotatingRefused { .. } => {}
        }
    }

    fn drive(
        &mut self,
        link: LinkId,
        work: impl FnOnce(&mut nacre_msgr::Connection) -> Result<(), nacre_msgr::Fault>,
    ) {
        if let Some(conn) = self.on_link(link) {
            self.messenger.drive(conn, work);
        }
    }

    fn delivered(&mut self, tid: u64, message: Message) {
        match message {
            Message::MOsdMap(maps) => self.learn_maps(&maps),
            Message::PoolOpReply(reply) => {
                if self.pool_ops.remove(&tid).is_none() {
                    return;
                }
                let snap = reply.response.and_then(|bytes| SnapId::from_bytes(bytes).ok());
                if let Some(snap) = snap.filter(|_| reply.result == 0) {
                    self.finished.push(Finished::Snapshot(snap));
                }
            }
            _ => {}
        }
    }

    /// The calendar as this client sees it.
    #[must_use]
    pub fn wall(&self) -> UTime {
        self.clock.wall()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let links: Vec<_> = self.links.iter().map(|(osd, link)| (osd, link.addr)).collect();
        write!(f, "Client(links {links:?}, {:?})", self.objecter)
    }
}
