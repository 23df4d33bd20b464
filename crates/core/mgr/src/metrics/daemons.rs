//! File systems, gateways and mirrors, and what daemons count.

use super::page::{Kind, Page};
use super::{View, fact};
use crate::counters::{CounterValue, DaemonCounters, DeclaredCounter};
use nacre_msg::{counter_kind, daemon_metric};
use std::collections::{BTreeMap, BTreeSet};

/// Least priority of counters that are shown: Ceph's `PRIO_USEFUL`.
const PRIORITY_MIN: u8 = 5;

pub(super) fn write(view: &View, page: &mut Page) {
    file_systems(view, page);
    services(view, page);
    complaints(view, page);
}

fn file_systems(view: &View, page: &mut Page) {
    page.family("ceph_fs_metadata", Kind::Untyped, "What is known of a file system");
    for fs in &view.file_systems {
        let pools: Vec<String> = fs.data_pools.iter().map(ToString::to_string).collect();
        let labels = [
            ("data_pools", pools.join(",")),
            ("fs_id", fs.id.to_string()),
            ("metadata_pool", fs.metadata_pool.to_string()),
            ("name", fs.name.clone()),
        ];
        page.sample("ceph_fs_metadata", &labels.each_ref().map(|(label, value)| (*label, value.as_str())), 1);
    }
    page.family("ceph_mds_metadata", Kind::Untyped, "What is known of a metadata server");
    for mds in &view.mds {
        let labels = [
            ("ceph_daemon", format!("mds.{}", mds.name)),
            ("fs_id", mds.fs_id.to_string()),
            ("hostname", fact(&mds.facts, "hostname").to_owned()),
            ("public_addr", mds.public_addr.clone()),
            ("rank", mds.rank.to_string()),
            ("ceph_version", fact(&mds.facts, "ceph_version").to_owned()),
        ];
        page.sample(
            "ceph_mds_metadata",
            &labels.each_ref().map(|(label, value)| (*label, value.as_str())),
            1,
        );
    }
}

fn services(view: &View, page: &mut Page) {
    page.family("ceph_rgw_metadata", Kind::Untyped, "What is known of a gateway");
    for daemon in view.services.iter().filter(|daemon| daemon.service == "rgw") {
        let name = format!("rgw.{}", fact(&daemon.facts, "id"));
        let labels: [(&str, &str); 4] = [
            ("ceph_daemon", name.as_str()),
            ("hostname", fact(&daemon.facts, "hostname")),
            ("ceph_version", fact(&daemon.facts, "ceph_version")),
            ("instance_id", &daemon.id),
        ];
        page.sample("ceph_rgw_metadata", &labels, 1);
    }
    page.family("ceph_rbd_mirror_metadata", Kind::Untyped, "What is known of a mirror of images");
    for daemon in view.services.iter().filter(|daemon| daemon.service == "rbd-mirror") {
        let name = format!("rbd-mirror.{}", daemon.id);
        let labels: [(&str, &str); 5] = [
            ("ceph_daemon", name.as_str()),
            ("id", fact(&daemon.facts, "id")),
            ("instance_id", fact(&daemon.facts, "instance_id")),
            ("hostname", fact(&daemon.facts, "hostname")),
            ("ceph_version", fact(&daemon.facts, "ceph_version")),
        ];
        page.sample("ceph_rbd_mirror_metadata", &labels, 1);
    }
}

fn complaints(view: &View, page: &mut Page) {
    let name = "ceph_daemon_health_metrics";
    page.family(name, Kind::Gauge, "What a daemon complains of");
    for daemon in &view.counters {
        for complaint in &daemon.complaints {
            let kind = match complaint.kind {
                daemon_metric::SLOW_OPS => "SLOW_OPS",
                daemon_metric::PENDING_CREATING_PGS => "PENDING_CREATING_PGS",
                _ => continue,
            };
            // The number is in the lower half.
            let value = complaint.value & u64::from(u32::MAX);
            page.sample(name, &[("type", kind), ("ceph_daemon", &daemon.daemon)], value);
        }
    }
}

