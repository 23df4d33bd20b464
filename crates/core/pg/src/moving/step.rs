//! One step of moving: some objects, or entries of the snapshot mapper.

use super::change;
use crate::object::{CloneInfo, ObjectContext};
use crate::progress::Progress;
use crate::snap::mapper;
use nacre_msg::peer::Counters;
use nacre_txn::{ObjectView, Op, Transaction};
use nacre_types::{HObject, PgId, SnapId, SpgId};
use std::collections::{BTreeMap, BTreeSet};

impl Progress {
    /// Moves the next objects, at most `max`; with `count`, adds up what their heads stand for.
    pub(super) fn move_objects(
        &mut self,
        view: &dyn ObjectView,
        (max, count): (usize, bool),
        from: &SpgId,
        txn: &mut Transaction,
    ) {
        let mut page = view.list(from, &self.next, max + 1);
        let until = if page.len() > max { page.pop() } else { None };
        let until = until.unwrap_or_else(HObject::max_value).detached();
        let mut targets: BTreeSet<PgId> = BTreeSet::new();
        for object in &page {
            let home = object.pg(self.pg_num);
            let Some(share) = self.shares.get_mut(&home) else { continue };
            targets.insert(home);
            // A damaged record counts for nothing; recovery and scrub deal with it in the child.
            if count
                && object.snap == SnapId::HEAD
                && let Ok(context) = ObjectContext::load(view, from, object)
            {
                add_head(share, &context);
            }
        }
        for target in targets {
            txn.push(Op::Move {
                target: SpgId::replicated(target),
                pg_num: self.pg_num,
                from: self.next.clone(),
                until: until.clone(),
                ops: Vec::new(),
            });
        }
        self.next = until;
    }

    /// Moves the next entries of the snapshot mapper, at most `max`.
    pub(super) fn move_clones(
        &mut self,
        view: &dyn ObjectView,
        max: usize,
        from: &SpgId,
        txn: &mut Transaction,
    ) {
        let page = view.pg_meta_page(from, mapper::KEY_PREFIX, &self.clones_next, max);
        self.done = page.len() < max;
        if let Some((last, _)) = page.last() {
            // The least key behind it.
            self.clones_next = [&last[..], &[0]].concat().into();
        }
        let mut moved: BTreeMap<PgId, Vec<Op>> = BTreeMap::new();
        for (key, value) in page {
            let Some(home) = mapper::clone_of(&key).map(|clone| clone.pg(self.pg_num)) else { continue };
            if self.shares.contains_key(&home) {
                moved.entry(home).or_default().push(Op::MetaSet { key: key.clone(), value });
                txn.push(Op::MetaRemove { key });
            }
        }
        txn.ops.extend(moved.into_iter().map(|(target, ops)| change(target, self.pg_num, ops)));
    }
}

/// What one head and its clones add to a PG's sums.
fn add_head(sums: &mut Counters, head: &ObjectContext) {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let clones = signed(head.snaps.clones.len() as u64);
    let own: u64 = head.snaps.clones.iter().map(CloneInfo::own_bytes).sum();
    sums.add(&Counters {
        objects: 1 + clones,
        clones,
        bytes: signed(head.info.size.saturating_add(own)),
        whiteouts: i64::from(head.info.whiteout),
        omap_objects: i64::from(head.info.has_omap) * (1 + clones),
        ..Counters::default()
    });
}
