//! Pools that compress, at the limits: what one turn and one step of a checkpoint decompress, blobs that clones have, and full stores.

use super::model::{Model, Sizes, drain, object, pg, random_txn};
use super::packing::{
    all_of, blocks, checkpoint, compressible, do_all, force, opened, random, with_noise, write,
};
use super::partitions::removal;
use super::rig::{Rig, tiny};
use crate::unpacked::{UNPACKED_PER_TURN, Unpacked};
use crate::{BLOCK, BlockStore, Options, PAGE_BLOCKS};
use nacre_buf::Bytes;
use nacre_store::{ObjectStore, StoreError};
use nacre_txn::{FetchFrom, Op, StoreToken, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Compression, CompressionAlgorithm, Entropy};

/// Pages of the objects that are read and written here.
const PAGES: usize = 24;
const PAGE_BYTES: usize = PAGE_BLOCKS as usize * BLOCK;

/// A store that has an object of so many blobs, all of whose stored blocks are in the cache, and nothing that was decompressed.
fn with_blobs(rig: &mut Rig, data: &[u8]) -> BlockStore {
    let mut store = opened(rig, force(CompressionAlgorithm::Zstd));
    write(&mut store, 1, 0, data);
    checkpoint(&mut store);
    assert!(all_of(&mut store, &object(1)) == data);
    store.unpacked = Unpacked::default();
    store
}

fn roomy() -> Options {
    Options {
        clean_bytes_max: 64 << 20,
        overlay_bytes_max: 4 << 20,
        changes_bytes_max: 8 << 20,
        ..Options::tiny()
    }
}

/// A shard drains as long as that brings anything, and looks at nothing else meanwhile.
#[test]
fn a_turn_decompresses_few_blobs_however_many_readers_wait() {
    let data = compressible(1, PAGES * PAGE_BLOCKS as usize);
    let mut rig = Rig::new(1, 16 << 20, roomy());
    let mut store = with_blobs(&mut rig, &data);
    drain(&mut store, &mut Vec::new());
    let tokens: Vec<StoreToken> = (0..PAGES as u64).map(StoreToken::without_pg).collect();
    let fetch = |store: &mut BlockStore, page: usize| {
        let (offset, length) = ((page * PAGE_BYTES) as u64, PAGE_BYTES as u64);
        store.fetch(&pg(), &object(1), offset, length, FetchFrom::Anywhere, tokens[page]);
    };
    let before = store.codec.unpacked;
    (0..PAGES).for_each(|page| fetch(&mut store, page));
    assert!(store.codec.unpacked - before <= UNPACKED_PER_TURN, "as they ask");
    let (mut told, mut turns) = (Vec::new(), 0);
    while told.len() < PAGES {
        let before = store.codec.unpacked;
        loop {
            let fetched = drain(&mut store, &mut Vec::new());
            told.extend(fetched.iter().copied());
            if fetched.is_empty() {
                break;
            }
        }
        let unpacked = store.codec.unpacked - before;
        assert!(unpacked <= UNPACKED_PER_TURN, "{unpacked} in turn {turns}");
        turns += 1;
        assert!(turns < 1000, "{} of {PAGES} were served", told.len());
    }
    assert_eq!(told, tokens, "who comes first is served first");
    assert!(turns >= PAGES / UNPACKED_PER_TURN - 1, "{turns}");
}

/// A part of a block here and there: what is around them comes out of a blob each.
#[test]
fn a_step_of_a_checkpoint_decompresses_few_blobs() {
    let mut data = compressible(1, PAGES * PAGE_BLOCKS as usize);
    let mut rig = Rig::new(1, 16 << 20, roomy());
    let mut store = with_blobs(&mut rig, &data);
    let part = |page: usize| {
        let (offset, data) = ((page * PAGE_BYTES + 100) as u64, Bytes::from_static(b"new").into());
        Op::Write { object: object(1), offset, data }
    };
    do_all(&mut store, (0..PAGES).map(part).collect());
    (0..PAGES).for_each(|page| data[page * PAGE_BYTES + 100..][..3].copy_from_slice(b"new"));
    let (begin, mut steps) = (store.codec.unpacked, 0);
    store.start_checkpoint();
    while store.checkpoint.is_some() {
        let before = store.codec.unpacked;
        // With these options a step each.
        drain(&mut store, &mut Vec::new());
        let unpacked = store.codec.unpacked - before;
        assert!(unpacked <= 2, "{unpacked} in one step");
        steps += usize::from(unpacked > 0);
    }
    assert_eq!(store.codec.unpacked - begin, PAGES, "each once");
    assert!(steps >= PAGES / 2, "{steps}");
    assert!(all_of(&mut store, &object(1)) == data);
    checkpoint(&mut store);
}

/// Four blocks that take three.
fn three_quarters(seed: u64) -> Vec<u8> {
    with_noise(seed, 2700)
}

