//! Free space of devices that lies in short pieces, so that a large write becomes many.

use super::Facts;
use super::checks::of_osds;
use crate::report::{Finding, Rank, Report};
use nacre_types::OsdId;

/// Of a device's space: with less of it free, that it is full is said elsewhere, and the last pieces are short.
const FREE_SHARE_MIN: f64 = 0.1;
/// What of free space lies in pieces of 1 MiB or more.
const LONG_SHARE_MIN: f64 = 0.1;

pub(super) fn check(facts: &Facts, report: &mut Report) {
    let mut judged = Vec::<(OsdId, f64, f64)>::new();
    for (osd, dump) in of_osds(&facts.after.perf, "fragmentation", report) {
        let of = |name: &str| dump["device-free"][name].as_f64();
        let Some(((free, long), (runs, all))) = of("free_bytes")
            .zip(of("free_long_bytes"))
            .zip(of("free_runs").zip(dump["osd"]["stat_bytes"].as_f64()))
        else {
            continue;
        };
        if free <= all * FREE_SHARE_MIN {
            continue;
        }
        report.judged("fragmentation");
        let long_share = long / free;
        judged.push((osd, long_share, free / runs.max(1.0)));
    }
    for (osd, long_share, mean_bytes) in
        judged.iter().filter(|(_, long_share, _)| *long_share < LONG_SHARE_MIN)
    {
        let others = judged
            .iter()
            .filter(|(other, ..)| other != osd)
            .map(|(_, share, _)| format!("{:.0} %", share * 100.0));
        report.findings.push(Finding {
            check: "fragmentation",
            rank: Rank::Costly,
            weight: LONG_SHARE_MIN / long_share.max(0.001),
            subject: format!("free space of osd.{osd} lies in short pieces"),
            measured: format!(
                "{:.0} % of it lies in pieces of 1 MiB or more ({} on others), {:.0} KiB in the mean of all pieces; it is not full",
                long_share * 100.0,
                others.take(3).collect::<Vec<_>>().join(", "),
                mean_bytes / 1024.0
            ),
            cost: "large writes, and reads of what they wrote, take many requests to the device".to_owned(),
            advice: format!("ceph osd out {osd}, wait, ceph osd in {osd}: what comes back lies in long pieces; more free space keeps it so"),
            about: vec![format!("osd.{osd}")],
            ..Finding::default()
        });
    }
    if !report.judged.contains(&"fragmentation") {
        report.unknown("fragmentation", "no OSD tells how its free space lies, or all are nearly full");
    }
}
