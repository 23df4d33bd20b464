//! What one side of a handshake says next: more, done, or no.

use crate::{CapsError, ConnectionMode, MgrCaps, MonCaps, Offer, OsdCaps};
use nacre_buf::Bytes;
use nacre_types::{AuthName, Errno, UTime};

/// The answer of the accepting side to one authentication frame.
#[derive(Debug)]
pub enum Step {
    /// Send AUTH_REPLY_MORE with this payload and wait for AUTH_REQUEST_MORE.
    More(Bytes),
    /// Send AUTH_DONE; the peer is the entity that it names.
    Done(Box<AuthDone>),
    /// AUTH_BAD_METHOD is to be sent.
    Bad(Refusal),
}

/// A finished handshake, seen from the accepting side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthDone {
    /// The client instance that AUTH_DONE confirms.
    pub global_id: u64,
    /// How frames are protected from here on.
    pub mode: ConnectionMode,
    /// Payload of AUTH_DONE.
    pub payload: Bytes,
    /// Key of the signatures; empty with method none.
    pub session_key: Bytes,
    /// Key material of secure frames; empty in crc mode.
    pub connection_secret: Bytes,
    /// The entity that the peer has proved to be.
    pub identity: Identity,
}

/// An authenticated peer and its rights at this service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the entity that has proved itself.
    pub name: AuthName,
    /// The instance, unique in the cluster's life.
    pub global_id: u64,
    /// Caps text for this service, to be parsed once per session; empty when the entity has none.
    pub caps: String,
    /// Everything is allowed whatever `caps` says: method none, and the monitor's own tickets.
    pub allow_all: bool,
    /// When the ticket was made; `None` when there is none.
    pub created: Option<UTime>,
    /// When the ticket ends; `None` when nothing expires.
    pub expires: Option<UTime>,
}

impl Identity {
    /// The caps as an OSD reads them.
    ///
    /// # Errors
    /// [`CapsError`] when the text is not in the OSD caps grammar; the session then has no rights.
    pub fn osd_caps(&self) -> Result<OsdCaps, CapsError> {
        if self.allow_all { Ok(OsdCaps::allow_all()) } else { OsdCaps::parse(&self.caps) }
    }

    /// The caps as a monitor reads them.
    ///
    /// # Errors
    /// [`CapsError`] when the text is not in the monitor caps grammar.
    pub fn mon_caps(&self) -> Result<MonCaps, CapsError> {
        if self.allow_all { Ok(MonCaps::allow_all()) } else { MonCaps::parse(&self.caps, &self.name) }
    }

    /// The caps as a manager reads them.
    ///
    /// # Errors
    /// [`CapsError`] when the text is not in the manager caps grammar.
    pub fn mgr_caps(&self) -> Result<MgrCaps, CapsError> {
        if self.allow_all { Ok(MgrCaps::allow_all()) } else { MgrCaps::parse(&self.caps, &self.name) }
    }
}

/// A refused handshake: what goes over the wire, and the reason that stays in our log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Method that the peer asked for.
    pub method: u32,
    /// Error number for AUTH_BAD_METHOD; the same for a wrong key and an unknown entity.
    pub errno: Errno,
    /// Method numbers that we accept.
    pub methods: Vec<u32>,
    /// Mode numbers that we accept.
    pub modes: Vec<u32>,
    /// For the log only.
    pub reason: Reason,
}

/// Why a handshake was refused. Never sent: a peer must not learn which entities exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The method is one we do not speak or do not allow.
    #[error("method not allowed")]
    Method,
    /// No connection mode in common.
    #[error("no connection mode in common")]
    Mode,
    /// Bytes that do not decode.
    #[error("malformed payload")]
    Malformed,
    /// A frame at a moment when none is due.
    #[error("frame out of turn")]
    OutOfTurn,
    /// No such entity.
    #[error("unknown entity")]
    UnknownEntity,
    /// The proof does not fit the entity's key.
    #[error("wrong key")]
    WrongKey,
    /// A new instance showed an old ticket.
    #[error("ticket presented with a new global id")]
    SuperfluousTicket,
    /// A client asked for an existing global id without proving that it is its own.
    #[error("global id reclaimed without a valid ticket")]
    Reclaim,
    /// The entity has no rights at this service.
    #[error("no caps for this service")]
    NoCaps,
    /// The ticket names a key that we do not hold (any more).
    #[error("ticket of an unknown or expired secret")]
    UnknownSecret,
    /// The ticket cannot be decrypted or contradicts the frame around it.
    #[error("bad ticket")]
    BadTicket,
    /// The ticket's time is over.
    #[error("expired ticket")]
    Expired,
    /// The entity's key or caps have changed since the ticket was made.
    #[error("the entity's key or caps have changed since the ticket was made")]
    Void,
    /// The answer to our challenge is wrong.
    #[error("wrong answer to the challenge")]
    Challenge,
    /// The server lacks a key or number that it needs; not the peer's fault.
    #[error("server is not ready")]
    NotReady,
}

impl AuthDone {
    /// With method none: the entity that the peer names, with all rights.
    pub(crate) fn of_anybody(name: AuthName, global_id: u64) -> Self {
        Self {
            global_id,
            mode: ConnectionMode::Crc,
            payload: Bytes::new(),
            session_key: Bytes::new(),
            connection_secret: Bytes::new(),
            identity: Identity {
                name,
                global_id,
                caps: String::new(),
                allow_all: true,
                created: None,
                expires: None,
            },
        }
    }
}

impl Refusal {
    pub(crate) fn of(offer: &Offer, method: u32, errno: Errno, reason: Reason) -> Self {
        Self { method, errno, methods: offer.method_codes(), modes: offer.mode_codes(), reason }
    }
}
