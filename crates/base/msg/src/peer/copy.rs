//! Copying an object from one PG into another.

use super::PeerHeader;
use super::coded::coded_message;
use nacre_buf::{BufList, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{HObject, SpgId};

/// Give me a part of this object. Sent by the primary of the PG that copies to that of the source.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyGet {
    /// The source's PG.
    pub header: PeerHeader,
    /// The PG that copies.
    pub reply_to: SpgId,
    /// Its number for the copy, echoed.
    pub tid: u64,
    /// The object; its `snap` says as of when.
    pub object: HObject,
    /// Where the part begins, as the executor of operations encodes it.
    pub cursor: Bytes,
}

coded_message!(CopyGet, "CopyGet", { header, reply_to, tid, object, cursor });

/// Here it is.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyReply {
    /// The PG that copies.
    pub header: PeerHeader,
    /// Its number for the copy.
    pub tid: u64,
    /// 0 or a negated errno.
    pub result: i32,
    /// The part without its data, as the executor of operations encodes it.
    pub part: Bytes,
    /// Data of the part that was asked for.
    pub data: BufList,
}

impl CopyReply {
    pub(super) fn encode_parts(&self, w: &mut Writer) -> BufList {
        w.envelope(1, 1, |w| {
            w.put(&self.header);
            w.u64(self.tid);
            w.i32(self.result);
            w.put(&self.part);
        });
        self.data.clone()
    }

    pub(super) fn decode_parts(r: &mut Reader, data: &BufList) -> Result<Self, DecodeError> {
        r.envelope("CopyReply", 1, |_, r| {
            let (header, tid, result, part) = (r.get()?, r.u64()?, r.i32()?, r.get()?);
            Ok(Self { header, tid, result, part, data: data.clone() })
        })
    }
}
