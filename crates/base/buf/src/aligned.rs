//! [`AlignedBuf`]: page-aligned memory that direct I/O can take, recycled per thread.
#![allow(unsafe_code, reason = "raw allocation with an alignment; the only unsafe of this crate")]

use bytes::Bytes;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer: the strictest that direct I/O asks for on the devices we know.
pub const ALIGNMENT_BYTES: usize = 4096;
/// Sizes from one page to 4 MiB, an image's largest payload, are rounded up to a power of two and recycled:
/// fresh memory costs a page fault and a cleared page for every 4 KiB, more than copying them.
const POOLED_CLASSES: usize = 11;
const POOLED_BYTES_MAX: usize = ALIGNMENT_BYTES << (POOLED_CLASSES - 1);
/// Memory held back per thread, unless it is told to hold back less.
const POOL_BYTES_MAX: usize = 32 << 20;

/// Free blocks of one thread, by class.
struct Pool {
    free: [Vec<Block>; POOLED_CLASSES],
    bytes: usize,
    bytes_max: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const {
        RefCell::new(Pool { free: [const { Vec::new() }; POOLED_CLASSES], bytes: 0, bytes_max: POOL_BYTES_MAX })
    };
}

impl Pool {
    fn class(capacity: usize) -> usize {
        (capacity / ALIGNMENT_BYTES).ilog2() as usize
    }

    fn take(&mut self, capacity: usize) -> Option<Block> {
        let block = self.free[Self::class(capacity)].pop()?;
        self.bytes -= capacity;
        Some(block)
    }

    /// Keeps a block. When there is no room, blocks of the class with the most memory make it: sizes that are not asked
    /// for any more must not keep out those that are in use now.
    fn keep(&mut self, block: Block) {
        let class = Self::class(block.capacity);
        while self.bytes + block.capacity > self.bytes_max {
            let fattest = (0..POOLED_CLASSES).max_by_key(|class| self.free[*class].len() << class);
            let freed =
                fattest.filter(|fattest| *fattest != class).and_then(|fattest| self.free[fattest].pop());
            let Some(freed) = freed else { return };
            self.bytes -= freed.capacity;
        }
        self.bytes += block.capacity;
        self.free[class].push(block);
    }
}

/// One allocation of whole pages. Owns its memory; freed by `Drop`.
struct Block {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a Block owns its allocation alone, so it may move to another thread like a Vec<u8>.
unsafe impl Send for Block {}
// SAFETY: shared access only reads; writing needs &mut AlignedBuf.
unsafe impl Sync for Block {}

impl Block {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT_BYTES).expect("a rounded length below isize::MAX")
    }

    fn allocate(capacity: usize) -> Self {
        debug_assert!(capacity > 0);
        let layout = Self::layout(capacity);
        // SAFETY: the layout is not empty, since capacity is at least one page.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, capacity }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `start` came from alloc_zeroed with this very layout and is freed only here.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
    }
}

