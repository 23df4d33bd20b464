//! [`resolve_snap`]: what a snapshot sees of an object.

use crate::object::ObjectContext;
use nacre_types::{IntervalSet, SnapId};

/// Where the state of an object at some snapshot is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// In the head: nothing was written since.
    Head,
    /// In this clone.
    Clone(SnapId),
    /// The object did not exist then, or the snapshot is being removed.
    Nowhere,
}

/// Finds what `snap` sees. For [`SnapId::HEAD`] and [`SnapId::SNAPDIR`] that is the head, if there is a
/// record at all; whether a whiteout counts is the caller's to say.
#[must_use]
pub fn resolve_snap(context: &ObjectContext, snap: SnapId, removed: &IntervalSet) -> Resolved {
    if snap > SnapId::MAX {
        return if context.exists { Resolved::Head } else { Resolved::Nowhere };
    }
    if snap > context.snaps.seq {
        return if context.is_visible() { Resolved::Head } else { Resolved::Nowhere };
    }
    let clone = context.snaps.clones.iter().find(|clone| clone.id >= snap);
    match clone {
        Some(clone) if sees(&clone.snaps, snap) && !removed.contains(snap.0) => Resolved::Clone(clone.id),
        _ => Resolved::Nowhere,
    }
}

/// A clone serves every snapshot from its oldest to its newest, also those that its list leaves out.
fn sees(snaps: &[SnapId], snap: SnapId) -> bool {
    snaps.first().is_some_and(|oldest| *oldest <= snap) && snaps.last().is_some_and(|newest| snap <= *newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{CloneInfo, ObjectInfo, SnapSet};

    fn context(seq: u64, clones: &[&[u64]], whiteout: bool) -> ObjectContext {
        let clone = |snaps: &&[u64]| CloneInfo {
            id: snaps.last().copied().map(SnapId).expect("a snapshot"),
            snaps: snaps.iter().copied().map(SnapId).collect(),
            ..CloneInfo::default()
        };
        let snaps = SnapSet { seq: SnapId(seq), clones: clones.iter().map(clone).collect() };
        ObjectContext { exists: true, info: ObjectInfo { whiteout, ..ObjectInfo::default() }, snaps }
    }

    fn at(context: &ObjectContext, snap: u64) -> Resolved {
        resolve_snap(context, SnapId(snap), &IntervalSet::new())
    }

    #[test]
    fn as_measured_on_an_object_older_than_its_snapshot() {
        let context = context(1000, &[&[1000]], false);
        assert_eq!(at(&context, 999), Resolved::Nowhere);
        assert_eq!(at(&context, 1000), Resolved::Clone(SnapId(1000)));
        assert_eq!(at(&context, 1002), Resolved::Head);
        assert_eq!(at(&context, SnapId::HEAD.0), Resolved::Head);
    }

    #[test]
    fn a_clone_serves_its_whole_interval() {
        let context = context(9, &[&[2, 4], &[7, 9]], true);
        let found: Vec<Resolved> = (1..=10).map(|snap| at(&context, snap)).collect();
        let (old, new) = (Resolved::Clone(SnapId(4)), Resolved::Clone(SnapId(9)));
        let none = Resolved::Nowhere;
        assert_eq!(found, [none, old, old, old, none, none, new, new, new, none]);
        assert_eq!(at(&context, SnapId::SNAPDIR.0), Resolved::Head);
    }

    #[test]
    fn a_snapshot_under_removal_sees_nothing() {
        let context = context(4, &[&[2, 4]], false);
        assert_eq!(resolve_snap(&context, SnapId(2), &IntervalSet::of(2, 1)), Resolved::Nowhere);
        assert_eq!(resolve_snap(&context, SnapId(4), &IntervalSet::of(2, 1)), Resolved::Clone(SnapId(4)));
    }

    #[test]
    fn without_a_record_there_is_nothing() {
        assert_eq!(at(&ObjectContext::default(), SnapId::HEAD.0), Resolved::Nowhere);
        assert_eq!(at(&ObjectContext::default(), 5), Resolved::Nowhere);
    }
}
