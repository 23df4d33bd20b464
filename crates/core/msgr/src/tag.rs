//! [`Tag`]: the kinds of frames.

/// Kind of a frame. Ceph `ceph::msgr::v2::Tag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum Tag {
    Hello = 1,
    AuthRequest,
    AuthBadMethod,
    AuthReplyMore,
    AuthRequestMore,
    AuthDone,
    AuthSignature,
    ClientIdent,
    ServerIdent,
    IdentMissingFeatures,
    SessionReconnect,
    SessionReset,
    SessionRetry,
    SessionRetryGlobal,
    SessionReconnectOk,
    Wait,
    Message,
    Keepalive2,
    Keepalive2Ack,
    Ack,
}

impl Tag {
    pub(crate) const ALL: [Self; 20] = [
        Self::Hello,
        Self::AuthRequest,
        Self::AuthBadMethod,
        Self::AuthReplyMore,
        Self::AuthRequestMore,
        Self::AuthDone,
        Self::AuthSignature,
        Self::ClientIdent,
        Self::ServerIdent,
        Self::IdentMissingFeatures,
        Self::SessionReconnect,
        Self::SessionReset,
        Self::SessionRetry,
        Self::SessionRetryGlobal,
        Self::SessionReconnectOk,
        Self::Wait,
        Self::Message,
        Self::Keepalive2,
        Self::Keepalive2Ack,
        Self::Ack,
    ];

    /// The kind that a number stands for, if any.
    pub(crate) fn from_code(tag: u8) -> Option<Self> {
        Self::ALL.get(usize::from(tag).wrapping_sub(1)).copied()
    }
}
