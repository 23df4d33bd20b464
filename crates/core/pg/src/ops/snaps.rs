//! Operations on an object's snapshots: listing its clones, and making one of them the head again.

use super::execution::{Done, Execution, OpReturn};
use crate::object::{CloneInfo, ObjectContext};
use crate::snap::{Resolved, resolve_snap};
use nacre_denc::Writer;
use nacre_types::{Errno, IntervalSet, SnapId};

impl Execution<'_, '_> {
    /// Answers `obj_list_snap_response_t`: clones ascending, then the head if it exists.
    pub(super) fn list_snaps(&mut self) -> OpReturn {
        if self.request.op.snap != SnapId::SNAPDIR {
            return Err(Errno::EINVAL.into());
        }
        self.counters.reads += 1;
        let snaps = &self.head.snaps;
        let head = self.head.is_visible().then(|| CloneInfo {
            id: SnapId::HEAD,
            size: self.head.info.size,
            ..CloneInfo::default()
        });
        let mut w = Writer::new();
        w.envelope(2, 1, |w| {
            w.count(snaps.clones.len() + usize::from(head.is_some()));
            snaps.clones.iter().chain(head.as_ref()).for_each(|clone| put_clone(clone, w));
            w.put(&snaps.seq);
        });
        Ok(w.finish().into())
    }

    /// Makes the head what it was at `snap`; deletes it when it did not exist then.
    pub(super) fn roll_back(&mut self, snap: SnapId) -> OpReturn {
        self.counters.writes += 1;
        match resolve_snap(self.head, snap, &self.env.pool.removed_snaps) {
            Resolved::Head if self.head.is_visible() => {
                self.pending.create();
                self.pending.user_modify = true;
            }
            Resolved::Head | Resolved::Nowhere => self.roll_back_to_nothing()?,
            Resolved::Clone(id) => self.roll_back_to(id)?,
        }
        Ok(Done::default())
    }

    fn roll_back_to_nothing(&mut self) -> Result<(), Errno> {
        if !self.pending.info.watchers.is_empty() {
            return Err(Errno::EBUSY);
        }
        if self.pending.exists { self.delete() } else { Ok(()) }
    }

    fn roll_back_to(&mut self, id: SnapId) -> Result<(), Errno> {
        let source = self.request.head.with_snap(id);
        let clone =
            ObjectContext::load(self.env.view, &self.env.collection, &source).map_err(|_| Errno::EIO)?;
        if !clone.exists {
            return Err(Errno::EIO);
        }
        // Ranges in which the clone differs from the head as the newest clone, maybe made by this very
        // message, has it. Earlier changes of the message are in the list of modified ranges already.
        let size = self.head.info.size;
        let same = shared_with_head(&self.head.snaps.clones, id).intersection(&IntervalSet::of(0, size));
        let mut changed = IntervalSet::of(0, size.max(clone.info.size));
        changed.subtract(&same);
        let changed: Vec<(u64, u64)> = changed.iter().collect();
        self.pending.roll_back(source, &clone.info, &changed);
        Ok(())
    }
}

/// What the clone `id` and the head have in common: what every step between them left alone.
fn shared_with_head(clones: &[CloneInfo], id: SnapId) -> IntervalSet {
    let mut steps = clones.iter().filter(|clone| clone.id >= id).map(|clone| &clone.overlap);
    let first = steps.next().cloned().unwrap_or_default();
    steps.fold(first, |shared, overlap| shared.intersection(overlap))
}

fn put_clone(clone: &CloneInfo, w: &mut Writer) {
    w.envelope(1, 1, |w| {
        w.put(&clone.id);
        w.put(&clone.snaps);
        w.put(&clone.overlap);
        w.u64(clone.size);
    });
}
