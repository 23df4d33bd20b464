//! Counters of an OSD as the manager gets them, under Ceph's names, and `perf schema`.
//!
//! Ceph: `src/osd/osd_perf_counters.cc`, `src/common/perf_counters.h` at v16.2.15; names, priorities and units are those there, so that the
//! manager's modules and what stands on them find them.

use crate::stage_sums::{StageSums, stage};
use nacre_msg::{PerfCounterType, counter_kind};
use nacre_store::{DeviceTotals, StoreCounters, StoreUsage};
use nacre_types::DeviceWork;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What counts since the start, of one shard or of all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PerfSums {
    pub(crate) ops: u64,
    pub(crate) op_in_bytes: u64,
    pub(crate) op_out_bytes: u64,
    /// Number, and nanoseconds from arrival to answer, of all messages that were answered, of reads and of writes.
    pub(crate) latency: (u64, u64),
    pub(crate) reads: (u64, u64),
    pub(crate) writes: (u64, u64),
    pub(crate) read_out_bytes: u64,
    pub(crate) write_in_bytes: u64,
    pub(crate) ops_in_flight: u64,
    pub(crate) pg_count: u64,
    pub(crate) total_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) available_bytes: u64,
    /// Parts of the store that this is about.
    pub(crate) partitions: u64,
    /// Objects that were brought to where they belong, in PGs that it leads.
    pub(crate) recovered: u64,
    /// Seconds of recovery beside clients, and those of them in which its limit was kept.
    pub(crate) kept_seconds: (u64, u64),
    /// Number of clients' writes, and nanoseconds until the log had them.
    pub(crate) commits: (u64, u64),
    pub(crate) stages: StageSums,
    /// Microseconds of processor time: of the shards' threads, and of the whole process, in which there may be other OSDs.
    pub(crate) thread_cpu_us: u64,
    pub(crate) process_cpu_us: u64,
    pub(crate) store: StoreCounters,
}

fn add((count, sum): (u64, u64), (more, spent): (u64, u64)) -> (u64, u64) {
    (count + more, sum + spent)
}

impl PerfSums {
    /// The sums of both shards.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            ops: self.ops + other.ops,
            op_in_bytes: self.op_in_bytes + other.op_in_bytes,
            op_out_bytes: self.op_out_bytes + other.op_out_bytes,
            latency: add(self.latency, other.latency),
            reads: add(self.reads, other.reads),
            writes: add(self.writes, other.writes),
            read_out_bytes: self.read_out_bytes + other.read_out_bytes,
            write_in_bytes: self.write_in_bytes + other.write_in_bytes,
            ops_in_flight: self.ops_in_flight + other.ops_in_flight,
            pg_count: self.pg_count + other.pg_count,
            total_bytes: self.total_bytes + other.total_bytes,
            used_bytes: self.used_bytes + other.used_bytes,
            available_bytes: StoreUsage::available_together(
                [self, other].into_iter().map(|sums| (sums.available_bytes, sums.partitions)),
            ),
            partitions: self.partitions + other.partitions,
            recovered: self.recovered + other.recovered,
            kept_seconds: add(self.kept_seconds, other.kept_seconds),
            commits: add(self.commits, other.commits),
            stages: self.stages.plus(&other.stages),
            thread_cpu_us: self.thread_cpu_us + other.thread_cpu_us,
            process_cpu_us: self.process_cpu_us.max(other.process_cpu_us),
            store: self.store.plus(&other.store),
        }
    }
}

/// One counter: how it is described, and where its value is.
struct Counter {
    path: &'static str,
    kind: u8,
    priority: u8,
    unit: u8,
    nick: &'static str,
    text: &'static str,
    /// The value, and for averages how many were summed up.
    value: fn(&PerfSums) -> (u64, u64),
}

const USEFUL: u8 = 5;
const INTERESTING: u8 = 8;
const CRITICAL: u8 = 10;
const GAUGE: u8 = counter_kind::U64;
const COUNT: u8 = counter_kind::U64 | counter_kind::COUNTER;
const LATENCY: u8 = counter_kind::TIME | counter_kind::AVERAGE;
const NO_UNIT: u8 = 0;
const BYTES: u8 = 1;
const STAGE: (u8, u8, u8) = (LATENCY, USEFUL, NO_UNIT);

