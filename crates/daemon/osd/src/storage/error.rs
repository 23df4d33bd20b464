//! [`StorageError`]: why a store cannot be made or opened.

use crate::own_collection::MapsApart;
use nacre_blockstore::OpenError as BlockError;
use nacre_crypt::KeyBlockError;
use nacre_device::{LabelError, LayoutError, Refusal, RegionKind};
use nacre_env::real::OpenError as DiskError;
use nacre_env::real::private::PrivateError;
use nacre_kv::KvError;
use nacre_store::StoreError;
use std::io;
use std::path::PathBuf;

/// Why a store cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The folder or an old file cannot be changed.
    #[error("{path}: {source}")]
    File {
        /// File or device that it is about.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others may read the store.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The data file cannot be made or opened.
    #[error("{path}: {source}")]
    Disk {
        /// File or device that it is about.
        path: PathBuf,
        /// What is wrong.
        source: DiskError,
    },
    /// The metadata cannot be opened.
    #[error("{path}: {source}")]
    Meta {
        /// File or device that it is about.
        path: PathBuf,
        /// What is wrong.
        source: KvError,
    },
    /// The metadata's journal is not there.
    #[error(
        "{path} is missing: it has the newest changes of {tree}. Put it back, or make the OSD anew and let it recover from the others"
    )]
    NoJournal {
        /// Where it should be.
        path: PathBuf,
        /// The metadata's other file.
        tree: PathBuf,
    },
    /// A device cannot become an OSD's.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A device is given for two things.
    #[error("{path} is given twice: data, log and metadata need a device each")]
    Twice {
        /// Which device or file.
        path: PathBuf,
    },
    /// A device cannot be divided.
    #[error("{path}: {source}")]
    Layout {
        /// Which device or file.
        path: PathBuf,
        /// What does not fit.
        source: LayoutError,
    },
    /// A device does not say whose it is.
    #[error(
        "{path}: {source}; does the link lead to the right device? `nacre store label DEVICE` says what one is"
    )]
    Label {
        /// Link to the device.
        path: PathBuf,
        /// What is wrong with its label.
        source: LabelError,
    },
    /// A link leads to the device of something else.
    #[error(
        "{link} leads to {device}, which is {found}; expected was {expected}. Have devices changed their names? `nacre store label DEVICE` \
         says what one is; let the link lead to the right one"
    )]
    Foreign {
        /// Link to the device.
        link: PathBuf,
        /// Where it leads.
        device: PathBuf,
        /// What the device is.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A device lacks what it should have.
    #[error(
        "{path}: its label has no region for the {kind:?}; the link to the device that has it is missing"
    )]
    NoRegion {
        /// Link to the device.
        path: PathBuf,
        /// What it has no region for.
        kind: RegionKind,
    },
    /// The folder does not say which OSD it is of.
    #[error("{path} holds no UUID")]
    NoIdentity {
        /// The file that should have one.
        path: PathBuf,
    },
    /// Somebody else has put something on a device of the OSD.
    #[error(
        "{link} leads to {label}, and {what} is on that device now: if it belongs to somebody else, take the link away; if nobody needs what \
         was put there, clear its signature (`wipefs`), and `nacre store repair` mends the label"
    )]
    TakenOver {
        /// Link in the OSD's folder.
        link: PathBuf,
        /// What is on it.
        what: &'static str,
        /// What its label says.
        label: String,
    },
    /// Something of no known kind is in the place of a label.
    #[error("{complaint}; if nobody else uses the device now, `nacre store repair` writes the label again")]
    Overwritten {
        /// Which copy of which label.
        complaint: String,
    },
    /// An encrypted store is opened without its key.
    #[error(
        "{path}: the store is encrypted, and needs its key: what `ceph config-key get dm-crypt/osd/UUID/luks` prints, with the OSD's uuid"
    )]
    NoKey {
        /// Link to the device, or the file with the wrapped key.
        path: PathBuf,
    },
    /// The folder of an encrypted store in files lacks what its data key is wrapped in.
    #[error(
        "{path} is missing: the store is encrypted, and nothing opens it without this file; put it back from where the folder was"
    )]
    KeysMissing {
        /// The file with the wrapped key, `block.keys`.
        path: PathBuf,
    },
    /// An encrypted store is opened with another key.
    #[error("{path}: the store is encrypted, and this key does not open it")]
    WrongKey {
        /// Link to the device, or the file with the wrapped key.
        path: PathBuf,
    },
    /// A key is given for a store that has none.
    #[error("{path}: the store is not encrypted, and no key is needed")]
    NeedlessKey {
        /// Folder of the OSD.
        path: PathBuf,
    },
    /// The wrapped key of an encrypted store cannot be read.
    #[error("{path}: {source}")]
    Keys {
        /// Link to the device, or the file with the wrapped key.
        path: PathBuf,
        /// What is wrong.
        source: KeyBlockError,
    },
    /// One device of a store is encrypted and another one is not.
    #[error("{link} leads to a device that is encrypted and the data device is not, or the other way around")]
    Mixed {
        /// Link to the device.
        link: PathBuf,
    },
    /// A device of a store says another number of partitions than the store has.
    #[error(
        "{link} leads to a device whose label says that the store was made for {partitions} shards, and it was made for {expected}"
    )]
    Partitions {
        /// Link to the device.
        link: PathBuf,
        /// What its label says.
        partitions: u32,
        /// What the label of the data device says, or the store itself.
        expected: u32,
    },
    /// Partitions that come to one shard cannot be given the same maps.
    #[error("{path}: the maps of one partition cannot be written to another: {source}")]
    Maps {
        /// Folder of the OSD.
        path: PathBuf,
        /// What the store says to what it was to write.
        source: StoreError,
    },
    /// Partitions that come to one shard do not have the maps between theirs.
    #[error("{path}: {source}")]
    MapsApart {
        /// Folder of the OSD.
        path: PathBuf,
        /// How far they are apart.
        source: MapsApart,
    },
    /// What the files hold is no store, or damaged.
    #[error("{path}: {source}")]
    Block {
        /// Folder of the OSD.
        path: PathBuf,
        /// What is wrong.
        source: BlockError,
    },
}

impl StorageError {
    /// Whether another process has the store open.
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        matches!(
            self,
            Self::Disk { source: DiskError::InUse { .. }, .. }
                | Self::Meta { source: KvError::InUse, .. }
                | Self::Refused(Refusal::Open(DiskError::InUse { .. }))
        )
    }
}
