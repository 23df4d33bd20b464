//! How long pings between OSDs took, as `dump_osd_network` shows it: an OSD its own, a manager those of all.
//!
//! Source: Ceph `src/osd/OSD.cc` and `src/mgr/DaemonServer.cc` (`dump_osd_network`) at v16.2.15.

use nacre_format::{Node, Section};
use nacre_msg::stats::{PingTimes, PingWindow};
use nacre_types::{OsdId, UTime};
use std::cmp::Reverse;
use std::time::Duration;

/// Microseconds as milliseconds with three decimals.
#[must_use]
pub fn milliseconds(us: u32) -> String {
    format!("{}.{:03}", us / 1000, us % 1000)
}

fn three(us: [u32; 3]) -> Section {
    let [one, five, fifteen] = us.map(|us| Node::Raw(milliseconds(us)));
    Section::new().with("1min", one).with("5min", five).with("15min", fifteen)
}

/// As C's `ctime` writes it, in UTC: `Wed Nov 25 18:04:30 2026`.
fn calendar_time(sec: u32) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = UTime { sec, nsec: 0 }.to_string();
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let month = part(5..7).parse().ok().and_then(|month: usize| MONTHS.get(month.wrapping_sub(1)).copied());
    let weekday = DAYS.get((sec / 86_400 % 7) as usize).copied();
    let (day, time, year) = (part(8..10).trim_start_matches('0'), part(11..19), part(0..4));
    format!("{} {} {day:>2} {time} {year}", weekday.unwrap_or_default(), month.unwrap_or_default())
}

/// The ping times of at least `threshold_us`, slowest first: of what each OSD of `measured` has measured to which other one. Those that have
/// not changed for `stale` are marked.
pub fn network_ping_times<'a>(
    measured: impl Iterator<Item = (OsdId, OsdId, &'a PingTimes)>,
    threshold_us: u64,
    (stale, wall): (Duration, UTime),
) -> Section {
    let sides = measured.flat_map(|(from, to, times)| {
        let both = [("back", &times.back), ("front", &times.front)];
        both.map(|(side, window)| (window, from, to, side, times.last_update))
    });
    let is_shown = |window: &PingWindow| window.last > 0 && u64::from(window.slowest()) >= threshold_us;
    let mut shown: Vec<_> = sides.filter(|(window, ..)| is_shown(window)).collect();
    shown.sort_by_key(|(window, from, to, side, _)| (Reverse(window.slowest()), *from, *to, *side));
    let entry = |(window, from, to, side, updated): (&PingWindow, OsdId, OsdId, &str, u32)| {
        Section::new()
            .with("last update", calendar_time(updated))
            .with("stale", u64::from(wall.sec.saturating_sub(updated)) > stale.as_secs())
            .with("from osd", from)
            .with("to osd", to)
            .with("interface", side)
            .with("average", three(window.average))
            .with("min", three(window.min))
            .with("max", three(window.max))
            .with("last", Node::Raw(milliseconds(window.last)))
    };
    let entries = shown.into_iter().map(entry);
    Section::new().with("threshold", threshold_us / 1000).with("entries", Node::array("entry", entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_format::Format;

    #[test]
    fn slow_pings_are_shown_slowest_first_in_milliseconds() {
        let window = |us: u32| PingWindow { average: [us, us / 2, 7], min: [1; 3], max: [us; 3], last: us };
        let of = |back, front| PingTimes { last_update: 1000, back: window(back), front: window(front) };
        let times = [(0, 1, of(1500, 900)), (3, 2, of(2001, 0))];
        let wall = UTime { sec: 1601, nsec: 0 };
        let shown = |threshold_us| {
            let measured = times.iter().map(|(from, to, times)| (*from, *to, times));
            let tree = network_ping_times(measured, threshold_us, (Duration::from_secs(600), wall));
            Node::from(tree).render(Format::Json, "network_ping_times")
        };
        let all = shown(0);
        let first = "{\"last update\":\"Thu Jan  1 00:16:40 1970\",\"stale\":true,\"from osd\":3,\"to osd\":2,\"interface\":\"back\",\
                     \"average\":{\"1min\":2.001,\"5min\":1.000,\"15min\":0.007}";
        assert!(all.contains(&format!("\"threshold\":0,\"entries\":[{first}")), "{all}");
        assert_eq!(all.matches("\"from osd\":0").count(), 2, "both of the other: {all}");
        assert_eq!(shown(2000).matches("from osd").count(), 1);
        assert_eq!(calendar_time(1_795_629_870), "Wed Nov 25 18:04:30 2026");
    }
}
