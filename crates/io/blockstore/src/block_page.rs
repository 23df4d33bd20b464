//! How a page of an object's blocks is stored. Drawn in `docs/formats/blockstore.md`.

use crate::blob::{Blob, Place};
use crate::device::{DEVICE_BLOCKS_MAX, DeviceBlock, Numbers};
use crate::page::{PAGE_BLOCKS, Page};
use crate::slot::Slot;
use nacre_buf::Bytes;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::CompressionAlgorithm;
use smallvec::SmallVec;
use std::sync::Arc;

/// Of a page's own record.
const VERSION: u8 = 1;
/// Blocks as they are: one each of the device's, with its checksum.
const PLAIN: u8 = 0;
/// In a blob that follows.
const PACKED: u8 = 1;
/// In a blob that was written down before in the same page.
const PACKED_AGAIN: u8 = 2;

/// Written in the place of each algorithm's name.
const ALGORITHMS: [(u8, CompressionAlgorithm); 3] =
    [(1, CompressionAlgorithm::Zstd), (2, CompressionAlgorithm::Lz4), (3, CompressionAlgorithm::Snappy)];

fn small(number: u32) -> u8 {
    u8::try_from(number).expect("a page has few blocks")
}

fn count(length: usize) -> u8 {
    small(u32::try_from(length).unwrap_or(u32::MAX))
}

/// Whether two blocks of a page are in one stretch.
fn follows(a: &(u32, Place), b: &(u32, Place)) -> bool {
    let lies_behind = match (&a.1, &b.1) {
        (Place::Block(a), Place::Block(b)) => a.block.checked_add(1) == Some(b.block),
        (Place::Blob(a, nth), Place::Blob(b, next)) => a.first() == b.first() && nth + 1 == *next,
        _ => false,
    };
    lies_behind && a.0 + 1 == b.0
}

/// Writes blocks of one page down, each with its place in the page, ascending.
pub(crate) fn encode(w: &mut Writer, blocks: &[(u32, Place)]) {
    let mut known = SmallVec::<[u64; 4]>::new();
    w.u8(count(blocks.chunk_by(follows).count()));
    for stretch in blocks.chunk_by(follows) {
        let Some((at, first)) = stretch.first() else { continue };
        w.u8(small(*at));
        w.u8(count(stretch.len()));
        match first {
            Place::Block(first) => {
                w.u8(PLAIN);
                Numbers::Wide.write(w, first.block);
                stretch.iter().filter_map(|(_, place)| place.device()).for_each(|device| w.u32(device.crc));
            }
            Place::Blob(blob, nth) if known.contains(&blob.first()) => {
                w.u8(PACKED_AGAIN);
                Numbers::Wide.write(w, blob.first());
                w.u8(*nth);
            }
            Place::Blob(blob, nth) => {
                known.push(blob.first());
                w.u8(PACKED);
                Numbers::Wide.write(w, blob.first());
                w.u8(*nth);
                encode_blob(w, blob);
            }
        }
    }
}

fn decode_block(r: &mut Reader) -> Result<u64, DecodeError> {
    let block = Numbers::Wide.read(r)?;
    let invalid = DecodeError::Invalid { what: "block above 64 PiB", value: block };
    if block < DEVICE_BLOCKS_MAX { Ok(block) } else { Err(invalid) }
}

/// All of a blob but its first block.
fn encode_blob(w: &mut Writer, blob: &Blob) {
    w.u8(small(blob.blocks()));
    let number = ALGORITHMS.into_iter().find(|(_, algorithm)| *algorithm == blob.algorithm);
    w.u8(number.map_or(0, |(number, _)| number));
    w.u32(blob.bytes());
    w.u64(blob.pool.cast_unsigned());
    w.u8(count(blob.stored().len()));
    blob.stored().iter().skip(1).for_each(|device| Numbers::Wide.write(w, device.block));
    blob.stored().iter().for_each(|device| w.u32(device.crc));
}

fn decode_blob(r: &mut Reader, first: u64) -> Result<Blob, DecodeError> {
    let (blocks, number, bytes) = (u32::from(r.u8()?), r.u8()?, r.u32()?);
    let (pool, stored) = (r.u64()?.cast_signed(), r.u8()?);
    let unknown = DecodeError::Invalid { what: "algorithm of a blob", value: number.into() };
    let algorithm = ALGORITHMS.into_iter().find(|(known, _)| *known == number);
    let (_, algorithm) = algorithm.ok_or(unknown)?;
    let mut numbers = SmallVec::<[u64; PAGE_BLOCKS as usize]>::new();
    numbers.push(first);
    for _ in 1..stored {
        numbers.push(decode_block(r)?);
    }
    if stored == 0 {
        return Err(DecodeError::Invalid { what: "blob without blocks", value: first });
    }
    let stored = numbers.into_iter().map(|block| Ok(DeviceBlock { block, crc: r.u32()? }));
    Blob::new((pool, algorithm), blocks, bytes, stored.collect::<Result<_, DecodeError>>()?)
}

