//! [`SimDevice`], the hardware and its queue, and [`SimDisk`], a store's hold on it.

use crate::config::{Counters, Failing, Faults, SimConfig};
use crate::platter::{BLOCK, Image, Platter, WriteId, below, chance};
use nacre_buf::{AlignedBuf, BufList};
use nacre_env::disk::{
    BLOCK_BYTES, Disk, DiskCompletion, DiskError, DiskInfo, DiskRequest, DiskTag, Durability, REQUESTS_MAX,
    assert_range, assert_write,
};
use nacre_types::Errno;
use nacre_types::entropy::SeededEntropy;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

enum Work {
    Write { offset: u64, data: BufList, durability: Durability },
    Read { offset: u64, into: AlignedBuf },
    Flush { queued_at: u64 },
    Discard { offset: u64, length: u64 },
}

struct Request {
    tag: DiskTag,
    work: Work,
}

impl Request {
    fn kind(&self) -> DiskRequest {
        match self.work {
            Work::Write { .. } => DiskRequest::Write,
            Work::Read { .. } => DiskRequest::Read,
            Work::Flush { .. } => DiskRequest::Flush,
            Work::Discard { .. } => DiskRequest::Discard,
        }
    }

    fn range(&self) -> (u64, u64) {
        match &self.work {
            Work::Write { offset, data, .. } => (*offset, data.len() as u64),
            Work::Read { offset, into } => (*offset, into.len() as u64),
            Work::Flush { .. } => (0, 0),
            Work::Discard { offset, length } => (*offset, *length),
        }
    }
}

/// A request that took effect, and of a write, which.
struct Done {
    completion: DiskCompletion,
    write: Option<WriteId>,
}

struct Device {
    size_bytes: u64,
    rng: SeededEntropy,
    faults: Faults,
    /// Requests until the next failure, and how long it lasts.
    failure: Option<(u64, Failing)>,
    platter: Platter,
    /// Blocks that cannot be read until they are written.
    unreadable: BTreeSet<u64>,
    counters: Counters,
    /// Which [`SimDisk`] is the one; older ones are cut off.
    holder: u64,
    /// Events as the holder counts them: a flush covers what the holder knew before it.
    events: u64,
    queued: Vec<Request>,
    /// Submitted, without effect yet.
    started: Vec<Request>,
    /// With effect, not reported yet.
    effective: Vec<Done>,
    reported: Vec<Done>,
    /// The holder wants to be woken for reports.
    wakeups: bool,
}

/// A simulated device. Copies are the same device.
#[derive(Clone)]
pub struct SimDevice(Arc<Mutex<Device>>);

/// A store's hold on a [`SimDevice`]. Cut off by the next [`SimDevice::open`] or [`SimDevice::crash`]: then
/// nothing it asks has an effect and nothing is answered.
pub struct SimDisk {
    device: SimDevice,
    holder: u64,
    size_bytes: u64,
}

impl SimDevice {
    /// A device full of zeros.
    ///
    /// # Panics
    /// When the size is not a multiple of [`BLOCK_BYTES`].
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        assert!(config.size_bytes.is_multiple_of(BLOCK), "size of a simulated device");
        Self(Arc::new(Mutex::new(Device {
            size_bytes: config.size_bytes,
            rng: SeededEntropy(config.seed),
            faults: config.faults,
            failure: None,
            platter: Platter::new(),
            unreadable: BTreeSet::new(),
            counters: Counters::default(),
            holder: 0,
            events: 0,
            queued: Vec::new(),
            started: Vec::new(),
            effective: Vec::new(),
            reported: Vec::new(),
            wakeups: true,
        })))
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        // A test that failed elsewhere may still want to look at the device.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes hold of the device. An earlier holder is cut off; what it submitted still takes effect.
    #[must_use]
    pub fn open(&self) -> SimDisk {
        let mut device = self.device();
        device.settle();
        device.reset();
        device.end_of_holder();
        SimDisk { device: self.clone(), holder: device.holder, size_bytes: device.size_bytes }
    }

