//! [`Discards`]: what of the freed space is still to be discarded, what is being, and how fast. What is done with it is in `trim.rs`.

mod marks;
mod rate;

pub(crate) use marks::Marks;
pub(crate) use rate::DiscardRate;

use crate::device::Run;
use nacre_env::DiskError;
use nacre_store::{DiscardPolicy, DiscardTotals};
use nacre_types::Stamp;

/// What is to be discarded, and what was.
#[derive(Default)]
pub(crate) struct Discards {
    pub(crate) policy: DiscardPolicy,
    /// `None` where nothing is discarded.
    pub(crate) marks: Option<Marks>,
    /// Blocks of a unit.
    pub(crate) unit_blocks: u64,
    /// Why the device does not discard.
    pub(crate) refused: Option<DiskError>,
    pub(crate) rate: DiscardRate,
    pub(crate) in_flight: usize,
    /// When the batch in flight was begun.
    pub(crate) began: Stamp,
    /// What was discarded since the store was opened.
    pub(crate) totals: DiscardTotals,
}

impl Discards {
    /// A checkpoint has freed a run.
    pub(crate) fn freed(&mut self, run: Run) {
        if let Some(marks) = &mut self.marks {
            marks.add(run);
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.marks.as_ref().map_or(0, Marks::bytes)
    }

    /// Units in which something was freed, and that were not looked at since.
    pub(crate) fn marked(&self) -> u64 {
        self.marks.as_ref().map_or(0, Marks::count)
    }
}
