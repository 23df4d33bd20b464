//! The other monitors as the leader knows them, for its health and its commands.

use crate::clock_watch::ClockWatch;
use crate::members::Monitors;
use crate::vitals::VitalsWatch;
use nacre_mon::{MonitorView, QuorumView};
use nacre_quorum::{NodeId, Quorum};
use nacre_types::UTime;

/// Ticks of silence after which another monitor does not count as heard: 1 s.
const SILENT_TICKS: u64 = 20;

/// Whether a monitor, perhaps this one, was heard a short while ago.
pub(crate) fn is_heard(quorum: &Quorum, id: NodeId) -> bool {
    quorum.silence_of(id).is_some_and(|ticks| ticks < SILENT_TICKS)
}

/// What is known now. A monitor that votes and is heard is in the quorum. `before` is what was known before, which says since
/// when that is so.
pub(crate) fn look(
    quorum: &Quorum,
    monitors: &Monitors,
    (clocks, vitals): (&ClockWatch, &VitalsWatch),
    (before, wall): (&QuorumView, UTime),
) -> QuorumView {
    let members = quorum.members();
    let view = |name: &String| {
        let id = monitors.id_of(name)?;
        let measured = clocks.measured(id);
        let (is_heard, votes) = (is_heard(quorum, id), members.voters.contains(&id));
        let view = MonitorView {
            is_in_quorum: is_heard && votes,
            is_learner: !votes,
            is_heard,
            clock_skew_s: measured.map(|(ahead_s, _)| ahead_s),
            latency_s: measured.map_or(0.0, |(_, latency_s)| latency_s),
            disk_avail_percent: vitals.of(id).and_then(|vitals| vitals.disk_avail_percent),
        };
        Some((name.clone(), view))
    };
    let monitors = monitors.map.mons.keys().filter_map(view).collect();
    let mut now = QuorumView { term: quorum.term(), since: before.since, monitors };
    let is_same = now.monitors.iter().all(|(name, monitor)| before.has(name) == monitor.is_in_quorum);
    if before.term != now.term || !is_same {
        now.since = wall;
    }
    now
}
