//! [`KeptStats`]: statistics that an earlier leader kept in the tables, to be shown until the OSDs have reported to this one.

use crate::batch::{Batch, Snapshot};
use crate::stored_map::StoredMap;
use nacre_denc::DecodeError;
use nacre_mgr::{KeptDigest, PgMap};
use nacre_types::Stamp;
use std::time::Duration;

const TABLE: &str = "digest";
/// Time between two looks at whether there is something new to keep: as often as OSDs report.
const KEEP_PERIOD: Duration = Duration::from_secs(5);

/// The digest of the tables. Only what is shown comes from it: decisions ask for live reports (`State::is_warm`).
#[derive(Debug)]
pub(crate) struct KeptStats {
    stored: StoredMap<KeptDigest>,
    shown: Option<PgMap>,
    kept_at: Option<Stamp>,
}

impl KeptStats {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let is_there = snapshot.get(TABLE, crate::stored_map::KEY).is_some();
        let stored = StoredMap::open(snapshot, TABLE, KeptDigest::default())?;
        let shown = is_there.then(|| PgMap::from_kept(stored.map().clone()));
        Ok(Self { stored, shown, kept_at: None })
    }

    /// What an earlier leader had, if it kept something.
    pub(crate) fn shown(&self) -> Option<&PgMap> {
        self.shown.as_ref()
    }

    /// True when it is time for [`KeptStats::keep`].
    pub(crate) fn is_due(&self, now: Stamp) -> bool {
        self.kept_at.is_none_or(|at| now.since(at) >= KEEP_PERIOD)
    }

    /// Keeps a digest; nothing is written where it is the same.
    pub(crate) fn keep(&mut self, now: Stamp, digest: KeptDigest) {
        self.kept_at = Some(now);
        self.shown = None;
        if *self.stored.map() != digest {
            self.stored.update(|stored| *stored = digest);
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.stored.is_dirty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        self.stored.flush(batch);
    }
}
