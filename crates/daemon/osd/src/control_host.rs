//! [`ControlHost`]: the shard's side of OSD control: lends it clock, sockets and maps while it works, and queues the events that it yields.

use crate::control::{ControlCx, OsdControl};
use crate::control_event::ControlEvent;
use crate::links::NetCx;
use crate::shard_net::ShardCx;
use nacre_types::Stamp;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The shard's OSD control, which only shard 0 has.
pub(crate) struct ControlHost {
    control: Option<OsdControl>,
    /// When it is due: as it last said. Only [`ControlHost::lend`] changes that, and what makes it later: a connection that a peer has dialled.
    due: Option<Stamp>,
    /// What it has said and nobody has carried out yet, so that maps are seen in the order in which they came.
    events: VecDeque<ControlEvent>,
    /// Tells the OSD's owner that the cluster has it up.
    booted: Arc<AtomicBool>,
}

impl ControlHost {
    pub(crate) fn new(control: Option<OsdControl>, booted: Arc<AtomicBool>) -> Self {
        Self { control, due: None, events: VecDeque::new(), booted }
    }

    /// Lets OSD control work, if it is here.
    pub(crate) fn lend<T>(
        &mut self,
        cx: &mut ShardCx<'_>,
        work: impl FnOnce(&mut OsdControl, &mut ControlCx<'_>) -> T,
    ) -> Option<T> {
        let (control, peers) = (self.control.as_mut()?, &mut cx.net.peers);
        let mut events = Vec::new();
        let mut control_cx = ControlCx {
            net: NetCx {
                // Not the turn's: a promise given by a clock that was read before a pause would end before the lease does
                // that rests on it.
                now: cx.clock.now(),
                wall: cx.wall,
                entropy: &mut *cx.entropy,
                messenger: &mut cx.net.messenger,
            },
            peers,
            maps: &cx.net.maps,
            options: cx.options,
            events: &mut events,
        };
        let result = work(control, &mut control_cx);
        self.booted.store(control.is_booted(), Ordering::Release);
        self.due = control.next_deadline().into_iter().chain(control_cx.peers.next_deadline()).min();
        self.events.extend(events);
        Some(result)
    }

    /// The OSD control that is here, to look at.
    pub(crate) fn get(&self) -> Option<&OsdControl> {
        self.control.as_ref()
    }

    /// When OSD control is due.
    pub(crate) fn due(&self) -> Option<Stamp> {
        self.due
    }

    /// True while the cluster has this OSD up, as far as is known here.
    pub(crate) fn is_booted(&self) -> bool {
        self.control.as_ref().is_some_and(OsdControl::is_booted)
    }

    /// The oldest of what OSD control has for the shard.
    pub(crate) fn next_event(&mut self) -> Option<ControlEvent> {
        self.events.pop_front()
    }
}
