//! [`RedbKv`]: the store in one redb file, committed by a thread of its own.

use crate::add_sums::{add_sums, sync_parent};
use crate::background::Background;
use crate::memory::is_empty;
use crate::paced::PacedFile;
use crate::place::Place;
use crate::progress::Progress;
use crate::reader::{KvReader, fill};
use crate::space::Space;
use crate::sums::Summed;
use crate::turn::Turn;
use crate::warming::{Found, Waits, Wanted, Warmer};
use crate::write_back::WriteBack;
use crate::{
    Durability, Follow, KvBatch, KvCompletion, KvError, KvStore, KvTag, Pair, Warmed, check, end_of_prefix,
};
use bytes::Bytes;
use nacre_env::{File, FileRoom};
use redb::{Database, ReadOnlyTable, ReadableDatabase, TableDefinition};
use std::cell::RefCell;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("kv");

/// The table as of one commit.
type Snapshot = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// What a change costs beside its value, as if it were so many bytes more.
const OP_COST_BYTES: usize = 2 << 10;

/// Memory for pages of the file, unless somebody asks for more or less.
const CACHE_BYTES: usize = 16 << 20;

/// Pages in memory that are worth opening the file anew.
const REST_BYTES_MIN: usize = 8 << 20;

/// A store in one file. Submitted batches are committed by a thread of its own, in a way that makes the next opening
/// quick even after a kill and however large the file is.
pub struct RedbKv {
    /// What reads look at, until something newer is there: to open the table takes longer than most reads of it.
    snapshot: RefCell<Option<Snapshot>>,
    core: Arc<Core>,
    background: Background,
    warmer: Warmer,
    /// Every reader holds one more: the file cannot be opened anew meanwhile.
    readers: Arc<()>,
}

impl std::fmt::Debug for RedbKv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedbKv").finish_non_exhaustive()
    }
}

/// How a store uses memory and its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvOptions {
    /// Bytes of memory for pages of the file.
    pub cache_bytes: usize,
    /// Bytes of the file system that are kept for the store beside what it has: they are used when everything else is full, so
    /// that it can still delete, and be opened.
    pub reserve_bytes: u64,
}

impl Default for KvOptions {
    fn default() -> Self {
        Self { cache_bytes: CACHE_BYTES, reserve_bytes: 0 }
    }
}

/// What both threads use.
struct Core {
    place: Place,
    options: KvOptions,
    /// `None` when the file could not be opened anew.
    database: RwLock<Option<Opened>>,
    /// A commit failed: nothing is committed any more.
    fenced: AtomicBool,
    /// Whether the commit that fenced the store failed for lack of room.
    was_full: AtomicBool,
    progress: Arc<Progress>,
    waits: Waits,
    /// Commits that have ended, well or not.
    commits: AtomicU64,
}

