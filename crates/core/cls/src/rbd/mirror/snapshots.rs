//! Mirror snapshots: which peers still need one, and how much of it has arrived.

use crate::keys::{input, stored};
use crate::method::{done, fail};
use crate::rbd::snapshot_record::{Namespace, Snapshot};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, SnapId};
use std::collections::{BTreeMap, BTreeSet};

/// Namespace type of mirror snapshots.
const SNAPSHOT_KIND: u32 = 3;
/// States of snapshots that were copied here from the primary cluster.
const NON_PRIMARY: u8 = 2;
const NON_PRIMARY_DEMOTED: u8 = 3;

/// The fields of a mirror snapshot's namespace.
struct MirrorFields {
    state: u8,
    complete: bool,
    peers: BTreeSet<ByteStr>,
    primary_uuid: ByteStr,
    primary_snap: SnapId,
    last_copied_object: u64,
    snap_seqs: BTreeMap<u64, u64>,
}

impl MirrorFields {
    fn of(snapshot: &Snapshot) -> Result<Self, Fault> {
        if snapshot.namespace.kind != SNAPSHOT_KIND {
            return fail(Errno::EINVAL);
        }
        stored(snapshot.namespace.fields.clone())
    }

    fn save(&self, cx: &mut dyn ClassCx, mut snapshot: Snapshot) {
        snapshot.namespace = Namespace { kind: SNAPSHOT_KIND, fields: self.to_bytes() };
        snapshot.save(cx);
    }
}

impl Encode for MirrorFields {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.state);
        w.bool(self.complete);
        w.put(&self.peers);
        w.put(&self.primary_uuid);
        w.put(&self.primary_snap);
        w.u64(self.last_copied_object);
        w.put(&self.snap_seqs);
    }
}

impl Decode for MirrorFields {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            state: r.u8()?,
            complete: r.bool()?,
            peers: r.get()?,
            primary_uuid: r.get()?,
            primary_snap: r.get()?,
            last_copied_object: r.u64()?,
            snap_seqs: r.get()?,
        })
    }
}

pub(in crate::rbd) fn unlink_peer(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (id, peer): (SnapId, ByteStr) = input(bytes)?;
    let snapshot = Snapshot::load(cx, id)?;
    let mut fields = MirrorFields::of(&snapshot)?;
    if !fields.peers.remove(&peer) {
        return fail(Errno::ENOENT);
    }
    fields.save(cx, snapshot);
    done()
}

pub(in crate::rbd) fn set_copy_progress(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (id, complete, copied): (SnapId, bool, u64) = (r.get()?, r.bool()?, r.u64()?);
    let snapshot = Snapshot::load(cx, id)?;
    let mut fields = MirrorFields::of(&snapshot)?;
    fields.complete = complete;
    if matches!(fields.state, NON_PRIMARY | NON_PRIMARY_DEMOTED) {
        fields.last_copied_object = copied;
    }
    fields.save(cx, snapshot);
    done()
}
