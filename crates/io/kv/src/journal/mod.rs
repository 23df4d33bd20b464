//! [`JournaledKv`]: a journal in front of a slower store, a log-structured merge tree of two levels.
//!
//! A store in pages copies each page that a commit touches. A million small objects have so many that a commit of some ten thousand of
//! them touches a page for nearly each. Here a commit appends what changed to a journal, in one piece, and keeps it in memory; when
//! half of the journal is full of it, all of that is merged into the store below, in the order of keys, so that a page is copied
//! once for all changes of its keys. The other half takes what comes meanwhile.
//!
//! ```text
//! commit -> record -> journal: | heads | half: being merged | half: being written |
//!              |                                |                     |
//!              +-> view in memory:        frozen run            active runs     <- reads: the newest that knows the key,
//!                                               |                                  then the store below
//!                                     parts in the order of keys
//!                                               v
//!                                         store below
//! ```
//!
//! Memory: keys and values are parts of the journal's records as they were written, and 16 bytes for each; both halves of the journal
//! at most. When merging is slower than what comes, completions of commits wait: at any time the other half may be filled as far
//! as the frozen one is merged, and one batch further. So whoever commits goes at the pace of the merge, not at that of the journal
//! until it stops. While it is well ahead, the merge goes slowly instead, and leaves the device to reads and writes.
//!
//! A batch that no half has room for goes to the store below, after all before it. Merging again what was merged before a crash
//! changes nothing: a part holds what its keys are in the end, and deletions of prefixes come before all of them.

mod filter;
mod head;
mod kv_store;
mod log;
mod merging;
mod record;
mod run;
#[cfg(test)]
mod tests;
mod view;
mod work;

use crate::background::Background;
use crate::journal::head::Head;
use crate::journal::log::Log;
use crate::journal::merging::{Merge, Waiting};
use crate::journal::run::Run;
use crate::journal::view::View;
use crate::journal::work::{Appended, Core, Job, Marker};
use crate::{Durability, KvBatch, KvCompletion, KvError, KvStore, KvTag};
use nacre_env::File;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// The key under which the store below says that a journal belongs to it, and which one.
const MARKER: &[u8] = b"\xff\xffnacre-journal";
/// Pairs that a scan takes from the store below at a time, at most.
const SCAN_PAIRS: usize = 1024;
/// A journal as full as that is not merged for an idle store's sake.
const IDLE_DIVISOR: u64 = 16;

const OF_ANOTHER_STORE: &str =
    "the journal of the metadata belongs to another store: move it to where it belongs";
const OF_A_LATER_STORE: &str = "the journal of the metadata has records, and the store is one of before: put the right one back, or make the OSD \
                                anew and let it recover from the others";

const PART_TAG: KvTag = KvTag(0);
const DIRECT_TAG: KvTag = KvTag(1);

/// How a journal is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalOptions {
    /// Names a new journal, so that it is not taken for that of another store.
    pub id: [u8; 16],
    /// Bytes of each half: memory for twice as many may be needed. A journal whose halves have other sizes is merged and made so.
    pub half_bytes: u64,
    /// Put into the store below in one batch with what says that it has a journal, before anything is in that: such as to have
    /// programs refuse it that know of no journals.
    pub mark: KvBatch,
}

/// Whether a store has a journal, without which it must not be read or changed.
///
/// # Errors
/// As [`KvStore::get`].
pub fn has_journal(below: &dyn KvStore) -> Result<bool, KvError> {
    Ok(below.get(MARKER)?.is_some())
}

/// Bytes of the file of a journal whose halves have about so many.
#[must_use]
pub fn journal_file_bytes(half_bytes: u64) -> u64 {
    log::length_of(log::sized(half_bytes))
}

/// Bytes that the journal in a file has of it; 0 where none was made.
///
/// # Errors
/// [`KvError::Damaged`] when there is something else, or the device fails.
pub fn journal_used_bytes(file: &dyn File) -> Result<u64, KvError> {
    Ok(Head::read(file)?.map_or(0, |head| log::length_of(head.half_bytes)))
}

/// Bytes of a half of the longest journal that a file of so many bytes has room for.
#[must_use]
pub fn journal_half_bytes(file_bytes: u64) -> u64 {
    file_bytes.saturating_sub(log::length_of(0)) / 2
}

