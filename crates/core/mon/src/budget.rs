//! How many changes a client may ask for: each is an epoch of a map or a record of the store, which every daemon learns or
//! keeps, so one client in a loop would keep all of them busy. What is too fast waits for its turn; what waits too much is refused.

use crate::cluster_log::TEXT_BYTES_MAX;
use crate::event::SessionId;
use nacre_buf::BufList;
use nacre_msg::{CommandReply, Message, MgrCommandReply, MonCommand, MonCommandAck};
use nacre_types::{AuthName, EntityKind, Epoch, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// When changes of so many bytes wait to be committed, other messages that bring some wait for that commit.
pub(crate) const PENDING_BYTES_MAX: usize = 32 << 20;
/// What one message adds at most, when it was let in just before that: a daemon's boot with facts about itself, or [`LOG_BYTES_MAX`].
const MESSAGE_BYTES_MAX: usize = 20 << 20;
/// Entries that one message adds to the cluster log, all texts cut to their greatest length, with all around them.
const LOG_BYTES_MAX: usize = LOG_ENTRIES_PER_MESSAGE_MAX * (TEXT_BYTES_MAX + 2048);
/// Entries taken from one log message.
pub(crate) const LOG_ENTRIES_PER_MESSAGE_MAX: usize = 1000;
/// An epoch of the OSDs' map, as a change and whole; the largest part by far is CRUSH.
const OSDMAP_BYTES_MAX: usize = 2 * (CRUSH_BYTES_MAX + (10 << 20));
/// Longest CRUSH map that a command brings: that of 100,000 OSDs.
pub(crate) const CRUSH_BYTES_MAX: usize = 8 << 20;
/// Input of a command (`-i FILE`): more than any command takes. It is refused where the client is connected: a link between monitors carries no
/// more than its queue holds.
pub(crate) const INPUT_BYTES_MAX: usize = CRUSH_BYTES_MAX + (4 << 20);
/// Messages that wait in the leader, together.
pub(crate) const DELAYED_BYTES_MAX: usize = 256 << 20;
/// No batch is longer. The monitors' log takes longer ones: their driver asserts it.
pub const BATCH_BYTES_MAX: usize = PENDING_BYTES_MAX + MESSAGE_BYTES_MAX + OSDMAP_BYTES_MAX;

const _: () = assert!(LOG_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(nacre_msg::size::FRONT_BYTES_MAX as usize <= MESSAGE_BYTES_MAX);

/// Kinds of changes, counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// Snapshots and pools, as librados asks for them.
    PoolOp,
    /// Commands that change something.
    Command,
}

/// A change that waits for its client's budget.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) session: SessionId,
    pub(crate) tid: u64,
    pub(crate) message: Message,
}

/// The answer to a command that is not carried out, of the kind that its sender waits for; `version` is that of the map that is to come.
pub(crate) fn command_refused(command: &Message, version: Epoch, result: i32, status: String) -> Message {
    let data = BufList::new();
    match command {
        Message::MonCommand(MonCommand { cmd, .. }) => {
            MonCommandAck { version: version.into(), result, status, cmd: cmd.clone(), data }.into()
        }
        Message::MgrCommand(_) => MgrCommandReply { result, status, data }.into(),
        _ => CommandReply { result, status, data }.into(),
    }
}

/// What may be asked for at once, and per second from then on.
#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: u32,
    per_s: u32,
}

impl Change {
    const fn of_one(self) -> Rate {
        match self {
            Self::PoolOp => Rate { burst: 64, per_s: 10 },
            Self::Command => Rate { burst: 500, per_s: 50 },
        }
    }

    const fn of_all(self) -> Rate {
        match self {
            Self::PoolOp => Rate { burst: 256, per_s: 40 },
            Self::Command => Rate { burst: 2000, per_s: 200 },
        }
    }

    /// What a client is told that has too many waiting.
    pub(crate) fn refusal(self, name: &AuthName) -> String {
        let what = match self {
            Self::PoolOp => "snapshots and pools",
            Self::Command => "commands that change something",
        };
        format!("{name} asks for more {what} than {} per second: try again later", self.of_one().per_s)
    }
}

/// A token bucket, in thousandths.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    level: u64,
    at: Stamp,
}

