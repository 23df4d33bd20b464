//! By which name a device is found again: `/dev/sdb` may be another one after the next start of the machine.

use crate::usage::System;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Folders of names that stay, below `/dev/disk`, the best first.
const FOLDERS: [&str; 2] = ["by-partuuid", "by-id"];

/// A name for the device or file at `path` that stays with it, if it has one; an absolute one in any case. A name that is a link already, as
/// those of volumes and of `/dev/disk` are, is what the operator wants.
///
/// # Errors
/// When there is nothing at `path`.
pub fn stable_name(system: &System, path: &Path) -> io::Result<PathBuf> {
    let is_link = fs::symlink_metadata(path)?.file_type().is_symlink();
    let absolute = std::path::absolute(path)?;
    let metadata = fs::metadata(path)?;
    if !metadata.file_type().is_block_device() {
        return fs::canonicalize(path);
    }
    if is_link && absolute.starts_with(&system.dev) {
        return Ok(absolute);
    }
    let known = FOLDERS.iter().find_map(|folder| {
        let is_it = |name: &PathBuf| {
            fs::metadata(name)
                .is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == metadata.rdev())
        };
        names(&system.dev.join("disk").join(folder)).into_iter().find(is_it)
    });
    known.map_or_else(|| fs::canonicalize(path), Ok)
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    // A volume may be renamed; its uuid stays.
    names.sort_by_key(|name| {
        let file = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (file.starts_with("dm-name-"), file)
    });
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_path_and_names_are_tried_in_order() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().canonicalize().expect("it is there");
        fs::write(folder.join("image"), "").expect("written");
        std::os::unix::fs::symlink(folder.join("image"), folder.join("link")).expect("a link");
        let system = System::default();
        assert_eq!(stable_name(&system, &folder.join("link")).expect("a file"), folder.join("image"));
        assert!(stable_name(&system, &folder.join("nothing")).is_err());
        for name in ["dm-name-vg-lv", "dm-uuid-LVM-x", "ata-ACME_1"] {
            fs::create_dir_all(folder.join("by-id").join(name)).expect("made");
        }
        let found = names(&folder.join("by-id"));
        let found: Vec<_> = found.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(found, ["ata-ACME_1", "dm-uuid-LVM-x", "dm-name-vg-lv"]);
    }
}
