//! The system calls that std does not make for us, each behind a safe function.
#![allow(unsafe_code, reason = "system calls on descriptors and slices that outlive them")]

use crate::FileRoom;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

fn transferred(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_negative| io::Error::last_os_error())
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn position(offset: u64) -> io::Result<libc::off_t> {
    offset.try_into().map_err(|_beyond| io::ErrorKind::InvalidInput.into())
}

/// Allocates the blocks of a new file of `size_bytes`.
pub(super) fn allocate(file: &File, size_bytes: u64) -> io::Result<()> {
    // SAFETY: fallocate(2) takes no pointers.
    done(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, position(size_bytes)?) })
}

/// `BLKDISCARD` of `linux/fs.h`, which libc does not name.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// Discards a range of a block device. Not by fallocate(2): that has the kernel promise zeros, which many devices only give by
/// writing them.
pub(super) fn discard(device: &File, offset: u64, length: u64) -> io::Result<()> {
    let range: [u64; 2] = [offset, length];
    // SAFETY: the kernel reads two numbers of 64 bits from the pointer, which outlive the call.
    done(unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD, range.as_ptr()) })
}

/// Gives the blocks of a range of a file back to its file system; the length stays.
pub(super) fn punch_hole(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (offset, length) = (position(offset)?, position(length)?);
    // SAFETY: fallocate(2) takes no pointers.
    done(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) })
}

/// Writes from `slices`, at most 1024 of them, with `flags` such as `RWF_DSYNC`.
pub(super) fn write_at(
    file: &File,
    offset: u64,
    slices: &[IoSlice<'_>],
    flags: libc::c_int,
) -> io::Result<usize> {
    let count = libc::c_int::try_from(slices.len()).unwrap_or(libc::c_int::MAX);
    let (fd, offset) = (file.as_raw_fd(), position(offset)?);
    // SAFETY: IoSlice has the layout of iovec (std guarantees it on Unix), and the slices outlive the call.
    transferred(unsafe { libc::pwritev2(fd, slices.as_ptr().cast(), count, offset, flags) })
}

/// Reads what the page cache has of the beginning of a range, without waiting for the device: gives its length.
///
/// # Errors
/// `WouldBlock` where it has nothing of it, and what preadv2(2) says, of file systems that do not tell, too.
pub(super) fn read_cached(file: BorrowedFd<'_>, offset: u64, out: &mut [u8]) -> io::Result<usize> {
    let (fd, offset, slices) = (file.as_raw_fd(), position(offset)?, [IoSliceMut::new(out)]);
    // SAFETY: IoSliceMut has the layout of iovec (std guarantees it on Unix), and the slice outlives the call.
    transferred(unsafe { libc::preadv2(fd, slices.as_ptr().cast(), 1, offset, libc::RWF_NOWAIT) })
}

/// Has the system write all that it holds of a file to the device, and waits until it is there. Says nothing about loss of
/// power: for callers that sync later and do not want all of it to go at once then.
///
/// # Errors
/// When the device fails: what was written is then unknown.
pub fn write_back(file: BorrowedFd<'_>) -> io::Result<()> {
    let all =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: sync_file_range(2) takes no pointers.
    match done(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, all) }) {
        // Only advice, and not known everywhere: a sandbox, a file system on the network.
        Err(error) if is_unknown(&error) => Ok(()),
        other => other,
    }
}

/// Has the file system keep `bytes` behind the end of a file of `length` bytes for it. Cutting the file at its end gives them back.
///
/// # Errors
/// What fallocate(2) says: without room or support.
pub fn reserve(file: BorrowedFd<'_>, length: u64, bytes: u64) -> io::Result<()> {
    let (length, bytes) = (position(length)?, position(bytes)?);
    // SAFETY: fallocate(2) takes no pointers.
    done(unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, length, bytes) })
}

/// Unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

/// What a file takes of its file system, and what a process without privileges could still write there.
///
/// # Errors
/// What fstat(2) and fstatvfs(3) say.
pub fn room(file: BorrowedFd<'_>) -> io::Result<FileRoom> {
    let blocks = File::from(file.try_clone_to_owned()?).metadata()?.blocks();
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: fstatvfs(3) writes one such structure, for which there is room.
    done(unsafe { libc::fstatvfs(file.as_raw_fd(), found.as_mut_ptr()) })?;
    // SAFETY: all zeros is a value of it, and the call has filled it.
    let found = unsafe { found.assume_init() };
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let used_bytes = blocks * STAT_BLOCK_BYTES;
    Ok(FileRoom { used_bytes, available_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) })
}

fn is_unknown(error: &io::Error) -> bool {
    let known = [libc::ENOSYS, libc::EINVAL, libc::EPERM, libc::ESPIPE, libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|errno| known.contains(&errno))
}

/// A counter that wakes whoever watches it. Nobody reads it: a watcher sees each signal as an edge, and 2^64
/// signals are not to be had.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, not signalled.
    ///
    /// # Errors
    /// When the process has too many descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd(2) takes no pointers.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        done(raw)?;
        // SAFETY: the descriptor was just made and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// One more handle of the same counter.
    ///
    /// # Errors
    /// When the process has too many descriptors.
    pub(super) fn of(same: BorrowedFd<'_>) -> io::Result<Self> {
        same.try_clone_to_owned().map(Self)
    }

    /// Wakes the watcher.
    pub fn signal(&self) {
        // SAFETY: eventfd_write(3) takes no pointers.
        let result = unsafe { libc::eventfd_write(self.0.as_raw_fd(), 1) };
        debug_assert_eq!(result, 0, "a counter that is never full takes one more");
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
