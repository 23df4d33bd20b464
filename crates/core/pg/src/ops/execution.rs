//! [`Execution`]: one message under execution.

use super::budget::{Budget, OP_COST};
use super::mutation::Mutation;
use super::{Env, Notify, NotifyAck, OBJECT_BYTES_MAX, Request, Suspend, WatchChange};
use crate::object::ObjectContext;
use nacre_buf::{BufList, Bytes};
use nacre_denc::DecodeError;
use nacre_msg::SubOp;
use nacre_msg::osd_op::code;
use nacre_msg::peer::Counters;
use nacre_txn::ReadError;
use nacre_types::{Errno, HObject, IntervalSet};
use std::cell::Cell;

/// Result of one operation that succeeded.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) rval: i32,
    pub(super) out: BufList,
}

impl From<()> for Done {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<Bytes> for Done {
    fn from(out: Bytes) -> Self {
        Self { rval: 0, out: out.into() }
    }
}

impl From<BufList> for Done {
    fn from(out: BufList) -> Self {
        Self { rval: 0, out }
    }
}

/// Why an operation did not succeed.
#[derive(Debug)]
pub(super) enum Stop {
    /// It failed; a negated errno, or `cmpext`'s place of difference; and what it has to say all the same.
    Fail(i32, Bytes),
    /// The whole message must wait.
    Wait(Suspend),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Fail(errno.negated(), Bytes::new())
    }
}

/// Malformed input is the client's mistake.
impl From<DecodeError> for Stop {
    fn from(_: DecodeError) -> Self {
        Errno::EINVAL.into()
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self::Wait(error.into())
    }
}

/// What an operation returns.
pub(super) type OpReturn = Result<Done, Stop>;

/// One message under execution: the state before it, what it changed so far, and what it asks of the PG.
pub(super) struct Execution<'a, 'e> {
    pub(super) env: &'a mut Env<'e>,
    pub(super) request: Request<'a>,
    /// What is read: the head, or the clone that the message's snapshot sees.
    pub(super) target: &'a HObject,
    /// Its state before the message.
    pub(super) base: &'a ObjectContext,
    /// The head's state before the message, with the clones.
    pub(super) head: &'a ObjectContext,
    pub(super) pending: Mutation,
    /// Where the data of a coded object may differ from before, if that is in part of it.
    pub(super) modified: Option<IntervalSet>,
    /// What the message may still ask for.
    pub(super) budget: Budget,
    pub(super) watches: Vec<WatchChange>,
    pub(super) notifies: Vec<Notify>,
    pub(super) acks: Vec<NotifyAck>,
    pub(super) counters: Counters,
    /// Operations so far, and those that class methods asked for.
    pub(super) ops_done: Cell<u64>,
}

impl Execution<'_, '_> {
    /// Executes the operation with this index.
    pub(super) fn step(&mut self, index: usize, op: &SubOp) -> OpReturn {
        self.budget.spend(OP_COST)?;
        match op.code {
            code::CALL => self.call(index),
            code if code & code::TYPE_MASK == ATTR_TYPE => self.attr_op(op),
            code::OMAPGETKEYS..=code::OMAPGETVALSBYKEYS
            | code::OMAP_CMP
            | code::OMAPSETVALS..=code::OMAPRMKEYS
            | code::OMAPRMKEYRANGE => self.omap_op(op),
            code::WATCH | code::NOTIFY | code::NOTIFY_ACK | code::LIST_WATCHERS => self.watch_op(op),
            code::LIST_SNAPS => self.list_snaps(),
            code::ROLLBACK => self.roll_back(op.snap()),
            code::COPY_FROM | code::COPY_FROM2 => self.copy_from(index, op),
            code if code::is_write(code) => self.write_op(op),
            _ => self.read_op(op),
        }
    }

    /// Fails with `ENOENT` unless clients see the object as it is now.
    pub(super) fn require_object(&self) -> Result<(), Errno> {
        if self.pending.exists { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// Fails with `ENOENT` unless there was an object to read from before the message.
    pub(super) fn require_base(&self) -> Result<(), Errno> {
        if self.base.exists { Ok(()) } else { Err(Errno::ENOENT) }
    }
}

/// Operations on attributes, under [`code::TYPE_MASK`].
const ATTR_TYPE: u16 = 0x0300;

/// Checks that a range ends within what an object may hold.
pub(super) fn check_range(offset: u64, length: u64) -> Result<(), Errno> {
    let end = offset.checked_add(length);
    if offset >= OBJECT_BYTES_MAX || end.is_none_or(|end| end > OBJECT_BYTES_MAX) {
        return Err(Errno::EFBIG);
    }
    Ok(())
}
