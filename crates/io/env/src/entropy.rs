//! Randomness, from the system or from a seed.

use nacre_types::Entropy;

/// Bytes fetched from the kernel at a time, so that small requests are not a system call each.
const BLOCK_BYTES: usize = 512;

/// The kernel's random numbers, read in blocks; each byte is used once.
#[derive(Debug)]
pub struct SystemEntropy {
    block: [u8; BLOCK_BYTES],
    used: usize,
}

impl Default for SystemEntropy {
    fn default() -> Self {
        Self { block: [0; BLOCK_BYTES], used: BLOCK_BYTES }
    }
}

impl Entropy for SystemEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            if self.used == BLOCK_BYTES {
                getrandom::fill(&mut self.block).expect("Linux has had getrandom(2) since 3.17");
                self.used = 0;
            }
            *byte = std::mem::take(&mut self.block[self.used]);
            self.used += 1;
        }
    }
}
