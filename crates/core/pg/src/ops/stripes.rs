//! What a message writes to an erasure-coded object, as changes of whole stripes: shards hold chunks, and the parity of a stripe is that of
//! all its bytes.
//!
//! ```text
//!   object    |....stripe 0....|....stripe 1....|....stripe 2....|
//!   written          #############################
//!   read      ^^^^^^^                             ^^^^             from the chunks of other members
//!   changed   |================|================|================| one write of three stripes
//! ```
//! A stripe that is written as a whole, or lies behind what the object had, is not read. Bytes behind an object's end are zeros in its last
//! stripe, as a real OSD pads it (`ECUtil::encode`, `ECTransaction::get_write_plan` of v16.2.15): so chunks are those of the content, however
//! it came about.

use super::execution::Execution;
use super::{Outcome, TRANSACTION_BYTES_MAX};
use crate::object::ObjectContext;
use nacre_buf::{BufList, Bytes};
use nacre_txn::{Op, ReadError};
use nacre_types::{Errno, HObject, IntervalSet};
use std::collections::BTreeMap;

/// Bytes between two parts that are read which are rather read with them than asked for apart: another round costs more.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// Ranges of a log entry that says what it modified, at most: all members keep it.
const MODIFIED_RANGES_MAX: usize = 8;

/// What a log entry says that it modified is in whole blocks of so many bytes, as stores have them; which units of the pool's code these
/// are is for [`crate::coding`].
const MODIFIED_BLOCK_BYTES: u64 = nacre_txn::EXTENT_BYTES;

/// A range that the message wrote.
#[derive(Debug, Clone)]
struct Written {
    end: u64,
    /// `None` for zeros.
    data: Option<BufList>,
}

/// An object's data as a message leaves it: what it wrote, over what was there.
#[derive(Debug)]
struct Overlay {
    /// Where bytes come from that were not written: the object, or a clone that it is made to be.
    source: HObject,
    /// What the source has.
    source_bytes: u64,
    /// How much of that was never cut off; bytes behind are zeros, unless they were written.
    kept_bytes: u64,
    size: u64,
    /// What was written, by its start; disjoint.
    written: BTreeMap<u64, Written>,
}

impl Overlay {
    fn of(source: HObject, size: u64) -> Self {
        Self { source, source_bytes: size, kept_bytes: size, size, written: BTreeMap::new() }
    }

    /// No range crosses `at` from here on.
    fn split_at(&mut self, at: u64) {
        let Some((start, range)) =
            self.written.range_mut(..at).next_back().filter(|(_, range)| range.end > at)
        else {
            return;
        };
        let (length, end) = (length_of(at - *start), std::mem::replace(&mut range.end, at));
        let data = range.data.as_mut().map(|data| {
            let rest = data.slice(length, data.len() - length);
            *data = data.slice(0, length);
            rest
        });
        self.written.insert(at, Written { end, data });
    }

    fn forget(&mut self, start: u64, end: u64) {
        self.split_at(start);
        self.split_at(end);
        let inside: Vec<u64> = self.written.range(start..end).map(|(start, _)| *start).collect();
        inside.iter().for_each(|start| drop(self.written.remove(start)));
    }

    fn put(&mut self, start: u64, length: u64, data: Option<BufList>) {
        let end = start + length;
        self.forget(start, end);
        self.written.insert(start, Written { end, data });
        self.size = self.size.max(end);
    }

    fn truncate(&mut self, size: u64) {
        self.forget(size, u64::MAX);
        self.kept_bytes = self.kept_bytes.min(size);
        self.size = size;
    }

