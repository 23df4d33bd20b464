//! `nacre store repair`: what can be repaired without guessing.
//!
//! - A copy of a device's label, or of a superblock, that is not whole is written again from the other.
//! - Free space is counted anew from the objects; the count is stored when another one was.
//! - Metadata of objects that cannot be understood is listed, and removed with `--remove-unreadable`: those objects
//!   are lost on this OSD and must come back from the PG's other copies, by scrub and repair.
//! - A log with a gap, behind which there are records, is named. What the lost ones said is unknown, so each PG may
//!   lack writes that were acknowledged: with `--give-up-PGs` all of them are removed and the log ends before the gap. The OSD
//!   starts without PGs then, and recovers from the others. What no other OSD has is exported first, with
//!   `nacre store export --before-gap`.
//!
//! Everything else needs the PG's other copies, not a tool.

use crate::check::examine;
use crate::target::{self, Piece, Target, pieces_of, read_partitions};
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_blockstore::BadRecord;
use nacre_env::outln;
use nacre_store::ObjectStore;
use nacre_txn::{Op, StoreToken, Transaction};
use nacre_types::SpgId;
use serde_json::json;
use std::process::ExitCode;

/// Options of `nacre store repair`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Remove objects whose metadata cannot be understood. What they held is lost on this OSD.
    #[arg(long)]
    pub(crate) remove_unreadable: bool,
    /// When the log has a gap: remove all PGs, so that the OSD starts and recovers them from the others. What
    /// only this OSD has is lost: export it first.
    #[arg(long)]
    pub(crate) give_up_groups: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let done = repair(options)?;
    let findings = examine(&options.target, false)?;
    if options.json {
        let document = json!({
            "store": options.target.shown(),
            "done": done,
            "sound": findings.is_sound(),
            "problems": findings.problems,
        });
        outln!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        done.iter().for_each(|line| outln!("{line}"));
        for problem in &findings.problems {
            outln!("STILL WRONG {}", problem["what"].as_str().unwrap_or_default());
        }
        outln!("{}", if findings.is_sound() { "sound" } else { "not sound" });
    }
    Ok(if findings.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what was done, a line each.
pub(crate) fn repair(options: &Options) -> Result<Vec<String>> {
    let mut done = Vec::new();
    let mut stopped = options.target.stopped()?;
    for label in &mut stopped.labels {
        if let Some(complaint) = label.complaint() {
            label.repair()?;
            done.push(format!("{complaint}; wrote it again from the other one"));
        }
    }
    if let Some(keys) = &mut stopped.keys
        && let Some(complaint) = keys.complaint()
    {
        keys.repair()?;
        done.push(format!("{complaint}; wrote it again from the other one"));
    }
    let Some(first) = stopped.partitions.first_mut() else { bail!("a store without partitions") };
    for copy in nacre_blockstore::restore_superblocks(first.disk.as_mut())
        .context("neither superblock copy is whole")?
    {
        done.push(format!("wrote superblock copy {copy} again from the other one"));
    }
    let mut bad = Vec::new();
    let mut mendable = true;
    for (number, piece) in (0..).zip(&mut pieces_of(stopped, &options.target.shown())?) {
        let (found, is_mendable) = repair_metadata(piece, number, options.remove_unreadable, &mut done)?;
        mendable &= is_mendable;
        bad.push(found);
    }
    if mendable && !repair_gaps(options, &mut done)? {
        return Ok(done);
    }
    if mendable && !done.is_empty() {
        done.extend(reopen(&options.target, &bad)?);
    }
    if done.is_empty() {
        done.push("nothing to repair".to_owned());
    }
    Ok(done)
}

/// What is wrong with the metadata of a partition, and whether none of it is left.
fn repair_metadata(
    piece: &mut Piece,
    number: u32,
    remove_unreadable: bool,
    done: &mut Vec<String>,
) -> Result<(Vec<BadRecord>, bool)> {
    let bad = nacre_blockstore::bad_metadata(piece.disk.as_mut(), piece.kv.as_ref(), number)?;
    let removable = bad.iter().filter(|record| record.removable).count();
    for record in &bad {
        let flag = match (record.removable, remove_unreadable) {
            (true, true) => "removed",
            (true, false) => "left alone; --remove-unreadable removes it",
            (false, _) => "cannot be mended here: make the OSD anew and let it recover from the others",
        };
        done.push(format!("{}: {flag}", said_of(record)));
    }
    if remove_unreadable && removable > 0 {
        let keys = nacre_blockstore::remove_metadata(piece.kv.as_mut(), &bad)?;
        done.push(format!("removed {keys} keys of metadata"));
    }
    let mendable = bad.iter().all(|record| record.removable && remove_unreadable);
    if mendable && nacre_blockstore::recount_free_space(piece.kv.as_mut())? {
        done.push("counted free space anew from the objects: what was stored was wrong".to_owned());
    }
    Ok((bad, mendable))
}

/// True when no log has a gap, or has one any more.
fn repair_gaps(options: &Options, done: &mut Vec<String>) -> Result<bool> {
    let mut pieces = options.target.scratch()?;
    let (mut shared, with) = (read_partitions(&mut pieces)?, target::options(pieces.len()));
    let mut gaps = Vec::new();
    for (number, Piece { disk, kv }) in (0..).zip(pieces) {
        let gap = shared.log_gap(number, disk, kv, with.clone()).with_context(|| options.target.shown())?;
        gaps.extend(gap.map(|gap| (number, gap)));
    }
    for (_, gap) in gaps.iter().filter(|_| !options.give_up_groups) {
        done.push(format!(
            "{gap}. Left alone; export what no other OSD has (`nacre store export --before-gap`), then --give-up-groups \
             removes all placement groups of this OSD, and it recovers them from the others"
        ));
    }
    if !options.give_up_groups || gaps.is_empty() {
        return Ok(gaps.is_empty());
    }
    let mut pieces = options.target.pieces()?;
    let mut shared = read_partitions(&mut pieces)?;
    let keep = nacre_osd::storage::OWN_COLLECTION;
    for (number, Piece { disk, kv }) in (0..).zip(pieces) {
        let Some((_, gap)) = gaps.iter().find(|(of, _)| *of == number) else { continue };
        let pgs = shared.give_up_groups(number, disk, kv, with.clone(), &keep)?;
        done.push(format!("removed {} placement groups: {}", pgs.len(), listed(&pgs)));
        done.push(format!("ended the log before record {}", gap.seq));
    }
    Ok(true)
}

fn listed(pgs: &[SpgId]) -> String {
    pgs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn said_of(record: &BadRecord) -> String {
    let about = record.object.as_ref().map_or_else(String::new, |(at, name)| format!(" of {at} {name}"));
    format!("{} record {}{about}: {}", record.kind, record.key.escape_ascii(), record.reason)
}

/// Opens the store and makes a checkpoint of each partition, of which such records were `removed`. The log may have brought parts of
/// removed objects back: they go as well.
fn reopen(target: &Target, removed: &[Vec<BadRecord>]) -> Result<Vec<String>> {
    let mut done = Vec::new();
    for ((mut store, mount), removed) in target.open_all()?.into_iter().zip(removed) {
        let lost = removed.iter().filter(|record| record.name.as_ref().is_some_and(|(_, is_live)| *is_live));
        for (at, name) in lost.filter_map(|record| record.object.as_ref()) {
            if store.shape(at, name).is_some() {
                let txn = Transaction { collection: *at, ops: vec![Op::Remove(name.clone())] };
                store.submit(txn, StoreToken::without_pg(0))?;
                done.push(format!("removed what the log had of {at} {name}"));
            }
        }
        if mount.records > 0 || !removed.is_empty() {
            store.checkpoint_now()?;
            done.push(format!("wrote {} records of the log home", mount.records));
        }
    }
    Ok(done)
}
