//! Daemons that run on this machine: what of them is in swap.

use super::{Host, field};
use crate::report::{Finding, Rank, Report};

/// Names of processes that serve clients.
pub(super) const DAEMONS: [&str; 4] = ["nacre", "ceph-osd", "ceph-mon", "ceph-mgr"];
const SWAPPED_KIB_MAX: u64 = 1024;

pub(crate) fn check(host: &Host, report: &mut Report) {
    let mut count = 0;
    for pid in host.names("proc").into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        let Some(comm) =
            host.text(format!("proc/{pid}/comm")).filter(|comm| DAEMONS.contains(&comm.as_str()))
        else {
            continue;
        };
        let status = host.text(format!("proc/{pid}/status")).unwrap_or_default();
        let Some(swapped_kib) = field(&status, "VmSwap") else { continue };
        count += 1;
        if swapped_kib > SWAPPED_KIB_MAX {
            report.findings.push(Finding {
                check: "swap",
                rank: Rank::Costly,
                weight: swapped_kib as f64 / SWAPPED_KIB_MAX as f64,
                subject: format!("memory of {comm} (process {pid}) is in swap"),
                measured: format!("{:.0} MiB of it (VmSwap)", swapped_kib as f64 / 1024.0),
                cost: "what it needs of that is read from the swap's device first, while its clients wait"
                    .to_owned(),
                advice:
                    "no swap on machines with OSDs (swapoff -a), or lower the OSDs' memory (--osd-memory-target)"
                        .to_owned(),
                ..Finding::default()
            });
        }
    }
    if count == 0 {
        return report.unknown("swap", "no daemon of a cluster runs here, or we may not see it");
    }
    report.judged("swap");
}
