//! `ceph tell mgr dump_osd_network`: how long pings between OSDs take, of all of them.

use super::call::{Answer, Call, refuse};
use super::table::{Command, command};
use crate::health::ping_checks::{measured, slow_us};
use nacre_mgr::network_ping_times;
use nacre_types::{Errno, seconds};

pub(super) const COMMANDS: &[Command] = &[command(
    "dump_osd_network name=value,type=CephInt,req=false",
    "mgr",
    "r",
    "Pings between OSDs that take VALUE milliseconds or more, or as long as health warns of",
    dump,
)];

fn dump(call: &mut Call<'_>) -> Answer {
    let threshold_us = match call.args.int("value") {
        Some(ms) => u64::try_from(ms)
            .map_err(|_| refuse(Errno::EINVAL, "the threshold is no number of milliseconds"))?
            .saturating_mul(1000),
        None => slow_us(&call.state.config),
    };
    let stale = seconds(call.state.config.number_of_monitor("osd_heartbeat_stale", 600.0));
    let map = call.state.osd.map();
    let tree = network_ping_times(measured(call.state, map), threshold_us, (stale, call.wall));
    call.tree("network_ping_times", tree)
}
