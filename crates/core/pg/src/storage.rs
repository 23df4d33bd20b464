//! What a copy keeps in its collection beside objects and log, and how it is found again after a crash.
//!
//! | key | value | written |
//! |---|---|---|
//! | `info` | [`PgInfo`], map epoch | when peering ends, when the log is trimmed, when recovery ends |
//! | `interval` | [`Interval`] and [`PastIntervals`] | when the interval changes |
//! | `damaged` | the map epoch | when the others cannot be read at a start |
//! | `missing/` and the object | the version needed | when the log does not reach back to it any more |
//! | `moving` | [`Progress`] | with each step of a split or merge |
//! | `arriving` | [`crate::Arriving`] | with the first change of a copy that another partition's store gets, until it is the PG |
//! | `staged/` and the object | nothing | with the first part of a copy that is collected in a temporary object |
//!
//! A plain write touches none: `last_update`, user version and sums follow from the log entries above
//! the `last_update` that the stored info has, what is missing from the entries above `last_complete`
//! and the records of what is older than the log, and `safe_to` from what the newest entry says if that is more.

use crate::interval::Interval;
use crate::log::{Missing, PgLog};

use crate::object::ObjectContext;
use crate::progress::Progress;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, Encode, Reader, Writer};
use nacre_msg::peer::{LogEntry, PastIntervals, PgInfo};
use nacre_txn::{ObjectView, Op, ReadError, Transaction};
use nacre_types::{Epoch, Eversion, HObject, SpgId};
use std::collections::BTreeSet;

const KEY_INFO: ByteStr = ByteStr::from_static("info");
const KEY_DAMAGED: ByteStr = ByteStr::from_static("damaged");
const KEY_INTERVAL: ByteStr = ByteStr::from_static("interval");
/// Room for the log entry of a plain write, so that encoding it allocates once.
const LOG_ENTRY_BYTES_USUAL: usize = 256;
const KEY_MOVING: ByteStr = ByteStr::from_static("moving");
const PREFIX_MISSING: &[u8] = b"missing/";
const PREFIX_STAGED: &[u8] = b"staged/";

/// What a store holds of a copy.
pub(crate) struct Saved {
    pub(crate) info: PgInfo,
    pub(crate) interval: Interval,
    pub(crate) past: PastIntervals,
    pub(crate) log: PgLog,
    pub(crate) missing: Missing,
    /// Those of them that have a record.
    pub(crate) recorded: BTreeSet<HObject>,
    /// Some of its objects have moved to others.
    pub(crate) progress: Option<Progress>,
}

/// Empties the collection. A copy whose records were damaged may lie there: what it has would count as the new one's, and
/// bring deleted objects back.
pub(crate) fn begin_anew(txn: &mut Transaction) {
    txn.push(Op::RemoveCollection);
    txn.push(Op::CreateCollection);
}

/// The change that says how far objects of this copy are on their way to others.
pub(crate) fn save_progress(progress: &Progress) -> Op {
    Op::MetaSet { key: KEY_MOVING, value: progress.to_bytes() }
}

/// All of them are there.
pub(crate) fn forget_progress() -> Op {
    Op::MetaRemove { key: KEY_MOVING }
}

/// Whether a value makes a collection a PG, so that it is the last to be copied.
pub(crate) fn comes_last(key: &ByteStr) -> bool {
    *key == KEY_INFO || *key == KEY_INTERVAL
}

/// The changes that set these values.
pub(crate) fn last_values(view: &dyn ObjectView, spg: &SpgId) -> Vec<Op> {
    let set = |key: ByteStr| value(view, spg, &key).map(|value| Op::MetaSet { key, value });
    [KEY_INFO, KEY_INTERVAL].into_iter().filter_map(set).collect()
}

/// Adds the info, as of the map `epoch`, to a transaction.
pub(crate) fn save_info(txn: &mut Transaction, info: &PgInfo, epoch: Epoch) {
    let mut w = Writer::new();
    w.put(info);
    w.u32(epoch);
    txn.push(Op::MetaSet { key: KEY_INFO, value: w.finish() });
}

