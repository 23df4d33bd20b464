//! [`PoolCompression`]: the store hears how the data of each pool are to be compressed, as maps and options change.

use nacre_maps::OsdMap;
use nacre_options::Values;
use nacre_types::{Compression, CompressionAlgorithm, CompressionMode, PoolId};
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
    /// Takes over what options say of pools that say nothing of their own.
    pub(crate) fn follow_options(&mut self, options: &Values) {
        let own = Compression::default();
        let bytes = |bytes, otherwise| match bytes {
            0 => otherwise,
            bytes => u32::try_from(bytes).unwrap_or(u32::MAX).min(Compression::BLOB_BYTES_MAX),
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "up to a million, by its bounds"
        )]
        let required_ppm = (options.number("bluestore_compression_required_ratio") * 1e6).round() as u32;
        let algorithm = CompressionAlgorithm::named(options.text("bluestore_compression_algorithm"));
        let max =
            bytes(options.count("bluestore_compression_max_blob_size"), own.blob_bytes_max).max(8 << 10);
        let min = bytes(options.count("bluestore_compression_min_blob_size"), own.blob_bytes_min);
        self.otherwise = Compression {
            mode: CompressionMode::named(options.text("bluestore_compression_mode")).unwrap_or(own.mode),
            algorithm: algorithm.unwrap_or(own.algorithm),
            required_ppm,
            // Nothing would be compressed else.
            blob_bytes_min: min.min(max),
            blob_bytes_max: max,
        };
    }

    /// What the store has to be told now: pools whose data are to be compressed otherwise than it was told, or no more.
    pub(crate) fn changes(&mut self, map: &OsdMap) -> Vec<(PoolId, Compression)> {
        let wanted = map.pools.iter().map(|(id, pool)| (*id, pool.compression(self.otherwise)));
        let wanted: BTreeMap<_, _> = wanted.filter(|(_, how)| how.mode != CompressionMode::None).collect();
        let ended = self.told.keys().filter(|id| !wanted.contains_key(*id));
        let ended = ended.map(|id| (*id, Compression { mode: CompressionMode::None, ..self.otherwise }));
        let changed = wanted.iter().filter(|(id, how)| self.told.get(*id) != Some(*how));
        let changes = ended.chain(changed.map(|(id, how)| (*id, *how))).collect();
        self.told = wanted;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_maps::{Pool, PoolOption};

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
    fn options_hold_for_pools_that_say_nothing() {
        let mut told = PoolCompression::default();
        let none = OsdMap { pools: BTreeMap::from([(1, Pool::default())]), ..OsdMap::default() };
        told.follow_options(&Values::default());
        assert_eq!((told.otherwise, told.changes(&none)), (Compression::default(), vec![]));
        let set = [
            ("bluestore_compression_mode", "aggressive"),
            ("bluestore_compression_algorithm", "zstd"),
            ("bluestore_compression_required_ratio", "0.5"),
            ("bluestore_compression_min_blob_size", "16384"),
            ("bluestore_compression_max_blob_size", "32768"),
        ];
        told.follow_options(&set.into_iter().collect());
        let expected = Compression {
            mode: CompressionMode::Aggressive,
            algorithm: CompressionAlgorithm::Zstd,
            required_ppm: 500_000,
            blob_bytes_min: 16_384,
            blob_bytes_max: 32_768,
        };
        assert_eq!(told.changes(&none), [(1, expected)]);
        assert_eq!(changes(&mut told, &[(1, "none")]), [(1, CompressionMode::None)]);
        assert_eq!(told.changes(&none), [(1, expected)]);
        told.follow_options(&Values::default());
        assert_eq!(told.changes(&none), [(1, Compression::default())]);
    }

    #[test]
    fn the_smallest_blob_is_no_larger_than_the_largest() {
        let mut told = PoolCompression::default();
        told.follow_options(&[("bluestore_compression_min_blob_size", "131072")].into_iter().collect());
        let Compression { blob_bytes_min, blob_bytes_max, .. } = told.otherwise;
        assert_eq!((blob_bytes_min, blob_bytes_max), (65_536, 65_536));
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
