//! [`Scratch`]: a temporary folder.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Files above this size are not kept, unless [`KEEP_ALL`] is set: stores of a gigabyte each from a few failing tests fill a
/// machine, and then every test fails.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// The environment variable that keeps stores as well.
const KEEP_ALL: &str = "NACRE_TEST_KEEP_ALL";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A folder of its own under the system's temporary one, removed with all that is in it on drop; kept but for large files when
/// the test panics, so that one can look.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new, empty folder.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("nacre-test-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let keeps_all = std::env::var_os(KEEP_ALL).is_some();
            let removed = if keeps_all { 0 } else { remove_large_files(&self.0) };
            let note = if removed > 0 {
                format!(", {removed} stores removed ({KEEP_ALL}=1 keeps them)")
            } else {
                String::new()
            };
            eprintln!("kept: {}{note}", self.0.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

/// Removes what is too large to keep below `folder`; gives the number of files.
fn remove_large_files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let removed = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => remove_large_files(&entry.path()),
        Ok(metadata) if metadata.is_file() && metadata.len() > KEPT_BYTES_MAX => {
            usize::from(std::fs::remove_file(entry.path()).is_ok())
        }
        _ => 0,
    });
    removed.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_keeps_logs_but_no_stores() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let failed = std::thread::spawn(move || {
            let scratch = Scratch::new();
            sender.send(scratch.path().to_owned()).expect("somebody listens");
            let store = scratch.path().join("osd.0");
            std::fs::create_dir(&store).expect("a folder");
            let block = std::fs::File::create(store.join("block")).expect("a file");
            block.set_len(KEPT_BYTES_MAX + 1).expect("a sparse file");
            std::fs::write(store.join("log"), "what happened").expect("a file");
            panic!("as a test that fails");
        });
        assert!(failed.join().is_err());
        let path = receiver.recv().expect("a path");
        assert_eq!(path.join("osd.0/block").exists(), std::env::var_os(KEEP_ALL).is_some());
        assert_eq!(std::fs::read_to_string(path.join("osd.0/log")).expect("kept"), "what happened");
        std::fs::remove_dir_all(path).expect("removed");
    }
}
