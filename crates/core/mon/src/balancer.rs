//! The manager's module `balancer` as our own manager has it: its options, which are those of Ceph's, and what it did last. What it does
//! is in `balancing`.

use crate::own_module::{self, KIND_BOOL, KIND_STR, KIND_UINT};
use nacre_mgr::balancer::Planner;
use nacre_msg::ModuleInfo;
use nacre_types::{Stamp, UTime};

/// Whether it runs: `true` or `false`.
pub(crate) const ACTIVE: &str = "mgr/balancer/active";
/// How: `upmap` or `none`.
pub(crate) const MODE: &str = "mgr/balancer/mode";
/// Seconds between two plans.
pub(crate) const SLEEP_INTERVAL: &str = "mgr/balancer/sleep_interval";
/// Ceph's default of it.
pub(crate) const SLEEP_INTERVAL_S: f64 = 60.0;
/// What it did last. Not durable: the next leader looks by itself.
#[derive(Debug, Default)]
pub struct Balancer {
    /// When it looks next.
    pub(crate) next: Option<Stamp>,
    /// When it looked last.
    pub(crate) started: Option<UTime>,
    /// What came of it, as a sentence.
    pub(crate) result: String,
    /// It looked at all PGs, and nothing was worth moving.
    pub(crate) is_even: bool,
    /// The plan that is being made, a slice each second.
    pub(crate) planner: Option<Planner>,
}

/// The module as our own manager has it.
pub(crate) fn module() -> ModuleInfo {
    let option = |path: &str, kind, default: &str, description: &str| {
        own_module::option(path.rsplit('/').next().unwrap_or_default(), kind, default, description)
    };
    let mut mode = option(MODE, KIND_STR, "upmap", "How copies of PGs are moved");
    mode.enum_allowed = ["none", "upmap"].map(str::to_owned).into();
    let mut sleep = option(SLEEP_INTERVAL, KIND_UINT, "60", "Seconds between two looks");
    (sleep.min, sleep.max) = ("1".to_owned(), "86400".to_owned());
    let active = option(ACTIVE, KIND_BOOL, "true", "Whether copies of PGs are moved");
    own_module::module("balancer", [active, mode, crate::primaries::option(), sleep])
}
