//! Questions about OSDs and pools.

use super::OsdMap;
use crate::flags::{self, osd, osdmap};
use crate::{OsdInfo, Pool, WEIGHT_ONE, XInfo};
use nacre_types::{AddrKind, AddrVec, EntityAddr, OsdId, PoolId};
use std::net::SocketAddr;

fn at<T>(slots: &[T], osd: OsdId) -> Option<&T> {
    slots.get(usize::try_from(osd).ok()?)
}

impl OsdMap {
    /// State bits of an OSD; 0 for one that the map does not have.
    #[must_use]
    #[inline]
    pub fn state(&self, osd: OsdId) -> u32 {
        at(&self.osd_state, osd).copied().unwrap_or(0)
    }

    /// True when the OSD's number is in use.
    #[must_use]
    #[inline]
    pub fn exists(&self, osd: OsdId) -> bool {
        self.state(osd) & osd::EXISTS != 0
    }

    /// True when the OSD exists and its daemon runs.
    #[must_use]
    #[inline]
    pub fn is_up(&self, osd: OsdId) -> bool {
        let both = osd::EXISTS | osd::UP;
        self.state(osd) & both == both
    }

    /// True when it does not.
    #[must_use]
    pub fn is_down(&self, osd: OsdId) -> bool {
        !self.is_up(osd)
    }

    /// True when the OSD exists and PGs may be placed on it.
    #[must_use]
    pub fn is_in(&self, osd: OsdId) -> bool {
        self.exists(osd) && self.weight(osd) != 0
    }

    /// True when PGs may not be placed on it.
    #[must_use]
    pub fn is_out(&self, osd: OsdId) -> bool {
        !self.is_in(osd)
    }

    /// Weight of an OSD, 16.16; 0 for one that the map does not have.
    #[must_use]
    #[inline]
    pub fn weight(&self, osd: OsdId) -> u32 {
        at(&self.osd_weight, osd).copied().unwrap_or(0)
    }

    /// Primary affinity of an OSD, 16.16.
    #[must_use]
    #[inline]
    pub fn primary_affinity(&self, osd: OsdId) -> u32 {
        at(&self.osd_primary_affinity, osd).copied().unwrap_or(WEIGHT_ONE)
    }

    /// Epochs of an OSD's life.
    #[must_use]
    pub fn info(&self, osd: OsdId) -> OsdInfo {
        at(&self.osd_info, osd).copied().unwrap_or_default()
    }

    /// More of an OSD's life.
    #[must_use]
    pub fn xinfo(&self, osd: OsdId) -> XInfo {
        at(&self.osd_xinfo, osd).copied().unwrap_or_default()
    }

    /// Where clients reach an OSD; `None` when it is not up.
    #[must_use]
    pub fn client_addr(&self, osd: OsdId) -> Option<&AddrVec> {
        if self.is_up(osd) { at(&self.client_addrs, osd) } else { None }
    }

    /// Where other OSDs reach it; `None` when it is not up.
    #[must_use]
    pub fn cluster_addr(&self, osd: OsdId) -> Option<&AddrVec> {
        if self.is_up(osd) { at(&self.cluster_addrs, osd) } else { None }
    }

    /// Heartbeat addresses, cluster network and public network; `None` when it is not up.
    #[must_use]
    pub fn heartbeat_addrs(&self, osd: OsdId) -> Option<(&AddrVec, &AddrVec)> {
        if self.is_down(osd) {
            return None;
        }
        Some((at(&self.hb_back_addrs, osd)?, at(&self.hb_front_addrs, osd)?))
    }

    /// All OSD numbers in use, ascending.
    pub fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        let slots = OsdId::try_from(self.max_osd()).unwrap_or(OsdId::MAX);
        (0..slots).filter(|osd| self.exists(*osd))
    }

    /// All OSDs that are up, ascending.
    pub fn up_osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.osds().filter(|osd| self.is_up(*osd))
    }

    /// Number of OSDs.
    #[must_use]
    pub fn osd_count(&self) -> usize {
        self.osds().count()
    }

    /// Number of OSDs that are up.
    #[must_use]
    pub fn up_count(&self) -> usize {
        self.up_osds().count()
    }

    /// Number of OSDs that are in.
    #[must_use]
    pub fn in_count(&self) -> usize {
        self.osds().filter(|osd| self.is_in(*osd)).count()
    }

    /// The pool of this id.
    #[must_use]
    #[inline]
    pub fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(&id)
    }

    /// The pool of this name.
    #[must_use]
    pub fn pool_by_name(&self, name: &str) -> Option<PoolId> {
        self.pool_names.iter().find(|(_, found)| found.as_str() == name).map(|(id, _)| *id)
    }

    /// Name of a pool.
    #[must_use]
    pub fn pool_name(&self, id: PoolId) -> Option<&str> {
        self.pool_names.get(&id).map(String::as_str)
    }

    /// True when all bits of `flag` ([`crate::flags::osdmap`]) are set.
    #[must_use]
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag == flag
    }

    /// Names of the flags set, joined with commas, as `ceph osd dump` prints them.
    #[must_use]
    pub fn flag_names(&self) -> String {
        flags::join(self.flags, osdmap::NAMES)
    }

    /// Names of an OSD's state bits, joined with commas.
    #[must_use]
    pub fn state_names(&self, osd: OsdId) -> String {
        flags::join(self.state(osd), osd::NAMES)
    }

    /// True when any client is shut out.
    #[must_use]
    pub fn has_blocklist(&self) -> bool {
        !self.blocklist.is_empty() || !self.range_blocklist.is_empty()
    }

    /// True when this client instance is shut out, by itself, with its whole IP address or with a range of them.
    #[must_use]
    pub fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        if !self.has_blocklist() {
            return false;
        }
        let ip = addr.socket.map(|socket| socket.ip());
        if ip.is_some_and(|ip| self.range_blocklist.keys().any(|range| range.range_contains(ip))) {
            return true;
        }
        let instance = addr.with_kind(AddrKind::Any);
        // A client does not listen, so its instance has port 0; a whole address has nonce 0 as well.
        let socket = addr.socket.map(|socket| SocketAddr::new(socket.ip(), 0));
        let keys =
            [*addr, instance, EntityAddr { socket, ..instance }, EntityAddr { socket, nonce: 0, ..instance }];
        keys.iter().any(|key| self.blocklist.contains_key(key))
    }

    /// True when any address of the instance is shut out.
    #[must_use]
    pub fn is_any_blocklisted(&self, addrs: &AddrVec) -> bool {
        addrs.0.iter().any(|addr| self.is_blocklisted(addr))
    }
}
