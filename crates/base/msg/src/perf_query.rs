//! Performance queries: a manager asks OSDs to count operations by what their clients, objects and addresses look like, as `rbd perf image
//! iostat` needs it.
//!
//! Source: Ceph `src/mgr/OSDPerfMetricTypes.h`, `MMgrConfigure.h` and `MMgrReport.h`, v16.2.15.

use crate::body::fields;
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// Values of [`SubKey::kind`]: the text that its pattern is looked for in. Ceph `OSDPerfMetricSubKeyType`.
pub mod sub_key {
    /// The client's instance, such as `client.4123`.
    pub const CLIENT_ID: u8 = 0;
    /// Where that client is, as `v2:IP:PORT/NONCE`.
    pub const CLIENT_ADDRESS: u8 = 1;
    /// The pool's number.
    pub const POOL_ID: u8 = 2;
    /// The object's namespace.
    pub const NAMESPACE: u8 = 3;
    /// The OSD's number.
    pub const OSD_ID: u8 = 4;
    /// The PG, such as `2.1f`.
    pub const PG_ID: u8 = 5;
    /// The object's name.
    pub const OBJECT_NAME: u8 = 6;
    /// The snapshot that is read, or `head`.
    pub const SNAP_ID: u8 = 7;
}

/// What is counted. Ceph `PerformanceCounterType`.
pub mod query_counter {
    /// Number of operations.
    pub const OPS: u8 = 0;
    /// Those that write.
    pub const WRITE_OPS: u8 = 1;
    /// Those that read.
    pub const READ_OPS: u8 = 2;
    /// Bytes both ways.
    pub const BYTES: u8 = 3;
    /// Bytes that writes brought.
    pub const WRITE_BYTES: u8 = 4;
    /// Bytes that reads brought.
    pub const READ_BYTES: u8 = 5;
    /// Nanoseconds from arrival to answer.
    pub const LATENCY: u8 = 6;
    /// The same of writes.
    pub const WRITE_LATENCY: u8 = 7;
    /// The same of reads.
    pub const READ_LATENCY: u8 = 8;
}

/// A part of the key that operations are counted under: what a pattern finds in one text. Ceph `OSDPerfMetricSubKeyDescriptor`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SubKey {
    /// One of [`sub_key`].
    pub kind: u8,
    /// A regular expression; what its parentheses find becomes the key.
    pub pattern: String,
}
fields!(SubKey, "OSDPerfMetricSubKeyDescriptor", 1, 1; kind, pattern);

/// A kind of counter in its envelope. Ceph `PerformanceCounterDescriptor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct QueryCounter {
    /// One of [`query_counter`].
    pub kind: u8,
}
fields!(QueryCounter, "PerformanceCounterDescriptor", 1, 1; kind);

/// What is to be counted, and by what. Ceph `OSDPerfMetricQuery`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PerfQuery {
    /// Operations with the same finds of all these are counted together; one without a find of each is not counted.
    pub key: Vec<SubKey>,
    /// What is counted of them.
    pub counters: Vec<QueryCounter>,
}

/// What our own manager asks OSDs for images, as Ceph's module `prometheus` does: by the pool that the object is in, its namespace, and of its
/// name the image's own pool, where that is another one, and the image's id.
#[must_use]
pub fn image_query() -> PerfQuery {
    use query_counter as of;
    let kinds =
        [of::WRITE_OPS, of::READ_OPS, of::WRITE_BYTES, of::READ_BYTES, of::WRITE_LATENCY, of::READ_LATENCY];
    PerfQuery {
        key: image_key(r"^(?:rbd|journal)_data\.(?:([0-9]+)\.)?([^.]+)\."),
        counters: kinds.map(|kind| QueryCounter { kind }).to_vec(),
    }
}

/// And how images are called: OSDs of ours answer with the name and the id that they have seen a client look up, for others it is a query by
/// the name that counts nothing.
#[must_use]
pub fn image_name_query() -> PerfQuery {
    PerfQuery { key: image_key(r"^rbd_id\.(.*)$"), counters: Vec::new() }
}

