//! [`ServiceServer`]: how an OSD or a manager authenticates a peer that connects, without asking the monitor.
//!
//! ```text
//! client                                           service
//! AUTH_REQUEST      ticket, {nonce}           ->
//!                                             <-   AUTH_REPLY_MORE {challenge}
//! AUTH_REQUEST_MORE ticket, {nonce,
//!                            challenge + 1}   ->
//!                                             <-   AUTH_DONE {nonce + 1, connection secret}
//! ```
//! The ticket is sealed with the service's rotating secret, everything in braces with the ticket's session
//! key. Source: Ceph `cephx_verify_authorizer` in `src/auth/cephx/CephxProtocol.cc` at v16.2.15.

use crate::cephx::{
    Authorize, AuthorizeReply, AuthorizerHead, MODE_AUTHORIZER, encode_challenge, service_bit,
};
use crate::ticket::{Binding, Ticket};
use crate::{
    AuthDone, AuthMethod, ConnectionMode, Identity, Offer, Reason, Refusal, RotatingKeys, Step, TicketForm,
};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Reader, Writer};
use nacre_types::{AuthName, EntityKind, Entropy, Errno, UTime};

/// What the service lends to a handshake.
pub struct ServiceAuthContext<'a> {
    /// The service's secrets, as the monitor gave them last.
    pub keys: &'a RotatingKeys,
    /// Time of day, by which tickets expire.
    pub wall: UTime,
    /// Source of challenges, keys and ids.
    pub entropy: &'a mut dyn Entropy,
}

/// One connection's handshake at a service.
#[derive(Debug)]
pub struct ServiceServer {
    service: EntityKind,
    form: TicketForm,
    offer: Offer,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Idle,
    Challenged { mode: ConnectionMode, challenge: u64 },
    Finished,
}

impl ServiceServer {
    /// Waits for AUTH_REQUEST on behalf of `service`, accepting what `offer` holds and tickets of `form`, which the monitor of
    /// the cluster makes.
    #[must_use]
    pub fn new(service: EntityKind, form: TicketForm, offer: Offer) -> Self {
        Self { service, form, offer, state: State::Idle }
    }

    /// AUTH_REQUEST. A peer may come again with another method after AUTH_BAD_METHOD.
    pub fn request(
        &mut self,
        cx: &mut ServiceAuthContext<'_>,
        method: u32,
        modes: &[u32],
        payload: Bytes,
    ) -> Step {
        if matches!(self.state, State::Challenged { .. }) {
            return self.refuse(method, Errno::EACCES, Reason::OutOfTurn);
        }
        let known = AuthMethod::from_code(method).filter(|method| self.offer.methods.contains(method));
        let Some(known) = known else { return self.refuse(method, Errno::EOPNOTSUPP, Reason::Method) };
        let Some(mode) = self.offer.pick_mode(known, modes) else {
            return self.refuse(method, Errno::EOPNOTSUPP, Reason::Mode);
        };
        match known {
            AuthMethod::None => self.accept_anybody(payload),
            AuthMethod::Cephx => self.challenge(cx, mode, payload),
        }
    }

    fn accept_anybody(&mut self, payload: Bytes) -> Step {
        match decode_anybody(&mut Reader::new(payload)) {
            Ok((name, global_id)) => {
                self.state = State::Finished;
                Step::Done(Box::new(AuthDone::of_anybody(name, global_id)))
            }
            Err(_) => self.refuse(AuthMethod::None.code(), Errno::EACCES, Reason::Malformed),
        }
    }

    /// The first authorizer proves nothing, it may be a recording; so it is always answered by a challenge.
    fn challenge(&mut self, cx: &mut ServiceAuthContext<'_>, mode: ConnectionMode, payload: Bytes) -> Step {
        match open_authorizer(cx, self.service, self.form, payload) {
            Ok((ticket, _)) => {
                let challenge = cx.entropy.u64();
                self.state = State::Challenged { mode, challenge };
                Step::More(ticket.session_key.seal(|w| encode_challenge(challenge, w)).into())
            }
            Err(reason) => self.refuse(AuthMethod::Cephx.code(), Errno::EACCES, reason),
        }
    }

