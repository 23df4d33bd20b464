//! Changes of a bucket index: a write of an object is announced first and completed after, so that a listing that sees
//! one left behind can look at the object itself and suggest what the index should say.
//! Formats: Ceph `src/cls/rgw/cls_rgw_ops.h`; behaviour measured at v16.2.15.

use super::bucket_log::{LogEntry, op};
use super::entry::{DirEntry, Key, Meta, Pending, Version, flag};
use super::header::{Header, Stats};
use super::index_keys::{instance_key, object_key};
use crate::keys::{input, stored};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader};
use nacre_types::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Announced changes are given up after this, unless the header says otherwise.
const TAG_TIMEOUT_S: u64 = 120;
/// Operations of `dir_suggest_changes`.
const SUGGEST_REMOVE: u8 = b'r';
const SUGGEST_UPDATE: u8 = b'u';
/// Bit beside them: the change is to be logged.
const SUGGEST_LOG: u8 = 0x80;

/// A value of the index.
pub(super) fn at<T: Decode>(cx: &dyn ClassCx, key: &[u8]) -> Result<Option<T>, Fault> {
    cx.omap_value(key).map(stored).transpose()
}

/// Where the entry of an object or version is or would be, and the entry. Behind a placeholder that is the version
/// without instance, or its delete marker if `or_marker` asks for that first.
pub(super) fn locate(
    cx: &dyn ClassCx,
    key: &Key,
    or_marker: bool,
) -> Result<(ByteStr, Option<DirEntry>), Fault> {
    let place = object_key(key);
    let found: Option<DirEntry> = at(cx, &place)?;
    if !key.instance.is_empty() || !found.as_ref().is_some_and(|entry| entry.has(flag::PLACEHOLDER)) {
        return Ok((place, found));
    }
    if or_marker {
        let place = instance_key(key, true);
        if let Ok(Some(marker)) = at(cx, &place) {
            return Ok((place, Some(marker)));
        }
    }
    let place = instance_key(key, false);
    let found = at(cx, &place)?;
    Ok((place, found))
}

/// Makes an empty index.
pub(super) fn init_index(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    if !cx.omap_header().is_empty() {
        return fail(Errno::EINVAL);
    }
    Header::default().save(cx);
    done()
}

/// `u64 seconds`
pub(super) fn set_tag_timeout(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let tag_timeout_s = Reader::new(bytes).envelope("rgw_cls_tag_timeout_op", 1, |_, r| r.u64())?;
    Header { tag_timeout_s, ..Header::load(cx)? }.save(cx);
    done()
}

/// `bool absolute, map<u8 category, stats>`: sets what is counted, or adds to it.
pub(super) fn update_stats(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (absolute, stats) = Reader::new(bytes).envelope("rgw_cls_bucket_update_stats_op", 2, |_, r| {
        Ok((r.bool()?, r.get::<BTreeMap<u8, Stats>>()?))
    })?;
    let mut header = Header::load(cx)?;
    for (category, change) in stats {
        let counted = header.stats.entry(category).or_default();
        if absolute {
            *counted = change;
        } else {
            counted.add(change);
        }
    }
    header.save(cx);
    done()
}

/// `rgw_cls_obj_prepare_op`
struct PrepareOp {
    op: u8,
    tag: ByteStr,
    locator: ByteStr,
    key: Key,
}

impl Decode for PrepareOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_cls_obj_prepare_op", 7, |version, r| {
            oldest("rgw_cls_obj_prepare_op", version, 5)?;
            let (op, tag, locator, _logged) = (r.u8()?, r.get()?, r.get()?, r.bool()?);
            Ok(Self { op, tag, locator, key: r.get()? })
        })
    }
}

/// Refuses what clients older than Ceph 10 send.
pub(super) fn oldest(what: &'static str, version: u8, oldest: u8) -> Result<(), DecodeError> {
    if version < oldest { Err(DecodeError::Invalid { what, value: version.into() }) } else { Ok(()) }
}

pub(super) fn prepare_op(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: PrepareOp = input(bytes)?;
    if op.tag.is_empty() {
        return fail(Errno::EINVAL);
    }
    let (place, found) = locate(cx, &op.key, false)?;
    let mut entry =
        found.unwrap_or_else(|| DirEntry { key: op.key, locator: op.locator, ..DirEntry::default() });
    entry.announce(op.tag, Pending { state: 0, since: cx.now(), op: op.op });
    store(cx, place, &entry);
    done()
}

fn store(cx: &mut dyn ClassCx, place: ByteStr, entry: &DirEntry) {
    cx.omap_set(vec![(place, entry.to_bytes())]);
}

/// `rgw_cls_obj_complete_op`
struct CompleteOp {
    op: u8,
    meta: Meta,
    tag: ByteStr,
    locator: ByteStr,
    /// Entries that go at the same time, such as the parts of an upload.
    removed: Vec<Key>,
    version: Version,
    logged: bool,
    key: Key,
    log_flags: u16,
    zones: BTreeSet<ByteStr>,
}

impl Decode for CompleteOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_cls_obj_complete_op", 9, |version, r| {
            oldest("rgw_cls_obj_complete_op", version, 7)?;
            let op = r.u8()?;
            r.u64()?; // the epoch, once more in the version
            Ok(Self {
                op,
                meta: r.get()?,
                tag: r.get()?,
                locator: r.get()?,
                removed: r.get()?,
                version: r.get()?,
                logged: r.bool()?,
                key: r.get()?,
                log_flags: if version >= 8 { r.u16()? } else { 0 },
                zones: if version >= 9 { r.get()? } else { BTreeSet::new() },
            })
        })
    }
}

