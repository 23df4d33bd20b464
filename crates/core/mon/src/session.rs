//! Sessions: the peers that are connected, their caps, their subscriptions.

use crate::event::Endpoint;
use nacre_auth::{MgrCaps, MonCaps};
use nacre_types::{AddrVec, AuthName, EntityAddr, EntityKind, EntityName, Epoch};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Subscriptions of one session.
pub(crate) const SUBSCRIPTIONS_COUNT_MAX: usize = 64;

/// The entity that a peer has proved to be, with its caps.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The entity of the key, such as `client.admin` or `osd.3`.
    pub auth_name: AuthName,
    /// The instance: `client.<global id>`, or `osd.3`.
    pub name: EntityName,
    /// Unique number of this instance.
    pub global_id: u64,
    /// What it may do at the monitor.
    pub caps: MonCaps,
    /// What it may ask of the manager; none at the monitor's address, where [`Identity::caps`] decide.
    pub mgr_caps: Option<MgrCaps>,
    /// It proved nothing and needs no caps: authentication is off.
    pub allows_all: bool,
    /// Its address of record, by its own word.
    pub addr: EntityAddr,
    /// Where its socket is.
    pub seen_at: Option<IpAddr>,
}

impl Identity {
    /// From now on it may do at the monitor, and at the manager if it came in there, what these caps allow to where its socket is.
    pub(crate) fn set_caps(&mut self, (caps, mgr_caps): (MonCaps, Option<MgrCaps>)) {
        self.caps = caps.at(self.seen_at);
        self.mgr_caps = mgr_caps.map(|caps| caps.at(self.seen_at));
    }
}

/// A subscription to one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// First version wanted; 0 for "the newest, whatever it is".
    pub(crate) start: u64,
    /// Dropped once served.
    pub(crate) onetime: bool,
}

impl Subscription {
    /// True when `version` is what the subscriber waits for.
    pub(crate) fn is_met_by(self, version: u64) -> bool {
        version >= self.start
    }
}

/// Versions that subscribers were served last.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) monmap: Epoch,
    pub(crate) osdmap: Epoch,
    pub(crate) mgrmap: Epoch,
    pub(crate) fsmap: Epoch,
    pub(crate) config: u64,
    pub(crate) services: Epoch,
    pub(crate) log: u64,
    pub(crate) void: u64,
    pub(crate) caps: u64,
    pub(crate) own_mgr_is_active: bool,
}

/// What the names of the cluster log's levels begin with.
const LOG_TOPICS: &str = "log-";

/// One connection that is open.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) identity: Identity,
    pub(crate) endpoint: Endpoint,
    /// What the peer says it is. A daemon's first, throw-away session says client.
    pub(crate) kind: EntityKind,
    /// The peer's addresses of record.
    pub(crate) addrs: AddrVec,
    /// By name, such as `osdmap`.
    pub(crate) subscriptions: BTreeMap<String, Subscription>,
    /// Options last pushed; `None` before the first push.
    pub(crate) config_sent: Option<BTreeMap<String, String>>,
    /// Newest OSDMap epoch that the peer is known to have; 0 for none.
    pub(crate) osdmap_epoch: Epoch,
}

impl Session {
    pub(crate) fn new(identity: Identity, endpoint: Endpoint, kind: EntityKind, addrs: AddrVec) -> Self {
        Self {
            identity,
            endpoint,
            kind,
            addrs,
            subscriptions: BTreeMap::new(),
            config_sent: None,
            osdmap_epoch: 0,
        }
    }

    /// Number of the OSD that this is: its key says so, and it speaks as the daemon, not for it.
    pub(crate) fn osd(&self) -> Option<nacre_types::OsdId> {
        let name = &self.identity.auth_name;
        let is_daemon = name.kind == EntityKind::OSD && self.kind == EntityKind::OSD;
        if is_daemon { name.id.parse().ok() } else { None }
    }

    /// Takes a subscription in; false when there are too many. The log is followed from one level at a time: the newest one asked for.
    pub(crate) fn subscribe(&mut self, what: String, subscription: Subscription) -> bool {
        if what.starts_with(LOG_TOPICS) {
            self.subscriptions.retain(|other, _| *other == what || !other.starts_with(LOG_TOPICS));
        }
        let has_room =
            self.subscriptions.len() < SUBSCRIPTIONS_COUNT_MAX || self.subscriptions.contains_key(&what);
        if has_room {
            self.subscriptions.insert(what, subscription);
        }
        has_room
    }

    /// A subscription was served up to `version`.
    pub(crate) fn served(&mut self, what: &str, version: u64) {
        match self.subscriptions.get_mut(what) {
            Some(subscription) if !subscription.onetime => subscription.start = version + 1,
            Some(_) => drop(self.subscriptions.remove(what)),
            None => (),
        }
    }
}

/// The instance that a proved name and number make.
pub(crate) fn instance(name: &AuthName, global_id: u64) -> EntityName {
    let number = match name.kind {
        EntityKind::OSD => name.id.parse().ok(),
        EntityKind::MON => Some(0),
        _ => None,
    };
    let number = number.unwrap_or_else(|| i64::try_from(global_id).unwrap_or(i64::MAX));
    EntityName { kind: name.kind, number }
}