/// What a job of the thread is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Append,
    Part,
    Release,
}

/// What the oldest batch that is not in the journal is at.
#[derive(Debug)]
enum Under {
    Nothing,
    Append(KvTag),
    /// Until the frozen half is merged.
    Room(KvTag),
    /// Until both halves are: it does not fit into any.
    Direct(KvTag, KvBatch),
    /// It was given to the store below.
    Below(KvTag),
}

/// See the module's documentation.
pub struct JournaledKv<S: KvStore> {
    below: S,
    core: Arc<Core>,
    background: Background<Job>,
    kinds: VecDeque<Kind>,
    pending: VecDeque<(KvTag, KvBatch)>,
    under: Under,
    waiting: VecDeque<Waiting>,
    ready: Vec<KvCompletion>,
    merge: Option<Merge>,
    /// Somebody waits, in a call, for the end of the merge.
    is_awaited: bool,
    failed: Option<Failure>,
    used_bytes: u64,
    /// What the batch that came last takes in the journal.
    last_bytes: u64,
    /// Somebody wants to be roused.
    asked_at: Cell<u64>,
}

/// Why nothing is committed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Full,
    Other,
}

impl<S: KvStore> std::fmt::Debug for JournaledKv<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournaledKv")
            .field("merge", &self.merge)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// Makes a journal in a file that has none with records.
fn new_log(file: Arc<dyn File>, options: &JournalOptions) -> Result<Log, KvError> {
    let why = match Head::read(file.as_ref())? {
        Some(head) if head.id != options.id => OF_ANOTHER_STORE,
        Some(head) if head.durable_through > 0 || head.merged_through > 0 => OF_A_LATER_STORE,
        // Anew: it may have another size.
        _ => return Log::create(file, options.id, options.half_bytes),
    };
    Err(KvError::Damaged(why.to_owned()))
}

fn as_one(runs: Vec<Run>) -> Option<Arc<Run>> {
    let runs = runs.into_iter();
    runs.reduce(|older, newer| newer.over(&older)).map(Arc::new)
}

impl<S: KvStore> JournaledKv<S> {
    /// Puts the journal in a file before a store that has none. A journal that is there already is one whose making did not end.
    ///
    /// # Errors
    /// With the store where it is as it was: [`KvError::Full`] when there is no room for the journal, [`KvError::Damaged`] when there is
    /// something else in the file.
    pub fn make(
        mut below: S,
        file: Arc<dyn File>,
        options: JournalOptions,
    ) -> Result<Self, (Option<S>, KvError)> {
        let marker = Marker { key: MARKER, id: options.id };
        let log = match new_log(file, &options) {
            Ok(log) => log,
            Err(error) => return Err((Some(below), error)),
        };
        let mut batch = options.mark;
        marker.put_into(&mut batch, 0);
        match below.commit(&batch, Durability::Durable) {
            // Whether it has been done is unknown.
            Err(error) => Err((None, error)),
            Ok(()) => Self::begin(below, log, View::default(), marker).map_err(|error| (None, error)),
        }
    }

    /// Opens a store with its journal, which must be there. The halves get that size if one is given; it may wait for the store
    /// below then.
    ///
    /// # Errors
    /// [`KvError::Damaged`] when records are missing that were durable, or the journal is not that of the store.
    pub fn open(below: S, file: Arc<dyn File>, half_bytes: Option<u64>) -> Result<Self, KvError> {
        let marker = below.get(MARKER)?.as_ref().and_then(Marker::read);
        let Some((id, through)) = marker else {
            return Err(KvError::Damaged(
                "what the store says of its journal cannot be understood".to_owned(),
            ));
        };
        let Some(head) = Head::read(file.as_ref())? else {
            return Err(KvError::Damaged(
                "the journal of the metadata is empty, and the store has had one: put the right one back, or make the OSD anew and \
                 let it recover from the others"
                    .to_owned(),
            ));
        };
        let (log, replayed) = Log::open(file, id, head, through)?;
        let view = View { active: Vec::new(), frozen: as_one(replayed.frozen) };
        let view = replayed.active.into_iter().fold(view, |view, run| view.with(run));
        let mut store = Self::begin(below, log, view, Marker { key: MARKER, id })?;
        if let Some(half_bytes) = half_bytes
            && log::sized(half_bytes) != store.core.half_bytes()
            // Otherwise it stays as it is, until there is room for what it holds.
            && store.room().is_none_or(|room| room.available_bytes > 0)
        {
            store.merge_all()?;
            store.core.resize(half_bytes)?;
        }
        Ok(store)
    }

