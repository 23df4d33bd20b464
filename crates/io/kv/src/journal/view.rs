//! [`View`]: what the journal has on top of the store below, and [`Cursor`], which reads both as one.

use crate::journal::filter::KeyHash;
use crate::journal::run::Run;
use crate::memory::is_empty;
use crate::reader::{KvReader, fill};
use crate::{KvError, Pair};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// What was changed and is not in the store below, or not yet for certain.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// Of the half of the journal that is written; the newest last, each at least twice as long as the next.
    pub(crate) active: Vec<Arc<Run>>,
    /// Of the other half, which is being merged into the store below.
    pub(crate) frozen: Option<Arc<Run>>,
}

impl View {
    fn newest_first(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.active.iter().rev().chain(&self.frozen)
    }

    /// The same with one more batch.
    pub(crate) fn with(&self, newest: Run) -> Self {
        let (mut active, mut newest) = (self.active.clone(), newest);
        while let Some(older) = active.pop_if(|older| older.len() < 2 * newest.len() + 2) {
            newest = newest.over(&older);
        }
        active.push(Arc::new(newest));
        Self { active, frozen: self.frozen.clone() }
    }

    /// All of the active half as one run.
    pub(crate) fn active_as_one(&self) -> Arc<Run> {
        let mut runs = self.active.iter().rev().cloned();
        let newest = runs.next().unwrap_or_default();
        runs.fold(newest, |newer, older| Arc::new(newer.over(&older)))
    }

    /// What was made of a key, as a part of its record; `None` when the store below knows.
    fn newest(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let hash = KeyHash::of(key);
        self.newest_first().find_map(|run| run.find(key, hash).or_else(|| run.hides(key).then_some(None)))
    }

    /// What was made of a key; `None` when the store below knows. The value keeps nothing of the journal in memory: a record may be of
    /// megabytes, and whoever asks keeps what is found for as long as it likes.
    pub(crate) fn find(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.newest(key).map(|found| found.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// Whether it need not ask the store below for a key.
    pub(crate) fn knows(&self, key: &[u8]) -> bool {
        self.newest(key).is_some()
    }

    /// Bytes of keys and values.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.newest_first().map(|run| run.content_bytes()).sum()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.newest_first().map(|run| run.memory_bytes()).sum()
    }
}

struct Source {
    run: Arc<Run>,
    next: usize,
    end: usize,
}

/// Pairs of a view and of a store below it, in ascending order.
pub(crate) struct Cursor {
    /// The newest first.
    sources: Vec<Source>,
    below: VecDeque<Pair>,
    is_below_at_end: bool,
    /// A key of the store below that is not the user's.
    reserved: &'static [u8],
}

impl Cursor {
    pub(crate) fn new(view: &View, start: Bound<&[u8]>, end: Bound<&[u8]>, reserved: &'static [u8]) -> Self {
        let source = |run: &Arc<Run>| {
            let next = match start {
                Bound::Included(key) => run.rank(key, false),
                Bound::Excluded(key) => run.rank(key, true),
                Bound::Unbounded => 0,
            };
            let end = match end {
                Bound::Included(key) => run.rank(key, true),
                Bound::Excluded(key) => run.rank(key, false),
                Bound::Unbounded => run.len(),
            };
            Source { run: Arc::clone(run), next, end }
        };
        let is_nothing = is_empty(start, end);
        let sources = if is_nothing { Vec::new() } else { view.newest_first().map(source).collect() };
        Self { sources, below: VecDeque::new(), is_below_at_end: is_nothing, reserved }
    }

    /// The next pair; `more` gives the next ones of the store below, none at its end.
    pub(crate) fn next(
        &mut self,
        mut more: impl FnMut() -> Result<Vec<Pair>, KvError>,
    ) -> Result<Option<Pair>, KvError> {
        loop {
            if self.below.is_empty() && !self.is_below_at_end {
                self.below = more()?.into();
                self.is_below_at_end = self.below.is_empty();
            }
            let changed = match (self.least_change(), self.below.front()) {
                (None, None) => return Ok(None),
                (None, Some(_)) => None,
                (Some((nth, key)), Some((below, _))) if key <= below.as_ref() => Some(nth),
                (Some((nth, _)), None) => Some(nth),
                (Some(_), Some(_)) => None,
            };
            let pair = match changed {
                Some(nth) => self.take_change(nth),
                None => self.take_below(),
            };
            if pair.is_some() {
                return Ok(pair);
            }
        }
    }

    /// The least key that any run changes, and the newest one of those that do.
    fn least_change(&self) -> Option<(usize, &[u8])> {
        let keys = self.sources.iter().enumerate().filter_map(|(nth, source)| {
            let key = (source.next < source.end).then(|| source.run.key_at(source.next)).flatten()?;
            Some((key, nth))
        });
        keys.min().map(|(key, nth)| (nth, key))
    }

    fn take_change(&mut self, nth: usize) -> Option<Pair> {
        let source = self.sources.get(nth)?;
        let (key, value) = source.run.change_at(source.next)?;
        for source in &mut self.sources {
            let is_there = source.next < source.end && source.run.key_at(source.next) == Some(key.as_ref());
            source.next += usize::from(is_there);
        }
        if self.below.front().is_some_and(|(below, _)| *below == key) {
            self.below.pop_front();
        }
        let is_hidden = self.sources.iter().take(nth).any(|newer| newer.run.hides(&key));
        // Copies, as in `View::find`.
        let copied = |value: Bytes| (Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value));
        value.filter(|_| !is_hidden).map(copied)
    }

    fn take_below(&mut self) -> Option<Pair> {
        let pair = self.below.pop_front()?;
        let is_hidden =
            pair.0 == self.reserved || self.sources.iter().any(|source| source.run.hides(&pair.0));
        (!is_hidden).then_some(pair)
    }
}

/// Reads what was there at one moment, whatever has been merged since.
pub(crate) struct Reader {
    pub(crate) cursor: Cursor,
    pub(crate) below: Box<dyn KvReader + Send>,
}

/// Bytes that a reader takes from the store below at a time.
const PART_BYTES: usize = 64 << 10;

impl KvReader for Reader {
    fn read(&mut self, bytes: usize) -> Result<Vec<Pair>, KvError> {
        let Self { cursor, below } = self;
        fill(bytes, || cursor.next(|| below.read(PART_BYTES)))
    }
}
