//! `dump_links`: how each other OSD answers our pings and when we heard its own, and what TCP tells of the connections with it. Ceph has
//! nothing like it; `nacre doctor` reads it to tell a way from its ends.

use crate::heartbeat_driver::HeartbeatDriver;
use crate::peer_links::PeerLinks;
use nacre_env::TcpCounts;
use nacre_service::Messenger;
use nacre_types::{OsdId, Stamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What TCP tells of all connections with one OSD that are there.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ways {
    connections: u64,
    segments: u64,
    resent: u64,
    duplicates: u64,
    round_trip_max: Duration,
}

impl Ways {
    fn add(&mut self, counts: TcpCounts) {
        self.connections += 1;
        self.segments += counts.segments;
        self.resent += counts.resent;
        self.duplicates += counts.duplicates;
        self.round_trip_max = self.round_trip_max.max(counts.round_trip);
    }

    fn to_json(&self) -> Value {
        json!({
            "connections": self.connections,
            "segments": self.segments,
            "resent": self.resent,
            "duplicates": self.duplicates,
            "round_trip_us_max": u64::try_from(self.round_trip_max.as_micros()).unwrap_or(u64::MAX),
        })
    }
}

/// Of each OSD that we ping or are connected with: `pings.avgcount` and `sum` (seconds) of its answers, `silent_s` since our oldest ping
/// without an answer, `heard_s` since its own last ping, `segments_since_heard` that came on the connection of that ping, and `tcp`: what
/// we sent on the connections that are there.
pub(crate) fn dump(
    heartbeats: &HeartbeatDriver,
    peers: &PeerLinks,
    messenger: &Messenger,
    now: Stamp,
) -> Value {
    let mut ways = BTreeMap::<OsdId, Ways>::new();
    for (osd, conn) in peers.conns().chain(heartbeats.conns()) {
        let way = ways.entry(osd).or_default();
        messenger.tcp_counts(conn).into_iter().for_each(|counts| way.add(counts));
    }
    let mut answers: BTreeMap<_, _> = heartbeats.answers(now).collect();
    for osd in answers.keys() {
        ways.entry(*osd).or_default();
    }
    let links = ways.iter().map(|(osd, way)| {
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
            "tcp": way.to_json(),
        })
    });
    json!({ "links": links.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_with_one_osd_are_summed_up() {
        let mut ways = Ways::default();
        for (segments, resent, us) in [(100, 3, 80), (50, 2, 400)] {
            ways.add(TcpCounts {
                segments,
                resent,
                duplicates: 1,
                received: 9,
                round_trip: Duration::from_micros(us),
            });
        }
        let shown = json!({ "connections": 2, "segments": 150, "resent": 5, "duplicates": 2, "round_trip_us_max": 400 });
        assert_eq!(ways.to_json(), shown);
    }
}
