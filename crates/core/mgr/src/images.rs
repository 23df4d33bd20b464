//! [`Images`]: what clients do with images, as OSDs count it for `nacre_msg::image_query`.

use nacre_buf::Bytes;
use nacre_denc::Reader;
use nacre_maps::OsdMap;
use nacre_msg::{PerfKey, PerfQueryReport, PerfReports, image_name_query, image_query, query_counter};
use nacre_types::PoolId;
use std::collections::BTreeMap;

/// Images that are kept. Where there is no room, those go that no OSD has mentioned for so many reports, and new ones are not counted.
const IMAGES_COUNT_MAX: usize = 10_000;
const IDLE_REPORTS_MAX: u64 = 10_000;
/// Names that are kept: those of images that nobody uses, too.
const NAMES_COUNT_MAX: usize = 20_000;
/// Bytes of an id, a name or a namespace.
const TEXT_BYTES_MAX: usize = 256;

/// Sums since this manager began to count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageSums {
    /// Writes, and the bytes that they brought.
    pub write_ops: u64,
    /// Bytes that writes brought.
    pub write_bytes: u64,
    /// Reads that were answered.
    pub read_ops: u64,
    /// Bytes that reads brought.
    pub read_bytes: u64,
    /// Nanoseconds of writes from arrival to answer, and how many they are of.
    pub write_latency: (u64, u64),
    /// The same of reads.
    pub read_latency: (u64, u64),
}

/// Pool, namespace and id.
type ImageKey = (PoolId, String, String);

#[derive(Debug, Default)]
struct Image {
    sums: ImageSums,
    /// Number of the report that it was in last.
    used: u64,
}

/// The images that were used since this manager began, and what they are called.
#[derive(Debug, Default)]
pub struct Images {
    images: BTreeMap<ImageKey, Image>,
    names: BTreeMap<ImageKey, String>,
    reports: u64,
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

impl ImageSums {
    /// Adds what an OSD has counted; false when it is cut off.
    fn take_in(&mut self, report: &PerfQueryReport, packed: &Bytes) -> bool {
        use query_counter as of;
        let mut r = Reader::new(packed.clone());
        report.counters.iter().all(|counter| {
            let Ok(sum) = r.u64() else { return false };
            let count = if counter.kind >= of::LATENCY { r.u64().ok() } else { Some(0) };
            let Some(count) = count else { return false };
            match counter.kind {
                of::WRITE_OPS => add(&mut self.write_ops, sum),
                of::READ_OPS => add(&mut self.read_ops, sum),
                of::WRITE_BYTES => add(&mut self.write_bytes, sum),
                of::READ_BYTES => add(&mut self.read_bytes, sum),
                of::WRITE_LATENCY => {
                    add(&mut self.write_latency.0, sum);
                    add(&mut self.write_latency.1, count);
                }
                of::READ_LATENCY => {
                    add(&mut self.read_latency.0, sum);
                    add(&mut self.read_latency.1, count);
                }
                _ => (),
            }
            true
        })
    }

    fn plus(&mut self, other: &Self) {
        add(&mut self.write_ops, other.write_ops);
        add(&mut self.write_bytes, other.write_bytes);
        add(&mut self.read_ops, other.read_ops);
        add(&mut self.read_bytes, other.read_bytes);
        let pairs =
            [(&mut self.write_latency, other.write_latency), (&mut self.read_latency, other.read_latency)];
        for (sum, more) in pairs {
            add(&mut sum.0, more.0);
            add(&mut sum.1, more.1);
        }
    }
}

fn text(bytes: &Bytes) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
}

/// Pool, namespace and the two texts of the last part.
fn parts(key: &PerfKey) -> Option<(PoolId, String, [String; 2])> {
    let [pool, namespace, name] = key.as_slice() else { return None };
    let ([pool], [namespace], [first, second]) = (&pool[..], &namespace[..], &name[..]) else { return None };
    Some((text(pool)?.parse().ok()?, text(namespace)?, [text(first)?, text(second)?]))
}

impl Images {
    /// What an OSD has counted since its report before.
    pub fn report(&mut self, reports: &PerfReports) {
        self.reports += 1;
        if let Some(report) = reports.get(&image_name_query()) {
            for (pool, namespace, [id, name]) in report.sums.keys().filter_map(parts) {
                let key = (pool, namespace, id);
                if self.names.len() < NAMES_COUNT_MAX || self.names.contains_key(&key) {
                    self.names.insert(key, name);
                }
            }
        }
        let Some(report) = reports.get(&image_query()) else { return };
        if self.images.len() >= IMAGES_COUNT_MAX {
            self.images.retain(|_, image| image.used + IDLE_REPORTS_MAX >= self.reports);
        }
        for (key, packed) in &report.sums {
            // The image's own pool is in the object's name where it is another one.
            let Some((pool, namespace, [own_pool, id])) = parts(key) else { continue };
            let key = (own_pool.parse().unwrap_or(pool), namespace, id);
            if self.images.len() >= IMAGES_COUNT_MAX && !self.images.contains_key(&key) {
                continue;
            }
            let image = self.images.entry(key).or_default();
            image.used = self.reports;
            image.sums.take_in(report, packed);
        }
    }

