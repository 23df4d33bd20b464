//! What the device of a store costs, measured each time before it is opened, and what follows from it.

use crate::mount;
use crate::store::BlockStore;
use crate::superblock::Superblock;
use crate::{BLOCK, OpenError, Options};
use nacre_env::Clock;
use nacre_env::disk::{DeviceReport, Disk, blocking, probe_in_place};

/// Rewrites of each kind: a few dozen requests, 100 ms on a spindle.
const SAMPLES: u64 = 7;
/// The copy of the superblock that is written again, as it is.
const COPY: u64 = 1;

/// On a device that must be flushed a record may be this long: the flush costs as much as many of them.
const LONG_RECORD_BYTES: usize = 1 << 20;
/// And so much of a write travels in it: each write beside the record is one more that must be flushed.
const LONG_INLINE_BYTES: usize = 128 << 10;

/// Measures the device of a store that is not open, by writing the second copy of the superblock over itself: whatever
/// fails meanwhile, the content is the same. `None` when that copy is not whole: then it must stay as it is.
///
/// # Errors
/// [`OpenError`] when there is no store, or the device fails.
pub fn probe(disk: &mut dyn Disk, clock: &dyn Clock) -> Result<Option<DeviceReport>, OpenError> {
    // Also of one device of two: its size says nothing.
    let good = mount::read_copies(disk, u64::MAX)?;
    let offset = BlockStore::offset(COPY);
    let copy = blocking::read(disk, offset, BLOCK)?.freeze();
    match Superblock::decode(&copy, u64::MAX) {
        Ok(superblock) if superblock == good => {
            Ok(Some(probe_in_place(disk, clock, offset, &copy, SAMPLES)?))
        }
        _ => Ok(None),
    }
}

impl Options {
    /// The same, as it suits a device.
    #[must_use]
    pub fn on_device(self, report: &DeviceReport) -> Self {
        if report.flush_is_expensive() {
            Self { inline_bytes_max: LONG_INLINE_BYTES, record_bytes_max: LONG_RECORD_BYTES, ..self }
        } else {
            self
        }
    }

    /// How transactions become durable, for a log or status.
    #[must_use]
    pub fn commit_text(&self) -> String {
        format!(
            "records of up to {} KiB, writes of up to {} KiB in them",
            self.record_bytes_max >> 10,
            self.inline_bytes_max >> 10
        )
    }
}
