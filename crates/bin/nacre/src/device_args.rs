//! Options that say on which devices a new store is, its log and its metadata.

use clap::Args;
use nacre_store_tool::parse_size;
use std::path::PathBuf;

/// What of a store is on devices of its own.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeviceArgs {
    /// Folder for the write-ahead logs of new stores, when they are to be on a device of their own.
    #[arg(long)]
    wal_dir: Option<PathBuf>,
    /// Folder for the metadata of new stores, when it is to be on a device of its own.
    #[arg(long)]
    meta_dir: Option<PathBuf>,
}

impl DeviceArgs {
    /// Whether a folder is given.
    pub(crate) fn is_given(&self) -> bool {
        self.wal_dir.is_some() || self.meta_dir.is_some()
    }

    pub(crate) fn device_dirs(&self) -> nacre_osd::DeviceDirs {
        nacre_osd::DeviceDirs { log: self.wal_dir.clone(), meta: self.meta_dir.clone() }
    }
}

/// The devices of a new OSD.
#[derive(Debug, Args)]
pub(crate) struct RawDeviceArgs {
    /// With --mkfs: the device that the store is on, all of it; a disk, partition or volume, or a file that is there already. It must be
    /// empty.
    #[arg(long, requires = "mkfs", conflicts_with_all = ["osd_size", "wal_dir", "meta_dir"])]
    device: Option<PathBuf>,
    /// With --device: another device for the write-ahead log.
    #[arg(long, requires = "device")]
    wal_device: Option<PathBuf>,
    /// With --device: another device for the metadata.
    #[arg(long, requires = "device")]
    meta_device: Option<PathBuf>,
    /// With --device: bytes of it that the metadata get, or with K, M, G, T; by default 2 %, at least 1G on all but small devices.
    #[arg(long, requires = "device", conflicts_with = "meta_device", value_parser = parse_size)]
    meta_size: Option<u64>,
    /// With --device: takes a device with content of no known kind. One with a file system, a partition table, a volume or an OSD on it is
    /// never taken.
    #[arg(long, requires = "device")]
    force: bool,
}

impl RawDeviceArgs {
    /// The devices, if the store is to be on some, divided between so many partitions.
    pub(crate) fn devices(&self, partitions: u32) -> Option<nacre_osd::Devices> {
        let data = self.device.clone()?;
        let (log, metadata) = (self.wal_device.clone(), self.meta_device.clone());
        let (metadata_bytes, force) = (self.meta_size, self.force);
        Some(nacre_osd::Devices { data, log, metadata, metadata_bytes, force, partitions })
    }
}
