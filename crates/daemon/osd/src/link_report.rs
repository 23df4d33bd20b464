//! `dump_links`: how each other OSD answers our pings and when we heard its own, and what TCP tells of the connections with it. Ceph has
//! nothing like it; `nacre doctor` reads it to tell a way from its ends.

use crate::heartbeat_driver::HeartbeatDriver;
use crate::peer_links::PeerLinks;
use nacre_env::TcpCounts;
use nacre_service::{ConnId, Messenger};
use nacre_types::{OsdId, Stamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// All connections with one OSD that are there, and what TCP tells of them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Ways {
    connections: u64,
    segments: u64,
    resent: u64,
    duplicates: u64,
    round_trip_max: Duration,
}

impl Ways {
    fn add(&mut self, counts: Option<TcpCounts>) {
        self.connections += 1;
        let Some(counts) = counts else { return };
        self.segments += counts.segments;
        self.resent += counts.resent;
        self.duplicates += counts.duplicates;
        self.round_trip_max = self.round_trip_max.max(counts.round_trip);
    }

    fn merge(&mut self, other: &Self) {
        self.connections += other.connections;
        self.segments += other.segments;
        self.resent += other.resent;
        self.duplicates += other.duplicates;
        self.round_trip_max = self.round_trip_max.max(other.round_trip_max);
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

/// Those of some connections, by the OSD that each leads to.
pub(crate) fn ways(
    conns: impl Iterator<Item = (OsdId, ConnId)>,
    messenger: &Messenger,
) -> BTreeMap<OsdId, Ways> {
    let mut ways = BTreeMap::<OsdId, Ways>::new();
    conns.for_each(|(osd, conn)| ways.entry(osd).or_default().add(messenger.tcp_counts(conn)));
    ways
}

/// Of each OSD that we ping or are connected with: `pings.avgcount` and `sum` (seconds) of its answers, `silent_s` since our oldest ping
/// without an answer, `heard_s` since its own last ping, `segments_since_heard` that came on the connection of that ping, and `tcp`: what
/// we sent on the connections that are there, those of other shards as they last `reported`.
pub(crate) fn dump<'a>(
    heartbeats: &HeartbeatDriver,
    (peers, reported): (&PeerLinks, impl Iterator<Item = &'a BTreeMap<OsdId, Ways>>),
    messenger: &Messenger,
    now: Stamp,
) -> Value {
    let mut ways = ways(peers.conns().chain(heartbeats.conns()), messenger);
    for (osd, way) in reported.flatten() {
        ways.entry(*osd).or_default().merge(way);
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
        let of = |counts: &[(u64, u64, u64)]| {
            let mut ways = Ways::default();
            for (segments, resent, us) in counts.iter().copied() {
                let round_trip = Duration::from_micros(us);
                ways.add(Some(TcpCounts { segments, resent, duplicates: 1, received: 9, round_trip }));
            }
            ways
        };
        let mut ways = of(&[(100, 3, 80), (50, 2, 400)]);
        let shown = json!({ "connections": 2, "segments": 150, "resent": 5, "duplicates": 2, "round_trip_us_max": 400 });
        assert_eq!(ways.to_json(), shown);
        ways.merge(&of(&[(7, 1, 500)]));
        let shown = json!({ "connections": 3, "segments": 157, "resent": 6, "duplicates": 3, "round_trip_us_max": 500 });
        assert_eq!(ways.to_json(), shown, "with that of another shard");
    }
}
