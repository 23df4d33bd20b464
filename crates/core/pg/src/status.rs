//! What the OSD asks a PG, without an event: where it stands, what waits in it, and what it lacks.

use crate::recovery::{LostError, MissingObject};
use crate::{Lost, Pg, ScrubIntervals};
use nacre_txn::ObjectView;
use nacre_types::{HObject, UTime};

impl Pg {
    /// Objects that the primary or a copy that it recovers by the log lacks, in order behind `from`, at most
    /// `count_max`; and whether there are more. `unfound`: only those that nobody who is up has.
    #[must_use]
    pub fn missing_objects(
        &self,
        view: &dyn ObjectView,
        from: &HObject,
        unfound: bool,
        count_max: usize,
    ) -> (Vec<MissingObject>, bool) {
        self.recovery.missing_objects(&self.state, view, from, unfound, count_max)
    }

    /// How many objects this copy lacks, and how many nobody has.
    #[must_use]
    pub fn missing_counts(&self) -> (usize, usize) {
        (self.state.missing.len(), self.recovery.unfound_count())
    }

    /// How many objects [`crate::Event::MarkLost`] would give up.
    ///
    /// # Errors
    /// [`LostError`]
    pub fn can_mark_lost(&self, view: &dyn ObjectView, lost: Lost) -> Result<usize, LostError> {
        self.recovery.can_mark_lost(&self.state, view, lost)
    }
}

impl Pg {
    /// True while copies are compared, or are to be once the PG is clean.
    #[must_use]
    pub fn is_scrubbing(&self) -> bool {
        self.scrub.is_wanted(&self.state)
    }

    /// When it was time to compare the copies without anybody's order, and whether deeply: the earlier, the more
    /// urgent. `None` if that is not now: too soon, not clean, held by `noscrub` or `nodeep-scrub`.
    #[must_use]
    pub fn scrub_due(&self, wall: UTime, intervals: &ScrubIntervals) -> Option<(UTime, bool)> {
        self.scrub.due(&self.state, wall, intervals)
    }
}