/// Adds the interval and those before it to a transaction.
pub(crate) fn save_interval(txn: &mut Transaction, interval: &Interval, past: &PastIntervals) {
    let mut w = Writer::new();
    w.put(interval);
    w.put(past);
    txn.push(Op::MetaSet { key: KEY_INTERVAL, value: w.finish() });
}

/// Reads a copy back; `None` when something is not there or damaged.
pub(crate) fn load(view: &dyn ObjectView, spg: &SpgId) -> Option<Saved> {
    let (mut info, _epoch) = load_info(view, spg)?;
    let mut r = Reader::new(value(view, spg, &KEY_INTERVAL)?);
    let (interval, past) = (r.get().ok()?, r.get().ok()?);
    let entries = view.log(spg);
    let committed_to = committed_to(&entries);
    let log = PgLog::load(info.log_tail, entries).ok()?;
    if log.head() < info.last_update {
        return None; // entries are lost that this copy once had: it must not be believed
    }
    // It may be of an object that is in another PG since.
    info.safe_to = info.safe_to.max(log.newest_up_to(committed_to));
    log.above(info.last_update).for_each(|entry| follow(&mut info, &entry));
    let progress = match value(view, spg, &KEY_MOVING) {
        Some(value) => Some(Progress::from_bytes(value).ok()?),
        None => None,
    };
    let place =
        |object: &HObject| progress.as_ref().and_then(|progress| progress.place(object)).unwrap_or(*spg);
    let copy = |object: &HObject| copy_version(view, &place(object), object);
    let mut missing = find_missing(&log, &info, copy);
    let mut recorded = BTreeSet::new();
    for (object, need) in recorded_missing(view, spg) {
        let wanted = (need != Eversion::ZERO).then_some(need);
        if info.covers(&object) && copy(&object) != wanted {
            missing.insert(object.clone(), need);
        }
        recorded.insert(object);
    }
    if missing.is_empty() && !info.is_incomplete() {
        info.last_complete = info.last_update;
    }
    Some(Saved { info, interval, past, log, missing, recorded, progress })
}

/// What the newest entry of a stored log says that all members had.
fn committed_to(entries: &[Bytes]) -> Eversion {
    let newest = entries.last().and_then(|entry| LogEntry::from_bytes(entry.clone()).ok());
    newest.map_or(Eversion::ZERO, |entry| entry.committed_to)
}

fn missing_key(object: &HObject) -> ByteStr {
    [PREFIX_MISSING, &object.to_bytes()].concat().into()
}

/// The change that records a missing object.
pub(crate) fn record_missing(object: &HObject, need: Eversion) -> Op {
    Op::MetaSet { key: missing_key(object), value: need.to_bytes() }
}

/// The change that takes it back.
pub(crate) fn forget_missing(object: &HObject) -> Op {
    Op::MetaRemove { key: missing_key(object) }
}

fn recorded_missing(view: &dyn ObjectView, spg: &SpgId) -> Vec<(HObject, Eversion)> {
    let parse = |(key, value): (ByteStr, Bytes)| {
        let object = HObject::from_bytes(key.to_shared().slice(PREFIX_MISSING.len()..)).ok()?;
        Some((object.detached(), Eversion::from_bytes(value).ok()?))
    };
    view.pg_meta(spg, PREFIX_MISSING).into_iter().filter_map(parse).collect()
}

/// The change that records a temporary object, with its first part.
pub(crate) fn note_staged(object: &HObject) -> Op {
    Op::MetaSet { key: staged_key(object), value: Bytes::new() }
}

/// The change that says that it is no more.
pub(crate) fn forget_staged(object: &HObject) -> Op {
    Op::MetaRemove { key: staged_key(object) }
}

fn staged_key(object: &HObject) -> ByteStr {
    [PREFIX_STAGED, &object.to_bytes()].concat().into()
}

fn staged_object(key: &ByteStr) -> Option<HObject> {
    let name = key.strip_prefix(PREFIX_STAGED)?;
    HObject::from_bytes(Bytes::copy_from_slice(name)).ok()
}

