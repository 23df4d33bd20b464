//! Operations that change data or existence.

use super::WatchChange;
use super::execution::{Execution, OpReturn, check_range};
use nacre_buf::{BufList, Bytes};
use nacre_msg::SubOp;
use nacre_msg::osd_op::{AllocHint, Extent, code, op_flag};
use nacre_types::Errno;

/// A pattern is written out as slices of about this many bytes, so that a pattern of one byte does not
/// become millions of slices.
const PATTERN_BYTES: usize = 64 << 10;

impl Execution<'_, '_> {
    pub(super) fn write_op(&mut self, op: &SubOp) -> OpReturn {
        self.counters.writes += 1;
        match op.code {
            code::WRITE => self.write(op.extent(), &op.indata)?,
            code::APPEND => {
                let extent = Extent { offset: self.pending.info.size, ..op.extent() };
                self.write(extent, &op.indata)?;
            }
            code::WRITEFULL => self.write_full(op.extent(), &op.indata)?,
            code::WRITESAME => self.write_same(op)?,
            code::TRUNCATE => self.truncate(op.extent())?,
            code::TRIMTRUNC => {
                // The size says where; clients leave the offset 0.
                let extent = op.extent();
                self.truncate(Extent { offset: extent.truncate_size, ..extent })?;
            }
            code::ZERO => self.zero(op.extent().offset, op.extent().length)?,
            code::DELETE => self.delete()?,
            code::CREATE => self.create(op)?,
            code::SETALLOCHINT => self.set_alloc_hint(op.alloc_hint()),
            _ => return Err(Errno::EOPNOTSUPP.into()),
        }
        Ok(().into())
    }

    /// Without overwrites an erasure-coded object only grows by whole stripes: behind its end, from where a stripe begins.
    fn check_growth(&self, at: u64) -> Result<(), Errno> {
        let fits = |stripe: u32| at >= self.pending.info.size && at.is_multiple_of(u64::from(stripe.max(1)));
        if self.env.pool.stripe_bytes.is_some_and(fits) { Ok(()) } else { self.require_overwrites() }
    }

    /// Without overwrites what an erasure-coded object has stays as it is, until it is replaced as a whole.
    fn require_overwrites(&self) -> Result<(), Errno> {
        let pool = self.env.pool;
        if pool.stripe_bytes.is_none() || pool.overwrites { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    fn count_written(&mut self, length: u64) {
        self.counters.write_bytes += i64::try_from(length).unwrap_or(i64::MAX);
    }

    pub(super) fn write(&mut self, mut extent: Extent, data: &BufList) -> Result<(), Errno> {
        if extent.length != data.len() as u64 {
            return Err(Errno::EINVAL);
        }
        self.check_growth(extent.offset)?;
        self.meet_truncation(&mut extent)?;
        check_range(extent.offset, extent.length)?;
        self.count_written(extent.length);
        let length = usize::try_from(extent.length).map_err(|_| Errno::EFBIG)?;
        let data = if length == data.len() { data.clone() } else { data.slice(0, length) };
        self.pending.write(extent.offset, data);
        Ok(())
    }

    /// Orders a write among the file system's truncations: an older one loses what lies behind the newest
    /// truncation, a newer one cuts the object first.
    fn meet_truncation(&mut self, extent: &mut Extent) -> Result<(), Errno> {
        let info = &mut self.pending.info;
        if extent.truncate_seq < info.truncate_seq {
            let room = info.truncate_size.saturating_sub(extent.offset);
            extent.length = extent.length.min(room);
        } else if extent.truncate_seq > info.truncate_seq {
            info.truncate_seq = extent.truncate_seq;
            info.truncate_size = extent.truncate_size;
            if self.pending.exists && extent.truncate_size != self.pending.info.size {
                check_range(0, extent.truncate_size)?;
                self.require_overwrites()?;
                self.pending.truncate(extent.truncate_size);
            }
        }
        Ok(())
    }

    pub(super) fn write_full(&mut self, extent: Extent, data: &BufList) -> Result<(), Errno> {
        if extent.length != data.len() as u64 {
            return Err(Errno::EINVAL);
        }
        check_range(0, extent.length)?;
        self.count_written(extent.length);
        self.pending.write_full(data.clone());
        Ok(())
    }

    fn write_same(&mut self, op: &SubOp) -> Result<(), Errno> {
        self.require_overwrites()?;
        let args = op.writesame();
        if args.length == 0 {
            return Ok(());
        }
        if args.data_length == 0
            || !args.length.is_multiple_of(args.data_length)
            || args.data_length != op.indata.len() as u64
        {
            return Err(Errno::EINVAL);
        }
        check_range(args.offset, args.length)?;
        let length = usize::try_from(args.length).map_err(|_| Errno::EFBIG)?;
        self.count_written(args.length);
        self.pending.write(args.offset, repeated(&op.indata.to_bytes(), length));
        Ok(())
    }

    pub(super) fn truncate(&mut self, extent: Extent) -> Result<(), Errno> {
        self.require_overwrites()?;
        if !self.pending.exists {
            return Ok(());
        }
        check_range(extent.offset, extent.length)?;
        if extent.truncate_seq != 0 {
            if extent.offset != extent.truncate_size {
                return Err(Errno::EINVAL);
            }
            if extent.truncate_seq <= self.pending.info.truncate_seq {
                return Ok(());
            }
            self.pending.info.truncate_seq = extent.truncate_seq;
            self.pending.info.truncate_size = extent.truncate_size;
        }
        self.pending.truncate(extent.offset);
        Ok(())
    }

    /// Reaching the end, it cuts; a hole at the end would be the same data but a longer object.
    pub(super) fn zero(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        self.require_overwrites()?;
        check_range(offset, length)?;
        let size = self.pending.info.size;
        if !self.pending.exists || length == 0 || offset >= size {
            return Ok(());
        }
        if offset + length >= size {
            self.pending.truncate(offset);
        } else {
            self.pending.zero(offset, length);
        }
        Ok(())
    }

    /// Deletes the object as it is now; its watchers are told.
    pub(super) fn delete(&mut self) -> Result<(), Errno> {
        self.require_object()?;
        for key in self.pending.delete() {
            self.watches.push(WatchChange::Disconnect { key, tell: true });
        }
        Ok(())
    }

    fn create(&mut self, op: &SubOp) -> Result<(), Errno> {
        if self.pending.exists && op.flags & op_flag::EXCL != 0 {
            return Err(Errno::EEXIST);
        }
        self.pending.create();
        Ok(())
    }

    fn set_alloc_hint(&mut self, hint: AllocHint) {
        self.pending.info.hint = hint;
        self.pending.create();
    }
}

/// `length` bytes of `pattern` over and over, as few slices that share memory. `length` is a multiple of the
/// pattern's.
fn repeated(pattern: &Bytes, length: usize) -> BufList {
    let times = (PATTERN_BYTES / pattern.len()).clamp(1, length / pattern.len());
    let block = if times == 1 { pattern.clone() } else { Bytes::from(pattern.repeat(times)) };
    let mut out: BufList = (0..length / block.len()).map(|_| block.clone()).collect();
    out.push(block.slice(..length % block.len()));
    out
}
