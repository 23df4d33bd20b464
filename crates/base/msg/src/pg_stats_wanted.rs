//! [`PgStatsWanted`]: our monitor tells our OSDs whether to report to it what they report to the manager. Ceph has nothing like it: its monitors
//! know of statistics only what the manager sums up.

use crate::body::body;

/// Our monitors decide by what OSDs say of PGs and stores. While a stock `ceph-mgr` is active they ask the OSDs for it themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PgStatsWanted {
    /// True while another than the monitor is the active manager.
    pub wanted: bool,
}
body!(PgStatsWanted = 0x7102, 1 / 1 [high]; wanted);

impl PgStatsWanted {
    /// What OSDs subscribe to. Ceph's monitors have nothing of this name, and say nothing.
    pub const TOPIC: &'static str = "nacre_pg_stats";
}
