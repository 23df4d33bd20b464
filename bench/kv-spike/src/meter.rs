//! What the kernel counts of this process: processor time, bytes to and from the device, memory.

use rustix::time::{ClockId, clock_gettime};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often memory is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// Counts at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    at: Instant,
    cpu: Duration,
    written_bytes: u64,
    device_bytes: u64,
    read_bytes: u64,
    reads: u64,
}

/// What happened between two moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) wall: Duration,
    /// Of all threads.
    pub(crate) cpu: Duration,
    /// Handed to the kernel. What it says itself of pages that were dirtied counts a large folio whole for each block of it.
    pub(crate) written_bytes: u64,
    /// Written to the device meanwhile, by anybody.
    pub(crate) device_bytes: u64,
    pub(crate) read_bytes: u64,
    /// Times that files were read, from the kernel's cache or the device.
    pub(crate) reads: u64,
}

impl Counts {
    /// Now, of this process and of the device below `directory`.
    pub(crate) fn now(directory: &Path) -> Self {
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(cpu.tv_sec.try_into().unwrap_or(0), cpu.tv_nsec.try_into().unwrap_or(0));
        Self {
            at: Instant::now(),
            cpu,
            written_bytes: field(&io, "wchar"),
            device_bytes: device_written_bytes(directory),
            read_bytes: field(&io, "read_bytes"),
            reads: field(&io, "syscr"),
        }
    }

    /// What happened since.
    pub(crate) fn spent(&self, directory: &Path) -> Spent {
        let now = Self::now(directory);
        Spent {
            wall: now.at - self.at,
            cpu: now.cpu.saturating_sub(self.cpu),
            written_bytes: now.written_bytes.saturating_sub(self.written_bytes),
            device_bytes: now.device_bytes.saturating_sub(self.device_bytes),
            read_bytes: now.read_bytes.saturating_sub(self.read_bytes),
            reads: now.reads.saturating_sub(self.reads),
        }
    }
}

/// A number of a file of the kernel's.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    line.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Of the device that has the file system of a directory.
fn device_written_bytes(directory: &Path) -> u64 {
    let device = std::fs::metadata(directory).map_or(0, |about| about.dev());
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let counts = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).unwrap_or_default();
    // Sectors written are the seventh.
    counts.split_whitespace().nth(6).and_then(|sectors| sectors.parse().ok()).unwrap_or(0) * 512
}

fn anonymous_kib() -> u64 {
    field(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "RssAnon")
}

/// Bytes of the file system that are below a directory.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => disk_bytes(&entry.path()),
        Ok(about) => about.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

/// Looks at the memory of this process all the time.
pub(crate) struct MemoryWatch {
    most_kib: Arc<AtomicU64>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    pub(crate) fn begin() -> std::io::Result<Self> {
        let (most_kib, stopping) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (most, stop) = (Arc::clone(&most_kib), Arc::clone(&stopping));
        let watch = move || {
            while !stop.load(Ordering::Relaxed) {
                most.fetch_max(anonymous_kib(), Ordering::Relaxed);
                std::thread::sleep(SAMPLE_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("memory".to_owned()).spawn(watch)?;
        Ok(Self { most_kib, stopping, thread: Some(thread) })
    }

    /// MiB of anonymous memory at most since it was last asked.
    pub(crate) fn take_mib(&self) -> u64 {
        self.most_kib.fetch_max(anonymous_kib(), Ordering::Relaxed);
        self.most_kib.swap(0, Ordering::Relaxed) >> 10
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It reads files only.
            let _panicked = thread.join();
        }
    }
}
