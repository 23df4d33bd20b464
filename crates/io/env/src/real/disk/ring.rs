//! [`Ring`]: requests through io_uring, one system call for all that is queued.
#![allow(
    unsafe_code,
    reason = "the kernel reads and writes memory that the slots own until it is done with it"
)]

use super::file::DeviceFile;
use super::op::{Op, Progress, Work};
use super::sys::EventFd;
use crate::disk::{DiskCompletion, REQUESTS_MAX};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use nacre_buf::BufList;
use slab::Slab;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};
use std::thread::{self, ThreadId};

/// Requests that the kernel has at once; more wait here. What a fast device can use.
const IN_KERNEL_MAX: u32 = 256;
/// Slices per request to the kernel, as Linux limits them.
const SLICES_MAX: usize = 1024;

/// The slices of a write as the kernel takes them.
#[derive(Default)]
struct IoVecs(Vec<libc::iovec>);

// SAFETY: the pointers are into memory that the op of the same slot owns and that may be used from any thread.
unsafe impl Send for IoVecs {}

/// What the kernel works on. It stays here, and so does the memory it points to, until the kernel says done.
struct Slot {
    op: Op,
    _vectors: IoVecs,
}

/// How requests name the file.
struct Target {
    fd: Fd,
    flags: squeue::Flags,
}

impl Target {
    /// Registered with the ring, where the kernel does that: it then need not look the file up for each request.
    /// So is what has the lock, if that is another: it stays locked as long as requests are under way, whatever becomes of the process.
    fn of(ring: &IoUring, file: &File, lock: Option<&File>) -> Self {
        let raw = file.as_raw_fd();
        let files: Vec<_> = std::iter::once(raw).chain(lock.map(File::as_raw_fd)).collect();
        match ring.submitter().register_files(&files) {
            Ok(()) => Self { fd: Fd(0), flags: squeue::Flags::FIXED_FILE },
            Err(_unknown) => Self { fd: Fd(raw), flags: squeue::Flags::empty() },
        }
    }
}

pub(super) struct Ring {
    ring: IoUring,
    file: File,
    /// What has the lock, if that is another open file.
    lock: Option<File>,
    target: Target,
    /// Where completions are kept back until that thread comes for them; `None` where any thread may.
    home: Option<ThreadId>,
    /// The thread that used the ring last.
    user: ThreadId,
    wake: EventFd,
    /// Somebody is to be woken when something finishes.
    wakeups: bool,
    /// The kernel does not signal what finishes just now.
    muted: bool,
    /// The flag that makes a write durable was refused once: it is not tried again.
    syncs_behind: bool,
    /// Leaked rather than freed if the kernel cannot be made to finish.
    slots: ManuallyDrop<Slab<Slot>>,
    /// Submitted, waiting for a slot.
    backlog: VecDeque<Op>,
    finished: Vec<DiskCompletion>,
    answers: Vec<(usize, i32)>,
}

impl Ring {
    /// Makes a ring and sends a no-op through it: containers often allow the one and forbid the other, and an
    /// administrator may have switched off both.
    pub(super) fn start(file: &DeviceFile) -> io::Result<Self> {
        let mut ring = build()?;
        if !ring.params().is_feature_nodrop() {
            // Before Linux 5.5 completions could be lost.
            return Err(io::Error::other("the kernel's io_uring is too old"));
        }
        let wake = EventFd::new()?;
        ring.submitter().register_eventfd(wake.as_fd().as_raw_fd())?;
        check(&mut ring)?;
        let lock = file.lock.as_ref().map(File::try_clone).transpose()?;
        let file = file.file.try_clone()?;
        Ok(Self {
            target: Target::of(&ring, &file, lock.as_ref()),
            file,
            lock,
            ring,
            home: None,
            user: thread::current().id(),
            wake,
            wakeups: true,
            muted: false,
            syncs_behind: false,
            slots: ManuallyDrop::new(Slab::new()),
            backlog: VecDeque::new(),
            finished: Vec::new(),
            answers: Vec::new(),
        })
    }

    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn submit(&mut self, queued: &mut Vec<Op>) {
        self.backlog.extend(queued.drain(..));
        let held = self.backlog.len() + self.slots.len();
        assert!(held <= REQUESTS_MAX, "{held} requests to one disk");
        if self.slots.is_empty() && !self.backlog.is_empty() {
            self.settle_down();
        }
        self.advance();
        self.listen();
    }

