//! The search for the first binary that is slower, among those in order: pure, driven by what is found about one at a time.

use std::collections::BTreeMap;

/// What is known of one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Slower,
    NotSlower,
    CannotTell,
}

/// Candidates by their place in the order; the first is not slower than itself.
#[derive(Debug)]
pub(crate) struct Search {
    found: BTreeMap<usize, Outcome>,
    last: usize,
}

/// What the search came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing was found out about the last one, or it is not slower.
    NothingToFind(Outcome),
    /// This one is slower, and that before it is not.
    First(usize),
    /// The first that is slower is one of these; of those before the last of them nothing could be told.
    Among(usize, usize),
}

impl Search {
    /// Among `count` binaries, at least two.
    pub(crate) fn new(count: usize) -> Self {
        Self { found: BTreeMap::from([(0, Outcome::NotSlower)]), last: count.saturating_sub(1) }
    }

    /// How many candidates are tried at most where each can be told.
    pub(crate) fn tries_max(&self) -> usize {
        1 + (self.last.max(1)).next_power_of_two().ilog2() as usize
    }

    /// The next candidate to try: the last one first, then what is nearest to the middle between those that are known.
    pub(crate) fn next(&self) -> Option<usize> {
        match self.found.get(&self.last) {
            None => return Some(self.last),
            Some(Outcome::Slower) => (),
            Some(_) => return None,
        }
        let (low, high) = self.bounds();
        let middle = usize::midpoint(low, high);
        let untried = (low + 1..high).filter(|nth| !self.found.contains_key(nth));
        untried.min_by_key(|nth| nth.abs_diff(middle))
    }

    /// What was found about a candidate.
    pub(crate) fn add(&mut self, candidate: usize, outcome: Outcome) {
        self.found.insert(candidate, outcome);
    }

    /// When there is no next one.
    pub(crate) fn answer(&self) -> Answer {
        match self.found.get(&self.last).copied().unwrap_or(Outcome::CannotTell) {
            Outcome::Slower => (),
            other => return Answer::NothingToFind(other),
        }
        let (low, high) = self.bounds();
        if high - low == 1 { Answer::First(high) } else { Answer::Among(low + 1, high) }
    }

    /// The last that is not slower below the first that is.
    fn bounds(&self) -> (usize, usize) {
        let known =
            |wanted| self.found.iter().filter(move |(_, found)| **found == wanted).map(|(nth, _)| *nth);
        let high = known(Outcome::Slower).min().unwrap_or(self.last);
        (known(Outcome::NotSlower).filter(|nth| *nth < high).max().unwrap_or(0), high)
    }
}
