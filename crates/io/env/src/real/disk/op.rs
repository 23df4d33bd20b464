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
    /// By a thread of its own: see `discards.rs`.
    Discard,
}

pub(super) struct Op {
    pub(super) tag: DiskTag,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) work: Work,
    /// Bytes transferred so far, a multiple of a block.
    pub(super) done: usize,
    retries: u32,
    sync: Sync,
}

/// How a durable write becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sync {
    /// By a flag of the write.
    WithWrite,
    /// By a flush behind it: the system below does not know the flag.
    Behind,
    /// That flush is what is to be done now.
    Now,
}

/// What the answer of the system means for an op.
pub(super) enum Progress {
    Finished(DiskCompletion),
    /// More is to be transferred.
    Again(Op),
}

impl Op {
    pub(super) const fn new(tag: DiskTag, offset: u64, length: u64, work: Work) -> Self {
        Self { tag, offset, length, work, done: 0, retries: 0, sync: Sync::WithWrite }
    }

    /// Has a write made durable by a flush of its own.
    pub(super) fn sync_behind(&mut self) {
        self.sync = Sync::Behind;
    }

    /// Whether it is, because the system refused the flag.
    pub(super) fn syncs_behind(&self) -> bool {
        self.sync != Sync::WithWrite
    }

    /// Whether the write takes the flag that makes it durable.
    pub(super) fn takes_flag(&self) -> bool {
        self.is_durable() && self.sync == Sync::WithWrite
    }

    /// Whether what is left to do is the flush behind the write.
    pub(super) fn is_to_sync(&self) -> bool {
        self.sync == Sync::Now
    }

    fn is_durable(&self) -> bool {
        matches!(self.work, Work::Write { durability: Durability::Durable, .. })
    }

    fn request(&self) -> DiskRequest {
        match self.work {
            Work::Write { .. } => DiskRequest::Write,
            Work::Read { .. } => DiskRequest::Read,
            Work::Flush => DiskRequest::Flush,
            Work::Discard => DiskRequest::Discard,
        }
    }

    /// Takes in what the system answered to what is left of the op: bytes transferred, or an error.
    pub(super) fn answered(mut self, answer: io::Result<usize>) -> Progress {
        match (answer, &self.work) {
            (Ok(_), _) if self.is_to_sync() => self.finish(Ok(())),
            (Ok(bytes), Work::Write { .. } | Work::Read { .. }) => self.transferred(bytes),
            (Ok(_), Work::Flush | Work::Discard) => self.finish(Ok(())),
            (Err(error), _) if is_passing(&error) && self.retries < RETRIES_MAX => {
                self.retries += 1;
                Progress::Again(self)
            }
            // Some sandboxes and file systems do not know the flag.
            (Err(error), _) if self.takes_flag() && is_unknown_flag(&error) => {
                self.sync_behind();
                Progress::Again(self)
            }
            (Err(error), _) => {
                let errno = Errno(error.raw_os_error().unwrap_or(Errno::EIO.0));
                let (request, offset, length) = (self.request(), self.offset, self.length);
                self.finish(Err(DiskError::Failed { request, offset, length, errno }))
            }
        }
    }

    /// Makes calls that wait until it is done: `call` makes one for what is left of the op.
    pub(super) fn perform(mut self, mut call: impl FnMut(&mut Self) -> io::Result<usize>) -> DiskCompletion {
        loop {
            let answer = call(&mut self);
            match self.answered(answer) {
                Progress::Finished(completion) => return completion,
                Progress::Again(rest) => self = rest,
            }
        }
    }

    fn transferred(mut self, bytes: usize) -> Progress {
        let reached = self.done + bytes;
        if reached as u64 >= self.length {
            if self.is_durable() && self.sync == Sync::Behind {
                (self.sync, self.retries) = (Sync::Now, 0);
                return Progress::Again(self);
            }
            return self.finish(Ok(()));
        }
        // The device may stop between blocks; what is left must begin at one.
        let whole = reached - reached % BLOCK_BYTES;
        if whole == self.done {
            let (request, offset, length) = (self.request(), self.offset, self.length);
            return self.finish(Err(DiskError::Short { request, offset, length, done: reached as u64 }));
        }
        self.done = whole;
        Progress::Again(self)
    }

    fn finish(self, result: Result<(), DiskError>) -> Progress {
        let buffer = match self.work {
            Work::Read { into } => Some(into),
            _ => None,
        };
        Progress::Finished(DiskCompletion { tag: self.tag, result, buffer })
    }
}

const _: () = assert!(BLOCK_BYTES.is_multiple_of(SECTOR_BYTES), "a block is torn at sectors");

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

fn is_unknown_flag(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(durability: Durability) -> Op {
        let mut data = AlignedBuf::with_len(2 * BLOCK_BYTES);
        data.fill(1);
        let data = BufList::from(data.freeze());
        Op::new(DiskTag(1), 0, data.len() as u64, Work::Write { data, durability })
    }

    fn again(progress: Progress) -> Op {
        match progress {
            Progress::Again(op) => op,
            Progress::Finished(completion) => panic!("{completion:?}"),
        }
    }

    fn result(progress: Progress) -> Result<(), DiskError> {
        match progress {
            Progress::Finished(completion) => completion.result,
            Progress::Again(_) => panic!("not finished"),
        }
    }

    fn refused(errno: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(errno))
    }

    /// Whatever makes the calls: io_uring or threads.
    #[test]
    fn a_durable_write_whose_flag_is_refused_is_flushed_behind() {
        let op = write(Durability::Durable);
        assert!(op.takes_flag());
        let op = again(op.answered(refused(libc::EOPNOTSUPP)));
        assert!(!op.takes_flag() && !op.is_to_sync() && op.syncs_behind());
        let op = again(op.answered(Ok(BLOCK_BYTES)));
        assert!(!op.is_to_sync() && op.done == BLOCK_BYTES);
        let op = again(op.answered(Ok(BLOCK_BYTES)));
        assert!(op.is_to_sync(), "written, and not durable");
        let op = again(op.answered(refused(libc::EINTR)));
        assert!(op.is_to_sync());
        assert_eq!(result(op.answered(Ok(0))), Ok(()));
    }

    #[test]
    fn other_refusals_are_errors() {
        assert!(result(write(Durability::Durable).answered(refused(libc::EIO))).is_err());
        assert!(result(write(Durability::Cached).answered(refused(libc::EOPNOTSUPP))).is_err());
        let op = again(write(Durability::Durable).answered(refused(libc::ENOSYS)));
        let op = again(op.answered(Ok(2 * BLOCK_BYTES)));
        assert!(result(op.answered(refused(libc::EIO))).is_err(), "a flush that fails");
        assert_eq!(result(write(Durability::Durable).answered(Ok(2 * BLOCK_BYTES))), Ok(()));
    }
}
