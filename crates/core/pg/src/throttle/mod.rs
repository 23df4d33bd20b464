//! [`RecoveryThrottle`]: how fast recovery may go beside clients.
//!
//! While clients work, recovery takes bytes from a bucket that fills at a rate. What a client waits for takes none: it goes at
//! once. The rate follows what clients' writes take from their execution until all copies have them durably: that is where
//! recovery is felt, and neither a queue before the PG nor a wait for an object that is being recovered says anything about
//! the device. Only small writes are judged: large ones take as long as their bytes. What writes take while recovery rests is not
//! its doing: it is neither judged then, nor by less than twice that.
//!
//! A window ends after 200 writes, or after 1 s with 50 of them, or after 3 s, and is judged by its tail: what all but one in a hundred of its
//! writes kept to, the slowest of fewer than a hundred. The limit is the target, or a multiple of what 99 of 100 writes kept to while
//! recovery rested, if that is more.
//!
//! ```text
//! tail of a window                  rate
//!
//! usual: without recovery           if recovery wanted more than it was given: a quarter more at the beginning, until a window comes
//!   |    well                       near; then a twentieth, a tenth after ten windows in a row that are well
//!   |
//! a third of the way to the limit   as it is
//!   |
//! two thirds: near                  a tenth less
//!   |
//! limit                             a single write: a tenth less; more than one, and one in a hundred: three tenths less at once, within
//!                                   5 s after that 15 %; then no judgement for 500 ms: what began before tells of the old rate
//! ```
//! So the rate stays where windows are seldom near, and the limit itself is felt only when something changes: who looks for it by trying it
//! out misses it with each try. A rate that changes little from second to second can be foretold by, too. Below 32 MiB/s, where it begins,
//! what is near is no reason to go slower. When clients are away there is no limit; when they come back, the rate is what it was, at least
//! the first one. Beside the rate, the parts of one object that are on their way at a time are small and bounded: one more while they come
//! back before they are near the limit, half when they are above it, as a client's write behind them would be.

mod calm;
mod kept;

use crate::TurnWork;
use calm::Calm;
use kept::Kept;
pub use kept::KeptSeconds;
use nacre_msg::size::PART_BYTES_MAX;
use nacre_msg::stats::RECOVERY_RATE_MIN;
use nacre_types::Stamp;
use std::time::Duration;

/// A target below this stands for none beside the multiple of what writes take while recovery rests.
const TARGET_LEAST: Duration = Duration::from_micros(100);
/// The limit then, as long as too few writes have told what they take.
const LIMIT_UNKNOWN: Duration = Duration::from_millis(10);
/// Writes that are judged together.
const WINDOW_OPERATIONS: u64 = 200;
/// Fewer, if no more come for so long; as long as that there are at least so many.
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_OPERATIONS_LEAST: u64 = 50;
/// Fewer than those, then.
const WINDOW_LONGEST: Duration = Duration::from_secs(3);
/// So long after a cut, and after recovery has begun, writes end that tell of what was before.
const PAUSE: Duration = Duration::from_millis(500);
/// So long after a cut writes may be slow for what was moved before it, which the device has yet to do.
const AFTERMATH: Duration = Duration::from_secs(5);
/// So many windows in a row that are well say that there is more room than was thought.
const WELL_IN_A_ROW: u32 = 10;
/// What a full bucket holds, in time at the rate; a part at least. A small write is durable behind all parts that came before it, so parts
/// are to come one by one.
const BURST: Duration = Duration::from_millis(5);
/// Clients that have sent nothing for so long are away.
const CLIENTS_AWAY: Duration = Duration::from_secs(1);
/// Recovery that has moved nothing for so long rests: what clients feel then is not its doing.
const RESTS: Duration = Duration::from_secs(1);
/// Where the rate begins when clients come, or recovery.
const RATE_FIRST: u64 = 32 << 20;
/// No device of ours is faster.
const RATE_MAX: u64 = 8 << 30;
/// Bytes in a part that is sent while clients work: so long a small write may find the device busy with it.
const PART_BYTES_BESIDE_CLIENTS: usize = 128 << 10;
/// Parts of one object on their way at a time: 1 MiB beside clients.
pub(crate) const PARTS_MAX: usize = 8;

