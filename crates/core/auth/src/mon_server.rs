//! The monitor's side: [`MonServer`] for one connection's handshake, [`MonSessionAuth`] for MAuth after it.
//!
//! ```text
//! client                                        monitor
//! AUTH_REQUEST      name, global id        ->
//!                                          <-   AUTH_REPLY_MORE  server challenge
//! AUTH_REQUEST_MORE client challenge, proof,
//!                   old ticket, services   ->
//!                                          <-   AUTH_DONE  auth ticket {entity key}, connection
//!                                               secret {session key}, service tickets {session key}
//! ```
//! Source: Ceph `src/auth/cephx/CephxServiceHandler.cc` and `src/mon/Monitor.cc` at v16.2.15.

use crate::cephx::{
    Authenticate, Authorize, AuthorizerHead, GET_AUTH_SESSION_KEY, GET_ROTATING_KEYS, GET_SERVICE_TICKETS,
    MonRequest, TicketBlob, TicketGrant, encode_challenge, encode_grants, proof, service_bit,
};
use crate::ticket::{Binding, Ticket};
use crate::{
    AuthDone, AuthMethod, ConnectionMode, CryptoKey, GlobalIds, Identity, KeyServer, Offer, Reason, Refusal,
    Step, TicketForm,
};
use nacre_buf::Bytes;
use nacre_denc::{Decode, Reader, Writer};
use nacre_types::{AuthName, EntityKind, Entropy, Errno, UTime};
use std::time::Duration;

/// Services that tickets can be bought for.
const TICKET_SERVICES: [EntityKind; 4] = [EntityKind::MON, EntityKind::MDS, EntityKind::OSD, EntityKind::MGR];

/// What the monitor lends to a handshake.
pub struct MonAuthContext<'a> {
    /// Entities and the secrets of services.
    pub keys: &'a KeyServer,
    /// Numbers for new instances.
    pub ids: &'a mut GlobalIds,
    /// Time of day, by which tickets expire.
    pub wall: UTime,
    /// Source of challenges, keys and ids.
    pub entropy: &'a mut dyn Entropy,
    /// What tickets for services are good for.
    pub tickets: ServiceTickets,
}

/// What tickets for services are good for that a monitor gives out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceTickets {
    /// Services accept them.
    Usable,
    /// Nobody does, and they are over in [`UNUSABLE_TICKET_TTL`]: stock clients end a handshake that brings none. A monitor that nobody leads
    /// lets its peers ask how it is, but does not know whether they still may do what its tables say.
    Unusable,
}

/// Lifetime of [`ServiceTickets::Unusable`]: long enough that the client takes them for tickets, and asks for others soon.
pub const UNUSABLE_TICKET_TTL: Duration = Duration::from_secs(2);

/// One connection's handshake at a monitor.
#[derive(Debug)]
pub struct MonServer {
    offer: Offer,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    Challenged { name: AuthName, global_id: u64, mode: ConnectionMode, challenge: u64 },
    Authenticated(MonSessionAuth),
    Refused,
}

impl MonServer {
    /// Waits for AUTH_REQUEST, accepting what `offer` holds.
    #[must_use]
    pub fn new(offer: Offer) -> Self {
        Self { offer, state: State::Idle }
    }

    /// True when the first payload is that of an instance that has no global id yet.
    #[must_use]
    pub fn is_new_instance(payload: &Bytes) -> bool {
        MonRequest::from_bytes(payload.clone()).is_ok_and(|request| request.global_id == 0)
    }

    /// What handles MAuth on the session, once authenticated.
    #[must_use]
    pub fn into_session(self) -> Option<MonSessionAuth> {
        match self.state {
            State::Authenticated(session) => Some(session),
            _ => None,
        }
    }

