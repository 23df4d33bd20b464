//! What rounds come to.

use super::Case;
use nacre_env::outln;
use nacre_types::Stamp;
use serde_json::{Value, json};
use slab::Slab;
use std::collections::BTreeMap;

pub(crate) const HEAD: &str =
    "op     KiB depth  what      IOPS     MB/s  mean_us   p50_us   p99_us p99.9_us  cpu_us/op";

/// What one round gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    pub(crate) bytes: u64,
    pub(crate) elapsed_ns: u64,
    /// Of the whole process; `None` when it cannot be told.
    pub(crate) cpu_us: Option<u64>,
    /// Of each operation, in any order.
    pub(crate) latencies_ns: Vec<u64>,
    /// Of an engine that gives figures and no samples: operations, and percentiles in ns.
    pub(crate) given: Option<Given>,
    /// What is done beside the operations that end now.
    pub(crate) background: Option<&'static str>,
    /// Latencies of operations that ended beside something, by what it was.
    pub(crate) beside_ns: BTreeMap<&'static str, Vec<u64>>,
}

impl Round {
    /// With room for latencies, and none of it untouched: where the system must first find a large page, which may take
    /// milliseconds, all operations in flight would wait for the bench.
    pub(crate) fn with_memory() -> Self {
        const SAMPLES: usize = 1 << 18;
        let mut latencies_ns = vec![1; SAMPLES];
        latencies_ns.clear();
        Self { latencies_ns, ..Self::default() }
    }
}

/// Figures of somebody else's histogram.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Given {
    pub(crate) ops: u64,
    pub(crate) mean_ns: f64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) p999_ns: f64,
}

/// Operations on their way, by number.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    started: Slab<Stamp>,
}

impl InFlight {
    pub(crate) fn len(&self) -> usize {
        self.started.len()
    }

    pub(crate) fn start(&mut self, now: Stamp) -> u64 {
        self.started.insert(now) as u64
    }

    pub(crate) fn finish(&mut self, number: u64, now: Stamp, round: &mut Round) {
        if let Some(start) = usize::try_from(number).ok().and_then(|number| self.started.try_remove(number)) {
            let ns = now.nanos_since(start);
            round.latencies_ns.push(ns);
            if let Some(background) = round.background {
                round.beside_ns.entry(background).or_default().push(ns);
            }
        }
    }
}

/// Medians over rounds.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) name: &'static str,
    pub(crate) iops: f64,
    pub(crate) bytes_per_s: f64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) cpu_us: Option<f64>,
    /// Of operations that ended during checkpoints, all rounds together.
    pub(crate) during_checkpoints: Option<Given>,
    /// The same by stage.
    pub(crate) stages: Vec<(&'static str, Given)>,
}

