//! What somebody keeps on a device, by its first and last bytes. `blkid` knows more kinds, where it is installed (see `claim`); this does
//! not depend on it.
//!
//! Source of the magic numbers: the formats' own headers, as libblkid of util-linux lists them (`libblkid/src/superblocks`).

use crate::label::{Found, Label, LabelCopy, LabelError, read_label};
use nacre_env::File;
use std::io;

/// What is looked at from the beginning on: up to the last of the magic numbers.
const HEAD_BYTES: u64 = 260 << 10;
/// And before the end.
const TAIL_BYTES: u64 = 128 << 10;
/// Of these, what must be zeros on a device that nobody uses.
const BLANK_BYTES: usize = 64 << 10;

/// A kind of content: its name, where its magic number is, and that.
type Magic = (&'static str, usize, &'static [u8]);

const MD: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
const BCACHEFS: &[u8] =
    &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];
const BCACHE: &[u8] =
    &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
const ZFS: [[u8; 8]; 2] = [[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c]];
/// Where ZFS keeps its uberblocks in its first label.
const ZFS_AT: std::ops::Range<usize> = 128 << 10..256 << 10;

/// From the beginning of the device. A boot sector comes last: file systems have one, too.
const AT_START: [Magic; 41] = [
    ("a store of Nacre without a label", 0, b"NacreBLK"),
    ("an OSD of Ceph (BlueStore)", 0, b"bluestore block device"),
    ("LVM", 0, b"LABELONE"),
    ("LVM", 512, b"LABELONE"),
    ("LVM", 1024, b"LABELONE"),
    ("LVM", 1536, b"LABELONE"),
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("LUKS", 0x4000, b"SKUL\xba\xbe"),
    ("a member of an MD array", 0, MD),
    ("a member of an MD array", 4096, MD),
    ("bcache", 4096 + 24, BCACHE),
    ("a bcachefs file system", 4096 + 24, BCACHEFS),
    ("a Stratis device", 512, b"!Stra0tis\x86\xff\x02^Arh"),
    ("a VDO volume", 0, b"dmvdo001"),
    ("a BitLocker volume", 3, b"-FVE-FS-"),
    ("an HFS+ file system", 1024, b"H+\x00\x04"),
    ("an APFS container", 32, b"NXSB"),
    ("a NILFS2 file system", 1030, b"\x34\x34"),
    ("an EROFS file system", 1024, b"\xe2\xe1\xf5\xe0"),
    ("a qcow2 image", 0, b"QFI\xfb"),
    ("a redb database", 0, b"redb"),
    ("an ext2, ext3 or ext4 file system", 1080, b"\x53\xef"),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 54, b"FAT1"),
    ("a FAT file system", 82, b"FAT32"),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("a UDF file system", 0x8001, b"BEA01"),
    ("a JFS file system", 0x8000, b"JFS1"),
    ("a ReiserFS file system", 0x1_0034, b"ReIsEr"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("swap space", 4086, b"SWAP-SPACE"),
    ("swap space", 0xfff6, b"SWAPSPACE2"),
    ("a hibernated system", 4086, b"S1SUSPEND"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("a partition table or boot sector", 510, b"\x55\xaa"),
];

/// Whose a device is, by what stands on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Nobody's: zeros where anybody would have written something.
    Nothing,
    /// An OSD's of ours.
    Labelled(Box<Label>),
    /// An OSD's of ours whose label is damaged: why.
    BadLabel(String),
    /// Something that is known: what, and where its magic number is.
    Known(&'static str, u64),
    /// Something: the first byte that is not zero.
    Unknown(u64),
}

/// Where regions begin: what is of ours there has lost its label.
const REGIONS_AT: u64 = 1 << 20;
/// How all that is of ours begins.
const OURS: &[u8] = b"Nacre";

/// Something of somebody else on a device of ours: what is known at the beginning, where an OSD writes nothing but its label, or a partition
/// table's copy in the place of the last label. `None` when there is nothing.
///
/// # Errors
/// What the device says.
pub fn foreign(device: &dyn File, device_bytes: u64, found: &Found) -> io::Result<Option<&'static str>> {
    let block = 4096.min(device_bytes);
    let mut head = read(device, 0, HEAD_BYTES.min(device_bytes))?;
    let mut end = read(device, device_bytes - block, block)?;
    let damaged = found.damaged.as_ref().map(|(copy, _)| *copy);
    if damaged != Some(LabelCopy::First) {
        head.iter_mut().take(4096).for_each(|byte| *byte = 0);
    }
    if damaged != Some(LabelCopy::Last) {
        end.fill(0);
    }
    Ok(known(&head, &end, device_bytes).map(|(what, _)| what))
}

