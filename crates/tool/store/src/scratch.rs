//! A disk and metadata whose changes stay in memory: opening a store writes to it, and a store that is only looked at
//! must stay as it is.

use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_env::disk::{BLOCK_BYTES, Disk, DiskCompletion, DiskInfo, DiskTag, Durability, assert_write};
use nacre_kv::{
    Durability as KvDurability, KEY_BYTES_MAX, KvBatch, KvCompletion, KvError, KvStore, KvTag, Pair,
};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Reads come from the disk below, unless the block was written here.
pub(crate) struct ScratchDisk {
    disk: Box<dyn Disk>,
    /// Written blocks by number.
    written: BTreeMap<u64, Bytes>,
    /// Reads below: the caller's tag and the offset, by ours.
    reads: BTreeMap<u64, (DiskTag, u64)>,
    next_tag: u64,
    queued: Vec<DiskTag>,
    done: Vec<DiskCompletion>,
}

impl ScratchDisk {
    pub(crate) fn over(disk: Box<dyn Disk>) -> Self {
        let (written, reads) = (BTreeMap::new(), BTreeMap::new());
        Self { disk, written, reads, next_tag: 0, queued: Vec::new(), done: Vec::new() }
    }

    /// Puts what was written here over what the disk gave.
    fn overlay(&self, offset: u64, buffer: &mut AlignedBuf) {
        let first = offset / BLOCK_BYTES as u64;
        for (block, target) in (first..).zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            if let Some(bytes) = self.written.get(&block) {
                target.copy_from_slice(bytes);
            }
        }
    }
}

impl Disk for ScratchDisk {
    fn write(&mut self, offset: u64, data: BufList, _durability: Durability, tag: DiskTag) {
        assert_write(&self.disk.info(), offset, &data);
        let bytes = data.to_bytes();
        let first = offset / BLOCK_BYTES as u64;
        for (nth, block) in (0..bytes.len() / BLOCK_BYTES).zip(first..) {
            self.written.insert(block, bytes.slice(nth * BLOCK_BYTES..(nth + 1) * BLOCK_BYTES));
        }
        self.queued.push(tag);
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        self.next_tag += 1;
        self.reads.insert(self.next_tag, (tag, offset));
        self.disk.read(offset, into, DiskTag(self.next_tag));
    }

    fn flush(&mut self, tag: DiskTag) {
        self.queued.push(tag);
    }

    fn discard(&mut self, _offset: u64, _length: u64, tag: DiskTag) {
        self.queued.push(tag);
    }

    fn submit(&mut self) {
        let completed = self.queued.drain(..);
        self.done.extend(completed.map(|tag| DiskCompletion { tag, result: Ok(()), buffer: None }));
        self.disk.submit();
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        let mut below = Vec::new();
        self.disk.drain(&mut below);
        for mut completion in below {
            let Some((tag, offset)) = self.reads.remove(&completion.tag.0) else { continue };
            completion.tag = tag;
            if let Some(buffer) = &mut completion.buffer {
                self.overlay(offset, buffer);
            }
            out.push(completion);
        }
        out.append(&mut self.done);
    }

    fn wait(&mut self) {
        if self.done.is_empty() {
            self.disk.wait();
        }
    }

    fn info(&self) -> DiskInfo {
        self.disk.info()
    }
}

/// Metadata with changes on top that nobody else sees.
pub(crate) struct ScratchKv {
    kv: Box<dyn KvStore + Send>,
    changes: BTreeMap<Bytes, Option<Bytes>>,
    done: Vec<KvCompletion>,
}

impl ScratchKv {
    pub(crate) fn over(kv: Box<dyn KvStore + Send>) -> Self {
        Self { kv, changes: BTreeMap::new(), done: Vec::new() }
    }
}

fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from > to
        }
        _ => false,
    }
}

impl KvStore for ScratchKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        match self.changes.get(key) {
            Some(changed) => Ok(changed.clone()),
            None => self.kv.get(key),
        }
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        if is_empty(start, end) {
            return Ok(Vec::new());
        }
        let changed: Vec<_> = self.changes.range::<[u8], _>((start, end)).collect();
        // Each change hides one pair below at most.
        let below = self.kv.scan(start, end, count_max.saturating_add(changed.len()))?;
        let mut merged: BTreeMap<Bytes, Bytes> = below.into_iter().collect();
        for (key, value) in changed {
            match value {
                Some(value) => drop(merged.insert(key.clone(), value.clone())),
                None => drop(merged.remove(key)),
            }
        }
        Ok(merged.into_iter().take(count_max).collect())
    }

    fn commit(&mut self, batch: &KvBatch, _durability: KvDurability) -> Result<(), KvError> {
        if let Some((key, _)) = batch.ops().iter().find(|(key, _)| key.len() > KEY_BYTES_MAX) {
            return Err(KvError::Misuse(format!("key of {} bytes", key.len())));
        }
        for prefix in batch.prefixes() {
            let below = self.scan_prefix(prefix)?;
            self.changes.extend(below.into_iter().map(|(key, _)| (key, None)));
        }
        self.changes.extend(batch.ops().iter().cloned());
        Ok(())
    }

    fn submit(&mut self, batch: KvBatch, tag: KvTag) {
        let result = self.commit(&batch, KvDurability::Durable);
        self.done.push(KvCompletion { tag, result });
    }

    fn drain(&mut self, out: &mut Vec<KvCompletion>) {
        out.append(&mut self.done);
    }

    fn wait(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_env::disk::blocking;
    use nacre_kv::MemoryKv;
    use nacre_simdisk::{SimConfig, SimDevice};

    #[test]
    fn what_is_below_stays_as_it_is() {
        let device = SimDevice::new(SimConfig::new(1 << 20, 1));
        let block = |byte: u8| {
            let mut block = AlignedBuf::with_len(BLOCK_BYTES);
            block.fill(byte);
            BufList::from(block.freeze())
        };
        let mut disk = device.open();
        (0..3).for_each(|nth| {
            blocking::write(&mut disk, nth * 4096, block(7), Durability::Durable).expect("a healthy device");
        });
        drop(disk);
        let mut scratch = ScratchDisk::over(Box::new(device.open()));
        blocking::write(&mut scratch, 4096, block(9), Durability::Durable).expect("memory");
        let read = blocking::read(&mut scratch, 0, 3 * 4096).expect("a healthy device");
        assert_eq!((read[0], read[4096], read[8191], read[8192]), (7, 9, 9, 7));
        drop(scratch);
        let read = blocking::read(&mut device.open(), 0, 3 * 4096).expect("a healthy device");
        assert!(read.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn the_metadata_conforms() {
        nacre_kv::conformance::check(&mut || ScratchKv::over(Box::new(MemoryKv::new())));
    }
}
