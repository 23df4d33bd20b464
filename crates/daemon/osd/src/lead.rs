//! [`Lead`]: what an OSD does once, on its first shard: the session with the monitor, boot, maps, links to
//! the other OSDs and to the manager.

use crate::config::OsdConfig;
use crate::letter::ShardReport;
use crate::links::{Dialler, Link};
use crate::maps::MapCache;
use crate::report;
use nacre_auth::{ClientAuth, Offer, RotatingKeys};
use nacre_denc::Decode;
use nacre_maps::{MgrMap, OsdMap};
use nacre_monc::{Config as MoncConfig, Context, Effect, Event, Interest, LinkEvent, LinkId, MonClient};
use nacre_msg::{Message, OsdAlive, OsdBeacon, OsdBoot, OsdPgCreated, OsdPgTemp, RawMessage, Superblock};
use nacre_msgr::{Config as MsgrConfig, Event as ConnEvent, Session, Target};
use nacre_service::{ConnId, Messenger};
use nacre_types::{AuthName, EntityKind, Entropy, Epoch, OsdId, PgId, Stamp, UTime, features};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A boot that the monitor does not answer is repeated.
const BOOT_RETRY: Duration = Duration::from_secs(5);
/// Time between signs of life to the monitor, Ceph's `osd_beacon_report_interval`.
const BEACON_INTERVAL: Duration = Duration::from_secs(60);
/// What the monitor is told: beacons come at least this often.
const BEACON_INTERVAL_S: u32 = 300;
/// A report to the manager is due after this time even if nothing changed.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Something that a placement group wants the monitor to know.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// Raise our `up_thru`.
    UpThru(Epoch),
    /// Let these serve the group for now.
    PgTemp(PgId, Vec<OsdId>),
    /// The group has come to life.
    Created(PgId),
}

/// What the monitor's side of things brought for the shard.
#[derive(Debug)]
pub(crate) enum News {
    /// A message with maps.
    Maps(Box<nacre_msg::OsdMap>),
    /// Secrets of the service.
    Keys(RotatingKeys),
    /// Groups to create.
    Create(Box<nacre_msg::OsdPgCreate2>),
    /// Groups to scrub.
    Scrub(Box<nacre_msg::OsdScrub2>),
}

/// The first shard's part.
pub(crate) struct Lead {
    config: OsdConfig,
    /// Size of the store.
    capacity_bytes: u64,
    /// Who we are towards clients and monitors.
    msgr: Arc<MsgrConfig>,
    /// Who we are towards other OSDs.
    cluster: Arc<MsgrConfig>,
    monc: MonClient,
    mon_link: Option<(LinkId, ConnId)>,
    effects: Vec<Effect>,
    peers: BTreeMap<OsdId, Link>,
    mgr: Option<Link>,
    mgr_open_sent: bool,
    keyed: bool,
    booted: bool,
    boot_sent: Option<Stamp>,
    beacon_at: Stamp,
    /// `up_thru` asked for and not granted yet.
    up_thru_wanted: Epoch,
    pg_temp_wanted: BTreeMap<PgId, Vec<OsdId>>,
    reports: BTreeMap<usize, ShardReport>,
    report_due: bool,
    report_at: Stamp,
    report_seq: u64,
}

/// What the lead borrows of its shard.
pub(crate) struct LeadCx<'a> {
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    pub(crate) entropy: &'a mut dyn Entropy,
    pub(crate) messenger: &'a mut Messenger,
    pub(crate) maps: &'a MapCache,
    pub(crate) news: &'a mut Vec<News>,
}

impl Lead {
    pub(crate) fn new(
        config: OsdConfig,
        capacity_bytes: u64,
        msgr: Arc<MsgrConfig>,
        cluster: Arc<MsgrConfig>,
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
        for what in ["config", "mgrmap", "osd_pg_creates"] {
            monc.subscribe(what, 0, Interest::Lasting);
        }
        Self {
            config,
            capacity_bytes,
            msgr,
            cluster,
            monc,
            mon_link: None,
            effects: Vec::new(),
            peers: BTreeMap::new(),
            mgr: None,
            mgr_open_sent: false,
            keyed: false,
            booted: false,
            boot_sent: None,
            beacon_at: Stamp::default(),
            up_thru_wanted: 0,
            pg_temp_wanted: BTreeMap::new(),
            reports: BTreeMap::new(),
            report_due: false,
            report_at: Stamp::default(),
            report_seq: 0,
        }
    }

