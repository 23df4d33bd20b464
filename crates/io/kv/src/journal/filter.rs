//! [`Filter`]: says of most keys that a run does not have them, for one access to memory (a blocked Bloom filter). To look a key
//! up takes some twenty, in each run.

use nacre_buf::crc::crc32c;

/// Entries for a word of 64 bits, of which each sets four: of the keys that are not there, one in a hundred seems to be.
const ENTRIES_PER_WORD: usize = 4;
/// Spreads the checksum over 64 bits: the upper ones choose a word, lower ones bits of it.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A key's, for all filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(u64::from(crc32c(0, key)).wrapping_add(1).wrapping_mul(SPREAD))
    }

    const fn bits(self) -> u64 {
        1 << (self.0 & 63) | 1 << (self.0 >> 6 & 63) | 1 << (self.0 >> 12 & 63) | 1 << (self.0 >> 18 & 63)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// A power of two of them, or none.
    words: Vec<u64>,
}

impl Filter {
    pub(crate) fn of<'a>(count: usize, keys: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut filter = Self { words: vec![0; count.div_ceil(ENTRIES_PER_WORD).next_power_of_two()] };
        for key in keys {
            let hash = KeyHash::of(key);
            let at = filter.word_of(hash);
            if let Some(word) = filter.words.get_mut(at) {
                *word |= hash.bits();
            }
        }
        filter
    }

    fn word_of(&self, hash: KeyHash) -> usize {
        (hash.0 >> 32) as usize & self.words.len().wrapping_sub(1)
    }

    /// False only for keys that are not there.
    pub(crate) fn may_have(&self, hash: KeyHash) -> bool {
        self.words.get(self.word_of(hash)).is_some_and(|word| word & hash.bits() == hash.bits())
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.words.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_its_keys_and_few_others() {
        let keys: Vec<[u8; 9]> = (0..200_000_u64)
            .map(|nth| {
                let mut key = [1; 9];
                key[1..].copy_from_slice(&nth.to_be_bytes());
                key
            })
            .collect();
        let (there, others) = keys.split_at(100_000);
        let filter = Filter::of(there.len(), there.iter().map(|key| key.as_slice()));
        assert!(there.iter().all(|key| filter.may_have(KeyHash::of(key))));
        let mistaken = others.iter().filter(|key| filter.may_have(KeyHash::of(key.as_slice()))).count();
        assert!(mistaken < 3000, "{mistaken}");
        assert!(!Filter::default().may_have(KeyHash::of(b"")));
    }
}
