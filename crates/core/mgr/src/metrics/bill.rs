//! The bill: microseconds of processor time by client, by image, and what is for neither. Our own series.

use super::View;
use super::page::{Kind, Page};
use crate::bill::Account;
use nacre_msg::PowerSource;
use std::time::Duration;

/// A family with one number of each account: its end, its help, its value.
type Column = (&'static str, &'static str, fn(&Account) -> u64);

const COLUMNS: [Column; 3] = [
    ("cpu_us", "Processor time of OSDs' threads in microseconds", |account| account.cpu_ns / 1000),
    ("ops", "Messages that were answered", |account| account.ops),
    ("bytes", "Bytes that they brought and took away", |account| account.bytes),
];

pub(super) fn write(view: &View, page: &mut Page) {
    for (end, help, value) in COLUMNS {
        let name = format!("ceph_bill_client_{end}");
        page.family(&name, Kind::Counter, &format!("By client: {help}"));
        for (client, account) in &view.bill.clients {
            page.sample(&name, &[("client", &client.entity), ("host", &client.host)], value(account));
        }
        let name = format!("ceph_bill_image_{end}");
        page.family(&name, Kind::Counter, &format!("By image: {help}"));
        for (pool, namespace, image, account) in &view.bill.images {
            let Some(pool) = view.map.pool_name(*pool) else { continue };
            page.sample(&name, &[("pool", pool), ("namespace", namespace), ("image", image)], value(account));
        }
    }
    let name = "ceph_bill_class_cpu_us";
    page.family(name, Kind::Counter, "Processor time that is for no client in particular, in microseconds");
    for (class, ns) in &view.bill.classes_ns {
        page.sample(name, &[("class", class)], ns / 1000);
    }
    let name = "ceph_host_power_watts";
    page.family(name, Kind::Gauge, "What a host with OSDs draws: measured by its processors, or a model");
    for (host, power) in &view.bill.power {
        let source = match power.source {
            PowerSource::Measured => "measured",
            PowerSource::Model => "model",
            PowerSource::Unknown => "unknown",
        };
        let watts = Duration::from_millis(power.milliwatts).as_secs_f64();
        page.sample(name, &[("host", host), ("source", source)], watts);
    }
}
