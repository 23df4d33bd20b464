//! [`KeyBlock`]: the wrapped data key of a store, twice: `docs/formats/encryption.md`.
//!
//! There may be several slots, each with the same data key under another wrapping key, while the wrapping key is being changed.

use crate::data_key::{DataKey, WRAPPED_BYTES, WrappingKey};
use nacre_buf::crc::crc32c;
use nacre_env::File;
use nacre_types::{Entropy, Uuid};
use std::io;

/// Bytes of one copy.
pub const KEY_BLOCK_BYTES: u64 = 4096;
/// Slots at most.
pub const SLOTS_MAX: usize = 8;

const BLOCK: usize = 4096;
const MAGIC: [u8; 8] = *b"NacreKEY";
const VERSION: u32 = 1;
/// AES-256-XTS in units of 4096 bytes, by keys that HKDF-SHA256 makes of the data key.
const CIPHER: u32 = 1;
const NUMBER_AT: usize = 16;
const STORE_AT: usize = 24;
const CIPHER_AT: usize = 40;
const COUNT_AT: usize = 44;
const SLOTS_AT: usize = 48;
const CRC_AT: usize = BLOCK - 4;

const _: () = assert!(SLOTS_AT + SLOTS_MAX * WRAPPED_BYTES <= CRC_AT, "all slots fit");

/// Where the two copies are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPlaces {
    /// Offset of the first copy.
    pub first: u64,
    /// Offset of the second.
    pub second: u64,
}

impl KeyPlaces {
    /// On a device: between its first label and its first region. What commonly overwrites the beginning of a device by mistake, a
    /// partition table, does not reach the second copy.
    pub const ON_DEVICE: Self = Self { first: KEY_BLOCK_BYTES, second: 512 << 10 };
    /// In a file of their own.
    pub const IN_FILE: Self = Self { first: 0, second: KEY_BLOCK_BYTES };

    /// The first byte behind both.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.second + KEY_BLOCK_BYTES
    }
}

/// Why there is no key block.
#[derive(Debug, thiserror::Error)]
pub enum KeyBlockError {
    /// Neither copy is whole.
    #[error("both copies of its wrapped key are damaged: without them nothing opens it")]
    Damaged,
    /// A later program wrote it.
    #[error("its wrapped key has format {found}, this program knows up to {VERSION}")]
    Newer {
        /// Format of the block.
        found: u32,
    },
    /// A later program has another cipher.
    #[error("it is encrypted with cipher {found}, which this program does not know")]
    Cipher {
        /// Number of the cipher in the block.
        found: u32,
    },
    /// It is of another store.
    #[error("its wrapped key is of store {found}, and it is store {expected}")]
    Foreign {
        /// Whose it is.
        found: Uuid,
        /// Whose it should be.
        expected: Uuid,
    },
    /// The device failed.
    #[error("{0}")]
    Device(#[from] io::Error),
}

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBlock {
    store: Uuid,
    /// Grows with each write.
    number: u64,
    slots: Vec<[u8; WRAPPED_BYTES]>,
}

impl KeyBlock {
    /// With one slot.
    #[must_use]
    pub fn new(key: &DataKey, with: &WrappingKey, store: Uuid, entropy: &mut dyn Entropy) -> Self {
        Self { store, number: 0, slots: vec![key.wrap(with, store, entropy)] }
    }

    /// Whose it is.
    #[must_use]
    pub const fn store(&self) -> Uuid {
        self.store
    }

    /// Wrapping keys that open it.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The data key, if one of the slots opens with this key.
    #[must_use]
    pub fn open(&self, with: &WrappingKey) -> Option<DataKey> {
        self.slots.iter().find_map(|slot| DataKey::unwrap(slot, with, self.store))
    }

    /// Lets `with` open it, too. Where all slots are taken, the oldest but the one that `keep` opens goes.
    pub fn add(&mut self, key: &DataKey, with: &WrappingKey, keep: &WrappingKey, entropy: &mut dyn Entropy) {
        if self.open(with).is_some() {
            return;
        }
        if self.slots.len() >= SLOTS_MAX {
            let opens = |slot: &[u8; WRAPPED_BYTES]| DataKey::unwrap(slot, keep, self.store).is_some();
            if let Some(oldest) = self.slots.iter().position(|slot| !opens(slot)) {
                self.slots.remove(oldest);
            }
        }
        self.slots.push(key.wrap(with, self.store, entropy));
    }

