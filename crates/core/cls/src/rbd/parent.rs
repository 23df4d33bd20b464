//! Clones: an image's parent, and a parent's children.

use super::header::{self, change_op_features, feature, op_feature};
use super::parent_record::{Parent, ParentSpec};
use super::snapshot_record::Snapshot;
use crate::keys::{all, find, get, input, output, remove, set};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, SnapId};
use std::collections::BTreeSet;

/// The parent cannot be told to a client of this age.
const EXDEV: Errno = Errno(18);
const CHILDREN: &str = "snap_children_";

fn is_layered(cx: &dyn ClassCx) -> Result<bool, Fault> {
    Ok(header::features(cx)? & feature::LAYERING != 0)
}

pub(super) fn parent_get(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let parent = if is_layered(cx)? { Parent::load(cx)? } else { None };
    Ok(parent.map_or(ParentSpec::NONE, |parent| parent.spec).to_bytes())
}

pub(super) fn parent_overlap_get(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let snap: SnapId = input(bytes)?;
    let overlap = match is_layered(cx)? {
        false => None,
        true if snap.is_head() => header::head_overlap(cx)?,
        true => Snapshot::load(cx, snap)?.parent_overlap,
    };
    output(|w| w.put(&overlap))
}

fn attach(cx: &mut dyn ClassCx, spec: ParentSpec, overlap: u64, reattach: bool) -> MethodResult {
    header::require_object(cx)?;
    header::require(cx, feature::LAYERING)?;
    if spec.pool < 0 || spec.image.is_empty() || spec.snap.is_head() || overlap == 0 {
        return fail(Errno::EINVAL);
    }
    // A flattened image whose snapshots still have this parent may get it back.
    let taken = |old: Parent| old.head_overlap.is_some() || old.spec != spec;
    if Parent::load(cx)?.is_some_and(taken) && !reattach {
        return fail(Errno::EEXIST);
    }
    let overlap = overlap.min(header::size(cx)?);
    Parent { spec, head_overlap: Some(overlap) }.save(cx);
    done()
}

/// Clients older than namespaces (`legacy`) cannot know such a parent.
fn detach(cx: &mut dyn ClassCx, legacy: bool) -> MethodResult {
    header::require_object(cx)?;
    header::require(cx, feature::LAYERING)?;
    let Some(mut parent) = Parent::load(cx)? else { return fail(Errno::ENOENT) };
    if legacy && !parent.spec.namespace.is_empty() {
        return fail(EXDEV);
    }
    if parent.head_overlap.is_none() {
        return fail(Errno::ENOENT);
    }
    let deep = header::features(cx)? & feature::DEEP_FLATTEN != 0;
    let mut is_child = false;
    for mut snapshot in Snapshot::all(cx)? {
        if snapshot.parent_overlap.is_some() && deep {
            snapshot.parent_overlap = None;
            snapshot.save(cx);
        }
        is_child |= snapshot.parent_overlap.is_some();
    }
    if is_child {
        parent.head_overlap = None;
        parent.save(cx);
    } else {
        Parent::remove(cx);
        change_op_features(cx, 0, op_feature::CLONE_CHILD)?;
    }
    done()
}

pub(super) fn parent_attach(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (spec, overlap) = (r.get()?, r.u64()?);
    let reattach = if r.is_empty() { false } else { r.bool()? };
    attach(cx, spec, overlap, reattach)
}

pub(super) fn parent_detach(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    detach(cx, false)
}

/// What backs a snapshot or the head.
fn parent_of(cx: &dyn ClassCx, snap: SnapId) -> Result<Option<Parent>, Fault> {
    let Some(mut parent) = Parent::load(cx)? else { return Ok(None) };
    if !parent.spec.namespace.is_empty() {
        return fail(EXDEV);
    }
    if snap.is_head() {
        return Ok(Some(parent));
    }
    let snapshot = Snapshot::find(cx, snap)?;
    let Some(overlap) = snapshot.and_then(|snapshot| snapshot.parent_overlap) else { return Ok(None) };
    parent.head_overlap = Some(overlap);
    Ok(Some(parent))
}

/// Before namespaces: pool, image, snapshot and overlap in one answer.
pub(super) fn get_parent(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let snap: SnapId = input(bytes)?;
    let parent = if is_layered(cx)? { parent_of(cx, snap)? } else { None };
    let parent = parent.unwrap_or(Parent { spec: ParentSpec::NONE, head_overlap: None });
    output(|w| {
        w.i64(parent.spec.pool);
        w.put(&parent.spec.image);
        w.put(&parent.spec.snap);
        w.u64(parent.head_overlap.unwrap_or(0));
    })
}

