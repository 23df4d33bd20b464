//! [`PoolCompression`]: the store hears how the data of each pool are to be compressed, as maps change.

use crate::pg_driver::PgDriver;
use nacre_maps::OsdMap;
use nacre_pg::object::compression_hint;
use nacre_types::{Compression, CompressionMode, PoolId};
use std::collections::BTreeMap;

/// What the store was told.
#[derive(Debug, Default)]
pub(crate) struct PoolCompression {
    /// Of pools that say nothing of their own.
    otherwise: Compression,
    /// Pools whose data are compressed.
    told: BTreeMap<PoolId, Compression>,
}

impl PoolCompression {
    /// What the store has to be told now: pools whose data are to be compressed otherwise than it was told, or no more.
    fn changes(&mut self, map: &OsdMap) -> Vec<(PoolId, Compression)> {
        let wanted = map.pools.iter().map(|(id, pool)| (*id, pool.compression(self.otherwise)));
        let wanted: BTreeMap<_, _> = wanted.filter(|(_, how)| how.mode != CompressionMode::None).collect();
        let ended = self.told.keys().filter(|id| !wanted.contains_key(id));
        let ended = ended.map(|id| (*id, Compression { mode: CompressionMode::None, ..self.otherwise }));
        let changed = wanted.iter().filter(|(id, how)| self.told.get(id) != Some(how));
        let changes = ended.chain(changed.map(|(id, how)| (*id, *how))).collect();
        self.told = wanted;
        changes
    }
}

impl PgDriver {
    /// What is written from now on is stored as the present map says.
    pub(crate) fn follow_pools(&mut self) {
        let map = self.pgs.map();
        for (pool, compression) in self.compression.changes(map) {
            self.store.set_compression(pool, compression, compression_hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_maps::{Pool, PoolOption};
    use nacre_types::CompressionAlgorithm;

    /// Pools with these modes.
    fn map(pools: &[(PoolId, &str)]) -> OsdMap {
        let pool = |mode: &str| Pool {
            options: BTreeMap::from([(6, PoolOption::Text(mode.to_owned()))]),
            ..Pool::default()
        };
        OsdMap { pools: pools.iter().map(|(id, mode)| (*id, pool(mode))).collect(), ..OsdMap::default() }
    }

    fn changes(told: &mut PoolCompression, pools: &[(PoolId, &str)]) -> Vec<(PoolId, CompressionMode)> {
        told.changes(&map(pools)).into_iter().map(|(id, how)| (id, how.mode)).collect()
    }

    #[test]
    fn a_store_hears_of_what_has_changed() {
        use CompressionMode::{Aggressive, Force, None};
        let mut told = PoolCompression::default();
        assert_eq!(changes(&mut told, &[(1, "none"), (2, "force")]), [(2, Force)]);
        assert_eq!(changes(&mut told, &[(1, "none"), (2, "force")]), []);
        assert_eq!(
            changes(&mut told, &[(1, "force"), (2, "aggressive"), (3, "force")]),
            [(1, Force), (2, Aggressive), (3, Force)]
        );
        assert_eq!(changes(&mut told, &[(1, "none"), (2, "aggressive")]), [(1, None), (3, None)]);
        let mut other = map(&[(2, "aggressive")]);
        let lz4 = PoolOption::Text("lz4".to_owned());
        other.pools.get_mut(&2).expect("it is there").options.insert(7, lz4);
        let algorithms: Vec<_> = told.changes(&other).iter().map(|(id, how)| (*id, how.algorithm)).collect();
        assert_eq!(algorithms, [(2, CompressionAlgorithm::Lz4)]);
    }
}
