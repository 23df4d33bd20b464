//! Linking and unlinking versions of an object: which of them readers see.
//! Formats: Ceph `src/cls/rgw/cls_rgw_ops.h`; behaviour measured at v16.2.15.

use super::bucket_log::{LogEntry, VERSIONED, op as change};
use super::changes::{at, locate};
use super::entry::{DirEntry, Key, Meta, Version, flag};
use super::header::Header;
use super::index_keys::{instance_key, list_key, olh_key};
use super::olh::{Olh, step};
use crate::keys::{input, stored};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader};
use nacre_types::{Errno, UTime};
use std::collections::BTreeSet;

/// The tag of all delete markers.
const MARKER_TAG: &str = "delete-marker";
/// What clients call the version without instance.
const NULL_INSTANCE: &[u8] = b"null";

/// `rgw_cls_link_olh_op`
struct LinkOp {
    key: Key,
    olh_tag: ByteStr,
    delete_marker: bool,
    op_tag: ByteStr,
    meta: Meta,
    olh_epoch: u64,
    logged: bool,
    log_flags: u16,
    /// Only versions older than this are linked; zero for all.
    unmodified_since: UTime,
    high_precision: bool,
    zones: BTreeSet<ByteStr>,
}

impl Decode for LinkOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_cls_link_olh_op", 5, |version, r| {
            let mut op = Self {
                key: r.get()?,
                olh_tag: r.get()?,
                delete_marker: r.bool()?,
                op_tag: r.get()?,
                meta: r.get()?,
                olh_epoch: r.u64()?,
                logged: r.bool()?,
                log_flags: r.u16()?,
                unmodified_since: UTime::ZERO,
                high_precision: false,
                zones: BTreeSet::new(),
            };
            if version >= 2 {
                let sec = u32::try_from(r.u64()?).unwrap_or(u32::MAX);
                op.unmodified_since = if version >= 3 { r.get()? } else { UTime { sec, nsec: 0 } };
            }
            op.high_precision = version >= 4 && r.bool()?;
            if version >= 5 {
                op.zones = r.get()?;
            }
            Ok(op)
        })
    }
}

impl LinkOp {
    /// The version was changed since the client looked.
    fn is_modified(&self, entry: &DirEntry) -> bool {
        let (mut mtime, mut since) = (entry.meta.mtime, self.unmodified_since);
        if !self.high_precision {
            (mtime.nsec, since.nsec) = (0, 0);
        }
        !self.unmodified_since.is_zero() && mtime >= since
    }
}

/// A version under change: its entry, and where writers find it.
struct Instance {
    place: ByteStr,
    entry: DirEntry,
}

impl Instance {
    /// The version; for one without instance its delete marker first, if `or_marker`.
    fn find(cx: &dyn ClassCx, key: &Key, or_marker: bool) -> Result<(ByteStr, Option<Self>), Fault> {
        let (place, found) = locate(cx, key, or_marker && key.instance.is_empty())?;
        Ok((place.clone(), found.map(|entry| Self { place, entry })))
    }

    /// A version that must be there.
    fn get(cx: &dyn ClassCx, key: &Key) -> Result<Self, Fault> {
        let (_, found) = Self::find(cx, key, true)?;
        found.ok_or(Fault::Errno(Errno::ENOENT))
    }

    fn is_delete_marker(&self) -> bool {
        self.entry.has(flag::DELETE_MARKER)
    }

    fn unlist(&self, cx: &mut dyn ClassCx) {
        cx.omap_remove(vec![list_key(&self.entry)]);
    }

    /// Stores both entries.
    fn save(&mut self, cx: &mut dyn ClassCx, key: &Key) {
        let is_null_marker = self.is_delete_marker() && self.entry.key.instance.is_empty();
        self.place = instance_key(key, is_null_marker);
        store_both(cx, &self.place, &self.entry);
    }

    /// Stores it at an epoch, where listings find it then.
    fn save_at(&mut self, cx: &mut dyn ClassCx, key: &Key, epoch: u64, current: bool) {
        if self.entry.versioned_epoch > 0 {
            self.unlist(cx);
        }
        self.entry.versioned_epoch = epoch;
        self.entry.flags |= if current { flag::VERSION | flag::CURRENT } else { flag::VERSION };
        self.save(cx, key);
    }
}

fn store_both(cx: &mut dyn ClassCx, place: &ByteStr, entry: &DirEntry) {
    let value = entry.to_bytes();
    cx.omap_set(vec![(place.clone(), value.clone())]);
    cx.omap_set(vec![(list_key(entry), value)]);
}

/// An object gets its first version: what was there becomes the version without instance at epoch 1, and a placeholder
/// takes its place.
fn convert_plain(cx: &mut dyn ClassCx, name: &ByteStr, demote: bool, listed: bool) -> Result<(), Fault> {
    let key = Key::plain(name.clone());
    if let (_, Some(mut entry)) = locate(cx, &key, false)? {
        entry.versioned_epoch = 1;
        entry.flags |= flag::VERSION;
        if demote {
            entry.flags &= !flag::CURRENT;
        }
        let place = instance_key(&key, false);
        if listed {
            store_both(cx, &place, &entry);
        } else {
            cx.omap_set(vec![(place, entry.to_bytes())]);
        }
    }
    let placeholder = DirEntry { key, flags: flag::PLACEHOLDER, ..DirEntry::default() };
    cx.omap_set(vec![(name.clone(), placeholder.to_bytes())]);
    Ok(())
}

