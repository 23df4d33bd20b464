//! [`Core`]: what the thread of the journal does: it encodes and appends batches, and prepares what is merged into the store below.

use crate::background::Shared;
use crate::journal::log::Log;
use crate::journal::record;
use crate::journal::view::View;
use crate::{COMMITTED, Durability, KvBatch, KvError};
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Keys and values merged in one commit of the store below: it touches each of its pages in few of them.
const PART_BYTES: usize = 16 << 20;
const PART_CHANGES_MAX: usize = 64 << 10;

/// What the thread is asked to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Append a batch durably.
    Append(Mutex<Option<KvBatch>>),
    /// The same with the one for which there was no room.
    Again,
    /// Prepare the next part of the frozen half.
    Part,
    /// The frozen half is in the store below.
    Release,
}

/// How an append ended.
#[derive(Debug)]
pub(crate) enum Appended {
    /// It is durable, so long, and the active half is so full with it.
    Done { record_bytes: u64, used_bytes: u64 },
    /// It is kept until the frozen half is merged.
    NoRoom,
    /// No half has room for it.
    TooLarge(KvBatch),
}

/// Changes for the store below.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) batch: KvBatch,
    pub(crate) bytes: u64,
    pub(crate) is_last: bool,
}

struct State {
    log: Log,
    /// Encoded, without room.
    kept: Option<Vec<u8>>,
    /// Changes of the frozen half that have been prepared.
    prepared: usize,
    fenced: bool,
}

/// What the store below says of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) key: &'static [u8],
    /// Which journal it is.
    pub(crate) id: [u8; 16],
}

impl Marker {
    /// The value, in a store that has all records through that one.
    pub(crate) fn value(&self, through: u64) -> Vec<u8> {
        [&self.id[..], &through.to_le_bytes()].concat()
    }

    /// The id, and the last record that the store has.
    pub(crate) fn read(value: &Bytes) -> Option<([u8; 16], u64)> {
        let (id, through) = value.split_first_chunk()?;
        Some((*id, u64::from_le_bytes(through.try_into().ok()?)))
    }

    /// A batch that leaves it in the store, whatever else it deletes.
    pub(crate) fn put_into(&self, batch: &mut KvBatch, through: u64) {
        batch.put(self.key, self.value(through));
    }
}

/// See the module's documentation.
pub(crate) struct Core {
    /// Held while the device works: who must not wait does not look at it.
    state: Mutex<State>,
    half_bytes: AtomicU64,
    /// Of the last append that ended, and the last part.
    appended: Mutex<Option<Appended>>,
    part: Mutex<Option<Part>>,
    view: RwLock<Arc<View>>,
    progress: AppendProgress,
    /// Of the store below: a batch that deletes everything must not delete it.
    marker: Marker,
}

/// How far the append under way is.
struct AppendProgress {
    all: AtomicU64,
    done: AtomicU64,
    rouse_at: AtomicU64,
    shared: Arc<Shared<Job>>,
}

impl AppendProgress {
    fn begin(&self, bytes: usize) {
        self.done.store(0, Ordering::Relaxed);
        self.all.store(bytes as u64, Ordering::Relaxed);
    }

    fn so_far(&self) -> u64 {
        let (done, all) = (self.done.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed));
        done.min(all) * COMMITTED / all.max(1)
    }

    fn wrote(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.so_far() >= self.rouse_at.load(Ordering::Relaxed) {
            self.rouse_at.store(u64::MAX, Ordering::Relaxed);
            self.shared.rouse();
        }
    }
}

