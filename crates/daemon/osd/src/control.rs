//! [`OsdControl`]: what an OSD does once, on its first shard: the session with the monitor, boot, maps, links to
//! the other OSDs and to the manager.

mod boot;
mod manager;
mod mon_requests;

pub(crate) use mon_requests::MonRequest;

use crate::config::OsdConfig;
use crate::links::{Dialler, Link};
use crate::maps::{self, LearnError, MapCache, Source};
use crate::osd_addrs::{Listeners, OsdAddrs};
use crate::pings::{Pings, Signature, Verdict, pong};
use crate::shard_msg::ShardReport;
use nacre_auth::{ClientAuth, Offer, RotatingKeys};
use nacre_denc::Decode;
use nacre_heartbeat::Leases;
use nacre_maps::{MgrMap, OsdMap};
use nacre_monc::{Config as MoncConfig, Context, Effect, Event, Interest, LinkEvent, LinkId, MonClient};
use nacre_msg::peer::PeerVersions;
use nacre_msg::{
    EntityCaps, Message, MonGetOsdMap, OsdFailure, RawMessage, VoidTickets, failure_flag, ping_op,
};
use nacre_msgr::{Config as MsgrConfig, Event as ConnEvent, Peer, Session, Target};
use nacre_options::Values;
use nacre_osd_core::{
    Boot, Event as BootEvent, Merges, ends_connection, keeps_maps_until, peer_targets, ping_notice,
};
use nacre_pg::{Planted, Tuning};
use nacre_service::{ConnId, Messenger, mon_link_event};
use nacre_types::{AuthName, EntityKind, Entropy, OsdId, Stamp, UTime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What the monitor's side of things brought for the shard.
#[derive(Debug)]
pub(crate) enum ControlEvent {
    /// A message with maps.
    Maps(Box<nacre_msg::MOsdMap>, Source),
    /// Secrets of the service.
    Keys(RotatingKeys),
    /// Tickets that hold no more.
    Void(VoidTickets),
    /// Caps that tickets say otherwise.
    Caps(EntityCaps),
    /// PGs to create.
    Create(Box<nacre_msg::OsdPgCreate2>),
    /// PGs to scrub.
    Scrub(Box<nacre_msg::OsdScrub2>),
    /// PGs to recover before others, or in turn again.
    Force(Box<nacre_msg::OsdForceRecovery>),
    /// What the configuration database has for this OSD.
    Options(BTreeMap<String, String>),
    /// We go on under this name towards clients; other OSDs are to connect anew.
    Rebound(Arc<MsgrConfig>),
    /// What others promise has changed.
    Leases(Arc<Leases>),
    /// This OSD ends.
    End,
}

/// What keeps us from newer maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// The epochs behind ours.
    Epochs,
    /// The next one, whole; with it ours, to see whether the monitor has the same.
    Whole,
}

/// The first shard's part.
pub(crate) struct OsdControl {
    config: OsdConfig,
    /// Size of the store.
    capacity_bytes: u64,
    osd_addrs: OsdAddrs,
    listeners: Listeners,
    monc: MonClient,
    mon_link: Option<(LinkId, ConnId)>,
    effects: Vec<Effect>,
    peers: BTreeMap<OsdId, Link>,
    /// Messages that may wait for each.
    link_max: usize,
    /// What a session with a peer begins with.
    greeting: RawMessage,
    /// What the monitor hears that we speak.
    versions: PeerVersions,
    pings: Pings,
    mgr: Option<Link>,
    mgr_open_sent: bool,
    boot: Boot,
    /// Peers whose messages we could not read: what they said last, and when.
    misunderstood: BTreeMap<OsdId, (String, Stamp)>,
    /// `ms_cluster_mode`, as connections to other OSDs were made.
    cluster_mode: String,
    /// What the monitor is asked for to go on from our map, and when it was.
    lack: Option<(Lack, Stamp)>,
    merges: Merges,
    reports: BTreeMap<usize, ShardReport>,
    report_due: bool,
    report_at: Stamp,
    report_seq: u64,
}