    /// Whole stripes whose data must be put together, and those that only become zeros.
    fn touched(&self, stripe: u64) -> (IntervalSet, IntervalSet) {
        let (mut mixed, mut zeros) = (IntervalSet::default(), IntervalSet::default());
        let mut mix = |start: u64, end: u64| {
            let first = start / stripe * stripe;
            mixed.insert(first, end.next_multiple_of(stripe) - first);
        };
        for (start, range) in &self.written {
            let (first, end) = (start.next_multiple_of(stripe), range.end / stripe * stripe);
            if range.data.is_some() || first >= end {
                mix(*start, range.end);
                continue;
            }
            zeros.insert(first, end - first);
            [(*start, first), (end, range.end)]
                .into_iter()
                .filter(|(start, end)| start < end)
                .for_each(|(start, end)| mix(start, end));
        }
        if self.kept_bytes < self.source_bytes && !self.kept_bytes.is_multiple_of(stripe) {
            mix(self.kept_bytes, self.kept_bytes + 1); // what was cut off is still in the last stripe
        }
        zeros.subtract(&mixed);
        (mixed, zeros.intersection(&IntervalSet::of(0, self.kept_bytes.next_multiple_of(stripe))))
    }

    /// Parts of the source that stripes to be put together still have.
    fn needed(&self, mixed: &IntervalSet) -> Vec<(u64, u64)> {
        let mut needed = mixed.intersection(&IntervalSet::of(0, self.kept_bytes));
        self.written.iter().for_each(|(start, range)| needed.remove(*start, range.end - *start));
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (start, length) in needed.iter() {
            match joined.last_mut() {
                Some((first, before)) if start - (*first + *before) <= GAP_BYTES_MAX => {
                    *before = start + length - *first;
                }
                _ => joined.push((start, length)),
            }
        }
        joined
    }

    /// The data of stripes, up to the object's end; `pieces` are parts of the source by where they begin.
    fn put_together(&self, start: u64, end: u64, pieces: &BTreeMap<u64, BufList>) -> BufList {
        let (mut at, end, mut out) = (start, end.min(self.size), BufList::new());
        while at < end {
            let range = self.written.range(..=at).next_back().filter(|(_, range)| range.end > at);
            let next_range = self.written.range(at..).next().map_or(end, |(start, _)| *start);
            let until = match range {
                Some((start, range)) => {
                    let until = range.end.min(end);
                    match &range.data {
                        Some(data) => out.append(data.slice(length_of(at - start), length_of(until - at))),
                        None => out.push(zeros(until - at)),
                    }
                    until
                }
                None if at < self.kept_bytes => {
                    let until = next_range.min(self.kept_bytes).min(end);
                    out.append(part_of(pieces, at, until));
                    until
                }
                None => {
                    let until = next_range.min(end);
                    out.push(zeros(until - at));
                    until
                }
            };
            at = until;
        }
        out
    }

    /// The changes, in whole stripes.
    fn into_ops(self, object: &HObject, stripe: u64, pieces: &BTreeMap<u64, BufList>) -> Vec<Op> {
        let (mixed, zeros) = self.touched(stripe);
        let object = || object.clone();
        let mut ops = Vec::new();
        if self.kept_bytes < self.source_bytes {
            ops.push(Op::Truncate { object: object(), size: self.kept_bytes });
        }
        ops.extend(zeros.iter().map(|(offset, length)| Op::Zero { object: object(), offset, length }));
        let mut end = self.kept_bytes;
        for (offset, length) in mixed.iter() {
            let data = self.put_together(offset, offset + length, pieces);
            end = end.max(offset + data.len() as u64);
            if !data.is_empty() {
                ops.push(Op::Write { object: object(), offset, data });
            }
        }
        if end < self.size {
            ops.push(Op::Truncate { object: object(), size: self.size });
        }
        ops
    }
}

/// Ranges lie within objects, which are no longer than what fits in memory.
fn length_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn zeros(length: u64) -> Bytes {
    Bytes::from(vec![0; length_of(length)])
}

/// A range of what was read; zeros where the source has less than it should.
fn part_of(pieces: &BTreeMap<u64, BufList>, start: u64, end: u64) -> BufList {
    let mut part = BufList::new();
    if let Some((at, piece)) = pieces.range(..=start).next_back() {
        let from = length_of(start - at).min(piece.len());
        part = piece.slice(from, length_of(end - start).min(piece.len() - from));
    }
    let left = end - start - part.len() as u64;
    if left > 0 {
        part.push(zeros(left));
    }
    part
}