impl CompleteOp {
    /// Not done, or already done by a later write.
    fn is_cancelled(&self, entry: &DirEntry) -> bool {
        let is_old = self.version.pool == entry.version.pool
            && self.version.epoch != 0
            && self.version.epoch <= entry.version.epoch;
        (!self.tag.is_empty() && self.op == op::CANCEL) || is_old
    }
}

pub(super) fn complete_op(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut op: CompleteOp = input(bytes)?;
    let mut header = Header::load(cx).map_err(|_| Fault::Errno(Errno::EINVAL))?;
    let (place, found) = locate(cx, &op.key, false)?;
    let was_there = found.is_some();
    let mut entry = found.unwrap_or_else(|| DirEntry {
        key: op.key.clone(),
        version: op.version,
        meta: op.meta.clone(),
        locator: op.locator.clone(),
        ..DirEntry::default()
    });
    entry.index_version = header.version;
    entry.flags &= flag::VERSION; // it may have been a delete marker
    if !op.tag.is_empty() && !entry.withdraw(&op.tag) {
        return fail(Errno::EINVAL);
    }
    if op.is_cancelled(&entry) {
        op.op = op::CANCEL;
    }
    entry.version = op.version;
    let changed = apply(cx, &mut header, place, &mut entry, &op, was_there);
    let logged = op.logged && !header.log_stopped;
    if changed && logged {
        LogEntry {
            key: op.key,
            time: entry.meta.mtime,
            version: entry.version,
            tag: op.tag,
            flags: op.log_flags,
            zones: op.zones,
            ..LogEntry::of(op.op)
        }
        .append(cx, &mut header);
    }
    for key in op.removed {
        // Entries that are not there, or damaged, are left as they are.
        let Ok((place, Some(entry))) = locate(cx, &key, false) else { continue };
        header.unaccount(&entry);
        if logged {
            header.version = header.version.wrapping_add(1); // ids in the log begin with it
            let (time, version) = (entry.meta.mtime, entry.version);
            LogEntry { key, time, version, ..LogEntry::of(op::DELETE) }.append(cx, &mut header);
        }
        cx.omap_remove(vec![place]);
    }
    header.save(cx);
    done()
}

/// Changes the entry and the counts; false when there is nothing to log.
fn apply(
    cx: &mut dyn ClassCx,
    header: &mut Header,
    place: ByteStr,
    entry: &mut DirEntry,
    op: &CompleteOp,
    was_there: bool,
) -> bool {
    match op.op {
        op::CANCEL => {
            if op.tag.is_empty() {
                // Nothing was announced.
            } else if !entry.exists && entry.pending.is_empty() {
                cx.omap_remove(vec![place]);
            } else {
                store(cx, place, entry);
            }
            false
        }
        op::DELETE => {
            header.unaccount(entry);
            entry.meta = op.meta.clone();
            if was_there && entry.pending.is_empty() {
                cx.omap_remove(vec![place]);
            } else if was_there {
                entry.exists = false;
                store(cx, place, entry);
            }
            was_there
        }
        op::ADD => {
            header.unaccount(entry);
            header.account(&op.meta);
            entry.meta = op.meta.clone();
            entry.key = op.key.clone();
            entry.exists = true;
            entry.tag = op.tag.clone();
            store(cx, place, entry);
            true
        }
        _ => true,
    }
}

/// Repeated `u8 op, entry`: what those who looked at the objects themselves found.
pub(super) fn suggest_changes(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut header = Header::load(cx)?;
    let mut r = Reader::new(bytes);
    let mut changed = false;
    while !r.is_empty() {
        let (op, entry) = (r.u8()?, r.get::<DirEntry>()?);
        changed |= suggest(cx, &mut header, op, entry)?;
    }
    if changed {
        header.save(cx);
    }
    done()
}

/// Follows one suggestion, unless the index knows better; true when the counts changed.
fn suggest(cx: &mut dyn ClassCx, header: &mut Header, op: u8, suggested: DirEntry) -> Result<bool, Fault> {
    let place = object_key(&suggested.key);
    let Some(value) = cx.omap_value(&place) else { return Ok(false) };
    let mut old = DirEntry::default();
    if !value.is_empty() {
        old = input(value)?;
        let timeout_s = if header.tag_timeout_s == 0 { TAG_TIMEOUT_S } else { header.tag_timeout_s };
        let timeout = Duration::from_secs(timeout_s);
        old.pending.retain(|(_, pending)| cx.now() <= pending.since.after(timeout));
    }
    if suggested.index_version < old.index_version || !old.pending.is_empty() {
        return Ok(false);
    }
    header.unaccount(&old);
    let mut changed = old.exists;
    let logged = op & SUGGEST_LOG != 0 && !header.log_stopped;
    match op & !SUGGEST_LOG {
        SUGGEST_REMOVE => {
            cx.omap_remove(vec![place]);
            if logged && old.exists {
                log_suggestion(cx, header, op::DELETE, &old);
            }
        }
        SUGGEST_UPDATE => {
            header.account(&suggested.meta);
            changed = true;
            let entry = DirEntry { index_version: header.version, ..suggested };
            store(cx, place, &entry);
            if logged {
                log_suggestion(cx, header, op::ADD, &entry);
            }
        }
        _ => {}
    }
    Ok(changed)
}

fn log_suggestion(cx: &mut dyn ClassCx, header: &mut Header, op: u8, entry: &DirEntry) {
    LogEntry {
        key: entry.key.clone(),
        time: entry.meta.mtime,
        version: entry.version,
        tag: entry.tag.clone(),
        ..LogEntry::of(op)
    }
    .append(cx, header);
}
