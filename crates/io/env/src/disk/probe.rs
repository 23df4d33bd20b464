//! What a device costs, measured before it is used.

use super::{BLOCK_BYTES, Disk, DiskError, Durability, blocking};
use crate::Clock;
use nacre_buf::{AlignedBuf, Bytes};
use std::fmt;
use std::time::Duration;

/// Samples per figure; the median of an odd count is one of them.
const SAMPLES: u64 = 17;
/// Bytes of scratch space that [`probe`] overwrites.
pub const PROBE_BYTES: u64 = SAMPLES * BLOCK_BYTES as u64;
/// A flush that adds more than this to a write is a volatile cache being emptied. A device with power-loss
/// protection answers a flush in tens of microseconds, consumer flash in 500 and more, a spindle in 10,000.
const CHEAP_FLUSH_MAX: Duration = Duration::from_micros(250);

/// What one kind of request costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// What to expect, the machine's other work included.
    pub median: Duration,
    /// What the device itself takes: neighbours only ever add.
    pub best: Duration,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} us (best {})", self.median.as_micros(), self.best.as_micros())
    }
}

/// What a device costs, by single 4 KiB requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceReport {
    /// How requests reach it.
    pub driver: &'static str,
    /// Bytes of the device.
    pub size_bytes: u64,
    /// A write that survives loss of power.
    pub durable_write: Cost,
    /// A write that need not.
    pub cached_write: Cost,
    /// A flush after one cached write.
    pub flush: Cost,
    /// What a read of a block costs.
    pub read: Cost,
}

impl DeviceReport {
    /// Whether making a write durable costs much more than the write: no power-loss protection. Such a device
    /// gains most from writing many records at once.
    #[must_use]
    pub fn flush_is_expensive(&self) -> bool {
        self.durable_adds() > CHEAP_FLUSH_MAX
    }

    /// Whether a durable write costs more than another, by a quarter at least: something volatile is emptied each time, however quickly.
    /// Such a device gains from each durable write that it is spared.
    #[must_use]
    pub fn durable_costs_more(&self) -> bool {
        self.durable_adds() > self.cached_write.best / 4
    }

    /// What durability adds to a write. Where either of two figures is small nothing volatile is emptied: the other one met a neighbour's
    /// work.
    fn durable_adds(&self) -> Duration {
        self.durable_write.best.saturating_sub(self.cached_write.best).min(self.flush.best)
    }
}

/// One line for a log or status.
impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let price = if self.flush_is_expensive() { "expensive" } else { "cheap" };
        write!(
            f,
            "{} MiB over {}: durable 4 KiB write {}, cached write {}, read {}, flush {}: {price}",
            self.size_bytes >> 20,
            self.driver,
            self.durable_write,
            self.cached_write,
            self.read,
            self.flush,
        )
    }
}

/// Measures `disk` with a few dozen requests, one at a time. Overwrites [`PROBE_BYTES`] at `scratch_offset`, which
/// should be an area written before; nothing else may be in flight.
///
/// # Errors
/// What the device says.
pub fn probe(disk: &mut dyn Disk, clock: &dyn Clock, scratch_offset: u64) -> Result<DeviceReport, DiskError> {
    let block = pattern();
    let at = |index: u64| scratch_offset + index * BLOCK_BYTES as u64;
    // The first pass allocates the blocks if they are not, so that the measured passes only overwrite.
    for index in 0..SAMPLES {
        blocking::write(disk, at(index), block.clone().into(), Durability::Durable)?;
    }
    measure(disk, clock, SAMPLES, &block, &at)
}

/// As [`probe`] by writing `block` to the one place `offset` where it is already: nothing changes, whatever fails
/// meanwhile. `samples` is odd.
///
/// # Errors
/// What the device says.
pub fn probe_in_place(
    disk: &mut dyn Disk,
    clock: &dyn Clock,
    offset: u64,
    block: &Bytes,
    samples: u64,
) -> Result<DeviceReport, DiskError> {
    measure(disk, clock, samples, block, &|_| offset)
}

fn measure(
    disk: &mut dyn Disk,
    clock: &dyn Clock,
    samples: u64,
    block: &Bytes,
    at: &dyn Fn(u64) -> u64,
) -> Result<DeviceReport, DiskError> {
    let info = disk.info();
    let write = |disk: &mut dyn Disk, index: u64, durability| {
        blocking::write(disk, at(index), block.clone().into(), durability)
    };
    let durable_write = cost(clock, samples, |index| write(disk, index, Durability::Durable))?;
    let cached_write = cost(clock, samples, |index| write(disk, index, Durability::Cached))?;
    let mut flushes = Vec::new();
    for index in 0..samples {
        write(disk, index, Durability::Cached)?;
        flushes.push(timed(clock, || blocking::flush(disk))?);
    }
    let read = cost(clock, samples, |index| blocking::read(disk, at(index), BLOCK_BYTES).map(drop))?;
    let flush = summed_up(flushes);
    Ok(DeviceReport {
        driver: info.driver,
        size_bytes: info.size_bytes,
        durable_write,
        cached_write,
        flush,
        read,
    })
}

fn pattern() -> Bytes {
    let mut block = AlignedBuf::with_len(BLOCK_BYTES);
    // Zeros would be cheap on a device that compresses or deduplicates.
    for (index, byte) in block.iter_mut().enumerate() {
        *byte = (index.wrapping_mul(0x9e37_79b9) >> 13) as u8;
    }
    block.freeze()
}

fn timed<T>(clock: &dyn Clock, work: impl FnOnce() -> Result<T, DiskError>) -> Result<Duration, DiskError> {
    let start = clock.now();
    work()?;
    Ok(clock.now().since(start))
}

fn cost(
    clock: &dyn Clock,
    samples: u64,
    mut work: impl FnMut(u64) -> Result<(), DiskError>,
) -> Result<Cost, DiskError> {
    let samples: Result<Vec<_>, _> = (0..samples).map(|index| timed(clock, || work(index))).collect();
    samples.map(summed_up)
}

fn summed_up(mut samples: Vec<Duration>) -> Cost {
    samples.sort_unstable();
    let at = |index: usize| samples.get(index).copied().unwrap_or_default();
    Cost { median: at(samples.len() / 2), best: at(0) }
}
