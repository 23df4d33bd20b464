//! A transaction that names data, dealt out to the shards.
//!
//! ```text
//!   object    | unit 0 | unit 1 | unit 2 | unit 3 |     k = 2; a write of unit 2
//!                                ^^^^^^^^
//!   shard 0   | unit 0 | unit 2 |                       writes unit 2
//!   shard 1   | unit 1 | unit 3 |                       writes nothing: it has the object's new record, as all have
//!   shard 2   | parity | parity |                       writes the parity of 2 and 3
//! ```

use super::Coding;
use nacre_buf::{BufList, Bytes};
use nacre_msg::peer::{ChunkMapping, LogEntry};
use nacre_txn::{EXTENT_BYTES, Extents, Op};
use nacre_types::IntervalSet;

impl Coding {
    /// What each shard must apply. Data is that of whole stripes from the beginning of one, or reaches the object's
    /// end: what is left of its last stripe is filled up. Zeros are whole stripes. Of data of which the `entries` say that it is as it
    /// was, data shards get nothing. `mapping` says which chunk a shard holds.
    pub(crate) fn encode_shards(
        &self,
        ops: Vec<Op>,
        entries: &[LogEntry],
        mapping: &ChunkMapping,
    ) -> Vec<Vec<Op>> {
        let mut by_shard: Vec<Vec<Op>> = vec![Vec::with_capacity(ops.len() + 2); self.codec.shards()];
        for op in ops {
            match op {
                Op::Write { object, offset, data } => {
                    let offset = self.layout.in_chunk(offset);
                    let entry = entries.iter().find(|entry| entry.object == object);
                    let modified = entry.and_then(|entry| entry.modified.as_ref());
                    let chunks = self.chunks(&data);
                    for (number, shard) in (0..).zip(&mut by_shard) {
                        let chunk = mapping.chunk_of(object.hash, number);
                        let Some(data) = chunks.get(usize::from(chunk)) else { continue };
                        let changed = modified.map(|modified| self.of_chunk(modified, chunk));
                        let written = IntervalSet::of(offset, data.len() as u64);
                        let written =
                            changed.map_or(written.clone(), |changed| written.intersection(&changed));
                        for (start, length) in written.iter() {
                            let data = part(data, start - offset, length);
                            shard.push(Op::Write { object: object.clone(), offset: start, data });
                        }
                    }
                }
                op => {
                    let op = self.of_each_chunk(op);
                    by_shard.iter_mut().for_each(|shard| shard.push(op.clone()));
                }
            }
        }
        by_shard
    }

    /// Where a chunk changes when these ranges of the object do, in whole units: parity changes with any unit of its stripe.
    pub(crate) fn of_chunk(&self, modified: &IntervalSet, chunk: u8) -> IntervalSet {
        let (k, unit) = (u64::from(self.layout.k), u64::from(self.layout.unit_bytes));
        let units = modified
            .iter()
            .map(|(start, length)| (start / unit, start.saturating_add(length).div_ceil(unit)));
        let stripes = units.map(|(first, end)| match u64::from(chunk) {
            // Those whose unit of this chunk is in the range.
            chunk if chunk < k => {
                (first.saturating_sub(chunk).div_ceil(k), end.saturating_sub(chunk).div_ceil(k))
            }
            _ => (first / k, end.div_ceil(k)),
        });
        stripes.map(|(first, end)| (first.saturating_mul(unit), (end - first).saturating_mul(unit))).collect()
    }

    /// That of a chunk which is kept of an object of `size` bytes when these ranges of it change: the blocks of the store that the
    /// units lie in. Where units are smaller, what is kept beside them is what it was, and taken back as that.
    pub(crate) fn kept_extents(&self, modified: &IntervalSet, chunk: u8, size: u64) -> Extents {
        let end = self.layout.chunk_bytes(size);
        let within = self.of_chunk(modified, chunk).intersection(&IntervalSet::of(0, end));
        let blocks = within.iter().map(|(start, length)| {
            let first = start / EXTENT_BYTES * EXTENT_BYTES;
            (first, (start + length).next_multiple_of(EXTENT_BYTES) - first)
        });
        Extents::new(blocks.collect::<IntervalSet>().iter()).expect("whole blocks, ascending")
    }

    /// What all shards do alike.
    fn of_each_chunk(&self, op: Op) -> Op {
        let layout = &self.layout;
        match op {
            Op::Truncate { object, size } => Op::Truncate { object, size: layout.chunk_bytes(size) },
            // The parity of zeros is zeros.
            Op::Zero { object, offset, length } => {
                Op::Zero { object, offset: layout.in_chunk(offset), length: layout.in_chunk(length) }
            }
            op => op,
        }
    }

    /// The chunks of all shards.
    fn chunks(&self, data: &BufList) -> Vec<BufList> {
        let split = self.layout.split(data);
        let joined: Vec<Bytes> = split.iter().map(BufList::to_bytes).collect();
        let slices: Vec<&[u8]> = joined.iter().map(|chunk| &chunk[..]).collect();
        let parity = self.codec.encode(&slices);
        // One slice is as it came, with its checksums if these are known.
        let as_one =
            |(split, joined): (BufList, Bytes)| if split.slices().len() == 1 { split } else { joined.into() };
        let data = split.into_iter().zip(joined).map(as_one);
        data.chain(parity.into_iter().map(summed)).collect()
    }
}

