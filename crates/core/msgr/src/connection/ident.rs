//! From the signature to the open session: CLIENT_IDENT and SERVER_IDENT, or SESSION_RECONNECT where a session goes on.
//!
//! Source: Ceph `src/msg/async/ProtocolV2.cc` at v16.2.15 (`handle_client_ident`, `handle_reconnect`).

use super::state::{Request, State};
use super::{Connection, Event, Role, decode};
use crate::control::{ClientIdent, FLAG_LOSSY, Reconnect, ServerIdent};
use crate::frame::Tag;
use crate::{Fault, Session, SessionAnswer, SessionRequest};
use bytes::Bytes;
use nacre_denc::Encode;
use nacre_types::{AddrVec, EntityAddr};
use std::net::SocketAddr;

// Server side.
impl Connection {
    pub(super) fn on_client_ident(&mut self, tag: Tag, payload: Bytes) -> Result<(), Fault> {
        self.count_round()?;
        match tag {
            Tag::ClientIdent => self.on_open_request(decode(tag, payload)?),
            Tag::SessionReconnect => self.on_resume_request(decode(tag, payload)?),
            _ => Err(self.unexpected(tag)),
        }
    }

    fn on_open_request(&mut self, ident: ClientIdent) -> Result<(), Fault> {
        if ident.addrs.0.is_empty() {
            return Err(Fault::NoAddress);
        }
        if !self.config.is_me(&ident.target) {
            return Err(Fault::NotForUs { target: ident.target, ours: self.config.addrs.clone() });
        }
        let policy = self.config.policy(self.peer_kind);
        let missing = policy.features_required & !ident.supported;
        if missing != 0 {
            self.sender.control(Tag::IdentMissingFeatures, &missing.to_bytes());
            return Ok(());
        }
        self.check_features(ident.required)?;
        if policy.lossy || ident.flags & FLAG_LOSSY != 0 {
            let session = Session::new(true, self.peer_kind, ident.addrs.clone());
            return self.welcome(&ident, session);
        }
        match self.session.take() {
            Some(session) => self.open_session(&ident, session),
            None => self.ask_for_session(ident.addrs.clone(), Request::Open(ident)),
        }
    }

    fn on_resume_request(&mut self, reconnect: Reconnect) -> Result<(), Fault> {
        if reconnect.addrs.0.is_empty() {
            return Err(Fault::NoAddress);
        }
        if self.config.policy(self.peer_kind).lossy {
            self.refuse_to_resume(true);
            return Ok(());
        }
        match self.session.take() {
            Some(session) => self.resume_session(&reconnect, session),
            None => self.ask_for_session(reconnect.addrs.clone(), Request::Resume(reconnect)),
        }
    }

    fn check_features(&self, required: u64) -> Result<(), Fault> {
        let missing = required & !self.config.features;
        if missing == 0 { Ok(()) } else { Err(Fault::Features { missing }) }
    }

    fn ask_for_session(&mut self, addrs: AddrVec, request: Request) -> Result<(), Fault> {
        let resume = matches!(request, Request::Resume(_));
        self.set_state(State::SessionOwed(Box::new(request)));
        self.events.push_back(Event::SessionRequest(SessionRequest { kind: self.peer_kind, addrs, resume }));
        Ok(())
    }

    /// Server, after `SessionRequest`.
    ///
    /// # Errors
    /// The [`Fault`] that ended the connection; a session that was handed in is still in it.
    ///
    /// # Panics
    /// When no answer is owed.
    pub fn answer_session(&mut self, answer: SessionAnswer) -> Result<(), Fault> {
        self.alive()?;
        assert!(matches!(self.state, State::SessionOwed(_)), "answer_session while {}", self.state.phase());
        let State::SessionOwed(request) = std::mem::replace(&mut self.state, State::Ident) else {
            return Ok(());
        };
        let answered = match (*request, answer) {
            (_, SessionAnswer::Wait) => {
                self.sender.control(Tag::Wait, &[]);
                Ok(())
            }
            (Request::Open(ident), SessionAnswer::New) => {
                let session = Session::new(false, self.peer_kind, ident.addrs.clone());
                self.welcome(&ident, session)
            }
            (Request::Open(ident), SessionAnswer::Existing(session)) => self.open_session(&ident, *session),
            (Request::Resume(_), SessionAnswer::New) => {
                self.refuse_to_resume(true);
                Ok(())
            }
            (Request::Resume(request), SessionAnswer::Existing(session)) => {
                self.resume_session(&request, *session)
            }
        };
        answered.map_err(|fault| self.fail(fault))?;
        self.pump()
    }