/// The speed of recovery on one shard, shared by its PGs.
#[derive(Debug)]
pub struct RecoveryThrottle {
    /// What clients' writes may take in any case; zero leaves recovery alone.
    target: Duration,
    /// Likewise, as a multiple of what they take while recovery rests.
    multiple_thousandths: u32,
    /// Objects that a PG recovers at a time without clients.
    objects_max: usize,
    /// Bytes per second while clients work.
    rate: u64,
    /// The rate has not been too high yet.
    starting: bool,
    /// So many windows have been well, one after the other, since the last that was not.
    well_in_a_row: u32,
    /// When the rate was last cut for more than one slow write.
    cut_at: Option<Stamp>,
    bucket: Bucket,
    client_at: Option<Stamp>,
    /// When recovery last moved something that no client waits for.
    moved_at: Option<Stamp>,
    /// What clients' writes take while it does not.
    calm: Calm,
    kept: Kept,
    window: Window,
    /// No judgement before.
    judges_from: Stamp,
    /// Parts of one object on their way at a time, in eighths: one that comes back in time adds one of them.
    parts_eighths: usize,
    /// Late parts do not count before.
    parts_judged_from: Stamp,
    /// What the shard's turn has left for clients' messages.
    pub turn: TurnWork,
}

/// What recovery may take at once.
#[derive(Debug, Default)]
struct Bucket {
    /// Below zero after something that was larger than what there was: by a part at most.
    bytes: i64,
    filled_at: Stamp,
}

/// Clients' writes that are judged together.
#[derive(Debug, Default)]
struct Window {
    began: Stamp,
    operations: u64,
    /// Those above the limit.
    slow: u64,
    /// Those that are near it.
    near: u64,
    /// Those that are not well.
    not_well: u64,
    /// Recovery wanted more than it was given: a window that did without teaches nothing about what it may do.
    ran_dry: bool,
}

/// What a client's write may take, and what tells how far that is.
#[derive(Debug)]
struct Limits {
    limit: Duration,
    /// Above this recovery is too fast already.
    near: Duration,
    /// Up to this it may be faster.
    well: Duration,
}

impl RecoveryThrottle {
    /// With no limit, until [`RecoveryThrottle::configure`] sets one.
    #[must_use]
    pub fn new() -> Self {
        Self {
            target: Duration::ZERO,
            multiple_thousandths: 2000,
            objects_max: 8,
            rate: RATE_FIRST,
            starting: true,
            well_in_a_row: 0,
            cut_at: None,
            bucket: Bucket::default(),
            client_at: None,
            moved_at: None,
            calm: Calm::default(),
            kept: Kept::default(),
            window: Window::default(),
            judges_from: Stamp::default(),
            parts_eighths: PARTS_MAX,
            parts_judged_from: Stamp::default(),
            turn: TurnWork::default(),
        }
    }

    /// Sets what clients' writes may take, in any case and as a multiple (in thousandths, 1000 or more) of what they take while recovery
    /// rests, and how many objects a PG recovers at a time without clients.
    pub fn configure(&mut self, target: Duration, multiple_thousandths: u32, objects_max: usize) {
        let limits = (target, multiple_thousandths.max(1000));
        if limits != (self.target, self.multiple_thousandths) {
            self.kept.begin_anew();
        }
        (self.target, self.multiple_thousandths) = limits;
        self.objects_max = objects_max.max(1);
    }

    /// How often the limit was kept since the start.
    #[must_use]
    pub fn kept_seconds(&self) -> KeptSeconds {
        self.kept.seconds()
    }