/// A writable buffer of `len` bytes, aligned to [`ALIGNMENT_BYTES`], initialised.
///
/// Filled once, then frozen into shared [`Bytes`]; the memory goes back to the dropping thread's pool.
pub struct AlignedBuf {
    block: Option<Block>,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` bytes. Contents are initialised but may be those of an earlier use.
    #[must_use]
    pub fn with_len(len: usize) -> Self {
        let capacity = Self::memory_bytes(len);
        let pooled = if capacity <= POOLED_BYTES_MAX {
            POOL.with_borrow_mut(|pool| pool.take(capacity))
        } else {
            None
        };
        Self { block: Some(pooled.unwrap_or_else(|| Block::allocate(capacity))), len }
    }

    /// Memory that a buffer of `len` bytes takes: whole pages, and a power of two of them where they are recycled.
    #[must_use]
    pub const fn memory_bytes(len: usize) -> usize {
        let pages = if len == 0 { ALIGNMENT_BYTES } else { len.next_multiple_of(ALIGNMENT_BYTES) };
        if pages <= POOLED_BYTES_MAX { pages.next_power_of_two() } else { pages }
    }

    /// Lets the calling thread's pool hold back so many bytes from now on, and no more than any.
    pub fn limit_pool(bytes_max: usize) {
        POOL.with_borrow_mut(|pool| pool.bytes_max = bytes_max.min(POOL_BYTES_MAX));
        Self::empty_pool();
    }

    /// Frees what the calling thread's pool holds back.
    pub fn empty_pool() {
        let free = POOL.with_borrow_mut(|pool| {
            pool.bytes = 0;
            std::mem::take(&mut pool.free)
        });
        drop(free);
    }

    fn block(&self) -> &Block {
        self.block.as_ref().expect("present until drop")
    }

    /// Gives the buffer up for shared, read-only use.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let start = self.block().start.as_ptr();
        // SAFETY: the block has at least `len` initialised bytes and lives as long as &self.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.block().start.as_ptr();
        // SAFETY: as above, and &mut self makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(start, self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        if block.capacity <= POOLED_BYTES_MAX {
            // A thread that is being torn down has no pool any more; the block is freed then.
            let _freed_or_kept = POOL.try_with(|pool| pool.borrow_mut().keep(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_keeps_what_is_written() {
        for len in [0, 1, 4096, 4097, 1 << 20] {
            let mut buf = AlignedBuf::with_len(len);
            assert_eq!(buf.as_ptr() as usize % ALIGNMENT_BYTES, 0);
            buf.fill(0x5a);
            let shared = buf.freeze();
            assert_eq!(shared.len(), len);
            assert!(shared.iter().all(|byte| *byte == 0x5a));
        }
    }

    #[test]
    fn blocks_are_recycled_within_their_class_and_the_bound() {
        let first = AlignedBuf::with_len(70_000);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(AlignedBuf::with_len(100_000).as_ptr(), address);
        assert_ne!(AlignedBuf::with_len(4096).as_ptr(), address);
        let many: Vec<AlignedBuf> = (0..20).map(|_| AlignedBuf::with_len(POOLED_BYTES_MAX)).collect();
        drop(many);
        let pooled = || POOL.with_borrow(|pool| pool.bytes);
        assert!((POOLED_BYTES_MAX..=POOL_BYTES_MAX).contains(&pooled()));
        AlignedBuf::empty_pool();
        assert_eq!(pooled(), 0);
    }

    #[test]
    fn a_pool_holds_back_what_it_is_told() {
        AlignedBuf::limit_pool(1 << 20);
        drop((0..1000).map(|_| AlignedBuf::with_len(8192)).collect::<Vec<_>>());
        assert_eq!(POOL.with_borrow(|pool| pool.bytes), 1 << 20);
        AlignedBuf::limit_pool(usize::MAX);
        assert_eq!(POOL.with_borrow(|pool| (pool.bytes, pool.bytes_max)), (0, POOL_BYTES_MAX));
    }

    #[test]
    fn what_is_not_asked_for_makes_room() {
        let filling = POOL_BYTES_MAX / POOLED_BYTES_MAX;
        drop((0..filling).map(|_| AlignedBuf::with_len(POOLED_BYTES_MAX)).collect::<Vec<_>>());
        assert_eq!(POOL.with_borrow(|pool| pool.bytes), POOL_BYTES_MAX);
        let small = AlignedBuf::with_len(4096);
        let address = small.as_ptr();
        drop(small);
        assert_eq!(AlignedBuf::with_len(4096).as_ptr(), address, "kept, although the pool was full");
        let pool = POOL.with_borrow(|pool| (pool.bytes, pool.free[POOLED_CLASSES - 1].len()));
        assert_eq!(pool, (POOL_BYTES_MAX - POOLED_BYTES_MAX + 4096, filling - 1));
    }
}
