//! [`Label`]: whose device it is and what lies where. Drawn in `docs/formats/device.md`.

use bytes::Bytes;
use nacre_buf::crc::crc32c;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_env::File;
use nacre_types::{OsdId, Uuid};
use std::fmt;
use std::io;

/// Bytes of one copy: a block.
pub(crate) const LABEL_BYTES: u64 = 4096;
const BLOCK: usize = 4096;
pub(crate) const MAGIC: [u8; 8] = *b"NacreDEV";
/// Of a label without a journal: programs that know version 1 would open metadata without their journal.
const VERSION_PLAIN: u32 = 1;
/// Of one with a journal: programs that know version 2 would take an encrypted device for a damaged one.
const VERSION_JOURNAL: u32 = 2;
/// Of an encrypted device, with a journal or without.
const VERSION_ENCRYPTED: u32 = 3;
/// Of one whose store is divided between partitions, with a journal or without: programs that know version 3 would take the first partition's
/// part of a region for all of it. And the same of an encrypted device, the newest that is read.
const VERSION_DIVIDED: u32 = 4;
const VERSION: u32 = 5;
const CRC_AT: usize = BLOCK - 4;
/// Regions of a device at most.
const REGIONS_MAX: u32 = 8;
/// Partitions of a store at most, as superblocks have it.
const PARTITIONS_MAX: u32 = 256;
/// The first region of an encrypted device begins here or behind: in front of it is the wrapped key.
const KEYS_END: u64 = 1 << 20;
/// What [`erase`] clears at each end: labels, superblocks and heads of regions.
const ERASED_BYTES: u64 = 4 << 20;

/// What a device is to its OSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Objects' data, with all that is not elsewhere.
    Data,
    /// The write-ahead log.
    Log,
    /// The metadata's database.
    Metadata,
}

impl Role {
    const ALL: [Self; 3] = [Self::Data, Self::Log, Self::Metadata];

    const fn code(self) -> u32 {
        match self {
            Self::Data => 0,
            Self::Log => 1,
            Self::Metadata => 2,
        }
    }

    fn from_code(code: u32) -> Result<Self, DecodeError> {
        let known = Self::ALL.into_iter().find(|role| role.code() == code);
        known.ok_or(DecodeError::Invalid { what: "role of a device", value: code.into() })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Log => "log",
            Self::Metadata => "metadata",
        })
    }
}

/// What a region is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionKind {
    /// The store: its superblocks, its log unless that is elsewhere, its data.
    Store,
    /// The store's log, with its superblocks in front of it.
    Log,
    /// The metadata's database.
    Metadata,
    /// The journal before the metadata's database.
    Journal,
}

impl RegionKind {
    const ALL: [Self; 4] = [Self::Store, Self::Log, Self::Metadata, Self::Journal];

    const fn code(self) -> u32 {
        match self {
            Self::Store => 0,
            Self::Log => 1,
            Self::Metadata => 2,
            Self::Journal => 3,
        }
    }

    fn from_code(code: u32) -> Result<Self, DecodeError> {
        let known = Self::ALL.into_iter().find(|kind| kind.code() == code);
        known.ok_or(DecodeError::Invalid { what: "kind of a region", value: code.into() })
    }
}

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// What it is for.
    pub kind: RegionKind,
    /// Its first byte.
    pub offset: u64,
    /// How many bytes it has.
    pub length: u64,
}

/// Whose a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The cluster, or [`Uuid::NIL`] where it was not known as the OSD was made. Nothing fills it in later: what the OSD's key opens is
    /// its cluster.
    pub cluster: Uuid,
    /// Number of the OSD.
    pub osd: OsdId,
    /// Identity of the OSD: what its folder's `fsid` says.
    pub osd_uuid: Uuid,
    /// Identity of the store: all its devices have the same, and no store that the OSD had before.
    pub store: Uuid,
}

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Whose it is.
    pub owner: Owner,
    /// What it is to that OSD.
    pub role: Role,
    /// Bytes of the device when it was labelled, in whole blocks.
    pub device_bytes: u64,
    /// What lies where, in order of offsets.
    pub regions: Vec<Region>,
    /// Whether the regions are encrypted; the data device has the wrapped key then, in front of them.
    pub is_encrypted: bool,
    /// Partitions of the store, each of which has a part of the regions for metadata and journal; 1: the store is not divided.
    pub partitions: u32,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Owner { osd, osd_uuid, store, .. } = self.owner;
        let encrypted = if self.is_encrypted { "encrypted " } else { "" };
        write!(f, "the {encrypted}{} device of osd.{osd} (uuid {osd_uuid}, store {store}", self.role)?;
        match self.partitions {
            1 => f.write_str(")"),
            partitions => write!(f, ", for {partitions} shards)"),
        }
    }
}

