//! Clients that are shut out for a time: one instance, all of an address, or a range of addresses.

use super::OsdMaps;
use nacre_types::{AddrKind, EntityAddr, UTime};

/// Most ranges: OSDs compare the address of every client operation with all of them.
const RANGES_COUNT_MAX: usize = 256;

/// Why a range cannot be shut out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// No prefix of 1 bit or more, a longer one than the protocol has bits, or a port.
    #[error("{0} is no range of addresses: write IP/BITS, such as 192.0.2.0/24 or 2001:db8::/32")]
    NotARange(EntityAddr),
    /// See [`RANGES_COUNT_MAX`].
    #[error("{RANGES_COUNT_MAX} ranges are blocklisted, which is the most; remove one or use a wider one")]
    TooMany,
}

/// As entries stand in the map: by instance whatever the protocol, or as ranges. A nonce of 0 means all of an
/// address.
fn entry_of(addr: EntityAddr) -> EntityAddr {
    match addr.kind {
        AddrKind::Cidr => addr,
        _ => addr.with_kind(AddrKind::Any),
    }
}

impl OsdMaps {
    /// Shuts `addr` out until `until` and returns until when it is: what the map holds already keeps its end,
    /// because no incremental can change it.
    pub fn blocklist_add(&mut self, addr: EntityAddr, until: UTime) -> UTime {
        let addr = entry_of(addr);
        if let Some(held) = self.upcoming().blocklist.get(&addr) {
            return *held;
        }
        let change = self.change();
        change.old_blocklist.retain(|old| *old != addr);
        change.new_blocklist.insert(addr, until);
        self.upcoming().blocklist.get(&addr).copied().unwrap_or(until)
    }

    /// Shuts a range of addresses out, as [`OsdMaps::blocklist_add`] does one.
    ///
    /// # Errors
    /// What is wrong with the range.
    pub fn blocklist_add_range(&mut self, range: EntityAddr, until: UTime) -> Result<UTime, RangeError> {
        if range.prefix_bits().is_none() {
            return Err(RangeError::NotARange(range));
        }
        let held = &self.upcoming().range_blocklist;
        if let Some(held) = held.get(&range) {
            return Ok(*held);
        }
        if held.len() >= RANGES_COUNT_MAX {
            return Err(RangeError::TooMany);
        }
        let change = self.change();
        change.old_range_blocklist.retain(|old| *old != range);
        change.new_range_blocklist.insert(range, until);
        Ok(self.upcoming().range_blocklist.get(&range).copied().unwrap_or(until))
    }

    /// Lets `addr`, or a range, in again; false when it was not shut out.
    pub fn blocklist_remove(&mut self, addr: EntityAddr) -> bool {
        let addr = entry_of(addr);
        let is_range = addr.kind == AddrKind::Cidr;
        let held = |map: &nacre_maps::OsdMap| match is_range {
            true => map.range_blocklist.contains_key(&addr),
            false => map.blocklist.contains_key(&addr),
        };
        if !held(self.upcoming()) {
            return false;
        }
        let durable = held(self.map());
        let change = self.change();
        let (new, old) = match is_range {
            true => (&mut change.new_range_blocklist, &mut change.old_range_blocklist),
            false => (&mut change.new_blocklist, &mut change.old_blocklist),
        };
        new.remove(&addr);
        if durable && !old.contains(&addr) {
            old.push(addr);
        }
        true
    }

    /// Lets all clients in again.
    pub fn blocklist_clear(&mut self) {
        let map = self.upcoming();
        let all: Vec<EntityAddr> = map.blocklist.keys().chain(map.range_blocklist.keys()).copied().collect();
        for addr in all {
            self.blocklist_remove(addr);
        }
    }

    /// Drops entries whose time is over.
    pub(crate) fn expire_blocklist(&mut self, wall: UTime) {
        let over = |(addr, until): (&EntityAddr, &UTime)| (*until <= wall).then_some(*addr);
        let map = self.map();
        let expired: Vec<EntityAddr> =
            map.blocklist.iter().chain(&map.range_blocklist).filter_map(over).collect();
        for addr in expired {
            self.blocklist_remove(addr);
        }
    }
}
