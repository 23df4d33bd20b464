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
use crate::target::Target;
use anyhow::{Context, Result};
use clap::Args;
use nacre_blockstore::{BadRecord, Options as StoreOptions};
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
        println!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        done.iter().for_each(|line| println!("{line}"));
        for problem in &findings.problems {
            println!("STILL WRONG {}", problem["what"].as_str().unwrap_or_default());
        }
        println!("{}", if findings.is_sound() { "sound" } else { "not sound" });
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
    for copy in nacre_blockstore::restore_superblocks(stopped.disk.as_mut())
        .context("neither superblock copy is whole")?
    {
        done.push(format!("wrote superblock copy {copy} again from the other one"));
    }
    let mut kv = options.target.metadata(&stopped)?;
    let bad = nacre_blockstore::bad_metadata(stopped.disk.as_mut(), kv.as_ref())?;
    let removable = bad.iter().filter(|record| record.removable).count();
    for record in &bad {
        let flag = match (record.removable, options.remove_unreadable) {
            (true, true) => "removed",
            (true, false) => "left alone; --remove-unreadable removes it",
            (false, _) => "cannot be mended here: make the OSD anew and let it recover from the others",
        };
        done.push(format!("{}: {flag}", said_of(record)));
    }
    if options.remove_unreadable && removable > 0 {
        let keys = nacre_blockstore::remove_metadata(kv.as_mut(), &bad)?;
        done.push(format!("removed {keys} keys of metadata"));
    }
    let mendable = bad.iter().all(|record| record.removable && options.remove_unreadable);
    if mendable && nacre_blockstore::recount_free_space(kv.as_mut())? {
        done.push("counted free space anew from the objects: what was stored was wrong".to_owned());
    }
    drop((stopped, kv));
    if mendable && !repair_gap(options, &mut done)? {
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

/// True when the log has no gap, or has none any more.
fn repair_gap(options: &Options, done: &mut Vec<String>) -> Result<bool> {
    let (disk, kv) = options.target.scratch()?;
    let gap = nacre_blockstore::log_gap(Box::new(disk), Box::new(kv), StoreOptions::default());
    let Some(gap) = gap.with_context(|| options.target.shown())? else { return Ok(true) };
    if !options.give_up_groups {
        done.push(format!(
            "{gap}. Left alone; export what no other OSD has (`nacre store export --before-gap`), then --give-up-groups \
             removes all placement groups of this OSD, and it recovers them from the others"
        ));
        return Ok(false);
    }
    let (disk, kv) = options.target.parts()?;
    let keep = nacre_osd::storage::OWN_COLLECTION;
    let pgs = nacre_blockstore::give_up_groups(disk, kv, StoreOptions::default(), &keep)?;
    done.push(format!("removed {} placement groups: {}", pgs.len(), listed(&pgs)));
    done.push(format!("ended the log before record {}", gap.seq));
    Ok(true)
}

fn listed(pgs: &[SpgId]) -> String {
    pgs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn said_of(record: &BadRecord) -> String {
    let about = record.object.as_ref().map_or_else(String::new, |(at, name)| format!(" of {at} {name}"));
    format!("{} record {}{about}: {}", record.kind, record.key.escape_ascii(), record.reason)
}

/// Opens the store and makes a checkpoint. The log may have brought parts of
/// removed objects back: they go as well.
fn reopen(target: &Target, removed: &[BadRecord]) -> Result<Vec<String>> {
    let (mut store, mount) = target.open()?;
    let mut done = Vec::new();
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
    Ok(done)
}
