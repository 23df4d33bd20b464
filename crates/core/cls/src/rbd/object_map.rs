//! Object maps: which objects of an image exist, so that librbd need not ask for those that do not.

use super::bit_vector::{BitVector, Blocks, COUNT_MAX, EXISTS, EXISTS_CLEAN};
use crate::keys::input;
use crate::method::{done, fail};
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

fn write_map(cx: &mut dyn ClassCx, map: BitVector) -> MethodResult {
    cx.write_full(map.into_disk());
    done()
}

pub(super) fn load(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    Ok(read_map(cx)?.to_bytes())
}

pub(super) fn save(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let map: BitVector = input(bytes)?;
    write_map(cx, map)
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
    if count < map.len() && !map.all_from(count, fill) {
        return fail(Errno::ESTALE);
    }
    map.resize(count, fill);
    write_map(cx, map)
}

pub(super) fn update(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (start, end, state) = (r.u64()?, r.u64()?, r.u8()?);
    let expected: Option<u8> = r.get()?;
    if cx.exists() && cx.size() == 0 {
        return fail(Errno::EINVAL);
    }
    if cx.size() == 0 {
        return fail(Errno::ENOENT);
    }
    let mut blocks = Blocks::read(cx, start, end)?;
    let matches = |found: u8| match expected {
        None => true,
        Some(EXISTS) => found == EXISTS || found == EXISTS_CLEAN,
        Some(expected) => found == expected,
    };
    if blocks.change(start, end, |found| if matches(found) { state & 3 } else { found }) {
        blocks.write(cx);
    }
    done()
}

/// A snapshot was taken: what exists is clean from now on.
pub(super) fn snap_add(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let mut map = read_map(cx)?;
    let count = map.len();
    map.change(0, count, |found| if found == EXISTS { EXISTS_CLEAN } else { found });
    write_map(cx, map)
}

/// A snapshot goes: objects that changed just before it are changed relative to the snapshot before it.
pub(super) fn snap_remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let removed: BitVector = input(bytes)?;
    let mut map = read_map(cx)?;
    map.unclean(&removed);
    write_map(cx, map)
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

    /// What is written of a map is what would be, had all of it been written.
    #[test]
    fn an_update_of_few_entries_leaves_a_sound_map() {
        let count = 50_000; // four blocks, the last one not whole
        let mut object = resized(count);
        let mut expected = BitVector::new();
        expected.resize(count, 0);
        let block = 16_384;
        for (start, end) in [(0, 1), (block - 1, block + 1), (3 * block - 5, count), (7, 3 * block)] {
            updated(&mut object, start, end, EXISTS, Some(0)).expect("updated");
            expected.change(start, end, |state| if state == 0 { EXISTS } else { state });
            assert_eq!(object.data(), &expected.clone().into_disk().to_bytes()[..], "after {start} to {end}");
        }
        assert_eq!(updated(&mut object, count - 1, count + 1, 1, None), Err(Errno::ERANGE));
        assert_eq!(updated(&mut object, 5, 5, 1, None), Err(Errno::ERANGE));
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
