//! A record of the journal: one batch, in one piece.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | magic `nacrekvj` |
//! | 8 | CRC-32C of all behind it, begun with that of the journal's id |
//! | 12 | version of the record, 1 |
//! | 16 | mount: which opening of the journal wrote it |
//! | 24 | sequence number |
//! | 32 | bytes of the payload |
//! | 40, 44 | prefixes, changes |
//! | 48 | payload: each prefix with its length (4 bytes); each change: lengths of key and value, key, value |
//!
//! All numbers are little-endian. The length of a value is `u32::MAX` where the key is deleted. Zeros fill the last block.

use crate::journal::run::{DELETED, Entry, Run};
use crate::{KEY_BYTES_MAX, KvBatch, KvError, check};
use bytes::Bytes;
use nacre_buf::crc::crc32c;

/// Records begin at multiples of this, so that none shares a block with one that is durable.
pub(crate) const BLOCK: usize = 4096;

const MAGIC: [u8; 8] = *b"nacrekvj";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 48;
const CRC_AT: usize = 8;
const CHECKED_FROM: usize = 12;

/// What the beginning of a record says, unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) mount: u64,
    pub(crate) seq: u64,
    /// Of all of it, whole blocks.
    pub(crate) bytes: u64,
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn payload_bytes(batch: &KvBatch) -> usize {
    let prefixes = batch.prefixes().iter().map(|prefix| 4 + prefix.len());
    let changes = batch.ops().iter().map(|(key, value)| 8 + key.len() + value.as_ref().map_or(0, Bytes::len));
    prefixes.chain(changes).sum()
}

const fn record_bytes(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(BLOCK)
}

/// Bytes of the record that [`encode`] makes of a batch.
pub(crate) fn bytes_of(batch: &KvBatch) -> usize {
    record_bytes(payload_bytes(batch))
}

/// A batch as a record that lacks its place in the journal: see [`seal`]. What is in the record is let go of one by one, so that there is not
/// all of it twice.
///
/// # Errors
/// [`KvError::Misuse`] for keys and values that are too long.
pub(crate) fn encode(batch: KvBatch) -> Result<Vec<u8>, KvError> {
    check(&batch)?;
    let length = |bytes: &Bytes| u32::try_from(bytes.len()).ok().filter(|length| *length != DELETED);
    let payload = payload_bytes(&batch);
    let mut out = Vec::with_capacity(record_bytes(payload));
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&(payload as u64).to_le_bytes());
    for count in [batch.prefixes().len(), batch.ops().len()] {
        let count = u32::try_from(count).map_err(|_| KvError::Misuse(format!("batch of {count} changes")))?;
        out.extend_from_slice(&count.to_le_bytes());
    }
    let too_long = |bytes: usize| KvError::Misuse(format!("value or prefix of {bytes} bytes"));
    for prefix in &batch.prefixes {
        out.extend_from_slice(&length(prefix).ok_or_else(|| too_long(prefix.len()))?.to_le_bytes());
        out.extend_from_slice(prefix);
    }
    for (key, value) in batch.ops {
        let value_bytes = match &value {
            Some(value) => length(value).ok_or_else(|| too_long(value.len()))?,
            None => DELETED,
        };
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        out.extend_from_slice(&value_bytes.to_le_bytes());
        out.extend_from_slice(&key);
        out.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    Ok(out)
}

/// Gives an encoded record its place in the journal with that id.
pub(crate) fn seal(record: &mut [u8], id: &[u8; 16], mount: u64, seq: u64) {
    record[16..24].copy_from_slice(&mount.to_le_bytes());
    record[24..32].copy_from_slice(&seq.to_le_bytes());
    let crc = crc32c(crc32c(0, id), &record[CHECKED_FROM..]);
    record[CRC_AT..CHECKED_FROM].copy_from_slice(&crc.to_le_bytes());
}

/// What a block says that may be the first one of a record. `None` when it is not.
pub(crate) fn header(block: &[u8]) -> Option<Header> {
    if block.get(..8)? != MAGIC || u32_at(block, 12)? != VERSION {
        return None;
    }
    let bytes =
        u64_at(block, 32)?.checked_add(HEADER_BYTES as u64)?.checked_next_multiple_of(BLOCK as u64)?;
    Some(Header { mount: u64_at(block, 16)?, seq: u64_at(block, 24)?, bytes })
}

