//! [`RealDisk`]: a file or block device of this machine, through io_uring where it is allowed and through a few
//! threads where it is not.

mod delay;
mod discards;
mod file;
mod held;
mod identity;
mod op;
mod page_cache;
mod ring;
mod sys;
mod system_device;
mod threads;
mod work_queue;

pub use file::OpenError;
pub use held::{DeviceView, HeldDevice};
pub use page_cache::{read_cached_first, waited_reads};
pub use sys::{EventFd, reserve, room, write_back};
pub use system_device::SystemDevice;

use crate::disk::{Disk, DiskCompletion, DiskInfo, DiskTag, Durability, assert_range, assert_write};
use delay::Delay;
use discards::Discards;
use file::DeviceFile;
use nacre_buf::{AlignedBuf, BufList};
use op::{Op, Work};
use ring::Ring;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;
use threads::Threads;

/// `off` keeps io_uring from being tried.
const RING_VARIABLE: &str = "NACRE_IO_URING";

/// How requests are to reach the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DriverChoice {
    /// io_uring if a no-op passes through it, unless the variable `NACRE_IO_URING` is `off`; else threads.
    #[default]
    Auto,
    /// io_uring or an error.
    Ring,
    /// Threads that make blocking calls.
    Threads,
}

enum Driver {
    Ring(Box<Ring>),
    Threads(Threads),
}

impl Driver {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Ring(ring) => ring.wake_fd(),
            Self::Threads(threads) => threads.wake_fd(),
        }
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        match self {
            Self::Ring(ring) => ring.drain(out),
            Self::Threads(threads) => threads.drain(out),
        }
    }

    fn wait(&mut self) {
        match self {
            Self::Ring(ring) => ring.wait(),
            Self::Threads(threads) => threads.wait(),
        }
    }
}

/// An open file or block device. Locked against every other opener, in this process or another.
pub struct RealDisk {
    info: DiskInfo,
    direct: bool,
    volatile_cache: Option<bool>,
    rotational: Option<bool>,
    disks: BTreeMap<String, Option<String>>,
    ring_refused: Option<String>,
    driver: Driver,
    discards: Discards,
    /// Requests made, not started yet.
    queued: Vec<Op>,
    /// Discards made, not started yet.
    queued_discards: Vec<Op>,
    /// Requests that the driver has.
    in_flight: usize,
    /// A fault for tests: see [`Disk::delay`].
    delay: Option<Box<Delay>>,
    /// Where the file is one opened once more, what has the lock: it goes when nothing is under way any more.
    _lock: Option<File>,
}

impl RealDisk {
    /// Creates the file `path` of `size_bytes`, rounded down to whole blocks, with its blocks allocated.
    ///
    /// # Errors
    /// When the file exists, when there is no room for it, or as for [`RealDisk::open`].
    pub fn create(path: &Path, size_bytes: u64, choice: DriverChoice) -> Result<Self, OpenError> {
        Self::over(DeviceFile::create(path, size_bytes)?, path, choice)
    }

    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// When it cannot be opened, somebody else holds it, or it is no place for data.
    pub fn open(path: &Path, choice: DriverChoice) -> Result<Self, OpenError> {
        Self::over(DeviceFile::open(path)?, path, choice)
    }

    fn over(file: DeviceFile, path: &Path, choice: DriverChoice) -> Result<Self, OpenError> {
        let system = |source| OpenError::System { path: path.to_owned(), source };
        let (mut info, direct) = (file.info(), file.direct);
        let (volatile_cache, rotational, disks) = (file.volatile_cache(), file.rotational(), file.disks());
        let lock = file.lock.as_ref().map(File::try_clone).transpose().map_err(system)?;
        let (same, is_device) = (file.file.try_clone().map_err(system)?, file.is_device);
        let mut ring_refused = None;
        let driver = match try_ring(&file, choice) {
            Ok(ring) => Driver::Ring(Box::new(ring)),
            Err(error) if choice == DriverChoice::Ring => return Err(system(error)),
            Err(error) => {
                ring_refused = Some(error.to_string());
                Driver::Threads(Threads::start(file).map_err(system)?)
            }
        };
        info.driver = match driver {
            Driver::Ring(_) => "io_uring",
            Driver::Threads(_) => "threads",
        };
        let discards = Discards::of(same, is_device, driver.wake_fd()).map_err(system)?;
        Ok(Self {
            info,
            direct,
            volatile_cache,
            rotational,
            disks,
            ring_refused,
            driver,
            discards,
            queued: Vec::new(),
            queued_discards: Vec::new(),
            in_flight: 0,
            delay: None,
            _lock: lock,
        })
    }

