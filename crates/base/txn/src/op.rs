//! Transactions and their operations.

use crate::Extents;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_types::{Eversion, HObject, PgId, SpgId};

/// Changes to one collection that become visible and durable together, in order.
#[derive(Clone, PartialEq, Debug)]
pub struct Transaction {
    /// The collection: one PG's objects, log and metadata.
    pub collection: SpgId,
    /// The changes, applied front to back.
    pub ops: Vec<Op>,
}

/// One change. An object comes into being with the first change that names it, except by `Remove`; it has
/// no data, attributes, omap or `meta` then.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// Makes the collection; nothing if it is there.
    CreateCollection,
    /// Removes the collection with all that is in it; nothing if it is not there.
    RemoveCollection,
    /// Makes the object exist.
    Touch(HObject),
    /// Writes `data` at `offset` bytes; a gap before it reads as zeros.
    Write {
        /// Name of the object that it is about.
        object: HObject,
        /// First byte written.
        offset: u64,
        /// The bytes, shared with the message that brought them.
        data: BufList,
    },
    /// Makes a range read as zeros and frees what it can; never shortens or lengthens the object.
    Zero {
        /// Name of the object that it is about.
        object: HObject,
        /// Offset of the first byte that is written.
        offset: u64,
        /// Length of the range in bytes.
        length: u64,
    },
    /// Cuts or extends (with zeros) the data to `size` bytes.
    Truncate {
        /// Name of the object that it is about.
        object: HObject,
        /// New length in bytes.
        size: u64,
    },
    /// Removes data, attributes, omap and `meta`; nothing if the object does not exist.
    Remove(HObject),
    /// Makes `target` an exact copy of `source` (data, attributes, omap, omap header, `meta`), replacing it.
    Clone {
        /// What is copied.
        source: HObject,
        /// What it becomes.
        target: HObject,
    },
    /// Makes `target` what `source` is in all but data (length, attributes, omap, omap header, `meta`), and gives it the source's data
    /// in `extents`, as far as the source reaches. Elsewhere it keeps its own up to that length, and has a hole where it has none. Of a
    /// source that does not exist it becomes an empty object; of itself it stays as it is.
    CloneExtents {
        /// What is copied.
        source: HObject,
        /// What becomes like it.
        target: HObject,
        /// Where the data is.
        extents: Extents,
    },
    /// Renames `source`, replacing `target`.
    Rename {
        /// What is renamed.
        source: HObject,
        /// Its new name.
        target: HObject,
    },
    /// Replaces the PG's own record of the object (object info, snapshot set), opaque to the store.
    SetMeta {
        /// Name of the object that it is about.
        object: HObject,
        /// The object's record, which the PG encodes.
        meta: Bytes,
    },
    /// Sets one user attribute.
    SetAttr {
        /// Name of the object that it is about.
        object: HObject,
        /// Name without any prefix.
        name: ByteStr,
        /// The new value.
        value: Bytes,
    },
    /// Removes one user attribute, if there.
    RemoveAttr {
        /// Name of the object that it is about.
        object: HObject,
        /// The attribute's name.
        name: ByteStr,
    },
    /// Removes all user attributes.
    ClearAttrs(HObject),
    /// Sets omap entries.
    OmapSet {
        /// Name of the object that it is about.
        object: HObject,
        /// Keys and values; a key given twice keeps the later value.
        entries: Vec<(ByteStr, Bytes)>,
    },
    /// Removes omap entries, those that are there.
    OmapRemove {
        /// Name of the object that it is about.
        object: HObject,
        /// The keys of the entries.
        keys: Vec<ByteStr>,
    },
    /// Removes omap entries with `first <= key < last`.
    OmapRemoveRange {
        /// Name of the object that it is about.
        object: HObject,
        /// First key removed.
        first: ByteStr,
        /// First key kept.
        last: ByteStr,
    },
    /// Replaces the omap header.
    OmapSetHeader {
        /// Name of the object that it is about.
        object: HObject,
        /// The omap's header.
        header: Bytes,
    },
    /// Removes all omap entries and the header.
    OmapClear(HObject),
    /// Appends an entry to the PG log.
    LogAppend {
        /// Greater than every version in the log.
        version: Eversion,
        /// The encoded entry, opaque to the store.
        entry: Bytes,
    },
    /// Forgets log entries up to and including `to`.
    LogTrim {
        /// Last entry forgotten.
        to: Eversion,
    },
    /// Forgets log entries above `to` (divergent ones).
    LogRewind {
        /// Last entry kept.
        to: Eversion,
    },
    /// Sets a value in the collection's own small key-value space (PG info, past intervals, snap mapper).
    MetaSet {
        /// The value's key.
        key: ByteStr,
        /// The new value.
        value: Bytes,
    },
    /// Removes a value from the collection's own key-value space.
    MetaRemove {
        /// The value's key.
        key: ByteStr,
    },
    /// Moves objects to another collection: those that belong to `child` when the pool has `pg_num` PGs.
    /// The child's collection is made anew; `ops` are applied to it once the objects are there.
    Split {
        /// The collection that the objects move to.
        child: SpgId,
        /// The pool's number of PGs.
        pg_num: u32,
        /// Changes to the child; never another split or a merge.
        ops: Vec<Self>,
    },
    /// Moves objects of a range to another collection, each in place of an object of its name there: those that belong to
    /// `target` when the pool has `pg_num` PGs. The target's collection is made if it is absent; `ops` are
    /// applied to it then. So large collections are divided and joined bit by bit.
    Move {
        /// The collection that the objects move to.
        target: SpgId,
        /// The pool's number of PGs.
        pg_num: u32,
        /// Where the range begins.
        from: HObject,
        /// The first object behind it.
        until: HObject,
        /// Changes to the target; never another move, split or merge.
        ops: Vec<Self>,
    },
    /// Moves all objects of another collection to this one, each in place of an object of its name, and removes what
    /// is left of that: its log and its key-value space. One that is not there has no objects.
    Merge {
        /// The collection that ends.
        source: SpgId,
    },
}

