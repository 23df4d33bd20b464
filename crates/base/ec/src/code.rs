//! [`Code`]: how the objects of a pool are coded, as its erasure-code profile says.
//!
//! A profile holds text by keys, in the OSD map; its keys and their defaults are those of Ceph's plugins (v16.2.15:
//! `ErasureCodeJerasure.cc`, `ErasureCodePluginIsa.cc`, `OSDMonitor::normalize_profile`). One key is ours, [`PARITY_KEY`]: profiles that
//! have it give chunks the bytes of Ceph's plugins. Those without are of programs that did not know them (before format 6 of peers'
//! messages), whose pools go on with Nacre's own matrix for as long as they are there.

use crate::layout::Layout;
use std::collections::BTreeMap;

/// A profile's text by keys.
pub type Profile = BTreeMap<String, String>;

/// The key that says whose bytes parity has, and what it says.
pub const PARITY_KEY: &str = "nacre-parity";
/// Value of [`PARITY_KEY`]: those of the profile's plugin.
pub const PARITY_CEPH: &str = "ceph";

/// Bytes of one chunk of a stripe where the profile does not say (`osd_pool_erasure_code_stripe_unit`), unless the technique needs more.
pub const STRIPE_UNIT_BYTES: u32 = 4096;
/// Most shards of a code.
pub const SHARDS_MAX: usize = 64;
/// Longest stripe: changes of a part of it read and write it as a whole.
pub const STRIPE_BYTES_MAX: u32 = 16 << 20;
/// What a packet of `cauchy_good` has when the profile does not say.
const PACKET_BYTES: u32 = 2048;
/// Longest packet: parts in which objects are recovered hold whole elements of eight.
const PACKET_BYTES_MAX: u32 = 16 << 10;
/// Chunks are multiples of this with all techniques: of ISA's alignment, of four-byte words of eight bits each with jerasure.
const UNIT_ALIGNMENT: u32 = 32;
/// Most data shards of a profile.
const K_MAX: u8 = 32;

/// What makes parity of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Technique {
    /// A Cauchy matrix with ones in its first row, which no plugin of Ceph's has.
    Own,
    /// Plugin `jerasure`, technique `reed_sol_van`, with elements of eight bits.
    JerasureReedSolVan,
    /// Plugin `jerasure`, technique `cauchy_good`, with elements of eight bits spread over packets.
    JerasureCauchyGood {
        /// Bytes of a packet.
        packet_bytes: u32,
    },
    /// Plugin `isa`, technique `reed_sol_van`.
    IsaReedSolVan,
    /// Plugin `isa`, technique `cauchy`.
    IsaCauchy,
}

/// What is wrong with a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// A key that must say a number says something else.
    #[error("could not convert {key}={value} to int")]
    Number {
        /// Key of the profile.
        key: &'static str,
        /// What it says.
        value: String,
    },
    /// Too few shards.
    #[error("{key}={value} must be >= {least}")]
    TooSmall {
        /// `k` or `m`.
        key: &'static str,
        /// What it says.
        value: u32,
        /// The least of it.
        least: u32,
    },
    /// Too many shards.
    #[error("k={k} m={m} is not supported: at most {K_MAX} data shards, and {SHARDS_MAX} shards in all")]
    TooMany {
        /// So many data shards were to be.
        k: u32,
        /// So many parity shards were to be.
        m: u32,
    },
    /// Some `k` shards of such a code would not suffice.
    #[error(
        "plugin=isa technique=reed_sol_van with k={k} m={m} cannot recover from every loss of {m} shards: at most m=4, and \
         k=21 with m=4"
    )]
    NotEveryLoss {
        /// So many data shards were to be.
        k: u8,
        /// So many parity shards were to be.
        m: u8,
    },
    /// A plugin that is not built.
    #[error("erasure code plugin '{0}' is not supported, must be one of jerasure, isa")]
    Plugin(String),
    /// A technique that is not built.
    #[error("technique={technique} is not supported, plugin {plugin} has {known}")]
    Technique {
        /// Value of `plugin`.
        plugin: String,
        /// What it was to do.
        technique: String,
        /// What it can do.
        known: &'static str,
    },
    /// A value other than the only one that is built.
    #[error("{key}={value} is not supported, only {key}={only}")]
    Only {
        /// Key of the profile.
        key: &'static str,
        /// What it says.
        value: String,
        /// What it may say.
        only: &'static str,
    },
    /// Packets that are not built.
    #[error("packetsize={0} is not supported, only powers of two from 8 to {PACKET_BYTES_MAX}")]
    Packet(String),
    /// A stripe unit that is no number of bytes.
    #[error("could not parse stripe_unit '{0}'")]
    Unit(String),
    /// Chunks would not be whole.
    #[error("stripe_unit {unit} does not match ec profile alignment. Would be padded to {padded}")]
    Alignment {
        /// What the profile says.
        unit: u64,
        /// The next that would do.
        padded: u64,
    },
    /// Stripes that are too long.
    #[error("a stripe of {k} times {unit} bytes is longer than the longest, {STRIPE_BYTES_MAX}")]
    StripeTooLong {
        /// So many data shards were to be.
        k: u8,
        /// Bytes of each in a stripe.
        unit: u64,
    },
}

