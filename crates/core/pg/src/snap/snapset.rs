//! Preserving the state before a write: when a clone is made, and what the snapshot set becomes.

use super::SnapContext;
use crate::object::{CloneInfo, ObjectContext, SnapSet};
use nacre_types::IntervalSet;

/// The clone that a write under `snapc` must make of the head, before it changes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewClone(pub(crate) CloneInfo);

impl NewClone {
    /// A clone is due when the head exists and a snapshot is newer than any that the head has met.
    pub(crate) fn due(base: &ObjectContext, snapc: &SnapContext) -> Option<Self> {
        let newest = snapc.snaps.first()?;
        if !base.is_visible() || *newest <= base.snaps.seq {
            return None;
        }
        let snaps = snapc.snaps.iter().rev().copied().filter(|snap| *snap > base.snaps.seq).collect();
        let size = base.info.size;
        Some(Self(CloneInfo { id: snapc.seq, snaps, size, overlap: IntervalSet::of(0, size) }))
    }
}

/// The snapshot set after a write that made `clone` and changed the byte ranges `modified`, and how many
/// bytes the newest clone now holds alone that it shared with the head before.
pub(crate) fn apply_snapset(
    base: &SnapSet,
    clone: Option<NewClone>,
    snapc: &SnapContext,
    modified: &[(u64, u64)],
) -> (SnapSet, u64) {
    let mut snaps = base.clone();
    snaps.clones.extend(clone.map(|clone| clone.0));
    snaps.seq = snaps.seq.max(snapc.seq);
    let Some(newest) = snaps.clones.last_mut() else { return (snaps, 0) };
    let shared = newest.overlap.total();
    modified.iter().for_each(|(start, length)| newest.overlap.remove(*start, *length));
    let unshared = shared - newest.overlap.total();
    (snaps, unshared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectInfo;
    use nacre_types::SnapId;

    fn snapc(snaps: &[u64]) -> SnapContext {
        let seq = snaps.first().copied().map(SnapId).unwrap_or_default();
        SnapContext { seq, snaps: snaps.iter().copied().map(SnapId).collect() }
    }

    fn head(seq: u64) -> ObjectContext {
        ObjectContext {
            exists: true,
            info: ObjectInfo { size: 100, ..ObjectInfo::default() },
            snaps: SnapSet { seq: SnapId(seq), clones: Vec::new() },
        }
    }

    #[test]
    fn a_clone_is_due_for_snapshots_that_the_head_has_not_met() {
        let clone = NewClone::due(&head(2), &snapc(&[5, 3, 1])).expect("a clone").0;
        assert_eq!((clone.id, clone.size), (SnapId(5), 100));
        assert_eq!(clone.snaps, [SnapId(3), SnapId(5)]);
        assert_eq!(clone.overlap, IntervalSet::of(0, 100));
        assert_eq!(NewClone::due(&head(5), &snapc(&[5, 3])), None);
        assert_eq!(NewClone::due(&head(0), &snapc(&[])), None);
        assert_eq!(NewClone::due(&ObjectContext::default(), &snapc(&[5])), None);
    }

    #[test]
    fn what_is_written_is_no_longer_shared() {
        let clone = NewClone::due(&head(0), &snapc(&[5]));
        let (snaps, unshared) =
            apply_snapset(&SnapSet::default(), clone, &snapc(&[5]), &[(10, 20), (25, 10), (90, 99)]);
        assert_eq!((snaps.seq, unshared), (SnapId(5), 35));
        assert_eq!(snaps.clones[0].own_bytes(), 35);
        let (again, unshared) = apply_snapset(&snaps, None, &snapc(&[3]), &[(0, 11)]);
        assert_eq!((again.seq, unshared), (SnapId(5), 10));
    }
}
