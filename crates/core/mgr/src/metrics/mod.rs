//! What the active manager shows to Prometheus, under the names and labels of Ceph's.
//!
//! [`View`] is what it knows at one moment, put together by the thread that owns the state; [`View::render`] makes the page, on any thread.
//! Ceph: `src/pybind/mgr/prometheus/module.py` at v16.2.15; docs/metrics.md says what each series means here. A series that is not known is
//! left out, never 0.

mod bill;
mod cluster;
mod daemons;
mod devices;
mod images;
mod osds;
mod page;
mod pools;
mod probes;
#[cfg(any(test, feature = "testing"))]
pub mod simulated;
#[cfg(test)]
mod tests;

pub use self::devices::DeviceView;
use crate::bill::BillSums;
use crate::counters::DaemonCounters;
use crate::images::ImageSums;
use crate::pgmap::{Digest, PoolUsage, Rate};
use crate::probes::{HostProbe, Level, Probes};
use nacre_maps::OsdMap;
use nacre_msg::stats::OsdPerfStat;
use nacre_types::{OsdId, PoolId};
use page::Page;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where Ceph's manager has its metrics, and so ours.
pub const PORT: u16 = 9283;

/// What a daemon or machine says of itself, by Ceph's names.
pub type Facts = Arc<BTreeMap<String, String>>;

/// A health check that is on, or was once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthDetail {
    /// Such as `OSD_DOWN`.
    pub name: String,
    /// `HEALTH_WARN` or `HEALTH_ERR`.
    pub severity: &'static str,
    /// It is on now.
    pub is_active: bool,
}

/// How the cluster is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// 0 well, 1 warnings, 2 errors.
    pub status: u8,
    /// Clients' messages that take too long, on all OSDs.
    pub slow_ops: u64,
    /// All checks that were ever on.
    pub details: Vec<HealthDetail>,
}

/// What is known of one OSD.
#[derive(Debug, Clone, Default)]
pub struct OsdView {
    /// Number of the OSD.
    pub id: OsdId,
    /// How long its store takes, if it has reported.
    pub perf: Option<OsdPerfStat>,
    /// What it says of itself.
    pub facts: Facts,
}

/// What is known of one monitor.
#[derive(Debug, Clone, Default)]
pub struct MonView {
    /// Such as `a`.
    pub name: String,
    /// Its place in the monitors' map.
    pub rank: usize,
    /// Where it listens, without the port.
    pub public_addr: String,
    /// It is in the quorum.
    pub is_in_quorum: bool,
    /// What it says of itself.
    pub facts: BTreeMap<String, String>,
}

/// What is known of one manager.
#[derive(Debug, Clone, Default)]
pub struct MgrView {
    /// Such as `a`.
    pub name: String,
    /// It is the active one.
    pub is_active: bool,
    /// The machine that it runs on.
    pub hostname: String,
    /// As `ceph mgr versions` shows it.
    pub ceph_version: String,
}

/// A module that a manager has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleView {
    /// Such as `prometheus`.
    pub name: String,
    /// 0 while it is off, 1 on, 2 always on.
    pub status: u8,
    /// It can run.
    pub can_run: bool,
}

/// A daemon of a service: a gateway or a mirror.
#[derive(Debug, Clone, Default)]
pub struct ServiceView {
    /// Such as `rgw`.
    pub service: String,
    /// Its id within the service.
    pub id: String,
    /// What it says of itself.
    pub facts: BTreeMap<String, String>,
}

/// A file system.
#[derive(Debug, Clone, Default)]
pub struct FsView {
    /// Number of the file system.
    pub id: i32,
    /// Name of the file system.
    pub name: String,
    /// Pool of its metadata.
    pub metadata_pool: PoolId,
    /// Pools of its files.
    pub data_pools: Vec<PoolId>,
}

/// A metadata server.
#[derive(Debug, Clone, Default)]
pub struct MdsView {
    /// Such as `a`.
    pub name: String,
    /// Its file system, or -1.
    pub fs_id: i32,
    /// Its rank, or -1.
    pub rank: i32,
    /// Where it listens, without the port.
    pub public_addr: String,
    /// What it says of itself.
    pub facts: BTreeMap<String, String>,
}

