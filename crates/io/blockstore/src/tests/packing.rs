//! Pools that compress: what it saves, what overwriting does, what is left after a crash, and what rot looks like.

use super::crash::run_on;
use super::model::{drain, object, pg, read};
use super::rig::{POOL, Rig, hint_in, tiny};
use crate::kv_schema;
use crate::{BLOCK, BlockStore, Options};
use nacre_buf::Bytes;
use nacre_kv::KvStore;
use nacre_store::ObjectStore;
use nacre_txn::{Extents, FetchFrom, ObjectView, Op, ReadError, StoreToken, Transaction};
use nacre_types::{Compression, CompressionAlgorithm, CompressionMode, HObject};
use std::collections::BTreeSet;

/// Stores in a normal run; each goes through 20 crashes.
const SEEDS: u64 = 12;

pub(super) fn force(algorithm: CompressionAlgorithm) -> Compression {
    Compression { mode: CompressionMode::Force, algorithm, ..Compression::default() }
}

/// Without checkpoints that nobody asked for.
fn roomy() -> Options {
    Options { overlay_bytes_max: 4 << 20, changes_bytes_max: 8 << 20, ..Options::tiny() }
}

pub(super) fn opened(rig: &mut Rig, compression: Compression) -> BlockStore {
    rig.compression = Some(compression);
    rig.open()
}

/// A log of one line repeated, which differs by seed.
pub(super) fn compressible(seed: u64, blocks: usize) -> Vec<u8> {
    let line = format!("{seed}: a line that comes again and again\n");
    line.bytes().cycle().take(blocks * BLOCK).collect()
}

pub(super) fn random(seed: u64, blocks: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(&mut next).take(blocks * BLOCK).collect()
}

pub(super) fn do_all(store: &mut BlockStore, ops: Vec<Op>) {
    let mut txn = Transaction::new(pg());
    ops.into_iter().for_each(|op| txn.push(op));
    store.submit(txn, StoreToken::without_pg(1)).expect("there is room");
    store.settle().expect("a healthy device");
}

pub(super) fn write(store: &mut BlockStore, nth: u64, block: usize, data: &[u8]) {
    let (offset, data) = ((block * BLOCK) as u64, Bytes::copy_from_slice(data).into());
    do_all(store, vec![Op::Write { object: object(nth), offset, data }]);
}

pub(super) fn checkpoint(store: &mut BlockStore) {
    store.checkpoint_now().expect("a healthy device");
    // What was released before the first one is free after another.
    store.checkpoint_now().expect("a healthy device");
    let report = store.check(true);
    assert_eq!((report.inconsistencies, report.damaged), (vec![], vec![]));
}

pub(super) fn all_of(store: &mut BlockStore, name: &HObject) -> Vec<u8> {
    read(store, name, 0, u64::MAX, &mut Vec::new()).expect("nothing is damaged").to_vec()
}

/// Blocks of the device that data take, and blocks of objects that are in blobs.
pub(super) fn blocks(store: &BlockStore) -> (u64, u64) {
    let packed: u64 = store.packed().values().map(|usage| usage.original_bytes).sum();
    (store.usage().allocated_bytes / BLOCK as u64, packed / BLOCK as u64)
}

