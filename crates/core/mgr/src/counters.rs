//! [`Counters`]: what metadata servers count, as they report it to the manager.

use nacre_denc::Reader;
use nacre_msg::{MgrReport, counter_kind};
use nacre_types::Stamp;
use std::collections::BTreeMap;

/// Sessions whose counters are kept.
const SESSIONS_COUNT_MAX: usize = 1024;
/// Counters of one session, and bytes of a path.
const COUNTERS_COUNT_MAX: usize = 4096;
const PATH_BYTES_MAX: usize = 256;

/// The counters that one session has declared.
#[derive(Debug, Default)]
struct Session {
    name: String,
    /// Kind of each, by path: values come in this order.
    kinds: BTreeMap<String, u8>,
    values: BTreeMap<String, u64>,
    at: Stamp,
    before: BTreeMap<String, u64>,
    before_at: Stamp,
}

/// Counters by the session that they come through. What a session sends beyond the bounds ends what is known of it.
#[derive(Debug, Default)]
pub struct Counters {
    sessions: BTreeMap<u64, Session>,
}

/// The values of all declared counters, in their order; `None` when there are fewer.
fn unpack(kinds: &BTreeMap<String, u8>, report: &MgrReport) -> Option<BTreeMap<String, u64>> {
    let mut r = Reader::new(report.packed.clone());
    let values = r.envelope("counters", 1, |_, r| {
        let value = |(path, kind): (&String, &u8)| {
            let value = r.u64()?;
            if kind & counter_kind::AVERAGE != 0 {
                r.skip(16)?; // how many were summed up, twice
            }
            Ok((path.clone(), value))
        };
        kinds.iter().map(value).collect()
    });
    values.ok()
}

impl Counters {
    /// A server opens a session, and declares anew.
    pub fn open(&mut self, session: u64, name: &str) {
        if self.sessions.len() < SESSIONS_COUNT_MAX {
            self.sessions.insert(session, Session { name: name.to_owned(), ..Session::default() });
        }
    }

    /// The session is over.
    pub fn closed(&mut self, session: u64) {
        self.sessions.remove(&session);
    }

    /// A report of a session that has been opened.
    pub fn report(&mut self, session: u64, report: &MgrReport, now: Stamp) {
        let Some(held) = self.sessions.get_mut(&session) else { return };
        for path in &report.undeclare_types {
            held.kinds.remove(path);
        }
        for declared in &report.declare_types {
            held.kinds.insert(declared.path.clone(), declared.kind);
        }
        let fits = held.kinds.len() <= COUNTERS_COUNT_MAX
            && report.declare_types.iter().all(|declared| declared.path.len() <= PATH_BYTES_MAX);
        match unpack(&held.kinds, report).filter(|_| fits) {
            Some(values) => {
                (held.before, held.before_at) = (std::mem::replace(&mut held.values, values), held.at);
                held.at = now;
            }
            None => self.closed(session),
        }
    }

    fn of(&self, name: &str) -> Option<&Session> {
        self.sessions.values().rev().find(|session| session.name == name)
    }

    /// A counter of a server, by its path; `None` when it has not reported it.
    #[must_use]
    pub fn value(&self, name: &str, path: &str) -> Option<u64> {
        self.of(name)?.values.get(path).copied()
    }

    /// By how much it grows per second.
    #[must_use]
    pub fn rate(&self, name: &str, path: &str) -> Option<u64> {
        let session = self.of(name)?;
        let (now, before) = (session.values.get(path)?, session.before.get(path)?);
        let passed_ms = u64::try_from(session.at.since(session.before_at).as_millis()).ok()?;
        now.saturating_sub(*before).saturating_mul(1000).checked_div(passed_ms)
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
        counters.open(1, "a");
        let second = |at: u64| Stamp::default() + Duration::from_secs(at);
        let first = report(
            &[("z.n", NUMBER), ("m.latency", AVERAGE), ("a.n", NUMBER)],
            &[("z.n", NUMBER, 9), ("m.latency", AVERAGE, 5), ("a.n", NUMBER, 1)],
        );
        counters.report(1, &first, second(1));
        let read =
            |counters: &Counters| ["a.n", "m.latency", "z.n", "x"].map(|path| counters.value("a", path));
        assert_eq!(read(&counters), [Some(1), Some(5), Some(9), None]);
        assert_eq!(counters.rate("a", "z.n"), None, "nothing to compare with");
        let next = report(&[], &[("z.n", NUMBER, 29), ("m.latency", AVERAGE, 5), ("a.n", NUMBER, 1)]);
        counters.report(1, &next, second(6));
        assert_eq!((counters.value("a", "z.n"), counters.rate("a", "z.n")), (Some(29), Some(4)));
        assert_eq!(counters.value("b", "z.n"), None);
        counters.closed(1);
        assert_eq!(read(&counters), [None; 4]);
    }

    #[test]
    fn what_does_not_add_up_ends_what_is_known() {
        let mut counters = Counters::default();
        counters.open(1, "a");
        counters.report(1, &report(&[("a", NUMBER)], &[("a", NUMBER, 1)]), Stamp::default());
        counters.report(1, &report(&[("b", NUMBER)], &[("a", NUMBER, 1)]), Stamp::default());
        assert_eq!(counters.value("a", "a"), None, "one value of two");
        counters.open(1, "a");
        let long = "x".repeat(PATH_BYTES_MAX + 1);
        counters.report(1, &report(&[(&long, NUMBER)], &[(&long, NUMBER, 1)]), Stamp::default());
        assert_eq!(counters.value("a", &long), None);
        counters.report(2, &report(&[("a", NUMBER)], &[("a", NUMBER, 1)]), Stamp::default());
        assert!(counters.sessions.is_empty(), "nobody opened it");
    }
}
