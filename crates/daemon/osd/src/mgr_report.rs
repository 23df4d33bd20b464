//! [`MgrReport`]: the connection to the manager: what the OSD reports of itself and its PGs, and what operators order through it.

use crate::control_event::ControlEvent;
use crate::dynamic_perf_stats::{self, PerfSamples};
use crate::links::{Link, NetCx, WAITING_MAX};
use crate::perf_counters::Declared;
use crate::report;
use crate::shard_msg::ShardReport;
use nacre_buf::Bytes;
use nacre_denc::Encode;
use nacre_maps::{MgrMap, OsdMap};
use nacre_msg::stats::{PgStat, PingTimes, osd_alert};
use nacre_msg::{Message, PerfQueries, PgStats, RawMessage};
use nacre_msgr::{Config as MsgrConfig, Session};
use nacre_options::Values;
use nacre_osd_core::{ControlPlane, Room};
use nacre_service::{ConnId, Messenger};
use nacre_store::StoreUsage;
use nacre_types::{EntityKind, OsdId, PgId, Stamp, Uuid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// An alert of a peer's message that did not decode lasts for this time.
const MISUNDERSTOOD_KEPT: Duration = Duration::from_secs(600);

/// What OSD control knows of other OSDs by pings.
pub(crate) struct Pinged {
    /// The OSDs that we ping.
    pub(crate) peers: BTreeSet<OsdId>,
    /// How long that took.
    pub(crate) times: BTreeMap<OsdId, PingTimes>,
}

/// What the manager and we have said in the session that is open.
#[derive(Debug)]
struct ManagerSession {
    /// We have said who we are, and with which options.
    opened_with: Option<Bytes>,
    /// Between reports. Ceph's manager says it once it knows us.
    period: Duration,
    /// It wants counters from this priority on; nothing before it has said so.
    priority_min: Option<u32>,
    /// What it wants counted.
    queries: PerfQueries,
    declared: Declared,
}

impl Default for ManagerSession {
    fn default() -> Self {
        Self {
            opened_with: None,
            period: report::INTERVAL,
            priority_min: None,
            queries: PerfQueries::new(),
            declared: Declared::default(),
        }
    }
}

/// What all shards say of their PGs, and the link over which the manager hears it.
pub(crate) struct MgrReport {
    osd: OsdId,
    fsid: Uuid,
    plane: ControlPlane,
    link: Option<Link>,
    session: ManagerSession,
    /// The monitor wants our statistics besides.
    monitor_wants: bool,
    reports: BTreeMap<usize, ShardReport>,
    /// What shards have counted for the manager's queries and it was not told yet.
    perf_samples: PerfSamples,
    /// Peers whose messages we could not read: what they said last, and when.
    misunderstood: BTreeMap<OsdId, (String, Stamp)>,
    is_due: bool,
    due_at: Stamp,
    seq: u64,
}

impl MgrReport {
    /// Of `osd` in the cluster `fsid`; no manager is known yet.
    pub(crate) fn new(osd: OsdId, fsid: Uuid, plane: ControlPlane) -> Self {
        Self {
            osd,
            fsid,
            plane,
            link: None,
            session: ManagerSession::default(),
            monitor_wants: false,
            reports: BTreeMap::new(),
            perf_samples: PerfSamples::new(),
            misunderstood: BTreeMap::new(),
            is_due: false,
            due_at: Stamp::default(),
            seq: 0,
        }
    }

    /// The link to the manager, to be dialled.
    pub(crate) fn link(&mut self) -> Option<&mut Link> {
        self.link.as_mut()
    }

    /// When the manager is to be dialled.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        self.link.as_ref().and_then(Link::next_deadline)
    }

    /// Whether a connection leads to the manager.
    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.link.as_ref().is_some_and(|link| link.conn() == Some(conn))
    }

    /// The connection is gone, and left `session` for the next one.
    pub(crate) fn conn_closed(&mut self, session: Option<Box<Session>>, now: Stamp) {
        self.session = ManagerSession::default();
        if let Some(link) = &mut self.link {
            link.closed(session, now);
        }
    }

    /// Follows the map of the managers, under the name `as_whom`. The link is to be dialled then.
    pub(crate) fn follow(&mut self, map: &MgrMap, as_whom: &Arc<MsgrConfig>, messenger: &mut Messenger) {
        let wanted = map.available.then_some(&map.active_addrs).filter(|addrs| addrs.msgr2().is_some());
        if self.link.as_ref().map(Link::addrs) == wanted {
            return;
        }
        if let Some(link) = self.link.take() {
            link.end(messenger);
        }
        self.session = ManagerSession::default();
        let link =
            |addrs| Link::new(EntityKind::MGR, Clone::clone(addrs), Some(Arc::clone(as_whom)), WAITING_MAX);
        self.link = wanted.map(link);
    }

    /// The manager says something.
    pub(crate) fn message(&mut self, raw: RawMessage, events: &mut Vec<ControlEvent>) {
        match Message::decode(raw) {
            Ok(Message::OsdScrub2(scrub)) if scrub.fsid == self.fsid => {
                events.push(ControlEvent::Scrub(Box::new(scrub)));
            }
            Ok(Message::OsdForceRecovery(order)) if order.fsid == self.fsid => {
                events.push(ControlEvent::Force(Box::new(order)));
            }
            Ok(Message::MgrConfigure(configure)) => {
                self.session.priority_min = Some(configure.stats_threshold);
                // None means that it wants no reports for now; we go on, so that it need not ask.
                let period = Duration::from_secs(configure.stats_period_s.into());
                self.session.period = if period.is_zero() { report::INTERVAL } else { period };
                self.session.queries.clone_from(&configure.perf_queries);
                events.push(ControlEvent::PerfQueries(configure.perf_queries));
                self.is_due = true;
            }
            Ok(other) => tracing::debug!(name = other.name(), "unexpected message from the manager"),
            Err(error) => tracing::error!(%error, "a message of the manager does not decode"),
        }
    }

    /// The monitor, which is ours, wants what the manager hears, or does not any more.
    pub(crate) fn report_to_monitor(&mut self, wanted: bool) {
        self.monitor_wants = wanted;
        self.is_due |= wanted;
    }

    /// There is something new to say.
    pub(crate) fn set_due(&mut self) {
        self.is_due = true;
    }

    /// A shard's PGs have changed; true when other OSDs than before share PGs with us.
    pub(crate) fn on_report(&mut self, mut report: ShardReport) -> bool {
        self.is_due = true;
        dynamic_perf_stats::merge(&mut self.perf_samples, std::mem::take(&mut report.perf_samples));
        let before = self.sharers();
        self.reports.insert(report.shard, report);
        self.sharers() != before
    }

    /// What each shard said last.
    pub(crate) fn reports(&self) -> impl Iterator<Item = &ShardReport> {
        self.reports.values()
    }

    /// A peer said what we cannot read: the operator hears of it.
    pub(crate) fn misunderstood(&mut self, from: OsdId, why: String, now: Stamp) {
        self.misunderstood.insert(from, (why, now));
        self.is_due = true;
    }

    /// The number of the report that was sent last.
    pub(crate) fn stat_seq(&self, map: &OsdMap) -> u64 {
        report::stat_seq(map, self.osd, self.seq)
    }

    /// What the store has for clients, all shards together.
    pub(crate) fn room(&self) -> Room {
        let usages = self.reports.values().map(|report| (report.usage, report.partitions));
        let usage = StoreUsage::of_partitions(usages);
        Room { total_bytes: usage.total_bytes, available_bytes: usage.available_bytes }
    }

    /// OSDs that serve any of our PGs with us.
    pub(crate) fn sharers(&self) -> BTreeSet<OsdId> {
        self.reports.values().flat_map(|report| report.sharers.iter().copied()).collect()
    }

    /// The PGs that we lead, with what they say of themselves.
    pub(crate) fn pgs(&self) -> impl Iterator<Item = &(PgId, PgStat)> + Clone {
        self.reports.values().flat_map(|report| &report.pgs)
    }

    /// Sends a report if one is due and the manager listens, and yields it if the monitor wants it, too. `pinged`: the OSDs that we ping;
    /// `has_monitor`: a session with the monitor is open.
    pub(crate) fn send(
        &mut self,
        map: &OsdMap,
        pinged: impl FnOnce() -> Pinged,
        (options, has_monitor): (&Values, bool),
        net: &mut NetCx<'_>,
    ) -> Option<PgStats> {
        let for_monitor = self.monitor_wants && has_monitor;
        let is_open = self.link.as_ref().is_some_and(Link::is_open);
        if is_open {
            self.open_session(options, net);
        }
        let (is_due, is_rhythm) = (self.is_due, net.now >= self.due_at);
        if !(is_open || for_monitor) || !(is_due || is_rhythm) || self.reports.is_empty() {
            return None;
        }
        self.is_due = false;
        if is_rhythm {
            // Counters do not change what anybody does; so they go out in the manager's rhythm, whatever else there is to say.
            self.send_counters(options, net);
            self.due_at = net.now + self.session.period;
        }
        self.seq += 1;
        let Pinged { peers, times } = pinged();
        let mut stats = self.stats(map, peers, net.now);
        stats.osd_stat.hb_pingtime = times;
        if let Some(link) = self.link.as_mut().filter(|link| link.is_open()) {
            link.send(net.messenger, Message::from(stats.clone()).encode(0));
        }
        for_monitor.then_some(stats)
    }

    /// Says which daemon this is, once per session.
    fn open_session(&mut self, options: &Values, net: &mut NetCx<'_>) {
        let Some(link) = self.link.as_mut() else { return };
        if self.session.opened_with.is_none() {
            self.session.opened_with = Some(report::config(options).to_bytes());
            link.send(net.messenger, Message::from(report::mgr_open(self.osd, options)).encode(0));
        }
    }

    /// Counters and complaints, where the manager has said which it wants, with our options where they have changed.
    fn send_counters(&mut self, options: &Values, net: &mut NetCx<'_>) {
        let Some(link) = self.link.as_mut().filter(|link| link.is_open()) else { return };
        let Some(priority_min) = self.session.priority_min else { return };
        let config = report::config(options).to_bytes();
        let is_new = self.session.opened_with.as_ref() != Some(&config);
        let changed = if is_new { config.clone() } else { Bytes::new() };
        self.session.opened_with = Some(config);
        let counters = (&mut self.session.declared, priority_min);
        let mut said = report::mgr_report(self.osd, self.reports.values(), counters, changed);
        said.perf_reports =
            dynamic_perf_stats::reports(&self.session.queries, std::mem::take(&mut self.perf_samples));
        link.send(net.messenger, Message::from(said).encode(0));
    }

    fn stats(&mut self, map: &OsdMap, hb_peers: BTreeSet<OsdId>, now: Stamp) -> PgStats {
        let osd = (self.osd, self.fsid);
        let mut stats = report::pg_stats(osd, map, self.seq, self.reports.values(), hb_peers.into_iter());
        self.misunderstood.retain(|_, (_, at)| now.since(*at) < MISUNDERSTOOD_KEPT);
        let misunderstood = self.misunderstood.values().map(|(text, _)| text.as_str());
        let mut alerts = report::alerts(misunderstood, self.reports.values());
        if self.plane == ControlPlane::Ceph {
            // Ceph's manager has them as a metric, and would warn of them a second time.
            alerts.remove(osd_alert::SLOW_OPS);
        }
        if !alerts.is_empty() {
            stats.osd_stat.alerts.insert(self.osd, alerts);
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_maps::OsdInfo;
    use nacre_msg::stats::SlowOps;

    /// Of any shard, not only of the first: else a peer of the other's PGs is not pinged, and promises us nothing.
    #[test]
    fn whoever_shares_the_pgs_of_any_shard_is_noticed() {
        let mut mgr = MgrReport::new(0, Uuid::default(), ControlPlane::Nacre);
        let mut heard = |shard, sharers: &[OsdId]| {
            let sharers = sharers.iter().copied().collect();
            mgr.on_report(ShardReport { shard, sharers, ..ShardReport::default() })
        };
        assert!(heard(0, &[1, 2]));
        assert!(!heard(1, &[1, 2]), "the same as those of the other shard");
        assert!(heard(1, &[1, 2, 3]), "another one shares PGs of the second shard");
        assert!(!heard(1, &[1, 2, 3]));
        assert!(!heard(0, &[1]), "2 shares the other shard's PGs");
        assert!(heard(1, &[1, 3]), "2 shares none any more");
    }

    #[test]
    fn slow_messages_are_no_alert_for_cephs_manager_which_has_them_as_a_metric() {
        let alerts = |plane| {
            let mut mgr = MgrReport::new(0, Uuid::default(), plane);
            let slow_ops = SlowOps { count: 3, oldest_s: 40 };
            let map = OsdMap { osd_info: vec![OsdInfo::default()], ..OsdMap::default() };
            mgr.on_report(ShardReport { slow_ops, ..ShardReport::default() });
            let stats = mgr.stats(&map, BTreeSet::new(), Stamp::default());
            stats.osd_stat.alerts.get(&0).is_some_and(|alerts| alerts.contains_key(osd_alert::SLOW_OPS))
        };
        assert_eq!([ControlPlane::Nacre, ControlPlane::Ceph].map(alerts), [true, false]);
    }
}