#[test]
fn what_compresses_takes_fewer_blocks_and_what_does_not_takes_no_more() {
    for algorithm in CompressionAlgorithm::ALL {
        let mut rig = Rig::new(1, 16 << 20, Options::tiny());
        let mut store = opened(&mut rig, force(algorithm));
        let (good, bad) = (compressible(1, 64), random(2, 64));
        write(&mut store, 1, 0, &good);
        write(&mut store, 2, 0, &bad);
        // A few that are written one by one.
        let small = |block: usize| {
            let data = Bytes::copy_from_slice(&good[block * BLOCK..][..BLOCK]).into();
            Op::Write { object: object(3), offset: (block * BLOCK) as u64, data }
        };
        do_all(&mut store, (0..8).map(small).collect());
        checkpoint(&mut store);
        // A page of four blocks becomes one.
        assert_eq!(blocks(&store), (16 + 64 + 2, 64 + 8), "{algorithm}");
        for _ in 0..2 {
            assert!(all_of(&mut store, &object(1)) == good && all_of(&mut store, &object(2)) == bad);
            assert!(all_of(&mut store, &object(3)) == good[..8 * BLOCK]);
            drop(store);
            rig.kill();
            store = rig.open();
            assert_eq!(blocks(&store), (16 + 64 + 2, 64 + 8), "{algorithm}, opened again");
        }
        do_all(&mut store, (1..4).map(|nth| Op::Remove(object(nth))).collect());
        checkpoint(&mut store);
        assert_eq!(blocks(&store), (0, 0), "{algorithm}");
    }
}

#[test]
fn other_pools_and_modes_that_do_not_want_it_store_as_before() {
    let passive = Compression { mode: CompressionMode::Passive, ..force(CompressionAlgorithm::Lz4) };
    let large = Compression { blob_bytes_min: 8 * BLOCK as u32, ..force(CompressionAlgorithm::Lz4) };
    for compression in [passive, large] {
        let mut rig = Rig::new(1, 16 << 20, Options::tiny());
        let mut store = opened(&mut rig, compression);
        write(&mut store, 1, 0, &compressible(1, 16));
        checkpoint(&mut store);
        assert_eq!(blocks(&store), (16, 0));
    }
    let mut rig = Rig::new(1, 16 << 20, Options::tiny());
    let mut store = rig.open();
    store.set_compression(POOL + 1, force(CompressionAlgorithm::Lz4), hint_in);
    write(&mut store, 1, 0, &compressible(1, 16));
    checkpoint(&mut store);
    assert_eq!(blocks(&store), (16, 0));
}

#[test]
fn clients_say_what_is_worth_it() {
    use CompressionMode::{Aggressive, Force, None, Passive};
    let hints = ["compressible", "", "incompressible"];
    for (mode, packed) in
        [(None, [0, 0, 0]), (Passive, [16, 0, 0]), (Aggressive, [16, 16, 0]), (Force, [16, 16, 16])]
    {
        let mut rig = Rig::new(1, 16 << 20, Options::tiny());
        let mut store = opened(&mut rig, Compression { mode, ..force(CompressionAlgorithm::Lz4) });
        let mut found = Vec::new();
        for (nth, hint) in (1..).zip(hints) {
            let before = blocks(&store).1;
            // As primaries write: the record behind the data.
            let data = Bytes::from(compressible(nth, 16)).into();
            let meta = Bytes::from_static(hint.as_bytes());
            do_all(
                &mut store,
                vec![
                    Op::Write { object: object(nth), offset: 0, data },
                    Op::SetMeta { object: object(nth), meta },
                ],
            );
            checkpoint(&mut store);
            found.push(blocks(&store).1 - before);
        }
        assert_eq!(found, packed, "{mode}");
    }
}

/// Four blocks, of which so many bytes each do not compress.
pub(super) fn with_noise(seed: u64, bytes: usize) -> Vec<u8> {
    let (mut data, noise) = (compressible(seed, 4), random(seed, 4));
    let blocks = data.chunks_mut(BLOCK).zip(noise.chunks(BLOCK));
    blocks.for_each(|(block, noise)| block[..bytes].copy_from_slice(&noise[..bytes]));
    data
}

/// Four blocks of which half says nothing: two blocks of the device.
fn half(seed: u64) -> Vec<u8> {
    with_noise(seed, 1800)
}

