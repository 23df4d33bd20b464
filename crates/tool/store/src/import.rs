//! `nacre store import`: one PG from a file that export wrote.

use crate::stream::{Header, Section, Source, Totals};
use crate::target::{Opened, Target, each_object, newest_map, newest_map_of_all};
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_blockstore::BlockStore;
use nacre_env::outln;
use nacre_maps::OsdMap;
use nacre_osd::storage;
use nacre_store::{ObjectStore, StoreError};
use nacre_txn::{Op, StoreToken, Transaction};
use nacre_types::SpgId;
use std::fs::OpenOptions;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Transactions on their way at most.
const WAITING_MAX: usize = 32;

/// Options of `nacre store import`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    target: Target,
    /// Where from; `-` is standard input.
    #[arg(long)]
    file: PathBuf,
    /// Replace the PG if it is there, and take one of another cluster.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut stores = options.target.open_all()?;
    let (header, totals) = if options.file == Path::new("-") {
        read(&mut stores, std::io::stdin().lock(), options.force)?
    } else {
        let file = OpenOptions::new().read(true).open(&options.file);
        let file = file.with_context(|| options.file.display().to_string())?;
        read(&mut stores, BufReader::new(file), options.force)?
    };
    outln!("imported {}: {} objects, {} bytes of data", header.pg, totals.objects, totals.data_bytes);
    Ok(ExitCode::SUCCESS)
}

/// Reads a whole file into the partition of the store in which an OSD looks for that PG. When it fails half-way, the PG is removed again.
pub(crate) fn read(stores: &mut [Opened], input: impl Read, force: bool) -> Result<(Header, Totals)> {
    let mut source = Source::new(input);
    let header = source.header()?;
    let map = newest_map_of_all(stores);
    let home = home_of(stores, &header.pg);
    let (before, rest) = stores.split_at_mut_checked(home).context("a partition of the store")?;
    let ((store, _), behind) = rest.split_first_mut().context("a partition of the store")?;
    let mut others: Vec<&mut BlockStore> = before.iter_mut().chain(behind).map(|(store, _)| store).collect();
    let others = &mut others[..];
    let remove = Transaction { collection: header.pg, ops: vec![Op::RemoveCollection] };
    // One that was to come to this partition is in another one.
    let has_it = |store: &BlockStore| store.collections().contains(&header.pg);
    let elsewhere = others.iter().any(|other| has_it(other));
    admit(store, map.as_deref(), &header, (has_it(store) || elsewhere, force))?;
    for other in others.iter_mut().filter(|other| has_it(other)) {
        other.submit(remove.clone(), StoreToken::without_pg(0))?;
        other.checkpoint_now()?;
    }
    if has_it(store) {
        put(store, others, remove.clone())?;
    }
    match take((&mut *store, &mut *others), &mut source, &header) {
        Ok(totals) => Ok((header, totals)),
        Err(error) => {
            put(store, others, remove).context("removing the part of the PG that was imported")?;
            store.checkpoint_now()?;
            Err(error.context(format!("nothing of {} was imported", header.pg)))
        }
    }
}

/// The number of the partition in which an OSD looks for a PG.
fn home_of(stores: &[Opened], at: &SpgId) -> usize {
    let all = stores.iter().map(|(store, _)| store as &dyn ObjectStore);
    storage::partition_of(&storage::stored_initial_pg_nums(all), at, stores.len())
}

/// Whether the PG may be imported: `is_there` already, perhaps in another partition.
fn admit(
    store: &BlockStore,
    map: Option<&OsdMap>,
    header: &Header,
    (is_there, force): (bool, bool),
) -> Result<()> {
    let pg = header.pg;
    if !force && is_there {
        bail!("the store has {pg} already; --force replaces it");
    }
    let Some(map) = map else {
        if force {
            return Ok(());
        }
        bail!("no OSD has run on this store yet, so its cluster is unknown; --force imports all the same");
    };
    if !force && map.fsid != header.fsid {
        bail!(
            "the PG is of cluster {}, the store of {}; --force imports it all the same",
            header.fsid,
            map.fsid
        );
    }
    // A PG from the future would believe in intervals that this OSD knows nothing of. Its shard may have no maps but those of its partition.
    let newest = newest_map(store).map_or(0, |map| map.epoch);
    if newest < header.newest_map && map.fsid == header.fsid {
        bail!(
            "the PG was exported under map {}, the newest that this OSD has for it is {newest}: start it once so that it catches up",
            header.newest_map
        );
    }
    if map.fsid == header.fsid && !map.pools.contains_key(&pg.pg.pool) {
        bail!("there is no pool {} any more", pg.pg.pool);
    }
    Ok(())
}

fn take(
    (store, others): (&mut BlockStore, &mut [&mut BlockStore]),
    source: &mut Source<impl Read>,
    header: &Header,
) -> Result<Totals> {
    let mut found = Totals::default();
    loop {
        match source.next()? {
            Section::Header(_) => bail!("a second header"),
            Section::Transaction(txn) => {
                if txn.collection != header.pg {
                    bail!("a transaction of {} in the file of {}", txn.collection, header.pg);
                }
                found.transactions += 1;
                found.data_bytes += txn.data_bytes() as u64;
                put(store, others, txn)?;
            }
            Section::End(totals) => {
                store.checkpoint_now()?;
                found.objects = each_object(store, &header.pg, |_, _| Ok(()))?;
                if found != totals {
                    bail!("the file says {totals:?}, found {found:?}");
                }
                return Ok(found);
            }
        }
    }
}

/// The others give what they can spare where there is no room for it.
fn put(store: &mut BlockStore, others: &mut [&mut BlockStore], txn: Transaction) -> Result<(), StoreError> {
    let mut others = others.iter_mut();
    while store.lacks_room(&txn)
        && let Some(other) = others.next()
    {
        other.spare_room();
    }
    store.submit(txn, StoreToken::without_pg(0))?;
    if store.waiting() >= WAITING_MAX {
        store.settle()
    } else {
        store.drain(&mut Vec::new());
        Ok(())
    }
}