    /// One random request takes effect, or one that did is reported. False when nothing is in flight.
    pub fn step(&self) -> bool {
        self.device().step()
    }

    /// Steps until nothing is in flight.
    pub fn settle(&self) {
        self.device().settle();
    }

    /// Requests submitted and not yet reported.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let device = self.device();
        device.started.len() + device.effective.len()
    }

    /// Something was reported that the holder has not drained, and it wants to be woken for that.
    #[must_use]
    pub fn calls(&self) -> bool {
        let device = self.device();
        device.wakeups && !device.reported.is_empty()
    }

    /// Writes that took effect and would be at risk in a [`SimDevice::crash`].
    #[must_use]
    pub fn unsynced(&self) -> usize {
        self.device().platter.unsynced()
    }

    /// Cuts the power: what was not durable, in flight or not, is kept, torn or lost, write by write. The holder
    /// is cut off; open the device again.
    pub fn crash(&self) {
        self.device().crash();
    }

    /// The holder's process is killed: what it submitted takes effect or not, and of durable writes that are not complete
    /// nobody waits for the durability any more. The holder is cut off; open the device again.
    pub fn kill(&self) {
        self.device().kill();
    }

    /// Sets what goes wrong by itself from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.device().faults = faults;
    }

    /// Lets `requests` requests take effect and then fails the next.
    pub fn fail_after(&self, requests: u64, how: Failing) {
        self.device().failure = Some((requests, how));
    }

    /// Ends what [`SimDevice::fail_after`] began, and makes all blocks readable.
    pub fn heal(&self) {
        let mut device = self.device();
        device.failure = None;
        device.unreadable.clear();
    }

    /// Makes reads of the block at `offset` fail until it is written.
    pub fn fail_reads_at(&self, offset: u64) {
        self.device().unreadable.insert(offset / BLOCK);
    }

    /// Flips one random bit of durable data in the range. False when nothing there was ever made durable.
    pub fn rot(&self, offset: u64, length: u64) -> bool {
        let device = &mut *self.device();
        device.platter.rot(offset, length, &mut device.rng)
    }

    /// A copy of what is durable.
    #[must_use]
    pub fn image(&self) -> Image {
        self.device().platter.image()
    }

    /// Puts a copy of before back, with nothing of what was written since. The holder is cut off; open the device again.
    pub fn restore(&self, image: &Image) {
        let device = &mut *self.device();
        device.reset();
        device.platter.restore(image);
    }

    /// What a read would give now, free of faults and uncounted. For checkers.
    #[must_use]
    pub fn peek(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0; length.next_multiple_of(BLOCK_BYTES)];
        self.device().platter.read(offset, &mut out);
        out.truncate(length);
        out
    }

    /// What took effect so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.device().counters
    }
}

