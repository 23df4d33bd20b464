//! The device itself, by the same [`Disk`] that the store uses.

use super::figures::Round;
use super::{Case, Engine, Places, Work, work_for};
use anyhow::Result;
use nacre_buf::{AlignedBuf, Bytes};
use nacre_env::RealClock;
use nacre_env::disk::{Disk, DiskTag, Durability};
use std::time::Duration;

pub(crate) struct Raw {
    disk: Box<dyn Disk>,
    clock: RealClock,
    places: Places,
}

impl Raw {
    pub(crate) fn new(disk: Box<dyn Disk>, clock: RealClock) -> Self {
        Self { disk, clock, places: Places::new(1) }
    }
}

impl Work for Raw {
    fn start(&mut self, case: Case, data: &Bytes, number: u64) -> Result<bool> {
        let offset = self.places.below(self.disk.info().size_bytes / case.bytes) * case.bytes;
        if case.is_read {
            self.disk.read(offset, AlignedBuf::with_len(data.len()), DiskTag(number));
        } else {
            self.disk.write(offset, data.clone().into(), Durability::Durable, DiskTag(number));
        }
        Ok(false)
    }

    fn turn(&mut self, finished: &mut Vec<u64>) -> Result<()> {
        self.disk.submit();
        self.disk.wait();
        let mut done = Vec::new();
        self.disk.drain(&mut done);
        for completion in done {
            completion.result?;
            finished.push(completion.tag.0);
        }
        Ok(())
    }
}

impl Engine for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn round(&mut self, case: Case, length: Duration) -> Result<Round> {
        let clock = self.clock;
        work_for(self, &clock, case, length)
    }
}
