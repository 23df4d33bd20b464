//! From the first byte to the signature: banner, HELLO, AUTH frames, the switch to the negotiated mode.

use super::state::State;
use super::{
    BANNER, BANNER_PAYLOAD_BYTES, BANNER_PAYLOAD_BYTES_MAX, Connection, Event, PROTOCOL_REVISION_1, Role,
    decode,
};
use crate::control::{AuthBad, AuthDone, AuthRequest, Hello};
use crate::frame::{Keys, Tag};
use crate::{Fault, HANDSHAKE_BYTES_MAX, mode};
use bytes::Bytes;
use nacre_denc::{Encode, Writer};
use ring::hmac;

const SIGNATURE_BYTES: usize = 32;

impl Connection {
    /// Queues the banner and, as a client, HELLO: neither side needs to wait for the other's. A server's HELLO
    /// follows the client's all the same: stock librados (16.2) dials a monitor that it pings before it has
    /// set up what answers a HELLO, and dies of one that comes with the banner.
    pub(super) fn greet(&mut self) {
        let mut w = Writer::new();
        w.raw(BANNER);
        w.u16(BANNER_PAYLOAD_BYTES);
        w.u64(PROTOCOL_REVISION_1);
        w.u64(0);
        self.sender.copy(w.as_slice());
        if matches!(self.role, Role::Client(_)) {
            self.say_hello();
        }
    }

    fn say_hello(&mut self) {
        let hello = Hello { kind: self.config.kind, peer_addr: self.peer_addr };
        self.sender.control(Tag::Hello, &hello.to_bytes());
    }

    pub(super) fn read_banner(&mut self) -> Result<bool, Fault> {
        let Some([found @ .., low, high]) = self.receiver.array::<10>()? else { return Ok(false) };
        if found != *BANNER {
            return Err(Fault::Banner { found });
        }
        let length = u16::from_le_bytes([low, high]);
        if !(BANNER_PAYLOAD_BYTES..=BANNER_PAYLOAD_BYTES_MAX).contains(&length) {
            return Err(Fault::BannerLength { length });
        }
        self.set_state(State::BannerRest { length });
        Ok(true)
    }

