//! How a new device is divided.
//!
//! ```text
//!  0        1 MiB                                                                                    last block
//!  | label  | journal of the metadata | metadata, unless it has a device of its own | store | (less than a block) | label |
//! ```
//!
//! How much metadata may need: an object has a record, a name, its PG's entries and 8 bytes for each block of 4 KiB, about 600 bytes and
//! those; pages of the database are two thirds full, and each change is written beside what it replaces, so twice that is room enough.
//!
//! | objects of | metadata of one | of its data |
//! | --- | --- | --- |
//! | 4 MiB | 18 KiB | 0.4 % |
//! | 160 KiB (100 million of them on 16 TB) | 1.9 KiB | 1.2 % |
//! | 64 KiB | 1.5 KiB | 2.3 % |
//! | 4 KiB | 1.2 KiB | 30 % |
//!
//! Measured with `rados bench` on a new OSD: 54,995 objects of 64 KiB took 36 MB of the region, 648 bytes each; 210,767 of 4 KiB took 229 MB,
//! 1,085 bytes each, and 662 when compacted.
//!
//! So [`metadata_share`] gives it 2 %, but at least 1 GiB, or an eighth of a device so small that this would be more: a checkpoint's batch has
//! to fit beside what is there. For stores of small objects or large omaps there is `--meta-size`, and a device of its own. The journal before
//! the metadata is on the device that they are on, as large as any memory target wants it, but of a small device a small part.

use crate::label::{LABEL_BYTES, Region, RegionKind};

/// Where the first region begins, and what regions' offsets are multiples of.
const ALIGNMENT: u64 = 1 << 20;
/// Bytes of a device for data at least.
pub const DATA_BYTES_MIN: u64 = 1 << 30;
/// Bytes of a device for the log at least.
pub const LOG_BYTES_MIN: u64 = 64 << 20;
/// Bytes of a device for metadata at least, and of a region.
pub const METADATA_BYTES_MIN: u64 = 128 << 20;
/// Metadata is one part of so many of a device.
const METADATA_DIVISOR: u64 = 50;
/// Metadata of a device that is not small, at least.
const METADATA_BYTES_USUAL: u64 = 1 << 30;
/// Metadata is at most one part of so many of a small device, unless somebody asks for more; and never more than half of one.
const SMALL_DIVISOR: u64 = 8;

/// The journal of the metadata is at most one part of so many of a device.
const JOURNAL_DIVISOR: u64 = 32;

/// A device cannot be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// It is too small.
    #[error("it has {size_bytes} bytes, and needs {min_bytes}")]
    TooSmall {
        /// Bytes that it has.
        size_bytes: u64,
        /// Bytes that it needs.
        min_bytes: u64,
    },
    /// It has no room for the metadata of so many partitions of a store.
    #[error(
        "its region for metadata has room for those of {shards_max} shards, and not of {shards}: a larger --meta-size, or a larger device for \
         them, has"
    )]
    Shards {
        /// Partitions that were asked for.
        shards: u32,
        /// Those that it has room for.
        shards_max: u64,
    },
    /// The metadata that was asked for do not fit.
    #[error(
        "--meta-size of {asked_bytes} bytes: wanted are {METADATA_BYTES_MIN} to {max_bytes} on this device"
    )]
    Metadata {
        /// Bytes that were asked for.
        asked_bytes: u64,
        /// Bytes that it may have.
        max_bytes: u64,
    },
}

/// Bytes of a data device that its metadata have if nobody says otherwise.
#[must_use]
pub fn metadata_share(device_bytes: u64) -> u64 {
    let usual = METADATA_BYTES_USUAL.min(device_bytes / SMALL_DIVISOR);
    (device_bytes / METADATA_DIVISOR).max(usual).max(METADATA_BYTES_MIN).next_multiple_of(ALIGNMENT)
}

/// The journal of the metadata at the front of a device that these are on; none on one that is too small for it.
fn journal_region(device_bytes: u64, journal_bytes: u64) -> Option<Region> {
    let length = journal_bytes.next_multiple_of(ALIGNMENT).min(device_bytes / JOURNAL_DIVISOR);
    let length = length - length % ALIGNMENT;
    (length > 0).then_some(Region { kind: RegionKind::Journal, offset: ALIGNMENT, length })
}

/// Divides a device for data. `metadata` says whether metadata are on it, and how many bytes if somebody asks for a number; their journal
/// has so many bytes at most.
///
/// # Errors
/// [`LayoutError`].
pub fn data_regions(
    device_bytes: u64,
    metadata: Option<Option<u64>>,
    journal_bytes: u64,
) -> Result<Vec<Region>, LayoutError> {
    check(device_bytes, DATA_BYTES_MIN)?;
    let max_bytes = device_bytes / 2;
    let length = match metadata {
        Some(Some(asked_bytes)) if !(METADATA_BYTES_MIN..=max_bytes).contains(&asked_bytes) => {
            return Err(LayoutError::Metadata { asked_bytes, max_bytes });
        }
        Some(Some(asked_bytes)) => Some(asked_bytes.next_multiple_of(ALIGNMENT)),
        Some(None) => Some(metadata_share(device_bytes)),
        None => None,
    };
    let journal = length.and_then(|_| journal_region(device_bytes, journal_bytes));
    let mut offset = ALIGNMENT + journal.map_or(0, |journal| journal.length);
    let metadata = length.map(|length| Region { kind: RegionKind::Metadata, offset, length });
    offset += length.unwrap_or(0);
    let store = Region { kind: RegionKind::Store, offset, length: end(device_bytes) - offset };
    Ok(journal.into_iter().chain(metadata).chain([store]).collect())
}

