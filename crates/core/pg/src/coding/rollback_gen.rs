//! Names of what a shard keeps of an object that a write replaced: those of clones with snapshot ids that no snapshot can have.

use nacre_types::{Eversion, HObject, SnapId};

/// Set in the snapshot ids of what is kept; the rest is the version number of the write.
pub(crate) const ROLLBACK_GEN: u64 = 1 << 63;

/// True for what was kept of an object, which is no object of its own.
pub(crate) fn is_rollback_gen(object: &HObject) -> bool {
    object.snap.0 & ROLLBACK_GEN != 0 && object.snap < SnapId::MAX
}

/// The name under which what the write of `version` replaced of `object` is kept.
pub(crate) fn rollback_gen_name(object: &HObject, version: Eversion) -> HObject {
    object.with_snap(SnapId(ROLLBACK_GEN | version.version))
}
