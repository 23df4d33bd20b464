//! [`OsdOp`]: operations on one object, from a client to the primary. The hot path of decoding.
//!
//! Source: Ceph `MOSDOp.h`, `struct ceph_osd_op` in `src/include/rados.h` and `osd_types.h`, v16.2.15;
//! read and written as header version 8, compat 3.

mod args;
mod build;
pub mod code;
pub mod flag;
pub mod op_flag;

pub use args::{
    AllocHint, Checksum, ClassCall, CompareMode, CopyFrom, Extent, PgList, WatchArgs, WriteSame, XattrArgs,
    alloc_hint_flag, checksum_kind, compare_op, copy_from_flag, watch_op,
};

use crate::body::Body;
use nacre_buf::{BufList, ByteStr};
use nacre_denc::{Decode, DecodeError, Reader, Writer};
use nacre_types::{Epoch, ObjectLocator, ReqId, SnapId, SpgId, UTime};

/// Bytes of the union inside an operation.
pub const ARGS_BYTES: usize = 28;
/// Bytes of one operation in the front: code, flags, union, payload length.
pub(crate) const SUB_OP_BYTES: usize = 2 + 4 + ARGS_BYTES + 4;
/// Tracing ids (blkin) that nobody fills in: three `u64`.
pub(crate) const TRACE_BYTES: usize = 24;

/// `MOSDOp`: some operations on one object, to be executed in order and as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdOp {
    /// The PG that the client computed.
    pub spg: SpgId,
    /// Full hash of the object's name.
    pub hash: u32,
    /// Epoch of the map that the client computed with.
    pub epoch: Epoch,
    /// See [`flag`].
    pub flags: u32,
    /// As on the wire: all zero from clients, which mean (their name, the header's tid, 0).
    pub reqid: ReqId,
    /// Incarnation of the client, unused.
    pub client_inc: u32,
    /// The client's clock, to become the object's modification time.
    pub mtime: UTime,
    /// Pool, key and namespace.
    pub locator: ObjectLocator,
    /// The object; shares the front segment.
    pub name: ByteStr,
    /// What to do.
    pub ops: Vec<SubOp>,
    /// Snapshot to read from, or [`SnapId::HEAD`].
    pub snap: SnapId,
    /// Newest snapshot of the write's snapshot context.
    pub snap_seq: SnapId,
    /// Existing snapshots of the context, newest first.
    pub snaps: Vec<SnapId>,
    /// Counts resends from 0.
    pub retry_attempt: i32,
    /// Features of the original sender.
    pub features: u64,
}

/// One operation: code, flags, a union of arguments (typed access in [`args`](SubOp::extent)) and input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubOp {
    /// See [`code`]; unknown ones are no decoding error.
    pub code: u16,
    /// See [`op_flag`].
    pub flags: u32,
    /// The union, raw.
    pub args: [u8; ARGS_BYTES],
    /// Input; shares the data segment.
    pub indata: BufList,
}

impl OsdOp {
    /// True when any operation carries the write bit. Class calls must be looked up beside it.
    #[must_use]
    pub fn has_write_op(&self) -> bool {
        self.ops.iter().any(|op| code::is_write(op.code))
    }

    /// True when all bits of `flag` are set.
    #[must_use]
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag == flag
    }
}

/// An operation's head as it stands in the front: code, flags, union, length of its payload.
pub(crate) struct SubOpHead {
    pub(crate) code: u16,
    pub(crate) flags: u32,
    pub(crate) args: [u8; ARGS_BYTES],
    pub(crate) payload_len: u32,
}

impl Decode for SubOpHead {
    const MIN_BYTES: usize = SUB_OP_BYTES;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { code: r.u16()?, flags: r.u32()?, args: r.array()?, payload_len: r.u32()? })
    }
}

impl SubOpHead {
    pub(crate) fn write(code: u16, flags: u32, args: &[u8; ARGS_BYTES], payload: &BufList, w: &mut Writer) {
        w.u16(code);
        w.u32(flags);
        w.raw(args);
        w.count(payload.len());
    }
}

