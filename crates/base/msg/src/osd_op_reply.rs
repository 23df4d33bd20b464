//! [`OsdOpReply`]: results of an [`OsdOp`](crate::OsdOp).
//!
//! Source: Ceph `MOSDOpReply.h`, v16.2.15; read and written as header version 8, compat 2.

use crate::body::Body;
use crate::osd_op::{ARGS_BYTES, DataCutter, SUB_OP_BYTES, SubOp, SubOpHead, TRACE_BYTES};
use nacre_buf::{BufList, ByteStr};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{Epoch, Eversion, PgId};

/// Most operations that a reply may echo: what the request's 16-bit count can hold.
const OPS_MAX: u32 = u16::MAX as u32;

/// `MOSDOpReply`: sent under the request's tid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdOpReply {
    /// The request's object.
    pub name: ByteStr,
    /// The request's PG.
    pub pg: PgId,
    /// The request's flags without `ACK`, `ONNVRAM`, `ONDISK`, plus `ACK` and `ONDISK`.
    pub flags: u64,
    /// 0, a positive result, or a negated errno.
    pub result: i32,
    /// For writes (epoch, user version).
    pub bad_replay_version: Eversion,
    /// The OSD's map epoch.
    pub epoch: Epoch,
    /// The request's operations with their results.
    pub ops: Vec<SubOpReply>,
    /// The attempt that is answered, as the request counted it.
    pub retry_attempt: i32,
    /// For writes the PG log version; `0'0` for reads.
    pub replay_version: Eversion,
    /// Version of the object as its users count.
    pub user_version: u64,
}

/// One operation echoed, with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubOpReply {
    /// Echo of the code; the client checks it.
    pub code: u16,
    /// Echo of the flags.
    pub flags: u32,
    /// Echo of the union.
    pub args: [u8; ARGS_BYTES],
    /// Result of this operation.
    pub rval: i32,
    /// Output of the operation.
    pub outdata: BufList,
}

impl SubOpReply {
    /// The echo of `op` with a result and output.
    #[must_use]
    pub fn to(op: &SubOp, rval: i32, outdata: BufList) -> Self {
        Self { code: op.code, flags: op.flags, args: op.args, rval, outdata }
    }
}

fn read_ops(r: &mut Reader, data: BufList) -> Result<Vec<SubOpReply>, DecodeError> {
    let count = r.count(SUB_OP_BYTES)?;
    if count > OPS_MAX as usize {
        return Err(DecodeError::Invalid { what: "OsdOpReply operations", value: count as u64 });
    }
    let mut data = DataCutter::new(data);
    let mut ops = Vec::with_capacity(count);
    for _ in 0..count {
        let head: SubOpHead = r.get()?;
        let outdata = data.take(head.payload_len)?;
        ops.push(SubOpReply { code: head.code, flags: head.flags, args: head.args, rval: 0, outdata });
    }
    data.finish()?;
    Ok(ops)
}

impl Body for OsdOpReply {
    const NAME: &'static str = "OsdOpReply";
    const KIND: u16 = 43;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 2;
    const OLDEST: u16 = 8;

    fn read(_version: u16, r: &mut Reader, data: BufList) -> Result<Self, DecodeError> {
        let (name, pg, flags, result) = (r.str()?, r.get()?, r.u64()?, r.i32()?);
        let (bad_replay_version, epoch) = (r.get()?, r.u32()?);
        let mut ops = read_ops(r, data)?;
        let retry_attempt = r.i32()?;
        for op in &mut ops {
            op.rval = r.i32()?;
        }
        // What follows (a redirect, tracing ids) concerns cache tiers and nobody.
        let (replay_version, user_version) = (r.get()?, r.u64()?);
        Ok(Self {
            name,
            pg,
            flags,
            result,
            bad_replay_version,
            epoch,
            ops,
            retry_attempt,
            replay_version,
            user_version,
        })
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.put(&self.name);
        w.put(&self.pg);
        w.u64(self.flags);
        w.i32(self.result);
        w.put(&self.bad_replay_version);
        w.u32(self.epoch);
        w.count(self.ops.len());
        for op in &self.ops {
            SubOpHead::write(op.code, op.flags, &op.args, &op.outdata, w);
        }
        w.i32(self.retry_attempt);
        self.ops.iter().for_each(|op| w.i32(op.rval));
        w.put(&self.replay_version);
        w.u64(self.user_version);
        w.bool(false); // no redirect
        w.zeros(TRACE_BYTES);
        let mut data = BufList::new();
        self.ops.into_iter().for_each(|op| data.append(op.outdata));
        data
    }
}