    /// Forgets all slots but the one that `with` opens; false, and nothing has changed, when there is none.
    pub fn keep_only(&mut self, with: &WrappingKey) -> bool {
        let opens = |slot: &&[u8; WRAPPED_BYTES]| DataKey::unwrap(slot, with, self.store).is_some();
        let Some(slot) = self.slots.iter().find(opens).copied() else { return false };
        self.slots = vec![slot];
        true
    }

    fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK);
        block.extend(MAGIC);
        block.extend(VERSION.to_le_bytes());
        block.extend([0; 4]);
        block.extend(self.number.to_le_bytes());
        block.extend(self.store.0);
        block.extend(CIPHER.to_le_bytes());
        let count = u32::try_from(self.slots.len()).expect("a few");
        block.extend(count.to_le_bytes());
        self.slots.iter().for_each(|slot| block.extend(slot));
        block.resize(CRC_AT, 0);
        block.extend(crc32c(u32::MAX, &block).to_le_bytes());
        block
    }

    /// `None` when it is no whole block.
    fn decode(block: &[u8]) -> Result<Option<Self>, KeyBlockError> {
        let array = |at: usize| block.get(at..)?.first_chunk::<4>().copied().map(u32::from_le_bytes);
        let sum = block.get(..CRC_AT).map(|checked| crc32c(u32::MAX, checked));
        if !block.starts_with(&MAGIC) || sum.is_none() || sum != array(CRC_AT) {
            return Ok(None);
        }
        match (array(MAGIC.len()), array(CIPHER_AT)) {
            (Some(VERSION), Some(CIPHER)) => (),
            (Some(VERSION), found) => return Err(KeyBlockError::Cipher { found: found.unwrap_or(0) }),
            (found, _) => return Err(KeyBlockError::Newer { found: found.unwrap_or(0) }),
        }
        let count = array(COUNT_AT).and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let number = block.get(NUMBER_AT..).and_then(<[u8]>::first_chunk).copied().map(u64::from_le_bytes);
        let store = block.get(STORE_AT..).and_then(<[u8]>::first_chunk).copied().map(Uuid);
        let (Some(number), Some(store), 1..=SLOTS_MAX) = (number, store, count) else { return Ok(None) };
        let (slots, _rest) = block.get(SLOTS_AT..CRC_AT).unwrap_or_default().as_chunks::<WRAPPED_BYTES>();
        Ok(Some(Self { store, number, slots: slots.iter().take(count).copied().collect() }))
    }

    /// Reads it; true with it when both copies are whole and the same. `store` is whose it must be, where that is known.
    ///
    /// # Errors
    /// [`KeyBlockError`].
    pub fn read(
        file: &dyn File,
        places: KeyPlaces,
        store: Option<Uuid>,
    ) -> Result<(Self, bool), KeyBlockError> {
        let read = |offset| -> Result<Option<Self>, KeyBlockError> {
            let mut block = vec![0; BLOCK];
            // What the device does not give is a damaged copy, too.
            if file.read(offset, &mut block).is_err() {
                return Ok(None);
            }
            Self::decode(&block)
        };
        let (first, second) = (read(places.first)?, read(places.second)?);
        let are_equal = first == second;
        let newest = first.into_iter().chain(second).max_by_key(|block| block.number);
        let block = newest.ok_or(KeyBlockError::Damaged)?;
        match store {
            Some(expected) if expected != block.store => {
                Err(KeyBlockError::Foreign { found: block.store, expected })
            }
            _ => Ok((block, are_equal)),
        }
    }

    /// Writes both copies, one behind the other: whenever power goes, one is whole, and the newer one that is whole counts.
    ///
    /// # Errors
    /// What the device says.
    pub fn write(&mut self, file: &dyn File, places: KeyPlaces) -> io::Result<()> {
        self.number += 1;
        let block = self.encode();
        for offset in [places.first, places.second] {
            file.write(offset, &block)?;
            file.sync()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_simdisk::SimFile;
    use nacre_types::entropy::SeededEntropy;

    const STORE: Uuid = Uuid([3; 16]);
    const PLACES: KeyPlaces = KeyPlaces::ON_DEVICE;

    fn with(nth: u32) -> WrappingKey {
        WrappingKey::from_text(&format!("{nth:0>40}")).expect("long")
    }

    fn device() -> SimFile {
        let device = SimFile::new(1);
        device.open().set_length(1 << 20).expect("room");
        device
    }

    fn read(device: &SimFile) -> Result<(KeyBlock, bool), KeyBlockError> {
        KeyBlock::read(&device.open(), PLACES, Some(STORE))
    }

    #[test]
    fn it_is_read_back_by_either_copy_and_refused_by_another_store() {
        let mut entropy = SeededEntropy(1);
        let key = DataKey::generate(&mut entropy);
        let device = device();
        assert!(matches!(read(&device), Err(KeyBlockError::Damaged)));
        let mut block = KeyBlock::new(&key, &with(1), STORE, &mut entropy);
        block.write(&device.open(), PLACES).expect("healthy");
        let (found, are_equal) = read(&device).expect("whole");
        assert!(found == block && are_equal);
        assert_eq!((found.open(&with(1)), found.open(&with(2))), (Some(key.clone()), None));
        for spoilt in [PLACES.first, PLACES.second] {
            device.open().write(spoilt + 60, &[0xee; 40]).expect("healthy");
            let (mut found, are_equal) = read(&device).expect("the other copy");
            assert!(found == block && !are_equal);
            found.write(&device.open(), PLACES).expect("healthy");
            block = found;
            assert!(read(&device).expect("whole").1);
        }
        let other = KeyBlock::read(&device.open(), PLACES, Some(Uuid([4; 16])));
        assert!(matches!(other, Err(KeyBlockError::Foreign { .. })));
    }

    #[test]
    fn slots_come_and_go_and_the_one_in_use_stays() {
        let mut entropy = SeededEntropy(1);
        let key = DataKey::generate(&mut entropy);
        let mut block = KeyBlock::new(&key, &with(0), STORE, &mut entropy);
        for nth in 1..20 {
            block.add(&key, &with(nth), &with(0), &mut entropy);
            block.add(&key, &with(nth), &with(0), &mut entropy);
            assert!(block.slots() <= SLOTS_MAX);
            assert!([0, nth].iter().all(|nth| block.open(&with(*nth)) == Some(key.clone())), "{nth}");
        }
        assert!(!block.keep_only(&with(99)), "nobody would open it");
        assert!(block.keep_only(&with(19)));
        assert_eq!((block.slots(), block.open(&with(0)), block.open(&with(19))), (1, None, Some(key)));
    }

    /// Whenever power goes while the wrapping key is changed, whichever of the two the monitors have by then opens it.
    #[test]
    fn a_loss_of_power_leaves_a_block_that_the_current_key_opens() {
        for seed in 0..200 {
            let mut entropy = SeededEntropy(seed);
            let key = DataKey::generate(&mut entropy);
            let device = SimFile::new(seed);
            device.open().set_length(1 << 20).expect("room");
            let mut block = KeyBlock::new(&key, &with(1), STORE, &mut entropy);
            block.write(&device.open(), PLACES).expect("healthy");
            block.add(&key, &with(2), &with(1), &mut entropy);
            let torn = block.encode();
            // One copy at a time is under way.
            let place = if seed % 2 == 0 { PLACES.first } else { PLACES.second };
            device.open().write(place, &torn).expect("healthy");
            device.crash();
            let (found, _) = read(&device).expect("one copy is whole");
            assert_eq!(found.open(&with(1)), Some(key.clone()), "seed {seed}");
            let mut found = found;
            assert!(found.keep_only(&with(1)));
            found.write(&device.open(), PLACES).expect("healthy");
            assert!(read(&device).expect("whole").1);
        }
    }

    #[test]
    fn later_formats_and_bad_bytes_are_refused() {
        let mut entropy = SeededEntropy(1);
        let key = DataKey::generate(&mut entropy);
        let good = KeyBlock::new(&key, &with(1), STORE, &mut entropy).encode();
        let with_byte = |at: usize, value: u8| {
            let mut block = good.clone();
            block[at] = value;
            let sum = crc32c(u32::MAX, &block[..CRC_AT]);
            block[CRC_AT..].copy_from_slice(&sum.to_le_bytes());
            KeyBlock::decode(&block)
        };
        assert!(matches!(with_byte(8, 2), Err(KeyBlockError::Newer { found: 2 })));
        assert!(matches!(with_byte(CIPHER_AT, 2), Err(KeyBlockError::Cipher { found: 2 })));
        assert!(matches!(with_byte(COUNT_AT, 0), Ok(None)) && matches!(with_byte(COUNT_AT, 9), Ok(None)));
        assert!((0..BLOCK).all(|length| matches!(KeyBlock::decode(&good[..length]), Ok(None))));
    }
}
