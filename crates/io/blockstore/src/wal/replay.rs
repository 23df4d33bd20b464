//! Reading the log back: from the position of the last checkpoint to the first record that is not whole or
//! not next.

use super::record::{self, Entry, Header};
use super::ring::Ring;
use super::{Wal, WalPosition};
use crate::BLOCK;
use crate::device::Numbers;
use crate::error::OpenError;
use nacre_buf::Bytes;
use nacre_env::disk::{Disk, DiskError, blocking};

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// One record found.
pub(crate) struct Found {
    pub(crate) seq: u64,
    pub(crate) durable_through: u64,
    /// See [`Header`].
    pub(crate) needed_from: u64,
    pub(crate) entries: Vec<Entry>,
    /// Where the log stands behind this record.
    next: WalPosition,
    ring: Ring,
}

/// What is next in the log.
pub(crate) enum Step {
    /// A record that is whole.
    Record(Found),
    /// Something else: the log ends here, or goes on behind a gap.
    End,
    /// A block that the device does not give: what begins or goes on there is unknown.
    Unreadable(DiskError),
}

/// The ring as it is read, in order and many blocks at a time.
pub(super) struct Window<'a> {
    disk: &'a mut dyn Disk,
    ring: Ring,
    /// What was read last, and its position.
    chunk: (u64, Bytes),
}

impl<'a> Window<'a> {
    pub(super) fn new(disk: &'a mut dyn Disk, ring: Ring) -> Self {
        Self { disk, ring, chunk: (0, Bytes::new()) }
    }

    /// `length` bytes from `position` on, all before the end of the area.
    pub(super) fn bytes(&mut self, position: u64, length: usize) -> Result<Bytes, DiskError> {
        let (start, chunk) = &self.chunk;
        let skip = position.checked_sub(*start).and_then(|blocks| usize::try_from(blocks).ok());
        if let Some(skip) = skip.and_then(|blocks| blocks.checked_mul(BLOCK))
            && skip.checked_add(length).is_some_and(|end| end <= chunk.len())
        {
            return Ok(chunk.slice(skip..skip + length));
        }
        let ahead = length.max(CHUNK_BYTES).min(self.ring.bytes_to_end(position));
        let offset = self.ring.offset(position);
        let read = blocking::read_patiently(self.disk, offset, ahead);
        // A block behind what is asked for may be the one that cannot be read.
        let buffer = match read {
            Err(_) if ahead > length => blocking::read_patiently(self.disk, offset, length)?,
            read => read?,
        };
        self.chunk = (position, buffer.freeze());
        Ok(self.chunk.1.slice(..length))
    }
}

/// Goes through the log once.
pub(crate) struct Scan<'a> {
    window: Window<'a>,
    ring: Ring,
    salt: u64,
    numbers: Numbers,
    expected: WalPosition,
}

impl<'a> Scan<'a> {
    /// Begins where `wal`, as made for the checkpoint, stands.
    pub(crate) fn new(disk: &'a mut dyn Disk, wal: &Wal) -> Self {
        let ring = wal.ring;
        let Wal { salt, numbers, .. } = *wal;
        Self { window: Window::new(disk, ring), ring, salt, numbers, expected: wal.next_position() }
    }

    /// What the next record must be.
    pub(crate) fn expected(&self) -> WalPosition {
        self.expected
    }

    /// The next record, or why there is none.
    pub(crate) fn next(&mut self) -> Result<Step, OpenError> {
        let here = self.expected.position;
        let mut found = self.read_record(here);
        if !matches!(found, Ok(Some(_)))
            && self.ring.bytes_to_end(here) / BLOCK < self.ring.record_blocks_max() as usize
        {
            // The writer may have left the end of the area out.
            let again = self.read_record(self.ring.fit(here, self.ring.size()));
            if found.is_ok() || matches!(again, Ok(Some(_))) {
                found = again;
            }
        }
        let (position, header, bytes) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Step::End),
            Err(error @ DiskError::Failed { .. }) => return Ok(Step::Unreadable(error)),
            Err(error) => return Err(error.into()),
        };
        let entries = record::entries(&header, &bytes, self.numbers)
            .map_err(|source| OpenError::Record { seq: header.seq, source })?;
        self.ring.advance(position, blocks_of(&header));
        let next = WalPosition { position: self.ring.tail(), seq: header.seq + 1, mount: header.mount };
        self.expected = next;
        let Header { seq, durable_through, needed_from, .. } = header;
        Ok(Step::Record(Found { seq, durable_through, needed_from, entries, next, ring: self.ring }))
    }

    fn read_record(&mut self, position: u64) -> Result<Option<(u64, Header, Bytes)>, DiskError> {
        let block = self.window.bytes(position, BLOCK)?;
        let Some((header, crc)) = record::claimed(&block) else { return Ok(None) };
        let ours = header.salt == self.salt && header.seq == self.expected.seq;
        let length = header.length as usize;
        let fits = blocks_of(&header) <= self.ring.size() && length <= self.ring.bytes_to_end(position);
        if !ours || header.mount < self.expected.mount || !fits {
            return Ok(None);
        }
        let bytes = self.window.bytes(position, length.next_multiple_of(BLOCK))?;
        Ok(record::is_whole(&header, crc, &bytes).then_some((position, header, bytes)))
    }
}

fn blocks_of(header: &Header) -> u64 {
    u64::from(header.length).div_ceil(BLOCK as u64)
}

impl Wal {
    /// A record was replayed: the log goes on behind it.
    pub(crate) fn replayed(&mut self, found: &Found) {
        let head = self.ring;
        self.ring = found.ring;
        debug_assert!(head.used() <= self.ring.used());
        self.seq = found.next.seq;
        self.mount = found.next.mount;
    }

    /// The block of the device at a position.
    pub(crate) fn block(&self, position: u64) -> u64 {
        self.ring.block(position)
    }
}
