//! What the optional settings of a pool say of compression.

use crate::{Pool, PoolOption};
use nacre_types::{Compression, CompressionAlgorithm, CompressionMode};

/// Keys of the settings. Ceph `pool_opts_t::key_t` at v16.2.15.
mod key {
    pub(super) const MODE: i32 = 6;
    pub(super) const ALGORITHM: i32 = 7;
    pub(super) const REQUIRED_RATIO: i32 = 8;
    pub(super) const MAX_BLOB_SIZE: i32 = 9;
    pub(super) const MIN_BLOB_SIZE: i32 = 10;
}

impl Pool {
    /// How the data of the pool are to be compressed, where its own settings come before `otherwise`. A setting that nobody here could have
    /// made counts as none.
    #[must_use]
    pub fn compression(&self, otherwise: Compression) -> Compression {
        let text = |key| match self.options.get(&key)? {
            PoolOption::Text(text) => Some(text.as_str()),
            PoolOption::Int(_) | PoolOption::Float(_) => None,
        };
        let bytes = |key| match self.options.get(&key)? {
            PoolOption::Int(bytes) => u32::try_from(*bytes).ok().filter(|bytes| *bytes > 0),
            PoolOption::Text(_) | PoolOption::Float(_) => None,
        };
        let ratio = match self.options.get(&key::REQUIRED_RATIO) {
            Some(PoolOption::Float(ratio)) if *ratio > 0.0 => Some(ratio.min(1.0) * 1e6),
            _ => None,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "up to a million")]
        let required_ppm = ratio.map(|ppm| ppm.round() as u32);
        Compression {
            mode: text(key::MODE).and_then(CompressionMode::named).unwrap_or(otherwise.mode),
            algorithm: text(key::ALGORITHM)
                .and_then(CompressionAlgorithm::named)
                .unwrap_or(otherwise.algorithm),
            required_ppm: required_ppm.unwrap_or(otherwise.required_ppm),
            blob_bytes_min: bytes(key::MIN_BLOB_SIZE).unwrap_or(otherwise.blob_bytes_min),
            blob_bytes_max: bytes(key::MAX_BLOB_SIZE).unwrap_or(otherwise.blob_bytes_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(options: Vec<(i32, PoolOption)>) -> Pool {
        Pool { options: options.into_iter().collect(), ..Pool::default() }
    }

    #[test]
    fn what_a_pool_says_comes_before_what_its_osds_say() {
        let text = |text: &str| PoolOption::Text(text.to_owned());
        let own = pool(vec![
            (6, text("force")),
            (7, text("lz4")),
            (8, PoolOption::Float(0.5)),
            (9, PoolOption::Int(32768)),
            (10, PoolOption::Int(16384)),
        ]);
        let expected = Compression {
            mode: CompressionMode::Force,
            algorithm: CompressionAlgorithm::Lz4,
            required_ppm: 500_000,
            blob_bytes_min: 16384,
            blob_bytes_max: 32768,
        };
        assert_eq!(own.compression(Compression::default()), expected);
        assert_eq!(pool(vec![]).compression(expected), expected);
        let none = pool(vec![(6, text("none"))]).compression(expected);
        assert_eq!(none, Compression { mode: CompressionMode::None, ..expected });
    }

    #[test]
    fn what_is_no_setting_is_passed_over() {
        let text = |text: &str| PoolOption::Text(text.to_owned());
        let odd = pool(vec![
            (6, text("often")),
            (7, text("zlib")),
            (8, PoolOption::Float(-1.0)),
            (9, PoolOption::Int(-5)),
            (10, PoolOption::Int(0)),
        ]);
        assert_eq!(odd.compression(Compression::default()), Compression::default());
    }
}
