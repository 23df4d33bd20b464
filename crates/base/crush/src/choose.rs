//! How each bucket algorithm picks one item for input `x` and try `r`.
//!
//! Source: Ceph `src/crush/mapper.c` at v16.2.15 (`bucket_*_choose`).

use crate::hash::{hash3, hash4};
use crate::ln::crush_ln;
use crate::{Bucket, BucketBody, ChooseArg};

/// What the hash sees of a signed number.
#[inline]
pub(crate) fn bits(item: i32) -> u32 {
    item.cast_unsigned()
}

/// Picks an item; `None` only for a bucket without items or with broken tables.
#[inline]
pub(crate) fn choose(
    bucket: &Bucket,
    x: u32,
    r: u32,
    arg: Option<&ChooseArg>,
    position: usize,
) -> Option<i32> {
    match &bucket.body {
        BucketBody::Straw2 { item_weights } => straw2(bucket, item_weights, x, r, arg, position),
        BucketBody::Uniform { .. } => permute(bucket, x, r),
        BucketBody::List { item_weights, sum_weights } => list(bucket, item_weights, sum_weights, x, r),
        BucketBody::Tree { node_weights } => tree(bucket, node_weights, x, r),
        BucketBody::Straw { straws, .. } => straw(bucket, straws, x, r),
    }
}

/// Longest straw: each item draws -ln(random) / weight, here as a negative number of which the largest wins.
fn straw2(
    bucket: &Bucket,
    item_weights: &[u32],
    x: u32,
    r: u32,
    arg: Option<&ChooseArg>,
    position: usize,
) -> Option<i32> {
    let weights = arg
        .and_then(|arg| arg.weight_set.get(position).or(arg.weight_set.last()))
        .map_or(item_weights, Vec::as_slice);
    let ids = arg.map(|arg| &arg.ids).filter(|ids| !ids.is_empty()).unwrap_or(&bucket.items);
    let (mut best, mut best_draw) = (None, i64::MIN);
    for ((item, id), weight) in bucket.items.iter().zip(ids).zip(weights) {
        let draw = if *weight == 0 { i64::MIN } else { straw2_draw(x, *id, r, *weight) };
        if best.is_none() || draw > best_draw {
            (best, best_draw) = (Some(*item), draw);
        }
    }
    best
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the draw takes the low 16 bits")]
fn straw2_draw(x: u32, id: i32, r: u32, weight: u32) -> i64 {
    let u = hash3(x, bits(id), r) as u16;
    (crush_ln(u) - (1 << 48)) / i64::from(weight)
}

/// Item `r` of a permutation that `x` and the bucket determine.
///
/// The permutation is made by swapping position `p` with `p + i(p)` for each `p` in turn. Instead of a table
/// the item that ends at the wanted position is traced back through the swaps.
pub(crate) fn permute(bucket: &Bucket, x: u32, r: u32) -> Option<i32> {
    let size = u32::try_from(bucket.items.len()).ok().filter(|size| *size > 0)?;
    let step = |p: u32| {
        // The last position has nothing to swap with.
        if p + 1 < size { hash3(x, bits(bucket.id), p) % (size - p) } else { 0 }
    };
    let wanted = r % size;
    let mut at = wanted + step(wanted);
    for p in (0..wanted).rev() {
        if at == p + step(p) {
            at = p;
        }
    }
    bucket.items.get(at as usize).copied()
}

/// From the newest item on: is it this one, rather than any older?
fn list(bucket: &Bucket, item_weights: &[u32], sum_weights: &[u32], x: u32, r: u32) -> Option<i32> {
    let rows = bucket.items.iter().zip(item_weights).zip(sum_weights);
    rows.rev()
        .find(|((item, weight), sum)| {
            let draw = u64::from(hash4(x, bits(**item), r, bits(bucket.id)) & 0xffff);
            (draw * u64::from(**sum)) >> 16 < u64::from(**weight)
        })
        .map(|((item, _), _)| *item)
        .or_else(|| bucket.items.first().copied())
}

/// Down a binary tree whose leaves have odd numbers.
fn tree(bucket: &Bucket, node_weights: &[u32], x: u32, r: u32) -> Option<i32> {
    let weight = |node: usize| node_weights.get(node).copied().unwrap_or(0);
    let mut node = node_weights.len() >> 1;
    while node != 0 && node & 1 == 0 {
        let number = u32::try_from(node).ok()?;
        let draw = (u64::from(hash4(x, number, r, bits(bucket.id))) * u64::from(weight(node))) >> 32;
        let half = (node & node.wrapping_neg()) >> 1;
        node = if draw < u64::from(weight(node - half)) { node - half } else { node + half };
    }
    bucket.items.get(node >> 1).copied()
}

/// Longest straw, lengths scaled beforehand.
fn straw(bucket: &Bucket, straws: &[u32], x: u32, r: u32) -> Option<i32> {
    let (mut best, mut best_draw) = (None, 0);
    for (item, straw) in bucket.items.iter().zip(straws) {
        let draw = u64::from(hash3(x, bits(*item), r) & 0xffff) * u64::from(*straw);
        if best.is_none() || draw > best_draw {
            (best, best_draw) = (Some(*item), draw);
        }
    }
    best
}
