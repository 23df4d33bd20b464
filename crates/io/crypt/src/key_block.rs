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

/// Which of the two copies say what counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// Both are whole and the same; or neither is written yet.
    Both,
    /// Only the first: the second is damaged or older.
    First,
    /// Only the second.
    Second,
}

/// A key block as it was found.
#[derive(Debug)]
pub struct FoundKeyBlock {
    /// The newest of the two copies that is whole.
    pub block: KeyBlock,
    /// Where that is.
    pub copies: Copies,
    /// What the device said where it did not give the other copy.
    pub unreadable: Option<io::Error>,
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

    /// Reads it. `store` is whose it must be, where that is known.
    ///
    /// # Errors
    /// [`KeyBlockError`]; that of the device when no copy is whole and one could not be read.
    pub fn read(
        file: &dyn File,
        places: KeyPlaces,
        store: Option<Uuid>,
    ) -> Result<FoundKeyBlock, KeyBlockError> {
        let mut unreadable = None;
        let mut read = |offset| -> Result<Option<Self>, KeyBlockError> {
            let mut block = vec![0; BLOCK];
            match file.read(offset, &mut block) {
                Ok(()) => Self::decode(&block),
                // The other copy may be enough.
                Err(error) => {
                    unreadable = Some(error);
                    Ok(None)
                }
            }
        };
        let (first, second) = (read(places.first)?, read(places.second)?);
        let (block, copies) = match (first, second) {
            (Some(first), Some(second)) if first == second => (first, Copies::Both),
            (Some(first), Some(second)) if first.number > second.number => (first, Copies::First),
            (Some(first), None) => (first, Copies::First),
            (_, Some(second)) => (second, Copies::Second),
            (None, None) => return Err(unreadable.map_or(KeyBlockError::Damaged, KeyBlockError::Device)),
        };
        match store {
            Some(expected) if expected != block.store => {
                Err(KeyBlockError::Foreign { found: block.store, expected })
            }
            _ => Ok(FoundKeyBlock { block, copies, unreadable }),
        }
    }

    /// Writes both copies, one behind the other, and the one that counts last: whenever power goes or the device fails, one is whole, and
    /// the newer one that is whole counts. `copies` is where what counts is; it says so afterwards, too, whatever the outcome.
    ///
    /// # Errors
    /// What the device says.
    pub fn write(&mut self, file: &dyn File, places: KeyPlaces, copies: &mut Copies) -> io::Result<()> {
        self.number += 1;
        let order = match copies {
            Copies::Both | Copies::Second => [Copies::First, Copies::Second],
            Copies::First => [Copies::Second, Copies::First],
        };
        let [first, last] = order;
        self.write_one(file, places, first, copies)?;
        self.write_one(file, places, last, copies)
    }

    /// Writes the copy again that does not count, if there is one. The other stays as it is.
    ///
    /// # Errors
    /// What the device says.
    pub fn repair(&self, file: &dyn File, places: KeyPlaces, copies: &mut Copies) -> io::Result<()> {
        match copies {
            Copies::Both => Ok(()),
            Copies::First => self.write_one(file, places, Copies::Second, copies),
            Copies::Second => self.write_one(file, places, Copies::First, copies),
        }
    }

