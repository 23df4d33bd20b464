//! What the active stock manager finds wrong, and whether it serves.

use super::{Check, Severity};
use crate::dashboard_module;
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
        .chain(modules_failed(state))
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

/// Ceph's code for modules that have failed. It is an error there; here nothing but metrics or the web page is missing.
fn modules_failed(state: &State) -> Option<Check> {
    let advice = [
        (
            metrics_module::MODULE,
            &state.mgr.metrics,
            "choose another with 'ceph config set mgr mgr/prometheus/server_port' or 'server_addr', or do without: 'ceph mgr module disable \
             prometheus'",
        ),
        (
            dashboard_module::MODULE,
            &state.mgr.page,
            "options of the web page begin with mgr/dashboard/; to do without it: 'ceph config set mgr mgr/dashboard/server_port 0', and \
             ssl_server_port with TLS",
        ),
    ];
    let failed: Vec<_> = advice
        .into_iter()
        .filter_map(|(module, listening, advice)| match listening {
            Listening::Failed(why) | Listening::Otherwise(_, why) => Some((module, why, advice)),
            Listening::At(_) | Listening::Nowhere => None,
        })
        .collect();
    let (module, why, _) = failed.first().filter(|_| state.mgr.own_is_active())?;
    let summary = match failed.len() {
        1 => format!("Module '{module}' has failed: {why}"),
        count => format!("{count} mgr modules have failed"),
    };
    let lines = failed
        .iter()
        .flat_map(|(module, why, advice)| [format!("Module '{module}': {why}"), (*advice).to_owned()]);
    Some(Check::new("MGR_MODULE_ERROR", Severity::Warn, summary, lines.collect()).counting(failed.len()))
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
