//! Authentication on an established monitor session: service tickets, rotating keys.
//!
//! Source: Ceph `MAuth.h`, `MAuthReply.h`, v16.2.15. The payloads are nacre-auth's.

use crate::body::body;
use nacre_buf::Bytes;
use nacre_types::Epoch;

/// `MAuth`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Auth {
    /// Version of the service's state that the sender knows.
    pub version: u64,
    /// Method: 1 none, 2 cephx; 0 asks for the choice (before messenger v2).
    pub protocol: u32,
    /// The method's request.
    pub payload: Bytes,
    /// Epoch of the sender's monitor map.
    pub monmap_epoch: Epoch,
}
body!(Auth = 17, 1 / 1; @version; protocol, payload, monmap_epoch);

/// `MAuthReply`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AuthReply {
    /// The authentication method: 2 is cephx.
    pub protocol: u32,
    /// 0 or a negated errno.
    pub result: i32,
    /// The session's global id.
    pub global_id: u64,
    /// The method's answer.
    pub payload: Bytes,
    /// Text for people.
    pub message: String,
}
body!(AuthReply = 18, 1 / 1 [high]; protocol, result, global_id, payload, message);
