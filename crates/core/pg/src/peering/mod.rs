//! Intervals, and how the members of one agree on a log.
//!
//! ```text
//!  new interval --> GetInfo --> GetLog --> Scan --> WaitUpThru --> Activating --> Active (serving or not)
//!                      |           |                                    ^
//!                      v           v                          a fresh PG begins here
//!                 Down, Incomplete: until a map changes something
//! ```
//! A copy that is not primary is a stray until the primary activates it. What differs from Ceph: the
//! replica computes what it misses itself while it merges the primary's log and reports it in `Activated`
//! (there is no GetMissing); a copy whose log does not reach the authoritative one is compared object by
//! object before activation, so that from then on every copy's missing objects are known exactly.

mod activate;
mod birth;
mod choose;
mod gather;
mod intervals;
mod phase;
mod replica;
mod scan;

pub use birth::Birth;
pub(crate) use intervals::{Interval, is_up};
pub(crate) use phase::{Peer, Phase};
