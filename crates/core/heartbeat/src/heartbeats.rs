//! [`Heartbeats`]: the state machine.

use crate::recent_pings::ANSWERS_MIN;
use crate::round_trips::RoundTrips;
use nacre_msg::LeastPing;
use nacre_msg::stats::PingWindow;
use nacre_types::{Epoch, OsdId, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Pings to one peer that may wait for answers. The oldest one says since when it is silent, the newest ones are
/// those that it may still answer; what is between is dropped first.
const UNANSWERED_MAX: usize = 64;
/// An OSD that sees fewer than one in this many of its peers is itself the one that is cut off.
const HEALTHY_ONE_IN: usize = 3;

/// What the options say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Time between pings, Ceph's `osd_heartbeat_interval`.
    pub interval: Duration,
    /// Silence that is reported, Ceph's `osd_heartbeat_grace`.
    pub grace: Duration,
    /// Report at once a peer that refuses connections, Ceph's `osd_fast_fail_on_connection_refused`.
    pub fast_fail: bool,
    /// How long a minute is in which round trips are summed up: one, but in tests; Ceph's `debug_heartbeat_testing_span`. The quickest
    /// pings are those of half of it.
    pub minute: Duration,
}

/// Which network a ping went over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The cluster network, between OSDs.
    Back,
    /// The public network, which clients use.
    Front,
}

/// What happens to the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// These are the peers now, each with the epoch in which it came up: another epoch, another instance.
    Peers(BTreeMap<OsdId, Epoch>),
    /// A peer has answered the ping that was sent at `sent`.
    Pong {
        /// Number of the peer.
        osd: OsdId,
        /// Network over which it came.
        side: Side,
        /// When the ping was sent that is answered.
        sent: Stamp,
    },
    /// A connection to the peer is open: it is pinged at once.
    Opened(OsdId),
    /// Nobody listens any more at an address of the peer.
    Refused(OsdId),
    /// A session with a monitor is open, which may know nothing of earlier reports.
    MonitorOpened,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Ping the peer on both sides; answers quote the stamp.
    Ping {
        /// Number of the OSD that failed.
        osd: OsdId,
        /// The ping's name.
        sent: Stamp,
    },
    /// Report the peer failed.
    Failed {
        /// Number of the OSD that answers again.
        osd: OsdId,
        /// For how long it has not answered.
        silent_for: Duration,
        /// Its process is gone; nobody has to wait.
        immediate: bool,
    },
    /// Take the report back.
    Alive {
        /// The peer that it was about.
        osd: OsdId,
    },
}

/// A peer that is pinged.
#[derive(Debug, Default)]
struct Watched {
    up_from: Epoch,
    /// Pings without an answer from both sides, oldest first.
    unanswered: BTreeMap<Stamp, Answers>,
    /// The report that stands at the monitor.
    reported: Option<Report>,
    back: RoundTrips,
    front: RoundTrips,
    /// Answers over both, and how long they took.
    answers: (u64, Duration),
}

/// How long pings of a peer took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRoundTrips {
    /// When the newest minute ended that is in it.
    pub updated: Stamp,
    /// Over the cluster network.
    pub back: PingWindow,
    /// Over the public network.
    pub front: PingWindow,
}

/// How a peer answers pings, both networks together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerAnswers {
    /// Answers since it is pinged.
    pub count: u64,
    /// How long they took, all together.
    pub spent: Duration,
    /// Since when pings wait for an answer over one of the networks.
    pub silent_for: Duration,
}

#[derive(Debug, Default, Clone, Copy)]
struct Answers {
    back: bool,
    front: bool,
}

#[derive(Debug, Clone, Copy)]
struct Report {
    /// The first ping without an answer.
    since: Stamp,
    immediate: bool,
}

/// See the crate's documentation.
#[derive(Debug)]
pub struct Heartbeats {
    settings: Settings,
    peers: BTreeMap<OsdId, Watched>,
    ping_at: Stamp,
    ticked_at: Stamp,
    effects: Vec<Effect>,
}

