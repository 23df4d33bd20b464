//! [`Checkpoint`]: how far the store is with writing dirty blocks home and changed metadata to the KV store, after which the log before
//! it is free. The steps are in `checkpointing/`.
//!
//! ```text
//!  cut -> gather -> write home -> settle -> flush -> encode -> commit -> adopt -> free -> done
//!   |       which     to fresh     log and    all     onodes,   KV, all    slots    what was
//!   |       blocks    blocks       data up    of it   pairs,    as one;    point    released
//!   |                              to cut             logs,     log        home     before
//!   |                                                 free map  trimmed             the cut
//!  the mutable memtables become the cut's; the store goes on changing above them
//! ```
//!
//! Nothing that the last durable state refers to is overwritten before the commit is complete, so a crash before
//! it finds the old state and the whole log, and after it the new state and the log from the cut on. While the KV
//! store commits on a thread of its own, a crash finds one of the two: the batch is atomic, and both the old log
//! and the blocks that the old state refers to stay until the completion has been drained.
//!
//! No step waits, and each is small: writers go on between any two. So a step must not look at what the store holds
//! *now*, or the batch would mix several moments. It could not be repaired by replay either: applying the log from
//! the cut to a newer object is not idempotent (a clone made since the cut would copy what was written to its source
//! later, a rename would find its source gone, placed blocks would be taken twice). What a checkpoint writes is
//! the state at its cut exactly: the frozen memtables do not change any more, and a change since then copies.

