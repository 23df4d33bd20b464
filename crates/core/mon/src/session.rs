//! Sessions: the peers that are connected, their caps, their subscriptions.

use crate::event::Endpoint;
use nacre_auth::{MgrCaps, MonCaps};
use nacre_msg::{MonSubscribe, Subscription};
use nacre_types::{AddrVec, AuthName, EntityAddr, EntityKind, EntityName, Epoch};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Subscriptions of one session.
pub(crate) const SUBSCRIPTIONS_COUNT_MAX: usize = 64;
/// What one takes besides what it is to.
const SUBSCRIPTION_BYTES: usize = 16;
/// Length of what is subscribed to: `kv:` and a prefix of keys is the longest.
const TOPIC_BYTES_MAX: usize = 1024;

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

/// What a peer wants to be told, by topic, such as `osdmap`.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(BTreeMap<String, Subscription>);

impl Subscriptions {
    pub(crate) fn get(&self, what: &str) -> Option<Subscription> {
        self.0.get(what).copied()
    }

    /// What they take in a message, and about what they take in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.0.keys().map(|what| SUBSCRIPTION_BYTES + what.len()).sum()
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Takes a subscription in; false when there are too many, or when it names no topic that there could be. The log is followed from one level at a time: the newest one asked for.
    pub(crate) fn subscribe(&mut self, what: &str, subscription: Subscription) -> bool {
        if what.starts_with(LOG_TOPICS) {
            self.0.retain(|other, _| *other == what || !other.starts_with(LOG_TOPICS));
        }
        let has_room = self.0.len() < SUBSCRIPTIONS_COUNT_MAX || self.0.contains_key(what);
        let is_taken = has_room && what.len() <= TOPIC_BYTES_MAX;
        if is_taken {
            self.0.insert(what.to_owned(), subscription);
        }
        is_taken
    }

    /// A subscription was served up to `version`; one for a single answer is over then.
    pub(crate) fn served(&mut self, what: &str, version: u64) {
        match self.0.get_mut(what) {
            Some(subscription) if !subscription.is_met_by(version) => (),
            Some(subscription) if subscription.is_onetime() => drop(self.0.remove(what)),
            Some(subscription) => subscription.start = version + 1,
            None => (),
        }
    }

    /// What the peer would ask another leader for, to go on from here.
    pub(crate) fn to_message(&self) -> MonSubscribe {
        MonSubscribe { what: self.0.clone(), hostname: String::new() }
    }
}

/// Versions that subscribers were served last.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Versions {
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
    pub(crate) subscriptions: Subscriptions,
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
            subscriptions: Subscriptions::default(),
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

    /// Whether OSDs may work for it: the bill is to know its name while it is here.
    pub(crate) fn is_billed(&self) -> bool {
        self.kind != EntityKind::OSD && self.endpoint == Endpoint::Mon
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
