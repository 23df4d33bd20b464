//! [`HalfOpen`]: connections that came in and are not authenticated yet. Any machine can make them, so their number and what they
//! hold are bounded: per address, and in all. They end by themselves after [`nacre_msgr::HANDSHAKE_TIMEOUT`].

use super::incoming::ConnId;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Most such connections in all.
pub(super) const COUNT_MAX: usize = 2048;
/// From one address. Many clients may start at once on one machine.
pub(super) const PER_ADDRESS_MAX: usize = 512;
/// Bytes in all.
pub(super) const BYTES_MAX: usize = 64 << 20;
/// Bytes of those from one address.
pub(super) const BYTES_PER_ADDRESS_MAX: usize = 16 << 20;

/// Too many come from one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMany;

/// The half-open connections of one address, oldest first: numbers of connections rise.
#[derive(Debug, Default)]
struct Address {
    conns: BTreeMap<ConnId, usize>,
    bytes: usize,
}

/// All half-open connections of a messenger.
#[derive(Debug, Default)]
pub(super) struct HalfOpen {
    addresses: BTreeMap<IpAddr, Address>,
    count: usize,
    bytes: usize,
    refused: u64,
}

impl HalfOpen {
    /// Whether one more may come in from there. With too many from everywhere the oldest of the address with most of them
    /// is to go: it is yielded.
    ///
    /// # Errors
    /// [`TooMany`].
    pub(super) fn admit(&mut self, from: IpAddr) -> Result<Option<ConnId>, TooMany> {
        if self.addresses.get(&from).is_some_and(|address| address.conns.len() >= PER_ADDRESS_MAX) {
            self.refused += 1;
            return Err(TooMany);
        }
        Ok((self.count >= COUNT_MAX).then(|| self.oldest_of_most()).flatten())
    }

    fn oldest_of_most(&mut self) -> Option<ConnId> {
        self.refused += 1;
        let most = self.addresses.values().max_by_key(|address| address.conns.len())?;
        most.conns.first_key_value().map(|(conn, _)| *conn)
    }

    /// Notes what one holds now, which is half-open. True when it is too much: it has to end.
    pub(super) fn note(&mut self, from: IpAddr, conn: ConnId, bytes: usize) -> bool {
        let address = self.addresses.entry(from).or_default();
        let before = address.conns.insert(conn, bytes);
        self.count += usize::from(before.is_none());
        let before = before.unwrap_or(0);
        address.bytes = address.bytes + bytes - before;
        self.bytes = self.bytes + bytes - before;
        let beyond = bytes > before && (self.bytes > BYTES_MAX || address.bytes > BYTES_PER_ADDRESS_MAX);
        self.refused += u64::from(beyond);
        beyond
    }

    /// One has proved itself, or ended.
    pub(super) fn forget(&mut self, from: IpAddr, conn: ConnId) {
        let Some(address) = self.addresses.get_mut(&from) else { return };
        let Some(bytes) = address.conns.remove(&conn) else { return };
        address.bytes -= bytes;
        self.bytes -= bytes;
        self.count -= 1;
        if address.conns.is_empty() {
            self.addresses.remove(&from);
        }
    }

    /// How many there are, what they hold, and how often one had to go.
    pub(super) fn sums(&self) -> (usize, usize, u64) {
        (self.count, self.bytes, self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn one_address_has_its_part_and_a_crowd_makes_room_for_others() {
        let mut half_open = HalfOpen::default();
        let add = |half_open: &mut HalfOpen, from: IpAddr, conn: u64| {
            let admitted = half_open.admit(from)?;
            admitted.into_iter().for_each(|gone| {
                (1..=5).for_each(|last| half_open.forget(ip(last), gone));
            });
            assert!(!half_open.note(from, ConnId(conn), 4096));
            Ok::<_, TooMany>(admitted)
        };
        let let_in = (0..600).filter(|conn| add(&mut half_open, ip(1), *conn).is_ok()).count();
        assert_eq!(let_in, PER_ADDRESS_MAX);
        for last in 2..=4 {
            for conn in 0..PER_ADDRESS_MAX as u64 {
                assert_eq!(add(&mut half_open, ip(last), u64::from(last) * 1000 + conn), Ok(None));
            }
        }
        assert_eq!(half_open.sums().0, COUNT_MAX);
        assert!(matches!(add(&mut half_open, ip(5), 9000), Ok(Some(_))));
        assert_eq!(half_open.sums().0, COUNT_MAX);
    }

    #[test]
    fn bytes_are_bounded_per_address() {
        let mut half_open = HalfOpen::default();
        let grown = (0..PER_ADDRESS_MAX as u64).find(|conn| half_open.note(ip(1), ConnId(*conn), 100 << 10));
        assert_eq!(grown, Some((BYTES_PER_ADDRESS_MAX / (100 << 10)) as u64));
        half_open.forget(ip(1), ConnId(0));
        assert!(!half_open.note(ip(2), ConnId(5000), 100 << 10));
    }
}
