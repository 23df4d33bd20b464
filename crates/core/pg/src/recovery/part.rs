//! One part of an object as a transaction that makes a copy of it.

use crate::object::ObjectContext;
use crate::snap::mapper;
use crate::storage;
use nacre_buf::ByteStr;
use nacre_msg::peer::PartCursor;
use nacre_txn::{ObjectView, Op, ReadError, Transaction};
use nacre_types::{HObject, SnapId, SpgId};

/// Omap entries in one part: what a small value costs is its entry, not its bytes.
const OMAP_ENTRIES_MAX: usize = 4096;

/// A part of an object.
pub(super) struct Part {
    /// What a copy must apply.
    pub(super) txn: Transaction,
    /// Where the next part begins.
    pub(super) next: Option<PartCursor>,
}

/// The order to drop an object.
pub(super) fn removal(spg: SpgId, object: &HObject) -> Transaction {
    Transaction { collection: spg, ops: vec![Op::Remove(object.clone())] }
}

/// The part of `object` that begins at `at`, of up to `bytes_max` bytes of keys and values and as many of data, read from where it is
/// stored under the name `place`; `stored` says how much data a copy keeps of an object of some size. The first part replaces
/// whatever the copy holds; the last one gives the object its record: until then the copy's version is none, so a crash half-way
/// leaves it missing.
///
/// # Errors
/// [`ReadError`] when data must come from the device first, or is damaged.
pub(super) fn read(
    view: &dyn ObjectView,
    spg: SpgId,
    (place, object): (&HObject, &HObject),
    (at, bytes_max): (&PartCursor, usize),
    stored: impl Fn(u64) -> u64,
) -> Result<Part, ReadError> {
    let damaged =
        || ReadError::Damaged { object: object.clone(), offset: 0, reason: "no readable record".into() };
    let record = view.meta(&spg, place).ok_or_else(damaged)?;
    let context = ObjectContext::from_record(record.clone()).map_err(|_| damaged())?;
    let size = stored(context.info.size);
    let mut keys = Keys { view, spg, place, object, room: bytes_max, ops: Vec::new() };
    let offset = match keys.read(at) {
        PartCursor::Data(offset) => offset,
        next => return Ok(Part { txn: Transaction { collection: spg, ops: keys.ops }, next: Some(next) }),
    };
    let mut ops = keys.ops;
    let end = offset.saturating_add(bytes_max as u64).min(size);
    let span = end.saturating_sub(offset);
    for (start, length) in view.extents(&spg, place, offset, span) {
        let data =
            view.read(&spg, place, start, length).map_err(|error| storage::together(error, offset, span))?;
        ops.push(Op::Write { object: object.clone(), offset: start, data });
    }
    let next = (end < size).then_some(PartCursor::Data(end));
    if next.is_none() {
        ops.push(Op::Truncate { object: object.clone(), size });
        ops.push(Op::SetMeta { object: object.clone(), meta: record });
        map_snaps(view, spg, object, &context, &mut ops);
    }
    Ok(Part { txn: Transaction { collection: spg, ops }, next })
}

/// Attributes and omap of one part.
struct Keys<'a> {
    view: &'a dyn ObjectView,
    spg: SpgId,
    place: &'a HObject,
    object: &'a HObject,
    /// Bytes that the part may still take. One entry more than that is taken, or a long value would never be.
    room: usize,
    ops: Vec<Op>,
}

impl Keys<'_> {
    /// Takes what there is from `at` on; yields where the part ends, or where data begins in it.
    fn read(&mut self, at: &PartCursor) -> PartCursor {
        let mut at = at.clone();
        loop {
            at = match at {
                PartCursor::Start => self.begin(),
                PartCursor::Attrs(from) => match self.attrs(&from) {
                    Some(rest) => return rest,
                    None => PartCursor::Omap(ByteStr::EMPTY),
                },
                PartCursor::Omap(from) => match self.omap(&from) {
                    Some(rest) => return rest,
                    None => PartCursor::Data(0),
                },
                data @ PartCursor::Data(_) => return data,
            }
        }
    }

    fn take(&mut self, bytes: usize) {
        self.room = self.room.saturating_sub(bytes);
    }

    fn begin(&mut self) -> PartCursor {
        self.ops.push(Op::Remove(self.object.clone()));
        self.ops.push(Op::Touch(self.object.clone()));
        let header = self.view.omap_header(&self.spg, self.place);
        if !header.is_empty() {
            self.take(header.len());
            self.ops.push(Op::OmapSetHeader { object: self.object.clone(), header });
        }
        PartCursor::Attrs(ByteStr::EMPTY)
    }

    fn attrs(&mut self, from: &ByteStr) -> Option<PartCursor> {
        for (name, value) in self.view.attrs(&self.spg, self.place) {
            if name < *from {
                continue;
            }
            if self.room == 0 {
                return Some(PartCursor::Attrs(name));
            }
            self.take(name.len() + value.len());
            self.ops.push(Op::SetAttr { object: self.object.clone(), name, value });
        }
        None
    }

    fn omap(&mut self, from: &ByteStr) -> Option<PartCursor> {
        if self.room == 0 {
            return Some(PartCursor::Omap(from.clone()));
        }
        let page = self.view.omap_page(&self.spg, self.place, from, OMAP_ENTRIES_MAX, self.room);
        let last = page.entries.last().map(|(key, _)| key.clone());
        self.take(page.entries.iter().map(|(key, value)| key.len() + value.len()).sum());
        if !page.entries.is_empty() {
            self.ops.push(Op::OmapSet { object: self.object.clone(), entries: page.entries });
        }
        // The least key behind the last one.
        last.filter(|_| page.more).map(|last| PartCursor::Omap([&last[..], &[0]].concat().into()))
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
