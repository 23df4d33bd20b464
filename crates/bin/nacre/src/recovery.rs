//! `nacre recovery target` and `status`: what clients may feel of recovery, and when it will have ended.

use crate::args::{RecoveryCommand, RecoveryTarget};
use crate::ask::Admin;
use crate::files::Folder;
use anyhow::{Context, Result};
use nacre_env::outln;
use serde_json::Value;

const TARGET: &str = "nacre_recovery_client_latency_target_ms";
const MULTIPLE: &str = "nacre_recovery_client_latency_calm_multiple";
/// Of [`TARGET`]: the multiple is all there is.
const MULTIPLE_ALONE: f64 = 0.01;

/// Carries one out.
pub(crate) fn run(command: &RecoveryCommand) -> Result<()> {
    match command {
        RecoveryCommand::Target { target: Some(target), dir } => {
            set(&mut Admin::new(&Folder::open(dir)?)?, *target)
        }
        RecoveryCommand::Target { target: None, dir } => {
            outln!("{}", target(&mut Admin::new(&Folder::open(dir)?)?)?);
            Ok(())
        }
        RecoveryCommand::Status { dir } => status(&mut Admin::new(&Folder::open(dir)?)?),
    }
}

/// The values of both options, as text.
fn values(target: RecoveryTarget) -> (f64, f64) {
    match target {
        RecoveryTarget::Off => (0.0, 2.0),
        RecoveryTarget::Millis(millis) => (millis, 1.0),
        RecoveryTarget::Multiple(multiple) => (MULTIPLE_ALONE, multiple),
    }
}

/// What people call these values.
fn text((target, multiple): (f64, f64)) -> String {
    match (target, multiple) {
        (0.0, _) => "off: recovery takes all there is".to_owned(),
        (target, multiple) if target < 0.1 => {
            format!("p99={multiple}x: {multiple} times what clients' writes take while nothing is recovered")
        }
        (target, 1.0) => format!("p99={target}ms"),
        (target, multiple) => format!(
            "p99={target}ms, or {multiple} times what clients' writes take while nothing is recovered, if that is more"
        ),
    }
}

fn set(admin: &mut Admin, target: RecoveryTarget) -> Result<()> {
    let (millis, multiple) = values(target);
    for (name, value) in [(MULTIPLE, multiple), (TARGET, millis)] {
        admin.ask(&format!(r#"{{"prefix":"config set","who":"osd","name":"{name}","value":"{value}"}}"#))?;
    }
    outln!("{}", text((millis, multiple)));
    Ok(())
}

/// What a new OSD would keep to.
fn target(admin: &mut Admin) -> Result<String> {
    let mut value = |name: &str| -> Result<f64> {
        let answer = admin.ask(&format!(r#"{{"prefix":"config get","who":"osd","key":"{name}"}}"#))?;
        let text = String::from_utf8_lossy(&answer.data).trim().to_owned();
        text.parse().with_context(|| format!("{name} is {text:?}"))
    };
    Ok(text((value(TARGET)?, value(MULTIPLE)?)))
}

fn status(admin: &mut Admin) -> Result<()> {
    outln!("target: {}", target(admin)?);
    let answer = admin.ask(r#"{"prefix":"progress json","format":"json"}"#)?;
    let progress: Value = serde_json::from_slice(&answer.data).context("the answer to progress json")?;
    let events = progress["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    if events.is_empty() {
        outln!("nothing is being recovered");
    }
    for event in events {
        let share = event["progress"].as_f64().unwrap_or_default() * 100.0;
        let left = event["time_remaining"].as_u64().map_or_else(
            || "nobody can tell yet how long it will take".to_owned(),
            |seconds| format!("{seconds} s to go"),
        );
        outln!("{share:.1} % is done {}: {left}", event["duration"].as_str().unwrap_or_default());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_people_write_them() {
        for (word, said) in [
            ("p99=5ms", "p99=5ms"),
            ("p99=0.5ms", "p99=0.5ms"),
            ("p99=1s", "p99=1000ms"),
            ("off", "off: recovery takes all there is"),
            ("p99=3x", "p99=3x: 3 times what clients' writes take while nothing is recovered"),
        ] {
            let target: RecoveryTarget = word.parse().expect(word);
            assert_eq!(text(values(target)), said);
        }
        for word in [
            "",
            "p99",
            "p99=5",
            "p99=-1ms",
            "p99=0ms",
            "p99=0.05ms",
            "p99=0.5x",
            "p99=NaNms",
            "p50=5ms",
            "p99=infx",
            "p99=2000x",
        ] {
            assert!(word.parse::<RecoveryTarget>().is_err(), "{word:?}");
        }
        assert!(text((10.0, 2.0)).starts_with("p99=10ms, or 2 times"));
    }
}