const fn row(
    (path, nick): (&'static str, &'static str),
    (kind, priority, unit): (u8, u8, u8),
    text: &'static str,
    value: fn(&PerfSums) -> (u64, u64),
) -> Counter {
    Counter { path, kind, priority, unit, nick, text, value }
}

/// A sum of nanoseconds and what was summed up, as the manager takes them.
const fn sum_first((count, sum): (u64, u64)) -> (u64, u64) {
    (sum, count)
}

fn device(sums: &PerfSums, work: DeviceWork) -> (u64, u64) {
    let DeviceTotals { count, spent_ns, .. } = sums.store.device[work as usize];
    (spent_ns, count)
}

/// By their paths, `LOGGER.COUNTER`.
const COUNTERS: &[Counter] = &[
    row(("osd.op_wip", ""), (GAUGE, CRITICAL, NO_UNIT), "Messages of clients under way", |sums| {
        (sums.ops_in_flight, 0)
    }),
    row(("osd.op", "ops"), (COUNT, CRITICAL, NO_UNIT), "Messages of clients", |sums| (sums.ops, 0)),
    row(("osd.op_in_bytes", "wr"), (COUNT, INTERESTING, BYTES), "Data that clients sent", |sums| {
        (sums.op_in_bytes, 0)
    }),
    row(("osd.op_out_bytes", "rd"), (COUNT, INTERESTING, BYTES), "Data that clients got", |sums| {
        (sums.op_out_bytes, 0)
    }),
    row(("osd.op_latency", "l"), (LATENCY, 9, NO_UNIT), "Time from a message to its answer", |sums| {
        sum_first(sums.latency)
    }),
    row(("osd.op_r", ""), (COUNT, USEFUL, NO_UNIT), "Reads answered", |sums| (sums.reads.0, 0)),
    row(("osd.op_r_out_bytes", ""), (COUNT, USEFUL, BYTES), "Data that reads brought", |sums| {
        (sums.read_out_bytes, 0)
    }),
    row(("osd.op_r_latency", ""), (LATENCY, USEFUL, NO_UNIT), "Time from a read to its answer", |sums| {
        sum_first(sums.reads)
    }),
    row(("osd.op_w", ""), (COUNT, USEFUL, NO_UNIT), "Writes answered", |sums| (sums.writes.0, 0)),
    row(("osd.op_w_in_bytes", ""), (COUNT, USEFUL, BYTES), "Data that writes brought", |sums| {
        (sums.write_in_bytes, 0)
    }),
    row(("osd.op_w_latency", ""), (LATENCY, USEFUL, NO_UNIT), "Time from a write to its answer", |sums| {
        sum_first(sums.writes)
    }),
    row(("osd.numpg", "pgs"), (GAUGE, USEFUL, NO_UNIT), "Placement groups here", |sums| (sums.pg_count, 0)),
    row(("osd.stat_bytes", "size"), (GAUGE, USEFUL, BYTES), "Size of the store", |sums| {
        (sums.total_bytes, 0)
    }),
    row(("osd.stat_bytes_used", "used"), (GAUGE, USEFUL, BYTES), "Used of it", |sums| (sums.used_bytes, 0)),
    row(("osd.stat_bytes_avail", "avai"), (GAUGE, USEFUL, BYTES), "Free of it", |sums| {
        (sums.available_bytes, 0)
    }),
    row(("osd.recovery_ops", "rop"), (COUNT, INTERESTING, NO_UNIT), "Objects recovered", |sums| {
        (sums.recovered, 0)
    }),
    row(
        ("osd.nacre_recovery_seconds", ""),
        (COUNT, USEFUL, NO_UNIT),
        "Seconds in which clients wrote beside recovery",
        |sums| (sums.kept_seconds.0, 0),
    ),
    row(
        ("osd.nacre_recovery_seconds_kept", ""),
        (COUNT, USEFUL, NO_UNIT),
        "Those in which 99 of 100 writes kept to the latency target",
        |sums| (sums.kept_seconds.1, 0),
    ),
    row(
        ("bluestore.kv_commit_lat", "kc_l"),
        (LATENCY, INTERESTING, NO_UNIT),
        "Time until the store's log has a write",
        |sums| sum_first(sums.commits),
    ),
    row(("bluestore.onode_hits", ""), (COUNT, USEFUL, NO_UNIT), "Objects found in memory", |sums| {
        (sums.store.object_hits, 0)
    }),
    row(("bluestore.onode_misses", ""), (COUNT, USEFUL, NO_UNIT), "Objects read for a look", |sums| {
        (sums.store.object_misses, 0)
    }),
    row(("bluefs.wal_total_bytes", "walb"), (GAUGE, USEFUL, BYTES), "Size of the store's log", |sums| {
        (sums.store.log_bytes, 0)
    }),
    row(
        ("osd-cpu.threads_us", ""),
        (COUNT, USEFUL, NO_UNIT),
        "Processor time of the OSD's threads, in us",
        |sums| (sums.thread_cpu_us, 0),
    ),
    row(
        ("osd-cpu.process_us", ""),
        (COUNT, USEFUL, NO_UNIT),
        "Processor time of its whole process, in us",
        |sums| (sums.process_cpu_us, 0),
    ),
    // Reads pass no log and no other OSD.
    row(("osd-stages.op_r_dispatched", ""), STAGE, "Reads: until the PG had them", |sums| {
        sums.stages.read(stage::DISPATCHED)
    }),
    row(("osd-stages.op_r_executed", ""), STAGE, "Reads: from there until the data was there", |sums| {
        sums.stages.read(stage::EXECUTED)
    }),
    row(("osd-stages.op_r_replied", ""), STAGE, "Reads: from there to the answer", |sums| {
        sums.stages.read(stage::REPLIED)
    }),
    row(("osd-stages.op_w_dispatched", ""), STAGE, "Writes: until the PG had them", |sums| {
        sums.stages.write(stage::DISPATCHED)
    }),
    row(("osd-stages.op_w_executed", ""), STAGE, "Writes: from there until they were executed", |sums| {
        sums.stages.write(stage::EXECUTED)
    }),
    row(
        ("osd-stages.op_w_logged", ""),
        STAGE,
        "Writes: from there until this OSD had them durably",
        |sums| sums.stages.write(stage::LOGGED),
    ),
    row(
        ("osd-stages.op_w_replicated", ""),
        STAGE,
        "Writes: from there until all members had them durably",
        |sums| sums.stages.write(stage::REPLICATED),
    ),
    row(("osd-stages.op_w_replied", ""), STAGE, "Writes: from there to the answer", |sums| {
        sums.stages.write(stage::REPLIED)
    }),
    row(("device.read_latency", ""), (LATENCY, USEFUL, NO_UNIT), "Time of reads at the device", |sums| {
        device(sums, DeviceWork::Read)
    }),
    row(
        ("device.cached_write_latency", ""),
        (LATENCY, USEFUL, NO_UNIT),
        "Time of writes at the device that a flush makes durable",
        |sums| device(sums, DeviceWork::CachedWrite),
    ),
    row(
        ("device.durable_write_latency", ""),
        (LATENCY, USEFUL, NO_UNIT),
        "Time of durable writes at the device",
        |sums| device(sums, DeviceWork::DurableWrite),
    ),
    row(("device.flush_latency", ""), (LATENCY, USEFUL, NO_UNIT), "Time of flushes of the device", |sums| {
        device(sums, DeviceWork::Flush)
    }),
    row(
        ("device.discard_latency", ""),
        (LATENCY, USEFUL, NO_UNIT),
        "Time of discards of freed space at the device",
        |sums| (sums.store.discards.spent_ns, sums.store.discards.count),
    ),
    row(("device.discarded_bytes", ""), (COUNT, USEFUL, BYTES), "Freed space that was discarded", |sums| {
        (sums.store.discards.bytes, 0)
    }),
];

