//! Data objects: copying up from a parent, and freeing zeros.

use crate::method::{done, fail};
use crate::{ClassCx, MethodResult};
use nacre_buf::Bytes;
use nacre_denc::Reader;
use nacre_types::Errno;
use std::collections::BTreeMap;

/// Extents of one `sparse_copyup`: each block of 2 KiB of the largest object one of its own.
const EXTENTS_MAX: u32 = 64 << 10;
/// `sparsify` looks at a whole object at once; images have none larger.
const OBJECT_BYTES_MAX: u64 = 128 << 20;

pub(super) fn copyup(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    // Another client was faster: what is there now is newer than the parent.
    if !cx.exists() {
        cx.create();
        cx.write(0, bytes.into());
    }
    done()
}

pub(super) fn sparse_copyup(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    if r.clone().u32()? > EXTENTS_MAX {
        return fail(Errno::E2BIG);
    }
    let extents: BTreeMap<u64, u64> = r.get()?;
    let mut data = Reader::new(r.blob()?);
    if cx.exists() {
        return done();
    }
    cx.create();
    for (offset, length) in extents {
        let Ok(length) = usize::try_from(length) else { return fail(Errno::EINVAL) };
        cx.write(offset, data.take(length)?.into());
    }
    done()
}

pub(super) fn sparsify(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (granule, remove_if_empty) = (r.u64()?, r.bool()?);
    if !cx.exists() {
        return fail(Errno::ENOENT);
    }
    let size = cx.size();
    let Some(step) = usize::try_from(granule).ok().filter(|step| *step > 0 && size <= OBJECT_BYTES_MAX)
    else {
        return fail(Errno::EINVAL);
    };
    let data = cx.read(0, size)?;
    let zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    if zero(&data) {
        if remove_if_empty {
            cx.remove();
        } else {
            cx.truncate(0);
        }
        return done();
    }
    let mut kept_end = 0;
    for (index, block) in data.chunks(step).enumerate() {
        let offset = index as u64 * granule;
        if zero(block) {
            cx.zero(offset, block.len() as u64);
        } else {
            kept_end = offset + block.len() as u64;
        }
    }
    if kept_end < size {
        cx.truncate(kept_end);
    }
    done()
}

/// 0: the given sequence must be above the object's; 1: it must not be. Guards deep copies against a
/// snapshot that came in between.
pub(super) fn assert_snapc_seq(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (given, state) = (r.u64()?, r.u8()?);
    let above = !cx.exists() || given > cx.snap_seq().0;
    match (state, above) {
        (0, true) | (1, false) => done(),
        (0 | 1, _) => fail(Errno::ERANGE),
        _ => fail(Errno::EOPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestObject;
    use nacre_denc::{Encode, Writer};

    #[test]
    fn copyup_never_overwrites() {
        let mut object = TestObject::default();
        object.call("rbd", "copyup", Bytes::from_static(b"parent")).expect("copied");
        object.call("rbd", "copyup", Bytes::from_static(b"again!")).expect("ignored");
        assert_eq!(object.data(), b"parent");
    }

    #[test]
    fn sparse_copyup_places_extents_and_creates_even_without() {
        let mut object = TestObject::default();
        let mut w = Writer::new();
        w.put(&BTreeMap::from([(2_u64, 2_u64), (6, 1)]));
        w.blob(b"abc");
        object.call("rbd", "sparse_copyup", w.finish()).expect("copied");
        assert_eq!(object.data(), b"\0\0ab\0\0c");
        let mut object = TestObject::default();
        object.call("rbd", "sparse_copyup", (0_u32, 0_u32).to_bytes()).expect("created");
        assert!(object.call("rbd", "sparsify", (2_u64, false).to_bytes()).is_ok(), "the object is there");
    }

    #[test]
    fn sparsify_frees_zeros() {
        let mut object = TestObject::default();
        object.call("rbd", "copyup", Bytes::from_static(b"ab\0\0cd\0\0\0")).expect("written");
        object.call("rbd", "sparsify", (2_u64, true).to_bytes()).expect("sparsified");
        assert_eq!(object.data(), b"ab\0\0cd");
        let mut object = TestObject::default();
        object.call("rbd", "copyup", Bytes::from_static(&[0; 9])).expect("written");
        object.call("rbd", "sparsify", (2_u64, true).to_bytes()).expect("removed");
        assert_eq!(object.call("rbd", "get_id", Bytes::new()), Err(Errno::ENOENT));
    }
}
