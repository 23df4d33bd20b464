//! [`Bill`]: which clients and images OSDs spend their processor time on, as they report it, and since when.
//!
//! Clients are summed up by the entity of their key and the address of their host, so that a host that starts a thousand programs is one line
//! for ever. Of the last two minutes it is known which instance it was, too, in slices of the reports' interval.

use crate::images::Images;
use nacre_maps::OsdMap;
use nacre_msg::{BILL_ROWS_MAX, BillClass, BillReport, BillRow, Power};
use nacre_types::{EntityName, OsdId, PoolId, Stamp};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// OSDs report this often; what they report in this time is one slice.
const SLICE: Duration = Duration::from_secs(5);
/// How far back the slices go.
pub const BILL_WINDOW_MAX: Duration = Duration::from_secs(120);
/// Rows of one slice; what more there is has no name.
const SLICE_ROWS_MAX: usize = 4096;
/// Instances whose entity is remembered: those with a session, and of the others those that ended theirs last.
const NAMES_MAX: usize = 20_000;
/// Reports of one OSD that count in one slice: it sends one, and another after a while without a monitor.
const REPORTS_PER_SLICE_MAX: u8 = 4;
/// Nanoseconds that one report can account for: an hour of 1,024 processors. What more it says is no truth.
const REPORT_NS_MAX: u64 = 1024 * 3600 * 1_000_000_000;
/// Processes whose clock is remembered.
const PROCESSES_MAX: usize = 16_384;
/// Accounts that nobody has used for so many reports make room for new ones.
const IDLE_REPORTS_MAX: u64 = 20_000;
/// Reports between two looks for such accounts: each look is at all of them.
const SWEEP_REPORTS: u64 = IDLE_REPORTS_MAX / 16;
/// Bytes of an image's id and of its namespace, of a host's name, and of what names a process.
const TEXT_BYTES_MAX: usize = 256;
/// Of a host whose OSDs do not report any more nobody knows what it draws.
const POWER_KEPT: Duration = Duration::from_secs(30);
/// Label of what belongs to clients and images that are not told apart.
const OTHER: &str = "other";

/// What was worked for somebody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Processor time of OSDs' threads in nanoseconds.
    pub cpu_ns: u64,
    /// Messages that were answered.
    pub ops: u64,
    /// Bytes that they brought and took away.
    pub bytes: u64,
}

impl Account {
    fn add(&mut self, more: &Self) {
        self.cpu_ns = self.cpu_ns.saturating_add(more.cpu_ns);
        self.ops = self.ops.saturating_add(more.ops);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }

    fn of(row: &BillRow, budget: &mut Budget) -> Self {
        Self { cpu_ns: budget.take(row.cpu_ns), ops: row.ops, bytes: row.bytes }
    }
}

/// What a report may still account for. It is not bounded by what the report says of its process: shards are asked one after the other, so
/// that their sum may be somewhat more than that.
struct Budget(u64);

impl Budget {
    fn take(&mut self, ns: u64) -> u64 {
        let taken = ns.min(self.0);
        self.0 -= taken;
        taken
    }
}

/// Accounts that are bounded: what finds no room goes to one for all others.
#[derive(Debug)]
struct Accounts<K> {
    of: BTreeMap<K, (Account, u64)>,
    other: Account,
    /// With this report it is looked again which are idle.
    sweep_at: u64,
}

impl<K> Default for Accounts<K> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), other: Account::default(), sweep_at: 0 }
    }
}

impl<K: Ord> Accounts<K> {
    fn add(&mut self, key: K, more: &Account, (count_max, report): (usize, u64)) {
        if self.of.len() >= count_max && !self.of.contains_key(&key) {
            if report >= self.sweep_at {
                self.sweep_at = report + SWEEP_REPORTS;
                self.sweep(report);
            }
            if self.of.len() >= count_max {
                return self.other.add(more);
            }
        }
        let (account, used) = self.of.entry(key).or_default();
        account.add(more);
        *used = report;
    }

    fn sweep(&mut self, report: u64) {
        let other = &mut self.other;
        self.of.retain(|_, (account, used)| {
            let is_idle = *used + IDLE_REPORTS_MAX < report;
            if is_idle {
                other.add(account);
            }
            !is_idle
        });
    }
}