impl Watched {
    fn silent_for(&self, now: Stamp) -> Duration {
        self.unanswered.keys().next().map_or(Duration::ZERO, |oldest| now.since(*oldest))
    }

    fn pinged(&mut self, now: Stamp) {
        if self.unanswered.len() >= UNANSWERED_MAX
            && let Some(second) = self.unanswered.keys().nth(1).copied()
        {
            self.unanswered.remove(&second);
        }
        self.unanswered.entry(now).or_default();
    }

    fn answered(&mut self, side: Side, (sent, now): (Stamp, Stamp), minute: Duration) {
        let Some(answers) = self.unanswered.get_mut(&sent) else { return };
        let (answered, trips) = match side {
            Side::Back => (&mut answers.back, &mut self.back),
            Side::Front => (&mut answers.front, &mut self.front),
        };
        if !std::mem::replace(answered, true) {
            trips.note(now, now.since(sent), minute);
            self.answers = (self.answers.0 + 1, self.answers.1.saturating_add(now.since(sent)));
        }
        if answers.back && answers.front {
            // What was sent before got lost or is on its way; the peer lives either way.
            self.unanswered = self.unanswered.split_off(&sent);
            self.unanswered.remove(&sent);
        }
    }
}

impl Heartbeats {
    /// A machine without peers.
    #[must_use]
    pub fn new(settings: Settings, now: Stamp) -> Self {
        Self { settings, peers: BTreeMap::new(), ping_at: now, ticked_at: now, effects: Vec::new() }
    }

    /// Follows a change of the options.
    pub fn set(&mut self, settings: Settings) {
        self.ping_at = self.ping_at.min(self.ticked_at + settings.interval);
        self.settings = settings;
    }

    /// The peers that it watches now.
    #[must_use]
    pub fn peers(&self) -> BTreeSet<OsdId> {
        self.peers.keys().copied().collect()
    }

