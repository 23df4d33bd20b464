//! [`Intake`]: memory of messages that have begun and are not complete yet, shared by all connections of a messenger.
//!
//! A frame's memory is taken when its header has come, long before its bytes need to. So the sum is bounded: a frame that finds no
//! room waits, its socket unread, until others are complete. Clients take turns, and none may hold more than its share.
//! What other daemons send has a budget of its own: no client keeps recovery or replication waiting.

use super::incoming::ConnId;
use nacre_types::{AuthName, EntityKind, Stamp};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Frames up to this length need no room to be given: connections read as much at once in any case.
pub(super) const FREE_FRAME_BYTES: usize = 64 << 10;
/// One client may hold this part of what all may: with more frames begun it waits, though there is room for others.
const CLIENT_SHARE: usize = 4;
/// A frame that is not complete after this time ends its connection, if others wait for room: its sender may hold what no
/// else gets otherwise.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// Waiting for longer than this is worth a warning.
const LONG_WAIT: Duration = Duration::from_secs(2);
/// For how long a warning is kept.
const WARNED_FOR: Duration = Duration::from_secs(60);
/// How often waiting frames are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Clients that are named at a time.
const NAMED_MAX: usize = 64;

/// Bytes that unfinished messages may take. One is let in whatever its length where nothing else is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntakeLimits {
    /// Of clients and of daemons that act as such.
    pub client_bytes: usize,
    /// Of the daemons that we dialled, and of those of our own kind.
    pub peer_bytes: usize,
}

/// How it stands with the memory of unfinished messages, and with peers that have not proved themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntakeReport {
    /// Bytes that unfinished messages of clients hold.
    pub client_bytes: usize,
    /// The same of peers.
    pub peer_bytes: usize,
    /// Frames that wait for room now.
    pub waiting: usize,
    /// Frames that had to wait, since the start.
    pub waits: u64,
    /// Connections ended since the start because their frames were not completed while others waited.
    pub stalled: u64,
    /// Connections whose peers have not proved themselves.
    pub half_open: usize,
    /// Bytes that these hold.
    pub half_open_bytes: usize,
    /// Connections turned away or ended since the start because there were too many of these.
    pub half_open_refused: u64,
    /// What to tell the operator: which peers exhausted what, of late.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Client,
    Peer,
}

/// What a frame counts for: the entity that has proved itself, as a client or as a peer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    class: Class,
    name: Option<AuthName>,
}

impl Owner {
    /// `name` is the entity that the peer has proved to be, `dialled` whether we connected to it.
    pub(super) fn of(name: Option<AuthName>, dialled: bool) -> Self {
        let is_peer = dialled || name.as_ref().is_some_and(|name| name.kind == EntityKind::OSD);
        Self { class: if is_peer { Class::Peer } else { Class::Client }, name }
    }

    fn text(&self) -> String {
        self.name.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string)
    }
}

#[derive(Debug)]
struct Held {
    owner: Owner,
    bytes: usize,
    since: Stamp,
}

#[derive(Debug)]
struct Waiting {
    conn: ConnId,
    bytes: usize,
    since: Stamp,
}

/// The books of one messenger.
#[derive(Debug, Default)]
pub(super) struct Intake {
    limits: Option<IntakeLimits>,
    held: BTreeMap<ConnId, Held>,
    sums: BTreeMap<Owner, usize>,
    waiting: BTreeMap<Owner, VecDeque<Waiting>>,
    /// The owner whose frame was let in last: the one behind it is next.
    last: Option<Owner>,
    check_at: Option<Stamp>,
    waits: u64,
    stalled: u64,
    /// Owners that held too much, with the time of the last wait for it.
    named: BTreeMap<String, (String, Stamp)>,
}

impl Intake {
    pub(super) fn limit(&mut self, limits: IntakeLimits) {
        self.limits = Some(limits);
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limits.is_some()
    }

    fn max(&self, class: Class) -> usize {
        let limits = self.limits.map(|limits| match class {
            Class::Client => limits.client_bytes,
            Class::Peer => limits.peer_bytes,
        });
        limits.unwrap_or(usize::MAX)
    }

    fn used(&self, class: Class) -> usize {
        let of_class = self.sums.iter().filter(|(owner, _)| owner.class == class);
        of_class.map(|(_, bytes)| bytes).sum()
    }

    fn own(&self, owner: &Owner) -> usize {
        self.sums.get(owner).copied().unwrap_or(0)
    }

    /// What a frame of so many bytes counts for. A client's may be longer than all that there is for clients: it leaves a share for others, who
    /// would wait for its end else.
    fn counted(&self, class: Class, bytes: usize) -> usize {
        match class {
            Class::Client => bytes.min(self.max(class) - self.max(class) / CLIENT_SHARE),
            Class::Peer => bytes,
        }
    }