impl Core {
    pub(crate) fn new(log: Log, view: View, shared: Arc<Shared<Job>>, marker: Marker) -> Self {
        let (all, done, rouse_at) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let half_bytes = AtomicU64::new(log.half_bytes());
        let state = State { log, kept: None, prepared: 0, fenced: false };
        Self {
            state: Mutex::new(state),
            half_bytes,
            appended: Mutex::default(),
            part: Mutex::default(),
            view: RwLock::new(Arc::new(view)),
            progress: AppendProgress { all, done, rouse_at, shared },
            marker,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding it but for mistakes of ours, which end the process.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_view(&self, view: View) {
        let view = Arc::new(view);
        let old = std::mem::replace(&mut *self.view.write().unwrap_or_else(PoisonError::into_inner), view);
        // Large, and here on the thread that may take its time.
        drop(old);
    }

    pub(crate) fn append_so_far(&self) -> u64 {
        self.progress.so_far()
    }

    pub(crate) fn rouse_at(&self, progress: u64) {
        self.progress.rouse_at.store(progress, Ordering::Relaxed);
    }

    /// No append is under way any more: the next one begins at nothing.
    pub(crate) fn reset_progress(&self) {
        self.progress.begin(0);
    }

    pub(crate) fn half_bytes(&self) -> u64 {
        self.half_bytes.load(Ordering::Relaxed)
    }

    /// A batch for the store below, after all that is in the journal, with its place among the records.
    pub(crate) fn past_journal(&self, mut batch: KvBatch) -> KvBatch {
        self.marker.put_into(&mut batch, self.state().log.skip());
        batch
    }

    /// See [`Log::resize`].
    pub(crate) fn resize(&self, half_bytes: u64) -> Result<(), KvError> {
        let mut state = self.state();
        let outcome = state.log.resize(half_bytes);
        state.fenced |= outcome.is_err();
        self.half_bytes.store(state.log.half_bytes(), Ordering::Relaxed);
        outcome
    }

    pub(crate) fn take_appended(&self) -> Option<Appended> {
        self.appended.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set_appended(&self, appended: Appended) {
        *self.appended.lock().unwrap_or_else(PoisonError::into_inner) = Some(appended);
    }

    pub(crate) fn take_part(&self) -> Option<Part> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Carries out a job.
    pub(crate) fn work(&self, job: &Job) -> Result<(), KvError> {
        let mut state = self.state();
        if state.fenced {
            return Err(KvError::Fenced);
        }
        match job {
            Job::Append(batch) => {
                let batch = batch.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
                self.set_appended(self.append(&mut state, batch, Durability::Durable)?);
            }
            Job::Again => {
                let record = state.kept.take().expect("it was kept for lack of room");
                self.set_appended(self.append_record(&mut state, record, Durability::Durable)?);
            }
            Job::Part => {
                let part = self.prepare(&mut state);
                *self.part.lock().unwrap_or_else(PoisonError::into_inner) = Some(part);
            }
            Job::Release => {
                let outcome = state.log.release();
                state.fenced |= outcome.is_err();
                outcome?;
                state.prepared = 0;
                self.set_view(View { frozen: None, active: self.view().active.clone() });
            }
        }
        Ok(())
    }

    /// Appends in the call.
    pub(crate) fn commit(&self, batch: &KvBatch, durability: Durability) -> Result<Appended, KvError> {
        let mut state = self.state();
        if state.fenced {
            return Err(KvError::Fenced);
        }
        self.append(&mut state, batch.clone(), durability)
    }

    /// The one for which there was no room, in the call.
    pub(crate) fn commit_again(&self, durability: Durability) -> Result<Appended, KvError> {
        let mut state = self.state();
        if state.fenced {
            return Err(KvError::Fenced);
        }
        let record = state.kept.take().expect("it was kept for lack of room");
        self.append_record(&mut state, record, durability)
    }

    fn append(&self, state: &mut State, batch: KvBatch, durability: Durability) -> Result<Appended, KvError> {
        if batch.ops().iter().any(|(key, _)| key == self.marker.key) {
            return Err(KvError::Misuse("the key that the journal's marker has".to_owned()));
        }
        if record::bytes_of(&batch) as u64 > state.log.half_bytes() {
            return Ok(Appended::TooLarge(batch));
        }
        self.append_record(state, record::encode(batch)?, durability)
    }

    fn append_record(
        &self,
        state: &mut State,
        record: Vec<u8>,
        durability: Durability,
    ) -> Result<Appended, KvError> {
        if !state.log.has_room(record.len()) {
            if state.log.is_frozen() {
                state.kept = Some(record);
                return Ok(Appended::NoRoom);
            }
            self.freeze_now(state)?;
        }
        let record_bytes = record.len() as u64;
        self.progress.begin(record.len());
        let mut appended = state.log.append(record, |bytes| self.progress.wrote(bytes));
        if durability == Durability::Durable && appended.is_ok() {
            appended = state.log.make_durable().and(appended);
        }
        // What the device holds is unknown after an error.
        state.fenced |= appended.is_err();
        self.set_view(self.view().with(appended?));
        Ok(Appended::Done { record_bytes, used_bytes: state.log.used_bytes() })
    }

    fn freeze_now(&self, state: &mut State) -> Result<(), KvError> {
        let outcome = state.log.freeze();
        state.fenced |= outcome.is_err();
        outcome?;
        let frozen = Some(self.view().active_as_one());
        self.set_view(View { frozen, active: Vec::new() });
        Ok(())
    }

    /// Makes the active half the one to be merged; false while the other one is.
    pub(crate) fn freeze(&self) -> Result<bool, KvError> {
        let mut state = self.state();
        if state.fenced {
            return Err(KvError::Fenced);
        }
        if state.log.is_frozen() {
            return Ok(false);
        }
        self.freeze_now(&mut state)?;
        Ok(true)
    }

    fn prepare(&self, state: &mut State) -> Part {
        let view = self.view();
        let (mut batch, mut bytes, first) = (KvBatch::default(), 0, state.prepared);
        let Some(frozen) = &view.frozen else { return Part { batch, bytes: 0, is_last: true } };
        if first == 0 {
            // Again after a crash, too: all that comes after them in the journal does as well.
            frozen.prefixes().iter().for_each(|prefix| batch.delete_prefix(prefix.clone()));
            if frozen.hides(self.marker.key) {
                self.marker.put_into(&mut batch, state.log.merged_through());
            }
        }
        while bytes < PART_BYTES
            && state.prepared - first < PART_CHANGES_MAX
            && let Some((key, value)) = frozen.change_at(state.prepared)
        {
            bytes += frozen.bytes_at(state.prepared);
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
            state.prepared += 1;
        }
        let is_last = state.prepared == frozen.len();
        if is_last && let Some(through) = state.log.frozen_through() {
            self.marker.put_into(&mut batch, through);
        }
        Part { batch, bytes: bytes as u64, is_last }
    }
}