    /// A client's operation was answered; a small write took `spent` from its execution until all copies had it durably
    /// ([`crate::Trace::small_write`]).
    pub fn client_op(&mut self, now: Stamp, spent: Option<Duration>) {
        if !self.has_clients(now) {
            self.begin(now);
        }
        self.client_at = Some(now);
        if self.rests(now) {
            spent.into_iter().for_each(|spent| self.calm.add(now, spent));
            return;
        }
        if let Some(spent) = spent {
            let Limits { limit, near, well } = self.limits();
            if self.target > Duration::ZERO {
                self.kept.add(now, spent > limit);
            }
            if now >= self.judges_from {
                self.window.operations += 1;
                self.window.slow += u64::from(spent > limit);
                self.window.near += u64::from(spent > near);
                self.window.not_well += u64::from(spent > well);
            }
        }
        self.judge(now);
    }

    /// Recovery moves nothing: whatever clients' writes take, it is not its doing.
    fn rests(&self, now: Stamp) -> bool {
        self.moved_at.is_none_or(|at| now.since(at) >= RESTS)
    }

    /// What clients' writes may take beside recovery.
    fn limit(&mut self) -> Duration {
        let calm = self.calm.p99();
        // A multiple of what nobody knows yet is no limit.
        let least = if calm.is_zero() && self.target < TARGET_LEAST { LIMIT_UNKNOWN } else { self.target };
        least.max(calm * self.multiple_thousandths / 1000)
    }

    /// That, and what is below it.
    fn limits(&mut self) -> Limits {
        let limit = self.limit();
        // Half of the limit may be usual where nobody knows what is.
        let calm = self.calm.p99();
        let usual = if calm.is_zero() { limit / 2 } else { calm.min(limit) };
        let way = limit - usual;
        Limits { limit, near: usual + way / 3 * 2, well: usual + way / 3 }
    }

    fn has_clients(&self, now: Stamp) -> bool {
        self.client_at.is_some_and(|at| now.since(at) < CLIENTS_AWAY)
    }

    /// Clients come, or come back; or recovery begins beside them.
    fn begin(&mut self, now: Stamp) {
        if self.rate <= RATE_FIRST {
            (self.rate, self.starting) = (RATE_FIRST, true);
            (self.well_in_a_row, self.cut_at) = (0, None);
        }
        self.bucket = Bucket { bytes: self.burst(), filled_at: now };
        self.window = Window { began: now, ..Window::default() };
    }

    fn judge(&mut self, now: Stamp) {
        let Window { began, operations, slow, near, not_well, ran_dry } = self.window;
        let lasts = now.since(began);
        let ended = operations >= WINDOW_OPERATIONS
            || lasts >= WINDOW_LONGEST
            || lasts >= WINDOW && operations >= WINDOW_OPERATIONS_LEAST;
        let in_tail = |count: u64| count * 100 > operations;
        // Early, when those to come cannot make up for it.
        if slow > 1 && slow * 100 > if ended { operations } else { WINDOW_OPERATIONS } {
            self.cut(now);
        } else if !ended {
            return;
        } else if in_tail(near) && (self.rate >= RATE_FIRST || in_tail(slow)) {
            self.slow_down(now, 90);
        } else if in_tail(not_well) && self.rate >= RATE_FIRST {
            self.well_in_a_row = 0;
        } else if ran_dry && operations > 0 {
            self.raise(now);
        }
        self.window = Window { began: now, ..Window::default() };
    }

    fn cut(&mut self, now: Stamp) {
        let is_aftermath = self.cut_at.is_some_and(|at| now.since(at) < AFTERMATH);
        if !is_aftermath {
            self.cut_at = Some(now);
        }
        self.slow_down(now, if is_aftermath { 85 } else { 70 });
        self.judges_from = now + PAUSE;
    }

    /// To so many hundredths of the rate.
    fn slow_down(&mut self, now: Stamp, hundredths: u64) {
        (self.starting, self.well_in_a_row) = (false, 0);
        self.set_rate(now, self.rate / 100 * hundredths);
    }

    fn raise(&mut self, now: Stamp) {
        self.well_in_a_row = self.well_in_a_row.saturating_add(1);
        let share = match self.well_in_a_row {
            _ if self.starting => 4,
            0..=WELL_IN_A_ROW => 20,
            _ => 10,
        };
        self.set_rate(now, self.rate + self.rate / share);
    }

