//! How the data of a pool are to be compressed: settings of pools and options of OSDs, by the names that Ceph gives them
//! (`src/compressor/Compressor.h` at v16.2.15).

use std::fmt;

/// When data are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompressionMode {
    /// No data are, whatever clients said.
    #[default]
    None,
    /// What a client called compressible.
    Passive,
    /// What no client called incompressible.
    Aggressive,
    /// All data are.
    Force,
}

/// By what data are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompressionAlgorithm {
    /// Zstandard, a frame of level 1.
    Zstd,
    /// LZ4, blocks without frames.
    Lz4,
    /// Snappy, raw: without a frame.
    Snappy,
}

/// What clients said of an object's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompressionHint {
    /// They said nothing.
    #[default]
    None,
    /// They are worth compressing.
    Compressible,
    /// They are not.
    Incompressible,
    /// Both of it, or one client this and another one that.
    Both,
}

/// All of it for one pool, of sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// When data are compressed.
    pub mode: CompressionMode,
    /// By what they are.
    pub algorithm: CompressionAlgorithm,
    /// Parts in a million of their size that data may have at most when compressed; otherwise they are stored as they are.
    pub required_ppm: u32,
    /// Less is never compressed.
    pub blob_bytes_min: u32,
    /// More is compressed in pieces of this size.
    pub blob_bytes_max: u32,
}

impl CompressionMode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Passive, Self::Aggressive, Self::Force];

    /// Its name in commands and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Passive => "passive",
            Self::Aggressive => "aggressive",
            Self::Force => "force",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether data of which this was said are compressed.
    #[must_use]
    pub const fn wants(self, hint: CompressionHint) -> bool {
        match self {
            Self::None => false,
            Self::Passive => matches!(hint, CompressionHint::Compressible | CompressionHint::Both),
            Self::Aggressive => !matches!(hint, CompressionHint::Incompressible | CompressionHint::Both),
            Self::Force => true,
        }
    }
}

impl CompressionAlgorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Lz4, Self::Snappy];

    /// Its name in commands and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

impl fmt::Display for CompressionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for CompressionAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Compression {
    /// What an OSD's metadata call the names of the algorithms by which it can compress, with spaces between.
    pub const METADATA_KEY: &'static str = "nacre_compression";

    /// Blobs have no more, whatever the settings say.
    pub const BLOB_BYTES_MAX: u32 = 128 << 10;

    /// Bytes that data of `bytes` may have at most when compressed.
    #[must_use]
    pub const fn required_bytes(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.required_ppm as u64) / 1_000_000
    }
}

/// As OSDs of Ceph on flash, but for the least size, which is 64 KiB there.
impl Default for Compression {
    fn default() -> Self {
        Self {
            mode: CompressionMode::None,
            algorithm: CompressionAlgorithm::Snappy,
            required_ppm: 875_000,
            blob_bytes_min: 8 << 10,
            blob_bytes_max: 64 << 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_follow_the_hints_of_clients() {
        use CompressionHint::{Both, Compressible, Incompressible, None};
        let wanted = CompressionMode::ALL
            .map(|mode| [None, Compressible, Incompressible, Both].map(|hint| mode.wants(hint)));
        let (no, yes) = (false, true);
        // Each mode looks at one hint only, as `BlueStore::_choose_write_options` does.
        assert_eq!(wanted, [[no; 4], [no, yes, no, yes], [yes, yes, no, no], [yes; 4]]);
    }

    #[test]
    fn names_are_read_back_and_others_are_unknown() {
        for mode in CompressionMode::ALL {
            assert_eq!(CompressionMode::named(&mode.to_string()), Some(mode));
        }
        for algorithm in CompressionAlgorithm::ALL {
            assert_eq!(CompressionAlgorithm::named(&algorithm.to_string()), Some(algorithm));
        }
        assert_eq!(CompressionAlgorithm::named("zlib"), None);
        assert_eq!(CompressionMode::named("Force"), None);
    }

    #[test]
    fn seven_eighths_are_required_where_nothing_is_said() {
        assert_eq!(Compression::default().required_bytes(64 << 10), 56 << 10);
        assert_eq!(
            Compression { required_ppm: u32::MAX, ..Compression::default() }.required_bytes(u64::MAX),
            u64::MAX / 1_000_000
        );
    }
}
