//! What the devices of a store cost, measured each time before it is opened, and what follows from it.

use crate::mount;
use crate::options::{RECORD_BYTES_MAX, WAL_BYTES_MIN};
use crate::store::{BlockStore, IO_BLOCKS_MAX};
use crate::superblock::Superblock;
use crate::{BLOCK, OpenError, Options};
use nacre_env::Clock;
use nacre_env::disk::{DeviceReport, Disk, REQUEST_BYTES_MAX, blocking, probe_in_place};
use std::time::Duration;

/// Rewrites of each kind: a few dozen requests, 100 ms on a spindle.
const SAMPLES: u64 = 7;
/// The copy of the superblock that is written again, as it is.
const COPY: u64 = 1;

/// On a device that must be flushed a record may be this long: the flush costs as much as many of them.
const LONG_RECORD_BYTES: usize = 1 << 20;
/// And so much of a write travels in it: each write beside the record is one more that must be flushed. So it is where the log's device is
/// much faster than that of the data: what goes beside the record waits for that one.
const LONG_INLINE_BYTES: usize = 128 << 10;
/// Where a request more costs little, so much of a write travels in the record, and is written twice: docs/experiments/0013.
const SHORT_INLINE_BYTES: usize = 8 << 10;
/// And so many transactions must be under way for shorter ones to be placed together, where their data need no flush of their own:
/// docs/experiments/0015.
const PLACED_TOGETHER_MIN: usize = 8;
/// A data device is that much slower than the log's when a durable write takes so many times as long: a spindle takes 8 ms where flash
/// takes 0.1 ms.
const SLOWER_TIMES: u32 = 8;
/// What a log takes is counted as this at least: less says more of the clock than of the device.
const DURABLE_WRITE_MIN: Duration = Duration::from_micros(1);
/// A long write in a record is at most one part of so many of each room that it passes through.
const ROOM_PARTS_MIN: u64 = 8;

// As much has room in the record beside such a write: the rest of a turn need not wait for the next one.
const _: () = assert!(2 * LONG_INLINE_BYTES <= RECORD_BYTES_MAX);
// The smallest log of a store that is not divided has room for several: otherwise each would wait for a checkpoint.
const _: () = assert!(LONG_INLINE_BYTES as u64 * ROOM_PARTS_MIN <= WAL_BYTES_MIN);
// One request can have all of it, and one all of a record.
const _: () = assert!(LONG_INLINE_BYTES / BLOCK < IO_BLOCKS_MAX && LONG_RECORD_BYTES < REQUEST_BYTES_MAX);

/// A device of a store, as it is known before the store is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KnownDevice {
    /// What it costs; `None` where that could not be measured.
    pub report: Option<DeviceReport>,
    /// Whether it turns; `None` where the system does not know.
    pub rotational: Option<bool>,
}

/// The devices of a store, as they are known before it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownDevices {
    /// That with the data.
    pub data: KnownDevice,
    /// That with the log, where it has one of its own.
    pub log: Option<KnownDevice>,
    /// Bytes of the log that each partition has: [`log_bytes`].
    pub log_bytes: u64,
}

impl KnownDevices {
    /// That on which transactions become durable.
    fn commits(&self) -> &KnownDevice {
        self.log.as_ref().unwrap_or(&self.data)
    }

    /// Whether the log's device has a write durable long before that of the data would have it.
    fn is_log_much_faster(&self) -> bool {
        let Some(log) = &self.log else { return false };
        // Of many virtual disks the kernel says that they turn, and then of all that a machine has: where the log's is such a one, too,
        // only what they cost tells them apart.
        let is_spindle = self.data.rotational == Some(true) && log.rotational != Some(true);
        let Some((data, log)) = self.data.report.zip(log.report) else { return is_spindle };
        let (data, log) = (data.durable_write.best, log.durable_write.best);
        (is_spindle && data >= log) || data >= log.max(DURABLE_WRITE_MIN) * SLOWER_TIMES
    }
}

/// Bytes of the log that each partition of a store has, by any of its devices.
///
/// # Errors
/// [`OpenError`] when there is no store, or the device fails.
pub fn log_bytes(disk: &mut dyn Disk) -> Result<u64, OpenError> {
    // Also of one device of two: its size says nothing.
    Ok(mount::read_copies(disk, u64::MAX)?.share(0).wal.count * BLOCK as u64)
}

