//! [`ClusterLog`]: what an OSD has for the cluster's log, until a monitor has it.
//!
//! Source of the behaviour: Ceph `src/common/LogClient.cc`, v16.2.15: lines are numbered, sent again with each session, and forgotten when
//! a monitor confirms their number.

use nacre_msg::{ClusterLogEntry, LogPriority};
use nacre_types::{AddrVec, AuthName, EntityKind, EntityName, OsdId, Stamp, UTime};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Lines that wait for a monitor; of more the oldest are dropped.
const LINES_MAX: usize = 200;
/// Lines of one message.
const MESSAGE_LINES_MAX: usize = 50;
/// The same line is not said again for so long.
const REPEATED_AFTER: Duration = Duration::from_secs(600);
/// Lines that are remembered for that.
const REMEMBERED_MAX: usize = 200;

/// See the module's documentation.
#[derive(Debug)]
pub struct ClusterLog {
    osd: OsdId,
    lines: VecDeque<ClusterLogEntry>,
    last_seq: u64,
    /// Up to here they are on the way in the present session.
    sent_seq: u64,
    /// When a line was last said.
    said: BTreeMap<String, Stamp>,
}

impl ClusterLog {
    /// Of an OSD that has said nothing.
    #[must_use]
    pub fn new(osd: OsdId) -> Self {
        Self { osd, lines: VecDeque::new(), last_seq: 0, sent_seq: 0, said: BTreeMap::new() }
    }

    /// Says a line, unless it was said not long ago: false then. `addrs` are ours.
    pub fn say(
        &mut self,
        priority: LogPriority,
        message: String,
        addrs: &AddrVec,
        (now, wall): (Stamp, UTime),
    ) -> bool {
        self.said.retain(|_, at| now.since(*at) < REPEATED_AFTER);
        if self.said.contains_key(&message) {
            return false;
        }
        if self.said.len() < REMEMBERED_MAX {
            self.said.insert(message.clone(), now);
        }
        self.last_seq += 1;
        self.lines.push_back(ClusterLogEntry {
            name: AuthName::new(EntityKind::OSD, self.osd.to_string()),
            rank: EntityName { kind: EntityKind::OSD, number: self.osd.into() },
            addrs: addrs.clone(),
            stamp: wall,
            seq: self.last_seq,
            priority,
            message,
            channel: "cluster".to_owned(),
        });
        if self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
        true
    }

    /// A session with a monitor begins, which may have nothing of what was sent in the one before.
    pub fn monitor_opened(&mut self) {
        self.sent_seq = 0;
    }

    /// What to send now in the open session, oldest first; empty when there is nothing.
    pub fn next_lines(&mut self) -> Vec<ClusterLogEntry> {
        let sent = self.sent_seq;
        let unsent = self.lines.iter().filter(|line| line.seq > sent).take(MESSAGE_LINES_MAX);
        let lines: Vec<ClusterLogEntry> = unsent.cloned().collect();
        self.sent_seq = lines.last().map_or(sent, |line| line.seq);
        lines
    }

    /// A monitor has all lines up to this number.
    pub fn confirmed(&mut self, last_seq: u64) {
        self.lines.retain(|line| line.seq > last_seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> (Stamp, UTime) {
        (Stamp::default() + Duration::from_secs(seconds), UTime::ZERO)
    }

    fn say(log: &mut ClusterLog, text: &str, seconds: u64) {
        log.say(LogPriority::WARN, text.to_owned(), &AddrVec::default(), at(seconds));
    }

    fn seqs(log: &mut ClusterLog) -> Vec<u64> {
        log.next_lines().iter().map(|line| line.seq).collect()
    }

    #[test]
    fn lines_are_sent_once_in_a_session_and_again_in_the_next_until_they_are_confirmed() {
        let mut log = ClusterLog::new(3);
        say(&mut log, "a", 1);
        say(&mut log, "b", 1);
        assert_eq!(seqs(&mut log), [1, 2]);
        assert_eq!(seqs(&mut log), []);
        log.confirmed(1);
        log.monitor_opened();
        say(&mut log, "c", 2);
        assert_eq!(seqs(&mut log), [2, 3]);
        log.confirmed(3);
        log.monitor_opened();
        assert_eq!(seqs(&mut log), []);
    }

    #[test]
    fn a_line_is_not_repeated_for_a_while_and_of_many_the_newest_are_kept() {
        let mut log = ClusterLog::new(3);
        (1..600).for_each(|seconds| say(&mut log, "slow", seconds));
        assert_eq!(seqs(&mut log), [1]);
        say(&mut log, "slow", 601);
        assert_eq!(seqs(&mut log), [2]);
        (0..LINES_MAX * 2).for_each(|number| say(&mut log, &number.to_string(), 700));
        log.monitor_opened();
        let lines = log.next_lines();
        assert_eq!((lines.len(), lines.last().map(|line| line.seq)), (MESSAGE_LINES_MAX, Some(252)));
    }
}
