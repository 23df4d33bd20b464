//! [`Parts`]: the devices or files of a store, held and not opened as a store yet.

use super::StorageError;
use super::encryption::StoreKeys;
use super::metadata::MetadataPlace;
use nacre_crypt::CryptDisk;
use nacre_device::{Found, Label};
use nacre_env::disk::{Disk, Window};
use nacre_env::real::{DeviceView, RealDisk};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A device of a store, or the part of one that is the store's, decrypted.
pub(super) type PartDisk = CryptDisk<Window<RealDisk>>;

/// What a partition of a store is on: holds of its own on the devices that all share, and its metadata.
pub(super) struct PartitionParts {
    pub(super) data: PartDisk,
    /// The log's, when it has one of its own.
    pub(super) log: Option<PartDisk>,
    pub(super) metadata: MetadataPlace,
}

/// What a store is on.
pub(super) struct Parts {
    /// Of its first partition; of the only one, where it is not divided.
    pub(super) first: PartitionParts,
    /// Of the others, in order.
    pub(super) others: Vec<PartitionParts>,
    /// The labels of its devices; none of a store in files.
    pub(super) labels: Vec<DeviceLabel>,
    /// The metadata's disks, where they have a device of their own.
    pub(super) metadata_disks: BTreeMap<String, Option<String>>,
    /// Of an encrypted store.
    pub(super) keys: Option<StoreKeys>,
}

/// The device below a part.
pub(super) const fn real(disk: &PartDisk) -> &RealDisk {
    disk.disk().disk()
}

impl Parts {
    pub(super) fn partitions(&self) -> usize {
        1 + self.others.len()
    }
}

/// The label of a device that belongs to a store.
#[derive(Debug)]
pub struct DeviceLabel {
    /// The device, by the link in the OSD's folder.
    pub(super) link: PathBuf,
    pub(super) found: Found,
    pub(super) view: Arc<DeviceView>,
}

impl DeviceLabel {
    /// What it says.
    #[must_use]
    pub const fn label(&self) -> &Label {
        &self.found.label
    }

    /// What the link leads to now.
    #[must_use]
    pub fn device(&self) -> PathBuf {
        self.link.canonicalize().unwrap_or_else(|_| self.link.clone())
    }

    /// Which copy of the label is not whole, in a sentence.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let (copy, why) = self.found.damaged.as_ref()?;
        Some(format!("{}: the copy of the label {copy} is damaged ({why})", self.device().display()))
    }

    /// Something that is not ours is in the place of a copy.
    pub(super) const fn is_overwritten(&self) -> bool {
        self.found.is_overwritten
    }

    /// Writes the copy that is not whole again, if one is not.
    ///
    /// # Errors
    /// When the device fails.
    pub fn repair(&mut self) -> Result<(), StorageError> {
        nacre_device::repair_label(self.view.as_ref(), &self.found)
            .map_err(|source| StorageError::File { path: self.link.clone(), source })?;
        (self.found.damaged, self.found.is_overwritten) = (None, false);
        Ok(())
    }
}

/// The names of the disks below, with what is printed on them.
pub(super) fn disks_of(parts: &Parts) -> BTreeMap<String, Option<String>> {
    let of_log = parts.first.log.iter().flat_map(|log| real(log).disks());
    let all = real(&parts.first.data).disks().iter().chain(of_log).chain(&parts.metadata_disks);
    all.map(|(name, id)| (name.clone(), id.clone())).collect()
}

/// Bytes of a whole device or file.
pub(super) fn device_bytes(disk: &PartDisk) -> u64 {
    real(disk).info().size_bytes
}