/// How objects are coded: which chunks there are, and how long they are in a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    technique: Technique,
    k: u8,
    m: u8,
    unit_bytes: u32,
}

impl Code {
    /// The code; `None` unless there are data and parity shards, no more than [`SHARDS_MAX`] of both, and chunks that it can make.
    #[must_use]
    pub fn new(technique: Technique, k: u8, m: u8, unit_bytes: u32) -> Option<Self> {
        let shards = k > 0 && m > 0 && usize::from(k) + usize::from(m) <= SHARDS_MAX;
        let recovers = technique != Technique::IsaReedSolVan || powers_suffice(k, m);
        let stripe = u32::from(k).checked_mul(unit_bytes).filter(|bytes| *bytes <= STRIPE_BYTES_MAX);
        let whole = unit_bytes > 0 && unit_bytes.is_multiple_of(alignment(technique));
        (shards && recovers && whole && stripe.is_some()).then_some(Self { technique, k, m, unit_bytes })
    }

    /// What a profile says, whoever's bytes it gives parity.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn of_profile(profile: &Profile) -> Result<Self, ProfileError> {
        let (k, m) = (shard_count(profile, "k", 2)?, shard_count(profile, "m", 1)?);
        let too_many = ProfileError::TooMany { k, m };
        let fits = |number: u32, most: usize| {
            u8::try_from(number).ok().filter(|number| usize::from(*number) <= most)
        };
        let (Some(k), Some(m)) = (fits(k, K_MAX.into()), fits(m, SHARDS_MAX)) else { return Err(too_many) };
        if usize::from(k) + usize::from(m) > SHARDS_MAX {
            return Err(too_many);
        }
        let technique = technique(profile)?;
        if technique == Technique::IsaReedSolVan && !powers_suffice(k, m) {
            return Err(ProfileError::NotEveryLoss { k, m });
        }
        let of_plugin = Self { technique, k, m, unit_bytes: stripe_unit(profile, technique, k)? };
        let of_older = Self { technique: Technique::Own, unit_bytes: STRIPE_UNIT_BYTES, ..of_plugin };
        Ok(if is_marked(profile) { of_plugin } else { of_older })
    }

    /// What makes parity.
    #[must_use]
    pub fn technique(&self) -> Technique {
        self.technique
    }

    /// Number of data shards.
    #[must_use]
    pub fn k(&self) -> u8 {
        self.k
    }

    /// Number of parity shards.
    #[must_use]
    pub fn m(&self) -> u8 {
        self.m
    }

    /// Number of all shards.
    #[must_use]
    pub fn size(&self) -> u8 {
        self.k + self.m
    }

    /// Bytes of data in a stripe.
    #[must_use]
    pub fn stripe_bytes(&self) -> u32 {
        u32::from(self.k) * self.unit_bytes
    }

    /// Which byte of an object is in which shard.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout { k: self.k, unit_bytes: self.unit_bytes }
    }
}

/// True for a profile whose parity has the bytes of Ceph's plugins.
#[must_use]
pub fn is_marked(profile: &Profile) -> bool {
    profile.get(PARITY_KEY).is_some_and(|value| value == PARITY_CEPH)
}

