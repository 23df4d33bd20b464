//! [`Hub`]: one simulated device of which several stores have a hold each, as threads have of a real one.

use nacre_buf::{AlignedBuf, BufList};
use nacre_env::disk::{Disk, DiskCompletion, DiskInfo, DiskTag, Durability};
use nacre_simdisk::{SimDevice, SimDisk};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a hold has queued, to be given to the disk when it submits.
type Queued = Box<dyn FnOnce(&mut SimDisk, DiskTag) + Send>;

struct Shared {
    disk: SimDisk,
    device: SimDevice,
    rng: SeededEntropy,
    /// Whose a request is, and under what tag, by the tag that the disk has.
    owners: BTreeMap<u64, (usize, DiskTag)>,
    next: u64,
    /// What is complete, by hold.
    done: Vec<Vec<DiskCompletion>>,
}

impl Shared {
    fn tag(&mut self, hold: usize, tag: DiskTag) -> DiskTag {
        self.next += 1;
        self.owners.insert(self.next, (hold, tag));
        DiskTag(self.next)
    }

    fn hand_out(&mut self) {
        let mut all = Vec::new();
        self.disk.drain(&mut all);
        for mut completion in all {
            let (hold, tag) = self.owners.remove(&completion.tag.0).expect("somebody asked for it");
            completion.tag = tag;
            self.done[hold].push(completion);
        }
    }
}

/// See the module's documentation. Makes a few random steps whenever somebody looks for completions.
pub(super) struct Hub(Arc<Mutex<Shared>>);

/// One store's hold on the device.
pub(super) struct Hold {
    shared: Arc<Mutex<Shared>>,
    number: usize,
    queued: Vec<(DiskTag, Queued)>,
}

impl Hub {
    /// Takes hold of the device: hubs of before are cut off.
    pub(super) fn new(device: &SimDevice, seed: u64) -> Self {
        let (disk, device, rng) = (device.open(), device.clone(), SeededEntropy(seed));
        let (owners, done) = (BTreeMap::new(), Vec::new());
        Self(Arc::new(Mutex::new(Shared { disk, device, rng, owners, next: 0, done })))
    }

    pub(super) fn hold(&self) -> Hold {
        let mut shared = self.0.lock().expect("no test panics while it holds this");
        shared.done.push(Vec::new());
        Hold { shared: Arc::clone(&self.0), number: shared.done.len() - 1, queued: Vec::new() }
    }
}

impl Hold {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("no test panics while it holds this")
    }

    fn queue(&mut self, tag: DiskTag, request: impl FnOnce(&mut SimDisk, DiskTag) + Send + 'static) {
        self.queued.push((tag, Box::new(request)));
    }
}

impl Disk for Hold {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        self.queue(tag, move |disk, tag| disk.write(offset, data, durability, tag));
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        self.queue(tag, move |disk, tag| disk.read(offset, into, tag));
    }

    /// The disk has it at once: it covers what is complete now, and no more.
    fn flush(&mut self, tag: DiskTag) {
        let mut shared = self.shared();
        let tag = shared.tag(self.number, tag);
        shared.disk.flush(tag);
    }

    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag) {
        self.queue(tag, move |disk, tag| disk.discard(offset, length, tag));
    }

    fn submit(&mut self) {
        let queued = std::mem::take(&mut self.queued);
        let shared = &mut *self.shared();
        for (tag, request) in queued {
            let tag = shared.tag(self.number, tag);
            request(&mut shared.disk, tag);
        }
        shared.disk.submit();
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        let mut shared = self.shared();
        for _ in 0..shared.rng.u64() % 4 {
            shared.device.step();
        }
        shared.hand_out();
        out.append(&mut shared.done[self.number]);
    }

    fn wait(&mut self) {
        let mut shared = self.shared();
        let is_own = |shared: &Shared| shared.owners.values().any(|(hold, _)| *hold == self.number);
        while shared.done[self.number].is_empty() && is_own(&shared) && shared.device.in_flight() > 0 {
            shared.disk.wait();
            shared.hand_out();
        }
    }

    fn info(&self) -> DiskInfo {
        self.shared().disk.info()
    }
}
