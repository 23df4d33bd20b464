//! Snapshots of an image, as its header knows them.

use super::header::{self, change_op_features, feature, op_feature};
use super::parent_record::Parent;
use super::snapshot_record::{Namespace, Snapshot, TRASH, USER, key};
use crate::keys::{find, get, input, output, remove, remove_of_existing, set};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Encode, Reader};
use nacre_types::{Errno, SnapId};

const LIMIT: &str = "snap_limit";
const UNPROTECTED: u8 = 0;
const PROTECTION_MAX: u8 = 2;
/// Mirror snapshots have the highest type that we know.
const KIND_MAX: u32 = 3;

pub(super) fn get_snapcontext(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let seq: u64 = get(cx, "snap_seq")?;
    let ids: Vec<SnapId> = Snapshot::all(cx)?.iter().rev().map(|snapshot| snapshot.id).collect();
    output(|w| {
        w.u64(seq);
        w.put(&ids);
    })
}

/// The id of a snapshot, which the head is not.
fn snapshot_id(bytes: Bytes) -> Result<SnapId, Fault> {
    let id: SnapId = input(bytes)?;
    if id.is_head() { fail(Errno::EINVAL) } else { Ok(id) }
}

pub(super) fn snapshot_get(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let snapshot = Snapshot::load(cx, snapshot_id(bytes)?)?;
    output(|w| snapshot.write_info(w))
}

pub(super) fn snapshot_add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (name, id): (ByteStr, SnapId) = (r.get()?, r.get()?);
    let namespace: Namespace = if r.is_empty() { Namespace::USER } else { r.get()? };
    if id > SnapId::MAX || namespace.kind > KIND_MAX {
        return fail(Errno::EINVAL);
    }
    let seq: u64 = get(cx, "snap_seq")?;
    if id.0 < seq {
        return fail(Errno::ESTALE);
    }
    let limit: u64 = find(cx, LIMIT)?.unwrap_or(u64::MAX);
    for (index, other) in Snapshot::all(cx)?.iter().enumerate() {
        // A limit of 0 lets one in, as Ceph counts.
        if index as u64 + 1 >= limit {
            return fail(Errno::EDQUOT);
        }
        if other.id == id || (other.name == name && other.namespace == namespace) {
            return fail(Errno::EEXIST);
        }
    }
    if namespace.kind == TRASH {
        change_op_features(cx, op_feature::SNAP_TRASH, op_feature::SNAP_TRASH)?;
    }
    let snapshot = Snapshot {
        id,
        name,
        namespace,
        size: header::size(cx)?,
        flags: header::flags(cx)?,
        protection: UNPROTECTED,
        timestamp: cx.now(),
        child_count: 0,
        parent_overlap: header::head_overlap(cx)?,
    };
    snapshot.save(cx);
    set(cx, "snap_seq", &id);
    done()
}

pub(super) fn snapshot_rename(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (id, name): (SnapId, ByteStr) = input(bytes)?;
    if Snapshot::all(cx)?.iter().any(|other| other.name == name && other.namespace.kind == USER) {
        return fail(Errno::EEXIST);
    }
    let mut snapshot = Snapshot::load(cx, id)?;
    if snapshot.namespace.kind != USER {
        return fail(Errno::EINVAL);
    }
    snapshot.name = name;
    snapshot.save(cx);
    done()
}

pub(super) fn snapshot_remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: SnapId = input(bytes)?;
    let snapshot = Snapshot::load(cx, id)?;
    if snapshot.protection != UNPROTECTED || snapshot.child_count > 0 {
        return fail(Errno::EBUSY);
    }
    let others: Vec<Snapshot> = Snapshot::all(cx)?.into_iter().filter(|other| other.id != id).collect();
    remove(cx, key(id));
    let is_child = others.iter().any(|other| other.parent_overlap.is_some());
    let is_head_child = header::head_overlap(cx)?.is_some();
    // A flattened image stays tied to its parent only as long as a snapshot still reads through it.
    let mut over = 0;
    if !is_child && !is_head_child {
        Parent::remove(cx);
        over |= op_feature::CLONE_CHILD;
    }
    if others.iter().all(|other| other.namespace.kind != TRASH) {
        over |= op_feature::SNAP_TRASH;
    }
    if over != 0 {
        change_op_features(cx, 0, over)?;
    }
    done()
}

pub(super) fn snapshot_trash_add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: SnapId = input(bytes)?;
    let mut snapshot = Snapshot::load(cx, id)?;
    if snapshot.protection != UNPROTECTED {
        return fail(Errno::EBUSY);
    }
    if snapshot.namespace.kind == TRASH {
        return fail(Errno::EEXIST);
    }
    snapshot.namespace = Namespace::trash(&snapshot.name, snapshot.namespace.kind);
    let mut random = [0; 16];
    random[..8].copy_from_slice(&cx.random().to_le_bytes());
    random[8..].copy_from_slice(&cx.random().to_le_bytes());
    snapshot.name = nacre_types::Uuid::from_random(random).to_string().into();
    snapshot.save(cx);
    change_op_features(cx, op_feature::SNAP_TRASH, op_feature::SNAP_TRASH)?;
    done()
}

pub(super) fn snapshot_get_limit(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let limit: u64 = find(cx, LIMIT)?.unwrap_or(u64::MAX);
    output(|w| w.u64(limit))
}

pub(super) fn snapshot_set_limit(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let limit: u64 = input(bytes)?;
    if limit == u64::MAX {
        remove_of_existing(cx, LIMIT)?;
        return done();
    }
    if (Snapshot::all(cx)?.len() as u64) > limit {
        return fail(Errno::ERANGE);
    }
    set(cx, LIMIT, &limit);
    done()
}

pub(super) fn get_snapshot_name(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    Ok(Snapshot::load(cx, snapshot_id(bytes)?)?.name.to_bytes())
}

pub(super) fn get_snapshot_timestamp(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    Ok(Snapshot::load(cx, snapshot_id(bytes)?)?.timestamp.to_bytes())
}

pub(super) fn get_protection_status(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id = snapshot_id(bytes)?;
    let status = Snapshot::load(cx, id)?.protection;
    output(|w| w.u8(status))
}

pub(super) fn set_protection_status(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (id, status): (SnapId, u8) = input(bytes)?;
    header::require_object(cx)?;
    header::require(cx, feature::LAYERING)?;
    if id.is_head() || status > PROTECTION_MAX {
        return fail(Errno::EINVAL);
    }
    let mut snapshot = Snapshot::load(cx, id)?;
    snapshot.protection = status;
    snapshot.save(cx);
    done()
}
