//! [`State`]: all services of the monitor.

use crate::answers::Answers;
use crate::audit::Refusals;
use crate::auth::AuthDb;
use crate::autoscaler::Autoscaler;
use crate::balancer::Balancer;
use crate::batch::{Batch, Snapshot};
use crate::budget::Budgets;
use crate::cluster_log::ClusterLog;
use crate::config::{ConfigDb, Target, Who};
use crate::config_key::ConfigKeys;
use crate::crashes::Crashes;
use crate::device_samples::DeviceSamples;
use crate::device_scrapes::DeviceScrapes;
use crate::fsmap::FsMaps;
use crate::kept_stats::KeptStats;
use crate::life_expectancy::LifeExpectancies;
use crate::managers::MgrMaps;
use crate::monitor_facts::{self, MonitorFacts};
use crate::monmap::MonMaps;
use crate::mutes::Health;
use crate::osd::{OsdMaps, OsdMapsError};
use crate::primaries::Primaries;
use crate::prober::Probing;
use crate::quorum_view::QuorumView;
use crate::recovery::Recovery;
use crate::servicemap::ServiceMaps;
use crate::slow_osds::SlowOsds;
use crate::warmth::Warmth;
use nacre_denc::DecodeError;
use nacre_mgr::PgMap;
use nacre_msg::{ClusterLogEntry, LogPriority};
use nacre_types::{AuthName, EntityKind, EntityName, Stamp, UTime, Uuid};
use std::collections::BTreeMap;