impl Device {
    fn step(&mut self) -> bool {
        let waiting = self.started.len() + self.effective.len();
        let Some(bound) = u64::try_from(waiting).ok().filter(|bound| *bound > 0) else { return false };
        let pick = usize::try_from(below(&mut self.rng, bound)).unwrap_or_default();
        if pick < self.started.len() {
            let request = self.started.swap_remove(pick);
            let done = self.execute(request);
            self.effective.push(done);
        } else {
            let done = self.effective.swap_remove(pick - self.started.len());
            self.reported.push(done);
        }
        true
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    fn reset(&mut self) {
        self.holder += 1;
        self.queued.clear();
        self.started.clear();
        self.effective.clear();
        self.reported.clear();
        self.wakeups = true;
    }

    fn crash(&mut self) {
        self.counters.crashes += 1;
        // What the device had not finished is as uncertain as what it had in its cache.
        let mut started = std::mem::take(&mut self.started);
        while let Some(bound) = u64::try_from(started.len()).ok().filter(|bound| *bound > 0) {
            let pick = usize::try_from(below(&mut self.rng, bound)).unwrap_or_default();
            let request = started.swap_remove(pick);
            match request.work {
                Work::Write { offset, data, .. } => {
                    self.platter.write(offset, data);
                }
                Work::Discard { offset, length } => {
                    self.platter.discard(offset, length, &mut self.rng);
                }
                Work::Read { .. } | Work::Flush { .. } => (),
            }
        }
        self.platter.crash(&mut self.rng);
        self.reset();
    }

    fn kill(&mut self) {
        let mut started = std::mem::take(&mut self.started);
        while let Some(bound) = u64::try_from(started.len()).ok().filter(|bound| *bound > 0) {
            let pick = usize::try_from(below(&mut self.rng, bound)).unwrap_or_default();
            let request = started.swap_remove(pick);
            match request.work {
                Work::Write { offset, data, .. } if below(&mut self.rng, 4) > 0 => {
                    self.platter.write(offset, data);
                }
                Work::Discard { offset, length } if below(&mut self.rng, 4) > 0 => {
                    self.platter.discard(offset, length, &mut self.rng);
                }
                _ => (),
            }
        }
        self.reset();
        self.end_of_holder();
    }

    /// A process is gone when all that it had under way has ended, so a flush of the next one covers it.
    fn end_of_holder(&mut self) {
        self.platter.set_all_known(self.events);
        self.events += 1;
    }

    /// Counts down to the ordered failure.
    fn fails_on_order(&mut self) -> bool {
        match &mut self.failure {
            None => false,
            Some((0, how)) => {
                if *how == Failing::Once {
                    self.failure = None;
                }
                true
            }
            Some((left, _)) => {
                *left -= 1;
                false
            }
        }
    }

    fn execute(&mut self, request: Request) -> Done {
        let ordered = self.fails_on_order();
        let (kind, (offset, length)) = (request.kind(), request.range());
        let (mut buffer, mut write) = (None, None);
        let good = match request.work {
            Work::Read { offset, mut into } => {
                let good = self.read(ordered, offset, &mut into);
                buffer = Some(into);
                good
            }
            Work::Write { offset, data, durability } => {
                write = self.write(ordered, offset, data, durability);
                write.is_some()
            }
            Work::Flush { queued_at } => self.flush(ordered, queued_at),
            Work::Discard { offset, length } if !ordered => {
                write = Some(self.discard(offset, length));
                true
            }
            Work::Discard { .. } => false,
        };
        let errno = Errno::EIO;
        let failed = DiskError::Failed { request: kind, offset, length, errno };
        let result = if good { Ok(()) } else { Err(failed) };
        self.counters.errors += u64::from(!good);
        Done { completion: DiskCompletion { tag: request.tag, result, buffer }, write }
    }

    fn read(&mut self, ordered: bool, offset: u64, into: &mut AlignedBuf) -> bool {
        self.counters.reads += 1;
        self.counters.read_bytes += into.len() as u64;
        let blocks = offset / BLOCK..(offset + into.len() as u64) / BLOCK;
        let latent = self.unreadable.range(blocks).next().is_some();
        if ordered || latent || chance(&mut self.rng, self.faults.read_errors_ppm) {
            // A caller that looks at it all the same should not find what it hopes for.
            into.fill(0xdb);
            return false;
        }
        self.platter.read(offset, into);
        true
    }

    /// None when it failed.
    fn write(
        &mut self,
        ordered: bool,
        offset: u64,
        data: BufList,
        durability: Durability,
    ) -> Option<WriteId> {
        let length = data.len() as u64;
        match durability {
            Durability::Cached => self.counters.cached_writes += 1,
            Durability::Durable => self.counters.durable_writes += 1,
        }
        self.counters.written_bytes += length;
        if ordered || chance(&mut self.rng, self.faults.write_errors_ppm) {
            self.platter.write_torn(offset, &data, &mut self.rng);
            return None;
        }
        let (offset, data) = self.betray(offset, data);
        let blocks = offset / BLOCK..(offset + data.len() as u64) / BLOCK;
        self.unreadable.retain(|index| !blocks.contains(index));
        if !data.is_empty() && chance(&mut self.rng, self.faults.latent_ppm) {
            self.unreadable.insert(blocks.start + below(&mut self.rng, blocks.end - blocks.start));
        }
        let id = self.platter.write(offset, data);
        if durability == Durability::Durable {
            self.platter.sync_newest();
        }
        Some(id)
    }

    /// Loses a write (it becomes empty) or sends it elsewhere.
    fn betray(&mut self, offset: u64, data: BufList) -> (u64, BufList) {
        if chance(&mut self.rng, self.faults.lost_ppm) {
            self.counters.betrayals += 1;
            return (offset, BufList::new());
        }
        if chance(&mut self.rng, self.faults.misdirected_ppm) {
            self.counters.betrayals += 1;
            let last = self.size_bytes - data.len() as u64;
            // Most of a device is empty: there, nobody would miss what was overwritten.
            let used =
                if below(&mut self.rng, 2) == 0 { self.platter.any_written(&mut self.rng) } else { None };
            let place = used.unwrap_or_else(|| below(&mut self.rng, last / BLOCK + 1) * BLOCK);
            return (place.min(last), data);
        }
        (offset, data)
    }

    fn flush(&mut self, ordered: bool, queued_at: u64) -> bool {
        self.counters.flushes += 1;
        if ordered || chance(&mut self.rng, self.faults.flush_errors_ppm) {
            self.platter.flush_failed(&mut self.rng);
            return false;
        }
        self.platter.flush(queued_at, &mut self.rng);
        true
    }

    fn discard(&mut self, offset: u64, length: u64) -> WriteId {
        self.counters.discards += 1;
        self.counters.discarded_bytes += length;
        self.platter.discard(offset, length, &mut self.rng)
    }
}

impl SimDisk {
    /// The device, unless somebody else holds it by now.
    fn held(&self) -> Option<MutexGuard<'_, Device>> {
        Some(self.device.device()).filter(|device| device.holder == self.holder)
    }

