//! `dump_osd_network`: how long pings to other OSDs took.

use crate::command_reply::Failure;
use nacre_format::{Format, Node};
use nacre_mgr::network_ping_times;
use nacre_msg::stats::PingTimes;
use nacre_options::Values;
use nacre_types::{Errno, OsdId, UTime};
use serde_json::Value;
use std::collections::BTreeMap;

/// From how many microseconds on a ping time is shown: what was given, in milliseconds, or what health warns of.
///
/// # Errors
/// What was given is no number.
pub(crate) fn threshold(given: Option<Option<u64>>, options: &Values) -> Result<u64, Failure> {
    let no_number = || (Errno::EINVAL, "the threshold is no number of milliseconds".to_owned());
    match given {
        Some(given) => given.map(|ms| ms.saturating_mul(1000)).ok_or_else(no_number),
        None => {
            let grace = options.seconds("osd_heartbeat_grace");
            let (time_ms, ratio) =
                (options.number("mon_warn_on_slow_ping_time"), options.number("mon_warn_on_slow_ping_ratio"));
            Ok(PingTimes::slow_us(time_ms, ratio, grace))
        }
    }
}

/// What `me` has measured, slowest first.
pub(crate) fn dump(
    me: OsdId,
    times: &BTreeMap<OsdId, PingTimes>,
    threshold_us: u64,
    (options, wall): (&Values, UTime),
) -> Value {
    let measured = times.iter().map(|(to, times)| (me, *to, times));
    let stale = options.seconds("osd_heartbeat_stale");
    let tree = Node::from(network_ping_times(measured, threshold_us, (stale, wall)));
    serde_json::from_str(&tree.render(Format::Json, "network_ping_times")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_msg::stats::PingWindow;
    use serde_json::json;

    #[test]
    fn what_is_slow_follows_from_the_options_unless_it_is_given() {
        let options = Values::default();
        assert_eq!(threshold(Some(Some(3)), &options), Ok(3000));
        assert!(threshold(Some(None), &options).is_err());
        assert_eq!(threshold(None, &options), Ok(350_000), "a twentieth of the grace of 7 s");
        let tenth = Values::from_iter([("mon_warn_on_slow_ping_ratio", "0.1")]);
        assert_eq!(threshold(None, &tenth), Ok(700_000));
        let nobody = dump(0, &BTreeMap::new(), 350_000, (&options, UTime::ZERO));
        assert_eq!(nobody, json!({ "threshold": 350, "entries": [] }));
    }

    #[test]
    fn what_has_not_changed_for_as_long_as_the_option_says_is_stale() {
        let window = PingWindow { average: [9; 3], min: [9; 3], max: [9; 3], last: 9 };
        let of = PingTimes { last_update: 1000, back: window.clone(), front: window };
        let is_stale = |options: &[(&str, &str)], sec| {
            let options = options.iter().copied().collect();
            let dump = dump(0, &BTreeMap::from([(1, of.clone())]), 0, (&options, UTime { sec, nsec: 0 }));
            dump["entries"][0]["stale"].clone()
        };
        assert_eq!([is_stale(&[], 1600), is_stale(&[], 1601)], [false, true]);
        let minute = [("osd_heartbeat_stale", "60")];
        assert_eq!([is_stale(&minute, 1060), is_stale(&minute, 1061)], [false, true]);
    }
}