/// A copy of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelCopy {
    /// In the first block.
    First,
    /// In the last block.
    Last,
}

impl fmt::Display for LabelCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "in the first block",
            Self::Last => "in the last block",
        })
    }
}

/// A label that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What it says.
    pub label: Label,
    /// The copy that is not whole, if one is not, and what is wrong with it.
    pub damaged: Option<(LabelCopy, String)>,
    /// Something that is not ours is in its place: somebody else may use the device now.
    pub is_overwritten: bool,
}

/// Why a device's label cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// There is none.
    #[error("no label of an OSD in its first block or its last one")]
    Absent,
    /// Both copies are damaged.
    #[error("both copies of its label are damaged (first block: {first}; last block: {last})")]
    Damaged {
        /// What is wrong with the first.
        first: String,
        /// What is wrong with the last.
        last: String,
    },
    /// Both copies are whole and say different things.
    #[error("its two labels differ: {first} in the first block, {last} in the last one")]
    Differ {
        /// What the first says.
        first: Box<Label>,
        /// What the last says.
        last: Box<Label>,
    },
    /// The device is shorter than it was.
    #[error("it has {has} bytes, and its label says {had}: the device or partition has shrunk")]
    Shrunk {
        /// Bytes that it has.
        has: u64,
        /// Bytes that it had.
        had: u64,
    },
    /// A later version wrote it.
    #[error("its label has format {found}, this program knows up to {VERSION}")]
    Newer {
        /// Format of the label.
        found: u32,
    },
    /// The device failed.
    #[error("{0}")]
    Device(#[from] io::Error),
}

/// Why one copy is none.
enum Bad {
    /// The block is all zeros, as it is on a new device or after a discard.
    Blank,
    /// The block holds something that does not begin as a label of ours does.
    Other,
    Newer(u32),
    Damaged(String),
}

impl Bad {
    fn text(&self) -> String {
        match self {
            Self::Blank => "it is all zeros".to_owned(),
            Self::Other => "no magic number".to_owned(),
            Self::Newer(found) => format!("format {found}"),
            Self::Damaged(reason) => reason.clone(),
        }
    }
}

impl Label {
    /// The region of a kind.
    #[must_use]
    pub fn region(&self, kind: RegionKind) -> Option<Region> {
        self.regions.iter().find(|region| region.kind == kind).copied()
    }

    /// What a partition of the store has of the region of a kind of which each has a part, metadata or journal: one of equal parts, in whole
    /// blocks. All of it where the store is not divided.
    #[must_use]
    pub fn part(&self, kind: RegionKind, partition: u32) -> Option<Region> {
        let region = self.region(kind)?;
        let length = part_bytes(region.length, self.partitions);
        Some(Region { offset: region.offset + u64::from(partition) * length, length, ..region })
    }

