//! What a page has, by families and labels, and how large it is.

use super::simulated::Simulated;
use super::*;
use crate::counters::Counters;
use nacre_msg::{MgrReport, PerfCounterType, counter_kind, pack_counters};
use nacre_types::Stamp;
use std::collections::BTreeSet;

/// Families whose names and labels Ceph's boards and alerts stand on: docs/metrics.md has the same.
const NAMES: &str = include_str!("../../../../../testdata/metrics/families");

/// Each family of the page with its type and the labels of its first sample.
fn families(page: &str) -> BTreeMap<String, (String, String)> {
    let mut families = BTreeMap::new();
    let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    for (name, kind) in kinds {
        let sample = page
            .lines()
            .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        let labels = sample.and_then(|line| Some(line.split_once('{')?.1.rsplit_once('}')?.0));
        let names = labels.map(|labels| {
            let parts = labels.split("\",").filter_map(|part| part.split_once('='));
            parts.map(|(name, _)| name).collect::<Vec<_>>().join(",")
        });
        let before = families.insert(name.to_owned(), (kind.to_owned(), names.unwrap_or_default()));
        assert_eq!(before, None, "{name} is there twice");
    }
    families
}

#[test]
fn names_types_and_labels_are_cephs() {
    let page = Simulated::new(3, 2, 8).view().render();
    let shown = families(&page);
    for line in NAMES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split(' ');
        let (name, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let labels = words.next().unwrap_or_default();
        let expected = (kind.to_owned(), labels.to_owned());
        assert_eq!(shown.get(name), Some(&expected), "{name}");
    }
}

#[test]
fn numbers_are_those_of_the_reports() {
    let page = Simulated::new(3, 2, 8).view().render();
    for line in [
        "ceph_health_status 1",
        "ceph_healthcheck_slow_ops 3",
        "ceph_health_detail{name=\"OSD_DOWN\",severity=\"HEALTH_WARN\"} 0",
        "ceph_health_detail{name=\"SLOW_OPS\",severity=\"HEALTH_WARN\"} 1",
        "ceph_cluster_total_bytes 3298534883328",
        "ceph_osd_up{ceph_daemon=\"osd.2\"} 1",
        "ceph_osd_weight{ceph_daemon=\"osd.0\"} 1",
        "ceph_osd_commit_latency_ms{ceph_daemon=\"osd.1\"} 2",
        "ceph_pg_total{pool_id=\"1\"} 8",
        "ceph_pg_clean{pool_id=\"2\"} 8",
        "ceph_pg_down{pool_id=\"2\"} 0",
        "ceph_pg_unknown{pool_id=\"2\"} 0",
        "ceph_pool_objects{pool_id=\"1\"} 8000",
        "ceph_osd_op_simulated_00{ceph_daemon=\"osd.0\"} 1234567890123",
        "ceph_osd_op_simulated_01_sum{ceph_daemon=\"osd.0\"} 1234.567890123",
        "ceph_osd_op_simulated_01_count{ceph_daemon=\"osd.0\"} 987654321",
        "ceph_daemon_health_metrics{type=\"SLOW_OPS\",ceph_daemon=\"osd.1\"} 3",
        "ceph_mon_num_sessions{ceph_daemon=\"mon.a\"} 3",
        "ceph_mgr_module_status{name=\"prometheus\"} 1",
        "ceph_rbd_write_ops{pool=\"pool-1\",namespace=\"\",image=\"disk\"} 7",
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line}");
    }
    assert!(page.contains(
        "ceph_disk_occupation{ceph_daemon=\"osd.1\",device=\"/dev/nvme1n1\",db_device=\"\",wal_device=\"\",instance=\"host-0\",\
         devices=\"nvme1n1\",device_ids=\"nvme1n1=ACME_1\"} 1"
    ));
}

#[test]
fn a_page_of_a_large_cluster_is_below_its_limit() {
    let page = Simulated::new(1000, 100, 128).view().render();
    let samples = page.lines().filter(|line| !line.starts_with('#')).count();
    assert!(samples > 90_000, "{samples}");
    assert!(page.len() < 10_000_000, "{} bytes", page.len());
}

/// A daemon chooses its counters' names: it neither breaks the page nor speaks for others.
#[test]
fn what_daemons_call_their_counters_stays_a_name_and_theirs() {
    let count = counter_kind::U64 | counter_kind::COUNTER;
    let average = counter_kind::U64 | counter_kind::AVERAGE;
    let declared = [
        ("AsyncMessenger::Worker-0.bytes/s", count),
        ("a.b\n# TYPE x", count),
        ("osd.up", count),
        ("health.status", count),
        ("osd.x", average),
        ("osd.x_sum", count),
        ("osd.table", counter_kind::U64 | counter_kind::HISTOGRAM),
    ];
    let mut counters = Counters::default();
    counters.open(1, "osd.0");
    let declare = |(path, kind): &(&str, u8)| PerfCounterType {
        path: (*path).to_owned(),
        description: "two\nlines".to_owned(),
        kind: *kind,
        priority: 5,
        ..PerfCounterType::default()
    };
    let values = declared.iter().map(|(path, kind)| (*path, (*kind, 1, 1))).collect();
    let report = MgrReport {
        declare_types: declared.iter().map(declare).collect(),
        packed: pack_counters(&values),
        ..MgrReport::default()
    };
    counters.report(1, &report, Stamp::default());
    let view = View { counters: counters.all(), ..View::default() };
    let shown: BTreeSet<String> = families(&view.render()).into_keys().collect();
    let own: BTreeSet<String> = families(&View::default().render()).into_keys().collect();
    let of_daemons: Vec<&str> = shown.difference(&own).map(String::as_str).collect();
    assert_eq!(
        of_daemons,
        ["ceph_AsyncMessenger_Worker_0_bytes_s", "ceph_a_b___TYPE_x", "ceph_osd_x_count", "ceph_osd_x_sum"]
    );
}

#[test]
fn what_is_not_known_is_not_shown() {
    let mut view = Simulated::new(3, 1, 8).view();
    // A leader that has just begun: no state of any PG of a pool, no report of an OSD.
    view.pool_states.clear();
    view.osds[1].perf = None;
    view.osds[2].facts = Facts::default();
    let page = view.render();
    assert!(!page.contains("ceph_pg_total{"));
    let count = |name: &str| page.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
    assert_eq!(count("ceph_osd_commit_latency_ms"), 2);
    assert_eq!(count("ceph_disk_occupation"), 2);
}
