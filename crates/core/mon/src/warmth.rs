//! [`Warmth`]: whether a leader has heard enough to take silence for an answer.

use nacre_maps::OsdMap;
use nacre_mgr::PgMap;
use nacre_types::Stamp;
use std::time::Duration;

/// OSDs that are up have so long to report to a leader that has just begun; one that has not by then may be dead.
pub const WARM_UP: Duration = Duration::from_secs(5);

/// A leader begins with the durable tables alone: of statistics it has none until the OSDs have found it. What nobody has reported by then says
/// nothing, neither that a pool has room again, nor that a PG is clean, nor that nobody needs an OSD. It is warm, and stays so, once every
/// OSD that is up has reported, or [`WARM_UP`] after it began. All decisions that count on absence ask this first
/// (`State::is_warm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Warmth {
    /// It does not lead yet.
    #[default]
    Opened,
    /// It leads since then, and some OSDs have not reported.
    Cold(Stamp),
    /// It knows what there is to know.
    Warm,
}

impl Warmth {
    /// It begins to lead.
    pub(crate) fn begin(&mut self, now: Stamp) {
        *self = Self::Cold(now);
    }

    /// Looks at who has reported by now.
    pub(crate) fn update(&mut self, now: Stamp, map: &OsdMap, stats: &PgMap) {
        if let Self::Cold(since) = *self
            && (now.since(since) >= WARM_UP || map.up_osds().all(|osd| stats.osd(osd).is_some()))
        {
            *self = Self::Warm;
        }
    }
}
