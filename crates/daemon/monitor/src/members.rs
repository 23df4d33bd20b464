//! [`Monitors`]: the monitors of the cluster as this one's tables name them.

use crate::links::Place;
use crate::store;
use crate::vitals::VitalsWatch;
use nacre_denc::DecodeError;
use nacre_kv::{KvError, KvStore};
use nacre_maps::MonMap;
use nacre_mon::monmap::read_monmap;
use nacre_mon::{MonMembers, MonitorFacts};
use nacre_quorum::NodeId;
use nacre_types::EntityAddr;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Why the tables do not say it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] KvError),
    /// A newer program's, or damaged.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// There is no cluster.
    #[error("the store holds no cluster; it needs mkfs")]
    NoCluster,
}

/// The monmap, and which members of the log its monitors are.
#[derive(Debug)]
pub(crate) struct Monitors {
    pub(crate) map: MonMap,
    members: MonMembers,
}

/// The addresses of all monitors in order of rank, as the tables have them at the moment. Copies are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Addresses(Arc<Mutex<Vec<EntityAddr>>>);

impl Addresses {
    pub(crate) fn set(&self, monitors: &Monitors) {
        let addrs = monitors.map.ranks.iter().filter_map(|name| monitors.addr_of(name)).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = addrs;
    }

    pub(crate) fn get(&self) -> Vec<EntityAddr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Monitors {
    /// Reads the tables.
    pub(crate) fn read(tables: &dyn KvStore) -> Result<Self, ReadError> {
        store::read(tables, |snapshot| {
            let map = read_monmap(snapshot)?.ok_or(ReadError::NoCluster)?;
            let members = MonMembers::read(snapshot, &map)?;
            Ok(Self { map, members })
        })?
    }

    /// The members that the log is to have.
    pub(crate) fn wanted(&self) -> Vec<NodeId> {
        self.members.iter().map(|(_, id)| NodeId(id)).collect()
    }

    /// Where each is found.
    pub(crate) fn places(&self) -> BTreeMap<NodeId, Place> {
        let place = |(name, id): (&str, u64)| {
            let addr = self.map.mons.get(name)?.addrs.msgr2()?;
            Some((NodeId(id), Place { name: name.to_owned(), addr }))
        };
        self.members.iter().filter_map(place).collect()
    }

    /// Where a monitor is to listen.
    pub(crate) fn addr_of(&self, name: &str) -> Option<EntityAddr> {
        self.map.mons.get(name)?.addrs.msgr2()
    }

    /// The member that a monitor is.
    pub(crate) fn id_of(&self, name: &str) -> Option<NodeId> {
        self.members.id_of(name).map(NodeId)
    }

    /// The monitor that a member is.
    pub(crate) fn name_of(&self, id: NodeId) -> Option<&str> {
        self.members.name_of(id.0)
    }

    /// Facts about the monitors that have been connected with this one, by name.
    pub(crate) fn facts(&self, vitals: &VitalsWatch) -> BTreeMap<String, MonitorFacts> {
        let fact = |(name, id): (&str, u64)| Some((name.to_owned(), vitals.facts_of(NodeId(id))?.clone()));
        self.members.iter().filter_map(fact).collect()
    }

    /// True of a member that was replaced or removed, which it stays.
    pub(crate) fn is_gone(&self, id: NodeId) -> bool {
        self.members.is_gone(id.0)
    }

    /// How often the cluster was made anew from the store of one monitor.
    pub(crate) fn incarnation(&self) -> u64 {
        self.members.incarnation()
    }

    /// Whether a monitor may lead.
    pub(crate) fn may_lead(&self, id: NodeId) -> bool {
        self.members.name_of(id.0).is_some_and(|name| self.map.may_lead(name))
    }

    /// Which monitor stands for election first, second, and so on: by rank, and witnesses last. One of them may have to lead for a moment,
    /// when it alone has what was committed last; it hands the lead over then.
    pub(crate) fn turn_of(&self, id: NodeId) -> Option<usize> {
        let rank = |id: NodeId| Some((!self.may_lead(id), self.rank_of(id)?));
        let own = rank(id)?;
        Some(self.wanted().into_iter().filter_map(rank).filter(|other| *other < own).count())
    }

    fn rank_of(&self, id: NodeId) -> Option<usize> {
        self.map.rank_of(self.members.name_of(id.0)?)
    }
}