/// Who asked for the work, as an operator knows him.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    /// Entity of its key, such as `client.nova`.
    pub entity: String,
    /// Address of its host.
    pub host: String,
}

/// Client instance, pool, namespace and image's id.
type RowKey = (EntityName, PoolId, String, String);

/// What was reported within some seconds.
#[derive(Debug, Default)]
struct Slice {
    began: Stamp,
    rows: BTreeMap<RowKey, Account>,
    classes_ns: [u64; BillClass::ALL.len()],
    /// Of threads that are no OSD's; below zero where one of two OSDs of a process has told more than the process had when the other did.
    other_threads_ns: i64,
    /// How many reports each OSD has made.
    reports: BTreeMap<OsdId, u8>,
}

/// An instance that has proved who it is.
#[derive(Debug)]
struct Named {
    client: Client,
    /// Its sessions with monitors now.
    sessions: u32,
    /// Its place in [`Bill::gone`], when it has none.
    gone: Option<u64>,
}

/// A process with OSDs.
#[derive(Debug, Default)]
struct Process {
    /// Its clock when an OSD in it reported last.
    seen_ns: u64,
}

/// One line of a bill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillLine {
    /// The instance that asked, such as `client.4123`.
    pub instance: EntityName,
    /// Who that is.
    pub client: Client,
    /// The image's own pool, or that of the objects.
    pub pool: PoolId,
    /// Namespace of the image.
    pub namespace: String,
    /// Name of the image, or its id where its name is not known; empty where there is none.
    pub image: String,
    /// What was done for it.
    pub account: Account,
}

/// The bill of some seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BillWindow {
    /// Seconds that the reports are from.
    pub seconds: u64,
    /// The costliest first.
    pub lines: Vec<BillLine>,
    /// What is for no client in particular: names of [`BillClass`], and `other_threads`.
    pub classes_ns: Vec<(&'static str, u64)>,
}

impl BillWindow {
    /// Nanoseconds of all lines and classes.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        let lines = self.lines.iter().map(|line| line.account.cpu_ns);
        lines.chain(self.classes_ns.iter().map(|(_, ns)| *ns)).fold(0, u64::saturating_add)
    }
}

/// Sums since this manager began, as metrics have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BillSums {
    /// Each client; `other` for those beyond the bound.
    pub clients: Vec<(Client, Account)>,
    /// Each image: pool, namespace, name or id.
    pub images: Vec<(PoolId, String, String, Account)>,
    /// What is for no client in particular, in nanoseconds.
    pub classes_ns: Vec<(&'static str, u64)>,
    /// What hosts with OSDs draw.
    pub power: Vec<(String, Power)>,
}

/// What OSDs have worked for since this manager began.
#[derive(Debug, Default)]
pub struct Bill {
    names: BTreeMap<EntityName, Named>,
    /// Instances without a session, the longest gone first.
    gone: BTreeMap<u64, EntityName>,
    gone_count: u64,
    clients: Accounts<Client>,
    images: Accounts<(PoolId, String, String)>,
    classes_ns: [u64; BillClass::ALL.len()],
    other_threads_ns: i64,
    processes: BTreeMap<String, Process>,
    slices: VecDeque<Slice>,
    reports: u64,
    /// What each host draws, and when it was told.
    power: BTreeMap<String, (Power, Stamp)>,
}

fn shown_classes(classes_ns: &[u64], other_threads_ns: i64) -> Vec<(&'static str, u64)> {
    let classes = BillClass::ALL.iter().zip(classes_ns).map(|(class, ns)| (class.key(), *ns));
    classes.chain([("other_threads", u64::try_from(other_threads_ns).unwrap_or(0))]).collect()
}

impl Bill {
    /// An instance has proved who it is, in a session that [`Bill::session_ended`] ends.
    pub fn learn(&mut self, instance: EntityName, entity: String, host: String) {
        let client = Client { entity, host };
        let before = self.names.remove(&instance);
        if let Some(gone) = before.as_ref().and_then(|named| named.gone) {
            self.gone.remove(&gone);
        }
        let sessions = before.map_or(0, |named| named.sessions).saturating_add(1);
        // Whoever works with OSDs has a session: who has none is forgotten first.
        while self.names.len() >= NAMES_MAX {
            match self.gone.pop_first() {
                Some((_, instance)) => drop(self.names.remove(&instance)),
                // Numbers only grow: the lowest is the oldest.
                None => drop(self.names.pop_first()),
            }
        }
        self.names.insert(instance, Named { client, sessions, gone: None });
    }

