//! [`Counters`]: what daemons count, as they report it to the manager.

use nacre_denc::Reader;
use nacre_msg::{DaemonHealthMetric, MgrReport, counter_kind};
use nacre_types::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sessions whose counters are kept.
const SESSIONS_COUNT_MAX: usize = 16_384;
/// Counters of one session, and of all.
const COUNTERS_COUNT_MAX: usize = 4096;
const COUNTERS_OF_ALL_MAX: usize = 250_000;
/// Bytes of a path, and of what describes it; of a longer description the rest is left out.
const PATH_BYTES_MAX: usize = 256;
const TEXT_BYTES_MAX: usize = 256;
/// Complaints of one daemon: there are two kinds.
const COMPLAINTS_MAX: usize = 16;

/// How a counter was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredCounter {
    /// Bits of [`counter_kind`].
    pub kind: u8,
    /// The higher, the more wanted.
    pub priority: u8,
    /// Sentence for people.
    pub text: String,
}

/// What a counter has come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// The number; of times nanoseconds, of averages the sum.
    pub value: u64,
    /// Of averages, how many were summed up.
    pub count: u64,
}

/// What one daemon counts: declarations by path, and values in that order. Shared, so that it can be handed on at no cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DaemonCounters {
    /// Such as `osd.3`.
    pub daemon: String,
    /// How the counters were declared, by path.
    pub declared: Arc<BTreeMap<String, DeclaredCounter>>,
    /// A value for each of them, in the order of the paths.
    pub values: Arc<Vec<CounterValue>>,
    /// What it complains of.
    pub complaints: Vec<DaemonHealthMetric>,
}

/// The counters that one session has declared.
#[derive(Debug, Default)]
struct Session {
    now: DaemonCounters,
    at: Stamp,
    /// Values of the report before, if it had the same counters.
    before: Option<(Stamp, Arc<Vec<CounterValue>>)>,
}

/// Counters by the session that they come through. What a session sends beyond the bounds ends what is known of it.
#[derive(Debug, Default)]
pub struct Counters {
    sessions: BTreeMap<u64, Session>,
    /// Declared by all of them.
    count: usize,
}

/// The values of all declared counters, in their order; `None` when there are fewer.
fn unpack(
    declared: &BTreeMap<String, DeclaredCounter>,
    report: &MgrReport,
) -> Option<Arc<Vec<CounterValue>>> {
    let mut r = Reader::new(report.packed.clone());
    let values = r.envelope("counters", 1, |_, r| {
        let value = |declared: &DeclaredCounter| {
            let mut of = CounterValue { value: r.u64()?, count: 0 };
            if declared.kind & counter_kind::AVERAGE != 0 {
                of.count = r.u64()?;
                r.skip(8)?; // the same once more
            }
            Ok(of)
        };
        declared.values().map(value).collect()
    });
    values.ok().map(Arc::new)
}

impl DaemonCounters {
    /// A counter by its path.
    #[must_use]
    pub fn value(&self, path: &str) -> Option<CounterValue> {
        let at = self.declared.keys().position(|declared| declared == path)?;
        self.values.get(at).copied()
    }

    /// Each counter: path, declaration, value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &DeclaredCounter, CounterValue)> {
        let values = self.values.iter().copied();
        self.declared.iter().zip(values).map(|((path, declared), value)| (path.as_str(), declared, value))
    }
}

impl Counters {
    /// A daemon, such as `osd.3`, opens a session, and declares anew.
    pub fn open(&mut self, session: u64, daemon: &str) {
        self.closed(session);
        if self.sessions.len() < SESSIONS_COUNT_MAX {
            let now = DaemonCounters { daemon: daemon.to_owned(), ..DaemonCounters::default() };
            self.sessions.insert(session, Session { now, ..Session::default() });
        }
    }

    /// The session is over.
    pub fn closed(&mut self, session: u64) {
        if let Some(gone) = self.sessions.remove(&session) {
            self.count -= gone.now.declared.len();
        }
    }

