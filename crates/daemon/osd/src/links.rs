//! Connections that an OSD dials itself, to peers and to the manager: their authentication, and what waits
//! for them.
//!
//! Between two OSDs, or the shards of one and those of the other, there is one lossless connection, dialled by the OSD with the lower number;
//! so two never dial each other at once, and replies ride on the acknowledgements of requests.

use nacre_auth::{Authorizer, Offer, ServiceAccess};
use nacre_buf::Bytes;
use nacre_monc::{Context, MonClient};
use nacre_msgr::{Config, Event, Session, Target};
use nacre_options::Values;
use nacre_service::{ConnId, Messenger};
use nacre_types::{AddrVec, EntityAddr, EntityKind, Entropy, OsdId, Stamp, UTime};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Pause before a lost connection is dialled again, at first; twice as long each time that it did not last.
const REDIAL_DELAY: Duration = Duration::from_millis(100);
/// And at last.
const REDIAL_DELAY_MAX: Duration = Duration::from_secs(1);
/// A manager is dialled again after this time, Ceph's `mgr_connect_retry_interval`: it hangs up until it knows the OSD, and one that is
/// dialled without end comes to nothing else.
const MGR_REDIAL_DELAY: Duration = Duration::from_secs(1);
/// Dialled in vain so often in a row, a peer is named in the log: some half a minute.
const UNREACHABLE_AFTER: u32 = 30;
/// A connection that was open for so long has lasted.
const STEADY_AFTER: Duration = Duration::from_secs(10);
/// The pause where the peer sent what we cannot read, at first; it grows likewise.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(5);
/// And at last.
const UNREADABLE_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Messages that wait for a connection other than between PGs: pings, reports. They come again in any case.
pub(crate) const WAITING_MAX: usize = 1024;
/// Bytes that wait for a connection with a peer at most.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// One link to a daemon.
#[derive(Debug)]
pub(crate) struct Link {
    kind: EntityKind,
    addrs: AddrVec,
    /// Where it is dialled, if not at the port that `addrs` has.
    port: Option<u16>,
    /// The name that we dial under; `None` where the peer dials.
    dials: Option<Arc<Config>>,
    conn: Option<ConnId>,
    open: bool,
    authorizer: Option<Authorizer>,
    session: Option<Session>,
    redial_at: Stamp,
    /// When it was last dialled.
    dialled_at: Stamp,
    /// Times in a row that a connection did not last.
    failures: u32,
    /// Of them the last ones that did not open at all.
    unopened: u32,
    /// When the peer last said what we cannot read, and how often in a row.
    unreadable: (Stamp, u32),
    waiting: VecDeque<nacre_msg::RawMessage>,
    waiting_bytes: usize,
    /// How many may wait.
    waiting_max: usize,
    /// What each session begins with.
    greeting: Option<nacre_msg::RawMessage>,
    /// Some were dropped: what the peer knows of us must be found out anew.
    lost: bool,
}

/// `first`, doubled so many times, at most `max`.
fn doubled(first: Duration, times: u32, max: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times)).min(max)
}

/// What is at hand wherever something is sent or dialled.
pub(crate) struct NetCx<'a> {
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    pub(crate) entropy: &'a mut dyn Entropy,
    pub(crate) messenger: &'a mut Messenger,
}

impl NetCx<'_> {
    /// What links need to dial for `osd`.
    pub(crate) fn dialler<'a>(
        &'a mut self,
        osd: OsdId,
        tickets: &'a mut dyn Tickets,
        options: &'a Values,
    ) -> Dialler<'a> {
        let Self { now, wall, entropy, messenger } = self;
        let cx = Context { now: *now, wall: *wall, entropy: &mut **entropy };
        Dialler { gid: i64::from(osd), messenger, tickets, options, cx }
    }

    /// What the client of the monitors sees of it.
    pub(crate) fn monc(&mut self) -> Context<'_> {
        Context { now: self.now, wall: self.wall, entropy: self.entropy }
    }
}

/// What links need to dial.
pub(crate) struct Dialler<'a> {
    /// Our number, as we introduce ourselves.
    pub(crate) gid: i64,
    pub(crate) messenger: &'a mut Messenger,
    pub(crate) tickets: &'a mut dyn Tickets,
    pub(crate) options: &'a Values,
    pub(crate) cx: Context<'a>,
}

