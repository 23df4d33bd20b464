//! One request at a time, for mount, replay and tools. Nothing else may be in flight meanwhile.

use super::{BLOCK_BYTES, Disk, DiskCompletion, DiskError, DiskTag, Durability};
use nacre_buf::{AlignedBuf, BufList, Bytes};

/// Times that a read is tried before it is believed to fail: a link that was reset, a command that timed out.
pub const READ_ATTEMPTS: u32 = 3;
/// Bytes of one write of [`zero_fill`].
const ZERO_BYTES: usize = 1 << 20;
/// Writes of [`zero_fill`] in flight.
const ZERO_WRITES_MAX: u64 = 8;

/// Reads `length` bytes at `offset`.
///
/// # Errors
/// What the device says.
///
/// # Panics
/// When something else is in flight, as all of these.
pub fn read(disk: &mut dyn Disk, offset: u64, length: usize) -> Result<AlignedBuf, DiskError> {
    disk.read(offset, AlignedBuf::with_len(length), DiskTag(0));
    let done = finish(disk);
    done.result.map(|()| done.buffer.expect("a read gives its buffer back"))
}

/// As [`read`], tried [`READ_ATTEMPTS`] times: one error of a device is not yet lost data.
///
/// # Errors
/// What the device said last.
///
/// # Panics
/// As [`read`].
pub fn read_patiently(disk: &mut dyn Disk, offset: u64, length: usize) -> Result<AlignedBuf, DiskError> {
    let mut outcome = read(disk, offset, length);
    for _ in 1..READ_ATTEMPTS {
        if outcome.is_ok() {
            break;
        }
        outcome = read(disk, offset, length);
    }
    outcome
}

/// Writes `data` at `offset`.
///
/// # Errors
/// What the device says.
pub fn write(
    disk: &mut dyn Disk,
    offset: u64,
    data: BufList,
    durability: Durability,
) -> Result<(), DiskError> {
    disk.write(offset, data, durability, DiskTag(0));
    finish(disk).result
}

/// Flushes the device's cache.
///
/// # Errors
/// What the device says.
pub fn flush(disk: &mut dyn Disk) -> Result<(), DiskError> {
    disk.flush(DiskTag(0));
    finish(disk).result
}

/// Tells the device that a range is not needed any more.
///
/// # Errors
/// What the device says: also that it does not take such advice.
pub fn discard(disk: &mut dyn Disk, offset: u64, length: u64) -> Result<(), DiskError> {
    disk.discard(offset, length, DiskTag(0));
    finish(disk).result
}

/// Writes zeros to `offset .. offset + length` and flushes, calling `progress` with the bytes done so far.
///
/// What the log is prepared with before first use: in blocks that are merely allocated each durable write also
/// commits the file system's journal, three times the price.
///
/// # Errors
/// The first that the device says; nothing more is started after it.
///
/// # Panics
/// When something else is in flight.
pub fn zero_fill(
    disk: &mut dyn Disk,
    offset: u64,
    length: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<(), DiskError> {
    let zeros = zeros();
    let (mut started, mut done, mut in_flight) = (0, 0, 0);
    let mut failed = None;
    let mut completions = Vec::new();
    while in_flight > 0 || (started < length && failed.is_none()) {
        while started < length && in_flight < ZERO_WRITES_MAX && failed.is_none() {
            let take = (length - started).min(ZERO_BYTES as u64);
            // The tag is the length, to count what is done.
            let data = zeros.slice(..usize::try_from(take).expect("at most ZERO_BYTES"));
            disk.write(offset + started, data.into(), Durability::Cached, DiskTag(take));
            started += take;
            in_flight += 1;
        }
        disk.submit();
        disk.wait();
        disk.drain(&mut completions);
        for completion in completions.drain(..) {
            in_flight -= 1;
            match completion.result {
                Ok(()) => done += completion.tag.0,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        progress(done);
    }
    failed.map_or_else(|| flush(disk), Err)
}

fn zeros() -> Bytes {
    const { assert!(ZERO_BYTES.is_multiple_of(BLOCK_BYTES), "writes are whole blocks") };
    let mut zeros = AlignedBuf::with_len(ZERO_BYTES);
    zeros.fill(0);
    zeros.freeze()
}

/// Submits the one request that is queued and waits for it.
fn finish(disk: &mut dyn Disk) -> DiskCompletion {
    disk.submit();
    let mut out = Vec::with_capacity(1);
    while out.is_empty() {
        disk.wait();
        disk.drain(&mut out);
    }
    assert_eq!(out.len(), 1, "blocking disk calls want an idle disk");
    out.swap_remove(0)
}
