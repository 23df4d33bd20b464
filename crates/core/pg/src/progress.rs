//! [`Progress`]: how far the objects of a PG that splits or is merged have moved. Stored with the copy that they leave.

use nacre_buf::ByteStr;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_msg::peer::Counters;
use nacre_types::{HObject, PgId, SpgId};
use std::collections::BTreeMap;

/// How far the objects of one collection are that move to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The pool's number of PGs by which they move.
    pub(crate) pg_num: u32,
    /// Objects before this have moved.
    pub(crate) next: HObject,
    /// Entries of the snapshot mapper before this have.
    pub(crate) clones_next: ByteStr,
    /// All of them have.
    pub(crate) done: bool,
    /// Where to, and the sums of what has moved there.
    pub(crate) shares: BTreeMap<PgId, Counters>,
}

impl Progress {
    /// Of a collection that nothing has left yet.
    pub(crate) fn begin(pg_num: u32, targets: impl Iterator<Item = PgId>) -> Self {
        Self {
            pg_num,
            next: HObject::MIN,
            clones_next: ByteStr::EMPTY,
            done: false,
            shares: targets.map(|target| (target, Counters::default())).collect(),
        }
    }

    /// The collection that an object has moved to; `None` while it is where it was.
    pub(crate) fn place(&self, object: &HObject) -> Option<SpgId> {
        let home = object.pg(self.pg_num);
        (*object < self.next && self.shares.contains_key(&home)).then(|| SpgId::replicated(home))
    }
}

impl Encode for Progress {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.pg_num);
            w.put(&self.next);
            w.put(&self.clones_next);
            w.bool(self.done);
            w.put(&self.shares);
        });
    }
}

impl Decode for Progress {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("moving objects", 1, |_, r| {
            Ok(Self {
                pg_num: r.u32()?,
                next: r.get()?,
                clones_next: r.get()?,
                done: r.bool()?,
                shares: r.get()?,
            })
        })
    }
}
