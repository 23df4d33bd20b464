//! The commands on encrypted stores: all work with the key, none without, and nothing of what is stored can be read on the devices.

use super::content::{Folder, OBJECTS, PG, fill_at, same};
use super::devices::{DATA_BYTES, LOG_BYTES, META_BYTES, alone, device, refusal};
use super::{kinds, repair_options};
use crate::target::{Target, each_object};
use crate::{check, compact, repair::repair, trim};
use nacre_osd::storage::{self, DeviceDirs, Devices};
use nacre_osd::{Owner, WrappingKey};
use nacre_types::Uuid;
use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub(super) const KEY: &str = "c2VzYW1lIHNlc2FtZSBzZXNhbWUgc2VzYW1l";
const OTHER_KEY: &str = "bm90IHNlc2FtZSBub3Qgc2VzYW1lIG5vdCBz";
const FILE_BYTES: u64 = 4 << 20;
const OWNER: Owner = Owner { cluster: Uuid::NIL, osd: 1, osd_uuid: Uuid([1; 16]), store: Uuid([5; 16]) };
/// What the objects of `fill_at` are called, and what an empty store says of itself: format marks of superblock, database and journal.
pub(super) const KNOWN: [&[u8]; 6] = [b"small.0", b"large", b"space", b"nacre-kv", b"nacrekvJ", b"NacreREG"];

pub(super) fn key(text: &str) -> WrappingKey {
    WrappingKey::from_text(text).expect("long enough")
}

/// A store, the files with what it wrote, and the file with its key.
pub(super) struct Encrypted {
    pub(super) folder: Folder,
    pub(super) disks: Folder,
    pub(super) files: Vec<PathBuf>,
}

/// As `umask 077` makes it.
fn write_key(path: &Path, text: &str) {
    std::fs::write(path, format!("{text}\n")).expect("written");
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("ours");
}

impl Encrypted {
    pub(super) fn on_files(key: Option<&WrappingKey>) -> Self {
        let (folder, disks) = (Folder::empty("files"), Folder::empty("files-keys"));
        storage::mkfs(folder.path(), Uuid([5; 16]), FILE_BYTES, &DeviceDirs::default(), key)
            .expect("a store can be made");
        let files = ["block", "meta.redb", "meta.journal"].map(|name| folder.path().join(name)).to_vec();
        Self::with(folder, disks, files)
    }

    /// With the log and the metadata elsewhere.
    fn on_three_places(key: Option<&WrappingKey>) -> Self {
        let (folder, disks) = (Folder::empty("apart"), Folder::empty("apart-places"));
        let dirs = DeviceDirs { log: Some(disks.path().join("l")), meta: Some(disks.path().join("m")) };
        storage::mkfs(folder.path(), Uuid([5; 16]), FILE_BYTES, &dirs, key).expect("a store can be made");
        let names = ["block", "log", "meta.redb", "meta.journal"];
        let files = names.map(|name| folder.path().join(name)).to_vec();
        Self::with(folder, disks, files)
    }

    /// With all of it on one.
    pub(super) fn on_a_device(key: Option<&WrappingKey>) -> Self {
        let disks = Folder::empty("device-disk");
        let devices = alone(device(&disks, "data", DATA_BYTES));
        Self::on(disks, devices, key)
    }

    fn on_devices(key: Option<&WrappingKey>) -> Self {
        let disks = Folder::empty("devices-disks");
        let devices = Devices {
            log: Some(device(&disks, "log", LOG_BYTES)),
            metadata: Some(device(&disks, "meta", META_BYTES)),
            ..alone(device(&disks, "data", DATA_BYTES))
        };
        Self::on(disks, devices, key)
    }

    fn on(disks: Folder, devices: Devices, key: Option<&WrappingKey>) -> Self {
        let folder = Folder::empty("devices");
        storage::mkfs_on_devices(folder.path(), OWNER, &devices, key).expect("empty devices");
        std::fs::write(folder.path().join("fsid"), format!("{}\n", OWNER.osd_uuid)).expect("written");
        let files = [Some(devices.data), devices.log, devices.metadata].into_iter().flatten().collect();
        Self::with(folder, disks, files)
    }

    fn all(key: Option<&WrappingKey>) -> [Self; 3] {
        [Self::on_files(key), Self::on_three_places(key), Self::on_devices(key)]
    }

