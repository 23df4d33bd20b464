//! [`SlowFlush`]: a device without power-loss protection, pretended.
//!
//! A durable write is a cached one and then a flush. Flushes take their time, one after the other; whatever waits for one
//! when the last ends is covered by the next, as the kernel's block layer has it.

use nacre_buf::{AlignedBuf, BufList};
use nacre_env::Clock;
use nacre_env::disk::{Disk, DiskCompletion, DiskInfo, DiskTag, Durability};
use nacre_types::Stamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long [`Disk::wait`] sleeps at a time while both a flush and a transfer may end first.
const NAP: Duration = Duration::from_micros(40);

pub(crate) struct SlowFlush {
    disk: Box<dyn Disk>,
    flush: Duration,
    clock: Box<dyn Clock>,
    /// The callers' tags of what is below, by ours; and whether a flush is to follow.
    below: BTreeMap<u64, (DiskTag, bool)>,
    next: u64,
    /// Flushes asked for and not submitted.
    asked: Vec<DiskTag>,
    waiting: Vec<DiskTag>,
    running: Option<(Stamp, Vec<DiskTag>)>,
}

impl SlowFlush {
    pub(crate) fn over(disk: Box<dyn Disk>, flush: Duration, clock: Box<dyn Clock>) -> Self {
        let (below, asked, waiting) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { disk, flush, clock, below, next: 0, asked, waiting, running: None }
    }

    fn tag(&mut self, tag: DiskTag, flush: bool) -> DiskTag {
        self.next += 1;
        self.below.insert(self.next, (tag, flush));
        DiskTag(self.next)
    }

    /// Ends a flush whose time is over and begins the next.
    fn turn(&mut self, out: &mut Vec<DiskCompletion>) {
        let now = self.clock.now();
        if self.running.as_ref().is_some_and(|(end, _)| *end <= now)
            && let Some((_, tags)) = self.running.take()
        {
            out.extend(tags.into_iter().map(|tag| DiskCompletion { tag, result: Ok(()), buffer: None }));
        }
        if self.running.is_none() && !self.waiting.is_empty() {
            self.running = Some((now + self.flush, std::mem::take(&mut self.waiting)));
        }
    }
}

impl Disk for SlowFlush {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        let tag = self.tag(tag, durability == Durability::Durable);
        self.disk.write(offset, data, Durability::Cached, tag);
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        let tag = self.tag(tag, false);
        self.disk.read(offset, into, tag);
    }

    fn flush(&mut self, tag: DiskTag) {
        self.asked.push(tag);
    }

    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag) {
        let tag = self.tag(tag, false);
        self.disk.discard(offset, length, tag);
    }

    fn submit(&mut self) {
        self.waiting.append(&mut self.asked);
        self.disk.submit();
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        let mut done = Vec::new();
        self.disk.drain(&mut done);
        for mut completion in done {
            let Some((tag, flush)) = self.below.remove(&completion.tag.0) else { continue };
            completion.tag = tag;
            if flush && completion.result.is_ok() {
                self.waiting.push(tag);
            } else {
                out.push(completion);
            }
        }
        self.turn(out);
    }

    fn wait(&mut self) {
        match &self.running {
            Some((end, _)) => {
                let left = end.since(self.clock.now());
                std::thread::sleep(if self.below.is_empty() { left } else { left.min(NAP) });
            }
            // What waits for a flush gets one with the next drain.
            None if !self.waiting.is_empty() => (),
            None => self.disk.wait(),
        }
    }

    fn info(&self) -> DiskInfo {
        self.disk.info()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_env::RealClock;
    use nacre_env::disk::conformance;
    use nacre_simdisk::{SimConfig, SimDevice};

    #[test]
    fn conforms() {
        let device = SimDevice::new(SimConfig::new(conformance::SIZE_BYTES, 1));
        let clock = RealClock::start();
        conformance::run(|| SlowFlush::over(Box::new(device.open()), Duration::ZERO, Box::new(clock)));
    }

    #[test]
    fn durable_writes_wait_for_a_flush_and_share_it() {
        let device = SimDevice::new(SimConfig::new(1 << 20, 1));
        let mut disk = SlowFlush::over(Box::new(device.open()), Duration::ZERO, Box::new(RealClock::start()));
        let data = || BufList::from(AlignedBuf::with_len(4096).freeze());
        (0..50).for_each(|nth| disk.write(nth * 4096, data(), Durability::Durable, DiskTag(nth)));
        disk.submit();
        (0..10_000).for_each(|_| {
            device.step();
        });
        let mut done = Vec::new();
        disk.drain(&mut done);
        assert!(done.is_empty(), "written, and the flush has only begun");
        disk.drain(&mut done);
        assert_eq!(done.len(), 50, "one flush for all");
    }
}