    /// Whether what finishes is to wake somebody; not, where somebody comes for it anyway.
    pub(super) fn set_wakeups(&mut self, wakeups: bool) {
        if self.wakeups != wakeups {
            self.wakeups = wakeups;
            self.listen();
        }
    }

    /// Takes a ring of this thread's own when another one used the disk before: whoever opened it. Completions of such
    /// a ring wait for its thread without interrupting it, not even its sleep: that would end the wait for sockets
    /// with nothing to show, and once more for the signal.
    fn settle_down(&mut self) {
        let here = thread::current().id();
        if self.user == here {
            return;
        }
        self.user = here;
        // Before Linux 6.1, or out of memory: the old ring serves every thread, unless it is another one's own.
        match build_own(&self.wake) {
            Ok(ring) => {
                self.target = Target::of(&ring, &self.file, self.lock.as_ref());
                (self.ring, self.home, self.muted) = (ring, Some(here), false);
            }
            Err(error) => assert!(self.home.is_none(), "no io_uring for a thread: {error}"),
        }
    }

    /// Keeps the kernel from signalling, as far as the ring is one thread's own: the old kind signals always.
    fn mute(&mut self) {
        if self.home.is_some() && !self.muted {
            self.ring.completion().disable_eventfd();
            self.muted = true;
        }
    }

    /// Lets the kernel signal again, unless nobody wants to know. What finished unnoticed is signalled here.
    fn listen(&mut self) {
        if !self.wakeups {
            return self.mute();
        }
        if !self.muted {
            return;
        }
        self.ring.completion().enable_eventfd();
        self.muted = false;
        // The kernel notes that there is something before it looks whether to signal.
        fence(Ordering::SeqCst);
        if self.has_work_in_kernel() || !self.ring.completion().is_empty() {
            self.wake.signal();
        }
    }

    pub(super) fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        self.reap();
        self.listen();
        out.append(&mut self.finished);
    }

    pub(super) fn wait(&mut self) {
        loop {
            self.reap();
            if !self.finished.is_empty() || self.slots.is_empty() {
                return;
            }
            self.enter(1);
        }
    }

    /// Takes what the kernel has finished and gives it what that makes room for.
    fn reap(&mut self) {
        if self.has_work_in_kernel() {
            self.enter(0);
        }
        let completion = self.ring.completion();
        self.answers.extend(completion.map(|entry| (entry.user_data() as usize, entry.result())));
        if self.answers.is_empty() {
            return;
        }
        let mut answers = std::mem::take(&mut self.answers);
        for (key, result) in answers.drain(..) {
            let op = self.slots.remove(key).op;
            match op.answered(answer(result)) {
                Progress::Finished(completion) => self.finished.push(completion),
                Progress::Again(rest) => {
                    self.syncs_behind |= rest.syncs_behind();
                    self.backlog.push_front(rest);
                }
            }
        }
        self.answers = answers;
        self.advance();
    }

    /// Whether completions wait in the kernel for somebody to come and take them.
    fn has_work_in_kernel(&mut self) -> bool {
        let state = self.ring.submission();
        state.cq_overflow() || state.taskrun()
    }

    /// Moves from the backlog into the kernel what it has room for.
    fn advance(&mut self) {
        while self.slots.len() < IN_KERNEL_MAX as usize {
            let Some(op) = self.backlog.pop_front() else { break };
            self.push(op);
        }
        if !self.ring.submission().is_empty() {
            self.enter(0);
        }
    }

    fn push(&mut self, mut op: Op) {
        if self.syncs_behind && op.takes_flag() {
            op.sync_behind();
        }
        let entry = self.slots.vacant_entry();
        let (request, vectors) = describe(self.target.fd, &mut op);
        let request = request.flags(self.target.flags).user_data(entry.key() as u64);
        entry.insert(Slot { op, _vectors: vectors });
        // SAFETY: the memory that the request points to is owned by the slot: heap blocks that do not move with
        // it. The slot goes only when the kernel has answered, and `drop` waits for that.
        let pushed = unsafe { self.ring.submission().push(&request) };
        pushed.expect("the queue has an entry for each slot");
    }

    /// Gives the kernel what is in the queue and waits for `wanted` completions.
    fn enter(&mut self, wanted: usize) {
        // What this brings to light is taken up at once.
        self.mute();
        match self.ring.submit_and_wait(wanted) {
            Ok(_) => (),
            // Short of memory or of room for completions: the queue keeps what was not taken, and the next
            // turn, which the signal brings about, tries again.
            Err(error) if is_passing(&error) => self.wake.signal(),
            Err(error) => panic!("io_uring refuses well-formed requests: {error}"),
        }
    }
}

