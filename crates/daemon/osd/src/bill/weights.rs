//! What the kinds of an OSD's work weigh: nanoseconds of its thread for one of each, and for each KiB of data.
//!
//! Fitted by `bench/bill-weights`: loads of one kind each, by what the threads used (`osd-cpu` of `perf dump`) and how much there was of each
//! kind (`osd-bill`). Of 60 pairs of an OSD and a load half were met within 14 %, the worst within 57 %. What matters is their ratio, and that
//! only among those who are served within the same millisecond: the sum of the bill is exact whatever they are.

use serde_json::{Map, Value, json};

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A client's write: received, executed, sent on to the replicas and to the store.
    Write,
    /// A client's read or other message.
    Read,
    /// An answer to a client.
    Reply,
    /// A write of another OSD's client, to be stored here.
    RepOp,
    /// Another OSD has a write durably.
    RepOpReply,
    /// The store has a write durably.
    Durable,
    /// The store has read something.
    Fetched,
    /// An object, or a list of them, on its way to where it belongs.
    Recovery,
    /// A list of objects with their checksums.
    Scrub,
    /// Any other message of another OSD.
    PeerMessage,
    /// What comes back each second, for one PG.
    Tick,
    /// A heartbeat, a map, a command.
    Control,
}

const KINDS: usize = 12;

/// Name, nanoseconds for one, nanoseconds for each KiB.
const WEIGHTS: [(&str, u64, u64); KINDS] = [
    ("write", 16_100, 450),
    ("read", 7_100, 100),
    ("reply", 4_900, 260),
    ("rep_op", 15_400, 450),
    ("rep_op_reply", 8_200, 0),
    ("durable", 20_900, 0),
    ("fetched", 22_200, 200),
    ("recovery", 118_500, 190),
    ("scrub", 3_565_600, 0),
    ("peer_message", 77_900, 0),
    ("tick", 1_200, 0),
    ("control", 15_500, 0),
];

/// How much there was of each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts([(u64, u64); KINDS]);

impl Counts {
    /// Counts it; what it weighs.
    pub(super) fn weigh(&mut self, work: Work, bytes: u64) -> u64 {
        let (count, sum) = &mut self.0[work as usize];
        *count += 1;
        *sum += bytes;
        let (_, once, per_kib) = WEIGHTS[work as usize];
        once + ((bytes * per_kib) >> 10)
    }

    pub(super) fn dump(&self) -> Value {
        let rows = WEIGHTS.iter().zip(self.0);
        let rows = rows.map(|((name, ..), (count, bytes))| {
            ((*name).to_owned(), json!({ "count": count, "bytes": bytes }))
        });
        Value::Object(Map::from_iter(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_row() {
        let rows = [
            (Work::Write, "write"),
            (Work::Fetched, "fetched"),
            (Work::Recovery, "recovery"),
            (Work::Control, "control"),
        ];
        for (work, name) in rows {
            assert_eq!(WEIGHTS[work as usize].0, name);
        }
        let mut counts = Counts::default();
        let (once, per_kib) = (WEIGHTS[0].1, WEIGHTS[0].2);
        assert_eq!(counts.weigh(Work::Write, 4096), once + 4 * per_kib);
        assert_eq!(counts.dump()["write"], json!({ "count": 1, "bytes": 4096 }));
    }
}
