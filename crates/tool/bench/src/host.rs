//! The machine and the programs that a run was made with, for its results.

use serde_json::{Value, json};
use std::process::Command;

/// The machine and the programs of the client's side.
pub(crate) fn describe() -> Value {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let line = |path: &str| text(path).trim().to_owned();
    let cpuinfo = text("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let meminfo = text("/proc/meminfo");
    let memory = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    json!({
        "name": line("/proc/sys/kernel/hostname"),
        "kernel": line("/proc/sys/kernel/osrelease"),
        "processor": model.map(|(_, model)| model.trim().to_owned()),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "governor": line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory": memory.map(|memory| memory.trim().to_owned()),
        "load_before": text("/proc/loadavg").split(' ').next().unwrap_or_default().parse::<f64>().ok(),
        "fio": first_line("fio", "--version"),
        "librbd": first_line("ceph", "--version"),
        "nacre_bench": env!("CARGO_PKG_VERSION"),
        "nacre_bench_build": nacre_types::build_kind::BuildKind::own().to_string(),
    })
}

fn first_line(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_can_be_described() {
        let host = super::describe();
        assert!(host["processors"].as_u64().is_some_and(|count| count > 0));
        assert!(host["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()));
    }
}
