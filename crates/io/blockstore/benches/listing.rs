//! What a turn costs that lists 513 objects and reads the records of 512, as a comparison of a backfill does, in a store of a
//! million objects: after the checkpoint that brought them home, and opened anew. A real file in the folder
//! `NACRE_BENCH_DIR` (default: the target folder's file system).
//!
//! `cargo bench -p nacre-blockstore --bench listing`; `NACRE_BENCH_OBJECTS`, `_PGS`. Times are of the thread on the processor.

use nacre_blockstore::{BlockStore, Options};
use nacre_env::Net;
use nacre_env::real::{DriverChoice, RealDisk, RealNet};
use nacre_kv::{KvOptions, KvStore, RedbKv};
use nacre_store::{ObjectStore, StoreState};
use nacre_txn::{ObjectView, Op, StoreToken, Transaction};
use nacre_types::{HObject, PgId, SpgId};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEVICE_BYTES: u64 = 4 << 30;
/// Objects that a turn lists, but for the one that says where the next begins.
const PAGE_OBJECTS: usize = 512;
/// Bytes of an object's record.
const RECORD_BYTES: usize = 200;
/// Objects of a transaction while the store is filled.
const BATCH_OBJECTS: u64 = 64;

fn asked(name: &str, default: u64) -> u64 {
    std::env::var(format!("NACRE_BENCH_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Time that this thread has had a processor.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    Duration::from_nanos(ns)
}

fn pg(seed: u32) -> SpgId {
    SpgId::replicated(PgId::new(1, seed))
}

fn open(folder: &Path) -> anyhow::Result<(BlockStore, RealNet)> {
    let (block, meta) = (folder.join("block"), folder.join("meta.redb"));
    let options = Options::default();
    let is_new = !block.exists();
    let mut disk = if is_new {
        RealDisk::create(&block, DEVICE_BYTES, DriverChoice::Auto)?
    } else {
        RealDisk::open(&block, DriverChoice::Auto)?
    };
    let kv_options = KvOptions { cache_bytes: options.kv_cache_bytes, ..KvOptions::default() };
    let mut kv = RedbKv::open_with(&meta, kv_options)?;
    if is_new {
        BlockStore::mkfs(&mut disk, &mut kv, [9; 16], &options)?;
    }
    let net = RealNet::new()?;
    net.watch(disk.wake_fd())?;
    for fd in kv.wake_fds() {
        net.watch(fd)?;
    }
    Ok((BlockStore::open(Box::new(disk), Box::new(kv), options)?.0, net))
}

fn turn(store: &mut BlockStore, net: &mut RealNet) -> anyhow::Result<()> {
    store.drain(&mut Vec::new());
    let timeout =
        if store.state() == StoreState::HasWork { Duration::ZERO } else { Duration::from_millis(10) };
    net.poll(Some(timeout), &mut Vec::new())?;
    Ok(())
}

/// Makes the objects, and waits until all of them are at home.
fn fill(store: &mut BlockStore, net: &mut RealNet, objects: u64, pgs: u32) -> anyhow::Result<()> {
    for first in (0..objects).step_by(usize::try_from(BATCH_OBJECTS)?) {
        for seed in 0..pgs {
            let mut txn = Transaction::new(pg(seed));
            for n in first..(first + BATCH_OBJECTS).min(objects) {
                let name =
                    HObject::head(1, "".into(), "".into(), format!("rbd_data.1234567890.{n:016x}").into());
                if name.pg(pgs) == pg(seed).pg {
                    txn.push(Op::SetMeta { object: name, meta: vec![7; RECORD_BYTES].into() });
                }
            }
            store.submit(txn, StoreToken::without_pg(first))?;
        }
        while store.waiting() > 64 {
            turn(store, net)?;
        }
    }
    while store.waiting() > 0 || store.idle_trim() {
        turn(store, net)?;
    }
    Ok(())
}

/// Walks through all PGs, a page at a time: the worst page and all of them.
fn walk(store: &BlockStore, pgs: u32, what: &str) -> anyhow::Result<()> {
    let mut times: Vec<(Duration, Duration, Duration)> = Vec::new();
    for seed in 0..pgs {
        let mut from = HObject::MIN;
        loop {
            let began = on_processor();
            let page = store.list(&pg(seed), &from, PAGE_OBJECTS + 1);
            let listed = on_processor();
            let records = page.iter().take(PAGE_OBJECTS).filter_map(|name| store.meta(&pg(seed), name));
            anyhow::ensure!(
                records.map(|record| record.len()).all(|bytes| bytes == RECORD_BYTES),
                "a record"
            );
            let ended = on_processor();
            times.push((ended - began, listed - began, ended - listed));
            match page.into_iter().nth(PAGE_OBJECTS) {
                Some(next) => from = next,
                None => break,
            }
        }
    }
    let sum: Duration = times.iter().map(|(all, ..)| *all).sum();
    let first = times.first().copied().unwrap_or_default();
    times.sort_unstable();
    let at = |per_mille: usize| times.get(times.len() * per_mille / 1000).copied().unwrap_or_default();
    writeln!(
        std::io::stdout(),
        "{what}: {} pages, {sum:?}; (all, list, records) first {first:?}, p50 {:?}, p99 {:?}, worst {:?}",
        times.len(),
        at(500),
        at(990),
        times.last().copied().unwrap_or_default(),
    )?;
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let base = std::env::var("NACRE_BENCH_DIR")
        .map_or_else(|_| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let folder = base.join(format!("store-listing-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (objects, pgs) = (asked("OBJECTS", 1_000_000), u32::try_from(asked("PGS", 8))?);
    let (mut store, mut net) = open(&folder)?;
    fill(&mut store, &mut net, objects, pgs)?;
    walk(&store, pgs, "after the checkpoint")?;
    walk(&store, pgs, "once more")?;
    drop((store, net));
    let (store, _net) = open(&folder)?;
    walk(&store, pgs, "opened anew")?;
    drop(store);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
