//! [`CollectionCopy`]: a PG's collection piece by piece, as changes that make the same one in another store.
//!
//! ```text
//!   objects in order, each with record, data, attributes, omap      clones share what they have in common with the next
//!   the collection's own values, the log                            older one, as in the store that they leave
//!   info and interval, with the note that all is there              without these it is no PG: see `storage`
//! ```
//! The collection must not change meanwhile: the PG is in no memory. Until all is there, and the one that was copied is gone, the copy has
//! [`Arriving`], and nobody takes it for the PG.

use crate::object::ObjectContext;
use crate::storage;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::Decode;
use nacre_msg::peer::{LogEntry, LogKind};
use nacre_txn::{EXTENT_BYTES, Extents, ObjectView, Op, ReadError};
use nacre_types::{Eversion, HObject, IntervalSet, SnapId, SpgId};
use std::collections::VecDeque;

/// Bytes of a piece from which on nothing is added to it: far below what a transaction may have.
pub const PIECE_BYTES: usize = 1 << 20;
/// Objects, entries of an omap, or values that one piece looks at.
const PIECE_COUNT_MAX: usize = 128;
/// Names that are asked for at a time.
const NAMES_MAX: usize = 64;
/// The note of a copy that is not the PG yet.
const KEY_ARRIVING: ByteStr = ByteStr::from_static("arriving");

/// What a collection says of itself that is a copy of one in another store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arriving {
    /// Some of it may be there.
    InPart,
    /// All of it is; the other may be there as well.
    Whole,
}

impl Arriving {
    /// What the collection `spg` says; `None` of one that is a PG's.
    #[must_use]
    pub fn of(view: &dyn ObjectView, spg: &SpgId) -> Option<Self> {
        let noted = view.pg_meta_page(spg, &KEY_ARRIVING, b"", 1);
        let (_, value) = noted.into_iter().find(|(key, _)| *key == KEY_ARRIVING)?;
        Some(if value.is_empty() { Self::InPart } else { Self::Whole })
    }

    fn note(self) -> Op {
        let value = Bytes::from_static(if self == Self::Whole { b"whole" } else { b"" });
        Op::MetaSet { key: KEY_ARRIVING, value }
    }

    /// The changes with which a copy begins, in the place of what is left of an earlier one.
    #[must_use]
    pub fn begin() -> Vec<Op> {
        vec![Op::RemoveCollection, Op::CreateCollection, Self::InPart.note()]
    }

    /// The change that makes a whole copy the PG's.
    #[must_use]
    pub fn end() -> Op {
        Op::MetaRemove { key: KEY_ARRIVING }
    }
}

/// What comes next of a copy.
#[derive(Debug, Clone, PartialEq)]
pub enum CopyStep {
    /// Changes to the copy's collection, some [`PIECE_BYTES`] of them.
    Piece(Vec<Op>),
    /// Nothing before the store has been asked for this data.
    Fetch {
        /// The object whose data are wanted.
        object: HObject,
        /// Where they begin in the object, in bytes.
        offset: u64,
        /// How many bytes of them.
        length: u64,
    },
    /// The changes with which the copy is whole.
    Last(Vec<Op>),
}

/// An object of which some is copied.
#[derive(Debug)]
struct Current {
    name: HObject,
    /// Data that is to be written still: offset and length, ascending.
    data: VecDeque<(u64, u64)>,
    /// Where its omap goes on; `None` when all of that is copied.
    omap_from: Option<ByteStr>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct CollectionCopy {
    spg: SpgId,
    /// Overlaps of clones are offsets in what the store has: not where objects are in chunks.
    shares_clones: bool,
    names: VecDeque<HObject>,
    /// Where the names behind them begin; `None` behind the last one.
    next_name: Option<HObject>,
    current: Option<Current>,
    /// The object that was copied last, all of it.
    before: Option<HObject>,
    /// Where the collection's own values go on; `None` behind the last one.
    values_from: Option<ByteStr>,
    /// What is left of the log, once it is its turn.
    log: Option<VecDeque<Bytes>>,
    /// An entry of the log does not decode.
    is_damaged: bool,
}

/// The least key behind this one.
fn behind(key: &[u8]) -> ByteStr {
    [key, &[0]].concat().into()
}

/// Bytes that a change may take; what clones share counts, too: a store must have room for it.
fn bytes_of(op: &Op) -> usize {
    let shared = match op {
        Op::CloneExtents { extents, .. } => extents.blocks() * EXTENT_BYTES,
        _ => 0,
    };
    op.size_bytes().saturating_add(usize::try_from(shared).unwrap_or(usize::MAX))
}

/// What of these ranges is in whole blocks.
fn whole_blocks(ranges: &IntervalSet) -> IntervalSet {
    let whole = |(start, length): (u64, u64)| {
        let end = (start + length) / EXTENT_BYTES * EXTENT_BYTES;
        let start = start.div_ceil(EXTENT_BYTES) * EXTENT_BYTES;
        (end > start).then(|| (start, end - start))
    };
    ranges.iter().filter_map(whole).collect()
}

impl CollectionCopy {
    /// Of the collection `spg`, from its beginning. `is_coded`: it has chunks of objects, not objects.
    #[must_use]
    pub fn new(spg: SpgId, is_coded: bool) -> Self {
        Self {
            spg,
            shares_clones: !is_coded,
            names: VecDeque::new(),
            next_name: Some(HObject::MIN),
            current: None,
            before: None,
            values_from: Some(ByteStr::EMPTY),
            log: None,
            is_damaged: false,
        }
    }

