//! Changes of an object's data, block by block: written, made zeros, cut.

use super::space::Space;
use super::{BLOCK_U64, index_of, within};
use crate::BLOCK;
use crate::blocks::Blocks;
use crate::device::DeviceBlock;
use crate::dirty::{Dirty, ZEROS};
use crate::held::Source;
use crate::object_pages::ObjectPages;
use crate::onode::Onode;
use crate::page::page_of;
use crate::slot::Slot;
use crate::wal::Placement;
use nacre_buf::{BufList, Bytes};
use nacre_txn::{EXTENT_BYTES, Extents};
use std::sync::Arc;

// A copy of a part of a block would need what both objects have on the device.
const _: () = assert!(EXTENT_BYTES == BLOCK_U64);

/// Of longer writes it is not noted what they take the place of: they were never in the record.
const SHORT_BLOCKS_MAX: usize = 8;

/// An object that is changed, the blocks of all, and the object's pages that are not with it.
pub(super) type Target<'a> = (&'a mut Onode, &'a mut Space, &'a ObjectPages<'a>);

/// `meta` is the record that the object gets in the same transaction, if it gets one.
pub(super) fn write(
    (onode, space, pages): Target<'_>,
    offset: u64,
    data: &BufList,
    (placement, meta): (Option<&Placement>, Option<&Bytes>),
    source: &Source,
) {
    let end = offset + data.len() as u64;
    onode.size = onode.size.max(end);
    // They stay in memory for the checkpoint to compress.
    let is_tried = placement.is_some() && space.compression_of(onode, meta.unwrap_or(&onode.meta)).is_some();
    let blocks = Arc::make_mut(&mut onode.blocks);
    if offset < end {
        pages.take_in(blocks, index_of(offset), index_of(end - 1));
    }
    let Some(placement) = placement else {
        write_inline(blocks, space, offset, data, source);
        return leave_dear_blobs(blocks, space, offset, end);
    };
    let head = (BLOCK - within(offset)) % BLOCK;
    let placed = placement.crcs.len() * BLOCK;
    write_inline(blocks, space, offset, &data.slice(0, head), source);
    let first = index_of(offset + head as u64);
    let is_short = placement.crcs.len() <= SHORT_BLOCKS_MAX && !space.is_replaying;
    let devices = placement.runs.iter().flat_map(|run| run.blocks()).zip(&placement.crcs);
    for ((index, (block, crc)), nth) in (first..).zip(devices).zip(0..) {
        let device = DeviceBlock { block, crc: *crc };
        let slot = match is_tried {
            true => {
                Slot::Memory(Arc::new(Dirty::placed(device, data.slice(head + nth * BLOCK, BLOCK), source)))
            }
            false => Slot::Device(device),
        };
        let old = space.put(blocks, index, slot);
        if is_short && let Some(left) = old.as_ref().and_then(Slot::cached_at) {
            space.replaced.push((left, block));
        }
    }
    let tail = head + placed;
    write_inline(blocks, space, offset + tail as u64, &data.slice(tail, data.len() - tail), source);
    leave_dear_blobs(blocks, space, offset, end);
}

/// Of the pages at both ends of a range that was changed: none between has a part of what it had.
fn leave_dear_blobs(blocks: &mut Blocks, space: &mut Space, offset: u64, end: u64) {
    if offset < end {
        let (first, last) = (index_of(offset), index_of(end - 1));
        space.leave_dear_blobs(blocks, first);
        if page_of(first) != page_of(last) {
            space.leave_dear_blobs(blocks, last);
        }
    }
}

fn write_inline(blocks: &mut Blocks, space: &mut Space, offset: u64, data: &BufList, source: &Source) {
    let mut at = 0;
    for (index, start, length) in pieces(offset, data.len()) {
        space.write_block(blocks, index, start, data.slice(at, length), source);
        at += length;
    }
}

pub(super) fn zero((onode, space, pages): Target<'_>, offset: u64, length: u64) {
    let end = offset.saturating_add(length).min(onode.size);
    if offset >= end {
        return;
    }
    let blocks = Arc::make_mut(&mut onode.blocks);
    let (first_whole, end_whole) = (offset.div_ceil(BLOCK_U64), end / BLOCK_U64);
    // Bytes behind the end of the object are zeros already, so its last block may go as a whole.
    let end_whole = if end == onode.size { end.div_ceil(BLOCK_U64) } else { end_whole };
    if first_whole <= end_whole {
        let head_end = (first_whole * BLOCK_U64).min(end);
        zero_part((blocks, space, pages), offset, head_end);
        space.punch(blocks, first_whole, Some(end_whole), pages);
        zero_part((blocks, space, pages), (end_whole * BLOCK_U64).max(head_end).min(end), end);
    } else {
        zero_part((blocks, space, pages), offset, end);
    }
    leave_dear_blobs(blocks, space, offset, end);
}

/// Zeros within one block, if it is there.
fn zero_part((blocks, space, pages): (&mut Blocks, &mut Space, &ObjectPages<'_>), from: u64, to: u64) {
    if from < to {
        pages.take_in(blocks, index_of(from), index_of(from));
    }
    if from < to && blocks.get(index_of(from)).is_some() {
        let length = usize::try_from(to - from).expect("within a block");
        let zeros = Bytes::from_static(&ZEROS).slice(..length);
        space.write_block(blocks, index_of(from), within(from), zeros.into(), &Source::Copy);
    }
}

pub(super) fn truncate((onode, space, pages): Target<'_>, size: u64) {
    if size < onode.size {
        let blocks = Arc::make_mut(&mut onode.blocks);
        let whole = size.div_ceil(BLOCK_U64);
        space.punch(blocks, whole, None, pages);
        zero_part((blocks, space, pages), size, whole * BLOCK_U64);
        if size > 0 {
            space.leave_dear_blobs(blocks, index_of(size - 1));
        }
    }
    onode.size = size;
}

/// Makes the data as long as that of `source`, and in `extents` what it is there: blocks are shared, wherever they are.
pub(super) fn copy_extents((onode, space, pages): Target<'_>, source: &Onode, extents: &Extents) {
    truncate((onode, space, pages), source.size);
    let blocks = Arc::make_mut(&mut onode.blocks);
    for (offset, length) in extents.iter() {
        let end = (offset + length).min(source.size.next_multiple_of(BLOCK_U64));
        if offset >= end {
            return;
        }
        let (first, behind) = (index_of(offset), index_of(end));
        pages.take_in(blocks, first, behind - 1);
        space.punch(blocks, first.into(), Some(behind.into()), pages);
        for (index, slot) in pages.of(source.id).range(&source.blocks, first, behind - 1).iter() {
            space.share(blocks, index, slot);
        }
        leave_dear_blobs(blocks, space, offset, end);
    }
}

/// Blocks a write touches, as `(index, first byte, bytes)`.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u32, usize, usize)> {
    let (mut at, mut left) = (offset, length);
    std::iter::from_fn(move || {
        let start = within(at);
        let take = left.min(BLOCK - start);
        let piece = (take > 0).then(|| (index_of(at), start, take));
        at += take as u64;
        left -= take;
        piece
    })
}