    /// What becomes readable when something has finished: for [`super::RealNet::watch`].
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.driver.wake_fd()
    }

    /// Why io_uring is not used, if it is not.
    #[must_use]
    pub fn ring_refused(&self) -> Option<&str> {
        self.ring_refused.as_deref()
    }

    /// Whether transfers pass by the page cache; false on file systems that cannot.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether the device below says that it has a cache that loses its content with the power.
    #[must_use]
    pub const fn volatile_cache(&self) -> Option<bool> {
        self.volatile_cache
    }

    /// Whether the device below turns.
    #[must_use]
    pub const fn rotational(&self) -> Option<bool> {
        self.rotational
    }

    /// The disks on which it lies, by the kernel's names, each with vendor, model and serial number joined by `_`, or `None` when it has
    /// no serial number. Empty where the system does not know.
    #[must_use]
    pub const fn disks(&self) -> &BTreeMap<String, Option<String>> {
        &self.disks
    }

    /// Whether it is a block device, not a file.
    #[must_use]
    pub const fn is_block_device(&self) -> bool {
        !self.info.is_file
    }
}

fn try_ring(file: &DeviceFile, choice: DriverChoice) -> io::Result<Ring> {
    let forbidden = match choice {
        DriverChoice::Ring => None,
        DriverChoice::Threads => Some("threads were asked for"),
        DriverChoice::Auto => {
            let off = std::env::var(RING_VARIABLE).is_ok_and(|value| value.eq_ignore_ascii_case("off"));
            off.then_some("NACRE_IO_URING is off")
        }
    };
    forbidden.map_or_else(|| Ring::start(file), |reason| Err(io::Error::other(reason)))
}

/// What has finished, discards among it.
fn drain(driver: &mut Driver, in_flight: &mut usize, discards: &mut Discards, out: &mut Vec<DiskCompletion>) {
    let before = out.len();
    driver.drain(out);
    *in_flight -= out.len() - before;
    discards.drain(out);
}

/// Waits for the driver as long as it has something: who waits for a discard only has nothing else under way.
fn wait(driver: &mut Driver, in_flight: usize, discards: &Discards) {
    match in_flight {
        _ if discards.has_finished() => (),
        0 => discards.wait(),
        _ => driver.wait(),
    }
}

impl Disk for RealDisk {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        assert_write(&self.info, offset, &data);
        self.queued.push(Op::new(tag, offset, data.len() as u64, Work::Write { data, durability }));
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        assert_range(&self.info, offset, into.len() as u64);
        self.queued.push(Op::new(tag, offset, into.len() as u64, Work::Read { into }));
    }

    fn flush(&mut self, tag: DiskTag) {
        self.queued.push(Op::new(tag, 0, 0, Work::Flush));
    }

    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag) {
        assert_range(&self.info, offset, length);
        self.queued_discards.push(Op::new(tag, offset, length, Work::Discard));
    }

    fn submit(&mut self) {
        self.discards.submit(&mut self.queued_discards);
        self.in_flight += self.queued.len();
        match &mut self.driver {
            Driver::Ring(ring) => ring.submit(&mut self.queued),
            Driver::Threads(threads) => threads.submit(&mut self.queued),
        }
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        let Some(delay) = &mut self.delay else {
            return drain(&mut self.driver, &mut self.in_flight, &mut self.discards, out);
        };
        let mut finished = Vec::new();
        drain(&mut self.driver, &mut self.in_flight, &mut self.discards, &mut finished);
        delay.keep(finished);
        delay.release(out);
        if delay.is_over() {
            self.delay = None;
        }
    }

    fn wait(&mut self) {
        let Some(delay) = &mut self.delay else {
            return wait(&mut self.driver, self.in_flight, &self.discards);
        };
        if !delay.holds() {
            wait(&mut self.driver, self.in_flight, &self.discards);
            let mut finished = Vec::new();
            drain(&mut self.driver, &mut self.in_flight, &mut self.discards, &mut finished);
            delay.keep(finished);
        }
        delay.wait();
    }

    fn set_wakeups(&mut self, wakeups: bool) {
        if let Driver::Ring(ring) = &mut self.driver {
            ring.set_wakeups(wakeups);
        }
    }

    fn delay(&mut self, each: Duration) -> io::Result<()> {
        if self.delay.is_none() && !each.is_zero() {
            self.delay = Some(Box::new(Delay::start(self.wake_fd())?));
        }
        if let Some(delay) = &mut self.delay {
            delay.set(each);
        }
        Ok(())
    }

    fn info(&self) -> DiskInfo {
        self.info
    }
}

#[cfg(test)]
mod tests;