    /// Whether the owner holds its share. One frame it may always have.
    fn is_beyond_share(&self, owner: &Owner, bytes: usize) -> bool {
        let own = self.own(owner);
        let bytes = self.counted(owner.class, bytes);
        owner.class == Class::Client && own > 0 && own + bytes > self.max(owner.class) / CLIENT_SHARE
    }

    fn is_beyond_all(&self, class: Class, bytes: usize) -> bool {
        let used = self.used(class);
        used > 0 && used + self.counted(class, bytes) > self.max(class)
    }

    fn take(&mut self, conn: ConnId, owner: Owner, bytes: usize, now: Stamp) {
        let bytes = self.counted(owner.class, bytes);
        *self.sums.entry(owner.clone()).or_default() += bytes;
        let before = self.held.insert(conn, Held { owner, bytes, since: now });
        assert!(before.is_none(), "a connection has one frame at a time");
    }

    /// Takes room for a frame that has begun; false when it has to wait. Asked again while it waits, it says so again.
    pub(super) fn admit(&mut self, conn: ConnId, owner: &Owner, bytes: usize, now: Stamp) -> bool {
        // What waits already goes first.
        let first = self.waiting.keys().all(|other| other.class != owner.class);
        if first && !self.is_beyond_share(owner, bytes) && !self.is_beyond_all(owner.class, bytes) {
            self.take(conn, owner.clone(), bytes, now);
            return true;
        }
        let queue = self.waiting.entry(owner.clone()).or_default();
        if queue.iter().all(|other| other.conn != conn) {
            queue.push_back(Waiting { conn, bytes, since: now });
            self.waits += 1;
            self.check_at.get_or_insert(now + CHECK_INTERVAL);
        }
        false
    }

    /// A frame is complete, or its connection has ended.
    pub(super) fn give_back(&mut self, conn: ConnId) {
        let Some(held) = self.held.remove(&conn) else { return };
        if let Some(sum) = self.sums.get_mut(&held.owner) {
            *sum -= held.bytes;
            if *sum == 0 {
                self.sums.remove(&held.owner);
            }
        }
    }

