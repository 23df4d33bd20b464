//! The log of a bucket index: what other zones must see of its changes.
//! Formats: Ceph `src/cls/rgw/cls_rgw_types.h` (`rgw_bi_log_entry`) and `cls_rgw_ops.h`, v16.2.15.

use super::entry::{Key, Version, packed, put_packed};
use super::header::Header;
use super::index_keys::{INSTANCE_PREFIX, LOG_PREFIX};
use crate::keys::{input, output, stored, values};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime};
use std::collections::BTreeSet;

/// Entries that one call trims; clients call until there are none.
const TRIMMED_MAX: u64 = 1000;
/// Bit of [`LogEntry::flags`]: of a versioned object.
pub(super) const VERSIONED: u16 = 1;

/// `RGWModifyOp`
pub(super) mod op {
    pub(crate) const ADD: u8 = 0;
    pub(crate) const DELETE: u8 = 1;
    pub(crate) const CANCEL: u8 = 2;
    pub(crate) const UNKNOWN: u8 = 3;
    pub(crate) const LINK_OLH: u8 = 4;
    pub(crate) const LINK_DELETE_MARKER: u8 = 5;
    pub(crate) const UNLINK_INSTANCE: u8 = 6;
    pub(crate) const SYNC_STOP: u8 = 7;
    pub(crate) const RESYNC: u8 = 8;
}

/// `CLS_RGW_STATE_COMPLETE`
const COMPLETE: u8 = 1;

/// `rgw_bi_log_entry`
pub(super) struct LogEntry {
    /// The key without prefix; given when it is appended.
    pub(super) id: ByteStr,
    pub(super) key: Key,
    pub(super) time: UTime,
    pub(super) version: Version,
    pub(super) tag: ByteStr,
    pub(super) op: u8,
    pub(super) state: u8,
    /// [`Header::version`] when it was appended.
    pub(super) index_version: u64,
    pub(super) flags: u16,
    /// Of a delete marker.
    pub(super) owner: ByteStr,
    pub(super) owner_name: ByteStr,
    /// Zones that have seen the change.
    pub(super) zones: BTreeSet<ByteStr>,
}

impl LogEntry {
    /// A completed change; everything else is to be filled in.
    pub(super) fn of(op: u8) -> Self {
        Self {
            id: ByteStr::EMPTY,
            key: Key::default(),
            time: UTime::ZERO,
            version: Version::default(),
            tag: ByteStr::EMPTY,
            op,
            state: COMPLETE,
            index_version: 0,
            flags: 0,
            owner: ByteStr::EMPTY,
            owner_name: ByteStr::EMPTY,
            zones: BTreeSet::new(),
        }
    }

    /// Stores it under the next id, which the header notes.
    pub(super) fn append(mut self, cx: &mut dyn ClassCx, header: &mut Header) {
        self.index_version = header.version;
        self.store(cx, header);
    }

    fn store(mut self, cx: &mut dyn ClassCx, header: &mut Header) {
        self.id = new_id(cx, header);
        if self.id > header.marker_max {
            header.marker_max = self.id.clone();
        }
        cx.omap_set(vec![(log_key(&self.id), self.to_bytes())]);
    }
}

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.put(&self.id);
            w.put(&self.key.name);
            w.put(&self.time);
            w.put(&self.version);
            w.put(&self.tag);
            w.u8(self.op);
            w.u8(self.state);
            put_packed(w, self.index_version);
            w.put(&self.key.instance);
            w.u16(self.flags);
            w.put(&self.owner);
            w.put(&self.owner_name);
            w.put(&self.zones);
        });
    }
}

impl Decode for LogEntry {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_bi_log_entry", 4, |version, r| {
            let mut entry = Self::of(op::UNKNOWN);
            (entry.id, entry.key.name) = (r.get()?, r.get()?);
            (entry.time, entry.version, entry.tag) = (r.get()?, r.get()?, r.get()?);
            (entry.op, entry.state, entry.index_version) = (r.u8()?, r.u8()?, packed(r)?);
            if version >= 2 {
                (entry.key.instance, entry.flags) = (r.get()?, r.u16()?);
            }
            if version >= 3 {
                (entry.owner, entry.owner_name) = (r.get()?, r.get()?);
            }
            if version >= 4 {
                entry.zones = r.get()?;
            }
            Ok(entry)
        })
    }
}

/// Ids ascend with the header's version; the rest makes them unique, also within a message.
fn new_id(cx: &dyn ClassCx, header: &Header) -> ByteStr {
    format!("{:011}.{}.{}", header.version, cx.last_user_version(), cx.ops_done()).into()
}

fn log_key(id: &[u8]) -> ByteStr {
    ByteStr::from([LOG_PREFIX, id].concat())
}

/// Up to `count_max` entries behind one id and not behind another (or all without one), and whether more follow.
fn page(cx: &dyn ClassCx, after: &[u8], end: &[u8], count_max: u64) -> (Vec<(ByteStr, Bytes)>, bool) {
    let end = if end.is_empty() { ByteStr::from(INSTANCE_PREFIX) } else { log_key(end) };
    let (mut found, mut more) = values(cx, &log_key(after), b"", count_max);
    if let Some(index) = found.iter().position(|(key, _)| *key > end) {
        found.truncate(index);
        more = false;
    }
    (found, more)
}

/// `str after, u32 max`
pub(super) fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max) =
        Reader::new(bytes).envelope("cls_rgw_bi_log_list_op", 1, |_, r| Ok((r.str()?, r.u32()?)))?;
    let (found, more) = page(cx, &after, b"", count_max.into());
    let entries: Vec<LogEntry> =
        found.into_iter().map(|(_, value)| stored(value)).collect::<Result<_, _>>()?;
    output(|w| {
        w.envelope(1, 1, |w| {
            w.put(&entries);
            w.bool(more);
        });
    })
}

/// The two strings of several operations.
pub(super) fn two_strings(bytes: Bytes) -> Result<(ByteStr, ByteStr), Fault> {
    Ok(Reader::new(bytes).envelope("two strings", 1, |_, r| Ok((r.str()?, r.str()?)))?)
}

/// `str after, str end`: removes entries behind one id up to another.
pub(super) fn trim(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, end) = two_strings(bytes)?;
    let (found, _) = page(cx, &after, &end, TRIMMED_MAX);
    if found.is_empty() {
        return fail(Errno::ENODATA);
    }
    cx.omap_remove(found.into_iter().map(|(key, _)| key).collect());
    done()
}

/// The log takes entries again; says so in it, so that other zones compare everything.
pub(super) fn resync(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    switch(cx, op::RESYNC, false)
}

/// The log takes no entries any more, but for the one that says so.
pub(super) fn stop(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    switch(cx, op::SYNC_STOP, true)
}

fn switch(cx: &mut dyn ClassCx, op: u8, stopped: bool) -> MethodResult {
    let mut header = Header::load(cx)?;
    // Without an index version, as from Ceph.
    LogEntry { time: cx.now(), ..LogEntry::of(op) }.store(cx, &mut header);
    header.log_stopped = stopped;
    header.save(cx);
    done()
}

/// Decodes an operation of which only the envelope matters.
pub(super) fn empty_input(bytes: Bytes) -> Result<(), Fault> {
    struct Nothing;
    impl Decode for Nothing {
        fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
            r.envelope("an operation without arguments", 1, |_, _| Ok(Self))
        }
    }
    input::<Nothing>(bytes).map(|_| ())
}