/// Whether powers of two make a code of which any `k` shards suffice, as far as Ceph's plugin has it so (`ErasureCodeIsaDefault::parse`).
fn powers_suffice(k: u8, m: u8) -> bool {
    k <= K_MAX && m <= if k <= 21 { 4 } else { 3 }
}

/// What chunks are a multiple of. Ceph rounds whole stripes of jerasure's up to `k` such units.
fn alignment(technique: Technique) -> u32 {
    match technique {
        // Eight packets of four-byte words.
        Technique::JerasureCauchyGood { packet_bytes } => packet_bytes * UNIT_ALIGNMENT,
        _ => UNIT_ALIGNMENT,
    }
}

fn shard_count(profile: &Profile, key: &'static str, least: u32) -> Result<u32, ProfileError> {
    let text = profile.get(key).map_or("", String::as_str);
    let value: u32 = text.parse().map_err(|_| ProfileError::Number { key, value: text.to_owned() })?;
    if value < least { Err(ProfileError::TooSmall { key, value, least }) } else { Ok(value) }
}

fn technique(profile: &Profile) -> Result<Technique, ProfileError> {
    let value = |key: &str, usual| profile.get(key).map_or(usual, String::as_str);
    let only = [("w", "8"), ("jerasure-per-chunk-alignment", "false"), (PARITY_KEY, PARITY_CEPH)];
    for (key, only) in only {
        if let Some(value) = profile.get(key).filter(|value| *value != only) {
            return Err(ProfileError::Only { key, value: value.clone(), only });
        }
    }
    let plugin = value("plugin", "jerasure");
    let known = match plugin {
        "jerasure" => "reed_sol_van and cauchy_good",
        "isa" => "reed_sol_van and cauchy",
        _ => return Err(ProfileError::Plugin(plugin.to_owned())),
    };
    match (plugin, value("technique", "reed_sol_van")) {
        ("jerasure", "reed_sol_van") => Ok(Technique::JerasureReedSolVan),
        ("jerasure", "cauchy_good") => Ok(Technique::JerasureCauchyGood { packet_bytes: packet(profile)? }),
        ("isa", "reed_sol_van") => Ok(Technique::IsaReedSolVan),
        ("isa", "cauchy") => Ok(Technique::IsaCauchy),
        (plugin, technique) => {
            Err(ProfileError::Technique { plugin: plugin.to_owned(), technique: technique.to_owned(), known })
        }
    }
}

fn packet(profile: &Profile) -> Result<u32, ProfileError> {
    let Some(text) = profile.get("packetsize") else { return Ok(PACKET_BYTES) };
    let fits = |bytes: &u32| bytes.is_power_of_two() && (8..=PACKET_BYTES_MAX).contains(bytes);
    text.parse().ok().filter(fits).ok_or_else(|| ProfileError::Packet(text.clone()))
}

fn stripe_unit(profile: &Profile, technique: Technique, k: u8) -> Result<u32, ProfileError> {
    let alignment = u64::from(alignment(technique));
    let unit = match profile.get("stripe_unit") {
        None => u64::from(STRIPE_UNIT_BYTES).next_multiple_of(alignment),
        Some(text) => bytes(text).ok_or_else(|| ProfileError::Unit(text.clone()))?,
    };
    let too_long = ProfileError::StripeTooLong { k, unit };
    let unit_bytes = u32::try_from(unit).ok().filter(|unit| *unit <= STRIPE_BYTES_MAX / u32::from(k));
    let unit_bytes = unit_bytes.ok_or(too_long)?;
    if unit_bytes == 0 || !unit.is_multiple_of(alignment) {
        return Err(ProfileError::Alignment { unit, padded: unit.max(1).next_multiple_of(alignment) });
    }
    Ok(unit_bytes)
}

