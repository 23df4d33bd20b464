//! Drops the kernel's cached pages of a store's files, so that it is opened as after a restart of the machine.

use rustix::fs::{Advice, fadvise};
use std::path::Path;

/// Drops all pages that are on the device already. Files may go meanwhile.
pub(crate) fn evict(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            evict(&path);
        } else if let Ok(file) = std::fs::File::open(&path) {
            // Pages that stay make it a little faster than it would be.
            let _refused = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }
}
