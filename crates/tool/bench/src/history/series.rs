//! [`Series`]: one figure of one cell, run after run, of runs that can be compared.

use crate::figures::{Metric, median};
use crate::results::Results;
use serde_json::Value;
use std::collections::BTreeMap;

/// The figure of one run: the median over its repetitions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    /// Calendar, milliseconds since 1970.
    pub(super) began_ms: u64,
    pub(super) value: f64,
    /// What ran: the program's checksum, or versions of daemons.
    pub(super) program: String,
}

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) cell: String,
    /// What else the runs have in common: machine, cluster and load.
    pub(super) setting: String,
    pub(super) metric: Metric,
    /// In the order of time.
    pub(super) points: Vec<Point>,
}

/// All series of these figures.
pub(super) fn of(runs: &[Results], metrics: &[Metric]) -> Vec<Series> {
    let mut all: BTreeMap<(String, String, Metric), Vec<Point>> = BTreeMap::new();
    for run in runs {
        let header = run.headers.first().unwrap_or(&Value::Null);
        for side in run.sides() {
            let build = &header["sides"][side];
            for cell in run.cells() {
                let rows = run.of(side, cell);
                let Some(first) = rows.iter().min_by_key(|row| row.began_ms) else { continue };
                let setting = setting(header, build, &first.driver);
                for metric in metrics {
                    let values = rows.iter().filter_map(|row| row.figures.get(*metric));
                    let Some(value) = median(values).filter(|value| *value > 0.0) else { continue };
                    let point = Point { began_ms: first.began_ms, value, program: program(build) };
                    all.entry((cell.to_owned(), setting.clone(), *metric)).or_default().push(point);
                }
            }
        }
    }
    let sorted = |((cell, setting, metric), mut points): (_, Vec<Point>)| {
        points.sort_by_key(|point| point.began_ms);
        Series { cell, setting, metric, points }
    };
    all.into_iter().map(sorted).collect()
}

/// Runs differ in nothing that is known but the program, or they are of different series.
fn setting(header: &Value, build: &Value, driver: &str) -> String {
    let (host, load) = (&header["host"], &header["load"]);
    let mut words = vec![driver.to_owned()];
    let mut add = |name: &str, value: &Value| match value {
        Value::Null => (),
        Value::Array(values) if values.is_empty() => (),
        Value::String(text) if text.is_empty() => (),
        Value::String(text) => words.push(format!("{name} {text}")),
        other => words.push(format!("{name} {other}")),
    };
    add("host", &host["name"]);
    for name in ["processor", "processors", "memory"] {
        add(name, &host[name]);
    }
    for name in ["osds", "pgs", "shape", "kept", "messenger", "osd_options", "options"] {
        add(name, &build[name]);
    }
    for name in ["size_mib", "seconds"] {
        add(name, &load[name]);
    }
    words.join(", ")
}

fn program(build: &Value) -> String {
    if let Some(sum) = build["binary_crc32c"].as_str() {
        let binary = build["binary"].as_str().unwrap_or_default();
        return format!("{binary} ({sum})");
    }
    let versions = build["versions"].as_object().into_iter().flatten().map(|(version, _)| version.as_str());
    versions.collect::<Vec<_>>().join(", ")
}
