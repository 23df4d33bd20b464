//! [`Behind`]: what lies in the ring behind the end of the log, and what it says about that end.
//!
//! A log ends where the next record is not there, and that has two reasons. Either power went while the record was on its
//! way: then none of its transactions was acknowledged. Or it was there, and the device lost it: then they were, and to
//! open without them would be to forget acknowledged writes, which a PG whose shortest log counts (an erasure-coded one)
//! forgets as a whole.
//!
//! Whole records behind the end do not tell them apart by being there: up to two are under way at a time, and all that was
//! submitted before a checkpoint, and each is kept or lost by itself. But a record says up to where all others, with what
//! they placed, *were durable when it was made*. One that says so of the missing record proves that it was there. What it
//! cannot prove is the loss of the last records, which nothing durable was made behind: those look like torn ones.

use super::record::{self, Header};
use super::replay::Window;
use super::ring::Ring;
use super::{Wal, WalPosition};
use crate::BLOCK;
use crate::error::OpenError;
use nacre_env::disk::{Disk, DiskError};

/// Bytes of a record that are looked at at once.
const PIECE_BYTES: usize = 1 << 20;

/// What the unused part of the ring holds, left there by earlier laps and mounts or by writes after a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Behind {
    /// Whole records that come after the one that is missing, of the same mount or later ones.
    pub(crate) later: u64,
    /// Sequence number of the last of them.
    pub(crate) last: u64,
    /// Up to where they say that all was durable.
    pub(crate) durable_through: u64,
    /// Of all whole records: the highest mount,
    pub(crate) mount: u64,
    /// and the newest checkpoint that was durable.
    pub(crate) needed_from: u64,
    /// The highest sequence number that anything claims, torn or whole.
    pub(crate) claimed: u64,
    /// Blocks that cannot be read.
    pub(crate) unreadable: u64,
}

impl Behind {
    /// Looks through all that replay did not read, when the log ends at `expected`.
    pub(crate) fn look(disk: &mut dyn Disk, wal: &Wal, expected: WalPosition) -> Result<Self, OpenError> {
        let (ring, salt) = (wal.ring, wal.salt);
        let mut window = Window::new(disk, ring);
        let mut behind = Self::default();
        let (mut position, end) = (ring.tail(), ring.head() + ring.size());
        while position < end {
            position += behind.look_at(&mut window, &ring, salt, position, expected)?;
        }
        Ok(behind)
    }

    /// Looks at what begins at a block; gives the blocks to go on behind.
    fn look_at(
        &mut self,
        window: &mut Window<'_>,
        ring: &Ring,
        salt: u64,
        position: u64,
        expected: WalPosition,
    ) -> Result<u64, OpenError> {
        let block = match window.bytes(position, BLOCK) {
            Ok(block) => block,
            Err(DiskError::Failed { .. }) => {
                self.unreadable += 1;
                return Ok(1);
            }
            Err(error) => return Err(error.into()),
        };
        let claimed = record::claimed(&block).filter(|(header, _)| header.salt == salt);
        let Some((header, crc)) = claimed else { return Ok(1) };
        self.claimed = self.claimed.max(header.seq);
        if header.length as usize > ring.bytes_to_end(position) || !is_whole(window, position, &header, crc)?
        {
            return Ok(1);
        }
        self.mount = self.mount.max(header.mount);
        self.needed_from = self.needed_from.max(header.needed_from);
        if header.seq > expected.seq && header.mount >= expected.mount {
            self.later += 1;
            self.last = self.last.max(header.seq);
            self.durable_through = self.durable_through.max(header.durable_through);
        }
        // What a record carries is clients' data, and may look like anything.
        Ok(u64::from(header.length).div_ceil(BLOCK as u64))
    }
}

/// In pieces: a record may be half as long as the log.
fn is_whole(window: &mut Window<'_>, position: u64, header: &Header, crc: u32) -> Result<bool, OpenError> {
    let (mut register, mut at) = (u32::MAX, 0);
    while at < header.length as usize {
        let length = PIECE_BYTES.min(header.length as usize - at);
        let piece = match window.bytes(position + (at / BLOCK) as u64, length.next_multiple_of(BLOCK)) {
            Ok(piece) => piece,
            Err(DiskError::Failed { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        register = record::checked_by(register, at, &piece.slice(..length));
        at += length;
    }
    Ok(register == crc)
}
