//! Object maps: which objects of an image exist, so that librbd need not ask for those that do not.

use super::bit_vector::{BitVector, COUNT_MAX, EXISTS, EXISTS_CLEAN};
use crate::keys::input;
use crate::table::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::Bytes;
use nacre_denc::{Encode, Reader};
use nacre_types::Errno;

fn read_map(cx: &dyn ClassCx) -> Result<BitVector, Fault> {
    if cx.size() == 0 {
        return fail(Errno::ENOENT);
    }
    BitVector::from_disk(cx.read(0, cx.size())?)
}

fn write_map(cx: &mut dyn ClassCx, map: &BitVector) -> MethodResult {
    cx.write_full(map.to_disk().into());
    done()
}

pub(super) fn load(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    Ok(read_map(cx)?.to_bytes())
}

pub(super) fn save(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let map: BitVector = input(bytes)?;
    write_map(cx, &map)
}

pub(super) fn resize(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (count, fill): (u64, u8) = input(bytes)?;
    if count > COUNT_MAX {
        return fail(Errno::EINVAL);
    }
    let mut map = match read_map(cx) {
        Err(Fault::Errno(Errno::ENOENT)) => BitVector::new(),
        found => found?,
    };
    if (count..map.len()).any(|index| map.state(index) != fill) {
        return fail(Errno::ESTALE);
    }
    map.resize(count, fill);
    write_map(cx, &map)
}

pub(super) fn update(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (start, end, state) = (r.u64()?, r.u64()?, r.u8()?);
    let expected: Option<u8> = r.get()?;
    if cx.exists() && cx.size() == 0 {
        return fail(Errno::EINVAL);
    }
    let mut map = read_map(cx)?;
    if start >= end || end > map.len() {
        return fail(Errno::ERANGE);
    }
    let matches = |found: u8| match expected {
        None => true,
        Some(EXISTS) => found == EXISTS || found == EXISTS_CLEAN,
        Some(expected) => found == expected,
    };
    let mut changed = false;
    for index in start..end {
        let found = map.state(index);
        if found != state && matches(found) {
            map.set_state(index, state);
            changed = true;
        }
    }
    if changed { write_map(cx, &map) } else { done() }
}

/// A snapshot was taken: what exists is clean from now on.
pub(super) fn snap_add(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let mut map = read_map(cx)?;
    for index in 0..map.len() {
        if map.state(index) == EXISTS {
            map.set_state(index, EXISTS_CLEAN);
        }
    }
    write_map(cx, &map)
}

/// A snapshot goes: objects that changed just before it are changed relative to the snapshot before it.
pub(super) fn snap_remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let removed: BitVector = input(bytes)?;
    let mut map = read_map(cx)?;
    for index in 0..map.len() {
        let changed_before = index >= removed.len() || removed.state(index) == EXISTS;
        if map.state(index) == EXISTS_CLEAN && changed_before {
            map.set_state(index, EXISTS);
        }
    }
    write_map(cx, &map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestObject;

    fn resized(count: u64) -> TestObject {
        let mut object = TestObject::default();
        object.call("rbd", "object_map_resize", (count, 0_u8).to_bytes()).expect("resized");
        object
    }

    fn updated(
        object: &mut TestObject,
        start: u64,
        end: u64,
        state: u8,
        expected: Option<u8>,
    ) -> Result<Bytes, Errno> {
        object.call("rbd", "object_map_update", ((start, end), (state, expected)).to_bytes())
    }

    #[test]
    fn update_respects_what_is_expected() {
        let mut object = resized(10);
        assert!(updated(&mut object, 9, 10, EXISTS, None).is_ok());
        assert!(updated(&mut object, 0, 10, EXISTS_CLEAN, Some(EXISTS)).is_ok());
        assert!(updated(&mut object, 0, 10, 2, Some(EXISTS)).is_ok(), "1 also matches 3");
        assert_eq!(updated(&mut object, 0, 11, 1, None), Err(Errno::ERANGE));
        let map = BitVector::from_disk(Bytes::copy_from_slice(object.data())).expect("a map");
        assert_eq!((map.state(0), map.state(9)), (0, 2));
    }

    #[test]
    fn shrinking_over_objects_that_exist_is_refused() {
        let mut object = resized(10);
        updated(&mut object, 8, 9, EXISTS, None).expect("updated");
        assert_eq!(object.call("rbd", "object_map_resize", (8_u64, 0_u8).to_bytes()), Err(Errno::ESTALE));
        assert!(object.call("rbd", "object_map_resize", (9_u64, 0_u8).to_bytes()).is_ok());
        assert_eq!(TestObject::default().call("rbd", "object_map_load", Bytes::new()), Err(Errno::ENOENT));
    }

    #[test]
    fn snapshots_move_states() {
        let mut object = resized(3);
        updated(&mut object, 0, 2, EXISTS, None).expect("updated");
        object.call("rbd", "object_map_snap_add", Bytes::new()).expect("added");
        let snapshot = object.call("rbd", "object_map_load", Bytes::new()).expect("loaded");
        assert!(snapshot.ends_with(&[0b1111_0000, 0, 0, 0, 0]));
        let mut before: BitVector = input(snapshot).expect("a map");
        before.set_state(0, EXISTS);
        object.call("rbd", "object_map_snap_remove", before.to_bytes()).expect("removed");
        let map = object.call("rbd", "object_map_load", Bytes::new()).expect("loaded");
        assert!(map.ends_with(&[0b0111_0000, 0, 0, 0, 0]));
    }
}
