//! [`Gatherings`]: commands that all shards of an OSD answer together, such as `perf dump`. Each shard shows its part; the first one, which got
//! the command, makes one answer of them. With one shard its part is the answer.

use crate::bench_workload::{self, Workload};
use crate::command_reply::Failure;
use crate::perf_counters;
use nacre_pg::SessionId;
use nacre_store::StoreUsage;
use nacre_types::{Errno, Stamp};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Commands under way at most.
const GATHERINGS_MAX: usize = 256;
/// A shard that has not shown its part after this time does nothing else either: the answer goes without it, and says so. `nacre doctor` waits
/// for five seconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a shard can show of itself at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// `perf dump`
    Counters,
    /// `perf schema`: the same, to be described.
    Schema,
    /// `perf histogram dump`
    Histograms,
    /// `dump_ops_in_flight`
    OpsInFlight,
    /// `dump_blocked_ops`
    BlockedOps,
    /// `dump_historic_ops`
    HistoricOps,
}

/// What each shard has to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// What is to be seen now.
    Now(View),
    /// `flush_pg_stats`: nothing, once it has reported.
    Report,
    /// `bench`: what it has measured, once it has written its part.
    Bench(Workload),
}

impl Shown {
    /// How long the answer waits for shards.
    fn patience(self) -> Duration {
        match self {
            Self::Bench(_) => bench_workload::DURATION_MAX + PATIENCE,
            _ => PATIENCE,
        }
    }
}

/// One command, and the parts that have come.
#[derive(Debug)]
struct Gathering {
    session: SessionId,
    tid: u64,
    shown: Shown,
    parts: BTreeMap<usize, Result<Value, Failure>>,
    until: Stamp,
}

/// A command that is to be answered.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) session: SessionId,
    pub(crate) tid: u64,
    pub(crate) shown: Shown,
    pub(crate) answer: Result<Value, Failure>,
}

/// Commands that wait for parts of other shards.
#[derive(Debug)]
pub(crate) struct Gatherings {
    shard_count: usize,
    next: u64,
    under_way: BTreeMap<u64, Gathering>,
}

impl Gatherings {
    pub(crate) fn new(shard_count: usize) -> Self {
        Self { shard_count, next: 0, under_way: BTreeMap::new() }
    }

    /// Begins to gather for a client's command; yields the number by which the others' parts are recognized.
    ///
    /// # Errors
    /// Too many are under way.
    pub(crate) fn begin(
        &mut self,
        (session, tid): (SessionId, u64),
        shown: Shown,
        now: Stamp,
    ) -> Result<u64, Failure> {
        let is_bench = |shown: Shown| matches!(shown, Shown::Bench(_));
        if is_bench(shown) && self.under_way.values().any(|other| is_bench(other.shown)) {
            return Err((Errno::EBUSY, "another bench is under way".to_owned()));
        }
        if self.under_way.len() >= GATHERINGS_MAX {
            return Err((Errno::EBUSY, "too many commands are under way; try again".to_owned()));
        }
        self.next += 1;
        let gathering =
            Gathering { session, tid, shown, parts: BTreeMap::new(), until: now + shown.patience() };
        self.under_way.insert(self.next, gathering);
        Ok(self.next)
    }

    /// A shard shows its part; the answer, if it was the last one.
    pub(crate) fn add(
        &mut self,
        number: u64,
        shard: usize,
        part: Result<Value, Failure>,
    ) -> Option<Gathered> {
        let gathering = self.under_way.get_mut(&number)?;
        gathering.parts.insert(shard, part);
        let is_whole = gathering.parts.len() == self.shard_count;
        if is_whole { self.end(number) } else { None }
    }

    /// The next one that has waited for too long.
    pub(crate) fn take_late(&mut self, now: Stamp) -> Option<Gathered> {
        let number = *self.under_way.iter().find(|(_, gathering)| gathering.until <= now)?.0;
        self.end(number)
    }

