//! [`Bill`]: what clients the thread of a shard has worked for, in nanoseconds of its processor time that add up to what it used.
//!
//! ```text
//!   turn:     message of A | message of B | completion | answer to A | ... | clock of the thread is read
//!   gathered:     w(A)     +     w(B)     +   w(any)   +    w(A)             what it used is shared out by weights
//! ```
//!
//! The thread's clock costs too much to be read for each event, so it is read at a turn's end, at most once per [`READ_INTERVAL`]. Between
//! two readings each event adds a weight to who it is for: an estimate of nanoseconds for each kind of [`Work`] (`weights.rs`). What
//! the thread really used is shared out in proportion, so the sum is exact, and the weights only decide between those who were served within
//! the same moment. Completions of the store and acknowledgements do not say which client they are of: theirs is shared by all that clients, recovery
//! and scrub had in that moment, and where there was nothing of those, by the next that is.

mod reports;
mod weights;

pub(crate) use reports::BillWatch;
pub(crate) use weights::Work;

use crate::image_stats::image_of;
use nacre_msg::osd_op::flag;
use nacre_msg::peer::PeerMessage;
use nacre_msg::{BILL_ROWS_MAX, BillClass, BillRow, OsdOp};
use nacre_pg::{Session, SessionId};
use nacre_store::Completion;
use nacre_types::{EntityName, HObject, PoolId, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two readings of the thread's clock.
const READ_INTERVAL: Duration = Duration::from_millis(1);
/// Clients' sessions of other shards whose names are remembered.
const SESSIONS_MAX: usize = 4096;
/// Bytes of a name and a namespace; longer ones are no image's.
const NAME_BYTES_MAX: usize = 256;
const CLASSES: usize = BillClass::ALL.len();

/// Who pays: a client for one image or one pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    client: EntityName,
    pool: PoolId,
    namespace: Vec<u8>,
    image: Vec<u8>,
}

/// The same, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Payer<'a> {
    client: EntityName,
    pool: PoolId,
    namespace: &'a [u8],
    image: &'a [u8],
}

impl RowKey {
    fn as_payer(&self) -> Payer<'_> {
        Payer { client: self.client, pool: self.pool, namespace: &self.namespace, image: &self.image }
    }
}