impl Execution<'_, '_> {
    /// Makes the message's changes of data ones of whole stripes. False when there is more to them than a transaction may have; the
    /// outcome says so then.
    ///
    /// # Errors
    /// [`ReadError`] when a part of a stripe must come first.
    pub(super) fn change_stripes(&mut self, outcome: &mut Outcome, stripe: u64) -> Result<bool, ReadError> {
        let changes_data = |op: &Op| matches!(op, Op::Write { .. } | Op::Zero { .. } | Op::Truncate { .. });
        if !self.pending.ops.iter().any(changes_data) {
            self.modified = self.modified_in_part(&self.pending.ops, None, stripe);
            return Ok(true);
        }
        let (view, spg) = (self.env.view, self.env.collection);
        let mut overlay = Overlay::of(self.request.head.clone(), self.base.info.size);
        let mut ops = Vec::with_capacity(self.pending.ops.len());
        for op in std::mem::take(&mut self.pending.ops) {
            match op {
                Op::Write { offset, data, .. } => overlay.put(offset, data.len() as u64, Some(data)),
                Op::Zero { offset, length, .. } => overlay.put(offset, length, None),
                Op::Truncate { size, .. } => overlay.truncate(size),
                op => {
                    match &op {
                        Op::Remove(object) => overlay = Overlay::of(object.clone(), 0),
                        Op::Clone { source, .. } => {
                            let size =
                                ObjectContext::load(view, &spg, source).map_or(0, |clone| clone.info.size);
                            overlay = Overlay::of(source.clone(), size);
                        }
                        _ => {}
                    }
                    ops.push(op);
                }
            }
        }
        let (mixed, _) = overlay.touched(stripe);
        let others: usize = ops.iter().map(Op::size_bytes).sum();
        if mixed.total().saturating_add(others as u64) > TRANSACTION_BYTES_MAX as u64 {
            outcome.result = Errno::EMSGSIZE.negated();
            return Ok(false);
        }
        let mut pieces = BTreeMap::new();
        for (offset, length) in overlay.needed(&mixed) {
            self.env.work += length;
            pieces.insert(offset, view.read(&spg, &overlay.source, offset, length)?);
        }
        self.modified = self.modified_in_part(&ops, Some(&overlay), stripe);
        ops.append(&mut overlay.into_ops(self.request.head, stripe, &pieces));
        self.pending.ops = ops;
        Ok(true)
    }