    fn begin(below: S, log: Log, view: View, marker: Marker) -> Result<Self, KvError> {
        let background = Background::new()?;
        let used_bytes = log.used_bytes();
        let core = Core::new(log, view, background.shared(), marker);
        Ok(Self {
            below,
            core: Arc::new(core),
            background,
            kinds: VecDeque::new(),
            pending: VecDeque::new(),
            under: Under::Nothing,
            waiting: VecDeque::new(),
            ready: Vec::new(),
            merge: None,
            is_awaited: false,
            last_bytes: 0,
            failed: None,
            used_bytes,
            asked_at: Cell::new(u64::MAX),
        })
    }

    /// Brings all that the journal holds into the store below, and waits for it.
    ///
    /// # Errors
    /// [`KvError`] when the store below, or the device, failed.
    pub fn merge_all(&mut self) -> Result<(), KvError> {
        self.settle();
        self.finish_merge();
        self.freeze();
        self.finish_merge();
        self.refusal().map_or(Ok(()), Err)
    }

    /// Bytes of each half.
    #[must_use]
    pub fn half_bytes(&self) -> u64 {
        self.core.half_bytes()
    }

    /// The store below.
    #[must_use]
    pub const fn below(&self) -> &S {
        &self.below
    }

    /// Bytes of memory that hold changes which are not in the store below.
    #[must_use]
    pub fn journal_bytes(&self) -> usize {
        self.core.view().memory_bytes()
    }

    fn start(&mut self, kind: Kind, job: Job) {
        let core = &self.core;
        self.kinds.push_back(kind);
        self.background.submit(job, KvTag::default(), || {
            let core = Arc::clone(core);
            move |job: &Job| core.work(job)
        });
    }

    fn finish(&mut self, tag: KvTag, result: Result<(), KvError>) {
        if let Err(error) = &result
            && !matches!(error, KvError::Misuse(_))
        {
            self.fence(error);
        }
        // Those before it complete before it.
        let before = self.waiting.drain(..).map(|first| KvCompletion { tag: first.tag, result: Ok(()) });
        self.ready.extend(before);
        self.ready.push(KvCompletion { tag, result });
    }

    fn fence(&mut self, error: &KvError) {
        self.failed.get_or_insert(if matches!(error, KvError::Full) {
            Failure::Full
        } else {
            Failure::Other
        });
    }

    const fn refusal(&self) -> Option<KvError> {
        match self.failed {
            None => None,
            Some(Failure::Full) => Some(KvError::Full),
            Some(Failure::Other) => Some(KvError::Fenced),
        }
    }

    /// Takes in what both threads have done, and gives them what comes next. Never waits.
    fn advance(&mut self) {
        let mut done = Vec::new();
        self.background.drain(&mut done);
        for completion in done.drain(..) {
            match self.kinds.pop_front() {
                Some(Kind::Append) => self.appended(completion.result),
                Some(Kind::Part) => self.prepared(completion.result),
                Some(Kind::Release) => self.released(completion.result),
                None => (),
            }
        }
        self.below.drain(&mut done);
        for completion in done {
            match completion.tag {
                PART_TAG => self.merged(completion.result),
                _ => self.direct_done(completion.result),
            }
        }
        self.consider_merge();
        self.start_next();
        self.let_go();
    }

    fn appended(&mut self, result: Result<(), KvError>) {
        let under = std::mem::replace(&mut self.under, Under::Nothing);
        let (Under::Append(tag) | Under::Room(tag)) = under else { return };
        match result.map(|()| self.core.take_appended()) {
            Err(error) => self.finish(tag, Err(error)),
            Ok(Some(Appended::NoRoom)) => self.under = Under::Room(tag),
            Ok(Some(Appended::TooLarge(batch))) => self.under = Under::Direct(tag, batch),
            Ok(Some(Appended::Done { record_bytes, used_bytes })) => {
                (self.last_bytes, self.used_bytes) = (record_bytes, used_bytes);
                let (since, needed) = (self.merged_so_far(), self.needed());
                self.waiting.push_back(Waiting { tag, since, needed });
            }
            Ok(None) => self.finish(tag, Err(KvError::Fenced)),
        }
        self.core.reset_progress();
    }

