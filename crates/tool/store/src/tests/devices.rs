//! The commands on a store on raw devices, for which files stand here: what needs block devices is among the interop tests.

use super::content::{Folder, fill, same};
use super::{kinds, repair_options};
use crate::{check, compact, repair::repair, trim};
use nacre_osd::storage::{self, Devices};
use nacre_osd::{Owner, StorageError};
use nacre_types::{OsdId, Uuid};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

pub(super) const DATA_BYTES: u64 = 1 << 30;
pub(super) const LOG_BYTES: u64 = 64 << 20;
pub(super) const META_BYTES: u64 = 128 << 20;

pub(super) fn device(folder: &Folder, name: &str, bytes: u64) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("room for a sparse file");
    path
}

pub(super) fn owner(osd: OsdId, byte: u8) -> Owner {
    Owner { cluster: Uuid::NIL, osd, osd_uuid: Uuid([byte; 16]), store: Uuid([byte + 1; 16]) }
}

/// Makes an OSD's store in `folder`.
pub(super) fn make(folder: &Folder, owner: Owner, devices: &Devices) -> Result<u64, StorageError> {
    let bytes = storage::mkfs_on_devices(folder.path(), owner, devices, None)?;
    std::fs::write(folder.path().join("fsid"), format!("{}\n", owner.osd_uuid)).expect("written");
    Ok(bytes)
}

pub(super) fn alone(data: PathBuf) -> Devices {
    Devices { data, log: None, metadata: None, metadata_bytes: None, force: false, partitions: 1 }
}

pub(super) fn spoil(path: &Path, offset: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("a device");
    file.write_all_at(&[0xa5; 64], offset).expect("within the device");
}

pub(super) fn is_sound(folder: &Folder) {
    let findings = check::examine(&folder.target(), true).expect("can be checked");
    assert!(findings.is_sound(), "{:?}", findings.problems);
}

pub(super) fn refusal<T>(outcome: Result<T, impl std::fmt::Display>) -> String {
    outcome.map(drop).map_err(|error| format!("{error:#}")).expect_err("refused")
}

/// What was allocated for a file stays allocated: the file system could give it to others, and the store would be full one day.
#[test]
fn a_file_that_becomes_a_store_keeps_what_it_has() {
    let (disks, folder) = (Folder::empty("disks"), Folder::empty("one"));
    let data = device(&disks, "one", DATA_BYTES);
    let allocated = || std::fs::metadata(&data).expect("a file").blocks() * 512;
    spoil(&data, DATA_BYTES / 2);
    let before = allocated();
    assert!((1..64 << 10).contains(&before), "{before}");
    let place = std::fs::OpenOptions::new().write(true).open(&data).expect("a file");
    place.write_all_at(&vec![0; 8 << 20], DATA_BYTES - (64 << 20)).expect("room");
    make(&folder, owner(1, 1), &alone(data.clone())).expect("a file with nothing but zeros at its ends");
    assert!(allocated() >= before + (8 << 20), "{} of {before}", allocated());
}

#[test]
fn all_commands_work_on_devices() {
    let (disks, one, three) = (Folder::empty("disks"), Folder::empty("one"), Folder::empty("three"));
    let data = device(&disks, "one", DATA_BYTES + 512);
    let bytes = make(&one, owner(1, 1), &alone(data.clone())).expect("an empty device");
    assert!(bytes > DATA_BYTES - (200 << 20) && bytes < DATA_BYTES - META_BYTES, "{bytes}");
    let devices = Devices {
        log: Some(device(&disks, "log", LOG_BYTES)),
        metadata: Some(device(&disks, "meta", META_BYTES)),
        ..alone(device(&disks, "data", DATA_BYTES))
    };
    make(&three, owner(3, 3), &devices).expect("empty devices");
    for folder in [&one, &three] {
        fill(folder);
        is_sound(folder);
        let compact::Compacted { before, after, .. } =
            compact::compact(&folder.target()).expect("can be compacted");
        assert!(after <= before && after > 0, "{before} {after}");
        is_sound(folder);
        assert_eq!(repair(&repair_options(folder.target(), false)).expect("sound"), ["nothing to repair"]);
        if let Err(error) = trim::trim(&folder.target()) {
            assert!(error.to_string().contains("does not discard"), "{error:#}");
        }
        is_sound(folder);
    }
    let (mut a, _) = one.target().look().expect("the store opens");
    let (mut b, _) = three.target().look().expect("the store opens");
    same(&mut a, &mut b);
    // As long as it is open, nobody else gets it.
    assert!(refusal(one.target().look()).contains("in use by a running OSD"));
    assert!(refusal(storage::wipe(&data, 1)).contains("in use by another process"));
    assert!(refusal(make(&one, owner(5, 5), &alone(data))).contains("in use by another process"));
}

