//! Groups of images and their common snapshots.

use super::header::{change_op_features, op_feature};
use super::names;
use crate::keys::{find, get, input, output, page, remove, remove_of_existing, set, stored};
use crate::method::{done, fail};
use crate::{ClassCx, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;

const IMAGE: &str = "image_";
const SNAPSHOT: &str = "snapshot_";
/// State of a group snapshot that is being made.
const INCOMPLETE: u8 = 0;
const GROUP_REF: &str = "group_ref";

pub(super) fn dir_list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    names::list_directory(cx, bytes)
}

pub(super) fn dir_add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (name, id): (ByteStr, ByteStr) = input(bytes)?;
    names::add_to_directory(cx, &name, &id)
}

pub(super) fn dir_remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (name, id): (ByteStr, ByteStr) = input(bytes)?;
    names::remove_from_directory(cx, &name, &id)
}

pub(super) fn dir_rename(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (source, target, id) = (r.str()?, r.str()?, r.str()?);
    names::rename_in_directory(cx, &source, &target, &id)
}

/// `cls::rbd::GroupImageSpec`
struct ImageSpec {
    image: ByteStr,
    pool: i64,
}

impl ImageSpec {
    fn key(&self) -> String {
        format!("{IMAGE}{:016x}_{}", self.pool, self.image)
    }

    fn from_key(suffix: &[u8]) -> Option<Self> {
        let (pool, image) = suffix.split_at_checked(16)?;
        let pool = u64::from_str_radix(std::str::from_utf8(pool).ok()?, 16).ok()?;
        Some(Self { image: ByteStr::from(image.strip_prefix(b"_")?), pool: pool.cast_signed() })
    }
}

impl Encode for ImageSpec {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.image);
            w.i64(self.pool);
        });
    }
}

impl Decode for ImageSpec {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("GroupImageSpec", 1, |_, r| Ok(Self { image: r.get()?, pool: r.i64()? }))
    }
}

pub(super) fn image_set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (spec, state) =
        Reader::new(bytes).envelope("GroupImageStatus", 1, |_, r| Ok((r.get::<ImageSpec>()?, r.u8()?)))?;
    set(cx, spec.key(), &state);
    done()
}

pub(super) fn image_remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let spec: ImageSpec = input(bytes)?;
    remove_of_existing(cx, spec.key())?;
    done()
}

pub(super) fn image_list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (after, count_max): (ImageSpec, u64) = (r.get()?, r.u64()?);
    let key = if after.image.is_empty() { IMAGE.to_owned() } else { after.key() };
    let suffix = key.as_bytes().strip_prefix(IMAGE.as_bytes()).unwrap_or_default();
    let mut found = Vec::new();
    for (suffix, state) in page(cx, IMAGE, suffix, count_max) {
        let Some(spec) = ImageSpec::from_key(&suffix) else { return fail(Errno::EIO) };
        found.push((spec, stored::<u8>(state)?));
    }
    output(|w| {
        w.count(found.len());
        for (spec, state) in &found {
            w.envelope(1, 1, |w| {
                w.put(spec);
                w.u8(*state);
            });
        }
    })
}

/// `cls::rbd::GroupSpec`
#[derive(PartialEq)]
struct GroupSpec {
    pool: i64,
    group: ByteStr,
}

impl Encode for GroupSpec {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.i64(self.pool);
            w.put(&self.group);
        });
    }
}

impl Decode for GroupSpec {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("GroupSpec", 1, |_, r| Ok(Self { pool: r.i64()?, group: r.get()? }))
    }
}

pub(super) fn image_group_add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let wanted: GroupSpec = input(bytes)?;
    if find::<GroupSpec>(cx, GROUP_REF)?.is_some_and(|found| found != wanted) {
        return fail(Errno::EEXIST);
    }
    change_op_features(cx, op_feature::GROUP, op_feature::GROUP)?;
    set(cx, GROUP_REF, &wanted);
    done()
}

pub(super) fn image_group_remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let wanted: GroupSpec = input(bytes)?;
    if get::<GroupSpec>(cx, GROUP_REF)? != wanted {
        return fail(Errno::EBADF);
    }
    change_op_features(cx, 0, op_feature::GROUP)?;
    remove(cx, GROUP_REF);
    done()
}

pub(super) fn image_group_get(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let none = GroupSpec { pool: -1, group: ByteStr::EMPTY };
    Ok(find::<GroupSpec>(cx, GROUP_REF)?.unwrap_or(none).to_bytes())
}

/// `cls::rbd::GroupSnapshot`: kept as it came, under its id; the name must be unique.
struct GroupSnapshot {
    id: ByteStr,
    name: ByteStr,
    state: u8,
    whole: Bytes,
}

impl Decode for GroupSnapshot {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let before = r.rest();
        let left = r.left();
        let (id, name, state) = r.envelope("GroupSnapshot", 1, |_, r| Ok((r.str()?, r.str()?, r.u8()?)))?;
        Ok(Self { id, name, state, whole: before.slice(..left - r.left()) })
    }
}

impl Encode for GroupSnapshot {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.whole);
    }
}

pub(super) fn snap_set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let snapshot: GroupSnapshot = input(bytes)?;
    if snapshot.id.is_empty() || snapshot.name.is_empty() {
        return fail(Errno::EINVAL);
    }
    for (_, other) in crate::keys::all(cx, SNAPSHOT) {
        let other: GroupSnapshot = stored(other)?;
        if other.name == snapshot.name && other.id != snapshot.id {
            return fail(Errno::EEXIST);
        }
    }
    let key = format!("{SNAPSHOT}{}", snapshot.id);
    if snapshot.state == INCOMPLETE && cx.omap_value(key.as_bytes()).is_some() {
        return fail(Errno::EEXIST);
    }
    set(cx, key, &snapshot);
    done()
}

pub(super) fn snap_remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    remove_of_existing(cx, format!("{SNAPSHOT}{id}"))?;
    done()
}

pub(super) fn snap_get_by_id(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    Ok(get::<GroupSnapshot>(cx, &format!("{SNAPSHOT}{id}"))?.to_bytes())
}

pub(super) fn snap_list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (after, count_max): (GroupSnapshot, u64) = (r.get()?, r.u64()?);
    let found = page(cx, SNAPSHOT, &after.id, count_max);
    output(|w| {
        w.count(found.len());
        found.iter().for_each(|(_, snapshot)| w.raw(snapshot));
    })
}