    /// An instance has ended a session, or lost it.
    pub fn session_ended(&mut self, instance: &EntityName) {
        let Some(named) = self.names.get_mut(instance) else { return };
        named.sessions = named.sessions.saturating_sub(1);
        if named.sessions == 0 && named.gone.is_none() {
            self.gone_count += 1;
            named.gone = Some(self.gone_count);
            self.gone.insert(self.gone_count, *instance);
        }
    }

    fn client(&self, instance: &EntityName) -> Client {
        self.names.get(instance).map(|named| named.client.clone()).unwrap_or_else(|| Client {
            // `client.?`: of a kind that is known, but not whose.
            entity: format!("{}.?", instance.kind.as_str()),
            host: String::new(),
        })
    }

    /// An OSD reports, which is up on `host` as far as that is known; at most `series_max` clients, and as many images, are told apart.
    pub fn report(
        &mut self,
        (osd, host): (OsdId, Option<&str>),
        report: &BillReport,
        series_max: usize,
        now: Stamp,
    ) {
        self.begin_slice(now);
        if report.process.len() > TEXT_BYTES_MAX || !self.counts_in_slice(osd) {
            return;
        }
        self.reports += 1;
        let mut budget = Budget(REPORT_NS_MAX);
        let mut classes_ns = [0; BillClass::ALL.len()];
        for (sum, ns) in classes_ns.iter_mut().zip(&report.classes_ns) {
            *sum = budget.take(*ns);
        }
        // Classes that only a newer OSD knows.
        for ns in report.classes_ns.iter().skip(classes_ns.len()) {
            budget.take(*ns);
        }
        let unnamed_ns = self.note_rows(report, &mut budget, series_max);
        if let (Some(power), Some(host)) = (report.power, host) {
            self.note_power(host, power, now);
        }
        let rest_ns = self.other_threads(report, REPORT_NS_MAX - budget.0);
        self.other_threads_ns = self.other_threads_ns.saturating_add(rest_ns);
        add_all(&mut self.classes_ns, &classes_ns);
        if let Some(slice) = self.slices.back_mut() {
            add_all(&mut slice.classes_ns, &classes_ns);
            let others = &mut slice.classes_ns[BillClass::OtherClients as usize];
            *others = others.saturating_add(unnamed_ns);
            slice.other_threads_ns = slice.other_threads_ns.saturating_add(rest_ns);
        }
    }

    /// False when this OSD has reported too often within a slice.
    fn counts_in_slice(&mut self, osd: OsdId) -> bool {
        let Some(slice) = self.slices.back_mut() else { return false };
        let reports = slice.reports.entry(osd).or_default();
        let counts = *reports < REPORTS_PER_SLICE_MAX;
        *reports += u8::from(counts);
        counts
    }

    /// Adds up what was done for clients; the time of those that find no room in the slice.
    fn note_rows(&mut self, report: &BillReport, budget: &mut Budget, series_max: usize) -> u64 {
        let bound = (series_max, self.reports);
        let mut unnamed = Account::default();
        for row in report.rows.iter().take(BILL_ROWS_MAX) {
            let account = Account::of(row, budget);
            self.clients.add(self.client(&row.client), &account, bound);
            let is_sound = row.namespace.len().max(row.image.len()) <= TEXT_BYTES_MAX;
            let (namespace, image) =
                if is_sound { (row.namespace.clone(), row.image.clone()) } else { <_>::default() };
            if !image.is_empty() {
                self.images.add((row.pool, namespace.clone(), image.clone()), &account, bound);
            }
            let Some(slice) = self.slices.back_mut() else { continue };
            let key = (row.client, row.pool, namespace, image);
            if slice.rows.len() < SLICE_ROWS_MAX || slice.rows.contains_key(&key) {
                slice.rows.entry(key).or_default().add(&account);
            } else {
                unnamed.add(&account);
            }
        }
        unnamed.cpu_ns
    }

    fn note_power(&mut self, host: &str, power: Power, now: Stamp) {
        self.power.retain(|_, (_, at)| now.since(*at) < POWER_KEPT);
        let has_room = self.power.len() < PROCESSES_MAX || self.power.contains_key(host);
        if has_room && host.len() <= TEXT_BYTES_MAX {
            self.power.insert(host.to_owned(), (power, now));
        }
    }

