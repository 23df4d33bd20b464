//! An image's size, features, flags, striping and times.

use super::parent_record::Parent;
use super::snapshot_record::Snapshot;
use crate::keys::{find, get, input, output, remove, set};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Encode, Reader};
use nacre_types::{Errno, SnapId, UTime};

/// Feature bits of images. Ceph `RBD_FEATURE_*`.
pub(super) mod feature {
    pub(crate) const LAYERING: u64 = 1;
    pub(crate) const STRIPING: u64 = 2;
    const EXCLUSIVE_LOCK: u64 = 4;
    const OBJECT_MAP: u64 = 8;
    const FAST_DIFF: u64 = 0x10;
    pub(crate) const DEEP_FLATTEN: u64 = 0x20;
    const JOURNALING: u64 = 0x40;
    pub(crate) const DATA_POOL: u64 = 0x80;
    pub(crate) const OPERATIONS: u64 = 0x100;
    pub(crate) const MIGRATING: u64 = 0x200;
    const NON_PRIMARY: u64 = 0x400;
    const DIRTY_CACHE: u64 = 0x800;
    /// Every bit that 16.2 knows.
    pub(crate) const ALL: u64 = 0xfff;
    /// Changed by the image's own life, never by `set_features`.
    pub(crate) const INTERNAL: u64 = OPERATIONS | MIGRATING;
    /// What `set_features` turns on and off.
    pub(crate) const MUTABLE: u64 =
        EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING | NON_PRIMARY | DIRTY_CACHE;
    /// What it turns off.
    pub(crate) const DISABLE_ONLY: u64 = DEEP_FLATTEN;
    /// A client that does not know these must not open the image, not even to read.
    pub(crate) const INCOMPATIBLE: u64 = LAYERING | STRIPING | DATA_POOL | DIRTY_CACHE;
    /// Nor these, to write.
    pub(crate) const INCOMPATIBLE_WRITE: u64 = INCOMPATIBLE
        | EXCLUSIVE_LOCK
        | OBJECT_MAP
        | FAST_DIFF
        | DEEP_FLATTEN
        | JOURNALING
        | OPERATIONS
        | MIGRATING
        | NON_PRIMARY;
}

/// Operations that mark an image. Ceph `RBD_OPERATION_FEATURE_*`.
pub(super) mod op_feature {
    pub(crate) const CLONE_PARENT: u64 = 1;
    pub(crate) const CLONE_CHILD: u64 = 2;
    pub(crate) const GROUP: u64 = 4;
    pub(crate) const SNAP_TRASH: u64 = 8;
}

pub(super) const FEATURES: &str = "features";
const OP_FEATURES: &str = "op_features";
const SIZE: &str = "size";
const FLAGS: &str = "flags";
const NO_POOL: i64 = -1;

pub(super) fn size(cx: &dyn ClassCx) -> Result<u64, Fault> {
    get(cx, SIZE)
}

pub(super) fn flags(cx: &dyn ClassCx) -> Result<u64, Fault> {
    Ok(find(cx, FLAGS)?.unwrap_or(0))
}

pub(super) fn create(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (size, order, features, prefix) = (r.u64()?, r.u8()?, r.u64()?, r.str()?);
    // Clients older than data pools end here.
    let data_pool = if r.is_empty() { NO_POOL } else { r.i64()? };
    if features & !feature::ALL != 0 {
        return fail(Errno::ENOSYS);
    }
    if prefix.is_empty() {
        return fail(Errno::EINVAL);
    }
    if find::<ByteStr>(cx, "object_prefix")?.is_some() {
        return fail(Errno::EEXIST);
    }
    if features & feature::OPERATIONS != 0 || (features & feature::DATA_POOL != 0) != (data_pool != NO_POOL) {
        return fail(Errno::EINVAL);
    }
    let now = cx.now();
    for name in ["create_timestamp", "access_timestamp", "modify_timestamp"] {
        set(cx, name, &now);
    }
    set(cx, SIZE, &size);
    set(cx, "order", &order);
    set(cx, FEATURES, &features);
    set(cx, "object_prefix", &prefix);
    set(cx, "snap_seq", &0_u64);
    if data_pool != NO_POOL {
        set(cx, "data_pool_id", &data_pool);
    }
    done()
}

pub(super) fn get_all_features(_: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    output(|w| w.u64(feature::ALL))
}

/// The image's features: none for what is no image header.
pub(super) fn features(cx: &dyn ClassCx) -> Result<u64, Fault> {
    Ok(find(cx, FEATURES)?.unwrap_or(0))
}

/// # Errors
/// `ENOEXEC` for an image without the feature, and for what is no image.
pub(super) fn require(cx: &dyn ClassCx, feature: u64) -> Result<(), Fault> {
    if features(cx)? & feature == 0 { fail(Errno::ENOEXEC) } else { Ok(()) }
}

/// # Errors
/// `ENOENT` without the object.
pub(super) fn require_object(cx: &dyn ClassCx) -> Result<(), Fault> {
    if cx.exists() { Ok(()) } else { fail(Errno::ENOENT) }
}

pub(super) fn get_features(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let _snap = r.u64()?; // from the time when a snapshot had its own
    let read_only = if r.is_empty() { false } else { r.bool()? };
    let features: u64 = get(cx, FEATURES)?;
    let mask = if read_only { feature::INCOMPATIBLE } else { feature::INCOMPATIBLE_WRITE };
    output(|w| {
        w.u64(features);
        w.u64(features & mask);
    })
}

