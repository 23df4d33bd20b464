//! [`OsdControl`]: what an OSD does once, on its first shard: boot, and what connects the session with the monitor, the heartbeats, the
//! links to the other OSDs and the reports to the manager.
//!
//! | part | owns |
//! |---|---|
//! | [`MonLink`] | the session with the monitor |
//! | [`PeerLinks`] | connections with other OSDs; the shard's, since its PGs send through them |
//! | [`HeartbeatDriver`] | pings and promises |
//! | [`MgrReport`] | the connection to the manager |
//! | [`UnderCeph`] | its place and how full it is, which Ceph's monitors leave to an OSD |
//! | `core/osd` | the decisions: [`Boot`], [`Merges`], [`MapCatchUp`], until when maps are kept from the PGs |

mod boot;
mod device_health;
mod peer_access;
mod snapshots;
mod under_ceph;

use self::under_ceph::UnderCeph;
use crate::config::OsdConfig;
use crate::control_event::ControlEvent;
use crate::heartbeat_driver::{HeartbeatDriver, PeerReport};
use crate::link_counts::LinkCounts;
use crate::links::{ClusterMode, NetCx};
use crate::mgr_report::{MgrReport, Pinged};
use crate::mon_link::{MonEvent, MonLink};
use crate::osd_addrs::{Listeners, OsdAddrs};
use crate::own_reports::OwnReports;
use crate::peer_links::PeerLinks;
use crate::recovery_snapshot::SnapshotIntake;
use crate::report::{self, StoreFacts};
use crate::shard_msg::{MonRequest, ShardReport};
use nacre_auth::ServiceAccess;
use nacre_denc::Decode;
use nacre_maps::{MgrMap, OsdMap};
use nacre_monc::Config as MoncConfig;
use nacre_msg::peer::PeerVersions;
use nacre_msg::{Log, LogPriority, Message, OsdFailure, OsdPgCreated, RawMessage, failure_flag};
use nacre_msgr::{Event as ConnEvent, Session};
use nacre_options::Values;
use nacre_osd_core::{
    Boot, ClusterLog, Event as BootEvent, LearnError, MapCache, MapCatchUp, MapRefusal, MapSource, Merges,
    keeps_maps_until, strangers,
};
use nacre_pg::Tuning;
use nacre_service::{ConnId, Messenger};
use nacre_types::{OsdId, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The first shard's part.
pub(crate) struct OsdControl {
    config: OsdConfig,
    store: StoreFacts,
    osd_addrs: OsdAddrs,
    listeners: Listeners,
    mon: MonLink,
    heartbeats: HeartbeatDriver,
    mgr: MgrReport,
    boot: Boot,
    merges: Merges,
    map_catch_up: MapCatchUp,
    /// The monitor has said which options hold for us.
    options_known: bool,
    log: ClusterLog,
    /// What Ceph's monitors leave to an OSD; `None` under ours.
    ceph: Option<UnderCeph>,
    /// What our monitor is to hear of the device, of pings, of requests that are slow, and of the bill.
    told: OwnReports,
    /// What the cluster could be begun anew from.
    snapshots: SnapshotIntake,
    /// What the monitor hears that we speak.
    versions: PeerVersions,
    cluster_mode: ClusterMode,
    /// What other shards dial with.
    peer_access: Option<Arc<ServiceAccess>>,
}

/// What OSD control borrows of its shard.
pub(crate) struct ControlCx<'a> {
    pub(crate) net: NetCx<'a>,
    pub(crate) peers: &'a mut PeerLinks,
    pub(crate) maps: &'a MapCache,
    pub(crate) options: &'a Values,
    /// What the shard is to carry out.
    pub(crate) events: &'a mut Vec<ControlEvent>,
}

