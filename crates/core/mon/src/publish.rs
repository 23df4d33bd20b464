//! Subscriptions: which session is sent which map, and when.

use crate::event::{Effect, Served, SessionId};
use crate::mds_messages::{FSMAP, FSMAP_USER, is_mdsmap};
use crate::mgr_messages::DIGEST_TOPIC;
use crate::mon::Mon;
use crate::session::{Session, Versions};
use nacre_auth::Rwx;
use nacre_denc::Encode;
use nacre_msg::{ClusterLogEntry, Log, LogPriority, Message, MonGetOsdMap, OsdPgCreate2, Subscription};
use nacre_types::{Epoch, OsdId, SpgId};

/// Maps per message; Ceph `osd_map_message_max`.
const MAPS_PER_MESSAGE_MAX: u32 = 40;
/// Full maps in one answer to a peer that asks for them: each may have to be built anew.
const FULLS_PER_REQUEST_MAX: u32 = 4;
/// Log entries per message.
const LOG_ENTRIES_PER_MESSAGE_MAX: usize = 1000;

/// What can be subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topic {
    MonMap,
    Config,
    OsdMap,
    MgrMap,
    /// Maps of file systems: `mds_messages` knows which.
    FileSystems,
    ServiceMap,
    PgCreates,
    VoidTickets,
    EntityCaps,
    PgStats,
    RecoverySnapshot,
    Digest,
    Keys,
    Log(LogPriority),
}

impl Topic {
    /// `None` for topics that we have nothing for; a subscription for one is kept and never met.
    fn parse(what: &str) -> Option<Self> {
        Some(match what {
            "monmap" => Self::MonMap,
            "config" => Self::Config,
            "osdmap" => Self::OsdMap,
            "mgrmap" => Self::MgrMap,
            FSMAP | FSMAP_USER => Self::FileSystems,
            "servicemap" => Self::ServiceMap,
            "osd_pg_creates" => Self::PgCreates,
            nacre_msg::VoidTickets::TOPIC => Self::VoidTickets,
            nacre_msg::EntityCaps::TOPIC => Self::EntityCaps,
            nacre_msg::PgStatsWanted::TOPIC => Self::PgStats,
            nacre_msg::RecoverySnapshotPart::TOPIC => Self::RecoverySnapshot,
            DIGEST_TOPIC => Self::Digest,
            "log-debug" => Self::Log(LogPriority::DEBUG),
            "log-info" => Self::Log(LogPriority::INFO),
            "log-sec" => Self::Log(LogPriority::SEC),
            "log-warn" => Self::Log(LogPriority::WARN),
            "log-error" => Self::Log(LogPriority::ERROR),
            _ if what.starts_with(nacre_msg::KvData::TOPIC) => Self::Keys,
            _ if is_mdsmap(what) => Self::FileSystems,
            _ => return None,
        })
    }

    /// Service whose read cap a subscriber needs, beyond being authenticated.
    fn service(self) -> Option<(&'static str, Rwx)> {
        match self {
            Self::OsdMap => Some(("osd", Rwx::R)),
            Self::PgCreates
            | Self::VoidTickets
            | Self::EntityCaps
            | Self::PgStats
            | Self::RecoverySnapshot => Some(("osd", Rwx::W)),
            Self::Digest => Some(("mgr", Rwx::R)),
            Self::FileSystems => Some(("mds", Rwx::R)),
            Self::Log(_) => Some(("log", Rwx::R)),
            // What is below a prefix has caps of its own.
            Self::MonMap | Self::Config | Self::MgrMap | Self::ServiceMap | Self::Keys => None,
        }
    }
}

impl Mon {
    fn versions(&self) -> Versions {
        Versions {
            monmap: self.state.mon.map().epoch,
            osdmap: self.state.osd.published().epoch,
            mgrmap: self.state.mgr.map().epoch,
            fsmap: self.state.fs.map().epoch,
            config: self.state.config.version(),
            services: self.state.services.map().epoch,
            log: self.state.log.version(),
            void: self.state.auth.void_version(),
            caps: self.state.auth.caps_version(),
            own_mgr_is_active: self.state.mgr.own_is_active(),
        }
    }