use crate::alloc::Cuts;
use crate::blob::{Blob, Place};
use crate::blocks::Period;
use crate::dirty::Dirty;
use crate::freemap::RefChanges;
use crate::kv_schema::State;
use crate::page::page_of;
use crate::throttle::fill::{Fill, WHOLE};
use crate::throttle::{Begins, Ends};
use crate::wal::TxnNumber;
use nacre_buf::Bytes;
use nacre_kv::KvBatch;
use nacre_types::{Eversion, SpgId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A dirty block and where it goes.
pub(crate) struct Home {
    /// Number of the object.
    pub(crate) object: u64,
    pub(crate) index: u32,
    /// The base shows between the pieces before the object's end. All behind that is zeros, whatever became of the base.
    pub(crate) shows_base: bool,
    pub(crate) dirty: Arc<Dirty>,
    /// That of `dirty`, which does not change any more and may have left the processor's caches when the base is asked for.
    pub(crate) base: Option<Place>,
    /// Where it goes. What is on the device as it is already, stays at its base.
    pub(crate) target: Place,
}

impl Home {
    /// It is where it goes.
    pub(crate) fn stays(&self) -> bool {
        self.base.as_ref() == Some(&self.target)
    }

    /// What shows between its pieces.
    pub(crate) fn shown_base(&self) -> Option<&Place> {
        self.base.as_ref().filter(|_| self.shows_base)
    }

    /// The blob that it goes into.
    pub(crate) fn new_blob(&self) -> Option<&Arc<Blob>> {
        match &self.target {
            Place::Blob(blob, _) => Some(blob),
            Place::Block(_) => None,
        }
    }

    /// The blob that shows between its pieces.
    pub(crate) fn base_blob(&self) -> Option<&Arc<Blob>> {
        match &self.base {
            Some(Place::Blob(blob, _)) => Some(blob),
            _ => None,
        }
    }
}

/// The blobs that homes of one object go into, or that show between their pieces, each once, with the index of a block that has it.
pub(crate) fn blobs_of<'a>(
    homes: &'a [Home],
    blob: impl Fn(&'a Home) -> Option<&'a Arc<Blob>>,
) -> Vec<(u32, &'a Arc<Blob>)> {
    let mut blobs: Vec<(u32, &Arc<Blob>)> = Vec::new();
    for home in homes {
        // Those of a page are side by side.
        let in_page = |known: &&(u32, &Arc<Blob>)| page_of(known.0) == page_of(home.index);
        if let Some(blob) = blob(home)
            && blobs.iter().rev().take_while(in_page).all(|(_, known)| known.first() != blob.first())
        {
            blobs.push((home.index, blob));
        }
    }
    blobs
}

/// The block, or the first one of the blob and how many it holds and has: metadata that contradict each other may have several that begin
/// in one block.
pub(crate) type BaseKey = (u64, u32, u32);

/// What shows between pieces that were written; `None` for what is damaged.
pub(crate) type Bases = BTreeMap<BaseKey, Option<Bytes>>;

/// What a checkpoint does next, and how far it is with that. The diagram above has them in order.
pub(crate) enum Stage {
    Gather {
        from: u64,
    },
    Place {
        next: usize,
    },
    Write {
        next: usize,
    },
    Settle,
    Flush {
        done: bool,
    },
    Objects {
        from: u64,
        home: usize,
    },
    Pairs {
        last: Option<Bytes>,
    },
    Logs {
        last: Option<(SpgId, Eversion)>,
    },
    Space {
        home: usize,
    },
    Commit,
    /// Homes, and objects of the cut.
    Adopt(Left),
    Release,
    /// Runs of blocks that nothing refers to any more.
    Free(Left),
    Done,
}

/// How much of a stage's work there is still, and was at its beginning.
#[derive(Clone, Copy)]
pub(crate) struct Left {
    now: usize,
    all: usize,
}

impl Left {
    pub(crate) const fn new(all: usize) -> Self {
        Self { now: all, all }
    }

    pub(crate) const fn with(self, now: usize) -> Self {
        Self { now, ..self }
    }

    /// How much is done, of [`WHOLE`].
    fn done(self) -> u64 {
        WHOLE - self.now.min(self.all) as u64 * WHOLE / self.all.max(1) as u64
    }
}

/// A checkpoint under way.
pub(crate) struct Checkpoint {
    pub(crate) cut: Cuts,
    /// What was changed in this period, the cut's end of it, is in the checkpoint.
    pub(crate) period: Period,
    /// What was in use at the cut, without what was given back since.
    pub(crate) fill: Fill,
    pub(crate) number: TxnNumber,
    pub(crate) state: State,
    pub(crate) batch: KvBatch,
    pub(crate) homes: Vec<Home>,
    /// Changes of references up to the cut; the homes' are added.
    pub(crate) changes: RefChanges,
    /// Objects and blobs, by their first blocks, that are no more needed once the homes are taken.
    pub(crate) left_blobs: BTreeSet<(u64, u64)>,
    /// Blocks promised at the cut, until they are allocated.
    pub(crate) held: u64,
    /// Homes that were compressed, or tried; most of their work is done with that.
    pub(crate) tried: usize,
    pub(crate) stage: Stage,
    pub(crate) writes: usize,
    pub(crate) reads: usize,
    /// Blocks that it asked the device for in vain, a few times each.
    pub(crate) unreadable: BTreeSet<u64>,
    /// Runs in the cache that must stay until the blocks being written are put together.
    pub(crate) pins: Vec<u64>,
    /// What shows between the written pieces of those blocks, as far as it has been brought together.
    pub(crate) bases: Bases,
    pub(crate) begins: Begins,
}

impl Checkpoint {
    pub(crate) fn held_blocks(&self) -> u64 {
        self.held
    }

    /// What it is at, for people.
    pub(crate) fn stage_name(&self) -> &'static str {
        match self.stage {
            Stage::Gather { .. } => "gather",
            Stage::Place { .. } => "place",
            Stage::Write { .. } => "write home",
            Stage::Settle => "settle",
            Stage::Flush { .. } => "flush",
            Stage::Objects { .. } => "encode objects",
            Stage::Pairs { .. } => "encode pairs",
            Stage::Logs { .. } => "encode logs",
            Stage::Space { .. } => "encode space",
            Stage::Commit => "commit",
            Stage::Adopt(_) => "adopt",
            Stage::Release => "let go",
            Stage::Free(_) => "free",
            Stage::Done => "done",
        }
    }

    pub(crate) fn fill(&self) -> &Fill {
        &self.fill
    }

    /// About how much of the time that it takes is over, of [`WHOLE`], when the parts end where `ends` says and the KV store has
    /// done so much of a commit.
    pub(crate) fn progress(&self, ends: Ends, committed: u64) -> u64 {
        let part = |home: usize| home as u64 * WHOLE / self.homes.len().max(1) as u64;
        let between = |begin: u64, end: u64, part: u64| begin + (end - begin) * part.min(WHOLE) / WHOLE;
        match self.stage {
            Stage::Gather { .. } => 0,
            Stage::Place { .. } => between(0, ends.written, part(self.tried)),
            Stage::Write { next } => {
                let left = WHOLE - part(self.tried).min(WHOLE);
                between(0, ends.written, WHOLE - left + part(next) * left / WHOLE)
            }
            Stage::Settle | Stage::Flush { .. } => ends.settled,
            // Two rounds over the homes.
            Stage::Objects { home, .. } => between(ends.settled, ends.encoded, part(home) / 2),
            Stage::Pairs { .. } | Stage::Logs { .. } => ends.settled.midpoint(ends.encoded),
            Stage::Space { home } => between(ends.settled, ends.encoded, WHOLE / 2 + part(home) / 2),
            Stage::Commit => between(ends.encoded, ends.committed, committed),
            Stage::Adopt(left) => between(ends.committed, ends.adopted, left.done()),
            Stage::Release => ends.adopted.midpoint(WHOLE),
            Stage::Free(left) => between(ends.adopted.midpoint(WHOLE), WHOLE, left.done()),
            Stage::Done => WHOLE,
        }
    }

    /// Whether the KV store has it.
    pub(crate) fn is_committing(&self) -> bool {
        matches!(self.stage, Stage::Commit)
    }
}
