//! [`Outbox`]: what waits to be sent to clients, of all connections of a messenger.
//!
//! Answers are made in memory, and a client that does not read leaves them there. So what waits is counted, that the owner may stop to
//! answer more, and who takes too little is found. Of one connection no more than a share counts for others: a long answer
//! to one that reads slowly keeps nobody else waiting.

use super::conn::{Conn, Ending, write_all};
use super::{ConnId, Messenger};
use nacre_types::{EntityKind, Stamp};
use std::time::Duration;

/// Within the time that the owner gives it, a client takes this part of what waits for it and counts for others.
const PROGRESS_PART: usize = 10;

/// What of one connection waits to be sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unsent {
    /// Bytes, of a client's connection.
    bytes: usize,
    /// What of them counts for others.
    shared: usize,
    /// Since when `due` of them are to be taken.
    since: Stamp,
    due: usize,
}

impl Unsent {
    /// So many bytes wait now, of which no more than `share` count for others.
    fn note(&mut self, bytes: usize, share: usize, now: Stamp) {
        let begins = self.bytes == 0;
        self.due = self.due.saturating_sub(self.bytes.saturating_sub(bytes));
        (self.bytes, self.shared) = (bytes, bytes.min(share));
        if begins || self.due == 0 {
            self.begin(now);
        }
    }

    /// It has all the time again for what is to be taken next.
    fn begin(&mut self, now: Stamp) {
        self.since = now;
        self.due = self.shared.div_ceil(PROGRESS_PART);
    }

    /// Whether the client has not taken for so long what it should have.
    fn is_overdue(self, now: Stamp, long: Duration) -> bool {
        self.due > 0 && now.since(self.since) >= long
    }
}

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

    /// Ends the connection of the client that has the most to take of those that have not taken in so `long` what they should have; false
    /// where there is none. To be called after [`Messenger::flush`].
    pub fn end_unread(&mut self, now: Stamp, long: Duration) -> bool {
        let unread = self.conns.iter().filter(|(_, conn)| conn.unsent.is_overdue(now, long));
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

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(6);
    const MIB: usize = 1 << 20;

    fn at(second: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(second)
    }

    /// So many bytes wait from second 0 on, and the client takes `step` of them each second; when it is overdue.
    fn overdue_after(bytes: usize, step: usize, share: usize) -> Option<u64> {
        let mut unsent = Unsent::default();
        unsent.note(bytes, share, at(0));
        (1..600).find(|second| {
            let left = bytes.saturating_sub(step * usize::try_from(*second).expect("few"));
            unsent.note(left, share, at(*second));
            unsent.is_overdue(at(*second), LONG)
        })
    }

    #[test]
    fn one_that_takes_next_to_nothing_is_overdue_and_one_that_reads_slowly_is_not() {
        assert_eq!(overdue_after(100, 0, usize::MAX), Some(6));
        assert_eq!(overdue_after(8 * MIB, 1, usize::MAX), Some(6), "a byte a second is nothing");
        assert_eq!(overdue_after(60 * MIB, MIB - 4096, usize::MAX), Some(6));
        assert_eq!(overdue_after(60 * MIB, MIB + 4096, usize::MAX), None, "all of it in a minute");
        assert_eq!(overdue_after(100, 2, usize::MAX), None, "all that there is");
    }

    /// A whole large object takes its time.
    #[test]
    fn what_is_beyond_the_share_is_not_to_be_taken_faster() {
        assert_eq!(overdue_after(128 * MIB, MIB, 32 * MIB), None);
        assert_eq!(overdue_after(128 * MIB, MIB / 4, 32 * MIB), Some(6));
    }

    #[test]
    fn more_answers_do_not_give_more_time() {
        let mut unsent = Unsent::default();
        for second in 0..6 {
            unsent.note((second as usize + 1) * MIB, usize::MAX, at(second));
            assert!(!unsent.is_overdue(at(second), LONG), "{second}");
        }
        assert!(unsent.is_overdue(at(6), LONG));
        unsent.begin(at(6));
        assert!(!unsent.is_overdue(at(11), LONG) && unsent.is_overdue(at(12), LONG), "excused once");
    }
}