    /// AUTH_REQUEST. A peer may come again with another method after AUTH_BAD_METHOD.
    pub fn request(
        &mut self,
        cx: &mut MonAuthContext<'_>,
        method: u32,
        modes: &[u32],
        payload: Bytes,
    ) -> Step {
        if matches!(self.state, State::Challenged { .. } | State::Authenticated(_)) {
            return self.refuse(method, Errno::EACCES, Reason::OutOfTurn);
        }
        let known = AuthMethod::from_code(method).filter(|method| self.offer.methods.contains(method));
        let Some(known) = known else { return self.refuse(method, Errno::EOPNOTSUPP, Reason::Method) };
        let Some(mode) = self.offer.pick_mode(known, modes) else {
            return self.refuse(method, Errno::EOPNOTSUPP, Reason::Mode);
        };
        let Ok(request) = MonRequest::from_bytes(payload) else {
            return self.refuse(method, Errno::EACCES, Reason::Malformed);
        };
        match known {
            AuthMethod::None => self.accept_anybody(cx, request),
            AuthMethod::Cephx => self.challenge(cx, request, mode),
        }
    }

    fn accept_anybody(&mut self, cx: &mut MonAuthContext<'_>, request: MonRequest) -> Step {
        let Some(global_id) = Some(request.global_id).filter(|id| *id != 0).or_else(|| cx.ids.take()) else {
            return self.refuse(AuthMethod::None.code(), Errno::EAGAIN, Reason::NotReady);
        };
        self.state =
            State::Authenticated(MonSessionAuth { name: request.name.clone(), global_id, challenge: None });
        Step::Done(Box::new(AuthDone::of_anybody(request.name, global_id)))
    }

    /// Goes on with names that do not exist: only the proof may fail, or names could be probed.
    fn challenge(&mut self, cx: &mut MonAuthContext<'_>, request: MonRequest, mode: ConnectionMode) -> Step {
        let challenge = cx.entropy.u64().max(1);
        let mut w = Writer::new();
        encode_challenge(challenge, &mut w);
        self.state = State::Challenged { name: request.name, global_id: request.global_id, mode, challenge };
        Step::More(w.finish())
    }

    /// Takes the payload of AUTH_REQUEST_MORE.
    pub fn more(&mut self, cx: &mut MonAuthContext<'_>, payload: Bytes) -> Step {
        let method = AuthMethod::Cephx.code();
        let State::Challenged { name, global_id, mode, challenge } =
            std::mem::replace(&mut self.state, State::Refused)
        else {
            return self.refuse(method, Errno::EACCES, Reason::OutOfTurn);
        };
        match answer(cx, &name, global_id, mode, challenge, payload) {
            Ok(done) => {
                let global_id = done.global_id;
                self.state =
                    State::Authenticated(MonSessionAuth { name, global_id, challenge: Some(challenge) });
                Step::Done(Box::new(done))
            }
            Err((errno, reason)) => self.refuse(method, errno, reason),
        }
    }

    fn refuse(&mut self, method: u32, errno: Errno, reason: Reason) -> Step {
        self.state = State::Refused;
        Step::Bad(Refusal::of(&self.offer, method, errno, reason))
    }
}

type Denied = (Errno, Reason);

fn denied(reason: Reason) -> Denied {
    (Errno::EACCES, reason)
}

