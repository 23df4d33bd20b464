//! [`EarlyMessages`]: peers' messages that come before the map that they were sent under, or before the view shows what those in front
//! of them changed.

use crate::FUTURE_MESSAGES_MAX;
use crate::state::PgState;
use nacre_msg::peer::PeerMessage;
use nacre_types::OsdId;
use std::collections::VecDeque;

/// Peers' messages that wait, in the order in which they came.
pub(crate) struct EarlyMessages {
    queue: VecDeque<(OsdId, PeerMessage)>,
    /// Most of them.
    pub(crate) count_max: usize,
}

impl Default for EarlyMessages {
    fn default() -> Self {
        Self { queue: VecDeque::new(), count_max: FUTURE_MESSAGES_MAX }
    }
}

/// Whether a message can be handled now.
fn has_map_of(state: &PgState, message: &PeerMessage) -> bool {
    state.begun && message.header().epoch <= state.map.epoch
}

impl EarlyMessages {
    /// True when nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// True for a message that need not wait: its map is there, and no other one waits.
    pub(crate) fn lets_pass(&self, state: &PgState, message: &PeerMessage) -> bool {
        self.queue.is_empty() && has_map_of(state, message)
    }

    /// Keeps a message behind the others; false when there is no room for it.
    pub(crate) fn push(&mut self, from: OsdId, message: PeerMessage) -> bool {
        let has_room = self.queue.len() < self.count_max;
        if has_room {
            self.queue.push_back((from, message));
        }
        has_room
    }

    fn due(&self, state: &PgState) -> Option<usize> {
        self.queue.iter().position(|(_, message)| has_map_of(state, message))
    }

    /// True when the map of some message is there.
    pub(crate) fn has_due(&self, state: &PgState) -> bool {
        self.due(state).is_some()
    }

    /// The first message whose map is there, and its sender.
    pub(crate) fn take_due(&mut self, state: &PgState) -> Option<(OsdId, PeerMessage)> {
        let at = self.due(state)?;
        self.queue.remove(at)
    }
}
