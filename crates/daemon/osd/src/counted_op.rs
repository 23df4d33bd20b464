//! [`CountedOp`]: an operation that was answered, as queries of managers count it.

use nacre_buf::{ByteStr, Bytes};
use nacre_msg::{QueryCounter, query_counter, sub_key};
use nacre_pg::Session;
use nacre_types::{OsdId, PgId, SnapId};

/// Keys of one query between two reports; what would be more is not counted.
pub(crate) const KEYS_MAX: usize = 10_000;

/// A sum for each of a query's counters, and of how many.
pub(crate) type Sums = Vec<(u64, u64)>;

/// One operation that was answered.
pub(crate) struct CountedOp<'a> {
    pub(crate) session: Option<&'a Session>,
    pub(crate) osd: OsdId,
    pub(crate) pg: PgId,
    pub(crate) namespace: &'a ByteStr,
    pub(crate) name: &'a ByteStr,
    pub(crate) snap: SnapId,
    pub(crate) is_write: bool,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) latency_ns: u64,
}

impl CountedOp<'_> {
    pub(crate) fn text(&self, kind: u8) -> Option<Bytes> {
        let text = match kind {
            sub_key::CLIENT_ID => self.session?.name.to_string(),
            sub_key::CLIENT_ADDRESS => self.session?.addr.to_string(),
            sub_key::POOL_ID => self.pg.pool.to_string(),
            sub_key::NAMESPACE => return Some(self.namespace.to_shared()),
            sub_key::OSD_ID => self.osd.to_string(),
            sub_key::PG_ID => self.pg.to_string(),
            sub_key::OBJECT_NAME => return Some(self.name.to_shared()),
            sub_key::SNAP_ID if self.snap == SnapId::HEAD => "head".to_owned(),
            sub_key::SNAP_ID => format!("{:x}", self.snap.0),
            _ => return None,
        };
        Some(Bytes::from(text))
    }

    /// What the operation adds to a counter, and whether it counts there.
    fn amount(&self, counter: QueryCounter) -> (u64, u64) {
        use query_counter as of;
        let counts = match counter.kind {
            of::WRITE_OPS | of::WRITE_BYTES | of::WRITE_LATENCY => self.is_write,
            of::READ_OPS | of::READ_BYTES | of::READ_LATENCY => !self.is_write,
            _ => true,
        };
        let amount = match counter.kind {
            of::OPS | of::WRITE_OPS | of::READ_OPS => 1,
            of::BYTES => self.input_bytes + self.output_bytes,
            of::WRITE_BYTES => self.input_bytes,
            of::READ_BYTES => self.output_bytes,
            of::LATENCY | of::WRITE_LATENCY | of::READ_LATENCY => self.latency_ns,
            _ => 0,
        };
        if counts { (amount, 1) } else { (0, 0) }
    }

    /// Adds it to a sum for each of the counters.
    pub(crate) fn add_to(&self, sums: &mut Sums, counters: &[QueryCounter]) {
        for (sum, counter) in sums.iter_mut().zip(counters) {
            add(sum, self.amount(*counter));
        }
    }
}

pub(crate) fn add(sum: &mut (u64, u64), (amount, count): (u64, u64)) {
    *sum = (sum.0.saturating_add(amount), sum.1.saturating_add(count));
}
