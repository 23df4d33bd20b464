//! [`Workload`]: what `ceph tell osd.N bench` writes, which part of it each shard, and what they have measured together.

use crate::command_reply::Failure;
use nacre_types::Errno;
use serde_json::{Value, json};
use std::time::Duration;

/// Most that one bench writes.
const BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a block.
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Most blocks of a bench.
const BLOCKS_MAX: u64 = 65_536;
const BYTES_DEFAULT: u64 = 64 << 20;
const BLOCK_BYTES_DEFAULT: u64 = 4 << 20;
/// Bytes under way at a time, of all shards; one block at least. Enough to keep a device busy, little enough that clients hardly wait behind
/// it.
pub(crate) const UNDER_WAY_BYTES_MAX: u64 = 8 << 20;
/// A store that has not taken it all by then is too slow for an answer.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(20);

/// What is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Workload {
    /// Bytes in all.
    pub(crate) count: u64,
    /// Bytes of each block but the last one.
    pub(crate) size: u64,
}

impl Workload {
    /// # Errors
    /// It is more than may be written, or what is not given makes it so.
    pub(crate) fn new(count: Option<u64>, size: Option<u64>) -> Result<Self, Failure> {
        let (count, size) = (count.unwrap_or(BYTES_DEFAULT), size.unwrap_or(BLOCK_BYTES_DEFAULT));
        if size == 0 || size > BLOCK_BYTES_MAX || count > BYTES_MAX || count / size > BLOCKS_MAX {
            let limits = format!(
                "count up to {BYTES_MAX} bytes, size from 1 to {BLOCK_BYTES_MAX} bytes, and at most {BLOCKS_MAX} blocks"
            );
            return Err((Errno::EINVAL, limits));
        }
        Ok(Self { count, size })
    }

    /// How many of so many shards write, so that together they have no more under way than they may: each has one block at least.
    pub(crate) fn writers(self, shards: usize) -> usize {
        let most = usize::try_from(UNDER_WAY_BYTES_MAX / self.size).unwrap_or(usize::MAX);
        shards.clamp(1, most.max(1))
    }

    /// What the `nth` of so many shards has to write.
    pub(crate) fn part(self, nth: usize, shards: usize) -> Self {
        let (nth, shards) = (nth as u64, self.writers(shards) as u64);
        let blocks = self.count.div_ceil(self.size);
        let from = |nth: u64| (blocks / shards * nth + nth.min(blocks % shards)) * self.size;
        Self { count: from(nth + 1).min(self.count) - from(nth).min(self.count), ..self }
    }
}

/// What shards have measured together.
pub(crate) fn together(parts: &[Value]) -> Value {
    let written = parts.iter().filter_map(|part| part["bytes_written"].as_u64()).sum();
    let size = parts.iter().find_map(|part| part["blocksize"].as_u64());
    let seconds = parts.iter().filter_map(|part| part["elapsed_sec"].as_f64()).fold(0.0, f64::max);
    result(written, size.unwrap_or_default(), seconds)
}

/// What a shard has measured.
pub(crate) fn result(written: u64, size: u64, seconds: f64) -> Value {
    let seconds = seconds.max(f64::EPSILON);
    json!({
        "bytes_written": written,
        "blocksize": size,
        "elapsed_sec": seconds,
        "bytes_per_sec": written as f64 / seconds,
        "iops": (written as f64 / size.max(1) as f64) / seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_write_all_of_it_together_in_whole_blocks() {
        let parts = |count, size, shards| -> Vec<u64> {
            let all = Workload::new(Some(count), Some(size)).expect("little");
            (0..shards).map(|nth| all.part(nth, shards).count).collect()
        };
        assert_eq!(parts(64, 4, 1), [64]);
        assert_eq!(parts(64, 4, 3), [24, 20, 20]);
        assert_eq!(parts(63, 4, 3), [24, 20, 19], "the last block is the short one");
        assert_eq!(parts(5, 4, 4), [4, 1, 0, 0]);
        assert_eq!(parts(0, 4, 2), [0, 0]);
        let large = UNDER_WAY_BYTES_MAX / 2;
        assert_eq!(parts(5 * large, large, 3), [3 * large, 2 * large, 0], "two blocks may be under way");
        assert_eq!(parts(3 * BLOCK_BYTES_MAX, BLOCK_BYTES_MAX, 2), [3 * BLOCK_BYTES_MAX, 0]);
    }

    #[test]
    fn what_is_measured_together_lasts_as_long_as_the_slowest() {
        let whole = together(&[result(24, 4, 2.0), result(20, 4, 4.0), result(0, 4, 0.0)]);
        assert_eq!(
            whole,
            json!({
                "bytes_written": 44, "blocksize": 4, "elapsed_sec": 4.0, "bytes_per_sec": 11.0, "iops": 2.75,
            })
        );
    }

    #[test]
    fn what_is_too_much_is_refused_with_the_limits() {
        for (count, size) in
            [(BYTES_MAX + 1, 4096), (4096, 0), (4096, BLOCK_BYTES_MAX + 1), (BYTES_MAX, 4096)]
        {
            let (errno, text) = Workload::new(Some(count), Some(size)).expect_err("too much");
            assert!(errno == Errno::EINVAL && text.contains("65536 blocks"), "{count} {size}: {text}");
        }
        let standard = Workload::new(None, None).expect("what is not given");
        assert_eq!(standard, Workload { count: BYTES_DEFAULT, size: BLOCK_BYTES_DEFAULT });
    }
}
