//! [`Disk`]: a file or block device as the store sees it. Requests go in with a tag, completions come out
//! with it, in any order; nobody waits inside a call except in [`Disk::wait`].
//!
//! What a completion promises:
//!
//! | request | when it completes without error |
//! | --- | --- |
//! | write, [`Durability::Cached`] | reads see it; it survives a crash of the process, but not of the machine |
//! | write, [`Durability::Durable`] | it survives loss of power; says nothing about other cached writes |
//! | flush | every write that had *completed before the flush was queued* survives loss of power |
//! | read | the buffer holds what was last written there |
//! | discard | the content may be anything, until it is written again |
//!
//! Requests in flight at the same time are not ordered against each other, so a caller that needs an order waits for the
//! completion: a discard and a write of the same blocks are no exception. After loss of power an unfinished or unflushed write is there wholly, in part (any of its
//! 512-byte sectors) or not at all, whatever became of the writes around it; so is a discard, which a durable write behind it
//! undoes for good. After a failed write or flush it
//! is unknown which of the unflushed writes are there, and no later flush tells: stop acknowledging.

pub mod blocking;
pub mod conformance;
mod probe;
mod window;

pub use blocking::zero_fill;
pub use probe::{Cost, DeviceReport, PROBE_BYTES, probe, probe_in_place};
pub use window::Window;

use nacre_buf::{AlignedBuf, BufList};
use std::fmt;
use std::time::Duration;

/// Unit of offsets, lengths and memory addresses of requests: what every device takes without a
/// read-modify-write of its own, and what direct I/O asks for at most.
pub const BLOCK_BYTES: usize = nacre_buf::ALIGNMENT_BYTES;
/// Unit of what a loss of power leaves: a sector is either old or new.
pub const SECTOR_BYTES: usize = 512;
/// Requests that a disk holds at most, queued and in flight. Users bound themselves far below it.
pub const REQUESTS_MAX: usize = 16_384;
/// Bytes of one request at most; Linux transfers no more than 2 GiB at a time.
pub const REQUEST_BYTES_MAX: usize = 1 << 30;

/// Names a request to the caller that made it. The disk does not look at it; it need not be unique.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DiskTag(pub u64);

/// What the completion of a write promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Nothing beyond visibility; a later flush makes it durable.
    Cached,
    /// It survives loss of power.
    Durable,
}

/// The kinds of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DiskRequest {
    /// [`Disk::read`].
    Read,
    /// [`Disk::write`].
    Write,
    /// [`Disk::flush`].
    Flush,
    /// [`Disk::discard`].
    Discard,
}

impl fmt::Display for DiskRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        })
    }
}

/// A request failed. The device is to blame, or the file system below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DiskError {
    /// The device or the system refused.
    #[error("{request} of {length} bytes at {offset} failed: {errno}")]
    Failed {
        /// What was asked.
        request: DiskRequest,
        /// Where it began.
        offset: u64,
        /// How long it was.
        length: u64,
        /// The system's answer: usually `EIO`; `ENOSPC` when a sparse file cannot grow.
        errno: nacre_types::Errno,
    },
    /// The transfer ended early without an error: the file is shorter than it was at the start.
    #[error("{request} of {length} bytes at {offset} ended after {done}")]
    Short {
        /// What was asked.
        request: DiskRequest,
        /// Where it began.
        offset: u64,
        /// How long it was.
        length: u64,
        /// How much was transferred.
        done: u64,
    },
}

/// A request is finished.
pub struct DiskCompletion {
    /// The tag it was made with.
    pub tag: DiskTag,
    /// Whether it was done.
    pub result: Result<(), DiskError>,
    /// Of a read, the buffer; its content is meaningless when the read failed.
    pub buffer: Option<AlignedBuf>,
}

impl fmt::Debug for DiskCompletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskCompletion({:?}, {:?})", self.tag, self.result)
    }
}

