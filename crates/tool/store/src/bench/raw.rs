//! The device itself, by the same [`Disk`] that the store uses.

use super::figures::{InFlight, Round, cpu_us};
use super::{Case, Engine, Places, content};
use anyhow::Result;
use nacre_buf::AlignedBuf;
use nacre_env::disk::{Disk, DiskTag, Durability, blocking};
use nacre_env::{Clock, RealClock};
use std::time::Duration;

pub(crate) struct Raw {
    disk: Box<dyn Disk>,
    clock: RealClock,
    places: Places,
}

impl Raw {
    /// Writes the whole disk first, so that only overwriting is measured.
    pub(crate) fn new(mut disk: Box<dyn Disk>, clock: RealClock) -> Result<Self> {
        let bytes = disk.info().size_bytes;
        blocking::zero_fill(disk.as_mut(), 0, bytes, &mut |_| ())?;
        Ok(Self { disk, clock, places: Places::new(1) })
    }

    fn start(&mut self, case: Case, data: &nacre_buf::Bytes, number: u64) {
        let offset = self.places.below(self.disk.info().size_bytes / case.bytes) * case.bytes;
        if case.is_read {
            self.disk.read(offset, AlignedBuf::with_len(data.len()), DiskTag(number));
        } else {
            self.disk.write(offset, data.clone().into(), Durability::Durable, DiskTag(number));
        }
    }
}

impl Engine for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn round(&mut self, case: Case, length: Duration) -> Result<Round> {
        let (data, mut in_flight) = (content(case.bytes), InFlight::default());
        let (mut round, mut done) = (Round::default(), Vec::new());
        let (cpu, begin) = (cpu_us(), self.clock.now());
        let end = begin + length;
        loop {
            while in_flight.len() < case.depth && self.clock.now() < end {
                let number = in_flight.start(self.clock.now());
                self.start(case, &data, number);
            }
            self.disk.submit();
            if in_flight.len() == 0 {
                break;
            }
            self.disk.wait();
            self.disk.drain(&mut done);
            let now = self.clock.now();
            for completion in done.drain(..) {
                completion.result?;
                round.bytes += case.bytes;
                in_flight.finish(completion.tag.0, now, &mut round);
            }
        }
        round.elapsed_ns = u64::try_from(self.clock.now().since(begin).as_nanos()).unwrap_or(u64::MAX);
        round.cpu_us = cpu_us().zip(cpu).map(|(after, before)| after - before);
        Ok(round)
    }
}
