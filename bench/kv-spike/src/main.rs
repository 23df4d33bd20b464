//! Which key-value library the metadata of a `BlockStore` should have: the same work for each, and what it costs.
//!
//! ```text
//! kv-spike ENGINE --objects N --directory D [--memory MIB] [--seconds S] [--batch N] [--page-every N] --phases a,b,c
//! ENGINE = redb | redb-journal | fjall | rocksdb
//! ```
//!
//! | phase | what is done |
//! | --- | --- |
//! | `load` | makes N objects in the order in which clients would: numbers ascend, names fall anywhere |
//! | `load-sorted` | makes them in the order of keys, where only what comes after is asked about |
//! | `overwrite` | durable batches of changed objects, one after the other, and then what the engine still does for itself |
//! | `read` | single keys, with nothing else going on |
//! | `mixed` | the same beside batches as in `overwrite` |
//! | `scan` | names in their order, 1024 at a time |
//! | `kill` | a process that overwrites is killed, and the store opened again until it answers |
//!
//! Records are those of `crates/io/blockstore/src/kv_schema.rs` (see [`records`]), batches those of its checkpoints. Each phase prints a
//! line of JSON. All engines have the same memory: caches, memtables and journals together; none compresses. What they have not in
//! memory the kernel may have: `file_reads_each` counts how often they ask it.
//!
//! Its results are in `docs/experiments/0011-key-value-libraries.md`.

mod args;
mod engine;
mod evict;
#[cfg(feature = "fjall")]
mod fjall_library;
mod kill;
mod library;
mod meter;
mod phases;
mod reads;
mod records;
mod report;
#[cfg(feature = "rocksdb")]
mod rocks_library;
mod workload;

use args::{Args, Phase};
use workload::Workload;

fn main() -> anyhow::Result<()> {
    let mut args = Args::parse(std::env::args().skip(1))?;
    std::fs::create_dir_all(&args.directory)?;
    if args.objects == 0 {
        args.objects = engine::objects_in(&args)?;
        anyhow::ensure!(args.objects > 0, "how many objects are to be loaded?");
    }
    let (stores, kills): (Vec<Phase>, Vec<Phase>) =
        args.phases.iter().copied().partition(|phase| *phase != Phase::Kill);
    if !stores.is_empty() {
        let mut workload = Workload::open(&args)?;
        for phase in stores {
            workload.run(phase)?;
        }
    }
    for _ in kills {
        kill::run(&args)?;
    }
    Ok(())
}
