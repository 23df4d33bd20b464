//! [`QuorumView`]: what the leader knows of the monitors as the members of their log. The driver tells it; commands and health show it.

use nacre_maps::MonMap;
use nacre_types::UTime;
use std::collections::BTreeMap;

/// The quorum of the moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QuorumView {
    /// The term of the log in which this leader was elected.
    pub term: u64,
    /// Since when these monitors are the quorum.
    pub since: UTime,
    /// Monitors by name, the leader among them. One that is not here is not in the quorum.
    pub monitors: BTreeMap<String, MonitorView>,
}

/// What the leader knows of one monitor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MonitorView {
    /// It follows the leader and was heard of late enough; true of the leader itself.
    pub is_in_quorum: bool,
    /// It has no vote yet: it is to get all data first.
    pub is_learner: bool,
    /// It was heard of late enough, whether or not it has a vote.
    pub is_heard: bool,
    /// By how many seconds its clock is ahead of the leader's, if that was measured; negative when it is behind.
    pub clock_skew_s: Option<f64>,
    /// How long a message takes to it, in seconds, as far as that was measured.
    pub latency_s: f64,
    /// Free room of the file system with its store, in per cent, if it was told.
    pub disk_avail_percent: Option<u8>,
}

impl QuorumView {
    /// All monitors of the map: nobody has missed one yet.
    #[must_use]
    pub fn of_all(map: &MonMap, term: u64, since: UTime) -> Self {
        let here = MonitorView { is_in_quorum: true, is_heard: true, ..MonitorView::default() };
        Self { term, since, monitors: map.mons.keys().map(|name| (name.clone(), here)).collect() }
    }

    /// As Ceph counts elections: two numbers for each, of which the even one is that of a quorum with its leader. A view has a leader.
    #[must_use]
    pub fn election_epoch(&self) -> u64 {
        self.term * 2
    }

    /// True of a monitor that counts.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.monitors.get(name).is_some_and(|monitor| monitor.is_in_quorum)
    }

    /// Whether those of the quorum that are not `away` are a majority of those that have a vote.
    #[must_use]
    pub fn outlives(&self, map: &MonMap, away: &[&str]) -> bool {
        let here = self.members(map).filter(|(_, name)| !away.contains(name)).count();
        here * 2 > self.voters(map).count()
    }

    /// How many have a vote when one monitor is removed, and how many of those are there.
    #[must_use]
    pub fn without(&self, map: &MonMap, removed: &str) -> (usize, usize) {
        let left = self.voters(map).filter(|name| *name != removed);
        (left.clone().count(), left.filter(|name| self.has(name)).count())
    }

    /// Whether one of the quorum may lead by this map, apart from those of these names.
    #[must_use]
    pub fn has_candidate(&self, map: &MonMap, apart: &[&str]) -> bool {
        self.members(map).any(|(_, name)| map.may_lead(name) && !apart.contains(&name))
    }

    /// Those that have a vote. A monitor that was added a moment ago is not here yet, and has none.
    fn voters<'a>(&'a self, map: &'a MonMap) -> impl Iterator<Item = &'a str> + Clone {
        let votes = |name: &&str| self.monitors.get(*name).is_some_and(|monitor| !monitor.is_learner);
        map.ranks.iter().map(String::as_str).filter(votes)
    }

    /// Ranks and names of the quorum's members, in order of rank.
    pub fn members<'a>(&'a self, map: &'a MonMap) -> impl Iterator<Item = (usize, &'a str)> {
        map.ranks.iter().map(String::as_str).enumerate().filter(|(_, name)| self.has(name))
    }

    /// The same of the others.
    pub fn outside<'a>(&'a self, map: &'a MonMap) -> impl Iterator<Item = (usize, &'a str)> {
        map.ranks.iter().map(String::as_str).enumerate().filter(|(_, name)| !self.has(name))
    }
}
