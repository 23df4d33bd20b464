//! How the program was built that runs: an unoptimised one is several times slower, whatever else is done.

use super::Host;
use crate::report::{Finding, Rank, Report};

pub(crate) fn check(host: &Host, report: &mut Report) {
    report.judged("build");
    report.fact("this program", format!("nacre {}, {}", env!("CARGO_PKG_VERSION"), host.build));
    if host.build.is_optimised() {
        return;
    }
    report.findings.push(Finding {
        check: "build",
        rank: Rank::Serious,
        weight: 10.0,
        subject: "this program is no release build".to_owned(),
        measured: format!("compiled with {}", host.build),
        cost: "several times the processor time of a release build for each operation; no measurement of it says anything".to_owned(),
        advice: "run what `make bin` builds (target/release/nacre)".to_owned(),
        ..Finding::default()
    });
}
