//! The manager's module `pg_autoscaler` as our own manager has it: its options, which are those of Ceph's, and what it was refused. What it
//! does is in `autoscaling`.

use crate::own_module::{self, KIND_BOOL, KIND_UINT};
use nacre_msg::ModuleInfo;
use nacre_types::{PoolId, Stamp};
use std::collections::BTreeMap;

/// Seconds between two looks.
pub(crate) const SLEEP_INTERVAL: &str = "mgr/pg_autoscaler/sleep_interval";
/// Ceph's default of it.
pub(crate) const SLEEP_INTERVAL_S: f64 = 60.0;
/// Nothing is changed, and new pools have the mode `off`: `true` or `false`.
pub(crate) const NOAUTOSCALE: &str = "mgr/pg_autoscaler/noautoscale";

/// What it remembers. Not durable: the next leader looks by itself.
#[derive(Debug, Default)]
pub struct Autoscaler {
    /// When it looks next.
    pub(crate) next: Option<Stamp>,
    /// Why pools stay as they are that it would change. The cluster log has said so.
    pub(crate) refused: BTreeMap<PoolId, String>,
}

/// The module as our own manager has it.
pub(crate) fn module() -> ModuleInfo {
    let option = |path: &str, kind, default: &str, description: &str| {
        own_module::option(path.rsplit('/').next().unwrap_or_default(), kind, default, description)
    };
    let mut sleep = option(SLEEP_INTERVAL, KIND_UINT, "60", "Seconds between two looks");
    (sleep.min, sleep.max) = ("1".to_owned(), "86400".to_owned());
    let none = option(NOAUTOSCALE, KIND_BOOL, "false", "Whether all pools are left alone");
    own_module::module("pg_autoscaler", [sleep, none])
}
