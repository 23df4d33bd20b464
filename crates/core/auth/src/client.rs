//! The connecting side: [`ClientAuth`] towards monitors, [`Authorizer`] towards all other daemons.
//!
//! Source: Ceph `src/auth/cephx/CephxClientHandler.cc` and `CephXTicketHandler` at v16.2.15. A ticket is
//! renewed when a quarter of its life is left.

use crate::cephx::{
    self, Authenticate, Authorize, AuthorizeReply, AuthorizerHead, GET_AUTH_SESSION_KEY, GET_ROTATING_KEYS,
    GET_SERVICE_TICKETS, MODE_AUTHORIZER, MonRequest, TicketBlob, TicketGrant, service_bit,
};
use crate::{AuthMethod, ConnectionMode, CryptoError, CryptoKey, Offer, RotatingKeys};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{AuthName, EntityKind, Entropy, Errno, UTime};
use std::collections::BTreeMap;

/// Why a handshake or a renewal cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The peer could not have known what it claims, or our key is another than the monitor's.
    #[error("the peer's reply does not fit our key: {0}")]
    Crypto(#[from] CryptoError),
    /// Bytes that do not decode.
    #[error("malformed reply: {0}")]
    Decode(#[from] DecodeError),
    /// A frame at a moment when none is due.
    #[error("frame out of turn")]
    OutOfTurn,
    /// We have no key and the method needs one.
    #[error("no key for this entity")]
    NoKey,
    /// A connection mode that we did not offer, or a number that we do not know.
    #[error("connection mode {0} was not offered")]
    Mode(u32),
    /// A secret too short for the mode.
    #[error("connection secret of {0} bytes")]
    Secret(usize),
    /// The service could not prove that it read our ticket.
    #[error("the service's proof is wrong")]
    Proof,
    /// The monitor refused.
    #[error("refused: {0}")]
    Refused(Errno),
}

/// What AUTH_REQUEST carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthStart {
    /// Number of the method, as on the wire.
    pub method: u32,
    /// Mode numbers, most wanted first.
    pub modes: Vec<u32>,
    /// Payload of AUTH_REQUEST.
    pub payload: Bytes,
}

/// What signs and protects the frames after the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKeys {
    /// How frames are protected.
    pub mode: ConnectionMode,
    /// Key of the signatures; empty with method none.
    pub session_key: Bytes,
    /// Key material of secure frames; empty in crc mode.
    pub connection_secret: Bytes,
}

/// What a reply to MAuth brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientReply {
    /// New tickets are in the store.
    Tickets,
    /// The secrets of the service that we are.
    Rotating(RotatingKeys),
}

/// A ticket that we hold.
#[derive(Debug, Clone)]
struct Held {
    session_key: CryptoKey,
    ticket: TicketBlob,
    expires: UTime,
    renew_after: UTime,
}

impl Held {
    fn new(grant: TicketGrant, wall: UTime) -> Self {
        let expires = wall.after(grant.validity);
        let renew_after = wall.after(grant.validity - grant.validity / 4);
        Self { session_key: grant.session_key, ticket: grant.ticket, expires, renew_after }
    }
}

/// An entity's standing with the monitors: identity, key, instance number, tickets. Outlives connections.
#[derive(Debug)]
pub struct ClientAuth {
    name: AuthName,
    key: Option<CryptoKey>,
    offer: Offer,
    /// Service bits whose tickets are wanted.
    wanted: u32,
    /// 0 before the first success.
    global_id: u64,
    method: AuthMethod,
    /// The monitor's challenge on the present connection.
    challenge: Option<u64>,
    /// By service bit.
    tickets: BTreeMap<u32, Held>,
}

impl ClientAuth {
    /// Offers these modes from the next connection on, see [`Offer::with_modes`].
    pub fn set_modes(&mut self, modes: &str) {
        self.offer = self.offer.clone().with_modes(modes);
    }

