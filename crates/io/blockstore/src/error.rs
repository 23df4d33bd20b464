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
    #[error("a device of {size_bytes} bytes is too small or too large")]
    Size {
        /// Its size.
        size_bytes: u64,
    },
    /// A whole record of the log cannot be understood.
    #[error("record {seq} of the log is malformed: {source}")]
    Record {
        /// Which.
        seq: u64,
        /// How.
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
        /// What.
        what: &'static str,
        /// Where.
        value: u64,
    },
}