/// The other of the two entries that may stand under the empty instance (data and delete marker) goes from the listing.
/// True when a data object is being replaced by a delete marker: then its data must go as well.
fn replace_other_null(cx: &mut dyn ClassCx, op: &LinkOp) -> Result<bool, Fault> {
    let (place, other) = match Instance::find(cx, &op.key, !op.delete_marker) {
        Ok(found) => found,
        Err(Fault::Errno(_)) => (ByteStr::EMPTY, None),
        Err(other) => return Err(other),
    };
    let has_data = other.as_ref().is_some_and(|other| !other.is_delete_marker());
    if let Some(other) = other.filter(|other| other.is_delete_marker() != op.delete_marker) {
        other.unlist(cx);
    }
    let removing = has_data && op.delete_marker;
    if !removing {
        if !cx.exists() {
            return fail(Errno::ENOENT);
        }
        cx.omap_remove(vec![place]);
    }
    Ok(removing)
}

/// Makes a version, or a delete marker, the current one.
pub(super) fn link_olh(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: LinkOp = input(bytes)?;
    let (place, found) = Instance::find(cx, &op.key, op.delete_marker)?;
    let stored_olh: Option<Olh> = at(cx, &olh_key(&op.key.name))?;
    // No version of that name, and for a marker no object that is not deleted already.
    let is_deleted = || stored_olh.as_ref().is_some_and(|olh| olh.delete_marker);
    if found.is_none() && (!op.delete_marker || is_deleted()) {
        return fail(Errno::ENOENT);
    }
    if found.as_ref().is_some_and(|found| op.is_modified(&found.entry)) {
        return done();
    }
    let removing = if op.key.instance.is_empty() {
        replace_other_null(cx, &op)?
    } else {
        found.as_ref().is_some_and(|found| !found.is_delete_marker() && op.delete_marker)
    };
    let mut version = found.unwrap_or_else(|| Instance { place, entry: DirEntry::default() });
    if op.delete_marker {
        version.entry.key = op.key.clone();
        version.entry.flags = flag::DELETE_MARKER;
        version.entry.meta = op.meta.clone();
        version.entry.tag = ByteStr::from_static(MARKER_TAG);
    }
    let olh_found = stored_olh.is_some();
    let mut olh = stored_olh.unwrap_or_default();
    let last_epoch = olh.epoch;
    if !olh.advance(op.olh_epoch) {
        version.save_at(cx, &op.key, op.olh_epoch, false);
        return done();
    }
    let promote = olh.epoch > last_epoch || olh.key.instance >= op.key.instance;
    if olh_found {
        take_over(cx, &mut olh, &op, promote)?;
    } else {
        let listed = !op.key.instance.is_empty() || !op.delete_marker;
        convert_plain(cx, &op.key.name, promote, listed)?;
        olh.tag = op.olh_tag.clone();
        if op.key.instance.is_empty() {
            version.entry.versioned_epoch = 1;
        }
    }
    olh.note(step::LINK, &op.op_tag, &op.key, op.delete_marker, 0);
    if removing {
        olh.note(step::REMOVE_INSTANCE, &op.op_tag, &op.key, false, 0);
    }
    if promote {
        (olh.key, olh.delete_marker) = (op.key.clone(), op.delete_marker);
    }
    olh.exists = true;
    olh.save(cx, &op.key.name);
    version.save_at(cx, &op.key, olh.epoch, promote);
    log_link(cx, op, &olh, version.entry)
}

/// The version that was current is it no longer.
fn take_over(cx: &mut dyn ClassCx, olh: &mut Olh, op: &LinkOp, promote: bool) -> Result<(), Fault> {
    if olh.tag != op.olh_tag {
        if !olh.pending_removal {
            return fail(Errno::ECANCELED);
        }
        olh.tag = op.olh_tag.clone(); // another life of the object begins
    }
    if promote && olh.exists && olh.key != op.key {
        let mut last = Instance::get(cx, &olh.key)?;
        last.entry.flags &= !flag::CURRENT;
        last.save(cx, &olh.key);
    }
    olh.pending_removal = false;
    Ok(())
}

fn log_link(cx: &mut dyn ClassCx, op: LinkOp, olh: &Olh, entry: DirEntry) -> MethodResult {
    let kind = if op.delete_marker { change::LINK_DELETE_MARKER } else { change::LINK_OLH };
    let mut log_entry = LogEntry {
        key: op.key,
        time: entry.meta.mtime,
        version: logged_version(op.olh_epoch, olh),
        tag: op.op_tag,
        flags: op.log_flags | VERSIONED,
        zones: op.zones,
        ..LogEntry::of(kind)
    };
    if op.delete_marker {
        (log_entry.owner, log_entry.owner_name) = (entry.meta.owner, entry.meta.owner_name);
    }
    log(cx, op.logged, log_entry)
}

