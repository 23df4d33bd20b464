//! Operations that read data and facts of an object.

use super::checksum::{Kind, checksums};
use super::execution::{Done, Execution, OpReturn, Stop};
use super::{Change, OpResult, Outcome, Request};
use crate::object::{ObjectContext, ObjectInfo};
use nacre_buf::{BufList, Bytes};
use nacre_denc::{Reader, Writer};
use nacre_msg::SubOp;
use nacre_msg::osd_op::{Extent, checksum_kind, code};
use nacre_msg::peer::Counters;
use nacre_txn::{ObjectView, ReadError};
use nacre_types::{Errno, HObject, SnapId, SpgId};

/// `cmpext` reports the first difference as a negative number below every errno (Linux `MAX_ERRNO`).
const ERRNO_MAX: i32 = 4095;

/// What is left of a message that reads a range of a head, and does nothing else, once its data has come: nothing of it is to be found
/// out again while no change of the object has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainRead {
    offset: u64,
    length: u64,
    user_version: u64,
    /// The data, where the store gave it to nobody else.
    data: Option<BufList>,
}

impl PlainRead {
    /// `None` for any other message.
    #[must_use]
    pub fn of(request: &Request<'_>, context: &ObjectContext) -> Option<Self> {
        let [op] = request.op.ops.as_slice() else { return None };
        let is_plain = matches!(op.code, code::READ | code::SYNC_READ)
            && request.op.snap == SnapId::HEAD
            && !request.intent.may_write()
            && context.is_visible();
        let (offset, length) = clip(&context.info, op.extent());
        is_plain.then_some(Self { offset, length, user_version: context.info.user_version, data: None })
    }

    /// Takes the data: the view need not have it. It stays what the message saw, however long its turn takes to come: who changes
    /// the object meanwhile comes behind it.
    pub fn bring(&mut self, data: BufList) {
        self.data = Some(data);
    }

    /// What the message comes to.
    ///
    /// # Errors
    /// [`ReadError`] when the data is not there any more, or damaged: the message is to be executed then.
    pub fn finish(
        self,
        view: &dyn ObjectView,
        collection: &SpgId,
        head: &HObject,
    ) -> Result<Outcome, ReadError> {
        let out = match self.data {
            Some(data) => data,
            None => view.read(collection, head, self.offset, self.length)?,
        };
        let read_bytes = i64::try_from(out.len()).unwrap_or(i64::MAX);
        Ok(Outcome {
            result: 0,
            ops: vec![OpResult { rval: 0, out }],
            user_version: self.user_version,
            change: Change::None,
            watches: Vec::new(),
            notifies: Vec::new(),
            acks: Vec::new(),
            counters: Counters { reads: 1, read_bytes, ..Counters::default() },
        })
    }
}

/// The range that a read gets: cut at the object's end, or where the file system cut it before the object heard of it.
fn clip(info: &ObjectInfo, extent: Extent) -> (u64, u64) {
    let mut size = info.size;
    let end = extent.offset.saturating_add(extent.length);
    if info.truncate_seq < extent.truncate_seq && end > extent.truncate_size {
        size = size.min(extent.truncate_size);
    }
    let length = if extent.length == 0 { size } else { extent.length };
    (extent.offset, length.min(size.saturating_sub(extent.offset)))
}