impl OsdControl {
    pub(crate) fn new(
        config: OsdConfig,
        store: StoreFacts,
        (listeners, osd_addrs): (Listeners, OsdAddrs),
        tuning: &Tuning,
        now: Stamp,
    ) -> Self {
        let (osd, fsid, plane, options) = (config.id, config.fsid, config.plane(), Values::default());
        let monc_config = MoncConfig {
            hostname: config.host.clone(),
            wants_rotating_keys: true,
            ..MoncConfig::new(config.monitors.clone())
        };
        let (class, bytes) = (|| report::device_class(&config), store.capacity_bytes);
        Self {
            mon: MonLink::new((osd, plane), MonLink::auth_of(osd, config.key.clone()), monc_config),
            ceph: config.ceph.as_ref().map(|ceph| UnderCeph::new(&config, ceph, class(), bytes)),
            heartbeats: HeartbeatDriver::new((osd, fsid, plane), &options, now),
            mgr: MgrReport::new(osd, fsid, plane),
            boot: Boot::new(osd, boot::settings(&options)),
            merges: Merges::default(),
            map_catch_up: MapCatchUp::default(),
            options_known: false,
            log: ClusterLog::new(osd),
            told: OwnReports::new(plane, &config.host),
            snapshots: SnapshotIntake::default(),
            versions: tuning.versions,
            cluster_mode: ClusterMode::default(),
            peer_access: None,
            config,
            store,
            osd_addrs,
            listeners,
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
        // What a ceph.conf says holds from the start.
        self.take_options(cx);
        self.mon.start(newest, &mut cx.net);
        self.run_effects(cx);
    }

    /// When [`OsdControl::tick`] is due, but for the links to peers.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        let own = [self.mon.next_deadline(), self.mgr.next_deadline(), self.heartbeats.next_deadline()];
        let placement = self.ceph.as_ref().and_then(UnderCeph::next_deadline);
        own.into_iter().chain([self.boot.next_deadline(), placement]).flatten().min()
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, cx: &mut ControlCx<'_>) {
        self.mon.tick(&mut cx.net);
        self.share_peer_access(cx);
        self.dial_all(cx);
        self.heartbeats.tick(cx.net.now);
        let own = cx.maps.newest().epoch;
        if let Some(request) = self.map_catch_up.next_request(own, cx.net.now, self.mon.is_open()) {
            self.mon.ask_for_maps(request);
        }
        if let Some(ceph) = &mut self.ceph {
            ceph.tick(&mut self.mon, cx.net.now);
            if self.boot.is_booted() {
                ceph.tell_fullness(cx.maps.newest(), self.mgr.room(), &mut self.mon, cx.net.now);
            }
        }
        self.boot_event(cx, BootEvent::Tick);
        self.report(cx);
        self.send_log();
        self.run_effects(cx);
    }

    /// Says a line in the cluster's log.
    fn say(&mut self, cx: &ControlCx<'_>, priority: LogPriority, text: String) {
        let osd = self.config.id;
        if self.log.say(priority, text.clone(), &self.osd_addrs.public.addrs, (cx.net.now, cx.net.wall)) {
            tracing::warn!(osd, text, "said in the cluster's log");
        }
    }

    fn send_log(&mut self) {
        if !self.mon.is_open() {
            return;
        }
        let entries = self.log.next_lines();
        if !entries.is_empty() {
            self.mon.send(Log { version: 0, fsid: self.config.fsid, entries }.into());
        }
    }

    fn dial_all(&mut self, cx: &mut ControlCx<'_>) {
        let Self { mon, mgr, heartbeats, .. } = self;
        let mut dialler = mon.dialler(&mut cx.net, cx.options);
        for link in cx.peers.links().chain(mgr.link()).chain(heartbeats.links()) {
            link.dial(&mut dialler);
        }
    }

    /// Carries out what the heartbeats and the client of the monitors want, until they want nothing more.
    fn run_effects(&mut self, cx: &mut ControlCx<'_>) {
        for report in self.heartbeats.execute_effects(cx.maps.newest(), &mut cx.net) {
            self.report_peer(cx, &report);
        }
        while let Some(event) = self.mon.next_event(&self.osd_addrs.public, &mut cx.net) {
            match event {
                MonEvent::Opened => {
                    self.share_peer_access(cx);
                    self.heartbeats.monitor_opened(cx.net.now);
                    self.log.monitor_opened();
                    self.boot_event(cx, BootEvent::MonitorOpened);
                }
                MonEvent::Message(message) => self.mon_message(cx, message),
                MonEvent::Keys(keys) => {
                    cx.events.push(ControlEvent::Keys(keys));
                    self.boot_event(cx, BootEvent::Keyed);
                }
                MonEvent::CommandDone { tid, result, status } => self.command_done(cx, tid, result, &status),
            }
        }
    }

    /// A command to the monitor was answered.
    fn command_done(&mut self, cx: &mut ControlCx<'_>, tid: u64, result: i32, status: &str) {
        let Some(ceph) = &mut self.ceph else { return };
        if ceph.command_done((tid, result, status), &mut self.mon, cx.net.now) {
            self.boot_event(cx, BootEvent::HeartbeatsFollow);
        }
    }

