//! [`OpInFlight`]: the messages that a PG has not answered yet, and what each waits for.

use crate::{ClientOp, Trace};
use nacre_types::OsdId;

/// Where a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpStage {
    /// For those before it, and their answers, to take less memory: the PG has not got it yet.
    Memory,
    /// For other acting members to promise that they follow no newer map: the PG has not got it yet.
    Lease,
    /// For metadata of its object to be read: the PG has not got it yet.
    Metadata,
    /// For a newer map.
    Future,
    /// For the PG to become active.
    Inactive,
    /// For its object to be recovered.
    Missing,
    /// For a scrub to compare the copies of its object.
    Scrub,
    /// For earlier messages on the same object.
    Queued,
    /// Waits for data from the device or other OSDs.
    Data,
    /// For the members to make it durable.
    Commit,
}

/// A client's message that is not answered yet.
#[derive(Debug, Clone, Copy)]
pub struct OpInFlight<'a> {
    /// The client's message.
    pub op: &'a ClientOp,
    /// What it has passed.
    pub trace: Trace,
    /// Where it waits.
    pub stage: OpStage,
    /// In [`OpStage::Commit`]: the members that do not have it durably yet.
    pub waiting_on: &'a [OsdId],
}

impl<'a> OpInFlight<'a> {
    /// One that waits for no other OSD's disk.
    #[must_use]
    pub fn waiting(stage: OpStage, op: &'a ClientOp) -> Self {
        Self { op, trace: op.trace, stage, waiting_on: &[] }
    }
}
