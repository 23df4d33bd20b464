//! [`State`]: what a connection waits for, and which state may follow which.

use crate::control::{ClientIdent, Reconnect};

/// A lossless peer's request that waits for its session.
#[derive(Debug)]
pub(super) enum Request {
    Open(ClientIdent),
    Resume(Reconnect),
}

/// "Owed" states wait for the driver; parsing stops there.
///
/// ```text
///  Banner ▸ BannerRest ▸ Hello ┬ server: AuthRequest ▸ AuthOwed ┬▸ AuthMore ▸ AuthOwed ..
///                              │             ▲──── bad ─────────┤
///                              │                                └▸ Signature ▸ Ident ⇄ SessionOwed ▸ Open
///                              └ client: AuthIdle ▸ AuthReply ⇄ AuthOwed
///                                           ▲─ bad ─┴▸ FinishOwed ▸ Signature ▸ Ident ▸ Open
/// ```
#[derive(Debug)]
pub(super) enum State {
    Banner,
    BannerRest {
        length: u16,
    },
    Hello,
    /// Client: the driver owes the first request.
    AuthIdle,
    /// Server: a request is awaited.
    AuthRequest,
    /// The driver owes an answer to the peer's last AUTH frame.
    AuthOwed,
    /// Server: the next part of a request is awaited.
    AuthMore,
    /// Client: the server's answer is awaited.
    AuthReply,
    /// Client: authenticated; the driver owes the keys.
    FinishOwed {
        mode: u32,
    },
    /// The peer's signature is awaited and must be this.
    Signature {
        expected: [u8; 32],
    },
    /// Server: an identification is awaited. Client: its answer.
    Ident,
    /// Server: the driver owes the peer's session.
    SessionOwed(Box<Request>),
    Open,
    Closed,
}

impl State {
    /// For people: what the connection is doing.
    pub(super) fn phase(&self) -> &'static str {
        match self {
            Self::Banner | Self::BannerRest { .. } => "waiting for the banner",
            Self::Hello => "waiting for HELLO",
            Self::AuthIdle | Self::AuthOwed | Self::FinishOwed { .. } => "authenticating on our side",
            Self::AuthRequest | Self::AuthMore | Self::AuthReply => "waiting for authentication",
            Self::Signature { .. } => "waiting for the signature",
            Self::Ident => "waiting for the identification",
            Self::SessionOwed(_) => "looking for the session",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }

    /// True when the next step is the driver's, so that nothing may be parsed before it.
    pub(super) fn is_owed(&self) -> bool {
        matches!(
            self,
            Self::AuthIdle | Self::AuthOwed | Self::FinishOwed { .. } | Self::SessionOwed(_) | Self::Closed
        )
    }

    /// True when `next` may follow.
    pub(super) fn allows(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Closed, _) => false,
            (_, Self::Closed)
            | (Self::Banner, Self::BannerRest { .. })
            | (Self::BannerRest { .. }, Self::Hello)
            | (Self::Hello, Self::AuthIdle | Self::AuthRequest)
            | (Self::AuthIdle, Self::AuthReply)
            | (Self::AuthRequest | Self::AuthMore, Self::AuthOwed)
            | (
                Self::AuthOwed,
                Self::AuthMore | Self::AuthRequest | Self::AuthReply | Self::Signature { .. },
            )
            | (Self::AuthReply, Self::AuthOwed | Self::AuthIdle | Self::FinishOwed { .. })
            | (Self::FinishOwed { .. }, Self::Signature { .. })
            | (Self::Signature { .. }, Self::Ident)
            | (Self::Ident, Self::SessionOwed(_) | Self::Open)
            | (Self::SessionOwed(_), Self::Ident | Self::Open) => true,
            _ => false,
        }
    }
}