/// Where those who dial get their tickets.
pub(crate) trait Tickets {
    /// What opens a connection to a daemon of `service`; `None` when there is no ticket now.
    fn authorizer(&mut self, cx: &mut Context<'_>, service: EntityKind, offer: &Offer) -> Option<Authorizer>;

    /// A daemon of `service` has refused the ticket that `shown` was made with.
    fn refused(&mut self, service: EntityKind, shown: Option<&Authorizer>);
}

impl Tickets for MonClient {
    fn authorizer(&mut self, cx: &mut Context<'_>, service: EntityKind, offer: &Offer) -> Option<Authorizer> {
        Self::authorizer(self, cx, service, offer)
    }

    fn refused(&mut self, service: EntityKind, _: Option<&Authorizer>) {
        self.ticket_refused(service);
    }
}

/// The ticket for other OSDs that a shard has from OSD control.
#[derive(Debug, Default)]
pub(crate) struct LentTicket {
    pub(crate) access: Option<Arc<ServiceAccess>>,
    /// The one that was refused: OSD control is to get another.
    pub(crate) refused: Option<Arc<ServiceAccess>>,
}

impl Tickets for LentTicket {
    fn authorizer(&mut self, cx: &mut Context<'_>, _: EntityKind, offer: &Offer) -> Option<Authorizer> {
        self.access.as_ref()?.authorizer(offer, cx.wall, cx.entropy)
    }

    fn refused(&mut self, _: EntityKind, shown: Option<&Authorizer>) {
        // Another one may have come meanwhile.
        let refused = |access: &mut Arc<ServiceAccess>| shown.is_some_and(|shown| access.has_made(shown));
        if let Some(access) = self.access.take_if(refused) {
            self.refused = Some(access);
        }
    }
}

impl Link {
    pub(crate) fn new(
        kind: EntityKind,
        addrs: AddrVec,
        dials: Option<Arc<Config>>,
        waiting_max: usize,
    ) -> Self {
        Self {
            kind,
            addrs,
            port: None,
            dials,
            conn: None,
            open: false,
            authorizer: None,
            session: None,
            redial_at: Stamp::default(),
            dialled_at: Stamp::default(),
            failures: 0,
            unopened: 0,
            unreadable: (Stamp::default(), 0),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waiting_max,
            greeting: None,
            lost: false,
        }
    }

    /// As it is, with a message that each session begins with.
    pub(crate) fn with_greeting(self, greeting: nacre_msg::RawMessage) -> Self {
        Self { greeting: Some(greeting), ..self }
    }

    /// From now on it is dialled under this name, at `port` of the peer.
    pub(crate) fn dial_at(&mut self, as_whom: Arc<Config>, port: u16) {
        (self.dials, self.port) = (Some(as_whom), Some(port));
    }

    /// Where it is dialled.
    fn target(&self) -> Option<EntityAddr> {
        let mut addr = self.addrs.msgr2()?;
        if let (Some(socket), Some(port)) = (&mut addr.socket, self.port) {
            socket.set_port(port);
        }
        Some(addr)
    }

    pub(crate) fn addrs(&self) -> &AddrVec {
        &self.addrs
    }

    /// Whether the process that calls itself `addrs` is the one that the map has: by port and nonce, which tell the processes of one
    /// OSD apart; what its machine is called differs with the side that looks.
    pub(crate) fn is_to(&self, addrs: &AddrVec) -> bool {
        let process =
            |addrs: &AddrVec| addrs.msgr2().map(|addr| (addr.socket.map(|at| at.port()), addr.nonce));
        process(&self.addrs).is_some() && process(&self.addrs) == process(addrs)
    }