    /// Serves subscribers of everything that changed since the last call.
    pub(crate) fn publish(&mut self) {
        self.publish_keys();
        let versions = self.versions();
        let before = std::mem::replace(&mut self.served, versions.clone());
        if before == versions {
            return;
        }
        let changed = |topic: Topic| match topic {
            Topic::MonMap => before.monmap != versions.monmap,
            Topic::Config => before.config != versions.config,
            Topic::OsdMap | Topic::PgCreates => before.osdmap != versions.osdmap,
            Topic::MgrMap => before.mgrmap != versions.mgrmap,
            Topic::FileSystems => before.fsmap != versions.fsmap,
            Topic::ServiceMap => before.services != versions.services,
            Topic::VoidTickets => before.void != versions.void,
            Topic::EntityCaps => before.caps != versions.caps,
            Topic::PgStats => before.own_mgr_is_active != versions.own_mgr_is_active,
            // Every few seconds, and as keys change: see `managers`. By its own clock: see `recovery`.
            Topic::Digest | Topic::Keys | Topic::RecoverySnapshot => false,
            Topic::Log(_) => before.log != versions.log,
        };
        let topics = |session: &Session| -> Vec<String> {
            let wanted = |what: &&String| Topic::parse(what).is_some_and(changed);
            session.subscriptions.topics().filter(wanted).cloned().collect()
        };
        let due: Vec<(SessionId, Vec<String>)> =
            self.sessions.iter().map(|(id, session)| (*id, topics(session))).collect();
        for (session, topics) in due {
            topics.iter().for_each(|what| self.serve(session, what));
        }
        if before.osdmap != versions.osdmap {
            self.share_with_osds();
        }
    }

    /// OSDs get every new epoch, whether they subscribed or not: no other peer waits for maps as they do.
    fn share_with_osds(&mut self) {
        let known =
            |session: &SessionId| self.sessions.get(session).is_some_and(|entry| entry.osdmap_epoch > 0);
        let sessions: Vec<SessionId> = self.osd_sessions.values().copied().filter(known).collect();
        sessions.into_iter().for_each(|session| self.send_osdmaps(session));
    }

    /// Serves one subscription, if what is there meets it.
    pub(crate) fn serve(&mut self, session: SessionId, what: &str) {
        let Some(topic) = Topic::parse(what) else { return };
        let Some(entry) = self.sessions.get(&session) else { return };
        let Some(subscription) = entry.subscriptions.get(what) else { return };
        let caps = &entry.identity.caps;
        if topic.service().is_some_and(|(service, needed)| !caps.allows_service(service, needed)) {
            return;
        }
        match topic {
            Topic::MonMap => {
                let version = self.state.mon.map().epoch.into();
                let map = self.state.mon.encoded();
                self.serve_map(session, what, subscription, version, nacre_msg::MMonMap { map });
            }
            Topic::MgrMap => {
                let version = self.state.mgr.map().epoch.into();
                let map = self.state.mgr.map().to_bytes();
                self.serve_map(session, what, subscription, version, nacre_msg::MMgrMap { map });
            }
            Topic::ServiceMap => {
                let map = self.state.services.map().clone();
                self.serve_map(session, what, subscription, map.epoch.into(), map);
            }
            Topic::FileSystems => {
                if let Some((version, message)) = self.fs_message(session, what) {
                    self.serve_map(session, what, subscription, version, message);
                }
            }
            Topic::Config => self.serve_config(session),
            Topic::OsdMap => self.serve_osdmap(session, subscription),
            Topic::PgCreates => self.serve_pg_creates(session),
            Topic::VoidTickets => self.serve_void_tickets(session),
            Topic::EntityCaps => self.serve_entity_caps(session),
            Topic::PgStats => self.serve_pg_stats_wanted(session),
            Topic::RecoverySnapshot => self.note_subscribed_snapshot(session, subscription),
            Topic::Digest => self.serve_digest(session),
            Topic::Keys => self.serve_keys(session, what),
            Topic::Log(level) => self.serve_log(session, what, level, subscription),
        }
    }

    fn serve_map(
        &mut self,
        session: SessionId,
        what: &str,
        subscription: Subscription,
        version: u64,
        message: impl Into<Message>,
    ) {
        if subscription.is_met_by(version) {
            self.send_served(session, what, version, message);
        }
    }

