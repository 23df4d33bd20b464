//! [`Config`]: our kind, number and addresses, and for each kind of peer whether its sessions are lossy or lossless. One per messenger,
//! shared by its connections.

use nacre_types::{AddrVec, EntityAddr, EntityKind, features};
use std::time::Duration;

/// A handshake that takes longer is given up.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection on which nothing arrives for this long is closed, as by Ceph's `ms_connection_idle_timeout`.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(900);

/// How connections with one kind of peer behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerPolicy {
    /// A lost connection loses the session: nothing is kept, nothing is resent.
    pub lossy: bool,
    /// A peer that comes back with another cookie has restarted and must drop what it kept.
    pub reset_check: bool,
    /// Features without which the peer is turned away.
    pub features_required: u64,
}

impl PeerPolicy {
    /// Clients everywhere, and everybody with a monitor.
    pub const LOSSY: Self = Self { lossy: true, reset_check: false, features_required: features::REQUIRED };
    /// Equals that resend what the other has not acknowledged.
    pub const LOSSLESS: Self =
        Self { lossy: false, reset_check: true, features_required: features::REQUIRED };
}

/// Identity and policies of one messenger.
#[derive(Debug, Clone)]
pub struct Config {
    /// What we are.
    pub kind: EntityKind,
    /// Our addresses with our nonce. A client gives `any:0.0.0.0:0/nonce`: the address is learned from the
    /// server's HELLO.
    pub addrs: AddrVec,
    /// Monitor rank, OSD number, manager's or client's global id; -1 where it is not known yet.
    pub gid: i64,
    /// Accept a peer that dialled an address we do not know as ours: a monitor behind another name.
    pub any_local_address: bool,
    /// Features that we offer.
    pub features: u64,
    /// For kinds of peers that are not listed.
    pub default_policy: PeerPolicy,
    /// For these kinds of peers.
    pub policies: Vec<(EntityKind, PeerPolicy)>,
    /// See [`HANDSHAKE_TIMEOUT`].
    pub handshake_timeout: Duration,
    /// See [`IDLE_TIMEOUT`]; `None` for never.
    pub idle_timeout: Option<Duration>,
    /// Takes messages of lossy peers in CRC mode whose data is longer than [`crate::DATA_BYTES_MAX`], and puts zeros of the
    /// same length in its place, so that the owner can say that it is too long. Otherwise they end the connection.
    pub blanks_long_data: bool,
    /// Bytes of messages that may wait in one connection, unsent or unacknowledged, before `send` fails.
    pub queued_bytes_max: usize,
    /// Messages that may wait likewise.
    pub queued_count_max: usize,
}

impl Config {
    fn new(kind: EntityKind, addrs: AddrVec, gid: i64) -> Self {
        Self {
            kind,
            addrs,
            gid,
            any_local_address: false,
            features: features::SUPPORTED,
            default_policy: PeerPolicy::LOSSY,
            policies: Vec::new(),
            handshake_timeout: HANDSHAKE_TIMEOUT,
            idle_timeout: Some(IDLE_TIMEOUT),
            blanks_long_data: false,
            queued_bytes_max: 512 << 20,
            queued_count_max: 64 << 10,
        }
    }

    /// A monitor of this rank: lossy for all, reachable by any name.
    #[must_use]
    pub fn mon(addrs: AddrVec, rank: i64) -> Self {
        Self { any_local_address: true, ..Self::new(EntityKind::MON, addrs, rank) }
    }

    /// A manager: sessions end with their connections.
    #[must_use]
    pub fn mgr(addrs: AddrVec, gid: i64) -> Self {
        Self::new(EntityKind::MGR, addrs, gid)
    }

    /// An OSD: lossless with other OSDs.
    #[must_use]
    pub fn osd(addrs: AddrVec, id: i64) -> Self {
        let policies = vec![(EntityKind::OSD, PeerPolicy::LOSSLESS)];
        Self { policies, blanks_long_data: true, ..Self::new(EntityKind::OSD, addrs, id) }
    }

    /// An OSD's listeners for heartbeats: what is lost is lost.
    #[must_use]
    pub fn osd_heartbeat(addrs: AddrVec, id: i64) -> Self {
        Self::new(EntityKind::OSD, addrs, id)
    }

    /// A client: it only dials.
    #[must_use]
    pub fn client(nonce: u32) -> Self {
        let unspecified = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        let addr = EntityAddr { kind: nacre_types::AddrKind::Any, nonce, socket: Some(unspecified) };
        Self { idle_timeout: None, ..Self::new(EntityKind::CLIENT, AddrVec::of(addr), -1) }
    }

    /// The policy for peers of `kind`.
    #[must_use]
    pub fn policy(&self, kind: EntityKind) -> PeerPolicy {
        let listed = self.policies.iter().find(|(listed, _)| *listed == kind);
        listed.map_or(self.default_policy, |(_, policy)| *policy)
    }

    /// True when a peer that dialled `target` means us.
    #[must_use]
    pub fn is_me(&self, target: &EntityAddr) -> bool {
        self.addrs.0.contains(target) || (self.any_local_address && target.socket.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_osds_keep_messages_for_each_other() {
        let osd = Config::osd(AddrVec::default(), 3);
        assert!(!osd.policy(EntityKind::OSD).lossy);
        assert!(osd.policy(EntityKind::CLIENT).lossy && osd.policy(EntityKind::MON).lossy);
    }

    #[test]
    fn an_earlier_instance_is_not_me() {
        let addr = EntityAddr::parse("v2:10.0.0.1:6800/7").expect("a valid address");
        let osd = Config::osd(AddrVec::of(addr), 3);
        assert!(osd.is_me(&addr));
        assert!(!osd.is_me(&EntityAddr { nonce: 6, ..addr }));
        let mon = Config::mon(AddrVec::of(addr), 0);
        assert!(mon.is_me(&EntityAddr::parse("v2:192.0.2.7:3300").expect("a valid address")));
        assert!(!mon.is_me(&EntityAddr::NONE));
    }
}
