//! Connections that an OSD dials itself, to peers and to the manager: their authentication, and what waits
//! for them.
//!
//! Between two OSDs there is one lossless connection, dialled by the one with the lower number; so two never
//! dial each other at once, and replies ride on the acknowledgements of requests.

use nacre_auth::{Authorizer, Offer};
use nacre_buf::Bytes;
use nacre_monc::{Context, MonClient};
use nacre_msgr::{Config, Event, Session, Target};
use nacre_service::{ConnId, Messenger};
use nacre_types::{AddrVec, EntityKind, Stamp};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Pause before a lost connection is dialled again.
const REDIAL_DELAY: Duration = Duration::from_millis(100);
/// Messages that wait for a connection to a peer. A peer that stays away longer than this lasts is down soon.
const WAITING_MAX: usize = 65_536;

/// One link to a daemon.
#[derive(Debug)]
pub(crate) struct Link {
    kind: EntityKind,
    addrs: AddrVec,
    /// We dial, as whom; else the peer does.
    dials: Option<Arc<Config>>,
    conn: Option<ConnId>,
    open: bool,
    authorizer: Option<Authorizer>,
    session: Option<Session>,
    redial_at: Stamp,
    waiting: VecDeque<nacre_msg::RawMessage>,
}

/// What links need to dial.
pub(crate) struct Dialler<'a> {
    /// Our number, as we introduce ourselves.
    pub(crate) gid: i64,
    pub(crate) messenger: &'a mut Messenger,
    pub(crate) monc: &'a mut MonClient,
    pub(crate) cx: Context<'a>,
}

impl Link {
    pub(crate) fn new(kind: EntityKind, addrs: AddrVec, dials: Option<Arc<Config>>) -> Self {
        Self {
            kind,
            addrs,
            dials,
            conn: None,
            open: false,
            authorizer: None,
            session: None,
            redial_at: Stamp::default(),
            waiting: VecDeque::new(),
        }
    }

    pub(crate) fn addrs(&self) -> &AddrVec {
        &self.addrs
    }

    pub(crate) fn conn(&self) -> Option<ConnId> {
        self.conn
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Dials if that is ours to do, due, and not done; true when it did.
    pub(crate) fn dial(&mut self, dialler: &mut Dialler<'_>) -> bool {
        let Some(config) = self.dials.clone() else { return false };
        if self.conn.is_some() || dialler.cx.now < self.redial_at {
            return false;
        }
        let Some(addr) = self.addrs.msgr2() else { return false };
        let target = Target { addr, kind: self.kind, gid: dialler.gid };
        let session = self.session.take();
        let dialled = dialler.messenger.connect(config, target, session, dialler.cx.now, dialler.cx.entropy);
        match dialled {
            Ok(conn) => self.conn = Some(conn),
            Err(error) => {
                tracing::warn!(%addr, %error, "cannot dial");
                self.redial_at = dialler.cx.now + REDIAL_DELAY;
            }
        }
        self.conn.is_some()
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

    /// Queues a message: on the connection, or until there is one.
    pub(crate) fn send(&mut self, messenger: &mut Messenger, message: nacre_msg::RawMessage) {
        match self.taker(messenger) {
            Some(conn) => {
                messenger.send(conn, message);
            }
            _ if self.waiting.len() < WAITING_MAX => self.waiting.push_back(message),
            // The peer's interval ends when the monitor marks it down; nothing is acknowledged until then.
            _ => tracing::warn!(peer = %self.addrs, "too much waits for a peer that does not connect"),
        }
    }

    /// A connection of ours to the peer is open, dialled by either.
    pub(crate) fn opened(&mut self, conn: ConnId, messenger: &mut Messenger) {
        self.conn = Some(conn);
        self.open = true;
        self.authorizer = None;
        for message in std::mem::take(&mut self.waiting) {
            self.send(messenger, message);
        }
    }

    /// The connection is gone.
    pub(crate) fn closed(&mut self, session: Option<Box<Session>>, now: Stamp) {
        self.conn = None;
        self.open = false;
        self.authorizer = None;
        self.session = session.map(|session| *session);
        self.redial_at = now + REDIAL_DELAY;
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
                dialler.monc.ticket_refused(self.kind);
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
        self.authorizer = dialler.monc.authorizer(&mut dialler.cx, self.kind, &Offer::crc_first());
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

    /// Ends the link for good.
    pub(crate) fn end(self, messenger: &mut Messenger) {
        if let Some(conn) = self.conn {
            messenger.close(conn);
        }
        messenger.forget_session(&self.addrs);
    }
}
