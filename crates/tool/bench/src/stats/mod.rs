//! Statistics of a comparison: whether two sides differ, and how small a difference the run could have shown.
//!
//! What is compared comes in *pairs*: one repetition of side A and one of side B, close together in time. The order
//! changes from pair to pair (A B, B A, B A, A B, ...), so that a drift of the machine adds to as many pairs as it takes
//! away from. Everything is done with logarithms of B / A: speeding up twofold and slowing down twofold weigh the same.
//!
//! ```text
//!   effect      median of all means of two pairs (Hodges and Lehmann): one pair disturbed by a neighbour moves it little
//!   interval    the wider, at each end, of two:
//!                 bootstrap: pairs drawn anew, those with A first and those with B first apart; percentiles
//!                 exact: by signed ranks, which holds for any symmetric noise; by Student for very few pairs
//!   detectable  effect that a run with this noise would have found beyond the margin 4 times of 5
//!   verdict     interval beyond the margin: higher or lower
//!               else, within what is relevant, and that had been found: same
//!               else: cannot tell
//! ```
//!
//! Two like sides differ symmetrically, whatever the noise, so the exact interval alone keeps false verdicts below
//! `1 - confidence`; the bootstrap adds to it where noise is lopsided.

mod exact;
pub(crate) mod sequential;

use exact::{signed_rank_cut, student};

/// Pairs that one comparison takes at most; more would take long and tell nothing new.
pub(crate) const PAIRS_MAX: usize = 200;
/// Share of effects of size `detectable` that are found.
const POWER: f64 = 0.8;

/// One repetition of each side, next to each other in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pair {
    /// Natural logarithm of B / A.
    pub(crate) log_ratio: f64,
    pub(crate) a_first: bool,
}

/// How sure to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Settings {
    /// Of the interval: of like sides, a share of 1 - confidence at most is called different.
    pub(crate) confidence: f64,
    /// Differences up to this share do not count: two clusters from one binary differ by something.
    pub(crate) margin: f64,
    /// A comparison that could not have found a difference of this share may not say "same".
    pub(crate) relevant: f64,
    pub(crate) resamples: usize,
    pub(crate) seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { confidence: 0.98, margin: 0.01, relevant: 0.05, resamples: 2000, seed: 1 }
    }
}

/// What can be said about B against A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Higher,
    Lower,
    Same,
    CannotTell,
}

/// All that the pairs tell. Shares: 0.05 for 5 % more in B than in A.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) pairs: usize,
    pub(crate) effect: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// The effect in standard deviations of a pair.
    pub(crate) effect_size: f64,
    /// The smallest effect that this run could have seen; infinite for fewer than two pairs.
    pub(crate) detectable: f64,
    pub(crate) verdict: Verdict,
}

/// Judges by at most [`PAIRS_MAX`] pairs.
pub(crate) fn judge(pairs: &[Pair], settings: &Settings) -> Comparison {
    let pairs = pairs.get(..PAIRS_MAX).unwrap_or(pairs);
    let logs: Vec<f64> = pairs.iter().map(|pair| pair.log_ratio).collect();
    let effect = center(&mut walsh(&logs));
    let share = |log: f64| log.exp_m1();
    if logs.len() < 2 {
        let (low, high) = (-1.0, f64::INFINITY);
        let (effect, detectable, verdict) = (share(effect), f64::INFINITY, Verdict::CannotTell);
        return Comparison { pairs: logs.len(), effect, low, high, effect_size: 0.0, detectable, verdict };
    }
    let (exact_low, exact_high) = exact_interval(&logs, settings.confidence);
    let (drawn_low, drawn_high) = bootstrap(pairs, settings);
    let (low, high) = (exact_low.min(drawn_low), exact_high.max(drawn_high));
    let freedom = logs.len() - 1;
    let stretch = 1.0 + student(2.0 * POWER - 1.0, freedom) / student(settings.confidence, freedom);
    let (margin, relevant) = (settings.margin.ln_1p(), settings.relevant.ln_1p());
    let detectable = margin + (high - low) / 2.0 * stretch;
    let verdict = if low > margin {
        Verdict::Higher
    } else if high < -margin {
        Verdict::Lower
    } else if detectable <= relevant && low >= -relevant && high <= relevant {
        Verdict::Same
    } else {
        Verdict::CannotTell
    };
    let spread = deviation(&logs);
    let effect_size = if spread > 0.0 { effect / spread } else { 0.0 };
    Comparison {
        pairs: logs.len(),
        effect: share(effect),
        low: share(low),
        high: share(high),
        effect_size,
        detectable: share(detectable),
        verdict,
    }
}

/// Means of each two of the values, and of each with itself, in any order.
fn walsh(values: &[f64]) -> Vec<f64> {
    let mut means = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (nth, one) in values.iter().enumerate() {
        means.extend(values.iter().skip(nth).map(|other| f64::midpoint(*one, *other)));
    }
    means
}

/// The median, leaving `values` in another order; 0 of nothing.
fn center(values: &mut [f64]) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let (below, high, _) = values.select_nth_unstable_by(last.div_ceil(2), f64::total_cmp);
    let high = *high;
    if last % 2 == 0 {
        return high;
    }
    f64::midpoint(below.iter().copied().fold(f64::NEG_INFINITY, f64::max), high)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / values.len().saturating_sub(1).max(1) as f64).sqrt()
}

/// By signed ranks; by Student when there are too few pairs for that confidence.
fn exact_interval(logs: &[f64], confidence: f64) -> (f64, f64) {
    let Some(cut) = signed_rank_cut(logs.len(), confidence) else {
        let error = deviation(logs) / (logs.len() as f64).sqrt();
        let reach = student(confidence, logs.len() - 1) * error;
        return (mean(logs) - reach, mean(logs) + reach);
    };
    let mut means = walsh(logs);
    means.sort_by(f64::total_cmp);
    let at = |index: usize| means.get(index).copied().unwrap_or_default();
    (at(cut), at(means.len() - 1 - cut))
}

/// Percentiles of the effects of pairs drawn anew with repetition, each order of the sides for itself.
fn bootstrap(pairs: &[Pair], settings: &Settings) -> (f64, f64) {
    let group = |a_first: bool| -> Vec<f64> {
        pairs.iter().filter(|pair| pair.a_first == a_first).map(|pair| pair.log_ratio).collect()
    };
    let groups = [group(true), group(false)];
    let mut random = Random::new(settings.seed);
    let mut draw = || {
        let mut drawn = Vec::with_capacity(pairs.len());
        for group in &groups {
            drawn.extend(
                group.iter().map(|_| group.get(random.below(group.len())).copied().unwrap_or_default()),
            );
        }
        center(&mut walsh(&drawn))
    };
    let mut effects: Vec<f64> = (0..settings.resamples.max(1)).map(|_| draw()).collect();
    effects.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (share * (effects.len() - 1) as f64).round();
        effects.get(index as usize).copied().unwrap_or_default()
    };
    let tail = (1.0 - settings.confidence) / 2.0;
    (at(tail), at(1.0 - tail))
}

/// Numbers from a seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

#[cfg(test)]
pub(crate) mod tests;
