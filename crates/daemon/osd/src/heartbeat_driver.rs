//! [`HeartbeatDriver`]: heartbeats over sockets. Which OSDs are pinged `core/osd` decides, and what answers and silence mean `core/heartbeat`.

use crate::control_event::ControlEvent;
use crate::links::{Link, NetCx, WAITING_MAX};
use crate::osd_addrs::OsdAddrs;
use nacre_heartbeat::{Effect, Event, Heartbeats, Leases, PeerAnswers, PeerRoundTrips, Settings, Side};
use nacre_maps::OsdMap;
use nacre_msg::stats::PingTimes;
use nacre_msg::{LEAST_PINGS_COUNT_MAX, LeastPing, Message, OsdPing, RawMessage, ping_op};
use nacre_msgr::Session;
use nacre_options::Values;
use nacre_osd_core::{ControlPlane, MapCache, MapSource, heartbeat_targets, ping_notice};
use nacre_service::{ConnId, Messenger};
use nacre_types::{AddrVec, EntityKind, Epoch, OsdId, Stamp, UTime, Uuid, seconds};
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a ping: so large that a network which loses large packets is noticed, as in Ceph.
const PING_BYTES_MIN: u32 = 2000;

/// Heartbeats of one OSD: two connections that it dials to each of those that it pings, and the promises that ride on the answers.
pub(crate) struct HeartbeatDriver {
    osd: OsdId,
    fsid: Uuid,
    plane: ControlPlane,
    machine: Heartbeats,
    pub(crate) leases: Leases,
    links: BTreeMap<(OsdId, Side), Link>,
    /// When a ping of each came last, whether we ping it or not; of OSDs for which the map has a place.
    heard: BTreeMap<OsdId, Heard>,
    effects: Vec<Effect>,
}

/// The last ping of a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard {
    pub(crate) at: Stamp,
    /// On which connection it came, and the segments that had come there by then.
    pub(crate) conn: ConnId,
    pub(crate) segments: u64,
}

/// What the monitor is to hear of a peer.
#[derive(Debug)]
pub(crate) enum PeerReport {
    /// It does not answer.
    Failed { osd: OsdId, silent_for: Duration, immediate: bool },
    /// It answers again.
    Alive { osd: OsdId },
}

/// What goes into every ping and every answer.
#[derive(Debug, Clone, Copy)]
struct Signature {
    fsid: Uuid,
    map_epoch: Epoch,
    up_from: Epoch,
    wall: UTime,
}

fn nanoseconds(stamp: Stamp) -> i64 {
    i64::try_from(stamp.0).unwrap_or(i64::MAX)
}

fn settings(options: &Values) -> Settings {
    Settings {
        interval: options.seconds("osd_heartbeat_interval"),
        grace: options.seconds("osd_heartbeat_grace"),
        fast_fail: options.flag("osd_fast_fail_on_connection_refused"),
        minute: match options.seconds("debug_heartbeat_testing_span") {
            Duration::ZERO => Duration::from_secs(60),
            span => span,
        },
    }
}

/// Length of a read lease. Shorter than the grace, so that it has run out when the monitor marks an OSD down for its
/// silence, and nobody has to wait.
fn lease(options: &Values) -> Duration {
    let ratio = options.number("osd_pool_default_read_lease_ratio").clamp(0.0, 1.0);
    seconds(options.seconds("osd_heartbeat_grace").as_secs_f64() * ratio)
}

