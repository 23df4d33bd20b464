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
    use serde_json::json;

    #[test]
    fn what_is_slow_follows_from_the_options_unless_it_is_given() {
        let options = Values::default();
        assert_eq!(threshold(Some(Some(3)), &options), Ok(3000));
        assert!(threshold(Some(None), &options).is_err());
        assert_eq!(threshold(None, &options), Ok(350_000), "a twentieth of the grace of 7 s");
        let nobody = dump(0, &BTreeMap::new(), 350_000, (&options, UTime::ZERO));
        assert_eq!(nobody, json!({ "threshold": 350, "entries": [] }));
    }
}
