//! [`Scratch`]: a temporary folder.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Files above this size are not kept, unless [`KEEP_ALL`] is set: stores of a gigabyte each from a few failing tests fill a
/// machine, and then every test fails.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// The environment variable that keeps stores as well.
const KEEP_ALL: &str = "NACRE_TEST_KEEP_ALL";
/// Lines of logs that are printed when a test fails, at most.
const LINES_SHOWN: usize = 60;
/// Those behind the line that says that a thread panicked.
const LINES_OF_PANIC: usize = 12;

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
            // Who sees only what a test printed is to see why a daemon ended.
            telling_lines(&self.0).iter().take(LINES_SHOWN).for_each(|line| eprintln!("  {line}"));
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

/// What logs below a folder say of panics and errors, each line with the file's name.
fn telling_lines(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let told = entries.flat_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return telling_lines(&path);
        }
        if path.extension().is_none_or(|extension| extension != "log") {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
        let mut of_panic = 0;
        let is_telling = |line: &&str| {
            of_panic = if line.contains("panicked at") {
                LINES_OF_PANIC
            } else {
                usize::saturating_sub(of_panic, 1)
            };
            of_panic > 0 || line.contains("ERROR") || line.contains(" ended")
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        text.lines().filter(is_telling).map(|line| format!("{name}: {line}")).collect()
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_tell_of_panics_and_errors() {
        let scratch = Scratch::new();
        let log = scratch.path().join("log");
        std::fs::create_dir(&log).expect("a folder");
        std::fs::write(log.join("osd.1.log"), "osd.1 is up\nthread 'x' panicked at y:1:\nwhy\n")
            .expect("a file");
        std::fs::write(log.join("mon.log"), "mon.a ERROR no room\nall is well\n").expect("a file");
        std::fs::write(log.join("block"), "ERROR").expect("a file");
        let mut told = telling_lines(scratch.path());
        told.sort();
        assert_eq!(
            told,
            ["mon.log: mon.a ERROR no room", "osd.1.log: thread 'x' panicked at y:1:", "osd.1.log: why"]
        );
    }

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