impl RedbKv {
    /// Opens the store at `path`; an absent file becomes an empty store.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn open(path: &Path) -> Result<Self, KvError> {
        Self::open_with(path, KvOptions::default())
    }

    /// As [`RedbKv::open`], with other options.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn open_with(path: &Path, options: KvOptions) -> Result<Self, KvError> {
        add_sums(path)?;
        let store = Self::begin(Place::Path(path.to_owned()), options)?;
        sync_parent(path)?;
        store.with_table()
    }

    /// As [`RedbKv::open_with`], of a file that only what `through` gives can read, since it is encrypted say.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn open_through(
        path: &Path,
        through: impl Fn(Arc<dyn File>) -> Arc<dyn File> + Send + Sync + 'static,
        options: KvOptions,
    ) -> Result<Self, KvError> {
        let store = Self::begin(Place::Through(path.to_owned(), Box::new(through)), options)?;
        sync_parent(path)?;
        store.with_table()
    }

    /// Opens the store in the file that `open` gives, an empty one becomes an empty store: in a region of a device, and in tests.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn open_on(
        open: impl Fn() -> std::io::Result<Arc<dyn File>> + Send + Sync + 'static,
        options: KvOptions,
    ) -> Result<Self, KvError> {
        Self::begin(Place::Given(Box::new(open)), options)?.with_table()
    }

    fn begin(place: Place, options: KvOptions) -> Result<Self, KvError> {
        let background = Background::new()?;
        let progress = Arc::new(Progress::new(background.shared()));
        let opened = Opened::open(&place, options, Arc::clone(&progress))?;
        let database = RwLock::new(Some(opened));
        let (fenced, was_full) = (AtomicBool::new(false), AtomicBool::new(false));
        let (waits, commits) = (Waits::default(), AtomicU64::new(0));
        let core = Arc::new(Core { place, options, database, fenced, was_full, progress, waits, commits });
        let (snapshot, warmer) = (RefCell::default(), Warmer::new()?);
        Ok(Self { snapshot, core, background, warmer, readers: Arc::new(()) })
    }

    /// With its table, so that reads need not care whether it exists.
    fn with_table(mut self) -> Result<Self, KvError> {
        if !self.core.has_table()? {
            self.commit(&KvBatch::default(), Durability::Durable)?;
        }
        Ok(self)
    }

    /// Waits until no batch is left to be committed.
    fn settle(&self) {
        self.core.progress.set_hurried(true);
        self.background.settle();
    }

    fn with_snapshot<R>(&self, work: impl FnOnce(&Snapshot) -> Result<R, redb::Error>) -> Result<R, KvError> {
        let mut snapshot = self.snapshot.borrow_mut();
        let table = match &mut *snapshot {
            Some(table) => table,
            none => none.insert(self.core.snapshot().map_err(|error| self.core.explain(error))?),
        };
        work(table).map_err(|error| self.core.explain(error))
    }

    /// Whether what is read is compared with checksums of what was written. Only a file of an older program has none, while
    /// there is no room for the copy that has.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.core.database().as_ref().is_some_and(|opened| opened.summed.is_some())
    }

    /// Moves what the store at `path` holds to the front of its file and cuts the end off. Takes long; for tools.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn compact(path: &Path) -> Result<(), KvError> {
        // redb would take an absent file for an empty store to be made.
        std::fs::metadata(path)?;
        add_sums(path)?;
        Self::compact_at(&Place::Path(path.to_owned()))
    }

    /// The same of a file that only what `through` gives can read.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn compact_through(
        path: &Path,
        through: impl Fn(Arc<dyn File>) -> Arc<dyn File> + Send + Sync + 'static,
    ) -> Result<(), KvError> {
        std::fs::metadata(path)?;
        Self::compact_at(&Place::Through(path.to_owned(), Box::new(through)))
    }

    /// The same of the store in the file that `open` gives.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn compact_on(
        open: impl Fn() -> std::io::Result<Arc<dyn File>> + Send + Sync + 'static,
    ) -> Result<(), KvError> {
        Self::compact_at(&Place::Given(Box::new(open)))
    }

    fn compact_at(place: &Place) -> Result<(), KvError> {
        let progress = Arc::new(Progress::new(Background::new()?.shared()));
        let mut opened = Opened::open(place, KvOptions::default(), progress)?;
        opened.database.compact().map_err(|error| match error {
            redb::CompactionError::Storage(error) => opened.explain(error.into()),
            other => KvError::Damaged(other.to_string()),
        })?;
        Ok(())
    }
}

impl Drop for RedbKv {
    fn drop(&mut self) {
        self.core.progress.set_hurried(true);
    }
}

/// What the next opening finds when the process is killed after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reopening {
    /// It walks the whole file; the commit is as cheap as can be.
    Walks,
    /// It is quick; the commit also keeps what is allocated, and flushes twice.
    Quick,
}

/// An open file.
struct Opened {
    database: Database,
    /// `None` for a file of an older program.
    summed: Option<Arc<Summed>>,
    space: Arc<Space>,
    write_back: Arc<WriteBack>,
}