    fn with(folder: Folder, disks: Folder, files: Vec<PathBuf>) -> Self {
        for (name, text) in [("key", KEY), ("other", OTHER_KEY)] {
            write_key(&disks.path().join(name), text);
        }
        Self { folder, disks, files }
    }

    pub(super) fn opened_by(&self, names: &[&str]) -> Target {
        let keys = names.iter().map(|name| self.disks.path().join(name)).collect();
        Target::new(self.folder.path().to_owned(), keys)
    }

    pub(super) fn target(&self) -> Target {
        self.opened_by(&["key"])
    }

    /// Which of some bytes are anywhere in its files.
    fn shows<'a>(&self, wanted: &[&'a [u8]]) -> Vec<&'a [u8]> {
        shown_in(&self.files, wanted)
    }
}

/// Which of some bytes are anywhere in these files.
pub(super) fn shown_in<'a>(files: &[PathBuf], wanted: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let contents: Vec<Vec<u8>> = files.iter().map(|path| written(path)).collect();
    let is_there = |part: &[u8]| {
        let holds = |content: &Vec<u8>| {
            let first = part.first().copied();
            let begins = content.iter().enumerate().filter(|(_, byte)| Some(**byte) == first);
            begins.into_iter().any(|(at, _)| content.get(at..at + part.len()) == Some(part))
        };
        contents.iter().any(holds)
    };
    wanted.iter().copied().filter(|part| is_there(part)).collect()
}

/// The blocks of a file that are not zeros: most of a new device is a hole.
fn written(path: &Path) -> Vec<u8> {
    let file = std::fs::File::open(path).expect("a file");
    let length = file.metadata().expect("a file").len();
    let (mut found, mut block) = (Vec::new(), vec![0; 1 << 20]);
    let mut at = 0;
    while at < length {
        let count = usize::try_from(length - at).map_or(block.len(), |rest| rest.min(block.len()));
        file.read_exact_at(&mut block[..count], at).expect("within the file");
        if block[..count].iter().any(|byte| *byte != 0) {
            found.extend_from_slice(&block[..count]);
        }
        at += count as u64;
    }
    found
}

pub(super) fn is_sound(target: &Target) {
    let findings = check::examine(target, true).expect("can be checked");
    assert!(findings.is_sound(), "{:?}", findings.problems);
}

#[test]
fn all_commands_work_with_the_key_and_nothing_stored_can_be_read_on_the_devices() {
    let plain = Encrypted::on_files(None);
    fill_at(&plain.folder.target());
    assert!(
        plain.shows(&KNOWN).len() >= 5,
        "the search finds what is not encrypted: {:?}",
        plain.shows(&KNOWN)
    );
    for store in Encrypted::all(Some(&key(KEY))) {
        fill_at(&store.target());
        is_sound(&store.target());
        compact::compact(&store.target()).expect("can be compacted");
        if let Err(error) = trim::trim(&store.target()) {
            assert!(error.to_string().contains("does not discard"), "{error:#}");
        }
        is_sound(&store.target());
        let (mut a, _) = store.target().look().expect("it opens");
        let (mut b, _) = plain.folder.target().look().expect("it opens");
        same(&mut a, &mut b);
        assert_eq!(each_object(&mut a, &PG, |_, _| Ok(())).expect("readable"), OBJECTS);
        drop((a, b));
        assert_eq!(store.shows(&KNOWN), Vec::<&[u8]>::new(), "{}", store.target().shown());
        assert_eq!(store.shows(&[KEY.as_bytes()]), Vec::<&[u8]>::new());
    }
}

#[test]
fn without_the_key_nothing_opens_it_and_the_message_says_what_to_do() {
    for store in Encrypted::all(Some(&key(KEY))) {
        let said = refusal(check::examine(&store.opened_by(&[]), false).map(drop));
        assert!(said.contains("is encrypted") && said.contains("--key-file"), "{said}");
        let said = refusal(store.opened_by(&["other"]).look());
        assert!(said.contains("this key does not open it"), "{said}");
        is_sound(&store.opened_by(&["other", "key"]));
        write_key(&store.disks.path().join("short"), "sesame");
        assert!(refusal(store.opened_by(&["short"]).look()).contains("6 characters"));
        let open = store.disks.path().join("key");
        std::fs::set_permissions(&open, Permissions::from_mode(0o644)).expect("ours");
        assert!(refusal(store.target().look()).contains("other users may read"));
        std::fs::set_permissions(&open, Permissions::from_mode(0o600)).expect("ours");
    }
    let plain = Encrypted::on_files(None);
    assert!(refusal(plain.target().look()).contains("is not encrypted"));
}

