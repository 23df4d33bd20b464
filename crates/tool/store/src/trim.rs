//! `nacre store trim`: all free space is given back to the device, or to the file system below a file.

use crate::target::{Piece, Target, read_partitions};
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_blockstore::TrimReport;
use nacre_env::outln;
use serde_json::json;
use std::process::ExitCode;

/// Options of `nacre store trim`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let report = trim(&options.target)?;
    if options.json {
        let document = json!({
            "store": options.target.shown(),
            "free_bytes": report.free_bytes,
            "discarded_bytes": report.discarded_bytes,
        });
        outln!("{document}");
    } else {
        outln!("{} bytes discarded of {} that are free", report.discarded_bytes, report.free_bytes);
    }
    Ok(ExitCode::SUCCESS)
}

fn add(sum: &mut TrimReport, report: TrimReport) {
    sum.free_bytes += report.free_bytes;
    sum.discarded_bytes += report.discarded_bytes;
    sum.refused = sum.refused.or(report.refused);
}

/// Discards what is free in a store.
pub(crate) fn trim(target: &Target) -> Result<TrimReport> {
    let mut report = TrimReport::default();
    for (mut store, _) in target.open_all()? {
        add(&mut report, store.trim_free_space().with_context(|| target.shown())?);
    }
    let mut pieces = target.pieces()?;
    let shared = read_partitions(&mut pieces)?;
    if let Some(Piece { disk, .. }) = pieces.first_mut() {
        add(&mut report, shared.trim_free_slabs(disk.as_mut()));
    }
    if let Some(error) = report.refused {
        bail!(
            "{}: the device does not discard ({error}); {} bytes were",
            target.shown(),
            report.discarded_bytes
        );
    }
    Ok(report)
}
