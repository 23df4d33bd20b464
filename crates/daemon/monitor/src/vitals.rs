//! [`VitalsWatch`]: what monitors say of themselves over links, and what this one measures of itself.

use crate::link_msg::{Facts, Vitals};
use nacre_env::FileRoom;
use nacre_mon::MonitorPhase;
use nacre_quorum::NodeId;
use nacre_types::Stamp;
use std::collections::BTreeMap;

/// How all monitors are, as far as this one knows.
#[derive(Debug)]
pub(crate) struct VitalsWatch {
    own: NodeId,
    facts: BTreeMap<NodeId, Facts>,
    vitals: BTreeMap<NodeId, Vitals>,
    /// Phase and term of this monitor, and since when both are so.
    phase: (MonitorPhase, u64, Stamp),
    /// The newest term in which this monitor knew of a leader.
    led_term: u64,
}

impl VitalsWatch {
    /// Those of the member `own`, of which these facts are known, and of nobody else yet.
    pub(crate) fn new(own: NodeId, facts: Facts, now: Stamp) -> Self {
        Self {
            own,
            facts: BTreeMap::from([(own, facts)]),
            vitals: BTreeMap::new(),
            phase: (MonitorPhase::Probing, 0, now),
            led_term: 0,
        }
    }

    /// A monitor says who it is. What it said stays when it is gone.
    pub(crate) fn introduced(&mut self, by: NodeId, facts: Facts) {
        self.facts.insert(by, facts);
    }

    /// A monitor says how it is.
    pub(crate) fn said(&mut self, by: NodeId, vitals: Vitals) {
        self.vitals.insert(by, vitals);
    }

    /// The room of this monitor's store was measured.
    pub(crate) fn measured(&mut self, room: Option<FileRoom>) {
        let disk_avail_percent = room.and_then(avail_percent);
        self.vitals.entry(self.own).or_default().disk_avail_percent = disk_avail_percent;
    }

    /// A monitor is no longer connected: nobody knows by now how it is.
    pub(crate) fn lost(&mut self, with: NodeId) {
        self.vitals.remove(&with);
    }

    /// Facts about a monitor, if it has ever been connected with this one.
    pub(crate) fn facts_of(&self, id: NodeId) -> Option<&Facts> {
        self.facts.get(&id)
    }

    /// How a monitor is, if that is known.
    pub(crate) fn of(&self, id: NodeId) -> Option<&Vitals> {
        self.vitals.get(&id)
    }

    /// Notes the phase of this monitor, and whether it knows of a leader in this term.
    pub(crate) fn note_phase(&mut self, phase: MonitorPhase, term: u64, knows_leader: bool, now: Stamp) {
        if (self.phase.0, self.phase.1) != (phase, term) {
            self.phase = (phase, term, now);
        }
        if knows_leader {
            self.led_term = term;
        }
    }

    /// Since when phase and term are what they are.
    pub(crate) fn phase_since(&self) -> Stamp {
        self.phase.2
    }

    /// Whether this monitor has known of a leader in this term.
    pub(crate) fn had_leader(&self, term: u64) -> bool {
        self.led_term == term
    }
}

/// Of the whole file system, what is free for a process without privileges, in per cent, rounded down, as Ceph counts it; `None` where the
/// system does not say how large it is.
pub(crate) fn avail_percent(room: FileRoom) -> Option<u8> {
    let percent = u128::from(room.available_bytes) * 100 / u128::from(room.total_bytes).max(1);
    u8::try_from(percent.min(100)).ok().filter(|_| room.total_bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_counted_in_whole_per_cent() {
        let percent = |available_bytes, total_bytes| {
            avail_percent(FileRoom { used_bytes: 0, available_bytes, total_bytes })
        };
        assert_eq!(percent(0, 0), None);
        assert_eq!(percent(0, 7), Some(0));
        assert_eq!(percent(59, 1000), Some(5));
        assert_eq!(percent(u64::MAX, u64::MAX), Some(100));
    }

    #[test]
    fn who_is_gone_is_known_but_not_how_it_is() {
        let mut watch = VitalsWatch::new(NodeId(1), Facts::new(), Stamp(0));
        let facts = Facts::from([("hostname".to_owned(), "there".to_owned())]);
        watch.introduced(NodeId(2), facts.clone());
        watch.said(NodeId(2), Vitals { disk_avail_percent: Some(9), quorum: Vec::new() });
        watch.lost(NodeId(2));
        assert_eq!((watch.facts_of(NodeId(2)), watch.of(NodeId(2))), (Some(&facts), None));
    }

    #[test]
    fn a_phase_lasts_while_neither_it_nor_the_term_changes() {
        let mut watch = VitalsWatch::new(NodeId(1), Facts::new(), Stamp(0));
        watch.note_phase(MonitorPhase::Peon, 3, true, Stamp(5));
        watch.note_phase(MonitorPhase::Peon, 3, true, Stamp(9));
        assert_eq!((watch.phase_since(), watch.had_leader(3)), (Stamp(5), true));
        watch.note_phase(MonitorPhase::Electing, 4, false, Stamp(11));
        assert_eq!((watch.phase_since(), watch.had_leader(4)), (Stamp(11), false));
    }
}
