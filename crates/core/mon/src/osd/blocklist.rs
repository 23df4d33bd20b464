//! Clients that are shut out for a time.

use super::OsdMaps;
use nacre_types::{AddrKind, EntityAddr, UTime};

/// As entries stand in the map: by instance whatever the protocol. A nonce of 0 means all of an address.
fn entry_of(addr: EntityAddr) -> EntityAddr {
    addr.with_kind(AddrKind::Any)
}

impl OsdMaps {
    /// Shuts `addr` out until `until`.
    pub fn blocklist_add(&mut self, addr: EntityAddr, until: UTime) {
        let addr = entry_of(addr);
        if self.upcoming().blocklist.get(&addr) == Some(&until) {
            return;
        }
        let change = self.change();
        change.old_blocklist.retain(|old| *old != addr);
        change.new_blocklist.insert(addr, until);
    }

    /// Lets `addr` in again; false when it was not shut out.
    pub fn blocklist_remove(&mut self, addr: EntityAddr) -> bool {
        let addr = entry_of(addr);
        if !self.upcoming().blocklist.contains_key(&addr) {
            return false;
        }
        let durable = self.map().blocklist.contains_key(&addr);
        let change = self.change();
        change.new_blocklist.remove(&addr);
        if durable && !change.old_blocklist.contains(&addr) {
            change.old_blocklist.push(addr);
        }
        true
    }

    /// Lets everybody in again.
    pub fn blocklist_clear(&mut self) {
        let all: Vec<EntityAddr> = self.upcoming().blocklist.keys().copied().collect();
        for addr in all {
            self.blocklist_remove(addr);
        }
    }

    /// Drops entries whose time is over.
    pub(crate) fn expire_blocklist(&mut self, wall: UTime) {
        let over = |(addr, until): (&EntityAddr, &UTime)| (*until <= wall).then_some(*addr);
        let expired: Vec<EntityAddr> = self.map().blocklist.iter().filter_map(over).collect();
        for addr in expired {
            // A renewal that waits for the next epoch wins.
            if self.upcoming().blocklist.get(&addr).is_some_and(|until| *until <= wall) {
                self.blocklist_remove(addr);
            }
        }
    }

    /// True when the newest durable map shuts this instance, or all of its address, out.
    #[must_use]
    pub fn is_blocklisted(&self, addr: EntityAddr) -> bool {
        let exact = entry_of(addr);
        let port = addr.socket.map(|socket| std::net::SocketAddr::new(socket.ip(), 0));
        let any_port = EntityAddr { socket: port, ..exact };
        let whole = EntityAddr { nonce: 0, ..any_port };
        [exact, any_port, whole].iter().any(|entry| self.published().blocklist.contains_key(entry))
    }
}
