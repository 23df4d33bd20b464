//! [`ExtentMap`]: an object's data as shared slices with holes between them.

use nacre_buf::{BufList, Bytes};
use std::collections::BTreeMap;

/// A slice kept of a larger buffer is copied out once it is less than this part of it, so that a few
/// surviving bytes do not hold megabytes.
const KEEP_DIVISOR: usize = 4;
/// What holes read as.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

#[derive(Clone, Debug)]
struct Extent {
    bytes: Bytes,
    /// Length of the buffer that `bytes` keeps alive.
    backing_bytes: usize,
}

impl Extent {
    fn cut(&self, from: usize, to: usize) -> Self {
        let bytes = self.bytes.slice(from..to);
        if bytes.len() * KEEP_DIVISOR < self.backing_bytes {
            let bytes = Bytes::copy_from_slice(&bytes);
            return Self { backing_bytes: bytes.len(), bytes };
        }
        Self { bytes, backing_bytes: self.backing_bytes }
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// Data of one object: disjoint extents by offset, and a length that may end in a hole.
#[derive(Clone, Debug, Default)]
pub struct ExtentMap {
    extents: BTreeMap<u64, Extent>,
    len: u64,
    allocated: u64,
}

impl ExtentMap {
    /// Length in bytes, holes included.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes in extents.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated
    }

    /// Puts `data` at `offset`, lengthening the object as needed.
    pub fn write(&mut self, offset: u64, data: &BufList) {
        self.punch(offset, data.len() as u64);
        let mut at = offset;
        for slice in data.slices() {
            self.allocated += slice.len() as u64;
            self.extents.insert(at, Extent { bytes: slice.clone(), backing_bytes: slice.len() });
            at += slice.len() as u64;
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    /// Makes a range a hole; the length stays.
    pub fn punch(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let touched: Vec<u64> = self
            .extents
            .range(..end)
            .rev()
            .take_while(|(at, extent)| **at + extent.len() > offset)
            .map(|(at, _)| *at)
            .collect();
        for at in touched {
            let Some(extent) = self.extents.remove(&at) else { continue };
            self.allocated -= extent.len();
            if at < offset {
                self.put_back(at, extent.cut(0, to_index(offset - at)));
            }
            if at + extent.len() > end {
                self.put_back(end, extent.cut(to_index(end - at), extent.bytes.len()));
            }
        }
    }

    /// Makes a range, as far as it is within both, what it is in `other`.
    pub fn take_from(&mut self, other: &Self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.len).min(other.len);
        if offset >= end {
            return;
        }
        self.punch(offset, end - offset);
        for (at, bytes) in other.pieces(offset, end) {
            self.allocated += bytes.len() as u64;
            self.extents.insert(at, Extent { backing_bytes: bytes.len(), bytes });
        }
    }

    fn put_back(&mut self, at: u64, extent: Extent) {
        self.allocated += extent.len();
        self.extents.insert(at, extent);
    }

    /// Cuts or extends to `size` bytes; the extension is a hole.
    pub fn truncate(&mut self, size: u64) {
        if size < self.len {
            self.punch(size, self.len - size);
        }
        self.len = size;
    }

    /// Bytes of the range by reference, holes as zeros, cut at the length.
    #[must_use]
    pub fn read(&self, offset: u64, length: u64) -> BufList {
        let end = offset.saturating_add(length).min(self.len);
        let mut out = BufList::new();
        let mut at = offset;
        for (start, piece) in self.pieces(offset, end) {
            push_zeros(&mut out, start - at);
            at = start + piece.len() as u64;
            out.push(piece);
        }
        push_zeros(&mut out, end.saturating_sub(at));
        out
    }

    /// `(offset, length)` of the allocated parts of the range, neighbours merged.
    #[must_use]
    pub fn allocated(&self, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (start, piece) in self.pieces(offset, offset.saturating_add(length).min(self.len)) {
            match out.last_mut() {
                Some((from, span)) if *from + *span == start => *span += piece.len() as u64,
                _ => out.push((start, piece.len() as u64)),
            }
        }
        out
    }

    /// The parts of extents that lie in `[offset, end)`, ascending.
    fn pieces(&self, offset: u64, end: u64) -> impl Iterator<Item = (u64, Bytes)> + '_ {
        let first = self.extents.range(..=offset).next_back().map_or(offset, |(at, _)| *at);
        self.extents.range(first..end.max(first)).filter_map(move |(at, extent)| {
            let (from, to) = ((*at).max(offset), (*at + extent.len()).min(end));
            (from < to).then(|| (from, extent.bytes.slice(to_index(from - at)..to_index(to - at))))
        })
    }

    /// Asserts that extents are disjoint, within the length, and counted right.
    ///
    /// # Panics
    /// When they are not: our own mistake.
    pub fn check(&self) {
        let mut end = 0;
        for (at, extent) in &self.extents {
            assert!(*at >= end && !extent.bytes.is_empty(), "extents overlap or are empty at {at}");
            end = at + extent.len();
        }
        assert!(end <= self.len, "an extent ends at {end}, behind the object's {} bytes", self.len);
        assert_eq!(self.allocated, self.extents.values().map(Extent::len).sum::<u64>());
    }
}

/// Offsets within one in-memory slice fit a usize by construction.
fn to_index(within_slice: u64) -> usize {
    usize::try_from(within_slice).expect("an offset within a slice in memory")
}

fn push_zeros(out: &mut BufList, mut count: u64) {
    while count > 0 {
        let take = to_index(count.min(ZEROS.len() as u64));
        out.push(Bytes::from_static(&ZEROS[..take]));
        count -= take as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(parts: &[(u64, &'static str)]) -> ExtentMap {
        let mut map = ExtentMap::default();
        for (offset, text) in parts {
            map.write(*offset, &Bytes::from_static(text.as_bytes()).into());
            map.check();
        }
        map
    }

    #[test]
    fn overwrites_cut_what_they_touch() {
        let map = written(&[(0, "aaaaaaaa"), (2, "bb"), (7, "cc")]);
        assert_eq!(&map.read(0, 100).to_bytes()[..], b"aabbaaacc");
        assert_eq!(map.allocated(0, 100), [(0, 9)]);
    }

    #[test]
    fn holes_read_as_zeros_and_are_not_allocated() {
        let mut map = written(&[(4, "xy")]);
        assert_eq!(&map.read(3, 3).to_bytes()[..], b"\0xy");
        map.truncate(10);
        map.punch(5, 100);
        map.check();
        assert_eq!(map.len(), 10);
        assert_eq!(map.allocated(0, 10), [(4, 1)]);
        assert_eq!(&map.read(4, 100).to_bytes()[..], b"x\0\0\0\0\0");
        assert!(map.read(10, 5).is_empty());
    }
}