impl Bucket {
    const fn full(rate: Rate, now: Stamp) -> Self {
        Self { level: rate.burst as u64 * 1000, at: now }
    }

    fn fill(&mut self, rate: Rate, now: Stamp) {
        let passed = u64::try_from(now.since(self.at).as_millis()).unwrap_or(u64::MAX);
        if passed > 0 {
            let more = passed.saturating_mul(rate.per_s.into());
            self.level = self.level.saturating_add(more).min(u64::from(rate.burst) * 1000);
            self.at = now;
        }
    }
}

/// How long the health warning stays after a client had to wait.
const WARN_FOR: Duration = Duration::from_secs(60);

/// The budgets of all clients. One is kept only while it is not full, so their count is bounded by what all may ask for.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    all: BTreeMap<Change, Bucket>,
    each: BTreeMap<(AuthName, Change), Bucket>,
    /// The clients that had to wait: how often, and when last.
    throttled: BTreeMap<AuthName, (u64, Stamp)>,
    now: Stamp,
}

impl Budgets {
    /// Takes what one change costs; false when there is nothing left, and then nothing is taken. Daemons do what they must.
    pub(crate) fn take(&mut self, now: Stamp, name: &AuthName, change: Change) -> bool {
        if name.kind != EntityKind::CLIENT {
            return true;
        }
        let all = self.all.entry(change).or_insert_with(|| Bucket::full(change.of_all(), now));
        all.fill(change.of_all(), now);
        let own =
            self.each.entry((name.clone(), change)).or_insert_with(|| Bucket::full(change.of_one(), now));
        own.fill(change.of_one(), now);
        let enough = all.level >= 1000 && own.level >= 1000;
        if enough {
            all.level -= 1000;
            own.level -= 1000;
        }
        enough
    }

    /// A change had to wait.
    pub(crate) fn note_wait(&mut self, now: Stamp, name: &AuthName) {
        let entry = self.throttled.entry(name.clone()).or_insert((0, now));
        entry.0 += 1;
        entry.1 = now;
    }

    /// Forgets what is over.
    pub(crate) fn tick(&mut self, now: Stamp) {
        self.now = now;
        self.each.retain(|(_, change), bucket| {
            bucket.fill(change.of_one(), now);
            bucket.level < u64::from(change.of_one().burst) * 1000
        });
        self.throttled.retain(|_, (_, at)| now.since(*at) < WARN_FOR);
    }

    /// Clients whose changes had to wait in the last minute, and how many of them.
    pub(crate) fn throttled(&self) -> impl Iterator<Item = (&AuthName, u64)> {
        self.throttled.iter().map(|(name, (count, _))| (name, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(id: &str) -> AuthName {
        AuthName::new(EntityKind::CLIENT, id)
    }

    #[test]
    fn one_client_in_a_loop_gets_its_rate_and_others_theirs() {
        let mut budgets = Budgets::default();
        let taken = |budgets: &mut Budgets, id: &str, ms: u64| {
            let now = Stamp(ms * 1_000_000);
            (0..1000).filter(|_| budgets.take(now, &name(id), Change::PoolOp)).count()
        };
        assert_eq!(taken(&mut budgets, "a", 1000), 64);
        assert_eq!(taken(&mut budgets, "a", 2000), 10);
        assert_eq!(taken(&mut budgets, "b", 2000), 64);
        assert_eq!(taken(&mut budgets, "a", 3500), 15);
        budgets.tick(Stamp(4_000_000_000));
        assert_eq!(budgets.each.len(), 2);
        budgets.tick(Stamp(60_000_000_000));
        assert!(budgets.each.is_empty());
    }

    #[test]
    fn all_clients_together_are_bounded_and_daemons_are_not() {
        let mut budgets = Budgets::default();
        let taken: usize = (0..100)
            .map(|id| {
                (0..64).filter(|_| budgets.take(Stamp(1), &name(&id.to_string()), Change::PoolOp)).count()
            })
            .sum();
        assert_eq!(taken, 256);
        let osd = AuthName::new(EntityKind::OSD, "0");
        assert!((0..1000).all(|_| budgets.take(Stamp(1), &osd, Change::Command)));
    }
}
