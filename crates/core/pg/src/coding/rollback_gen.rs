//! Names of what a shard keeps of an object that a write replaced: those of clones with snapshot ids that no snapshot can have.

use nacre_types::{Eversion, HObject, IntervalSet, SnapId};

/// Set in the snapshot ids of what is kept; the rest is the version number of the write.
pub(crate) const ROLLBACK_GEN: u64 = 1 << 63;

/// Likewise, in those of what is kept in part.
const IN_PART: u64 = 1 << 62;

/// What is kept of an object that a write replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RollbackGen {
    pub(crate) name: HObject,
    /// The ranges of the object's data that the write may have changed: the kept object has the data of these only. `None` when it is
    /// the whole object as it was.
    pub(crate) modified: Option<IntervalSet>,
}

/// True for what was kept of an object, which is no object of its own.
pub(crate) fn is_rollback_gen(object: &HObject) -> bool {
    object.snap.0 & ROLLBACK_GEN != 0 && object.snap < SnapId::MAX
}

/// The name under which what the write of `version` replaced of `object` is kept, if that is all of it.
pub(crate) fn rollback_gen_name(object: &HObject, version: Eversion) -> HObject {
    object.with_snap(SnapId(ROLLBACK_GEN | version.version))
}

/// The name if it is a part of it: the two differ, so that the store tells which it has.
pub(crate) fn partial_gen_name(object: &HObject, version: Eversion) -> HObject {
    object.with_snap(SnapId(ROLLBACK_GEN | IN_PART | version.version))
}

/// The number of the write whose rollback generation has this name.
pub(crate) fn version_of_gen(name: &HObject) -> u64 {
    name.snap.0 & !(ROLLBACK_GEN | IN_PART)
}