    /// What comes next. `size_of` says how many bytes of data an object of the collection has, its holes among them.
    pub fn step(&mut self, view: &dyn ObjectView, size_of: &dyn Fn(&HObject) -> u64) -> CopyStep {
        let mut ops = Vec::new();
        let (mut bytes, mut count) = (0, 0);
        while bytes < PIECE_BYTES && count < PIECE_COUNT_MAX {
            let from = ops.len();
            if let Some(current) = self.current.take() {
                if let Some(fetch) = self.go_on(view, current, PIECE_BYTES - bytes, &mut ops) {
                    return if ops.is_empty() { fetch } else { CopyStep::Piece(ops) };
                }
            } else if let Some(name) = self.next(view) {
                self.begin(view, name, size_of, &mut ops);
            } else if let Some(from) = self.values_from.take() {
                self.values(view, &from, &mut ops);
                count = PIECE_COUNT_MAX;
            } else if !self.log_entries(view, PIECE_BYTES - bytes, &mut ops) {
                // Without these the copy is as damaged as the log.
                if !self.is_damaged {
                    ops.extend(storage::last_values(view, &self.spg));
                }
                ops.push(Arriving::Whole.note());
                return CopyStep::Last(ops);
            }
            count += 1;
            bytes += ops.iter().skip(from).map(bytes_of).sum::<usize>();
        }
        CopyStep::Piece(ops)
    }

    fn next(&mut self, view: &dyn ObjectView) -> Option<HObject> {
        if self.names.is_empty()
            && let Some(from) = self.next_name.take()
        {
            let mut names: VecDeque<HObject> = view.list(&self.spg, &from, NAMES_MAX + 1).into();
            if names.len() > NAMES_MAX {
                self.next_name = names.pop_back().map(|name| name.detached());
            }
            self.names = names;
        }
        self.names.pop_front()
    }

    /// The object with all but its data and its omap.
    fn begin(
        &mut self,
        view: &dyn ObjectView,
        name: HObject,
        size_of: &dyn Fn(&HObject) -> u64,
        ops: &mut Vec<Op>,
    ) {
        let mut data: IntervalSet = view.extents(&self.spg, &name, 0, u64::MAX).into_iter().collect();
        match self.shared(view, &name) {
            Some((older, extents)) => {
                extents.iter().for_each(|(offset, length)| data.remove(offset, length));
                ops.push(Op::CloneExtents { source: older, target: name.clone(), extents });
                ops.push(Op::ClearAttrs(name.clone()));
                ops.push(Op::OmapClear(name.clone()));
            }
            None => ops.push(Op::Touch(name.clone())),
        }
        let meta = view.meta(&self.spg, &name).unwrap_or_default();
        ops.push(Op::SetMeta { object: name.clone(), meta });
        ops.push(Op::Truncate { object: name.clone(), size: size_of(&name) });
        for (attr, value) in view.attrs(&self.spg, &name) {
            ops.push(Op::SetAttr { object: name.clone(), name: attr, value });
        }
        let header = view.omap_header(&self.spg, &name);
        if !header.is_empty() {
            ops.push(Op::OmapSetHeader { object: name.clone(), header });
        }
        let data = data.iter().collect();
        self.current = Some(Current { name, data, omap_from: Some(ByteStr::EMPTY) });
    }