    fn end(&mut self, number: u64) -> Option<Gathered> {
        let Gathering { session, tid, shown, parts, .. } = self.under_way.remove(&number)?;
        let silent: Vec<usize> = (0..self.shard_count).filter(|shard| !parts.contains_key(shard)).collect();
        let parts: Vec<Value> = match parts.into_values().collect() {
            Ok(parts) => parts,
            Err(failure) => return Some(Gathered { session, tid, shown, answer: Err(failure) }),
        };
        let mut answer = merge(shown, parts);
        if let (Shown::Now(_), Some(fields)) = (shown, answer.as_object_mut()) {
            if !silent.is_empty() {
                fields.insert("shards_without_answer".to_owned(), silent.into());
            }
        } else if !silent.is_empty() {
            let text = format!("shards {silent:?} of this OSD do not answer");
            return Some(Gathered { session, tid, shown, answer: Err((Errno::ETIMEDOUT, text)) });
        }
        Some(Gathered { session, tid, shown, answer: Ok(answer) })
    }
}

/// One answer of the parts of all shards.
fn merge(shown: Shown, parts: Vec<Value>) -> Value {
    match shown {
        Shown::Now(view) => merge_views(view, parts),
        Shown::Report => Value::Null,
        Shown::Bench(_) => bench_workload::together(&parts),
    }
}

fn merge_views(view: View, parts: Vec<Value>) -> Value {
    let available = (view == View::Counters).then(|| available(&parts));
    let mut whole = parts.into_iter().reduce(|whole, part| plus("", whole, part)).unwrap_or_default();
    match view {
        View::OpsInFlight | View::BlockedOps => in_order(&mut whole),
        View::HistoricOps => {
            keep_slowest(&mut whole);
            in_order(&mut whole);
        }
        View::Schema => whole = perf_counters::schema(&whole),
        View::Counters => {
            let shown = whole.pointer_mut("/osd/stat_bytes_avail");
            shown.into_iter().for_each(|sum| *sum = available.into());
        }
        View::Histograms => (),
    }
    whole
}

/// Bytes that are available to all of them together: not the sum.
fn available(parts: &[Value]) -> u64 {
    let of = |part: &Value| {
        let osd = part.get("osd")?;
        Some((osd.get("stat_bytes_avail")?.as_u64()?, osd.get("nacre_partitions")?.as_u64()?))
    };
    StoreUsage::available_together(parts.iter().filter_map(of))
}

/// The sum of what two shards show under `name`. Numbers are added, but for those that all shards have in common; operations stand beside each
/// other.
fn plus(name: &str, one: Value, other: Value) -> Value {
    match (name, one, other) {
        // What axes of histograms are, how many operations are kept and for how long.
        ("axes" | "size" | "duration" | "complaint_time", one, _) => one,
        // Of the process, in which all shards are, and the longest that any PG may have.
        ("process_us" | "process_bytes" | "pg_log_entries_max", one, other) => larger(one, other),
        ("ops", Value::Array(mut one), Value::Array(other)) => {
            one.extend(other);
            one.into()
        }
        (_, Value::Array(one), Value::Array(other)) => {
            one.into_iter().zip(other).map(|(one, other)| plus("", one, other)).collect()
        }
        (_, Value::Object(one), Value::Object(other)) => Value::Object(fields_plus(one, other)),
        (_, Value::Number(one), Value::Number(other)) => match (one.as_u64(), other.as_u64()) {
            (Some(one), Some(other)) => one.saturating_add(other).into(),
            _ => (one.as_f64().unwrap_or_default() + other.as_f64().unwrap_or_default()).into(),
        },
        (_, one, _) => one,
    }
}

