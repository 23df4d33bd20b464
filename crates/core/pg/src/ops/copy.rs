//! The operation `copy-from`, in two runs of its message: the first stops with [`Suspend::Copy`], the PG fetches the source, and the
//! second finds it as [`super::Copied`] and applies it.

use super::copied::{CopiedObject, CopySource};
use super::execution::{Done, Execution, OpReturn, Stop, check_range};
use super::outcome::Suspend;
use nacre_buf::ByteStr;
use nacre_denc::Reader;
use nacre_msg::SubOp;
use nacre_msg::osd_op::{code, copy_from_flag};
use nacre_types::{Errno, HObject, ObjectLocator};

/// All flags of `copy-from` that exist.
const FLAGS: u8 = copy_from_flag::FLUSH
    | copy_from_flag::IGNORE_OVERLAY
    | copy_from_flag::IGNORE_CACHE
    | copy_from_flag::MAP_SNAP_CLONE
    | copy_from_flag::RWORDERED
    | copy_from_flag::TRUNCATE_SEQ;

struct CopyArgs {
    source: CopySource,
    /// Truncation that the client gives the copy; else it keeps the source's.
    truncation: Option<(u32, u64)>,
}

fn read_args(op: &SubOp) -> Result<CopyArgs, Stop> {
    let args = op.copy_from();
    let extended = op.code == code::COPY_FROM2;
    if extended && args.flags & !FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut r = Reader::new(op.indata.to_bytes());
    let (name, locator): (ByteStr, ObjectLocator) = (r.get()?, r.get()?);
    let truncated = extended && args.flags & copy_from_flag::TRUNCATE_SEQ != 0;
    let truncation = if truncated { Some((r.u32()?, r.u64()?)) } else { None };
    let object =
        HObject::head(locator.pool, locator.namespace, locator.key, name).with_snap(args.source_snap);
    Ok(CopyArgs { source: CopySource { object, version: args.source_version }, truncation })
}

/// What a `copy-from` reads, before it is executed.
///
/// # Errors
/// `EINVAL` when it is malformed.
pub(super) fn copy_source(op: &SubOp) -> Result<HObject, Errno> {
    read_args(op).map(|args| args.source.object).map_err(|_| Errno::EINVAL)
}

impl Execution<'_, '_> {
    pub(super) fn copy_from(&mut self, op_index: usize, op: &SubOp) -> OpReturn {
        let CopyArgs { source, truncation } = read_args(op)?;
        if source.object == *self.request.head {
            return Err(Errno::EINVAL.into());
        }
        let copied = self.request.copied.iter().find(|copied| copied.op_index == op_index);
        let Some(copied) = copied else {
            return Err(Stop::Wait(Suspend::Copy { op_index, source: Box::new(source) }));
        };
        let object = copied.result.as_ref().map_err(|errno| *errno)?;
        match source.version.cmp(&object.user_version) {
            _ if source.version == 0 => {}
            std::cmp::Ordering::Less => return Err(Errno::ERANGE.into()),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => return Err(Errno::EOVERFLOW.into()),
        }
        check_range(0, object.size)?;
        self.counters.writes += 1;
        self.apply_copy(object, truncation)?;
        Ok(Done::default())
    }

    fn apply_copy(&mut self, object: &CopiedObject, truncation: Option<(u32, u64)>) -> Result<(), Errno> {
        if object.has_omap() {
            self.require_omap()?;
        }
        let coded = self.env.pool.stripe_bytes.is_some();
        let pending = &mut self.pending;
        pending.replace();
        if let Some(staged) = &object.staged {
            pending.take_staged(&staged.object, object.size, staged.has_omap);
        }
        if coded {
            pending.write_full(object.whole_data());
        } else {
            object.data.iter().for_each(|(offset, data)| pending.write(*offset, data.clone()));
        }
        if pending.info.size != object.size {
            pending.truncate(object.size);
        }
        object.attrs.iter().for_each(|(name, value)| pending.set_attr(name.clone(), value.clone()));
        if !object.omap_header.is_empty() {
            pending.omap_set_header(object.omap_header.clone());
        }
        if !object.omap.is_empty() {
            pending.omap_set(object.omap.clone());
        }
        (pending.info.truncate_seq, pending.info.truncate_size) =
            truncation.unwrap_or((object.truncate_seq, object.truncate_size));
        pending.info.user_version = object.user_version;
        pending.mtime = Some(object.mtime);
        Ok(())
    }
}
