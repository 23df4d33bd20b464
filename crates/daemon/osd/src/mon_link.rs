//! [`MonLink`]: the session with the monitor. `core/monc` decides which monitor to dial, what to subscribe to and which tickets to renew; here its
//! effects become connections and messages.

use crate::links::{Dialler, NetCx};
use nacre_auth::{ClientAuth, Offer, RotatingKeys, ServiceAccess};
use nacre_buf::BufList;
use nacre_monc::{Config as MoncConfig, Effect, Event, Interest, LinkEvent, LinkId, MonClient};
use nacre_msg::{
    DeviceHealthWanted, EntityCaps, Message, MonGetOsdMap, PgStatsWanted, RecoverySnapshotPart, VoidTickets,
};
use nacre_msgr::{Config as MsgrConfig, Connection, Event as ConnEvent, Fault, Target};
use nacre_options::Values;
use nacre_osd_core::{ControlPlane, MapRequest};
use nacre_service::{ConnId, mon_link_event};
use nacre_types::{AuthName, EntityKind, Epoch, OsdId, Stamp};
use std::collections::VecDeque;
use std::sync::Arc;

/// What came of the session with the monitor.
#[allow(clippy::large_enum_variant, reason = "taken apart where it is made")]
#[derive(Debug)]
pub(crate) enum MonEvent {
    /// It is open; the monitor may know nothing of what was said in earlier ones.
    Opened,
    /// The monitor says something.
    Message(Message),
    /// The secrets of the service, newer ones than before.
    Keys(RotatingKeys),
    /// A command was answered, with 0 or a negative errno and a line for people.
    CommandDone { tid: u64, result: i32, status: String },
}

/// The session with the monitor, over whichever connection it has at the moment.
pub(crate) struct MonLink {
    osd: OsdId,
    monc: MonClient,
    conn: Option<(LinkId, ConnId)>,
    /// What `monc` wants and has not got yet.
    effects: VecDeque<Effect>,
}

impl MonLink {
    /// A client of the monitors for the OSD that `auth` names; it dials nobody yet.
    pub(crate) fn new(
        (osd, plane): (OsdId, ControlPlane),
        auth: ClientAuth,
        monc_config: MoncConfig,
    ) -> Self {
        let mut monc = MonClient::new(monc_config, auth);
        let ours: &[&str] = match plane {
            ControlPlane::Nacre => {
                &[VoidTickets::TOPIC, EntityCaps::TOPIC, PgStatsWanted::TOPIC, DeviceHealthWanted::TOPIC]
            }
            ControlPlane::Ceph => &[],
        };
        for what in ["config", "mgrmap", "osd_pg_creates"].iter().chain(ours) {
            monc.subscribe(what, 0, Interest::Lasting);
        }
        Self { osd, monc, conn: None, effects: VecDeque::new() }
    }

    /// How the OSD proves itself.
    pub(crate) fn auth_of(osd: OsdId, key: nacre_auth::CryptoKey) -> ClientAuth {
        let name = AuthName::new(EntityKind::OSD, osd.to_string());
        let services = [EntityKind::MON, EntityKind::OSD, EntityKind::MGR];
        ClientAuth::new(name, Some(key), Offer::secure_first(), &services)
    }

    /// Looks for a monitor, and wants the maps behind `newest`, or all when that is 0.
    pub(crate) fn start(&mut self, newest: Epoch, net: &mut NetCx<'_>) {
        let start = if newest == 0 { 0 } else { u64::from(newest) + 1 };
        self.monc.subscribe("osdmap", start, Interest::Lasting);
        self.monc.start(&mut net.monc());
    }

    /// Wants a recovery snapshot beside the one that was made at `made`, in seconds since 1970; the monitor says when.
    pub(crate) fn has_snapshot(&mut self, made: Option<u64>) {
        let start = made.map_or(0, |made| made.saturating_add(1));
        self.monc.subscribe(RecoverySnapshotPart::TOPIC, start, Interest::Lasting);
    }

    /// Begins a new session: the monitor takes our address for clients from it.
    pub(crate) fn restart(&mut self, net: &mut NetCx<'_>) {
        self.monc.stop();
        self.monc.start(&mut net.monc());
    }

    /// True while a session is open.
    pub(crate) fn is_open(&self) -> bool {
        self.monc.is_open()
    }

