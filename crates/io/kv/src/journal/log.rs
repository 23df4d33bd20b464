//! [`Log`]: the journal's file. Two heads, and two halves in which records follow each other; one half is written while the other
//! one is merged into the store below.
//!
//! A record is acknowledged when a head says durably that it was durable. So a record that is damaged, or was lost by a device
//! that had promised it, is told from one that the power cut off, even the last one.

use crate::KvError;
use crate::journal::head::{HEADS_BYTES, Head};
use crate::journal::record::{self, BLOCK, Header};
use crate::journal::run::Run;
use crate::turn::Turn;
use bytes::Bytes;
use nacre_env::File;
use std::sync::Arc;

/// Bytes that are handed to the device at a time: all of a record in one sync would keep other writers' flushes waiting.
const PIECE_BYTES: usize = 256 << 10;
/// Entries find their bytes with 32 bits.
const HALF_BYTES_MAX: u64 = 1 << 30;
const HALF_BYTES_MIN: u64 = 4 * BLOCK as u64;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Log {
    file: Arc<dyn File>,
    /// As it was, or is being, written.
    head: Head,
    next_seq: u64,
    active_half: u32,
    /// Bytes of records in the active half.
    used_bytes: u64,
    /// The last record of the half that is being merged.
    frozen_through: Option<u64>,
}

/// What a journal held when it was opened.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// The oldest first; of the half to be merged, and of the active one.
    pub(crate) frozen: Vec<Run>,
    pub(crate) active: Vec<Run>,
}

/// Records that follow each other in one half.
struct Chain {
    runs: Vec<Run>,
    bytes: u64,
}

fn damaged(what: String) -> KvError {
    KvError::Damaged(format!("the metadata's journal: {what}"))
}

/// What halves of about so many bytes have.
pub(crate) fn sized(half_bytes: u64) -> u64 {
    half_bytes.clamp(HALF_BYTES_MIN, HALF_BYTES_MAX) / BLOCK as u64 * BLOCK as u64
}

/// Bytes of a journal with such halves.
pub(crate) const fn length_of(half_bytes: u64) -> u64 {
    HEADS_BYTES + 2 * half_bytes
}

/// Not to allocate blocks, which is more than a flush, when records are written.
fn fill_with_zeros(file: &dyn File, from: u64, to: u64) -> Result<(), KvError> {
    let zeros = vec![0; PIECE_BYTES];
    let mut at = from;
    while at < to {
        let piece = zeros.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
        file.write(at, zeros.get(..piece).unwrap_or_default())?;
        at += piece as u64;
    }
    Ok(())
}

impl Log {
    /// Makes an empty journal, whose heads must not be there yet.
    pub(crate) fn create(file: Arc<dyn File>, id: [u8; 16], half_bytes: u64) -> Result<Self, KvError> {
        let half_bytes = sized(half_bytes);
        let length = length_of(half_bytes);
        file.set_length(length)?;
        fill_with_zeros(file.as_ref(), 0, length)?;
        file.sync()?;
        let (mount, merged_through, durable_through) = (1, 0, 0);
        let head = Head { number: 1, id, half_bytes, mount, merged_through, durable_through, start_half: 0 };
        head.write(file.as_ref())?;
        file.sync()?;
        Ok(Self { file, head, next_seq: 1, active_half: 0, used_bytes: 0, frozen_through: None })
    }

    /// Opens the journal with that head and reads what is not in the store below for certain, which says that it has all records
    /// through that one. What can be read is durable then.
    pub(crate) fn open(
        file: Arc<dyn File>,
        id: [u8; 16],
        head: Head,
        through: u64,
    ) -> Result<(Self, Replayed), KvError> {
        let mut head = head;
        if head.id != id {
            return Err(damaged("it belongs to another store".to_owned()));
        }
        if through < head.merged_through {
            return Err(damaged(format!(
                "records through {} are in the store, and the store has those through {through} only: it is an older copy. \
                 Put the right one back, or make the OSD anew and let it recover from the others",
                head.merged_through
            )));
        }
        if through > head.durable_through {
            // The last ones went into the store without the journal, or this is an older copy, of which nothing may be merged again.
            (head.merged_through, head.durable_through) = (through, through);
        }
        if head.half_bytes != sized(head.half_bytes) || file.length()? < length_of(head.half_bytes) {
            return Err(damaged(format!("two halves of {} bytes do not fit into its file", head.half_bytes)));
        }
        let (active_half, next_seq) = (head.start_half, head.merged_through.saturating_add(1));
        let mut log = Self { file, head, next_seq, active_half, used_bytes: 0, frozen_through: None };
        let mut mount = 0;
        let first = log.read_half(head.start_half, &mut mount)?;
        let seq_between = log.next_seq;
        let second = log.read_half(1 - head.start_half, &mut mount)?;
        if log.next_seq <= head.durable_through {
            return Err(damaged(format!(
                "record {} is damaged, or the device lost it; records were durable through {}",
                log.next_seq, head.durable_through
            )));
        }
        let replayed = if second.runs.is_empty() {
            log.used_bytes = first.bytes;
            Replayed { frozen: Vec::new(), active: first.runs }
        } else {
            (log.active_half, log.used_bytes) = (1 - head.start_half, second.bytes);
            log.frozen_through = Some(seq_between - 1);
            Replayed { frozen: first.runs, active: second.runs }
        };
        // A process that was killed may have left records that are not durable: what follows builds on them. Those behind a
        // record that was lost are of an earlier mount than whatever takes its place.
        log.head.mount += 1;
        log.make_durable()?;
        Ok((log, replayed))
    }

