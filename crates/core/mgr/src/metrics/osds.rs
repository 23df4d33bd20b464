//! OSDs and the devices that they are on.

use super::page::{Kind, Page};
use super::{OsdView, View, fact};
use std::collections::BTreeMap;

/// Weight of an OSD that is in, as the map has it.
const WHOLE_WEIGHT: f64 = 65_536.0;

fn daemon(osd: &OsdView) -> String {
    format!("osd.{}", osd.id)
}

pub(super) fn write(view: &View, page: &mut Page) {
    metadata(view, page);
    state(view, page);
    occupation(view, page);
}

/// As Ceph does, an OSD that has never been up is left out.
fn metadata(view: &View, page: &mut Page) {
    page.family("ceph_osd_metadata", Kind::Untyped, "What is known of an OSD");
    let ip = |addrs: Option<&nacre_types::AddrVec>| Some(addrs?.msgr2()?.socket?.ip().to_string());
    for osd in &view.osds {
        let addrs = (ip(view.map.client_addr(osd.id)), ip(view.map.cluster_addr(osd.id)));
        let (Some(public_addr), Some(cluster_addr)) = addrs else { continue };
        let daemon = daemon(osd);
        let labels: [(&str, &str); 9] = [
            ("back_iface", fact(&osd.facts, "back_iface")),
            ("ceph_daemon", &daemon),
            ("cluster_addr", &cluster_addr),
            ("device_class", view.map.crush.item_class_name(osd.id).unwrap_or_default()),
            ("front_iface", fact(&osd.facts, "front_iface")),
            ("hostname", fact(&osd.facts, "hostname")),
            ("objectstore", fact(&osd.facts, "osd_objectstore")),
            ("public_addr", &public_addr),
            ("ceph_version", fact(&osd.facts, "ceph_version")),
        ];
        page.sample("ceph_osd_metadata", &labels, 1);
    }
}

fn state(view: &View, page: &mut Page) {
    let map = &view.map;
    page.family("ceph_osd_weight", Kind::Untyped, "Share of its data that the OSD keeps, from 0 to 1");
    for osd in &view.osds {
        let weight = f64::from(map.weight(osd.id)) / WHOLE_WEIGHT;
        page.sample("ceph_osd_weight", &[("ceph_daemon", &daemon(osd))], weight);
    }
    page.family("ceph_osd_up", Kind::Untyped, "The OSD runs");
    for osd in &view.osds {
        page.sample("ceph_osd_up", &[("ceph_daemon", &daemon(osd))], u8::from(map.is_up(osd.id)));
    }
    page.family("ceph_osd_in", Kind::Untyped, "The OSD is to keep data");
    for osd in &view.osds {
        page.sample("ceph_osd_in", &[("ceph_daemon", &daemon(osd))], u8::from(map.is_in(osd.id)));
    }
    let latency = |page: &mut Page, name: &str, help: &str, of: fn(&nacre_msg::stats::OsdPerfStat) -> u64| {
        page.family(name, Kind::Gauge, help);
        for osd in &view.osds {
            if let Some(perf) = osd.perf.as_ref().filter(|_| map.is_up(osd.id)) {
                page.sample(name, &[("ceph_daemon", &daemon(osd))], of(perf) / 1_000_000);
            }
        }
    };
    let help = "Milliseconds until a write is readable, on average over the last report";
    latency(page, "ceph_osd_apply_latency_ms", help, |perf| perf.apply_latency_ns);
    let help = "Milliseconds until a write is durable, on average over the last report";
    latency(page, "ceph_osd_commit_latency_ms", help, |perf| perf.commit_latency_ns);
}

/// The device of an OSD's store, where the system tells it.
fn device(osd: &OsdView) -> Option<String> {
    let named = fact(&osd.facts, "devices").split(',').next().filter(|name| !name.is_empty())?;
    Some(format!("/dev/{named}"))
}

/// As Ceph has it: `N/A` for what is not known of a device that is.
fn told<'a>(osd: &'a OsdView, key: &str) -> &'a str {
    Some(fact(&osd.facts, key)).filter(|text| !text.is_empty()).unwrap_or("N/A")
}

fn occupation(view: &View, page: &mut Page) {
    let name = "ceph_disk_occupation";
    page.family(name, Kind::Untyped, "Which device an OSD is on, to join with the machine's own metrics");
    let known: Vec<(&OsdView, String)> =
        view.osds.iter().filter_map(|osd| Some((osd, device(osd)?))).collect();
    for (osd, device) in &known {
        let daemon = daemon(osd);
        let labels: [(&str, &str); 7] = [
            ("ceph_daemon", &daemon),
            ("device", device),
            ("db_device", ""),
            ("wal_device", ""),
            ("instance", fact(&osd.facts, "hostname")),
            ("devices", told(osd, "devices")),
            ("device_ids", told(osd, "device_ids")),
        ];
        page.sample(name, &labels, 1);
    }
    let mut by_device: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for (osd, device) in &known {
        by_device.entry((device, fact(&osd.facts, "hostname"))).or_default().push(daemon(osd));
    }
    let name = "ceph_disk_occupation_human";
    page.family(name, Kind::Untyped, "Which OSDs are on a device, for people and not to join with");
    for ((device, instance), daemons) in by_device {
        let daemons = daemons.join(", ");
        let labels: [(&str, &str); 3] =
            [("device", device), ("instance", instance), ("ceph_daemon", &daemons)];
        page.sample(name, &labels, 1);
    }
}