/// The name of a counter's family: `osd.op_r` is `ceph_osd_op_r`. What Prometheus does not take in a name becomes `_`.
fn family_name(path: &str) -> String {
    let letter = |char: char| if char.is_ascii_alphanumeric() || char == '_' { char } else { '_' };
    let path = path.replace("::", "_").replace('+', "_plus");
    let (path, minus) = path.strip_suffix('-').map_or((path.as_str(), ""), |path| (path, "_minus"));
    format!("ceph_{}{minus}", path.chars().map(letter).collect::<String>())
}

/// Nanoseconds become seconds.
#[expect(clippy::cast_precision_loss, reason = "values of metrics are doubles")]
fn number(value: u64, kind: u8) -> f64 {
    if kind & counter_kind::TIME != 0 { value as f64 / 1e9 } else { value as f64 }
}

type Family<'a> = (&'a DeclaredCounter, Vec<(&'a str, CounterValue)>);

/// All counters, each as a family over the daemons; an average is two, the sum and how many were summed up.
pub(super) fn write_counters(daemons: &[DaemonCounters], page: &mut Page) {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    for daemon in daemons {
        for (path, declared, value) in daemon.iter() {
            let is_shown = declared.priority >= PRIORITY_MIN && declared.kind & counter_kind::HISTOGRAM == 0;
            if is_shown {
                let (_, samples) = families.entry(path).or_insert_with(|| (declared, Vec::new()));
                samples.push((&daemon.daemon, value));
            }
        }
    }
    let mut written = BTreeSet::new();
    for (path, (declared, samples)) in families {
        let name = family_name(path);
        let is_average = declared.kind & counter_kind::AVERAGE != 0;
        let parts: &[&str] = if is_average { &["_sum", "_count"] } else { &[""] };
        let names: Vec<String> = parts.iter().map(|part| format!("{name}{part}")).collect();
        // Two paths must not make the same family twice.
        if names.iter().all(|name| is_own(name) && !written.contains(name)) {
            write_family(&name, declared, &samples, page);
            written.extend(names);
        }
    }
}

/// What daemons count must not be taken for what the manager says itself.
fn is_own(name: &str) -> bool {
    const TAKEN: [&str; 15] = [
        "ceph_osd_metadata",
        "ceph_osd_weight",
        "ceph_osd_up",
        "ceph_osd_in",
        "ceph_osd_apply_latency_ms",
        "ceph_osd_commit_latency_ms",
        "ceph_health_",
        "ceph_healthcheck_",
        "ceph_cluster_",
        "ceph_osd_flag_",
        "ceph_pool_",
        "ceph_pg_",
        "ceph_mgr_",
        "ceph_mon_",
        "ceph_rbd_",
    ];
    !TAKEN.iter().any(|taken| name.starts_with(taken)) && !name.ends_with("_metadata")
}

/// Gateways are known by their instance, as in Ceph.
fn label(daemon: &str) -> (&str, &str) {
    match daemon.strip_prefix("rgw.") {
        Some(instance) => ("instance_id", instance),
        None => ("ceph_daemon", daemon),
    }
}

fn write_family(name: &str, declared: &DeclaredCounter, samples: &[(&str, CounterValue)], page: &mut Page) {
    if declared.kind & counter_kind::AVERAGE != 0 {
        let sum = format!("{name}_sum");
        page.family(&sum, Kind::Counter, &format!("{}: the sum", declared.text));
        for (daemon, value) in samples {
            page.sample(&sum, &[label(daemon)], number(value.value, declared.kind));
        }
        let count = format!("{name}_count");
        page.family(&count, Kind::Counter, &format!("{}: how many", declared.text));
        for (daemon, value) in samples {
            page.sample(&count, &[label(daemon)], value.count);
        }
        return;
    }
    let kind = if declared.kind & counter_kind::COUNTER != 0 { Kind::Counter } else { Kind::Gauge };
    page.family(name, kind, &declared.text);
    for (daemon, value) in samples {
        page.sample(name, &[label(daemon)], number(value.value, declared.kind));
    }
}