/// What [`encode`] made, of the page of this number, added to `blocks`.
pub(crate) fn decode(r: &mut Reader, number: u32, blocks: &mut Vec<(u32, Slot)>) -> Result<(), DecodeError> {
    let invalid = |what, value: u64| DecodeError::Invalid { what, value };
    let begin =
        number.checked_mul(PAGE_BLOCKS).ok_or(invalid("number of a page of blocks", number.into()))?;
    let (mut behind, mut known) = (0, SmallVec::<[Arc<Blob>; 4]>::new());
    for _ in 0..r.u8()? {
        let (at, count, kind) = (u32::from(r.u8()?), u32::from(r.u8()?), r.u8()?);
        let first = decode_block(r)?;
        if at < behind || count == 0 || at + count > PAGE_BLOCKS {
            return Err(invalid("blocks of a page", first));
        }
        behind = at + count;
        let found = known.iter().find(|blob| blob.first() == first).cloned();
        let (nth, blob) = match (kind, found) {
            (PLAIN, _) => {
                if first + u64::from(count) > DEVICE_BLOCKS_MAX {
                    return Err(invalid("block above 64 PiB", first));
                }
                for nth in 0..count {
                    let device = DeviceBlock { block: first + u64::from(nth), crc: r.u32()? };
                    blocks.push((begin + at + nth, Slot::Device(device)));
                }
                continue;
            }
            (PACKED, None) => (r.u8()?, Arc::new(decode_blob(r, first)?)),
            (PACKED_AGAIN, Some(blob)) => (r.u8()?, blob),
            (PACKED | PACKED_AGAIN, _) => return Err(invalid("blob of a page", first)),
            _ => return Err(invalid("kind of blocks", kind.into())),
        };
        if u32::from(nth) + count > blob.blocks() {
            return Err(invalid("blocks in a blob", nth.into()));
        }
        let indexes = (0..count).map(|more| begin + at + more);
        let slot = |nth| Slot::Blob(Arc::clone(&blob), nth);
        blocks.extend((nth..).zip(indexes).map(|(nth, index)| (index, slot(nth))));
        if kind == PACKED {
            known.push(blob);
        }
    }
    Ok(())
}

/// The record of a page.
pub(crate) fn encode_record(blocks: &[(u32, Place)]) -> Bytes {
    let mut w = Writer::with_capacity(16 + 13 * blocks.len());
    w.envelope(VERSION, VERSION, |w| encode(w, blocks));
    w.finish()
}

/// What [`encode_record`] made, of the page of this number.
pub(crate) fn decode_page(value: &Bytes, number: u32) -> Result<Page, DecodeError> {
    let mut blocks = Vec::with_capacity(PAGE_BLOCKS as usize);
    decode_record(value, number, &mut blocks)?;
    Ok(Page::of(blocks))
}

