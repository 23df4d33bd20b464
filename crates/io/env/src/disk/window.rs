//! [`Window`]: a part of a disk as a disk of its own, for a store that shares its device with labels and other regions.

use super::{BLOCK_BYTES, Disk, DiskCompletion, DiskInfo, DiskTag, Durability, assert_range, assert_write};
use nacre_buf::{AlignedBuf, BufList};
use std::time::Duration;

/// So many bytes of a disk from an offset on. Errors name offsets of the whole disk, as the system's log does.
#[derive(Debug)]
pub struct Window<D> {
    disk: D,
    offset: u64,
    length: u64,
}

impl<D: Disk> Window<D> {
    /// The part of `disk` from `offset` on that has `length` bytes.
    ///
    /// # Panics
    /// When that is not within the disk, or not whole blocks: whoever read it from somewhere has checked it.
    pub fn new(disk: D, offset: u64, length: u64) -> Self {
        let block = BLOCK_BYTES as u64;
        assert!(offset.is_multiple_of(block) && length.is_multiple_of(block), "window {offset}~{length}");
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= disk.info().size_bytes), "window {offset}~{length}");
        Self { disk, offset, length }
    }

    /// All of `disk`.
    pub fn whole(disk: D) -> Self {
        let length = disk.info().size_bytes;
        Self { disk, offset: 0, length }
    }

    /// The disk that it is a part of.
    pub const fn disk(&self) -> &D {
        &self.disk
    }
}

impl<D: Disk> Disk for Window<D> {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        assert_write(&self.info(), offset, &data);
        self.disk.write(self.offset + offset, data, durability, tag);
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        assert_range(&self.info(), offset, into.len() as u64);
        self.disk.read(self.offset + offset, into, tag);
    }

    fn flush(&mut self, tag: DiskTag) {
        self.disk.flush(tag);
    }

    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag) {
        assert_range(&self.info(), offset, length);
        self.disk.discard(self.offset + offset, length, tag);
    }

    fn submit(&mut self) {
        self.disk.submit();
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        self.disk.drain(out);
    }

    fn wait(&mut self) {
        self.disk.wait();
    }

    fn set_wakeups(&mut self, wakeups: bool) {
        self.disk.set_wakeups(wakeups);
    }

    fn delay(&mut self, each: Duration) -> std::io::Result<()> {
        self.disk.delay(each)
    }

    fn info(&self) -> DiskInfo {
        DiskInfo { size_bytes: self.length, ..self.disk.info() }
    }
}