/// With checksums: sent, logged and stored, it would be summed three times.
fn summed(parity: Vec<u8>) -> BufList {
    let parity = BufList::from(parity);
    let crcs = parity.block_crcs();
    parity.with_block_crcs(crcs)
}

/// A range of a chunk in memory.
fn part(data: &BufList, start: u64, length: u64) -> BufList {
    let index = |value: u64| usize::try_from(value).expect("within data in memory");
    data.slice(index(start), index(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::own_entry;
    use nacre_ec::{Code, Codec, Technique};
    use nacre_msg::peer::LogKind;
    use nacre_types::{Eversion, HObject, UTime};

    const UNIT: u64 = 4096;

    fn coding() -> Coding {
        of_unit(4096)
    }

    fn of_unit(unit_bytes: u32) -> Coding {
        let code = Code::new(Technique::IsaCauchy, 2, 2, unit_bytes).expect("a code");
        Coding { layout: code.layout(), codec: Codec::new(&code) }
    }

    fn ranges(set: &IntervalSet) -> Vec<(u64, u64)> {
        set.iter().map(|(start, length)| (start / UNIT, length / UNIT)).collect()
    }

    #[test]
    fn a_chunk_changes_where_its_units_do() {
        let of = |units: &[(u64, u64)], shard| {
            let modified = units.iter().map(|(start, length)| (start * UNIT, length * UNIT)).collect();
            ranges(&coding().of_chunk(&modified, shard))
        };
        assert_eq!(
            [0, 1, 2, 3].map(|shard| of(&[(2, 1)], shard)),
            [vec![(1, 1)], vec![], vec![(1, 1)], vec![(1, 1)]]
        );
        assert_eq!([0, 1, 2].map(|shard| of(&[(3, 1)], shard)), [vec![], vec![(1, 1)], vec![(1, 1)]]);
        assert_eq!([0, 1, 2].map(|shard| of(&[(1, 2)], shard)), [vec![(1, 1)], vec![(0, 1)], vec![(0, 2)]]);
        assert_eq!(
            [0, 1, 2].map(|shard| of(&[(0, 1), (5, 2)], shard)),
            [vec![(0, 1), (3, 1)], vec![(2, 1)], vec![(0, 1), (2, 2)]]
        );
        let bytes = IntervalSet::of(UNIT + 5, 1);
        assert_eq!(ranges(&coding().of_chunk(&bytes, 1)), [(0, 1)], "whole units");
    }

    #[test]
    fn what_is_kept_ends_with_the_object() {
        let modified = IntervalSet::of(0, 100 * UNIT);
        let kept = |size| coding().kept_extents(&modified, 0, size).iter().collect::<Vec<_>>();
        assert_eq!(kept(0), []);
        assert_eq!(kept(1), [(0, UNIT)]);
        assert_eq!(kept(4 * UNIT + 1), [(0, 3 * UNIT)]);
    }

    #[test]
    fn what_is_kept_are_whole_blocks_whatever_the_unit() {
        // Blocks 2 and 3 of the object are its bytes 8192 to 16383: those from 4096 to 8191 of each chunk.
        let modified = IntervalSet::of(2 * UNIT, 2 * UNIT);
        let kept = |unit, size| of_unit(unit).kept_extents(&modified, 0, size).iter().collect::<Vec<_>>();
        assert_eq!(kept(1024, 64 * UNIT), [(UNIT, UNIT)]);
        assert_eq!(kept(1024, 9 * 1024), [(UNIT, UNIT)], "the chunk ends in the middle of the block");
        assert_eq!(kept(16384, 64 * UNIT), [(0, 4 * UNIT)]);
        let small = IntervalSet::of(2 * UNIT, 1);
        assert_eq!(
            of_unit(1024).kept_extents(&small, 1, 64 * UNIT).iter().count(),
            0,
            "in the unit of shard 0"
        );
    }

    #[test]
    fn shards_that_stay_as_they_are_are_not_written() {
        let object = HObject::head(1, "".into(), "".into(), "a".into());
        let mut entry =
            own_entry(LogKind::Modify, object.clone(), (Eversion::new(1, 2), Eversion::ZERO), 1, UTime::ZERO);
        let length = usize::try_from(4 * UNIT).expect("small");
        let data: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).expect("small")).collect();
        let write =
            || vec![Op::Write { object: object.clone(), offset: 8 * UNIT, data: data.clone().into() }];
        let whole = coding().encode_shards(write(), std::slice::from_ref(&entry), &ChunkMapping::default());
        entry.modified = Some(IntervalSet::of(10 * UNIT, UNIT));
        let part = coding().encode_shards(write(), std::slice::from_ref(&entry), &ChunkMapping::default());
        let places = |ops: &[Op]| -> Vec<(u64, u64)> {
            let place = |op: &Op| match op {
                Op::Write { offset, data, .. } => (offset / UNIT, data.len() as u64 / UNIT),
                _ => unreachable!("writes only"),
            };
            ops.iter().map(place).collect()
        };
        assert!(whole.iter().all(|ops| places(ops) == [(4, 2)]));
        assert_eq!(
            part.iter().map(|ops| places(ops)).collect::<Vec<_>>(),
            [vec![(5, 1)], vec![], vec![(5, 1)], vec![(5, 1)]]
        );
        for (whole, part) in whole.iter().zip(&part) {
            if let ([Op::Write { data: whole, .. }], [Op::Write { data: part, .. }]) = (&whole[..], &part[..])
            {
                assert_eq!(whole.slice(4096, 4096).to_bytes(), part.to_bytes());
            }
        }
    }
}
