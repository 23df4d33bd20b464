//! [`Driver`]: the turn loop of the monitor's thread. It hands what sockets bring to [`Front`], what that makes of it to [`Mon`], and executes
//! the effects of both.

use crate::audit_file::AuditFile;
use crate::replica::{Replica, ReplicaError, ReplicaEvent};
use nacre_auth::Step;
use nacre_denc::DecodeError;
use nacre_env::Clock;
use nacre_mon::{Effect, Endpoint, Event, Front, FrontEffect, FrontEvent, Mon, SessionId, TICK};
use nacre_msg::Message;
use nacre_service::{ConnId, Incoming, Messenger, answer_auth};
use nacre_types::{Entropy, Stamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why the monitor's thread ended.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// What changed could not be made durable: nothing may be promised any more.
    #[error("cannot write the store: {0}")]
    Store(#[from] ReplicaError),
    /// What the log brought cannot be taken in.
    #[error("cannot use the cluster's state: {0}")]
    State(#[from] DecodeError),
    /// The system cannot wait for sockets.
    #[error("cannot wait for sockets: {0}")]
    Poll(#[from] std::io::Error),
}

/// One monitor with its store, sockets and clocks. Its thread calls [`Driver::turn`]; so does the simulation.
pub struct Driver {
    pub(crate) front: Front,
    pub(crate) mon: Mon,
    pub(crate) replica: Replica,
    pub(crate) messenger: Messenger,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) entropy: Box<dyn Entropy + Send>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) next_tick: Stamp,
    pub(crate) audit: AuditFile,
}

/// The only monitor there is, to itself.
const ONLY_FRONT: u64 = 1;

fn session_of(conn: ConnId) -> SessionId {
    SessionId(conn.0)
}

fn conn_of(session: SessionId) -> ConnId {
    ConnId(session.0)
}

/// Whether a peer wants the manager or the monitor. A client of the manager shows a ticket, one of the monitor its name; the first byte of
/// its request tells which (`AUTH_MODE_AUTHORIZER` and `AUTH_MODE_MON` in Ceph's `src/auth/Auth.h`). Either is authenticated, so it does not
/// matter at which of our addresses the request comes in.
fn endpoint_of(payload: &[u8]) -> Endpoint {
    const AUTHORIZER: u8 = 1;
    if payload.first() == Some(&AUTHORIZER) { Endpoint::Mgr } else { Endpoint::Mon }
}

impl Driver {
    /// Turns until told to stop, or until something ends it.
    pub(crate) fn run(mut self) -> Result<(), DriverError> {
        let mut incoming = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            self.turn(&mut incoming)?;
        }
        Ok(())
    }

    /// The monitor's state.
    #[must_use]
    pub fn mon(&self) -> &Mon {
        &self.mon
    }

    /// When the next turn is due even if nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Stamp {
        let own = [self.messenger.next_deadline(self.clock.now()), self.front.next_deadline()];
        own.into_iter().flatten().fold(self.next_tick, Stamp::min)
    }

    /// Reads all that is there, reacts to all of it, writes once, sends.
    ///
    /// # Errors
    /// [`DriverError`]: the monitor cannot go on.
    pub fn turn(&mut self, incoming: &mut Vec<Incoming>) -> Result<(), DriverError> {
        let now = self.clock.now();
        let timeout = self.next_deadline().since(now);
        let clock = &self.clock;
        self.messenger.turn(clock.now(), || clock.now(), Some(timeout), self.entropy.as_mut(), incoming)?;
        for what in incoming.drain(..) {
            self.incoming(what);
        }
        if self.clock.now() >= self.next_tick {
            self.next_tick = self.clock.now() + TICK;
            self.mon.set_throttled_senders(self.messenger.intake().warnings);
            self.front_event(FrontEvent::Tick);
            self.mon_event(Event::Tick);
            self.replica.flush().map_err(ReplicaError::from)?;
        } else if self.front.next_deadline().is_some_and(|at| self.clock.now() >= at) {
            self.front_event(FrontEvent::Tick);
        }
        self.execute_effects()?;
        self.messenger.flush();
        Ok(())
    }

    fn front_event(&mut self, event: FrontEvent) {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        self.front.handle(now, wall, self.entropy.as_mut(), event);
    }

    fn mon_event(&mut self, event: Event) {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        self.mon.handle(now, wall, self.entropy.as_mut(), event);
    }

    fn incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Event { conn, event } => self.connection_event(conn, event),
            Incoming::Closed { conn, reason, .. } => {
                tracing::debug!(conn = conn.0, reason, "connection closed");
                self.forget(conn);
            }
        }
    }

    fn forget(&mut self, conn: ConnId) {
        self.front_event(FrontEvent::Closed { session: session_of(conn) });
    }

    fn connection_event(&mut self, conn: ConnId, event: nacre_msgr::Event) {
        let session = session_of(conn);
        match event {
            nacre_msgr::Event::AuthRequest { method, modes, payload } => {
                let endpoint = endpoint_of(&payload);
                let kind = self.messenger.peer_kind(conn);
                self.front_event(FrontEvent::AuthRequest { session, endpoint, kind, method, modes, payload });
            }
            nacre_msgr::Event::AuthMore { payload } => {
                self.front_event(FrontEvent::AuthMore { session, payload })
            }
            nacre_msgr::Event::Established(peer) => {
                let seen_at = peer.seen_at.socket.map(|socket| socket.ip().to_canonical());
                self.front_event(FrontEvent::Established {
                    session,
                    kind: peer.kind,
                    addrs: peer.addrs,
                    seen_at,
                });
            }
            nacre_msgr::Event::Message(raw) => {
                let (tid, kind) = (raw.tid, raw.kind);
                match Message::decode(raw) {
                    Ok(message) => {
                        self.front_event(FrontEvent::Message { session, tid, message: Box::new(message) })
                    }
                    Err(error) => {
                        tracing::warn!(conn = conn.0, kind, %error, "a message does not decode; its connection is closed");
                        self.messenger.close(conn);
                        self.forget(conn);
                    }
                }
            }
            // The monitor accepts lossy sessions; the other events are for those that dial or resume.
            _ => (),
        }
    }

    /// Executes effects until there are none.
    fn execute_effects(&mut self) -> Result<(), DriverError> {
        let (mut of_front, mut effects, mut events) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let (now, wall) = (self.clock.now(), self.clock.wall());
            self.front.drain(now, wall, self.entropy.as_mut(), &mut of_front);
            self.mon.drain(&mut effects);
            if of_front.is_empty() && effects.is_empty() {
                return Ok(());
            }
            of_front.drain(..).for_each(|effect| self.execute_front_effect(effect));
            for effect in effects.drain(..) {
                match effect {
                    Effect::Commit { batch, token } => self.replica.commit(&batch, token, &mut events)?,
                    Effect::Confirm { token } => self.replica.confirm(token, &mut events)?,
                    Effect::Send { session, tid, message } => {
                        self.messenger.send(conn_of(session), message.encode(tid));
                    }
                    Effect::Close { session } => {
                        self.messenger.close(conn_of(session));
                        self.front_event(FrontEvent::Closed { session });
                    }
                    Effect::GlobalIds { ids, .. } => self.front.granted(ids),
                }
            }
            for event in events.drain(..) {
                match event {
                    ReplicaEvent::Applied(batch) => self.front.applied(&batch)?,
                    ReplicaEvent::Committed(token) => {
                        self.audit.write(&self.mon);
                        self.mon_event(Event::Committed(token));
                    }
                    ReplicaEvent::Confirmed(token) => self.mon_event(Event::Confirmed(token)),
                }
            }
        }
    }

    fn execute_front_effect(&mut self, effect: FrontEffect) {
        match effect {
            FrontEffect::Auth { session, step } => {
                let conn = conn_of(session);
                match &step {
                    Step::More(_) => (),
                    Step::Done(done) => self.messenger.set_proved(conn, done.identity.name.clone()),
                    Step::Bad(refusal) => tracing::debug!(reason = %refusal.reason, "authentication refused"),
                }
                self.messenger.drive(conn, |connection| answer_auth(connection, step));
            }
            FrontEffect::Send { session, tid, message } => {
                self.messenger.send(conn_of(session), message.encode(tid));
            }
            FrontEffect::Close { session } => self.messenger.close(conn_of(session)),
            FrontEffect::Open { session, peer } => self.mon_event(Event::Open { session, peer }),
            FrontEffect::Message { session, tid, message } => {
                self.mon_event(Event::Message { session, tid, message });
            }
            FrontEffect::Closed { session } => self.mon_event(Event::Closed { session }),
            FrontEffect::WantGlobalIds => self.mon_event(Event::WantGlobalIds { front: ONLY_FRONT }),
        }
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Driver({:?})", self.messenger)
    }
}