fn image_key(name: &str) -> Vec<SubKey> {
    let parts = [(sub_key::POOL_ID, "^(.+)$"), (sub_key::NAMESPACE, "^(.*)$"), (sub_key::OBJECT_NAME, name)];
    parts.map(|(kind, pattern)| SubKey { kind, pattern: pattern.to_owned() }).to_vec()
}

/// Which keys are of interest: the first so many by this counter. Ceph `OSDPerfMetricLimit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PerfLimit {
    /// Keys with the largest sums of this come first.
    pub order_by: QueryCounter,
    /// How many of them.
    pub max_count: u64,
}
fields!(PerfLimit, "OSDPerfMetricLimit", 1, 1; order_by, max_count);

/// Queries with their limits; a query without limits wants all keys.
pub type PerfQueries = BTreeMap<PerfQuery, BTreeSet<PerfLimit>>;

/// For each part of the query's key what each pair of parentheses of its pattern found.
pub type PerfKey = Vec<Vec<Bytes>>;

/// Reports by query.
pub type PerfReports = BTreeMap<PerfQuery, PerfQueryReport>;

/// What was counted since the report before. Ceph `OSDPerfMetricReport`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PerfQueryReport {
    /// Those of the query.
    pub counters: Vec<QueryCounter>,
    /// By key, the sums as [`pack_sums`] writes them.
    pub sums: BTreeMap<PerfKey, Bytes>,
}

/// Sums in the order of the query's counters, each with the number of what was summed up. A time is followed by that number.
#[must_use]
pub fn pack_sums(counters: &[QueryCounter], sums: &[(u64, u64)]) -> Bytes {
    let mut w = Writer::new();
    for (counter, (sum, count)) in counters.iter().zip(sums) {
        w.u64(*sum);
        if counter.kind >= query_counter::LATENCY {
            w.u64(*count);
        }
    }
    w.finish()
}

/// What goes to OSDs, or comes from them, among metrics of several kinds of daemons: the number of the kind, and an envelope. Ceph
/// `OSDConfigPayload` and `OSDMetricPayload`, in `src/mgr/MetricTypes.h`.
const OF_OSDS: u32 = 0;

/// Writes such a part of a message, if there is any.
pub(crate) fn put_of_osds<T: Encode>(w: &mut Writer, value: Option<&T>) {
    w.bool(value.is_some());
    if let Some(value) = value {
        w.u32(OF_OSDS);
        w.envelope(1, 1, |w| w.put(value));
    }
}

/// Reads one; what is of daemons of another kind is passed over, and so is what follows it.
pub(crate) fn get_of_osds<T: Decode>(r: &mut Reader) -> Result<Option<T>, DecodeError> {
    if !r.bool()? || r.u32()? != OF_OSDS {
        return Ok(None);
    }
    r.envelope("OSDMetricPayload", 1, |_, r| r.get()).map(Some)
}

/// A list behind its length, seven bits in a byte, the lowest first. Ceph `denc_varint`.
fn put_short_list<T: Encode>(w: &mut Writer, items: &[T]) {
    let mut length = items.len();
    loop {
        let [low, ..] = (length & 0x7f).to_le_bytes();
        length >>= 7;
        if length == 0 {
            w.u8(low);
            break;
        }
        w.u8(low | 0x80);
    }
    items.iter().for_each(|item| w.put(item));
}

fn get_short_list<T: Decode>(r: &mut Reader, what: &'static str) -> Result<Vec<T>, DecodeError> {
    let (mut length, mut shift) = (0_u64, 0);
    loop {
        let byte = r.u8()?;
        length |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
        if shift > 28 {
            return Err(DecodeError::Invalid { what, value: length });
        }
    }
    if length.saturating_mul(T::MIN_BYTES.max(1) as u64) > r.left() as u64 {
        return Err(DecodeError::Invalid { what, value: length });
    }
    (0..length).map(|_| r.get()).collect()
}

