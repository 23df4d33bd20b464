//! Names of PGs ([`PgId`]) and of the shards of PGs ([`SpgId`]).

use crate::PoolId;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::cmp::Ordering;
use std::fmt;

/// Shard of a PG in a replicated pool: there are none, every member holds everything.
pub const SHARD_NONE: i8 = -1;

/// A PG: pool and number within it, printed `2.1f`. Ceph `pg_t`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PgId {
    /// Id of the pool.
    pub pool: PoolId,
    /// Number within the pool, below its `pg_num`.
    pub seed: u32,
}

impl PgId {
    /// Pool and number.
    #[must_use]
    pub const fn new(pool: PoolId, seed: u32) -> Self {
        Self { pool, seed }
    }

    /// Reads `pool.seed` with the seed in hex.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (pool, seed) = text.split_once('.')?;
        Some(Self { pool: pool.parse().ok()?, seed: u32::from_str_radix(seed, 16).ok()? })
    }
}

impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}

impl fmt::Debug for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for PgId {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.i64(self.pool);
        w.u32(self.seed);
        w.i32(-1); // "preferred OSD", unused since long ago
    }
}

impl Decode for PgId {
    const MIN_BYTES: usize = 17;
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        if version != 1 {
            return Err(DecodeError::Invalid { what: "pg_t version", value: version.into() });
        }
        let pg = Self { pool: r.i64()?, seed: r.u32()? };
        r.skip(4)?;
        Ok(pg)
    }
}

/// A PG and, in erasure-coded pools, which shard of it. Ceph `spg_t`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpgId {
    /// The PG, of which this is a copy or a shard.
    pub pg: PgId,
    /// Index in the acting set, or [`SHARD_NONE`].
    pub shard: i8,
}

impl SpgId {
    /// The PG of a replicated pool.
    #[must_use]
    pub const fn replicated(pg: PgId) -> Self {
        Self { pg, shard: SHARD_NONE }
    }

    /// Pool, number and shard as one number in their order: every message is looked up by it, several times.
    #[inline]
    fn ordinal(&self) -> i128 {
        i128::from(self.pg.pool) << 64
            | i128::from(self.pg.seed) << 8
            | i128::from(self.shard.cast_unsigned() ^ 0x80)
    }
}

impl Ord for SpgId {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.ordinal().cmp(&other.ordinal())
    }
}

impl PartialOrd for SpgId {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for SpgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.pg, f)?;
        if self.shard == SHARD_NONE { Ok(()) } else { write!(f, "s{}", self.shard) }
    }
}

impl fmt::Debug for SpgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for SpgId {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.pg);
            w.put(&self.shard);
        });
    }
}

impl Decode for SpgId {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("spg_t", 1, |_, r| Ok(Self { pg: r.get()?, shard: r.get()? }))
    }
}
