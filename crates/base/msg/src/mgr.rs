//! Sessions of daemons with the manager, and the monitor's digest for it.
//!
//! Source: Ceph `MMgrOpen.h`, `MMgrConfigure.h`, `MMgrClose.h`, `MMgrDigest.h`, `src/common/config_values.h`, v16.2.15.

use crate::body::{Body, body};
use crate::perf_query::{PerfQueries, get_of_osds};
use nacre_buf::{BufList, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// `MMgrOpen`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgrOpen {
    /// Id of the daemon.
    pub daemon_name: String,
    /// Its service, empty for the cluster's own daemons.
    pub service_name: String,
    /// Metadata and status of a daemon that registers a service (radosgw, rbd-mirror, ...).
    pub service: Option<(BTreeMap<String, String>, BTreeMap<String, String>)>,
    /// Its options: an encoded [`DaemonConfig`]; empty where it does not say.
    pub config: Bytes,
    /// Its options' defaults: encoded `map<name, value>`; empty where it does not say.
    pub config_defaults: Bytes,
}

/// Where a daemon's option was set. Of several the one that comes last here counts. Ceph `src/common/config_values.h`.
pub mod config_level {
    /// By the monitors' configuration database.
    pub const MONITOR: i32 = 1;
    /// In its `ceph.conf`.
    pub const FILE: i32 = 2;
    /// While it runs, by a command.
    pub const OVERRIDE: i32 = 5;
}

/// Options of a daemon, as it tells the manager of them. Nothing bounds what a manager reads there: with one map alone Ceph's ends.
/// Ceph `ConfigProxy::get_config_bl`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DaemonConfig {
    /// The value by option and [`config_level`].
    pub values: BTreeMap<String, BTreeMap<i32, String>>,
    /// What the monitors have for it and it does not take.
    pub ignored: BTreeMap<String, String>,
}

impl Encode for DaemonConfig {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.values);
        w.put(&self.ignored);
    }
}

impl Decode for DaemonConfig {
    const MIN_BYTES: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { values: r.get()?, ignored: r.get()? })
    }
}

impl Body for MgrOpen {
    const NAME: &'static str = "MgrOpen";
    const KIND: u16 = 1792;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    const OLDEST: u16 = 1;

    fn read(version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let mut open = Self { daemon_name: r.text()?, ..Self::default() };
        if version >= 2 {
            open.service_name = r.text()?;
            open.service = r.get()?;
        }
        if version >= 3 {
            (open.config, open.config_defaults) = (r.blob()?, r.blob()?);
        }
        Ok(open)
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.str(&self.daemon_name);
        w.str(&self.service_name);
        w.put(&self.service);
        w.put(&self.config);
        w.put(&self.config_defaults);
        BufList::new()
    }
}

/// `MMgrConfigure`. Metrics of other daemons than OSDs are not asked for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgrConfigure {
    /// Seconds between reports.
    pub stats_period_s: u32,
    /// Lowest priority of counters to report.
    pub stats_threshold: u32,
    /// What OSDs are to count besides.
    pub perf_queries: PerfQueries,
}

impl Body for MgrConfigure {
    const NAME: &'static str = "MgrConfigure";
    const KIND: u16 = 1793;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 1;

    fn read(version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let stats_period_s = r.u32()?;
        let stats_threshold = if version >= 2 { r.u32()? } else { 0 };
        let mut perf_queries = if version >= 3 { r.get()? } else { PerfQueries::new() };
        if version >= 4 {
            perf_queries.extend(get_of_osds::<PerfQueries>(r)?.unwrap_or_default());
        }
        Ok(Self { stats_period_s, stats_threshold, perf_queries })
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.u32(self.stats_period_s);
        w.u32(self.stats_threshold);
        w.put(&self.perf_queries);
        w.bool(false); // no metric configuration
        BufList::new()
    }
}

/// `MMgrClose`, answered with the same message.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgrClose {
    /// Id of the daemon.
    pub daemon_name: String,
    /// Service that the daemon belongs to; empty for Ceph's own kinds.
    pub service_name: String,
}
body!(MgrClose = 1800, 1 / 1; daemon_name, service_name);

/// `MMgrDigest`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgrDigest {
    /// `mon_status` as JSON.
    pub mon_status_json: Bytes,
    /// `health` as JSON.
    pub health_json: Bytes,
}
body!(MgrDigest = 1797, 1 / 1 [high]; mon_status_json, health_json);
