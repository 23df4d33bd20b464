//! [`Pace`]: how fast recovery may go beside clients.
//!
//! While clients work, recovery has a rate in bytes per second. It is judged every [`WINDOW`]: when more than
//! one in a hundred of the clients' operations took longer than the target, the rate is halved; otherwise it
//! grows by a fixed step (additive increase, multiplicative decrease). Without clients there is no limit.
//!
//! A rate and not bytes in flight: one part of an object at a time, sent back to back, would already keep a
//! device busy.

use nacre_types::Stamp;
use std::time::Duration;

/// How long latencies are collected before they count.
pub(crate) const WINDOW: Duration = Duration::from_millis(200);
/// Recovery may be ahead of its rate by so much: groups are not woken for every small object.
const AHEAD: Duration = Duration::from_millis(20);
/// Clients that have sent nothing for so long are away.
const CLIENTS_AWAY: Duration = Duration::from_secs(1);
/// Where the rate begins when clients come.
const RATE_FIRST: u64 = 32 << 20;
/// Recovery always gets on, however slow the clients' operations are: slow ones are often not its fault, and a pool
/// that is degraded for hours is a risk of its own. Sixteen parts per second.
const RATE_MIN: u64 = 8 << 20;
/// No device of ours is faster.
const RATE_MAX: u64 = 8 << 30;
/// Added to the rate after a good window.
const RATE_STEP: u64 = 4 << 20;

/// The speed of recovery on one shard, shared by its groups.
#[derive(Debug)]
pub struct Pace {
    /// What clients' operations may take; zero leaves recovery alone.
    target: Duration,
    /// Objects that a group recovers at a time without clients.
    objects_max: usize,
    /// Bytes per second while clients work.
    rate: u64,
    /// Recovery may begin its next object then.
    open_at: Stamp,
    client_at: Option<Stamp>,
    window_ends: Stamp,
    operations: u64,
    slow: u64,
    /// Recovery took something in this window: who did nothing learns nothing about what it may do.
    used: bool,
}

impl Pace {
    /// With no limit, until [`Pace::configure`] sets one.
    #[must_use]
    pub fn new() -> Self {
        Self {
            target: Duration::ZERO,
            objects_max: 8,
            rate: RATE_FIRST,
            open_at: Stamp::default(),
            client_at: None,
            window_ends: Stamp::default(),
            operations: 0,
            slow: 0,
            used: false,
        }
    }

    /// Sets what clients' operations may take, and how many objects a group recovers at a time without clients.
    pub fn configure(&mut self, target: Duration, objects_max: usize) {
        (self.target, self.objects_max) = (target, objects_max.max(1));
    }

    /// A client's operation was answered after `latency`.
    pub fn client_op(&mut self, now: Stamp, latency: Duration) {
        if self.has_clients(now) {
            self.judge(now);
        } else {
            (self.rate, self.window_ends) = (RATE_FIRST, now + WINDOW);
            (self.operations, self.slow, self.used) = (0, 0, false);
        }
        self.client_at = Some(now);
        self.operations += 1;
        self.slow += u64::from(latency > self.target);
    }

    fn has_clients(&self, now: Stamp) -> bool {
        self.client_at.is_some_and(|at| now.since(at) < CLIENTS_AWAY)
    }

    fn judge(&mut self, now: Stamp) {
        if now < self.window_ends {
            return;
        }
        self.rate = if self.slow * 100 > self.operations {
            self.rate / 2
        } else if self.used {
            self.rate + RATE_STEP
        } else {
            self.rate
        };
        self.rate = self.rate.clamp(RATE_MIN, RATE_MAX);
        self.window_ends = now + WINDOW;
        (self.operations, self.slow, self.used) = (0, 0, false);
    }

    /// Bytes per second that recovery may move; `None` for no limit.
    #[must_use]
    pub fn rate(&self, now: Stamp) -> Option<u64> {
        (self.target > Duration::ZERO && self.has_clients(now)).then_some(self.rate)
    }