    /// The entity `name` with its key (not needed with method none), speaking what `offer` holds, wanting
    /// tickets for `services`.
    #[must_use]
    pub fn new(name: AuthName, key: Option<CryptoKey>, offer: Offer, services: &[EntityKind]) -> Self {
        let wanted = services.iter().fold(0, |mask, service| mask | service_bit(*service));
        let method = offer.methods.first().copied().unwrap_or(AuthMethod::Cephx);
        Self { name, key, offer, wanted, global_id: 0, method, challenge: None, tickets: BTreeMap::new() }
    }

    /// The entity that we are.
    #[must_use]
    pub fn name(&self) -> &AuthName {
        &self.name
    }

    /// Our instance number; 0 before the first success.
    #[must_use]
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// AUTH_REQUEST to a monitor. Keeps the instance number as long as we can prove that it is ours.
    pub fn start(&mut self) -> AuthStart {
        self.challenge = None;
        if self.method == AuthMethod::Cephx && !self.tickets.contains_key(&service_bit(EntityKind::AUTH)) {
            self.global_id = 0;
        }
        let payload = MonRequest { name: self.name.clone(), global_id: self.global_id }.to_bytes();
        AuthStart { method: self.method.code(), modes: self.offer.mode_codes(), payload }
    }

    /// AUTH_REPLY_MORE: the monitor's challenge. Gives AUTH_REQUEST_MORE's payload.
    ///
    /// # Errors
    /// [`ClientError`]; the connection is of no use then.
    pub fn more(&mut self, payload: Bytes, entropy: &mut dyn Entropy) -> Result<Bytes, ClientError> {
        if self.method != AuthMethod::Cephx || self.challenge.is_some() {
            return Err(ClientError::OutOfTurn);
        }
        let challenge = cephx::decode_challenge(&mut Reader::new(payload))?;
        let request = self.authenticate(challenge, entropy)?;
        self.challenge = Some(challenge);
        Ok(request)
    }

    fn authenticate(&self, challenge: u64, entropy: &mut dyn Entropy) -> Result<Bytes, ClientError> {
        let key = self.key.as_ref().ok_or(ClientError::NoKey)?;
        let client_challenge = entropy.u64();
        let auth = service_bit(EntityKind::AUTH);
        let old_ticket =
            self.tickets.get(&auth).filter(|_| self.global_id != 0).map(|held| held.ticket.clone());
        let mut w = Writer::new();
        w.u16(GET_AUTH_SESSION_KEY);
        w.put(&Authenticate {
            client_challenge,
            proof: cephx::proof(key, challenge, client_challenge),
            old_ticket: old_ticket.unwrap_or_default(),
            other_keys: auth | self.wanted,
        });
        Ok(w.finish())
    }

    /// AUTH_DONE: checks that the monitor knows our key too, and takes tickets and instance number.
    ///
    /// # Errors
    /// [`ClientError`]; nothing has been taken over then.
    pub fn done(
        &mut self,
        global_id: u64,
        mode: u32,
        payload: Bytes,
        wall: UTime,
    ) -> Result<SessionKeys, ClientError> {
        let mode = offered(&self.offer.modes, mode)?;
        if self.method == AuthMethod::None {
            self.global_id = global_id;
            return Ok(SessionKeys { mode, session_key: Bytes::new(), connection_secret: Bytes::new() });
        }
        self.challenge.ok_or(ClientError::OutOfTurn)?;
        let mut r = Reader::new(payload);
        expect_header(&mut r)?.filter_kind(GET_AUTH_SESSION_KEY)?;
        let (session_key, connection_secret) = self.take_auth_reply(&mut r, wall)?;
        check_secret(mode, &connection_secret)?;
        self.global_id = global_id;
        Ok(SessionKeys { mode, session_key: (&session_key).into(), connection_secret })
    }

