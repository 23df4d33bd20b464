//! What the active stock manager finds wrong, and whether it serves.

use super::{Check, Severity};
use crate::metrics_module::{self, Listening};
use crate::state::State;
use nacre_msg::HealthCheck;
use std::time::Duration;

/// The active manager may take so long to load its modules; Ceph `mon_mgr_inactive_grace`.
const STARTS_FOR_MAX: Duration = Duration::from_secs(60);

/// Health as the active stock manager sees it, but for `own_codes`, which we judge ourselves; and whether it serves.
pub(crate) fn checks(state: &State, own_codes: &[&str]) -> Vec<Check> {
    let reported = &state.mgr.reported().checks.checks;
    let foreign = reported.iter().filter(|(code, _)| !own_codes.contains(&code.as_str()));
    foreign
        .map(|(code, check)| check_of(code, check))
        .chain(not_available(state))
        .chain(metrics_failed(state))
        .collect()
}

fn check_of(code: &str, check: &HealthCheck) -> Check {
    let severity = match check.severity {
        0 => Severity::Error,
        1 => Severity::Warn,
        _ => Severity::Ok,
    };
    Check::new(code.to_owned(), severity, check.summary.clone(), check.detail.clone()).counting(check.count)
}

/// Ceph's code for a module that has failed. It is an error there; here nothing but the metrics is missing.
fn metrics_failed(state: &State) -> Option<Check> {
    let Listening::Failed(why) = &state.mgr.metrics else { return None };
    let lines = vec![
        why.clone(),
        "choose another with 'ceph config set mgr mgr/prometheus/server_port' or 'server_addr', or do without: 'ceph mgr module disable \
         prometheus'"
            .to_owned(),
    ];
    let summary = format!("Module '{}' has failed: {why}", metrics_module::MODULE);
    let is_own = state.mgr.own_is_active();
    is_own.then(|| Check::new("MGR_MODULE_ERROR", Severity::Warn, summary, lines).counting(1))
}

/// Long enough that it should serve.
fn not_available(state: &State) -> Option<Check> {
    let map = state.mgr.map();
    let starts_for = state.mgr.starts_for;
    (!map.available && starts_for >= STARTS_FOR_MAX).then(|| {
        let summary = "no active mgr";
        let line = format!(
            "mgr.{} was made the active manager {} s ago and does not serve yet: see its log, or choose another with 'ceph mgr fail'",
            map.active_name,
            starts_for.as_secs()
        );
        Check::new("MGR_DOWN", Severity::Warn, summary, vec![line])
    })
}
