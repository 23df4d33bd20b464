//! The sign of life that the monitor gets every few minutes, and what it says of the PGs.

use super::{ControlCx, OsdControl};
use nacre_msg::OsdBeacon;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_types::UTime;

impl OsdControl {
    pub(super) fn send_beacon(&mut self, cx: &ControlCx<'_>) {
        let epoch = cx.maps.newest().epoch;
        let interval = cx.options.seconds("osd_beacon_report_interval");
        self.beacon_at = cx.now + interval;
        // Maps since then are needed by whoever has to learn what happened to these PGs. One that is clean was so in the
        // map under which it said so.
        let pgs = || self.reports.values().flat_map(|report| &report.pgs);
        let clean = |stat: &PgStat| match stat.state & pg_state::CLEAN {
            0 => stat.last_epoch_clean,
            _ => stat.reported_epoch,
        };
        let oldest = pgs().map(|(_, stat)| clean(stat)).min();
        let beacon = OsdBeacon {
            version: epoch.into(),
            pgs: pgs().map(|(pg, _)| *pg).collect(),
            min_last_epoch_clean: oldest.unwrap_or(epoch),
            last_purged_snaps_scrub: UTime::ZERO,
            interval_s: u32::try_from(interval.as_secs()).unwrap_or(u32::MAX),
        };
        self.tell_mon(beacon.into());
    }
}
