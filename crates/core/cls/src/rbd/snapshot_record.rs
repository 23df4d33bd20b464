//! [`Snapshot`]: the record of one snapshot of an image.

use crate::keys::{all, find, get, set, stored};
use crate::{ClassCx, Fault};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{SnapId, UTime};

const PREFIX: &str = "snapshot_";
/// Types of [`Namespace`] that we look into.
pub(super) const USER: u32 = 0;
pub(super) const TRASH: u32 = 2;

/// `cls::rbd::SnapshotNamespace`: what the snapshot is for. Kept as the client wrote it.
#[derive(Clone, PartialEq)]
pub(super) struct Namespace {
    pub(super) kind: u32,
    /// The fields behind the type, as they came.
    pub(super) fields: Bytes,
}

impl Namespace {
    pub(super) const USER: Self = Self { kind: USER, fields: Bytes::new() };

    pub(super) fn trash(original_name: &ByteStr, original_kind: u32) -> Self {
        let mut w = Writer::new();
        w.put(original_name);
        w.u32(original_kind);
        Self { kind: TRASH, fields: w.finish() }
    }
}

impl Encode for Namespace {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.kind);
            w.raw(&self.fields);
        });
    }
}

impl Decode for Namespace {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("SnapshotNamespace", 1, |_, r| Ok(Self { kind: r.u32()?, fields: r.rest() }))
    }
}

/// One snapshot: `cls_rbd_snap`. The layout under its key is ours.
pub(super) struct Snapshot {
    pub(super) id: SnapId,
    pub(super) name: ByteStr,
    pub(super) namespace: Namespace,
    pub(super) size: u64,
    pub(super) flags: u64,
    pub(super) protection: u8,
    pub(super) timestamp: UTime,
    pub(super) child_count: u32,
    /// Bytes that the parent backs; `None` when the image had no parent then.
    pub(super) parent_overlap: Option<u64>,
}

impl Encode for Snapshot {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.id);
            w.put(&self.name);
            w.put(&self.namespace);
            w.u64(self.size);
            w.u64(self.flags);
            w.u8(self.protection);
            w.put(&self.timestamp);
            w.u32(self.child_count);
            w.put(&self.parent_overlap);
        });
    }
}

impl Decode for Snapshot {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("snapshot", 1, |_, r| {
            Ok(Self {
                id: r.get()?,
                name: r.get()?,
                namespace: r.get()?,
                size: r.u64()?,
                flags: r.u64()?,
                protection: r.u8()?,
                timestamp: r.get()?,
                child_count: r.u32()?,
                parent_overlap: r.get()?,
            })
        })
    }
}

pub(super) fn key(id: SnapId) -> String {
    format!("{PREFIX}{:016x}", id.0)
}

impl Snapshot {
    pub(super) fn load(cx: &dyn ClassCx, id: SnapId) -> Result<Self, Fault> {
        get(cx, &key(id))
    }

    pub(super) fn find(cx: &dyn ClassCx, id: SnapId) -> Result<Option<Self>, Fault> {
        find(cx, &key(id))
    }

    /// True while only its children keep it.
    pub(super) fn is_trashed(&self) -> bool {
        self.namespace.kind == TRASH
    }

    pub(super) fn save(&self, cx: &mut dyn ClassCx) {
        set(cx, key(self.id), self);
    }

    /// All snapshots, ascending by id.
    pub(super) fn all(cx: &dyn ClassCx) -> Result<Vec<Self>, Fault> {
        all(cx, PREFIX).into_iter().map(|(_, value)| stored(value)).collect()
    }

    /// `cls::rbd::SnapshotInfo`
    pub(super) fn write_info(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.id);
            w.put(&self.namespace);
            w.put(&self.name);
            w.u64(self.size);
            w.put(&self.timestamp);
            w.u32(self.child_count);
        });
    }
}
