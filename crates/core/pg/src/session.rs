//! Clients as a PG knows them: [`Session`], and the trace that each of their messages carries.

use nacre_auth::OsdCaps;
use nacre_maps::OsdMap;
use nacre_types::{EntityAddr, EntityName, Stamp};
use std::time::Duration;

/// Names a client's session at this OSD; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A client's session. Shared by reference: made when the connection is established, never changed.
#[derive(Debug, Clone)]
pub struct Session {
    /// Id under which the PG knows the session.
    pub id: SessionId,
    /// The client instance, `client.<global id>`.
    pub name: EntityName,
    /// Its address with nonce, of kind `Any`, by its own word: what blocklists and watchers record.
    pub addr: EntityAddr,
    /// The same with the address that its socket has, which it cannot choose.
    pub seen_at: EntityAddr,
    /// What it may do.
    pub caps: OsdCaps,
    /// It holds messages back when told to (`RADOS_BACKOFF`).
    pub backs_off: bool,
}

impl Session {
    /// Whether the map shuts it out: where it says that it is, or where it is.
    #[must_use]
    pub fn is_blocklisted(&self, map: &OsdMap) -> bool {
        map.is_blocklisted(&self.addr) || map.is_blocklisted(&self.seen_at)
    }
}

/// Data of a small write: what journals, databases and file systems wait for.
const SMALL_WRITE_BYTES_MAX: u64 = 64 << 10;

/// When a message reached which stage, on the monotonic clock; zero for stages not reached. And what it brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trace {
    /// All bytes were read from the socket.
    pub received: Stamp,
    /// The PG got it.
    pub dispatched: Stamp,
    /// It was executed into a transaction, or read.
    pub executed: Stamp,
    /// The local store has it durably.
    pub logged: Stamp,
    /// All members have it durably.
    pub replicated: Stamp,
    /// The reply was made.
    pub replied: Stamp,
    /// Bytes of data that it brought.
    pub input_bytes: u64,
}

impl Trace {
    /// What a write of a few blocks took from its execution until all members had it durably. `None` for reads, and for larger writes:
    /// they take as long as their bytes, which says nothing of how long small ones wait.
    #[must_use]
    pub fn small_write(&self) -> Option<Duration> {
        let is_write = self.replicated != Stamp::default();
        (is_write && self.input_bytes <= SMALL_WRITE_BYTES_MAX).then(|| self.replicated.since(self.executed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_writes_tell_how_long_small_writes_take() {
        let (executed, replicated) = (Stamp(1000), Stamp(3000));
        let write = |input_bytes| Trace { executed, replicated, input_bytes, ..Trace::default() };
        assert_eq!(write(SMALL_WRITE_BYTES_MAX).small_write(), Some(Duration::from_nanos(2000)));
        assert_eq!(write(SMALL_WRITE_BYTES_MAX + 1).small_write(), None);
        assert_eq!(Trace { replicated: Stamp::default(), ..write(0) }.small_write(), None, "a read");
    }
}
