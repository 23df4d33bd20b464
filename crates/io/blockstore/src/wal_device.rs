//! [`SplitDisk`]: a store whose log is on a device of its own, for the rest of the store one disk.
//!
//! ```text
//!  the store's   0   1   2 ........ 2+log ......... end
//!                |sb |sb | log      | data            |
//!  data device   0   1              2 ............. end-log
//!  log device    0   1   2 ........ 2+log
//! ```
//!
//! Of a store whose log was moved away after it was made, the data stay where they are: their device keeps the log's place.
//!
//! ```text
//!  data device   0   1   2 (place)  2+log ......... end
//!  log device    0   1   2 ........ 2+log
//! ```
//!
//! Both devices carry the store's superblock, each with its part in it: a device of another store, or the same one given
//! twice, is refused.

use crate::BLOCK;
use crate::error::OpenError;
use crate::mount::read_copies;
use crate::store::BlockStore;
use crate::superblock::{COPIES, Part, Superblock};
use nacre_buf::{AlignedBuf, BufList};
use nacre_env::disk::{Disk, DiskCompletion, DiskError, DiskInfo, DiskTag, Durability, blocking};
use std::collections::BTreeMap;
use std::time::Duration;

/// Which of the two devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Data,
    Log,
}

/// What a request of the caller still waits for.
struct Pending {
    tag: DiskTag,
    parts_left: u8,
    failed: Option<DiskError>,
}

/// Two devices as one. See the module's documentation.
pub struct SplitDisk {
    data: Box<dyn Disk>,
    log: Box<dyn Disk>,
    log_bytes: u64,
    /// The data device has a place for the log, too.
    is_in_place: bool,
    pending: BTreeMap<u64, Pending>,
    next: u64,
    /// Parts in flight at the data and at the log device.
    in_flight: (usize, usize),
}

impl std::fmt::Debug for SplitDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SplitDisk").field("log_bytes", &self.log_bytes).finish_non_exhaustive()
    }
}

impl SplitDisk {
    /// Bytes in front of the log on its device, and of the data on the other.
    pub const HEAD_BYTES: u64 = (COPIES as u64) * BLOCK as u64;

    /// Two devices without a store yet; all of `log` becomes the log. Make the store with
    /// [`crate::Options::wal_bytes`] = [`SplitDisk::log_bytes`], then call [`SplitDisk::label`].
    ///
    /// # Errors
    /// [`OpenError::Size`] when the log device is too small.
    pub fn new(data: Box<dyn Disk>, log: Box<dyn Disk>) -> Result<Self, OpenError> {
        let size_bytes = log.info().size_bytes;
        let log_bytes = size_bytes.checked_sub(Self::HEAD_BYTES).filter(|bytes| *bytes > 0);
        let log_bytes = log_bytes.ok_or(OpenError::Size { size_bytes })?;
        let (pending, in_flight) = (BTreeMap::new(), (0, 0));
        Ok(Self { data, log, log_bytes, is_in_place: false, pending, next: 0, in_flight })
    }

    /// The two devices of a store.
    ///
    /// # Errors
    /// [`OpenError::ForeignLog`] when they do not belong together; [`OpenError`] when one is no part of a store.
    pub fn open(mut data: Box<dyn Disk>, mut log: Box<dyn Disk>) -> Result<Self, OpenError> {
        let both = data.info().size_bytes.saturating_add(log.info().size_bytes);
        let (of_data, of_log) = (read_copies(data.as_mut(), both)?, read_copies(log.as_mut(), both)?);
        let is_in_place = match (of_data.part, of_log.part) {
            (Part::Data, Part::Log) => false,
            // Until a move has ended, the data device says that it is whole.
            (Part::Whole | Part::DataInPlace, Part::LogMoved) => true,
            _ => return Err(OpenError::ForeignLog),
        };
        if (Superblock { part: of_log.part, ..of_data }) != of_log {
            return Err(OpenError::ForeignLog);
        }
        let mut disk = Self::new(data, log)?;
        disk.is_in_place = is_in_place;
        let log_bytes = of_data.wal.count * BLOCK as u64;
        if log_bytes > disk.log_bytes {
            return Err(OpenError::Size { size_bytes: disk.log_bytes });
        }
        disk.log_bytes = log_bytes;
        Ok(disk)
    }

