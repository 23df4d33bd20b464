//! [`MonClient`]: the state machine; its parts are in the sibling files.

use crate::hunt::{Hunter, Next};
use crate::renewal::Renewal;
use crate::requests::Requests;
use crate::subscriptions::Subscriptions;
use crate::{Config, Context, Effect, Event, Interest, LinkEvent, LinkId, TooMany};
use nacre_auth::{AuthMethod, Authorizer, ClientAuth, Offer, ServiceAccess};
use nacre_buf::BufList;
use nacre_denc::Decode;
use nacre_maps::MonMap;
use nacre_msg::{Auth, Message};
use nacre_types::{EntityAddr, EntityKind, Errno, Stamp};

#[derive(Debug, Clone, Copy)]
enum State {
    /// Not started, or stopped.
    Stopped,
    /// All monitors have failed in this round.
    Pausing { until: Stamp },
    /// From the first packet to the established session.
    Dialling { link: LinkId, addr: EntityAddr, deadline: Stamp },
    /// The session is open, and messages flow.
    Open { link: LinkId, addr: EntityAddr, opened_at: Stamp, heard_at: Stamp, keepalive_at: Stamp },
}

/// See the crate's documentation. Calls without a [`Context`] take effect with the next
/// [`MonClient::drain`].
#[derive(Debug)]
pub struct MonClient {
    config: Config,
    auth: ClientAuth,
    state: State,
    links: u64,
    hunter: Hunter,
    monmap: Option<MonMap>,
    subscriptions: Subscriptions,
    requests: Requests,
    renewal: Renewal,
    effects: Vec<Effect>,
}

impl MonClient {
    /// A client that does nothing before [`MonClient::start`]. It subscribes to the monitor map by itself.
    #[must_use]
    pub fn new(config: Config, auth: ClientAuth) -> Self {
        let hunter = Hunter::new(config.addrs.clone());
        let renewal = Renewal::new(config.wants_rotating_keys);
        let mut subscriptions = Subscriptions::default();
        subscriptions.want("monmap", 0, Interest::Lasting);
        Self {
            config,
            auth,
            state: State::Stopped,
            links: 0,
            hunter,
            monmap: None,
            subscriptions,
            requests: Requests::new(),
            renewal,
            effects: Vec::new(),
        }
    }

    /// The monitor map, once there is one.
    #[must_use]
    pub fn monmap(&self) -> Option<&MonMap> {
        self.monmap.as_ref()
    }

    /// Our instance number; 0 before the first session.
    #[must_use]
    pub fn global_id(&self) -> u64 {
        self.auth.global_id()
    }

