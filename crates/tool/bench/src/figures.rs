//! [`Figures`]: what one repetition of a cell gave, and its line of JSON.

use crate::latency::Latencies;
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A figure of one repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    Iops,
    BytesPerS,
    MeanUs,
    P50Us,
    P95Us,
    P99Us,
    P999Us,
    MaxUs,
    FlushMeanUs,
    ServerCpuUs,
    ServerSystemShare,
    ServerSwitches,
    ServerRssBytes,
    DeviceBytes,
    ClientCpuUs,
    ClientSwitches,
    MachineCpuUs,
}

impl Metric {
    pub(crate) const ALL: [Self; 17] = [
        Self::Iops,
        Self::BytesPerS,
        Self::MeanUs,
        Self::P50Us,
        Self::P95Us,
        Self::P99Us,
        Self::P999Us,
        Self::MaxUs,
        Self::FlushMeanUs,
        Self::ServerCpuUs,
        Self::ServerSystemShare,
        Self::ServerSwitches,
        Self::ServerRssBytes,
        Self::DeviceBytes,
        Self::ClientCpuUs,
        Self::ClientSwitches,
        Self::MachineCpuUs,
    ];

    /// Its name in JSON and in options.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::BytesPerS => "bytes_per_s",
            Self::MeanUs => "mean_us",
            Self::P50Us => "p50_us",
            Self::P95Us => "p95_us",
            Self::P99Us => "p99_us",
            Self::P999Us => "p999_us",
            Self::MaxUs => "max_us",
            Self::FlushMeanUs => "flush_mean_us",
            Self::ServerCpuUs => "server_cpu_us_per_io",
            Self::ServerSystemShare => "server_system_share",
            Self::ServerSwitches => "server_context_switches_per_io",
            Self::ServerRssBytes => "server_rss_bytes",
            Self::DeviceBytes => "device_write_bytes_per_io",
            Self::ClientCpuUs => "client_cpu_us_per_io",
            Self::ClientSwitches => "client_context_switches_per_io",
            Self::MachineCpuUs => "machine_cpu_us_per_io",
        }
    }

    /// True when more of it is better.
    pub(crate) fn is_gain(self) -> bool {
        matches!(self, Self::Iops | Self::BytesPerS)
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }
}

/// What one repetition of a cell gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) values: BTreeMap<Metric, f64>,
    /// Operations measured, warm-up not counted.
    pub(crate) ios: u64,
    /// How long was measured.
    pub(crate) seconds: f64,
    /// Operations by power of two of nanoseconds.
    pub(crate) histogram: BTreeMap<u32, u64>,
}

impl Figures {
    /// Figures of `latencies.count()` operations in `seconds`.
    pub(crate) fn of(latencies: &Latencies, bytes: u64, seconds: f64) -> Self {
        let us = |share: f64| latencies.percentile_ns(share) / 1e3;
        let ios = latencies.count();
        let rate = ios as f64 / seconds.max(1e-9);
        let values = BTreeMap::from([
            (Metric::Iops, rate),
            (Metric::BytesPerS, rate * bytes as f64),
            (Metric::MeanUs, latencies.mean_ns() / 1e3),
            (Metric::P50Us, us(0.5)),
            (Metric::P95Us, us(0.95)),
            (Metric::P99Us, us(0.99)),
            (Metric::P999Us, us(0.999)),
            (Metric::MaxUs, latencies.max_ns() as f64 / 1e3),
        ]);
        Self { values, ios, seconds, histogram: latencies.powers_of_two() }
    }

    pub(crate) fn get(&self, metric: Metric) -> Option<f64> {
        self.values.get(&metric).copied()
    }

    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("ios".to_owned(), json!(self.ios));
        map.insert("seconds".to_owned(), rounded(self.seconds));
        for (metric, value) in &self.values {
            map.insert(metric.name().to_owned(), rounded(*value));
        }
        let powers = self.histogram.iter().map(|(power, count)| (power.to_string(), json!(count)));
        map.insert("histogram_log2_ns".to_owned(), Value::Object(powers.collect()));
        map
    }

    pub(crate) fn from_json(value: &Value) -> Result<Self> {
        let number = |name: &str| value[name].as_f64();
        let values = Metric::ALL.into_iter().filter_map(|metric| Some((metric, number(metric.name())?)));
        let powers = value["histogram_log2_ns"].as_object().into_iter().flatten();
        Ok(Self {
            values: values.collect(),
            ios: value["ios"].as_u64().context("no `ios`")?,
            seconds: number("seconds").context("no `seconds`")?,
            histogram: powers
                .filter_map(|(power, count)| Some((power.parse().ok()?, count.as_u64()?)))
                .collect(),
        })
    }
}

/// To six digits, which is more than any measurement has.
fn rounded(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return json!(0.0);
    }
    let digits = 5 - value.abs().log10().floor() as i32;
    let scale = 10_f64.powi(digits.max(0));
    json!((value * scale).round() / scale)
}

/// The value in the middle; of two in the middle, their mean. `None` of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().saturating_sub(1) / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_as_it_was() {
        let mut latencies = Latencies::default();
        (0..1000).for_each(|nth| latencies.add(100_000 + nth * 100));
        let mut figures = Figures::of(&latencies, 4096, 2.0);
        figures.values.insert(Metric::ServerCpuUs, 12.25);
        let json = Value::Object(figures.to_json());
        let back = Figures::from_json(&json).expect("our own line");
        assert_eq!((back.ios, back.histogram.clone()), (1000, figures.histogram.clone()));
        for (metric, value) in &figures.values {
            let found = back.get(*metric).expect("each figure");
            assert!((found / value - 1.0).abs() < 1e-5, "{metric:?} {found} {value}");
        }
        assert!(Figures::from_json(&json!({})).is_err());
        assert_eq!(Metric::parse("p99_us"), Some(Metric::P99Us));
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
