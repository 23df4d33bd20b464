//! fio's own figures of the raw device, for people who trust no bench of ours.

use super::figures::{Given, Round};
use super::{Case, Engine};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub(crate) struct Fio {
    path: PathBuf,
}

impl Fio {
    /// On a file that is there. Locks do not keep fio away: nobody else writes while it does.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let version = Command::new("fio").arg("--version").output();
        version.context("fio is not installed; leave --fio out")?;
        Ok(Self { path: path.to_owned() })
    }
}

impl Engine for Fio {
    fn name(&self) -> &'static str {
        "fio"
    }

    fn round(&mut self, case: Case, length: Duration) -> Result<Round> {
        let kind = if case.is_read { "read" } else { "write" };
        let output = Command::new("fio")
            .args(["--name=raw", "--direct=1", "--sync=dsync", "--ioengine=io_uring", "--time_based"])
            .args(["--output-format=json", "--overwrite=1", "--randrepeat=0", "--norandommap"])
            .arg(format!("--filename={}", self.path.display()))
            .arg(format!("--rw=rand{kind}"))
            .arg(format!("--bs={}", case.bytes))
            .arg(format!("--iodepth={}", case.depth))
            .arg(format!("--runtime={}ms", length.as_millis()))
            .output()
            .context("running fio")?;
        if !output.status.success() {
            bail!("fio failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        let report: Value = serde_json::from_slice(&output.stdout).context("fio's report")?;
        let job = &report["jobs"][0][kind];
        let number = |value: &Value| value.as_f64().context("fio's report lacks a figure");
        let percentile = |name: &str| number(&job["clat_ns"]["percentile"][name]);
        let percent = number(&report["jobs"][0]["usr_cpu"])? + number(&report["jobs"][0]["sys_cpu"])?;
        let runtime_ms = job["runtime"].as_u64().context("fio's report lacks the time")?;
        let ops = job["total_ios"].as_u64().context("fio's report lacks the operations")?;
        Ok(Round {
            bytes: ops * case.bytes,
            elapsed_ns: runtime_ms * 1_000_000,
            cpu_us: Some((percent * runtime_ms as f64 * 10.0) as u64),
            latencies_ns: Vec::new(),
            given: Some(Given {
                ops,
                mean_ns: number(&job["clat_ns"]["mean"])?,
                p50_ns: percentile("50.000000")?,
                p99_ns: percentile("99.000000")?,
                p999_ns: percentile("99.900000")?,
            }),
            ..Round::default()
        })
    }
}
