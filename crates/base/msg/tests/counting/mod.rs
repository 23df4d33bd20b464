//! A global allocator that counts what each thread takes; tests run in threads of their own.
#![allow(unsafe_code, reason = "a global allocator; it hands all work to the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn grew(bytes: usize) {
    COUNT.set(COUNT.get() + 1);
    let held = HELD.get().wrapping_add(bytes);
    HELD.set(held);
    // Memory that another thread allocated may be freed here, so `held` can wrap below zero.
    if held < usize::MAX / 2 {
        PEAK.set(PEAK.get().max(held));
    }
}

// SAFETY: every call goes to the system allocator with the caller's arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: the caller keeps GlobalAlloc's contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What some work cost.
pub(crate) struct Cost {
    /// Allocations, those of growing vectors included.
    #[allow(dead_code, reason = "each test binary looks at its own part")]
    pub(crate) allocations: usize,
    /// Most that was held at once above what was held before.
    #[allow(dead_code, reason = "each test binary looks at its own part")]
    pub(crate) peak_bytes: usize,
}

/// Does `work` and counts.
pub(crate) fn measure(work: impl FnOnce()) -> Cost {
    let (before, count) = (HELD.get(), COUNT.get());
    PEAK.set(before);
    work();
    Cost { allocations: COUNT.get() - count, peak_bytes: PEAK.get().wrapping_sub(before) }
}
