//! What the settings `compression_*` of a pool may be.

use super::call::{Failure, fail};
use super::pool_app::limit;
use crate::state::State;
use nacre_maps::{Pool, PoolOption};
use nacre_types::{Compression, CompressionAlgorithm, CompressionMode, Errno};

/// Algorithms of Ceph that are none here.
const OTHER_ALGORITHMS: [&str; 4] = ["none", "zlib", "brotli", "random"];
/// Blocks of a store, of which blobs are made: sizes are multiples of it.
const BLOCK_BYTES: u32 = 4096;

/// What a pool gets for a setting with this key; `None` takes back what it has.
pub(super) fn compression_setting(
    pool: &Pool,
    (var, key): (&str, i32),
    text: &str,
) -> Result<Option<PoolOption>, Failure> {
    if matches!(var, "compression_min_blob_size" | "compression_max_blob_size") {
        return blob_size(pool, (var, key), text);
    }
    if text == "unset" {
        return Ok(None);
    }
    match var {
        "compression_mode" => match CompressionMode::named(text) {
            Some(mode) => Ok(Some(PoolOption::Text(mode.name().to_owned()))),
            None => fail(Errno::EINVAL, format!("unrecognized compression mode '{text}'")),
        },
        "compression_algorithm" => match CompressionAlgorithm::named(text) {
            Some(algorithm) => Ok(Some(PoolOption::Text(algorithm.name().to_owned()))),
            None if OTHER_ALGORITHMS.contains(&text) => {
                let known = CompressionAlgorithm::ALL.map(CompressionAlgorithm::name).join(", ");
                let end = if text == "none" { "; compression_mode none compresses nothing" } else { "" };
                let why = format!("{var} {text} is not supported: there are {known}{end}");
                fail(Errno::EOPNOTSUPP, why)
            }
            None => fail(Errno::EINVAL, format!("unrecognized {var} '{text}'")),
        },
        _ => match text.parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => {
                Ok(Some(PoolOption::Float(ratio)).filter(|_| ratio > 0.0))
            }
            _ => fail(Errno::EINVAL, format!("{var} is more than 0 and at most 1; 0 or unset takes it back")),
        },
    }
}

fn blob_size(pool: &Pool, (var, key): (&str, i32), text: &str) -> Result<Option<PoolOption>, Failure> {
    let least = if var == "compression_max_blob_size" { 2 * BLOCK_BYTES } else { BLOCK_BYTES };
    let most = Compression::BLOB_BYTES_MAX;
    let bytes = if text == "unset" { 0 } else { limit("max_bytes", text)? };
    let fits = u32::try_from(bytes)
        .is_ok_and(|bytes| (least..=most).contains(&bytes) && bytes.is_multiple_of(BLOCK_BYTES));
    if bytes > 0 && !fits {
        let why = format!("{var} is {least} to {most} bytes, a multiple of {BLOCK_BYTES}; 0 takes it back");
        return fail(Errno::EINVAL, why);
    }
    let value = (bytes > 0).then(|| PoolOption::Int(bytes.cast_signed()));
    let mut changed = pool.clone();
    // What is taken back may leave the other one without effect, too.
    match &value {
        Some(value) => drop(changed.options.insert(key, value.clone())),
        None => drop(changed.options.remove(&key)),
    }
    let Compression { blob_bytes_min, blob_bytes_max, .. } = changed.compression(Compression::default());
    if blob_bytes_min > blob_bytes_max {
        let why = format!(
            "nothing would be compressed: compression_min_blob_size would be {blob_bytes_min}, compression_max_blob_size {blob_bytes_max}"
        );
        return fail(Errno::EINVAL, why);
    }
    Ok(value)
}

/// Refuses what an OSD that is up would not follow.
pub(super) fn check_compressing(state: &mut State, var: &str, value: &PoolOption) -> Result<(), Failure> {
    let algorithm = match value {
        PoolOption::Text(text) if var == "compression_mode" && text == CompressionMode::None.name() => {
            return Ok(());
        }
        PoolOption::Text(text) => CompressionAlgorithm::named(text),
        PoolOption::Int(_) | PoolOption::Float(_) => None,
    };
    let Some(osd) = state.osd.not_compressing(algorithm) else { return Ok(()) };
    let how = algorithm.map(|algorithm| format!(" by {algorithm}")).unwrap_or_default();
    let why = format!(
        "{var} is not supported: osd.{osd} cannot compress{how}, since it is of another version or has everything in memory"
    );
    fail(Errno::EOPNOTSUPP, why)
}
