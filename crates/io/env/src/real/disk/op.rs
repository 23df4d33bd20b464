//! [`Op`]: one request on its way, and how far it has come.

use crate::disk::{BLOCK_BYTES, DiskCompletion, DiskError, DiskRequest, DiskTag, Durability, SECTOR_BYTES};
use nacre_buf::{AlignedBuf, BufList};
use nacre_types::Errno;
use std::io;

/// Times that a request is tried again when the system says that it was interrupted or is short of something.
const RETRIES_MAX: u32 = 64;

pub(super) enum Work {
    Write {
        data: BufList,
        durability: Durability,
    },
    Read {
        into: AlignedBuf,
    },
    Flush,
    /// A file keeps its blocks: giving them up would let the file system run full later, and make the next
    /// write there dear.
    Discard {
        for_real: bool,
    },
}

pub(super) struct Op {
    pub(super) tag: DiskTag,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) work: Work,
    /// Bytes transferred so far, a multiple of a block.
    pub(super) done: usize,
    retries: u32,
}

/// What the answer of the system means for an op.
pub(super) enum Verdict {
    Finished(DiskCompletion),
    /// More is to be transferred.
    Again(Op),
}

impl Op {
    pub(super) const fn new(tag: DiskTag, offset: u64, length: u64, work: Work) -> Self {
        Self { tag, offset, length, work, done: 0, retries: 0 }
    }

    fn request(&self) -> DiskRequest {
        match self.work {
            Work::Write { .. } => DiskRequest::Write,
            Work::Read { .. } => DiskRequest::Read,
            Work::Flush => DiskRequest::Flush,
            Work::Discard { .. } => DiskRequest::Discard,
        }
    }

    /// Takes in what the system answered to what is left of the op: bytes transferred, or an error.
    pub(super) fn answered(mut self, answer: io::Result<usize>) -> Verdict {
        match (answer, &self.work) {
            (Ok(bytes), Work::Write { .. } | Work::Read { .. }) => self.transferred(bytes),
            (Ok(_), Work::Flush | Work::Discard { .. }) => self.finish(Ok(())),
            (Err(error), _) if is_passing(&error) && self.retries < RETRIES_MAX => {
                self.retries += 1;
                Verdict::Again(self)
            }
            // Advice that the device cannot take.
            (Err(error), Work::Discard { .. }) if is_unsupported(&error) => self.finish(Ok(())),
            (Err(error), _) => {
                let errno = Errno(error.raw_os_error().unwrap_or(Errno::EIO.0));
                let (request, offset, length) = (self.request(), self.offset, self.length);
                self.finish(Err(DiskError::Failed { request, offset, length, errno }))
            }
        }
    }

    fn transferred(mut self, bytes: usize) -> Verdict {
        let reached = self.done + bytes;
        if reached as u64 >= self.length {
            return self.finish(Ok(()));
        }
        // The device may stop between blocks; what is left must begin at one.
        let whole = reached - reached % BLOCK_BYTES;
        if whole == self.done {
            let (request, offset, length) = (self.request(), self.offset, self.length);
            return self.finish(Err(DiskError::Short { request, offset, length, done: reached as u64 }));
        }
        self.done = whole;
        Verdict::Again(self)
    }

    fn finish(self, result: Result<(), DiskError>) -> Verdict {
        let buffer = match self.work {
            Work::Read { into } => Some(into),
            _ => None,
        };
        Verdict::Finished(DiskCompletion { tag: self.tag, result, buffer })
    }
}

const _: () = assert!(BLOCK_BYTES.is_multiple_of(SECTOR_BYTES), "a block is torn at sectors");

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

fn is_unsupported(error: &io::Error) -> bool {
    let known = [libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL, libc::ENOTTY, libc::EPERM, libc::ENODEV];
    error.raw_os_error().is_some_and(|errno| known.contains(&errno))
}