/// Why the stored state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no cluster in this store.
    #[error("the store holds no cluster; it needs mkfs")]
    NotInitialised,
    /// The OSD maps are unusable.
    #[error(transparent)]
    OsdMaps(#[from] OsdMapsError),
    /// Some other value does not decode.
    #[error("stored state: {0}")]
    Decode(#[from] DecodeError),
}

/// Everything that the monitor knows.
#[derive(Debug)]
pub struct State {
    /// Id of the cluster.
    pub fsid: Uuid,
    /// Our name, such as `a`.
    pub name: String,
    /// The machine that we run on, if we were told.
    pub host: Option<String>,
    /// When we started.
    pub started: UTime,
    /// The calendar's time at the last event.
    pub(crate) wall: UTime,
    /// Since when this leader has known daemons of more than one version.
    pub(crate) versions_differ_since: Option<UTime>,
    /// The monitors' map, and which member of the log each of them is.
    pub mon: MonMaps,
    /// Which of them are there.
    pub quorum: QuorumView,
    /// What they say of themselves, by name.
    pub monitor_facts: BTreeMap<String, MonitorFacts>,
    /// OSDs, pools, placement.
    pub osd: OsdMaps,
    /// Keys and caps.
    pub auth: AuthDb,
    /// Options kept by the cluster.
    pub config: ConfigDb,
    /// Blobs kept for tools.
    pub config_keys: ConfigKeys,
    /// What the reports of crashes among them say.
    pub(crate) crashes: Crashes,
    /// What they say of when devices are expected to fail.
    pub(crate) life_expectancies: LifeExpectancies,
    /// What devices said of themselves.
    pub(crate) device_samples: DeviceSamples,
    /// Which of them are asked when.
    pub(crate) device_scrapes: DeviceScrapes,
    /// The cluster log.
    pub log: ClusterLog,
    /// The managers' map.
    pub mgr: MgrMaps,
    /// The file systems' map.
    pub fs: FsMaps,
    /// Services that daemons have registered.
    pub services: ServiceMaps,
    /// The recovery key, and which OSD has which snapshot.
    pub recovery: Recovery,
    /// Health checks and mutes.
    pub health: Health,
    /// What the autoscaler remembers.
    pub autoscaler: Autoscaler,
    /// What the balancer did last.
    pub balancer: Balancer,
    /// Primary affinities that the balancer has set.
    pub(crate) primaries: Primaries,
    /// Which OSDs' devices are slow, and what was done about it.
    pub(crate) slow_osds: SlowOsds,
    /// What OSDs reported to us as the manager: PG states, usage, performance.
    pub stats: nacre_mgr::Mgr,
    /// When pools are probed.
    pub(crate) probing: Probing,
    /// What an earlier leader kept of it.
    pub(crate) kept_stats: KeptStats,
    /// Whether what was not reported means anything.
    pub(crate) warmth: Warmth,
    /// What was answered to requests that may come again.
    pub(crate) answers: Answers,
    /// How many changes clients may ask for.
    pub(crate) budgets: Budgets,
    /// Clients whose messages wait for memory, a sentence each.
    pub(crate) throttled_senders: Vec<String>,
    /// How much of refused commands is written down.
    pub(crate) refusals: Refusals,
}

impl State {
    pub(crate) fn open(snapshot: &dyn Snapshot, name: &str, wall: UTime) -> Result<Self, OpenError> {
        let mon = MonMaps::open(snapshot)?.ok_or(OpenError::NotInitialised)?;
        let config_keys = ConfigKeys::open(snapshot);
        Ok(Self {
            fsid: mon.map().fsid,
            name: name.to_owned(),
            host: None,
            started: wall,
            wall,
            versions_differ_since: None,
            quorum: QuorumView::of_all(mon.map(), 1, wall),
            monitor_facts: BTreeMap::from([(name.to_owned(), monitor_facts::of_program(""))]),
            mon,
            osd: OsdMaps::open(snapshot)?,
            auth: AuthDb::open(snapshot)?,
            config: ConfigDb::open(snapshot, name),
            crashes: Crashes::open(&config_keys),
            life_expectancies: LifeExpectancies::open(&config_keys),
            device_samples: DeviceSamples::open(snapshot),
            device_scrapes: DeviceScrapes::default(),
            config_keys,
            log: ClusterLog::open(snapshot)?,
            mgr: MgrMaps::open(snapshot)?,
            fs: FsMaps::open(snapshot)?,
            services: ServiceMaps::open(snapshot)?,
            recovery: Recovery::open(snapshot)?,
            health: Health::open(snapshot)?,
            autoscaler: Autoscaler::default(),
            balancer: Balancer::default(),
            primaries: Primaries::open(snapshot)?,
            slow_osds: SlowOsds::open(snapshot)?,
            stats: nacre_mgr::Mgr::default(),
            probing: Probing::default(),
            kept_stats: KeptStats::open(snapshot)?,
            warmth: Warmth::default(),
            answers: Answers::open(snapshot)?,
            budgets: Budgets::default(),
            throttled_senders: Vec::new(),
            refusals: Refusals::default(),
        })
    }

    /// True once something may be concluded from what nobody has reported: see `Warmth`.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.warmth == Warmth::Warm
    }

    /// The statistics that people are shown: those that the OSDs have reported, or, before [`State::is_warm`], what an earlier leader kept.
    /// Nothing may be decided by them.
    #[must_use]
    pub fn shown_pgs(&self) -> &PgMap {
        self.kept_stats.shown().filter(|_| !self.is_warm()).unwrap_or(&self.stats.pgs)
    }

    /// Keeps the statistics for the next leader, every few seconds.
    pub(crate) fn keep_stats(&mut self, now: Stamp) {
        if self.is_warm() && self.kept_stats.is_due(now) {
            let digest = self.stats.pgs.to_keep(self.osd.map());
            self.kept_stats.keep(now, digest);
        }
    }

    /// Looks whether that is so by now.
    pub(crate) fn warm_up(&mut self, now: Stamp) {
        self.warmth.update(now, self.osd.map(), &self.stats.pgs);
    }

    /// True when something is not in a batch yet.
    pub(crate) fn is_dirty(&self) -> bool {
        self.mon.is_dirty()
            || self.osd.is_dirty()
            || self.auth.is_dirty()
            || self.config.is_dirty()
            || self.config_keys.is_dirty()
            || self.log.is_dirty()
            || self.mgr.is_dirty()
            || self.fs.is_dirty()
            || self.services.is_dirty()
            || self.answers.is_dirty()
            || self.kept_stats.is_dirty()
            || self.recovery.is_dirty()
            || self.health.is_dirty()
            || self.primaries.is_dirty()
            || self.slow_osds.is_dirty()
            || self.device_samples.is_dirty()
    }

    /// Bytes that wait to be committed, but for the OSDs' map, which is put together when its epoch is closed.
    pub(crate) fn pending_bytes(&self) -> usize {
        let parts = [
            self.osd.pending_bytes(),
            self.auth.pending_bytes(),
            self.config.pending_bytes(),
            self.config_keys.pending_bytes(),
            self.services.pending_bytes(),
            self.fs.pending_bytes(),
            self.answers.pending_bytes(),
            self.log.pending_bytes(),
            self.device_samples.pending_bytes(),
        ];
        parts.iter().sum()
    }

    /// Closes everything that changed into one batch.
    pub(crate) fn flush(&mut self, wall: UTime) -> Batch {
        let mut batch = Batch::default();
        self.osd.flush(wall, &mut batch);
        self.mon.flush(&mut batch);
        self.auth.flush(&mut batch);
        self.config.flush(wall, &mut batch);
        self.config_keys.flush(&mut batch);
        self.mgr.flush(&mut batch);
        self.fs.flush(&mut batch);
        self.services.flush(&mut batch);
        self.answers.flush(&mut batch);
        self.kept_stats.flush(&mut batch);
        self.recovery.flush(&mut batch);
        self.health.flush(&mut batch);
        self.primaries.flush(&mut batch);
        self.slow_osds.flush(&mut batch);
        self.device_samples.flush(&mut batch);
        self.log.flush(&mut batch);
        batch
    }

    /// The options that concern an entity, as it is told them.
    #[must_use]
    pub fn options_of(&self, name: &AuthName) -> BTreeMap<String, String> {
        let osd = (name.kind == EntityKind::OSD).then(|| name.id.parse().ok()).flatten();
        let crush = &self.osd.map().crush;
        let location = osd.map(|osd| crate::osd::view::location(crush, osd)).unwrap_or_default();
        let class = osd.and_then(|osd| crush.item_class_name(osd)).map(str::to_owned);
        let target = Target { name, device_class: class.as_ref(), location: &location };
        let of_name = |(name, (_, value)): (&str, (_, &str))| (name.to_owned(), value.to_owned());
        self.config.effective(&target).into_iter().map(of_name).collect()
    }

    /// An option as our own manager has it: what is kept for it, for all managers, or for everybody.
    #[must_use]
    pub fn option_of_managers(&self, name: &str) -> Option<&str> {
        self.config.of_own_manager(name)
    }

    /// An option that is a number as OSDs have it: what is kept for all of them, or for everybody, or its default.
    #[must_use]
    pub fn number_of_osds(&self, name: &str) -> f64 {
        let sections = [Who::parse("osd"), Some(Who::global())];
        let stored = sections.into_iter().flatten().find_map(|who| self.config.value(&who, name));
        let default = nacre_options::find(name).map(|option| option.default);
        stored.or(default).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// [`State::option_of_managers`] of one of Ceph's options that are numbers, with its default.
    #[must_use]
    pub fn number_of_managers(&self, name: &str) -> f64 {
        let default = nacre_options::find(name).map(|option| option.default);
        let text = self.option_of_managers(name).or(default);
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Writes a line of our own to the cluster log.
    pub fn clog(&mut self, priority: LogPriority, wall: UTime, message: impl Into<String>) {
        self.log_entry("cluster", priority, wall, message.into());
    }

    /// Writes a line to the audit channel of the cluster log.
    pub fn audit(&mut self, wall: UTime, message: impl Into<String>) {
        self.log_entry("audit", LogPriority::INFO, wall, message.into());
    }

    fn log_entry(&mut self, channel: &str, priority: LogPriority, wall: UTime, message: String) {
        let rank = self.mon.map().rank_of(&self.name).and_then(|rank| i64::try_from(rank).ok()).unwrap_or(0);
        let addrs = self.mon.map().mons.get(&self.name).map(|mon| mon.addrs.clone());
        self.log.append(ClusterLogEntry {
            name: AuthName::new(EntityKind::MON, self.name.clone()),
            rank: EntityName::mon(rank),
            addrs: addrs.unwrap_or_default(),
            stamp: wall,
            seq: self.log.version() + 1,
            priority,
            message,
            channel: channel.to_owned(),
        });
    }
}
