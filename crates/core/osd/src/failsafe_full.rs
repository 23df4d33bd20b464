//! The last line before a full store: writes are refused while there still is room for what is under way.
//!
//! The monitor raises the full flags from the OSDs' reports, and clients stop by themselves then; that takes
//! a second. What they send meanwhile must not fill the store, because a replica that cannot apply a write of
//! its primary's has to stop. So a replica that is short of room says so with each write that it has done, and its
//! primaries then refuse as if they were short themselves: what the replica keeps is enough for what is under way.

use nacre_msg::OsdOp;
use nacre_msg::osd_op::{SubOp, code, flag};
use nacre_pg::StoreRoom;
use nacre_types::{OsdId, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Ceph's `osd_failsafe_full_ratio`: free space below 3 % of the store.
const FAILSAFE_PERCENT_FREE: u64 = 3;
/// Room for what peers may have under way towards us: 64 of the largest writes that images make.
const UNDER_WAY_BYTES: u64 = 64 * (4 << 20);
/// A store too small for that keeps this part of itself.
const UNDER_WAY_DIVISOR: u64 = 4;

/// How long a peer's word holds: writes that are refused bring no newer one.
const SHORT_FOR: Duration = Duration::from_secs(2);

/// The room of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// All that it can hold, in bytes.
    pub total_bytes: u64,
    /// What of that is free, in bytes.
    pub available_bytes: u64,
}

impl Room {
    /// What a store has for clients, which is what the monitor hears: the room for what is under way is no part of it. So
    /// the ratios of the map (nearfull, backfillfull, full) are reached in their order, and before the failsafe, however
    /// small the store.
    #[must_use]
    pub fn for_clients(self) -> Self {
        let under_way = UNDER_WAY_BYTES.min(self.total_bytes / UNDER_WAY_DIVISOR);
        Self {
            total_bytes: self.total_bytes - under_way,
            available_bytes: self.available_bytes.saturating_sub(under_way),
        }
    }

    /// What a store of so many bytes and partitions has for clients: the size that the cluster hears, and weighs the OSD by.
    #[must_use]
    pub fn bytes_for_clients(total_bytes: u64, partitions: u64) -> u64 {
        let partitions = partitions.max(1);
        Self { total_bytes: total_bytes / partitions, available_bytes: 0 }.for_clients().total_bytes
            * partitions
    }

    /// What a store of so many bytes has free when it refuses writes: the room for what is under way, and for the failsafe.
    #[must_use]
    pub fn kept_bytes(total_bytes: u64) -> u64 {
        let for_clients = Self::bytes_for_clients(total_bytes, 1);
        total_bytes - for_clients + for_clients / 100 * FAILSAFE_PERCENT_FREE
    }

    /// What PGs hear of it, and tell the primaries of their copies.
    #[must_use]
    pub fn for_pgs(self) -> StoreRoom {
        if self.is_failsafe_full() { StoreRoom::FailsafeFull } else { StoreRoom::Ample }
    }

    /// Whether an operator's bench may write so many bytes beside clients' data (`ceph tell osd.N bench`).
    #[must_use]
    pub fn has_room_for_bench(self, bytes: u64) -> bool {
        !self.is_failsafe_full() && self.for_clients().available_bytes >= bytes
    }

    /// Whether so many bytes may be written of a copy that changes its partition: clients' writes go on, and another one may be copied.
    #[must_use]
    pub fn has_room_for_copy(self, bytes: u64) -> bool {
        !self.is_failsafe_full() && self.for_clients().available_bytes >= bytes
    }

    /// Whether the OSD may store what it keeps for itself and can do without.
    #[must_use]
    pub fn has_room_for_own(self) -> bool {
        !self.is_failsafe_full()
    }

    /// True when only messages that free space may pass (`OSDService::check_failsafe_full`).
    pub(crate) fn is_failsafe_full(self) -> bool {
        let room = self.for_clients();
        room.available_bytes < room.total_bytes / 100 * FAILSAFE_PERCENT_FREE
    }
}

/// Peers that said of late that they are short of room.
#[derive(Debug, Default)]
pub(crate) struct FullPeers(BTreeMap<OsdId, Stamp>);

impl FullPeers {
    /// A peer did a write and says whether it is short.
    pub(crate) fn heard(&mut self, peer: OsdId, is_failsafe_full: bool, clock: impl Fn() -> Stamp) {
        if is_failsafe_full {
            self.0.insert(peer, clock() + SHORT_FOR);
        } else if !self.0.is_empty() {
            self.0.remove(&peer);
        }
    }

    /// Whether one of a PG's members is short. A while after it said so, one write is let through to ask again.
    pub(crate) fn any_of(&mut self, members: &[OsdId], now: Stamp) -> bool {
        if members.iter().any(|osd| self.0.get(osd).is_some_and(|until| *until > now)) {
            return true;
        }
        for osd in members {
            if let Some(until) = self.0.get_mut(osd) {
                *until = now + SHORT_FOR;
            }
        }
        false
    }
}

