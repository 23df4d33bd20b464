//! [`Wal`]: collects transactions into records, writes them, and says which are durable, in order.
//!
//! At most [`WRITES_MAX`] records are in flight; transactions that come meanwhile make the next one. A
//! transaction is durable when its record, all records before it, and all data placed for them are.

mod behind;
mod record;
mod replay;
mod ring;

pub(crate) use behind::Behind;
pub(crate) use record::{Encoded, Placement};
pub(crate) use replay::{Found, Scan, Step};

use crate::BLOCK;
use crate::device::Numbers;
use crate::superblock::Superblock;
use nacre_buf::Bytes;
use nacre_txn::{StoreToken, Transaction};
use record::{HEADER_BYTES, Header};
use ring::Ring;
use std::collections::{BTreeMap, VecDeque};

/// Records in flight; more gain nothing (measured, see the group commit figures in `docs/`).
const WRITES_MAX: usize = 2;

/// A place between two records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WalPosition {
    pub(crate) position: u64,
    /// Sequence number of the record that goes there.
    pub(crate) seq: u64,
    /// Least mount number that record may have.
    pub(crate) mount: u64,
}

/// Transactions are numbered in the order in which they were submitted since the store was opened.
pub(crate) type TxnNumber = u64;

struct Collected {
    number: TxnNumber,
    encoded: Encoded,
}

#[derive(Debug)]
struct InFlight {
    seq: u64,
    last: TxnNumber,
    written: bool,
}

/// A record to be written to the device, durably.
pub(crate) struct RecordWrite {
    pub(crate) seq: u64,
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
}

/// The log of an open store.
pub(crate) struct Wal {
    ring: Ring,
    /// Those of the blocks where data is placed.
    numbers: Numbers,
    salt: u64,
    seq: u64,
    mount: u64,
    collecting: VecDeque<Collected>,
    in_flight: VecDeque<InFlight>,
    /// Placed data on its way, by transaction.
    placing: BTreeMap<TxnNumber, u32>,
    tokens: VecDeque<(TxnNumber, StoreToken)>,
    next_number: TxnNumber,
    /// All transactions up to here have their records written, or are in a durable checkpoint.
    logged: TxnNumber,
    durable_seq: u64,
    /// Sequence number at which the newest durable checkpoint stands.
    needed_from: u64,
    /// The newest checkpoint has transactions that have no record, and no record says yet that it is durable: without one,
    /// metadata of before it would replay what there is and miss them.
    note_due: bool,
    /// A checkpoint carries transactions that have no record: no record may be written before it is durable.
    held: bool,
    /// Bytes of transactions that make a record full, unless a single one is larger.
    record_bytes_max: usize,
}

impl Wal {
    pub(crate) fn new(superblock: &Superblock, salt: u64, at: WalPosition, record_bytes_max: usize) -> Self {
        Self {
            ring: Ring::new(superblock.wal, at.position),
            numbers: superblock.numbers(),
            salt,
            seq: at.seq,
            mount: at.mount,
            collecting: VecDeque::new(),
            in_flight: VecDeque::new(),
            placing: BTreeMap::new(),
            tokens: VecDeque::new(),
            next_number: 1,
            logged: 0,
            durable_seq: at.seq.saturating_sub(1),
            needed_from: at.seq,
            note_due: false,
            held: false,
            record_bytes_max,
        }
    }

    pub(crate) fn next_position(&self) -> WalPosition {
        WalPosition { position: self.ring.tail(), seq: self.seq, mount: self.mount }
    }

