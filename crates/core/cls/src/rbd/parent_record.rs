//! [`Parent`]: the record of a clone's parent.

use crate::keys::{find, remove, set};
use crate::{ClassCx, Fault};
use nacre_buf::ByteStr;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::SnapId;

const PARENT: &str = "parent";

/// `cls::rbd::ParentImageSpec`
#[derive(Clone, PartialEq)]
pub(super) struct ParentSpec {
    pub(super) pool: i64,
    pub(super) namespace: ByteStr,
    pub(super) image: ByteStr,
    pub(super) snap: SnapId,
}

impl ParentSpec {
    pub(super) const NONE: Self =
        Self { pool: -1, namespace: ByteStr::EMPTY, image: ByteStr::EMPTY, snap: SnapId::HEAD };
}

impl Encode for ParentSpec {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.i64(self.pool);
            w.put(&self.namespace);
            w.put(&self.image);
            w.put(&self.snap);
        });
    }
}

impl Decode for ParentSpec {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("ParentImageSpec", 1, |_, r| {
            Ok(Self { pool: r.i64()?, namespace: r.get()?, image: r.get()?, snap: r.get()? })
        })
    }
}

/// The stored parent: where, and how much of the head it backs (`None` once flattened).
pub(super) struct Parent {
    pub(super) spec: ParentSpec,
    pub(super) head_overlap: Option<u64>,
}

impl Encode for Parent {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.spec);
        w.put(&self.head_overlap);
    }
}

impl Decode for Parent {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { spec: r.get()?, head_overlap: r.get()? })
    }
}

impl Parent {
    pub(super) fn load(cx: &dyn ClassCx) -> Result<Option<Self>, Fault> {
        find(cx, PARENT)
    }

    pub(super) fn save(&self, cx: &mut dyn ClassCx) {
        set(cx, PARENT, self);
    }

    pub(super) fn remove(cx: &mut dyn ClassCx) {
        remove(cx, PARENT);
    }
}