    /// A report of a session that has been opened.
    pub fn report(&mut self, session: u64, report: &MgrReport, now: Stamp) {
        let Some(held) = self.sessions.get_mut(&session) else { return };
        if !report.undeclare_types.is_empty() || !report.declare_types.is_empty() {
            let before = held.now.declared.len();
            let declared = Arc::make_mut(&mut held.now.declared);
            declare(declared, report);
            self.count = self.count - before + declared.len();
            // Their places have changed.
            held.now.values = Arc::default();
        }
        let fits = held.now.declared.len() <= COUNTERS_COUNT_MAX
            && self.count <= COUNTERS_OF_ALL_MAX
            && report.declare_types.iter().all(|declared| declared.path.len() <= PATH_BYTES_MAX);
        let Some(values) = unpack(&held.now.declared, report).filter(|_| fits) else {
            return self.closed(session);
        };
        let same = held.now.values.len() == values.len();
        let before = std::mem::replace(&mut held.now.values, values);
        held.before = same.then_some((held.at, before));
        held.at = now;
        held.now.complaints = report.health_metrics.iter().take(COMPLAINTS_MAX).cloned().collect();
    }

    fn of(&self, daemon: &str) -> Option<&Session> {
        self.sessions.values().rev().find(|session| session.now.daemon == daemon)
    }

    /// A counter of a daemon, by its path; `None` when it has not reported it.
    #[must_use]
    pub fn value(&self, daemon: &str, path: &str) -> Option<u64> {
        self.of(daemon)?.now.value(path).map(|of| of.value)
    }

    /// By how much it grows per second.
    #[must_use]
    pub fn rate(&self, daemon: &str, path: &str) -> Option<u64> {
        let session = self.of(daemon)?;
        let (before_at, before) = session.before.clone()?;
        let before = DaemonCounters { values: before, ..session.now.clone() };
        let (now, before) = (session.now.value(path)?.value, before.value(path)?.value);
        let passed_ms = u64::try_from(session.at.since(before_at).as_millis()).ok()?;
        now.saturating_sub(before).saturating_mul(1000).checked_div(passed_ms)
    }

    /// The mean of an average over all daemons that have it, of what came between their last two reports: times in nanoseconds.
    #[must_use]
    pub fn mean_of_late(&self, path: &str) -> Option<u64> {
        let mut sums = (0_u64, 0_u64);
        for session in self.sessions.values() {
            let Some(at) = session.now.declared.keys().position(|declared| declared == path) else {
                continue;
            };
            let before = session.before.as_ref().and_then(|(_, values)| values.get(at));
            let (Some(now), Some(before)) = (session.now.values.get(at), before) else { continue };
            sums.0 = sums.0.saturating_add(now.value.saturating_sub(before.value));
            sums.1 = sums.1.saturating_add(now.count.saturating_sub(before.count));
        }
        sums.0.checked_div(sums.1)
    }

    /// What all daemons count that have reported, in order of their names; of one with several sessions the newest.
    #[must_use]
    pub fn all(&self) -> Vec<DaemonCounters> {
        let reported = self.sessions.values().filter(|session| !session.now.values.is_empty());
        let newest: BTreeMap<&str, &DaemonCounters> =
            reported.map(|session| (session.now.daemon.as_str(), &session.now)).collect();
        newest.into_values().cloned().collect()
    }
}