/// Measures a device of a store that is not open, by writing the second copy of the superblock over itself: whatever
/// fails meanwhile, the content is the same. `None` when that copy is not as the first one, or cannot be read: then it must stay as it is.
///
/// # Errors
/// [`OpenError`] when there is no store, or the device fails.
pub fn probe(disk: &mut dyn Disk, clock: &dyn Clock) -> Result<Option<DeviceReport>, OpenError> {
    // Also of one device of two: its size says nothing.
    let good = mount::read_copies(disk, u64::MAX)?;
    let offset = BlockStore::offset(COPY);
    let Ok(copy) = blocking::read_patiently(disk, offset, BLOCK) else { return Ok(None) };
    let copy = copy.freeze();
    match Superblock::decode(&copy, u64::MAX) {
        Ok(superblock) if superblock == good => {
            Ok(Some(probe_in_place(disk, clock, offset, &copy, SAMPLES)?))
        }
        _ => Ok(None),
    }
}

impl Options {
    /// The same, as it suits the devices. Else it stays as it is:
    ///
    /// | devices | a record | of a write in it |
    /// | --- | --- | --- |
    /// | where transactions become durable, a flush is expensive | up to 1 MiB | up to 128 KiB |
    /// | a spindle, or what is as slow, with a log on something faster | as it is | up to 128 KiB |
    /// | all on one whose flush is cheap | as it is | up to 8 KiB |
    /// | all on one whose durable writes cost no more than others | as it is | the same, and none that is whole blocks while eight are under way |
    ///
    /// Where logs are short or memory is little, because there are many partitions, writes in records stay as they are, too: a long one may
    /// have an eighth of either.
    #[must_use]
    pub fn on_devices(mut self, devices: &KnownDevices) -> Self {
        let must_flush = devices.commits().report.is_some_and(|report| report.flush_is_expensive());
        if must_flush {
            self.record_bytes_max = LONG_RECORD_BYTES;
        }
        let room = devices.log_bytes.min(self.overlay_bytes_max).min(self.changes_bytes_max);
        let has_room = LONG_INLINE_BYTES as u64 * ROOM_PARTS_MIN <= room;
        if has_room && (must_flush || devices.is_log_much_faster()) {
            self.inline_bytes_max = LONG_INLINE_BYTES;
        }
        let report = devices.data.report.filter(|_| devices.log.is_none());
        if report.is_some_and(|report| !report.flush_is_expensive()) {
            self.inline_bytes_max = SHORT_INLINE_BYTES;
        }
        if report.is_some_and(|report| !report.durable_costs_more()) {
            self.placed_together_min = Some(PLACED_TOGETHER_MIN);
        }
        self
    }

    /// As [`Options::on_devices`], of a store that is all on one device, and whose log is long enough.
    #[must_use]
    pub fn on_device(self, report: &DeviceReport) -> Self {
        let data = KnownDevice { report: Some(*report), rotational: None };
        self.on_devices(&KnownDevices { data, log: None, log_bytes: u64::MAX })
    }

