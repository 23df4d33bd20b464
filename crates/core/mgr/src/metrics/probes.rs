//! What probes of pools have found out, as clients see it. Our own series.

use super::View;
use super::page::{Kind, Page};
use crate::probes::{LATENCY_BOUNDS_US, ProbeWork};

pub(super) fn write(view: &View, page: &mut Page) {
    let name = "ceph_probe_pool_latency_us";
    page.family(
        name,
        Kind::Gauge,
        "Time of a client's small write or read in the last round that was answered",
    );
    for probe in &view.probes.pools {
        let Some(pool) = view.map.pool_name(probe.pool) else { continue };
        for (work, level) in ProbeWork::ALL.into_iter().zip(probe.levels) {
            let Some(level) = level else { continue };
            for (quantile, value) in [("0.5", level.half_us), ("0.95", level.most_us)] {
                page.sample(name, &[("pool", pool), ("op", work.name()), ("quantile", quantile)], value);
            }
        }
    }
    let name = "ceph_probe_pool_failed_pgs";
    page.family(
        name,
        Kind::Gauge,
        "PGs that did not answer a client's small write or read in the last round",
    );
    for probe in &view.probes.pools {
        let Some(pool) = view.map.pool_name(probe.pool) else { continue };
        page.sample(name, &[("pool", pool)], probe.failed);
    }
    hosts(view, page);
}

/// Prometheus's form of a histogram: buckets that include those below, a sum, a count.
fn hosts(view: &View, page: &mut Page) {
    let hosts = || {
        let named = view.probes.hosts.iter();
        named.filter_map(|(host, pool, probe)| Some((host.as_str(), view.map.pool_name(*pool)?, probe)))
    };
    let name = "ceph_probe_host_write_latency_us";
    page.family(name, Kind::Histogram, "Time of a synchronous write, as a host of clients sees it");
    for (host, pool, probe) in hosts() {
        let (bucket, mut below) = (format!("{name}_bucket"), 0);
        for (count, bound) in probe.buckets.iter().zip(LATENCY_BOUNDS_US) {
            below += count;
            let bound = bound.to_string();
            page.sample(&bucket, &[("host", host), ("pool", pool), ("le", &bound)], below);
        }
        page.sample(&bucket, &[("host", host), ("pool", pool), ("le", "+Inf")], probe.count);
        page.sample(&format!("{name}_sum"), &[("host", host), ("pool", pool)], probe.sum_us);
        page.sample(&format!("{name}_count"), &[("host", host), ("pool", pool)], probe.count);
    }
    let name = "ceph_probe_host_write_failed";
    page.family(
        name,
        Kind::Counter,
        "Synchronous writes of a host of clients that were not answered in time, or refused",
    );
    for (host, pool, probe) in hosts() {
        page.sample(name, &[("host", host), ("pool", pool)], probe.failed);
    }
}
