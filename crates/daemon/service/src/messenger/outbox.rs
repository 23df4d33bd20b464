//! [`Outbox`]: what waits to be sent to clients, of all connections of a messenger.
//!
//! Answers are made in memory, and a client that does not read leaves them there. So what waits is counted, that the owner may stop to
//! answer more, and who takes too little is found. Of one connection no more than a share counts for others: a long answer
//! to one that reads slowly keeps nobody else waiting.

use super::conn::{Conn, Ending, write_all};
use super::{ConnId, Messenger};
use nacre_types::{EntityKind, Stamp};
use std::time::Duration;

/// Less than this part of a share is little: ending who leaves it lying makes no room.
const LITTLE_PART: usize = 16;

/// The sum over all clients.
#[derive(Debug)]
pub(super) struct Outbox {
    client_bytes: usize,
    shared_bytes: usize,
    /// Most that counts of one connection.
    share: usize,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { client_bytes: 0, shared_bytes: 0, share: usize::MAX }
    }
}

impl Outbox {
    /// Something was queued on a connection, or written.
    pub(super) fn note(&mut self, conn: &mut Conn, now: Stamp) {
        let is_osd = || conn.proved.as_ref().is_some_and(|name| name.kind == EntityKind::OSD);
        let is_client = conn.listener.is_some() && !is_osd();
        let bytes = if is_client { conn.connection.queued_bytes() } else { 0 };
        self.forget(conn);
        conn.unsent.note(bytes, self.share, now);
        self.client_bytes += conn.unsent.bytes;
        self.shared_bytes += conn.unsent.shared;
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, conn: &Conn) {
        self.client_bytes -= conn.unsent.bytes;
        self.shared_bytes -= conn.unsent.shared;
    }
}

impl Messenger {
    /// Writes what is queued, as far as sockets take it.
    pub fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for slot in dirty.drain(..) {
            let Some(conn) = self.conns.get_mut(slot) else { continue };
            conn.dirty = false;
            let id = conn.id;
            // What was queued since by the connection itself must not hide what is taken now.
            self.outbox.note(conn, self.now);
            let written = write_all(conn, self.net.as_mut(), &mut self.workspace);
            self.outbox.note(conn, self.now);
            if let Err(error) = written {
                self.drop_conn(id, Ending::of("send", &error));
            }
        }
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    /// Bytes that wait to be sent on a connection.
    #[must_use]
    pub fn queued_bytes(&self, id: ConnId) -> usize {
        self.conns
            .get(id.slot())
            .filter(|conn| conn.id == id)
            .map_or(0, |conn| conn.connection.queued_bytes())
    }

    /// Bytes that wait to be sent to all clients.
    #[must_use]
    pub fn unsent_client_bytes(&self) -> usize {
        self.outbox.client_bytes
    }

    /// The same, with no more than a share of each connection.
    #[must_use]
    pub fn shared_unsent_bytes(&self) -> usize {
        self.outbox.shared_bytes
    }

    /// Of what waits for one client, no more than `share` bytes count for others from now on.
    pub fn share_unsent(&mut self, share: usize) {
        if self.outbox.share != share {
            self.outbox.share = share;
            for (_, conn) in &mut self.conns {
                self.outbox.note(conn, self.now);
            }
        }
    }

    /// Ends the connection of the client that has the most to take of those that have not taken in so `long` what they should have, but
    /// for the one that is `spared`, and those that have so little that others gain nothing by it; false where there is none. To be called
    /// after [`Messenger::flush`].
    pub fn end_unread(&mut self, now: Stamp, long: Duration, spared: Option<ConnId>) -> bool {
        let least = self.outbox.share / LITTLE_PART;
        let is_overdue = |conn: &Conn| {
            conn.unsent.is_overdue(now, long) && conn.unsent.shared >= least && spared != Some(conn.id)
        };
        let unread = self.conns.iter().filter(|(_, conn)| is_overdue(conn));
        let Some((_, Conn { id, unsent, proved, peer_addrs, .. })) =
            unread.max_by_key(|(_, conn)| conn.unsent.bytes)
        else {
            return false;
        };
        let id = *id;
        tracing::warn!(
            client = proved.as_ref().map(ToString::to_string),
            address = %peer_addrs.front(),
            unsent_bytes = unsent.bytes,
            overdue_bytes = unsent.due,
            seconds = long.as_secs(),
            "a client takes its answers too slowly while others wait for the memory: it is hung up on"
        );
        self.drop_conn(id, "takes its answers too slowly while others wait for the memory".to_owned());
        true
    }

    /// All clients have their time again to take what waits for them: nothing was sent for a while, which was not their fault.
    pub fn excuse_unread(&mut self, now: Stamp) {
        for (_, conn) in &mut self.conns {
            conn.unsent.begin(now);
        }
    }

    /// Gives memory back that no connection needs between two turns.
    pub fn trim(&mut self) {
        self.workspace.clear();
    }
}
