//! Checks on how long pings between OSDs take, by what OSDs report of whole minutes.

use super::{Check, Severity};
use crate::config::ConfigDb;
use crate::state::State;
use nacre_maps::OsdMap;
use nacre_mgr::milliseconds;
use nacre_msg::LeastPing;
use nacre_msg::stats::{PingTimes, PingWindow};
use nacre_types::{OsdId, seconds};
use std::cmp::Reverse;

/// Pairs of OSDs that are named; a network that is slow is slow for many.
const NAMED_MAX: usize = 10;

/// A network, and where its times are.
#[derive(Clone, Copy)]
pub(super) struct Network {
    /// The code of the check on its minutes.
    code: &'static str,
    /// Ceph's word for it.
    pub(super) name: &'static str,
    /// Its round trips, by minutes that have passed.
    pub(super) window: fn(&PingTimes) -> &PingWindow,
    /// Its quickest ping of the last half minute, microseconds; 0 where that is not known.
    pub(super) least_us: fn(&LeastPing) -> u32,
}

pub(super) const NETWORKS: [Network; 2] = [
    Network {
        code: "OSD_SLOW_PING_TIME_BACK",
        name: "back",
        window: |times| &times.back,
        least_us: |ping| ping.back_us,
    },
    Network {
        code: "OSD_SLOW_PING_TIME_FRONT",
        name: "front",
        window: |times| &times.front,
        least_us: |ping| ping.front_us,
    },
];

/// From how many microseconds on pings are slow; 0: nobody asks.
pub(crate) fn slow_us(config: &ConfigDb) -> u64 {
    PingTimes::slow_us(
        config.number_of_monitor("mon_warn_on_slow_ping_time", 0.0),
        config.number_of_monitor("mon_warn_on_slow_ping_ratio", 0.05),
        seconds(config.number_of_monitor("osd_heartbeat_grace", 7.0)),
    )
}

/// What OSDs that are up have measured to others that are.
pub(crate) fn measured<'a>(
    state: &'a State,
    map: &'a OsdMap,
) -> impl Iterator<Item = (OsdId, OsdId, &'a PingTimes)> {
    let reports = state.stats.pgs.osds().filter(|(from, _)| map.is_up(*from));
    let pairs =
        reports.flat_map(|(from, stat)| stat.hb_pingtime.iter().map(move |(to, times)| (from, *to, times)));
    pairs.filter(|(_, to, _)| map.is_up(*to))
}

pub(super) fn checks(state: &State, map: &OsdMap) -> Vec<Check> {
    let slow_us = slow_us(&state.config);
    let check = |Network { code, name: network, window, .. }: Network| {
        let pairs = measured(state, map).map(|(from, to, times)| (window(times), from, to));
        let mut slow: Vec<(&PingWindow, OsdId, OsdId)> =
            pairs.filter(|(window, ..)| u64::from(window.slowest()) > slow_us).collect();
        slow.sort_by_key(|(window, from, to)| (Reverse(window.slowest()), *from, *to));
        let longest = slow.first()?.0.slowest();
        let mut lines: Vec<String> = slow.iter().take(NAMED_MAX).map(|pair| line(network, pair)).collect();
        if slow.len() > NAMED_MAX {
            let more = slow.len() - NAMED_MAX;
            lines.push(format!("and {more} more: 'ceph tell osd.N dump_osd_network' shows those of an OSD"));
        }
        let summary = format!("Slow OSD heartbeats on {network} (longest {}ms)", milliseconds(longest));
        let count = u32::try_from(slow.len()).unwrap_or(u32::MAX);
        Some(Check::new(code, Severity::Warn, summary, lines).counting(count))
    };
    if slow_us == 0 { Vec::new() } else { NETWORKS.into_iter().filter_map(check).collect() }
}

fn line(network: &str, (window, from, to): &(&PingWindow, OsdId, OsdId)) -> String {
    let improving = if window.is_improving() { " possibly improving" } else { "" };
    let slowest = milliseconds(window.slowest());
    format!("Slow OSD heartbeats on {network} from osd.{from} to osd.{to} {slowest} msec{improving}")
}
