//! `nacre store trim`: all free space is given back to the device, or to the file system below a file.

use crate::target::Target;
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_blockstore::TrimReport;
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
        println!("{document}");
    } else {
        println!("{} bytes discarded of {} that are free", report.discarded_bytes, report.free_bytes);
    }
    Ok(ExitCode::SUCCESS)
}

/// Discards what is free in a store.
pub(crate) fn trim(target: &Target) -> Result<TrimReport> {
    let (mut store, _) = target.open()?;
    let report = store.trim_free_space().with_context(|| target.shown())?;
    if let Some(error) = report.refused {
        bail!(
            "{}: the device does not discard ({error}); {} bytes were",
            target.shown(),
            report.discarded_bytes
        );
    }
    Ok(report)
}
