//! Images: Ceph's names and units, nanoseconds among them.

use super::View;
use super::page::{Kind, Page};
use crate::images::ImageSums;

/// A family with one number of each image.
type Column = (&'static str, &'static str, fn(&ImageSums) -> u64);

const COLUMNS: [Column; 8] = [
    ("ceph_rbd_write_ops", "Writes to the image", |sums| sums.write_ops),
    ("ceph_rbd_read_ops", "Reads of the image", |sums| sums.read_ops),
    ("ceph_rbd_write_bytes", "Bytes written to the image", |sums| sums.write_bytes),
    ("ceph_rbd_read_bytes", "Bytes read from the image", |sums| sums.read_bytes),
    ("ceph_rbd_write_latency_sum", "Nanoseconds of writes at OSDs", |sums| sums.write_latency.0),
    ("ceph_rbd_write_latency_count", "How many writes these are of", |sums| sums.write_latency.1),
    ("ceph_rbd_read_latency_sum", "Nanoseconds of reads at OSDs", |sums| sums.read_latency.0),
    ("ceph_rbd_read_latency_count", "How many reads these are of", |sums| sums.read_latency.1),
];

pub(super) fn write(view: &View, page: &mut Page) {
    for (name, help, value) in COLUMNS {
        page.family(name, Kind::Counter, help);
        for (pool, namespace, image, sums) in &view.images {
            let Some(pool) = view.map.pool_name(*pool) else { continue };
            let labels: [(&str, &str); 3] = [("pool", pool), ("namespace", namespace), ("image", image)];
            page.sample(name, &labels, value(sums));
        }
    }
}