fn fields_plus(mut one: Map<String, Value>, other: Map<String, Value>) -> Map<String, Value> {
    for (name, value) in other {
        match one.get_mut(&name) {
            Some(sum) => *sum = plus(&name, sum.take(), value),
            None => drop(one.insert(name, value)),
        }
    }
    // An average is made anew of what was summed up.
    let number = |name| one.get(name).and_then(Value::as_f64);
    if let (Some(count), Some(sum), Some(_)) = (number("avgcount"), number("sum"), number("avgtime")) {
        one.insert("avgtime".to_owned(), (sum / count.max(1.0)).into());
    }
    one
}

fn larger(one: Value, other: Value) -> Value {
    if other.as_f64() > one.as_f64() { other } else { one }
}

fn ops(whole: &mut Value) -> Option<&mut Vec<Value>> {
    whole.get_mut("ops")?.as_array_mut()
}

/// Operations stand in the order in which they came.
fn in_order(whole: &mut Value) {
    let began = |op: &Value| op["initiated_at"].as_str().unwrap_or_default().to_owned();
    ops(whole).into_iter().for_each(|ops| ops.sort_by_key(began));
}

/// Of all operations as many are kept as of one shard's.
fn keep_slowest(whole: &mut Value) {
    let size = whole["size"].as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
    let Some(ops) = ops(whole) else { return };
    let duration = |op: &Value| op["duration"].as_f64().unwrap_or_default();
    ops.sort_by(|one, other| duration(other).total_cmp(&duration(one)));
    ops.truncate(size);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CLIENT: SessionId = SessionId(1);

    fn at(second: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(second)
    }

    #[test]
    fn counters_are_added_and_averages_are_those_of_all() {
        let of = |ops: u64, sum: f64, process: u64| {
            json!({
                "osd": { "op": ops, "op_latency": { "avgcount": ops, "sum": sum, "avgtime": sum / ops as f64 } },
                "osd-cpu": { "threads_us": 10, (format!("shard_{process}_us")): 10, "process_us": process },
            })
        };
        let parts = vec![of(1, 3.0, 30), of(3, 1.0, 31)];
        let schema = merge_views(View::Schema, parts.clone());
        assert!(schema["osd-cpu"]["shard_31_us"]["type"].is_u64(), "{schema}");
        let whole = merge_views(View::Counters, parts);
        let shown = json!({
            "osd": { "op": 4, "op_latency": { "avgcount": 4, "sum": 4.0, "avgtime": 1.0 } },
            "osd-cpu": { "threads_us": 20, "shard_30_us": 10, "shard_31_us": 10, "process_us": 31 },
        });
        assert_eq!(whole, shown);
        assert_eq!(
            merge_views(View::Counters, vec![of(1, 3.0, 30)]),
            of(1, 3.0, 30),
            "one shard's is its own"
        );
    }

    #[test]
    fn a_store_is_as_full_as_its_fullest_partition() {
        let of = |available: u64, partitions: u64| json!({ "osd": { "stat_bytes_avail": available, "nacre_partitions": partitions } });
        assert_eq!(merge_views(View::Counters, vec![of(60, 2), of(20, 1)]), of(60, 3), "20 in each of three");
        assert_eq!(merge_views(View::Counters, vec![of(60, 2), of(40, 1)]), of(90, 3), "30 in each");
        assert_eq!(merge_views(View::Counters, vec![of(60, 1)]), of(60, 1));
    }

    #[test]
    fn histograms_have_one_axis() {
        let of =
            |values: [u64; 3]| json!({ "osd": { "h": { "axes": [{ "buckets": 3 }], "values": values } } });
        assert_eq!(merge_views(View::Histograms, vec![of([1, 0, 2]), of([5, 1, 0])]), of([6, 1, 2]));
    }

    #[test]
    fn operations_stand_beside_each_other_as_they_came() {
        let op = |began: &str, duration: f64| json!({ "initiated_at": began, "duration": duration });
        let ops = |ops: &[Value]| json!({ "num_ops": ops.len(), "ops": ops });
        let (first, second, third) = (op("1", 1.0), op("2", 9.0), op("3", 5.0));
        let whole = merge_views(
            View::OpsInFlight,
            vec![ops(&[first.clone(), third.clone()]), ops(std::slice::from_ref(&second))],
        );
        assert_eq!(whole, ops(&[first.clone(), second.clone(), third.clone()]));
        let history = |ops: &[Value]| json!({ "size": 2, "duration": 600, "ops": ops });
        let whole = merge_views(
            View::HistoricOps,
            vec![history(&[first, third.clone()]), history(std::slice::from_ref(&second))],
        );
        assert_eq!(whole, history(&[second, third]), "the slowest of all");
    }

    #[test]
    fn the_answer_waits_for_all_shards_but_not_for_ever() {
        let mut gatherings = Gatherings::new(2);
        let counters = |ops: u64| json!({ "op": ops });
        let part = |ops: u64| Ok(counters(ops));
        let number = gatherings.begin((CLIENT, 7), Shown::Now(View::Counters), at(1)).expect("there is room");
        assert!(gatherings.add(number, 0, part(1)).is_none());
        let whole = gatherings.add(number, 1, part(2)).expect("both have shown theirs");
        assert_eq!((whole.session, whole.tid, whole.answer), (CLIENT, 7, Ok(counters(3))));
        let number = gatherings.begin((CLIENT, 8), Shown::Now(View::Counters), at(1)).expect("there is room");
        assert!(gatherings.add(number, 0, part(1)).is_none() && gatherings.take_late(at(3)).is_none());
        let whole = gatherings.take_late(at(4)).expect("it is late");
        assert_eq!(whole.answer, Ok(json!({ "op": 1, "shards_without_answer": [1] })));
        assert!(gatherings.add(number, 1, part(2)).is_none() && gatherings.take_late(at(99)).is_none());
        let number = gatherings.begin((CLIENT, 9), Shown::Report, at(1)).expect("there is room");
        assert!(gatherings.add(number, 0, Ok(Value::Null)).is_none());
        let late = gatherings.take_late(at(4)).expect("it is late");
        assert_eq!(late.answer.map_err(|failure| failure.0), Err(Errno::ETIMEDOUT), "not all have reported");
    }

    #[test]
    fn one_shards_failure_is_that_of_a_bench_which_may_take_longer_and_is_alone() {
        let mut gatherings = Gatherings::new(2);
        let shown = Shown::Bench(Workload::new(None, None).expect("what is not given"));
        let number = gatherings.begin((CLIENT, 7), shown, at(1)).expect("there is room");
        assert!(gatherings.add(number, 0, Ok(json!({ "bytes_written": 4 }))).is_none());
        assert!(gatherings.take_late(at(1) + bench_workload::DURATION_MAX).is_none());
        let failure = (Errno::ENOSPC, "no room".to_owned());
        let whole = gatherings.add(number, 1, Err(failure.clone())).expect("both have said something");
        assert_eq!(whole.answer, Err(failure));
        let number = gatherings.begin((CLIENT, 8), shown, at(1)).expect("the other one has ended");
        assert_eq!(gatherings.begin((CLIENT, 9), shown, at(1)).expect_err("one at a time").0, Errno::EBUSY);
        assert!(gatherings.add(number, 0, Ok(json!({ "bytes_written": 4 }))).is_none());
        let late = gatherings.take_late(at(99)).expect("it is late");
        assert_eq!(
            late.answer.map_err(|failure| failure.0),
            Err(Errno::ETIMEDOUT),
            "half of a bench is none"
        );
    }

    #[test]
    fn so_many_are_under_way_and_no_more() {
        let mut gatherings = Gatherings::new(2);
        for tid in 0..GATHERINGS_MAX as u64 {
            assert!(gatherings.begin((CLIENT, tid), Shown::Now(View::Counters), at(1)).is_ok());
        }
        let refused = gatherings.begin((CLIENT, 9), Shown::Now(View::Counters), at(1)).expect_err("too many");
        assert_eq!(refused.0, Errno::EBUSY);
    }
}
