//! [`execute`]: one message from its operations to an [`Outcome`].

use super::budget::Budget;
use super::execution::{Execution, Stop};
use super::mutation::Mutation;
use super::{Change, Env, OpResult, Outcome, Request, Suspend};
use crate::object::ObjectContext;
use crate::snap::{Resolved, SnapContext, resolve_snap};
use nacre_msg::osd_op::{code, flag, op_flag};
use nacre_msg::peer::Counters;
use nacre_types::{Errno, HObject, SnapId};
use std::cell::Cell;

/// Runs the operations of a message, as one, against the head whose record is `context`. Changes nothing
/// itself: what is to change is in the outcome.
///
/// # Errors
/// [`Suspend`] when something must be fetched first; run the message again then.
pub fn execute(
    env: &mut Env<'_>,
    request: &Request<'_>,
    context: &ObjectContext,
) -> Result<Outcome, Suspend> {
    let snap = request.op.snap;
    let may_write = request.intent.may_write();
    let place = resolve_snap(context, snap, &env.pool.removed_snaps);
    let visible = match place {
        Resolved::Head => context.is_visible() || snap == SnapId::SNAPDIR,
        Resolved::Clone(_) => true,
        Resolved::Nowhere => false,
    };
    if !visible && !may_write {
        return Ok(refused(request, context, Errno::ENOENT));
    }
    let Resolved::Clone(id) = place else {
        return run(env, request, request.head, context, context);
    };
    let target = request.head.with_snap(id);
    match ObjectContext::load(env.view, &env.collection, &target) {
        Ok(clone) if clone.exists => run(env, request, &target, &clone, context),
        Ok(_) => Ok(refused(request, context, Errno::ENOENT)),
        Err(_) => Ok(refused(request, context, Errno::EIO)),
    }
}

/// A message that fails as a whole, before its first operation; nothing is logged.
fn refused(request: &Request<'_>, context: &ObjectContext, errno: Errno) -> Outcome {
    Outcome {
        result: errno.negated(),
        ops: vec![OpResult::default(); request.op.ops.len()],
        user_version: context.info.user_version,
        change: Change::None,
        watches: Vec::new(),
        notifies: Vec::new(),
        acks: Vec::new(),
        counters: Counters::default(),
    }
}

/// The snapshots that the message preserves its object for.
fn snap_context(env: &Env<'_>, request: &Request<'_>) -> SnapContext {
    let op = request.op;
    match &env.pool.snaps {
        Some(snaps) if !op.has_flag(flag::ENFORCE_SNAPC) => snaps.clone(),
        _ => SnapContext::filtered(op.snap_seq, &op.snaps, &env.pool.removed_snaps),
    }
}

fn run<'a>(
    env: &mut Env<'_>,
    request: &Request<'a>,
    target: &'a HObject,
    base: &'a ObjectContext,
    head: &'a ObjectContext,
) -> Result<Outcome, Suspend> {
    let snapc = if request.intent.may_write() { snap_context(env, request) } else { SnapContext::default() };
    if request.intent.may_write() && request.op.has_flag(flag::ORDERSNAP) && snapc.seq < head.snaps.seq {
        return Ok(refused(request, head, Errno::EOLDSNAPC));
    }
    if env.pool.stripe_bytes.is_some() && snapc.seq.0 >= crate::coding::ROLLBACK_GEN {
        return Ok(refused(request, head, Errno::EINVAL)); // the name of what is kept until a write is safe
    }
    let (pending, budget) = (Mutation::new(request.head, base), Budget::new(env.limits));
    let mut exec = Execution {
        env,
        request: *request,
        target,
        base,
        head,
        pending,
        modified: None,
        budget,
        watches: Vec::new(),
        notifies: Vec::new(),
        acks: Vec::new(),
        counters: Counters::default(),
        ops_done: Cell::new(0),
    };
    let done = exec.do_osd_ops();
    exec.env.work += exec.budget.spent();
    let (result, ops) = done?;
    Ok(exec.finish(result, ops, &snapc)?)
}

impl Execution<'_, '_> {
    /// Executes operations until one fails; returns the message's result and those of the operations.
    fn do_osd_ops(&mut self) -> Result<(i32, Vec<OpResult>), Suspend> {
        let message = self.request.op;
        let mut results = vec![OpResult::default(); message.ops.len()];
        let mut result = 0;
        for ((index, op), out) in message.ops.iter().enumerate().zip(&mut results) {
            self.pending.user_modify |= is_user_change(op.code);
            let step = self.step(index, op);
            self.ops_done.set(self.ops_done.get() + 1);
            if self.pending.bytes > self.env.limits.transaction_bytes {
                // Replicas and stores could not carry it: no operation may ignore that.
                (out.rval, result) = (Errno::EMSGSIZE.negated(), Errno::EMSGSIZE.negated());
                break;
            }
            match step {
                Ok(done) => {
                    (out.rval, out.out) = (done.rval, done.out);
                    result = done.rval;
                }
                Err(Stop::Wait(suspend)) => return Err(suspend),
                Err(Stop::Fail(rval, told)) => {
                    (out.rval, out.out) = (rval, told.into());
                    result = if op.flags & op_flag::FAILOK == 0 { rval } else { 0 };
                    if result < 0 {
                        break;
                    }
                }
            }
        }
        Ok((result, results))
    }
}

/// True for changes that raise the version that users see. A copy brings its source's.
fn is_user_change(op: u16) -> bool {
    code::is_write(op) && !matches!(op, code::WATCH | code::COPY_FROM | code::COPY_FROM2)
}