impl HeartbeatDriver {
    /// Of `osd` in the cluster `fsid`, with nobody to ping yet.
    pub(crate) fn new((osd, fsid, plane): (OsdId, Uuid, ControlPlane), options: &Values, now: Stamp) -> Self {
        let (machine, leases) = (Heartbeats::new(settings(options), now), Leases::new(lease(options), now));
        Self {
            osd,
            fsid,
            plane,
            machine,
            leases,
            links: BTreeMap::new(),
            heard: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    fn signature(&self, map: &OsdMap, wall: UTime) -> Signature {
        Signature { fsid: self.fsid, map_epoch: map.epoch, up_from: map.info(self.osd).up_from, wall }
    }

    /// Options have changed.
    pub(crate) fn set(&mut self, options: &Values) {
        self.machine.set(settings(options));
        self.leases.set_length(lease(options));
    }

    /// The OSDs that it pings.
    pub(crate) fn peers(&self) -> BTreeSet<OsdId> {
        self.machine.peers()
    }

    /// How long pings of peers took, by the clocks of this moment.
    pub(crate) fn ping_times(&self, (now, wall): (Stamp, UTime)) -> BTreeMap<OsdId, PingTimes> {
        let times = |(osd, trips): (OsdId, PeerRoundTrips)| {
            let ago = u32::try_from(now.since(trips.updated).as_secs()).unwrap_or(u32::MAX);
            let last_update = wall.sec.saturating_sub(ago);
            (osd, PingTimes { last_update, back: trips.back, front: trips.front })
        };
        self.machine.round_trips().map(times).collect()
    }

    /// How long the quickest pings of the last half minute took, of as many peers as a report may tell of.
    pub(crate) fn least_pings(&self, now: Stamp) -> Vec<LeastPing> {
        self.machine.least_pings(now).take(LEAST_PINGS_COUNT_MAX).collect()
    }

    /// How the OSDs that we ping answer.
    pub(crate) fn answers(&self, now: Stamp) -> impl Iterator<Item = (OsdId, PeerAnswers)> {
        self.machine.answers(now)
    }

    /// The last ping of that OSD; `None` where none came yet.
    pub(crate) fn heard(&self, osd: OsdId) -> Option<&Heard> {
        self.heard.get(&osd)
    }

    /// The connections for pings that we dialled.
    pub(crate) fn conns(&self) -> impl Iterator<Item = (OsdId, ConnId)> {
        self.links.iter().filter_map(|((osd, _), link)| Some((*osd, link.conn()?)))
    }

    /// Enough of the peers answer, so that it is not this OSD that is cut off.
    pub(crate) fn is_healthy(&self, now: Stamp) -> bool {
        self.machine.is_healthy(now)
    }

    /// When [`HeartbeatDriver::tick`] is due, or a link is to be dialled.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        let links = self.links.values().filter_map(Link::next_deadline);
        links.chain(self.machine.next_deadline()).min()
    }

    /// Follows the map and the OSDs that share PGs with us: dials `count_min` others at least, under our names `osd_addrs`.
    pub(crate) fn follow(
        &mut self,
        map: &OsdMap,
        sharers: &BTreeSet<OsdId>,
        count_min: usize,
        osd_addrs: &OsdAddrs,
        net: &mut NetCx<'_>,
    ) {
        let targets = heartbeat_targets(map, self.osd, sharers, count_min);
        self.heard.retain(|osd, _| has_place(map, *osd));
        let mut wanted: BTreeMap<(OsdId, Side), AddrVec> = BTreeMap::new();
        for target in &targets {
            let Some((back, front)) = target.addrs else { continue };
            wanted.insert((target.osd, Side::Back), back.clone());
            wanted.insert((target.osd, Side::Front), front.clone());
        }
        let is_stale = |key: &(OsdId, Side), link: &mut Link| wanted.get(key) != Some(link.addrs());
        self.links.extract_if(.., is_stale).for_each(|(_, link)| link.end(net.messenger));
        for (key, addrs) in wanted {
            let msgr_config = match key.1 {
                Side::Back => &osd_addrs.hb_back,
                Side::Front => &osd_addrs.hb_front,
            };
            let dial = || Link::new(EntityKind::OSD, addrs, Some(Arc::clone(msgr_config)), WAITING_MAX);
            self.links.entry(key).or_insert_with(dial);
        }
        let peers = targets.into_iter().map(|target| (target.osd, target.up_from)).collect();
        self.machine.handle(net.now, Event::Peers(peers));
    }

    /// Ends all links; the next [`HeartbeatDriver::follow`] begins them anew.
    pub(crate) fn hang_up(&mut self, messenger: &mut Messenger) {
        std::mem::take(&mut self.links).into_values().for_each(|link| link.end(messenger));
    }

    pub(crate) fn links(&mut self) -> btree_map::ValuesMut<'_, (OsdId, Side), Link> {
        self.links.values_mut()
    }

    fn key_of(&self, conn: ConnId) -> Option<(OsdId, Side)> {
        self.links.iter().find(|(_, link)| link.conn() == Some(conn)).map(|(key, _)| *key)
    }