    fn mon_message(&mut self, cx: &mut ControlCx<'_>, message: Message) {
        match message {
            Message::MOsdMap(maps) => cx.events.push(ControlEvent::Maps(Box::new(maps), MapSource::Monitor)),
            Message::OsdPgCreate2(create) => cx.events.push(ControlEvent::Create(Box::new(create))),
            Message::MMgrMap(message) => match MgrMap::from_bytes(message.map) {
                Ok(map) => {
                    self.mgr.follow(&map, &self.osd_addrs.cluster, cx.net.messenger);
                    self.dial_all(cx);
                }
                Err(error) => tracing::error!(%error, "mgr map does not decode"),
            },
            Message::LogAck(ack) => self.log.confirmed(ack.last_seq),
            Message::VoidTickets(void) => cx.events.push(ControlEvent::Void(void)),
            Message::PgStatsWanted(stats) => {
                self.mgr.report_to_monitor(stats.wanted);
                self.report(cx);
            }
            Message::RecoverySnapshotPart(part) if self.ceph.is_none() => self.keep_snapshot(cx, part),
            Message::DeviceHealthWanted(wanted) => cx.events.push(ControlEvent::AskDevice(wanted.device)),
            Message::EntityCaps(caps) => cx.events.push(ControlEvent::Caps(caps)),
            Message::Config(config) => {
                self.options_known = true;
                cx.events.push(ControlEvent::Options(config.config));
            }
            Message::MarkMeDown(_) => self.boot_event(cx, BootEvent::MarkedMeDown),
            other => tracing::debug!(name = other.name(), "unexpected message from the monitor"),
        }
    }

    /// An event of a connection that we dialled, or of one with a peer.
    pub(crate) fn conn_event(&mut self, cx: &mut ControlCx<'_>, conn: ConnId, event: ConnEvent) {
        let now = cx.net.now;
        match event {
            event if self.mon.has(conn) => self.mon.conn_event(event, &mut cx.net),
            ConnEvent::Message(raw) if self.mgr.has(conn) => self.mgr.message(raw, cx.events),
            ConnEvent::Message(raw) => {
                self.heartbeats.message(conn, raw, (cx.maps.newest(), now), cx.events);
            }
            event => {
                let Self { mon, mgr, heartbeats, .. } = self;
                let others = mgr.link().into_iter().chain(heartbeats.links());
                let mut others = others.filter(|link| link.conn() == Some(conn));
                let Some(link) = cx.peers.link_of(conn).or_else(|| others.next()) else { return };
                if !matches!(event, ConnEvent::Established(_)) {
                    link.authenticate(&mut mon.dialler(&mut cx.net, cx.options), event);
                    return self.run_effects(cx);
                }
                link.opened(conn, cx.net.messenger);
                heartbeats.opened(conn, now);
                if mgr.has(conn) {
                    mgr.set_due();
                    self.report(cx);
                }
            }
        }
        self.run_effects(cx);
    }

    /// A connection is gone. `refused`: nobody listened where we dialled.
    pub(crate) fn conn_closed(
        &mut self,
        cx: &mut ControlCx<'_>,
        conn: ConnId,
        session: Option<Box<Session>>,
        refused: bool,
    ) {
        let now = cx.net.now;
        if self.mon.has(conn) {
            self.mon.conn_closed(&mut cx.net);
        } else if let Some(osd) = cx.peers.peer_of(conn) {
            cx.peers.conn_closed(osd, session, now);
            if refused {
                self.heartbeats.refused(osd, now);
            }
        } else if self.mgr.has(conn) {
            self.mgr.conn_closed(session, now);
        } else if !self.heartbeats.closed(conn, session, refused, now) {
            return;
        }
        self.run_effects(cx);
    }

    /// A peer's message at our listeners for heartbeats.
    pub(crate) fn pinged(&mut self, cx: &mut ControlCx<'_>, conn: ConnId, from: OsdId, raw: RawMessage) {
        self.heartbeats.pinged(conn, from, raw, cx.maps, &mut cx.net);
    }

    /// Pings to and of other OSDs.
    pub(crate) fn heartbeats(&self) -> &HeartbeatDriver {
        &self.heartbeats
    }

    /// PGs of all shards, as they last reported.
    pub(crate) fn pg_count(&self) -> u64 {
        self.mgr.reports().map(|report| u64::from(report.pg_count)).sum()
    }