/// True when the message writes data of its own. Deletions, truncations and class methods (which are no writes by their code)
/// pass, and what the metadata server forces.
pub(crate) fn brings_data(op: &OsdOp) -> bool {
    let writes = |sub: &SubOp| code::is_write(sub.code) && !sub.indata.is_empty();
    !op.has_flag(flag::FULL_FORCE) && op.ops.iter().any(writes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nacre_buf::{BufList, Bytes};
    use nacre_types::{ObjectLocator, PgId, ReqId, SnapId, SpgId, UTime};

    /// A client's message with one operation.
    pub(crate) fn op(code: u16, data: &'static [u8]) -> OsdOp {
        let pg = PgId::new(1, 3);
        OsdOp {
            spg: SpgId::replicated(pg),
            hash: pg.seed,
            epoch: 10,
            flags: 0,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: UTime::ZERO,
            locator: ObjectLocator::in_pool(pg.pool),
            name: "object".into(),
            ops: vec![SubOp::new(code).with_indata(BufList::from(Bytes::from_static(data)))],
            snap: SnapId::HEAD,
            snap_seq: SnapId::default(),
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        }
    }

    #[test]
    fn room_is_kept_for_what_is_under_way() {
        let is_full = |total_bytes, available_bytes| Room { total_bytes, available_bytes }.is_failsafe_full();
        assert!(!is_full(1 << 40, 1 << 39));
        assert!(is_full(1 << 40, 30 << 30), "3 % of a large store");
        assert!(is_full(2 << 30, 300 << 20) && !is_full(2 << 30, 312 << 20));
        assert!(is_full(64 << 20, 17 << 20) && !is_full(64 << 20, 18 << 20));
        for total in [64 << 20, 2 << 30, 1 << 40] {
            let kept = Room::kept_bytes(total);
            assert!(is_full(total, kept - 1) && !is_full(total, kept), "{total}");
        }
        // Each partition keeps room for itself: a quarter where it is small.
        let for_clients = |total: u64, partitions| total - Room::bytes_for_clients(total, partitions);
        assert_eq!([1, 2, 4].map(|parts| for_clients(1 << 40, parts)), [256 << 20, 512 << 20, 1 << 30]);
        assert_eq!([1, 2].map(|parts| for_clients(1 << 30, parts)), [256 << 20, 256 << 20]);
        assert_eq!(for_clients(0, 0), 0);
    }

    #[test]
    fn pgs_hear_of_a_full_store_and_a_bench_writes_only_what_fits_beside_clients_data() {
        let room = |available_bytes| Room { total_bytes: 1 << 40, available_bytes };
        assert_eq!(room(1 << 39).for_pgs(), StoreRoom::Ample);
        assert_eq!(room(30 << 30).for_pgs(), StoreRoom::FailsafeFull);
        let for_clients = room(1 << 39).for_clients().available_bytes;
        assert!(room(1 << 39).has_room_for_bench(for_clients));
        assert!(!room(1 << 39).has_room_for_bench(for_clients + 1));
        assert!(!room(30 << 30).has_room_for_bench(1), "failsafe full");
    }

    #[test]
    fn only_messages_that_write_data_of_their_own_need_room() {
        assert!(brings_data(&op(code::WRITE, b"data")));
        assert!(!brings_data(&op(code::READ, b"data")) && !brings_data(&op(code::DELETE, b"")));
        assert!(!brings_data(&op(code::CALL, b"input")), "a class method may free space");
        let forced = OsdOp { flags: flag::FULL_FORCE, ..op(code::WRITE, b"data") };
        assert!(!brings_data(&forced));
    }

    #[test]
    fn a_peer_that_is_short_is_asked_again_after_a_while() {
        let (mut peers, now) = (FullPeers::default(), Stamp::default());
        let (one, two) = (1, 2);
        peers.heard(one, true, || now);
        peers.heard(two, false, || now);
        assert!(peers.any_of(&[two, one], now) && !peers.any_of(&[two], now));
        let later = now + SHORT_FOR;
        assert!(!peers.any_of(&[one], later) && peers.any_of(&[one], later), "one write only");
        peers.heard(one, true, || now);
        peers.heard(one, false, || now);
        assert!(!peers.any_of(&[one], now));
    }

    /// With the defaults of Ceph: 0.85, 0.9, 0.95, and 0.97 for the failsafe.
    #[test]
    fn the_monitor_hears_of_a_full_store_before_clients_are_refused() {
        for shift in 26..44 {
            let total_bytes = 1_u64 << shift;
            let room = |available_bytes| Room { total_bytes, available_bytes };
            let used_when = |available_bytes: u64| {
                let heard = room(available_bytes).for_clients();
                100 - heard.available_bytes * 100 / heard.total_bytes
            };
            let available = (0..=1000).map(|nth| total_bytes / 1000 * (1000 - nth));
            let refused = available.into_iter().find(|available| room(*available).is_failsafe_full());
            assert!(used_when(refused.expect("at the end")) >= 97, "{total_bytes}");
        }
    }
}