    /// A connection is gone; false when it was none of these.
    pub(crate) fn closed(
        &mut self,
        conn: ConnId,
        session: Option<Box<Session>>,
        refused: bool,
        now: Stamp,
    ) -> bool {
        let Some(key) = self.key_of(conn) else { return false };
        if let Some(link) = self.links.get_mut(&key) {
            link.closed(session, now);
        }
        if refused {
            self.refused(key.0, now);
        }
        true
    }

    /// A connection that we dialled is open.
    pub(crate) fn opened(&mut self, conn: ConnId, now: Stamp) {
        if let Some((osd, _)) = self.key_of(conn) {
            self.machine.handle(now, Event::Opened(osd));
        }
    }

    /// Nobody listens where a peer was: its process is gone.
    pub(crate) fn refused(&mut self, osd: OsdId, now: Stamp) {
        self.machine.handle(now, Event::Refused(osd));
    }

    /// A session with a monitor is open, which hears again which peers do not answer.
    pub(crate) fn monitor_opened(&mut self, now: Stamp) {
        self.machine.handle(now, Event::MonitorOpened);
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now: Stamp) {
        if self.machine.next_deadline().is_some_and(|at| at <= now) {
            self.machine.handle(now, Event::Tick);
        }
    }

    /// A message on a connection that we dialled.
    pub(crate) fn message(
        &mut self,
        conn: ConnId,
        raw: RawMessage,
        (map, now): (&OsdMap, Stamp),
        events: &mut Vec<ControlEvent>,
    ) {
        if self.key_of(conn).is_none() {
            // Of a client or peer whose session has ended in this turn: nobody waits for an answer.
            return;
        }
        match Message::decode(raw) {
            Ok(Message::OsdPing(ping)) => {
                if ping.fsid == self.fsid {
                    self.answered(conn, &ping, map, now);
                }
                events.push(ControlEvent::Leases(Arc::new(self.leases.clone())));
            }
            // The other one is ahead of us: our monitor may be slow, or cut off.
            Ok(Message::MOsdMap(maps)) => events.push(ControlEvent::Maps(Box::new(maps), MapSource::Peer)),
            Ok(other) => tracing::debug!(name = other.name(), "unexpected message in a heartbeat"),
            Err(error) => tracing::error!(%error, "a peer's heartbeat does not decode"),
        }
    }

    fn answered(&mut self, conn: ConnId, ping: &OsdPing, map: &OsdMap, now: Stamp) {
        let Some((osd, side)) = self.key_of(conn) else { return };
        match ping.op {
            ping_op::PING_REPLY => {
                let sent = Stamp(u64::try_from(ping.mono_ping_stamp_ns).unwrap_or(0));
                self.machine.handle(now, Event::Pong { osd, side, sent });
                // What others put there is a difference of clocks.
                let promised = ping.delta_ub_ns.filter(|_| self.plane.is_ours(map, osd));
                let promised = promised.and_then(|ns| u64::try_from(ns).ok());
                if let Some(length) = promised.map(Duration::from_nanos) {
                    self.leases.grant(osd, sent, length);
                }
            }
            op => tracing::debug!(osd, op, epoch = ping.map_epoch, "a peer's word in a heartbeat"),
        }
    }

    /// A peer's message at our listeners for heartbeats: a ping is answered, with our promise and the maps that the peer lacks.
    pub(crate) fn pinged(
        &mut self,
        conn: ConnId,
        from: OsdId,
        raw: RawMessage,
        maps: &MapCache,
        net: &mut NetCx<'_>,
    ) {
        let ping = match Message::decode(raw) {
            Ok(Message::OsdPing(ping)) if ping.fsid == self.fsid && ping.op == ping_op::PING => ping,
            Ok(other) => {
                return tracing::debug!(from, name = other.name(), "no ping at our listeners for them");
            }
            Err(error) => return tracing::error!(from, %error, "a peer's heartbeat does not decode"),
        };
        let (map, theirs) = (maps.newest(), ping.map_epoch);
        if has_place(map, from) {
            let segments = net.messenger.tcp_counts(conn).map_or(0, |counts| counts.received);
            self.heard.insert(from, Heard { at: net.now, conn, segments });
        }
        let signature = self.signature(map, net.wall);
        let notice = ping_notice(map, from, theirs, self.plane);
        let promised = notice.promise.then(|| self.leases.promise(from, net.now));
        let answer = pong(ping, &signature, promised, net.now);
        if notice.you_died {
            let word = OsdPing { op: ping_op::YOU_DIED, ..answer };
            net.messenger.send(conn, Message::from(word).encode(0));
        }
        net.messenger.send(conn, Message::from(answer).encode(0));
        // What we do not have the monitor will give it.
        if notice.maps
            && let Some(maps) = maps.message_for_osd(theirs)
        {
            net.messenger.send(conn, Message::from(maps).encode(0));
        }
    }

