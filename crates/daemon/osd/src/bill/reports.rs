//! [`BillWatch`]: what our monitor hears of the clients and images that this OSD has worked for.

use super::{BillSample, CLASSES};
use crate::power::PowerMeter;
use nacre_msg::{BILL_ROWS_MAX, BillClass, BillReport, BillRow};
use nacre_options::Values;
use nacre_osd_core::ControlPlane;
use nacre_types::{EntityName, PoolId, Stamp};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;
use std::time::Duration;

/// Our monitor hears of the bill this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

type Key = (EntityName, PoolId, String, String);
/// Nanoseconds, messages, bytes.
type Sums = (u64, u64, u64);

/// The same for all OSDs of a process, and another one in each: containers have the same names and numbers of processes.
fn process_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| RandomState::new().build_hasher().finish())
}

/// What our monitor was not told yet. Ceph's are told nothing.
#[derive(Debug)]
pub(crate) struct BillWatch {
    plane: ControlPlane,
    process: String,
    /// The process's clock: now, and when it was told last.
    process_ns: u64,
    process_told_ns: u64,
    /// The bill was off when a shard was asked last: what the process has done since is not told.
    is_paused: bool,
    rows: BTreeMap<Key, Sums>,
    classes_ns: [u64; CLASSES],
    told_at: Stamp,
    power: PowerMeter,
}

impl BillWatch {
    /// Of an OSD on this host.
    pub(crate) fn new(plane: ControlPlane, host: &str) -> Self {
        Self {
            plane,
            process: format!("{host}/{}/{:016x}", std::process::id(), process_number()),
            process_ns: 0,
            process_told_ns: 0,
            is_paused: false,
            rows: BTreeMap::new(),
            classes_ns: [0; CLASSES],
            told_at: Stamp::default(),
            power: PowerMeter::default(),
        }
    }

    /// What a shard has to bill.
    pub(crate) fn note(&mut self, sample: Option<BillSample>) {
        match sample.filter(|_| self.plane == ControlPlane::Nacre) {
            Some(sample) => self.note_bill(sample),
            None => self.is_paused = true,
        }
    }

    fn note_bill(&mut self, sample: BillSample) {
        if std::mem::take(&mut self.is_paused) {
            self.process_told_ns += sample.process_ns.saturating_sub(self.process_ns);
        }
        self.process_ns = self.process_ns.max(sample.process_ns);
        for (sum, ns) in self.classes_ns.iter_mut().zip(sample.classes_ns) {
            *sum += ns;
        }
        for row in sample.rows {
            let sums = self.rows.entry((row.client, row.pool, row.namespace, row.image)).or_default();
            *sums = (sums.0 + row.cpu_ns, sums.1 + row.ops, sums.2 + row.bytes);
        }
        // The cheapest of too many are told apart no more.
        if self.rows.len() > 2 * BILL_ROWS_MAX {
            self.keep_costliest();
        }
    }

    fn keep_costliest(&mut self) {
        let mut costs: Vec<u64> = self.rows.values().map(|sums| sums.0).collect();
        costs.sort_unstable_by(|a, b| b.cmp(a));
        let Some(limit) = costs.get(BILL_ROWS_MAX).copied() else { return };
        let others = &mut self.classes_ns[BillClass::OtherClients as usize];
        self.rows.retain(|_, sums| {
            if sums.0 <= limit {
                *others += sums.0;
            }
            sums.0 > limit
        });
    }

    /// What is to be told now, if it is time and there is something.
    pub(crate) fn report(&mut self, now: Stamp, options: &Values) -> Option<BillReport> {
        let is_due = self.process_ns > self.process_told_ns && now.since(self.told_at) >= REPORT_INTERVAL;
        is_due.then(|| self.take_bill(now, options))
    }

