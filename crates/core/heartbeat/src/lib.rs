//! Failure detection of one OSD, as a sans-I/O machine: which OSDs to ping, and which to report when.
//!
//! Each OSD pings its heartbeat peers every interval, on the cluster network ([`Side::Back`]) and on the public
//! one ([`Side::Front`]). A peer with a ping that is older than the grace and not answered on both sides is
//! reported failed; one that answers again, alive. A peer that refuses connections has no process any more and
//! is reported at once. Whether that marks anybody down is the monitor's decision.
//!
//! ```text
//!             ping not answered for the grace             reported
//!  healthy ------------------------------------> silent -----------> waits for the map
//!     ^                  answers again                                     |
//!     +--------------------------------------------------------------------+
//! ```
//! Source of the behaviour: Ceph `src/osd/OSD.cc` at v16.2.15 (`maybe_update_heartbeat_peers`,
//! `heartbeat_check`, `send_failures`, `ms_handle_refused`). Layer: core; uses msg and types.

mod heartbeats;
mod leases;
mod peers;
mod recent_pings;
mod round_trips;
#[cfg(test)]
mod tests;

pub use heartbeats::{Effect, Event, Heartbeats, PeerAnswers, PeerRoundTrips, Settings, Side};
pub use leases::Leases;
pub use peers::choose_peers;
