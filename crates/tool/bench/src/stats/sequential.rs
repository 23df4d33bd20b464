//! Is B higher than A by more than a threshold? Asked again while pairs come in, until it is known.
//!
//! Looking often, and stopping at the first interval that says what one hopes for, is wrong far more often than one interval. So the looks
//! are few and fixed beforehand, and each has its part of the error that all of them together may have (Bonferroni's inequality; Jennison
//! and Turnbull, *Group Sequential Methods with Applications to Clinical Trials*, chapter 1). That costs a few pairs more than the best
//! known boundaries, and holds whatever the noise is.

use super::{Comparison, Pair, Settings, judge};

/// Rounds (of two pairs each) after which is looked.
const LOOKS: [usize; 5] = [4, 6, 9, 14, 21];
/// After so many rounds it is given up.
pub(crate) const ROUNDS_MAX: usize = LOOKS[LOOKS.len() - 1];

/// What is known about B against a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Higher than A by more than the threshold.
    Above,
    /// Not higher by that much, or lower.
    Below,
    /// Not by this many pairs.
    Open,
}

/// The threshold, and how sure to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    /// A share: 0.05 asks whether B is more than 5 % higher.
    pub(crate) threshold: f64,
    /// Of wrong decisions, all looks together.
    pub(crate) error: f64,
    pub(crate) seed: u64,
    /// As of [`Settings`].
    pub(crate) resamples: usize,
}

impl Question {
    /// What can be decided after `rounds`; [`Decision::Open`] between looks.
    pub(crate) fn look(&self, pairs: &[Pair], rounds: usize) -> (Decision, Option<Comparison>) {
        if !LOOKS.contains(&rounds) {
            return (Decision::Open, None);
        }
        let confidence = 1.0 - self.error / LOOKS.len() as f64;
        let settings = Settings {
            confidence,
            margin: 0.0,
            seed: self.seed,
            resamples: self.resamples,
            ..Settings::default()
        };
        let found = judge(pairs, &settings);
        let decision = if found.low > self.threshold {
            Decision::Above
        } else if found.high < self.threshold {
            Decision::Below
        } else {
            Decision::Open
        };
        (decision, Some(found))
    }
}
