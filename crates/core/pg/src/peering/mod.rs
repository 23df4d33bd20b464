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
mod clean;
mod create;
mod gather;
mod lineage;
mod patience;
mod replica;

pub(crate) use clean::Recovered;
pub use create::{PgCreateInfo, reply_without_pg};
pub use lineage::Lineage;
pub(crate) use patience::Patience;

use crate::phase::Phase;
use crate::state::PgState;
use nacre_types::OsdId;

/// What this copy keeps for peering alone.
#[derive(Debug, Default)]
pub(crate) struct Peering {
    pub(crate) patience: Patience,
    /// Names this copy's questions.
    query_nonce: u64,
    /// The choice of the authoritative log leaves out what is known of intervals in which none of the OSDs that know took part.
    pub(crate) ignores_history_les: bool,
}

/// What came of a step of peering, for others to go on with.
#[must_use]
#[derive(Debug)]
pub(crate) enum PeeringOutcome {
    /// All that is under way is to be taken back; then [`Peering::restart`].
    Restart,
    /// The PG cannot serve before something happens that may take long: clients are to hold what waits for it.
    Stuck,
    /// All members have the log: what they miss is recovered, and clients are served if there are enough of them.
    Activated,
    /// A copy that is no member turned up.
    Stray(OsdId),
    /// An OSD may have gone down that was to send objects.
    SourcesMayBeGone,
}

impl Peering {
    /// Changes the phase.
    ///
    /// # Panics
    /// When the edge is not in the picture of `peering`: our own mistake.
    fn set_phase(&mut self, state: &mut PgState, next: Phase) {
        assert!(
            state.phase.allows(&next),
            "{}: {} cannot follow {}",
            state.spg,
            next.name(),
            state.phase.name()
        );
        state.phase = next;
        self.patience.begin();
    }
}