    /// Lets the active half be merged, if there is anything in it, with no append under way.
    fn freeze(&mut self) {
        if self.used_bytes == 0 {
            return;
        }
        match self.core.freeze() {
            Ok(true) => self.used_bytes = 0,
            Ok(false) => (),
            Err(error) => self.fence(&error),
        }
    }

    fn direct_done(&mut self, result: Result<(), KvError>) {
        if let Under::Below(tag) = std::mem::replace(&mut self.under, Under::Nothing) {
            self.finish(tag, result);
        }
    }

    fn start_next(&mut self) {
        if let Some(refusal) = self.refusal() {
            return self.refuse_all(refusal);
        }
        match std::mem::replace(&mut self.under, Under::Nothing) {
            Under::Nothing => {
                let Some((tag, batch)) = self.pending.pop_front() else { return };
                self.under = Under::Append(tag);
                self.core.reset_progress();
                self.start(Kind::Append, Job::Append(Some(batch).into()));
            }
            Under::Room(tag) if self.merge.is_none() => {
                self.under = Under::Append(tag);
                self.start(Kind::Append, Job::Again);
            }
            Under::Direct(tag, batch) if self.is_all_below() => {
                self.under = Under::Below(tag);
                self.below.submit(self.core.past_journal(batch), DIRECT_TAG);
            }
            other => self.under = other,
        }
    }

    fn is_all_below(&self) -> bool {
        self.merge.is_none() && self.used_bytes == 0 && self.core.view().frozen.is_none()
    }

    fn refuse_all(&mut self, refusal: KvError) {
        match std::mem::replace(&mut self.under, Under::Nothing) {
            Under::Room(tag) | Under::Direct(tag, _) => self.finish(tag, Err(refusal)),
            // They will say so themselves.
            other => self.under = other,
        }
        if matches!(self.under, Under::Nothing) {
            while let Some((tag, _)) = self.pending.pop_front() {
                let refusal = self.refusal().unwrap_or(KvError::Fenced);
                self.finish(tag, Err(refusal));
            }
        }
    }

    /// Nothing is left that was submitted but for completions that wait.
    fn is_settled(&self) -> bool {
        matches!(self.under, Under::Nothing) && self.pending.is_empty()
    }

    fn wait_for_threads(&self) -> bool {
        !self.background.is_idle() || self.merge.is_some() || matches!(self.under, Under::Below(_))
    }

    /// Waits until either thread has done something, or is roused.
    fn wait_once(&mut self) {
        if self.background.is_idle() {
            self.below.wait();
        } else {
            self.background.wait();
        }
    }

    fn settle(&mut self) {
        self.advance();
        while !self.is_settled() && self.wait_for_threads() {
            self.wait_once();
            self.advance();
        }
    }

    fn commit_below(&mut self, batch: KvBatch) -> Result<(), KvError> {
        self.finish_merge();
        self.freeze();
        self.finish_merge();
        match self.refusal() {
            Some(refusal) => Err(refusal),
            // Durable in any case: what follows in the journal may be, and would be there without it.
            None => self.below.commit(&self.core.past_journal(batch), Durability::Durable),
        }
    }

    fn commit_now(&mut self, batch: &KvBatch, durability: Durability) -> Result<(), KvError> {
        let mut appended = self.core.commit(batch, durability)?;
        if matches!(appended, Appended::NoRoom) {
            self.finish_merge();
            appended = self.core.commit_again(durability)?;
        }
        match appended {
            Appended::Done { record_bytes, used_bytes } => {
                (self.last_bytes, self.used_bytes) = (record_bytes, used_bytes);
                Ok(())
            }
            Appended::TooLarge(batch) => self.commit_below(batch),
            Appended::NoRoom => Err(self.refusal().unwrap_or(KvError::Fenced)),
        }
    }
}
