//! [`Probing`]: what a leader knows of its probes of pools, and what it orders ([`ProbeOrder`]). What follows from it is in `probing`.

use nacre_auth::CryptoKey;
use nacre_types::{PoolId, Stamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// Id of the client that probes.
pub const PROBE_USER: &str = "nacre-probe";
/// Namespace that it may use, and nothing else. No object stays there.
pub const PROBE_NAMESPACE: &str = ".nacre-probe";
/// Pools that have failed are probed again after this time, so that nobody is told for long that they fail; and all, where none could be.
pub(crate) const RETRY: Duration = Duration::from_secs(4);

/// So many rounds one after the other that could not begin are a health check.
const FAILED_ROUNDS_MIN: u32 = 2;

/// What is to be probed now.
#[derive(Debug, Clone)]
pub struct ProbeOrder {
    /// Key of [`PROBE_USER`].
    pub key: CryptoKey,
    /// These pools only.
    pub pools: Option<BTreeSet<PoolId>>,
    /// Number of the round: of pools with very many PGs each has a part of them.
    pub round: u64,
    /// What is not answered by then has failed.
    pub patience: Duration,
}

/// What this leader knows of its probes.
#[derive(Debug, Default)]
pub(crate) struct Probing {
    /// When all pools are due.
    pub(crate) due_at: Option<Stamp>,
    /// When those are due that have failed.
    pub(crate) retry_at: Stamp,
    pub(crate) is_under_way: bool,
    pub(crate) round: u64,
    /// Why the last round could not begin.
    pub(crate) error: Option<String>,
    /// Rounds one after the other that could not.
    pub(crate) failed_rounds: u32,
}

impl Probing {
    /// Why rounds do not begin, once it is more than an election at the wrong moment.
    pub(crate) fn lasting_error(&self) -> Option<&str> {
        self.error.as_deref().filter(|_| self.failed_rounds >= FAILED_ROUNDS_MIN)
    }
}