impl<'a> Payer<'a> {
    /// Of a client's message about this object.
    fn new(client: EntityName, pool: PoolId, namespace: &'a [u8], name: &'a [u8]) -> Self {
        match image_of(name).filter(|(_, id)| id.len().max(namespace.len()) <= NAME_BYTES_MAX) {
            Some((own_pool, image)) => Self { client, pool: own_pool.unwrap_or(pool), namespace, image },
            None => Self { client, pool, namespace: &[], image: &[] },
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Account {
    /// Gathered since the last reading.
    weight: u64,
    cpu_ns: u64,
    ops: u64,
    bytes: u64,
}

/// What a shard has worked for since its sample before.
#[derive(Debug, Default, Clone)]
pub(crate) struct BillSample {
    pub(crate) rows: Vec<BillRow>,
    pub(crate) classes_ns: [u64; CLASSES],
    /// Of the whole process, since its start.
    pub(crate) process_ns: u64,
}

/// The bill of one shard.
#[derive(Debug, Default)]
pub(crate) struct Bill {
    /// Off where there is no clock of a thread, as in the simulation, and where an operator does not want it.
    is_on: bool,
    /// In order of their keys.
    rows: Vec<(RowKey, Account)>,
    /// Index is the place of the class.
    classes: [Account; CLASSES],
    /// For somebody among clients, recovery and scrub.
    shared_weight: u64,
    /// Time for which nobody was there yet to pay.
    carried_ns: u64,
    read_at: Stamp,
    /// The thread's clock as it was read last.
    read_ns: u64,
    /// It was off since: what the clock shows first is no work of ours.
    is_behind: bool,
    /// Names of clients that are connected to other shards.
    names: BTreeMap<SessionId, EntityName>,
    work: weights::Counts,
}

impl Bill {
    /// Counts from now on, or does not any more; `has_clock` says whether a thread can be asked what it has used. What it used while this
    /// was off, before the first time as well, is on no bill.
    pub(crate) fn enable(&mut self, is_wanted: bool, has_clock: bool) {
        let is_on = is_wanted && has_clock;
        if self.is_on != is_on {
            *self = Self { work: self.work, is_behind: true, ..Self::default() };
        }
        self.is_on = is_on;
    }

    /// A client's message comes in, from this shard's sockets or from another shard.
    pub(crate) fn client_op(&mut self, session: &Session, op: &OsdOp, is_local: bool) {
        if !self.is_on {
            return;
        }
        if !is_local {
            if self.names.len() >= SESSIONS_MAX {
                self.names.clear();
            }
            self.names.insert(session.id, session.name);
        }
        let work = if op.flags & flag::WRITE != 0 { Work::Write } else { Work::Read };
        let bytes = op.ops.iter().map(|sub| sub.indata.len() as u64).sum();
        let payer = Payer::new(session.name, op.spg.pg.pool, op.locator.namespace.as_ref(), op.name.as_ref());
        self.row(payer, work, bytes);
    }

    /// A client gets an answer of `bytes`, to a message that brought `input_bytes`. `session` is known where it is this shard's own.
    pub(crate) fn answered(
        &mut self,
        (id, session): (SessionId, Option<&Session>),
        (pool, namespace, name): (PoolId, &[u8], &[u8]),
        (input_bytes, bytes): (u64, u64),
    ) {
        if !self.is_on {
            return;
        }
        let client = session.map(|session| session.name).or_else(|| self.names.get(&id).copied());
        let Some(client) = client else { return self.shared(Work::Reply, bytes) };
        let account = self.row(Payer::new(client, pool, namespace, name), Work::Reply, bytes);
        account.ops += 1;
        account.bytes += input_bytes + bytes;
    }

    /// Another OSD says something of a PG.
    pub(crate) fn peer_message(&mut self, message: &PeerMessage) {
        if !self.is_on {
            return;
        }
        match message {
            PeerMessage::RepOp(rep_op) => {
                let bytes = rep_op.txn.data_bytes() as u64;
                match rep_op.entries.last().filter(|entry| entry.reqid != Default::default()) {
                    Some(entry) => {
                        let HObject { pool, namespace, name, .. } = &entry.object;
                        let payer = Payer::new(entry.reqid.name, *pool, namespace.as_ref(), name.as_ref());
                        self.row(payer, Work::RepOp, bytes);
                    }
                    None => self.class(BillClass::Replication, Work::RepOp, bytes),
                }
            }
            PeerMessage::RepOpReply(_) => self.shared(Work::RepOpReply, 0),
            PeerMessage::Pull(_) | PeerMessage::Scan(_) | PeerMessage::ScanReply(_) => {
                self.class(BillClass::Recovery, Work::Recovery, 0);
            }
            PeerMessage::PushReply(_) | PeerMessage::Reserve(_) => {
                self.class(BillClass::Recovery, Work::PeerMessage, 0);
            }
            PeerMessage::Push(push) => {
                self.class(BillClass::Recovery, Work::Recovery, push.txn.data_bytes() as u64);
            }
            PeerMessage::ScrubRequest(_) | PeerMessage::ScrubReply(_) => {
                self.class(BillClass::Scrub, Work::Scrub, 0);
            }
            _ => self.class(BillClass::Replication, Work::PeerMessage, 0),
        }
    }

    /// The store has completed something of a PG's.
    pub(crate) fn completed(&mut self, completion: &Completion) {
        match completion {
            Completion::Durable(_) => self.shared(Work::Durable, 0),
            Completion::Fetched(_) => self.shared(Work::Fetched, 0),
            Completion::Warm(_) => (),
            Completion::Brought(_, data) => self.shared(Work::Fetched, data.len() as u64),
        }
    }

    /// Work that is for no client in particular.
    pub(crate) fn class(&mut self, class: BillClass, work: Work, bytes: u64) {
        if self.is_on {
            self.classes[class as usize].weight += self.work.weigh(work, bytes);
        }
    }

    /// Work for somebody among clients, recovery and scrub; nobody can tell.
    fn shared(&mut self, work: Work, bytes: u64) {
        if self.is_on {
            self.shared_weight += self.work.weigh(work, bytes);
        }
    }

    fn row(&mut self, payer: Payer<'_>, work: Work, bytes: u64) -> &mut Account {
        let weight = self.work.weigh(work, bytes);
        let at = match self.rows.binary_search_by(|(key, _)| key.as_payer().cmp(&payer)) {
            Ok(at) => Some(at),
            Err(_) if self.rows.len() >= BILL_ROWS_MAX => None,
            Err(at) => {
                let key = RowKey {
                    client: payer.client,
                    pool: payer.pool,
                    namespace: payer.namespace.to_vec(),
                    image: payer.image.to_vec(),
                };
                self.rows.insert(at, (key, Account::default()));
                Some(at)
            }
        };
        let others = &mut self.classes[BillClass::OtherClients as usize];
        let account = match at.and_then(|at| self.rows.get_mut(at)) {
            Some((_, account)) => account,
            None => others,
        };
        account.weight += weight;
        account
    }

    /// A turn ends: shares out what the thread has used since the last reading, if that was a while ago. `thread_ns` reads its clock.
    pub(crate) fn turn_ended(&mut self, now: Stamp, thread_ns: impl FnOnce() -> Option<u64>) {
        // To share out costs as many rows: the more there are, the rarer.
        let interval = READ_INTERVAL * (1 + u32::try_from(self.rows.len() / 64).unwrap_or(0));
        if self.is_on && now.since(self.read_at) >= interval {
            self.read_at = now;
            if let Some(thread_ns) = thread_ns() {
                self.share_out(thread_ns);
            }
        }
    }

    /// The thread has used `thread_ns` since its start.
    fn share_out(&mut self, thread_ns: u64) {
        if std::mem::take(&mut self.is_behind) {
            self.read_ns = thread_ns;
        }
        let used_ns = thread_ns.saturating_sub(self.read_ns);
        self.read_ns = self.read_ns.max(thread_ns);
        let is_payer = |class: &BillClass| !matches!(class, BillClass::Housekeeping | BillClass::Background);
        let of_classes = |classes: &[Account; CLASSES], payers: bool| -> u64 {
            let all = BillClass::ALL.iter().filter(|class| is_payer(class) == payers);
            all.map(|class| classes[*class as usize].weight).sum()
        };
        let payers = self.rows.iter().map(|(_, account)| account.weight).sum::<u64>();
        let payers = payers + of_classes(&self.classes, true);
        let fixed = of_classes(&self.classes, false);
        let shared = std::mem::take(&mut self.shared_weight);
        let total = payers + fixed + shared;
        if total == 0 {
            self.classes[BillClass::Background as usize].cpu_ns += used_ns;
            return;
        }
        let for_fixed = part(used_ns, fixed, total);
        let mut for_payers = Remainder::new(used_ns - for_fixed, payers);
        if payers == 0 {
            self.carried_ns += used_ns - for_fixed;
        } else {
            for_payers.left_ns += std::mem::take(&mut self.carried_ns);
        }
        let mut for_fixed = Remainder::new(for_fixed, fixed);
        for class in BillClass::ALL {
            let account = &mut self.classes[class as usize];
            let remainder = if is_payer(&class) { &mut for_payers } else { &mut for_fixed };
            account.cpu_ns += remainder.take(std::mem::take(&mut account.weight));
        }
        for (_, account) in &mut self.rows {
            account.cpu_ns += for_payers.take(std::mem::take(&mut account.weight));
        }
    }

    /// What was worked for since this was called last; the clocks are those of the thread and the process.
    pub(crate) fn take(&mut self, thread_ns: u64, process_ns: u64) -> Option<BillSample> {
        if !self.is_on {
            return None;
        }
        self.share_out(thread_ns);
        let mut classes_ns = self.classes.map(|account| account.cpu_ns);
        // Nobody came who could pay for it.
        classes_ns[BillClass::Background as usize] += std::mem::take(&mut self.carried_ns);
        self.classes = Default::default();
        let rows = std::mem::take(&mut self.rows).into_iter();
        let rows = rows.map(|(key, account)| BillRow {
            client: key.client,
            pool: key.pool,
            namespace: String::from_utf8_lossy(&key.namespace).into_owned(),
            image: String::from_utf8_lossy(&key.image).into_owned(),
            cpu_ns: account.cpu_ns,
            ops: account.ops,
            bytes: account.bytes,
        });
        Some(BillSample { rows: rows.collect(), classes_ns, process_ns })
    }

    /// How much work of each kind there was since the start, as a section of `perf dump`: what the weights can be fitted to.
    pub(crate) fn dump(&self) -> serde_json::Value {
        self.work.dump()
    }
}

/// `weight` of `total` parts of `ns`.
fn part(ns: u64, weight: u64, total: u64) -> u64 {
    let part = u128::from(ns) * u128::from(weight) / u128::from(total.max(1));
    u64::try_from(part).unwrap_or(ns)
}

/// Time that is shared out by weights without a nanosecond left over: who comes last gets what rounding has left.
struct Remainder {
    left_ns: u64,
    left_weight: u64,
}

impl Remainder {
    fn new(left_ns: u64, left_weight: u64) -> Self {
        Self { left_ns, left_weight }
    }

    fn take(&mut self, weight: u64) -> u64 {
        let ns = part(self.left_ns, weight, self.left_weight);
        self.left_ns -= ns;
        self.left_weight -= weight;
        ns
    }
}

#[cfg(test)]
mod tests;
