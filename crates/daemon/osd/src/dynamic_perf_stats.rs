//! [`DynamicPerfStats`]: counts operations by the keys that a manager's queries name, as `rbd perf image iostat` wants it of every OSD.
//!
//! Each shard counts for itself and tells OSD control what came since its last report; a manager adds up what it is told. Without queries an
//! operation costs one comparison. Patterns are those of Rust's `regex` over bytes: what it does not take (references back, looking around) makes
//! a query that nothing is counted for, and a line in the log. Ceph: `src/osd/DynamicPerfStats.h`.

use crate::counted_op::{CountedOp, KEYS_MAX, Sums, add};
use crate::image_stats::ImageStats;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_msg::{
    PerfKey, PerfQueries, PerfQuery, PerfQueryReport, PerfReports, SubKey, image_name_query, image_query,
    pack_sums,
};
use nacre_types::PgId;
use regex::bytes::{Regex, RegexBuilder};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Queries that are followed; Ceph's modules have one each.
const QUERIES_MAX: usize = 32;
/// Longest answer that may be an image's id.
const LOOKED_UP_BYTES_MAX: usize = 128;
/// Memory of one compiled pattern in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// What was counted, by query and key.
pub(crate) type PerfSamples = BTreeMap<PerfQuery, BTreeMap<PerfKey, Sums>>;

struct Active {
    query: PerfQuery,
    key: Vec<(u8, Regex)>,
    found: BTreeMap<PerfKey, Sums>,
}

impl Active {
    fn new(query: &PerfQuery) -> Result<Self, regex::Error> {
        let compile = |part: &SubKey| {
            let pattern =
                RegexBuilder::new(&part.pattern).unicode(false).size_limit(PATTERN_BYTES_MAX).build()?;
            Ok((part.kind, pattern))
        };
        let key = query.key.iter().map(compile).collect::<Result<_, regex::Error>>()?;
        Ok(Self { query: query.clone(), key, found: BTreeMap::new() })
    }

    fn key_of(&self, op: &CountedOp<'_>) -> Option<PerfKey> {
        let find = |(kind, pattern): &(u8, Regex)| {
            let text = op.text(*kind)?;
            let found = pattern.captures(&text)?;
            let part = |at| found.get(at).map_or_else(Bytes::new, |part| text.slice(part.range()));
            // A manager's module counts from the first pair of parentheses; the whole find is no part of the key.
            Some((1..found.len()).map(|at| detached(&part(at))).collect())
        };
        self.key.iter().map(find).collect()
    }

    fn add(&mut self, op: &CountedOp<'_>) {
        let Some(key) = self.key_of(op) else { return };
        let is_full = self.found.len() >= KEYS_MAX;
        let sums = match self.found.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return,
            Entry::Vacant(new) => new.insert(vec![(0, 0); self.query.counters.len()]),
        };
        op.add_to(sums, &self.query.counters);
    }
}

/// So that a name does not keep the frame in memory that it came in.
fn detached(part: &Bytes) -> Bytes {
    Bytes::copy_from_slice(part)
}

/// Counts what is asked for.
#[derive(Default)]
pub(crate) struct DynamicPerfStats {
    active: Vec<Active>,
    /// Where our own manager's query is among them.
    images: Option<ImageStats>,
}

impl DynamicPerfStats {
    /// Counts for these queries from now on, and goes on with those that it has already.
    pub(crate) fn set_queries(&mut self, queries: &PerfQueries) {
        let (of_images, of_names) = (image_query(), image_name_query());
        if queries.contains_key(&of_images) {
            self.images.get_or_insert_default().tell_again();
        } else {
            self.images = None;
        }
        let mut before = std::mem::take(&mut self.active);
        let others = queries.keys().filter(|query| **query != of_images && **query != of_names);
        for query in others.take(QUERIES_MAX) {
            if let Some(at) = before.iter().position(|active| active.query == *query) {
                self.active.push(before.swap_remove(at));
                continue;
            }
            match Active::new(query) {
                Ok(active) => self.active.push(active),
                Err(error) => tracing::warn!(%error, "a manager's performance query is not understood"),
            }
        }
    }

    /// Whether anything is asked for.
    pub(crate) fn is_active(&self) -> bool {
        !self.active.is_empty() || self.images.is_some()
    }

    /// An operation on an object was answered with this, where that may say what an image is called.
    pub(crate) fn learn(&mut self, pg: PgId, namespace: &ByteStr, name: &ByteStr, answer: &BufList) {
        let may_be = name.as_ref().starts_with(b"rbd_id.") && answer.len() <= LOOKED_UP_BYTES_MAX;
        if let Some(images) = self.images.as_mut().filter(|_| may_be) {
            images.learn(pg, namespace, name, &answer.to_bytes());
        }
    }

