//! [`RedbKv`]: the store in one redb file.

use crate::background::Background;
use crate::memory::is_empty;
use crate::paced::PacedFile;
use crate::progress::Progress;
use crate::turn::Turn;
use crate::{Durability, KvBatch, KvCompletion, KvError, KvStore, KvTag, Pair, check, end_of_prefix};
use bytes::Bytes;
use redb::{Database, DatabaseError, ReadOnlyTable, ReadableDatabase, StorageError, TableDefinition};
use std::cell::RefCell;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
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
}

impl std::fmt::Debug for RedbKv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedbKv").finish_non_exhaustive()
    }
}

/// What both threads use.
struct Core {
    path: PathBuf,
    cache_bytes: usize,
    /// `None` when it could not be opened anew.
    database: RwLock<Option<Database>>,
    fenced: AtomicBool,
    progress: Arc<Progress>,
}

/// redb reports a file without its magic number as an I/O error of this kind.
fn of_io(error: std::io::Error) -> KvError {
    match error.kind() {
        std::io::ErrorKind::InvalidData => KvError::Damaged(error.to_string()),
        _ => KvError::Device(error),
    }
}

impl From<StorageError> for KvError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Io(error) => of_io(error),
            StorageError::PreviousIo => Self::Fenced,
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<DatabaseError> for KvError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::InUse,
            DatabaseError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::Error> for KvError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) => of_io(error),
            redb::Error::PreviousIo => Self::Fenced,
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl RedbKv {
    /// Opens the store at `path`; an absent file becomes an empty store.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn open(path: &Path) -> Result<Self, KvError> {
        Self::open_with_cache(path, CACHE_BYTES)
    }

    /// As [`RedbKv::open`], with so many bytes of memory for pages of the file.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn open_with_cache(path: &Path, cache_bytes: usize) -> Result<Self, KvError> {
        let background = Background::new()?;
        let progress = Arc::new(Progress::new(background.shared()));
        let database = RwLock::new(Some(open_database(path, cache_bytes, Arc::clone(&progress))?));
        sync_parent(path)?;
        let path = path.to_owned();
        let core = Arc::new(Core { path, cache_bytes, database, fenced: AtomicBool::new(false), progress });
        let mut store = Self { snapshot: RefCell::default(), core, background };
        if !store.core.has_table()? {
            // So that reads need not care whether it exists.
            store.commit(&KvBatch::default(), Durability::Durable)?;
        }
        Ok(store)
    }

    /// What becomes readable when a submitted batch has finished: for `RealNet::watch`.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.background.wake_fd()
    }

    fn with_snapshot<R>(&self, work: impl FnOnce(&Snapshot) -> Result<R, redb::Error>) -> Result<R, KvError> {
        let mut snapshot = self.snapshot.borrow_mut();
        let table = match &mut *snapshot {
            Some(table) => table,
            none => none.insert(self.core.snapshot()?),
        };
        Ok(work(table)?)
    }

    /// Moves what the store at `path` holds to the front of its file and cuts the end off. Takes long; for tools.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn compact(path: &Path) -> Result<(), KvError> {
        let mut database = redb::Builder::new().set_cache_size(CACHE_BYTES).open(path)?;
        database.compact().map_err(|error| match error {
            redb::CompactionError::Storage(error) => error.into(),
            other => KvError::Damaged(other.to_string()),
        })?;
        Ok(())
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

fn open_database(
    path: &Path,
    cache_bytes: usize,
    progress: Arc<Progress>,
) -> Result<Database, DatabaseError> {
    redb::Builder::new().set_cache_size(cache_bytes).create_with_backend(PacedFile::open(path, progress)?)
}

impl Core {
    fn database(&self) -> RwLockReadGuard<'_, Option<Database>> {
        // Whoever panicked while holding it has left it whole.
        self.database.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// With nothing under way.
    fn reopen(&self) -> Result<(), KvError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // The old one has to let go of the file first.
        drop(database.take());
        *database = Some(open_database(&self.path, self.cache_bytes, Arc::clone(&self.progress))?);
        Ok(())
    }

    fn has_table(&self) -> Result<bool, KvError> {
        match self.snapshot() {
            Ok(_) => Ok(true),
            Err(redb::Error::TableDoesNotExist(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn commit(&self, batch: &KvBatch, durability: Durability, reopening: Reopening) -> Result<(), KvError> {
        check(batch)?;
        if self.fenced.load(Ordering::Acquire) {
            return Err(KvError::Fenced);
        }
        let outcome = self.write(batch, durability, reopening);
        if outcome.is_err() {
            self.fenced.store(true, Ordering::Release);
        }
        Ok(outcome?)
    }

    fn write(
        &self,
        batch: &KvBatch,
        durability: Durability,
        reopening: Reopening,
    ) -> Result<(), redb::Error> {
        let mut begun = self.progress.begin(batch.ops().len());
        let database = self.database();
        let mut transaction = database.as_ref().ok_or(redb::Error::PreviousIo)?.begin_write()?;
        transaction.set_quick_repair(reopening == Reopening::Quick);
        transaction.set_durability(match durability {
            Durability::Buffered => redb::Durability::None,
            Durability::Durable => redb::Durability::Immediate,
        })?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for prefix in batch.prefixes() {
                let end = end_of_prefix(prefix);
                let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                table.retain_in::<&[u8], _>((Bound::Included(prefix.as_ref()), end), |_, _| false)?;
            }
            let turn = Turn::default();
            for (key, value) in batch.ops() {
                turn.spend(OP_COST_BYTES + value.as_ref().map_or(0, Bytes::len));
                match value {
                    Some(value) => drop(table.insert(key.as_ref(), value.as_ref())?),
                    None => drop(table.remove(key.as_ref())?),
                }
                self.progress.changed();
            }
        }
        self.progress.in_tree(&mut begun);
        transaction.commit()?;
        self.progress.end(&begun);
        Ok(())
    }

    fn snapshot(&self) -> Result<Snapshot, redb::Error> {
        let database = self.database();
        Ok(database.as_ref().ok_or(redb::Error::PreviousIo)?.begin_read()?.open_table(TABLE)?)
    }
}

fn copy_of_range(
    table: &Snapshot,
    start: Bound<&[u8]>,
    end: Bound<&[u8]>,
    count_max: usize,
) -> Result<Vec<Pair>, redb::Error> {
    let copy = Bytes::copy_from_slice;
    let mut out = Vec::new();
    for pair in table.range::<&[u8]>((start, end))?.take(count_max) {
        let (key, value) = pair?;
        out.push((copy(key.value()), copy(value.value())));
    }
    Ok(out)
}

/// A new file survives a power failure only with its folder's entry.
fn sync_parent(path: &Path) -> Result<(), std::io::Error> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => std::fs::OpenOptions::new().read(true).open(parent)?.sync_all(),
        None => Ok(()),
    }
}