    /// Sends what is due and yields what the monitor is to hear.
    pub(crate) fn execute_effects(&mut self, map: &OsdMap, net: &mut NetCx<'_>) -> Vec<PeerReport> {
        let signature = self.signature(map, net.wall);
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.drain(&mut effects);
        let mut reports = Vec::new();
        for effect in effects.drain(..) {
            match effect {
                Effect::Ping { osd, sent } => self.ping(osd, sent, &signature, net.messenger),
                Effect::Failed { osd, silent_for, immediate } => {
                    reports.push(PeerReport::Failed { osd, silent_for, immediate });
                }
                Effect::Alive { osd } => reports.push(PeerReport::Alive { osd }),
            }
        }
        self.effects = effects;
        reports
    }

    /// A link that is not open misses this ping: it counts as not answered, as it should.
    fn ping(&mut self, osd: OsdId, sent: Stamp, signature: &Signature, messenger: &mut Messenger) {
        let ping = OsdPing {
            fsid: signature.fsid,
            map_epoch: signature.map_epoch,
            op: ping_op::PING,
            ping_stamp: signature.wall,
            min_message_bytes: PING_BYTES_MIN,
            up_from: signature.up_from,
            mono_ping_stamp_ns: nanoseconds(sent),
            mono_send_stamp_ns: nanoseconds(sent),
            delta_ub_ns: None,
        };
        for side in [Side::Back, Side::Front] {
            if let Some(link) = self.links.get_mut(&(osd, side)).filter(|link| link.is_open()) {
                link.send(messenger, Message::from(ping.clone()).encode(0));
            }
        }
    }
}

/// Whether the map counts so far: what is kept of OSDs is no more than it has.
fn has_place(map: &OsdMap, osd: OsdId) -> bool {
    usize::try_from(osd).is_ok_and(|osd| osd < map.max_osd())
}

/// The answer to a ping, with a promise if we give one. It travels in a field for differences of clocks, which
/// Ceph's OSDs use for the same end and ours have no use for.
fn pong(ping: OsdPing, signature: &Signature, promised: Option<Duration>, now: Stamp) -> OsdPing {
    OsdPing {
        op: ping_op::PING_REPLY,
        map_epoch: signature.map_epoch,
        up_from: signature.up_from,
        mono_send_stamp_ns: nanoseconds(now),
        delta_ub_ns: promised.and_then(|length| i64::try_from(length.as_nanos()).ok()),
        ..ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pings in the first minute to a peer that answers each.
    fn pings(options: &[(&str, &str)]) -> usize {
        let at =
            |tenths: u64| Stamp::default() + Duration::from_secs(1000) + Duration::from_millis(tenths * 100);
        let mut machine = Heartbeats::new(settings(&options.iter().copied().collect()), at(0));
        machine.handle(at(0), Event::Peers(BTreeMap::from([(1, 1)])));
        let (mut effects, mut count) = (Vec::new(), 0);
        for tenths in 0..600 {
            machine.handle(at(tenths), Event::Tick);
            machine.drain(&mut effects);
            for effect in effects.drain(..) {
                let Effect::Ping { osd, sent } = effect else { panic!("it answers: {effect:?}") };
                count += 1;
                for side in [Side::Back, Side::Front] {
                    machine.handle(at(tenths), Event::Pong { osd, side, sent });
                }
            }
        }
        count
    }

    #[test]
    fn pings_go_out_as_often_as_the_option_says() {
        assert_eq!(pings(&[]), 60);
        assert_eq!(pings(&[("osd_heartbeat_interval", "6")]), 10);
    }
}
