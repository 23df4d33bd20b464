//! [`OpInFlight`]: the messages that a PG has not answered yet, and what each waits for.

use super::{OpStage, Pipeline};
use crate::{ClientOp, Pg, Trace};
use nacre_types::OsdId;

/// A client's message that is not answered yet.
#[derive(Debug, Clone, Copy)]
pub struct OpInFlight<'a> {
    /// The message.
    pub op: &'a ClientOp,
    /// What it has passed.
    pub trace: Trace,
    /// Where it waits.
    pub stage: OpStage,
    /// In [`OpStage::Commit`]: the members that do not have it durably yet.
    pub waiting_on: &'a [OsdId],
}

impl Pg {
    /// The messages of clients that are here and not answered yet.
    pub fn ops_in_flight(&self) -> impl Iterator<Item = OpInFlight<'_>> + '_ {
        let parked = self.state.tokens.operations().map(|op_ctx| (OpStage::Data, &op_ctx.op));
        let waiting = self.pipeline.messages().chain(parked);
        let waiting = waiting.map(|(stage, op)| OpInFlight {
            op,
            trace: op.trace,
            stage,
            waiting_on: Default::default(),
        });
        waiting.chain(self.replication.ops_in_flight())
    }
}

impl Pipeline {
    /// Messages that are neither parked for data nor in flight.
    fn messages(&self) -> impl Iterator<Item = (OpStage, &ClientOp)> + '_ {
        let future = self.future.values().flatten().map(|op| (OpStage::Future, op));
        let inactive = self.inactive.iter().map(|op| (OpStage::Inactive, op));
        let missing = self.missing.values().flatten().map(|op_ctx| (OpStage::Missing, &op_ctx.op));
        let in_order = self.started.iter().chain(self.order.waiting()).map(|op_ctx| &op_ctx.op);
        let in_order = self.ready.iter().chain(in_order).map(|op| (OpStage::Queued, op));
        future.chain(inactive).chain(missing).chain(in_order)
    }
}
