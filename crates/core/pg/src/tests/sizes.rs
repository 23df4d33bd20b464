//! What a client may ask for, every later step carries: writes to replicas, recovery, copies.

use crate::harness::{World, head};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::Encode;
use nacre_msg::SubOp;
use nacre_msg::osd_op::code;
use nacre_msg::size::PART_BYTES_MAX;
use nacre_types::ObjectLocator;

pub(super) fn omap_set(keys: std::ops::Range<usize>, value_bytes: usize) -> SubOp {
    let value = Bytes::from(vec![7; value_bytes]);
    let entries: Vec<(ByteStr, Bytes)> =
        keys.map(|key| (format!("{key:08}").as_str().into(), value.clone())).collect();
    SubOp::new(code::OMAPSETVALS).with_indata(entries.to_bytes().into())
}

fn set_attr(name: &str, bytes: usize) -> SubOp {
    SubOp::with_xattr(code::SETXATTR, name.as_bytes(), &vec![3; bytes], 0, 0)
}

pub(super) fn copy_of(name: &str) -> SubOp {
    SubOp::copy_of(name, &ObjectLocator::in_pool(head(name).pool), 0)
}

#[test]
fn three_hundred_long_omap_values_in_one_message_reach_all_copies() {
    let mut world = World::new(1, 1);
    world.run_until_idle();
    assert_eq!(world.call(0, "a", vec![omap_set(0..300, 64 << 10)]).result, 0);
    assert!(world.longest_message > 300 * (64 << 10));
    world.assert_equal_copies();
}

/// A replica that was away, and a primary that was, get an object whose keys are many times as long as a part.
#[test]
fn keys_and_attributes_are_recovered_in_parts() {
    for away in [1, 0] {
        let mut world = World::new(2, 1);
        world.run_until_idle();
        world.call(0, "a", vec![SubOp::write_full(vec![1; 3000].into())]);
        world.crash(away);
        world.mark_down(away);
        world.run_until_idle();
        for batch in 0..20 {
            let ops =
                vec![omap_set(batch * 3000..(batch + 1) * 3000, 100), set_attr(&format!("{batch}"), 100_000)];
            assert_eq!(world.call(0, "a", ops).result, 0);
        }
        // One value that is longer than a part, and data of several.
        world.call(0, "a", vec![omap_set(900_000..900_001, 3 * PART_BYTES_MAX)]);
        world.call(0, "a", vec![SubOp::write_full(vec![2; 5 * PART_BYTES_MAX / 2].into())]);
        world.longest_message = 0;
        world.heal();
        let longest = world.longest_message;
        assert!(longest > PART_BYTES_MAX && longest < 5 * PART_BYTES_MAX, "a message of {longest} bytes");
        world.assert_equal_copies();
        let stored = world.stored("a").expect("the object");
        assert_eq!((stored.omap.len(), stored.attrs.len()), (60_001, 20));
    }
}

/// The source's keys and data are more than one write may carry: they go to the copy in parts, each short.
#[test]
fn an_object_that_no_write_carries_is_copied_in_parts() {
    let mut world = World::new(3, 1);
    world.run_until_idle();
    for batch in 0..7 {
        let keys = batch * 10..(batch + 1) * 10;
        assert_eq!(world.call(0, "large", vec![omap_set(keys, 2 << 20)]).result, 0);
    }
    let ops = vec![SubOp::write_full(vec![4; 20 << 20].into()), set_attr("name", 100)];
    assert_eq!(world.call(0, "large", ops).result, 0);
    world.longest_message = 0;
    assert_eq!(world.call(0, "copy", vec![copy_of("large")]).result, 0);
    assert!(world.longest_message < 24 << 20, "a message of {} bytes", world.longest_message);
    let (source, copy) = (world.stored("large").expect("it"), world.stored("copy").expect("the copy"));
    assert!(source.omap == copy.omap && source.data == copy.data && source.attrs == copy.attrs);
    world.assert_equal_copies();
}