    /// True while messages flow.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// When [`Event::Tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        match self.state {
            State::Stopped => None,
            State::Pausing { until } => Some(until),
            State::Dialling { deadline, .. } => Some(deadline),
            State::Open { heard_at, keepalive_at, .. } => {
                let own = keepalive_at.min(heard_at + self.config.keepalive_timeout);
                Some(self.renewal.deadline().map_or(own, |deadline| own.min(deadline)))
            }
        }
    }

    /// Takes what is to be done, in order.
    pub fn drain(&mut self, out: &mut Vec<Effect>) {
        if let State::Open { link, .. } = self.state {
            let fsid = self.monmap.as_ref().map(|map| map.fsid);
            if let Some(message) = self.subscriptions.take_unsent(&self.config.hostname) {
                self.effects.push(Effect::Send { link, tid: 0, message: message.into() });
            }
            self.requests.flush(link, fsid, &mut self.effects);
        }
        out.append(&mut self.effects);
    }

    /// Wants the map `what` (`osdmap`, `mgrmap`, `config`, ...) from epoch `start` on; 0 for the newest.
    pub fn subscribe(&mut self, what: &str, start: u64, interest: Interest) {
        self.subscriptions.want(what, start, interest);
    }

    /// No longer wants `what`. The present monitor may go on sending it.
    pub fn unsubscribe(&mut self, what: &str) {
        self.subscriptions.drop_interest(what);
    }

    /// Epoch `epoch` of `what` has been taken in; another monitor will be asked for the one after it.
    pub fn got(&mut self, what: &str, epoch: u64) {
        self.subscriptions.got(what, epoch);
    }

    /// Asks again for `what` from the epoch behind the one taken in last: what came did not follow it.
    pub fn ask_again(&mut self, what: &str) {
        self.subscriptions.renew(what);
    }

    /// Sends a command, one JSON text as a rule, and repeats it until it is answered by
    /// [`Effect::CommandDone`] with the number returned here.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn command(&mut self, cmd: Vec<String>, data: BufList) -> Result<u64, TooMany> {
        self.requests.command(cmd, data)
    }

    /// Asks for the newest epoch of the map `what`; answered by [`Effect::Version`].
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn get_version(&mut self, what: &str) -> Result<u64, TooMany> {
        self.requests.version(what)
    }

    /// Forgets a command or version question; its answer will be ignored.
    pub fn cancel(&mut self, tid: u64) {
        self.requests.cancel(tid);
    }

    /// A number for [`MonClient::send`] that nothing else bears.
    pub fn next_tid(&mut self) -> u64 {
        self.requests.next_tid()
    }

    /// Sends any other message on this session, or on the next when none is open. Not repeated.
    ///
    /// # Errors
    /// [`TooMany`] wait for a session already.
    pub fn send(&mut self, tid: u64, message: Message) -> Result<(), TooMany> {
        self.requests.message(tid, message)
    }

    /// How connections to monitors that are opened from now on are protected, see [`Offer::with_modes`].
    pub fn set_modes(&mut self, modes: &str) {
        self.auth.set_modes(modes);
    }

    /// What opens a connection to a daemon of `service`; `None` without a valid ticket, which is then asked
    /// for.
    pub fn authorizer(
        &mut self,
        cx: &mut Context<'_>,
        service: EntityKind,
        offer: &Offer,
    ) -> Option<Authorizer> {
        let authorizer = self.auth.authorizer(service, offer, cx.wall, cx.entropy);
        if authorizer.is_none() {
            self.renewal.hurry();
        }
        authorizer
    }

    /// What opens connections to daemons of `service`, for others who dial in our name; `None` without a ticket.
    #[must_use]
    pub fn access(&self, service: EntityKind) -> Option<ServiceAccess> {
        self.auth.access(service)
    }

    /// A daemon of `service` has refused our ticket: a new one is asked for.
    pub fn ticket_refused(&mut self, service: EntityKind) {
        self.auth.invalidate(service);
        self.renewal.hurry();
    }

    /// Begins to look for a monitor.
    pub fn start(&mut self, cx: &mut Context<'_>) {
        if matches!(self.state, State::Stopped) {
            self.hunt(cx, None);
        }
    }

    /// Closes the session; [`MonClient::start`] begins anew.
    pub fn stop(&mut self) {
        if let Some(link) = self.link() {
            self.effects.push(Effect::Close { link });
        }
        self.renewal.closed();
        self.state = State::Stopped;
    }

    /// Takes one event; its effects are drained after.
    pub fn handle(&mut self, cx: &mut Context<'_>, event: Event) {
        match event {
            Event::Tick => self.tick(cx),
            Event::Link(link, _) if Some(link) != self.link() => {}
            Event::Link(link, event) => self.on_link(cx, link, event),
        }
        self.renew(cx);
    }

    fn link(&self) -> Option<LinkId> {
        match self.state {
            State::Dialling { link, .. } | State::Open { link, .. } => Some(link),
            State::Stopped | State::Pausing { .. } => None,
        }
    }

    /// Where the monitor is with which a session is open.
    #[must_use]
    pub fn monitor(&self) -> Option<EntityAddr> {
        match self.state {
            State::Open { addr, .. } => Some(addr),
            _ => None,
        }
    }

    fn hunt(&mut self, cx: &mut Context<'_>, ended_by: Option<EntityAddr>) {
        let next = self.hunter.first(ended_by, cx.entropy);
        self.follow(cx, next);
    }

    fn follow(&mut self, cx: &Context<'_>, next: Next) {
        match next {
            Next::Pause(pause) => self.state = State::Pausing { until: cx.now + pause },
            Next::Dial(addr) => {
                self.links += 1;
                let link = LinkId(self.links);
                let deadline = cx.now + self.hunter.hello_patience(&self.config);
                self.state = State::Dialling { link, addr, deadline };
                self.effects.push(Effect::Connect { link, addr });
            }
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        match self.state {
            State::Stopped => {}
            State::Pausing { until } if cx.now >= until => self.hunt(cx, None),
            State::Dialling { link, deadline, .. } if cx.now >= deadline => self.leave(cx, link),
            State::Pausing { .. } | State::Dialling { .. } => {}
            State::Open { link, addr, opened_at, heard_at, keepalive_at } => {
                if cx.now.since(heard_at) >= self.config.keepalive_timeout {
                    self.leave(cx, link);
                } else if cx.now >= keepalive_at {
                    let keepalive_at = cx.now + self.config.keepalive_interval;
                    self.state = State::Open { link, addr, opened_at, heard_at, keepalive_at };
                    self.effects.push(Effect::Keepalive { link });
                }
            }
        }
    }

    fn on_link(&mut self, cx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        if let State::Open { heard_at, .. } = &mut self.state {
            *heard_at = cx.now;
        }
        match event {
            LinkEvent::Hello => {
                if let State::Dialling { deadline, .. } = &mut self.state {
                    *deadline = cx.now + self.hunter.patience(&self.config);
                }
                let start = self.auth.start();
                self.effects.push(Effect::AuthStart { link, start });
            }
            LinkEvent::AuthMore { payload } => match self.auth.more(payload, cx.entropy) {
                Ok(payload) => self.effects.push(Effect::AuthMore { link, payload }),
                Err(_) => self.leave(cx, link),
            },
            LinkEvent::AuthDone { global_id, mode, payload } => {
                match self.auth.done(global_id, mode, payload, cx.wall) {
                    Ok(keys) => self.effects.push(Effect::AuthFinish { link, keys }),
                    Err(_) => self.leave(cx, link),
                }
            }
            LinkEvent::AuthBad { result, methods } => self.refused(cx, link, result, &methods),
            LinkEvent::Established => self.opened(cx),
            LinkEvent::Message { tid, message } => self.on_message(cx, link, tid, message),
            LinkEvent::KeepaliveAck => {}
            LinkEvent::Lost => {
                let ended_by = self.monitor();
                self.lost(cx, ended_by);
            }
        }
    }

    fn refused(&mut self, cx: &mut Context<'_>, link: LinkId, result: i32, methods: &[u32]) {
        let errno = Errno(result.saturating_neg());
        let can_help = self.auth.refused(errno, methods);
        if can_help && errno == Errno::EOPNOTSUPP {
            let start = self.auth.start();
            self.effects.push(Effect::AuthStart { link, start });
            return;
        }
        if !can_help {
            self.effects.push(Effect::Refused { errno });
        }
        self.leave(cx, link);
    }

    fn opened(&mut self, cx: &Context<'_>) {
        let State::Dialling { link, addr, .. } = self.state else { return };
        let keepalive_at = cx.now + self.config.keepalive_interval;
        self.state = State::Open { link, addr, opened_at: cx.now, heard_at: cx.now, keepalive_at };
        self.subscriptions.forget_sent();
        self.requests.forget_sent();
        self.renewal.opened();
        self.effects.push(Effect::Opened { global_id: self.auth.global_id(), addr });
    }

    /// Closes the connection from our side.
    fn leave(&mut self, cx: &mut Context<'_>, link: LinkId) {
        self.effects.push(Effect::Close { link });
        self.lost(cx, None);
    }

    /// A session that did not last counts as a failure, or a monitor that throws us out at once would be
    /// dialled without end.
    fn lost(&mut self, cx: &mut Context<'_>, ended_by: Option<EntityAddr>) {
        self.renewal.closed();
        if let State::Open { opened_at, .. } = self.state {
            self.effects.push(Effect::Lost);
            if cx.now.since(opened_at) >= self.config.hunt_interval {
                self.hunter.succeeded();
                self.hunt(cx, ended_by);
                return;
            }
        }
        let next = self.hunter.failed(&self.config);
        self.follow(cx, next);
    }

    fn on_message(&mut self, cx: &mut Context<'_>, link: LinkId, tid: u64, message: Message) {
        match message {
            Message::MMonMap(map) => {
                self.take_monmap(&map);
                self.effects.push(Effect::Deliver { tid, message: Message::MMonMap(map) });
            }
            Message::AuthReply(reply) => match self.renewal.reply(cx, &mut self.auth, reply) {
                Ok(effect) => self.effects.extend(effect),
                Err(_) => self.leave(cx, link),
            },
            Message::MonCommandAck(ack) => self.effects.extend(self.requests.command_ack(tid, ack)),
            Message::MonGetVersionReply(reply) => self.effects.extend(self.requests.version_reply(&reply)),
            message => self.effects.push(Effect::Deliver { tid, message }),
        }
    }

    /// A map that does not decode changes nothing; the one we have has worked so far.
    fn take_monmap(&mut self, message: &nacre_msg::MMonMap) {
        let Ok(map) = MonMap::from_bytes(message.map.clone()) else { return };
        let addrs = map.mons.values().filter_map(|mon| mon.addrs.msgr2()).collect();
        self.hunter.set_addrs(addrs);
        self.subscriptions.got("monmap", map.epoch.into());
        self.monmap = Some(map);
    }

    /// Sends MAuth when something is due.
    fn renew(&mut self, cx: &mut Context<'_>) {
        let State::Open { link, .. } = self.state else { return };
        match self.renewal.poll(cx, &self.auth) {
            Ok(None) => {}
            Ok(Some(payload)) => {
                let monmap_epoch = self.monmap.as_ref().map_or(0, |map| map.epoch);
                let protocol = AuthMethod::Cephx.code();
                let message = Auth { version: 0, protocol, payload, monmap_epoch }.into();
                self.effects.push(Effect::Send { link, tid: 0, message });
            }
            Err(_) => self.leave(cx, link),
        }
    }
}