impl Figures {
    pub(crate) fn as_json(&self) -> Value {
        let round = |value: f64| (value * 10.0).round() / 10.0;
        json!({
            "iops": self.iops.round(),
            "mb_per_s": round(self.bytes_per_s / 1e6),
            "mean_us": round(self.mean_us),
            "p50_us": round(self.p50_us),
            "p99_us": round(self.p99_us),
            "p999_us": round(self.p999_us),
            "cpu_us_per_op": self.cpu_us.map(round),
            "during_checkpoints": self.during_checkpoints.map(|during| json!({
                "ops": during.ops,
                "p50_us": round(during.p50_ns / 1e3),
                "p999_us": round(during.p999_ns / 1e3),
            })),
        })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn given(round: &Round) -> Given {
    round.given.unwrap_or_else(|| of_samples(round.latencies_ns.clone()))
}

fn of_samples(mut sorted: Vec<u64>) -> Given {
    sorted.sort_unstable();
    let at = |per_mille: usize| {
        let index = (sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1));
        sorted.get(index).map_or(0.0, |ns| *ns as f64)
    };
    let sum: f64 = sorted.iter().map(|ns| *ns as f64).sum();
    Given {
        ops: sorted.len() as u64,
        mean_ns: sum / (sorted.len().max(1) as f64),
        p50_ns: at(500),
        p99_ns: at(990),
        p999_ns: at(999),
    }
}

pub(crate) fn summary(name: &'static str, rounds: &[Round]) -> Figures {
    let all: Vec<(Given, &Round)> = rounds.iter().map(|round| (given(round), round)).collect();
    let seconds = |round: &Round| (round.elapsed_ns.max(1)) as f64 / 1e9;
    let over = |figure: &dyn Fn(&Given, &Round) -> f64| {
        median(all.iter().map(|(given, round)| figure(given, round)).collect())
    };
    let ops: u64 = all.iter().map(|(given, _)| given.ops).sum();
    let cpu: Option<u64> = rounds.iter().map(|round| round.cpu_us).sum();
    let mut beside: BTreeMap<&'static str, Vec<u64>> = BTreeMap::new();
    for (stage, ns) in rounds.iter().flat_map(|round| &round.beside_ns) {
        beside.entry(stage).or_default().extend(ns);
    }
    let during: Vec<u64> = beside.values().flatten().copied().collect();
    Figures {
        during_checkpoints: (!during.is_empty()).then(|| of_samples(during)),
        stages: beside.into_iter().map(|(stage, ns)| (stage, of_samples(ns))).collect(),
        name,
        iops: over(&|given, round| given.ops as f64 / seconds(round)),
        bytes_per_s: over(&|_, round| round.bytes as f64 / seconds(round)),
        mean_us: over(&|given, _| given.mean_ns / 1e3),
        p50_us: over(&|given, _| given.p50_ns / 1e3),
        p99_us: over(&|given, _| given.p99_ns / 1e3),
        p999_us: over(&|given, _| given.p999_ns / 1e3),
        cpu_us: cpu.map(|us| us as f64 / ops.max(1) as f64),
    }
}

pub(crate) fn print(case: Case, measured: &[Figures], stages: bool) {
    for figures in measured {
        outln!(
            "{:<5} {:>4} {:>5}  {:<5} {:>8.0} {:>8.1} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>10}",
            if case.is_read { "read" } else { "write" },
            case.bytes / 1024,
            case.depth,
            figures.name,
            figures.iops,
            figures.bytes_per_s / 1e6,
            figures.mean_us,
            figures.p50_us,
            figures.p99_us,
            figures.p999_us,
            figures.cpu_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1}")),
        );
    }
    let Some((raw, stores)) = measured.split_first() else { return };
    // fio measures the raw device as well.
    for store in stores.iter().filter(|store| store.name != "fio") {
        let (latency, rate) = (store.p50_us / raw.p50_us.max(0.001), store.iops / raw.iops.max(0.001));
        outln!("{:>24} / raw: {rate:.2} of the rate, {latency:.2} times the median latency", store.name);
        if let Some(during) = &store.during_checkpoints {
            let times = during.p999_ns / during.p50_ns.max(1.0);
            print_part("during checkpoints", during, &format!("p99.9 is {times:.1} times the median"));
        }
        for (stage, given) in store.stages.iter().filter(|_| stages) {
            print_part(stage, given, "");
        }
    }
}

fn print_part(name: &str, given: &Given, note: &str) {
    let us = |ns: f64| ns / 1e3;
    outln!(
        "{name:>24}: {:>8} ops {:>8.0} {:>8.0} {:>8.0} {:>8.0} {note}",
        given.ops,
        us(given.mean_ns),
        us(given.p50_ns),
        us(given.p99_ns),
        us(given.p999_ns),
    );
}

/// Processor time of this process in microseconds, its kernel workers included.
pub(crate) fn cpu_us() -> Option<u64> {
    /// Ticks are hundredths of a second on every Linux that we run on.
    const TICK_US: u64 = 10_000;
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the name, which may hold blanks.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) * TICK_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_of_rounds() {
        let round = |count: u64, ns: u64| Round {
            bytes: count * 4096,
            elapsed_ns: 1_000_000_000,
            cpu_us: Some(count),
            latencies_ns: (0..count).map(|nth| if nth == 0 { ns * 10 } else { ns }).collect(),
            ..Round::default()
        };
        let figures = summary("x", &[round(1000, 1000), round(3000, 3000), round(2000, 2000)]);
        assert!((figures.iops - 2000.0).abs() < 0.1 && (figures.p50_us - 2.0).abs() < 0.01, "{figures:?}");
        assert!((figures.cpu_us.expect("known") - 1.0).abs() < 0.01);
        assert!(cpu_us().is_some());
    }
}