    /// When [`MonLink::tick`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        self.monc.next_deadline()
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, net: &mut NetCx<'_>) {
        if self.monc.next_deadline().is_some_and(|at| at <= net.now) {
            self.monc.handle(&mut net.monc(), Event::Tick);
        }
    }

    /// Modes of connections with the monitor, as `ms_mon_cluster_mode` has them.
    pub(crate) fn set_modes(&mut self, modes: &str) {
        self.monc.set_modes(modes);
    }

    /// What links to other daemons need to dial: tickets come from the monitor.
    pub(crate) fn dialler<'a>(&'a mut self, net: &'a mut NetCx<'_>, options: &'a Values) -> Dialler<'a> {
        net.dialler(self.osd, &mut self.monc, options)
    }

    /// What opens connections to other OSDs.
    pub(crate) fn access(&self) -> Option<ServiceAccess> {
        self.monc.access(EntityKind::OSD)
    }

    /// Another OSD has refused our ticket.
    pub(crate) fn ticket_refused(&mut self) {
        self.monc.ticket_refused(EntityKind::OSD);
    }

    /// Queues a message for the monitor. What it does not get now it gets when `core/osd` has heard that a session is open, and says
    /// again what still matters.
    pub(crate) fn send(&mut self, message: Message) {
        let tid = self.monc.next_tid();
        if self.monc.send(tid, message).is_err() {
            tracing::warn!(osd = self.osd, "queue full: a message for the monitor is dropped");
        }
    }

    /// Gives the monitor a command, which is repeated until it is answered ([`MonEvent::CommandDone`]); `None` when too many are under way.
    pub(crate) fn command(&mut self, command: &serde_json::Value) -> Option<u64> {
        self.monc.command(vec![command.to_string()], BufList::new()).ok()
    }

    /// Whether a connection leads to the monitor.
    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.conn.is_some_and(|(_, mon)| mon == conn)
    }

    /// An event of the connection with the monitor.
    pub(crate) fn conn_event(&mut self, event: ConnEvent, net: &mut NetCx<'_>) {
        let Some((link, _)) = self.conn else { return };
        match mon_link_event(event) {
            Ok(Some(event)) => self.monc.handle(&mut net.monc(), Event::Link(link, event)),
            Ok(None) => (),
            Err(error) => tracing::error!(%error, "a message of the monitor does not decode"),
        }
    }

    /// The connection with the monitor is gone.
    pub(crate) fn conn_closed(&mut self, net: &mut NetCx<'_>) {
        if let Some((link, _)) = self.conn.take() {
            self.monc.handle(&mut net.monc(), Event::Link(link, LinkEvent::Lost));
        }
    }

    /// Carries out what the client of the monitors wants, up to what is OSD control's to know; `None` when it wants nothing more.
    /// `as_whom` is the name under which we dial.
    pub(crate) fn next_event(&mut self, as_whom: &Arc<MsgrConfig>, net: &mut NetCx<'_>) -> Option<MonEvent> {
        loop {
            if self.effects.is_empty() {
                let mut effects = Vec::new();
                self.monc.drain(&mut effects);
                self.effects = effects.into();
            }
            let event = match self.effects.pop_front()? {
                Effect::Opened { .. } => MonEvent::Opened,
                Effect::Deliver { message, .. } => MonEvent::Message(message),
                Effect::RotatingKeys(keys) => MonEvent::Keys(keys),
                Effect::CommandDone { tid, result, status, .. } => {
                    MonEvent::CommandDone { tid, result, status }
                }
                effect => {
                    self.execute_effect(effect, as_whom, net);
                    continue;
                }
            };
            return Some(event);
        }
    }

    fn execute_effect(&mut self, effect: Effect, as_whom: &Arc<MsgrConfig>, net: &mut NetCx<'_>) {
        match effect {
            Effect::Connect { link, addr } => {
                let target = Target { addr, kind: EntityKind::MON, gid: self.osd.into() };
                match net.messenger.connect(Arc::clone(as_whom), target, None, net.now, net.entropy) {
                    Ok(conn) => self.conn = Some((link, conn)),
                    Err(error) => {
                        tracing::warn!(%addr, %error, "cannot connect to the monitor");
                        self.monc.handle(&mut net.monc(), Event::Link(link, LinkEvent::Lost));
                    }
                }
            }
            Effect::AuthStart { link, start } => {
                self.drive(link, net, |c| c.auth_start(start.method, &start.modes, &start.payload));
            }
            Effect::AuthMore { link, payload } => self.drive(link, net, |c| c.auth_request_more(&payload)),
            Effect::AuthFinish { link, keys } => {
                self.drive(link, net, |c| c.auth_finish(&keys.session_key, &keys.connection_secret));
            }
            Effect::Send { link, tid, message } => {
                if let Some(conn) = self.conn_of(link) {
                    net.messenger.send(conn, message.encode(tid));
                }
            }
            Effect::Keepalive { link } => {
                if let Some(conn) = self.conn_of(link) {
                    net.messenger.send_keepalive(conn, net.wall);
                }
            }
            Effect::Close { link } => {
                if let Some(conn) = self.conn_of(link) {
                    net.messenger.close(conn);
                    self.conn = None;
                }
            }
            Effect::Refused { errno } => {
                tracing::error!(osd = self.osd, %errno, "the monitors refuse this OSD: check its key and caps");
            }
            Effect::RotatingRefused { errno } => {
                tracing::error!(osd = self.osd, %errno, "the monitors give this OSD no service secrets");
            }
            // The first four end `next_event`.
            Effect::Opened { .. } | Effect::Deliver { .. } | Effect::RotatingKeys(_) => (),
            Effect::CommandDone { .. } | Effect::Lost | Effect::Version { .. } => (),
        }
    }

    fn conn_of(&self, link: LinkId) -> Option<ConnId> {
        self.conn.filter(|(current, _)| *current == link).map(|(_, conn)| conn)
    }

    fn drive(
        &self,
        link: LinkId,
        net: &mut NetCx<'_>,
        work: impl FnOnce(&mut Connection) -> Result<(), Fault>,
    ) {
        if let Some(conn) = self.conn_of(link) {
            net.messenger.drive(conn, work);
        }
    }

    /// Asks the monitor for maps.
    pub(crate) fn ask_for_maps(&mut self, request: MapRequest) {
        match request {
            MapRequest::Following => self.monc.ask_again("osdmap"),
            MapRequest::Full { own } => {
                let ask = MonGetOsdMap { full_first: own, full_last: own + 1, ..MonGetOsdMap::default() };
                self.send(ask.into());
            }
        }
    }

    /// Our maps have come to `epoch`: the subscription goes on behind it.
    pub(crate) fn has_maps(&mut self, epoch: Epoch) {
        self.monc.got("osdmap", epoch.into());
    }
}
