//! [`OwnView`]: what a monitor knows of itself, whoever leads. The driver tells it; `ceph tell mon.b` shows it.

use nacre_maps::MonMap;
use std::time::Duration;

/// What a monitor is doing, in the order in which it comes to serve. Ceph's names (`src/mon/Monitor.h` at v16.2.15: `get_state_name`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonitorPhase {
    /// It is not connected with a majority.
    Probing,
    /// It is far behind, and gets all tables.
    Synchronizing,
    /// It is connected with a majority, and nobody leads.
    Electing,
    /// It leads, and carries out what all are asked.
    Leader,
    /// It follows a leader that it hears.
    Peon,
}

impl MonitorPhase {
    /// As `mon_status` says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Probing => "probing",
            Self::Synchronizing => "synchronizing",
            Self::Electing => "electing",
            Self::Leader => "leader",
            Self::Peon => "peon",
        }
    }

    /// True when there is a leader that this monitor hears.
    #[must_use]
    pub fn is_led(self) -> bool {
        matches!(self, Self::Leader | Self::Peon)
    }
}

/// What a monitor knows of itself.
#[derive(Debug, Clone)]
pub struct OwnView {
    /// Its name, such as `b`.
    pub name: String,
    /// What it is doing.
    pub phase: MonitorPhase,
    /// Newest term of the log that it has seen.
    pub term: u64,
    /// In that term it has heard of a leader.
    pub term_had_leader: bool,
    /// The leader's name, if there is one that it hears.
    pub leader: Option<String>,
    /// Names of the quorum's members by the leader's word, in order of rank; none while nobody leads.
    pub quorum: Vec<String>,
    /// For how long it has been in this phase and term.
    pub since: Duration,
    /// The monitors' map of its tables.
    pub map: MonMap,
}

impl OwnView {
    /// As Ceph counts elections: even with a leader, odd without; see [`crate::QuorumView::election_epoch`].
    #[must_use]
    pub fn election_epoch(&self) -> u64 {
        match (self.phase.is_led(), self.term_had_leader) {
            (true, _) => self.term * 2,
            (false, true) => self.term * 2 + 1,
            (false, false) => (self.term * 2).saturating_sub(1),
        }
    }
}