    /// The next older clone of this object, which is in the copy already, and what of its data the object has as well.
    fn shared(&self, view: &dyn ObjectView, name: &HObject) -> Option<(HObject, Extents)> {
        let older = self.before.as_ref().filter(|_| self.shares_clones)?;
        if older.snap == SnapId::HEAD || older.with_snap(name.snap) != *name {
            return None;
        }
        let head = ObjectContext::load(view, &self.spg, &name.to_head()).ok()?;
        let clones = &head.snaps.clones;
        let at = clones.iter().position(|clone| clone.id == older.snap)?;
        let newer = clones.get(at + 1).map_or(SnapId::HEAD, |clone| clone.id);
        let overlap = clones.get(at).filter(|_| newer == name.snap)?;
        let extents = Extents::new(whole_blocks(&overlap.overlap).iter()).ok()?;
        (extents.count() > 0).then(|| (older.clone(), extents))
    }

    /// Some of the object's data or omap; what must be fetched first instead.
    fn go_on(
        &mut self,
        view: &dyn ObjectView,
        mut current: Current,
        room: usize,
        ops: &mut Vec<Op>,
    ) -> Option<CopyStep> {
        let name = current.name.clone();
        if let Some((offset, length)) = current.data.pop_front() {
            let some = length.min(room.max(EXTENT_BYTES as usize) as u64);
            match view.read(&self.spg, &name, offset, some) {
                Ok(data) => {
                    if length > some {
                        current.data.push_front((offset + some, length - some));
                    }
                    if !data.is_empty() {
                        ops.push(Op::Write { object: name, offset, data });
                    }
                }
                Err(ReadError::Pending { .. }) => {
                    current.data.push_front((offset, length));
                    self.current = Some(current);
                    return Some(CopyStep::Fetch { object: name, offset, length: some });
                }
                Err(ReadError::Damaged { .. }) => return self.give_up(view, name, ops),
            }
        } else if let Some(from) = current.omap_from.take() {
            let page = view.omap_page(&self.spg, &name, &from, PIECE_COUNT_MAX, room);
            if page.more {
                current.omap_from = page.entries.last().map(|(key, _)| behind(key));
            }
            if !page.entries.is_empty() {
                ops.push(Op::OmapSet { object: name, entries: page.entries });
            }
        }
        if current.data.is_empty() && current.omap_from.is_none() {
            self.before = Some(current.name);
        } else {
            self.current = Some(current);
        }
        None
    }

    /// The device does not give the data: the copy lacks the object, and knows that, so that others bring it.
    fn give_up(&mut self, view: &dyn ObjectView, name: HObject, ops: &mut Vec<Op>) -> Option<CopyStep> {
        // The log may ask for a newer one already.
        let entries = view.log(&self.spg).into_iter().filter_map(|entry| LogEntry::from_bytes(entry).ok());
        let logged = entries.filter(|entry| entry.object == name && entry.kind != LogKind::Error);
        let wanted = logged.map(|entry| entry.version).max();
        let version = storage::copy_version(view, &self.spg, &name).max(wanted);
        let version = version.filter(|at| *at != Eversion::ZERO);
        ops.push(Op::Remove(name.clone()));
        ops.extend(version.map(|version| storage::record_missing(&name, version)));
        self.before = None;
        None
    }

    /// Some of the collection's own values, but for those that come last.
    fn values(&mut self, view: &dyn ObjectView, from: &ByteStr, ops: &mut Vec<Op>) {
        let page = view.pg_meta_page(&self.spg, b"", from, PIECE_COUNT_MAX);
        if page.len() == PIECE_COUNT_MAX {
            self.values_from = page.last().map(|(key, _)| behind(key));
        }
        let is_other = |key: &ByteStr| !storage::comes_last(key) && *key != KEY_ARRIVING;
        let others = page.into_iter().filter(|(key, _)| is_other(key));
        ops.extend(others.map(|(key, value)| Op::MetaSet { key, value }));
    }

    /// Some entries of the log; false behind the last one.
    fn log_entries(&mut self, view: &dyn ObjectView, room: usize, ops: &mut Vec<Op>) -> bool {
        let spg = self.spg;
        let log = self.log.get_or_insert_with(|| view.log(&spg).into());
        let (mut bytes, had) = (0, !log.is_empty());
        while bytes < room
            && let Some(entry) = log.pop_front()
        {
            bytes += entry.len();
            let version = LogEntry::from_bytes(entry.clone()).ok().map(|decoded| decoded.version);
            self.is_damaged |= version.is_none();
            ops.extend(version.map(|version| Op::LogAppend { version, entry }));
        }
        had
    }
}
