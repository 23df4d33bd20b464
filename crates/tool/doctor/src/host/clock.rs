//! The calendar clock: monitors and tickets depend on it.

use super::Host;
use crate::report::{Finding, Rank, Report};

/// Monitors warn when their clocks are further apart: the default of `mon_clock_drift_allowed`.
const ERROR_US_MAX: u64 = 50_000;
const US_PER_S: f64 = 1e6;

pub(crate) fn check(host: &Host, report: &mut Report) {
    let state = match &host.clock {
        Ok(state) => *state,
        Err(why) => return report.unknown("clock", why.clone()),
    };
    report.judged("clock");
    report.fact(
        "clock",
        format!(
            "{}, wrong by at most {:.6} s",
            if state.is_synchronised { "kept" } else { "not kept" },
            state.error_us_max as f64 / US_PER_S
        ),
    );
    let (subject, measured, weight) = if !state.is_synchronised {
        let measured = "the kernel says that nothing keeps it (adjtimex: unsynchronised)".to_owned();
        ("nothing keeps this machine's clock", measured, 2.0)
    } else if state.error_us_max > ERROR_US_MAX {
        let error_s = state.error_us_max as f64 / US_PER_S;
        let measured = format!(
            "it may be wrong by {error_s:.3} s, {:.3} s are still to be corrected",
            state.offset_us as f64 / US_PER_S
        );
        ("this machine's clock is kept badly", measured, error_s / (ERROR_US_MAX as f64 / US_PER_S))
    } else {
        return;
    };
    report.findings.push(Finding {
        check: "clock",
        rank: Rank::Hint,
        weight,
        subject: subject.to_owned(),
        measured,
        cost: "nothing while clocks agree; when they are far apart, tickets are refused and monitors warn"
            .to_owned(),
        advice: "run chrony on every machine; `ceph time-sync-status` says how far apart monitors are"
            .to_owned(),
        ..Finding::default()
    });
}