    /// Blocks of the area, and those in use.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.ring.size(), self.ring.used())
    }

    /// Begins a new mount, after the highest that any record on the device has: all that is written from now on is told
    /// apart from what may lie behind the tail.
    pub(crate) fn begin_mount(&mut self, highest: u64) {
        self.mount = self.mount.max(highest) + 1;
        self.durable_seq = self.seq - 1;
    }

    /// The empty record that ends what an earlier mount left; `None` when the ring has no room for it.
    pub(crate) fn mount_record(&mut self) -> Option<RecordWrite> {
        let write = self.build(0, false)?;
        self.durable_seq = write.seq;
        Some(write)
    }

    pub(crate) fn encode(&self, txn: &Transaction, placements: &[Placement]) -> Encoded {
        record::encode_entry(txn, placements, self.numbers)
    }

    /// The number that the next pushed transaction gets.
    pub(crate) fn next_number(&self) -> TxnNumber {
        self.next_number
    }

    pub(crate) fn push(&mut self, encoded: Encoded, token: StoreToken) {
        let number = self.next_number;
        self.next_number += 1;
        self.collecting.push_back(Collected { number, encoded });
        self.tokens.push_back((number, token));
    }

    /// Data for transaction `number` is on its way to the device.
    pub(crate) fn placing(&mut self, number: TxnNumber) {
        *self.placing.entry(number).or_default() += 1;
    }

    /// Data for transaction `number` is durable.
    pub(crate) fn placed(&mut self, number: TxnNumber) {
        match self.placing.get_mut(&number) {
            Some(1) => drop(self.placing.remove(&number)),
            Some(more) => *more -= 1,
            None => unreachable!("placed data of {number} completed twice"),
        }
    }

    /// The oldest transaction without a record is longer than any record of this log may be: only a checkpoint makes it
    /// durable.
    pub(crate) fn is_stuck(&self) -> bool {
        let too_long = |entry: &Collected| blocks_of(entry.encoded.len()) > self.ring.record_blocks_max();
        !self.held && self.collecting.front().is_some_and(too_long)
    }

    /// The next record to write, if there is one and it may be written now.
    pub(crate) fn next_write(&mut self) -> Option<RecordWrite> {
        if self.in_flight.len() >= WRITES_MAX { None } else { self.seal() }
    }

    /// As [`Wal::next_write`] however many are in flight.
    pub(crate) fn seal(&mut self) -> Option<RecordWrite> {
        if self.held || self.is_stuck() {
            return None;
        }
        if self.collecting.is_empty() {
            return self.seal_note();
        }
        let (mut count, mut bytes) = (0, 0);
        for entry in &self.collecting {
            if count > 0 && bytes + entry.encoded.len() > self.record_bytes_max {
                break;
            }
            count += 1;
            bytes += entry.encoded.len();
        }
        // What does not fit the ring as a group may fit in part.
        while count > 0 {
            if let Some(write) = self.build(count, true) {
                let last =
                    self.collecting.drain(..count).next_back().map_or(self.logged, |entry| entry.number);
                self.in_flight.push_back(InFlight { seq: write.seq, last, written: false });
                self.note_due = false;
                return Some(write);
            }
            count /= 2;
        }
        None
    }

    /// A record without transactions, when there is something to say.
    fn seal_note(&mut self) -> Option<RecordWrite> {
        if !self.note_due {
            return None;
        }
        let write = self.build(0, true)?;
        self.note_due = false;
        let last = self.in_flight.back().map_or(self.logged, |record| record.last);
        self.in_flight.push_back(InFlight { seq: write.seq, last, written: false });
        Some(write)
    }

    /// A record of the first `count` transactions that were collected.
    fn build(&mut self, count: usize, spare: bool) -> Option<RecordWrite> {
        let entries = self.collecting.iter().take(count).map(|entry| &entry.encoded);
        let blocks = blocks_of(entries.clone().map(Encoded::len).sum());
        let position = self.ring.take(blocks, spare)?;
        let header = Header {
            length: 0,
            salt: self.salt,
            seq: self.seq,
            mount: self.mount,
            durable_through: self.durable_seq,
            count: u32::try_from(count).expect("records are bounded"),
            needed_from: self.needed_from,
        };
        let data = record::build(header, entries);
        self.seq += 1;
        Some(RecordWrite { seq: header.seq, offset: self.ring.offset(position), data })
    }

    /// The record `seq` is on the device.
    pub(crate) fn written(&mut self, seq: u64) {
        if let Some(record) = self.in_flight.iter_mut().find(|record| record.seq == seq) {
            record.written = true;
        }
    }

    /// Moves the tokens of transactions that have become durable to `out`, in order. A record counts as a whole: at
    /// replay, data that one of its transactions placed and that is not there discards all of it.
    pub(crate) fn durable(&mut self, out: &mut Vec<StoreToken>) {
        let placing = self.placing.first_key_value().map_or(TxnNumber::MAX, |(number, _)| *number);
        while let Some(record) =
            self.in_flight.front().filter(|record| record.written && record.last < placing)
        {
            (self.durable_seq, self.logged) = (record.seq, record.last);
            self.in_flight.pop_front();
        }
        self.acknowledge(self.logged, out);
    }

    /// Moves the tokens up to a transaction to `out`.
    pub(crate) fn acknowledge(&mut self, through: TxnNumber, out: &mut Vec<StoreToken>) {
        while let Some((_, token)) = self.tokens.front().filter(|(number, _)| *number <= through) {
            out.push(*token);
            self.tokens.pop_front();
        }
    }

    /// The last transaction submitted. Those without a record, if any, are left to the checkpoint that is
    /// being cut, and nothing is logged until [`Wal::checkpoint_durable`].
    pub(crate) fn cut(&mut self) -> TxnNumber {
        self.held = !self.collecting.is_empty();
        self.collecting.clear();
        self.next_number - 1
    }

    /// Whether all up to the cut is durable, but for what has no record.
    pub(crate) fn is_durable_to(&self, cut: TxnNumber) -> bool {
        let recorded = self.in_flight.front().is_none_or(|record| record.last > cut);
        recorded && self.placing.first_key_value().is_none_or(|(number, _)| *number > cut)
    }

    /// The checkpoint of this cut is durable: the log before it is not needed any more.
    pub(crate) fn checkpoint_durable(&mut self, cut: TxnNumber, at: WalPosition, out: &mut Vec<StoreToken>) {
        self.ring.trim(at.position);
        self.needed_from = at.seq;
        if self.held {
            (self.held, self.note_due) = (false, true);
            self.logged = self.logged.max(cut);
        }
        self.acknowledge(cut, out);
    }

    /// Transactions not acknowledged yet.
    pub(crate) fn waiting(&self) -> usize {
        self.tokens.len()
    }

    /// Bytes of transactions that wait for a record.
    pub(crate) fn collecting_bytes(&self) -> usize {
        self.collecting.iter().map(|entry| entry.encoded.len()).sum()
    }

    /// Panics when the log contradicts itself.
    pub(crate) fn check(&self) {
        assert!(self.ring.used() <= self.ring.size());
        let seqs: Vec<u64> = self.in_flight.iter().map(|record| record.seq).collect();
        assert!(
            seqs.windows(2).all(|pair| matches!(pair, [a, b] if a + 1 == *b)),
            "records in flight: {seqs:?}"
        );
        assert!(seqs.first().is_none_or(|first| self.durable_seq < *first));
    }
}

fn blocks_of(bytes: usize) -> u64 {
    (HEADER_BYTES + bytes).div_ceil(BLOCK) as u64
}