    /// True while the map has us up under our addresses.
    pub(crate) fn is_booted(&self) -> bool {
        self.booted
    }

    /// Looks for a monitor, and wants the maps behind those that the store holds.
    pub(crate) fn start(&mut self, cx: &mut LeadCx<'_>) {
        let newest = cx.maps.newest().epoch;
        let start = if newest == 0 { 0 } else { u64::from(newest) + 1 };
        self.monc.subscribe("osdmap", start, Interest::Lasting);
        self.monc.start(&mut Context { now: cx.now, wall: cx.wall, entropy: cx.entropy });
        self.settle(cx);
    }

    /// When [`Lead::tick`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        let links = self.peers.values().chain(&self.mgr).filter_map(Link::next_deadline);
        links.chain(self.monc.next_deadline()).min()
    }

    pub(crate) fn tick(&mut self, cx: &mut LeadCx<'_>) {
        if self.monc.next_deadline().is_some_and(|at| at <= cx.now) {
            self.monc.handle(&mut Context { now: cx.now, wall: cx.wall, entropy: cx.entropy }, Event::Tick);
        }
        self.dial_all(cx);
        if self.booted && cx.now >= self.beacon_at {
            self.beacon_at = cx.now + BEACON_INTERVAL;
            self.send_beacon(cx.maps.newest().epoch);
        }
        if self.monc.is_open() && !self.booted && self.boot_sent.is_some_and(|at| cx.now >= at + BOOT_RETRY) {
            self.boot(cx);
        }
        self.report(cx);
        self.settle(cx);
    }

    fn dial_all(&mut self, cx: &mut LeadCx<'_>) {
        let Self { peers, mgr, cluster, monc, config, .. } = self;
        for link in peers.values_mut().chain(mgr.as_mut()) {
            let monc_cx = Context { now: cx.now, wall: cx.wall, entropy: cx.entropy };
            let gid = i64::from(config.id);
            link.dial(&mut Dialler { config: cluster, gid, messenger: cx.messenger, monc, cx: monc_cx });
        }
    }

    /// Carries out what the client of the monitors wants, until it wants nothing more.
    fn settle(&mut self, cx: &mut LeadCx<'_>) {
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

    fn carry_out(&mut self, cx: &mut LeadCx<'_>, effect: Effect) {
        match effect {
            Effect::Connect { link, addr } => {
                let target = Target { addr, kind: EntityKind::MON, gid: self.config.id.into() };
                let config = Arc::clone(&self.msgr);
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
            Effect::Opened { .. } => self.mon_opened(cx),
            Effect::Deliver { message, .. } => self.delivered(cx, message),
            Effect::RotatingKeys(keys) => {
                self.keyed = true;
                cx.news.push(News::Keys(keys));
                self.consider_boot(cx);
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
        cx: &mut LeadCx<'_>,
        link: LinkId,
        work: impl FnOnce(&mut nacre_msgr::Connection) -> Result<(), nacre_msgr::Fault>,
    ) {
        if let Some(conn) = self.on_link(link) {
            cx.messenger.drive(conn, work);
        }
    }

    fn link_event(&mut self, cx: &mut LeadCx<'_>, link: LinkId, event: LinkEvent) {
        let mut monc_cx = Context { now: cx.now, wall: cx.wall, entropy: cx.entropy };
        self.monc.handle(&mut monc_cx, Event::Link(link, event));
    }

    /// An event of a connection that we dialled, or of one with a peer; false when it is none of ours.
    pub(crate) fn conn_event(&mut self, cx: &mut LeadCx<'_>, conn: ConnId, event: ConnEvent) -> bool {
        if let Some((link, _)) = self.mon_link.filter(|(_, mon)| *mon == conn) {
            self.mon_event(cx, link, event);
            self.settle(cx);
            return true;
        }
        let Self { peers, mgr, cluster, monc, config, .. } = self;
        let is_mgr = mgr.as_ref().is_some_and(|link| link.conn() == Some(conn));
        let mut links = peers.values_mut().chain(mgr.as_mut());
        let Some(link) = links.find(|link| link.conn() == Some(conn)) else { return false };
        match event {
            ConnEvent::Established(_) => {
                link.opened(conn, cx.messenger);
                if is_mgr {
                    self.report_due = true;
                    self.report(cx);
                }
            }
            ConnEvent::Message(raw) if is_mgr => self.mgr_message(cx, raw),
            ConnEvent::SessionReset { lost_count } => {
                tracing::warn!(peer = %link.addrs(), lost_count, "the peer has forgotten our session");
            }
            event => {
                let monc_cx = Context { now: cx.now, wall: cx.wall, entropy: cx.entropy };
                let gid = i64::from(config.id);
                let mut dialler =
                    Dialler { config: cluster, gid, messenger: cx.messenger, monc, cx: monc_cx };
                link.authenticate(&mut dialler, event);
            }
        }
        self.settle(cx);
        true
    }

    fn mgr_message(&mut self, cx: &mut LeadCx<'_>, raw: RawMessage) {
        match Message::decode(raw) {
            Ok(Message::OsdScrub2(scrub)) if scrub.fsid == self.config.fsid => {
                cx.news.push(News::Scrub(Box::new(scrub)));
            }
            // How often to report: we do so when something changes.
            Ok(Message::MgrConfigure(_)) => (),
            Ok(other) => tracing::debug!(name = other.name(), "unexpected message from the manager"),
            Err(error) => tracing::error!(%error, "the manager sent what does not decode"),
        }
    }

    fn mon_event(&mut self, cx: &mut LeadCx<'_>, link: LinkId, event: ConnEvent) {
        let event = match event {
            ConnEvent::Hello { .. } => LinkEvent::Hello,
            ConnEvent::AuthReplyMore { payload } => LinkEvent::AuthMore { payload },
            ConnEvent::AuthDone { global_id, mode, payload } => {
                LinkEvent::AuthDone { global_id, mode, payload }
            }
            ConnEvent::AuthBad { result, methods, .. } => LinkEvent::AuthBad { result, methods },
            ConnEvent::Established(_) => LinkEvent::Established,
            ConnEvent::KeepaliveAck(_) => LinkEvent::KeepaliveAck,
            ConnEvent::Message(raw) => {
                let tid = raw.tid;
                match Message::decode(raw) {
                    Ok(message) => LinkEvent::Message { tid, message },
                    Err(error) => return tracing::error!(%error, "the monitor sent what does not decode"),
                }
            }
            _ => return,
        };
        self.link_event(cx, link, event);
    }

    /// A peer that dials us is connected.
    pub(crate) fn peer_connected(&mut self, osd: OsdId, conn: ConnId, messenger: &mut Messenger) {
        match self.peers.get_mut(&osd) {
            Some(link) => link.opened(conn, messenger),
            // Not in our map yet: it dials again when it finds the connection closed.
            None => messenger.close(conn),
        }
    }

    /// A connection is gone; false when it was none of ours.
    pub(crate) fn conn_closed(
        &mut self,
        cx: &mut LeadCx<'_>,
        conn: ConnId,
        session: Option<Box<Session>>,
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
        let mut links = self.peers.values_mut().chain(self.mgr.as_mut());
        match links.find(|link| link.conn() == Some(conn)) {
            Some(link) => link.closed(session, cx.now),
            None => return false,
        }
        true
    }

    /// Which peer a connection that we dialled leads to.
    pub(crate) fn peer_of(&self, conn: ConnId) -> Option<OsdId> {
        self.peers.iter().find(|(_, link)| link.conn() == Some(conn)).map(|(osd, _)| *osd)
    }

    pub(crate) fn send_peer(&mut self, osd: OsdId, message: RawMessage, messenger: &mut Messenger) {
        // A peer without a link is down: its interval is over, or will be with the next map.
        if let Some(link) = self.peers.get_mut(&osd) {
            link.send(messenger, message);
        }
    }

    fn mon_opened(&mut self, cx: &mut LeadCx<'_>) {
        self.boot_sent = None;
        self.consider_boot(cx);
        if self.up_thru_wanted > 0 {
            self.send_alive(cx.maps.newest().epoch);
        }
        self.send_pg_temp(cx.maps.newest().epoch);
    }

    fn delivered(&mut self, cx: &mut LeadCx<'_>, message: Message) {
        match message {
            Message::OsdMap(maps) => cx.news.push(News::Maps(Box::new(maps))),
            Message::OsdPgCreate2(create) => cx.news.push(News::Create(Box::new(create))),
            Message::MgrMap(message) => match MgrMap::from_bytes(message.map) {
                Ok(map) => self.mgr_map(cx, &map),
                Err(error) => tracing::error!(%error, "mgr map does not decode"),
            },
            // Options for us: none of ours can change at run time yet (see README).
            Message::Config(_) => (),
            other => tracing::debug!(name = other.name(), "unexpected message from the monitor"),
        }
    }

    fn mgr_map(&mut self, cx: &mut LeadCx<'_>, map: &MgrMap) {
        let wanted = map.available.then_some(&map.active_addrs).filter(|addrs| addrs.msgr2().is_some());
        if self.mgr.as_ref().map(Link::addrs) == wanted {
            return;
        }
        if let Some(link) = self.mgr.take() {
            link.end(cx.messenger);
        }
        self.mgr_open_sent = false;
        self.mgr = wanted.map(|addrs| Link::new(EntityKind::MGR, addrs.clone(), true));
        self.dial_all(cx);
    }

    /// New maps are in force: links follow them, and our own state in them.
    pub(crate) fn maps_learned(&mut self, cx: &mut LeadCx<'_>) {
        let map = Arc::clone(cx.maps.newest());
        self.monc.got("osdmap", map.epoch.into());
        self.follow_peers(cx, &map);
        if map.info(self.config.id).up_thru >= self.up_thru_wanted {
            self.up_thru_wanted = 0;
        }
        self.pg_temp_wanted
            .retain(|pg, acting| map.pg_temp.get(pg).map_or(&[][..], Vec::as_slice) != acting.as_slice());
        let up = self.is_up_in(&map);
        if self.booted && !up {
            tracing::warn!(
                osd = self.config.id,
                epoch = map.epoch,
                "the map says that we are down; booting again"
            );
            self.boot_sent = None;
        }
        self.booted = up;
        self.report_due = true;
        self.consider_boot(cx);
        self.settle(cx);
    }

    fn is_up_in(&self, map: &OsdMap) -> bool {
        map.is_up(self.config.id) && map.client_addr(self.config.id) == Some(&self.msgr.addrs)
    }

    fn follow_peers(&mut self, cx: &mut LeadCx<'_>, map: &OsdMap) {
        let me = self.config.id;
        let gone =
            |osd: &OsdId, link: &Link| !map.is_up(*osd) || map.cluster_addr(*osd) != Some(link.addrs());
        let ended: Vec<OsdId> =
            self.peers.iter().filter(|(osd, link)| gone(osd, link)).map(|(osd, _)| *osd).collect();
        for osd in ended {
            if let Some(link) = self.peers.remove(&osd) {
                link.end(cx.messenger);
            }
        }
        for osd in map.up_osds().filter(|osd| *osd != me) {
            let Some(addrs) = map.cluster_addr(osd) else { continue };
            self.peers.entry(osd).or_insert_with(|| Link::new(EntityKind::OSD, addrs.clone(), me < osd));
        }
        self.dial_all(cx);
    }

    fn consider_boot(&mut self, cx: &mut LeadCx<'_>) {
        let map = cx.maps.newest();
        let ready = self.monc.is_open() && self.keyed && map.epoch > 0;
        if ready && !self.booted && self.boot_sent.is_none() {
            self.boot(cx);
        }
    }

    fn boot(&mut self, cx: &mut LeadCx<'_>) {
        let epoch = cx.maps.newest().epoch;
        self.boot_sent = Some(cx.now);
        let superblock = Superblock {
            cluster_fsid: self.config.fsid,
            whoami: self.config.id,
            current_epoch: epoch,
            oldest_map: 1,
            newest_map: epoch,
            osd_fsid: self.config.uuid,
            ..Superblock::default()
        };
        let boot = OsdBoot {
            version: epoch.into(),
            superblock,
            hb_back_addrs: self.cluster.addrs.clone(),
            cluster_addrs: self.cluster.addrs.clone(),
            boot_epoch: 0,
            hb_front_addrs: self.msgr.addrs.clone(),
            metadata: report::metadata(
                &self.config,
                self.capacity_bytes,
                &self.msgr.addrs,
                &self.cluster.addrs,
            ),
            features: features::SUPPORTED,
        };
        self.tell_mon(boot.into());
    }

    /// What the monitor does not get now it gets when [`Lead::mon_opened`] sends again what still matters.
    fn tell_mon(&mut self, message: Message) {
        let tid = self.monc.next_tid();
        if self.monc.send(tid, message).is_err() {
            tracing::warn!(osd = self.config.id, "too much waits for the monitor");
        }
    }

    pub(crate) fn order(&mut self, cx: &mut LeadCx<'_>, order: Order) {
        let epoch = cx.maps.newest().epoch;
        match order {
            Order::UpThru(wanted) if wanted > self.up_thru_wanted => {
                self.up_thru_wanted = wanted;
                self.send_alive(epoch);
            }
            Order::UpThru(_) => (),
            Order::PgTemp(pg, acting) => {
                self.pg_temp_wanted.insert(pg, acting);
                self.send_pg_temp(epoch);
            }
            Order::Created(pg) => self.tell_mon(OsdPgCreated { version: epoch.into(), pg }.into()),
        }
        self.settle(cx);
    }

    fn send_alive(&mut self, epoch: Epoch) {
        let want = self.up_thru_wanted;
        self.tell_mon(OsdAlive { version: epoch.into(), want }.into());
    }

    fn send_pg_temp(&mut self, epoch: Epoch) {
        if self.pg_temp_wanted.is_empty() {
            return;
        }
        let pg_temp = self.pg_temp_wanted.clone();
        self.tell_mon(OsdPgTemp { version: epoch.into(), map_epoch: epoch, pg_temp, forced: false }.into());
    }

    fn send_beacon(&mut self, epoch: Epoch) {
        let beacon = OsdBeacon {
            version: epoch.into(),
            pgs: Vec::new(),
            min_last_epoch_clean: epoch,
            last_purged_snaps_scrub: UTime::ZERO,
            interval_s: BEACON_INTERVAL_S,
        };
        self.tell_mon(beacon.into());
    }

    /// A shard's groups have changed.
    pub(crate) fn heard_report(&mut self, cx: &mut LeadCx<'_>, report: ShardReport) {
        self.reports.insert(report.shard, report);
        self.report_due = true;
        self.report(cx);
    }

    fn report(&mut self, cx: &mut LeadCx<'_>) {
        let open = self.mgr.as_ref().is_some_and(Link::is_open);
        if !open || !(self.report_due || cx.now >= self.report_at) || self.reports.is_empty() {
            return;
        }
        self.report_due = false;
        self.report_at = cx.now + REPORT_INTERVAL;
        self.report_seq += 1;
        let Some(link) = &mut self.mgr else { return };
        if !self.mgr_open_sent {
            self.mgr_open_sent = true;
            link.send(cx.messenger, Message::from(report::mgr_open(&self.config)).encode(0));
        }
        let map = cx.maps.newest();
        let stats =
            report::pg_stats(&self.config, map, self.report_seq, self.reports.values(), self.peers.keys());
        link.send(cx.messenger, Message::from(stats).encode(0));
    }
}
