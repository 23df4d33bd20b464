//! A client that is shut out. Nothing that it sent takes effect any more once others know of that: what it has under way, its
//! messages sent again, those that waited inside an OSD. Another client comes in its place.

use super::{Later, Story};
use crate::world::Proc;
use nacre_client::Finished;
use std::time::Duration;

/// Clients that are shut out in one story, at most.
const FENCED_MAX: u32 = 2;

/// The client that is being shut out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fencing {
    client: usize,
    command: u64,
}

impl Story {
    /// A client is shut out, and may not hear of it from the monitor.
    pub(super) fn fence(&mut self) -> &'static str {
        if self.fenced >= FENCED_MAX || self.fencing.is_some() {
            return "nobody to fence";
        }
        self.fenced += 1;
        let client = self.work.any_client(&mut self.world);
        let host = Proc::Client(client).host();
        if self.below(2) == 0 {
            self.world.fabric().block(Proc::Mon(0).host(), host);
            let healed = self.while_(Duration::from_secs(20));
            self.at(healed, Later::Heal);
        }
        let json =
            format!(r#"{{"prefix": "osd blocklist", "blocklistop": "add", "addr": "{}:0/0"}}"#, host.ip());
        self.note(|| format!("client {client} is shut out: {json}"));
        let other = self.world.add_client();
        self.work.unwant(client, other);
        let command = self.world.order(self.admin, |client| client.command(&json));
        self.fencing = Some(Fencing { client, command });
        "client fenced"
    }

    /// A command was answered: who it shut out is from now on.
    pub(super) fn hear_of_fencing(&mut self, finished: &Finished) {
        let Finished::Command { tid, result, .. } = finished else { return };
        let Some(Fencing { client, .. }) = self.fencing.filter(|fencing| fencing.command == *tid) else {
            return;
        };
        self.fencing = None;
        // A monitor that has just answered and is gone says nothing of epochs.
        if let Some(mon) = self.world.mon().filter(|_| *result == 0) {
            let epoch = mon.state().osd.map().epoch;
            self.work.fence(client, epoch);
            self.note(|| format!("client {client} is shut out from {epoch} on"));
        }
    }
}