/// What OSD control borrows of its shard.
pub(crate) struct ControlCx<'a> {
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    pub(crate) entropy: &'a mut dyn Entropy,
    pub(crate) messenger: &'a mut Messenger,
    pub(crate) maps: &'a MapCache,
    pub(crate) options: &'a Values,
    pub(crate) events: &'a mut Vec<ControlEvent>,
}

impl OsdControl {
    pub(crate) fn new(
        config: OsdConfig,
        capacity_bytes: u64,
        (listeners, osd_addrs): (Listeners, OsdAddrs),
        tuning: &Tuning,
        now: Stamp,
    ) -> Self {
        let name = AuthName::new(EntityKind::OSD, config.id.to_string());
        let services = [EntityKind::MON, EntityKind::OSD, EntityKind::MGR];
        let auth = ClientAuth::new(name, Some(config.key.clone()), Offer::secure_first(), &services);
        let monc_config = MoncConfig {
            hostname: config.host.clone(),
            wants_rotating_keys: true,
            ..MoncConfig::new(config.monitors.clone())
        };
        let mut monc = MonClient::new(monc_config, auth);
        for what in ["config", "mgrmap", "osd_pg_creates", VoidTickets::TOPIC, EntityCaps::TOPIC] {
            monc.subscribe(what, 0, Interest::Lasting);
        }
        Self {
            boot: Boot::new(config.id, boot::settings(&Values::default())),
            config,
            capacity_bytes,
            osd_addrs,
            listeners,
            monc,
            mon_link: None,
            effects: Vec::new(),
            peers: BTreeMap::new(),
            link_max: tuning.queues.link_max,
            greeting: greeting(tuning).encode(),
            versions: tuning.versions,
            pings: Pings::new(&Values::default(), now),
            mgr: None,
            mgr_open_sent: false,
            misunderstood: BTreeMap::new(),
            cluster_mode: Values::default().text("ms_cluster_mode").to_owned(),
            lack: None,
            merges: Merges::default(),
            reports: BTreeMap::new(),
            report_due: false,
            report_at: Stamp::default(),
            report_seq: 0,
        }
    }

    /// True while the map has us up under our addresses.
    pub(crate) fn is_booted(&self) -> bool {
        self.boot.is_booted()
    }

    /// Looks for a monitor, and wants the maps behind those that the store holds.
    pub(crate) fn start(&mut self, cx: &mut ControlCx<'_>) {
        let newest = cx.maps.newest().epoch;
        self.boot.set_started_at(newest);
        let start = if newest == 0 { 0 } else { u64::from(newest) + 1 };
        self.monc.subscribe("osdmap", start, Interest::Lasting);
        self.monc.start(&mut Context { now: cx.now, wall: cx.wall, entropy: cx.entropy });
        self.settle(cx);
    }