/// Looks at a device of `device_bytes`, which are whole blocks.
///
/// # Errors
/// What the device says.
pub fn content(device: &dyn File, device_bytes: u64) -> io::Result<Content> {
    match read_label(device, device_bytes) {
        Ok(found) => return Ok(Content::Labelled(Box::new(found.label))),
        Err(LabelError::Absent) => (),
        Err(error) => return Ok(Content::BadLabel(error.to_string())),
    }
    let head = read(device, 0, HEAD_BYTES.min(device_bytes))?;
    let tail_bytes = TAIL_BYTES.min(device_bytes);
    let tail_at = device_bytes - tail_bytes;
    let tail = read(device, tail_at, tail_bytes)?;
    if let Some((what, at)) = known(&head, &tail, device_bytes) {
        return Ok(Content::Known(what, at));
    }
    let is_used = |byte: &u8| *byte != 0;
    let in_head = head.iter().take(BLANK_BYTES).position(is_used).map(|at| at as u64);
    let skip = tail.len().saturating_sub(BLANK_BYTES);
    let in_tail = || tail.iter().skip(skip).position(is_used).map(|at| tail_at + (skip + at) as u64);
    let is_ours = device_bytes > 2 * REGIONS_AT && read(device, REGIONS_AT, 8)?.starts_with(OURS);
    let ours = is_ours.then_some(REGIONS_AT);
    Ok(in_head.or_else(in_tail).or(ours).map_or(Content::Nothing, Content::Unknown))
}

fn read(device: &dyn File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    device.read(offset, &mut bytes)?;
    Ok(bytes)
}

fn has(bytes: &[u8], at: usize, magic: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(magic))
}