    /// Reads the feature words; later releases may have put something behind them.
    pub(super) fn read_banner_rest(&mut self, length: u16) -> Result<bool, Fault> {
        let Some(bytes) = self.receiver.take(length.into())? else { return Ok(false) };
        let word =
            |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u64::from_le_bytes);
        let (supported, required) = (word(0).unwrap_or_default(), word(8).unwrap_or_default());
        if supported & PROTOCOL_REVISION_1 == 0 || required & !PROTOCOL_REVISION_1 != 0 {
            return Err(Fault::Revision { supported, required });
        }
        self.set_state(State::Hello);
        Ok(true)
    }

    pub(super) fn on_hello(&mut self, tag: Tag, payload: Bytes) -> Result<(), Fault> {
        if tag != Tag::Hello {
            return Err(self.unexpected(tag));
        }
        let Hello { kind, peer_addr } = decode(tag, payload)?;
        (self.peer_kind, self.seen_as) = (kind, peer_addr);
        let next = match &self.role {
            Role::Server => State::AuthRequest,
            Role::Client(target) if target.kind == kind => State::AuthIdle,
            Role::Client(target) => return Err(Fault::PeerKind { expected: target.kind, found: kind }),
        };
        if matches!(self.role, Role::Server) {
            self.say_hello();
        }
        self.set_state(next);
        self.events.push_back(Event::Hello { kind, my_addr: peer_addr });
        Ok(())
    }

    pub(super) fn on_client_auth(&mut self, tag: Tag, payload: Bytes) -> Result<(), Fault> {
        self.count_round()?;
        let event = match (&self.state, tag) {
            (State::AuthRequest, Tag::AuthRequest) => {
                let AuthRequest { method, modes, payload } = decode(tag, payload)?;
                Event::AuthRequest { method, modes, payload }
            }
            (State::AuthMore, Tag::AuthRequestMore) => Event::AuthMore { payload: decode(tag, payload)? },
            _ => return Err(self.unexpected(tag)),
        };
        self.set_state(State::AuthOwed);
        self.events.push_back(event);
        Ok(())
    }

    pub(super) fn on_server_auth(&mut self, tag: Tag, payload: Bytes) -> Result<(), Fault> {
        self.count_round()?;
        let (next, event) = match tag {
            Tag::AuthReplyMore => (State::AuthOwed, Event::AuthReplyMore { payload: decode(tag, payload)? }),
            Tag::AuthBadMethod => {
                let AuthBad { method, result, methods, modes } = decode(tag, payload)?;
                (State::AuthIdle, Event::AuthBad { method, result, methods, modes })
            }
            Tag::AuthDone => {
                let AuthDone { global_id, mode, payload } = decode(tag, payload)?;
                self.global_id = global_id;
                (State::FinishOwed { mode }, Event::AuthDone { global_id, mode, payload })
            }
            _ => return Err(self.unexpected(tag)),
        };
        self.set_state(next);
        self.events.push_back(event);
        Ok(())
    }

    /// Server, after `AuthRequest` or `AuthMore`: the method needs another round.
    ///
    /// # Errors
    /// The [`Fault`] that ended the connection.
    ///
    /// # Panics
    /// When no answer is owed.
    pub fn auth_reply_more(&mut self, payload: &[u8]) -> Result<(), Fault> {
        self.answer(State::AuthMore, Tag::AuthReplyMore, &blob(payload))
    }

    /// Server, after `AuthRequest` or `AuthMore`: refused with a negative errno; the client may try again.
    ///
    /// # Errors
    /// The [`Fault`] that ended the connection.
    ///
    /// # Panics
    /// When no answer is owed.
    pub fn auth_bad(
        &mut self,
        method: u32,
        result: i32,
        methods: &[u32],
        modes: &[u32],
    ) -> Result<(), Fault> {
        let bad = AuthBad { method, result, methods: methods.to_vec(), modes: modes.to_vec() };
        self.answer(State::AuthRequest, Tag::AuthBadMethod, &bad.to_bytes())
    }

    /// Server, after `AuthRequest` or `AuthMore`: the client has proved its identity. Empty keys are those of the
    /// method "none"; `mode` is one of [`crate::mode`].
    ///
    /// # Errors
    /// The [`Fault`] that ended the connection.
    ///
    /// # Panics
    /// When no answer is owed.
    pub fn auth_done(
        &mut self,
        global_id: u64,
        mode: u32,
        payload: &[u8],
        session_key: &[u8],
        connection_secret: &[u8],
    ) -> Result<(), Fault> {
        self.alive()?;
        assert!(matches!(self.state, State::AuthOwed), "auth_done while {}", self.state.phase());
        self.global_id = global_id;
        let done = AuthDone { global_id, mode, payload: Bytes::copy_from_slice(payload) };
        self.sender.control(Tag::AuthDone, &done.to_bytes());
        self.secure(mode, session_key, connection_secret)
    }

    /// Client, after `Hello` or `AuthBad`: begins with a method; `modes` are those of [`crate::mode`] that we
    /// accept, most wanted first.
    ///
    /// # Errors
    /// The [`Fault`] that ended the connection.
    ///
    /// # Panics
    /// When the connection is not at this point.
    pub fn auth_start(&mut self, method: u32, modes: &[u32], payload: &[u8]) -> Result<(), Fault> {
        let request = AuthRequest { method, modes: modes.to_vec(), payload: Bytes::copy_from_slice(payload) };
        self.answer(State::AuthReply, Tag::AuthRequest, &request.to_bytes())
    }

    /// Client, after `AuthReplyMore`: the next part.
    ///
    /// # Errors
    /// The [`Fault`] that ended the connection.
    ///
    /// # Panics
    /// When no answer is owed.
    pub fn auth_request_more(&mut self, payload: &[u8]) -> Result<(), Fault> {
        self.answer(State::AuthReply, Tag::AuthRequestMore, &blob(payload))
    }

    /// Client, after `AuthDone`: the keys that its payload held.
    ///
    /// # Errors
    /// The [`Fault`] that ended the connection; more of the server's frames may have been parsed.
    ///
    /// # Panics
    /// When the connection is not at this point.
    pub fn auth_finish(&mut self, session_key: &[u8], connection_secret: &[u8]) -> Result<(), Fault> {
        self.alive()?;
        let State::FinishOwed { mode } = self.state else {
            panic!("auth_finish while {}", self.state.phase());
        };
        self.secure(mode, session_key, connection_secret)
    }

    fn answer(&mut self, next: State, tag: Tag, payload: &[u8]) -> Result<(), Fault> {
        self.alive()?;
        self.set_state(next);
        self.sender.control(tag, payload);
        if self.sender.transcript_bytes() > HANDSHAKE_BYTES_MAX {
            return Err(self.fail(Fault::HandshakeBytes { max: HANDSHAKE_BYTES_MAX }));
        }
        self.pump()
    }

    /// Ends the recording, switches both directions to `mode` and signs what was received.
    fn secure(&mut self, mode: u32, session_key: &[u8], secret: &[u8]) -> Result<(), Fault> {
        let (sent, received) = (self.sender.take_transcript(), self.receiver.take_transcript());
        match mode {
            mode::CRC => {}
            mode::SECURE => match Keys::new(secret, matches!(self.role, Role::Server)) {
                Ok(Keys { send, receive }) => {
                    self.sender.seal_with(send);
                    self.receiver.open_with(receive);
                }
                Err(fault) => return Err(self.fail(fault)),
            },
            mode => return Err(self.fail(Fault::Mode { mode })),
        }
        self.sender.control(Tag::AuthSignature, &signature(session_key, &received));
        self.set_state(State::Signature { expected: signature(session_key, &sent) });
        self.pump()
    }

    pub(super) fn on_signature(
        &mut self,
        tag: Tag,
        found: &[u8],
        expected: &[u8; SIGNATURE_BYTES],
    ) -> Result<(), Fault> {
        if tag != Tag::AuthSignature {
            return Err(self.unexpected(tag));
        }
        if !equal_in_constant_time(found, expected) {
            return Err(Fault::Signature);
        }
        self.set_state(State::Ident);
        if matches!(self.role, Role::Client(_)) {
            self.identify();
        }
        Ok(())
    }
}

/// A payload with its length, as the AUTH frames carry it.
fn blob(payload: &[u8]) -> Bytes {
    let mut w = Writer::with_capacity(4 + payload.len());
    w.blob(payload);
    w.finish()
}

/// HMAC-SHA256 of one direction of the handshake; zeros when the method has no key.
fn signature(session_key: &[u8], transcript: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let mut out = [0; SIGNATURE_BYTES];
    if !session_key.is_empty() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, session_key);
        out.copy_from_slice(hmac::sign(&key, transcript).as_ref());
    }
    out
}

/// Compares without telling by its duration where the first difference is.
fn equal_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