    /// A peer that we know opens a session: it has restarted, or never got our answer, or dialled as we did.
    fn open_session(&mut self, ident: &ClientIdent, mut session: Session) -> Result<(), Fault> {
        let known = session.peer_global_seq;
        if known > ident.global_seq {
            self.session = Some(session);
            return Err(Fault::Stale { global_seq: ident.global_seq, known });
        }
        if session.server_cookie != 0 && session.client_cookie != ident.cookie {
            self.reset_session(&mut session);
        }
        self.welcome(ident, session)
    }

    fn reset_session(&mut self, session: &mut Session) {
        let lost_count = session.reset();
        self.events.push_back(Event::SessionReset { lost_count });
    }

    /// Sends SERVER_IDENT and opens the session.
    fn welcome(&mut self, ident: &ClientIdent, mut session: Session) -> Result<(), Fault> {
        session.client_cookie = ident.cookie;
        session.server_cookie = if session.lossy { 0 } else { self.opening.cookie };
        session.peer_global_seq = ident.global_seq;
        session.connect_seq = 0;
        session.peer_addrs = ident.addrs.clone();
        (session.peer_gid, session.peer_features) = (ident.gid, ident.supported);
        let answer = ServerIdent {
            addrs: self.config.addrs.clone(),
            gid: self.config.gid,
            global_seq: self.opening.global_seq,
            supported: self.config.features,
            required: self.config.policy(self.peer_kind).features_required,
            flags: if session.lossy { FLAG_LOSSY } else { 0 },
            cookie: session.server_cookie,
        };
        // The peer never got our answer, or lost it: what we had said goes on.
        let goes_on = session.out_seq != 0;
        self.session = Some(session);
        self.sender.control(Tag::ServerIdent, &answer.to_bytes());
        self.open(goes_on);
        Ok(())
    }

    fn refuse_to_resume(&mut self, full: bool) {
        self.sender.control(Tag::SessionReset, &full.to_bytes());
    }

    /// Takes the session over to this connection, or says why not and keeps it for the peer's next request.
    fn resume_session(&mut self, request: &Reconnect, mut session: Session) -> Result<(), Fault> {
        if session.client_cookie != request.client_cookie {
            self.refuse_to_resume(self.config.policy(self.peer_kind).reset_check);
        } else if session.server_cookie == 0 {
            self.refuse_to_resume(false);
        } else if session.peer_global_seq > request.global_seq {
            self.sender.control(Tag::SessionRetryGlobal, &session.peer_global_seq.to_bytes());
        } else if session.connect_seq > request.connect_seq {
            self.sender.control(Tag::SessionRetry, &session.connect_seq.to_bytes());
        } else {
            session.connect_seq = request.connect_seq;
            session.peer_global_seq = request.global_seq;
            let acked = session.acked(request.last_received);
            let (in_seq, goes_on) = (session.in_seq, session.out_seq != 0);
            self.session = Some(session);
            acked?;
            self.sender.control(Tag::SessionReconnectOk, &in_seq.to_bytes());
            self.open(goes_on);
            return Ok(());
        }
        self.session = Some(session);
        Ok(())
    }
}

// Client side.
impl Connection {
    /// Sends CLIENT_IDENT, or SESSION_RECONNECT when the peer holds the other half of our session.
    pub(super) fn identify(&mut self) {
        let addrs = self.my_addrs();
        let (Role::Client(target), Some(session)) = (&self.role, &mut self.session) else { return };
        if session.server_cookie != 0 {
            session.connect_seq += 1;
            let request = Reconnect {
                addrs,
                client_cookie: session.client_cookie,
                server_cookie: session.server_cookie,
                global_seq: self.opening.global_seq,
                connect_seq: session.connect_seq,
                last_received: session.in_seq,
            };
            return self.sender.control(Tag::SessionReconnect, &request.to_bytes());
        }
        if !session.lossy && session.client_cookie == 0 {
            session.client_cookie = self.opening.cookie;
        }
        let ident = ClientIdent {
            addrs,
            target: target.addr,
            gid: target.gid,
            global_seq: self.opening.global_seq,
            supported: self.config.features,
            required: self.config.policy(target.kind).features_required,
            flags: if session.lossy { FLAG_LOSSY } else { 0 },
            cookie: session.client_cookie,
        };
        self.sender.control(Tag::ClientIdent, &ident.to_bytes());
    }