    /// Forgets images of pools that are gone.
    pub fn prune(&mut self, map: &OsdMap) {
        self.images.retain(|(pool, ..), _| map.pools.contains_key(pool));
        self.names.retain(|(pool, ..), _| map.pools.contains_key(pool));
    }

    /// What an image is called, where a client has opened it by that name.
    #[must_use]
    pub fn name(&self, pool: PoolId, namespace: &str, id: &str) -> Option<&str> {
        self.names.get(&(pool, namespace.to_owned(), id.to_owned())).map(String::as_str)
    }

    /// Pool, namespace, name and sums of each, in that order; the id of one whose name is not known. What several images of one name have
    /// had, of which all but one are gone, is added up.
    #[must_use]
    pub fn all(&self) -> Vec<(PoolId, String, String, ImageSums)> {
        let mut all: BTreeMap<ImageKey, ImageSums> = BTreeMap::new();
        for (key, image) in &self.images {
            let name = self.names.get(key).unwrap_or(&key.2).clone();
            all.entry((key.0, key.1.clone(), name)).or_default().plus(&image.sums);
        }
        all.into_iter().map(|((pool, namespace, name), sums)| (pool, namespace, name, sums)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_msg::pack_sums;

    fn key(pool: &str, last: [&str; 2]) -> PerfKey {
        let bytes = |text: &str| Bytes::from(text.to_owned());
        vec![vec![bytes(pool)], vec![Bytes::new()], last.map(bytes).to_vec()]
    }

    fn report(key: PerfKey, sums: [(u64, u64); 6]) -> PerfReports {
        let counters = image_query().counters;
        let packed = pack_sums(&counters, &sums);
        let report = PerfQueryReport { counters, sums: BTreeMap::from([(key, packed)]) };
        PerfReports::from([(image_query(), report)])
    }

    fn named(id: &str, name: &str) -> PerfReports {
        let sums = BTreeMap::from([(key("3", [id, name]), Bytes::new())]);
        PerfReports::from([(image_name_query(), PerfQueryReport { counters: Vec::new(), sums })])
    }

    const ONE: [(u64, u64); 6] = [(1, 1), (2, 2), (4096, 1), (512, 2), (1000, 1), (3000, 2)];

    #[test]
    fn what_osds_count_is_added_up_under_the_images_names() {
        let mut images = Images::default();
        images.report(&report(key("3", ["", "10a"]), ONE));
        images.report(&report(key("9", ["3", "10a"]), ONE));
        let twice = ImageSums {
            write_ops: 2,
            write_bytes: 8192,
            read_ops: 4,
            read_bytes: 1024,
            write_latency: (2000, 2),
            read_latency: (6000, 4),
        };
        assert_eq!(images.all(), [(3, String::new(), "10a".to_owned(), twice)], "its data is in two pools");
        images.report(&named("10a", "disk"));
        images.report(&named("10b", "disk"));
        images.report(&report(key("3", ["", "10b"]), ONE));
        let all = images.all();
        assert_eq!(
            (all.len(), all[0].2.as_str(), all[0].3.write_ops),
            (1, "disk", 3),
            "one series for a name"
        );
        images.prune(&OsdMap::default());
        assert_eq!((images.all().len(), images.names.len()), (0, 0));
    }

    #[test]
    fn what_osds_report_is_bounded_and_may_be_nonsense() {
        let mut images = Images::default();
        images.report(&report(vec![Vec::new()], ONE));
        images.report(&report(key("x", ["", "10a"]), ONE));
        images.report(&report(key("3", ["", &"x".repeat(TEXT_BYTES_MAX + 1)]), ONE));
        assert!(images.all().is_empty());
        for number in 0..IMAGES_COUNT_MAX + 5 {
            images.report(&report(key("3", ["", &number.to_string()]), ONE));
        }
        assert_eq!(images.images.len(), IMAGES_COUNT_MAX);
        for _ in 0..IDLE_REPORTS_MAX {
            images.report(&report(key("3", ["", "0"]), ONE));
        }
        images.report(&report(key("3", ["", "new"]), ONE));
        let left: Vec<&str> = images.images.keys().map(|(.., id)| id.as_str()).collect();
        assert!(left.len() <= IMAGES_COUNT_MAX && left.contains(&"0") && left.contains(&"new"));
    }
}
