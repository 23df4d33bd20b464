//! Payloads on their way to the stores keep what is known of them: nobody sums them again.

use crate::harness::World;
use nacre_buf::{BufList, Bytes};
use nacre_msg::SubOp;
use std::collections::BTreeMap;

const BLOCK: usize = 4096;

/// As the messenger hands it on.
fn known(blocks: usize) -> BufList {
    let bytes: Bytes = (0..blocks * BLOCK).map(|at| (at * 7 + at / 300).to_le_bytes()[0]).collect();
    let data = BufList::from(bytes);
    let crcs = data.block_crcs();
    data.with_block_crcs(crcs)
}

/// The checksums of the blocks, as far as they are known.
fn known_crcs(data: &BufList) -> Vec<Option<u32>> {
    (0..data.len() / BLOCK).map(|nth| data.slice(nth * BLOCK, BLOCK).known_crc()).collect()
}

#[test]
fn every_copy_gets_the_checksums_that_came_with_a_write() {
    for blocks in [1, 2, 16, 1024] {
        let data = known(blocks);
        let expected = known_crcs(&data);
        assert!(expected.iter().all(Option::is_some) && data.known_crc().is_some());
        for op in [SubOp::write(8 * BLOCK as u64, data.clone()), SubOp::write_full(data.clone())] {
            let mut world = World::new(blocks as u64, 1);
            world.run_until_idle();
            world.request(0, "a", vec![op]);
            let mut arrived = BTreeMap::new();
            while world.step() {
                for osd in 0..3 {
                    let found =
                        world.disk(osd).pending_data().map(|data| (data.known_crc(), known_crcs(data)));
                    arrived.extend(found.map(|found| (osd, found)));
                }
            }
            let whole = (data.known_crc(), expected.clone());
            let all: Vec<_> = arrived.into_iter().collect();
            assert!(all == [0, 1, 2].map(|osd| (osd, whole.clone())), "{blocks} blocks");
        }
    }
}