    /// Behind the header of a reply to GET_AUTH_SESSION_KEY: the auth ticket, the connection's secret, and
    /// tickets for services.
    fn take_auth_reply(&mut self, r: &mut Reader, wall: UTime) -> Result<(CryptoKey, Bytes), ClientError> {
        let key = self.key.as_ref().ok_or(ClientError::NoKey)?;
        let mut grants = cephx::decode_grants(r, key, |service| self.session_key(service))?;
        let session_key = grants.iter().find(|grant| grant.service == service_bit(EntityKind::AUTH));
        let session_key = session_key.ok_or(ClientError::Crypto(CryptoError::Decrypt))?.session_key.clone();
        let mut secret = Bytes::new();
        if !r.is_empty() {
            let sealed = r.blob()?;
            if !sealed.is_empty() {
                secret = session_key.open(&Reader::new(sealed).blob()?, Reader::blob)?;
            }
            let extra = r.blob()?;
            if !extra.is_empty() {
                let no_old_key = |_| None;
                grants.extend(cephx::decode_grants(&mut Reader::new(extra), &session_key, no_old_key)?);
            }
        }
        self.hold(grants, wall);
        Ok((session_key, secret))
    }

    fn hold(&mut self, grants: Vec<TicketGrant>, wall: UTime) {
        self.tickets.extend(grants.into_iter().map(|grant| (grant.service, Held::new(grant, wall))));
    }

    fn session_key(&self, service: u32) -> Option<CryptoKey> {
        self.tickets.get(&service).map(|held| held.session_key.clone())
    }

    /// AUTH_BAD_METHOD from a monitor. Says whether trying again can help: once more with the other method,
    /// or as a new instance when it was our old ticket that the monitor did not like.
    pub fn refused(&mut self, errno: Errno, methods: &[u32]) -> bool {
        if errno == Errno::EOPNOTSUPP {
            let others = self.offer.methods.iter().copied().filter(|method| *method != self.method);
            let next = others.into_iter().find(|method| methods.contains(&method.code()));
            self.method = next.unwrap_or(self.method);
            return next.is_some();
        }
        let was_reclaiming = self.global_id != 0;
        self.tickets.clear();
        self.global_id = 0;
        was_reclaiming
    }

    /// The MAuth payload that renews what needs it, if anything does: first the auth ticket, with it the rest.
    ///
    /// # Errors
    /// [`ClientError::NoKey`], [`ClientError::OutOfTurn`] before the handshake.
    pub fn renewal(&self, wall: UTime, entropy: &mut dyn Entropy) -> Result<Option<Bytes>, ClientError> {
        if self.method == AuthMethod::None {
            return Ok(None);
        }
        let auth_bit = service_bit(EntityKind::AUTH);
        let due = |bit: u32| self.tickets.get(&bit).is_none_or(|held| held.renew_after <= wall);
        if due(auth_bit) {
            let challenge = self.challenge.ok_or(ClientError::OutOfTurn)?;
            return self.authenticate(challenge, entropy).map(Some);
        }
        let bits = (0..32).map(|shift| 1_u32 << shift).filter(|bit| self.wanted & bit != 0);
        let needed = bits.filter(|bit| due(*bit)).fold(0, |mask, bit| mask | bit);
        let Some(auth) = self.tickets.get(&auth_bit).filter(|_| needed != 0) else { return Ok(None) };
        let mut w = Writer::new();
        w.u16(GET_SERVICE_TICKETS);
        w.put(&AuthorizerHead { global_id: self.global_id, service: auth_bit, ticket: auth.ticket.clone() });
        let authorize = Authorize { nonce: entropy.u64(), answer: None };
        auth.session_key.seal_into(&mut w, |w| w.put(&authorize));
        w.u8(1);
        w.u32(needed);
        Ok(Some(w.finish()))
    }

    /// When [`ClientAuth::renewal`] has something to say next; `None` with method none or before the
    /// handshake.
    #[must_use]
    pub fn renew_after(&self) -> Option<UTime> {
        let bits = (0..32).map(|shift| 1_u32 << shift);
        let wanted = bits.filter(|bit| (self.wanted | service_bit(EntityKind::AUTH)) & bit != 0);
        if self.tickets.is_empty() {
            return None;
        }
        wanted.map(|bit| self.tickets.get(&bit).map_or(UTime::ZERO, |held| held.renew_after)).min()
    }

    /// The MAuth payload that asks for our service's secrets.
    #[must_use]
    pub fn rotating_request() -> Bytes {
        GET_ROTATING_KEYS.to_bytes()
    }

