//! What a copy keeps in its collection beside objects and log, and how it is found again after a crash.
//!
//! | key | value | written |
//! |---|---|---|
//! | `info` | [`PgInfo`], map epoch | when peering ends, when the log is trimmed, when recovery ends |
//! | `interval` | [`Interval`] and [`PastIntervals`] | when the interval changes |
//! | `missing/` and the object | the version needed | when the log does not reach back to it any more |
//!
//! A plain write touches none: `last_update`, user version and sums follow from the log entries above
//! the `last_update` that the stored info has, and what is missing from the entries above `last_complete`
//! and the records of what is older than the log.

use crate::log::{Missing, PgLog};
use crate::object::ObjectContext;
use crate::peering::Interval;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, Encode, Reader, Writer};
use nacre_msg::peer::{LogEntry, PastIntervals, PgInfo};
use nacre_txn::{ObjectView, Op, ReadError, Transaction};
use nacre_types::{Epoch, Eversion, HObject, SpgId};
use std::collections::BTreeSet;

const KEY_INFO: ByteStr = ByteStr::from_static("info");
const KEY_INTERVAL: ByteStr = ByteStr::from_static("interval");
/// Room for the log entry of a plain write, so that encoding it allocates once.
const LOG_ENTRY_BYTES_USUAL: usize = 256;
const PREFIX_MISSING: &[u8] = b"missing/";

/// What a store holds of a copy.
pub(crate) struct Saved {
    pub(crate) info: PgInfo,
    pub(crate) interval: Interval,
    pub(crate) past: PastIntervals,
    pub(crate) log: PgLog,
    pub(crate) missing: Missing,
    /// Those of them that have a record.
    pub(crate) recorded: BTreeSet<HObject>,
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
    let log = PgLog::load(info.log_tail, view.log(spg)).ok()?;
    if log.head() < info.last_update {
        return None; // entries are lost that this copy once had: it must not be believed
    }
    log.above(info.last_update).for_each(|entry| follow(&mut info, &entry));
    let (mut missing, mut recorded) = (Missing::default(), BTreeSet::new());
    if !info.is_incomplete() {
        missing = find_missing(view, spg, &log, info.last_complete);
    }
    for (object, need) in recorded_missing(view, spg) {
        if !info.is_incomplete() && copy_version(view, spg, &object) != Some(need) {
            missing.insert(object.clone(), need);
        }
        recorded.insert(object);
    }
    if missing.is_empty() && !info.is_incomplete() {
        info.last_complete = info.last_update;
    }
    Some(Saved { info, interval, past, log, missing, recorded })
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

fn value(view: &dyn ObjectView, spg: &SpgId, key: &ByteStr) -> Option<Bytes> {
    view.pg_meta(spg, key).into_iter().find(|(at, _)| at == key).map(|(_, value)| value)
}

/// The info, and the map epoch that the copy had come to at least.
pub(crate) fn load_info(view: &dyn ObjectView, spg: &SpgId) -> Option<(PgInfo, Epoch)> {
    let mut r = Reader::new(value(view, spg, &KEY_INFO)?);
    Some((r.get().ok()?, r.u32().ok()?))
}

/// What an entry at the head of the log means for the info.
pub(crate) fn follow(info: &mut PgInfo, entry: &LogEntry) {
    info.last_update = entry.version;
    info.last_user_version = info.last_user_version.max(entry.user_version);
    info.counters.add(&entry.delta);
}

/// Objects whose newest entry above `complete` is not what this copy holds.
fn find_missing(view: &dyn ObjectView, spg: &SpgId, log: &PgLog, complete: Eversion) -> Missing {
    let (mut seen, mut missing) = (BTreeSet::new(), Missing::default());
    for entry in log.above(complete).rev().filter(|entry| entry.changes_object()) {
        if seen.contains(&entry.object) {
            continue;
        }
        let need = if entry.is_delete() { None } else { Some(entry.version) };
        if copy_version(view, spg, &entry.object) != need {
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
