//! [`Tracker`]: the stage clock. How long clients' messages spent in which stage, and the slowest of them.
//!
//! Every message carries a [`Trace`]. When it is answered, the time from one stamp to the next counts for the stage
//! that the later one ends; so the stages of a message add up to its time in this OSD.
//!
//! | stage | ends when | is spent waiting for |
//! |---|---|---|
//! | `dispatched` | the PG has the message | a lease, a map, the PG's thread |
//! | `executed` | it has run | the PG to serve, recovery, messages before it, data |
//! | `logged` | this OSD has the change durably | the device |
//! | `replicated` | all members have | peers |
//! | `replied` | the answer is made | nothing |

use crate::stage_sums::{STAGES, StageSums, stage};
use nacre_buf::ByteStr;
use nacre_msg::osd_op::code;
use nacre_msg::{OsdOp, OsdOpReply, SlowRequest};
use nacre_pg::{OpInFlight, OpStage, Session, Trace};
use nacre_types::{PgId, Stamp, UTime};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Buckets of a histogram; the last holds all above some twelve minutes.
const BUCKETS: usize = 32;
/// Operations that a description names; messages of clients have one to three.
const CODES_MAX: usize = 8;

/// The bucket of what takes less than a microsecond.
const AT_ONCE: usize = 1;

/// Times of one stage, or of whole messages, counted in powers of two of a microsecond. How many there are, their [`Kind`] knows.
#[derive(Debug, Clone, Copy)]
struct Latencies {
    sum_ns: u64,
    /// Without those [`AT_ONCE`].
    buckets: [u64; BUCKETS],
}

impl Latencies {
    const NONE: Self = Self { sum_ns: 0, buckets: [0; BUCKETS] };

    /// There are six of these for each message, but most stages end in the turn of the loop in which they began: those take
    /// no time and cost a comparison.
    fn add(&mut self, spent_ns: u64) {
        if spent_ns == 0 {
            return;
        }
        self.sum_ns += spent_ns;
        if let Some(power) = (spent_ns / 1000).checked_ilog2() {
            self.buckets[(power as usize + AT_ONCE + 1).min(BUCKETS - 1)] += 1;
        }
    }

    /// Of `count` messages.
    fn dump(&self, count: u64) -> Value {
        let sum = Duration::from_nanos(self.sum_ns).as_secs_f64();
        json!({ "avgcount": count, "sum": sum, "avgtime": sum / count.max(1) as f64 })
    }

    /// As `perf histogram dump` of Ceph shows one, with a single axis.
    fn dump_histogram(&self, count: u64) -> Value {
        let mut values = self.buckets;
        values[AT_ONCE] = count - self.buckets.iter().sum::<u64>();
        let range = |bucket: usize| match bucket {
            0 => json!({ "max": -1 }),
            AT_ONCE => json!({ "min": 0, "max": 0 }),
            bucket if bucket == BUCKETS - 1 => json!({ "min": 1_u64 << (bucket - 2) }),
            bucket => json!({ "min": 1_u64 << (bucket - 2), "max": (1_u64 << (bucket - 1)) - 1 }),
        };
        let axis = json!({
            "name": "Latency (usec)", "min": 0, "quant_size": 1, "buckets": BUCKETS, "scale_type": "log2",
            "ranges": (0..BUCKETS).map(range).collect::<Vec<_>>(),
        });
        json!({ "axes": [axis], "values": values })
    }
}

/// Reads, or writes.
#[derive(Debug)]
struct Kind {
    count: u64,
    whole: Latencies,
    stages: [Latencies; STAGES.len()],
}

impl Kind {
    const NONE: Self = Self { count: 0, whole: Latencies::NONE, stages: [Latencies::NONE; STAGES.len()] };
}

/// A message that was answered, one of the slowest.
#[derive(Debug)]
struct Finished {
    description: String,
    client: Value,
    trace: Trace,
}

