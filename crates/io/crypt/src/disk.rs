//! [`CryptDisk`]: a disk over another, which may be encrypted.

use crate::xts::Xts;
use nacre_buf::{AlignedBuf, BufList};
use nacre_env::disk::{Disk, DiskCompletion, DiskInfo, DiskTag, Durability, assert_range, assert_write};
use slab::Slab;
use std::sync::Arc;
use std::time::Duration;

/// A request that is under way.
struct Request {
    /// As its owner named it.
    tag: DiskTag,
    offset: u64,
}

struct Encryption {
    cipher: Arc<Xts>,
    requests: Slab<Request>,
    finished: Vec<DiskCompletion>,
}

/// What is written to a disk goes to the one below encrypted, and comes from there decrypted; or as it is, where it has no cipher. The caller's
/// buffers are shared with others (replicas, the cache): they are copied, never changed.
pub struct CryptDisk<D> {
    disk: D,
    encryption: Option<Encryption>,
}

impl<D: std::fmt::Debug> std::fmt::Debug for CryptDisk<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_encrypted = self.encryption.is_some();
        f.debug_struct("CryptDisk").field("disk", &self.disk).field("is_encrypted", &is_encrypted).finish()
    }
}

impl<D: Disk> CryptDisk<D> {
    /// Over `disk`, with a cipher if it is encrypted. What a cipher's place is counts from the first byte of `disk`.
    pub fn new(disk: D, cipher: Option<Arc<Xts>>) -> Self {
        let of = |cipher| Encryption { cipher, requests: Slab::new(), finished: Vec::new() };
        Self { disk, encryption: cipher.map(of) }
    }

    /// The disk below.
    pub const fn disk(&self) -> &D {
        &self.disk
    }

    /// Whether what is on the disk below is encrypted.
    pub const fn is_encrypted(&self) -> bool {
        self.encryption.is_some()
    }

    /// The tag of a request at the disk below.
    fn begin(&mut self, tag: DiskTag, offset: u64) -> DiskTag {
        match &mut self.encryption {
            Some(encryption) => DiskTag(encryption.requests.insert(Request { tag, offset }) as u64),
            None => tag,
        }
    }
}

impl<D: Disk> Disk for CryptDisk<D> {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        let data = match &self.encryption {
            Some(encryption) => {
                assert_write(&self.disk.info(), offset, &data);
                encrypted(&encryption.cipher, offset, &data)
            }
            None => data,
        };
        let tag = self.begin(tag, offset);
        self.disk.write(offset, data, durability, tag);
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        assert_range(&self.disk.info(), offset, into.len() as u64);
        let tag = self.begin(tag, offset);
        self.disk.read(offset, into, tag);
    }

    fn flush(&mut self, tag: DiskTag) {
        let tag = self.begin(tag, 0);
        self.disk.flush(tag);
    }

    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag) {
        assert_range(&self.disk.info(), offset, length);
        let tag = self.begin(tag, offset);
        self.disk.discard(offset, length, tag);
    }

    fn submit(&mut self) {
        self.disk.submit();
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        let Some(Encryption { cipher, requests, finished }) = &mut self.encryption else {
            return self.disk.drain(out);
        };
        self.disk.drain(finished);
        for DiskCompletion { tag, result, mut buffer } in finished.drain(..) {
            let request = usize::try_from(tag.0).ok().and_then(|at| requests.try_remove(at));
            let Request { tag, offset } = request.expect("a disk gives back the tags that it got");
            if let (Ok(()), Some(buffer)) = (&result, &mut buffer) {
                cipher.decrypt(offset, buffer);
            }
            out.push(DiskCompletion { tag, result, buffer });
        }
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
        self.disk.info()
    }
}