/// Follows what a transaction does to the temporary objects of a copy.
pub(crate) fn follow_staged(staged: &mut BTreeSet<HObject>, ops: &[Op]) {
    for op in ops {
        match op {
            Op::MetaSet { key, .. } => staged.extend(staged_object(key)),
            Op::MetaRemove { key } if !staged.is_empty() => {
                if let Some(object) = staged_object(key) {
                    staged.remove(&object);
                }
            }
            _ => {}
        }
    }
}

/// The temporary objects that a store holds.
pub(crate) fn staged(view: &dyn ObjectView, spg: &SpgId) -> BTreeSet<HObject> {
    view.pg_meta(spg, PREFIX_STAGED).iter().filter_map(|(key, _)| staged_object(key)).collect()
}

fn value(view: &dyn ObjectView, spg: &SpgId, key: &ByteStr) -> Option<Bytes> {
    view.pg_meta(spg, key).into_iter().find(|(at, _)| at == key).map(|(_, value)| value)
}

/// The info, and the map epoch that the copy had come to at least.
pub(crate) fn load_info(view: &dyn ObjectView, spg: &SpgId) -> Option<(PgInfo, Epoch)> {
    let mut r = Reader::new(value(view, spg, &KEY_INFO)?);
    Some((r.get().ok()?, r.u32().ok()?))
}

/// The newest map that a copy can have seen which was found damaged; `newest` is that of the OSD's present one. With the change
/// that records it, if it is news.
pub(crate) fn note_damage(view: &dyn ObjectView, spg: SpgId, newest: Epoch) -> (Epoch, Option<Transaction>) {
    let known = value(view, &spg, &KEY_DAMAGED).and_then(|value| Epoch::from_bytes(value).ok());
    if let Some(known) = known.filter(|known| *known > 0) {
        return (known, None);
    }
    let mut txn = Transaction::new(spg);
    txn.push(Op::MetaSet { key: KEY_DAMAGED, value: newest.to_bytes() });
    (newest, Some(txn))
}

/// What an entry at the head of the log means for the info.
pub(crate) fn follow(info: &mut PgInfo, entry: &LogEntry) {
    info.last_update = entry.version;
    info.last_user_version = info.last_user_version.max(entry.user_version);
    info.counters.add(&entry.delta);
}

/// Objects whose newest entry above `last_complete` is not what this copy holds, as `copy` says. What is behind
/// `last_backfill` it need not hold: only a comparison tells.
fn find_missing(log: &PgLog, info: &PgInfo, copy: impl Fn(&HObject) -> Option<Eversion>) -> Missing {
    let (mut seen, mut missing) = (BTreeSet::new(), Missing::default());
    let counts = |entry: &LogEntry| entry.changes_object() && info.covers(&entry.object);
    for entry in log.above(info.last_complete).rev().filter(counts) {
        if seen.contains(&entry.object) {
            continue;
        }
        let need = if entry.is_delete() { None } else { Some(entry.version) };
        if copy(&entry.object) != need {
            missing.insert(entry.object.clone(), need.unwrap_or(Eversion::ZERO));
        }
        seen.insert(entry.object);
    }
    missing
}

/// The version of a copy's object: `None` when it does not exist, zero when it is only partly there.
pub(crate) fn copy_version(view: &dyn ObjectView, spg: &SpgId, object: &HObject) -> Option<Eversion> {
    let record = view.meta(spg, object)?;
    Some(ObjectContext::from_record(record).map_or(Eversion::ZERO, |context| context.info.version))
}

/// The change that stores a log entry.
pub(crate) fn log_append(entry: &LogEntry) -> Op {
    let mut w = Writer::with_capacity(LOG_ENTRY_BYTES_USUAL);
    w.put(entry);
    Op::LogAppend { version: entry.version, entry: w.finish() }
}

/// The error of reading a piece of a range of which all pieces are needed in memory at the same time: what is missing
/// is fetched together. Fetched one by one, a later piece may push an earlier one out.
pub(crate) fn together(error: ReadError, offset: u64, length: u64) -> ReadError {
    match error {
        ReadError::Pending { object, .. } => ReadError::Pending { object, offset, length },
        ReadError::Damaged { .. } => error,
    }
}