/// Whatever is overwritten, an object never takes more than it would as it is.
#[test]
fn a_blob_goes_when_less_is_left_of_it_than_it_costs() {
    let mut rig = Rig::new(1, 16 << 20, Options::tiny());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Zstd));
    let mut expected = half(3);
    write(&mut store, 1, 0, &expected);
    checkpoint(&mut store);
    assert_eq!(blocks(&store), (2, 4));
    for (block, left) in [(1, (3, 3)), (2, (4, 2)), (3, (4, 0))] {
        let noise = random(block as u64 + 9, 1);
        expected[block * BLOCK..][..100].copy_from_slice(&noise[..100]);
        let offset = (block * BLOCK) as u64;
        let data = Bytes::copy_from_slice(&noise[..100]).into();
        do_all(&mut store, vec![Op::Write { object: object(1), offset, data }]);
        assert!(all_of(&mut store, &object(1)) == expected, "block {block} in memory");
        checkpoint(&mut store);
        assert!(all_of(&mut store, &object(1)) == expected, "block {block}");
        assert_eq!(blocks(&store), left, "block {block}");
    }
}

/// The checkpoint has the blob then, and nobody uses it.
#[test]
fn a_blob_of_which_too_little_is_left_once_it_is_durable_is_given_up() {
    for (overwritten, left) in [(1, (3, 3)), (2, (4, 2)), (3, (4, 0)), (4, (4, 0))] {
        let mut rig = Rig::new(1, 16 << 20, Options::tiny());
        let mut store = opened(&mut rig, force(CompressionAlgorithm::Zstd));
        let mut expected = half(3);
        write(&mut store, 1, 0, &expected);
        store.start_checkpoint();
        let noise = random(9, overwritten);
        expected[..noise.len()].copy_from_slice(&noise);
        write(&mut store, 1, 0, &noise);
        assert!(all_of(&mut store, &object(1)) == expected, "{overwritten} in memory");
        checkpoint(&mut store);
        assert!(all_of(&mut store, &object(1)) == expected, "{overwritten}");
        assert_eq!(blocks(&store), left, "{overwritten}");
    }
}

/// An object that is cut to the length of another one loses a part of a page, too.
#[test]
fn room_is_made_for_all_that_a_change_takes_out_of_blobs() {
    let cut = |source: u64, target: u64| {
        vec![Op::CloneExtents { source: object(source), target: object(target), extents: Extents::default() }]
    };
    let (zero, truncate) = (
        Op::Zero { object: object(2), offset: 0, length: 3 * BLOCK as u64 },
        Op::Truncate { object: object(2), size: BLOCK as u64 + 100 },
    );
    for ops in [cut(1, 2), vec![zero], vec![truncate]] {
        let mut rig = Rig::new(1, 16 << 20, Options::tiny());
        let mut store = opened(&mut rig, force(CompressionAlgorithm::Zstd));
        write(&mut store, 1, 0, &[1; BLOCK + 100]);
        write(&mut store, 2, 0, &half(3));
        checkpoint(&mut store);
        let mut txn = Transaction::new(pg());
        ops.into_iter().for_each(|op| txn.push(op));
        let (needed, before) = (store.needed_blocks(&txn), store.table.space.dirty_slots);
        store.submit(txn, StoreToken::without_pg(1)).expect("there is room");
        let made_dirty = store.table.space.dirty_slots - before;
        assert!((1..=needed).contains(&made_dirty), "{made_dirty} of {needed}");
        checkpoint(&mut store);
    }
}

/// Who writes meanwhile is held up by how far a checkpoint is: compressing is most of it.
#[test]
fn a_checkpoint_comes_on_while_it_compresses() {
    let mut rig = Rig::new(1, 16 << 20, roomy());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Zstd));
    write(&mut store, 1, 0, &compressible(1, 64));
    checkpoint(&mut store);
    write(&mut store, 1, 0, &compressible(2, 64));
    store.start_checkpoint();
    let ends = store.shares.ends();
    let mut seen = Vec::new();
    for _ in 0..10_000 {
        let Some(at) = &store.checkpoint else { break };
        seen.push((at.stage_name(), at.progress(ends, 0)));
        if !store.advance_checkpoint(1) && store.checkpoint.is_some() {
            store.wait();
            drain(&mut store, &mut Vec::new());
        }
    }
    assert!(seen.is_sorted_by_key(|(_, progress)| *progress), "{seen:?}");
    let placing: BTreeSet<u64> =
        seen.iter().filter(|(stage, _)| *stage == "place").map(|(_, progress)| *progress).collect();
    assert!(placing.len() > 8 && placing.iter().all(|progress| *progress <= ends.written), "{placing:?}");
}

