//! A line of JSON per phase.

use crate::args::{Args, Phase};
use crate::meter::Spent;
use serde_json::{Map, Value};
use std::io::Write;
use std::time::Duration;

/// What one phase has to say.
pub(crate) struct Line(Map<String, Value>);

impl Line {
    pub(crate) fn new(args: &Args, phase: Phase) -> Self {
        let mut line = Self(Map::new());
        line.put("engine", args.engine.name());
        line.put("objects", args.objects);
        line.put("phase", phase.name());
        line.put("memory_mib", args.memory_bytes >> 20);
        line.put("load_average", load_average());
        line
    }

    pub(crate) fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// A number with three decimals.
    pub(crate) fn number(&mut self, name: &str, value: f64) {
        self.put(name, (value * 1000.0).round() / 1000.0);
    }

    /// What was spent on so many things.
    pub(crate) fn spent(&mut self, spent: &Spent, things: u64) {
        self.number("wall_s", spent.wall.as_secs_f64());
        self.number("cpu_s", spent.cpu.as_secs_f64());
        self.number("cpu_us_each", spent.cpu.as_secs_f64() * 1e6 / things.max(1) as f64);
        self.number("written_mib", mib(spent.written_bytes));
        self.number("device_written_mib", mib(spent.device_bytes));
        self.number("read_mib", mib(spent.read_bytes));
        self.number("file_reads_each", spent.reads as f64 / things.max(1) as f64);
    }

    /// Median, tail and greatest, in the given unit.
    pub(crate) fn percentiles(&mut self, what: &str, times: &mut [Duration], unit: Duration) {
        times.sort_unstable();
        let unit = unit.as_secs_f64();
        for (name, permille) in [("p50", 500), ("p99", 990), ("p999", 999), ("max", 1000)] {
            let at = (times.len() * permille / 1000).min(times.len().saturating_sub(1));
            let time = times.get(at).copied().unwrap_or_default();
            self.number(&format!("{what}_{name}"), time.as_secs_f64() / unit);
        }
    }

    pub(crate) fn print(self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", Value::Object(self.0))?;
        out.flush()
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Of the last minute: who else used the machine.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