    /// How long pings took of those peers of which a minute has passed.
    pub fn round_trips(&self) -> impl Iterator<Item = (OsdId, PeerRoundTrips)> + '_ {
        self.peers.iter().filter_map(|(osd, peer)| {
            let (back, updated) = peer.back.window()?;
            let front = peer.front.window().map(|(window, _)| window).unwrap_or_default();
            Some((*osd, PeerRoundTrips { updated, back, front }))
        })
    }

    /// How long the quickest pings of the last half minute took, of those peers of which that is known.
    pub fn least_pings(&self, now: Stamp) -> impl Iterator<Item = LeastPing> + '_ {
        let minute = self.settings.minute;
        // With fewer pings than that in half a minute there would be enough at one time and too few at the next.
        let is_told = self.settings.interval * ANSWERS_MIN <= minute / 2;
        self.peers.iter().filter(move |_| is_told).filter_map(move |(osd, peer)| {
            let [back, front] = [&peer.back, &peer.front].map(|trips| trips.least_us(now, minute));
            let is_known = back.is_some() || front.is_some();
            let [back_us, front_us] = [back, front].map(Option::unwrap_or_default);
            is_known.then_some(LeastPing { osd: *osd, back_us, front_us })
        })
    }

    /// How the peers answer.
    pub fn answers(&self, now: Stamp) -> impl Iterator<Item = (OsdId, PeerAnswers)> + '_ {
        self.peers.iter().map(move |(osd, peer)| {
            let (count, spent) = peer.answers;
            (*osd, PeerAnswers { count, spent, silent_for: peer.silent_for(now) })
        })
    }

    /// False when most peers are silent: then it is rather this OSD that is cut off. Without peers there is
    /// nobody to tell.
    #[must_use]
    pub fn is_healthy(&self, now: Stamp) -> bool {
        let heard = self.peers.values().filter(|peer| peer.silent_for(now) < self.settings.grace).count();
        heard * HEALTHY_ONE_IN >= self.peers.len()
    }

    /// When [`Event::Tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        if self.peers.is_empty() {
            return None;
        }
        let unreported = self.peers.values().filter(|peer| peer.reported.is_none());
        let silences = unreported.filter_map(|peer| peer.unanswered.keys().next());
        silences.map(|oldest| *oldest + self.settings.grace).chain([self.ping_at]).min()
    }

    /// Takes what is to be done, in order.
    pub fn drain(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    /// Takes one event; its effects are drained after.
    pub fn handle(&mut self, now: Stamp, event: Event) {
        match event {
            Event::Peers(peers) => self.follow(peers),
            Event::Pong { osd, side, sent } => self.pong(now, osd, side, sent),
            Event::Opened(osd) => self.opened(now, osd),
            Event::Refused(osd) => self.refused(now, osd),
            Event::MonitorOpened => self.report_again(now),
            Event::Tick => self.tick(now),
        }
    }

    fn follow(&mut self, peers: BTreeMap<OsdId, Epoch>) {
        self.peers.retain(|osd, watched| peers.get(osd) == Some(&watched.up_from));
        for (osd, up_from) in peers {
            self.peers.entry(osd).or_insert_with(|| Watched { up_from, ..Watched::default() });
        }
    }

    fn pong(&mut self, now: Stamp, osd: OsdId, side: Side, sent: Stamp) {
        let Settings { grace, minute, .. } = self.settings;
        let Some(peer) = self.peers.get_mut(&osd) else { return };
        peer.answered(side, (sent, now), minute);
        if peer.reported.is_some() && peer.silent_for(now) < grace {
            peer.reported = None;
            self.effects.push(Effect::Alive { osd });
        }
    }

    fn opened(&mut self, now: Stamp, osd: OsdId) {
        let Some(peer) = self.peers.get_mut(&osd) else { return };
        peer.pinged(now);
        self.effects.push(Effect::Ping { osd, sent: now });
    }

    fn refused(&mut self, now: Stamp, osd: OsdId) {
        let Some(peer) = self.peers.get_mut(&osd).filter(|_| self.settings.fast_fail) else { return };
        if peer.reported.is_some_and(|report| report.immediate) {
            return;
        }
        let since = peer.unanswered.keys().next().copied().unwrap_or(now);
        peer.reported = Some(Report { since, immediate: true });
        self.effects.push(Effect::Failed { osd, silent_for: now.since(since), immediate: true });
    }

    fn report_again(&mut self, now: Stamp) {
        for (osd, peer) in &self.peers {
            let Some(Report { since, immediate }) = peer.reported else { continue };
            self.effects.push(Effect::Failed { osd: *osd, silent_for: now.since(since), immediate });
        }
    }

    fn tick(&mut self, now: Stamp) {
        // An OSD that was frozen for as long as this cannot say that others were silent meanwhile.
        if now.since(self.ticked_at) >= self.settings.interval + self.settings.grace / 2 {
            self.peers.values_mut().for_each(|peer| peer.unanswered.clear());
        }
        self.ticked_at = now;
        self.report_silent(now);
        if now >= self.ping_at {
            self.ping_at = now + self.settings.interval;
            self.ping_all(now);
        }
    }

    fn report_silent(&mut self, now: Stamp) {
        for (osd, peer) in &mut self.peers {
            let silent_for = peer.silent_for(now);
            let Some(since) = peer.unanswered.keys().next().copied() else { continue };
            if peer.reported.is_none() && silent_for >= self.settings.grace {
                peer.reported = Some(Report { since, immediate: false });
                self.effects.push(Effect::Failed { osd: *osd, silent_for, immediate: false });
            }
        }
    }

    fn ping_all(&mut self, now: Stamp) {
        for (osd, peer) in &mut self.peers {
            peer.pinged(now);
            self.effects.push(Effect::Ping { osd: *osd, sent: now });
        }
    }
}