fn read(path: &Path, offset: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    std::fs::File::open(path).and_then(|file| file.read_exact_at(&mut content, offset)).expect("a device");
    content
}

#[test]
fn the_journal_has_a_region_and_the_label_is_one_that_programs_of_before_refuse() {
    let (disks, one, three) = (Folder::empty("disks"), Folder::empty("one"), Folder::empty("three"));
    let data = device(&disks, "one", DATA_BYTES);
    // What was there before is no journal.
    for offset in [1 << 20, (1 << 20) + 4096] {
        spoil(&data, offset);
    }
    make(&one, owner(1, 1), &Devices { force: true, ..alone(data.clone()) }).expect("an empty device");
    let devices = Devices {
        log: Some(device(&disks, "log", LOG_BYTES)),
        metadata: Some(device(&disks, "meta", META_BYTES)),
        ..alone(device(&disks, "data", DATA_BYTES))
    };
    make(&three, owner(3, 3), &devices).expect("empty devices");
    let (Some(log), Some(metadata)) = (&devices.log, &devices.metadata) else { panic!("both were given") };
    for (path, bytes, version) in [
        (&data, DATA_BYTES, 2),
        (metadata, META_BYTES, 2),
        (log, LOG_BYTES, 1),
        (&devices.data, DATA_BYTES, 1),
    ] {
        let label = storage::label_of(path).expect("a label");
        let journal = label.region(nacre_device::RegionKind::Journal);
        assert_eq!(journal.map(|region| region.length), (version == 2).then_some(bytes / 32), "{label}");
        for offset in [8, bytes - 4096 + 8] {
            assert_eq!(read(path, offset, 4), [version, 0, 0, 0], "{label}");
        }
    }
    fill(&one);
    is_sound(&one);
    assert!(read(&data, 1 << 20, 8192).windows(8).any(|bytes| bytes == b"nacrekvJ"));
    let head = read(&data, 1 << 20, 8192);
    for offset in [(1 << 20) + 16, (1 << 20) + 4096 + 16] {
        spoil(&data, offset);
    }
    let findings = check::examine(&one.target(), true).expect("can be looked at");
    let said = findings.problems[0]["what"].as_str().expect("a text").to_owned();
    assert!(said.contains("both heads of the metadata's journal are damaged"), "{said}");
    let file = std::fs::OpenOptions::new().write(true).open(&data).expect("a device");
    file.write_all_at(&head, 1 << 20).expect("within the device");
    is_sound(&one);
    storage::wipe(&data, 1).expect("it is that OSD's");
    assert!(read(&data, 1 << 20, 8192).iter().all(|byte| *byte == 0));
}

#[test]
fn a_damaged_label_is_written_again_and_two_are_an_error() {
    let (disks, folder) = (Folder::empty("disks"), Folder::empty("labels"));
    let data = device(&disks, "data", DATA_BYTES);
    make(&folder, owner(1, 1), &alone(data.clone())).expect("an empty device");
    fill(&folder);
    let last = DATA_BYTES - 4096;
    for (offset, place) in [(0, "in the first block"), (last, "in the last block")] {
        spoil(&data, offset);
        let findings = check::examine(&folder.target(), true).expect("can be checked");
        assert_eq!(kinds(&findings), ["label"]);
        let done = repair(&repair_options(folder.target(), false)).expect("can be repaired");
        assert!(done[0].contains(place) && done[0].contains("wrote it again"), "{done:?}");
        is_sound(&folder);
    }
    spoil(&data, 100);
    spoil(&data, last + 100);
    let said = refusal(check::examine(&folder.target(), false).map(drop));
    assert!(said.contains("both copies of its label are damaged"), "{said}");
}