    fn read_half(&mut self, half: u32, mount: &mut u64) -> Result<Chain, KvError> {
        let mut chain = Chain { runs: Vec::new(), bytes: 0 };
        let mut block = vec![0; BLOCK];
        while chain.bytes < self.head.half_bytes {
            let at = self.offset(half, chain.bytes);
            self.file.read(at, &mut block)?;
            let fits = |header: &Header| header.bytes <= self.head.half_bytes - chain.bytes;
            let follows = |header: &Header| {
                header.seq == self.next_seq && (*mount..=self.head.mount).contains(&header.mount)
            };
            let Some(header) = record::header(&block).filter(fits).filter(follows) else { break };
            let mut content = vec![0; usize::try_from(header.bytes).unwrap_or(0)];
            self.file.read(at, &mut content)?;
            if !record::is_whole(&content, &self.head.id) {
                break;
            }
            let run = record::run_of(Bytes::from(content));
            chain
                .runs
                .push(run.ok_or_else(|| damaged(format!("record {} cannot be understood", header.seq)))?);
            chain.bytes += header.bytes;
            self.next_seq += 1;
            *mount = header.mount;
        }
        Ok(chain)
    }

    const fn offset(&self, half: u32, skip: u64) -> u64 {
        HEADS_BYTES + half as u64 * self.head.half_bytes + skip
    }

    pub(crate) const fn half_bytes(&self) -> u64 {
        self.head.half_bytes
    }

    pub(crate) const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        bytes as u64 <= self.head.half_bytes - self.used_bytes
    }

    /// Appends a record for which there is room. `wrote` is told of each piece.
    pub(crate) fn append(&mut self, mut record: Vec<u8>, wrote: impl Fn(usize)) -> Result<Run, KvError> {
        record::seal(&mut record, &self.head.id, self.head.mount, self.next_seq);
        let (mut at, turn) = (self.offset(self.active_half, self.used_bytes), Turn::default());
        for piece in record.chunks(PIECE_BYTES) {
            self.file.write(at, piece)?;
            self.file.write_back()?;
            turn.spend(piece.len());
            at += piece.len() as u64;
            wrote(piece.len());
        }
        self.used_bytes += record.len() as u64;
        self.next_seq += 1;
        record::run_of(Bytes::from(record))
            .ok_or_else(|| KvError::Misuse("a record that cannot be read".to_owned()))
    }

    /// All that was appended is durable, and the head says so.
    pub(crate) fn make_durable(&mut self) -> Result<(), KvError> {
        self.file.sync()?;
        self.head.durable_through = self.next_seq - 1;
        self.write_head()
    }

    fn write_head(&mut self) -> Result<(), KvError> {
        self.head.number += 1;
        self.head.write(self.file.as_ref())?;
        Ok(self.file.sync()?)
    }

    pub(crate) const fn is_frozen(&self) -> bool {
        self.frozen_through.is_some()
    }

    /// The active half is to be merged, the other one is written from now on. The first one is durable then: a crash between two
    /// parts of a merge would leave one of them alone otherwise.
    ///
    /// # Panics
    /// While the other one is still to be merged.
    pub(crate) fn freeze(&mut self) -> Result<(), KvError> {
        assert!(self.frozen_through.is_none(), "its records are still wanted");
        if self.head.durable_through < self.next_seq - 1 {
            self.make_durable()?;
        }
        self.frozen_through = Some(self.next_seq - 1);
        (self.active_half, self.used_bytes) = (1 - self.active_half, 0);
        Ok(())
    }

    /// The last record of the half that is being merged.
    pub(crate) const fn frozen_through(&self) -> Option<u64> {
        self.frozen_through
    }

    /// The last record that is in the store below.
    pub(crate) const fn merged_through(&self) -> u64 {
        self.head.merged_through
    }

    /// Gives a batch that goes to the store below without the journal, in which nothing is wanted, its place among the records.
    pub(crate) fn skip(&mut self) -> u64 {
        let through = self.next_seq;
        self.next_seq += 1;
        (self.head.merged_through, self.head.durable_through) = (through, through);
        through
    }

    /// Gives the halves another size. All of the journal must be in the store below. Without room it stays as it is.
    pub(crate) fn resize(&mut self, half_bytes: u64) -> Result<(), KvError> {
        let half_bytes = sized(half_bytes);
        let (before, after) = (length_of(self.head.half_bytes), length_of(half_bytes));
        if after > before {
            let grown = self.file.set_length(after).map_err(KvError::from);
            match grown.and_then(|()| fill_with_zeros(self.file.as_ref(), before, after)) {
                Err(KvError::Full) => return Ok(self.file.set_length(before)?),
                outcome => outcome?,
            }
        }
        // What may lie where the first records will be is not to be taken for them; those behind are of an earlier mount.
        for half in 0..2 {
            self.file.write(HEADS_BYTES + half * half_bytes, &[0; BLOCK])?;
        }
        self.file.sync()?;
        self.head.half_bytes = half_bytes;
        self.head.mount += 1;
        (self.head.start_half, self.active_half, self.used_bytes) = (0, 0, 0);
        self.write_head()?;
        if after < before {
            self.file.set_length(after)?;
        }
        Ok(())
    }

    /// The frozen half is in the store below: its room is free.
    pub(crate) fn release(&mut self) -> Result<(), KvError> {
        if let Some(through) = self.frozen_through {
            self.head.merged_through = through;
            self.head.start_half = self.active_half;
            self.write_head()?;
            self.frozen_through = None;
        }
        Ok(())
    }
}
