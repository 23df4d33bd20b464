//! Where a series of values changed: E-divisive means (Matteson and James, *A Nonparametric Approach for Multiple Change Point Analysis of
//! Multivariate Data*, JASA 109, 2014), with which MongoDB watches its benchmarks (Daly and others, *The Use of Change Point Detection to
//! Identify Software Performance Regressions in a Continuous Integration System*, ICPE 2020).
//!
//! A series is cut where the energy distance between both parts, weighed by their sizes, is largest:
//!
//! ```text
//!   E(X, Y) = 2 mean |x - y| - mean |x - x'| - mean |y - y'|        Q = n m / (n + m) E
//! ```
//!
//! The cut counts when the same values in random orders hardly ever have one as good; then either part is looked at in turn. No
//! distribution is assumed, only that values between changes could have come in any order: true of runs made apart, not of a machine that
//! drifts for days.

use crate::stats::Random;

/// Values on either side of a change; of fewer nothing is known.
pub(super) const SIDE_MIN: usize = 3;

/// How sure to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// Share of orders, drawn at random, that may have a cut as good.
    pub(super) error: f64,
    pub(super) orders: usize,
    pub(super) seed: u64,
}

/// Indices of values that are the first after a change, in order.
pub(super) fn changes(values: &[f64], settings: &Settings) -> Vec<usize> {
    let mut random = Random::new(settings.seed);
    let (mut open, mut found) = (Vec::from_iter(std::iter::once(0..values.len())), Vec::new());
    while let Some(part) = open.pop() {
        let Some(part_values) = values.get(part.clone()) else { continue };
        let Some((at, energy)) = best_cut(part_values) else { continue };
        if !is_rare(part_values, energy, settings, &mut random) {
            continue;
        }
        let cut = part.start + at;
        found.push(cut);
        open.extend([part.start..cut, cut..part.end]);
    }
    found.sort_unstable();
    found
}

/// Hardly any order of the values has a cut of this energy.
fn is_rare(values: &[f64], energy: f64, settings: &Settings, random: &mut Random) -> bool {
    // The order that was seen counts as one of those drawn.
    let allowed = settings.error * (settings.orders + 1) as f64;
    let mut as_good = 1.0;
    let mut shuffled = values.to_vec();
    for _ in 0..settings.orders {
        if as_good > allowed {
            return false;
        }
        for last in (1..shuffled.len()).rev() {
            shuffled.swap(last, random.below(last + 1));
        }
        if best_cut(&shuffled).is_some_and(|(_, other)| other >= energy) {
            as_good += 1.0;
        }
    }
    as_good <= allowed
}

