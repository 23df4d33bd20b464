//! How long a store on a drive of 16 TB takes to open, and how much memory: its free map is of full size and as fragmented as can be, and it
//! has the block maps of a terabyte.

use crate::device::DeviceBlock;
use crate::freemap::{FREE_MAP_SHARD_BLOCKS, FreeMapShard, RefChange};
use crate::mount::read_superblock;
use crate::{BlockStore, Options, block_page, kv_schema};
use nacre_env::real::{DriverChoice, RealDisk};
use nacre_env::{Clock, RealClock};
use nacre_kv::{Durability, KvBatch, KvCompletion, KvOptions, KvStore, KvTag, RedbKv};
use std::fs;
use std::path::Path;

const DEVICE_BYTES: u64 = 16_000_000_000_000;
/// Objects of 4 MiB with a terabyte of data.
const OBJECTS: u64 = 1_000_000_000_000 / (4 << 20);
const PAGES_EACH: u32 = 32;
const MEMORY_TARGET: usize = 1 << 30;

fn memory_kib(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field of it");
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number")
}

/// Every other block is used.
fn fill_free_map(kv: &mut RedbKv, blocks: std::ops::Range<u64>) {
    let used = (0..FREE_MAP_SHARD_BLOCKS).step_by(2);
    let mut shard = FreeMapShard::default();
    shard.apply(&used.map(|at| RefChange { at, count: 1, by: 1 }).collect::<Vec<_>>()).expect("all free");
    let value = shard.encode().expect("half is used");
    let each = u64::from(FREE_MAP_SHARD_BLOCKS);
    let shards: Vec<u32> = (blocks.start.div_ceil(each) as u32..(blocks.end / each) as u32).collect();
    for some in shards.chunks(4096) {
        let mut batch = KvBatch::default();
        some.iter().for_each(|nth| batch.put(kv_schema::free_key(*nth), value.clone()));
        kv.commit(&batch, Durability::Durable).expect("there is room");
    }
}

/// Pages of which no two blocks are neighbours.
fn fill_block_maps(kv: &mut RedbKv) {
    let blocks: Vec<_> = (0..32)
        .map(|at| (at, DeviceBlock { block: 1_000_000 + 2 * u64::from(at), crc: at }.into()))
        .collect();
    let value = block_page::encode_record(&blocks);
    for first in (1..=OBJECTS).step_by(4096) {
        let mut batch = KvBatch::default();
        for id in first..(first + 4096).min(OBJECTS + 1) {
            (1..PAGES_EACH).for_each(|page| batch.put(kv_schema::page_key(id, page), value.clone()));
        }
        kv.commit(&batch, Durability::Durable).expect("there is room");
    }
}

/// The last commit is a checkpoint's, as in an OSD: the file is quickly opened after it even if it was not closed.
fn end_with_a_checkpoint(kv: &mut RedbKv) {
    let key = kv_schema::page_key(OBJECTS, 1);
    let mut batch = KvBatch::default();
    batch.put(key.clone(), kv.get(&key).expect("healthy").expect("it was put"));
    kv.submit(batch, KvTag::default());
    kv.wait();
    let mut done = Vec::new();
    kv.drain(&mut done);
    assert!(matches!(&done[..], [KvCompletion { result: Ok(()), .. }]), "{done:?}");
}

#[allow(clippy::print_stderr, reason = "figures are to be read")]
fn open(data: &Path, meta: &Path, what: &str) {
    let options = Options::for_memory(MEMORY_TARGET);
    let clock = RealClock::start();
    let (before, began) = (memory_kib("VmRSS:"), clock.now());
    let disk = RealDisk::open(data, DriverChoice::Auto).expect("a disk");
    let kv_options = KvOptions { cache_bytes: options.kv_cache_bytes, ..KvOptions::default() };
    let kv = RedbKv::open_with(meta, kv_options).expect("metadata");
    let kv_took = clock.now().since(began);
    let (store, _) = BlockStore::open(Box::new(disk), Box::new(kv), options).expect("a store");
    let took = clock.now().since(began);
    let free = store.free_space();
    eprintln!(
        "{what}: open after {took:?}, {kv_took:?} of it the database; {} MiB of memory more; free in {} pieces",
        memory_kib("VmRSS:").saturating_sub(before) >> 10,
        free.pieces
    );
    drop(store);
}

/// `cargo test --release -p nacre-blockstore --lib of_a_drive_of_sixteen -- --ignored --nocapture`, with `TMPDIR` where 12 GB are free.
#[test]
#[ignore = "a measurement: writes 8 GB of metadata"]
#[allow(clippy::print_stderr, reason = "figures are to be read")]
#[allow(clippy::disallowed_types, reason = "of a file that a disk makes all is allocated")]
fn of_a_drive_of_sixteen_terabytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, meta) = (folder.path().join("block"), folder.path().join("meta"));
    fs::File::create(&data).and_then(|file| file.set_len(DEVICE_BYTES)).expect("a sparse file");
    let mut disk = RealDisk::open(&data, DriverChoice::Auto).expect("a disk");
    let mut kv = RedbKv::open(&meta).expect("metadata");
    BlockStore::mkfs(&mut disk, &mut kv, [7; 16], &Options::default()).expect("a store");
    let area = read_superblock(&mut disk).expect("just made").data;
    drop(disk);
    fill_free_map(&mut kv, area.blocks());
    fill_block_maps(&mut kv);
    end_with_a_checkpoint(&mut kv);
    // As it is when the process is killed: the file was not closed.
    let killed = folder.path().join("killed");
    fs::copy(&meta, &killed).expect("there is room");
    drop(kv);
    eprintln!("metadata: {} MiB", fs::metadata(&meta).expect("a file").len() >> 20);
    open(&data, &killed, "after a kill");
    open(&data, &meta, "after a clean end");
}
