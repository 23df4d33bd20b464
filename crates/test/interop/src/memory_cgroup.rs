//! [`MemoryCgroup`]: a cgroup of the kernel's whose processes may have so much memory and no more.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the first version's controller of memory is, by custom.
const FIRST: &str = "/sys/fs/cgroup/memory";
/// Where the second version is, alone or beside the first.
const SECOND: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// A cgroup can be removed a moment after its last process has ended.
const REMOVED_WITHIN: u32 = 100;
const POLL: Duration = Duration::from_millis(20);

/// Removed on drop; its processes must have ended by then.
#[derive(Debug)]
pub struct MemoryCgroup {
    path: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    First,
    Second,
}

impl MemoryCgroup {
    /// A new cgroup for `limit_bytes`, pages of files and all else that the kernel counts among them, without swap.
    ///
    /// # Errors
    /// Why there can be none here: no such controller, or no right to use it.
    pub fn new(name: &str, limit_bytes: u64) -> Result<Self, String> {
        let (path, version) = make(&format!("nacre-test-{}-{name}", std::process::id()))?;
        let cgroup = Self { path, version };
        let (limit, with_swap) = match version {
            Version::First => ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", limit_bytes)),
            Version::Second => ("memory.max", ("memory.swap.max", 0)),
        };
        cgroup.set(limit, limit_bytes)?;
        // A machine without swap has no such file.
        if cgroup.path.join(with_swap.0).exists() {
            cgroup.set(with_swap.0, with_swap.1)?;
        }
        Ok(cgroup)
    }

    fn set(&self, file: &str, bytes: u64) -> Result<(), String> {
        let path = self.path.join(file);
        fs::write(&path, bytes.to_string()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The file that a process writes its number into to belong to the cgroup.
    #[must_use]
    pub fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    fn read(&self, file: &str) -> String {
        let path = self.path.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The number behind `name` in one of the cgroup's files.
    fn number(&self, file: &str, name: &str) -> u64 {
        let text = self.read(file);
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let value = lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim());
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {file}: {text}"))
    }

    /// Processes that were killed for the limit's sake.
    ///
    /// # Panics
    /// When the kernel does not say so.
    #[must_use]
    pub fn kills(&self) -> u64 {
        match self.version {
            Version::First => self.number("memory.oom_control", "oom_kill"),
            Version::Second => self.number("memory.events", "oom_kill"),
        }
    }

    /// Bytes of memory now that are not pages of files: the system could not have them back.
    ///
    /// # Panics
    /// When the kernel does not say so.
    #[must_use]
    pub fn anonymous_bytes(&self) -> u64 {
        match self.version {
            Version::First => self.number("memory.stat", "total_rss"),
            Version::Second => self.number("memory.stat", "anon"),
        }
    }
}

fn make(name: &str) -> Result<(PathBuf, Version), String> {
    let mut reasons = Vec::new();
    for root in SECOND.map(Path::new) {
        let has_memory =
            |file| fs::read_to_string(root.join(file)).is_ok_and(|text| has_word(&text, "memory"));
        if !has_memory("cgroup.controllers") {
            continue;
        }
        // What its parent does not hand on, a cgroup does not have.
        if !has_memory("cgroup.subtree_control")
            && let Err(error) = fs::write(root.join("cgroup.subtree_control"), "+memory")
        {
            reasons.push(format!("{}: {error}", root.display()));
            continue;
        }
        match fs::create_dir(root.join(name)) {
            Ok(()) => return Ok((root.join(name), Version::Second)),
            Err(error) => reasons.push(format!("{}: {error}", root.display())),
        }
    }
    let first = Path::new(FIRST);
    if first.join("memory.limit_in_bytes").exists() {
        match fs::create_dir(first.join(name)) {
            Ok(()) => return Ok((first.join(name), Version::First)),
            Err(error) => reasons.push(format!("{FIRST}: {error}")),
        }
    }
    if reasons.is_empty() {
        reasons.push("there is no controller of memory".to_owned());
    }
    Err(format!("no cgroup for memory can be made: {}", reasons.join("; ")))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_ascii_whitespace().any(|other| other == word)
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let mut outcome = Ok(());
        for _ in 0..REMOVED_WITHIN {
            outcome = fs::remove_dir(&self.path);
            if outcome.is_ok() {
                return;
            }
            std::thread::sleep(POLL);
        }
        if let Err(error) = outcome {
            eprintln!("{}: {error}", self.path.display());
        }
    }
}