/// Divides a device for metadata alone: all of it for them, or so many bytes if somebody asks for a number; their journal has so many
/// bytes at most.
///
/// # Errors
/// [`LayoutError`].
pub fn metadata_regions(
    device_bytes: u64,
    metadata_bytes: Option<u64>,
    journal_bytes: u64,
) -> Result<Vec<Region>, LayoutError> {
    check(device_bytes, METADATA_BYTES_MIN)?;
    let journal = journal_region(device_bytes, journal_bytes);
    let offset = ALIGNMENT + journal.map_or(0, |journal| journal.length);
    let max_bytes = end(device_bytes) - offset;
    let length = match metadata_bytes {
        Some(asked_bytes) if !(METADATA_BYTES_MIN..=max_bytes).contains(&asked_bytes) => {
            return Err(LayoutError::Metadata { asked_bytes, max_bytes });
        }
        Some(asked_bytes) => asked_bytes.next_multiple_of(LABEL_BYTES),
        None => max_bytes,
    };
    let metadata = Region { kind: RegionKind::Metadata, offset, length };
    Ok(journal.into_iter().chain([metadata]).collect())
}

/// The region of a device for the log alone: at most so many bytes of it.
///
/// # Errors
/// [`LayoutError::TooSmall`].
pub fn log_region(device_bytes: u64, bytes_max: u64) -> Result<Region, LayoutError> {
    check(device_bytes, LOG_BYTES_MIN)?;
    let length = (end(device_bytes) - ALIGNMENT).min(bytes_max);
    Ok(Region { kind: RegionKind::Log, offset: ALIGNMENT, length: length - length % LABEL_BYTES })
}

fn check(size_bytes: u64, min_bytes: u64) -> Result<(), LayoutError> {
    if size_bytes < min_bytes { Err(LayoutError::TooSmall { size_bytes, min_bytes }) } else { Ok(()) }
}

/// Where the last label begins.
const fn end(device_bytes: u64) -> u64 {
    device_bytes - device_bytes % LABEL_BYTES - LABEL_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const JOURNAL_BYTES: u64 = 257 << 20;

    #[test]
    fn metadata_have_two_percent_and_something_on_small_devices() {
        assert_eq!(metadata_share(GIB), 128 << 20);
        assert_eq!(metadata_share(4 * GIB), 512 << 20);
        assert_eq!(metadata_share(20 * GIB), GIB);
        assert_eq!(metadata_share(100 * GIB), 2 * GIB);
        let large = metadata_share(16_000_000_000_000);
        assert!(large >> 30 == 298 && large.is_multiple_of(ALIGNMENT), "{large}");
    }

    #[test]
    fn regions_lie_behind_each_other_and_before_the_last_label() {
        for (device_bytes, journal_bytes) in [
            (GIB, 32 << 20),
            (GIB + 4096, 32 << 20),
            (3 * GIB - 4096, 95 << 20),
            (16_000_000_000_000 / 4096 * 4096, JOURNAL_BYTES),
        ] {
            let regions = data_regions(device_bytes, Some(None), JOURNAL_BYTES - 4096).expect("room");
            let [journal, metadata, store] = regions[..] else { panic!("three regions") };
            assert_eq!((journal.offset, journal.length), (ALIGNMENT, journal_bytes));
            assert_eq!(metadata.offset, journal.offset + journal.length);
            assert_eq!(metadata.length, metadata_share(device_bytes));
            assert_eq!(store.offset, metadata.offset + metadata.length);
            assert_eq!(store.offset + store.length, device_bytes - LABEL_BYTES);
        }
        let alone = data_regions(GIB, None, JOURNAL_BYTES).expect("room");
        assert!(matches!(alone[..], [Region { kind: RegionKind::Store, offset: ALIGNMENT, .. }]));
        let [journal, metadata] = metadata_regions(GIB, None, JOURNAL_BYTES).expect("room")[..] else {
            panic!("two regions")
        };
        assert_eq!((journal.length, metadata.offset), (32 << 20, 33 << 20));
        assert_eq!(metadata.offset + metadata.length, GIB - LABEL_BYTES);
        let [_, metadata] =
            metadata_regions(GIB, Some(METADATA_BYTES_MIN + 1), JOURNAL_BYTES).expect("room")[..]
        else {
            panic!("two regions")
        };
        assert_eq!((metadata.offset, metadata.length), (33 << 20, METADATA_BYTES_MIN + LABEL_BYTES));
        let log = log_region(GIB, 64 << 20).expect("room");
        assert_eq!((log.offset, log.length), (ALIGNMENT, 64 << 20), "no more than a log needs");
        let log = log_region(GIB, (64 << 20) + 4095).expect("room");
        assert_eq!(log.length, 64 << 20, "whole blocks");
    }

    #[test]
    fn what_is_too_small_is_refused() {
        let regions = |device_bytes, metadata| data_regions(device_bytes, metadata, JOURNAL_BYTES);
        assert!(regions(GIB - 4096, None).is_err());
        assert!(log_region(1 << 20, u64::MAX).is_err());
        assert!(metadata_regions(LOG_BYTES_MIN, None, JOURNAL_BYTES).is_err());
        let asked = regions(GIB, Some(Some(600 << 20)));
        assert_eq!(asked, Err(LayoutError::Metadata { asked_bytes: 600 << 20, max_bytes: GIB / 2 }));
        assert!(regions(GIB, Some(Some(1 << 20))).is_err());
        for asked_bytes in [METADATA_BYTES_MIN - 1, GIB] {
            let refused = metadata_regions(GIB, Some(asked_bytes), JOURNAL_BYTES);
            assert!(matches!(refused, Err(LayoutError::Metadata { .. })), "{refused:?}");
        }
        assert!(regions(GIB, Some(Some(200 << 20))).is_ok());
    }
}
