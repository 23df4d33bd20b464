//! What the active stock manager finds wrong, and whether it serves.

use super::{Check, Severity};
use crate::state::State;
use nacre_msg::HealthCheck;
use std::time::Duration;

/// The active manager may take so long to load its modules; Ceph `mon_mgr_inactive_grace`.
const STARTS_FOR_MAX: Duration = Duration::from_secs(60);

/// Health as the active stock manager sees it, but for `own_codes`, which we judge ourselves; and whether it serves.
pub(crate) fn checks(state: &State, own_codes: &[&str]) -> Vec<Check> {
    let reported = &state.mgr.reported().checks.checks;
    let foreign = reported.iter().filter(|(code, _)| !own_codes.contains(&code.as_str()));
    foreign.map(|(code, check)| check_of(code, check)).chain(not_available(state)).collect()
}

fn check_of(code: &str, check: &HealthCheck) -> Check {
    let severity = match check.severity {
        0 => Severity::Error,
        1 => Severity::Warn,
        _ => Severity::Ok,
    };
    Check::new(code.to_owned(), severity, check.summary.clone(), check.detail.clone()).counting(check.count)
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