    /// Our addresses; one without an IP takes the IP under which the peer sees us.
    fn my_addrs(&self) -> AddrVec {
        let learned = self.seen_as.socket.map(|socket| socket.ip());
        let complete = |addr: &EntityAddr| match (addr.socket, learned) {
            (Some(socket), Some(ip)) if socket.ip().is_unspecified() => {
                EntityAddr { socket: Some(SocketAddr::new(ip, socket.port())), ..*addr }
            }
            _ => *addr,
        };
        AddrVec(self.config.addrs.0.iter().map(complete).collect())
    }

    pub(super) fn on_server_ident(&mut self, tag: Tag, payload: Bytes) -> Result<(), Fault> {
        self.count_round()?;
        match tag {
            Tag::ServerIdent => self.on_welcome(decode(tag, payload)?),
            Tag::IdentMissingFeatures => Err(Fault::Features { missing: decode(tag, payload)? }),
            Tag::Wait => Err(Fault::Wait),
            Tag::SessionReconnectOk => self.on_resumed(tag, decode(tag, payload)?),
            Tag::SessionReset => self.on_session_reset(decode(tag, payload)?),
            Tag::SessionRetry => self.on_retry(tag, decode(tag, payload)?),
            Tag::SessionRetryGlobal => self.on_retry_global(tag, decode(tag, payload)?),
            _ => Err(self.unexpected(tag)),
        }
    }

    fn on_welcome(&mut self, ident: ServerIdent) -> Result<(), Fault> {
        let (Role::Client(target), Some(session)) = (&self.role, &mut self.session) else {
            return Err(Fault::NoSession);
        };
        if session.server_cookie != 0 {
            return Err(self.unexpected(Tag::ServerIdent));
        }
        if !ident.addrs.0.contains(&target.addr) {
            return Err(Fault::WrongPeer { target: target.addr, found: ident.addrs });
        }
        let missing = self.config.policy(target.kind).features_required & !ident.supported;
        if missing != 0 {
            return Err(Fault::Features { missing });
        }
        session.lossy |= ident.flags & FLAG_LOSSY != 0;
        session.server_cookie = ident.cookie;
        session.peer_global_seq = ident.global_seq;
        session.peer_addrs = ident.addrs;
        (session.peer_gid, session.peer_features) = (ident.gid, ident.supported);
        self.check_features(ident.required)?;
        self.open(false);
        Ok(())
    }

    /// The session that we asked to resume.
    fn resuming(&mut self, tag: Tag) -> Result<&mut Session, Fault> {
        let unexpected = self.unexpected(tag);
        self.session.as_mut().filter(|session| session.server_cookie != 0).ok_or(unexpected)
    }

    fn on_resumed(&mut self, tag: Tag, last_received: u64) -> Result<(), Fault> {
        self.resuming(tag)?.acked(last_received)?;
        self.open(true);
        Ok(())
    }

    fn on_session_reset(&mut self, full: bool) -> Result<(), Fault> {
        self.resuming(Tag::SessionReset)?;
        let Some(mut session) = self.session.take() else { return Ok(()) };
        if full {
            self.reset_session(&mut session)
        } else {
            session.restart()
        }
        self.session = Some(session);
        self.identify();
        Ok(())
    }

    /// The peer has seen a later attempt of this session.
    fn on_retry(&mut self, tag: Tag, connect_seq: u64) -> Result<(), Fault> {
        let session = self.resuming(tag)?;
        session.connect_seq = session.connect_seq.max(connect_seq.min(u64::MAX - 1));
        self.identify();
        Ok(())
    }

    /// The peer has seen a later attempt of ours.
    fn on_retry_global(&mut self, tag: Tag, global_seq: u64) -> Result<(), Fault> {
        self.resuming(tag)?;
        self.opening.global_seq = self.opening.global_seq.max(global_seq).saturating_add(1);
        self.identify();
        Ok(())
    }
}