    /// When [`OsdControl::tick`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        let links = self.peers.values().chain(&self.mgr).filter_map(Link::next_deadline);
        let own = [self.monc.next_deadline(), self.pings.next_deadline(), self.boot.next_deadline()];
        links.chain(own.into_iter().flatten()).min()
    }

    pub(crate) fn tick(&mut self, cx: &mut ControlCx<'_>) {
        if self.monc.next_deadline().is_some_and(|at| at <= cx.now) {
            self.monc.handle(&mut Context { now: cx.now, wall: cx.wall, entropy: cx.entropy }, Event::Tick);
        }
        self.dial_all(cx);
        self.pings.tick(cx.now);
        self.ask_for_maps(cx, false);
        self.boot_event(cx, BootEvent::Tick);
        self.report(cx);
        self.settle(cx);
    }

    fn dial_all(&mut self, cx: &mut ControlCx<'_>) {
        let Self { peers, mgr, pings, monc, config, .. } = self;
        for link in peers.values_mut().chain(mgr.as_mut()).chain(pings.links()) {
            let monc_cx = Context { now: cx.now, wall: cx.wall, entropy: cx.entropy };
            let gid = i64::from(config.id);
            link.dial(&mut Dialler { gid, messenger: cx.messenger, monc, options: cx.options, cx: monc_cx });
        }
    }

    fn signature(&self, cx: &ControlCx<'_>) -> Signature {
        let map = cx.maps.newest();
        let up_from = map.info(self.config.id).up_from;
        Signature { fsid: self.config.fsid, map_epoch: map.epoch, up_from, wall: cx.wall }
    }

    /// Carries out what the heartbeats and the client of the monitors want, until they want nothing more.
    fn settle(&mut self, cx: &mut ControlCx<'_>) {
        let signature = self.signature(cx);
        for verdict in self.pings.carry_out(&signature, cx.messenger) {
            self.tell_verdict(cx, &verdict);
        }
        loop {
            let mut effects = std::mem::take(&mut self.effects);
            self.monc.drain(&mut effects);
            if effects.is_empty() {
                self.effects = effects;
                return;
            }
            for effect in effects.drain(..) {
                self.carry_out(cx, effect);
            }
            self.effects = effects;
        }
    }

    fn on_link(&self, link: LinkId) -> Option<ConnId> {
        self.mon_link.filter(|(current, _)| *current == link).map(|(_, conn)| conn)
    }

    fn carry_out(&mut self, cx: &mut ControlCx<'_>, effect: Effect) {
        match effect {
            Effect::Connect { link, addr } => {
                let target = Target { addr, kind: EntityKind::MON, gid: self.config.id.into() };
                let config = Arc::clone(&self.osd_addrs.public);
                match cx.messenger.connect(config, target, None, cx.now, cx.entropy) {
                    Ok(conn) => self.mon_link = Some((link, conn)),
                    Err(error) => {
                        tracing::warn!(%addr, %error, "cannot dial the monitor");
                        self.link_event(cx, link, LinkEvent::Lost);
                    }
                }
            }
            Effect::AuthStart { link, start } => {
                self.drive(cx, link, |c| c.auth_start(start.method, &start.modes, &start.payload));
            }
            Effect::AuthMore { link, payload } => self.drive(cx, link, |c| c.auth_request_more(&payload)),
            Effect::AuthFinish { link, keys } => {
                self.drive(cx, link, |c| c.auth_finish(&keys.session_key, &keys.connection_secret));
            }
            Effect::Send { link, tid, message } => {
                if let Some(conn) = self.on_link(link) {
                    cx.messenger.send(conn, message.encode(tid));
                }
            }
            Effect::Keepalive { link } => {
                if let Some(conn) = self.on_link(link) {
                    cx.messenger.send_keepalive(conn, cx.wall);
                }
            }
            Effect::Close { link } => {
                if let Some(conn) = self.on_link(link) {
                    cx.messenger.close(conn);
                    self.mon_link = None;
                }
            }
            Effect::Opened { .. } => {
                self.pings.monitor_opened(cx.now);
                self.boot_event(cx, BootEvent::MonitorOpened);
            }
            Effect::Deliver { message, .. } => self.delivered(cx, message),
            Effect::RotatingKeys(keys) => {
                cx.events.push(ControlEvent::Keys(keys));
                self.boot_event(cx, BootEvent::Keyed);
            }
            Effect::Refused { errno } => {
                tracing::error!(osd = self.config.id, %errno, "the monitors refuse this OSD: check its key and caps");
            }
            Effect::RotatingRefused { errno } => {
                tracing::error!(osd = self.config.id, %errno, "the monitors give this OSD no service secrets");
            }
            Effect::Lost | Effect::CommandDone { .. } | Effect::Version { .. } => (),
        }
    }

    fn drive(
        &mut self,
        cx: &mut ControlCx<'_>,
        link: LinkId,
        work: impl FnOnce(&mut nacre_msgr::Connection) -> Result<(), nacre_msgr::Fault>,
    ) {
        if let Some(conn) = self.on_link(link) {
            cx.messenger.drive(conn, work);
        }
    }

    fn link_event(&mut self, cx: &mut ControlCx<'_>, link: LinkId, event: LinkEvent) {
        let mut monc_cx = Context { now: cx.now, wall: cx.wall, entropy: cx.entropy };
        self.monc.handle(&mut monc_cx, Event::Link(link, event));
    }

    /// An event of a connection that we dialled, or of one with a peer; false when it is none of ours.
    pub(crate) fn conn_event(&mut self, cx: &mut ControlCx<'_>, conn: ConnId, event: ConnEvent) -> bool {
        if let Some((link, _)) = self.mon_link.filter(|(_, mon)| *mon == conn) {
            self.mon_event(cx, link, event);
            self.settle(cx);
            return true;
        }
        if let ConnEvent::Message(raw) = &event
            && self.mgr.as_ref().is_none_or(|link| link.conn() != Some(conn))
        {
            let raw = raw.clone();
            return self.heartbeat_message(cx, conn, raw);
        }
        let Self { peers, mgr, pings, monc, config, .. } = self;
        let is_mgr = mgr.as_ref().is_some_and(|link| link.conn() == Some(conn));
        let links = peers.values_mut().chain(mgr.as_mut()).chain(pings.links());
        let Some(link) = { links }.find(|link| link.conn() == Some(conn)) else { return false };
        match event {
            ConnEvent::Established(_) => {
                link.opened(conn, cx.messenger);
                pings.opened(conn, cx.now);
                if is_mgr {
                    self.report_due = true;
                    self.report(cx);
                }
            }
            ConnEvent::Message(raw) if is_mgr => self.mgr_message(cx, raw),
            event => {
                let monc_cx = Context { now: cx.now, wall: cx.wall, entropy: cx.entropy };
                let gid = i64::from(config.id);
                let mut dialler =
                    Dialler { gid, messenger: cx.messenger, monc, options: cx.options, cx: monc_cx };
                link.authenticate(&mut dialler, event);
            }
        }
        self.settle(cx);
        true
    }

    /// A message on a connection that we dialled for heartbeats; false when it is none of these.
    fn heartbeat_message(&mut self, cx: &mut ControlCx<'_>, conn: ConnId, raw: RawMessage) -> bool {
        let ours = match Message::decode(raw) {
            Ok(Message::OsdPing(ping)) => {
                let heard = ping.fsid == self.config.fsid && self.pings.heard(conn, &ping, cx.now);
                cx.events.push(ControlEvent::Leases(Arc::new(self.pings.leases.clone())));
                heard
            }
            // Who answers is ahead of us: our monitor may be slow, or cut off.
            Ok(Message::MOsdMap(maps)) => {
                cx.events.push(ControlEvent::Maps(Box::new(maps), Source::Peer));
                true
            }
            Ok(other) => {
                tracing::debug!(name = other.name(), "unexpected message in a heartbeat");
                true
            }
            Err(error) => {
                tracing::error!(%error, "a peer's heartbeat does not decode");
                false
            }
        };
        self.settle(cx);
        ours
    }

    /// A peer's message at our listeners for heartbeats.
    pub(crate) fn pinged(&mut self, cx: &mut ControlCx<'_>, conn: ConnId, from: OsdId, raw: RawMessage) {
        let ping = match Message::decode(raw) {
            Ok(Message::OsdPing(ping)) if ping.fsid == self.config.fsid && ping.op == ping_op::PING => ping,
            Ok(other) => {
                return tracing::debug!(from, name = other.name(), "no ping at our listeners for them");
            }
            Err(error) => return tracing::error!(from, %error, "a peer's heartbeat does not decode"),
        };
        let (signature, theirs) = (self.signature(cx), ping.map_epoch);
        let map = cx.maps.newest();
        let notice = ping_notice(map, from, theirs);
        let promised = notice.promise.then(|| self.pings.leases.promise(from, cx.now));
        let answer = pong(ping, &signature, promised, cx.now);
        if notice.you_died {
            let word = nacre_msg::OsdPing { op: ping_op::YOU_DIED, ..answer };
            cx.messenger.send(conn, Message::from(word).encode(0));
        }
        cx.messenger.send(conn, Message::from(answer).encode(0));
        // What we do not have the monitor will give it.
        if notice.maps
            && let Some(maps) = cx.maps.message_for_osd(theirs)
        {
            cx.messenger.send(conn, Message::from(maps).encode(0));
        }
    }

    fn mon_event(&mut self, cx: &mut ControlCx<'_>, link: LinkId, event: ConnEvent) {
        match mon_link_event(event) {
            Ok(Some(event)) => self.link_event(cx, link, event),
            Ok(None) => (),
            Err(error) => tracing::error!(%error, "the monitor sent what does not decode"),
        }
    }

    /// The session of a connection that we dialled began anew: what was said in it did not arrive.
    pub(crate) fn greet_again(&mut self, conn: ConnId, messenger: &mut Messenger) {
        if let Some(link) = self.peers.values_mut().find(|link| link.conn() == Some(conn)) {
            link.greet(conn, messenger);
        }
    }

    /// A peer that dials us is connected, by its own word from `peer.addrs`.
    pub(crate) fn peer_connected(
        &mut self,
        osd: OsdId,
        peer: &Peer,
        conn: ConnId,
        messenger: &mut Messenger,
    ) {
        match self.peers.get_mut(&osd) {
            Some(link) if link.is_to(&peer.addrs) => {
                if !peer.resumed {
                    link.greet(conn, messenger);
                }
                link.opened(conn, messenger);
            }
            // Not in our map yet: it dials again when it finds the connection closed. Or not any more: what a process that is
            // gone had sent came late, and must not take the place of its successor's connection.
            _ => messenger.close(conn),
        }
    }

    /// A connection is gone; false when it was none of ours.
    pub(crate) fn conn_closed(
        &mut self,
        cx: &mut ControlCx<'_>,
        conn: ConnId,
        session: Option<Box<Session>>,
        refused: bool,
    ) -> bool {
        if let Some((link, _)) = self.mon_link.filter(|(_, mon)| *mon == conn) {
            self.mon_link = None;
            self.link_event(cx, link, LinkEvent::Lost);
            self.settle(cx);
            return true;
        }
        if self.mgr.as_ref().is_some_and(|link| link.conn() == Some(conn)) {
            self.mgr_open_sent = false;
        }
        if let Some((osd, link)) = self.peers.iter_mut().find(|(_, link)| link.conn() == Some(conn)) {
            link.closed(session, cx.now);
            if refused {
                self.pings.refused(*osd, cx.now);
            }
        } else if let Some(link) = self.mgr.as_mut().filter(|link| link.conn() == Some(conn)) {
            link.closed(session, cx.now);
        } else if !self.pings.closed(conn, session, refused, cx.now) {
            return false;
        }
        self.settle(cx);
        true
    }

    /// Peers to whom messages were lost, although neither side has ended, and who take some again.
    pub(crate) fn take_lost(&mut self) -> Vec<OsdId> {
        self.peers.iter_mut().filter_map(|(osd, link)| link.take_lost().then_some(*osd)).collect()
    }

    /// Which peer a connection that we dialled leads to.
    pub(crate) fn peer_of(&self, conn: ConnId) -> Option<OsdId> {
        self.peers.iter().find(|(_, link)| link.conn() == Some(conn)).map(|(osd, _)| *osd)
    }

    /// A peer said what we cannot read. The operator hears of it; the session must not be taken up again where it was.
    pub(crate) fn misunderstood(&mut self, cx: &ControlCx<'_>, conn: ConnId, from: OsdId, why: String) {
        if let Some(link) = self.peers.get_mut(&from).filter(|link| link.conn() == Some(conn)) {
            link.pause(cx.now);
        }
        self.misunderstood.insert(from, (why, cx.now));
        self.report_due = true;
    }

    pub(crate) fn send_peer(&mut self, osd: OsdId, message: RawMessage, messenger: &mut Messenger) {
        // A peer without a link is down: its interval is over, or will be with the next map.
        if let Some(link) = self.peers.get_mut(&osd) {
            link.send(messenger, message);
        }
    }

    /// Whether a connection came in for heartbeats.
    pub(crate) fn hears_pings(&self, messenger: &Messenger, conn: ConnId) -> bool {
        self.listeners.hears_pings(messenger, conn)
    }

    fn delivered(&mut self, cx: &mut ControlCx<'_>, message: Message) {
        match message {
            Message::MOsdMap(maps) => cx.events.push(ControlEvent::Maps(Box::new(maps), Source::Monitor)),
            Message::OsdPgCreate2(create) => cx.events.push(ControlEvent::Create(Box::new(create))),
            Message::MMgrMap(message) => match MgrMap::from_bytes(message.map) {
                Ok(map) => self.mgr_map(cx, &map),
                Err(error) => tracing::error!(%error, "mgr map does not decode"),
            },
            Message::VoidTickets(void) => cx.events.push(ControlEvent::Void(void)),
            Message::EntityCaps(caps) => cx.events.push(ControlEvent::Caps(caps)),
            Message::Config(config) => cx.events.push(ControlEvent::Options(config.config)),
            Message::MarkMeDown(_) => self.boot_event(cx, BootEvent::MarkedMeDown),
            other => tracing::debug!(name = other.name(), "unexpected message from the monitor"),
        }
    }

    /// Maps came that cannot be taken in; none of what came behind them was.
    pub(crate) fn maps_refused(&mut self, cx: &mut ControlCx<'_>, error: &LearnError) {
        let (osd, epoch) = (self.config.id, cx.maps.newest().epoch);
        let lack = match error {
            LearnError::Gap { .. } => Lack::Epochs,
            LearnError::Increment(_) => Lack::Whole,
            LearnError::Forked { .. } => {
                tracing::error!(
                    osd,
                    %error,
                    "the monitor's history of maps is another one than this OSD followed, as after its store was restored from \
                     an older copy; this OSD stops, as it cannot tell who served meanwhile: start the monitor on its newest store"
                );
                return self.boot_event(cx, BootEvent::MapsForked);
            }
            LearnError::Bad(_) => return tracing::error!(osd, %error, "cannot use these maps"),
        };
        let asked = self.lack.filter(|(of, _)| *of == lack);
        if asked.is_none() {
            tracing::info!(osd, epoch, %error, "asking the monitor for the maps that follow ours");
        }
        let first = asked.is_none();
        self.lack = Some(asked.unwrap_or((lack, cx.now)));
        self.ask_for_maps(cx, first);
        self.settle(cx);
    }

    /// Asks the monitor for what we lack: `now`, or when it has not come for a while.
    fn ask_for_maps(&mut self, cx: &ControlCx<'_>, now: bool) {
        let Some((lack, asked_at)) = self.lack else { return };
        if !self.monc.is_open() || !(now || cx.now >= asked_at + maps::RETRY) {
            return;
        }
        self.lack = Some((lack, cx.now));
        match lack {
            Lack::Epochs => self.monc.ask_again("osdmap"),
            Lack::Whole => {
                let epoch = cx.maps.newest().epoch;
                let ask = MonGetOsdMap { full_first: epoch, full_last: epoch + 1, ..MonGetOsdMap::default() };
                self.tell_mon(ask.into());
            }
        }
    }

    /// New maps are in force: links follow them, and our own state in them.
    pub(crate) fn maps_learned(&mut self, cx: &mut ControlCx<'_>) {
        let map = Arc::clone(cx.maps.newest());
        self.monc.got("osdmap", map.epoch.into());
        if let Some((Lack::Whole, _)) = self.lack.take() {
            self.monc.ask_again("osdmap"); // what came meanwhile was of no use
        }
        self.follow_peers(cx, &map);
        self.boot_event(cx, BootEvent::Map);
        self.report_due = true;
        self.follow_heartbeats(cx);
        self.boot_event(cx, BootEvent::HeartbeatsFollow);
        self.settle(cx);
    }

    /// Until when the PGs must not see `map`.
    pub(crate) fn keeps_maps_until(&self, map: &OsdMap) -> Stamp {
        keeps_maps_until(self.config.id, self.boot.started_at(), &self.pings.leases, map)
    }

    pub(crate) fn has_monitor(&self) -> bool {
        self.monc.is_open()
    }

    /// Sends a question to the monitor.
    pub(crate) fn ask_monitor(&mut self, cx: &mut ControlCx<'_>, question: Message) {
        self.tell_mon(question);
        self.settle(cx);
    }

    /// Options have changed.
    pub(crate) fn follow_options(&mut self, cx: &mut ControlCx<'_>) {
        self.monc.set_modes(cx.options.text("ms_mon_cluster_mode"));
        self.follow_cluster_mode(cx);
        self.pings.set(cx.options);
        self.boot.set(boot::settings(cx.options));
        self.follow_heartbeats(cx);
        self.settle(cx);
    }

    /// Connections with other OSDs last for weeks: those that we dialled are made anew when their protection is to be another.
    /// Nothing is lost, their sessions go on.
    fn follow_cluster_mode(&mut self, cx: &mut ControlCx<'_>) {
        let mode = cx.options.text("ms_cluster_mode");
        if self.cluster_mode == mode {
            return;
        }
        mode.clone_into(&mut self.cluster_mode);
        for link in self.peers.values_mut().chain(self.pings.links()) {
            link.redial(cx.messenger, cx.now);
        }
    }

    fn follow_heartbeats(&mut self, cx: &mut ControlCx<'_>) {
        let sharers: BTreeSet<OsdId> =
            self.reports.values().flat_map(|report| report.sharers.iter().copied()).collect();
        let count_min = cx.options.count("osd_heartbeat_min_peers");
        let me = (self.config.id, &self.osd_addrs);
        self.pings.follow(cx.now, cx.maps.newest(), &sharers, count_min, me, cx.messenger);
        self.dial_all(cx);
    }

    fn tell_verdict(&mut self, cx: &ControlCx<'_>, verdict: &Verdict) {
        let (target, flags, silent_for) = match *verdict {
            Verdict::Failed { osd, silent_for, immediate } => {
                let immediate = if immediate { failure_flag::IMMEDIATE } else { 0 };
                (osd, failure_flag::FAILED | immediate, silent_for)
            }
            Verdict::Alive { osd } => (osd, 0, Duration::ZERO),
        };
        let map = cx.maps.newest();
        let Some(target_addrs) = map.client_addr(target).cloned() else { return };
        tracing::info!(osd = self.config.id, ?verdict, "telling the monitor");
        let failure = OsdFailure {
            version: map.epoch.into(),
            fsid: self.config.fsid,
            target,
            target_addrs,
            epoch: map.epoch,
            flags,
            failed_for_s: i32::try_from(silent_for.as_secs()).unwrap_or(i32::MAX),
        };
        self.tell_mon(failure.into());
    }

    fn follow_peers(&mut self, cx: &mut ControlCx<'_>, map: &OsdMap) {
        let (me, link_max, greeting) = (self.config.id, self.link_max, &self.greeting);
        let gone = |osd: &OsdId, link: &Link| ends_connection(map, *osd, link.addrs());
        let ended: Vec<OsdId> =
            self.peers.iter().filter(|(osd, link)| gone(osd, link)).map(|(osd, _)| *osd).collect();
        for osd in ended {
            if let Some(link) = self.peers.remove(&osd) {
                link.end(cx.messenger);
            }
        }
        for target in peer_targets(map, me) {
            let dials = target.dials.then(|| Arc::clone(&self.osd_addrs.cluster));
            let link = || Link::new(EntityKind::OSD, target.addrs.clone(), dials, link_max);
            self.peers.entry(target.osd).or_insert_with(|| link().with_greeting(greeting.clone()));
        }
        self.dial_all(cx);
    }

    /// What the monitor does not get now it gets when [`BootEvent::MonitorOpened`] has sent again what still matters.
    fn tell_mon(&mut self, message: Message) {
        let tid = self.monc.next_tid();
        if self.monc.send(tid, message).is_err() {
            tracing::warn!(osd = self.config.id, "too much waits for the monitor");
        }
    }
}

/// The versions of messages that we say we speak.
fn greeting(tuning: &Tuning) -> PeerVersions {
    let next = tuning.versions.newest + 1;
    if tuning.planted == Planted::VersionsUnknown {
        PeerVersions { oldest: next, newest: next }
    } else {
        tuning.versions
    }
}
