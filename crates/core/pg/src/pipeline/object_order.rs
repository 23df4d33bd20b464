//! [`ObjectOrder`]: the order of messages on one object.
//!
//! Messages on an object start in the order in which they came. A write starts although writes before it are
//! not durable yet (they complete in order anyway), but not while a read before it waits for data: that read
//! must see the state before. A read starts when no write of the object is in flight: what it sees must be
//! durable everywhere, else a crash could take back what a client has read.

use super::OpContext;
use crate::SessionId;
use nacre_types::HObject;
use std::collections::{BTreeMap, VecDeque};

/// One object's messages.
#[derive(Debug, Default)]
struct ObjectQueue {
    /// Executed and not yet durable everywhere.
    in_flight: u32,
    /// Reads that wait for data.
    parked_reads: u32,
    /// A write that waits for data.
    parked_write: bool,
    /// Messages that wait behind those, in order.
    waiting: VecDeque<OpContext>,
}

impl ObjectQueue {
    fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.parked_reads == 0 && !self.parked_write && self.waiting.is_empty()
    }

    fn may_start(&self, write: bool) -> bool {
        let readers_done = self.parked_reads == 0;
        !self.parked_write && if write { readers_done } else { self.in_flight == 0 }
    }
}

/// The queues of all objects that have any message.
#[derive(Debug, Default)]
pub(super) struct ObjectOrder {
    queues: BTreeMap<HObject, ObjectQueue>,
}

impl ObjectOrder {
    /// Lets `op_ctx` start at once, or keeps it until its turn.
    pub(super) fn enter(&mut self, op_ctx: OpContext) -> Option<OpContext> {
        let Some(queue) = self.queues.get_mut(&op_ctx.head) else { return Some(op_ctx) };
        if queue.waiting.is_empty() && queue.may_start(op_ctx.is_write()) {
            return Some(op_ctx);
        }
        queue.waiting.push_back(op_ctx);
        None
    }

    /// Takes messages back whose turn had come, before all that wait for theirs.
    pub(super) fn put_back(&mut self, head: &HObject, mut first: VecDeque<OpContext>) {
        let queue = self.queues.entry(head.clone()).or_default();
        first.append(&mut queue.waiting);
        queue.waiting = first;
    }

    /// Notes that a message executed and is in flight now.
    pub(super) fn write_started(&mut self, head: &HObject) {
        match self.queues.get_mut(head) {
            Some(queue) => queue.in_flight += 1,
            None => {
                drop(self.queues.insert(head.clone(), ObjectQueue { in_flight: 1, ..ObjectQueue::default() }))
            }
        }
    }

    /// Notes that one is durable everywhere; true when it was the last in flight.
    pub(super) fn write_completed(&mut self, head: &HObject) -> bool {
        let Some(queue) = self.queues.get_mut(head) else { return true };
        assert!(queue.in_flight > 0, "{head}: completed, and never started");
        queue.in_flight -= 1;
        queue.in_flight == 0
    }

    /// True while something of the object is in flight.
    pub(super) fn has_in_flight(&self, head: &HObject) -> bool {
        self.queues.get(head).is_some_and(|queue| queue.in_flight > 0)
    }

    /// True while a write of the object is in flight or will start without being admitted anew.
    pub(super) fn has_writes(&self, head: &HObject) -> bool {
        self.queues.get(head).is_some_and(|queue| {
            queue.in_flight > 0 || queue.parked_write || queue.waiting.iter().any(OpContext::is_write)
        })
    }

    /// True when nothing of the object waits for data.
    pub(super) fn is_quiet(&self, head: &HObject) -> bool {
        self.queues.get(head).is_none_or(|queue| queue.parked_reads == 0 && !queue.parked_write)
    }

    /// Notes that a message waits for data.
    pub(super) fn park(&mut self, head: &HObject, write: bool) {
        let queue = self.queues.entry(head.clone()).or_default();
        if write {
            assert!(!queue.parked_write, "{head}: one write waits for data at a time");
            queue.parked_write = true;
        } else {
            queue.parked_reads += 1;
        }
    }

    /// Notes that its data has come.
    pub(super) fn unpark(&mut self, head: &HObject, write: bool) {
        let Some(queue) = self.queues.get_mut(head) else { return };
        if write {
            queue.parked_write = false;
        } else {
            queue.parked_reads = queue.parked_reads.saturating_sub(1);
        }
    }

    /// The next message of the object whose turn has come. Call it after anything ended, until `None`.
    pub(super) fn next(&mut self, head: &HObject) -> Option<OpContext> {
        let queue = self.queues.get_mut(head)?;
        let write = queue.waiting.front().map(OpContext::is_write);
        if write.is_some_and(|write| queue.may_start(write)) {
            return queue.waiting.pop_front();
        }
        if queue.is_empty() {
            self.queues.remove(head);
        }
        None
    }

    /// True when no object has a message.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Messages that wait for their turn, object by object.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = OpContext> {
        self.queues.into_values().flat_map(|queue| queue.waiting)
    }

    /// Messages that wait for their turn.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &OpContext> + '_ {
        self.queues.values().flat_map(|queue| &queue.waiting)
    }

    /// Drops what waits of a session.
    pub(super) fn drop_waiting(&mut self, session: SessionId) {
        for queue in self.queues.values_mut() {
            queue.waiting.retain(|op_ctx| op_ctx.op.session.id != session);
        }
    }

    /// Number of messages that wait for their turn.
    pub(super) fn waiting_count(&self) -> usize {
        self.queues.values().map(|queue| queue.waiting.len()).sum()
    }

    /// Number of messages that wait for data.
    pub(super) fn parked_count(&self) -> usize {
        self.queues.values().map(|queue| queue.parked_reads as usize + usize::from(queue.parked_write)).sum()
    }
}