    pub(crate) fn conn(&self) -> Option<ConnId> {
        self.conn
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Dials if that is ours to do, due, and not done; true when it did.
    pub(crate) fn dial(&mut self, dialler: &mut Dialler<'_>) -> bool {
        if self.conn.is_some() || dialler.cx.now < self.redial_at {
            return false;
        }
        let Some(config) = self.dials.clone() else { return false };
        let Some(addr) = self.target() else { return false };
        let target = Target { addr, kind: self.kind, gid: dialler.gid };
        let session = self.session.take();
        let is_new = session.is_none();
        self.dialled_at = dialler.cx.now;
        let dialled = dialler.messenger.connect(config, target, session, dialler.cx.now, dialler.cx.entropy);
        match dialled {
            Ok(conn) => {
                self.conn = Some(conn);
                // A session that goes on has it in front of all else.
                if is_new {
                    self.greet(conn, dialler.messenger);
                }
            }
            Err(error) => {
                tracing::warn!(%addr, %error, "cannot connect to a peer");
                self.redial_at = dialler.cx.now + self.redial_delay();
            }
        }
        self.conn.is_some()
    }

    /// Says the greeting, with which a session begins: the side that dials as the link is made, for what is sent until the connection opens
    /// goes behind it; the other side when it is open.
    pub(crate) fn greet(&mut self, conn: ConnId, messenger: &mut Messenger) {
        if let Some(greeting) = &self.greeting {
            self.lost |= !messenger.send(conn, greeting.clone());
        }
    }

    /// When [`Link::dial`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        (self.dials.is_some() && self.conn.is_none()).then_some(self.redial_at)
    }

    /// The connection, if it takes messages: one that is gone, which we have yet to hear, takes none. What waits
    /// already goes first.
    fn taker(&self, messenger: &Messenger) -> Option<ConnId> {
        let conn = self.conn.filter(|conn| messenger.has(*conn))?;
        (self.waiting.is_empty() && (self.open || self.dials.is_some())).then_some(conn)
    }

    /// Queues a message: on the connection, or until there is one. What finds no room is lost, and with it all that
    /// waits: the peer could do nothing with the rest, and all of it is made anew when the PGs hear of the loss.
    pub(crate) fn send(&mut self, messenger: &mut Messenger, message: nacre_msg::RawMessage) {
        match self.taker(messenger) {
            // The messenger ends a connection that takes no more; its session goes on without the message.
            Some(conn) => self.lost |= !messenger.send(conn, message),
            None => self.wait(message),
        }
    }

    fn wait(&mut self, message: nacre_msg::RawMessage) {
        let bytes = message.front.len() + message.data.len();
        if self.waiting.len() < self.waiting_max && self.waiting_bytes + bytes <= WAITING_BYTES_MAX {
            self.waiting_bytes += bytes;
            return self.waiting.push_back(message);
        }
        if !self.lost {
            tracing::warn!(peer = %self.addrs, "queue full: messages for a peer that does not connect are dropped");
        }
        self.waiting.clear();
        (self.waiting_bytes, self.lost) = (0, true);
    }

    /// A message was lost before there was the link.
    pub(crate) fn note_loss(&mut self) {
        self.lost = true;
    }

    /// Whether messages were lost on the way to the peer, which takes messages again now. Said once.
    pub(crate) fn take_lost(&mut self) -> bool {
        self.open && std::mem::take(&mut self.lost)
    }

    /// A connection of ours to the peer is open, dialled by either.
    pub(crate) fn opened(&mut self, conn: ConnId, messenger: &mut Messenger) {
        self.conn = Some(conn);
        self.open = true;
        self.authorizer = None;
        self.waiting_bytes = 0;
        for message in std::mem::take(&mut self.waiting) {
            self.send(messenger, message);
        }
    }

    /// The connection is gone.
    pub(crate) fn closed(&mut self, session: Option<Box<Session>>, now: Stamp) {
        let lasted = self.open && now.since(self.dialled_at) >= STEADY_AFTER;
        self.failures = if lasted { 0 } else { self.failures.saturating_add(1) };
        self.unopened = if self.open { 0 } else { self.unopened.saturating_add(1) };
        if self.unopened == UNREACHABLE_AFTER && self.dials.is_some() && self.kind == EntityKind::OSD {
            let (addrs, port) = (&self.addrs, self.port);
            tracing::warn!(%addrs, port, tries = UNREACHABLE_AFTER, "no connection with an OSD that is up comes about: is its port open?");
        }
        self.conn = None;
        self.open = false;
        self.authorizer = None;
        self.session = session.map(|session| *session);
        self.redial_at = self.redial_at.max(now + self.redial_delay());
    }