    /// How transactions become durable, for a log or status.
    #[must_use]
    pub fn commit_text(&self) -> String {
        let (record_kib, inline_kib) = (self.record_bytes_max >> 10, self.inline_bytes_max >> 10);
        let text = format!("records of up to {record_kib} KiB, writes of up to {inline_kib} KiB in them");
        match self.placed_together_min {
            Some(least) => format!("{text}, and none of whole blocks with {least} writes under way"),
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_env::disk::Cost;

    const LOG_BYTES: u64 = 64 << 20;

    fn report(durable_us: u64, flush_us: u64) -> DeviceReport {
        let cost = |us| Cost { median: Duration::from_micros(us), best: Duration::from_micros(us) };
        DeviceReport {
            driver: "simulated",
            size_bytes: 1 << 40,
            durable_write: cost(durable_us),
            cached_write: cost(20),
            flush: cost(flush_us),
            read: cost(80),
        }
    }

    fn device(durable_us: u64, flush_us: u64, rotational: Option<bool>) -> KnownDevice {
        KnownDevice { report: Some(report(durable_us, flush_us)), rotational }
    }

    /// KiB of a record, and of a write in it.
    fn chosen(options: Options, devices: &KnownDevices) -> (usize, usize) {
        let options = options.on_devices(devices);
        (options.record_bytes_max >> 10, options.inline_bytes_max >> 10)
    }

    fn usual(data: KnownDevice, log: Option<KnownDevice>) -> (usize, usize) {
        chosen(Options::default(), &KnownDevices { data, log, log_bytes: LOG_BYTES })
    }

    const AS_IT_IS: (usize, usize) = (256, 32);
    const PLACED: (usize, usize) = (256, 8);
    const LONG_WRITES: (usize, usize) = (256, 128);
    const BOTH_LONG: (usize, usize) = (1024, 128);

    #[test]
    fn one_device_has_long_records_where_a_flush_is_expensive() {
        let flash = device(60, 30, Some(false));
        let spindle_with_battery = device(60, 30, Some(true));
        assert_eq!(usual(flash, None), PLACED);
        assert_eq!(usual(spindle_with_battery, None), PLACED);
        assert_eq!(usual(device(1500, 1500, Some(false)), None), BOTH_LONG);
        assert_eq!(usual(device(8300, 8300, Some(true)), None), BOTH_LONG);
        assert_eq!(usual(KnownDevice { report: None, rotational: Some(true) }, None), AS_IT_IS);
        let on_one = Options::default().on_device(&report(1500, 1500));
        assert_eq!((on_one.record_bytes_max, on_one.inline_bytes_max), (1 << 20, 128 << 10));
        assert_eq!(on_one.placed_together_min, None, "each would be one more to be flushed");
    }

    #[test]
    fn short_writes_are_placed_where_durability_costs_nothing() {
        let placed = |durable_us, flush_us| {
            Options::default().on_device(&report(durable_us, flush_us)).placed_together_min
        };
        assert_eq!(placed(20, 5), Some(PLACED_TOGETHER_MIN));
        assert_eq!(placed(25, 30), Some(PLACED_TOGETHER_MIN));
        assert_eq!(placed(60, 5), Some(PLACED_TOGETHER_MIN), "nothing is volatile");
        assert_eq!(placed(26, 30), None, "a turn's data would be flushed, and its record again");
        let on_two =
            KnownDevices { log: Some(device(20, 5, None)), data: device(20, 5, None), log_bytes: LOG_BYTES };
        assert_eq!(Options::default().on_devices(&on_two).placed_together_min, None);
    }

    #[test]
    fn a_slow_data_device_beside_a_fast_log_has_long_writes_in_records() {
        let (flash, spindle) = (device(60, 30, Some(false)), device(8300, 8300, Some(true)));
        assert_eq!(usual(flash, Some(flash)), AS_IT_IS);
        assert_eq!(usual(spindle, Some(flash)), LONG_WRITES);
        // What it costs says so where the system does not.
        assert_eq!(usual(device(8300, 8300, None), Some(flash)), LONG_WRITES);
        assert_eq!(usual(device(480, 30, Some(false)), Some(flash)), LONG_WRITES);
        assert_eq!(usual(device(479, 30, Some(false)), Some(flash)), AS_IT_IS);
        // And the system where nothing could be measured.
        let unknown = |rotational| KnownDevice { report: None, rotational };
        assert_eq!(usual(unknown(Some(true)), Some(flash)), LONG_WRITES);
        assert_eq!(usual(spindle, Some(unknown(None))), LONG_WRITES);
        assert_eq!(usual(unknown(None), Some(flash)), AS_IT_IS);
        // Flash that must be flushed, for the log.
        assert_eq!(usual(flash, Some(device(1500, 1500, Some(false)))), BOTH_LONG);
    }

    /// The kernel calls them rotational, and neither is slow.
    #[test]
    fn two_virtual_disks_are_told_apart_by_what_they_cost() {
        let virtual_disk = |durable_us| device(durable_us, 30, Some(true));
        assert_eq!(usual(virtual_disk(60), Some(virtual_disk(60))), AS_IT_IS);
        assert_eq!(usual(virtual_disk(900), Some(virtual_disk(60))), LONG_WRITES);
        assert_eq!(
            usual(virtual_disk(60), Some(device(90, 30, None))),
            AS_IT_IS,
            "the log's is the slower one"
        );
        assert_eq!(usual(device(0, 0, Some(true)), Some(device(0, 0, Some(true)))), AS_IT_IS);
    }

    #[test]
    fn long_writes_need_room_in_log_and_memory() {
        let (flash, spindle) = (device(60, 30, Some(false)), device(8300, 8300, Some(true)));
        let with = |log_bytes| KnownDevices { data: spindle, log: Some(flash), log_bytes };
        let least = LONG_INLINE_BYTES as u64 * ROOM_PARTS_MIN;
        assert_eq!(chosen(Options::default(), &with(least)), LONG_WRITES);
        assert_eq!(chosen(Options::default(), &with(least - 1)), AS_IT_IS);
        assert_eq!(chosen(Options::for_memory(256 << 20), &with(least)), LONG_WRITES);
        assert_eq!(chosen(Options::for_memory(1 << 20), &with(least)), AS_IT_IS);
        let must_flush = KnownDevices { data: spindle, log: None, log_bytes: least - 1 };
        assert_eq!(chosen(Options::default(), &must_flush), (1024, 32), "the record can be cut, a write not");
    }
}