/// A clone keeps it on the device anyway: who leaves it takes room and gives none back.
#[test]
fn a_blob_that_a_clone_has_as_well_is_left_late() {
    let mut rig = Rig::new(1, 16 << 20, Options::tiny());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Zstd));
    let (old, noise) = (three_quarters(3), random(9, 4));
    let mut new = old.clone();
    write(&mut store, 1, 0, &old);
    checkpoint(&mut store);
    assert_eq!(blocks(&store), (3, 4));
    do_all(&mut store, vec![Op::Clone { source: object(1), target: object(2) }]);
    // Alone it would leave the blob with the second one.
    for (block, left) in [(0, (3 + 1, 4 + 3)), (1, (3 + 2, 4 + 2)), (2, (3 + 4, 4))] {
        write(&mut store, 1, block, &noise[block * BLOCK..][..BLOCK]);
        new[block * BLOCK..][..BLOCK].copy_from_slice(&noise[block * BLOCK..][..BLOCK]);
        checkpoint(&mut store);
        assert_eq!(blocks(&store), left, "block {block}");
        assert!(all_of(&mut store, &object(1)) == new && all_of(&mut store, &object(2)) == old);
    }
}

/// What a page kept of a blob for a clone's sake goes with its next change, once the clone is gone.
#[test]
fn a_blob_that_a_clone_had_as_well_is_left_with_the_next_change() {
    let mut rig = Rig::new(1, 16 << 20, Options::tiny());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Zstd));
    let (old, noise) = (three_quarters(3), random(9, 2));
    write(&mut store, 1, 0, &old);
    checkpoint(&mut store);
    do_all(&mut store, vec![Op::Clone { source: object(1), target: object(2) }]);
    write(&mut store, 1, 0, &noise);
    checkpoint(&mut store);
    do_all(&mut store, vec![Op::Remove(object(2))]);
    checkpoint(&mut store);
    assert_eq!(blocks(&store), (3 + 2, 2));
    write(&mut store, 1, 0, &noise[..BLOCK]);
    checkpoint(&mut store);
    assert_eq!(blocks(&store), (4, 0));
    let found = all_of(&mut store, &object(1));
    assert!(found[..2 * BLOCK] == noise && found[2 * BLOCK..] == old[2 * BLOCK..]);
}

/// Room for what is not compressed in the end is made sure of before, also for what is cut out of blobs.
#[test]
fn a_full_store_that_compresses_is_sound_after_each_loss_of_power() {
    let sizes = Sizes { object_bytes_max: 300_000, write_bytes_max: 150_000 };
    let (mut refused, mut removed) = (0, 0);
    for seed in 0..6 {
        let mut rng = SeededEntropy(seed);
        let mut rig = Rig::new(seed, 896 << 10, tiny(seed));
        let algorithm = CompressionAlgorithm::ALL[seed as usize % 3];
        rig.compression = Some(Compression { required_ppm: 1_000_000, ..force(algorithm) });
        let (mut model, mut number) = (Model::default(), 0);
        for crash in 0..12 {
            let context = format!("seed {seed}, crash {crash}");
            let mut store = rig.open();
            model.compare(&mut store, &mut Vec::new(), &context);
            for _ in 0..rng.u64() % 120 {
                number += 1;
                let mut txn = random_txn(&mut rng, number, sizes);
                let mut outcome = store.submit(txn.clone(), StoreToken::without_pg(number));
                if matches!(outcome, Err(StoreError::Full { .. })) {
                    refused += 1;
                    // A part of an object, with its end within a blob.
                    let cut = Op::Truncate { object: object(rng.u64() % 6), size: rng.u64() % 200_000 };
                    txn = Transaction { collection: pg(), ops: vec![cut] };
                    outcome = store.submit(txn.clone(), StoreToken::without_pg(number));
                }
                if matches!(outcome, Err(StoreError::Full { .. })) {
                    removed += 1;
                    txn = removal(number, [rng.u64() % 6]);
                    outcome = store.submit(txn.clone(), StoreToken::without_pg(number));
                }
                outcome.unwrap_or_else(|error| panic!("{context}, {number}: {error}"));
                model.apply(&txn);
                (0..rng.u64() % 4).for_each(|_| drop(drain(&mut store, &mut Vec::new())));
            }
            store.settle().expect("a healthy device");
            if rng.u64().is_multiple_of(2) {
                store.checkpoint_now().unwrap_or_else(|error| panic!("{context}: {error}"));
            }
            assert_eq!(store.failure(), None, "{context}");
            drop(store);
            rig.crash(usize::try_from(rng.u64() % 3).unwrap_or_default());
            let mut store = rig.open();
            // All that is promised room has it.
            store.checkpoint_now().unwrap_or_else(|error| panic!("{context}, opened: {error}"));
            assert_eq!(store.check(false).inconsistencies, Vec::<String>::new(), "{context}");
        }
    }
    assert!(refused > 100, "{refused} refused, {removed} removed");
}