    /// Objects that a group recovers at a time. Writes to them wait for them: while clients work, for one, which is
    /// enough for any rate that lets them work.
    pub(crate) fn objects_max(&self, now: Stamp) -> usize {
        if self.rate(now).is_some() { 1 } else { self.objects_max }
    }

    /// When the next object may begin, if not now.
    pub(crate) fn closed_until(&self, now: Stamp) -> Option<Stamp> {
        (self.rate(now).is_some() && now + AHEAD < self.open_at).then_some(self.open_at)
    }

    /// Recovery moves `bytes` of an object that was begun.
    pub(crate) fn take(&mut self, now: Stamp, bytes: u64) {
        self.used = true;
        if let Some(rate) = self.rate(now) {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
            let took = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.open_at = self.open_at.max(now) + took;
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(5);
    const OBJECT: u64 = 1 << 20;

    /// Bytes that recovery moves in `seconds` while a client's operation ends every millisecond after what
    /// `latency` makes of the bytes per second that recovery moved just before.
    fn run(pace: &mut Pace, start: Stamp, seconds: u64, latency: impl Fn(u64) -> Duration) -> u64 {
        let (mut moved, mut now) = (0, start);
        let mut recent = std::collections::VecDeque::from([0; 100]);
        for _ in 0..seconds * 1000 {
            now = now + Duration::from_millis(1);
            let mut bytes = 0;
            while pace.closed_until(now).is_none() && bytes < 64 * OBJECT {
                pace.take(now, OBJECT);
                bytes += OBJECT;
            }
            moved += bytes;
            recent.pop_front();
            recent.push_back(bytes);
            pace.client_op(now, latency(recent.iter().sum::<u64>() * 10));
        }
        moved
    }

    #[test]
    fn recovery_takes_what_clients_leave() {
        // A device of 100 MB/s, above which operations queue.
        let device = |rate: u64| Duration::from_millis(if rate > 100 << 20 { 20 } else { 1 });
        let mut pace = Pace::new();
        pace.configure(TARGET, 8);
        let warm = Stamp(1_000_000_000);
        run(&mut pace, warm, 5, device);
        let moved = run(&mut pace, warm + Duration::from_secs(5), 20, device) / 20;
        assert!((40 << 20..110 << 20).contains(&moved), "{moved} bytes per second");
    }

    #[test]
    fn hopeless_clients_do_not_stop_recovery() {
        let mut pace = Pace::new();
        pace.configure(TARGET, 8);
        let slow = |_| Duration::from_secs(1);
        run(&mut pace, Stamp(1), 5, slow);
        let moved = run(&mut pace, Stamp(5_000_000_000), 10, slow) / 10;
        assert!((RATE_MIN / 2..=RATE_MIN * 2).contains(&moved), "{moved} bytes per second");
    }

    #[test]
    fn without_clients_or_target_there_is_no_limit() {
        let mut pace = Pace::new();
        pace.configure(TARGET, 8);
        let now = Stamp(1_000_000_000);
        pace.take(now, 1 << 40);
        assert_eq!((pace.closed_until(now), pace.rate(now)), (None, None));
        pace.client_op(now, TARGET * 2);
        pace.take(now, 1 << 30);
        assert!(pace.closed_until(now).is_some());
        assert_eq!((pace.objects_max(now), pace.objects_max(now + CLIENTS_AWAY)), (1, 8));
        let later = now + CLIENTS_AWAY;
        assert_eq!((pace.closed_until(later), pace.rate(later)), (None, None));
        pace.client_op(later, TARGET);
        pace.configure(Duration::ZERO, 8);
        assert_eq!(pace.closed_until(later), None);
    }

    #[test]
    fn one_slow_operation_in_a_thousand_is_no_reason() {
        let mut pace = Pace::new();
        pace.configure(TARGET, 8);
        let mut now = Stamp(1_000_000_000);
        for n in 0..5000 {
            now = now + Duration::from_micros(200);
            pace.take(now, 1);
            pace.client_op(now, if n % 1000 == 7 { TARGET * 3 } else { TARGET });
        }
        assert!(pace.rate(now) > Some(RATE_FIRST));
    }
}
