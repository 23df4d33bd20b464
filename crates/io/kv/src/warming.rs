//! [`Warmer`]: reads keys of a store's file in the background, so that whoever asks for them next need not wait for the device. [`Waits`]
//! knows whether that pays: out of memory, the system's as well, a look takes 3 to 10 us, and two switches of threads take as long.
//!
//! ```text
//!  commits of the file   n |                       | n + 1
//!  a thread                |  reads, as of n       |
//!  who asked               |     taken: still n    |   not taken: he looks himself
//! ```

use crate::background::Background;
use crate::{Follow, KvCompletion, KvError, KvTag, Warmed};
use bytes::Bytes;
use nacre_env::real::waited_reads;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Looks that wait for the device at a time, at most.
const THREADS: usize = 4;
/// Looks after which it is decided anew whether many do.
const LOOKS: u32 = 1000;
/// Of them, as many as are many.
const WAITED_MIN: u32 = LOOKS / 100;

/// How often looks at one key wait for the device, by all threads' looks of late. Scans do not count, which wait for many pages at once.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    looks: AtomicU32,
    waited: AtomicU32,
    are_frequent: AtomicBool,
}

impl Waits {
    /// Takes note of a look.
    pub(crate) fn noted<R>(&self, look: impl FnOnce() -> R) -> R {
        let before = waited_reads();
        let found = look();
        self.note(waited_reads() > before);
        found
    }

    /// Counts of threads that look at the same time may be off by a few.
    fn note(&self, has_waited: bool) {
        if has_waited && self.waited.fetch_add(1, Ordering::Relaxed) + 1 >= WAITED_MIN {
            self.are_frequent.store(true, Ordering::Relaxed);
        }
        // One thread sees that; others may have looked since, and are not counted.
        if self.looks.fetch_add(1, Ordering::Relaxed) + 1 == LOOKS {
            self.looks.store(0, Ordering::Relaxed);
            let waited = self.waited.swap(0, Ordering::Relaxed);
            self.are_frequent.store(waited >= WAITED_MIN, Ordering::Relaxed);
        }
    }

    pub(crate) fn are_frequent(&self) -> bool {
        self.are_frequent.load(Ordering::Relaxed)
    }
}

/// Keys to be read, and what names another one by what is found.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) keys: Vec<Bytes>,
    pub(crate) follow: Option<Follow>,
}

impl Wanted {
    /// What `get` gives for the keys, and for those that they lead to.
    pub(crate) fn read<E>(
        &self,
        get: impl Fn(&[u8]) -> Result<Option<Bytes>, E>,
    ) -> Result<Vec<(Bytes, Option<Bytes>)>, E> {
        let mut pairs = Vec::new();
        for key in &self.keys {
            let value = get(key)?;
            let next = value.as_deref().zip(self.follow).and_then(|(value, follow)| follow(value));
            pairs.push((key.clone(), value));
            if let Some(next) = next {
                let value = get(&next)?;
                pairs.push((next, value));
            }
        }
        Ok(pairs)
    }
}

/// What was read for them.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) pairs: Vec<(Bytes, Option<Bytes>)>,
    /// Commits that had ended before it was read: with the next one it may be something else.
    pub(crate) commits: u64,
}

impl Found {
    /// What of it is certain where so many commits have ended: all or nothing.
    pub(crate) fn warmed(self, tag: KvTag, commits: u64) -> Warmed {
        let found = if self.commits == commits { self.pairs } else { Vec::new() };
        Warmed { tag, found }
    }
}

/// Owns the threads that read, and what they have read and nobody has asked for yet.
pub(crate) struct Warmer {
    background: Background<Wanted, Found>,
    done: Vec<KvCompletion<Found>>,
}

impl Warmer {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { background: Background::with_threads("kv-read", THREADS)?, done: Vec::new() })
    }

    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.background.wake_fd()
    }

    /// Has keys read by what `touch` gives, which is for one thread.
    pub(crate) fn warm<F>(&mut self, wanted: Wanted, tag: KvTag, touch: impl FnOnce() -> F)
    where
        F: Fn(&Wanted) -> Result<Found, KvError> + Send + 'static,
    {
        self.background.submit(wanted, tag, touch);
    }

    /// What has been read, in no order, where so many commits have ended. Nothing is found by one that failed: whoever asks for that key is
    /// told.
    pub(crate) fn drain(&mut self, commits: u64, out: &mut Vec<Warmed>) {
        self.background.drain(&mut self.done);
        let done = self.done.drain(..).map(|KvCompletion { tag, result }| match result {
            Ok(found) => found.warmed(tag, commits),
            Err(_) => Warmed { tag, found: Vec::new() },
        });
        out.extend(done);
    }

    /// As [`Background::give_back`].
    pub(crate) fn give_back(&self, give_back: fn()) {
        self.background.give_back(give_back);
    }

    /// Lets what was asked for be read; more begins threads anew.
    pub(crate) fn end_threads(&mut self) {
        self.background.end_threads();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(waits: &Waits, looks: u32, have_waited: bool) {
        (0..looks).for_each(|_| waits.note(have_waited));
    }

    #[test]
    fn one_of_a_hundred_looks_that_waits_is_often_enough() {
        let waits = Waits::default();
        note(&waits, 5 * LOOKS, false);
        note(&waits, WAITED_MIN - 1, true);
        assert!(!waits.are_frequent());
        note(&waits, 1, true);
        assert!(waits.are_frequent(), "without waiting for the others");
        note(&waits, 2 * LOOKS, false);
        assert!(!waits.are_frequent());
        for _ in 0..5 * LOOKS / 50 {
            note(&waits, 49, false);
            note(&waits, 1, true);
        }
        assert!(waits.are_frequent(), "two of a hundred");
    }
}
