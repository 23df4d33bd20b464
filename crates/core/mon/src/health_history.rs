//! [`HealthHistory`]: which health checks were ever on, how often, since when and whether they are. A metric of one that is over goes to 0 and
//! does not just end; `healthcheck history ls` shows all.

use crate::batch::{Batch, Snapshot};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::UTime;
use std::collections::BTreeMap;

/// The table: a record by code, or the severity alone, as versions before wrote it.
const PREFIX: &str = "health-history";
/// Codes that are remembered; what comes beyond is shown only while it is on.
const CODES_COUNT_MAX: usize = 512;

/// Severities of checks that are on.
const SEVERITIES: [&str; 2] = ["HEALTH_WARN", "HEALTH_ERR"];

/// A health check that was on at some time. Ceph's manager keeps the same (`mgr/prometheus/health_history`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenCheck {
    /// `HEALTH_WARN` or `HEALTH_ERR`, as it was last.
    pub severity: &'static str,
    /// When it came on for the first time; zero when nobody knows any more.
    pub first_seen: UTime,
    /// When it came on for the last time.
    pub last_seen: UTime,
    /// How many times it came on.
    pub count: u32,
    /// It is on.
    pub is_active: bool,
}

impl Encode for SeenCheck {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.bool(self.severity == SEVERITIES[1]);
            w.put(&self.first_seen);
            w.put(&self.last_seen);
            w.u32(self.count);
            w.bool(self.is_active);
        });
    }
}

impl Decode for SeenCheck {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("health history", 1, |_, r| {
            Ok(Self {
                severity: SEVERITIES[usize::from(r.bool()?)],
                first_seen: r.get()?,
                last_seen: r.get()?,
                count: r.u32()?,
                is_active: r.bool()?,
            })
        })
    }
}

/// Of a value in the table; none of what is neither, which is another version's.
fn read(value: &Bytes) -> Option<SeenCheck> {
    let severity = SEVERITIES.into_iter().find(|known| known.as_bytes() == &value[..]);
    let of_old = |severity| SeenCheck {
        severity,
        first_seen: UTime::ZERO,
        last_seen: UTime::ZERO,
        count: 1,
        is_active: false,
    };
    severity.map(of_old).or_else(|| SeenCheck::from_bytes(value.clone()).ok())
}

/// Codes with what is known of them.
#[derive(Debug, Default)]
pub(crate) struct HealthHistory {
    known: BTreeMap<String, SeenCheck>,
    changes: Batch,
}

impl HealthHistory {
    /// What is of another version is forgotten.
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Self {
        let pairs = snapshot.scan(PREFIX).into_iter();
        Self {
            known: pairs.filter_map(|(code, value)| Some((code, read(&value)?))).collect(),
            changes: Batch::default(),
        }
    }

    /// These checks are on at this time, with their severities, and no others.
    pub(crate) fn look(&mut self, checks: &BTreeMap<&str, &'static str>, wall: UTime) {
        let over: Vec<String> = self
            .known
            .iter()
            .filter(|(code, seen)| seen.is_active && !checks.contains_key(code.as_str()))
            .map(|(code, _)| code.clone())
            .collect();
        for code in over {
            if let Some(seen) = self.known.get(&code).copied() {
                self.set(&code, SeenCheck { is_active: false, ..seen });
            }
        }
        for (code, severity) in checks {
            let seen = match self.known.get(*code).copied() {
                None if self.known.len() >= CODES_COUNT_MAX => continue,
                None => SeenCheck { severity, first_seen: wall, last_seen: wall, count: 1, is_active: true },
                Some(seen) if seen.is_active => SeenCheck { severity, ..seen },
                Some(seen) => {
                    let first_seen = if seen.first_seen == UTime::ZERO { wall } else { seen.first_seen };
                    let count = seen.count.saturating_add(1);
                    SeenCheck { severity, first_seen, last_seen: wall, count, is_active: true }
                }
            };
            self.set(code, seen);
        }
    }

    fn set(&mut self, code: &str, seen: SeenCheck) {
        if self.known.get(code) != Some(&seen) {
            self.changes.put(PREFIX, code, seen.to_bytes());
            self.known.insert(code.to_owned(), seen);
        }
    }

    /// Forgets all. What is on comes back with the next look.
    pub(crate) fn clear(&mut self) {
        for code in std::mem::take(&mut self.known).into_keys() {
            self.changes.delete(PREFIX, code);
        }
    }

    /// Every code that was on.
    pub(crate) fn known(&self) -> &BTreeMap<String, SeenCheck> {
        &self.known
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::MemorySnapshot;

    const WARN: &str = SEVERITIES[0];
    const ERROR: &str = SEVERITIES[1];

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    fn store(history: &mut HealthHistory, kv: &mut MemorySnapshot) {
        let mut batch = Batch::default();
        history.flush(&mut batch);
        kv.apply(&batch);
    }

    #[test]
    fn what_was_wrong_once_is_remembered_over_restarts() {
        let mut kv = MemorySnapshot::default();
        let mut history = HealthHistory::open(&kv);
        history.look(&BTreeMap::from([("OSD_DOWN", WARN), ("OSD_FULL", ERROR)]), at(10));
        history.look(&BTreeMap::from([("OSD_DOWN", ERROR)]), at(11));
        assert!(history.is_dirty());
        store(&mut history, &mut kv);
        let mut again = HealthHistory::open(&kv);
        assert_eq!(again.known(), history.known());
        let down =
            SeenCheck { severity: ERROR, first_seen: at(10), last_seen: at(10), count: 1, is_active: true };
        assert_eq!(again.known().get("OSD_DOWN"), Some(&down));
        assert!(again.known().get("OSD_FULL").is_some_and(|seen| !seen.is_active));
        again.look(&BTreeMap::from([("OSD_DOWN", ERROR)]), at(12));
        assert!(!again.is_dirty(), "nothing new");
        again.look(&BTreeMap::from([("OSD_FULL", WARN)]), at(20));
        let full =
            SeenCheck { severity: WARN, first_seen: at(10), last_seen: at(20), count: 2, is_active: true };
        assert_eq!(again.known().get("OSD_FULL"), Some(&full));
        again.clear();
        store(&mut again, &mut kv);
        assert!(again.known().is_empty() && HealthHistory::open(&kv).known().is_empty());
    }

    #[test]
    fn there_is_a_bound_and_older_records_are_read() {
        let mut kv = MemorySnapshot::default();
        let mut batch = Batch::default();
        batch.put(PREFIX, "OSD_DOWN", Bytes::from_static(b"HEALTH_ERR"));
        batch.put(PREFIX, "NONSENSE", Bytes::from_static(b"HEALTH_X"));
        kv.apply(&batch);
        let mut history = HealthHistory::open(&kv);
        assert_eq!(history.known().keys().collect::<Vec<_>>(), ["OSD_DOWN"]);
        history.look(&BTreeMap::from([("OSD_DOWN", WARN)]), at(30));
        let seen =
            SeenCheck { severity: WARN, first_seen: at(30), last_seen: at(30), count: 2, is_active: true };
        assert_eq!(history.known().get("OSD_DOWN"), Some(&seen), "when it first came is not known");
        let codes: Vec<String> = (0..CODES_COUNT_MAX + 5).map(|number| number.to_string()).collect();
        history.look(&codes.iter().map(|code| (code.as_str(), WARN)).collect(), at(31));
        assert_eq!(history.known().len(), CODES_COUNT_MAX);
    }
}
