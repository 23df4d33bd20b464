//! The client's side of object operations, as a sans-I/O machine: which OSD serves an object, what to send
//! again when that changes, which reply counts.
//!
//! [`Objecter`] owns no connection. The driver dials when told ([`Effect::Open`]), says when the connection is
//! there ([`Objecter::opened`]) or gone ([`Objecter::lost`]), and hands in replies and maps. An operation keeps
//! its number however often it is sent, so that the OSDs can tell a repetition from a new one.
//!
//! ```text
//!   submit --> no target, paused, or behind the barrier --> waits for a map
//!          \-> session open? Send : Open, Send when opened
//!   map: another interval of its PG, or maps were skipped --> Send again, one attempt later
//!   lost: dial anew if the OSD is still up there, Send again when opened
//!   BLOCK --> acknowledged; nothing of its range is sent before UNBLOCK, then all of it, one attempt later
//!   reply to the latest attempt from the OSD that it was sent to --> Done
//! ```
//!
//! Source of the behaviour: Ceph `src/osdc/Objecter.cc` at v16.2.15. Layer: core; uses maps and msg.
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod objecter;
mod request;
#[cfg(test)]
mod tests;

pub use objecter::{Effect, OPS_MAX, Objecter, TooMany};
pub use request::Request;