    fn queue(&self, tag: DiskTag, work: Work) {
        if let Some(mut device) = self.held() {
            device.queued.push(Request { tag, work });
            let held = device.queued.len() + device.started.len() + device.effective.len();
            assert!(held <= REQUESTS_MAX, "{held} requests to one disk");
        }
    }
}

impl Disk for SimDisk {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        assert_write(&self.info(), offset, &data);
        self.queue(tag, Work::Write { offset, data, durability });
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        assert_range(&self.info(), offset, into.len() as u64);
        self.queue(tag, Work::Read { offset, into });
    }

    fn flush(&mut self, tag: DiskTag) {
        let queued_at = self.held().map_or(0, |device| device.events);
        self.queue(tag, Work::Flush { queued_at });
    }

    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag) {
        assert_range(&self.info(), offset, length);
        self.queue(tag, Work::Discard { offset, length });
    }

    fn submit(&mut self) {
        if let Some(mut device) = self.held() {
            let device = &mut *device;
            device.started.append(&mut device.queued);
        }
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        let Some(mut device) = self.held() else { return };
        let device = &mut *device;
        for done in device.reported.drain(..) {
            if let Some(id) = done.write {
                device.platter.set_known(id, device.events);
            }
            out.push(done.completion);
        }
        device.events += 1;
    }

    fn set_wakeups(&mut self, wakeups: bool) {
        if let Some(mut device) = self.held() {
            device.wakeups = wakeups;
        }
    }

    fn wait(&mut self) {
        if let Some(mut device) = self.held() {
            while device.reported.is_empty() && device.step() {}
        }
    }

    fn info(&self) -> DiskInfo {
        DiskInfo {
            size_bytes: self.size_bytes,
            is_file: false,
            discard_bytes: 0,
            block_bytes: BLOCK_BYTES,
            driver: "simulated",
        }
    }
}

/// What was submitted takes effect, as it does when a process dies.
impl Drop for SimDisk {
    fn drop(&mut self) {
        if let Some(mut device) = self.held() {
            device.settle();
        }
    }
}