/// What a disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskInfo {
    /// Its size, a multiple of [`BLOCK_BYTES`].
    pub size_bytes: u64,
    /// Whether it is a file, whose file system gets what is discarded and may give it to others.
    pub is_file: bool,
    /// What the device writes at once without reading first, at most [`BLOCK_BYTES`].
    pub block_bytes: usize,
    /// Of a discard, it drops whole pieces of so many bytes; 0 where that is not known.
    pub discard_bytes: u64,
    /// How requests reach it, for people: `io_uring`, `threads`, `simulated`.
    pub driver: &'static str,
}

/// A device with several requests in flight. Owned by one shard.
///
/// Offsets and lengths are multiples of [`BLOCK_BYTES`] within the size, memory is aligned to it; anything else
/// is a mistake of ours and panics. What a device answers never does: it is a completion. Dropping a disk waits
/// for what is in flight and forgets what is only queued.
pub trait Disk: Send {
    /// Queues a write. `data` has at least one slice; each is aligned in address and length.
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag);

    /// Queues a read of as many bytes as `into` has; the buffer comes back with the completion.
    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag);

    /// Queues a flush of the device's volatile cache: of all writes *completed* so far.
    fn flush(&mut self, tag: DiskTag);

    /// Queues advice that a range is not needed any more. A device that cannot take it says so with an error, and nothing has changed.
    /// A file gives its blocks back to the file system, which may be full when they are written again.
    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag);

    /// Starts all that is queued, with as few system calls as the driver can. Nothing starts before.
    fn submit(&mut self);

    /// Moves what has finished to the end of `out`. Never waits.
    fn drain(&mut self, out: &mut Vec<DiskCompletion>);

    /// Waits until [`Disk::drain`] has something to give; returns at once when nothing is in flight. For mount,
    /// replay and tools; a serving shard sleeps on its sockets and is woken from there.
    fn wait(&mut self);

    /// Whether to wake the owner for what finishes. Without wake-ups somebody drains before it matters; a driver may wake
    /// nevertheless. They are on at first.
    fn set_wakeups(&mut self, wakeups: bool) {
        let _always = wakeups;
    }

    /// For tests: from now on the completion of each request comes so much later than the device gives it; zero ends that. A driver that
    /// has no such fault refuses it.
    ///
    /// # Errors
    /// Why it does not.
    fn delay(&mut self, each: Duration) -> std::io::Result<()> {
        if each.is_zero() { Ok(()) } else { Err(std::io::ErrorKind::Unsupported.into()) }
    }

    /// Size, block size and driver. Constant while the disk is open.
    fn info(&self) -> DiskInfo;
}

/// Panics unless the request keeps to the rules of [`Disk`]; each implementation checks with it.
///
/// # Panics
/// As said: it is the caller's mistake.
pub fn assert_range(info: &DiskInfo, offset: u64, length: u64) {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    assert!(length > 0 && length.is_multiple_of(BLOCK), "length {length} of a disk request");
    assert!(length <= REQUEST_BYTES_MAX as u64, "length {length} of a disk request");
    assert!(offset.is_multiple_of(BLOCK), "offset {offset} of a disk request");
    let end = offset.checked_add(length);
    assert!(end.is_some_and(|end| end <= info.size_bytes), "{offset}~{length} beyond {}", info.size_bytes);
}

/// [`assert_range`] for a write, with the alignment of each slice.
///
/// # Panics
/// As said: it is the caller's mistake.
pub fn assert_write(info: &DiskInfo, offset: u64, data: &BufList) {
    assert_range(info, offset, data.len() as u64);
    for slice in data.slices() {
        assert!(slice.len().is_multiple_of(BLOCK_BYTES), "slice of {} bytes in a disk write", slice.len());
        assert!(slice.as_ptr().addr().is_multiple_of(BLOCK_BYTES), "unaligned memory in a disk write");
    }
}
