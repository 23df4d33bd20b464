//! `nacre store import`: one PG from a file that export wrote.

use crate::stream::{Header, Section, Source, Totals};
use crate::target::{Target, each_object, newest_map};
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_blockstore::BlockStore;
use nacre_store::{ObjectStore, StoreError};
use nacre_txn::{Op, StoreToken, Transaction};
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
    let (mut store, _) = options.target.open()?;
    let (header, totals) = if options.file == Path::new("-") {
        read(&mut store, std::io::stdin().lock(), options.force)?
    } else {
        let file = OpenOptions::new().read(true).open(&options.file);
        let file = file.with_context(|| options.file.display().to_string())?;
        read(&mut store, BufReader::new(file), options.force)?
    };
    println!("imported {}: {} objects, {} bytes of data", header.pg, totals.objects, totals.data_bytes);
    Ok(ExitCode::SUCCESS)
}

/// Reads a whole file into the store. When it fails half-way, the PG is removed again.
pub(crate) fn read(store: &mut BlockStore, input: impl Read, force: bool) -> Result<(Header, Totals)> {
    let mut source = Source::new(input);
    let header = source.header()?;
    admit(store, &header, force)?;
    let remove = Transaction { collection: header.pg, ops: vec![Op::RemoveCollection] };
    if store.collections().contains(&header.pg) {
        put(store, remove.clone())?;
    }
    match take(store, &mut source, &header) {
        Ok(totals) => Ok((header, totals)),
        Err(error) => {
            put(store, remove).context("removing the part of the PG that was imported")?;
            store.checkpoint_now()?;
            Err(error.context(format!("nothing of {} was imported", header.pg)))
        }
    }
}

fn admit(store: &BlockStore, header: &Header, force: bool) -> Result<()> {
    let pg = header.pg;
    if !force && store.collections().contains(&pg) {
        bail!("the store has {pg} already; --force replaces it");
    }
    let Some(map) = newest_map(store) else {
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
    // A PG from the future would believe in intervals that this OSD knows nothing of.
    if map.epoch < header.newest_map && map.fsid == header.fsid {
        bail!(
            "the PG was exported under map {}, this OSD's newest is {}: start it once so that it catches up",
            header.newest_map,
            map.epoch
        );
    }
    if map.fsid == header.fsid && !map.pools.contains_key(&pg.pg.pool) {
        bail!("there is no pool {} any more", pg.pg.pool);
    }
    Ok(())
}

fn take(store: &mut BlockStore, source: &mut Source<impl Read>, header: &Header) -> Result<Totals> {
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
                put(store, txn)?;
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

fn put(store: &mut BlockStore, txn: Transaction) -> Result<(), StoreError> {
    store.submit(txn, StoreToken::without_pg(0))?;
    if store.waiting() >= WAITING_MAX {
        store.settle()
    } else {
        store.drain(&mut Vec::new());
        Ok(())
    }
}
