//! Reports: a daemon's counters to the manager, the manager's findings to the monitor.
//!
//! Source: Ceph `MMgrReport.h`, `MMonMgrReport.h`, `src/mon/health_check.h`, `src/mgr/mgr_types.h` and
//! `DaemonHealthMetric.h`, v16.2.15.

use crate::body::{Body, fields, read_psm, write_psm};
use crate::perf_query::{PerfReports, get_of_osds, put_of_osds};
use nacre_buf::{BufList, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;

/// A counter's description. Ceph `PerfCounterType`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PerfCounterType {
    /// `logger.counter`.
    pub path: String,
    /// Sentence for people.
    pub description: String,
    /// Short title of a column with the counter.
    pub nick: String,
    /// Bits: 1 time, 2 `u64`, 4 long-run average, 8 counter, 16 histogram.
    pub kind: u8,
    /// Counters below the manager's threshold are not sent.
    pub priority: u8,
    /// 0 none, 1 bytes.
    pub unit: u8,
}
fields!(PerfCounterType, "PerfCounterType", 3, 1; path, description, nick, kind; 2 => priority; 3 => unit);

/// Bits of [`PerfCounterType::kind`].
pub mod counter_kind {
    /// Its value is a time in nanoseconds.
    pub const TIME: u8 = 1;
    /// Its value is a plain number.
    pub const U64: u8 = 2;
    /// A sum with the number of what was summed up.
    pub const AVERAGE: u8 = 4;
    /// It only grows.
    pub const COUNTER: u8 = 8;
    /// A table of how often it had which value.
    pub const HISTOGRAM: u8 = 16;
}

/// Values of all counters that were declared in a session, each with its kind and, for averages, how many were summed up. A reader takes
/// them in the order of the paths, not in that of the declarations, and one of Ceph ends when there are too few. Ceph
/// `MgrClient::_send_report`.
#[must_use]
pub fn pack_counters(values: &BTreeMap<&str, (u8, u64, u64)>) -> Bytes {
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        for (kind, value, count) in values.values() {
            w.u64(*value);
            if kind & counter_kind::AVERAGE != 0 {
                // Twice: a reader that finds two numbers knows that the sum between them was not torn.
                w.u64(*count);
                w.u64(*count);
            }
        }
    });
    w.finish()
}

/// Values of [`DaemonHealthMetric::kind`].
pub mod daemon_metric {
    /// Messages of clients that take too long: their number in the lower half, the seconds of the oldest in the upper.
    pub const SLOW_OPS: u8 = 0;
    /// PGs that an OSD is to make and has not yet.
    pub const PENDING_CREATING_PGS: u8 = 1;
}

/// A daemon's complaint. Ceph `DaemonHealthMetric`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DaemonHealthMetric {
    /// 0 slow operations, 1 pending PG creations.
    pub kind: u8,
    /// One `u64` or two `u32`.
    pub value: u64,
}
fields!(DaemonHealthMetric, "DaemonHealthMetric", 1, 1; kind, value);

/// `MMgrReport`. Metrics of other daemons than OSDs are neither asked for nor sent.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgrReport {
    /// Id of the daemon.
    pub daemon_name: String,
    /// Counters not yet declared in this session.
    pub declare_types: Vec<PerfCounterType>,
    /// Values of all declared counters, as [`pack_counters`] writes them.
    pub packed: Bytes,
    /// Counters that are gone.
    pub undeclare_types: Vec<String>,
    /// Service that the daemon belongs to; empty for Ceph's own kinds.
    pub service_name: String,
    /// What `ceph service status` shows.
    pub daemon_status: Option<BTreeMap<String, String>>,
    /// What is unhealthy about the daemon, for health checks.
    pub health_metrics: Vec<DaemonHealthMetric>,
    /// Its options, when they changed.
    pub config: Bytes,
    /// What was counted for the manager's queries since the report before.
    pub perf_reports: PerfReports,
    /// Long running tasks.
    pub task_status: Option<BTreeMap<String, String>>,
}

impl Body for MgrReport {
    const NAME: &'static str = "MgrReport";
    const KIND: u16 = 1794;
    const VERSION: u16 = 9;
    const COMPAT: u16 = 1;
    const OLDEST: u16 = 8;