/// As `nacre store dump` shows it.
#[test]
fn the_shape_of_an_object_names_its_blobs() {
    let mut rig = Rig::new(1, 16 << 20, Options::tiny());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Lz4));
    write(&mut store, 1, 0, &half(3));
    checkpoint(&mut store);
    write(&mut store, 1, 1, &random(9, 1));
    checkpoint(&mut store);
    let shape = store.shape(&pg(), &object(1)).expect("it is there");
    let lies: Vec<_> =
        shape.packed.iter().map(|packed| (packed.offset, packed.blocks, packed.blocks_before)).collect();
    assert_eq!(lies, [(0, 1, 0), (2 * BLOCK as u64, 2, 2)]);
    assert_eq!(shape.packed[0].device_offsets, shape.packed[1].device_offsets);
    assert_eq!(shape.packed[0].device_offsets.len(), 2);
    let (packed, offset) = (shape.packed[0].packed_bytes, BLOCK as u64);
    assert!((offset + 1..=2 * offset).contains(&packed), "{packed}");
    assert_eq!(shape.extents.iter().map(|extent| extent.offset).collect::<Vec<_>>(), [offset]);
}

#[test]
fn clones_share_blobs_and_the_last_one_frees_them() {
    let mut rig = Rig::new(1, 16 << 20, Options::tiny());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Snappy));
    let data = compressible(5, 16);
    write(&mut store, 1, 0, &data);
    checkpoint(&mut store);
    do_all(&mut store, vec![Op::Clone { source: object(1), target: object(2) }]);
    checkpoint(&mut store);
    assert_eq!(blocks(&store), (4, 32), "each counts for its own");
    do_all(&mut store, vec![Op::Truncate { object: object(1), size: 0 }]);
    checkpoint(&mut store);
    assert!(all_of(&mut store, &object(2)) == data);
    assert_eq!(blocks(&store), (4, 16));
    do_all(&mut store, vec![Op::Remove(object(2))]);
    checkpoint(&mut store);
    assert_eq!(blocks(&store), (0, 0));
}

/// Two blobs would take more than what both have.
#[test]
fn what_is_cloned_before_it_could_be_compressed_stays_shared() {
    let mut rig = Rig::new(1, 16 << 20, roomy());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Lz4));
    let (old, new) = (compressible(5, 64), compressible(6, 64));
    write(&mut store, 1, 0, &old);
    do_all(&mut store, vec![Op::Clone { source: object(1), target: object(2) }]);
    checkpoint(&mut store);
    assert_eq!(blocks(&store), (64, 0));
    write(&mut store, 1, 0, &new);
    checkpoint(&mut store);
    assert_eq!(blocks(&store), (64 + 16, 64));
    assert!(all_of(&mut store, &object(1)) == new && all_of(&mut store, &object(2)) == old);
}

/// Programs that do not know compression must not take such objects for damaged ones.
#[test]
fn the_state_says_so_as_long_as_there_is_a_blob() {
    let mut rig = Rig::new(1, 16 << 20, Options::tiny());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Lz4));
    let version = |rig: &Rig| {
        let state = rig.kv.get(&kv_schema::state_key()).expect("memory").expect("a store");
        (state[0], state[1])
    };
    checkpoint(&mut store);
    let before = version(&rig);
    write(&mut store, 1, 0, &compressible(1, 16));
    assert_eq!(version(&rig), before);
    checkpoint(&mut store);
    assert_eq!(version(&rig), (6, 6));
    do_all(&mut store, vec![Op::Remove(object(1))]);
    checkpoint(&mut store);
    assert_eq!(version(&rig), before);
}