/// The same, added to `blocks`. A page without any has no record.
pub(crate) fn decode_record(
    value: &Bytes,
    number: u32,
    blocks: &mut Vec<(u32, Slot)>,
) -> Result<(), DecodeError> {
    let before = blocks.len();
    Reader::new(value.clone()).envelope("page of blocks", VERSION, |_, r| decode(r, number, blocks))?;
    let invalid = DecodeError::Invalid { what: "page without blocks", value: number.into() };
    if blocks.len() > before { Ok(()) } else { Err(invalid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(blocks: &[(u32, u64)]) -> Vec<u8> {
        let mut w = Writer::new();
        let device = |block: u64| Place::Block(DeviceBlock { block, crc: block as u32 ^ 77 });
        let devices: Vec<_> = blocks.iter().map(|(at, block)| (*at, device(*block))).collect();
        encode(&mut w, &devices);
        w.finish().to_vec()
    }

    #[test]
    fn a_page_survives_its_encoding() {
        let page = |begin: u64| (0..PAGE_BLOCKS).map(|at| (at, begin + u64::from(at))).collect::<Vec<_>>();
        let scattered: Vec<(u32, u64)> = (0..PAGE_BLOCKS).map(|at| (at, 1000 - u64::from(at))).collect();
        let (whole, over, last_of_all) =
            (page((1 << 32) - 32), page((1 << 32) - 2), page(DEVICE_BLOCKS_MAX - 32));
        let last = PAGE_BLOCKS - 1;
        for blocks in
            [vec![], vec![(last, 9)], vec![(0, 7), (1, 8), (last, 21)], whole, over, last_of_all, scattered]
        {
            let mut back = Vec::new();
            let mut r = Reader::new(round(&blocks).into());
            decode(&mut r, 3, &mut back).expect("our own bytes");
            assert!(r.rest().is_empty());
            let back: Vec<_> =
                back.iter().filter_map(|(index, slot)| Some((*index, slot.device()?))).collect();
            let expected = blocks.iter().map(|(at, block)| {
                (3 * PAGE_BLOCKS + at, DeviceBlock { block: *block, crc: *block as u32 ^ 77 })
            });
            assert!(back.into_iter().eq(expected), "{blocks:?}");
        }
    }

    #[test]
    fn what_nobody_wrote_is_refused() {
        let good = round(&[(0, 500), (1, 501), (3, 600)]);
        // A stretch of two: at, count, kind, block of 6 bytes, checksums; and one of one.
        for (byte, value) in [(1, 31), (2, 0), (2, 33), (3, 1), (9, 0x10), (18, 1), (19, 2)] {
            let mut bad = good.clone();
            bad[byte] = value;
            let found = decode(&mut Reader::new(bad.into()), 0, &mut Vec::new());
            assert!(found.is_err(), "byte {byte} as {value}");
        }
        assert!(decode(&mut Reader::new(good.clone().into()), u32::MAX - 1, &mut Vec::new()).is_err());
        assert!(decode(&mut Reader::new(good[..20].to_vec().into()), 0, &mut Vec::new()).is_err());
    }

    fn blob(first: u64, blocks: u32, stored: u32) -> Arc<Blob> {
        let device = |nth: u32| DeviceBlock { block: first + 10 * u64::from(nth), crc: nth + 5 };
        let stored = (0..stored).map(device);
        let stored: Vec<DeviceBlock> = stored.collect();
        let bytes = u32::try_from(stored.len() * crate::BLOCK - 9).expect("small");
        Arc::new(Blob::new((3, CompressionAlgorithm::Snappy), blocks, bytes, stored).expect("a blob"))
    }

    fn in_blob(blob: &Arc<Blob>, nth: u8) -> Place {
        Place::Blob(Arc::clone(blob), nth)
    }

    fn bytes_of(places: &[(u32, Place)]) -> Vec<u8> {
        let mut w = Writer::new();
        encode(&mut w, places);
        w.finish().to_vec()
    }

    #[test]
    fn blobs_survive_the_encoding_whatever_was_punched_out_of_them() {
        let wide = blob((1 << 32) - 5, PAGE_BLOCKS, 3);
        let (a, b) = (blob(500, PAGE_BLOCKS, 3), blob(700, 2, 1));
        let plain = Place::Block(DeviceBlock { block: 9, crc: 2 });
        let whole: Vec<_> = (0..PAGE_BLOCKS).map(|at| (at, in_blob(&a, small(at)))).collect();
        let punched = vec![(0, in_blob(&a, 0)), (1, plain), (2, in_blob(&a, 2)), (3, in_blob(&b, 1))];
        let across = vec![(0, in_blob(&wide, 0)), (2, in_blob(&wide, 2))];
        for places in [whole, punched, across] {
            let mut back = Vec::new();
            decode(&mut Reader::new(bytes_of(&places).into()), 2, &mut back).expect("our own bytes");
            let back: Vec<_> =
                back.into_iter().filter_map(|(index, slot)| Some((index, slot.place()?))).collect();
            let expected: Vec<_> =
                places.iter().map(|(at, place)| (2 * PAGE_BLOCKS + at, place.clone())).collect();
            assert_eq!(back, expected);
        }
    }

    #[test]
    fn blobs_that_nobody_wrote_are_refused() {
        let (a, b) = (blob(500, 3, 2), blob(700, 2, 1));
        let good = bytes_of(&[(0, in_blob(&a, 0)), (1, in_blob(&b, 1)), (2, in_blob(&a, 2))]);
        let decode = |bytes: Vec<u8>| decode(&mut Reader::new(bytes.into()), 0, &mut Vec::new());
        assert_eq!(decode(good.clone()), Ok(()));
        // Of the first stretch: nth at 10, blocks, algorithm, 4 bytes, 8 of the pool, stored at 25.
        for (byte, value) in [
            (3, 2),
            (9, 16),
            (31, 16),
            (10, 3),
            (11, 2),
            (11, 33),
            (12, 0),
            (12, 4),
            (14, 99),
            (15, 1),
            (25, 0),
            (25, 1),
            (25, 200),
        ] {
            let mut bad = good.clone();
            bad[byte] = value;
            assert!(decode(bad).is_err(), "byte {byte} as {value}");
        }
        assert!(decode(good[..good.len() - 1].to_vec()).is_err(), "cut");
    }
}
