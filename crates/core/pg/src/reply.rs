//! Answers to clients: from an execution, from the log, or a refusal.

use crate::ops::OpResult;
use crate::state::PgState;
use crate::{ClientOp, Cx, Effect, SessionId, Trace};
use nacre_buf::{BufList, ByteStr};
use nacre_msg::osd_op::flag;
use nacre_msg::peer::{LogEntry, OpOutput};
use nacre_msg::{OsdOp, OsdOpReply, SubOpReply};
use nacre_types::{Errno, Eversion, SnapId};

/// An answer that waits until what it implies is durable.
#[derive(Debug)]
pub(crate) struct PendingReply {
    pub(crate) session: SessionId,
    pub(crate) tid: u64,
    pub(crate) message: Box<OsdOpReply>,
    pub(crate) trace: Trace,
    namespace: ByteStr,
    snap: SnapId,
}

/// What an answer says beside the echo of the request.
pub(crate) struct Answer {
    pub(crate) result: i32,
    /// The log version for writes, zero for reads.
    pub(crate) version: Eversion,
    pub(crate) user_version: u64,
    /// Results of the operations; those that are left out are 0 and empty.
    pub(crate) ops: Vec<OpResult>,
}

impl Answer {
    /// A bare errno.
    pub(crate) fn refusal(errno: Errno) -> Self {
        Self { result: errno.negated(), version: Eversion::ZERO, user_version: 0, ops: Vec::new() }
    }

    /// What the request was told when it made `entry`.
    pub(crate) fn of_entry(entry: &LogEntry) -> Self {
        let op = |output: &OpOutput| OpResult { rval: output.rval, out: BufList::from(output.data.clone()) };
        Self {
            result: entry.result,
            version: entry.version,
            user_version: entry.user_version,
            ops: entry.outputs.iter().map(op).collect(),
        }
    }
}

/// The request's flags, as the answer carries them.
fn reply_flags(flags: u32) -> u64 {
    u64::from(flags & !(flag::ACK | flag::ONNVRAM | flag::ONDISK) | flag::ACK | flag::ONDISK)
}

fn echo(request: &OsdOp, ops: Vec<OpResult>) -> Vec<SubOpReply> {
    let results = ops.into_iter().chain(std::iter::repeat_with(OpResult::default));
    request.ops.iter().zip(results).map(|(op, result)| SubOpReply::to(op, result.rval, result.out)).collect()
}

impl PendingReply {
    /// Sends an answer.
    pub(crate) fn send(self, cx: &mut Cx<'_>) {
        let Self { session, tid, message, mut trace, namespace, snap } = self;
        trace.replied = cx.now;
        cx.effects.push(Effect::Reply { session, tid, message, trace, namespace, snap });
    }
}

impl PgState {
    /// The answer to `op`, not sent yet.
    pub(crate) fn reply_to(&self, op: &ClientOp, answer: Answer) -> PendingReply {
        let request = &op.op;
        let message = OsdOpReply {
            name: request.name.clone(),
            pg: self.spg.pg,
            flags: reply_flags(request.flags),
            result: answer.result,
            bad_replay_version: if answer.version == Eversion::ZERO {
                Eversion::ZERO
            } else {
                Eversion::new(answer.version.epoch, answer.user_version)
            },
            epoch: self.map.epoch,
            ops: echo(request, answer.ops),
            retry_attempt: request.retry_attempt,
            replay_version: answer.version,
            user_version: answer.user_version,
        };
        PendingReply {
            session: op.session.id,
            tid: op.tid,
            message: Box::new(message),
            trace: op.trace,
            namespace: request.locator.namespace.clone(),
            snap: request.snap,
        }
    }

    /// Answers `op` with an errno.
    pub(crate) fn refuse(&self, cx: &mut Cx<'_>, op: &ClientOp, errno: Errno) {
        self.reply_to(op, Answer::refusal(errno)).send(cx);
    }
}
