//! The check on links between OSDs that are slow beside the others. It is our own: `OSD_SLOW_PING_TIME_*` begin at a twentieth of
//! `osd_heartbeat_grace`, 350 ms, and each write that passes a link of 20 ms waits for it where others take 0.2 ms.
//!
//! What the monitor has: an OSD pings those that share PGs with it, its neighbours by number and others, ten at least, each second
//! (`osd_heartbeat_interval`), over both networks. It sums up the round trips of each in minutes, which begin with the first answer. With
//! its statistics, every 5 s, it reports all that it pings, not only slow ones: average, least and greatest of the newest 1, 5 and 15
//! minutes that have passed, and the last round trip of the newest. Of the minute that runs it says nothing, nor of an OSD that it has
//! pinged for less.
//!
//! So the least of a minute is high once a whole minute was slow: a link is named between 60 s and 125 s after it has become so. Both of
//! its OSDs have measured, in minutes that begin at different times, and the one that ends first counts: about 80 s where they are apart by
//! chance. One quick ping is enough for a minute to be well: the check goes within 65 s. The last round trip, the greatest and the average
//! would show it earlier and mean less: one ping, or a moment in which an OSD had much to do.

use super::ping_checks::measured;
use super::{Check, Severity, plural};
use crate::osd::view;
use crate::state::State;
use nacre_maps::OsdMap;
use nacre_mgr::milliseconds;
use nacre_mgr::slow_links::{End, Place, SLOW_MIN_US, SlowEnd, SlowLink, SlowLinks, slow_links};
use nacre_msg::stats::{PingTimes, PingWindow};
use nacre_types::OsdId;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Lines that name links, and OSDs and hosts all of whose links are slow.
const NAMED_MAX: usize = 10;

/// OSDs of a bucket that such a line names.
const OSDS_MAX: usize = 10;

/// A network: Ceph's word for it, and where its times are.
type Network = (&'static str, fn(&PingTimes) -> &PingWindow);

const NETWORKS: [Network; 2] = [("back", |times| &times.back), ("front", |times| &times.front)];

/// What OSDs that are up have measured to others that are, and go on measuring.
fn fresh<'a>(state: &'a State, map: &'a OsdMap) -> impl Iterator<Item = (OsdId, OsdId, &'a PingTimes)> {
    let stale_s = state.config.number_of_monitor("osd_heartbeat_stale", 600.0);
    let now_s = state.wall.sec;
    let is_fresh = move |times: &PingTimes| f64::from(now_s.saturating_sub(times.last_update)) <= stale_s;
    measured(state, map).filter(move |(.., times)| is_fresh(times))
}

fn place(map: &OsdMap, osd: OsdId) -> Place {
    let with_type = |id: i32| (id, map.crush.type_of(id));
    let above: Vec<(i32, i32)> = view::ancestors(&map.crush, osd).into_iter().map(with_type).collect();
    let is_host = |kind: &i32| map.crush.type_names.get(kind).is_some_and(|name| name == "host");
    let host = above.iter().find(|(_, kind)| is_host(kind)).map(|(id, _)| *id);
    Place { host, above }
}

pub(super) fn check(state: &State, map: &OsdMap) -> Option<Check> {
    let may_be_slow = |(.., times): (OsdId, OsdId, &PingTimes)| {
        NETWORKS.iter().any(|(_, window)| window(times).min[0] >= SLOW_MIN_US)
    };
    // Each second, of all pairs: usually there is nothing to compare.
    if !fresh(state, map).any(may_be_slow) {
        return None;
    }
    let found: [(&str, SlowLinks); 2] = NETWORKS.map(|(network, window)| {
        let slow = slow_links(fresh(state, map), window, |osd| place(map, osd));
        (network, slow)
    });
    let pairs: BTreeSet<[OsdId; 2]> = found.iter().flat_map(|(_, slow)| slow.pairs.iter().copied()).collect();
    let ends: Vec<(&str, &SlowEnd)> =
        found.iter().flat_map(|(network, slow)| slow.ends.iter().map(move |end| (*network, end))).collect();
    let mut links: Vec<(&str, &SlowLink)> = found
        .iter()
        .flat_map(|(network, slow)| slow.links.iter().map(move |link| (*network, link)))
        .collect();
    links.sort_by_key(|(_, link)| (Reverse(link.best_us), link.osds));
    let more = (ends.len() + links.len()).saturating_sub(NAMED_MAX);
    let of_ends = ends.iter().map(|(network, end)| end_line(map, network, end));
    let of_links = links.iter().map(|(network, link)| link_line(map, network, link));
    let mut lines: Vec<String> = of_ends.chain(of_links).take(NAMED_MAX).collect();
    if more > 0 {
        lines.push(format!("and {more} more: 'ceph tell osd.N dump_osd_network 5' shows those of an OSD"));
    }
    let all = plural(pairs.len(), "link between OSDs is", "links between OSDs are");
    let summary = format!("{all} slow beside the others");
    (!pairs.is_empty())
        .then(|| Check::new("OSD_SLOW_LINK", Severity::Warn, summary, lines).counting(pairs.len()))
}

/// Kind and name of a bucket.
fn bucket_name(map: &OsdMap, bucket: i32) -> Option<(&str, &str)> {
    let kind = map.crush.type_names.get(&map.crush.type_of(bucket))?;
    Some((kind.as_str(), map.crush.item_name(bucket)?))
}

fn end_line(map: &OsdMap, network: &str, slow: &SlowEnd) -> String {
    let bucket = match slow.end {
        End::Bucket(bucket) => bucket_name(map, bucket),
        End::Osd(_) => None,
    };
    let is_host = bucket.is_none_or(|(kind, _)| kind == "host");
    let cause = match (is_host, slow.osds.len()) {
        (false, _) => "what connects it with the others",
        (true, 1) => "its network card, cable or switch port, or the OSD itself",
        (true, _) => "its network card, cable or switch port",
    };
    let who = match bucket.filter(|_| !is_host || slow.osds.len() > 1) {
        Some((kind, name)) => {
            let more = slow.osds.len().saturating_sub(OSDS_MAX);
            let mut osds: Vec<String> =
                slow.osds.iter().take(OSDS_MAX).map(|osd| format!("osd.{osd}")).collect();
            osds.extend((more > 0).then(|| format!("{more} more")));
            format!("{kind} {name} ({})", osds.join(", "))
        }
        None => slow.osds.iter().map(|osd| osd_name(map, *osd)).collect::<Vec<_>>().join(", "),
    };
    format!("all {} links of {who} are slow on {network}: {}: {cause}", slow.links, figures(&slow.quickest))
}

fn link_line(map: &OsdMap, network: &str, link: &SlowLink) -> String {
    let [a, b] = link.osds.map(|osd| osd_name(map, osd));
    format!("{a} and {b} on {network}: {}", figures(link))
}

fn figures(link: &SlowLink) -> String {
    let [best, others] = [link.best_us, link.others_us].map(milliseconds);
    format!("pings take {best} msec at best, those of others {others}")
}

fn osd_name(map: &OsdMap, osd: OsdId) -> String {
    let host = place(map, osd).host;
    let host = host.and_then(|host| map.crush.item_name(host)).map(|host| format!(" (host {host})"));
    format!("osd.{osd}{}", host.unwrap_or_default())
}