/// What a session with the manager has declared.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    paths: BTreeSet<&'static str>,
}

/// What one report says of the counters.
#[derive(Debug, Default)]
pub(crate) struct CounterReport {
    pub(crate) declare: Vec<PerfCounterType>,
    pub(crate) undeclare: Vec<String>,
    pub(crate) packed: nacre_buf::Bytes,
}

impl Declared {
    /// All counters of at least this priority, with the declarations that the session lacks.
    pub(crate) fn report(&mut self, sums: &PerfSums, priority_min: u32) -> CounterReport {
        let is_wanted = |counter: &&Counter| u32::from(counter.priority) >= priority_min;
        let (wanted, unwanted): (Vec<&Counter>, Vec<&Counter>) = COUNTERS.iter().partition(is_wanted);
        let undeclare = unwanted
            .into_iter()
            .filter(|counter| self.paths.remove(counter.path))
            .map(|counter| counter.path.to_owned());
        let undeclare = undeclare.collect();
        let new = wanted.iter().filter(|counter| self.paths.insert(counter.path));
        let declare = new.map(|counter| declaration(counter)).collect();
        let values: BTreeMap<&str, (u8, u64, u64)> = wanted
            .iter()
            .map(|counter| {
                let (value, count) = (counter.value)(sums);
                (counter.path, (counter.kind, value, count))
            })
            .collect();
        CounterReport { declare, undeclare, packed: nacre_msg::pack_counters(&values) }
    }
}

