//! The process's allocator, mimalloc, and how long it keeps what is free.
#![allow(unsafe_code, reason = "the allocator's options are set through its C interface")]

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};
use std::ffi::c_long;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of `mimalloc.h` (v3): milliseconds after which free pages go back to the system.
const PURGE_DELAY: mi_option_t = 15;
/// When it is over, all that is free goes back, and most of it is needed again before the next checkpoint. So once in
/// many checkpoints: with mimalloc's own second, a busy OSD spent a seventh of its time on page faults.
const PURGE_DELAY_MS: c_long = 120_000;

/// Gives what the calling thread has freed back to the system at once.
pub(crate) fn give_back() {
    // SAFETY: touches only what is free.
    unsafe { mi_collect(true) }
}

/// Makes free memory wait before the system gets it back. To be called before threads are started.
pub(crate) fn keep_free_pages() {
    // SAFETY: only sets a number of the allocator, and no other thread runs yet.
    unsafe { mi_option_set(PURGE_DELAY, PURGE_DELAY_MS) }
}

/// Keeps the system from giving memory 2 MiB at a time. All that is in flight waits while it clears so much, for 6 to 13 ms on
/// a virtual machine whose host has to find the memory first; and it saved nothing, but cost 5 % of the time of a write. It holds
/// for what the process starts, too. To be called before there is much memory. Where the system does not know of it, it has no large pages.
pub(crate) fn use_small_pages() {
    // SAFETY: takes numbers only.
    let _unknown = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use libmimalloc_sys::mi_option_get;

    /// The option's number is not in the binding. In another release of mimalloc it may name another one.
    #[test]
    fn the_number_is_the_purge_delays() {
        // SAFETY: only reads a number of the allocator.
        let default_ms = unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(default_ms, 1000, "mimalloc's default");
        keep_free_pages();
        // SAFETY: as above.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY) }, PURGE_DELAY_MS);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn large_pages_are_off() {
        use_small_pages();
        // SAFETY: takes numbers only.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) }, 1);
    }
}