    /// The pause before it is dialled again.
    fn redial_delay(&self) -> Duration {
        match self.kind {
            EntityKind::MGR => MGR_REDIAL_DELAY,
            _ => doubled(REDIAL_DELAY, self.failures.saturating_sub(1), REDIAL_DELAY_MAX),
        }
    }

    /// Ends the connection, if it is one that we dialled, to dial again when its end is told; the session goes on, with what has come already.
    pub(crate) fn redial(&self, messenger: &mut Messenger) {
        if self.dials.is_some()
            && let Some(conn) = self.conn
        {
            messenger.end(conn, "its protection is to be another".to_owned());
        }
    }

    /// The peer says what we cannot read: it is not dialled again at once, or both would do nothing else.
    pub(crate) fn pause(&mut self, now: Stamp) {
        let (last, count) = self.unreadable;
        let again = count > 0 && now.since(last) < UNREADABLE_PAUSE_MAX * 2;
        let count = if again { count.saturating_add(1) } else { 1 };
        self.unreadable = (now, count);
        self.redial_at = now + doubled(UNREADABLE_PAUSE, count - 1, UNREADABLE_PAUSE_MAX);
    }

    /// One event of the authentication on the connection that we dialled.
    pub(crate) fn authenticate(&mut self, dialler: &mut Dialler<'_>, event: Event) {
        let Some(conn) = self.conn else { return };
        let going_on = match event {
            Event::Hello { .. } => self.start(dialler, conn),
            Event::AuthReplyMore { payload } => self.more(dialler, conn, &payload),
            Event::AuthDone { mode, payload, .. } => self.finish(dialler, conn, mode, payload),
            Event::AuthBad { result, .. } => {
                tracing::info!(peer = %self.addrs, result, "our ticket was refused");
                dialler.tickets.refused(self.kind, self.authorizer.as_ref());
                false
            }
            _ => true,
        };
        if !going_on {
            // What waits in the session must still reach the peer: nobody else would send it again.
            let session = dialler.messenger.hang_up(conn);
            self.closed(session, dialler.cx.now);
        }
    }

    fn start(&mut self, dialler: &mut Dialler<'_>, conn: ConnId) -> bool {
        let offer = wanted_modes(dialler.options, self.kind);
        self.authorizer = dialler.tickets.authorizer(&mut dialler.cx, self.kind, &offer);
        let Some(authorizer) = &self.authorizer else { return false };
        let start = authorizer.start();
        dialler.messenger.drive(conn, |c| c.auth_start(start.method, &start.modes, &start.payload))
    }

    fn more(&mut self, dialler: &mut Dialler<'_>, conn: ConnId, payload: &Bytes) -> bool {
        let Some(Ok(answer)) = self.authorizer.as_mut().map(|authorizer| authorizer.more(payload)) else {
            return false;
        };
        dialler.messenger.drive(conn, |c| c.auth_request_more(&answer))
    }

    fn finish(&mut self, dialler: &mut Dialler<'_>, conn: ConnId, mode: u32, payload: Bytes) -> bool {
        let Some(Ok(keys)) = self.authorizer.as_ref().map(|authorizer| authorizer.done(mode, payload)) else {
            tracing::warn!(peer = %self.addrs, "a daemon could not prove that it knows the service's secrets");
            return false;
        };
        dialler.messenger.drive(conn, |c| c.auth_finish(&keys.session_key, &keys.connection_secret))
    }

    /// Takes what waits, and whether some of it was lost: all of it goes another way.
    pub(crate) fn take_waiting(&mut self) -> (VecDeque<nacre_msg::RawMessage>, bool) {
        self.waiting_bytes = 0;
        (std::mem::take(&mut self.waiting), std::mem::take(&mut self.lost))
    }