fn declaration(counter: &Counter) -> PerfCounterType {
    PerfCounterType {
        path: counter.path.to_owned(),
        description: counter.text.to_owned(),
        nick: counter.nick.to_owned(),
        kind: counter.kind,
        priority: counter.priority,
        unit: counter.unit,
    }
}

/// `perf schema`: a description of each counter that `perf dump` shows.
pub(crate) fn schema(dump: &Value) -> Value {
    let sections = dump.as_object().into_iter().flatten().map(|(section, counters)| {
        let counters = counters.as_object().into_iter().flatten();
        let described = counters.map(|(name, value)| (name.clone(), describe(section, name, value)));
        (section.clone(), Value::Object(described.collect()))
    });
    Value::Object(sections.collect())
}

fn describe(section: &str, name: &str, value: &Value) -> Value {
    let known = COUNTERS.iter().find(|counter| counter.path.split_once('.') == Some((section, name)));
    let is_average = value.get("avgcount").is_some();
    let kind = known.map_or(if is_average { LATENCY } else { GAUGE }, |counter| counter.kind);
    let metric = if kind & counter_kind::COUNTER != 0 { "counter" } else { "gauge" };
    let value_type = match (kind & counter_kind::AVERAGE != 0, kind & counter_kind::TIME != 0) {
        (true, true) => "real-integer-pair",
        (true, false) => "integer-integer-pair",
        (false, _) => "integer",
    };
    let unit = known.is_some_and(|counter| counter.unit == BYTES) || name.ends_with("_bytes");
    let described = [
        ("type", json!(kind)),
        ("metric_type", json!(metric)),
        ("value_type", json!(value_type)),
        ("description", json!(known.map_or("", |counter| counter.text))),
        ("nick", json!(known.map_or("", |counter| counter.nick))),
        ("priority", json!(known.map_or(0, |counter| counter.priority))),
        ("units", json!(if unit { "bytes" } else { "none" })),
    ];
    Value::Object(Map::from_iter(described.map(|(key, value)| (key.to_owned(), value))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage_sums::STAGES;
    use nacre_denc::Reader;
    use nacre_store::{DiscardTotals, FreeSpace};
    use nacre_types::device_latency::LATENCY_BUCKETS;

    const SUMS: PerfSums = PerfSums {
        ops: 7,
        op_in_bytes: 0,
        op_out_bytes: 0,
        latency: (6, 600),
        reads: (2, 200),
        writes: (4, 400),
        read_out_bytes: 11,
        write_in_bytes: 12,
        ops_in_flight: 1,
        pg_count: 5,
        total_bytes: 100,
        used_bytes: 40,
        available_bytes: 60,
        partitions: 1,
        recovered: 3,
        kept_seconds: (20, 19),
        commits: (4, 44),
        stages: StageSums { reads: (2, [0, 150, 0, 0, 50]), writes: (4, [10, 20, 300, 60, 10]) },
        thread_cpu_us: 70,
        process_cpu_us: 90,
        store: StoreCounters {
            object_hits: 8,
            object_misses: 2,
            log_bytes: 4096,
            device: [DeviceTotals { count: 3, spent_ns: 900, counts: [0; LATENCY_BUCKETS] }; 4],
            free: FreeSpace { bytes: 0, long_bytes: 0, runs: 0 },
            discards: DiscardTotals { count: 5, bytes: 65_536, spent_ns: 500 },
        },
    };

    /// What a manager reads: a value for each path that was declared, in the order of the paths.
    fn read(declared: &BTreeMap<String, u8>, packed: nacre_buf::Bytes) -> BTreeMap<String, (u64, u64)> {
        let mut r = Reader::new(packed);
        r.envelope("counters", 1, |_, r| {
            let mut values = BTreeMap::new();
            for (path, kind) in declared {
                let value = r.u64()?;
                let count = if kind & counter_kind::AVERAGE != 0 { (r.u64()?, r.u64()?).0 } else { 0 };
                values.insert(path.clone(), (value, count));
            }
            assert_eq!(r.left(), 0, "nothing but what was declared");
            Ok(values)
        })
        .expect("all that was declared")
    }

    #[test]
    fn a_manager_finds_each_counter_under_its_path() {
        let mut session = Declared::default();
        let first = session.report(&SUMS, 5);
        let declared: BTreeMap<String, u8> =
            first.declare.iter().map(|counter| (counter.path.clone(), counter.kind)).collect();
        assert_eq!(declared.len(), COUNTERS.len());
        let values = read(&declared, first.packed);
        assert_eq!(values["osd.op"], (7, 0));
        assert_eq!(values["osd.op_w_latency"], (400, 4));
        assert_eq!(values["osd.stat_bytes_avail"], (60, 0));
        assert_eq!(values["device.durable_write_latency"], (900, 3));
        assert_eq!(
            (values["device.discard_latency"], values["device.discarded_bytes"]),
            ((500, 5), (65_536, 0))
        );
        assert_eq!((values["bluestore.kv_commit_lat"], values["osd.recovery_ops"]), ((44, 4), (3, 0)));
        assert_eq!(values["osd-stages.op_w_logged"], (300, 4));
        assert_eq!(
            (SUMS.plus(&SUMS).thread_cpu_us, SUMS.plus(&SUMS).process_cpu_us),
            (140, 90),
            "two threads of one process"
        );
        let second = session.report(&SUMS.plus(&SUMS), 5);
        assert!(second.declare.is_empty() && second.undeclare.is_empty(), "once in a session");
        assert_eq!(read(&declared, second.packed)["osd.op_r_latency"], (400, 4));
    }

    #[test]
    fn each_stage_has_the_counter_of_its_name() {
        for (kind, sums_of) in [("r", SUMS.stages.reads), ("w", SUMS.stages.writes)] {
            for (stage, ns) in STAGES.iter().zip(sums_of.1) {
                let path = format!("osd-stages.op_{kind}_{stage}");
                let value = COUNTERS
                    .iter()
                    .find(|counter| counter.path == path)
                    .map(|counter| (counter.value)(&SUMS));
                let passes = kind == "w" || !matches!(*stage, "logged" | "replicated");
                assert_eq!(value, passes.then_some((ns, sums_of.0)), "{path}");
            }
        }
    }

    #[test]
    fn what_the_manager_no_longer_wants_is_taken_back() {
        let mut session = Declared::default();
        session.report(&SUMS, 0);
        let fewer = session.report(&SUMS, 10);
        assert!(fewer.undeclare.contains(&"osd.numpg".to_owned()) && fewer.declare.is_empty());
        let left = BTreeMap::from([("osd.op".to_owned(), COUNT), ("osd.op_wip".to_owned(), GAUGE)]);
        assert_eq!(read(&left, fewer.packed)["osd.op_wip"], (1, 0));
        assert_eq!(session.report(&SUMS, 9).declare.len(), 1, "op_latency again");
    }

    #[test]
    fn the_schema_describes_what_is_shown() {
        let dump = json!({ "osd": { "op": 7, "op_latency": { "avgcount": 1, "sum": 0.1 } }, "osd-memory": { "pg_log_bytes": 1 } });
        let schema = schema(&dump);
        assert_eq!(schema["osd"]["op"]["metric_type"], "counter");
        assert_eq!(schema["osd"]["op_latency"]["value_type"], "real-integer-pair");
        assert_eq!(schema["osd-memory"]["pg_log_bytes"]["units"], "bytes");
    }
}
