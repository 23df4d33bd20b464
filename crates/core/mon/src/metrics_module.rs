//! The manager's module `prometheus` as our own manager has it: its name and options, which are those of Ceph's, and where it listens.

use crate::own_module::{self, KIND_INT, KIND_STR, option};
use nacre_mgr::metrics::PORT;
use nacre_msg::ModuleInfo;
use std::net::IpAddr;

/// The module's name, which is also that of its service in the managers' map.
pub(crate) const MODULE: &str = "prometheus";
/// What its options' names begin with.
pub(crate) const OPTIONS: &str = "mgr/prometheus/";
pub(crate) const SERVER_ADDR: &str = "server_addr";
pub(crate) const SERVER_PORT: &str = "server_port";

/// Where the metrics are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Listening {
    /// They are switched off, or it is being tried.
    #[default]
    Nowhere,
    /// At this address, as a URL.
    At(String),
    /// At this address, but not as the options want it, for this reason.
    Otherwise(String, String),
    /// Not where the options want it, for this reason.
    Failed(String),
}

/// The module as our own manager has it.
pub(crate) fn module() -> ModuleInfo {
    let mut port = option(SERVER_PORT, KIND_INT, &PORT.to_string(), "Port at which metrics are shown");
    (port.min, port.max) = ("1".to_owned(), u16::MAX.to_string());
    let addr = option(
        SERVER_ADDR,
        KIND_STR,
        "",
        "Address at which metrics are shown; the monitor's own by default, :: for all",
    );
    own_module::module(MODULE, [addr, port])
}

/// What is wrong with a value of one of the module's options that its kind does not tell.
pub(crate) fn check_option(name: &str, value: &str) -> Result<(), String> {
    let is_addr = name.strip_prefix(OPTIONS).is_some_and(|rest| rest.ends_with(SERVER_ADDR));
    if is_addr && !value.is_empty() && value.parse::<IpAddr>().is_err() {
        return Err(format!("{SERVER_ADDR} is an IP address such as 10.0.0.1 or ::, not '{value}'"));
    }
    Ok(())
}