    /// A connection has ended.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.give_back(conn);
        if self.waiting.is_empty() {
            return;
        }
        self.waiting.values_mut().for_each(|queue| queue.retain(|waiting| waiting.conn != conn));
        self.waiting.retain(|_, queue| !queue.is_empty());
    }

    /// The next connection whose frame has found room, which it has from now on. Owners take turns; one that waits for room that
    /// others hold lets none pass, or a long frame would wait for ever.
    pub(super) fn next_admitted(&mut self, now: Stamp) -> Option<ConnId> {
        [Class::Client, Class::Peer].into_iter().find_map(|class| self.next_of(class, now))
    }

    fn next_of(&mut self, class: Class, now: Stamp) -> Option<ConnId> {
        let behind = |owner: &&Owner| self.last.as_ref().is_some_and(|last| *owner > last);
        let of_class = || self.waiting.keys().filter(|owner| owner.class == class);
        let in_turn = of_class().filter(behind).chain(of_class().filter(|owner| !behind(owner)));
        let next_bytes = |owner: &Owner| {
            self.waiting.get(owner).and_then(|queue| queue.front()).map_or(0, |next| next.bytes)
        };
        let owner = { in_turn }.find(|owner| !self.is_beyond_share(owner, next_bytes(owner)))?.clone();
        if self.is_beyond_all(class, next_bytes(&owner)) {
            return None;
        }
        let queue = self.waiting.get_mut(&owner)?;
        let next = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&owner);
        }
        self.last = Some(owner.clone());
        self.take(next.conn, owner, next.bytes, now);
        Some(next.conn)
    }

    /// When [`Intake::check`] is due.
    pub(super) fn next_deadline(&self) -> Option<Stamp> {
        self.check_at
    }

    /// Notes which owners make others wait for long, and yields the connections that do so by never completing what they began.
    pub(super) fn check(&mut self, now: Stamp) -> Vec<ConnId> {
        if self.check_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.check_at = (!self.waiting.is_empty()).then(|| now + CHECK_INTERVAL);
        let mut late = Vec::new();
        for (owner, queue) in &self.waiting {
            let Some(oldest) = queue.front().filter(|oldest| now.since(oldest.since) > LONG_WAIT) else {
                continue;
            };
            let own = self.is_beyond_share(owner, oldest.bytes);
            let culprit = if own { Some(owner) } else { self.largest(owner.class) };
            late.extend(culprit.map(Owner::text));
        }
        for name in late {
            let text =
                format!("{name} holds as much memory for unfinished messages as it may, so that they wait");
            if self.named.len() < NAMED_MAX || self.named.contains_key(&name) {
                self.named.insert(name, (text, now));
            }
        }
        self.named.retain(|_, (_, at)| now.since(*at) < WARNED_FOR);
        let is_stalled = |held: &Held| {
            now.since(held.since) > STALLED_AFTER
                && self.waiting.keys().any(|owner| owner.class == held.owner.class)
        };
        let stalled: Vec<ConnId> =
            self.held.iter().filter(|(_, held)| is_stalled(held)).map(|(conn, _)| *conn).collect();
        self.stalled += stalled.len() as u64;
        stalled
    }

    fn largest(&self, class: Class) -> Option<&Owner> {
        let of_class = self.sums.iter().filter(|(owner, _)| owner.class == class);
        of_class.max_by_key(|(_, bytes)| **bytes).map(|(owner, _)| owner)
    }

    pub(super) fn report(&self, now: Stamp) -> IntakeReport {
        let recent = self.named.values().filter(|(_, at)| now.since(*at) < WARNED_FOR);
        IntakeReport {
            client_bytes: self.used(Class::Client),
            peer_bytes: self.used(Class::Peer),
            waiting: self.waiting.values().map(VecDeque::len).sum(),
            waits: self.waits,
            stalled: self.stalled,
            warnings: recent.map(|(text, _)| text.clone()).collect(),
            ..IntakeReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn client(id: &str) -> Owner {
        Owner::of(Some(AuthName::new(EntityKind::CLIENT, id)), false)
    }

    fn intake() -> Intake {
        let mut intake = Intake::default();
        intake.limit(IntakeLimits { client_bytes: 64 * MIB, peer_bytes: 64 * MIB });
        intake
    }

    fn at(s: u64) -> Stamp {
        Stamp(s * 1_000_000_000)
    }

    #[test]
    fn one_client_holds_its_share_and_others_pass() {
        let mut intake = intake();
        let begun = (0..100).filter(|conn| intake.admit(ConnId(*conn), &client("a"), 4 * MIB, at(1))).count();
        assert_eq!(begun, 4);
        assert!(!intake.admit(ConnId(200), &client("b"), 4 * MIB, at(1)), "it is asked in its turn");
        assert_eq!(intake.next_admitted(at(1)), Some(ConnId(200)));
        assert_eq!(intake.next_admitted(at(1)), None);
        intake.give_back(ConnId(0));
        assert_eq!(intake.next_admitted(at(1)), Some(ConnId(4)), "in the order in which they asked");
        assert!(intake.check(at(4)).is_empty());
        assert!(intake.report(at(4)).warnings[0].starts_with("client.a "));
        assert!(intake.report(at(100)).warnings.is_empty());
    }

    #[test]
    fn the_sum_is_bounded_and_what_is_longer_than_all_leaves_a_share_for_others() {
        let mut intake = intake();
        for conn in 0..100 {
            intake.admit(ConnId(conn), &client(&conn.to_string()), 10 * MIB, at(1));
        }
        while intake.next_admitted(at(1)).is_some() {}
        assert_eq!(intake.report(at(1)).client_bytes, 60 * MIB);
        // Peers have their own.
        let osd = Owner::of(Some(AuthName::new(EntityKind::OSD, "1")), false);
        assert!(intake.admit(ConnId(500), &osd, 96 * MIB, at(1)));
        (0..100).for_each(|conn| intake.forget(ConnId(conn)));
        assert_eq!(intake.report(at(1)).waiting, 0);
        assert!(intake.admit(ConnId(600), &client("large"), 96 * MIB, at(1)));
        assert!(
            intake.admit(ConnId(601), &client("b"), 16 * MIB, at(1)),
            "whether it ever comes to its end or not"
        );
        assert!(!intake.admit(ConnId(602), &client("c"), MIB, at(1)));
    }

    #[test]
    fn who_never_completes_a_frame_loses_the_connection_when_others_wait() {
        let mut intake = intake();
        assert!(intake.admit(ConnId(1), &client("a"), 60 * MIB, at(1)));
        assert!(intake.admit(ConnId(3), &client("c"), 16 * MIB, at(999)));
        assert!(intake.check(at(1000)).is_empty(), "nobody waits");
        assert!(!intake.admit(ConnId(2), &client("b"), 10 * MIB, at(1000)));
        assert_eq!(intake.check(at(1001)), [ConnId(1)]);
        intake.forget(ConnId(1));
        assert_eq!(intake.next_admitted(at(1001)), Some(ConnId(2)));
        assert_eq!(intake.report(at(1001)).stalled, 1);
    }

    #[test]
    fn one_client_does_not_keep_the_turn() {
        let mut intake = intake();
        assert!(intake.admit(ConnId(0), &client("x"), 64 * MIB, at(1)));
        assert!(intake.admit(ConnId(12), &client("y"), 16 * MIB, at(1)), "its share");
        for conn in 1..=10 {
            assert!(!intake.admit(ConnId(conn), &client("a"), MIB, at(1)));
        }
        assert!(!intake.admit(ConnId(11), &client("b"), MIB, at(1)));
        intake.give_back(ConnId(0));
        let order: Vec<u64> = std::iter::from_fn(|| intake.next_admitted(at(1))).map(|conn| conn.0).collect();
        assert_eq!(order[..3], [1, 11, 2]);
        assert_eq!(order.len(), 11);
    }
}
