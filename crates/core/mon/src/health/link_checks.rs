//! The check on links between OSDs that are slow beside the others. It is our own: `OSD_SLOW_PING_TIME_*` begin at a twentieth of
//! `osd_heartbeat_grace`, 350 ms, and each write that passes a link of 20 ms waits for it where others take 0.2 ms.
//!
//! What the monitor has: an OSD pings those that share PGs with it, its neighbours by number and others, ten at least, each second
//! (`osd_heartbeat_interval`), over both networks. Each 5 s it tells the quickest ping of each of them in the last 30 s
//! ([`nacre_msg::DeviceReport`]), of four answers at least, the first of them 22.5 s ago or more. So a link is named within 37 s after it has
//! become slow: 30 s until its last quick ping is no more among those, 6 s until the next report, and a second until the next look. One
//! quick ping is enough for it to be well: the check goes within 8 s, with the ping, the report and the look.
//!
//! OSDs of an older version do not tell these, nor those that ping less often than each 7 s, nor one of a peer that answers too few pings.
//! Of them it has minutes, from their statistics: average, least and greatest of the newest 1, 5 and 15 minutes that have passed, which begin
//! with the first answer. The least of a minute is high once a whole minute was slow: the link is named between 60 s and 125 s after it has
//! become so, and the check goes within 65 s. Both OSDs of a link have measured, and the one that takes longer counts.
//!
//! The last round trip, the greatest and the average would show it earlier and mean less: one ping, or a moment in which an OSD had much to
//! do.

use super::ping_checks::{NETWORKS, Network, measured};
use super::{Check, Severity, plural};
use crate::osd::view;
use crate::state::State;
use nacre_maps::OsdMap;
use nacre_mgr::milliseconds;
use nacre_mgr::slow_links::{End, Place, SLOW_MIN_US, SlowEnd, SlowLink, SlowLinks, slow_links};
use nacre_msg::stats::PingTimes;
use nacre_types::OsdId;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Lines that name links, and OSDs and hosts all of whose links are slow.
const NAMED_MAX: usize = 10;

/// OSDs of a bucket that such a line names.
const OSDS_MAX: usize = 10;

/// The minutes that OSDs that are up have measured to others that are, and go on measuring.
fn fresh<'a>(state: &'a State, map: &'a OsdMap) -> impl Iterator<Item = (OsdId, OsdId, &'a PingTimes)> {
    let stale_s = state.config.number_of_monitor("osd_heartbeat_stale", 600.0);
    let now_s = state.wall.sec;
    let is_fresh = move |times: &PingTimes| f64::from(now_s.saturating_sub(times.last_update)) <= stale_s;
    measured(state, map).filter(move |(.., times)| is_fresh(times))
}

/// What the quickest pings over a network took, where that is `us_min` or more: from which OSD, to which, and how many microseconds.
fn least<'a>(
    state: &'a State,
    map: &'a OsdMap,
    Network { window, least_us, .. }: Network,
    us_min: u32,
) -> impl Iterator<Item = (OsdId, OsdId, u32)> + 'a {
    let pings = &state.stats.least_pings;
    let of_half_minutes = pings.iter().map(move |(from, ping)| (from, ping.osd, least_us(ping)));
    let of_minutes = fresh(state, map).map(move |(from, to, times)| (from, to, window(times).min[0]));
    // First by how long they took, which leaves out most.
    let is_slow = move |(.., us): &(OsdId, OsdId, u32)| *us >= us_min;
    let are_up = move |(from, to, _): &(OsdId, OsdId, u32)| map.is_up(*from) && map.is_up(*to);
    let is_newest = move |(from, to, _): &(OsdId, OsdId, u32)| {
        pings.find(*from, *to).is_none_or(|ping| least_us(ping) == 0)
    };
    of_half_minutes.filter(is_slow).filter(are_up).chain(of_minutes.filter(is_slow).filter(is_newest))
}

fn place(map: &OsdMap, osd: OsdId) -> Place {
    let with_type = |id: i32| (id, map.crush.type_of(id));
    let above: Vec<(i32, i32)> = view::ancestors(&map.crush, osd).into_iter().map(with_type).collect();
    let is_host = |kind: &i32| map.crush.type_names.get(kind).is_some_and(|name| name == "host");
    let host = above.iter().find(|(_, kind)| is_host(kind)).map(|(id, _)| *id);
    Place { host, above }
}

pub(super) fn check(state: &State, map: &OsdMap) -> Option<Check> {
    // Each second, of all pairs: usually there is nothing to compare.
    if !NETWORKS.into_iter().any(|network| least(state, map, network, SLOW_MIN_US).next().is_some()) {
        return None;
    }
    let judge =
        |network: Network| (network.name, slow_links(least(state, map, network, 1), |osd| place(map, osd)));
    let found: [(&str, SlowLinks); 2] = NETWORKS.map(judge);
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