/// Room for what an op's encoding has beside names, keys, values and data.
const OP_BYTES: usize = 64;
/// Likewise for each key or value.
const LENGTH_BYTES: usize = 4;
/// Likewise for each extent.
const EXTENT_ENCODED_BYTES: usize = 16;

impl Op {
    /// About the bytes of the op's encoding, with its data; never less than that.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        fn name(object: &HObject) -> usize {
            object.name.len() + object.key.len() + object.namespace.len()
        }
        let rest = match self {
            Self::CreateCollection
            | Self::RemoveCollection
            | Self::LogTrim { .. }
            | Self::LogRewind { .. } => 0,
            Self::Touch(object)
            | Self::Remove(object)
            | Self::ClearAttrs(object)
            | Self::OmapClear(object) => name(object),
            Self::Write { object, data, .. } => name(object) + data.len(),
            Self::Zero { object, .. } | Self::Truncate { object, .. } => name(object),
            Self::Clone { source, target } | Self::Rename { source, target } => {
                OP_BYTES + name(source) + name(target)
            }
            Self::CloneExtents { source, target, extents } => {
                OP_BYTES + name(source) + name(target) + EXTENT_ENCODED_BYTES * extents.count()
            }
            Self::SetMeta { object, meta } => name(object) + meta.len(),
            Self::SetAttr { object, name: attr, value } => name(object) + attr.len() + value.len(),
            Self::RemoveAttr { object, name: attr } => name(object) + attr.len(),
            Self::OmapSet { object, entries } => {
                let pair = |(key, value): &(ByteStr, Bytes)| key.len() + value.len() + 2 * LENGTH_BYTES;
                name(object) + entries.iter().map(pair).sum::<usize>()
            }
            Self::OmapRemove { object, keys } => {
                name(object) + keys.iter().map(|key| key.len() + LENGTH_BYTES).sum::<usize>()
            }
            Self::OmapRemoveRange { object, first, last } => name(object) + first.len() + last.len(),
            Self::OmapSetHeader { object, header } => name(object) + header.len(),
            Self::LogAppend { entry, .. } => entry.len(),
            Self::MetaSet { key, value } => key.len() + value.len(),
            Self::MetaRemove { key } => key.len(),
            Self::Split { ops, .. } => ops.iter().map(Self::size_bytes).sum(),
            Self::Move { from, until, ops, .. } => {
                OP_BYTES + name(from) + name(until) + ops.iter().map(Self::size_bytes).sum::<usize>()
            }
            Self::Merge { .. } => 0,
        };
        // An object's name has three strings beside numbers.
        2 * OP_BYTES + rest
    }
}

impl Transaction {
    /// A transaction without changes.
    #[must_use]
    pub fn new(collection: SpgId) -> Self {
        Self { collection, ops: Vec::new() }
    }

    /// Adds a change behind those that are there.
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// Bytes of object data that the transaction carries.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        fn data(ops: &[Op]) -> usize {
            ops.iter().map(of_one).sum()
        }
        fn of_one(op: &Op) -> usize {
            match op {
                Op::Write { data, .. } => data.len(),
                Op::Split { ops, .. } | Op::Move { ops, .. } => data(ops),
                _ => 0,
            }
        }
        data(&self.ops)
    }
}

/// A PG's own name for a transaction that it submits or data that it asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);

/// Names a submitted transaction or requested data to a store, and comes back on completion: for which PG, and that PG's own name for it.
/// Chosen by the caller; the store only hands it back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoreToken {
    /// The PG that waits for it, which need not be the transaction's collection.
    pub spg: SpgId,
    /// The PG's own name.
    pub token: Token,
}

impl StoreToken {
    /// In the place of a PG where none waits. Pools are numbered from one, so no PG has it.
    const NO_PG: SpgId = SpgId::replicated(PgId::new(-1, 0));

    /// For which PG, and that PG's own name.
    #[must_use]
    pub const fn new(spg: SpgId, token: Token) -> Self {
        Self { spg, token }
    }

    /// For no PG: an OSD's own records, a bench, a tool.
    #[must_use]
    pub const fn without_pg(number: u64) -> Self {
        Self { spg: Self::NO_PG, token: Token(number) }
    }

    /// Whether a PG waits for it.
    #[must_use]
    pub fn is_of_pg(&self) -> bool {
        self.spg != Self::NO_PG
    }
}
