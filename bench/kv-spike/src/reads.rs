//! Phases that read: single keys, with and without commits beside them, and listing.

use crate::args::Phase;
use crate::meter::Counts;
use crate::records;
use crate::report::Line;
use crate::workload::Workload;
use anyhow::{Result, ensure};
use bytes::Bytes;
use nacre_types::Entropy;
use std::ops::Bound;
use std::time::{Duration, Instant};

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);
/// For filling the store's caches at most.
const WARMS: Duration = Duration::from_secs(25);
const READS_MAX: usize = 300_000;
const PAIRS_MAX: u64 = 2_000_000;
/// That a listing reads at once.
const PAIRS_AT_ONCE: usize = 1024;

impl Workload<'_> {
    pub(crate) fn read(&mut self) -> Result<()> {
        self.warm()?;
        let (begin, mut times) = (Counts::now(&self.args.directory), Vec::new());
        let end = Instant::now() + self.args.length;
        while Instant::now() < end && times.len() < READS_MAX {
            times.push(self.read_one()?);
        }
        let mut line = Line::new(self.args, Phase::Read);
        line.put("reads", times.len());
        line.spent(&begin.spent(&self.args.directory), times.len() as u64);
        line.percentiles("read_us", &mut times, US);
        line.put("memory_max_mib", self.memory.take_mib());
        Ok(line.print()?)
    }

    pub(crate) fn mixed(&mut self) -> Result<()> {
        let (begin, mut times, mut commits) = (Counts::now(&self.args.directory), Vec::new(), Vec::new());
        let end = Instant::now() + self.args.length;
        let mut objects = 0;
        while Instant::now() < end {
            let batch = self.changed_objects();
            objects += batch.objects;
            let submitted = Instant::now();
            self.submit(batch.changes);
            while !self.is_committed()? {
                times.push(self.read_one()?);
            }
            commits.push(submitted.elapsed());
        }
        let mut line = Line::new(self.args, Phase::Mixed);
        line.put("reads", times.len());
        line.put("objects_written", objects);
        line.spent(&begin.spent(&self.args.directory), times.len() as u64);
        line.percentiles("read_us", &mut times, US);
        line.percentiles("commit_ms", &mut commits, MS);
        line.put("memory_max_mib", self.memory.take_mib());
        Ok(line.print()?)
    }

    /// Fills the store's own caches, as far as they go: writing did it for some engines and not for others.
    fn warm(&mut self) -> Result<()> {
        let end = Instant::now() + WARMS;
        let mut last: Option<Bytes> = None;
        while Instant::now() < end {
            let start = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let found = self.store.scan(start, Bound::Unbounded, PAIRS_AT_ONCE)?;
            last = found.into_iter().next_back().map(|(key, _)| key);
            if last.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Reads the onode or the name of an object anywhere.
    fn read_one(&mut self) -> Result<Duration> {
        let object = self.random.u64() % self.args.objects;
        let key = if self.random.u64().is_multiple_of(2) {
            records::onode_key(object)
        } else {
            records::name_key(&records::name_of(object))
        };
        let begin = Instant::now();
        let found = self.store.get(&key)?;
        let took = begin.elapsed();
        ensure!(found.is_some(), "object {object} is not there");
        Ok(took)
    }

    pub(crate) fn scan(&mut self) -> Result<()> {
        let (begin, mut pairs, mut times) = (Counts::now(&self.args.directory), 0_u64, Vec::new());
        let (names, behind) = ([records::NAMES], [records::NAMES + 1]);
        let end = Instant::now() + self.args.length;
        let mut last = None;
        while Instant::now() < end && pairs < PAIRS_MAX {
            let start = last.as_deref().map_or(Bound::Included(&names[..]), Bound::Excluded);
            let asked = Instant::now();
            let found = self.store.scan(start, Bound::Excluded(&behind), PAIRS_AT_ONCE)?;
            times.push(asked.elapsed());
            pairs += found.len() as u64;
            let is_last = found.len() < PAIRS_AT_ONCE;
            last = found.into_iter().next_back().map(|(key, _)| key);
            if is_last {
                break;
            }
        }
        let mut line = Line::new(self.args, Phase::Scan);
        line.put("pairs", pairs);
        let spent = begin.spent(&self.args.directory);
        line.spent(&spent, pairs);
        line.number("wall_us_each", spent.wall.as_secs_f64() * 1e6 / pairs.max(1) as f64);
        line.percentiles("scan_of_1024_ms", &mut times, MS);
        line.put("memory_max_mib", self.memory.take_mib());
        Ok(line.print()?)
    }
}
