//! What the autoscaler sees: how many PGs each pool should have. Commands and health show it, `autoscaling` acts on it.

use crate::autoscaler::NOAUTOSCALE;
use crate::state::State;
use nacre_mgr::autoscaler::{Cluster, Outlook, look};
use nacre_mgr::pgmap::Digest;

/// Whether all pools are left alone.
pub(crate) fn is_off(state: &State) -> bool {
    state.option_of_managers(NOAUTOSCALE) == Some("true")
}

/// What each pool should have, and the facts by which.
pub(crate) fn outlook(state: &State, digest: &Digest) -> (Cluster, Outlook) {
    let per_osd = state.number_of_managers("mon_target_pg_per_osd");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
    let per_osd = per_osd as u64;
    let cluster = Cluster::of(state.osd.map(), state.shown_pgs(), &digest.pools, per_osd);
    let outlook = look(&cluster);
    (cluster, outlook)
}
