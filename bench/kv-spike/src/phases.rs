//! Phases that write: loading, and overwriting.

use crate::args::Phase;
use crate::meter::{Counts, Spent, disk_bytes};
use crate::records;
use crate::report::Line;
use crate::workload::{Batch, Workload};
use anyhow::Result;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
/// A store that wrote nothing for so long has settled.
const QUIET: Duration = Duration::from_secs(3);
/// How long it may take to.
const SETTLED_WITHIN: Duration = Duration::from_secs(45);

/// What batches were, and how long each took.
#[derive(Default)]
struct Tally {
    objects: u64,
    bytes: u64,
    commits: Vec<Duration>,
}

impl Tally {
    fn amplification(&self, spent: &Spent) -> f64 {
        spent.written_bytes as f64 / self.bytes.max(1) as f64
    }

    fn device_amplification(&self, spent: &Spent) -> f64 {
        spent.device_bytes as f64 / self.bytes.max(1) as f64
    }

    fn report(&mut self, line: &mut Line, spent: &Spent) {
        line.put("objects_written", self.objects);
        line.put("batches", self.commits.len());
        line.number("record_bytes_each", self.bytes as f64 / self.objects.max(1) as f64);
        line.spent(spent, self.objects);
        line.number("written_per_byte", self.amplification(spent));
        line.percentiles("commit_ms", &mut self.commits, MS);
    }
}

impl Workload<'_> {
    pub(crate) fn load(&mut self) -> Result<()> {
        let (begin, mut tally, batch_objects) =
            (Counts::now(&self.args.directory), Tally::default(), self.args.batch_objects);
        let mut next = 0;
        while next < self.args.objects {
            let end = self.args.objects.min(next + batch_objects);
            let batch = self.new_objects(next..end);
            self.commit(batch, &mut tally)?;
            next = end;
        }
        self.finish(Phase::Load, tally, begin)
    }

    pub(crate) fn load_sorted(&mut self) -> Result<()> {
        let (begin, mut tally, batch_objects) =
            (Counts::now(&self.args.directory), Tally::default(), self.args.batch_objects);
        let mut order: Vec<(u32, u32, u64)> = (0..self.args.objects)
            .map(|object| {
                let name = records::name_of(object);
                (name.pg(64).seed, name.bitwise_key(), object)
            })
            .collect();
        order.sort_unstable();
        for part in order.chunks(usize::try_from(batch_objects)?) {
            let mut batch = Batch::default();
            for (_, _, object) in part {
                let name = records::name_of(*object);
                batch.put(records::name_key(&name), records::name_value(*object, &name));
            }
            self.commit(batch, &mut tally)?;
        }
        drop(order);
        let mut next = 0;
        while next < self.args.objects {
            let end = self.args.objects.min(next + batch_objects);
            let mut batch = Batch::default();
            (next..end).for_each(|object| self.put_object(&mut batch, object));
            self.commit(batch, &mut tally)?;
            next = end;
        }
        self.finish(Phase::LoadSorted, tally, begin)
    }

    pub(crate) fn overwrite(&mut self) -> Result<()> {
        let (begin, mut tally) = (Counts::now(&self.args.directory), Tally::default());
        let end = Instant::now() + self.args.length;
        while Instant::now() < end {
            let batch = self.changed_objects();
            self.commit(batch, &mut tally)?;
        }
        self.finish(Phase::Overwrite, tally, begin)
    }

    /// Batches until the process is killed.
    pub(crate) fn churn(&mut self) -> Result<()> {
        for nth in 0_u64.. {
            let batch = self.changed_objects();
            self.commit(batch, &mut Tally::default())?;
            if nth == 0 {
                Line::new(self.args, Phase::Churn).print()?;
            }
        }
        Ok(())
    }

    fn commit(&mut self, batch: Batch, tally: &mut Tally) -> Result<()> {
        tally.objects += batch.objects;
        tally.bytes += batch.bytes;
        let begin = Instant::now();
        self.submit(batch.changes);
        self.wait()?;
        tally.commits.push(begin.elapsed());
        Ok(())
    }

    /// Says what the phase took, and what it took with the work that the store put off.
    fn finish(&mut self, phase: Phase, mut tally: Tally, begin: Counts) -> Result<()> {
        let mut line = Line::new(self.args, phase);
        let spent = begin.spent(&self.args.directory);
        tally.report(&mut line, &spent);
        let is_settled = self.settle()?;
        let spent = begin.spent(&self.args.directory);
        line.put("settled", is_settled);
        line.number("settled_cpu_us_each", spent.cpu.as_secs_f64() * 1e6 / tally.objects.max(1) as f64);
        line.number("settled_written_per_byte", tally.amplification(&spent));
        line.number("settled_device_per_byte", tally.device_amplification(&spent));
        line.number("settled_wall_s", spent.wall.as_secs_f64());
        line.put("memory_max_mib", self.memory.take_mib());
        line.number("disk_bytes_each", disk_bytes(&self.args.directory) as f64 / self.args.objects as f64);
        line.print()?;
        Ok(())
    }

    /// Waits until the store writes nothing any more; false when it did not stop in time.
    fn settle(&mut self) -> Result<bool> {
        let begin = Instant::now();
        let mut quiet = (Instant::now(), Counts::now(&self.args.directory));
        while begin.elapsed() < SETTLED_WITHIN {
            self.is_committed()?;
            std::thread::sleep(20 * MS);
            if quiet.1.spent(&self.args.directory).written_bytes > 0 {
                quiet = (Instant::now(), Counts::now(&self.args.directory));
            } else if quiet.0.elapsed() > QUIET {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
