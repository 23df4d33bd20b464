//! [`Held`]: memory of messages that dirty blocks keep alive. A block of a message lies in the memory of all of it, which goes
//! when the last block of it does: so what is overwritten or removed still takes memory as long as one of its neighbours is dirty.
//! That counts like dirty blocks do.

use crate::BLOCK;
use nacre_txn::Transaction;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Of larger transactions, blocks are copied out of the message: most of it goes to the device beside the log.
const SHARED_BYTES_MAX: usize = 128 << 10;

/// Memory of messages, as said above.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// All of those that some block is in.
    alive: AtomicUsize,
    /// The blocks themselves.
    shown: AtomicUsize,
}

impl Held {
    /// What is held beyond the dirty blocks.
    pub(crate) fn excess(&self) -> usize {
        self.alive.load(Ordering::Relaxed).saturating_sub(self.shown.load(Ordering::Relaxed))
    }
}

/// The data of one transaction, in the memory in which it came.
#[derive(Debug)]
pub(crate) struct Owner {
    bytes: usize,
    held: Arc<Held>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.held.alive.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A block's part of it.
#[derive(Debug)]
pub(crate) struct Share(Arc<Owner>);

impl Share {
    fn of(owner: &Arc<Owner>) -> Self {
        owner.held.shown.fetch_add(BLOCK, Ordering::Relaxed);
        Self(Arc::clone(owner))
    }
}

impl Clone for Share {
    fn clone(&self) -> Self {
        Self::of(&self.0)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.held.shown.fetch_sub(BLOCK, Ordering::Relaxed);
    }
}

/// How blocks are taken out of a transaction.
#[derive(Debug)]
pub(crate) enum Source {
    /// Its memory holds much else, or is not as a device takes it.
    Copy,
    /// As they are; without an owner when a block is all that there is.
    Share(Option<Arc<Owner>>),
}

impl Source {
    pub(crate) fn of(txn: &Transaction, held: &Arc<Held>) -> Self {
        match txn.data_bytes() {
            0..=BLOCK => Self::Share(None),
            bytes if bytes <= SHARED_BYTES_MAX => {
                held.alive.fetch_add(bytes, Ordering::Relaxed);
                Self::Share(Some(Arc::new(Owner { bytes, held: Arc::clone(held) })))
            }
            _ => Self::Copy,
        }
    }

    /// For one block.
    pub(crate) fn share(&self) -> Option<Share> {
        match self {
            Self::Share(Some(owner)) => Some(Share::of(owner)),
            Self::Share(None) | Self::Copy => None,
        }
    }
}
