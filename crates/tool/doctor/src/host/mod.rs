//! [`Host`]: facts of one machine, as the kernel shows them in files below a root; and the checks of them.
//!
//! Each check reads what it needs, and says one of three things: a finding with what it read, that it had what it needs and found nothing
//! (`Report::judged`), or what it lacked (`Report::unknown`). Absent files are no finding: machines differ.

mod block;
pub(crate) mod clients;
mod clock;
mod fix;
mod memory;
mod network;
mod processes;
mod processor;
mod program;

#[cfg(test)]
mod tests;

pub(crate) use fix::fix;

use crate::report::Report;
use nacre_env::real::ClockState;
use nacre_types::build_kind::BuildKind;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Files of the kernel are small; one that is larger is none of them.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Host {
    root: PathBuf,
    /// The same without symbolic links; nothing where there is no such folder.
    real_root: Option<PathBuf>,
    /// The kernel's clock, or why it is not known.
    clock: Result<ClockState, String>,
    /// This program, which is the OSDs', too.
    build: BuildKind,
}

impl Host {
    /// The machine whose files lie below `root`. What is no file is known of this machine only.
    pub(crate) fn new(root: &Path) -> Self {
        let clock = if root == Path::new("/") {
            nacre_env::real::clock_state().map_err(|error| format!("adjtimex: {error}"))
        } else {
            Err("the kernel tells it of its own machine only, not of files below a folder".to_owned())
        };
        Self { root: root.to_owned(), real_root: root.canonicalize().ok(), clock, build: BuildKind::own() }
    }

    /// A path below the root.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// Where a path below the root leads, without symbolic links. Those of a copy may lead anywhere, and this machine's files are not the
    /// copied one's: what lies outside the root is refused, as `InvalidInput`.
    fn found(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let found = self.at(path).canonicalize()?;
        if self.real_root.as_ref().is_some_and(|root| found.starts_with(root)) {
            return Ok(found);
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it leads outside, to {}", found.display())))
    }

    /// Opens a regular file, as `options` say: a device may act when it is opened, and a pipe's other end may never come. What is none is
    /// refused, as `InvalidInput`.
    fn open(&self, path: impl AsRef<Path>, options: &mut OpenOptions) -> io::Result<File> {
        let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
        let found = self.found(path)?;
        if !found.metadata()?.is_file() {
            return Err(no_file());
        }
        // Somebody may put something else there meanwhile.
        let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(found)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
    }

    /// A file's text without blanks at its ends.
    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut bytes = Vec::new();
        self.open(path, OpenOptions::new().read(true))
            .ok()?
            .take(FILE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The one in brackets of several words, or the only one.
    fn chosen(&self, path: impl AsRef<Path>) -> Option<String> {
        chosen(&self.text(path)?)
    }

    fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.found(path).is_ok()
    }

    /// Names in a folder, in order.
    fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = self.found(path).and_then(std::fs::read_dir).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Folders of processors, `cpu0` and so on.
    fn processors(&self) -> Vec<String> {
        let is_processor = |name: &String| {
            name.strip_prefix("cpu")
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
        };
        self.names("sys/devices/system/cpu").into_iter().filter(is_processor).collect()
    }

    /// The number behind a name that begins a line, as in `/proc/meminfo` and `/proc/vmstat`.
    fn field(&self, path: &str, name: &str) -> Option<u64> {
        field(&self.text(path)?, name)
    }

    fn uptime_s(&self) -> Option<f64> {
        self.text("proc/uptime")?.split_whitespace().next()?.parse().ok().filter(|seconds| *seconds > 0.0)
    }
}

/// The one in brackets of several words, or the only one.
fn chosen(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let in_brackets = words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    in_brackets
        .or_else(|| Some(text.trim()).filter(|text| !text.is_empty() && !text.contains(' ')))
        .map(str::to_owned)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([':', ' ', '\t']).then_some(rest)
    })?;
    rest.trim_start_matches(':').split_whitespace().next()?.parse().ok()
}

/// How often each text occurs, as `powersave on 7, performance on 1`.
fn counted(texts: &[String]) -> String {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    texts.iter().for_each(|text| *counts.entry(text).or_default() += 1);
    let shown: Vec<String> = counts.iter().map(|(text, count)| format!("{text} on {count}")).collect();
    shown.join(", ")
}

/// All checks of a machine.
pub(crate) fn check(host: &Host, report: &mut Report) {
    program::check(host, report);
    processor::check(host, report);
    memory::check(host, report);
    block::check(host, report);
    network::check(host, report);
    clock::check(host, report);
    processes::check(host, report);
}