impl Execution<'_, '_> {
    pub(super) fn read_op(&mut self, op: &SubOp) -> OpReturn {
        match op.code {
            code::READ | code::SYNC_READ => self.read(op.extent()).map(Done::from),
            code::SPARSE_READ => self.sparse_read(op.extent()),
            code::MAPEXT => self.map_extents(op.extent()),
            code::STAT => self.stat(),
            code::CHECKSUM => self.checksum(op),
            code::CMPEXT => self.compare_extent(op),
            code::ASSERT_VER => self.assert_version(op.assert_ver()),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    pub(super) fn clip(&self, extent: Extent) -> (u64, u64) {
        clip(&self.pending.info, extent)
    }

    /// Data as it was before the message, in a range cut by the size that the object has now.
    pub(super) fn peek(&self, extent: Extent) -> Result<BufList, Stop> {
        let (offset, length) = self.clip(extent);
        if length == 0 {
            return Ok(BufList::new());
        }
        self.require_base()?;
        Ok(self.env.view.read(&self.env.collection, self.target, offset, length)?)
    }

    /// As [`Execution::peek`], for the answer.
    fn read(&mut self, extent: Extent) -> Result<BufList, Stop> {
        self.budget.reply(self.clip(extent).1)?;
        let data = self.peek(extent)?;
        self.count_read(data.len());
        Ok(data)
    }

    /// As [`Execution::peek`], to be looked at byte by byte.
    fn read_through(&mut self, extent: Extent) -> Result<BufList, Stop> {
        self.budget.spend(self.clip(extent).1)?;
        let data = self.peek(extent)?;
        self.count_read(data.len());
        Ok(data)
    }

    fn count_read(&mut self, length: usize) {
        self.counters.reads += 1;
        self.counters.read_bytes += i64::try_from(length).unwrap_or(i64::MAX);
    }

    fn extents(&self, extent: Extent) -> Result<Vec<(u64, u64)>, Errno> {
        self.require_base()?;
        Ok(self.env.view.extents(&self.env.collection, self.target, extent.offset, extent.length))
    }

    fn map_extents(&mut self, extent: Extent) -> OpReturn {
        let mut w = Writer::new();
        w.put(&self.extents(extent)?);
        Ok(w.finish().into())
    }

    /// Answers `map<offset, length>` and the data of those extents.
    fn sparse_read(&mut self, extent: Extent) -> OpReturn {
        let (mut found, mut data) = (Vec::new(), BufList::new());
        for (offset, length) in self.extents(extent)? {
            self.budget.reply(length)?;
            let part = self.env.view.read(&self.env.collection, self.target, offset, length)?;
            if !part.is_empty() {
                found.push((offset, part.len() as u64));
                data.append(part);
            }
        }
        self.count_read(data.len());
        let mut w = Writer::new();
        w.put(&found);
        w.count(data.len());
        let mut out = BufList::from(w.finish());
        out.append(data);
        Ok(out.into())
    }

    fn stat(&mut self) -> OpReturn {
        self.require_object()?;
        self.counters.reads += 1;
        let mut w = Writer::with_capacity(16);
        w.u64(self.pending.info.size);
        w.put(&self.pending.info.mtime);
        Ok(w.finish().into())
    }

    fn checksum(&mut self, op: &SubOp) -> OpReturn {
        let args = op.checksum();
        let mut seed = Reader::new(op.indata.to_bytes());
        let kind = match args.kind {
            checksum_kind::XXHASH32 => Kind::Xxhash32(seed.u32()?),
            checksum_kind::XXHASH64 => Kind::Xxhash64(seed.u64()?),
            checksum_kind::CRC32C => Kind::Crc32c(seed.u32()?),
            _ => return Err(Errno::EINVAL.into()),
        };
        if args.chunk_size > 0 && args.length == 0 {
            return Err(Errno::EINVAL.into());
        }
        let extent = Extent { offset: args.offset, length: args.length, ..Extent::default() };
        let data = self.read_through(extent)?;
        // What is left behind the object's end must be whole chunks too.
        if args.chunk_size > 0 && data.len() % args.chunk_size as usize != 0 {
            return Err(Errno::EINVAL.into());
        }
        Ok(checksums(kind, &data, args.chunk_size as usize).into())
    }

    /// Compares data with the input; what is missing counts as zeros.
    fn compare_extent(&mut self, op: &SubOp) -> OpReturn {
        let data = if self.base.is_visible() { self.read_through(op.extent())? } else { BufList::new() };
        let Some(at) = difference(&op.indata, &data) else { return Ok(Done::default()) };
        let place = i32::try_from(at).unwrap_or(i32::MAX - ERRNO_MAX);
        Err(Stop::Fail(-ERRNO_MAX - place, Bytes::new()))
    }

    fn assert_version(&mut self, want: u64) -> OpReturn {
        match want.cmp(&self.pending.info.user_version) {
            _ if want == 0 => Err(Errno::EINVAL.into()),
            std::cmp::Ordering::Less => Err(Errno::ERANGE.into()),
            std::cmp::Ordering::Equal => Ok(Done::default()),
            std::cmp::Ordering::Greater => Err(Errno::EOVERFLOW.into()),
        }
    }
}

/// What is compared with where there is no data.
static ZEROS: [u8; COMPARED_BYTES_MAX] = [0; COMPARED_BYTES_MAX];
/// Bytes compared at once: as much as stays in the processor's first cache, should they differ.
const COMPARED_BYTES_MAX: usize = 4096;

/// The first byte of `want` that `found` does not have there; behind its end it has zeros. Slice by slice: byte by byte, 90 MiB took the
/// thread 120 to 170 ms.
fn difference(want: &BufList, found: &BufList) -> Option<usize> {
    let (mut at, mut found, mut have) = (0, found.slices().iter(), &ZEROS[..0]);
    for want in want.slices() {
        let mut want = &want[..];
        while !want.is_empty() {
            while have.is_empty() {
                have = found.next().map_or(&ZEROS, |slice| &slice[..]);
            }
            let count = want.len().min(have.len()).min(COMPARED_BYTES_MAX);
            let (ours, theirs) = (&want[..count], &have[..count]);
            if ours != theirs {
                let same = ours.iter().zip(theirs).take_while(|(ours, theirs)| ours == theirs);
                return Some(at + same.count());
            }
            (want, have, at) = (&want[count..], &have[count..], at + count);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_buf::Bytes;

    /// In slices of the given lengths, one after the other.
    fn cut(data: &[u8], lengths: &[usize]) -> BufList {
        let (mut out, mut rest) = (BufList::new(), data);
        for length in lengths.iter().cycle() {
            let (slice, behind) = rest.split_at((*length).min(rest.len()));
            out.push(Bytes::copy_from_slice(slice));
            rest = behind;
            if rest.is_empty() {
                return out;
            }
        }
        out
    }

    #[test]
    fn the_first_difference_is_found_however_the_data_is_cut() {
        let data: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
        for lengths in [&[20_000][..], &[1, 4095, 4096, 4097], &[7, 0, 9000]] {
            let found = cut(&data, lengths);
            assert_eq!(difference(&cut(&data, &[5000]), &found), None);
            assert_eq!(difference(&cut(&data[..9], &[4]), &found), None, "no more than is asked for");
            for at in [0, 1, 4095, 4096, 8191, 19_999] {
                let mut want = data.clone();
                want[at] ^= 0x80;
                assert_eq!(difference(&cut(&want, &[3000]), &found), Some(at));
            }
            // Zeros follow.
            let mut want = [&data[..], &[0; 10_000]].concat();
            assert_eq!(difference(&cut(&want, &[6000]), &found), None);
            want[25_000] = 1;
            assert_eq!(difference(&cut(&want, &[6000]), &found), Some(25_000));
        }
        assert_eq!(difference(&BufList::new(), &BufList::new()), None);
    }
}