    /// Ends the link for good. What is kept elsewhere of its connection goes when its end is told.
    pub(crate) fn end(self, messenger: &mut Messenger) {
        if let Some(conn) = self.conn {
            messenger.end(conn, "the peer is down, or another process".to_owned());
        }
        messenger.forget_session(&self.addrs);
    }
}

/// `ms_cluster_mode`, as connections to other OSDs were made.
#[derive(Debug)]
pub(crate) struct ClusterMode(String);

impl Default for ClusterMode {
    fn default() -> Self {
        Self(Values::default().text("ms_cluster_mode").to_owned())
    }
}

impl ClusterMode {
    /// Takes the option over; true when it is another one than before.
    pub(crate) fn follow(&mut self, options: &Values) -> bool {
        let mode = options.text("ms_cluster_mode");
        let has_changed = self.0 != mode;
        mode.clone_into(&mut self.0);
        has_changed
    }
}

/// How connections that we dial are to be protected, by who the other is, most wanted first.
fn wanted_modes(options: &Values, kind: EntityKind) -> Offer {
    let option = match kind {
        EntityKind::OSD => "ms_cluster_mode",
        _ => "ms_mon_cluster_mode",
    };
    Offer::crc_first().with_modes(options.text(option))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_auth::ConnectionMode::{Crc, Secure};

    fn link() -> Link {
        Link::new(EntityKind::OSD, AddrVec::default(), None, WAITING_MAX)
    }

    #[test]
    fn a_process_that_is_gone_is_not_its_successor() {
        let addrs =
            |nonce| AddrVec(vec![EntityAddr::msgr2("10.0.0.1:6802".parse().expect("an address"), nonce)]);
        let link = Link::new(EntityKind::OSD, addrs(7), None, WAITING_MAX);
        assert!(link.is_to(&addrs(7)) && !link.is_to(&addrs(6)));
        assert!(
            !Link::new(EntityKind::OSD, AddrVec::default(), None, WAITING_MAX).is_to(&AddrVec::default())
        );
    }

    #[test]
    fn a_connection_that_does_not_last_is_dialled_less_and_less_often() {
        let (mut link, mut now) = (link(), Stamp(1));
        let mut wait = |link: &mut Link, after: Duration, open: bool| {
            link.dialled_at = now;
            link.open = open;
            now = now + after;
            link.closed(None, now);
            let wait = link.redial_at.since(now);
            now = link.redial_at;
            wait.as_millis()
        };
        let short = Duration::from_millis(50);
        let waits: Vec<u128> = (0..6).map(|n| wait(&mut link, short, n % 2 == 0)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(wait(&mut link, STEADY_AFTER, true), 100, "it had lasted");
        let waits: Vec<u128> = (0..3).map(|_| wait(&mut link, STEADY_AFTER, false)).collect();
        assert_eq!(waits, [100, 200, 400], "it had never been open");
    }

    #[test]
    fn other_osds_are_dialled_in_the_modes_of_the_option() {
        let modes = |value: &str| {
            let options = Values::from_iter([("ms_cluster_mode", value)]);
            [EntityKind::OSD, EntityKind::MGR].map(|kind| wanted_modes(&options, kind).modes)
        };
        let to_managers = vec![Secure, Crc];
        assert_eq!(modes("crc secure"), [vec![Crc, Secure], to_managers.clone()]);
        assert_eq!(modes("secure"), [vec![Secure], to_managers]);
    }

    #[test]
    fn a_manager_is_dialled_again_once_a_second() {
        let mut link = Link::new(EntityKind::MGR, AddrVec::default(), None, WAITING_MAX);
        for now in [Stamp(1), Stamp(2)] {
            link.redial_at = now;
            link.closed(None, now);
            assert_eq!(link.redial_at.since(now), Duration::from_secs(1));
        }
    }

    #[test]
    fn a_peer_that_cannot_be_read_is_left_alone_for_longer_each_time() {
        let (mut link, mut now) = (link(), Stamp(1));
        let mut waits = Vec::new();
        for _ in 0..8 {
            link.pause(now);
            link.closed(None, now);
            waits.push(link.redial_at.since(now).as_secs());
            now = link.redial_at;
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        now = now + UNREADABLE_PAUSE_MAX * 2;
        link.pause(now);
        assert_eq!(link.redial_at.since(now).as_secs(), 5, "long ago");
    }
}