    /// What of the process's time since the last report of any OSD in it this report does not account for. Nor does it tell of the time
    /// before its own `process_delta_ns`: the bill was off then, or that report was lost.
    fn other_threads(&mut self, report: &BillReport, billed_ns: u64) -> i64 {
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&report.process) {
            self.processes.clear();
        }
        let before = report.process_ns.saturating_sub(report.process_delta_ns);
        let process = self.processes.entry(report.process.clone()).or_insert(Process { seen_ns: before });
        let used_ns = report.process_ns.saturating_sub(process.seen_ns.max(before)).min(REPORT_NS_MAX);
        process.seen_ns = process.seen_ns.max(report.process_ns);
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        signed(used_ns).saturating_sub(signed(billed_ns))
    }

    fn begin_slice(&mut self, now: Stamp) {
        let is_over = |slice: &Slice| now.since(slice.began) >= SLICE;
        if self.slices.back().is_none_or(is_over) {
            self.slices.push_back(Slice { began: now, ..Slice::default() });
        }
        while self.slices.front().is_some_and(|slice| now.since(slice.began) > BILL_WINDOW_MAX) {
            self.slices.pop_front();
        }
    }

    /// What was reported within the last `window`.
    #[must_use]
    pub fn window(&self, window: Duration, images: &Images, now: Stamp) -> BillWindow {
        let slices = self.slices.iter().filter(|slice| now.since(slice.began) <= window);
        let mut rows: BTreeMap<&RowKey, Account> = BTreeMap::new();
        let (mut classes_ns, mut other_threads_ns) = ([0; BillClass::ALL.len()], 0_i64);
        let mut began = None;
        for slice in slices {
            began = began.or(Some(slice.began));
            slice.rows.iter().for_each(|(key, account)| rows.entry(key).or_default().add(account));
            add_all(&mut classes_ns, &slice.classes_ns);
            other_threads_ns = other_threads_ns.saturating_add(slice.other_threads_ns);
        }
        // A report is of the seconds before it.
        let seconds = began.map_or(0, |began| (now.since(began) + SLICE).min(window).as_secs().max(1));
        let line = |((instance, pool, namespace, id), account): (&RowKey, Account)| BillLine {
            instance: *instance,
            client: self.client(instance),
            pool: *pool,
            namespace: namespace.clone(),
            image: images.name(*pool, namespace, id).unwrap_or(id).to_owned(),
            account,
        };
        let mut lines: Vec<BillLine> = rows.into_iter().map(line).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.account.cpu_ns));
        BillWindow { seconds, lines, classes_ns: shown_classes(&classes_ns, other_threads_ns) }
    }

    /// Everything since this manager began.
    #[must_use]
    pub fn sums(&self, images: &Images) -> BillSums {
        let other = Client { entity: OTHER.to_owned(), host: String::new() };
        let rest = (self.clients.other != Account::default()).then_some((other, self.clients.other));
        let clients = self.clients.of.iter().map(|(client, (account, _))| (client.clone(), *account));
        // Two images of one name, of which one is gone, are one series.
        let mut named: BTreeMap<(PoolId, &str, &str), Account> = BTreeMap::new();
        for ((pool, namespace, id), (account, _)) in &self.images.of {
            let name = images.name(*pool, namespace, id).unwrap_or(id);
            named.entry((*pool, namespace, name)).or_default().add(account);
        }
        let image = |((pool, namespace, name), account): ((PoolId, &str, &str), Account)| {
            (pool, namespace.to_owned(), name.to_owned(), account)
        };
        BillSums {
            clients: clients.chain(rest).collect(),
            images: named.into_iter().map(image).collect(),
            classes_ns: shown_classes(&self.classes_ns, self.other_threads_ns),
            power: self.power.iter().map(|(host, (power, _))| (host.clone(), *power)).collect(),
        }
    }

    /// Forgets images of pools that are gone.
    pub fn prune(&mut self, map: &OsdMap) {
        self.images.of.retain(|(pool, ..), _| map.pools.contains_key(pool));
    }
}

fn add_all(sums: &mut [u64], more: &[u64]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = sum.saturating_add(*more);
    }
}

#[cfg(test)]
mod tests;
