//! [`Lanes`]: the order of messages on one object.
//!
//! Messages on an object start in the order in which they came. A write starts although writes before it are
//! not durable yet (they complete in order anyway), but not while a read before it waits for data: that read
//! must see the state before. A read starts when no write of the object is in flight: what it sees must be
//! durable everywhere, else a crash could take back what a client has read.

use super::Running;
use crate::SessionId;
use nacre_types::HObject;
use std::collections::{BTreeMap, VecDeque};

/// One object's messages.
#[derive(Debug, Default)]
struct Lane {
    /// Executed and not yet durable everywhere.
    in_flight: u32,
    /// Reads that wait for data.
    parked_reads: u32,
    /// A write that waits for data.
    parked_write: bool,
    /// Behind them.
    waiting: VecDeque<Running>,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.parked_reads == 0 && !self.parked_write && self.waiting.is_empty()
    }

    fn may_start(&self, write: bool) -> bool {
        let readers_done = self.parked_reads == 0;
        !self.parked_write && if write { readers_done } else { self.in_flight == 0 }
    }
}

/// The lanes of all objects that have any message.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<HObject, Lane>,
}

impl Lanes {
    /// Lets `running` start at once, or keeps it until its turn.
    pub(super) fn enter(&mut self, running: Running) -> Option<Running> {
        let Some(lane) = self.lanes.get_mut(&running.head) else { return Some(running) };
        if lane.waiting.is_empty() && lane.may_start(running.is_write()) {
            return Some(running);
        }
        lane.waiting.push_back(running);
        None
    }

    /// Takes messages back whose turn had come, before all that wait for theirs.
    pub(super) fn put_back(&mut self, head: &HObject, mut first: VecDeque<Running>) {
        let lane = self.lanes.entry(head.clone()).or_default();
        first.append(&mut lane.waiting);
        lane.waiting = first;
    }

    /// Notes that a message executed and is in flight now.
    pub(super) fn fly(&mut self, head: &HObject) {
        match self.lanes.get_mut(head) {
            Some(lane) => lane.in_flight += 1,
            None => drop(self.lanes.insert(head.clone(), Lane { in_flight: 1, ..Lane::default() })),
        }
    }

    /// Notes that one is durable everywhere; true when it was the last in flight.
    pub(super) fn land(&mut self, head: &HObject) -> bool {
        let Some(lane) = self.lanes.get_mut(head) else { return true };
        assert!(lane.in_flight > 0, "{head}: landed without a flight");
        lane.in_flight -= 1;
        lane.in_flight == 0
    }

    /// True while something of the object is in flight.
    pub(super) fn has_flights(&self, head: &HObject) -> bool {
        self.lanes.get(head).is_some_and(|lane| lane.in_flight > 0)
    }

    /// True while a write of the object is in flight or will start without being admitted anew.
    pub(super) fn has_writes(&self, head: &HObject) -> bool {
        self.lanes.get(head).is_some_and(|lane| {
            lane.in_flight > 0 || lane.parked_write || lane.waiting.iter().any(Running::is_write)
        })
    }

    /// True when nothing of the object waits for data.
    pub(super) fn is_quiet(&self, head: &HObject) -> bool {
        self.lanes.get(head).is_none_or(|lane| lane.parked_reads == 0 && !lane.parked_write)
    }

    /// Notes that a message waits for data.
    pub(super) fn park(&mut self, head: &HObject, write: bool) {
        let lane = self.lanes.entry(head.clone()).or_default();
        if write {
            assert!(!lane.parked_write, "{head}: one write waits for data at a time");
            lane.parked_write = true;
        } else {
            lane.parked_reads += 1;
        }
    }

    /// Notes that its data has come.
    pub(super) fn unpark(&mut self, head: &HObject, write: bool) {
        let Some(lane) = self.lanes.get_mut(head) else { return };
        if write {
            lane.parked_write = false;
        } else {
            lane.parked_reads = lane.parked_reads.saturating_sub(1);
        }
    }

    /// The next message of the object whose turn has come. Call it after anything ended, until `None`.
    pub(super) fn next(&mut self, head: &HObject) -> Option<Running> {
        let lane = self.lanes.get_mut(head)?;
        let write = lane.waiting.front().map(Running::is_write);
        if write.is_some_and(|write| lane.may_start(write)) {
            return lane.waiting.pop_front();
        }
        if lane.is_empty() {
            self.lanes.remove(head);
        }
        None
    }

    /// True when no object has a message.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Messages that wait for their turn, object by object.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = Running> {
        self.lanes.into_values().flat_map(|lane| lane.waiting)
    }

    /// Messages that wait for their turn.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Running> + '_ {
        self.lanes.values().flat_map(|lane| &lane.waiting)
    }

    /// Drops what waits of a session.
    pub(super) fn drop_waiting(&mut self, session: SessionId) {
        for lane in self.lanes.values_mut() {
            lane.waiting.retain(|running| running.op.session.id != session);
        }
    }

    /// Number of messages that wait for their turn.
    pub(super) fn waiting_count(&self) -> usize {
        self.lanes.values().map(|lane| lane.waiting.len()).sum()
    }

    /// Number of messages that wait for data.
    pub(super) fn parked_count(&self) -> usize {
        self.lanes.values().map(|lane| lane.parked_reads as usize + usize::from(lane.parked_write)).sum()
    }
}
