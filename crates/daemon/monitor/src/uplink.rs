//! [`Uplink`]: the way of this monitor's front to the leader.

use nacre_quorum::NodeId;
use nacre_types::Stamp;
use std::time::Duration;

/// Sessions of a monitor that hears no leader, which it notices after 1 s, end after this time, once, so that their clients try the others: this
/// one may be cut off from them. Where another takes over they would end all the same. Ceph waits for twice `mon_lease`, 10 s.
const ALONE_MAX: Duration = Duration::from_millis(400);

/// Who leads, in which term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) term: u64,
    pub(crate) id: NodeId,
}

/// What becomes of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// They go on as they are.
    Stay,
    /// The leader has to be told of them.
    Resume,
    /// Their connections are closed.
    End,
}

/// Which leader knows the sessions of this front.
///
/// Sessions stay while nobody leads, and wait; what they say in the meantime nobody hears. So when there is a leader again it is told of them,
/// unless it is the one that knows them and nothing between it and us was lost ([`nacre_mon::Front::resume_sessions`]). They end when nobody has
/// led for a while.
#[derive(Debug, Default)]
pub(crate) struct Uplink {
    /// Has said that it takes messages of sessions, over the link that is still there.
    announced: Option<Leader>,
    /// What its tables had then.
    applied: u64,
    /// Knows the sessions.
    in_use: Option<Leader>,
    /// Since when no leader is heard, and whether sessions have ended for that.
    alone: Option<(Stamp, bool)>,
}

impl Uplink {
    /// A monitor says that it leads, with tables that have the log up to the entry `applied`. One that said so of a later term is believed.
    pub(crate) fn announced(&mut self, leader: Leader, applied: u64) {
        if self.announced.is_none_or(|known| known.term <= leader.term) {
            (self.announced, self.applied) = (Some(leader), applied);
        }
    }

    /// The last entry of the log that the leader's tables had when it said that it leads.
    pub(crate) fn applied_by_leader(&self) -> u64 {
        self.applied
    }

    /// What was on its way from or to a monitor is lost.
    pub(crate) fn lost(&mut self, with: NodeId) {
        for leader in [&mut self.announced, &mut self.in_use] {
            leader.take_if(|leader| leader.id == with);
        }
    }

    /// The log has this leader now, as far as we know.
    pub(crate) fn follow(&mut self, leader: Option<Leader>, now: Stamp) -> Follow {
        if leader.is_none() {
            let (since, has_ended) = self.alone.get_or_insert((now, false));
            if *has_ended || now.since(*since) < ALONE_MAX {
                return Follow::Stay;
            }
            *has_ended = true;
            return Follow::End;
        }
        self.alone = None;
        let usable = leader.filter(|leader| self.announced == Some(*leader));
        let is_other = usable.is_some() && usable != self.in_use;
        self.in_use = usable;
        if is_other { Follow::Resume } else { Follow::Stay }
    }

    /// Where messages of sessions go.
    pub(crate) fn leader(&self) -> Option<Leader> {
        self.in_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp(0);

    fn leader(term: u64, id: u64) -> Leader {
        Leader { term, id: NodeId(id) }
    }

    #[test]
    fn another_leader_is_told_of_sessions_when_it_takes_their_messages() {
        let mut uplink = Uplink::default();
        assert_eq!(uplink.follow(Some(leader(2, 1)), NOW), Follow::Stay, "it has not said that it is ready");
        uplink.announced(leader(2, 1), 0);
        assert_eq!(uplink.follow(Some(leader(2, 1)), NOW), Follow::Resume);
        assert_eq!(uplink.follow(Some(leader(2, 1)), NOW), Follow::Stay);
        // Silence, and it is still the same.
        assert_eq!(uplink.follow(None, NOW), Follow::Stay);
        assert_eq!(uplink.leader(), Some(leader(2, 1)));
        assert_eq!(uplink.follow(Some(leader(2, 1)), NOW), Follow::Stay);
        // Another, which is not ready yet: nobody hears what is said meanwhile.
        assert_eq!(uplink.follow(Some(leader(3, 2)), NOW), Follow::Stay);
        assert_eq!(uplink.leader(), None);
        uplink.announced(leader(3, 2), 0);
        assert_eq!(uplink.follow(Some(leader(3, 2)), NOW), Follow::Resume);
    }

    #[test]
    fn what_an_earlier_leader_said_and_what_came_late_changes_nothing() {
        let mut uplink = Uplink::default();
        uplink.announced(leader(3, 2), 0);
        uplink.announced(leader(2, 1), 0);
        assert_eq!(uplink.follow(Some(leader(3, 2)), NOW), Follow::Resume);
    }

    #[test]
    fn the_leader_is_told_of_sessions_again_when_something_between_it_and_us_was_lost() {
        let mut uplink = Uplink::default();
        uplink.announced(leader(2, 1), 0);
        assert_eq!(uplink.follow(Some(leader(2, 1)), NOW), Follow::Resume);
        uplink.lost(NodeId(3));
        assert_eq!(uplink.follow(Some(leader(2, 1)), NOW), Follow::Stay);
        uplink.lost(NodeId(1));
        assert_eq!(uplink.leader(), None);
        assert_eq!(uplink.follow(Some(leader(2, 1)), NOW), Follow::Stay);
        uplink.announced(leader(2, 1), 0);
        assert_eq!(uplink.follow(Some(leader(2, 1)), NOW), Follow::Resume);
    }

    #[test]
    fn sessions_of_one_that_hears_no_leader_end_once() {
        let mut uplink = Uplink::default();
        let at = |tenths: u64| Stamp::default() + Duration::from_millis(100 * tenths);
        uplink.announced(leader(2, 1), 0);
        assert_eq!(uplink.follow(Some(leader(2, 1)), at(0)), Follow::Resume);
        assert_eq!(uplink.follow(None, at(1)), Follow::Stay, "an election");
        assert_eq!(uplink.follow(None, at(4)), Follow::Stay);
        assert_eq!(uplink.follow(None, at(5)), Follow::End);
        assert_eq!(
            uplink.follow(None, at(60)),
            Follow::Stay,
            "those that came since ask this monitor itself"
        );
        assert_eq!(uplink.follow(Some(leader(2, 1)), at(61)), Follow::Stay);
        assert_eq!(uplink.follow(None, at(62)), Follow::Stay);
        assert_eq!(uplink.follow(None, at(67)), Follow::End, "again");
    }
}