/// Sums since the start, for `perf dump`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) ops: u64,
    pub(crate) op_in_bytes: u64,
    pub(crate) replies: u64,
    pub(crate) op_out_bytes: u64,
    pub(crate) latency_ns: u64,
    /// Of reads, what they brought; of writes, what came with them.
    pub(crate) read_out_bytes: u64,
    pub(crate) write_in_bytes: u64,
}

/// The stage clock of one shard.
#[derive(Debug)]
pub(crate) struct Tracker {
    is_enabled: bool,
    reads: Kind,
    writes: Kind,
    /// The slowest of late, in no order.
    history: Vec<Finished>,
    /// What the fastest of them took, once there are as many as are wanted.
    shortest_ns: Option<u64>,
    history_size: usize,
    history_duration: Duration,
}

impl Tracker {
    pub(crate) fn new() -> Self {
        Self {
            is_enabled: true,
            reads: Kind::NONE,
            writes: Kind::NONE,
            history: Vec::new(),
            shortest_ns: None,
            history_size: 0,
            history_duration: Duration::ZERO,
        }
    }

    /// How many finished messages are kept, and for how long.
    pub(crate) fn configure(&mut self, size: usize, duration: Duration) {
        (self.history_size, self.history_duration) = (size, duration);
        self.sort_history();
    }

    /// Whether messages count; what was counted stays.
    pub(crate) fn enable(&mut self, is_enabled: bool) {
        self.is_enabled = is_enabled;
    }

    /// How many writes were answered, and the nanoseconds that the device took for them all.
    pub(crate) fn commits(&self) -> (u64, u64) {
        (self.writes.count, self.writes.stages[stage::LOGGED].sum_ns)
    }

    /// How many reads and how many writes were answered, and the nanoseconds from their arrival to their answers.
    pub(crate) fn answers(&self) -> [(u64, u64); 2] {
        [&self.reads, &self.writes].map(|kind| (kind.count, kind.whole.sum_ns))
    }

    /// The same, and what they spent in each stage.
    pub(crate) fn stage_sums(&self) -> StageSums {
        let [reads, writes] = [&self.reads, &self.writes]
            .map(|kind| (kind.count, kind.stages.each_ref().map(|stage| stage.sum_ns)));
        StageSums { reads, writes }
    }

    /// A message is answered. True when it is one of the slowest: [`Tracker::keep`] it then.
    pub(crate) fn answered(&mut self, trace: &Trace) -> bool {
        if !self.is_enabled {
            return false;
        }
        let kind = if is_write(trace) { &mut self.writes } else { &mut self.reads };
        let whole = whole_ns(trace);
        kind.count += 1;
        kind.whole.add(whole);
        for (stage, spent) in kind.stages.iter_mut().zip(spent(trace)) {
            stage.add(spent);
        }
        self.history_size > 0 && self.shortest_ns.is_none_or(|shortest| whole > shortest)
    }

    /// Keeps a message for `dump_historic_ops`.
    pub(crate) fn keep(&mut self, reply: &OsdOpReply, tid: u64, session: Option<&Session>, trace: Trace) {
        let codes = reply.ops.iter().map(|op| op.code);
        self.history.push(Finished {
            description: describe(session, tid, reply.pg, &reply.name, codes, reply.epoch),
            client: client(session, tid),
            trace,
        });
        self.sort_history();
    }

    /// Forgets what is too old.
    pub(crate) fn expire(&mut self, now: Stamp) {
        let duration = self.history_duration;
        self.history.retain(|op| now.since(op.trace.replied) <= duration);
        self.sort_history();
    }

    fn sort_history(&mut self) {
        self.history.sort_by_key(|op| std::cmp::Reverse(whole_ns(&op.trace)));
        self.history.truncate(self.history_size);
        let full = self.history.len() >= self.history_size;
        let shortest = self.history.last().filter(|_| full);
        self.shortest_ns = shortest.map(|op| whole_ns(&op.trace));
    }