fn known(head: &[u8], tail: &[u8], device_bytes: u64) -> Option<(&'static str, u64)> {
    let tail_at = device_bytes - tail.len() as u64;
    let at_end = |name, at: u64, magic: &[u8]| {
        let within = usize::try_from(at.checked_sub(tail_at)?).ok()?;
        has(tail, within, magic).then_some((name, at))
    };
    let at_start = AT_START.iter().find(|(_, at, magic)| has(head, *at, magic));
    let zfs = ZFS_AT.step_by(1024).find(|at| ZFS.iter().any(|magic| has(head, *at, magic)));
    let md = ["a member of an MD array", "a GPT partition table"];
    at_start
        .map(|(name, at, _)| (*name, *at as u64))
        .or_else(|| zfs.map(|at| ("a ZFS pool", at as u64)))
        // The arrays' older formats have their superblock at the end, and partition tables a copy.
        .or_else(|| at_end(md[0], (device_bytes / 512).checked_sub(16)? / 8 * 8 * 512, MD))
        .or_else(|| at_end(md[0], (device_bytes >> 16 << 16).checked_sub(64 << 10)?, MD))
        .or_else(|| at_end(md[1], device_bytes.checked_sub(512)?, b"EFI PART"))
        .or_else(|| at_end(md[1], device_bytes.checked_sub(4096)?, b"EFI PART"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::{Owner, Region, RegionKind, Role, write_label};
    use nacre_simdisk::SimFile;
    use nacre_types::Uuid;

    const DEVICE_BYTES: u64 = 4 << 20;

    fn device() -> impl File {
        let file = SimFile::new(1).open();
        file.set_length(DEVICE_BYTES).expect("room");
        file
    }

    fn label() -> Label {
        let id = Uuid([2; 16]);
        let owner = Owner { cluster: id, osd: 3, osd_uuid: id, store: id };
        let regions = vec![Region { kind: RegionKind::Log, offset: 4096, length: 8192 }];
        let (role, device_bytes) = (Role::Log, DEVICE_BYTES);
        Label { owner, role, device_bytes, regions, is_encrypted: false, partitions: 1 }
    }

    fn found(file: &dyn File) -> Content {
        content(file, DEVICE_BYTES).expect("a healthy device")
    }

    #[test]
    fn every_signature_is_found_where_it_is() {
        assert_eq!(found(&device()), Content::Nothing);
        for (name, at, magic) in AT_START {
            let file = device();
            file.write(at as u64, magic).expect("there");
            assert_eq!(found(&file), Content::Known(name, at as u64));
        }
        for (name, at, magic) in [
            ("a ZFS pool", (128 << 10) + 5 * 1024, &ZFS[1][..]),
            ("a member of an MD array", DEVICE_BYTES - 8192, MD),
            ("a member of an MD array", DEVICE_BYTES - 65536, MD),
            ("a GPT partition table", DEVICE_BYTES - 512, b"EFI PART"),
            ("a GPT partition table", DEVICE_BYTES - 4096, b"EFI PART"),
        ] {
            let file = device();
            file.write(at, magic).expect("there");
            assert_eq!(found(&file), Content::Known(name, at));
        }
    }

    #[test]
    fn what_is_unknown_is_not_taken_for_nothing() {
        for at in [0, 7, 65535, DEVICE_BYTES - 65536, DEVICE_BYTES - 1] {
            let file = device();
            file.write(at, &[9]).expect("there");
            assert_eq!(found(&file), Content::Unknown(at));
        }
        let file = device();
        file.write(70_000, &[9]).expect("there");
        assert_eq!(found(&file), Content::Nothing, "what a wiped file system has left");
        let small = SimFile::new(2).open();
        small.set_length(4096).expect("room");
        assert_eq!(content(&small, 4096).expect("a healthy device"), Content::Nothing);
    }

    /// As when a device has grown and its first block is gone.
    #[test]
    fn a_store_without_its_label_is_not_nothing() {
        let file = device();
        file.write(REGIONS_AT, b"NacreREG").expect("there");
        assert_eq!(found(&file), Content::Unknown(REGIONS_AT));
    }

    #[test]
    fn what_somebody_puts_on_a_device_of_ours_is_found() {
        let file = device();
        let label = label();
        let put = |at: u64, bytes: &[u8]| {
            write_label(&file, &label).expect("a healthy device");
            file.write(at, bytes).expect("there");
            let label = read_label(&file, DEVICE_BYTES).expect("one copy is whole");
            let what = foreign(&file, DEVICE_BYTES, &label).expect("a healthy device");
            file.write(at, &vec![0; bytes.len()]).expect("there");
            (what, label.is_overwritten)
        };
        let mut boot = [0; 512];
        boot[510..].copy_from_slice(b"\x55\xaa");
        assert_eq!(put(0, &boot), (Some("a partition table or boot sector"), true));
        assert_eq!(put(4096, MD), (Some("a member of an MD array"), false));
        let mut table = [0; 4096];
        table[3584..].get_mut(..8).expect("room").copy_from_slice(b"EFI PART");
        assert_eq!(put(DEVICE_BYTES - 4096, &table), (Some("a GPT partition table"), true));
        assert_eq!(put(0, &[0; 4096]), (None, false), "zeros are nobody's");
        assert_eq!(put(0, &[7; 4096]), (None, true), "of no known kind");
    }

    #[test]
    fn our_own_label_is_found_whole_or_damaged() {
        let file = device();
        let label = label();
        write_label(&file, &label).expect("a healthy device");
        assert_eq!(found(&file), Content::Labelled(Box::new(label)));
        file.write(100, &[1]).expect("there");
        assert!(matches!(found(&file), Content::Labelled(_)), "the other copy");
        file.write(DEVICE_BYTES - 100, &[1]).expect("there");
        assert!(matches!(found(&file), Content::BadLabel(_)));
    }
}