    /// The connections of other shards with other OSDs.
    pub(crate) fn reported_links(&self) -> impl Iterator<Item = &BTreeMap<OsdId, LinkCounts>> {
        self.mgr.reports().map(|report| &report.links)
    }

    /// Whether a connection came in for heartbeats.
    pub(crate) fn hears_pings(&self, messenger: &Messenger, conn: ConnId) -> bool {
        self.listeners.hears_pings(messenger, conn)
    }

    /// A peer said what we cannot read. The operator hears of it.
    pub(crate) fn misunderstood(&mut self, cx: &ControlCx<'_>, from: OsdId, why: String) {
        self.mgr.misunderstood(from, why, cx.net.now);
    }

    /// Maps came that cannot be taken in; none of what came behind them was.
    pub(crate) fn maps_refused(&mut self, cx: &mut ControlCx<'_>, error: &LearnError) {
        let (osd, own) = (self.config.id, cx.maps.newest().epoch);
        match self.map_catch_up.refused(error, own, cx.net.now, self.mon.is_open()) {
            MapRefusal::Ask(request) => {
                tracing::debug!(osd, epoch = own, %error, "these maps do not follow ours");
                if let Some(request) = request {
                    tracing::info!(osd, epoch = own, %error, ?request, "asking the monitor for maps");
                    self.mon.ask_for_maps(request);
                }
            }
            MapRefusal::Ignore => {
                tracing::error!(osd, %error, "these OSD maps do not decode or are of another cluster; ignored")
            }
            MapRefusal::Stop => {
                tracing::error!(
                    osd,
                    %error,
                    "the monitor's history of maps is another one than this OSD followed, as after its store was restored from \
                     an older copy; this OSD stops, as it cannot tell who served meanwhile: start the monitor on its newest store"
                );
                return self.boot_event(cx, BootEvent::MapsForked);
            }
        }
        self.run_effects(cx);
    }

    /// New maps are in force: links follow them, and our own state in them.
    pub(crate) fn maps_learned(&mut self, cx: &mut ControlCx<'_>) {
        let maps = cx.maps;
        let map = maps.newest();
        self.mon.has_maps(map.epoch);
        if let Some(request) = self.map_catch_up.learned() {
            self.mon.ask_for_maps(request);
        }
        self.follow_peers(cx, map);
        self.boot_event(cx, BootEvent::Map);
        self.mgr.set_due();
        self.name_strangers(cx);
        self.follow_heartbeats(cx);
        self.boot_event(cx, BootEvent::HeartbeatsFollow);
        self.run_effects(cx);
    }

    fn follow_peers(&mut self, cx: &mut ControlCx<'_>, map: &OsdMap) {
        cx.peers.follow(map, &self.osd_addrs.cluster, cx.net.messenger);
        self.dial_all(cx);
    }

    fn follow_heartbeats(&mut self, cx: &mut ControlCx<'_>) {
        let count_min = cx.options.count("osd_heartbeat_min_peers");
        let sharers = self.mgr.sharers();
        self.heartbeats.follow(cx.maps.newest(), &sharers, count_min, &self.osd_addrs, &mut cx.net);
        self.dial_all(cx);
    }

    /// Until when the PGs must not see `map`.
    pub(crate) fn keeps_maps_until(&self, map: &OsdMap) -> Stamp {
        let (osd, plane) = (self.config.id, self.config.plane());
        keeps_maps_until(osd, self.boot.started_at(), &self.heartbeats.leases, map, plane)
    }

    pub(crate) fn has_monitor(&self) -> bool {
        self.mon.is_open()
    }

    /// Sends a question to the monitor.
    pub(crate) fn ask_monitor(&mut self, cx: &mut ControlCx<'_>, question: Message) {
        self.mon.send(question);
        self.run_effects(cx);
    }

    /// A PG wants the monitor to know something.
    pub(crate) fn mon_request(&mut self, cx: &mut ControlCx<'_>, request: MonRequest) {
        let map = cx.maps.newest();
        match request {
            MonRequest::UpThru(wanted) => self.boot_event(cx, BootEvent::WantUpThru(wanted)),
            MonRequest::PgTemp(pg, acting) => self.boot_event(cx, BootEvent::WantPgTemp(pg, acting)),
            MonRequest::Merge { state, same_store } => {
                if let Some(ready) = self.merges.heard(map, state, same_store) {
                    self.mon.send(ready.into());
                }
            }
            MonRequest::Created(pg) => {
                self.mon.send(OsdPgCreated { version: map.epoch.into(), pg }.into());
            }
        }
        self.run_effects(cx);
    }

