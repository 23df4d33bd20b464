//! What can be done with a store whose log has a gap, see [`LogGap`]: look at what it held before, and give it up.
//!
//! What the lost records said is unknown, so any PG may have lost writes that were acknowledged. None of them may come
//! back as it is: it would show a shorter log than it promised. They are removed, and recover from the other OSDs.

use crate::error::{LogGap, OpenError};
use crate::mount::{self, OnGap, Seat};
use crate::options::Options;
use crate::store::BlockStore;
use nacre_env::disk::Disk;
use nacre_kv::KvStore;
use nacre_txn::ObjectView;
use nacre_types::{HObject, SpgId};

/// Objects removed between two checkpoints: they bound the memory.
const OBJECTS_AT_ONCE: usize = 1024;

/// Whether the log of a store that is not open has a gap. Changes nothing, but brings metadata of format 1 to the
/// present one.
///
/// # Errors
/// [`OpenError`] when the store does not open for another reason.
pub fn log_gap(
    disk: Box<dyn Disk>,
    kv: Box<dyn KvStore + Send>,
    options: Options,
) -> Result<Option<LogGap>, OpenError> {
    log_gap_of(disk, kv, options, None)
}

/// The same, of a store that is divided or not.
pub(crate) fn log_gap_of(
    disk: Box<dyn Disk>,
    kv: Box<dyn KvStore + Send>,
    options: Options,
    seat: Option<Seat>,
) -> Result<Option<LogGap>, OpenError> {
    mount::load(disk, kv, options, OnGap::Cut, seat).map(|(_, _, report)| report.gap)
}

/// Removes all collections but `keep` from a store whose log has a gap, and ends the log before the gap, so that the store
/// opens. Gives what was removed. Interrupted, the gap is still there and it goes on the next time.
///
/// # Errors
/// [`OpenError`]; [`OpenError::Inconsistent`] also when there is no gap: then nothing is given up.
pub fn give_up_groups(
    disk: Box<dyn Disk>,
    kv: Box<dyn KvStore + Send>,
    options: Options,
    keep: &SpgId,
) -> Result<Vec<SpgId>, OpenError> {
    give_up_groups_of(disk, kv, options, keep, None)
}

/// The same, of a store that is divided or not.
pub(crate) fn give_up_groups_of(
    disk: Box<dyn Disk>,
    kv: Box<dyn KvStore + Send>,
    options: Options,
    keep: &SpgId,
    seat: Option<Seat>,
) -> Result<Vec<SpgId>, OpenError> {
    let (mut store, highest, report) = mount::load(disk, kv, options, OnGap::Cut, seat)?;
    if report.gap.is_none() {
        return Err(OpenError::Inconsistent { what: "the log has no gap, collections", value: 0 });
    }
    let given_up: Vec<SpgId> = store.table.collections.keys().copied().filter(|at| at != keep).collect();
    for at in &given_up {
        store.give_up(*at)?;
    }
    // Only this ends the gap: its record is where the lost one was.
    store.begin(highest)?;
    Ok(given_up)
}

impl BlockStore {
    fn give_up(&mut self, at: SpgId) -> Result<(), OpenError> {
        loop {
            let names = self.list(&at, &HObject::MIN, OBJECTS_AT_ONCE);
            if names.is_empty() {
                break;
            }
            names.iter().for_each(|name| self.table.remove(at, name));
            self.bring_home()?;
        }
        self.table.remove_collection(at);
        self.bring_home()
    }

    /// A checkpoint of what was changed without a record.
    fn bring_home(&mut self) -> Result<(), OpenError> {
        self.finish_checkpoint();
        match self.failed.clone().or_else(|| self.table.failure()) {
            Some(reason) => Err(OpenError::Unreadable { reason }),
            None => Ok(()),
        }
    }
}
