//! One part of an object as a transaction that makes a copy of it.

use super::PART_BYTES_MAX;
use crate::object::ObjectContext;
use crate::snap::mapper;
use crate::storage;
use nacre_txn::{ObjectView, Op, ReadError, Transaction};
use nacre_types::{HObject, SnapId, SpgId};

/// Omap entries read at a time.
const OMAP_ENTRIES_MAX: usize = 4096;
/// Bytes of omap read at a time.
const OMAP_BYTES_MAX: usize = 1 << 20;

/// A part of an object.
pub(super) struct Part {
    /// What a copy must apply.
    pub(super) txn: Transaction,
    /// Where the next part begins.
    pub(super) next: Option<u64>,
}

/// The order to drop an object.
pub(super) fn removal(spg: SpgId, object: &HObject) -> Transaction {
    Transaction { collection: spg, ops: vec![Op::Remove(object.clone())] }
}

/// The part of `object` that begins at `offset`, read from where it is stored under the name `place`; `stored` says how
/// much data a copy keeps of an object of some size. The first part replaces whatever the copy holds; the last one gives
/// the object its record: until then the copy's version is none, so a crash half-way leaves it missing.
///
/// # Errors
/// [`ReadError`] when data must come from the device first, or is damaged.
pub(super) fn read(
    view: &dyn ObjectView,
    spg: SpgId,
    (place, object): (&HObject, &HObject),
    offset: u64,
    stored: impl Fn(u64) -> u64,
) -> Result<Part, ReadError> {
    let damaged =
        || ReadError::Damaged { object: object.clone(), offset: 0, reason: "no readable record".into() };
    let record = view.meta(&spg, place).ok_or_else(damaged)?;
    let context = ObjectContext::from_record(record.clone()).map_err(|_| damaged())?;
    let size = stored(context.info.size);
    let mut ops = Vec::new();
    if offset == 0 {
        begin(view, spg, (place, object), &mut ops);
    }
    let end = offset.saturating_add(PART_BYTES_MAX).min(size);
    let span = end.saturating_sub(offset);
    for (start, length) in view.extents(&spg, place, offset, span) {
        let data =
            view.read(&spg, place, start, length).map_err(|error| storage::together(error, offset, span))?;
        ops.push(Op::Write { object: object.clone(), offset: start, data });
    }
    let next = (end < size).then_some(end);
    if next.is_none() {
        ops.push(Op::Truncate { object: object.clone(), size });
        ops.push(Op::SetMeta { object: object.clone(), meta: record });
        map_snaps(view, spg, object, &context, &mut ops);
    }
    Ok(Part { txn: Transaction { collection: spg, ops }, next })
}

fn begin(view: &dyn ObjectView, spg: SpgId, (place, object): (&HObject, &HObject), ops: &mut Vec<Op>) {
    ops.push(Op::Remove(object.clone()));
    ops.push(Op::Touch(object.clone()));
    for (name, value) in view.attrs(&spg, place) {
        ops.push(Op::SetAttr { object: object.clone(), name, value });
    }
    let header = view.omap_header(&spg, place);
    if !header.is_empty() {
        ops.push(Op::OmapSetHeader { object: object.clone(), header });
    }
    let mut from = Vec::new();
    loop {
        let page = view.omap_page(&spg, place, &from, OMAP_ENTRIES_MAX, OMAP_BYTES_MAX);
        let last = page.entries.last().map(|(key, _)| key.clone());
        if !page.entries.is_empty() {
            ops.push(Op::OmapSet { object: object.clone(), entries: page.entries });
        }
        match last {
            Some(last) if page.more => from = [&last[..], &[0]].concat(),
            _ => return,
        }
    }
}

/// Records with the copy which clones the snapshots keep: a head knows all of its clones.
fn map_snaps(
    view: &dyn ObjectView,
    spg: SpgId,
    object: &HObject,
    context: &ObjectContext,
    ops: &mut Vec<Op>,
) {
    if object.snap.is_head() {
        for clone in &context.snaps.clones {
            mapper::insert(&object.with_snap(clone.id), &clone.snaps, ops);
        }
        return;
    }
    let head = ObjectContext::load(view, &spg, &object.to_head()).unwrap_or_default();
    let snaps: Vec<SnapId> =
        head.snaps.clone_of(object.snap).map(|clone| clone.snaps.clone()).unwrap_or_default();
    mapper::insert(object, &snaps, ops);
}