    /// The payload of MAuthReply.
    ///
    /// # Errors
    /// [`ClientError`], [`ClientError::Refused`] when the monitor said so.
    pub fn reply(&mut self, result: i32, payload: Bytes, wall: UTime) -> Result<ClientReply, ClientError> {
        if result < 0 {
            return Err(ClientError::Refused(Errno(result.saturating_neg())));
        }
        let mut r = Reader::new(payload);
        match expect_header(&mut r)?.0 {
            GET_AUTH_SESSION_KEY => {
                self.take_auth_reply(&mut r, wall)?;
                Ok(ClientReply::Tickets)
            }
            GET_SERVICE_TICKETS => {
                let key = self.session_key(service_bit(EntityKind::AUTH)).ok_or(ClientError::OutOfTurn)?;
                let grants = cephx::decode_grants(&mut r, &key, |_| None)?;
                self.hold(grants, wall);
                Ok(ClientReply::Tickets)
            }
            GET_ROTATING_KEYS => {
                let key = self.key.as_ref().ok_or(ClientError::NoKey)?;
                Ok(ClientReply::Rotating(key.open(&r.blob()?, RotatingKeys::decode)?))
            }
            kind => Err(DecodeError::Invalid { what: "cephx reply", value: kind.into() }.into()),
        }
    }

    /// What opens a connection to a daemon of `service`, offering the modes of `offer`; `None` without a
    /// valid ticket.
    pub fn authorizer(
        &self,
        service: EntityKind,
        offer: &Offer,
        wall: UTime,
        entropy: &mut dyn Entropy,
    ) -> Option<Authorizer> {
        self.access(service)?.authorizer(offer, wall, entropy)
    }

    /// What opens connections to daemons of `service`; `None` without a ticket.
    #[must_use]
    pub fn access(&self, service: EntityKind) -> Option<ServiceAccess> {
        let held = match self.method {
            AuthMethod::None => None,
            AuthMethod::Cephx => Some(self.tickets.get(&service_bit(service))?.clone()),
        };
        Some(ServiceAccess { name: self.name.clone(), global_id: self.global_id, service, held })
    }

    /// A daemon of `service` refused our ticket: it must be renewed before the next try.
    pub fn invalidate(&mut self, service: EntityKind) {
        self.tickets.remove(&service_bit(service));
    }
}

/// An entity's ticket for one service, for whoever dials in its name beside the session with the monitors.
#[derive(Debug, Clone)]
pub struct ServiceAccess {
    name: AuthName,
    global_id: u64,
    service: EntityKind,
    /// `None` with method none.
    held: Option<Held>,
}

impl ServiceAccess {
    /// What opens a connection to a daemon of the service, offering the modes of `offer`; `None` when the ticket has expired.
    pub fn authorizer(&self, offer: &Offer, wall: UTime, entropy: &mut dyn Entropy) -> Option<Authorizer> {
        if self.held.as_ref().is_some_and(|held| held.expires <= wall) {
            return None;
        }
        let proof = self.held.as_ref().map(|held| (held.ticket.clone(), held.session_key.clone()));
        Some(Authorizer::new(self.name.clone(), self.global_id, self.service, offer, proof, entropy))
    }

    /// Whether it has made that authorizer.
    #[must_use]
    pub fn has_made(&self, authorizer: &Authorizer) -> bool {
        self.ticket() == authorizer.proof.as_ref().map(|(ticket, _)| ticket)
    }

    /// Whether it is the same ticket of the same instance.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.global_id, self.ticket()) == (other.global_id, other.ticket())
    }

    fn ticket(&self) -> Option<&TicketBlob> {
        self.held.as_ref().map(|held| &held.ticket)
    }
}

/// One connection's handshake with an OSD, a manager or an MDS, seen from the connecting side.
#[derive(Debug)]
pub struct Authorizer {
    name: AuthName,
    global_id: u64,
    service: EntityKind,
    modes: Vec<ConnectionMode>,
    /// Ticket and its session key; `None` with method none.
    proof: Option<(TicketBlob, CryptoKey)>,
    nonce: u64,
    challenged: bool,
}