fn encrypted(cipher: &Xts, offset: u64, data: &BufList) -> BufList {
    let mut buffer = AlignedBuf::with_len(data.len());
    let mut rest: &mut [u8] = &mut buffer;
    for slice in data.slices() {
        let (part, behind) = rest.split_at_mut(slice.len());
        part.copy_from_slice(slice);
        rest = behind;
    }
    cipher.encrypt(offset, &mut buffer);
    buffer.freeze().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataKey, Part};
    use nacre_buf::Bytes;
    use nacre_env::disk::{BLOCK_BYTES, SECTOR_BYTES, blocking, conformance};
    use nacre_simdisk::{SimConfig, SimDevice};
    use nacre_types::entropy::SeededEntropy;

    fn cipher() -> Arc<Xts> {
        DataKey::generate(&mut SeededEntropy(7)).cipher(Part::Data)
    }

    fn full_of(byte: u8, blocks: usize) -> Bytes {
        let mut buffer = AlignedBuf::with_len(blocks * BLOCK_BYTES);
        buffer.fill(byte);
        buffer.freeze()
    }

    #[test]
    fn it_conforms_with_a_cipher_and_without() {
        for seed in 0..3 {
            for cipher in [Some(cipher()), None] {
                let device = SimDevice::new(SimConfig::new(conformance::SIZE_BYTES, seed));
                conformance::run(|| CryptDisk::new(device.open(), cipher.clone()));
            }
        }
    }

    #[test]
    fn the_caller_s_buffer_stays_as_it_is_and_nothing_of_it_is_on_the_device() {
        let device = SimDevice::new(SimConfig::new(1 << 20, 1));
        let mut disk = CryptDisk::new(device.open(), Some(cipher()));
        let data = full_of(7, 3);
        blocking::write(&mut disk, 8192, data.clone().into(), Durability::Durable).expect("healthy");
        assert!(data.iter().all(|byte| *byte == 7));
        let below = device.peek(8192, 3 * BLOCK_BYTES);
        assert!(!below.windows(8).any(|bytes| bytes == [7; 8]));
        let sectors: Vec<&[u8]> = below.chunks(SECTOR_BYTES).collect();
        let twins = |at: &usize| sectors.iter().skip(at + 1).any(|other| Some(other) == sectors.get(*at));
        assert!(!(0..sectors.len()).any(|at| twins(&at)), "the same content at two places shows");
        let back = blocking::read(&mut disk, 8192, 3 * BLOCK_BYTES).expect("healthy");
        assert!(back.iter().all(|byte| *byte == 7));
        let other = blocking::read(&mut disk, 0, BLOCK_BYTES).expect("healthy");
        assert!(other.iter().all(|byte| *byte == 0), "what was never written reads as zeros");
    }

    /// What a loss of power leaves is as it would be without encryption: each sector old or new.
    #[test]
    fn a_torn_write_leaves_each_sector_old_or_new() {
        let mut left = Vec::new();
        for seed in 0..300 {
            let device = SimDevice::new(SimConfig::new(1 << 20, seed));
            let mut disk = CryptDisk::new(device.open(), Some(cipher()));
            blocking::write(&mut disk, 4096, full_of(1, 2).into(), Durability::Durable).expect("healthy");
            blocking::write(&mut disk, 4096, full_of(2, 2).into(), Durability::Cached).expect("healthy");
            device.crash();
            let mut disk = CryptDisk::new(device.open(), Some(cipher()));
            let bytes = blocking::read(&mut disk, 4096, 2 * BLOCK_BYTES).expect("healthy");
            let of = |sector: &[u8]| {
                let first = sector.first().copied();
                assert!(sector.iter().all(|byte| Some(*byte) == first), "seed {seed}: a spoilt sector");
                assert!(matches!(first, Some(1 | 2)), "seed {seed}: neither old nor new");
                first
            };
            left.push(bytes.chunks(SECTOR_BYTES).map(of).collect::<Vec<_>>());
        }
        left.sort_unstable();
        left.dedup();
        assert!(left.len() > 50, "only {} outcomes", left.len());
    }
}
