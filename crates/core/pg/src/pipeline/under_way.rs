//! [`UnderWay`]: the messages that a group has not answered yet, and what each waits for.

use super::{Pipeline, Stage};
use crate::{ClientOp, Pg, Trace};
use nacre_types::OsdId;

/// A client's message that is not answered yet.
#[derive(Debug, Clone, Copy)]
pub struct UnderWay<'a> {
    /// The message.
    pub op: &'a ClientOp,
    /// What it has passed.
    pub trace: Trace,
    /// Where it waits.
    pub stage: Stage,
    /// In [`Stage::Commit`]: the members that do not have it durably yet.
    pub waiting_on: &'a [OsdId],
}

impl Pg {
    /// The messages of clients that are here and not answered yet.
    pub fn under_way(&self) -> impl Iterator<Item = UnderWay<'_>> + '_ {
        let parked = self.tokens.operations().map(|running| (Stage::Data, &running.op));
        let waiting = self.pipeline.messages().chain(parked);
        let waiting = waiting.map(|(stage, op)| UnderWay {
            op,
            trace: op.trace,
            stage,
            waiting_on: Default::default(),
        });
        waiting.chain(self.replication.under_way())
    }
}

impl Pipeline {
    /// Messages that are neither parked for data nor in flight.
    fn messages(&self) -> impl Iterator<Item = (Stage, &ClientOp)> + '_ {
        let future = self.future.values().flatten().map(|op| (Stage::Future, op));
        let inactive = self.inactive.iter().map(|op| (Stage::Inactive, op));
        let missing = self.missing.values().flatten().map(|running| (Stage::Missing, &running.op));
        let in_order = self.started.iter().chain(self.lanes.waiting()).map(|running| &running.op);
        let in_order = self.ready.iter().chain(in_order).map(|op| (Stage::Order, op));
        future.chain(inactive).chain(missing).chain(in_order)
    }
}