    /// Takes the payload of AUTH_REQUEST_MORE.
    pub fn more(&mut self, cx: &mut ServiceAuthContext<'_>, payload: Bytes) -> Step {
        let method = AuthMethod::Cephx.code();
        let State::Challenged { mode, challenge } = self.state else {
            return self.refuse(method, Errno::EACCES, Reason::OutOfTurn);
        };
        let opened = open_authorizer(cx, self.service, self.form, payload);
        let answered = opened.and_then(|(ticket, authorize)| {
            let fits = authorize.answer == Some(challenge.wrapping_add(1));
            if fits { Ok((ticket, authorize)) } else { Err(Reason::Challenge) }
        });
        match answered {
            Ok((ticket, authorize)) => {
                self.state = State::Finished;
                Step::Done(Box::new(done(cx, mode, ticket, authorize)))
            }
            Err(reason) => self.refuse(method, Errno::EACCES, reason),
        }
    }

    fn refuse(&mut self, method: u32, errno: Errno, reason: Reason) -> Step {
        self.state = State::Finished;
        Step::Bad(Refusal::of(&self.offer, method, errno, reason))
    }
}

fn decode_anybody(r: &mut Reader) -> Result<(AuthName, u64), DecodeError> {
    match r.u8()? {
        MODE_AUTHORIZER => Ok((r.get()?, r.u64()?)),
        version => Err(DecodeError::Invalid { what: "authorizer version", value: version.into() }),
    }
}

/// Opens ticket and authorizer and checks all but the challenge.
fn open_authorizer(
    cx: &ServiceAuthContext<'_>,
    service: EntityKind,
    form: TicketForm,
    payload: Bytes,
) -> Result<(Ticket, Authorize), Reason> {
    let mut r = Reader::new(payload);
    let head: AuthorizerHead = r.get().map_err(|_| Reason::Malformed)?;
    let sealed = r.blob().map_err(|_| Reason::Malformed)?;
    if head.service != service_bit(service) {
        return Err(Reason::BadTicket);
    }
    let secret = cx.keys.key(head.ticket.secret_id).ok_or(Reason::UnknownSecret)?;
    let binding = Binding { service, global_id: head.global_id, name: None };
    let ticket = Ticket::open(&head.ticket, form, &binding, secret).map_err(|_| Reason::BadTicket)?;
    if ticket.expires < cx.wall {
        return Err(Reason::Expired);
    }
    if cx.keys.void().has(&ticket.name, ticket.created) {
        return Err(Reason::Void);
    }
    let authorize = ticket.session_key.open(&sealed, Authorize::decode).map_err(|_| Reason::BadTicket)?;
    Ok((ticket, authorize))
}

fn done(
    cx: &mut ServiceAuthContext<'_>,
    mode: ConnectionMode,
    ticket: Ticket,
    authorize: Authorize,
) -> AuthDone {
    let mut secret = vec![0; mode.secret_bytes()];
    cx.entropy.fill(&mut secret);
    let connection_secret = Bytes::from(secret);
    let reply = AuthorizeReply {
        nonce_plus_one: authorize.nonce.wrapping_add(1),
        connection_secret: connection_secret.clone(),
    };
    let mut w = Writer::new();
    ticket.session_key.seal_into(&mut w, |w| w.put(&reply));
    let changed = cx.keys.caps().of(&ticket.name, ticket.created).map(ToOwned::to_owned);
    let allow_all = ticket.allow_all && changed.is_none();
    AuthDone {
        global_id: ticket.global_id,
        mode,
        payload: w.finish(),
        session_key: (&ticket.session_key).into(),
        connection_secret,
        identity: Identity {
            name: ticket.name,
            global_id: ticket.global_id,
            caps: changed.unwrap_or(ticket.caps),
            allow_all,
            created: Some(ticket.created),
            expires: Some(ticket.expires),
        },
    }
}
