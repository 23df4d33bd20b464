//! [`Compat`]: named on-disk features of metadata servers and file systems.
//!
//! Source: Ceph `src/include/CompatSet.h`, `src/mds/MDSMap.cc`, v16.2.15.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// On-disk features by number and name. Ceph `CompatSet`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compat {
    /// Others may read and write without knowing these.
    pub compat: BTreeMap<u64, String>,
    /// Others may only read.
    pub ro_compat: BTreeMap<u64, String>,
    /// Others may not touch.
    pub incompat: BTreeMap<u64, String>,
}

/// Incompatible on-disk features of a 16.2 metadata server, from number 1 on.
const INCOMPAT_FEATURES: [&str; 10] = [
    "base v0.20",
    "client writeable ranges",
    "default file layouts on dirs",
    "dir inode in separate object",
    "mds uses versioned encoding",
    "dirfrag is stored in omap",
    "mds uses inline data",
    "no anchor table",
    "file layout v2",
    "snaprealm v2",
];
/// Number of "mds uses inline data".
const INLINE_DATA: u64 = 7;

impl Compat {
    /// What a new file system starts with: all but inline data.
    #[must_use]
    pub fn fresh() -> Self {
        let mut compat = Self::pacific();
        compat.incompat.remove(&INLINE_DATA);
        compat
    }

    /// What a 16.2 metadata server supports.
    #[must_use]
    pub fn pacific() -> Self {
        let incompat = (1..).zip(INCOMPAT_FEATURES.map(String::from)).collect();
        Self { incompat, ..Self::default() }
    }

    /// These features and inline data, which every server since release 14 knows and Ceph adds where it reads a file system's.
    #[must_use]
    pub fn with_inline_data(&self) -> Self {
        let mut compat = self.clone();
        compat.incompat.extend(Self::pacific().incompat.remove_entry(&INLINE_DATA));
        compat
    }

    /// Whether nothing is named at all, as servers of before 16.2.5 say it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many features are named.
    #[must_use]
    pub fn count(&self) -> usize {
        self.compat.len() + self.ro_compat.len() + self.incompat.len()
    }

    /// Whether a server that knows `self` may write what needs `other`.
    #[must_use]
    pub fn can_write(&self, other: &Self) -> bool {
        let knows = |own: &BTreeMap<u64, String>, needed: &BTreeMap<u64, String>| {
            needed.keys().all(|feature| own.contains_key(feature))
        };
        knows(&self.incompat, &other.incompat) && knows(&self.ro_compat, &other.ro_compat)
    }

    /// Takes over the features of `other`.
    pub fn merge(&mut self, other: &Self) {
        let add = |own: &mut BTreeMap<u64, String>, new: &BTreeMap<u64, String>| {
            for (feature, name) in new {
                own.entry(*feature).or_insert_with(|| name.clone());
            }
        };
        add(&mut self.compat, &other.compat);
        add(&mut self.ro_compat, &other.ro_compat);
        add(&mut self.incompat, &other.incompat);
    }
}

/// Features by number, preceded by a mask of those below 64; bit 0 says "the names follow" and is left out.
fn put_features(w: &mut Writer, features: &BTreeMap<u64, String>) {
    let mask = features.keys().filter(|id| (1..64).contains(*id)).fold(0, |mask, id| mask | 1_u64 << id);
    w.u64(mask);
    w.put(features);
}

fn features(r: &mut Reader) -> Result<BTreeMap<u64, String>, DecodeError> {
    r.skip(8)?;
    r.get()
}

impl Encode for Compat {
    fn encode(&self, w: &mut Writer) {
        put_features(w, &self.compat);
        put_features(w, &self.ro_compat);
        put_features(w, &self.incompat);
    }
}

impl Decode for Compat {
    const MIN_BYTES: usize = 36;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { compat: features(r)?, ro_compat: features(r)?, incompat: features(r)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_writes_what_it_knows_all_features_of() {
        let (fresh, pacific) = (Compat::fresh(), Compat::pacific());
        assert!(pacific.can_write(&fresh) && !fresh.can_write(&pacific));
        let mut merged = fresh;
        merged.merge(&pacific);
        assert_eq!(merged, pacific);
        let newer = Compat { ro_compat: BTreeMap::from([(3, "x".to_owned())]), ..Compat::default() };
        assert!(!pacific.can_write(&newer) && newer.can_write(&Compat::default()));
        assert!(Compat::default().is_empty() && !newer.is_empty());
    }
}