/// Checks proof and old ticket, and makes AUTH_DONE.
fn answer(
    cx: &mut MonAuthContext<'_>,
    name: &AuthName,
    claimed_id: u64,
    mode: ConnectionMode,
    challenge: u64,
    payload: Bytes,
) -> Result<AuthDone, Denied> {
    let mut r = Reader::new(payload);
    if !r.u16().is_ok_and(|kind| kind == GET_AUTH_SESSION_KEY) {
        return Err(denied(Reason::Malformed));
    }
    let request: Authenticate = r.get().map_err(|_| denied(Reason::Malformed))?;
    let entity_key = check_proof(cx, name, challenge, &request)?;
    if mode == ConnectionMode::Secure && request.other_keys == 0 {
        // Such an old client has no place for the secret that this mode needs.
        return Err((Errno::EOPNOTSUPP, Reason::Mode));
    }
    let old_key = check_old_ticket(cx.keys, name, claimed_id, &request)?;
    let caps = cx.keys.caps_of(name, EntityKind::MON).filter(|caps| !caps.is_empty());
    let caps = caps.ok_or_else(|| denied(Reason::NoCaps))?.to_owned();
    let global_id = match claimed_id {
        0 => cx.ids.take().ok_or((Errno::EAGAIN, Reason::NotReady))?,
        id => id,
    };
    let mut secret = vec![0; mode.secret_bytes()];
    cx.entropy.fill(&mut secret);
    let issue = Issue {
        name,
        global_id,
        entity_key: &entity_key,
        old_key: old_key.as_ref(),
        other_keys: request.other_keys,
    };
    let (payload, session_key) = issue.reply(cx, Some(&secret))?;
    Ok(AuthDone {
        global_id,
        mode,
        payload,
        session_key: (&session_key).into(),
        connection_secret: secret.into(),
        identity: Identity {
            name: name.clone(),
            global_id,
            caps,
            allow_all: false,
            created: None,
            expires: None,
        },
    })
}

/// Takes the same path for an unknown entity as for a wrong key; only the reason in our log differs.
fn check_proof(
    cx: &mut MonAuthContext<'_>,
    name: &AuthName,
    challenge: u64,
    request: &Authenticate,
) -> Result<CryptoKey, Denied> {
    let known = cx.keys.entity(name).map(|auth| auth.key.clone());
    let reason = if known.is_some() { Reason::WrongKey } else { Reason::UnknownEntity };
    let is_known = known.is_some();
    let key = known.unwrap_or_else(|| CryptoKey::generate(cx.entropy, cx.wall));
    let fits = proof(&key, challenge, request.client_challenge) == request.proof;
    if fits && is_known { Ok(key) } else { Err(denied(reason)) }
}

/// A new instance must not have a ticket, an old one must: else it could take over another's identity.
/// Gives the old ticket's session key.
fn check_old_ticket(
    keys: &KeyServer,
    name: &AuthName,
    claimed_id: u64,
    request: &Authenticate,
) -> Result<Option<CryptoKey>, Denied> {
    let shown = &request.old_ticket;
    if claimed_id == 0 {
        let superfluous = (Errno::EINVAL, Reason::SuperfluousTicket);
        return if shown.blob.is_empty() { Ok(None) } else { Err(superfluous) };
    }
    match open_auth_ticket(keys, name, claimed_id, shown) {
        Ok(ticket) => Ok(Some(ticket.session_key)),
        Err(_) => Err(denied(Reason::Reclaim)),
    }
}

/// The ticket that buys tickets, if it is the one of this entity and this instance.
fn open_auth_ticket(
    keys: &KeyServer,
    name: &AuthName,
    global_id: u64,
    shown: &TicketBlob,
) -> Result<Ticket, Reason> {
    let secret = keys.rotating(EntityKind::AUTH).and_then(|ring| ring.key(shown.secret_id));
    let secret = secret.ok_or(Reason::UnknownSecret)?;
    let form = TicketForm::under_our_monitor(EntityKind::AUTH);
    let binding = Binding { service: EntityKind::AUTH, global_id, name: Some(name) };
    Ticket::open(shown, form, &binding, secret).map_err(|_| Reason::BadTicket)
}

/// What goes into a new set of tickets.
struct Issue<'a> {
    name: &'a AuthName,
    global_id: u64,
    entity_key: &'a CryptoKey,
    old_key: Option<&'a CryptoKey>,
    other_keys: u32,
}

