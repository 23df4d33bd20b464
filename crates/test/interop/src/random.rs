//! [`Random`]: numbers from a seed, the same on every run.

use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

/// A generator with the shapes that hostile input needs.
#[derive(Debug, Clone)]
pub struct Random(SeededEntropy);

impl Random {
    /// Begins at `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(SeededEntropy(seed))
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.u64()
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("64 bits");
        usize::try_from(self.word() % bound).expect("below a usize")
    }

    /// One of these.
    ///
    /// # Panics
    /// When there are none.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A number as an attacker chooses it: tiny, huge, or next to a power of two.
    pub fn nasty(&mut self) -> u64 {
        match self.below(4) {
            0 => self.word() % 4,
            1 => u64::MAX - self.word() % 4,
            2 => (1_u64 << self.below(64)).wrapping_add(self.word() % 3).wrapping_sub(1),
            _ => self.word(),
        }
    }

    /// This many random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill(&mut bytes);
        bytes
    }

    /// Changes some bytes, moves others, never leaves nothing.
    ///
    /// # Panics
    /// When there are none to begin with.
    pub fn edit(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] = self.word().to_le_bytes()[0],
                1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes.insert(at, 0xff),
                3 if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {
                    let word = self.nasty().to_le_bytes();
                    bytes[at..].iter_mut().zip(&word[..4]).for_each(|(byte, lie)| *byte = *lie);
                }
            }
        }
    }
}