/// The kernel must be done with the memory before it is freed.
impl Drop for Ring {
    fn drop(&mut self) {
        self.backlog.clear();
        while !self.slots.is_empty() {
            if self.ring.submit_and_wait(1).is_err_and(|error| !is_passing(&error)) {
                return;
            }
            for entry in self.ring.completion() {
                self.slots.try_remove(entry.user_data() as usize);
            }
        }
        // The kernel takes a ring down in the background, and would keep the file open, and so locked, until then. Where it
        // was not registered, that was said, and it is let go with the last request.
        let _not_registered = self.ring.submitter().unregister_files();
        // SAFETY: dropped once, here, and not used after.
        unsafe { ManuallyDrop::drop(&mut self.slots) }
    }
}

/// A ring of the calling thread's own, that keeps completions back until it comes for them.
fn build_own(wake: &EventFd) -> io::Result<IoUring> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(IN_KERNEL_MAX)?;
    ring.submitter().register_eventfd(wake.as_fd().as_raw_fd())?;
    Ok(ring)
}

/// A ring for whichever thread. Completions do not interrupt it while it runs: it comes for them. A third less CPU per
/// write at depth, measured.
fn build() -> io::Result<IoUring> {
    match IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(IN_KERNEL_MAX) {
        // Before Linux 5.19.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => IoUring::new(IN_KERNEL_MAX),
        other => other,
    }
}

fn check(ring: &mut IoUring) -> io::Result<()> {
    // SAFETY: a no-op points to no memory.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().map_or(-libc::EIO, |entry| entry.result());
    answer(result).map(drop)
}

fn answer(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_negative| io::Error::from_raw_os_error(-result))
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM))
}

/// What is left of `op` as the kernel takes it, and the slices that it points to.
fn describe(fd: Fd, op: &mut Op) -> (squeue::Entry, IoVecs) {
    let offset = op.offset + op.done as u64;
    let mut vectors = IoVecs::default();
    let (flags, is_to_sync) = (if op.takes_flag() { libc::RWF_DSYNC } else { 0 }, op.is_to_sync());
    let entry = match &mut op.work {
        Work::Write { .. } if is_to_sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        Work::Write { data, .. } => {
            if let [one] = data.slices() {
                let rest = &one[op.done..];
                let length = u32::try_from(rest.len()).expect("at most REQUEST_BYTES_MAX");
                opcode::Write::new(fd, rest.as_ptr(), length).offset(offset).rw_flags(flags).build()
            } else {
                vectors = vectors_of(data, op.done);
                let count = u32::try_from(vectors.0.len()).expect("at most SLICES_MAX");
                let start = vectors.0.as_ptr();
                opcode::Writev::new(fd, start, count).offset(offset).rw_flags(flags).build()
            }
        }
        Work::Read { into } => {
            let rest = &mut into[op.done..];
            let length = u32::try_from(rest.len()).expect("at most REQUEST_BYTES_MAX");
            opcode::Read::new(fd, rest.as_mut_ptr(), length).offset(offset).build()
        }
        Work::Flush => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        Work::Discard => unreachable!("discards have a thread of their own"),
    };
    (entry, vectors)
}

/// The slices from byte `done` on, as many as one request takes. `done` may lie within a slice.
fn vectors_of(data: &BufList, done: usize) -> IoVecs {
    let mut skip = done;
    let mut out = Vec::with_capacity(data.slices().len().min(SLICES_MAX));
    for slice in data.slices() {
        if skip >= slice.len() {
            skip -= slice.len();
            continue;
        }
        if out.len() == SLICES_MAX {
            break;
        }
        let rest = &slice[skip..];
        out.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
        skip = 0;
    }
    IoVecs(out)
}