    fn set_rate(&mut self, now: Stamp, rate: u64) {
        self.bucket = Bucket { bytes: self.bytes_at(now), filled_at: now };
        self.rate = rate.clamp(RECOVERY_RATE_MIN, RATE_MAX);
    }

    /// What a full bucket holds.
    fn burst(&self) -> i64 {
        bytes_in(self.rate, BURST).max((PART_BYTES_BESIDE_CLIENTS as u64).cast_signed())
    }

    /// What is in the bucket.
    fn bytes_at(&self, now: Stamp) -> i64 {
        let came = bytes_in(self.rate, now.since(self.bucket.filled_at));
        self.bucket.bytes.saturating_add(came).min(self.burst())
    }

    /// Bytes per second that recovery may move; `None` for no limit.
    #[must_use]
    pub fn rate(&self, now: Stamp) -> Option<u64> {
        (self.target > Duration::ZERO && self.has_clients(now)).then_some(self.rate)
    }

    /// Objects that a PG recovers at a time. Writes to them wait for them: while clients work, for one, whose parts follow
    /// each other (`parts_max`).
    #[must_use]
    pub fn objects_max(&self, now: Stamp) -> usize {
        if self.rate(now).is_some() { 1 } else { self.objects_max }
    }

    /// Parts of one object that may be on their way at a time.
    pub(crate) fn parts_max(&self, now: Stamp) -> usize {
        if self.rate(now).is_some() { (self.parts_eighths / PARTS_MAX).max(1) } else { 2 }
    }

    /// Most bytes of a part that is sent.
    pub(crate) fn part_bytes(&self, now: Stamp) -> usize {
        if self.rate(now).is_some() { PART_BYTES_BESIDE_CLIENTS } else { PART_BYTES_MAX }
    }

    /// A part of an object was durable where it is missing after `took`.
    pub(crate) fn part_came(&mut self, now: Stamp, took: Duration) {
        if self.rate(now).is_none() {
            return;
        }
        let Limits { limit, near, .. } = self.limits();
        if took <= near {
            self.parts_eighths = (self.parts_eighths + 1).min(PARTS_MAX * PARTS_MAX);
        } else if took > limit && now >= self.parts_judged_from {
            self.parts_eighths = (self.parts_eighths / 2).max(PARTS_MAX);
            self.parts_judged_from = now + PAUSE;
        }
    }

    /// When the next object may begin, if not now. What is under way comes first, since writes to it wait: for another object
    /// the bucket must be half full. It is more when a PG is woken, which is not for every small object.
    pub(crate) fn begins_at(&mut self, now: Stamp) -> Option<Stamp> {
        let burst = self.burst();
        self.closed_until(now, burst / 2, burst / 4 * 3)
    }

    /// When the next part of an object under way may be sent, if not now.
    pub(crate) fn goes_on_at(&mut self, now: Stamp) -> Option<Stamp> {
        self.closed_until(now, 0, 1)
    }

    /// `None` when there is more than `floor` in the bucket; else when there is `wanted`.
    fn closed_until(&mut self, now: Stamp, floor: i64, wanted: i64) -> Option<Stamp> {
        let rate = self.rate(now)?;
        let bytes = self.bytes_at(now);
        if bytes > floor {
            return None;
        }
        self.window.ran_dry = true;
        let wanted = wanted.saturating_sub(bytes).unsigned_abs();
        let nanos = u128::from(wanted) * 1_000_000_000 / u128::from(rate);
        Some(now + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Recovery moves `bytes` that no client waits for.
    pub(crate) fn take(&mut self, now: Stamp, bytes: u64) {
        if self.rests(now) {
            self.begin(now);
            self.judges_from = now + PAUSE;
        }
        self.moved_at = Some(now);
        if self.rate(now).is_some() {
            let left = self.bytes_at(now).saturating_sub_unsigned(bytes);
            self.bucket = Bucket { bytes: left, filled_at: now };
        }
    }
}

impl Default for RecoveryThrottle {
    fn default() -> Self {
        Self::new()
    }
}

/// What comes at `rate` bytes per second in `time`.
fn bytes_in(rate: u64, time: Duration) -> i64 {
    i64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
