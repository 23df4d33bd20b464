//! [`PageSet`]: pages of an object, as runs of their numbers. An object of an image has one run, however large it is.

use nacre_denc::DecodeError;

/// Pages whose numbers follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageRun {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl PageRun {
    /// The number behind the last one.
    pub(crate) const fn end(self) -> u32 {
        self.first + self.count
    }
}

/// Runs ascend and do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageSet(Vec<PageRun>);

impl PageSet {
    /// Of runs that were read: of pages from `first` on and before `end`.
    pub(crate) fn read(runs: Vec<PageRun>, first: u32, end: u32) -> Result<Self, DecodeError> {
        let mut behind = first;
        for run in &runs {
            let next = run.first.checked_add(run.count).filter(|next| *next <= end);
            let (Some(next), true) = (next, run.first >= behind && run.count > 0) else {
                return Err(DecodeError::Invalid { what: "run of pages", value: run.first.into() });
            };
            behind = next;
        }
        Ok(Self(runs))
    }

    /// The runs, ascending.
    pub(crate) fn runs(&self) -> &[PageRun] {
        &self.0
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|run| run.first..run.end())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The place of the run that has the page, or that of the first one behind it.
    fn find(&self, page: u32) -> Result<usize, usize> {
        let at = self.0.partition_point(|run| run.end() <= page);
        match self.0.get(at) {
            Some(run) if run.first <= page => Ok(at),
            _ => Err(at),
        }
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        self.find(page).is_ok()
    }

    pub(crate) fn insert(&mut self, page: u32) {
        let Err(at) = self.find(page) else { return };
        let follows = |run: &PageRun| run.end() == page;
        let before = at.checked_sub(1).filter(|before| self.0.get(*before).is_some_and(follows));
        let behind = self.0.get(at).copied().filter(|run| run.first == page + 1);
        let first = before.and_then(|before| self.0.get(before)).map_or(page, |run| run.first);
        let end = behind.map_or(page + 1, PageRun::end);
        let replaced = before.unwrap_or(at)..at + usize::from(behind.is_some());
        self.0.splice(replaced, [PageRun { first, count: end - first }]);
    }

    pub(crate) fn remove(&mut self, page: u32) {
        let Ok(at) = self.find(page) else { return };
        let Some(run) = self.0.get(at).copied() else { return };
        let before = PageRun { first: run.first, count: page - run.first };
        let behind = PageRun { first: page + 1, count: run.end() - page - 1 };
        self.0.splice(at..=at, [before, behind].into_iter().filter(|run| run.count > 0));
    }

    /// Those from `first` to `last`.
    pub(crate) fn between(&self, first: u32, last: u32) -> Self {
        if first > last {
            return Self::default();
        }
        let from = self.0.partition_point(|run| run.end() <= first);
        let runs = self.0.iter().skip(from).take_while(|run| run.first <= last);
        let part = runs.map(|run| {
            let (first, end) = (run.first.max(first), run.end().min(last.saturating_add(1)));
            PageRun { first, count: end - first }
        });
        Self(part.collect())
    }

    /// About the bytes of memory that it takes beside itself.
    pub(crate) const fn bytes(&self) -> usize {
        self.0.len() * size_of::<PageRun>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn is_a_set_of_few_runs() {
        let (mut set, mut model, mut seed) = (PageSet::default(), BTreeSet::new(), 5_u32);
        let mut next = |bound: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % bound
        };
        for _ in 0..4000 {
            let page = 1 + next(60);
            if next(3) == 0 {
                set.remove(page);
                model.remove(&page);
            } else {
                set.insert(page);
                model.insert(page);
            }
            assert!(set.numbers().eq(model.iter().copied()));
            assert!(
                set.runs().windows(2).all(|pair| pair[0].end() < pair[1].first),
                "neighbours are one run"
            );
            let (first, last) = (next(64), next(64));
            let part = set.between(first, last);
            assert!(part.numbers().eq((first..=last).filter(|page| model.contains(page))));
            assert_eq!(set.contains(first), model.contains(&first));
            assert_eq!(PageSet::read(set.runs().to_vec(), 1, 61), Ok(set.clone()));
        }
    }

    #[test]
    fn runs_that_nobody_wrote_are_refused() {
        let run = |first, count| PageRun { first, count };
        for runs in [
            vec![run(0, 1)],
            vec![run(1, 0)],
            vec![run(3, 2), run(4, 1)],
            vec![run(3, 1), run(1, 1)],
            vec![run(9, 2)],
            vec![run(5, u32::MAX)],
        ] {
            assert!(PageSet::read(runs.clone(), 1, 10).is_err(), "{runs:?}");
        }
        assert!(PageSet::read(vec![run(1, 3), run(4, 6)], 1, 10).is_ok());
    }
}