    fn take_bill(&mut self, now: Stamp, options: &Values) -> BillReport {
        self.told_at = now;
        self.keep_costliest();
        let rows = std::mem::take(&mut self.rows).into_iter();
        let rows = rows.map(|((client, pool, namespace, image), (cpu_ns, ops, bytes))| BillRow {
            client,
            pool,
            namespace,
            image,
            cpu_ns,
            ops,
            bytes,
        });
        let told_ns = std::mem::replace(&mut self.process_told_ns, self.process_ns);
        BillReport {
            process: self.process.clone(),
            process_ns: self.process_ns,
            process_delta_ns: self.process_ns - told_ns,
            classes_ns: std::mem::take(&mut self.classes_ns).to_vec(),
            rows: rows.collect(),
            power: self.power.sample(options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody wants to know what this machine draws.
    fn options() -> Values {
        Values::from_iter([("nacre_power_root", "")])
    }

    fn sample(clients: std::ops::Range<u64>, process_ns: u64) -> Option<BillSample> {
        let row =
            |id: u64| BillRow { client: EntityName::client(id), cpu_ns: id, ops: 1, ..BillRow::default() };
        Some(BillSample { rows: clients.map(row).collect(), classes_ns: [10; CLASSES], process_ns })
    }

    #[test]
    fn nothing_is_lost_between_two_reports_and_the_cheapest_are_one() {
        let at = |s| Stamp::default() + Duration::from_secs(s);
        let mut reports = BillWatch::new(ControlPlane::Nacre, "host");
        let count = BILL_ROWS_MAX as u64 + 50;
        reports.note(sample(1..count + 1, 1000));
        reports.note(sample(1..count + 1, 5000));
        let told = reports.report(at(10), &options()).expect("it is time");
        assert_eq!((told.process_ns, told.process_delta_ns), (5000, 5000));
        assert_eq!(told.rows.len(), BILL_ROWS_MAX);
        let sum: u64 = told.rows.iter().map(|row| row.cpu_ns).chain(told.classes_ns.iter().copied()).sum();
        assert_eq!(sum, count * (count + 1) + 2 * 10 * CLASSES as u64);
        reports.note(sample(1..2, 5500));
        assert!(reports.report(at(14), &options()).is_none(), "too early");
        let told = reports.report(at(15), &options());
        assert_eq!(told.map(|bill| (bill.process_delta_ns, bill.rows.len())), Some((500, 1)));
        assert!(reports.report(at(30), &options()).is_none(), "nothing to tell");
    }

    #[test]
    fn what_the_process_did_while_the_bill_was_off_is_not_told() {
        let at = |s| Stamp::default() + Duration::from_secs(s);
        let mut reports = BillWatch::new(ControlPlane::Nacre, "host");
        let other = BillWatch::new(ControlPlane::Nacre, "host");
        assert_eq!(reports.process, other.process);
        assert!(reports.process.starts_with(&format!("host/{}/", std::process::id())));
        // Off from the start.
        reports.note(None);
        reports.note(sample(1..2, 70_000));
        assert!(reports.report(at(10), &options()).is_none(), "nothing is known of the process yet");
        reports.note(sample(1..2, 70_500));
        let told = reports.report(at(10), &options()).expect("it is time");
        assert_eq!((told.process_ns, told.process_delta_ns, told.rows.len()), (70_500, 500, 1));
        // Off for a while, with something that was not told yet.
        reports.note(sample(1..2, 70_600));
        (0..3).for_each(|_| reports.note(None));
        reports.note(sample(1..2, 90_000));
        let told = reports.report(at(20), &options()).expect("it is time");
        assert_eq!((told.process_ns, told.process_delta_ns), (90_000, 100));
    }

    #[test]
    fn cephs_monitors_are_told_nothing() {
        let mut reports = BillWatch::new(ControlPlane::Ceph, "host");
        reports.note(sample(1..9, 1000));
        assert!(reports.report(Stamp::default() + Duration::from_secs(10), &options()).is_none());
    }
}