    /// The beginnings of all that is in the regions.
    fn starts(&self) -> impl Iterator<Item = u64> {
        let parts = |region: &Region| match region.kind {
            RegionKind::Metadata | RegionKind::Journal => self.partitions,
            RegionKind::Store | RegionKind::Log => 1,
        };
        self.regions.iter().flat_map(move |region| {
            let bytes = part_bytes(region.length, parts(region));
            (0..parts(region)).map(move |part| region.offset + u64::from(part) * bytes)
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(BLOCK);
        let Owner { cluster, osd, osd_uuid, store } = self.owner;
        w.raw(&MAGIC);
        let is_divided = self.partitions > 1;
        w.u32(match (is_divided, self.is_encrypted, self.region(RegionKind::Journal)) {
            (true, true, _) => VERSION,
            (true, false, _) => VERSION_DIVIDED,
            (false, true, _) => VERSION_ENCRYPTED,
            (false, false, Some(_)) => VERSION_JOURNAL,
            (false, false, None) => VERSION_PLAIN,
        });
        w.u32(self.role.code());
        for id in [cluster, osd_uuid, store] {
            w.raw(&id.0);
        }
        w.i32(osd);
        w.u32(u32::try_from(self.regions.len()).expect("a few"));
        w.u64(self.device_bytes);
        if is_divided {
            w.u32(self.partitions);
            w.u32(0);
        }
        for region in &self.regions {
            w.u32(region.kind.code());
            w.u32(0);
            w.u64(region.offset);
            w.u64(region.length);
        }
        w.zeros(CRC_AT - w.len());
        w.u32(crc32c(u32::MAX, w.as_slice()));
        w.as_slice().to_vec()
    }

    fn decode(block: &[u8]) -> Result<Self, Bad> {
        if !block.starts_with(&MAGIC) {
            let is_blank = block.iter().all(|byte| *byte == 0);
            return Err(if is_blank { Bad::Blank } else { Bad::Other });
        }
        let (Some(checked), Some(sum)) = (block.get(..CRC_AT), block.get(CRC_AT..BLOCK)) else {
            return Err(Bad::Damaged("too short".to_owned()));
        };
        if crc32c(u32::MAX, checked).to_le_bytes() != sum {
            return Err(Bad::Damaged("its checksum does not fit".to_owned()));
        }
        let malformed = |error: DecodeError| Bad::Damaged(error.to_string());
        let mut r = Reader::new(Bytes::copy_from_slice(checked));
        let version = r.skip(MAGIC.len()).and_then(|()| r.u32()).map_err(malformed)?;
        if !(VERSION_PLAIN..=VERSION).contains(&version) {
            return Err(Bad::Newer(version));
        }
        let is_encrypted = matches!(version, VERSION_ENCRYPTED | VERSION);
        let label = Self::read(&mut r, is_encrypted, version >= VERSION_DIVIDED).map_err(malformed)?;
        label.check().map_err(|reason| Bad::Damaged(reason.to_owned()))?;
        Ok(label)
    }

    /// What comes behind the version.
    fn read(r: &mut Reader, is_encrypted: bool, is_divided: bool) -> Result<Self, DecodeError> {
        let role = Role::from_code(r.u32()?)?;
        let (cluster, osd_uuid, store) = (Uuid(r.array()?), Uuid(r.array()?), Uuid(r.array()?));
        let (osd, count, device_bytes) = (r.i32()?, r.u32()?, r.u64()?);
        if count > REGIONS_MAX {
            return Err(DecodeError::Invalid { what: "number of regions", value: count.into() });
        }
        let partitions = if is_divided { r.u32()? } else { 1 };
        if is_divided {
            let _unused = r.u32()?;
            if !(2..=PARTITIONS_MAX).contains(&partitions) {
                return Err(DecodeError::Invalid { what: "number of partitions", value: partitions.into() });
            }
        }
        let mut regions = Vec::new();
        for _ in 0..count {
            let kind = RegionKind::from_code(r.u32()?)?;
            let _unused = r.u32()?;
            regions.push(Region { kind, offset: r.u64()?, length: r.u64()? });
        }
        let owner = Owner { cluster, osd, osd_uuid, store };
        Ok(Self { owner, role, device_bytes, regions, is_encrypted, partitions })
    }

    /// Whether regions lie between the labels, apart from each other, and are those of the role.
    fn check(&self) -> Result<(), &'static str> {
        let Some(end) = self.device_bytes.checked_sub(LABEL_BYTES) else { return Err("no room for a label") };
        let keys_end = if self.is_encrypted { KEYS_END } else { LABEL_BYTES };
        let mut free = keys_end;
        for region in &self.regions {
            let words = [region.offset, region.length, self.device_bytes];
            let behind = region.offset.checked_add(region.length).filter(|behind| *behind <= end);
            let Some(behind) = behind.filter(|_| words.iter().all(|word| word.is_multiple_of(LABEL_BYTES)))
            else {
                return Err("a region is not within the device");
            };
            if region.offset < free || region.length == 0 {
                return Err("regions overlap");
            }
            if part_bytes(region.length, self.partitions) == 0 {
                return Err("a region has no block for each partition");
            }
            free = behind;
        }
        let kinds: Vec<RegionKind> = self.regions.iter().map(|region| region.kind).collect();
        let fits = match self.role {
            Role::Data => matches!(
                &kinds[..],
                [RegionKind::Store]
                    | [RegionKind::Metadata, RegionKind::Store]
                    | [RegionKind::Journal, RegionKind::Metadata, RegionKind::Store]
            ),
            Role::Log => kinds == [RegionKind::Log],
            Role::Metadata => {
                matches!(&kinds[..], [RegionKind::Metadata] | [RegionKind::Journal, RegionKind::Metadata])
            }
        };
        if fits { Ok(()) } else { Err("regions that a device of this role does not have") }
    }
}

/// Bytes of each of so many equal parts of a region.
fn part_bytes(bytes: u64, parts: u32) -> u64 {
    match bytes / u64::from(parts.max(1)) {
        // As long as it is.
        _ if parts <= 1 => bytes,
        part => part - part % LABEL_BYTES,
    }
}

fn read_block(device: &dyn File, offset: u64) -> io::Result<Result<Label, Bad>> {
    let mut block = vec![0; BLOCK];
    device.read(offset, &mut block)?;
    Ok(Label::decode(&block))
}

/// Reads the label of a device of `device_bytes`, which are whole blocks.
///
/// # Errors
/// [`LabelError`].
pub fn read_label(device: &dyn File, device_bytes: u64) -> Result<Found, LabelError> {
    let Some(end) = device_bytes.checked_sub(LABEL_BYTES) else { return Err(LabelError::Absent) };
    // A block that the device does not give is a damaged copy, too.
    let read =
        |offset| read_block(device, offset).unwrap_or_else(|error| Err(Bad::Damaged(error.to_string())));
    let first = read(0);
    // A device that has grown has its last label where it ended.
    let last_at = first.as_ref().map_or(end, |label| label.device_bytes - LABEL_BYTES);
    let had = last_at + LABEL_BYTES;
    if had > device_bytes {
        return Err(LabelError::Shrunk { has: device_bytes, had });
    }
    match (first, read(last_at)) {
        (Ok(first), Ok(last)) if first == last => {
            Ok(Found { label: first, damaged: None, is_overwritten: false })
        }
        (Ok(first), Ok(last)) => Err(LabelError::Differ { first: Box::new(first), last: Box::new(last) }),
        (Err(Bad::Newer(found)), _) | (_, Err(Bad::Newer(found))) => Err(LabelError::Newer { found }),
        (Ok(label), Err(bad)) => Ok(half(label, LabelCopy::Last, &bad)),
        (Err(bad), Ok(label)) => Ok(half(label, LabelCopy::First, &bad)),
        (Err(Bad::Blank | Bad::Other), Err(Bad::Blank | Bad::Other)) => Err(LabelError::Absent),
        (Err(first), Err(last)) => Err(LabelError::Damaged { first: first.text(), last: last.text() }),
    }
}

/// What the whole copy of two says.
fn half(label: Label, damaged: LabelCopy, bad: &Bad) -> Found {
    Found { label, damaged: Some((damaged, bad.text())), is_overwritten: matches!(bad, Bad::Other) }
}

/// Writes both copies: the last one first, so that a device whose first block has a label has both, or the first alone is damaged later.
///
/// # Errors
/// What the device says.
pub fn write_label(device: &dyn File, label: &Label) -> io::Result<()> {
    debug_assert_eq!(label.check(), Ok(()), "{label:?}");
    let block = label.encode();
    for offset in [label.device_bytes - LABEL_BYTES, 0] {
        device.write(offset, &block)?;
        device.sync()?;
    }
    Ok(())
}

/// Writes the copy that is damaged again by the whole one, which is not touched.
///
/// # Errors
/// What the device says.
pub fn repair_label(device: &dyn File, found: &Found) -> io::Result<()> {
    let Some((copy, _)) = &found.damaged else { return Ok(()) };
    let offset = match copy {
        LabelCopy::First => 0,
        LabelCopy::Last => found.label.device_bytes - LABEL_BYTES,
    };
    device.write(offset, &found.label.encode())?;
    device.sync()
}

/// Clears both ends of a device, and with them labels, superblocks and the heads of regions: what is on it belongs to nobody any more.
/// The labels go last: as long as anything is left, a wrapped key for one, there is a label that says where.
///
/// # Errors
/// What the device says.
pub fn erase(device: &dyn File, label: &Label) -> io::Result<()> {
    let end = label.device_bytes;
    let last = end.saturating_sub(LABEL_BYTES);
    let inner = [LABEL_BYTES, end.saturating_sub(ERASED_BYTES).max(LABEL_BYTES)];
    for start in inner.into_iter().chain(label.starts()) {
        clear(device, start, start.saturating_add(ERASED_BYTES).min(last))?;
    }
    device.sync()?;
    clear(device, 0, LABEL_BYTES.min(end))?;
    clear(device, last, end)?;
    device.sync()
}

/// Zeros from `start` up to `stop`.
fn clear(device: &dyn File, start: u64, stop: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = start;
    while at < stop {
        let count = usize::try_from(stop - at).unwrap_or(usize::MAX).min(zeros.len());
        device.write(at, zeros.get(..count).unwrap_or_default())?;
        at += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