    /// While one copy is under way, the other is what counts.
    fn write_one(
        &self,
        file: &dyn File,
        places: KeyPlaces,
        copy: Copies,
        copies: &mut Copies,
    ) -> io::Result<()> {
        let (offset, other) = match copy {
            Copies::Second => (places.second, Copies::First),
            Copies::First | Copies::Both => (places.first, Copies::Second),
        };
        *copies = other;
        file.write(offset, &self.encode())?;
        file.sync()?;
        *copies = Copies::Both;
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

    fn device(seed: u64) -> SimFile {
        let device = SimFile::new(seed);
        device.open().set_length(1 << 20).expect("room");
        device
    }

    /// A device with both copies of a block that `with(1)` opens.
    fn written(seed: u64) -> (SimFile, DataKey, KeyBlock, SeededEntropy) {
        let mut entropy = SeededEntropy(seed);
        let key = DataKey::generate(&mut entropy);
        let device = device(seed);
        let mut block = KeyBlock::new(&key, &with(1), STORE, &mut entropy);
        block.write(&device.open(), PLACES, &mut Copies::Both).expect("healthy");
        (device, key, block, entropy)
    }

    fn read(device: &SimFile) -> Result<FoundKeyBlock, KeyBlockError> {
        KeyBlock::read(&device.open(), PLACES, Some(STORE))
    }

    #[test]
    fn it_is_read_back_by_either_copy_and_refused_by_another_store() {
        let mut entropy = SeededEntropy(1);
        let key = DataKey::generate(&mut entropy);
        let device = device(1);
        assert!(matches!(read(&device), Err(KeyBlockError::Damaged)));
        let mut block = KeyBlock::new(&key, &with(1), STORE, &mut entropy);
        block.write(&device.open(), PLACES, &mut Copies::Both).expect("healthy");
        let found = read(&device).expect("whole");
        assert!(found.block == block && found.copies == Copies::Both);
        let opened = (found.block.open(&with(1)), found.block.open(&with(2)));
        assert_eq!(opened, (Some(key.clone()), None));
        for (spoilt, left) in [(PLACES.first, Copies::Second), (PLACES.second, Copies::First)] {
            device.open().write(spoilt + 60, &[0xee; 40]).expect("healthy");
            let mut found = read(&device).expect("the other copy");
            assert!(found.block == block && found.copies == left);
            found.block.repair(&device.open(), PLACES, &mut found.copies).expect("healthy");
            assert_eq!(found.copies, Copies::Both);
            let again = read(&device).expect("whole");
            assert!(again.block == block && again.copies == Copies::Both, "with the same number");
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
            let (device, key, mut block, mut entropy) = written(seed);
            block.add(&key, &with(2), &with(1), &mut entropy);
            let torn = block.encode();
            // One copy at a time is under way.
            let place = if seed % 2 == 0 { PLACES.first } else { PLACES.second };
            device.open().write(place, &torn).expect("healthy");
            device.crash();
            let FoundKeyBlock { block: mut found, mut copies, .. } =
                read(&device).expect("one copy is whole");
            assert_eq!(found.open(&with(1)), Some(key.clone()), "seed {seed}");
            assert!(found.keep_only(&with(1)));
            found.write(&device.open(), PLACES, &mut copies).expect("healthy");
            assert_eq!(read(&device).expect("whole").copies, Copies::Both);
        }
    }

    /// The copy that is whole is not touched before the other one is whole, too: power goes at each of the writes and syncs.
    #[test]
    fn a_loss_of_power_while_a_damaged_copy_is_mended_or_the_key_changed_leaves_one() {
        for seed in 0..400 {
            let (device, key, _, mut entropy) = written(seed);
            let spoilt = if seed % 2 == 0 { PLACES.first } else { PLACES.second };
            device.open().write(spoilt + 60, &[0xee; 40]).expect("healthy");
            device.open().sync().expect("healthy");
            let FoundKeyBlock { mut block, mut copies, .. } = read(&device).expect("one copy is whole");
            device.lose_power_after(seed / 4 % 4);
            let file = device.open();
            let outcome = match seed / 2 % 2 {
                0 => block.repair(&file, PLACES, &mut copies),
                _ => {
                    block.add(&key, &with(2), &with(1), &mut entropy);
                    block.write(&file, PLACES, &mut copies)
                }
            };
            assert_eq!(outcome.is_ok(), copies == Copies::Both, "seed {seed}");
            device.crash();
            let found = read(&device).expect("one copy is whole");
            assert_eq!(found.block.open(&with(1)), Some(key), "seed {seed}");
        }
    }

    /// A device that does not give certain blocks.
    #[derive(Debug)]
    struct Unreadable<'a>(&'a dyn File, &'a [u64]);

    impl File for Unreadable<'_> {
        fn length(&self) -> io::Result<u64> {
            self.0.length()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            if self.1.contains(&offset) {
                Err(io::Error::other("medium error"))
            } else {
                self.0.read(offset, out)
            }
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write(offset, data)
        }
        fn set_length(&self, length: u64) -> io::Result<()> {
            self.0.set_length(length)
        }
        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }
        fn reserve(&self, bytes: u64) -> io::Result<()> {
            self.0.reserve(bytes)
        }
        fn room(&self) -> io::Result<nacre_env::FileRoom> {
            self.0.room()
        }
    }

    #[test]
    fn what_the_device_does_not_give_is_not_called_damaged() {
        let (device, _, block, _) = written(1);
        let file = device.open();
        let read = |bad: &[u64]| KeyBlock::read(&Unreadable(&file, bad), PLACES, Some(STORE));
        let found = read(&[PLACES.first]).expect("the other copy");
        assert!(found.block == block && found.copies == Copies::Second);
        assert_eq!(found.unreadable.expect("an error").to_string(), "medium error");
        let both = read(&[PLACES.first, PLACES.second]);
        assert!(matches!(both, Err(KeyBlockError::Device(_))), "{both:?}");
        file.write(PLACES.second + 60, &[0xee; 40]).expect("healthy");
        assert!(matches!(read(&[PLACES.first]), Err(KeyBlockError::Device(_))));
        assert!(
            matches!(read(&[]), Ok(found) if found.copies == Copies::First && found.unreadable.is_none())
        );
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
