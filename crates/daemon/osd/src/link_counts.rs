//! [`LinkCounts`]: what TCP tells of connections with other OSDs. Each shard counts its own.

use nacre_env::TcpCounts;
use nacre_service::{ConnId, Messenger};
use nacre_types::OsdId;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// All connections with one OSD that are there, and what TCP tells of them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct LinkCounts {
    connections: u64,
    segments: u64,
    resent: u64,
    duplicates: u64,
    round_trip_max: Duration,
}

impl LinkCounts {
    /// Of one connection, of which TCP may tell nothing.
    fn of(counts: Option<TcpCounts>) -> Self {
        let TcpCounts { segments, resent, duplicates, round_trip, .. } = counts.unwrap_or_default();
        Self { connections: 1, segments, resent, duplicates, round_trip_max: round_trip }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.connections += other.connections;
        self.segments += other.segments;
        self.resent += other.resent;
        self.duplicates += other.duplicates;
        self.round_trip_max = self.round_trip_max.max(other.round_trip_max);
    }

    pub(crate) fn to_json(&self) -> Value {
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
pub(crate) fn counts(
    conns: impl Iterator<Item = (OsdId, ConnId)>,
    messenger: &Messenger,
) -> BTreeMap<OsdId, LinkCounts> {
    let mut of_osds = BTreeMap::<OsdId, LinkCounts>::new();
    conns.for_each(|(osd, conn)| {
        of_osds.entry(osd).or_default().merge(&LinkCounts::of(messenger.tcp_counts(conn)))
    });
    of_osds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_with_one_osd_are_summed_up() {
        let of = |counts: &[(u64, u64, u64)]| {
            let mut ways = LinkCounts::default();
            for (segments, resent, us) in counts.iter().copied() {
                let round_trip = Duration::from_micros(us);
                let counts = TcpCounts { segments, resent, duplicates: 1, received: 9, round_trip };
                ways.merge(&LinkCounts::of(Some(counts)));
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
