//! [`Ghosts`]: which blocks went from the cache a short time ago.

use crate::BLOCK;

/// The least number of blocks of which it is known that they went, and the most: 4 MiB of memory.
const GHOSTS_MIN: usize = 64;
const GHOSTS_MAX: usize = 1 << 20;

/// Blocks at which runs began that went while they were young: each at a place that its number says, until another one takes it. The lower
/// half of the number is kept: two blocks with the same are 16 TiB apart, at different places mostly, and to take one for the other only
/// keeps a buffer that is used once.
#[derive(Debug, Default)]
pub(super) struct Ghosts(Vec<u32>);

impl Ghosts {
    const NONE: u32 = u32::MAX;

    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    fn place(&mut self, block: u64) -> Option<&mut u32> {
        // Fibonacci hashing: neighbours go far apart.
        let bits = self.0.len().checked_ilog2()?;
        self.0.get_mut((block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - bits)) as usize)
    }

    /// One went from a cache of so many bytes.
    pub(super) fn add(&mut self, block: u64, bytes_max: usize) {
        if self.0.is_empty() {
            let count = (bytes_max / BLOCK).clamp(GHOSTS_MIN, GHOSTS_MAX).next_power_of_two();
            self.0.resize(count, Self::NONE);
        }
        self.place(block).into_iter().for_each(|place| *place = block as u32);
    }

    /// It comes back: true when it is known.
    pub(super) fn take(&mut self, block: u64) -> bool {
        let place = self.place(block).filter(|place| **place == block as u32);
        place.map(|place| *place = Self::NONE).is_some()
    }
}