    /// Sends what serves a subscription up to `version`.
    fn send_served(&mut self, session: SessionId, what: &str, version: u64, message: impl Into<Message>) {
        self.served_to(session, what, version);
        let served = Some(Served { what: what.to_owned(), version });
        self.hold(Effect::Send { session, tid: 0, message: Box::new(message.into()), served });
    }

    fn served_to(&mut self, session: SessionId, what: &str, version: u64) {
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.subscriptions.served(what, version);
        }
    }

    fn serve_config(&mut self, session: SessionId) {
        let Some(entry) = self.sessions.get(&session) else { return };
        let config = self.state.options_of(&entry.identity.auth_name);
        if entry.config_sent.as_ref() == Some(&config) {
            return;
        }
        let version = self.state.config.version();
        self.send_served(session, "config", version, nacre_msg::Config { config: config.clone() });
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.config_sent = Some(config);
        }
    }

    fn serve_osdmap(&mut self, session: SessionId, subscription: Subscription) {
        let newest = self.state.osd.published().epoch;
        if !subscription.is_met_by(newest.into()) {
            return;
        }
        if subscription.start == 0 {
            let mut message = self.osdmap_message();
            message.full.insert(newest, self.state.osd.published_full().clone());
            self.send_osdmap(session, message, newest);
        } else {
            let start = Epoch::try_from(subscription.start).unwrap_or(newest);
            self.knows_epoch(session, start - 1);
            self.send_osdmaps(session);
        }
    }

    /// The peer said that it has this epoch.
    pub(crate) fn knows_epoch(&mut self, session: SessionId, epoch: Epoch) {
        // One that it cannot have is not believed: see `hear_epoch`.
        let epoch = epoch.min(self.state.osd.published().epoch);
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.osdmap_epoch = epoch;
        }
    }

    fn osdmap_message(&self) -> nacre_msg::MOsdMap {
        nacre_msg::MOsdMap {
            fsid: self.state.fsid,
            oldest: self.state.osd.oldest(),
            newest: self.state.osd.published().epoch,
            ..nacre_msg::MOsdMap::default()
        }
    }

    fn send_osdmap(&mut self, session: SessionId, message: nacre_msg::MOsdMap, upto: Epoch) {
        self.send_served(session, "osdmap", upto.into(), message);
        self.knows_epoch(session, upto);
    }

    /// Sends every epoch behind the one that the peer has: as increments, after a full map when those are not
    /// kept far enough back.
    pub(crate) fn send_osdmaps(&mut self, session: SessionId) {
        let Some(entry) = self.sessions.get(&session) else { return };
        let (oldest, newest) = (self.state.osd.oldest(), self.state.osd.published().epoch);
        let mut next = entry.osdmap_epoch + 1;
        while next <= newest {
            let mut message = self.osdmap_message();
            if next <= oldest {
                let Some(full) = self.state.osd.full_map(oldest) else { return };
                message.full.insert(oldest, full);
                next = oldest + 1;
            }
            let last = newest.min(next.saturating_add(MAPS_PER_MESSAGE_MAX - 1));
            for epoch in next..=last {
                let Some(incremental) = self.state.osd.incremental(epoch) else { return };
                message.incrementals.insert(epoch, incremental.clone());
            }
            self.send_osdmap(session, message, last.max(next - 1));
            next = last.max(next - 1) + 1;
        }
    }

    /// Sends epochs that a peer asks for by number, as far as they are kept. Which maps the peer has is not looked at.
    pub(crate) fn osd_map_epochs(&mut self, session: SessionId, ask: &MonGetOsdMap) {
        if !self.allows(session, "osd", Rwx::R) {
            return;
        }
        let mut message = self.osdmap_message();
        let (oldest, newest) = (message.oldest, message.newest);
        let kept = |first: Epoch, last: Epoch, count_max: Epoch| {
            let (first, last) = (first.max(oldest), last.min(newest));
            first..=last.min(first.saturating_add(count_max - 1))
        };
        let osd = &self.state.osd;
        for epoch in kept(ask.full_first, ask.full_last, FULLS_PER_REQUEST_MAX) {
            message.full.extend(osd.full_map(epoch).map(|full| (epoch, full)));
        }
        for epoch in kept(ask.inc_first, ask.inc_last, MAPS_PER_MESSAGE_MAX) {
            message.incrementals.extend(osd.incremental(epoch).map(|inc| (epoch, inc.clone())));
        }
        self.send(session, 0, message);
    }

    /// Asks a primary to make the PGs of new pools that it has not made yet.
    fn serve_pg_creates(&mut self, session: SessionId) {
        let Some(osd) = self.sessions.get(&session).and_then(Session::osd) else { return };
        let pgs = self.state.osd.creating_on(osd);
        if !pgs.is_empty() {
            let epoch = self.state.osd.published().epoch;
            let pgs = pgs.into_iter().map(|(pg, epoch, stamp)| (SpgId::replicated(pg), (epoch, stamp)));
            let message = OsdPgCreate2 { epoch, pgs: pgs.collect(), ..OsdPgCreate2::default() };
            self.send(session, 0, message);
        }
    }

    /// A session that asks gets them whole, whatever version it had: the count begins anew with the monitor.
    fn serve_void_tickets(&mut self, session: SessionId) {
        if self.sessions.get(&session).and_then(Session::osd).is_some() {
            let (of, all) = self.state.auth.void().to_tell();
            self.send(session, 0, nacre_msg::VoidTickets { of, all });
        }
    }

    /// Sends an OSD the caps that have changed since tickets were made.
    fn serve_entity_caps(&mut self, session: SessionId) {
        if self.sessions.get(&session).and_then(Session::osd).is_some() {
            let of = self.state.auth.changed_caps().to_tell();
            self.send(session, 0, nacre_msg::EntityCaps { of });
        }
    }

    /// While a stock manager is active, OSDs report to us besides.
    fn serve_pg_stats_wanted(&mut self, session: SessionId) {
        if self.sessions.get(&session).and_then(Session::osd).is_some() {
            let wanted = !self.state.mgr.own_is_active();
            self.send(session, 0, nacre_msg::PgStatsWanted { wanted });
        }
    }

    /// An OSD is handed one when its time has come: see `recovery::handout`.
    fn note_subscribed_snapshot(&mut self, session: SessionId, subscription: Subscription) {
        if let Some(osd) = self.sessions.get(&session).and_then(Session::osd) {
            self.note_held_snapshot(osd, subscription.start);
        }
    }

    fn serve_log(&mut self, session: SessionId, what: &str, level: LogPriority, subscription: Subscription) {
        let log = &self.state.log;
        let version = log.version();
        if !subscription.is_met_by(version) || version == 0 {
            return;
        }
        let is_wanted = |entry: &ClusterLogEntry| entry.priority >= level;
        let mut news: Vec<ClusterLogEntry> = if subscription.start == 0 {
            log.entries().rev().find(|entry| is_wanted(entry)).cloned().into_iter().collect()
        } else {
            let news = log.after(subscription.start - 1).map(|(_, entry)| entry);
            news.filter(|entry| is_wanted(entry)).cloned().collect()
        };
        if news.is_empty() {
            return self.served_to(session, what, version);
        }
        let fsid = self.state.fsid;
        while !news.is_empty() {
            let rest = news.split_off(news.len().min(LOG_ENTRIES_PER_MESSAGE_MAX));
            let entries = std::mem::replace(&mut news, rest);
            self.send_served(session, what, version, Log { version, fsid, entries });
        }
    }

    /// Newest and oldest version of a map, for `MMonGetVersion`; `None` when we have no such map.
    pub(crate) fn map_version(&self, what: &str) -> Option<(u64, u64)> {
        let single = |epoch: Epoch| Some((u64::from(epoch), u64::from(epoch)));
        match what {
            "osdmap" => Some((self.state.osd.published().epoch.into(), self.state.osd.oldest().into())),
            "monmap" => single(self.state.mon.map().epoch),
            "mgrmap" => single(self.state.mgr.map().epoch),
            "mdsmap" | "fsmap" => single(self.state.fs.map().epoch),
            _ => None,
        }
    }
}

impl crate::osd::OsdMaps {
    /// PGs not made yet whose primary `osd` is.
    fn creating_on(&self, osd: OsdId) -> Vec<(nacre_types::PgId, Epoch, nacre_types::UTime)> {
        let map = self.published();
        let leads = |pg: nacre_types::PgId| map.pg_to_up_acting(pg).acting_primary == osd;
        self.creating().filter(|(pg, epoch, _)| *epoch <= map.epoch && leads(*pg)).collect()
    }
}
