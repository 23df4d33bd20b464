//! `nacre store compact`: the metadata's file, or region, gives unused space back.

use crate::target::Target;
use anyhow::Result;
use clap::Args;
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
    let (before, after) = compact(&options.target)?;
    if options.json {
        let document = json!({
            "store": options.target.shown(),
            "metadata_bytes_before": before,
            "metadata_bytes_after": after,
        });
        println!("{document}");
    } else {
        println!("metadata: {before} bytes before, {after} bytes after");
    }
    Ok(ExitCode::SUCCESS)
}

/// Bytes that the metadata take before and after.
pub(crate) fn compact(target: &Target) -> Result<(u64, u64)> {
    // The device's lock keeps the OSD away meanwhile.
    let stopped = target.stopped()?;
    let before = stopped.metadata.used_bytes()?;
    drop(target.metadata(&stopped)?);
    stopped.metadata.compact()?;
    Ok((before, stopped.metadata.used_bytes()?))
}
