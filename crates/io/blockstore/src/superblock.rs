//! The superblock: what never changes after a store was made. Two copies, in the first two blocks.

use crate::BLOCK;
use crate::device::{DEVICE_BLOCKS_MAX, NARROW_BLOCKS_MAX, Numbers, Run};
use crate::error::OpenError;
use nacre_buf::{AlignedBuf, Bytes, crc};
use nacre_denc::{DecodeError, Reader, Writer};

const MAGIC: u64 = u64::from_le_bytes(*b"NacreBLK");
/// The format of device and metadata together: what a store was made with. The metadata has a version of its own,
/// since it may be brought to the present one; the device is the same in both.
pub(crate) const VERSION: u32 = 2;
/// Of a store whose log was moved away: programs that know version 2 would take the place that it left for the log.
const VERSION_MOVED: u32 = 3;
/// Of a store that is divided between partitions, whichever part of it: others would take the log for one, and blocks in slabs that are not
/// theirs.
const VERSION_DIVIDED: u32 = 4;
/// Of a store with more blocks than 32 bits count, whichever part of it, divided or not: others would take the lower halves of its areas'
/// numbers for all of them.
pub(crate) const VERSION_WIDE: u32 = 5;
const VERSION_MIN: u32 = 1;
/// Copies, from block 0 on.
pub(crate) const COPIES: u32 = 2;
/// What the first words of an area have of its numbers.
const LOW_HALF: u64 = u32::MAX as u64;
/// Where the checksum lies: at the end of the block.
const CRC_AT: usize = BLOCK - 4;
/// Blocks of the log at least, and of the data area.
const AREA_BLOCKS_MIN: u64 = 16;
/// Blocks of the log at most: it ends where 32 bits do.
const LOG_BLOCKS_MAX: u64 = NARROW_BLOCKS_MAX - COPIES as u64;
/// Slabs of the data area by default, unless they would be of less than [`SLAB_BLOCKS_MIN`]; and at most.
const SLABS_USUAL: u64 = 1024;
const SLABS_MAX: u64 = 1 << 16;
/// Blocks of a slab at least, by default: one request of a large write.
const SLAB_BLOCKS_MIN: u64 = 256;
/// And at most: 8 TiB.
const SLAB_BLOCKS_MAX: u32 = 1 << 31;
/// Partitions of a store at most.
const PARTITIONS_MAX: u32 = 256;

/// What of a store is on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Part {
    /// All of it.
    #[default]
    Whole,
    /// All but the log.
    Data,
    /// The write-ahead log.
    Log,
    /// All but the log, which was moved away: its place in front of the data is kept.
    DataInPlace,
    /// The write-ahead log of such a store.
    LogMoved,
}

impl Part {
    const ALL: [Self; 5] = [Self::Whole, Self::Data, Self::Log, Self::DataInPlace, Self::LogMoved];

    fn code(self) -> u32 {
        match self {
            Self::Whole => 0,
            Self::Data => 1,
            Self::Log => 2,
            Self::DataInPlace => 3,
            Self::LogMoved => 4,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.code() == code)
    }

    fn version(self) -> u32 {
        match self {
            Self::Whole | Self::Data | Self::Log => VERSION,
            Self::DataInPlace | Self::LogMoved => VERSION_MOVED,
        }
    }
}

/// Geometry and identity of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub(crate) id: [u8; 16],
    pub(crate) part: Part,
    pub(crate) wal: Run,
    pub(crate) data: Run,
    pub(crate) division: Division,
}

/// Between how many partitions a store is divided, and in pieces of what size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Division {
    pub(crate) partitions: u32,
    /// Blocks of a slab; 0 where there is one partition.
    pub(crate) slab_blocks: u32,
}

impl Division {
    /// One partition, which has all of the store.
    pub(crate) const NONE: Self = Self { partitions: 1, slab_blocks: 0 };
}

impl Superblock {
    /// Lays a store out on a device. The log, and the block behind it, have numbers of 32 bits in all stores.
    pub(crate) fn new(id: [u8; 16], device_bytes: u64, wal_bytes: u64) -> Result<Self, OpenError> {
        let too_small = OpenError::Size { size_bytes: device_bytes };
        let (blocks, wal_blocks) = (device_bytes / BLOCK as u64, wal_bytes.div_ceil(BLOCK as u64));
        let data_blocks = blocks.checked_sub(wal_blocks + u64::from(COPIES));
        let Some(data_blocks) = data_blocks.filter(|count| *count >= AREA_BLOCKS_MIN.min(wal_blocks)) else {
            return Err(too_small);
        };
        if wal_blocks < AREA_BLOCKS_MIN {
            return Err(too_small);
        }
        if wal_blocks > LOG_BLOCKS_MAX {
            return Err(OpenError::LogTooLarge {
                size_bytes: wal_bytes,
                max_bytes: LOG_BLOCKS_MAX * BLOCK as u64,
            });
        }
        if blocks > DEVICE_BLOCKS_MAX {
            let max_bytes = DEVICE_BLOCKS_MAX * BLOCK as u64;
            return Err(OpenError::TooLarge { size_bytes: device_bytes, max_bytes });
        }
        let wal = Run { start: COPIES.into(), count: wal_blocks };
        let data = Run { start: wal.end(), count: data_blocks };
        Ok(Self { id, part: Part::Whole, wal, data, division: Division::NONE })
    }

