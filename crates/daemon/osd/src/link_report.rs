//! `dump_links`: how each other OSD answers our pings and when we heard its own, and what TCP tells of the connections with it. Ceph has
//! nothing like it; `nacre doctor` reads it to tell a way from its ends.

use crate::heartbeat_driver::HeartbeatDriver;
use crate::link_counts::{self, LinkCounts};
use crate::peer_links::PeerLinks;
use nacre_service::Messenger;
use nacre_types::{OsdId, Stamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Of each OSD that we ping or are connected with: `pings.avgcount` and `sum` (seconds) of its answers, `silent_s` since our oldest ping
/// without an answer, `heard_s` since its own last ping, `segments_since_heard` that came on the connection of that ping, and `tcp`: what
/// we sent on the connections that are there, those of other shards as they last `reported`.
pub(crate) fn dump<'a>(
    heartbeats: &HeartbeatDriver,
    (peers, reported): (&PeerLinks, impl Iterator<Item = &'a BTreeMap<OsdId, LinkCounts>>),
    messenger: &Messenger,
    now: Stamp,
) -> Value {
    let mut counts = link_counts::counts(peers.conns().chain(heartbeats.conns()), messenger);
    for (osd, count) in reported.flatten() {
        counts.entry(*osd).or_default().merge(count);
    }
    let mut answers: BTreeMap<_, _> = heartbeats.answers(now).collect();
    for osd in answers.keys() {
        counts.entry(*osd).or_default();
    }
    let links = counts.iter().map(|(osd, count)| {
        let (answers, heard) = (answers.remove(osd), heartbeats.heard(*osd));
        json!({
            "osd": osd,
            "pings": answers.map(|answers| json!({
                "avgcount": answers.count,
                "sum": answers.spent.as_secs_f64(),
                "silent_s": answers.silent_for.as_secs_f64(),
            })),
            "heard_s": heard.map(|heard| now.since(heard.at).as_secs_f64()),
            "segments_since_heard": heard.and_then(|heard| {
                Some(messenger.tcp_counts(heard.conn)?.received.saturating_sub(heard.segments))
            }),
            "tcp": count.to_json(),
        })
    });
    json!({ "links": links.collect::<Vec<_>>() })
}