    /// Bytes of the log.
    #[must_use]
    pub const fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Writes on each device which part of the store it is: the last step of making one.
    ///
    /// # Errors
    /// [`OpenError`] when there is no store yet, or a device fails.
    pub fn label(&mut self) -> Result<(), OpenError> {
        let size_bytes = self.info().size_bytes;
        let whole = read_copies(self, size_bytes)?;
        for (disk, part) in [(&mut self.log, Part::Log), (&mut self.data, Part::Data)] {
            for copy in 0..COPIES {
                let block = Superblock { part, ..whole }.encode().into();
                blocking::write(disk.as_mut(), BlockStore::offset(copy.into()), block, Durability::Durable)?;
            }
        }
        Ok(())
    }

    /// The device of a range and the offset there. A range is never on both: neither records nor runs of data are.
    fn place(&self, offset: u64, length: u64) -> (Side, u64) {
        let (end, log_end) = (offset + length, Self::HEAD_BYTES + self.log_bytes);
        if offset >= Self::HEAD_BYTES && end <= log_end {
            return (Side::Log, offset);
        }
        assert!(end <= Self::HEAD_BYTES || offset >= log_end, "{offset}~{length} lies on both devices");
        (Side::Data, if offset >= log_end { offset - self.shift_bytes() } else { offset })
    }

    /// How much nearer to the beginning the data are on their device.
    const fn shift_bytes(&self) -> u64 {
        if self.is_in_place { 0 } else { self.log_bytes }
    }

    fn start(&mut self, tag: DiskTag, sides: &[Side]) -> DiskTag {
        self.next += 1;
        for side in sides {
            *self.count(*side) += 1;
        }
        let parts_left = u8::try_from(sides.len()).expect("two devices");
        self.pending.insert(self.next, Pending { tag, parts_left, failed: None });
        DiskTag(self.next)
    }

    fn count(&mut self, side: Side) -> &mut usize {
        match side {
            Side::Data => &mut self.in_flight.0,
            Side::Log => &mut self.in_flight.1,
        }
    }

    fn device(&mut self, side: Side) -> &mut dyn Disk {
        match side {
            Side::Data => self.data.as_mut(),
            Side::Log => self.log.as_mut(),
        }
    }

    fn finish(&mut self, mut completion: DiskCompletion, out: &mut Vec<DiskCompletion>) {
        let Some(pending) = self.pending.get_mut(&completion.tag.0) else { return };
        pending.parts_left -= 1;
        pending.failed = pending.failed.or(completion.result.err());
        if pending.parts_left > 0 {
            return;
        }
        let (number, tag, failed) = (completion.tag.0, pending.tag, pending.failed);
        self.pending.remove(&number);
        completion.tag = tag;
        completion.result = failed.map_or(Ok(()), Err);
        out.push(completion);
    }
}

impl Disk for SplitDisk {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        let (side, offset) = self.place(offset, data.len() as u64);
        let tag = self.start(tag, &[side]);
        self.device(side).write(offset, data, durability, tag);
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        let (side, offset) = self.place(offset, into.len() as u64);
        let tag = self.start(tag, &[side]);
        self.device(side).read(offset, into, tag);
    }

    fn flush(&mut self, tag: DiskTag) {
        let tag = self.start(tag, &[Side::Data, Side::Log]);
        self.data.flush(tag);
        self.log.flush(tag);
    }

    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag) {
        let (side, offset) = self.place(offset, length);
        let tag = self.start(tag, &[side]);
        self.device(side).discard(offset, length, tag);
    }

    fn submit(&mut self) {
        self.data.submit();
        self.log.submit();
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        for side in [Side::Data, Side::Log] {
            let mut done = Vec::new();
            self.device(side).drain(&mut done);
            *self.count(side) -= done.len();
            done.into_iter().for_each(|completion| self.finish(completion, out));
        }
    }

    /// With requests on both, waits for the log: what the data device finished meanwhile is drained with it.
    fn wait(&mut self) {
        if self.in_flight.1 > 0 { self.log.wait() } else { self.data.wait() }
    }

    fn set_wakeups(&mut self, wakeups: bool) {
        self.data.set_wakeups(wakeups);
        self.log.set_wakeups(wakeups);
    }

    fn delay(&mut self, each: Duration) -> std::io::Result<()> {
        self.data.delay(each)?;
        self.log.delay(each)
    }

    fn info(&self) -> DiskInfo {
        let (data, log) = (self.data.info(), self.log.info());
        DiskInfo {
            size_bytes: data.size_bytes + self.shift_bytes(),
            is_file: data.is_file,
            discard_bytes: data.discard_bytes,
            block_bytes: data.block_bytes.max(log.block_bytes),
            driver: data.driver,
        }
    }
}
