//! [`Config`]: where the monitors are and how patient we are with them.

use nacre_types::EntityAddr;
use std::time::Duration;

/// Settings of a [`crate::MonClient`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Monitors to begin with; the first monitor map replaces them.
    pub addrs: Vec<EntityAddr>,
    /// Our host's name, which the monitor shows for its sessions.
    pub hostname: String,
    /// Keep the secrets of our own service: daemons that others connect to.
    pub wants_rotating_keys: bool,
    /// How long dialling and authentication may take before the next monitor is tried; grows eightfold at
    /// most (`mon_client_hunt_interval`).
    pub hunt_interval: Duration,
    /// First pause after all monitors have failed; doubles with each round.
    pub retry_delay_min: Duration,
    /// Longest such pause.
    pub retry_delay_max: Duration,
    /// Time between keepalives (`mon_client_ping_interval`).
    pub keepalive_interval: Duration,
    /// Silence after which a monitor counts as lost (`mon_client_ping_timeout`).
    pub keepalive_timeout: Duration,
}

impl Config {
    /// Ceph's defaults for the monitors at `addrs`.
    #[must_use]
    pub fn new(addrs: Vec<EntityAddr>) -> Self {
        Self {
            addrs,
            hostname: String::new(),
            wants_rotating_keys: false,
            hunt_interval: Duration::from_secs(3),
            retry_delay_min: Duration::from_millis(100),
            retry_delay_max: Duration::from_secs(15),
            keepalive_interval: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(30),
        }
    }
}
