//! Objects: their full names and where a client says they belong.

use crate::hash::object_hash;
use crate::{PgId, PoolId, SnapId};
use nacre_buf::ByteStr;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::cmp::Ordering;
use std::fmt;

/// Full name of an object (or one of its clones). Ceph `hobject_t`.
///
/// Ordered as PGs list: by bit-reversed hash, then namespace, key or name, name, snapshot; so the objects
/// of a PG, and after a split those of each half, are one contiguous run.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HObject {
    /// Name within the namespace.
    pub name: ByteStr,
    /// Locator key, empty where the name itself places the object.
    pub key: ByteStr,
    /// Namespace within the pool.
    pub namespace: ByteStr,
    /// [`SnapId::HEAD`], or a clone's id.
    pub snap: SnapId,
    /// Hash of namespace and key or name.
    pub hash: u32,
    /// Greater than every object; a listing's end.
    pub max: bool,
    /// The pool; `i64::MIN` in a default-constructed cursor.
    pub pool: PoolId,
}

impl HObject {
    /// Less than every object: the cursor at which a listing begins.
    pub const MIN: Self = Self {
        name: ByteStr::EMPTY,
        key: ByteStr::EMPTY,
        namespace: ByteStr::EMPTY,
        snap: SnapId(0),
        hash: 0,
        max: false,
        pool: i64::MIN,
    };

    /// Greater than every object.
    #[must_use]
    pub fn max_value() -> Self {
        Self { max: true, ..Self::MIN }
    }

    /// The writable object of this name in `pool`.
    #[must_use]
    pub fn head(pool: PoolId, namespace: ByteStr, key: ByteStr, name: ByteStr) -> Self {
        let hash = object_hash(&namespace, if key.is_empty() { &name } else { &key });
        // A key equal to the name says nothing; hobject_t drops it too, so that both spellings are one object.
        let key = if key == name { ByteStr::EMPTY } else { key };
        Self { name, key, namespace, snap: SnapId::HEAD, hash, max: false, pool }
    }

    /// The same object at `snap`.
    #[must_use]
    pub fn with_snap(&self, snap: SnapId) -> Self {
        Self { snap, ..self.clone() }
    }

    /// The head of this object or clone.
    #[must_use]
    pub fn to_head(&self) -> Self {
        self.with_snap(SnapId::HEAD)
    }

    /// What orders objects first: the hash with its bits reversed.
    #[must_use]
    pub fn bitwise_key(&self) -> u32 {
        self.hash.reverse_bits()
    }

    /// The PG that holds this object while its pool has `pg_num` PGs.
    #[must_use]
    pub fn pg(&self, pg_num: u32) -> PgId {
        PgId::new(self.pool, crate::hash::stable_mod(self.hash, pg_num))
    }

    /// A copy whose strings own exactly their bytes, for holders that outlive the request.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            name: self.name.detached(),
            key: self.key.detached(),
            namespace: self.namespace.detached(),
            ..*self
        }
    }

    /// By name, where the key does not say it already.
    fn cmp_placed_names(&self, other: &Self) -> Ordering {
        if self.key.is_empty() && other.key.is_empty() { Ordering::Equal } else { self.name.cmp(&other.name) }
    }

    fn effective_key(&self) -> &ByteStr {
        if self.key.is_empty() { &self.name } else { &self.key }
    }
}

impl Ord for HObject {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.hash == other.hash && self == other {
            // What is looked for in a map mostly is there, and this is found out sooner.
            return Ordering::Equal;
        }
        self.max
            .cmp(&other.max)
            .then_with(|| self.pool.cmp(&other.pool))
            .then_with(|| self.bitwise_key().cmp(&other.bitwise_key()))
            .then_with(|| self.namespace.cmp(&other.namespace))
            .then_with(|| self.effective_key().cmp(other.effective_key()))
            .then_with(|| self.cmp_placed_names(other))
            .then_with(|| self.snap.cmp(&other.snap))
    }
}

impl PartialOrd for HObject {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As Ceph logs objects: `pool:hash:namespace:key:name:snap`, the hash bit-reversed.
impl fmt::Display for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        if *self == Self::MIN {
            return f.write_str("MIN");
        }
        write!(
            f,
            "{}:{:08x}:{}:{}:{}:{:?}",
            self.pool,
            self.bitwise_key(),
            self.namespace,
            self.key,
            self.name,
            self.snap
        )
    }
}

impl fmt::Debug for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for HObject {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 3, |w| {
            w.put(&self.key);
            w.put(&self.name);
            w.put(&self.snap);
            w.u32(self.hash);
            w.bool(self.max);
            w.put(&self.namespace);
            w.i64(self.pool);
        });
    }
}

impl Decode for HObject {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("hobject_t", 4, |_, r| {
            Ok(Self {
                key: r.get()?,
                name: r.get()?,
                snap: r.get()?,
                hash: r.u32()?,
                max: r.bool()?,
                namespace: r.get()?,
                pool: r.i64()?,
            })
        })
    }
}

/// Where a client says an object belongs. Ceph `object_locator_t`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectLocator {
    /// Id of the pool.
    pub pool: PoolId,
    /// Places the object instead of its name, when not empty.
    pub key: ByteStr,
    /// Namespace within the pool.
    pub namespace: ByteStr,
    /// A hash given outright (PG listings), or -1.
    pub hash: i64,
}

impl ObjectLocator {
    /// A place in `pool`, without key or namespace.
    #[must_use]
    pub fn in_pool(pool: PoolId) -> Self {
        Self { pool, key: ByteStr::EMPTY, namespace: ByteStr::EMPTY, hash: -1 }
    }
}

impl Encode for ObjectLocator {
    fn encode(&self, w: &mut Writer) {
        // A reader that does not know of hashes would look at the wrong place.
        let compat = if self.hash == -1 { 3 } else { 6 };
        w.envelope(6, compat, |w| {
            w.i64(self.pool);
            w.i32(-1); // "preferred OSD"
            w.put(&self.key);
            w.put(&self.namespace);
            w.i64(self.hash);
        });
    }
}

impl Decode for ObjectLocator {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("object_locator_t", 6, |version, r| {
            let pool = r.i64()?;
            r.skip(4)?;
            let key = r.get()?;
            let namespace = if version >= 5 { r.get()? } else { ByteStr::EMPTY };
            let hash = if version >= 6 { r.i64()? } else { -1 };
            Ok(Self { pool, key, namespace, hash })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> HObject {
        HObject::head(1, ByteStr::EMPTY, ByteStr::EMPTY, name.into())
    }

    #[test]
    fn order_is_by_reversed_hash_and_ends_with_max() {
        let mut all: Vec<HObject> = (0..100).map(|n| object(&format!("o{n}"))).collect();
        all.sort();
        assert!(all.windows(2).all(|pair| pair[0].bitwise_key() <= pair[1].bitwise_key()));
        assert!(HObject::MIN < all[0] && all[99] < HObject::max_value());
        assert!(object("a").with_snap(SnapId(4)) < object("a"));
    }

    #[test]
    fn encodings_round_trip() {
        for object in [HObject::MIN, HObject::max_value(), object("x")] {
            assert_eq!(HObject::from_bytes(object.to_bytes()), Ok(object));
        }
        let locator = ObjectLocator { key: "k".into(), ..ObjectLocator::in_pool(7) };
        assert_eq!(ObjectLocator::from_bytes(locator.to_bytes()), Ok(locator));
    }

    #[test]
    fn a_key_equal_to_the_name_is_no_key() {
        assert_eq!(HObject::head(1, "".into(), "x".into(), "x".into()), object("x"));
    }
}