impl Encode for PerfQuery {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            put_short_list(w, &self.key);
            put_short_list(w, &self.counters);
        });
    }
}

impl Decode for PerfQuery {
    const MIN_BYTES: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("OSDPerfMetricQuery", 1, |_, r| {
            let key = get_short_list(r, "parts of a key")?;
            Ok(Self { key, counters: get_short_list(r, "counters")? })
        })
    }
}

impl Encode for PerfQueryReport {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            put_short_list(w, &self.counters);
            w.put(&self.sums);
        });
    }
}

impl Decode for PerfQueryReport {
    const MIN_BYTES: usize = 11;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("OSDPerfMetricReport", 1, |_, r| {
            let counters = get_short_list(r, "counters")?;
            Ok(Self { counters, sums: r.get()? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query() -> PerfQuery {
        let part = |kind, pattern: &str| SubKey { kind, pattern: pattern.to_owned() };
        let key = vec![part(sub_key::POOL_ID, "^(2)$"), part(sub_key::OBJECT_NAME, "^(a+)")];
        let counters =
            [query_counter::WRITE_OPS, query_counter::WRITE_LATENCY].map(|kind| QueryCounter { kind });
        PerfQuery { key, counters: counters.to_vec() }
    }

    fn short(length: usize) -> u8 {
        length.try_into().expect("short")
    }

    #[test]
    fn a_query_is_written_as_ceph_writes_it() {
        let bytes = query().to_bytes();
        let part = |kind: u8, pattern: &str| {
            let length = short(pattern.len());
            let mut out = vec![1, 1, length + 5, 0, 0, 0, kind, length, 0, 0, 0];
            out.extend_from_slice(pattern.as_bytes());
            out
        };
        let body =
            [vec![2], part(2, "^(2)$"), part(6, "^(a+)"), vec![2, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 7]]
                .concat();
        assert_eq!(bytes[..], [vec![1, 1, short(body.len()), 0, 0, 0], body].concat());
        assert_eq!(PerfQuery::from_bytes(bytes), Ok(query()));
    }

    #[test]
    fn long_lists_have_long_lengths() {
        let many = PerfQuery { counters: vec![QueryCounter::default(); 300], ..PerfQuery::default() };
        assert_eq!(PerfQuery::from_bytes(many.to_bytes()), Ok(many));
    }

    #[test]
    fn a_length_that_cannot_be_is_refused() {
        for body in [&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..], &[0x80, 0x80, 0x80, 0x80, 0x01]] {
            let mut w = Writer::new();
            w.envelope(1, 1, |w| w.raw(body));
            assert!(PerfQuery::from_bytes(w.finish()).is_err(), "{body:?}");
        }
    }

    #[test]
    fn only_a_time_is_followed_by_the_number_of_what_was_summed_up() {
        let packed = pack_sums(&query().counters, &[(3, 3), (700, 3)]);
        let expected: Vec<u8> = [3_u64, 700, 3].iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(packed[..], expected);
    }

    #[test]
    fn what_is_for_other_daemons_is_passed_over() {
        let (mut w, queries) = (Writer::new(), PerfQueries::from([(query(), BTreeSet::new())]));
        put_of_osds(&mut w, Some(&queries));
        put_of_osds::<PerfQueries>(&mut w, None);
        w.raw(&[1, 1, 0, 0, 0, 9]); // of an MDS
        let mut r = Reader::new(w.finish());
        let mut next = || get_of_osds::<PerfQueries>(&mut r);
        assert_eq!([next(), next(), next()], [Ok(Some(queries)), Ok(None), Ok(None)]);
    }

    #[test]
    fn a_report_comes_back() {
        let key = vec![vec![Bytes::from_static(b"2"), Bytes::from_static(b"2")], vec![Bytes::new()]];
        let sums = BTreeMap::from([(key, pack_sums(&query().counters, &[(1, 1), (5, 1)]))]);
        let report = PerfQueryReport { counters: query().counters, sums };
        assert_eq!(PerfQueryReport::from_bytes(report.to_bytes()), Ok(report));
    }
}
