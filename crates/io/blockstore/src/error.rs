//! Why a store cannot be made or opened.

use nacre_denc::DecodeError;
use nacre_env::DiskError;
use nacre_kv::KvError;

/// Making or opening a store failed. Nothing was changed by a failed open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device failed; try again, or replace it.
    #[error("the device failed: {0}")]
    Device(#[from] DiskError),
    /// The same, of a device that is used as a file.
    #[error("the device failed: {0}")]
    File(#[from] std::io::Error),
    /// The KV store beside the device failed.
    #[error("the metadata failed: {0}")]
    Kv(#[from] KvError),
    /// Neither copy of the superblock is whole: not a store, or a damaged one.
    #[error("no store on this device: {reason}")]
    NoSuperblock {
        /// What is wrong with the first copy.
        reason: &'static str,
    },
    /// Written by a newer program.
    #[error("the store has format {found}, this program knows up to {known}")]
    Newer {
        /// The store's format.
        found: u32,
        /// The newest we know.
        known: u32,
    },
    /// The KV store has no state of a store, or that of another one.
    #[error("the metadata does not belong to this device")]
    ForeignMetadata,
    /// The superblock says that the log is on a device of its own, or that this is that device.
    #[error("the log of this store is on a device of its own, and both must be given")]
    LogElsewhere,
    /// The two devices are not data and log of one store.
    #[error("the log device does not belong to this store")]
    ForeignLog,
    /// Making a store over metadata of an earlier one is refused.
    #[error("the metadata store is not empty")]
    NotEmpty,
    /// The device cannot hold log and data.
    #[error("a device of {size_bytes} bytes is too small")]
    Size {
        /// Bytes of the device.
        size_bytes: u64,
    },
    /// The device has more blocks than this program can use.
    #[error("a device of {size_bytes} bytes is too large: a store has {max_bytes} bytes (64 PiB) at most")]
    TooLarge {
        /// Bytes of the device.
        size_bytes: u64,
        /// What it may have.
        max_bytes: u64,
    },
    /// The log would have more blocks than it may.
    #[error("a log of {size_bytes} bytes is too large: it has {max_bytes} bytes (less than 16 TiB) at most")]
    LogTooLarge {
        /// Bytes of the log.
        size_bytes: u64,
        /// What it may have.
        max_bytes: u64,
    },
    /// The store cannot be divided between so many partitions.
    #[error("the device is too small for {partitions} partitions, or there may not be as many")]
    Indivisible {
        /// How many were asked for.
        partitions: u32,
    },
    /// The store is divided between partitions, which must be opened as such.
    #[error("the store is divided between {partitions} partitions and cannot be opened as one")]
    Divided {
        /// How many there are.
        partitions: u32,
    },
    /// Two partitions claim the same part of the device: what one of them says is of before.
    #[error(
        "slab {slab} of the device belongs to two partitions, {} and {}: the metadata of one of them are older than those of the \
         other; a copy of before was put back. Put the newest ones back, or make the OSD anew and let it recover from the others",
        partitions.0, partitions.1
    )]
    SlabLeasedTwice {
        /// Number of the slab.
        slab: u32,
        /// Numbers of the two.
        partitions: (u32, u32),
    },
    /// An acknowledged record of the log is damaged.
    #[error("{0}")]
    LogGap(LogGap),
    /// A record says that a checkpoint was durable which is newer than that of the metadata: a copy of before was put back.
    #[error(
        "the metadata is older than the device: it stands at record {state}, and the log says that a checkpoint at record \
         {needed} was durable; a copy of the metadata of before was put back. Put the newest one back, or make the OSD anew \
         and let it recover from the others"
    )]
    StaleMetadata {
        /// First record that the metadata's state wants.
        state: u64,
        /// First record that the newest durable checkpoint wanted.
        needed: u64,
    },
    /// The metadata knows of records that the device never saw: the device, or its log, is an older copy.
    #[error(
        "the device is older than its metadata: the metadata stands at record {state}, and the newest on the device is \
         {newest}; a copy of the device of before was put back. Put the right one back, or make the OSD anew and let it \
         recover from the others"
    )]
    StaleDevice {
        /// First record that the metadata's state wants.
        state: u64,
        /// The newest record on the device.
        newest: u64,
    },
    /// A whole record of the log cannot be understood.
    #[error("record {seq} of the log is malformed: {source}")]
    Record {
        /// Sequence number of the record.
        seq: u64,
        /// What cannot be decoded.
        source: DecodeError,
    },
    /// A value in the metadata cannot be understood.
    #[error("metadata is malformed: {0}")]
    Malformed(#[from] DecodeError),
    /// The metadata could not be read while the log was applied.
    #[error("{reason}")]
    Unreadable {
        /// What the KV store said.
        reason: String,
    },
    /// Two parts of the store contradict each other.
    #[error("the store is inconsistent: {what} {value}")]
    Inconsistent {
        /// What contradicts the rest.
        what: &'static str,
        /// The number that shows it.
        value: u64,
    },
}

/// A record of the log that was durable, or may have been, and is not there any more. What it said was acknowledged, and
/// what later ones say cannot be applied without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogGap {
    /// Its sequence number.
    pub seq: u64,
    /// Block of the device at which it begins; or at the log's first one, where it did not fit before the end.
    pub block: u64,
    /// What the device answers for it; `None` when it gives something else than was written.
    pub unreadable: Option<DiskError>,
    /// Whole records behind it.
    pub later: u64,
    /// Sequence number of the last of them, or of the gap when there are none.
    pub last: u64,
}

impl std::fmt::Display for LogGap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seq, block, unreadable, later, last } = self;
        write!(f, "record {seq} of the log, at block {block}, ")?;
        match unreadable {
            Some(error) => write!(f, "cannot be read ({error})")?,
            None => write!(f, "is damaged")?,
        }
        match later {
            0 => write!(f, ", and nothing says that the log ends before it")?,
            1 => write!(f, ", and one behind it is whole, {last}")?,
            _ => write!(f, ", and {later} behind it are whole, up to {last}")?,
        }
        write!(
            f,
            ": opening without it would lose acknowledged writes. `nacre store repair` says what can be done; else make the \
             OSD anew and let it recover from the others"
        )
    }
}
