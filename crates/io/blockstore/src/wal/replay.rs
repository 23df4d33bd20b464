//! Reading the log back: from the position of the last checkpoint to the first record that is not whole or
//! not next.

use super::record::{self, Entry, Header};
use super::ring::Ring;
use super::{Wal, WalPosition};
use crate::BLOCK;
use crate::error::OpenError;
use nacre_buf::Bytes;
use nacre_env::disk::{Disk, blocking};

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// One record found.
pub(crate) struct Found {
    pub(crate) seq: u64,
    pub(crate) durable_through: u64,
    pub(crate) entries: Vec<Entry>,
    /// Where the log stands behind this record.
    next: WalPosition,
    ring: Ring,
}

/// Goes through the log once.
pub(crate) struct Scan<'a> {
    disk: &'a mut dyn Disk,
    ring: Ring,
    salt: u64,
    expected: WalPosition,
    /// What was read last, and its position.
    chunk: (u64, Bytes),
}

impl<'a> Scan<'a> {
    /// Begins where `wal`, as made for the checkpoint, stands.
    pub(crate) fn new(disk: &'a mut dyn Disk, wal: &Wal) -> Self {
        Self { disk, ring: wal.ring, salt: wal.salt, expected: wal.next_position(), chunk: (0, Bytes::new()) }
    }

    /// The next record; `None` at the end of the log.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, OpenError> {
        let here = self.expected.position;
        let again = self.ring.fit(here, self.ring.size());
        let mut found = self.read_record(here)?;
        if found.is_none() && again != here {
            // The writer may have left the end of the area out.
            found = self.read_record(again)?;
        }
        let Some((position, header, bytes)) = found else { return Ok(None) };
        let entries = record::entries(&header, &bytes)
            .map_err(|source| OpenError::Record { seq: header.seq, source })?;
        self.ring.advance(position, blocks_of(&header));
        let next = WalPosition { position: self.ring.tail(), seq: header.seq + 1, mount: header.mount };
        self.expected = next;
        let (seq, durable_through) = (header.seq, header.durable_through);
        Ok(Some(Found { seq, durable_through, entries, next, ring: self.ring }))
    }

    fn read_record(&mut self, position: u64) -> Result<Option<(u64, Header, Bytes)>, OpenError> {
        let block = self.bytes(position, BLOCK)?;
        let Some((header, crc)) = record::claimed(&block) else { return Ok(None) };
        let ours = header.salt == self.salt && header.seq == self.expected.seq;
        let length = header.length as usize;
        let fits = blocks_of(&header) <= self.ring.size() && length <= self.ring.bytes_to_end(position);
        if !ours || header.mount < self.expected.mount || !fits {
            return Ok(None);
        }
        let bytes = self.bytes(position, length.next_multiple_of(BLOCK))?;
        Ok(record::is_whole(&header, crc, &bytes).then_some((position, header, bytes)))
    }

    /// `length` bytes from `position` on, all before the end of the area.
    fn bytes(&mut self, position: u64, length: usize) -> Result<Bytes, OpenError> {
        let (start, chunk) = &self.chunk;
        let skip = position.checked_sub(*start).and_then(|blocks| usize::try_from(blocks).ok());
        if let Some(skip) = skip.and_then(|blocks| blocks.checked_mul(BLOCK))
            && skip.checked_add(length).is_some_and(|end| end <= chunk.len())
        {
            return Ok(chunk.slice(skip..skip + length));
        }
        let read = length.max(CHUNK_BYTES).min(self.ring.bytes_to_end(position));
        let buffer = blocking::read(self.disk, self.ring.offset(position), read)?;
        self.chunk = (position, buffer.freeze());
        Ok(self.chunk.1.slice(..length))
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
}
