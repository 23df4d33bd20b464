//! [`StageSums`]: what the stage clock has counted, for managers and metrics. Stages of a message add up to its time from arrival to answer, so
//! the sums of `osd-stages.op_w_*` add up to that of `osd.op_w_latency`, and those of reads likewise.

/// Names of the stages, in their order.
pub(crate) const STAGES: [&str; 5] = ["dispatched", "executed", "logged", "replicated", "replied"];

/// Places in [`STAGES`].
pub(crate) mod stage {
    pub(crate) const DISPATCHED: usize = 0;
    pub(crate) const EXECUTED: usize = 1;
    pub(crate) const LOGGED: usize = 2;
    pub(crate) const REPLICATED: usize = 3;
    pub(crate) const REPLIED: usize = 4;
}

/// How many messages were answered, and the nanoseconds that they spent in each stage.
type Sums = (u64, [u64; STAGES.len()]);

/// What one shard has counted since its start, or all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StageSums {
    pub(crate) reads: Sums,
    pub(crate) writes: Sums,
}

fn add((count, ns): Sums, (more, spent): Sums) -> Sums {
    (count + more, std::array::from_fn(|stage| ns[stage] + spent[stage]))
}

impl StageSums {
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self { reads: add(self.reads, other.reads), writes: add(self.writes, other.writes) }
    }

    /// Nanoseconds that reads spent in a stage, and of how many.
    pub(crate) const fn read(&self, stage: usize) -> (u64, u64) {
        (self.reads.1[stage], self.reads.0)
    }

    /// The same of writes.
    pub(crate) const fn write(&self, stage: usize) -> (u64, u64) {
        (self.writes.1[stage], self.writes.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_names() {
        let places = [stage::DISPATCHED, stage::EXECUTED, stage::LOGGED, stage::REPLICATED, stage::REPLIED];
        assert_eq!(places.map(|place| STAGES[place]), STAGES);
        let sums = StageSums { reads: (2, [1, 2, 0, 0, 3]), writes: (4, [10, 20, 30, 40, 50]) };
        let both = sums.plus(&sums);
        assert_eq!((both.read(stage::EXECUTED), both.write(stage::REPLIED)), ((4, 4), (100, 8)));
    }
}
