//! [`Digests`]: one copy's part of a chunk that is scrubbed, as versions and checksums.

use crate::coding::Coding;
use crate::object::ObjectContext;
use nacre_buf::crc::crc32c;
use nacre_buf::{BufList, Bytes};
use nacre_ec::Codec;
use nacre_msg::peer::ScrubObject;
use nacre_txn::{ObjectView, ReadError};
use nacre_types::{HObject, SpgId};
use std::collections::BTreeMap;

/// Ceph's seed of a CRC-32C that is not continued from another.
const SEED: u32 = u32::MAX;
/// Data read at a time.
const STEP_BYTES: u64 = 1 << 20;
/// Omap entries read at a time.
const STEP_ENTRIES: usize = 1024;

/// Keys of an omap from which on it is large, and bytes of its values: Ceph's `osd_deep_scrub_large_omap_object_key_threshold` and
/// `..._value_sum_threshold`, by their defaults.
const LARGE_OMAP_KEYS: u64 = 200_000;
const LARGE_OMAP_BYTES: u64 = 1 << 30;

/// An object whose data was read, or is being read.
#[derive(Debug)]
struct Progress {
    /// Without the checksum of the data. What was read counts as long as this is what the object looks like.
    object: ScrubObject,
    /// Of the data before `offset`.
    crc: u32,
    offset: u64,
    /// The device was asked for the data before this: what memory shows of it is what the device has.
    asked: u64,
    /// Nothing is left to be read.
    done: bool,
    damaged: bool,
    /// Keys of its omap, and bytes of their values.
    omap: (u64, u64),
}

/// How far one copy's part of a chunk was read: all of it need not be in memory at the same time.
#[derive(Debug, Default)]
pub(crate) struct Digests(BTreeMap<HObject, Progress>);

/// What is read, and how.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) view: &'a dyn ObjectView,
    pub(crate) spg: SpgId,
    pub(crate) deep: bool,
    /// The data are chunks of this code: what is summed up must be comparable with those of other shards, and there is no omap.
    pub(crate) coding: Option<&'a Coding>,
}

impl Digests {
    /// The digest of one object; goes on with its data where it was left, or anew when the object was changed
    /// since. So all digests that are answered are of the same moment.
    pub(crate) fn digest(
        &mut self,
        reading: &Reading<'_>,
        object: HObject,
    ) -> Result<ScrubObject, ReadError> {
        let shallow = shallow_digest(reading.view, reading.spg, object);
        if !reading.deep {
            return Ok(shallow);
        }
        let begun = self.0.remove(&shallow.object).filter(|progress| progress.object == shallow);
        let mut progress = begun.unwrap_or_else(|| Progress {
            object: shallow,
            crc: if reading.coding.is_some() { 0 } else { SEED },
            offset: 0,
            asked: 0,
            done: false,
            damaged: false,
            omap: (0, 0),
        });
        let read = if progress.done { Ok(()) } else { progress.read_on(reading) };
        progress.done = !matches!(read, Err(ReadError::Pending { .. }));
        if matches!(read, Err(ReadError::Damaged { .. })) {
            (progress.crc, progress.damaged) = (0, true);
        }
        let Progress { crc, damaged, .. } = progress;
        let digest = ScrubObject { data_crc: crc, damaged, ..progress.object.clone() };
        self.0.insert(digest.object.clone(), progress);
        match read {
            Err(pending @ ReadError::Pending { .. }) => Err(pending),
            Ok(()) | Err(ReadError::Damaged { .. }) => Ok(digest),
        }
    }
}

impl Digests {
    /// Objects that were read whose omaps are too large to be read, copied or recovered at once.
    pub(crate) fn large_omaps(&self) -> impl Iterator<Item = &HObject> {
        let is_large = |(keys, bytes): (u64, u64)| keys > LARGE_OMAP_KEYS || bytes > LARGE_OMAP_BYTES;
        self.0.iter().filter(move |(_, progress)| is_large(progress.omap)).map(|(object, _)| object)
    }
}

/// Goes on with the linear checksum of a chunk, which has `data` at `offset`.
fn linear_sum(codec: &Codec, sum: u32, offset: u64, data: &BufList) -> u32 {
    let add =
        |(sum, at): (u32, u64), slice: &Bytes| (codec.linear_sum(sum, at, slice), at + slice.len() as u64);
    data.slices().iter().fold((sum, offset), add).0
}

fn shallow_digest(view: &dyn ObjectView, spg: SpgId, object: HObject) -> ScrubObject {
    let record = view.meta(&spg, &object).unwrap_or_default();
    let meta_crc = crc32c(SEED, &record);
    let context = ObjectContext::from_record(record).unwrap_or_default();
    let attrs = view.attrs(&spg, &object);
    let attrs_crc = attrs.iter().fold(SEED, |crc, (name, value)| crc32c(crc32c(crc, name), value));
    let (version, size) = (context.info.version, context.info.size);
    ScrubObject { object, version, meta_crc, attrs_crc, data_crc: 0, size, damaged: false }
}

impl Progress {
    fn read_on(&mut self, reading: &Reading<'_>) -> Result<(), ReadError> {
        let Reading { view, spg, coding, .. } = *reading;
        let ScrubObject { object, size, .. } = &self.object;
        let size = coding.map_or(*size, |coding| coding.layout.chunk_bytes(*size));
        while self.offset < size {
            let (offset, length) = (self.offset, STEP_BYTES.min(size - self.offset));
            if self.asked < offset + length {
                self.asked = offset + length;
                return Err(ReadError::Pending { object: object.clone(), offset, length });
            }
            let data = view.read(&spg, object, offset, length)?;
            if data.is_empty() {
                return Err(ReadError::Damaged {
                    object: object.clone(),
                    offset: self.offset,
                    reason: "data ends early".into(),
                });
            }
            self.crc = match coding {
                // By the bytes: what is known of their checksums may be true of what they were when they came.
                None => data.slices().iter().fold(self.crc, |crc, slice| crc32c(crc, slice)),
                Some(coding) => linear_sum(&coding.codec, self.crc, offset, &data),
            };
            self.offset += data.len() as u64;
        }
        if coding.is_none() {
            (self.crc, self.omap) = omap_crc(view, spg, object, self.crc);
        }
        Ok(())
    }
}

/// Goes on with the checksum of the data; and how many keys there are, and bytes of their values.
fn omap_crc(view: &dyn ObjectView, spg: SpgId, object: &HObject, data_crc: u32) -> (u32, (u64, u64)) {
    let (mut keys, mut bytes) = (0, 0);
    let mut crc = crc32c(data_crc, &view.omap_header(&spg, object));
    let mut from = Vec::new();
    loop {
        let page = view.omap_page(&spg, object, &from, STEP_ENTRIES, STEP_BYTES as usize);
        crc = page.entries.iter().fold(crc, |crc, (key, value)| crc32c(crc32c(crc, key), value));
        keys += page.entries.len() as u64;
        bytes += page.entries.iter().map(|(_, value)| value.len() as u64).sum::<u64>();
        match page.entries.last() {
            Some((last, _)) if page.more => from = [&last[..], &[0]].concat(),
            _ => return (crc, (keys, bytes)),
        }
    }
}
