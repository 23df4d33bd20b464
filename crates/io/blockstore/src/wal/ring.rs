//! [`Ring`]: where in the log area records go. Positions count blocks from the making of the store and never
//! wrap; a record lies in one piece, so the end of the area may be left out.

use crate::BLOCK;
use crate::device::Run;

/// Blocks kept for the record that an opening of the store writes.
const SPARE_BLOCKS: u64 = 1;

/// The log area and the part of it that is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    area: Run,
    /// Oldest position that replay needs.
    head: u64,
    /// Where the next record goes.
    tail: u64,
}

impl Ring {
    pub(super) fn new(area: Run, at: u64) -> Self {
        Self { area, head: at, tail: at }
    }

    pub(super) fn size(&self) -> u64 {
        self.area.count
    }

    pub(super) fn used(&self) -> u64 {
        self.tail - self.head
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// The longest record there can ever be.
    pub(super) fn record_blocks_max(&self) -> u64 {
        (self.size() - SPARE_BLOCKS) / 2
    }

    /// Where a record of `blocks` goes when it comes next: behind the end of the area it begins anew.
    pub(super) fn fit(&self, position: u64, blocks: u64) -> u64 {
        let within = position % self.size();
        if within + blocks > self.size() { position - within + self.size() } else { position }
    }

    /// Takes room for a record; `None` when there is none, now or, with `spare` kept, for the next opening.
    pub(super) fn take(&mut self, blocks: u64, spare: bool) -> Option<u64> {
        let position = self.fit(self.tail, blocks);
        let end = position + blocks;
        let spare = if spare { SPARE_BLOCKS } else { 0 };
        if end + spare - self.head > self.size() {
            return None;
        }
        self.tail = end;
        Some(position)
    }

    /// Replay found a record.
    pub(super) fn advance(&mut self, position: u64, blocks: u64) {
        self.tail = position + blocks;
    }

    /// Replay needs nothing before `position` any more.
    pub(super) fn trim(&mut self, position: u64) {
        assert!(self.head <= position && position <= self.tail, "trimming the log to {position}");
        self.head = position;
    }

    /// Block of the device.
    pub(super) fn block(&self, position: u64) -> u64 {
        self.area.start + position % self.size()
    }

    /// Byte on the device.
    pub(super) fn offset(&self, position: u64) -> u64 {
        self.block(position) * BLOCK as u64
    }

    /// Bytes from `position` to the end of the area.
    pub(super) fn bytes_to_end(&self, position: u64) -> usize {
        let blocks = self.size() - position % self.size();
        usize::try_from(blocks).unwrap_or(usize::MAX).saturating_mul(BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_do_not_cross_the_end_and_never_overrun_the_head() {
        let mut ring = Ring::new(Run { start: 2, count: 10 }, 0);
        assert_eq!(ring.take(4, true), Some(0));
        assert_eq!(ring.take(4, true), Some(4));
        assert_eq!(ring.take(3, true), None);
        ring.trim(4);
        assert_eq!(ring.take(3, true), Some(10), "begins anew instead of crossing the end");
        assert_eq!(ring.offset(10), 2 * BLOCK as u64);
        assert_eq!(ring.take(1, true), None);
        assert_eq!(ring.take(1, false), Some(13));
        assert_eq!(ring.used(), 10);
    }
}
