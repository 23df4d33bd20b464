//! The manager's module `devicehealth` as our own manager has it: its options, which are those of Ceph's as far as they have an effect.

use crate::own_module::{self, KIND_BOOL, KIND_UINT, option};
use nacre_msg::ModuleInfo;

/// Whether devices are asked, and health speaks of what they say.
pub(crate) const ENABLE_MONITORING: &str = "mgr/devicehealth/enable_monitoring";
/// Seconds between two times that a device is asked.
pub(crate) const SCRAPE_FREQUENCY: &str = "mgr/devicehealth/scrape_frequency";
/// Seconds for which samples are kept.
pub(crate) const RETENTION_PERIOD: &str = "mgr/devicehealth/retention_period";
/// Health speaks of devices that may fail within so many seconds.
pub(crate) const WARN_THRESHOLD: &str = "mgr/devicehealth/warn_threshold";

/// Ceph's defaults: a day, half a year, twelve weeks.
pub(crate) const SCRAPE_FREQUENCY_S: u64 = 86_400;
pub(crate) const RETENTION_PERIOD_S: u64 = 180 * 86_400;
pub(crate) const WARN_THRESHOLD_S: u64 = 12 * 7 * 86_400;
/// A device is asked no oftener: some stand still while they answer.
pub(crate) const SCRAPE_FREQUENCY_S_MIN: u64 = 10;

const NO_HEALING: &str =
    "no OSD is marked out because its device may fail; use 'ceph osd out ID' when DEVICE_HEALTH names it";

/// Options of Ceph's module that nothing here reads, and why.
const REFUSED: &[(&str, &str)] = &[
    ("mgr/devicehealth/self_heal", NO_HEALING),
    ("mgr/devicehealth/mark_out_threshold", NO_HEALING),
    ("mgr/devicehealth/pool_name", "samples are kept by the monitors, not in a pool"),
    ("mgr/devicehealth/sleep_interval", "what devices said is looked at each second"),
];

/// The module as our own manager has it.
pub(crate) fn module() -> ModuleInfo {
    let name = |path: &'static str| path.rsplit('/').next().unwrap_or_default();
    let seconds = |path, default: u64, min: u64, description: &str| {
        let mut option = option(name(path), KIND_UINT, &default.to_string(), description);
        (option.min, option.max) = (min.to_string(), u32::MAX.to_string());
        option
    };
    let enable = option(name(ENABLE_MONITORING), KIND_BOOL, "true", "Whether devices are asked how they are");
    let frequency = seconds(
        SCRAPE_FREQUENCY,
        SCRAPE_FREQUENCY_S,
        SCRAPE_FREQUENCY_S_MIN,
        "Seconds between two times that a device is asked",
    );
    let retention = seconds(RETENTION_PERIOD, RETENTION_PERIOD_S, 0, "Seconds for which samples are kept");
    let warn = seconds(
        WARN_THRESHOLD,
        WARN_THRESHOLD_S,
        0,
        "Health speaks of devices whose life expectancy ends within so many seconds",
    );
    own_module::module("devicehealth", [enable, frequency, retention, warn])
}

/// Why an option of Ceph's module has no effect here, if it is one that has none.
pub(crate) fn refused(path: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(name, _)| *name == path).map(|(_, why)| *why)
}