impl Issue<'_> {
    /// The reply to GET_AUTH_SESSION_KEY and the new session key; `secret` is `None` outside of a handshake.
    fn reply(
        &self,
        cx: &mut MonAuthContext<'_>,
        secret: Option<&[u8]>,
    ) -> Result<(Bytes, CryptoKey), Denied> {
        let lifetime = cx.keys.lifetimes().auth;
        let session_key = CryptoKey::generate(cx.entropy, cx.wall);
        let ticket = Ticket {
            name: self.name.clone(),
            global_id: self.global_id,
            created: cx.wall,
            expires: cx.wall.after(lifetime),
            allow_all: false,
            caps: String::new(),
            session_key: session_key.clone(),
        };
        let ring = cx.keys.rotating(EntityKind::AUTH);
        let secret_of_tickets =
            ring.and_then(|ring| ring.current(cx.wall)).ok_or((Errno::EIO, Reason::NotReady))?;
        let form = TicketForm::under_our_monitor(EntityKind::AUTH);
        let grant = TicketGrant {
            service: service_bit(EntityKind::AUTH),
            session_key: session_key.clone(),
            validity: lifetime,
            ticket: ticket.seal(form, EntityKind::AUTH, secret_of_tickets, cx.entropy),
        };
        let mut w = Writer::new();
        encode_header(&mut w, GET_AUTH_SESSION_KEY, 0);
        encode_grants(&mut w, &[grant], self.entity_key, self.old_key);
        if self.other_keys != 0 {
            match secret {
                Some(secret) => w.nested(|w| session_key.seal_into(w, |w| w.blob(secret))),
                None => w.u32(0),
            }
            let extra = service_grants(cx, &ticket, self.other_keys);
            w.nested(|w| {
                if !extra.is_empty() {
                    encode_grants(w, &extra, &session_key, None);
                }
            });
        }
        Ok((w.finish(), session_key))
    }
}

/// Tickets for the services of `mask`, for the holder of `auth_ticket`.
fn service_grants(cx: &mut MonAuthContext<'_>, auth_ticket: &Ticket, mask: u32) -> Vec<TicketGrant> {
    let wanted = TICKET_SERVICES.into_iter().filter(|service| mask & service_bit(*service) != 0);
    wanted.filter_map(|service| service_grant(cx, auth_ticket, service)).collect()
}

fn service_grant(
    cx: &mut MonAuthContext<'_>,
    auth_ticket: &Ticket,
    service: EntityKind,
) -> Option<TicketGrant> {
    let caps = cx.keys.caps_of(&auth_ticket.name, service)?.to_owned();
    let is_usable = cx.tickets == ServiceTickets::Usable;
    let nobodys = (!is_usable).then(|| CryptoKey::generate(cx.entropy, cx.wall));
    let (secret, lifetime) = match &nobodys {
        None => (cx.keys.rotating(service)?.current(cx.wall)?, cx.keys.lifetimes().service),
        Some(key) => ((0, key), UNUSABLE_TICKET_TTL),
    };
    let session_key = CryptoKey::generate(cx.entropy, cx.wall);
    let ticket = Ticket {
        name: auth_ticket.name.clone(),
        global_id: auth_ticket.global_id,
        created: cx.wall,
        expires: cx.wall.after(lifetime),
        allow_all: false,
        caps,
        session_key: session_key.clone(),
    };
    let form = TicketForm::under_our_monitor(service);
    let ticket = ticket.seal(form, service, secret, cx.entropy);
    Some(TicketGrant { service: service_bit(service), session_key, validity: lifetime, ticket })
}

fn encode_header(w: &mut Writer, kind: u16, status: i32) {
    w.u16(kind);
    w.i32(status);
}

/// What MAuthReply carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonAuthReply {
    /// 0 or a negative errno.
    pub result: i32,
    /// The reply's payload.
    pub payload: Bytes,
    /// Why it was refused, for the log.
    pub refused: Option<Reason>,
}

/// An authenticated session at a monitor: answers MAuth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonSessionAuth {
    name: AuthName,
    global_id: u64,
    /// The handshake's challenge, which a renewal answers again; none with method none.
    challenge: Option<u64>,
}

