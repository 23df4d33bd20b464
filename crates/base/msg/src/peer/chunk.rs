//! Reading in an erasure-coded pool: the primary collects chunks.

use super::PeerHeader;
use super::coded::coded_message;
use nacre_buf::BufList;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{Eversion, HObject};

/// Read this part of your chunk of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkRead {
    /// PG and epoch.
    pub header: PeerHeader,
    /// The primary's number for the read, echoed.
    pub tid: u64,
    /// The object, a head or a clone.
    pub object: HObject,
    /// In this version only.
    pub version: Eversion,
    /// First byte of the chunk.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u64,
}

coded_message!(ChunkRead, "ChunkRead", { header, tid, object, version, offset, length });

/// What became of a read of a chunk.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkReply {
    /// PG and epoch.
    pub header: PeerHeader,
    /// Number of the read that is answered, as its sender counts them.
    pub tid: u64,
    /// The chunk is not there in that version, or cannot be read.
    pub absent: bool,
    /// It is there, and its data is damaged.
    pub damaged: bool,
    /// Bytes of the chunks that were asked for.
    pub data: BufList,
}

impl ChunkReply {
    pub(super) fn encode_parts(&self, w: &mut Writer) -> BufList {
        w.envelope(1, 1, |w| {
            w.put(&self.header);
            w.u64(self.tid);
            w.bool(self.absent);
            w.bool(self.damaged);
        });
        self.data.clone()
    }

    pub(super) fn decode_parts(r: &mut Reader, data: &BufList) -> Result<Self, DecodeError> {
        r.envelope("ChunkReply", 1, |_, r| {
            let (header, tid, absent, damaged) = (r.get()?, r.u64()?, r.bool()?, r.bool()?);
            Ok(Self { header, tid, absent, damaged, data: data.clone() })
        })
    }
}