fn declare(declared: &mut BTreeMap<String, DeclaredCounter>, report: &MgrReport) {
    for path in &report.undeclare_types {
        declared.remove(path);
    }
    for new in &report.declare_types {
        let text = new.description.chars().filter(|char| !char.is_control());
        let text = text.scan(0, |length, char| {
            *length += char.len_utf8();
            (*length <= TEXT_BYTES_MAX).then_some(char)
        });
        let counter = DeclaredCounter { kind: new.kind, priority: new.priority, text: text.collect() };
        declared.insert(new.path.clone(), counter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_msg::{PerfCounterType, pack_counters};
    use std::time::Duration;

    const NUMBER: u8 = counter_kind::U64 | counter_kind::COUNTER;
    const AVERAGE: u8 = counter_kind::TIME | counter_kind::AVERAGE;

    /// A report that declares `new` and has these values of all that are declared.
    fn report(new: &[(&str, u8)], values: &[(&str, u8, u64)]) -> MgrReport {
        let declared = |(path, kind): &(&str, u8)| PerfCounterType {
            path: (*path).to_owned(),
            kind: *kind,
            ..PerfCounterType::default()
        };
        let values = values.iter().map(|(path, kind, value)| (*path, (*kind, *value, 7))).collect();
        let (declare_types, packed) = (new.iter().map(declared).collect(), pack_counters(&values));
        MgrReport { declare_types, packed, ..MgrReport::default() }
    }

    #[test]
    fn counters_are_declared_once_and_read_by_path() {
        let mut counters = Counters::default();
        counters.open(1, "mds.a");
        let second = |at: u64| Stamp::default() + Duration::from_secs(at);
        let first = report(
            &[("z.n", NUMBER), ("m.latency", AVERAGE), ("a.n", NUMBER)],
            &[("z.n", NUMBER, 9), ("m.latency", AVERAGE, 5), ("a.n", NUMBER, 1)],
        );
        counters.report(1, &first, second(1));
        let read =
            |counters: &Counters| ["a.n", "m.latency", "z.n", "x"].map(|path| counters.value("mds.a", path));
        assert_eq!(read(&counters), [Some(1), Some(5), Some(9), None]);
        assert_eq!(counters.rate("mds.a", "z.n"), None, "nothing to compare with");
        let next = report(&[], &[("z.n", NUMBER, 29), ("m.latency", AVERAGE, 5), ("a.n", NUMBER, 1)]);
        counters.report(1, &next, second(6));
        assert_eq!((counters.value("mds.a", "z.n"), counters.rate("mds.a", "z.n")), (Some(29), Some(4)));
        assert_eq!(counters.value("mds.b", "z.n"), None);
        let all = counters.all();
        let average = all[0].iter().find(|(path, ..)| *path == "m.latency").map(|(.., value)| value);
        assert_eq!(average, Some(CounterValue { value: 5, count: 7 }));
        counters.closed(1);
        assert_eq!((read(&counters), counters.count), ([None; 4], 0));
    }

    #[test]
    fn what_does_not_add_up_ends_what_is_known() {
        let mut counters = Counters::default();
        counters.open(1, "mds.a");
        counters.report(1, &report(&[("a", NUMBER)], &[("a", NUMBER, 1)]), Stamp::default());
        counters.report(1, &report(&[("b", NUMBER)], &[("a", NUMBER, 1)]), Stamp::default());
        assert_eq!(counters.value("mds.a", "a"), None, "one value of two");
        counters.open(1, "mds.a");
        let long = "x".repeat(PATH_BYTES_MAX + 1);
        counters.report(1, &report(&[(&long, NUMBER)], &[(&long, NUMBER, 1)]), Stamp::default());
        assert_eq!(counters.value("mds.a", &long), None);
        counters.report(2, &report(&[("a", NUMBER)], &[("a", NUMBER, 1)]), Stamp::default());
        assert!(counters.sessions.is_empty() && counters.count == 0, "nobody opened it");
    }

    #[test]
    fn of_two_sessions_of_a_daemon_the_newest_counts() {
        let mut counters = Counters::default();
        for session in [1, 2] {
            counters.open(session, "osd.0");
            counters.report(session, &report(&[("a", NUMBER)], &[("a", NUMBER, session)]), Stamp::default());
        }
        counters.open(3, "osd.0");
        let all = counters.all();
        assert_eq!(all.len(), 1, "the third has reported nothing yet");
        assert_eq!(all[0].value("a").map(|of| of.value), Some(2));
    }
}