    fn read(version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let mut report = Self {
            daemon_name: r.text()?,
            declare_types: r.get()?,
            packed: r.blob()?,
            undeclare_types: r.get()?,
            service_name: r.text()?,
            daemon_status: r.get()?,
            health_metrics: r.get()?,
            config: r.blob()?,
            perf_reports: r.get()?,
            task_status: r.get()?,
        };
        if version >= 9 {
            report.perf_reports.extend(get_of_osds::<PerfReports>(r)?.unwrap_or_default());
        }
        Ok(report)
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.str(&self.daemon_name);
        w.put(&self.declare_types);
        w.put(&self.packed);
        w.put(&self.undeclare_types);
        w.str(&self.service_name);
        w.put(&self.daemon_status);
        w.put(&self.health_metrics);
        w.put(&self.config);
        w.put(&PerfReports::new()); // where managers before Pacific had them
        w.put(&self.task_status);
        put_of_osds(w, Some(&self.perf_reports).filter(|reports| !reports.is_empty()));
        BufList::new()
    }
}

/// One health check that fails. Ceph `health_check_t`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HealthCheck {
    /// Health status: 0 error, 1 warning, 2 fine.
    pub severity: u8,
    /// What is wrong, in one line.
    pub summary: String,
    /// What is wrong, a line for each case.
    pub detail: Vec<String>,
    /// How many things are affected.
    pub count: i64,
}
fields!(HealthCheck, "health_check_t", 2, 1; severity, summary, detail; 2 => count);

/// Failing checks by code. Ceph `health_check_map_t`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HealthChecks {
    /// By code, such as `POOL_APP_NOT_ENABLED`.
    pub checks: BTreeMap<String, HealthCheck>,
}
fields!(HealthChecks, "health_check_map_t", 1, 1; checks);

/// Progress of one long change. Ceph `ProgressEvent`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ProgressEvent {
    /// What is being done, for people.
    pub message: String,
    /// 0 to 1.
    pub progress: f32,
    /// Shown in `ceph status`.
    pub add_to_ceph_s: bool,
}
fields!(ProgressEvent, "ProgressEvent", 2, 1; message, progress; 2 => add_to_ceph_s);

/// `MMonMgrReport`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MonMgrReport {
    /// Version that the sender knows.
    pub version: u64,
    /// The manager's own checks.
    pub health_checks: HealthChecks,
    /// Encoded `ServiceMap`, or empty.
    pub service_map: Bytes,
    /// Events under way, by their id.
    pub progress_events: BTreeMap<String, ProgressEvent>,
    /// Id of the manager's instance.
    pub gid: u64,
    /// Encoded `PGMapDigest`.
    pub digest: BufList,
}

impl Body for MonMgrReport {
    const NAME: &'static str = "MonMgrReport";
    const KIND: u16 = 1798;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    const OLDEST: u16 = 1;

    fn read(header: u16, r: &mut Reader, digest: BufList) -> Result<Self, DecodeError> {
        let (version, health_checks, service_map) = (read_psm(r)?, r.get()?, r.blob()?);
        let progress_events = if header >= 2 { r.get()? } else { BTreeMap::new() };
        let gid = if header >= 3 { r.u64()? } else { 0 };
        Ok(Self { version, health_checks, service_map, progress_events, gid, digest })
    }

    fn write(self, w: &mut Writer) -> BufList {
        write_psm(w, self.version);
        w.put(&self.health_checks);
        w.put(&self.service_map);
        w.put(&self.progress_events);
        w.u64(self.gid);
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_packed_by_path_with_the_count_of_an_average_twice() {
        let latency = counter_kind::TIME | counter_kind::AVERAGE | counter_kind::COUNTER;
        let values = BTreeMap::from([
            ("osd.op_latency", (latency, 3, 4)),
            ("osd.op", (counter_kind::U64 | counter_kind::COUNTER, 2, 0)),
        ]);
        let mut r = Reader::new(pack_counters(&values));
        let words = |_, r: &mut Reader| (0..4).map(|_| r.u64()).collect::<Result<Vec<_>, _>>();
        assert_eq!(r.envelope("counters", 1, words).expect("an envelope"), [2, 3, 4, 4]);
        assert_eq!(r.left(), 0);
    }
}