/// A number of bytes with Ceph's binary units (`strict_iecstrtoll`): `4096`, `4096B`, `4K`, `4Ki`.
fn bytes(text: &str) -> Option<u64> {
    let units = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - units.len()].parse().ok()?;
    let shift = match units {
        "" | "B" => 0,
        "K" | "Ki" => 10,
        "M" | "Mi" => 20,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(text: &str) -> Profile {
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn code(text: &str) -> Result<Code, ProfileError> {
        Code::of_profile(&profile(&format!("nacre-parity=ceph {text}")))
    }

    #[test]
    fn a_profile_says_how_objects_are_coded() {
        let found = |text: &str| {
            let code = code(text).expect(text);
            (code.technique(), code.k(), code.m(), code.stripe_bytes())
        };
        assert_eq!(found("k=2 m=1"), (Technique::JerasureReedSolVan, 2, 1, 8192));
        assert_eq!(found("k=4 m=2 plugin=isa stripe_unit=16K"), (Technique::IsaReedSolVan, 4, 2, 65536));
        assert_eq!(found("k=4 m=2 plugin=isa technique=cauchy"), (Technique::IsaCauchy, 4, 2, 16384));
        let packets = |packet_bytes| Technique::JerasureCauchyGood { packet_bytes };
        assert_eq!(found("k=4 m=2 technique=cauchy_good"), (packets(2048), 4, 2, 4 * 65536));
        assert_eq!(found("k=4 m=2 technique=cauchy_good packetsize=128"), (packets(128), 4, 2, 16384));
        assert_eq!(found("k=21 m=4 plugin=isa").1, 21);
        assert_eq!(found("k=32 m=3 plugin=isa").1, 32);
    }

    #[test]
    fn a_profile_without_the_key_has_the_matrix_of_older_programs() {
        for text in ["k=2 m=2", "k=2 m=2 plugin=isa technique=reed_sol_van w=8"] {
            let code = Code::of_profile(&profile(text)).expect(text);
            assert_eq!((code.technique(), code.stripe_bytes()), (Technique::Own, 8192));
            assert!(!is_marked(&profile(text)));
        }
    }

    #[test]
    fn what_is_not_built_is_refused_and_why() {
        for (text, why) in [
            ("k=1 m=1", "k=1 must be >= 2"),
            ("k=2 m=0", "m=0 must be >= 1"),
            ("k=x m=1", "could not convert k=x to int"),
            ("k=33 m=2", "at most 32 data shards"),
            ("k=32 m=33", "64 shards in all"),
            ("k=300 m=400", "64 shards in all"),
            ("k=2 m=1 plugin=lrc", "plugin 'lrc' is not supported"),
            ("k=2 m=2 technique=liberation", "plugin jerasure has reed_sol_van and cauchy_good"),
            ("k=2 m=2 technique=cauchy", "plugin jerasure has reed_sol_van and cauchy_good"),
            ("k=2 m=2 plugin=isa technique=cauchy_good", "plugin isa has reed_sol_van and cauchy"),
            ("k=2 m=2 w=16", "only w=8"),
            ("k=2 m=2 jerasure-per-chunk-alignment=true", "only jerasure-per-chunk-alignment=false"),
            ("k=2 m=2 nacre-parity=mine", "only nacre-parity=ceph"),
            ("k=22 m=4 plugin=isa", "cannot recover from every loss of 4 shards"),
            ("k=2 m=5 plugin=isa", "cannot recover from every loss of 5 shards"),
            ("k=2 m=2 stripe_unit=4Z", "could not parse stripe_unit '4Z'"),
            ("k=2 m=2 stripe_unit=100", "Would be padded to 128"),
            ("k=2 m=2 stripe_unit=0", "Would be padded to 32"),
            ("k=2 m=2 stripe_unit=16M", "longer than the longest"),
            ("k=2 m=2 stripe_unit=4K technique=cauchy_good", "Would be padded to 65536"),
            ("k=2 m=2 packetsize=3000 technique=cauchy_good", "only powers of two"),
        ] {
            let error = code(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let layout_of = |k, m, unit| Code::new(Technique::Own, k, m, unit);
        assert_eq!(layout_of(2, 1, 4096).map(|code| code.size()), Some(3));
        for (k, m, unit) in
            [(0, 1, 4096), (2, 0, 4096), (60, 5, 4096), (255, 255, 4096), (2, 1, 0), (2, 1, 33)]
        {
            assert_eq!(layout_of(k, m, unit), None, "{k}+{m} of {unit}");
        }
        assert_eq!(Code::new(Technique::IsaReedSolVan, 22, 4, 4096), None);
    }
}
