//! How a page of an object's blocks is stored. Drawn in `docs/formats/blockstore.md`.

use crate::device::{DEVICE_BLOCKS_MAX, DeviceBlock, Numbers};
use crate::page::{PAGE_BLOCKS, Page};
use crate::slot::Slot;
use nacre_buf::Bytes;
use nacre_denc::{DecodeError, Reader, Writer};

/// Of a page's own record.
const VERSION: u8 = 1;
/// Blocks as they are: one each of the device's, with its checksum.
const PLAIN: u8 = 0;

/// Writes blocks of one page down, each with its place in the page, ascending.
pub(crate) fn encode(w: &mut Writer, blocks: &[(u32, DeviceBlock)]) {
    let follows =
        |a: &(u32, DeviceBlock), b: &(u32, DeviceBlock)| a.0 + 1 == b.0 && a.1.block + 1 == b.1.block;
    let small = |number: u32| u8::try_from(number).expect("a page has few blocks");
    let count = |length: usize| small(u32::try_from(length).unwrap_or(u32::MAX));
    w.u8(count(blocks.chunk_by(follows).count()));
    for stretch in blocks.chunk_by(follows) {
        let Some((at, first)) = stretch.first() else { continue };
        w.u8(small(*at));
        w.u8(count(stretch.len()));
        w.u8(PLAIN);
        Numbers::Wide.write(w, first.block);
        stretch.iter().for_each(|(_, device)| w.u32(device.crc));
    }
}

/// What [`encode`] made, of the page of this number, added to `blocks`.
pub(crate) fn decode(r: &mut Reader, number: u32, blocks: &mut Vec<(u32, Slot)>) -> Result<(), DecodeError> {
    let invalid = |what, value: u64| DecodeError::Invalid { what, value };
    let begin =
        number.checked_mul(PAGE_BLOCKS).ok_or(invalid("number of a page of blocks", number.into()))?;
    let mut behind = 0;
    for _ in 0..r.u8()? {
        let (at, count, kind) = (u32::from(r.u8()?), u32::from(r.u8()?), r.u8()?);
        let first = Numbers::Wide.read(r)?;
        if kind != PLAIN {
            return Err(invalid("kind of blocks", kind.into()));
        }
        if at < behind || count == 0 || at + count > PAGE_BLOCKS {
            return Err(invalid("blocks of a page", first));
        }
        if first + u64::from(count) > DEVICE_BLOCKS_MAX {
            return Err(invalid("block above 64 PiB", first));
        }
        behind = at + count;
        for nth in 0..count {
            let device = DeviceBlock { block: first + u64::from(nth), crc: r.u32()? };
            blocks.push((begin + at + nth, Slot::Device(device)));
        }
    }
    Ok(())
}

/// The record of a page.
pub(crate) fn encode_record(blocks: &[(u32, DeviceBlock)]) -> Bytes {
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
        let device = |block: u64| DeviceBlock { block, crc: block as u32 ^ 77 };
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
}
