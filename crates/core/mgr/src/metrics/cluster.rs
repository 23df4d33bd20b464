//! Health, capacity, monitors and managers.

use super::page::{Kind, Page};
use super::{View, fact};
use nacre_maps::flags::osdmap as flags;

/// Flags of the OSDs' map that are shown, each as a family.
const FLAGS: [(&str, u32); 9] = [
    ("ceph_osd_flag_noup", flags::NOUP),
    ("ceph_osd_flag_nodown", flags::NODOWN),
    ("ceph_osd_flag_noout", flags::NOOUT),
    ("ceph_osd_flag_noin", flags::NOIN),
    ("ceph_osd_flag_nobackfill", flags::NOBACKFILL),
    ("ceph_osd_flag_norebalance", flags::NOREBALANCE),
    ("ceph_osd_flag_norecover", flags::NORECOVER),
    ("ceph_osd_flag_noscrub", flags::NOSCRUB),
    ("ceph_osd_flag_nodeep_scrub", flags::NODEEP_SCRUB),
];

pub(super) fn write(view: &View, page: &mut Page) {
    health(view, page);
    capacity(view, page);
    monitors(view, page);
    managers(view, page);
    for (name, flag) in FLAGS {
        page.single(name, Kind::Untyped, "The flag is set for all OSDs", u8::from(view.map.has_flag(flag)));
    }
}

fn health(view: &View, page: &mut Page) {
    let health = &view.health;
    let help = "Health of the cluster (0 HEALTH_OK, 1 HEALTH_WARN, 2 HEALTH_ERR)";
    page.single("ceph_health_status", Kind::Untyped, help, health.status);
    let help = "Messages of clients that take too long";
    page.single("ceph_healthcheck_slow_ops", Kind::Gauge, help, health.slow_ops);
    page.family("ceph_health_detail", Kind::Gauge, "Health checks that are on (1), or were once (0)");
    for detail in &health.details {
        let labels: [(&str, &str); 2] = [("name", detail.name.as_str()), ("severity", detail.severity)];
        page.sample("ceph_health_detail", &labels, u8::from(detail.is_active));
    }
}

fn capacity(view: &View, page: &mut Page) {
    let statfs = &view.digest.osd_sum.statfs;
    let sums = [
        ("ceph_cluster_total_bytes", "Size of all stores in bytes", statfs.total),
        ("ceph_cluster_total_used_bytes", "Bytes of it that are not free", statfs.used_raw()),
        ("ceph_cluster_total_used_raw_bytes", "Bytes of it that are not free", statfs.used_raw()),
    ];
    for (name, help, value) in sums {
        page.single(name, Kind::Gauge, help, value);
    }
    let name = "ceph_cluster_by_class_total_used_bytes";
    page.family(name, Kind::Gauge, "Bytes that are not free on devices of a class");
    for (class, used) in &view.class_used_bytes {
        page.sample(name, &[("device_class", class)], used);
    }
    let stats = &view.digest.sum.stats;
    let objects = [
        ("ceph_num_objects_degraded", "Copies of objects that are missing", stats.num_objects_degraded),
        ("ceph_num_objects_misplaced", "Copies of objects in the wrong place", stats.num_objects_misplaced),
        ("ceph_num_objects_unfound", "Objects of which no copy is found", stats.num_objects_unfound),
    ];
    for (name, help, value) in objects {
        page.single(name, Kind::Gauge, help, value);
    }
}

fn monitors(view: &View, page: &mut Page) {
    page.family("ceph_mon_metadata", Kind::Untyped, "What is known of a monitor");
    for mon in &view.mons {
        let (daemon, rank) = (format!("mon.{}", mon.name), mon.rank.to_string());
        let labels: [(&str, &str); 5] = [
            ("ceph_daemon", daemon.as_str()),
            ("hostname", fact(&mon.facts, "hostname")),
            ("public_addr", &mon.public_addr),
            ("rank", &rank),
            ("ceph_version", fact(&mon.facts, "ceph_version")),
        ];
        page.sample("ceph_mon_metadata", &labels, 1);
    }
    page.family("ceph_mon_quorum_status", Kind::Gauge, "The monitor is in the quorum");
    for mon in &view.mons {
        let daemon = format!("mon.{}", mon.name);
        page.sample("ceph_mon_quorum_status", &[("ceph_daemon", &daemon)], u8::from(mon.is_in_quorum));
    }
    page.family(
        "ceph_mon_num_sessions",
        Kind::Gauge,
        "Clients and daemons that are connected to the monitor",
    );
    for (name, count) in &view.sessions {
        let daemon = format!("mon.{name}");
        page.sample("ceph_mon_num_sessions", &[("ceph_daemon", &daemon)], count);
    }
}

fn managers(view: &View, page: &mut Page) {
    page.family("ceph_mgr_metadata", Kind::Gauge, "What is known of a manager");
    for mgr in &view.mgrs {
        let daemon = format!("mgr.{}", mgr.name);
        let labels: [(&str, &str); 3] = [
            ("ceph_daemon", daemon.as_str()),
            ("hostname", &mgr.hostname),
            ("ceph_version", &mgr.ceph_version),
        ];
        page.sample("ceph_mgr_metadata", &labels, 1);
    }
    page.family("ceph_mgr_status", Kind::Gauge, "The manager is active (1) or waits (0)");
    for mgr in &view.mgrs {
        let daemon = format!("mgr.{}", mgr.name);
        page.sample("ceph_mgr_status", &[("ceph_daemon", &daemon)], u8::from(mgr.is_active));
    }
    let status = "ceph_mgr_module_status";
    page.family(status, Kind::Gauge, "The manager's module is off (0), on (1), or always on (2)");
    for module in &view.modules {
        page.sample(status, &[("name", &module.name)], module.status);
    }
    page.family("ceph_mgr_module_can_run", Kind::Gauge, "The manager's module can run");
    for module in &view.modules {
        page.sample("ceph_mgr_module_can_run", &[("name", &module.name)], u8::from(module.can_run));
    }
}
