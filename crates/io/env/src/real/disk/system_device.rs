//! [`SystemDevice`]: what sysfs tells of the device below a store.

use super::identity::{disk_folders, named};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What the system tells of a block device, or of the one that a file is on. All of it is unknown where sysfs does not have the device:
/// network and layered file systems.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SystemDevice {
    /// As of [`super::RealDisk::disks`].
    pub disks: BTreeMap<String, Option<String>>,
    /// The models of these disks, each once. Virtual ones mostly have none.
    pub models: BTreeSet<String>,
    /// The firmware of these disks, each version once.
    pub firmware: BTreeSet<String>,
    /// As of [`super::RealDisk::volatile_cache`].
    pub volatile_cache: Option<bool>,
    /// As of [`super::RealDisk::rotational`].
    pub rotational: Option<bool>,
}

impl SystemDevice {
    /// Looks at what is at `path`, or where a link there leads. Sysfs is in the folder `sys` of `root`, which is `/` but in tests.
    #[must_use]
    pub fn at(root: &Path, path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(metadata) => Self::in_sysfs(&sysfs_folder(root, device_number(&metadata))),
            Err(_gone) => Self::default(),
        }
    }

    fn in_sysfs(folder: &Path) -> Self {
        let all = disk_folders(folder);
        let of_all = |names: &[&str]| {
            let first = |disk: &PathBuf| names.iter().find_map(|name| attribute(disk, name));
            all.values().filter_map(first).collect::<BTreeSet<String>>()
        };
        Self {
            disks: named(&all),
            models: of_all(&["model"]),
            // Of NVMe, and of SCSI and SATA.
            firmware: of_all(&["firmware_rev", "rev"]),
            volatile_cache: volatile_cache(folder),
            rotational: rotational(folder),
        }
    }
}

/// An attribute of a disk's hardware, with one space between its words.
fn attribute(disk: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(disk.join("device").join(name)).ok()?;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!words.is_empty() && !words.contains(char::is_control)).then_some(words)
}

/// The number of a block device, or of the one that a file is on.
pub(super) fn device_number(metadata: &Metadata) -> u64 {
    if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() }
}

/// A link to the folder of a block device.
pub(super) fn sysfs_folder(root: &Path, device: u64) -> PathBuf {
    root.join(format!("sys/dev/block/{}:{}", libc::major(device), libc::minor(device)))
}

/// As the kernel believes it, which is what decides whether it sends flushes.
pub(super) fn volatile_cache(folder: &Path) -> Option<bool> {
    match queue_attribute(folder, "write_cache")?.as_str() {
        "write back" => Some(true),
        "write through" => Some(false),
        _ => None,
    }
}

/// Whether the device turns; `None` where the system does not know.
pub(super) fn rotational(folder: &Path) -> Option<bool> {
    queue_attribute(folder, "rotational").map(|text| text == "1")
}

/// Of a device's queue; a partition's is its disk's.
pub(super) fn queue_attribute(folder: &Path, name: &str) -> Option<String> {
    let paths = [folder.join("queue").join(name), folder.join("../queue").join(name)];
    let text = paths.iter().find_map(|path| fs::read_to_string(path).ok())?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A file, and the sysfs of a machine with the device that it is said to be on.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().expect("a folder"));
            fs::write(machine.file(), "").expect("written");
            machine
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("block")
        }

        fn devices(&self) -> PathBuf {
            self.0.path().join("sys/devices")
        }

        fn put(&self, device: &str, texts: &[(&str, &str)]) {
            for (name, text) in texts {
                let path = self.devices().join(device).join(name);
                fs::create_dir_all(path.parent().expect("a folder")).expect("made");
                fs::write(path, text).expect("written");
            }
        }

        /// What is told of the file when it is on this device.
        fn found_on(&self, device: &str) -> SystemDevice {
            let number = fs::metadata(self.file()).expect("it is there").dev();
            let link = sysfs_folder(self.0.path(), number);
            fs::create_dir_all(link.parent().expect("a folder")).expect("made");
            // None the first time.
            let _gone = fs::remove_file(&link);
            symlink(self.devices().join(device), &link).expect("linked");
            SystemDevice::at(self.0.path(), &self.file())
        }
    }

    fn words<const N: usize>(words: [&str; N]) -> BTreeSet<String> {
        words.map(str::to_owned).into()
    }

    #[test]
    fn a_device_is_known_by_what_sysfs_tells() {
        let machine = Machine::new();
        machine.put(
            "nvme0n1",
            &[
                ("device/model", "FAST  4000 \n"),
                ("device/firmware_rev", "1.2 \n"),
                ("device/serial", "N1\n"),
                ("queue/rotational", "0\n"),
                ("queue/write_cache", "write through\n"),
                ("nvme0n1p1/partition", "1\n"),
            ],
        );
        machine.put(
            "sda",
            &[
                ("device/model", "SPINDLE 16T\n"),
                ("device/rev", "SN04\n"),
                ("queue/rotational", "1\n"),
                ("queue/write_cache", "write back\n"),
            ],
        );
        let flash = machine.found_on("nvme0n1/nvme0n1p1");
        assert_eq!((&flash.models, &flash.firmware), (&words(["FAST 4000"]), &words(["1.2"])));
        assert_eq!((flash.volatile_cache, flash.rotational), (Some(false), Some(false)));
        assert_eq!(flash.disks, BTreeMap::from([("nvme0n1".to_owned(), Some("FAST_4000_N1".to_owned()))]));
        let spindle = machine.found_on("sda");
        assert_eq!((&spindle.models, &spindle.firmware), (&words(["SPINDLE 16T"]), &words(["SN04"])));
        assert_eq!((spindle.volatile_cache, spindle.rotational), (Some(true), Some(true)));
        assert_eq!(spindle.disks, BTreeMap::from([("sda".to_owned(), None)]));
    }

    #[test]
    fn a_mapping_has_the_models_of_all_disks_below_and_its_own_queue() {
        let machine = Machine::new();
        for (name, firmware) in [("nvme0n1", "1"), ("nvme1n1", "2"), ("nvme2n1", "2")] {
            machine.put(name, &[("device/model", "FAST\n"), ("device/firmware_rev", firmware)]);
            let slaves = machine.devices().join("md0/slaves");
            fs::create_dir_all(&slaves).expect("made");
            symlink(machine.devices().join(name), slaves.join(name)).expect("linked");
        }
        machine.put("md0", &[("queue/rotational", "0\n"), ("queue/write_cache", "write back\n")]);
        let found = machine.found_on("md0");
        assert_eq!((&found.models, &found.firmware), (&words(["FAST"]), &words(["1", "2"])));
        assert_eq!((found.volatile_cache, found.rotational, found.disks.len()), (Some(true), Some(false), 3));
    }

    #[test]
    fn what_sysfs_does_not_tell_is_unknown() {
        let machine = Machine::new();
        assert_eq!(SystemDevice::at(machine.0.path(), &machine.file()), SystemDevice::default());
        assert_eq!(SystemDevice::at(machine.0.path(), Path::new("/nonsense")), SystemDevice::default());
        machine.put("vda", &[("device/vendor", "0x1af4\n"), ("device/model", " \n")]);
        machine.put("vda", &[("device/rev", "\u{7}\n"), ("queue/write_cache", "none of both\n")]);
        let found = machine.found_on("vda");
        let disks = BTreeMap::from([("vda".to_owned(), None)]);
        assert_eq!(found, SystemDevice { disks, ..SystemDevice::default() });
    }
}