impl Opened {
    fn open(place: &Place, options: KvOptions, progress: Arc<Progress>) -> Result<Self, KvError> {
        let file = PacedFile::new(place, options.reserve_bytes, progress)?;
        let (summed, space, write_back) = (file.summed(), file.space(), file.write_back());
        let mut builder = redb::Builder::new();
        builder.set_cache_size(options.cache_bytes);
        if let Some(summed) = summed.clone() {
            builder.set_repair_callback(move |_| summed.set_walking(true));
        }
        let opened = builder.create_with_backend(file);
        let damage = summed.as_ref().and_then(|summed| summed.damage());
        match (opened, damage) {
            (Ok(database), _) => {
                summed.iter().for_each(|summed| summed.set_walking(false));
                space.keep();
                Ok(Self { database, summed, space, write_back })
            }
            (Err(_), Some(damage)) => Err(KvError::Damaged(damage)),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// After the first damaged page redb says of everything only that something had failed before.
    fn explain(&self, error: redb::Error) -> KvError {
        match self.summed.as_ref().and_then(|summed| summed.damage()) {
            Some(damage) => KvError::Damaged(damage),
            None => error.into(),
        }
    }
}

impl Core {
    fn database(&self) -> RwLockReadGuard<'_, Option<Opened>> {
        // A thread that panicked while holding it has left it whole.
        self.database.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// With nothing under way.
    fn reopen(&self) -> Result<(), KvError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // The old one has to let go of the file first.
        drop(database.take());
        *database = Some(Opened::open(&self.place, self.options, Arc::clone(&self.progress))?);
        Ok(())
    }

    fn explain(&self, error: redb::Error) -> KvError {
        let error = match self.database().as_ref() {
            Some(opened) => opened.explain(error),
            None => error.into(),
        };
        match error {
            KvError::Fenced => self.fenced(),
            other => other,
        }
    }

    /// Why nothing is done any more.
    fn fenced(&self) -> KvError {
        if self.was_full.load(Ordering::Acquire) { KvError::Full } else { KvError::Fenced }
    }

    fn has_table(&self) -> Result<bool, KvError> {
        match self.snapshot() {
            Ok(_) => Ok(true),
            Err(redb::Error::TableDoesNotExist(_)) => Ok(false),
            Err(error) => Err(self.explain(error)),
        }
    }

    fn commit(&self, batch: &KvBatch, durability: Durability, reopening: Reopening) -> Result<(), KvError> {
        check(batch)?;
        if self.fenced.load(Ordering::Acquire) {
            return Err(self.fenced());
        }
        let outcome = self.write(batch, durability, reopening).map_err(|error| self.explain(error));
        match (&outcome, self.database().as_ref()) {
            (Ok(()), Some(opened)) => opened.space.keep(),
            _ => {
                self.was_full.store(matches!(outcome, Err(KvError::Full)), Ordering::Release);
                self.fenced.store(true, Ordering::Release);
            }
        }
        self.commits.fetch_add(1, Ordering::AcqRel);
        outcome
    }

    fn write(
        &self,
        batch: &KvBatch,
        durability: Durability,
        reopening: Reopening,
    ) -> Result<(), redb::Error> {
        let mut begun = self.progress.begin(batch.ops().len() + batch.prefixes().len());
        let database = self.database();
        let opened = database.as_ref().ok_or(redb::Error::PreviousIo)?;
        let mut transaction = opened.database.begin_write()?;
        transaction.set_quick_repair(reopening == Reopening::Quick);
        transaction.set_durability(match durability {
            Durability::Buffered => redb::Durability::None,
            Durability::Durable => redb::Durability::Immediate,
        })?;
        {
            let mut table = transaction.open_table(TABLE)?;
            let (turn, in_tree) = (Turn::default(), opened.write_back.in_tree());
            for prefix in batch.prefixes() {
                let end = end_of_prefix(prefix);
                let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                table.retain_in::<&[u8], _>((Bound::Included(prefix.as_ref()), end), |_, value| {
                    turn.spend(OP_COST_BYTES + value.len());
                    false
                })?;
                in_tree.changed()?;
            }
            for (key, value) in batch.ops() {
                turn.spend(OP_COST_BYTES + value.as_ref().map_or(0, Bytes::len));
                match value {
                    Some(value) => drop(table.insert(key.as_ref(), value.as_ref())?),
                    None => drop(table.remove(key.as_ref())?),
                }
                in_tree.changed()?;
            }
        }
        self.progress.in_tree(&mut begun);
        transaction.commit()?;
        self.progress.end(&begun);
        Ok(())
    }

    fn snapshot(&self) -> Result<Snapshot, redb::Error> {
        snapshot_of(self.database().as_ref())
    }

    /// Reads keys, and what they lead to, into memory. Why one could not be read is told to whoever asks for it.
    fn read(&self, wanted: &Wanted) -> Result<Found, KvError> {
        let commits = self.commits.load(Ordering::Acquire);
        // Held as long as the snapshot is there: the file cannot be opened anew meanwhile.
        let database = self.database();
        let table = snapshot_of(database.as_ref())?;
        Ok(Found { pairs: wanted.read(|key| self.look(&table, key))?, commits })
    }

    fn look(&self, table: &Snapshot, key: &[u8]) -> Result<Option<Bytes>, redb::Error> {
        let get = || Ok(table.get(key)?.map(|value| Bytes::copy_from_slice(value.value())));
        self.waits.noted(get)
    }
}

fn snapshot_of(opened: Option<&Opened>) -> Result<Snapshot, redb::Error> {
    Ok(opened.ok_or(redb::Error::PreviousIo)?.database.begin_read()?.open_table(TABLE)?)
}

/// Reads a snapshot of its own.
struct Reader {
    table: Snapshot,
    /// Where it goes on.
    next: Bound<Bytes>,
    end: Bound<Bytes>,
    core: Arc<Core>,
    _alive: Arc<()>,
}

impl KvReader for Reader {
    fn read(&mut self, bytes: usize) -> Result<Vec<Pair>, KvError> {
        let (start, end) = (self.next.as_ref().map(Bytes::as_ref), self.end.as_ref().map(Bytes::as_ref));
        if is_empty(start, end) {
            return Ok(Vec::new());
        }
        let read = || -> Result<Vec<Pair>, redb::Error> {
            let mut range = self.table.range::<&[u8]>((start, end))?;
            fill(bytes, || range.next().transpose()?.map_or(Ok(None), |pair| Ok(Some(copy_of(&pair)))))
        };
        let pairs = read().map_err(|error| self.core.explain(error))?;
        if let Some((last, _)) = pairs.last() {
            self.next = Bound::Excluded(last.clone());
        }
        Ok(pairs)
    }
}

type Guard<'a> = redb::AccessGuard<'a, &'static [u8]>;

fn copy_of((key, value): &(Guard<'_>, Guard<'_>)) -> Pair {
    (Bytes::copy_from_slice(key.value()), Bytes::copy_from_slice(value.value()))
}

fn copy_of_range(
    table: &Snapshot,
    start: Bound<&[u8]>,
    end: Bound<&[u8]>,
    count_max: usize,
) -> Result<Vec<Pair>, redb::Error> {
    table.range::<&[u8]>((start, end))?.take(count_max).map(|pair| Ok(copy_of(&pair?))).collect()
}

impl KvStore for RedbKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        self.with_snapshot(|table| self.core.look(table, key))
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        if is_empty(start, end) {
            return Ok(Vec::new());
        }
        self.with_snapshot(|table| copy_of_range(table, start, end, count_max))
    }

    fn reader(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Box<dyn KvReader + Send>, KvError> {
        let table = self.core.snapshot().map_err(|error| self.core.explain(error))?;
        let (next, end) = (start.map(Bytes::copy_from_slice), end.map(Bytes::copy_from_slice));
        Ok(Box::new(Reader {
            table,
            next,
            end,
            core: Arc::clone(&self.core),
            _alive: Arc::clone(&self.readers),
        }))
    }

    fn commit(&mut self, batch: &KvBatch, durability: Durability) -> Result<(), KvError> {
        self.settle();
        self.snapshot.take();
        self.core.commit(batch, durability, Reopening::Walks)
    }

    fn submit(&mut self, batch: KvBatch, tag: KvTag) {
        let core = &self.core;
        if self.background.is_idle() {
            core.progress.reset();
        }
        self.background.submit(batch, tag, || {
            let core = Arc::clone(core);
            // Nobody waits for it, so it may cost more.
            move |batch: &KvBatch| core.commit(batch, Durability::Durable, Reopening::Quick)
        });
    }

    fn drain(&mut self, out: &mut Vec<KvCompletion>) {
        let before = out.len();
        self.background.drain(out);
        if out.len() > before {
            self.snapshot.take();
        }
    }

    fn wait(&mut self) {
        self.background.wait();
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.background.wake_fd(), self.warmer.wake_fd()]
    }

    fn waits_for_device(&self) -> bool {
        self.core.waits.are_frequent()
    }

    fn warm(&mut self, keys: Vec<Bytes>, follow: Option<Follow>, tag: KvTag) -> bool {
        let core = &self.core;
        self.warmer.warm(Wanted { keys, follow }, tag, || {
            let core = Arc::clone(core);
            move |wanted: &Wanted| core.read(wanted)
        });
        true
    }

    fn drain_warm(&mut self, out: &mut Vec<Warmed>) {
        self.warmer.drain(self.core.commits.load(Ordering::Acquire), out);
    }

    fn progress(&self) -> u64 {
        self.core.progress.so_far()
    }

    fn wake_at(&self, progress: u64) {
        self.core.progress.rouse_at(progress);
    }

    fn set_hurried(&self, hurried: bool) {
        self.core.progress.set_hurried(hurried);
    }

    fn room(&self) -> Option<FileRoom> {
        self.core.database().as_ref()?.space.room()
    }

    fn cached_bytes(&self) -> usize {
        self.core.database().as_ref().map_or(0, |opened| opened.database.cache_stats().used_bytes())
    }

    fn give_back(&mut self, give_back: fn()) {
        self.background.give_back(give_back);
        self.warmer.give_back(give_back);
    }

    /// Opens the file anew: redb gives no page back otherwise, not even those that later commits replaced.
    fn idle_trim(&mut self) -> Result<bool, KvError> {
        if self.cached_bytes() < REST_BYTES_MIN || Arc::strong_count(&self.readers) > 1 {
            return Ok(false);
        }
        self.settle();
        self.snapshot.take();
        let outcome = self.core.reopen();
        // Most pages came from those threads' heaps, to which free memory returns only when they ask for some, or end.
        self.background.end_threads();
        self.warmer.end_threads();
        outcome.map(|()| false)
    }
}

#[cfg(test)]
mod tests;
