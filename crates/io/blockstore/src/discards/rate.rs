//! [`DiscardRate`]: how much is discarded at a time and how soon again, by how long the device takes for it.
//!
//! A good device does it in well below a millisecond; a cheap one lets everything else wait meanwhile, for tenths of a second. What it is
//! shows as it works: batches begin small and grow while they are quick. Where clients are about, discards take 2 % of the time at most,
//! once in a second; a quiet device gets one batch after the other up to a limit per second, and rests if it is slow at them.

use nacre_types::Stamp;
use std::time::Duration;

/// Batches of this level are as large as there may be, of one below it half as large.
const LEVEL_MAX: u32 = 4;
/// A batch that takes less may be larger the next time; one that takes more is smaller.
const QUICK: Duration = Duration::from_millis(5);
const SLOW: Duration = Duration::from_millis(20);
/// Rests, as multiples of what a batch took.
const RESTS_BESIDE_CLIENTS: u32 = 49;
const RESTS_IF_SLOW: u32 = 9;
const REST_BESIDE_CLIENTS_MIN: Duration = Duration::from_secs(1);
/// What is begun in a second at most.
const BYTES_PER_SECOND: u64 = 256 << 20;
const REQUESTS_PER_SECOND: u64 = 256;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct DiscardRate {
    level: u32,
    next_at: Stamp,
    /// The second under way began then, and so much was begun in it.
    second: Stamp,
    bytes: u64,
    requests: u64,
}

impl DiscardRate {
    /// Requests and bytes of the next batch, where there are so many at most.
    pub(crate) fn batch(&self, requests: usize, bytes: u64) -> (usize, u64) {
        let halvings = LEVEL_MAX - self.level;
        ((requests >> halvings).max(1), bytes >> halvings)
    }

    /// Whether the next batch may begin; `is_quiet` when nobody else has used the device for a while.
    pub(crate) fn may_begin(&mut self, now: Stamp, is_quiet: bool) -> bool {
        if now.since(self.second) >= Duration::from_secs(1) {
            (self.second, self.bytes, self.requests) = (now, 0, 0);
        }
        let is_within = self.bytes < BYTES_PER_SECOND && self.requests < REQUESTS_PER_SECOND;
        let is_first = self.requests == 0;
        now >= self.next_at && is_within && (is_quiet || is_first)
    }

    /// A batch is begun.
    pub(crate) fn begun(&mut self, requests: u64, bytes: u64) {
        self.requests += requests;
        self.bytes += bytes;
    }

    /// A batch has ended.
    pub(crate) fn ended(&mut self, now: Stamp, took: Duration, is_quiet: bool) {
        if took > SLOW {
            self.level = self.level.saturating_sub(1);
        } else if took < QUICK {
            self.level = (self.level + 1).min(LEVEL_MAX);
        }
        let rest = match (is_quiet, took > SLOW) {
            (false, _) => (took * RESTS_BESIDE_CLIENTS).max(REST_BESIDE_CLIENTS_MIN),
            (true, true) => took * RESTS_IF_SLOW,
            (true, false) => Duration::ZERO,
        };
        self.next_at = now + rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: usize = 16;
    const BYTES: u64 = 32 << 20;

    /// Ten seconds of a device that takes `took` for each batch: bytes begun, the part of the time that it took in per mille, and the last
    /// batch.
    fn ten_seconds(took: Duration, is_quiet: bool) -> (u64, u64, (usize, u64)) {
        let (mut rate, mut bytes, mut busy) = (DiscardRate::default(), 0, Duration::ZERO);
        let (begin, mut now) = (Stamp(1_000_000_000), Stamp(1_000_000_000));
        while now.since(begin) < Duration::from_secs(10) {
            if rate.may_begin(now, is_quiet) {
                let batch = rate.batch(REQUESTS, BYTES);
                rate.begun(batch.0 as u64, batch.1);
                (bytes, busy, now) = (bytes + batch.1, busy + took, now + took);
                rate.ended(now, took, is_quiet);
            }
            now = now + Duration::from_millis(1);
        }
        (bytes, u64::try_from(busy.as_millis()).expect("short") / 10, rate.batch(REQUESTS, BYTES))
    }

    #[test]
    fn a_quick_device_that_nobody_uses_gets_its_limit() {
        let (bytes, busy, batch) = ten_seconds(Duration::from_millis(1), true);
        assert!((9 * BYTES_PER_SECOND..=11 * BYTES_PER_SECOND).contains(&bytes), "{bytes}");
        assert!(busy < 20 && batch == (REQUESTS, BYTES), "{busy} {batch:?}");
    }

    #[test]
    fn beside_clients_it_is_a_batch_in_a_second_and_one_part_of_fifty() {
        let (bytes, busy, _) = ten_seconds(Duration::from_millis(1), false);
        assert!((5 * BYTES..=10 * BYTES).contains(&bytes) && busy <= 1, "{bytes} {busy}");
        let (_, busy, batch) = ten_seconds(Duration::from_millis(100), false);
        assert!(busy <= 21 && batch == (1, BYTES >> LEVEL_MAX), "{busy} {batch:?}");
    }

    #[test]
    fn a_slow_device_gets_little_at_a_time_and_rests() {
        let (bytes, busy, batch) = ten_seconds(Duration::from_millis(300), true);
        assert!(busy <= 125 && batch == (1, BYTES >> LEVEL_MAX), "{busy} {batch:?}");
        assert!(bytes > 0, "it goes on");
    }
}
