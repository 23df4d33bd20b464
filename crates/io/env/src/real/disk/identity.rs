//! Which disks lie below a store, as sysfs tells: by the names of the kernel, and by what is printed on them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Layers of device mappers and RAID that are looked through.
const LAYERS_MAX: usize = 8;

/// The disks below a block device, by its folder in sysfs: their names, with vendor, model and serial number joined by `_`, which is how Ceph
/// names devices (`device_ids` of `osd metadata`); `None` for a disk without a serial number, which nothing tells from others of its
/// model. Empty where sysfs does not know the device: network and layered file systems.
pub(super) fn disks_below(device: &Path) -> BTreeMap<String, Option<String>> {
    named(&disk_folders(device))
}

/// What is printed on each of these disks, by their folders in sysfs.
pub(super) fn named(disks: &BTreeMap<String, PathBuf>) -> BTreeMap<String, Option<String>> {
    disks.iter().map(|(name, folder)| (name.clone(), printed_on(folder))).collect()
}

/// The same disks, with their folders in sysfs.
pub(super) fn disk_folders(device: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    if let Ok(folder) = fs::canonicalize(device) {
        look_below(&folder, LAYERS_MAX, &mut found);
    }
    found
}

fn look_below(folder: &Path, layers: usize, found: &mut BTreeMap<String, PathBuf>) {
    let disk = match folder.parent() {
        Some(whole) if folder.join("partition").exists() => whole,
        _ => folder,
    };
    let slaves = fs::read_dir(folder.join("slaves")).into_iter().flatten().filter_map(Result::ok);
    let slaves: Vec<PathBuf> = slaves.filter_map(|slave| fs::canonicalize(slave.path()).ok()).collect();
    if !slaves.is_empty() && layers > 0 {
        slaves.iter().for_each(|slave| look_below(slave, layers - 1, found));
    } else if let Some(name) = disk.file_name().and_then(|name| name.to_str()) {
        found.insert(name.to_owned(), disk.to_owned());
    }
}

/// What is printed on the disk: vendor, model and serial number, as one word.
fn printed_on(disk: &Path) -> Option<String> {
    let text = |name: &str| {
        let text = fs::read_to_string(disk.join(name)).ok()?;
        let words: Vec<&str> = text.split_whitespace().collect();
        (!words.is_empty()).then(|| words.join("_"))
    };
    let serial = text("device/serial").or_else(|| text("serial")).or_else(|| scsi_serial(disk))?;
    let model = text("device/model");
    // Of a virtual disk without a model, the vendor is the number of its bus.
    let vendor = model.as_ref().and_then(|_| text("device/vendor")).filter(|vendor| vendor != "ATA");
    let words: Vec<String> = [vendor, model, Some(serial)].into_iter().flatten().collect();
    Some(words.join("_").replace([',', '='], "_"))
}

/// The serial number of a SCSI or SATA disk: its page of vital product data 0x80 (SPC-4), which the kernel keeps as the disk gave it: the kind
/// of device, the page's number, two bytes of length, text.
fn scsi_serial(disk: &Path) -> Option<String> {
    const PAGE: u8 = 0x80;
    let page = fs::read(disk.join("device/vpd_pg80")).ok()?;
    let [_, PAGE, high, low, rest @ ..] = &page[..] else { return None };
    let text = rest.get(..usize::from(*high) << 8 | usize::from(*low))?;
    let words: Vec<&str> = std::str::from_utf8(text).ok()?.split_whitespace().collect();
    let serial = words.join("_");
    (!serial.is_empty() && serial.bytes().all(|byte| byte.is_ascii_graphic())).then_some(serial)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn disks_are_found_below_partitions_and_mappers() {
        let root = tempfile::tempdir().expect("a folder");
        let (devices, links) = (root.path().join("devices"), root.path().join("dev/block"));
        fs::create_dir_all(&links).expect("made");
        let device = |number: &str, folder: &str| {
            fs::create_dir_all(devices.join(folder)).expect("made");
            symlink(devices.join(folder), links.join(number)).expect("linked");
        };
        put(&devices.join("sda/device/vendor"), "ATA     \n");
        put(&devices.join("sda/device/model"), "Fast SSD 2T\n");
        put(&devices.join("sda/device/serial"), " S1,2 \n");
        put(&devices.join("sda/sda1/partition"), "1\n");
        put(&devices.join("vda/serial"), "abc\n");
        put(&devices.join("vda/device/vendor"), "0x1af4\n");
        put(&devices.join("vdb/device/vendor"), "0x1af4\n");
        for (number, folder) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("254:0", "vda"), ("254:16", "vdb")] {
            device(number, folder);
        }
        device("253:0", "dm-0");
        fs::create_dir(devices.join("dm-0/slaves")).expect("made");
        symlink(devices.join("sda/sda1"), devices.join("dm-0/slaves/sda1")).expect("linked");
        symlink(devices.join("vdb"), devices.join("dm-0/slaves/vdb")).expect("linked");

        let below = |numbers: &str| {
            let disks = disks_below(&links.join(numbers)).into_iter();
            disks.map(|(name, id)| format!("{name}={}", id.unwrap_or_default())).collect::<Vec<_>>()
        };
        assert_eq!(below("8:0"), ["sda=Fast_SSD_2T_S1_2"]);
        assert_eq!(below("8:1"), ["sda=Fast_SSD_2T_S1_2"]);
        assert_eq!(below("254:0"), ["vda=abc"]);
        assert_eq!(below("254:16"), ["vdb="]);
        assert_eq!(below("253:0"), ["sda=Fast_SSD_2T_S1_2", "vdb="]);
        assert_eq!(below("9:9"), [""; 0]);
    }

    #[test]
    fn a_scsi_disk_has_its_serial_number_in_a_page_of_bytes() {
        let root = tempfile::tempdir().expect("a folder");
        put(&root.path().join("sdb/device/vendor"), "KIOXIA  \n");
        put(&root.path().join("sdb/device/model"), "KPM6XRUG3T84    \n");
        let disk = root.path().join("sdb");
        for (page, serial) in [
            (&b"\0\x80\0\x0e  X1A0A00ATS17"[..], Some("KIOXIA_KPM6XRUG3T84_X1A0A00ATS17")),
            (b"\0\x80\0\x04S1 2 and more", Some("KIOXIA_KPM6XRUG3T84_S1_2")),
            (b"\0\x80\0\x04    ", None),
            (b"\0\x80\xff\xffS1", None),
            (b"\0\x83\0\x02S1", None),
            (b"\0\x80\0\x02\xff\xfe", None),
            (b"\0\x80\0\x02\x1b\x07", None),
            (b"\0\x80", None),
        ] {
            fs::write(disk.join("device/vpd_pg80"), page).expect("written");
            assert_eq!(printed_on(&disk).as_deref(), serial, "{page:?}");
        }
    }
}
