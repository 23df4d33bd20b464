//! [`Planted`]: mistakes that are built in on purpose, which the simulation must find (`crates/test/sim/tests/all/mon_planted.rs`).

/// A mistake of a monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planted {
    /// None: how monitors run.
    #[default]
    Nothing,
    /// The log is written without waiting for the device: what is acknowledged may be gone after a loss of power.
    AcknowledgedBeforeWrite,
    /// Each front hands out the same global ids, whatever it was granted.
    IdsReused,
}
