//! Authentication and authorization: cephx on both sides, keyrings, the key server's data, caps.
//!
//! Everything here is plain data and small machines: no clock, no socket, no generator of random bytes; the
//! caller passes `wall`, payloads and [`nacre_types::Entropy`] in. Source of the formats: Ceph
//! `src/auth/cephx/CephxProtocol.h`, `src/auth/Auth.h`, `src/auth/Crypto.cc`, `src/auth/KeyRing.cc`,
//! `src/osd/OSDCap.cc` and `src/mon/MonCap.cc` at v16.2.15, checked against a running cluster of that
//! release. Layer: core; uses buf, denc, types.
//!
//! | side | uses |
//! |---|---|
//! | monitor, incoming connection | [`MonServer`] with the [`KeyServer`] |
//! | monitor, MAuth on a session | [`MonSessionAuth`] |
//! | OSD and manager, incoming connection | [`ServiceServer`] with [`RotatingKeys`] |
//! | a client of a monitor | [`ClientAuth`] |
//! | a client of an OSD or manager | [`Authorizer`] from [`ClientAuth::authorizer`] |
//! | a monitor, with another monitor | [`dial_monitor`], [`MonLinkAuth`] |
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

pub mod caps;
mod cephx;
mod changed_caps;
mod client;
mod crypto;
mod entity_auth;
mod global_ids;
mod key_server;
pub mod keyring;
mod mode;
mod mon_link;
mod mon_server;
mod recovery_key;
mod rotating;
mod service_server;
mod step;
mod ticket;
mod void;

#[cfg(test)]
mod handshake_tests;
#[cfg(test)]
mod testing;

pub use caps::{CapsError, ClassCall, MgrCaps, MonCaps, OsdCaps, OsdRequest, Rwx};
pub use changed_caps::{CHANGED_BYTES_MAX, CHANGED_ENTITIES_MAX, ChangedCaps};
pub use client::{AuthStart, Authorizer, ClientAuth, ClientError, ClientReply, ServiceAccess, SessionKeys};
pub use crypto::{CryptoError, CryptoKey, KEY_BYTES};
pub use entity_auth::{Caps, EntityAuth};
pub use global_ids::{GLOBAL_IDS_PER_GRANT, GlobalIds};
pub use key_server::{AuthChange, AuthCommandError, KeyServer, ROTATING_SERVICES, TicketLifetimes};
pub use keyring::Keyring;
pub use mode::{AuthMethod, CONNECTION_SECRET_BYTES, ConnectionMode, Offer};
pub use mon_link::{MonLinkAuth, MonLinkInput, dial_monitor};
pub use mon_server::{
    MonAuthContext, MonAuthReply, MonServer, MonSessionAuth, ServiceTickets, UNUSABLE_TICKET_TTL,
};
pub use recovery_key::{RECOVERY_KEY_BYTES, RecoveryKey, RecoveryKeyError, SEAL_OVERHEAD_BYTES, Unsealable};
pub use rotating::{ExpiringKey, ROTATING_KEYS_MAX, RotatingKeys};
pub use service_server::{ServiceAuthContext, ServiceServer};
pub use step::{AuthDone, Identity, Reason, Refusal, Step};
pub use ticket::TicketForm;
pub use void::{VOID_ENTITIES_MAX, VoidTickets};