#[test]
fn links_that_were_swapped_and_stores_of_before_are_refused() {
    let (disks, a, b) = (Folder::empty("disks"), Folder::empty("a"), Folder::empty("b"));
    let of = |name: &str| Devices {
        log: Some(device(&disks, &format!("{name}-log"), LOG_BYTES)),
        ..alone(device(&disks, name, DATA_BYTES))
    };
    make(&a, owner(1, 1), &of("a")).expect("empty devices");
    make(&b, owner(2, 10), &of("b")).expect("empty devices");
    let link = |folder: &Folder, name: &str, target: &str| {
        let link = folder.path().join(name);
        std::fs::remove_file(&link).expect("a link");
        std::os::unix::fs::symlink(disks.path().join(target), link).expect("a link");
    };
    let said = |folder: &Folder| refusal(folder.target().look());
    link(&a, "block", "b");
    assert!(said(&a).contains("which is the data device of osd.2") && said(&a).contains("expected was"));
    link(&a, "block", "b-log");
    assert!(said(&a).contains("which is the log device of osd.2"), "{}", said(&a));
    link(&a, "block", "a");
    link(&a, "log", "b-log");
    assert!(said(&a).contains("expected was the log device of osd.1"), "{}", said(&a));
    std::fs::remove_file(a.path().join("log")).expect("a link");
    assert!(said(&a).contains("on a device of its own"), "{}", said(&a));
    // The same OSD, made anew: the log is of the store before.
    storage::wipe(&disks.path().join("a"), 1).expect("its device");
    let again = Owner { store: Uuid([77; 16]), ..owner(1, 1) };
    std::os::unix::fs::symlink(disks.path().join("a-log"), a.path().join("log")).expect("a link");
    let new_log =
        Devices { log: Some(device(&disks, "new-log", LOG_BYTES)), ..alone(disks.path().join("a")) };
    make(&a, again, &new_log).expect("given free");
    is_sound(&a);
    assert!(disks.path().join("a-log").exists(), "what a link led to stays");
    link(&a, "log", "a-log");
    assert!(said(&a).contains("which is the log device of osd.1"), "{}", said(&a));
}

#[test]
fn devices_that_belong_to_somebody_or_do_not_fit_are_refused() {
    let (disks, folder) = (Folder::empty("disks"), Folder::empty("refused"));
    let data = device(&disks, "data", DATA_BYTES);
    let try_make = |devices: &Devices| refusal(make(&folder, owner(7, 7), devices));
    let twice = Devices { log: Some(data.clone()), ..alone(data.clone()) };
    assert!(try_make(&twice).contains("given twice"));
    let small = device(&disks, "small", DATA_BYTES - 4096);
    assert!(try_make(&alone(small.clone())).contains("needs 1073741824"));
    let small_log = Devices { log: Some(device(&disks, "small-log", 1 << 20)), ..alone(data.clone()) };
    assert!(try_make(&small_log).contains("small-log: it has 1048576 bytes, and needs 67108864"));
    let too_much = Devices { metadata_bytes: Some(DATA_BYTES), ..alone(data.clone()) };
    assert!(try_make(&too_much).contains("--meta-size of 1073741824"));
    assert!(!storage::is_made(folder.path()));
    make(&folder, owner(1, 1), &alone(data.clone())).expect("nothing was left of the attempts");
    for force in [false, true] {
        let said = try_make(&Devices { force, ..alone(data.clone()) });
        assert!(said.contains("is the data device of osd.1") && said.contains("nacre store wipe"), "{said}");
    }
    assert!(refusal(storage::wipe(&data, 2)).contains("expected was a device of osd.2"));
    assert!(refusal(storage::wipe(&small, 2)).contains("no label of an OSD"));
    assert_eq!(storage::label_of(&data).expect("a label").owner, owner(1, 1));
    storage::wipe(&data, 1).expect("its device");
    assert!(refusal(storage::label_of(&data)).contains("no label of an OSD"));
    make(&folder, owner(7, 7), &alone(data)).expect("free");
    is_sound(&folder);
}
