//! [`HealthHistory`]: which health checks were ever on, so that a metric of one that is over goes to 0 and does not just end.

use crate::batch::{Batch, Snapshot};
use nacre_buf::Bytes;
use std::collections::BTreeMap;

/// The table: the severity as text, by code.
const PREFIX: &str = "health-history";
/// Codes that are remembered; what comes beyond is shown only while it is on.
const CODES_COUNT_MAX: usize = 512;

/// Severities of checks that are on.
const SEVERITIES: [&str; 2] = ["HEALTH_WARN", "HEALTH_ERR"];

/// Codes with the severity that they had last. Ceph's manager keeps the same (`mgr/prometheus/health_history`).
#[derive(Debug, Default)]
pub(crate) struct HealthHistory {
    known: BTreeMap<String, &'static str>,
    changes: Batch,
}

impl HealthHistory {
    /// What is no severity, of another version's, is forgotten.
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Self {
        let severity = |value: &Bytes| SEVERITIES.into_iter().find(|known| known.as_bytes() == &value[..]);
        let pairs = snapshot.scan(PREFIX).into_iter();
        Self {
            known: pairs.filter_map(|(code, value)| Some((code, severity(&value)?))).collect(),
            changes: Batch::default(),
        }
    }

    /// Remembers a check that is on.
    pub(crate) fn note(&mut self, code: &str, severity: &'static str) {
        let has_room = self.known.len() < CODES_COUNT_MAX || self.known.contains_key(code);
        if has_room && self.known.get(code) != Some(&severity) {
            self.changes.put(PREFIX, code, Bytes::from_static(severity.as_bytes()));
            self.known.insert(code.to_owned(), severity);
        }
    }

    /// Every code that was on, with the severity that it had last.
    pub(crate) fn known(&self) -> &BTreeMap<String, &'static str> {
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

    #[test]
    fn what_was_wrong_once_is_remembered_over_restarts() {
        let mut kv = MemorySnapshot::default();
        let mut history = HealthHistory::open(&kv);
        let [warning, error] = SEVERITIES;
        history.note("OSD_DOWN", warning);
        history.note("OSD_FULL", error);
        history.note("OSD_DOWN", error);
        assert!(history.is_dirty());
        let mut batch = Batch::default();
        history.flush(&mut batch);
        kv.apply(&batch);
        let mut again = HealthHistory::open(&kv);
        assert_eq!(again.known(), history.known());
        assert_eq!(again.known().get("OSD_DOWN"), Some(&error));
        again.note("OSD_FULL", error);
        assert!(!again.is_dirty(), "nothing new");
        for number in 0..CODES_COUNT_MAX + 5 {
            again.note(&number.to_string(), warning);
        }
        assert_eq!(again.known().len(), CODES_COUNT_MAX);
    }
}