/// Whether a record is as it was sealed.
pub(crate) fn is_whole(record: &[u8], id: &[u8; 16]) -> bool {
    let checked = record.get(CHECKED_FROM..).map(|checked| crc32c(crc32c(0, id), checked));
    checked.is_some() && checked == u32_at(record, CRC_AT)
}

/// The changes of a record, in the order of their keys; `None` when it is none. The run keeps the record in memory.
pub(crate) fn run_of(record: Bytes) -> Option<Run> {
    header(&record)?;
    let payload = usize::try_from(u64_at(&record, 32)?).ok()?;
    let end = HEADER_BYTES.checked_add(payload).filter(|end| *end <= record.len())?;
    let (prefix_count, count) = (u32_at(&record, 40)?, u32_at(&record, 44)? as usize);
    let mut at = HEADER_BYTES;
    let mut prefixes = Vec::new();
    for _ in 0..prefix_count {
        let length = u32_at(&record, at)? as usize;
        let prefix_end = at.checked_add(4 + length).filter(|prefix_end| *prefix_end <= end)?;
        // A copy: a prefix outlives the record where that is merged with others.
        prefixes.push(Bytes::copy_from_slice(record.get(at + 4..prefix_end)?));
        at = prefix_end;
    }
    // Each takes eight bytes at least.
    let mut entries = Vec::with_capacity(count.min(payload / 8));
    for _ in 0..count {
        let (key_bytes, value_bytes) = (u32_at(&record, at)?, u32_at(&record, at + 4)?);
        let entry = Entry { buffer: 0, offset: u32::try_from(at + 8).ok()?, key_bytes, value_bytes };
        at = (at + 8).checked_add(entry.bytes()).filter(|entry_end| *entry_end <= end)?;
        if key_bytes as usize > KEY_BYTES_MAX {
            return None;
        }
        entries.push(entry);
    }
    (at == end).then(|| Run::new(record, entries, prefixes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::filter::KeyHash;

    const ID: [u8; 16] = [3; 16];

    fn sealed() -> Vec<u8> {
        let mut batch = KvBatch::default();
        batch.delete_prefix("p");
        batch.put("b", "1");
        batch.put("a", vec![7; 5000]);
        batch.delete("c");
        batch.put("b", "2");
        let bytes = bytes_of(&batch);
        let mut record = encode(batch).expect("short keys");
        assert_eq!(record.len(), bytes);
        seal(&mut record, &ID, 4, 9);
        record
    }

    #[test]
    fn a_record_gives_back_what_the_last_change_of_each_key_was() {
        let record = sealed();
        assert_eq!(header(&record), Some(Header { mount: 4, seq: 9, bytes: 8192 }));
        assert!(record.len() == 8192 && is_whole(&record, &ID) && !is_whole(&record, &[4; 16]));
        let run = run_of(record.into()).expect("as it was encoded");
        let value = |key: &[u8]| run.find(key, KeyHash::of(key)).map(|value| value.map(|value| value.len()));
        assert_eq!(
            [value(b"a"), value(b"b"), value(b"c"), value(b"d")],
            [Some(Some(5000)), Some(Some(1)), Some(None), None]
        );
        assert_eq!(run.find(b"b", KeyHash::of(b"b")), Some(Some(Bytes::from_static(b"2"))));
        assert!(run.hides(b"p1") && run.hides(b"p") && !run.hides(b"o"));
    }

    #[test]
    fn every_changed_byte_is_found_and_none_makes_it_panic() {
        let record = sealed();
        for at in 0..record.len() {
            let mut changed = record.clone();
            changed[at] ^= 0x81;
            assert!(!is_whole(&changed, &ID) || header(&changed).is_none(), "byte {at}");
            drop(run_of(changed.into()));
        }
        for length in 0..200 {
            drop(run_of(Bytes::copy_from_slice(&record[..length])));
        }
    }
}
