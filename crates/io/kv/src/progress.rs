//! [`Progress`]: how far the commit under way has come.
//!
//! A commit first puts its changes into the tree, page by page, and then writes the pages that are still in memory. How its
//! time divides between the two, and how much it then writes for each change, is taken from the commit before it.

use crate::COMMITTED;
use crate::background::Shared;
use crate::pauses::Pauses;
use nacre_env::{Clock, RealClock};
use nacre_types::Stamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Share of the changes in the time of the first commit.
const CHANGES_SHARE: u64 = COMMITTED / 2;
const BYTES_PER_CHANGE: u64 = 4 << 10;

/// Written by the thread that commits, seen by others: nothing depends on it but how fast somebody goes.
pub(crate) struct Progress {
    clock: RealClock,
    shared: Arc<Shared>,
    /// Somebody wants to know when it has come so far, of [`COMMITTED`]; more than that when nobody does.
    rouse_at: AtomicU64,
    /// Changes of the commit.
    changes: AtomicU64,
    /// Those that are in the tree.
    done: AtomicU64,
    /// Bytes to be written after that, and those that are.
    bytes: AtomicU64,
    written: AtomicU64,
    pauses: Pauses,
    /// Nanoseconds of the commit in which nothing was done, since nobody waited.
    paused: AtomicU64,
    /// Of [`COMMITTED`].
    changes_share: AtomicU64,
    bytes_per_change: AtomicU64,
}

/// A commit under way.
#[derive(Debug)]
pub(crate) struct Begun {
    changes: u64,
    begin: Stamp,
    /// Nanoseconds that it took to put the changes into the tree.
    tree_nanos: u64,
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress").field("so_far", &self.so_far()).finish_non_exhaustive()
    }
}

fn get(figure: &AtomicU64) -> u64 {
    figure.load(Ordering::Relaxed)
}

fn set(figure: &AtomicU64, value: u64) {
    figure.store(value, Ordering::Relaxed);
}

impl Progress {
    /// Of whose commits that is seen by.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            clock: RealClock::start(),
            shared,
            rouse_at: AtomicU64::new(u64::MAX),
            changes: AtomicU64::new(0),
            done: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            written: AtomicU64::new(0),
            pauses: Pauses::new(),
            paused: AtomicU64::new(0),
            changes_share: AtomicU64::new(CHANGES_SHARE),
            bytes_per_change: AtomicU64::new(BYTES_PER_CHANGE),
        }
    }

    /// Wakes the waiting thread, once, when so much is done.
    pub(crate) fn rouse_at(&self, progress: u64) {
        set(&self.rouse_at, progress);
    }

    fn came_on(&self) {
        if get(&self.rouse_at) <= COMMITTED && self.so_far() >= get(&self.rouse_at) {
            set(&self.rouse_at, u64::MAX);
            self.shared.rouse();
        }
    }

    /// A batch is to be committed, the only one.
    pub(crate) fn reset(&self) {
        set(&self.done, 0);
        set(&self.bytes, 0);
    }

    /// A commit of so many changes begins.
    pub(crate) fn begin(&self, changes: usize) -> Begun {
        self.reset();
        let (changes, now) = (changes as u64, self.clock.now());
        set(&self.changes, changes);
        set(&self.paused, 0);
        Begun { changes, begin: now, tree_nanos: 0 }
    }

    /// Whether somebody waits for the commit: [`Pauses::set_hurried`].
    pub(crate) fn set_hurried(&self, hurried: bool) {
        self.pauses.set_hurried(hurried);
    }

    /// Does what has the device work, and pauses after it: [`Pauses::after`].
    pub(crate) fn pausing_after<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.paused.fetch_add(self.pauses.after(work)?, Ordering::Relaxed);
        Ok(())
    }

    /// Nanoseconds of the last commit in which nothing was done.
    #[cfg(test)]
    pub(crate) fn paused_nanos(&self) -> u64 {
        get(&self.paused)
    }

    /// Nanoseconds since the commit began, without pauses.
    fn worked(&self, begun: &Begun) -> u64 {
        self.clock.now().nanos_since(begun.begin).saturating_sub(get(&self.paused))
    }

    /// One more change is in the tree.
    pub(crate) fn changed(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.came_on();
    }

    /// All of them are.
    pub(crate) fn in_tree(&self, begun: &mut Begun) {
        begun.tree_nanos = self.worked(begun);
        set(&self.written, 0);
        set(&self.bytes, (get(&self.bytes_per_change) * begun.changes).max(1));
    }

    /// So many bytes go to the file.
    pub(crate) fn wrote(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        self.came_on();
    }

    /// The commit is durable: the next one will be like it.
    pub(crate) fn end(&self, begun: &Begun) {
        let share = begun.tree_nanos.saturating_mul(COMMITTED) / self.worked(begun).max(1);
        set(&self.changes_share, share.min(COMMITTED));
        set(&self.bytes_per_change, get(&self.written) / begun.changes.max(1));
    }

    /// Of [`COMMITTED`].
    pub(crate) fn so_far(&self) -> u64 {
        let part = |done: u64, all: u64| done.min(all) * COMMITTED / all.max(1);
        let share = get(&self.changes_share);
        match get(&self.bytes) {
            0 => share * part(get(&self.done), get(&self.changes)) / COMMITTED,
            bytes => share + (COMMITTED - share) * part(get(&self.written), bytes) / COMMITTED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::Background;
    use crate::{KvBatch, KvError, KvTag};

    #[test]
    fn changes_and_then_bytes_count() {
        let background = Background::new().expect("a descriptor");
        let progress = Progress::new(background.shared());
        let mut begun = progress.begin(10);
        assert_eq!(progress.so_far(), 0);
        (0..5).for_each(|_| progress.changed());
        progress.wrote(1 << 30);
        assert_eq!(progress.so_far(), CHANGES_SHARE / 2);
        (0..5).for_each(|_| progress.changed());
        progress.in_tree(&mut begun);
        assert_eq!(progress.so_far(), CHANGES_SHARE, "what was written before is not counted");
        progress.wrote(5 * BYTES_PER_CHANGE as usize);
        assert_eq!(progress.so_far(), CHANGES_SHARE + (COMMITTED - CHANGES_SHARE) / 2);
        progress.end(&begun);
        assert_eq!(get(&progress.bytes_per_change), BYTES_PER_CHANGE / 2, "as this one had it");
        let mut begun = progress.begin(0);
        progress.in_tree(&mut begun);
        progress.wrote(1);
        assert_eq!(progress.so_far(), COMMITTED);
    }

    #[test]
    fn who_waits_for_a_commit_is_roused_on_its_way() {
        let mut background = Background::new().expect("a descriptor");
        let progress = Arc::new(Progress::new(background.shared()));
        let (go_on, may_go_on) = std::sync::mpsc::channel();
        progress.rouse_at(CHANGES_SHARE / 2);
        background.submit(KvBatch::default(), KvTag(1), || {
            move |_: &KvBatch| {
                let _begun = progress.begin(2);
                progress.changed();
                may_go_on.recv().map_err(|_| KvError::Fenced)
            }
        });
        let mut finished = Vec::new();
        background.wait();
        background.drain(&mut finished);
        assert!(finished.is_empty());
        go_on.send(()).expect("the other side is there");
        background.wait();
        background.drain(&mut finished);
        assert!(finished.iter().all(|completion| completion.result.is_ok()) && finished.len() == 1);
    }
}