impl Authorizer {
    /// `proof` is the ticket with its session key; `None` with method none.
    pub(crate) fn new(
        name: AuthName,
        global_id: u64,
        service: EntityKind,
        offer: &Offer,
        proof: Option<(TicketBlob, CryptoKey)>,
        entropy: &mut dyn Entropy,
    ) -> Self {
        let modes = offer.modes.clone();
        Self { name, global_id, service, modes, proof, nonce: entropy.u64(), challenged: false }
    }

    /// What AUTH_REQUEST is sent with.
    #[must_use]
    pub fn start(&self) -> AuthStart {
        let method = if self.proof.is_some() { AuthMethod::Cephx } else { AuthMethod::None };
        let modes = self.modes.iter().map(|mode| mode.code()).collect();
        AuthStart { method: method.code(), modes, payload: self.payload(None) }
    }

    fn payload(&self, answer: Option<u64>) -> Bytes {
        let mut w = Writer::new();
        match &self.proof {
            Some((ticket, session_key)) => {
                let service = service_bit(self.service);
                w.put(&AuthorizerHead { global_id: self.global_id, service, ticket: ticket.clone() });
                session_key.seal_into(&mut w, |w| w.put(&Authorize { nonce: self.nonce, answer }));
            }
            None => {
                w.u8(MODE_AUTHORIZER);
                w.put(&self.name);
                w.u64(self.global_id);
            }
        }
        w.finish()
    }

    /// AUTH_REPLY_MORE: the service's challenge. Gives AUTH_REQUEST_MORE's payload.
    ///
    /// # Errors
    /// [`ClientError`]; the connection is of no use then.
    pub fn more(&mut self, payload: &[u8]) -> Result<Bytes, ClientError> {
        let (_, session_key) =
            self.proof.as_ref().filter(|_| !self.challenged).ok_or(ClientError::OutOfTurn)?;
        let challenge = session_key.open(payload, cephx::decode_challenge)?;
        self.challenged = true;
        Ok(self.payload(Some(challenge.wrapping_add(1))))
    }

    /// AUTH_DONE: checks that the service could read our ticket.
    ///
    /// # Errors
    /// [`ClientError`]; the peer is not the daemon that we dialled.
    pub fn done(&self, mode: u32, payload: Bytes) -> Result<SessionKeys, ClientError> {
        let mode = offered(&self.modes, mode)?;
        let Some((_, session_key)) = &self.proof else {
            return Ok(SessionKeys { mode, session_key: Bytes::new(), connection_secret: Bytes::new() });
        };
        let reply = session_key.open(&Reader::new(payload).blob()?, AuthorizeReply::decode)?;
        if reply.nonce_plus_one != self.nonce.wrapping_add(1) {
            return Err(ClientError::Proof);
        }
        check_secret(mode, &reply.connection_secret)?;
        let connection_secret = reply.connection_secret;
        Ok(SessionKeys { mode, session_key: session_key.into(), connection_secret })
    }
}

/// Kind of request that a reply answers.
struct Header(u16);

impl Header {
    fn filter_kind(self, wanted: u16) -> Result<(), ClientError> {
        if self.0 == wanted { Ok(()) } else { Err(ClientError::OutOfTurn) }
    }
}

fn expect_header(r: &mut Reader) -> Result<Header, ClientError> {
    let (kind, status) = (r.u16()?, r.i32()?);
    if status < 0 { Err(ClientError::Refused(Errno(status.saturating_neg()))) } else { Ok(Header(kind)) }
}

fn offered(modes: &[ConnectionMode], mode: u32) -> Result<ConnectionMode, ClientError> {
    let known = ConnectionMode::from_code(mode).filter(|known| modes.contains(known));
    known.ok_or(ClientError::Mode(mode))
}

fn check_secret(mode: ConnectionMode, secret: &Bytes) -> Result<(), ClientError> {
    if secret.len() < mode.secret_bytes() { Err(ClientError::Secret(secret.len())) } else { Ok(()) }
}