#[test]
fn rot_in_a_blob_is_an_error_of_its_object() {
    let mut rig = Rig::new(1, 16 << 20, Options::tiny());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Lz4));
    let data = compressible(1, 4);
    write(&mut store, 1, 0, &data);
    checkpoint(&mut store);
    assert!(all_of(&mut store, &object(1)) == data, "in memory from now on");
    let onode = store.table.object(&pg(), &object(1)).expect("it is there");
    let block = onode.blocks.page(0).expect("its only one").blobs()[0].first();
    assert!(rig.device.rot(BlockStore::offset(block), BLOCK as u64));
    let token = StoreToken::without_pg(9);
    store.fetch(&pg(), &object(1), 0, 9000, FetchFrom::Device, token);
    while !drain(&mut store, &mut Vec::new()).contains(&token) {}
    let found = store.read(&pg(), &object(1), 0, 9000);
    assert!(matches!(found, Err(ReadError::Damaged { .. })), "{found:?}");
    assert_eq!(store.check(true).damaged.len(), 1);
    // A part of it that is written again does not make the rest whole.
    let part = Bytes::from_static(b"new").into();
    do_all(&mut store, vec![Op::Write { object: object(1), offset: 10, data: part }]);
    store.checkpoint_now().expect("a healthy device");
    let found = read(&mut store, &object(1), 0, 100, &mut Vec::new());
    assert!(matches!(found, Err(ReadError::Damaged { .. })), "{found:?}");
    write(&mut store, 1, 0, &data);
    checkpoint(&mut store);
    assert!(all_of(&mut store, &object(1)) == data);
}

/// More than a turn decompresses is decompressed in several.
#[test]
fn a_large_read_takes_several_turns() {
    let mut rig = Rig::new(1, 16 << 20, Options::tiny());
    let mut store = opened(&mut rig, force(CompressionAlgorithm::Zstd));
    let data = compressible(1, 80);
    write(&mut store, 1, 0, &data);
    checkpoint(&mut store);
    drop(store);
    rig.kill();
    let mut store = rig.open();
    let token = StoreToken::without_pg(9);
    store.fetch(&pg(), &object(1), 0, u64::MAX, FetchFrom::Anywhere, token);
    let mut most = 0;
    loop {
        let before = store.unpacked.bytes();
        let is_done = drain(&mut store, &mut Vec::new()).contains(&token);
        most = most.max(store.unpacked.bytes() - before.min(store.unpacked.bytes()));
        if is_done {
            break;
        }
    }
    assert!(most <= 4 * 4 * BLOCK, "{most} bytes came out in one turn");
    assert!(store.read(&pg(), &object(1), 0, u64::MAX).expect("all of it").to_bytes() == data);
}

#[test]
fn nothing_is_lost_when_power_goes_while_data_are_compressed() {
    let crashes = std::env::var("NACRE_STORE_CRASHES").ok().and_then(|text| text.parse::<u64>().ok());
    for seed in 0..crashes.map_or(SEEDS, |crashes| crashes / super::crash::PER_SEED) {
        let kind = [Rig::new, Rig::wide, Rig::split, Rig::encrypted][seed as usize % 4];
        let mut rig = kind(seed, 4 << 20, tiny(seed));
        let algorithm = CompressionAlgorithm::ALL[seed as usize % 3];
        // Sometimes what saves nothing is compressed too, so that there is more of it.
        rig.compression = Some(Compression { required_ppm: 1_000_000, ..force(algorithm) });
        if let Err(error) = run_on(seed, rig, |_| ()) {
            panic!("{error}");
        }
    }
}