    /// Where the message's changes of data may make the object's differ from before, in whole blocks; `others` are its other changes. `None`
    /// when they make another object of it, when nothing of it stays as it was, and for more ranges than are worth a note.
    fn modified_in_part(&self, others: &[Op], overlay: Option<&Overlay>, stripe: u64) -> Option<IntervalSet> {
        let keeps_data = |op: &Op| {
            let of_attrs = matches!(op, Op::SetAttr { .. } | Op::RemoveAttr { .. } | Op::ClearAttrs(_));
            of_attrs || matches!(op, Op::Touch(_) | Op::SetMeta { .. })
        };
        if !self.env.pool.overwrites || !self.base.exists || !others.iter().all(keeps_data) {
            return None;
        }
        let (size, block) = (self.base.info.size, MODIFIED_BLOCK_BYTES.min(stripe));
        let around = |part: u64, start: u64, end: u64| {
            let first = start / part * part;
            (first, end.next_multiple_of(part) - first)
        };
        let modified = self.pending.modified.iter();
        let mut modified: IntervalSet =
            modified.map(|(start, length)| around(block, *start, start + length)).collect();
        if let Some(overlay) = overlay {
            let mut insert = |(start, length)| modified.insert(start, length);
            if overlay.kept_bytes < overlay.source_bytes {
                insert(around(stripe, overlay.kept_bytes, overlay.source_bytes));
            }
            if overlay.size > size {
                // All shards come to the same length.
                insert(around(stripe, overlay.size - 1, overlay.size));
            }
        }
        let in_part = modified.range_count() <= MODIFIED_RANGES_MAX && !modified.contains_range(0, size);
        in_part.then_some(modified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPE: u64 = 8;

    /// An object of `size` bytes `o`, and what of it is read, and the changes that come of it.
    fn changed(size: u64, change: impl Fn(&mut Overlay)) -> (Vec<(u64, u64)>, Vec<String>) {
        let mut overlay = Overlay::of(HObject::MIN, size);
        change(&mut overlay);
        let needed = overlay.needed(&overlay.touched(STRIPE).0);
        let piece = |(at, length): &(u64, u64)| (*at, vec![b'o'; length_of(*length)].into());
        let pieces = needed.iter().map(piece).collect();
        let text = |op: &Op| match op {
            Op::Write { offset, data, .. } => {
                format!("{offset}:{}", String::from_utf8_lossy(&data.to_bytes()).replace('\0', "."))
            }
            Op::Zero { offset, length, .. } => format!("zero {offset}~{length}"),
            Op::Truncate { size, .. } => format!("cut {size}"),
            _ => unreachable!("data only"),
        };
        (needed, overlay.into_ops(&HObject::MIN, STRIPE, &pieces).iter().map(text).collect())
    }

    fn write(at: u64, text: &str) -> impl Fn(&mut Overlay) {
        move |overlay| overlay.put(at, text.len() as u64, Some(text.as_bytes().to_vec().into()))
    }

    fn written(size: u64, at: u64, text: &str) -> (Vec<(u64, u64)>, Vec<String>) {
        changed(size, write(at, text))
    }

    #[test]
    fn whole_stripes_are_not_read() {
        assert_eq!(written(24, 8, "12345678"), (vec![], vec!["8:12345678".into()]));
        assert_eq!(written(8, 8, "1"), (vec![], vec!["8:1".into()]), "behind the end");
        assert_eq!(written(11, 8, "1234"), (vec![], vec!["8:1234".into()]), "all that the stripe had");
        assert_eq!(written(0, 3, "1"), (vec![], vec!["0:...1".into()]));
        assert_eq!(written(0, 19, "1"), (vec![], vec!["16:...1".into()]), "a hole before");
    }

    #[test]
    fn parts_of_stripes_are_read_and_no_more() {
        assert_eq!(written(24, 10, "12"), (vec![(8, 8)], vec!["8:oo12oooo".into()]), "one round");
        assert_eq!(written(24, 8, "12"), (vec![(10, 6)], vec!["8:12oooooo".into()]));
        assert_eq!(written(24, 6, "1234"), (vec![(0, 16)], vec!["0:oooooo1234oooooo".into()]));
        assert_eq!(written(11, 12, "1"), (vec![(8, 3)], vec!["8:ooo.1".into()]));
        let far = GAP_BYTES_MAX + 16;
        let (needed, _) = written(2 * far, 4, &"x".repeat(length_of(far)));
        assert_eq!(needed, [(0, 4), (far + 4, 4)]);
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        let cut = |size| move |overlay: &mut Overlay| overlay.truncate(size);
        assert_eq!(changed(24, cut(8)), (vec![], vec!["cut 8".into()]));
        assert_eq!(changed(24, cut(11)), (vec![(8, 3)], vec!["cut 11".into(), "8:ooo".into()]));
        assert_eq!(changed(24, cut(24)), (vec![], vec![]));
        assert_eq!(changed(11, cut(24)), (vec![], vec!["cut 24".into()]));
        let both = |overlay: &mut Overlay| {
            overlay.truncate(11);
            overlay.truncate(21);
        };
        assert_eq!(
            changed(24, both),
            (vec![(8, 3)], vec!["cut 11".into(), "8:ooo.....".into(), "cut 21".into()])
        );
        let grown = |overlay: &mut Overlay| {
            overlay.truncate(3);
            write(17, "1")(overlay);
        };
        let ops = ["cut 3", "0:ooo.....", "16:.1"].map(str::to_owned).to_vec();
        assert_eq!(changed(24, grown), (vec![(0, 3)], ops));
    }

    #[test]
    fn stripes_of_zeros_are_not_written() {
        let zero = |at, length| move |overlay: &mut Overlay| overlay.put(at, length, None);
        assert_eq!(changed(40, zero(8, 16)), (vec![], vec!["zero 8~16".into()]));
        let ops = ["zero 8~16", "0:oooooo..", "24:..oooooo"].map(str::to_owned).to_vec();
        assert_eq!(changed(40, zero(6, 20)), (vec![(0, 32)], ops));
        assert_eq!(changed(40, zero(9, 2)), (vec![(8, 8)], vec!["8:o..ooooo".into()]));
        let over = |overlay: &mut Overlay| {
            zero(0, 32)(overlay);
            write(10, "1")(overlay);
        };
        let ops = ["zero 0~8", "zero 16~16", "8:..1....."].map(str::to_owned).to_vec();
        assert_eq!(changed(40, over), (vec![], ops));
    }

    /// Any changes, in any order, give what they give an object that is not cut into stripes.
    #[test]
    fn changes_compose() {
        let mut state = 7_u64;
        let mut pick = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..5_000 {
            let old: Vec<u8> = (0..pick(50)).map(|at| b'a' + u8::try_from(at % 26).expect("small")).collect();
            let mut overlay = Overlay::of(HObject::MIN, old.len() as u64);
            let mut plain = old.clone();
            for nth in 0..=pick(4) {
                let (at, length) = (pick(50), 1 + pick(20));
                let (start, end) = (length_of(at), length_of(at + length));
                match pick(3) {
                    0 => {
                        overlay.truncate(at);
                        plain.resize(start, 0);
                    }
                    1 if end <= plain.len() => {
                        overlay.put(at, length, None);
                        plain[start..end].fill(0);
                    }
                    _ => {
                        let digit = b'0' + u8::try_from(nth).expect("small");
                        overlay.put(at, length, Some(vec![digit; length_of(length)].into()));
                        plain.resize(plain.len().max(end), 0);
                        plain[start..end].fill(digit);
                    }
                }
            }
            let needed = overlay.needed(&overlay.touched(STRIPE).0);
            let read = |(at, length): &(u64, u64)| {
                (*at, old[length_of(*at)..length_of(at + length)].to_vec().into())
            };
            let pieces = needed.iter().map(read).collect();
            let why = format!("{overlay:?} of {old:?}");
            let (mut found, size) = (old.clone(), overlay.size);
            let whole = |length: usize| length.next_multiple_of(length_of(STRIPE));
            found.resize(whole(old.len()), 0);
            for op in overlay.into_ops(&HObject::MIN, STRIPE, &pieces) {
                match op {
                    Op::Write { offset, data, .. } => {
                        assert!(offset.is_multiple_of(STRIPE), "{why}");
                        let (start, end) = (length_of(offset), whole(length_of(offset) + data.len()));
                        found.resize(found.len().max(end), 0);
                        found[start..end].fill(0);
                        found[start..start + data.len()].copy_from_slice(&data.to_bytes());
                    }
                    Op::Zero { offset, length, .. } => {
                        assert!(offset.is_multiple_of(STRIPE) && length.is_multiple_of(STRIPE), "{why}");
                        found[length_of(offset)..length_of(offset + length)].fill(0);
                    }
                    Op::Truncate { size, .. } => found.resize(whole(length_of(size)), 0),
                    _ => unreachable!("data only"),
                }
            }
            assert_eq!(size, plain.len() as u64, "{why}");
            plain.resize(whole(plain.len()), 0);
            assert_eq!(found, plain, "{why}");
        }
    }
}