/// The epoch that the gateway asked for, or the one that the object has come to.
fn logged_version(asked: u64, olh: &Olh) -> Version {
    Version { epoch: if asked == 0 { olh.epoch } else { asked }, ..Version::default() }
}

/// Ends a change, which is logged if the gateway wants that and the log has not been stopped.
fn log(cx: &mut dyn ClassCx, wanted: bool, entry: LogEntry) -> MethodResult {
    let mut header = Header::load(cx)?;
    if wanted && !header.log_stopped {
        entry.append(cx, &mut header);
        header.save(cx);
    }
    done()
}

/// `rgw_cls_unlink_instance_op`
struct UnlinkOp {
    key: Key,
    op_tag: ByteStr,
    olh_epoch: u64,
    logged: bool,
    log_flags: u16,
    olh_tag: ByteStr,
    zones: BTreeSet<ByteStr>,
}

impl Decode for UnlinkOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_cls_unlink_instance_op", 3, |version, r| {
            Ok(Self {
                key: r.get()?,
                op_tag: r.get()?,
                olh_epoch: r.u64()?,
                logged: r.bool()?,
                log_flags: r.u16()?,
                olh_tag: if version >= 2 { r.get()? } else { ByteStr::EMPTY },
                zones: if version >= 3 { r.get()? } else { BTreeSet::new() },
            })
        })
    }
}

/// The version that was made before `version`: the next in the listing.
fn next_version(cx: &dyn ClassCx, version: &Instance) -> Result<Option<Key>, Fault> {
    let name = &version.entry.key.name;
    let (found, _) = cx.omap_after(&list_key(&version.entry), name, 1);
    let next: Option<DirEntry> = found.into_iter().next().map(|(_, value)| stored(value)).transpose()?;
    Ok(next.map(|next| next.key).filter(|key| key.name == *name))
}

/// Removes a version from its object. What its data was goes later, in steps.
pub(super) fn unlink_instance(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: UnlinkOp = input(bytes)?;
    let mut key = op.key.clone();
    if key.instance.as_bytes() == NULL_INSTANCE {
        key.instance = ByteStr::EMPTY;
    }
    let (_, found) = Instance::find(cx, &key, true)?;
    let Some(mut version) = found else { return done() };
    let stored_olh: Option<Olh> = at(cx, &olh_key(&key.name))?;
    let olh_found = stored_olh.is_some();
    let mut olh = stored_olh.unwrap_or_default();
    if !olh_found {
        convert_plain(cx, &key.name, true, true)?;
        olh.key = key.clone();
        olh.tag = op.olh_tag.clone();
        version.entry.versioned_epoch = 1;
    }
    if !olh.advance(op.olh_epoch) {
        version.unlist(cx);
        if !version.is_delete_marker() {
            olh.note(step::REMOVE_INSTANCE, &op.op_tag, &op.key, false, op.olh_epoch);
            olh.save(cx, &key.name);
        }
        return done();
    }
    if olh.key == key {
        promote_next(cx, &mut olh, &op, &version, &key)?;
    }
    if version.is_delete_marker() {
        cx.omap_remove(vec![version.place.clone()]); // there is no data that would be removed with it
    } else {
        olh.note(step::REMOVE_INSTANCE, &op.op_tag, &op.key, false, 0);
    }
    version.unlist(cx);
    olh.save(cx, &key.name);
    log_unlink(cx, op, &olh, &version.entry)
}

/// The current version goes: the one before it becomes current, or the object has none.
fn promote_next(
    cx: &mut dyn ClassCx,
    olh: &mut Olh,
    op: &UnlinkOp,
    version: &Instance,
    key: &Key,
) -> Result<(), Fault> {
    let Some(next_key) = next_version(cx, version)? else {
        (olh.key, olh.delete_marker) = (Key::plain(key.name.clone()), false);
        let gone = olh.key.clone();
        olh.note(step::UNLINK, &op.op_tag, &gone, false, 0);
        (olh.exists, olh.pending_removal) = (false, true);
        return Ok(());
    };
    let mut next = Instance::get(cx, &next_key)?;
    next.entry.flags |= flag::VERSION | flag::CURRENT;
    next.save(cx, &next_key);
    (olh.key, olh.delete_marker) = (next_key.clone(), next.is_delete_marker());
    olh.note(step::LINK, &op.op_tag, &next_key, next.is_delete_marker(), 0);
    Ok(())
}

fn log_unlink(cx: &mut dyn ClassCx, op: UnlinkOp, olh: &Olh, entry: &DirEntry) -> MethodResult {
    let log_entry = LogEntry {
        key: op.key,
        time: entry.meta.mtime,
        version: logged_version(op.olh_epoch, olh),
        tag: op.op_tag,
        flags: op.log_flags | VERSIONED,
        zones: op.zones,
        ..LogEntry::of(change::UNLINK_INSTANCE)
    };
    log(cx, op.logged, log_entry)
}
