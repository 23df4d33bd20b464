//! [`Budget`]: how much one message may ask for.
//!
//! A message runs as one, without a pause in which others on its thread would have their turn, and its answer is made in
//! memory. So both are bounded, whatever its operations are: what goes beyond gets `E2BIG`, and nothing of the message takes effect.
//! A real OSD bounds neither.

use super::copied::COLLECTED_BYTES_MAX;
use super::{CLIENT_INPUT_BYTES_MAX, OBJECT_BYTES_MAX, OMAP_BYTES_MAX, TRANSACTION_BYTES_MAX};
use crate::turn::WORK_BYTES_MAX;
use nacre_types::Errno;
use std::cell::Cell;

/// Operations of one message.
pub const OPS_MAX: usize = 1024;
/// Snapshots in the context of one message: a clone keeps them in its log entry.
pub const SNAPS_MAX: usize = 4096;
/// Omap keys of one message: twice what a metadata server keeps in one directory fragment's object at most
/// (`mds_bal_fragment_size_max` is 100,000 entries, which it may write at once), and not more than a tenth of a second's work.
pub const OMAP_KEYS_MAX: usize = 128 << 10;
/// Objects in one page of a list, whatever the client asks for (`osd_max_pgls`).
pub const LISTED_MAX: usize = 1024;
/// Bytes of data in one answer: an object, and a page of its omap.
pub const REPLY_BYTES_MAX: u64 = OBJECT_BYTES_MAX + OMAP_BYTES_MAX as u64;

/// How long a client's message and its answer may be at most. An OSD with little memory has smaller ones, but never a larger input than the
/// usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageLimits {
    /// Bytes of input: what is longer is refused with `EMSGSIZE`.
    pub input_bytes: usize,
    /// Bytes of what a message changes: what would be longer gets `EMSGSIZE`.
    pub transaction_bytes: usize,
    /// Bytes of data of an answer: what would be longer gets `E2BIG`.
    pub reply_bytes: u64,
    /// About the bytes of omap in one page; what does not fit is in the next.
    pub omap_bytes: usize,
    /// Bytes of the source of a copy that are kept in memory; with more, they go to a temporary object.
    pub copied_bytes: usize,
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self {
            input_bytes: CLIENT_INPUT_BYTES_MAX,
            transaction_bytes: TRANSACTION_BYTES_MAX,
            reply_bytes: REPLY_BYTES_MAX,
            omap_bytes: OMAP_BYTES_MAX,
            copied_bytes: COLLECTED_BYTES_MAX,
        }
    }
}

/// What one operation costs, however little it does.
pub(super) const OP_COST: u64 = 16 << 10;
/// What a byte costs that a class reads or writes: it looks at each several times (some 1 ns at the optimization of tests).
pub(super) const CLASS_BYTE_COST: u64 = 4;
/// What a byte costs that a class takes apart as a list or map: the shortest entries have four or five, and become objects of their own.
pub(super) const DECODED_BYTE_COST: u64 = 64;
/// What an omap entry costs, read or written: it is found, copied and encoded on its own.
pub(super) const ENTRY_COST: u64 = 2 << 10;
/// What a byte of a key, value or attribute costs: they are copied several times until they are sent.
pub(super) const KEY_BYTE_COST: u64 = 8;

// Otherwise what one rule allows would be refused by the other.
const _: () = assert!(OMAP_KEYS_MAX as u64 * ENTRY_COST <= WORK_BYTES_MAX);
const _: () = assert!(OPS_MAX as u64 * OP_COST < WORK_BYTES_MAX / 8);
// The largest object map (256,000,000 objects, two bits each) is read by one call, and the last of a budget may go beyond it: so it is
// written as well.
const _: () = assert!(CLASS_BYTE_COST * (64_000_000 + 4096) < WORK_BYTES_MAX);

/// What is left to one message.
#[derive(Debug)]
pub(super) struct Budget {
    work: Cell<u64>,
    reply: Cell<u64>,
}

impl Budget {
    /// That of a message before it runs.
    pub(super) fn new(limits: MessageLimits) -> Self {
        Self { work: Cell::new(WORK_BYTES_MAX), reply: Cell::new(limits.reply_bytes) }
    }

    /// Notes work that is about to be done. The last of it may go beyond the budget: a single long value can always be read.
    ///
    /// # Errors
    /// `E2BIG` when nothing was left.
    pub(super) fn spend(&self, cost: u64) -> Result<(), Errno> {
        let left = self.work.get();
        self.work.set(left.saturating_sub(cost));
        if left == 0 { Err(Errno::E2BIG) } else { Ok(()) }
    }

    /// Whether there is so much left, for work whose parts would be refused one after the other.
    ///
    /// # Errors
    /// `E2BIG` when there is not.
    pub(super) fn afford(&self, cost: u64) -> Result<(), Errno> {
        if cost > self.work.get() { Err(Errno::E2BIG) } else { Ok(()) }
    }

    /// Notes work for entries of omap or attributes with so many bytes of keys and values.
    ///
    /// # Errors
    /// As [`Budget::spend`].
    pub(super) fn spend_on_keys(&self, entries: usize, bytes: usize) -> Result<(), Errno> {
        let (entries, bytes) = (entries as u64, bytes as u64);
        self.spend(entries.saturating_mul(ENTRY_COST).saturating_add(bytes.saturating_mul(KEY_BYTE_COST)))
    }

    /// Notes work for an input or a stored value that a class takes apart. One that could be nothing but work is refused as a whole.
    ///
    /// # Errors
    /// As [`Budget::spend`]; also when this alone is more than one message may cost.
    pub(super) fn spend_on_decoding(&self, bytes: usize) -> Result<(), Errno> {
        let cost = DECODED_BYTE_COST.saturating_mul(bytes as u64);
        if cost > WORK_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        self.spend(cost)
    }

    /// Work done so far.
    pub(super) fn spent(&self) -> u64 {
        WORK_BYTES_MAX - self.work.get()
    }

    /// True when nothing is left for work.
    pub(super) fn is_spent(&self) -> bool {
        self.work.get() == 0
    }

    /// Notes data for the answer.
    ///
    /// # Errors
    /// `E2BIG` when there is not so much room left.
    pub(super) fn reply(&self, bytes: u64) -> Result<(), Errno> {
        self.reply.set(self.reply.get().checked_sub(bytes).ok_or(Errno::E2BIG)?);
        Ok(())
    }
}