/// What probes have found out about a pool.
#[derive(Debug, Clone, Default)]
pub struct PoolProbeView {
    /// Number of the pool.
    pub pool: PoolId,
    /// Writes and reads of the last round that was answered.
    pub levels: [Option<Level>; 2],
    /// PGs that have not answered in the last round.
    pub failed: usize,
}

/// What clients' probes have found out.
#[derive(Debug, Clone, Default)]
pub struct ProbesView {
    /// Each pool that was probed.
    pub pools: Vec<PoolProbeView>,
    /// Host of clients, pool, what it has measured.
    pub hosts: Vec<(String, PoolId, HostProbe)>,
}

impl From<&Probes> for ProbesView {
    fn from(probes: &Probes) -> Self {
        let pools = probes.pools().map(|(pool, health)| PoolProbeView {
            pool,
            levels: health.levels,
            failed: health.last.faults.len() + health.last.unasked,
        });
        let hosts = probes.hosts.all().map(|(host, pool, probe)| (host.to_owned(), pool, probe.clone()));
        Self { pools: pools.collect(), hosts: hosts.collect() }
    }
}

/// What the manager knows at one moment.
#[derive(Debug, Default)]
pub struct View {
    /// The OSDs' map.
    pub map: Arc<OsdMap>,
    /// What all reports add up to.
    pub digest: Digest,
    /// PGs of each pool by state; nothing while that is not known.
    pub pool_states: BTreeMap<PoolId, BTreeMap<u64, usize>>,
    /// What pools take up and have left.
    pub usages: BTreeMap<PoolId, PoolUsage>,
    /// What goes on in pools.
    pub rates: BTreeMap<PoolId, Rate>,
    /// Bytes that are used on the devices of each class.
    pub class_used_bytes: BTreeMap<String, i64>,
    /// How the cluster is.
    pub health: Health,
    /// The OSDs that there are.
    pub osds: Vec<OsdView>,
    /// Monitors of the map, by rank.
    pub mons: Vec<MonView>,
    /// The active manager and those that wait.
    pub mgrs: Vec<MgrView>,
    /// What the active manager could run.
    pub modules: Vec<ModuleView>,
    /// The file systems that there are.
    pub file_systems: Vec<FsView>,
    /// Metadata servers, standbys among them.
    pub mds: Vec<MdsView>,
    /// Gateways and the like.
    pub services: Vec<ServiceView>,
    /// Clients and daemons that are connected to monitors.
    pub sessions: Vec<(String, usize)>,
    /// What daemons count.
    pub counters: Vec<DaemonCounters>,
    /// What clients do with images: pool and namespace, name or id, sums.
    pub images: Vec<(PoolId, String, String, ImageSums)>,
    /// Whom OSDs work for.
    pub bill: BillSums,
    /// What clients' probes have found out.
    pub probes: ProbesView,
    /// What devices say of their health.
    pub devices: Vec<DeviceView>,
}

/// About how many bytes a page has for each counter of a daemon, to begin with the right size.
const SAMPLE_BYTES: usize = 64;

impl View {
    /// The page, in Prometheus's text format.
    #[must_use]
    pub fn render(&self) -> String {
        let counters: usize = self.counters.iter().map(|daemon| daemon.values.len() + 24).sum();
        let pools = self.map.pools.len() * 70;
        let mut page = Page::with_capacity((counters + pools + 200) * SAMPLE_BYTES);
        cluster::write(self, &mut page);
        osds::write(self, &mut page);
        pools::write(self, &mut page);
        images::write(self, &mut page);
        bill::write(self, &mut page);
        probes::write(self, &mut page);
        devices::write(self, &mut page);
        daemons::write(self, &mut page);
        daemons::write_counters(&self.counters, &mut page);
        page.into_text()
    }
}

/// A fact as a label; empty where it is not known, as Ceph has it.
fn fact<'a>(facts: &'a BTreeMap<String, String>, key: &str) -> &'a str {
    facts.get(key).map_or("", String::as_str)
}
