//! Randomness as an argument: cores own no generator, the driver hands one in (ARCHITECTURE.md, determinism).

/// A source of random bytes: the kernel's in production, seeded in tests and in the simulation.
pub trait Entropy {
    /// Fills `out` with random bytes.
    fn fill(&mut self, out: &mut [u8]);

    /// Eight random bytes as a number.
    fn u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// A small deterministic generator (splitmix64) for tests and the simulation; not for keys.
#[derive(Debug, Clone)]
pub struct SeededEntropy(pub u64);

impl Entropy for SeededEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = self.0;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }
}