/// Cuts the data segment into payloads one by one; their lengths must add up to the segment.
pub(crate) struct DataCutter {
    data: BufList,
    offset: usize,
}

impl DataCutter {
    pub(crate) fn new(data: BufList) -> Self {
        Self { data, offset: 0 }
    }

    /// The next `length` bytes. The last taker gets the list itself when nobody took before: the usual
    /// write with one payload allocates nothing.
    pub(crate) fn take(&mut self, length: u32) -> Result<BufList, DecodeError> {
        let length = length as usize;
        let left = self.data.len() - self.offset;
        if length > left {
            return Err(DecodeError::Short { offset: self.offset, wanted: length, left });
        }
        if length == 0 {
            return Ok(BufList::new());
        }
        if length == self.data.len() {
            self.offset = 0;
            return Ok(std::mem::take(&mut self.data));
        }
        let payload = self.data.slice(self.offset, length);
        self.offset += length;
        Ok(payload)
    }

    /// Checks that nothing is left over.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        match self.data.len() - self.offset {
            0 => Ok(()),
            left => Err(DecodeError::Invalid { what: "data behind the last payload", value: left as u64 }),
        }
    }
}

fn read_ops(r: &mut Reader, count: usize, data: BufList) -> Result<Vec<SubOp>, DecodeError> {
    if count * SUB_OP_BYTES > r.left() {
        let (offset, left) = (r.offset(), r.left());
        return Err(DecodeError::Short { offset, wanted: count * SUB_OP_BYTES, left });
    }
    let mut data = DataCutter::new(data);
    let mut ops = Vec::with_capacity(count);
    for _ in 0..count {
        let head: SubOpHead = r.get()?;
        let indata = data.take(head.payload_len)?;
        ops.push(SubOp { code: head.code, flags: head.flags, args: head.args, indata });
    }
    data.finish()?;
    Ok(ops)
}

impl Body for OsdOp {
    const NAME: &'static str = "OsdOp";
    const KIND: u16 = 42;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 3;
    const OLDEST: u16 = 8;
    const PRIORITY: u16 = crate::priority::CLIENT;

    fn read(version: u16, r: &mut Reader, data: BufList) -> Result<Self, DecodeError> {
        // Version 9 grew in the middle (a second trace); it is sent only to peers that ask for it.
        if version > Self::VERSION {
            return Err(DecodeError::Invalid { what: "OsdOp version", value: version.into() });
        }
        let (spg, hash, epoch, flags, reqid) = (r.get()?, r.u32()?, r.u32()?, r.u32()?, r.get()?);
        r.skip(TRACE_BYTES)?;
        let (client_inc, mtime, locator, name) = (r.u32()?, r.get()?, r.get()?, r.str()?);
        let count = r.u16()?;
        Ok(Self {
            spg,
            hash,
            epoch,
            flags,
            reqid,
            client_inc,
            mtime,
            locator,
            name,
            ops: read_ops(r, count.into(), data)?,
            snap: r.get()?,
            snap_seq: r.get()?,
            snaps: r.get()?,
            retry_attempt: r.i32()?,
            features: r.u64()?,
        })
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.put(&self.spg);
        w.u32(self.hash);
        w.u32(self.epoch);
        w.u32(self.flags);
        w.put(&self.reqid);
        w.zeros(TRACE_BYTES);
        w.u32(self.client_inc);
        w.put(&self.mtime);
        w.put(&self.locator);
        w.put(&self.name);
        w.u16(u16::try_from(self.ops.len()).expect("a message has far fewer than 65536 operations"));
        let mut data = BufList::new();
        for op in self.ops {
            SubOpHead::write(op.code, op.flags, &op.args, &op.indata, w);
            data.append(op.indata);
        }
        w.put(&self.snap);
        w.put(&self.snap_seq);
        w.put(&self.snaps);
        w.i32(self.retry_attempt);
        w.u64(self.features);
        data
    }
}
