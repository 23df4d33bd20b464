//! [`Head`]: what of the journal's records must be there, and from where on they are wanted.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | magic `nacrekvJ` |
//! | 8 | CRC-32C of the rest of the 128 bytes |
//! | 12 | version, 1 |
//! | 16 | number of this head |
//! | 24 | id of the journal |
//! | 40 | bytes of each half |
//! | 48 | mount |
//! | 56 | sequence number through which records are in the store below |
//! | 64 | the one through which they were durable |
//! | 72 | half in which the first wanted one is, 0 or 1 |
//!
//! Two copies are written in turn, each within one sector, which no device that we know of tears.

use crate::KvError;
use crate::journal::record::{BLOCK, u32_at, u64_at};
use nacre_buf::crc::crc32c;
use nacre_env::File;

pub(crate) const COPIES: u64 = 2;
/// Where the first half begins.
pub(crate) const HEADS_BYTES: u64 = COPIES * BLOCK as u64;

const MAGIC: [u8; 8] = *b"nacrekvJ";
const VERSION: u32 = 1;
const USED_BYTES: usize = 128;
const CHECKED_FROM: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) number: u64,
    pub(crate) id: [u8; 16],
    pub(crate) half_bytes: u64,
    pub(crate) mount: u64,
    pub(crate) merged_through: u64,
    pub(crate) durable_through: u64,
    pub(crate) start_half: u32,
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.id);
        for figure in [self.half_bytes, self.mount, self.merged_through, self.durable_through] {
            out.extend_from_slice(&figure.to_le_bytes());
        }
        out.extend_from_slice(&self.start_half.to_le_bytes());
        out.resize(BLOCK, 0);
        let crc = crc32c(0, &out[CHECKED_FROM..USED_BYTES]);
        out[8..CHECKED_FROM].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(block: &[u8]) -> Option<Self> {
        let crc = crc32c(0, block.get(CHECKED_FROM..USED_BYTES)?);
        if block.get(..8)? != MAGIC || u32_at(block, 8)? != crc || u32_at(block, 12)? != VERSION {
            return None;
        }
        let head = Self {
            number: u64_at(block, 16)?,
            id: *block.get(24..)?.first_chunk()?,
            half_bytes: u64_at(block, 40)?,
            mount: u64_at(block, 48)?,
            merged_through: u64_at(block, 56)?,
            durable_through: u64_at(block, 64)?,
            start_half: u32_at(block, 72)?,
        };
        (head.start_half < 2 && head.half_bytes.is_multiple_of(BLOCK as u64)).then_some(head)
    }

    /// Writes the copy that is the older one. Not durable before the next sync.
    pub(crate) fn write(&self, file: &dyn File) -> Result<(), KvError> {
        Ok(file.write(self.number % COPIES * BLOCK as u64, &self.encode())?)
    }

    /// The newer one; `None` for a file in which no journal was made yet.
    pub(crate) fn read(file: &dyn File) -> Result<Option<Self>, KvError> {
        if file.length()? < HEADS_BYTES {
            return Ok(None);
        }
        let (mut newest, mut is_blank) = (None::<Self>, true);
        for copy in 0..COPIES {
            let mut block = vec![0; BLOCK];
            file.read(copy * BLOCK as u64, &mut block)?;
            is_blank &= block.iter().all(|byte| *byte == 0);
            newest = newest.into_iter().chain(Self::decode(&block)).max_by_key(|head| head.number);
        }
        match newest {
            None if !is_blank => {
                Err(KvError::Damaged("both heads of the metadata's journal are damaged".to_owned()))
            }
            newest => Ok(newest),
        }
    }
}
