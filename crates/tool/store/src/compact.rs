//! `nacre store compact`: the metadata's file, or region, gives unused space back.

use crate::target::{Target, open_metadata};
use anyhow::Result;
use clap::Args;
use nacre_env::outln;
use nacre_osd::storage::StoppedPartition;
use serde_json::json;
use std::process::ExitCode;

/// Options of `nacre store compact`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let Compacted { before, after, journal } = compact(&options.target)?;
    if options.json {
        let document = json!({
            "store": options.target.shown(),
            "metadata_bytes_before": before,
            "metadata_bytes_after": after,
            "journal_bytes": journal,
        });
        outln!("{document}");
    } else {
        outln!("metadata: {before} bytes before, {after} bytes after; and a journal of {journal} bytes");
    }
    Ok(ExitCode::SUCCESS)
}

/// Bytes that the metadata take before and after, without their journal, and those of the journal, which holds nothing then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) journal: u64,
}

pub(crate) fn compact(target: &Target) -> Result<Compacted> {
    // The device's lock keeps the OSD away meanwhile.
    let stopped = target.stopped()?;
    let mut sum = Compacted { before: 0, after: 0, journal: 0 };
    for StoppedPartition { metadata, .. } in &stopped.partitions {
        sum.before += metadata.used_bytes()?.0;
        drop(open_metadata(metadata, &target.shown())?);
        metadata.compact()?;
        let (after, journal) = metadata.used_bytes()?;
        (sum.after, sum.journal) = (sum.after + after, sum.journal + journal);
    }
    Ok(sum)
}
