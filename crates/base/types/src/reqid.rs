//! [`ReqId`]: the name of a client's request.

use crate::EntityName;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};

/// Names one client request, across resends. Ceph `osd_reqid_t`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ReqId {
    /// The client instance.
    pub name: EntityName,
    /// The client's transaction number.
    pub tid: u64,
    /// The client's incarnation, 0 in practice.
    pub incarnation: i32,
}

impl Encode for ReqId {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.put(&self.name);
            w.u64(self.tid);
            w.i32(self.incarnation);
        });
    }
}

impl Decode for ReqId {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("osd_reqid_t", 2, |_, r| Ok(Self { name: r.get()?, tid: r.u64()?, incarnation: r.i32()? }))
    }
}