impl MonSessionAuth {
    /// The entity that the peer has proved to be.
    #[must_use]
    pub fn name(&self) -> &AuthName {
        &self.name
    }

    /// Global id of the instance that has proved its identity.
    #[must_use]
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// The answer to one MAuth payload.
    pub fn handle(&self, cx: &mut MonAuthContext<'_>, payload: Bytes) -> MonAuthReply {
        let mut r = Reader::new(payload);
        let handled = match r.u16() {
            Ok(GET_AUTH_SESSION_KEY) => self.renew(cx, &mut r),
            Ok(GET_SERVICE_TICKETS) => self.service_tickets(cx, &mut r),
            Ok(GET_ROTATING_KEYS) => self.rotating_keys(cx),
            Ok(_) => Err((Errno::EINVAL, Reason::Malformed)),
            Err(_) => Err((Errno::EPERM, Reason::Malformed)),
        };
        match handled {
            Ok(payload) => MonAuthReply { result: 0, payload, refused: None },
            Err((errno, reason)) => {
                MonAuthReply { result: errno.negated(), payload: Bytes::new(), refused: Some(reason) }
            }
        }
    }

    fn renew(&self, cx: &mut MonAuthContext<'_>, r: &mut Reader) -> Result<Bytes, Denied> {
        let request: Authenticate = r.get().map_err(|_| denied(Reason::Malformed))?;
        let challenge = self.challenge.ok_or_else(|| denied(Reason::OutOfTurn))?;
        let entity_key = check_proof(cx, &self.name, challenge, &request)?;
        let old_key = check_old_ticket(cx.keys, &self.name, self.global_id, &request)?;
        let issue = Issue {
            name: &self.name,
            global_id: self.global_id,
            entity_key: &entity_key,
            old_key: old_key.as_ref(),
            other_keys: request.other_keys,
        };
        issue.reply(cx, None).map(|(payload, _)| payload)
    }

    fn service_tickets(&self, cx: &mut MonAuthContext<'_>, r: &mut Reader) -> Result<Bytes, Denied> {
        let malformed = |_| denied(Reason::Malformed);
        let head: AuthorizerHead = r.get().map_err(malformed)?;
        let sealed = r.blob().map_err(malformed)?;
        r.u8().map_err(malformed)?;
        let mask = r.u32().map_err(malformed)?;
        if head.service != service_bit(EntityKind::AUTH) {
            return Err(denied(Reason::BadTicket));
        }
        if head.global_id != self.global_id {
            return Err(denied(Reason::BadTicket));
        }
        let ticket = open_auth_ticket(cx.keys, &self.name, self.global_id, &head.ticket).map_err(denied)?;
        if ticket.expires < cx.wall {
            return Err(denied(Reason::Expired));
        }
        let authorize = ticket.session_key.open(&sealed, Authorize::decode);
        authorize.map_err(|_| denied(Reason::BadTicket))?;
        let grants = service_grants(cx, &ticket, mask);
        let mut w = Writer::new();
        encode_header(&mut w, GET_SERVICE_TICKETS, 0);
        encode_grants(&mut w, &grants, &ticket.session_key, None);
        Ok(w.finish())
    }

    /// Only a daemon gets the secrets of its own kind, sealed with its own key.
    fn rotating_keys(&self, cx: &mut MonAuthContext<'_>) -> Result<Bytes, Denied> {
        let kind = self.name.kind;
        let is_service = matches!(kind, EntityKind::OSD | EntityKind::MDS | EntityKind::MGR);
        let ring = cx.keys.rotating(kind).filter(|_| is_service).ok_or_else(|| denied(Reason::NoCaps))?;
        let auth = cx.keys.entity(&self.name).ok_or_else(|| denied(Reason::UnknownEntity))?;
        let mut w = Writer::new();
        encode_header(&mut w, GET_ROTATING_KEYS, 0);
        auth.key.seal_into(&mut w, |w| w.put(ring));
        Ok(w.finish())
    }
}
