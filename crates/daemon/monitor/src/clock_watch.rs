//! [`ClockWatch`]: how far the clocks of monitors differ, measured by a question and an answer per second.

use nacre_quorum::NodeId;
use nacre_types::{Stamp, UTime};
use std::collections::BTreeMap;

/// How far other monitors' clocks are from ours.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    /// Seconds by which each is ahead for certain, negative where it is behind, and of the round trip.
    measured: BTreeMap<NodeId, (f64, f64)>,
}

impl ClockWatch {
    /// Another monitor answers what we sent at `sent`; its clock showed `theirs` then. Up to half of the round trip may be the way, and is not
    /// taken for skew. Yields by how many nanoseconds its clock is ahead of ours.
    pub(crate) fn answered(
        &mut self,
        by: NodeId,
        (sent, now): (Stamp, Stamp),
        theirs: UTime,
        wall: UTime,
    ) -> i128 {
        let round_trip = now.since(sent);
        let nanos = |time: UTime| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
        let way = i128::try_from(round_trip.as_nanos() / 2).unwrap_or(0);
        let skew = nanos(theirs) + way - nanos(wall);
        let certain = skew.unsigned_abs().saturating_sub(round_trip.as_nanos() / 2);
        let ahead_s = (certain as f64 / 1e9).copysign(if skew < 0 { -1.0 } else { 1.0 });
        self.measured.insert(by, (ahead_s, round_trip.as_secs_f64()));
        skew
    }

    /// A monitor is no longer connected.
    pub(crate) fn lost(&mut self, with: NodeId) {
        self.measured.remove(&with);
    }

    /// By how many seconds the clock of another monitor is ahead for certain, negative where it is behind, and how long it takes to ask it.
    pub(crate) fn measured(&self, of: NodeId) -> Option<(f64, f64)> {
        self.measured.get(&of).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_round_trip_is_not_skew() {
        let mut watch = ClockWatch::default();
        let times = (Stamp(0), Stamp(40_000_000));
        let at = |nsec| UTime { sec: 100, nsec };
        assert_eq!(watch.answered(NodeId(2), times, at(20_000_000), at(40_000_000)), 0);
        assert_eq!(watch.measured(NodeId(2)), Some((0.0, 0.04)));
        assert_eq!(watch.answered(NodeId(2), times, at(320_000_000), at(40_000_000)), 300_000_000);
        assert_eq!(watch.measured(NodeId(2)), Some((0.28, 0.04)));
        watch.lost(NodeId(2));
        assert_eq!(watch.measured(NodeId(2)), None);
    }
}