impl KvStore for RedbKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        self.with_snapshot(|table| Ok(table.get(key)?.map(|value| Bytes::copy_from_slice(value.value()))))
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        if is_empty(start, end) {
            return Ok(Vec::new());
        }
        self.with_snapshot(|table| copy_of_range(table, start, end, count_max))
    }

    fn commit(&mut self, batch: &KvBatch, durability: Durability) -> Result<(), KvError> {
        self.background.settle();
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

    fn progress(&self) -> u64 {
        self.core.progress.so_far()
    }

    fn wake_at(&self, progress: u64) {
        self.core.progress.rouse_at(progress);
    }

    fn cached_bytes(&self) -> usize {
        self.core.database().as_ref().map_or(0, |database| database.cache_stats().used_bytes())
    }

    /// Opens the file anew: redb gives no page back otherwise, not even those that later commits replaced.
    fn rest(&mut self) -> Result<(), KvError> {
        if self.cached_bytes() < REST_BYTES_MIN {
            return Ok(());
        }
        self.background.settle();
        self.snapshot.take();
        let outcome = self.core.reopen();
        // Most pages came from that thread's heap, to which free memory returns only when it asks for some, or ends.
        self.background.end_thread();
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder that is removed with its contents.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!("nacre-kv-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).expect("a writable temporary folder");
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _best_effort = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn conforms() {
        let folder = Folder::new();
        let mut count = 0;
        crate::conformance::check(&mut || {
            count += 1;
            RedbKv::open(&folder.0.join(format!("{count}.redb"))).expect("a new store")
        });
    }

    #[test]
    fn durable_batches_are_there_after_a_restart() {
        let folder = Folder::new();
        let path = folder.0.join("kv.redb");
        let mut kv = RedbKv::open(&path).expect("a new store");
        let mut batch = KvBatch::default();
        batch.put("a", "1");
        kv.commit(&batch, Durability::Durable).expect("a healthy device");
        assert!(matches!(RedbKv::open(&path), Err(KvError::InUse)));
        drop(kv);
        let kv = RedbKv::open(&path).expect("the store");
        assert_eq!(kv.get(b"a").expect("a healthy device").as_deref(), Some(&b"1"[..]));
    }

    #[test]
    fn what_was_submitted_is_there_when_the_store_was_dropped() {
        let folder = Folder::new();
        let path = folder.0.join("kv.redb");
        let mut kv = RedbKv::open(&path).expect("a new store");
        let mut batch = KvBatch::default();
        batch.put("a", vec![7; 1 << 20]);
        kv.submit(batch, KvTag(1));
        drop(kv);
        let kv = RedbKv::open(&path).expect("the store");
        assert_eq!(kv.get(b"a").expect("a healthy device").map(|value| value.len()), Some(1 << 20));
    }

    #[test]
    fn a_store_that_rested_has_no_pages_in_memory_and_all_of_its_content() {
        let folder = Folder::new();
        let path = folder.0.join("kv.redb");
        let mut kv = RedbKv::open(&path).expect("a new store");
        let mut finished = Vec::new();
        for round in 0..3_u8 {
            for nth in 0..10_u64 {
                let mut batch = KvBatch::default();
                batch.put(nth.to_string(), vec![round; 1 << 20]);
                kv.submit(batch, KvTag(nth));
            }
            assert_eq!(kv.get(b"-").expect("a healthy device"), None);
            kv.rest().expect("a healthy device");
            while finished.len() < 10 * (usize::from(round) + 1) {
                kv.wait();
                kv.drain(&mut finished);
            }
            while kv.cached_bytes() < REST_BYTES_MIN {
                assert_eq!(kv.scan_prefix(b"").expect("a healthy device").len(), 10);
            }
            kv.rest().expect("a healthy device");
            assert!(kv.cached_bytes() < 1 << 20, "{} bytes", kv.cached_bytes());
            let value = kv.get(b"7").expect("a healthy device").expect("as it was put");
            assert!(value.len() == 1 << 20 && value.iter().all(|byte| *byte == round));
        }
        assert!(finished.iter().all(|completion| completion.result.is_ok()));
        assert!(matches!(RedbKv::open(&path), Err(KvError::InUse)));
    }

    #[test]
    fn a_file_that_is_no_store_is_an_error() {
        let folder = Folder::new();
        let path = folder.0.join("kv.redb");
        std::fs::write(&path, [0x5a; 8192]).expect("a writable folder");
        assert!(matches!(RedbKv::open(&path), Err(KvError::Damaged(_))));
    }
}
