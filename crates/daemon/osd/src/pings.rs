//! [`Pings`]: heartbeats over sockets. What they mean is core/heartbeat's to decide.

use crate::links::{Link, WAITING_MAX};
use crate::osd_addrs::OsdAddrs;
use nacre_heartbeat::{Effect, Event, Heartbeats, Leases, Settings, Side};
use nacre_maps::OsdMap;
use nacre_msg::{Message, OsdPing, ping_op};
use nacre_msgr::Session;
use nacre_options::Values;
use nacre_osd_core::heartbeat_targets;
use nacre_service::{ConnId, Messenger};
use nacre_types::{AddrVec, EntityKind, Epoch, OsdId, Stamp, UTime, Uuid, seconds};
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a ping: so large that a network which loses large packets is noticed, as in Ceph.
const PING_BYTES_MIN: u32 = 2000;

/// Heartbeats of one OSD.
pub(crate) struct Pings {
    machine: Heartbeats,
    pub(crate) leases: Leases,
    links: BTreeMap<(OsdId, Side), Link>,
    effects: Vec<Effect>,
}

/// What the monitor is to hear of a peer.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It does not answer.
    Failed { osd: OsdId, silent_for: Duration, immediate: bool },
    /// It answers again.
    Alive { osd: OsdId },
}

/// What goes into every ping and every answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) fsid: Uuid,
    pub(crate) map_epoch: Epoch,
    pub(crate) up_from: Epoch,
    pub(crate) wall: UTime,
}

fn nanoseconds(stamp: Stamp) -> i64 {
    i64::try_from(stamp.0).unwrap_or(i64::MAX)
}

fn settings(options: &Values) -> Settings {
    Settings {
        interval: options.seconds("osd_heartbeat_interval"),
        grace: options.seconds("osd_heartbeat_grace"),
        fast_fail: options.flag("osd_fast_fail_on_connection_refused"),
    }
}

/// Length of a read lease. Shorter than the grace, so that it has run out when the monitor marks an OSD down for its
/// silence, and nobody has to wait.
fn lease(options: &Values) -> Duration {
    let ratio = options.number("osd_pool_default_read_lease_ratio").clamp(0.0, 1.0);
    seconds(options.seconds("osd_heartbeat_grace").as_secs_f64() * ratio)
}

impl Pings {
    pub(crate) fn new(options: &Values, now: Stamp) -> Self {
        let (machine, leases) = (Heartbeats::new(settings(options), now), Leases::new(lease(options), now));
        Self { machine, leases, links: BTreeMap::new(), effects: Vec::new() }
    }

    pub(crate) fn set(&mut self, options: &Values) {
        self.machine.set(settings(options));
        self.leases.set_length(lease(options));
    }

    /// Whom it watches.
    pub(crate) fn peers(&self) -> BTreeSet<OsdId> {
        self.machine.peers()
    }

    pub(crate) fn is_healthy(&self, now: Stamp) -> bool {
        self.machine.is_healthy(now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        let links = self.links.values().filter_map(Link::next_deadline);
        links.chain(self.machine.next_deadline()).min()
    }

    /// Follows the map, and who shares PGs with us.
    pub(crate) fn follow(
        &mut self,
        now: Stamp,
        map: &OsdMap,
        sharers: &BTreeSet<OsdId>,
        count_min: usize,
        me: (OsdId, &OsdAddrs),
        messenger: &mut Messenger,
    ) {
        let targets = heartbeat_targets(map, me.0, sharers, count_min);
        let mut wanted: BTreeMap<(OsdId, Side), AddrVec> = BTreeMap::new();
        for target in &targets {
            let Some((back, front)) = target.addrs else { continue };
            wanted.insert((target.osd, Side::Back), back.clone());
            wanted.insert((target.osd, Side::Front), front.clone());
        }
        let stale = |key: &(OsdId, Side), link: &Link| wanted.get(key) != Some(link.addrs());
        let ended: Vec<_> =
            self.links.iter().filter(|(key, link)| stale(key, link)).map(|(key, _)| *key).collect();
        ended.into_iter().filter_map(|key| self.links.remove(&key)).for_each(|link| link.end(messenger));
        for (key, addrs) in wanted {
            let msgr_config = match key.1 {
                Side::Back => &me.1.hb_back,
                Side::Front => &me.1.hb_front,
            };
            let dial = || Link::new(EntityKind::OSD, addrs, Some(Arc::clone(msgr_config)), WAITING_MAX);
            self.links.entry(key).or_insert_with(dial);
        }
        let peers = targets.into_iter().map(|target| (target.osd, target.up_from)).collect();
        self.machine.handle(now, Event::Peers(peers));
    }

    /// Ends all links; the next [`Pings::follow`] begins them anew.
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

    /// Nobody listens where a peer was.
    pub(crate) fn refused(&mut self, osd: OsdId, now: Stamp) {
        self.machine.handle(now, Event::Refused(osd));
    }

    pub(crate) fn monitor_opened(&mut self, now: Stamp) {
        self.machine.handle(now, Event::MonitorOpened);
    }

    pub(crate) fn tick(&mut self, now: Stamp) {
        if self.machine.next_deadline().is_some_and(|at| at <= now) {
            self.machine.handle(now, Event::Tick);
        }
    }

    /// A message on a connection that we dialled; false when it is none of these.
    pub(crate) fn heard(&mut self, conn: ConnId, ping: &OsdPing, now: Stamp) -> bool {
        let Some((osd, side)) = self.key_of(conn) else { return false };
        match ping.op {
            ping_op::PING_REPLY => {
                let sent = Stamp(u64::try_from(ping.mono_ping_stamp_ns).unwrap_or(0));
                self.machine.handle(now, Event::Pong { osd, side, sent });
                let promised = ping.delta_ub_ns.and_then(|ns| u64::try_from(ns).ok());
                if let Some(length) = promised.map(Duration::from_nanos) {
                    self.leases.grant(osd, sent, length);
                }
            }
            op => tracing::debug!(osd, op, epoch = ping.map_epoch, "a peer's word in a heartbeat"),
        }
        true
    }

    /// Sends what is due and yields what the monitor is to hear.
    pub(crate) fn carry_out(&mut self, signature: &Signature, messenger: &mut Messenger) -> Vec<Verdict> {
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.drain(&mut effects);
        let mut verdicts = Vec::new();
        for effect in effects.drain(..) {
            match effect {
                Effect::Ping { osd, sent } => self.ping(osd, sent, signature, messenger),
                Effect::Failed { osd, silent_for, immediate } => {
                    verdicts.push(Verdict::Failed { osd, silent_for, immediate });
                }
                Effect::Alive { osd } => verdicts.push(Verdict::Alive { osd }),
            }
        }
        self.effects = effects;
        verdicts
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

/// The answer to a ping, with a promise if we give one. It travels in a field for differences of clocks, which
/// Ceph's OSDs use for the same end and ours have no use for.
pub(crate) fn pong(ping: OsdPing, signature: &Signature, promised: Option<Duration>, now: Stamp) -> OsdPing {
    OsdPing {
        op: ping_op::PING_REPLY,
        map_epoch: signature.map_epoch,
        up_from: signature.up_from,
        mono_send_stamp_ns: nanoseconds(now),
        delta_ub_ns: promised.and_then(|length| i64::try_from(length.as_nanos()).ok()),
        ..ping
    }
}