    /// Options have changed.
    pub(crate) fn follow_options(&mut self, cx: &mut ControlCx<'_>) {
        self.take_options(cx);
        if let Some(ceph) = self.ceph.as_mut().filter(|_| self.options_known) {
            ceph.follow_options(cx.options, &mut self.mon, cx.net.now);
        }
        self.follow_heartbeats(cx);
        self.run_effects(cx);
    }

    fn take_options(&mut self, cx: &mut ControlCx<'_>) {
        self.mon.set_modes(cx.options.text("ms_mon_cluster_mode"));
        self.follow_cluster_mode(cx);
        self.heartbeats.set(cx.options);
        self.boot.set(boot::settings(cx.options));
    }

    /// Connections with other OSDs last for weeks: those that we dialled are made anew when their protection is to be another.
    /// Nothing is lost, their sessions go on.
    fn follow_cluster_mode(&mut self, cx: &mut ControlCx<'_>) {
        if self.cluster_mode.follow(cx.options) {
            for link in cx.peers.links().chain(self.heartbeats.links()) {
                link.redial(cx.net.messenger);
            }
        }
    }

    fn report_peer(&mut self, cx: &ControlCx<'_>, report: &PeerReport) {
        let (target, flags, silent_for) = match *report {
            PeerReport::Failed { osd, silent_for, immediate } => {
                let immediate = if immediate { failure_flag::IMMEDIATE } else { 0 };
                (osd, failure_flag::FAILED | immediate, silent_for)
            }
            PeerReport::Alive { osd } => (osd, 0, Duration::ZERO),
        };
        let map = cx.maps.newest();
        let Some(target_addrs) = map.client_addr(target).cloned() else { return };
        tracing::info!(osd = self.config.id, ?report, "reporting a heartbeat peer to the monitor");
        let failure = OsdFailure {
            version: map.epoch.into(),
            fsid: self.config.fsid,
            target,
            target_addrs,
            epoch: map.epoch,
            flags,
            failed_for_s: i32::try_from(silent_for.as_secs()).unwrap_or(i32::MAX),
        };
        self.mon.send(failure.into());
    }

    /// A shard's PGs have changed.
    pub(crate) fn on_report(&mut self, cx: &mut ControlCx<'_>, mut report: ShardReport) {
        self.told.note(&mut report);
        if self.mgr.on_report(report) {
            self.follow_heartbeats(cx);
            self.name_strangers(cx);
        }
        self.report(cx);
    }

    /// The number of the last report to the manager, for `flush_pg_stats`.
    pub(crate) fn stat_seq(&self, cx: &ControlCx<'_>) -> u64 {
        self.mgr.stat_seq(cx.maps.newest())
    }

    /// Says which OSDs share PGs with us and are not ours: the operator has mixed both kinds in a pool.
    fn name_strangers(&mut self, cx: &ControlCx<'_>) {
        let (map, sharers) = (cx.maps.newest(), self.mgr.sharers());
        let names: Vec<String> =
            strangers(map, &sharers, self.config.plane()).map(|osd| format!("osd.{osd}")).collect();
        if names.is_empty() {
            return;
        }
        let (osd, names) = (self.config.id, names.join(", "));
        let text = format!(
            "osd.{osd} is Nacre's and shares placement groups with {names}, which is not: they cannot be served. Give the pool a CRUSH rule \
             that takes OSDs of one kind only"
        );
        self.say(cx, LogPriority::WARN, text);
    }

    fn report(&mut self, cx: &mut ControlCx<'_>) {
        let has_monitor = self.mon.is_open();
        let times = (cx.net.now, cx.net.wall);
        let pinged = || Pinged { peers: self.heartbeats.peers(), times: self.heartbeats.ping_times(times) };
        let stats = self.mgr.send(cx.maps.newest(), pinged, (cx.options, has_monitor), &mut cx.net);
        if let Some(stats) = stats {
            self.mon.send(stats.into());
        }
        let least = || self.heartbeats.least_pings(times.0);
        let own = self.told.reports(cx.net.now, least, (cx.options, has_monitor));
        own.into_iter().for_each(|report| self.mon.send(report));
    }

    /// Asks the monitor to mark us down, so that nobody has to find out, or ends where there is nothing to ask for.
    pub(crate) fn leave(&mut self, cx: &mut ControlCx<'_>) {
        self.boot_event(cx, BootEvent::Leave);
        self.run_effects(cx);
    }
}