pub(super) fn set_parent(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (pool, image, snap, overlap) = (r.i64()?, r.str()?, r.get()?, r.u64()?);
    attach(cx, ParentSpec { pool, namespace: ByteStr::EMPTY, image, snap }, overlap, false)
}

pub(super) fn remove_parent(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    detach(cx, true)
}

/// `cls::rbd::ChildImageSpec`
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ChildSpec {
    pool: i64,
    image: ByteStr,
    namespace: ByteStr,
}

impl Encode for ChildSpec {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.i64(self.pool);
            w.put(&self.image);
            w.put(&self.namespace);
        });
    }
}

impl Decode for ChildSpec {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("ChildImageSpec", 2, |version, r| {
            let (pool, image) = (r.i64()?, r.get()?);
            Ok(Self { pool, image, namespace: if version >= 2 { r.get()? } else { ByteStr::EMPTY } })
        })
    }
}

fn children_key(snap: SnapId) -> String {
    format!("{CHILDREN}{:016x}", snap.0)
}

/// Stores the children of a snapshot and keeps its count and the image's mark right.
fn save_children(
    cx: &mut dyn ClassCx,
    mut snapshot: Snapshot,
    children: &BTreeSet<ChildSpec>,
) -> MethodResult {
    let key = children_key(snapshot.id);
    snapshot.child_count = u32::try_from(children.len()).unwrap_or(u32::MAX);
    snapshot.save(cx);
    let suffix = key.strip_prefix(CHILDREN).unwrap_or_default();
    let elsewhere = all(cx, CHILDREN).iter().any(|(other, _)| *other != suffix);
    if children.is_empty() {
        remove(cx, key);
    } else {
        set(cx, key, children);
    }
    let parent_now = if elsewhere || !children.is_empty() { op_feature::CLONE_PARENT } else { 0 };
    change_op_features(cx, parent_now, op_feature::CLONE_PARENT)?;
    done()
}

pub(super) fn child_attach(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (snap, child): (SnapId, ChildSpec) = (r.get()?, r.get()?);
    let snapshot = Snapshot::load(cx, snap)?;
    if snapshot.is_trashed() {
        return fail(Errno::ENOENT);
    }
    let mut children: BTreeSet<ChildSpec> = find(cx, &children_key(snap))?.unwrap_or_default();
    if !children.insert(child) {
        return fail(Errno::EEXIST);
    }
    save_children(cx, snapshot, &children)
}

pub(super) fn child_detach(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (snap, child): (SnapId, ChildSpec) = (r.get()?, r.get()?);
    let snapshot = Snapshot::load(cx, snap)?;
    let mut children: BTreeSet<ChildSpec> = get(cx, &children_key(snap))?;
    if !children.remove(&child) {
        return fail(Errno::ENOENT);
    }
    save_children(cx, snapshot, &children)
}

pub(super) fn children_list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let snap: SnapId = input(bytes)?;
    Snapshot::load(cx, snap)?;
    let children: BTreeSet<ChildSpec> = get(cx, &children_key(snap))?;
    output(|w| w.put(&children))
}

/// Clone v1: `rbd_children` maps a parent to the ids of its children.
struct ParentKey {
    key: Bytes,
}

impl Decode for ParentKey {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let before = r.rest();
        let left = r.left();
        let (_pool, _image, _snap) = (r.i64()?, r.str()?, r.u64()?);
        Ok(Self { key: before.slice(..left - r.left()) })
    }
}

fn v1_children(cx: &dyn ClassCx, parent: &ParentKey) -> Result<BTreeSet<ByteStr>, Fault> {
    cx.omap_value(&parent.key).map_or_else(|| Ok(BTreeSet::new()), crate::keys::stored)
}

fn save_v1_children(cx: &mut dyn ClassCx, parent: ParentKey, children: &BTreeSet<ByteStr>) {
    let key = ByteStr::from(parent.key);
    if children.is_empty() {
        cx.omap_remove(vec![key]);
    } else {
        cx.omap_set(vec![(key, children.to_bytes())]);
    }
}

pub(super) fn add_child(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (parent, child): (ParentKey, ByteStr) = (r.get()?, r.get()?);
    let mut children = v1_children(cx, &parent)?;
    if !children.insert(child) {
        return fail(Errno::EEXIST);
    }
    save_v1_children(cx, parent, &children);
    done()
}

pub(super) fn remove_child(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (parent, child): (ParentKey, ByteStr) = (r.get()?, r.get()?);
    let mut children = v1_children(cx, &parent)?;
    if !children.remove(&child) {
        return fail(Errno::ENOENT);
    }
    save_v1_children(cx, parent, &children);
    done()
}

pub(super) fn get_children(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let parent: ParentKey = input(bytes)?;
    let children = v1_children(cx, &parent)?;
    if children.is_empty() {
        return fail(Errno::ENOENT);
    }
    output(|w| w.put(&children))
}
