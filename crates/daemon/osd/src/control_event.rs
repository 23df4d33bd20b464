//! [`ControlEvent`]: what OSD control has for its shard.

use nacre_auth::{RotatingKeys, ServiceAccess};
use nacre_heartbeat::Leases;
use nacre_msg::{EntityCaps, MOsdMap, OsdForceRecovery, OsdPgCreate2, OsdScrub2, PerfQueries, VoidTickets};
use nacre_msgr::Config as MsgrConfig;
use nacre_osd_core::MapSource;
use nacre_txn::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the monitor, the manager or other OSDs brought, for the shard to carry out.
#[derive(Debug)]
pub(crate) enum ControlEvent {
    /// A message with maps.
    Maps(Box<MOsdMap>, MapSource),
    /// Secrets of the service.
    Keys(RotatingKeys),
    /// Tickets that hold no more.
    Void(VoidTickets),
    /// To be stored in the OSD's own collection.
    Keep(Transaction),
    /// Caps that tickets say otherwise.
    Caps(EntityCaps),
    /// PGs to create.
    Create(Box<OsdPgCreate2>),
    /// PGs to scrub.
    Scrub(Box<OsdScrub2>),
    /// PGs to recover before others, or in turn again.
    Force(Box<OsdForceRecovery>),
    /// The monitor wants to know how the device with this id is.
    AskDevice(String),
    /// What a manager wants counted.
    PerfQueries(PerfQueries),
    /// What the configuration database has for this OSD.
    Options(BTreeMap<String, String>),
    /// We go on under these addresses towards clients and towards other OSDs, which are to connect anew.
    Rebound { public: Arc<MsgrConfig>, cluster: Arc<MsgrConfig> },
    /// What opens connections to other OSDs, for the shards that dial themselves.
    PeerAccess(Arc<ServiceAccess>),
    /// What others promise has changed.
    Leases(Arc<Leases>),
    /// This OSD ends.
    End,
}
