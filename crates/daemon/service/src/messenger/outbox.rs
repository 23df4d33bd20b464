//! [`Outbox`]: what waits to be sent to clients, of all connections of a messenger.
//!
//! Answers are made in memory, and a client that does not read leaves them there. So what waits is counted, that the owner may stop to
//! answer more, and who takes nothing for long is found.

use super::conn::{Conn, Ending, write_all};
use super::{ConnId, Messenger};
use nacre_types::{EntityKind, Stamp};
use std::time::Duration;

/// The sum over all clients.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    client_bytes: usize,
}

impl Outbox {
    pub(super) const fn client_bytes(&self) -> usize {
        self.client_bytes
    }

    /// Something was queued on a connection, or written.
    pub(super) fn note(&mut self, conn: &mut Conn, now: Stamp) {
        let is_osd = || conn.proved.as_ref().is_some_and(|name| name.kind == EntityKind::OSD);
        let is_client = conn.listener.is_some() && !is_osd();
        let bytes = if is_client { conn.connection.queued_bytes() } else { 0 };
        let before = conn.unsent.bytes;
        if before == 0 || bytes < before {
            conn.unsent.since = now;
        }
        conn.unsent.bytes = bytes;
        self.client_bytes = self.client_bytes - before + bytes;
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, conn: &Conn) {
        self.client_bytes -= conn.unsent.bytes;
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
        self.outbox.client_bytes()
    }

    /// Ends the connections of clients that have taken nothing of what waits for them for so `long`; yields how many those were.
    pub fn end_unread(&mut self, now: Stamp, long: Duration) -> usize {
        let unread = self.conns.iter().filter(|(_, conn)| conn.unsent.waits_for(now, long));
        let unread: Vec<ConnId> = unread.map(|(_, conn)| conn.id).collect();
        for id in &unread {
            self.drop_conn(*id, "takes no answers while others wait for memory".to_owned());
        }
        unread.len()
    }

    /// Gives memory back that no connection needs between two turns.
    pub fn trim(&mut self) {
        self.workspace.clear();
    }
}