    /// An operation was answered.
    pub(crate) fn add(&mut self, op: &CountedOp<'_>) {
        if let Some(images) = &mut self.images {
            images.add(op);
        }
        self.active.iter_mut().for_each(|active| active.add(op));
    }

    /// What was counted since this was called last.
    pub(crate) fn take(&mut self) -> PerfSamples {
        let take = |active: &mut Active| (active.query.clone(), std::mem::take(&mut active.found));
        let mut samples: PerfSamples = self.active.iter_mut().map(take).collect();
        if let Some(images) = &mut self.images {
            samples.insert(image_query(), images.take_sums());
            samples.insert(image_name_query(), images.take_names());
        }
        samples
    }
}

/// Adds what one shard has counted to what others have.
pub(crate) fn merge(samples: &mut PerfSamples, more: PerfSamples) {
    for (query, counted) in more {
        let known = samples.entry(query).or_default();
        for (key, sums) in counted {
            if let Some(sum) = known.get_mut(&key) {
                sum.iter_mut().zip(sums).for_each(|(sum, more)| add(sum, more));
            } else if known.len() < KEYS_MAX {
                known.insert(key, sums);
            }
        }
    }
}

/// What the manager is told: of each query that it has, the keys that its limits want.
pub(crate) fn reports(queries: &PerfQueries, mut samples: PerfSamples) -> PerfReports {
    let report = |(query, limits): (&PerfQuery, &BTreeSet<_>)| {
        let counted = samples.remove(query)?;
        let wanted = |rank: &nacre_msg::PerfLimit| {
            let at = query.counters.iter().position(|counter| *counter == rank.order_by);
            let mut keys: Vec<_> = counted.iter().collect();
            keys.sort_by_key(|(_, sums)| std::cmp::Reverse(at.and_then(|at| sums.get(at)).map(|sum| sum.0)));
            let count = usize::try_from(rank.max_count).unwrap_or(usize::MAX);
            keys.into_iter().take(count).map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        let chosen: Option<BTreeSet<PerfKey>> =
            (!limits.is_empty()).then(|| limits.iter().flat_map(wanted).collect());
        let wanted =
            counted.iter().filter(|(key, _)| chosen.as_ref().is_none_or(|chosen| chosen.contains(*key)));
        let sums = wanted.map(|(key, sums)| (key.clone(), pack_sums(&query.counters, sums))).collect();
        Some((query.clone(), PerfQueryReport { counters: query.counters.clone(), sums }))
    };
    queries.iter().filter_map(report).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_msg::{PerfLimit, QueryCounter, query_counter, sub_key};
    use nacre_types::SnapId;

    fn query(pattern: &str, counters: &[u8]) -> PerfQuery {
        let part = |kind, pattern: &str| SubKey { kind, pattern: pattern.to_owned() };
        PerfQuery {
            key: vec![part(sub_key::POOL_ID, "^(.+)$"), part(sub_key::OBJECT_NAME, pattern)],
            counters: counters.iter().map(|kind| QueryCounter { kind: *kind }).collect(),
        }
    }

    fn count(stats: &mut DynamicPerfStats, name: &[u8], is_write: bool, bytes: u64) {
        let (name, namespace) = (ByteStr::from(name), ByteStr::default());
        stats.add(&CountedOp {
            session: None,
            osd: 1,
            pg: PgId { pool: 2, seed: 3 },
            namespace: &namespace,
            name: &name,
            snap: SnapId::HEAD,
            is_write,
            input_bytes: if is_write { bytes } else { 0 },
            output_bytes: if is_write { 0 } else { bytes },
            latency_ns: 1000,
        });
    }

    /// The pattern of `rbd perf image iostat`.
    const IMAGES: &str = r"^(?:rbd|journal)_data\.(?:([0-9]+)\.)?([^.]+)\.";

    fn key(parts: &[&[&'static str]]) -> PerfKey {
        let texts =
            |texts: &&[&'static str]| texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect();
        parts.iter().map(texts).collect()
    }

    #[test]
    fn operations_are_counted_by_image() {
        use query_counter as of;
        let query = query(IMAGES, &[of::WRITE_OPS, of::READ_BYTES, of::WRITE_LATENCY]);
        let queries = PerfQueries::from([(query.clone(), BTreeSet::new())]);
        let mut stats = DynamicPerfStats::default();
        count(&mut stats, b"rbd_data.10a.0000", true, 4096);
        assert!(!stats.is_active() && stats.take().is_empty(), "nobody has asked");
        stats.set_queries(&queries);
        for _ in 0..3 {
            count(&mut stats, b"rbd_data.10a.0000", true, 4096);
        }
        count(&mut stats, b"rbd_data.10a.0001", false, 512);
        count(&mut stats, b"rbd_data.7.10b.0000", false, 100);
        count(&mut stats, b"rbd_header.10a", true, 10);
        // The same query again: what was counted stays.
        stats.set_queries(&queries);
        let first = key(&[&["2"], &["", "10a"]]);
        let second = key(&[&["2"], &["7", "10b"]]);
        let expected = BTreeMap::from([
            (first, vec![(3, 3), (512, 1), (3000, 3)]),
            (second, vec![(0, 0), (100, 1), (0, 0)]),
        ]);
        let samples = stats.take();
        assert_eq!(samples[&query], expected);
        assert!(stats.take()[&query].is_empty(), "it is told once");
        let mut sum = samples.clone();
        merge(&mut sum, samples);
        assert!(sum[&query].values().any(|sums| sums[0] == (6, 6)), "two shards");
        stats.set_queries(&PerfQueries::new());
        assert!(!stats.is_active());
    }

    /// Our own manager's query finds what its pattern would.
    #[test]
    fn images_are_counted_without_their_pattern_as_with_it() {
        let names: [&[u8]; 6] = [
            b"rbd_data.10a.0000",
            b"rbd_data.7.10b.0000",
            b"journal_data.7.10b.3",
            b"rbd_header.10a",
            b"rbd_data.10c",
            b"x",
        ];
        let counted = |queries: &PerfQueries| {
            let mut stats = DynamicPerfStats::default();
            stats.set_queries(queries);
            for (nth, name) in names.into_iter().enumerate() {
                count(&mut stats, name, nth % 2 == 0, 4096);
                count(&mut stats, name, true, 1);
            }
            stats.take()
        };
        let own = image_query();
        let by_hand = counted(&PerfQueries::from([(own.clone(), BTreeSet::new())]));
        // The same, but for a counter more: nobody's that is known.
        let mut other = own.clone();
        other.counters.push(QueryCounter { kind: query_counter::OPS });
        let by_pattern = counted(&PerfQueries::from([(other.clone(), BTreeSet::new())]));
        let pool_of =
            |key: &PerfKey| if key[2][0].is_empty() { key[0][0].clone() } else { key[2][0].clone() };
        let images = |sums: &BTreeMap<PerfKey, Sums>| -> BTreeMap<(Bytes, Bytes), Sums> {
            let of = |(key, sums): (&PerfKey, &Sums)| ((pool_of(key), key[2][1].clone()), sums[..6].to_vec());
            sums.iter().map(of).collect()
        };
        assert_eq!(images(&by_hand[&own]), images(&by_pattern[&other]));
        assert_eq!(by_hand[&own].len(), 2);
        assert!(by_hand[&image_name_query()].is_empty());
    }

    #[test]
    fn a_limit_takes_the_largest() {
        use query_counter as of;
        let query = query("^(.*)$", &[of::BYTES, of::OPS]);
        let limit = |kind, max_count| PerfLimit { order_by: QueryCounter { kind }, max_count };
        let limits = BTreeSet::from([limit(of::BYTES, 1), limit(of::OPS, 1)]);
        let queries = PerfQueries::from([(query.clone(), limits)]);
        let mut stats = DynamicPerfStats::default();
        stats.set_queries(&queries);
        count(&mut stats, b"large", true, 1 << 20);
        count(&mut stats, b"small", true, 1);
        (0..2).for_each(|_| count(&mut stats, b"often", true, 2));
        let reports = reports(&queries, stats.take());
        let names: Vec<_> = reports[&query].sums.keys().map(|key| key[1][0].clone()).collect();
        assert_eq!(names, ["large", "often"]);
    }

    #[test]
    fn what_clients_can_make_is_bounded() {
        let query = query("^(.*)$", &[query_counter::OPS]);
        let queries = PerfQueries::from([(query.clone(), BTreeSet::new())]);
        let mut stats = DynamicPerfStats::default();
        stats.set_queries(&queries);
        for number in 0..KEYS_MAX + 5 {
            count(&mut stats, number.to_string().as_bytes(), true, 0);
        }
        assert_eq!(stats.take()[&query].len(), KEYS_MAX);
    }

    #[test]
    fn a_pattern_that_is_none_counts_nothing() {
        let wrong = query("(?=look)", &[query_counter::OPS]);
        let mut stats = DynamicPerfStats::default();
        stats.set_queries(&PerfQueries::from([(wrong, BTreeSet::new())]));
        assert!(!stats.is_active());
    }
}