pub(super) fn set_features(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (wanted, mask): (u64, u64) = input(bytes)?;
    let old = features(cx)?;
    // A newer client may mask off features that we do not know.
    let known = mask & feature::ALL;
    let (enabled, disabled) = (wanted & known, !wanted & known);
    if mask & feature::INTERNAL != 0
        || enabled & !feature::MUTABLE != 0
        || disabled & !(feature::MUTABLE | feature::DISABLE_ONLY) != 0
    {
        return fail(Errno::EINVAL);
    }
    set(cx, FEATURES, &((old & !known) | enabled));
    done()
}

pub(super) fn get_size(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let snap: SnapId = input(bytes)?;
    let order: u8 = get(cx, "order")?;
    let size = if snap.is_head() { size(cx)? } else { Snapshot::load(cx, snap)?.size };
    output(|w| {
        w.u8(order);
        w.u64(size);
    })
}

pub(super) fn set_size(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let wanted: u64 = input(bytes)?;
    if wanted < size(cx)?
        && let Some(mut parent) = Parent::load(cx)?
        && parent.head_overlap.is_some_and(|overlap| overlap > wanted)
    {
        parent.head_overlap = Some(wanted);
        parent.save(cx);
    }
    set(cx, SIZE, &wanted);
    done()
}

pub(super) fn get_object_prefix(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    Ok(get::<ByteStr>(cx, "object_prefix")?.to_bytes())
}

pub(super) fn get_data_pool(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let pool: i64 = find(cx, "data_pool_id")?.unwrap_or(NO_POOL);
    output(|w| w.i64(pool))
}

pub(super) fn get_flags(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let snap: SnapId = input(bytes)?;
    let found = if snap.is_head() { flags(cx)? } else { Snapshot::load(cx, snap)?.flags };
    output(|w| w.u64(found))
}

pub(super) fn set_flags(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (wanted, mask) = (r.u64()?, r.u64()?);
    let snap: SnapId = if r.is_empty() { SnapId::HEAD } else { r.get()? };
    let changed = |old: u64| (old & !mask) | (wanted & mask);
    if snap.is_head() {
        let old = flags(cx)?;
        set(cx, FLAGS, &changed(old));
    } else {
        let mut snapshot = Snapshot::load(cx, snap)?;
        snapshot.flags = changed(snapshot.flags);
        snapshot.save(cx);
    }
    done()
}

pub(super) fn op_features(cx: &dyn ClassCx) -> Result<u64, Fault> {
    Ok(find(cx, OP_FEATURES)?.unwrap_or(0))
}

/// Sets the operations under `mask` to `wanted`; any at all turn the feature bit "operations" on.
///
/// # Errors
/// `ENOENT` for what is no image header.
pub(super) fn change_op_features(cx: &mut dyn ClassCx, wanted: u64, mask: u64) -> Result<(), Fault> {
    let features: u64 = get(cx, FEATURES)?;
    let old = op_features(cx)?;
    let new = (old & !mask) | (wanted & mask);
    if new == old {
        return Ok(());
    }
    if new == 0 {
        remove(cx, OP_FEATURES);
        set(cx, FEATURES, &(features & !feature::OPERATIONS));
    } else {
        set(cx, OP_FEATURES, &new);
        set(cx, FEATURES, &(features | feature::OPERATIONS));
    }
    Ok(())
}

pub(super) fn op_features_get(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let found = op_features(cx)?;
    output(|w| w.u64(found))
}

pub(super) fn op_features_set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (wanted, mask): (u64, u64) = input(bytes)?;
    if mask & !0xf != 0 {
        return fail(Errno::EINVAL);
    }
    change_op_features(cx, wanted, mask)?;
    done()
}

pub(super) fn get_stripe_unit_count(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    require(cx, feature::STRIPING)?;
    // Without values of its own an image is not striped.
    let unit: u64 = match find(cx, "stripe_unit")? {
        Some(unit) => unit,
        None => object_bytes(get(cx, "order")?),
    };
    let count: u64 = find(cx, "stripe_count")?.unwrap_or(1);
    output(|w| {
        w.u64(unit);
        w.u64(count);
    })
}

fn object_bytes(order: u8) -> u64 {
    1_u64.checked_shl(order.into()).unwrap_or(0)
}

pub(super) fn set_stripe_unit_count(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (unit, count): (u64, u64) = input(bytes)?;
    if unit == 0 || count == 0 {
        return fail(Errno::EINVAL);
    }
    require_object(cx)?;
    require(cx, feature::STRIPING)?;
    let object_bytes = object_bytes(get(cx, "order")?);
    if unit > object_bytes || !object_bytes.is_multiple_of(unit) {
        return fail(Errno::EINVAL);
    }
    set(cx, "stripe_unit", &unit);
    set(cx, "stripe_count", &count);
    done()
}

fn timestamp(cx: &dyn ClassCx, key: &str) -> MethodResult {
    let found: UTime = find(cx, key)?.unwrap_or_default();
    Ok(found.to_bytes())
}

pub(super) fn get_create_timestamp(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    timestamp(cx, "create_timestamp")
}

pub(super) fn get_access_timestamp(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    timestamp(cx, "access_timestamp")
}

pub(super) fn get_modify_timestamp(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    timestamp(cx, "modify_timestamp")
}

pub(super) fn set_access_timestamp(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    require_object(cx)?;
    let now = cx.now();
    set(cx, "access_timestamp", &now);
    done()
}

pub(super) fn set_modify_timestamp(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    require_object(cx)?;
    let now = cx.now();
    set(cx, "modify_timestamp", &now);
    done()
}

/// Length of the head that the parent backs, if any.
pub(super) fn head_overlap(cx: &dyn ClassCx) -> Result<Option<u64>, Fault> {
    Ok(Parent::load(cx)?.and_then(|parent| parent.head_overlap))
}
