//! The two distributions that intervals need: of Wilcoxon's signed ranks and of Student, for whole numbers.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// The index, from either end of the sorted means of two, at which an interval of at least this confidence ends. `None`
/// when `count` values cannot give that confidence.
pub(crate) fn signed_rank_cut(count: usize, confidence: f64) -> Option<usize> {
    let tail = (1.0 - confidence) / 2.0;
    let (mut below, mut cut) = (0.0, None);
    for (sum, probability) in rank_sums(count).into_iter().enumerate() {
        below += probability;
        if below > tail {
            break;
        }
        cut = Some(sum);
    }
    cut
}

/// Probability of each sum of the ranks of positive values, when either sign is as likely.
fn rank_sums(count: usize) -> Vec<f64> {
    let mut probabilities = vec![0.0; count * (count + 1) / 2 + 1];
    probabilities[0] = 1.0;
    for rank in 1..=count {
        for sum in (0..probabilities.len()).rev() {
            let with = sum.checked_sub(rank).map_or(0.0, |rest| probabilities[rest]);
            probabilities[sum] = f64::midpoint(probabilities[sum], with);
        }
    }
    probabilities
}

/// What the size of Student's variable does not exceed with probability `confidence`.
pub(crate) fn student(confidence: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    // In terms of the angle whose tangent is t / sqrt(freedom), which is bounded.
    for _ in 0..60 {
        let angle = f64::midpoint(low, high);
        if within(angle, freedom) < confidence { low = angle } else { high = angle }
    }
    low.tan() * (freedom as f64).sqrt()
}

/// Probability that the variable's size is within that of `angle`: Abramowitz and Stegun, 26.7.3 and 26.7.4.
fn within(angle: f64, freedom: usize) -> f64 {
    let (sine, cosine) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    let (mut term, mut sum) = if is_odd { (cosine, 0.0) } else { (1.0, 0.0) };
    let first = if is_odd { 2 } else { 1 };
    let count = if is_odd { (freedom - 1) / 2 } else { freedom / 2 };
    for nth in 0..count {
        sum += term;
        let divided = (first + 2 * nth) as f64;
        term *= cosine * cosine * divided / (divided + 1.0);
    }
    if is_odd { FRAC_2_PI * (angle + sine * sum) } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_is_as_in_the_tables() {
        for (confidence, freedom, value) in [
            (0.95, 1, 12.706),
            (0.95, 2, 4.303),
            (0.95, 5, 2.571),
            (0.98, 3, 4.541),
            (0.99, 10, 3.169),
            (0.95, 30, 2.042),
            (0.95, 120, 1.980),
        ] {
            let found = student(confidence, freedom);
            assert!((found / value - 1.0).abs() < 0.001, "{confidence} {freedom}: {found}");
        }
    }

    #[test]
    fn signed_ranks_are_as_in_the_tables() {
        // Wilcoxon's critical values, two-sided: the largest sum that is significant.
        for (count, confidence, value) in
            [(6, 0.95, 0), (8, 0.95, 3), (10, 0.95, 8), (10, 0.98, 5), (20, 0.95, 52), (25, 0.99, 68)]
        {
            assert_eq!(signed_rank_cut(count, confidence), Some(value), "{count} {confidence}");
        }
        assert_eq!(signed_rank_cut(5, 0.95), None);
        assert_eq!(signed_rank_cut(6, 0.98), None);
        let sum: f64 = rank_sums(40).iter().sum();
        assert!((sum - 1.0).abs() < 1e-12);
    }
}
