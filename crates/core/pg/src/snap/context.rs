//! [`SnapContext`]: which snapshots exist as far as a write knows.

use nacre_types::{IntervalSet, SnapId};

/// The snapshots that a write must preserve the object for. Ceph `SnapContext`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapContext {
    /// Newest snapshot ever, existing or not.
    pub seq: SnapId,
    /// Existing snapshots, newest first.
    pub snaps: Vec<SnapId>,
}

impl SnapContext {
    /// True when `snaps` strictly descend from no more than `seq`, and are real snapshots.
    #[must_use]
    pub fn is_valid(seq: SnapId, snaps: &[SnapId]) -> bool {
        seq <= SnapId::MAX
            && snaps.first().is_none_or(|newest| *newest <= seq)
            && snaps.last().is_none_or(|oldest| oldest.0 > 0)
            && snaps.is_sorted_by(|newer, older| newer > older)
    }

    /// A client's context without the snapshots that are being removed.
    #[must_use]
    pub fn filtered(seq: SnapId, snaps: &[SnapId], removed: &IntervalSet) -> Self {
        Self { seq, snaps: snaps.iter().copied().filter(|snap| !removed.contains(snap.0)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u64]) -> Vec<SnapId> {
        ids.iter().copied().map(SnapId).collect()
    }

    #[test]
    fn contexts_descend_from_their_sequence() {
        let valid = |seq, snaps: &[u64]| SnapContext::is_valid(SnapId(seq), &ids(snaps));
        assert!(valid(0, &[]) && valid(9, &[]) && valid(9, &[9, 4, 1]) && valid(9, &[4]));
        assert!(!valid(3, &[4]) && !valid(9, &[4, 4]) && !valid(9, &[1, 4]) && !valid(9, &[4, 0]));
        assert!(!valid(u64::MAX - 1, &[]));
    }

    #[test]
    fn removed_snapshots_do_not_count() {
        let removed = IntervalSet::of(4, 2);
        let context = SnapContext::filtered(SnapId(9), &ids(&[9, 5, 4, 1]), &removed);
        assert_eq!(context, SnapContext { seq: SnapId(9), snaps: ids(&[9, 1]) });
    }
}
