//! Which clones a snapshot keeps, so that removing a snapshot finds them without a scan. Ceph's `SnapMapper`.
//!
//! One entry per snapshot and clone in the collection's own key-value space: key `snap/`, the snapshot as
//! eight big-endian bytes, the encoded clone name; value empty. Entries change in the transaction that makes
//! or removes the clone, on every member alike; recovery adds those of a clone that it brings.

use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, Encode, Writer};
use nacre_txn::{ObjectView, Op};
use nacre_types::{HObject, SnapId, SpgId};

/// Begins every key of the mapper.
pub const KEY_PREFIX: &[u8] = b"snap/";
const SNAP_BYTES: usize = 8;

fn prefix(snap: SnapId, w: &mut Writer) {
    w.raw(KEY_PREFIX);
    // Big-endian, so that the store's key order is the order of snapshots.
    (0..SNAP_BYTES).rev().for_each(|byte| w.u8(snap.0.to_le_bytes()[byte]));
}

fn key(snap: SnapId, clone: &HObject) -> ByteStr {
    let mut w = Writer::new();
    prefix(snap, &mut w);
    clone.encode(&mut w);
    w.finish().into()
}

fn parse(key: &ByteStr) -> Option<(SnapId, HObject)> {
    let rest = key.to_shared().slice(KEY_PREFIX.len().min(key.len())..);
    let snap = rest.first_chunk::<SNAP_BYTES>()?;
    let snap = snap.iter().fold(0, |snap, byte| snap << 8 | u64::from(*byte));
    let clone = HObject::from_bytes(rest.slice(SNAP_BYTES..)).ok()?;
    Some((SnapId(snap), clone.detached()))
}

/// Records that `snaps` see `clone`.
pub fn insert(clone: &HObject, snaps: &[SnapId], ops: &mut Vec<Op>) {
    ops.extend(snaps.iter().map(|snap| Op::MetaSet { key: key(*snap, clone), value: Bytes::new() }));
}

/// Records that `snaps` do not see `clone` any more.
pub fn remove(clone: &HObject, snaps: &[SnapId], ops: &mut Vec<Op>) {
    ops.extend(snaps.iter().map(|snap| Op::MetaRemove { key: key(*snap, clone) }));
}

/// The clones that `snap` keeps, in key order, at most `count_max`.
#[must_use]
pub fn clones(view: &dyn ObjectView, collection: &SpgId, snap: SnapId, count_max: usize) -> Vec<HObject> {
    let mut w = Writer::new();
    prefix(snap, &mut w);
    let entries = view.pg_meta_page(collection, w.as_slice(), b"", count_max);
    entries.iter().filter_map(|(key, _)| parse(key)).map(|(_, clone)| clone).collect()
}

/// The clone that an entry is about; `None` for one that cannot be understood.
#[must_use]
pub fn clone_of(key: &ByteStr) -> Option<HObject> {
    parse(key).map(|(_, clone)| clone)
}

/// All entries of the mapper of a collection.
#[cfg(test)]
pub(crate) fn all(view: &dyn ObjectView, collection: &SpgId) -> Vec<(SnapId, HObject)> {
    view.pg_meta(collection, KEY_PREFIX).iter().filter_map(|(key, _)| parse(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_snapshot_and_parse() {
        let clone = HObject::head(3, "ns".into(), "".into(), "o".into()).with_snap(SnapId(9));
        let (low, high) = (key(SnapId(0x102), &clone), key(SnapId(0x201), &clone));
        assert!(low < high);
        assert_eq!(parse(&low), Some((SnapId(0x102), clone)));
        assert_eq!(parse(&"snap/short".into()), None);
        assert_eq!(parse(&"".into()), None);
    }
}