/// Such as a program that knows no encryption sees it.
#[test]
fn a_store_in_files_without_its_key_block_is_refused_and_stays_as_it_is() {
    let store = Encrypted::on_files(Some(&key(KEY)));
    fill_at(&store.target());
    let keys = store.folder.path().join("block.keys");
    let away = store.disks.path().join("block.keys");
    std::fs::rename(&keys, &away).expect("in one file system");
    let content = || store.files.iter().map(|path| written(path)).collect::<Vec<_>>();
    let before = content();
    assert!(store.opened_by(&[]).open().is_err());
    assert!(before == content(), "something was written");
    std::fs::rename(&away, &keys).expect("in one file system");
    is_sound(&store.target());
}

/// The second copy of the key block is not whole any more.
pub(super) fn spoil_keys(store: &Encrypted) {
    let in_folder = store.folder.path().join("block.keys");
    let (path, offset) = match in_folder.exists() {
        true => (in_folder, 4096),
        false => (store.folder.path().join("block"), 512 << 10),
    };
    super::devices::spoil(&path, offset + 100);
}

#[test]
fn a_damaged_copy_of_the_key_block_is_found_and_written_again_and_two_are_an_error() {
    for (store, file, places) in [
        (Encrypted::on_files(Some(&key(KEY))), "block.keys", [0, 4096]),
        (Encrypted::on_devices(Some(&key(KEY))), "block", [4096, 512 << 10]),
    ] {
        fill_at(&store.target());
        let path = store.folder.path().join(file);
        let spoil = |offset: u64| super::devices::spoil(&path, offset + 100);
        for offset in places {
            spoil(offset);
            let findings = check::examine(&store.target(), false).expect("can be checked");
            assert_eq!(kinds(&findings), ["keys"]);
            let done = repair(&repair_options(store.target(), false)).expect("can be repaired");
            assert!(done[0].contains("wrote it again"), "{done:?}");
            is_sound(&store.target());
        }
        places.iter().for_each(|offset| spoil(*offset));
        let said = refusal(store.target().look());
        assert!(said.contains("both copies of its wrapped key are damaged"), "{said}");
    }
}

/// The new key opens it before the old one is forgotten; a change that was interrupted is completed by another one.
#[test]
fn the_key_is_changed_in_steps_and_then_the_old_one_opens_nothing() {
    let (old, new) = (key(KEY), key(OTHER_KEY));
    for store in Encrypted::all(Some(&old)) {
        fill_at(&store.target());
        let keys = || storage::store_keys(store.folder.path()).expect("readable").expect("encrypted");
        let abandoned = key("a change that was interrupted at once, and began anew");
        keys().add(&old, &abandoned).expect("the old one opens it");
        keys().add(&old, &new).expect("the old one opens it");
        assert_eq!(keys().keys(), 3);
        is_sound(&store.opened_by(&["key"]));
        is_sound(&store.opened_by(&["other"]));
        let mut held = keys();
        held.keep_only(&new).expect("it opens it");
        assert!(held.add(&old, &abandoned).is_err() && held.keep_only(&old).is_err());
        drop(held);
        is_sound(&store.opened_by(&["other"]));
        assert!(refusal(store.opened_by(&["key"]).look()).contains("does not open it"));
    }
}

#[test]
fn a_device_of_an_encrypted_store_is_not_mixed_with_others() {
    let (encrypted, plain) = (Encrypted::on_devices(Some(&key(KEY))), Encrypted::on_devices(None));
    let label = storage::label_of(&encrypted.files[0]).expect("a label");
    assert!(label.is_encrypted && label.to_string().contains("encrypted data device"), "{label}");
    // Both say that they are of the same OSD and store, as after a mistake of ours.
    let link = encrypted.folder.path().join("log");
    std::fs::remove_file(&link).expect("a link");
    std::os::unix::fs::symlink(&plain.files[1], &link).expect("a link");
    let said = refusal(encrypted.target().look());
    assert!(said.contains("is encrypted and the data device is not, or the other way around"), "{said}");
}
