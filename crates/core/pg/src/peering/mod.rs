//! Intervals, and how the members of one agree on a log.
//!
//! ```text
//!  new interval --> GetInfo --> GetLog --> WaitUpThru --> Activating --> Active (serving or not)
//!                      |                                      ^
//!                      v                            a fresh PG begins here
//!       Down, Incomplete, WaitActingChange: until a map changes something
//! ```
//! A copy that is not primary is a stray until the primary activates it. What differs from Ceph: the
//! replica computes what it misses itself while it merges the primary's log and reports it in `Activated`
//! (there is no GetMissing). A copy whose log does not reach the authoritative one is compared object by
//! object once the PG is active (`recovery/backfill.rs`); a primary of which that is true does not lead.

mod activate;
mod agree;
mod choose;
mod create;
mod gather;
mod intervals;
mod lineage;
mod patience;
mod phase;
mod replica;

pub use create::PgCreateInfo;
pub(crate) use intervals::{Interval, is_up};
pub use lineage::Lineage;
pub(crate) use patience::Patience;
pub(crate) use phase::{Peer, Phase};

/// What this copy keeps for peering alone.
#[derive(Debug, Default)]
pub(crate) struct Peering {
    pub(crate) patience: Patience,
    /// Names this copy's questions.
    query_nonce: u64,
    /// The choice of the authoritative log leaves out what is known of intervals in which none of those who know took part.
    pub(crate) ignores_history_les: bool,
}