    /// How the store's log has numbers of blocks.
    pub(crate) fn numbers(&self) -> Numbers {
        Numbers::of(self.data.end())
    }

    fn version(&self) -> u32 {
        match self.numbers() {
            Numbers::Wide => VERSION_WIDE,
            Numbers::Narrow if self.division != Division::NONE => VERSION_DIVIDED,
            Numbers::Narrow => self.part.version(),
        }
    }

    /// The same, divided between so many partitions; without `slab_blocks`, slabs are of the usual size.
    pub(crate) fn divided(self, partitions: u32, slab_blocks: Option<u32>) -> Result<Self, OpenError> {
        if partitions == 1 {
            return Ok(self);
        }
        let usual = self.data.count.div_ceil(SLABS_USUAL).next_power_of_two().max(SLAB_BLOCKS_MIN);
        // Of the largest devices there are more slabs.
        let usual = u32::try_from(usual).unwrap_or(SLAB_BLOCKS_MAX);
        let division = Division { partitions, slab_blocks: slab_blocks.unwrap_or(usual) };
        let divided = Self { division, ..self };
        if divided.is_divisible() { Ok(divided) } else { Err(OpenError::Indivisible { partitions }) }
    }

    /// Each partition has a log that can be one, and a slab.
    fn is_divisible(&self) -> bool {
        let Division { partitions, slab_blocks } = self.division;
        (2..=PARTITIONS_MAX).contains(&partitions)
            && slab_blocks > 0
            && (u64::from(partitions)..=SLABS_MAX).contains(&self.data.count.div_ceil(slab_blocks.into()))
            && self.wal.count / u64::from(partitions) >= AREA_BLOCKS_MIN
    }

    /// The store as one of its partitions sees it: of the log it has a share.
    pub(crate) fn share(&self, partition: u32) -> Self {
        let count = self.wal.count / u64::from(self.division.partitions);
        Self { wal: Run { start: self.wal.start + u64::from(partition) * count, count }, ..*self }
    }

    pub(crate) fn salt(&self) -> u64 {
        let (low, high) = self.id.split_at(8);
        let word = |half: &[u8]| half.try_into().map_or(0, u64::from_le_bytes);
        word(low) ^ word(high)
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut w = Writer::with_capacity(BLOCK);
        w.u64(MAGIC);
        let version = self.version();
        w.u32(version);
        w.u32(u32::try_from(BLOCK).expect("4096"));
        w.raw(&self.id);
        let numbers = [self.wal, self.data].map(|run| [run.start, run.count]);
        numbers.as_flattened().iter().for_each(|number| w.u32((number & LOW_HALF) as u32));
        w.u32(self.part.code());
        if version >= VERSION_DIVIDED {
            w.u32(self.division.partitions);
            w.u32(self.division.slab_blocks);
        }
        if version >= VERSION_WIDE {
            w.u16((self.data.start >> 32) as u16);
            w.u16((self.data.count >> 32) as u16);
        }
        w.zeros(CRC_AT - w.len());
        w.u32(crc::crc32c(u32::MAX, w.as_slice()));
        let mut block = AlignedBuf::with_len(BLOCK);
        block.copy_from_slice(w.as_slice());
        block.freeze()
    }