/// The length of the first part, and Q; `None` of values that are too few, or all the same.
fn best_cut(values: &[f64]) -> Option<(usize, f64)> {
    let count = values.len();
    let distance = |a: f64, b: f64| (a - b).abs();
    let all_from = |from: usize| {
        let (one, rest) = values.get(from..).and_then(<[f64]>::split_first).unwrap_or((&0.0, &[]));
        rest.iter().map(|other| distance(*one, *other)).sum::<f64>()
    };
    // Sums over pairs within the parts and between them; at first all values are in the second part.
    let (mut first, mut second, mut between) = (0.0, (0..count).map(all_from).sum::<f64>(), 0.0);
    let mut best = None;
    for (nth, value) in values.iter().enumerate() {
        let to_first: f64 = values.iter().take(nth).map(|other| distance(*value, *other)).sum();
        let to_second = all_from(nth);
        (first, second) = (first + to_first, second - to_second);
        between += to_second - to_first;
        let (n, m) = (nth + 1, count - nth - 1);
        if n < SIDE_MIN || m < SIDE_MIN {
            continue;
        }
        let pairs = |count: usize| (count * (count - 1)) as f64 / 2.0;
        let product = (n * m) as f64;
        let energy = 2.0 * between / product - first / pairs(n) - second / pairs(m);
        let weighed = product / count as f64 * energy;
        if weighed > best.map_or(0.0, |(_, most)| most) {
            best = Some((n, weighed));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { error: 0.01, orders: 299, seed: 1 };

    /// Runs of a benchmark: normal noise, and a neighbour now and then.
    struct Runs(Random);

    impl Runs {
        fn uniform(&mut self) -> f64 {
            ((self.0.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        }

        fn next(&mut self, noise: f64) -> f64 {
            let normal: f64 = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
            let disturbed = if self.uniform() < 0.05 { 5.0 * self.uniform() } else { 0.0 };
            noise * (normal + disturbed)
        }

        fn series(seed: u64, count: usize, steps: &[(usize, f64)]) -> Vec<f64> {
            let mut runs = Self(Random::new(seed * 7919 + 3));
            let mut level = 0.0;
            let mut value = |nth| {
                level += steps.iter().filter(|(at, _)| *at == nth).map(|(_, by)| by).sum::<f64>();
                level + runs.next(0.015)
            };
            (0..count).map(&mut value).collect()
        }
    }

    #[test]
    fn series_without_a_change_hardly_ever_show_one() {
        let wrong = (0..300).filter(|seed| !changes(&Runs::series(*seed, 30, &[]), &SETTINGS).is_empty());
        let share = wrong.count() as f64 / 300.0;
        assert!(share <= 0.03, "{share}");
    }

    #[test]
    fn a_planted_change_of_three_percent_is_found_where_it_is() {
        let found: Vec<Vec<usize>> =
            (0..200).map(|seed| changes(&Runs::series(seed, 40, &[(20, 0.03)]), &SETTINGS)).collect();
        let share =
            |is: &dyn Fn(&[usize]) -> bool| found.iter().filter(|found| is(found)).count() as f64 / 200.0;
        let seen = share(&|found| !found.is_empty());
        assert!(seen >= 0.95, "seen {seen}");
        let near = share(&|found| matches!(found, [at] if at.abs_diff(20) <= 4));
        assert!(near >= 0.85, "near {near}");
    }

    #[test]
    fn two_changes_are_two() {
        let found = |seed| changes(&Runs::series(seed, 60, &[(20, 0.05), (40, -0.08)]), &SETTINGS);
        let near = (0..100).filter(|seed| {
            matches!(found(*seed).as_slice(), [one, two] if one.abs_diff(20) <= 2 && two.abs_diff(40) <= 2)
        });
        let share = near.count() as f64 / 100.0;
        assert!(share >= 0.9, "{share}");
        assert_eq!(found(1), found(1), "seeded");
    }

    #[test]
    fn too_few_values_tell_nothing() {
        let step: Vec<f64> = (0..5).map(|nth| if nth < 3 { 0.0 } else { 1.0 }).collect();
        assert_eq!(changes(&step, &SETTINGS), Vec::<usize>::new());
        assert_eq!(changes(&[], &SETTINGS), Vec::<usize>::new());
        assert_eq!(changes(&[1.0; 50], &SETTINGS), Vec::<usize>::new(), "nothing ever changed");
    }

    #[test]
    fn the_energy_is_as_defined() {
        let values: [f64; 6] = [1.0, 2.0, 4.0, 10.0, 11.0, 13.0];
        let (one, two) = values.split_at(3);
        let mean = |pairs: Vec<f64>| pairs.iter().sum::<f64>() / pairs.len() as f64;
        let between = mean(one.iter().flat_map(|x| two.iter().map(move |y| (x - y).abs())).collect());
        let within = |part: &[f64]| mean(vec![part[1] - part[0], part[2] - part[0], part[2] - part[1]]);
        let expected = 9.0 / 6.0 * (2.0 * between - within(one) - within(two));
        let (at, energy) = best_cut(&values).expect("a cut");
        assert!(at == 3 && (energy - expected).abs() < 1e-9, "{at} {energy} {expected}");
    }
}