    /// Adds to `perf dump`.
    pub(crate) fn dump(&self, osd: &mut Map<String, Value>) -> Value {
        let mut stages = Map::new();
        for (name, kind) in self.kinds() {
            osd.insert(format!("op_{name}"), json!(kind.count));
            osd.insert(format!("op_{name}_latency"), kind.whole.dump(kind.count));
            for (stage, latencies) in STAGES.iter().zip(&kind.stages) {
                stages.insert(format!("op_{name}_{stage}"), latencies.dump(kind.count));
            }
        }
        Value::Object(stages)
    }

    /// `perf histogram dump`.
    pub(crate) fn dump_histograms(&self) -> Value {
        let (mut osd, mut stages) = (Map::new(), Map::new());
        for (name, kind) in self.kinds() {
            osd.insert(format!("op_{name}_latency_histogram"), kind.whole.dump_histogram(kind.count));
            for (stage, latencies) in STAGES.iter().zip(&kind.stages) {
                stages.insert(format!("op_{name}_{stage}_histogram"), latencies.dump_histogram(kind.count));
            }
        }
        json!({ "osd": osd, "osd-stages": stages })
    }

    fn kinds(&self) -> [(&'static str, &Kind); 2] {
        [("r", &self.reads), ("w", &self.writes)]
    }

    /// `dump_historic_ops`, oldest first.
    pub(crate) fn dump_history(&self, (now, wall): (Stamp, UTime)) -> Value {
        let mut ops: Vec<&Finished> = self.history.iter().collect();
        ops.sort_by_key(|op| op.trace.received);
        let show = |op: &&Finished| {
            json!({
                "description": op.description,
                "initiated_at": at(op.trace.received, now, wall).to_string(),
                "age": now.since(op.trace.received).as_secs_f64(),
                "duration": Duration::from_nanos(whole_ns(&op.trace)).as_secs_f64(),
                "type_data": {
                    "flag_point": "commit sent; apply or cleanup",
                    "client_info": op.client,
                    "events": events(&op.trace, now, wall),
                },
            })
        };
        json!({
            "size": self.history_size,
            "duration": self.history_duration.as_secs(),
            "ops": ops.iter().map(show).collect::<Vec<_>>(),
        })
    }
}

/// Whether a message changed something.
pub(crate) fn is_write(trace: &Trace) -> bool {
    trace.replicated != Stamp::default()
}

/// Nanoseconds from a message's arrival to its answer.
fn whole_ns(trace: &Trace) -> u64 {
    trace.replied.nanos_since(trace.received)
}

/// Nanoseconds that a message spent in each stage; none in those that it did not pass.
fn spent(trace: &Trace) -> [u64; STAGES.len()] {
    let mut before = trace.received;
    stamps(trace).map(|stamp| {
        let spent = stamp.nanos_since(before);
        before = before.max(stamp);
        spent
    })
}

fn stamps(trace: &Trace) -> [Stamp; STAGES.len()] {
    [trace.dispatched, trace.executed, trace.logged, trace.replicated, trace.replied]
}

/// A stamp by the calendar.
fn at(stamp: Stamp, now: Stamp, wall: UTime) -> UTime {
    UTime::from_unix(wall.to_unix().saturating_sub(now.since(stamp)))
}

fn events(trace: &Trace, now: Stamp, wall: UTime) -> Vec<Value> {
    let begin = std::iter::once(("initiated", trace.received));
    let reached = STAGES.into_iter().zip(stamps(trace)).filter(|(_, stamp)| *stamp != Stamp::default());
    let mut before = trace.received;
    begin
        .chain(reached)
        .map(|(event, stamp)| {
            let duration = stamp.since(before).as_secs_f64();
            before = before.max(stamp);
            json!({ "event": event, "time": at(stamp, now, wall).to_string(), "duration": duration })
        })
        .collect()
}

fn client(session: Option<&Session>, tid: u64) -> Value {
    match session {
        Some(session) => json!({
            "client": session.name.to_string(), "client_addr": session.addr.to_string(), "tid": tid,
        }),
        None => json!({ "tid": tid }),
    }
}

fn describe(
    session: Option<&Session>,
    tid: u64,
    pg: PgId,
    name: &ByteStr,
    codes: impl Iterator<Item = u16>,
    epoch: u32,
) -> String {
    let client = session.map_or_else(|| "client.?".to_owned(), |session| session.name.to_string());
    let codes: Vec<&str> = codes.take(CODES_MAX).map(code::name).collect();
    format!("osd_op({client}:{tid} {pg} {name} [{}] e{epoch})", codes.join(","))
}

/// A message under way, in a line.
fn describe_op(op: &OsdOp, session: &Session, tid: u64) -> String {
    describe(Some(session), tid, op.spg.pg, &op.name, op.ops.iter().map(|op| op.code), op.epoch)
}

/// What a message under way waits for, as Ceph's tools name it, and in words.
fn waits_for(op_in_flight: &OpInFlight<'_>) -> (&'static str, String) {
    match op_in_flight.stage {
        OpStage::Memory => ("delayed", "waiting for memory that other messages take".to_owned()),
        OpStage::Lease => ("delayed", "waiting for a lease of the other acting OSDs".to_owned()),
        OpStage::Metadata => ("delayed", "waiting for metadata of the object from the device".to_owned()),
        OpStage::Future => ("delayed", "waiting for a newer map".to_owned()),
        OpStage::Inactive => ("delayed", "waiting for peering".to_owned()),
        OpStage::Missing => ("delayed", "waiting for recovery of the object".to_owned()),
        OpStage::Scrub => ("delayed", "waiting for scrub".to_owned()),
        OpStage::Queued => ("delayed", "waiting for earlier messages on the object".to_owned()),
        OpStage::Data => ("started", "waiting for data".to_owned()),
        OpStage::Commit => {
            let osds: Vec<String> = op_in_flight.waiting_on.iter().map(ToString::to_string).collect();
            ("waiting for sub ops", format!("waiting for the disks of osd.[{}]", osds.join(",")))
        }
    }
}

/// One of `dump_ops_in_flight`.
pub(crate) fn dump_op_in_flight(op_in_flight: &OpInFlight<'_>, (now, wall): (Stamp, UTime)) -> Value {
    let op = op_in_flight.op;
    let age = now.since(op.trace.received).as_secs_f64();
    let (flag_point, text) = waits_for(op_in_flight);
    let mut events = events(&op_in_flight.trace, now, wall);
    events.push(json!({ "event": text, "time": wall.to_string(), "duration": 0.0 }));
    json!({
        "description": describe_op(&op.op, &op.session, op.tid),
        "initiated_at": at(op.trace.received, now, wall).to_string(),
        "age": age,
        "duration": age,
        "type_data": {
            "flag_point": flag_point,
            "client_info": client(Some(&op.session), op.tid),
            "events": events,
        },
    })
}

/// A slow message for our monitor.
pub(crate) fn slow_request(op_in_flight: &OpInFlight<'_>, now: Stamp) -> SlowRequest {
    let op = op_in_flight.op;
    let since = |stamp: Stamp| u64::try_from(stamp.since(op.trace.received).as_millis()).unwrap_or(u64::MAX);
    let reached = STAGES.into_iter().zip(stamps(&op_in_flight.trace));
    let reached = reached.filter(|(_, stamp)| *stamp != Stamp::default());
    SlowRequest::of(
        describe_op(&op.op, &op.session, op.tid),
        since(now),
        waits_for(op_in_flight).1,
        reached.map(|(stage, stamp)| (stage.to_string(), since(stamp))).collect(),
    )
}

/// A slow message for the log: what it is and what it waits for.
pub(crate) fn warn_slow_ops(op_in_flight: &OpInFlight<'_>) -> String {
    let op = op_in_flight.op;
    format!("{}: {}", describe_op(&op.op, &op.session, op.tid), waits_for(op_in_flight).1)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn at_us(us: u64) -> Stamp {
        Stamp::default() + Duration::from_micros(us)
    }

    fn write(received: u64, logged: u64, replied: u64) -> Trace {
        let [received, replied] = [received, replied].map(at_us);
        Trace {
            received,
            dispatched: received,
            executed: received,
            logged: at_us(logged),
            replicated: replied,
            replied,
            input_bytes: 0,
        }
    }

    #[test]
    fn stages_add_up_to_the_whole() {
        let us = |us: u64| us * 1000;
        assert_eq!(spent(&write(10, 110, 160)), [us(0), us(0), us(100), us(50), us(0)]);
        let read = Trace {
            logged: Stamp::default(),
            replicated: Stamp::default(),
            executed: at_us(40),
            ..write(10, 0, 50)
        };
        assert_eq!(spent(&read), [us(0), us(30), us(0), us(0), us(10)]);
        for trace in [read, write(10, 110, 160)] {
            let whole = trace.replied.since(trace.received);
            assert_eq!(Duration::from_nanos(spent(&trace).iter().sum()), whole);
        }
    }

    #[test]
    fn buckets_are_those_that_the_ranges_say() {
        for us in [0, 1, 2, 3, 4, 1_000, 1_023, 1_024, u64::MAX >> 20] {
            let mut latencies = Latencies::NONE;
            latencies.add(us * 1000);
            let shown = latencies.dump_histogram(1);
            let values = shown["values"].as_array().expect("buckets");
            let bucket = values.iter().position(|count| *count == 1).expect("one is counted");
            let range = &shown["axes"][0]["ranges"][bucket];
            let (low, high) = (range["min"].as_u64().unwrap_or(0), range["max"].as_u64().unwrap_or(u64::MAX));
            assert!((low..=high).contains(&us), "{us} us in bucket {bucket}, {range}");
        }
    }

    /// The answer to a read.
    pub(crate) fn reply() -> OsdOpReply {
        OsdOpReply {
            name: "object".into(),
            pg: PgId::new(1, 2),
            flags: 0,
            result: 0,
            bad_replay_version: Default::default(),
            epoch: 7,
            ops: Vec::new(),
            retry_attempt: 0,
            replay_version: Default::default(),
            user_version: 0,
        }
    }

    #[test]
    fn the_slowest_are_kept_until_they_are_old() {
        let mut tracker = Tracker::new();
        tracker.configure(2, Duration::from_secs(600));
        let reply = reply();
        let mut kept = Vec::new();
        for (tid, took) in [(1, 50), (2, 90), (3, 40), (4, 70), (5, 60)] {
            let trace = write(1_000 * tid, 1_000 * tid + 10, 1_000 * tid + took);
            if tracker.answered(&trace) {
                tracker.keep(&reply, tid, None, trace);
                kept.push(tid);
            }
        }
        assert_eq!(kept, [1, 2, 4]);
        let dump = tracker.dump_history((at_us(9_000), UTime::ZERO));
        let shown: Vec<&Value> = dump["ops"].as_array().expect("ops").iter().collect();
        assert_eq!(shown[0]["description"], "osd_op(client.?:2 1.2 object [] e7)");
        assert_eq!(shown.len(), 2);
        tracker.expire(at_us(9_000) + Duration::from_secs(600));
        assert!(tracker.history.is_empty() && tracker.answered(&write(0, 0, 1)));
        tracker.enable(false);
        assert!(!tracker.answered(&write(0, 0, 1)), "nothing counts");
        let mut osd = Map::new();
        let stages = tracker.dump(&mut osd);
        assert_eq!(osd["op_w"], 6);
        assert_eq!(stages["op_w_logged"]["avgcount"], 6);
    }
}