    /// Reads a copy; the device must hold all that it speaks of.
    pub(crate) fn decode(block: &Bytes, device_bytes: u64) -> Result<Self, OpenError> {
        let bad = |reason| OpenError::NoSuperblock { reason };
        if !block.starts_with(&MAGIC.to_le_bytes()) {
            return Err(bad("no magic number"));
        }
        let fields = Fields::read(block).map_err(|_| bad("malformed"))?;
        let checked = block.get(..CRC_AT).ok_or_else(|| bad("too short"))?;
        if crc::crc32c(u32::MAX, checked) != fields.crc {
            return Err(bad("checksum mismatch"));
        }
        if !(VERSION_MIN..=VERSION_WIDE).contains(&fields.version) {
            return Err(OpenError::Newer { found: fields.version, known: VERSION_WIDE });
        }
        let Self { wal, data, part, division, .. } = fields.superblock;
        // 48 bits each: no overflow.
        let end = data.end();
        let may_be_whole = fields.version != VERSION_DIVIDED && division == Division::NONE;
        let sound = wal.end() <= data.start
            && wal.count > 0
            && data.count > 0
            && (Numbers::of(end) == Numbers::Wide) == (fields.version == VERSION_WIDE)
            && (may_be_whole || fields.superblock.is_divisible());
        if fields.block_bytes as usize != BLOCK || !sound {
            return Err(bad("impossible geometry"));
        }
        if end > DEVICE_BLOCKS_MAX {
            let max_bytes = DEVICE_BLOCKS_MAX * BLOCK as u64;
            return Err(OpenError::TooLarge { size_bytes: end * BLOCK as u64, max_bytes });
        }
        if end * BLOCK as u64 > device_bytes {
            if part != Part::Whole {
                return Err(OpenError::LogElsewhere);
            }
            return Err(OpenError::Size { size_bytes: device_bytes });
        }
        Ok(fields.superblock)
    }
}

/// A superblock before it is believed.
struct Fields {
    version: u32,
    block_bytes: u32,
    superblock: Superblock,
    crc: u32,
}

