//! What a thread and its process have used of the processors, as clock_gettime(2) tells.
#![allow(unsafe_code, reason = "one system call that fills a structure of ours")]

/// Processor time in user and kernel mode, in nanoseconds since the start of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Of one thread.
    pub thread_ns: u64,
    /// Of all threads of its process, those that have ended and the kernel's workers for it included.
    pub process_ns: u64,
}

fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the one structure that it is given.
    let done = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    (done == 0).then_some(seconds * 1_000_000_000 + nanoseconds)
}

/// Of the thread that asks.
pub(crate) fn thread_cpu_ns() -> Option<u64> {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Of the thread that asks, and its process.
pub(crate) fn cpu_times() -> Option<CpuTimes> {
    Some(CpuTimes { thread_ns: thread_cpu_ns()?, process_ns: clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_for_who_does_it() {
        let (before, mut sum) = (cpu_times().expect("every Linux tells"), 0_u64);
        while cpu_times().expect("every Linux tells").thread_ns < before.thread_ns + 20_000_000 {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        let elsewhere =
            std::thread::spawn(|| cpu_times().expect("every Linux tells")).join().expect("a thread");
        assert!(elsewhere.thread_ns < 10_000_000, "another thread has done nothing: {elsewhere:?} {sum}");
        assert!(elsewhere.process_ns >= before.process_ns + 20_000_000, "{elsewhere:?} after {before:?}");
    }
}