impl Fields {
    fn read(block: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(block.clone());
        let (_magic, version, block_bytes, id) = (r.u64()?, r.u32()?, r.u32()?, r.array()?);
        let mut run = || Ok::<_, DecodeError>(Run { start: r.u32()?.into(), count: r.u32()?.into() });
        let (wal, mut data) = (run()?, run()?);
        let code = r.u32()?;
        let part = Part::from_code(code)
            .ok_or(DecodeError::Invalid { what: "part of a store", value: code.into() })?;
        let division = match version >= VERSION_DIVIDED {
            true => Division { partitions: r.u32()?, slab_blocks: r.u32()? },
            false => Division::NONE,
        };
        if version >= VERSION_WIDE {
            data.start |= u64::from(r.u16()?) << 32;
            data.count |= u64::from(r.u16()?) << 32;
        }
        let superblock = Superblock { id, part, wal, data, division };
        r.skip(CRC_AT.saturating_sub(r.offset()))?;
        Ok(Self { version, block_bytes, superblock, crc: r.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slabs::Slabs;

    #[test]
    fn a_superblock_is_read_back_and_damage_noticed() {
        let superblock = Superblock::new([7; 16], 1 << 20, 256 << 10).expect("large enough");
        let block = superblock.encode();
        assert_eq!(Superblock::decode(&block, 1 << 20).expect("our own bytes"), superblock);
        assert!(Superblock::decode(&block, 1 << 19).is_err());
        let mut torn = block.to_vec();
        torn[600] = 1;
        assert!(Superblock::decode(&torn.into(), 1 << 20).is_err());
        assert!(Superblock::new([7; 16], 1 << 20, 1 << 20).is_err());
    }

    #[test]
    fn a_store_that_is_not_divided_has_the_bytes_that_it_always_had() {
        let superblock = Superblock::new([7; 16], 1 << 20, 256 << 10).expect("large enough");
        let block = superblock.divided(1, Some(16)).expect("one partition is no division").encode();
        assert_eq!(block[8..12], 2_u32.to_le_bytes());
        assert!(block[52..CRC_AT].iter().all(|byte| *byte == 0), "zeros behind the part");
    }

    #[test]
    fn a_division_is_read_back_and_one_that_cannot_be_is_refused() {
        let superblock = Superblock::new([7; 16], 1 << 20, 256 << 10).expect("large enough");
        let divided = superblock.divided(3, Some(32)).expect("six slabs");
        for part in [Part::Whole, Part::DataInPlace] {
            let divided = Superblock { part, ..divided };
            let block = divided.encode();
            assert_eq!(block[8..12], VERSION_DIVIDED.to_le_bytes());
            assert_eq!(Superblock::decode(&block, 1 << 20).expect("our own bytes"), divided);
        }
        let shares = [0, 1, 2].map(|partition| divided.share(partition).wal);
        assert_eq!(shares, [2, 23, 44].map(|start| Run { start, count: 21 }));
        for (partitions, slab_blocks) in [(0, 32), (2, 0), (3, 128), (5, 16), (PARTITIONS_MAX + 1, 1)] {
            assert!(
                superblock.divided(partitions, Some(slab_blocks)).is_err(),
                "{partitions}, {slab_blocks}"
            );
            let division = Division { partitions, slab_blocks };
            let block = Superblock { division, ..superblock }.encode();
            assert!(Superblock::decode(&block, 1 << 20).is_err(), "{partitions}, {slab_blocks}");
        }
        let large = Superblock::new([7; 16], 1 << 40, 256 << 20).expect("a terabyte").divided(4, None);
        assert_eq!(large.expect("divisible").division.slab_blocks, 262_144);
        let large = Superblock::new([7; 16], 1 << 40, 256 << 20).expect("a terabyte");
        assert!(
            large.divided(4, Some(4096)).is_ok() && large.divided(4, Some(2048)).is_err(),
            "too many slabs"
        );
    }

    const WIDE_BYTES: u64 = 40 << 40;

    /// A device of one block less than 16 TiB is the largest that all programs know.
    #[test]
    fn only_devices_of_more_than_32_bits_of_blocks_have_the_newest_version() {
        let version = |device_bytes: u64| {
            let superblock = Superblock::new([7; 16], device_bytes, 256 << 10).expect("large enough");
            let block = superblock.encode();
            assert_eq!(Superblock::decode(&block, device_bytes).expect("our own bytes"), superblock);
            assert!(Superblock::decode(&block, device_bytes - BLOCK as u64).is_err());
            assert_eq!(superblock.data.end() * BLOCK as u64, device_bytes);
            (block[8], block[60..CRC_AT].iter().all(|byte| *byte == 0))
        };
        let block = BLOCK as u64;
        assert_eq!(
            [(16 << 40) - block, 16 << 40, WIDE_BYTES].map(version),
            [(2, true), (5, true), (5, false)]
        );
    }

    #[test]
    fn a_wide_superblock_has_its_part_its_division_and_both_halves_of_its_numbers() {
        let whole = Superblock::new([7; 16], WIDE_BYTES, 1 << 30).expect("large enough");
        let divided = whole.divided(3, None).expect("divisible");
        let high = Run { start: (1 << 32) + 5, count: 9000 };
        for superblock in [
            whole,
            divided,
            Superblock { part: Part::DataInPlace, ..whole },
            Superblock { part: Part::Log, ..divided },
            Superblock { data: high, ..whole },
            Superblock { data: Run { start: (1 << 32) - 5, count: 9000 }, ..whole },
        ] {
            let block = superblock.encode();
            assert_eq!(block[8..12], VERSION_WIDE.to_le_bytes());
            assert_eq!(Superblock::decode(&block, WIDE_BYTES).expect("our own bytes"), superblock);
        }
        assert_eq!(whole.encode()[52..64], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(Superblock { data: high, ..whole }.encode()[60..64], [1, 0, 0, 0]);
    }

    /// Writes bytes over those of a copy, with the right checksum.
    fn forged(superblock: &Superblock, at: usize, bytes: &[u8]) -> Bytes {
        let mut block = superblock.encode().to_vec();
        block[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = crc::crc32c(u32::MAX, &block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        block.into()
    }

    #[test]
    fn geometry_that_no_program_writes_is_refused() {
        let wide = Superblock::new([7; 16], WIDE_BYTES, 256 << 10).expect("large enough");
        let narrow = Superblock::new([7; 16], 1 << 30, 256 << 10).expect("large enough");
        let refusal = |block: &Bytes| Superblock::decode(block, u64::MAX).expect_err("refused").to_string();
        assert!(refusal(&forged(&narrow, 8, &[5])).contains("impossible geometry"));
        assert!(refusal(&forged(&narrow, 8, &[6])).contains("format 6, this program knows up to 5"));
        assert!(refusal(&forged(&wide, 62, &[0xff, 0xff])).contains("64 PiB"));
        assert!(
            refusal(&forged(&wide, 52, &[2])).contains("impossible geometry"),
            "two partitions without slabs"
        );
    }

    #[test]
    fn what_is_above_the_limits_is_refused_by_name() {
        let largest = DEVICE_BLOCKS_MAX * BLOCK as u64;
        let refusal = |bytes, log| Superblock::new([7; 16], bytes, log).expect_err("refused").to_string();
        assert!(refusal(largest + BLOCK as u64, 1 << 20).contains("64 PiB"));
        assert!(refusal(u64::MAX, 1 << 20).contains("64 PiB"));
        assert!(refusal(largest, 16 << 40).contains("less than 16 TiB"));
        let superblock = Superblock::new([7; 16], largest, 1 << 30).expect("as large as may be");
        let Division { slab_blocks, .. } = superblock.divided(256, None).expect("divisible").division;
        assert_eq!(superblock.data.count.div_ceil(slab_blocks.into()), 1 << 13);
        let slabs = Slabs::new(superblock.data, slab_blocks);
        assert_eq!(slabs.run(slabs.count() - 1).end(), DEVICE_BLOCKS_MAX);
    }
}
