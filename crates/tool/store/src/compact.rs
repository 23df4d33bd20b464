//! `nacre store compact`: the metadata's file gives unused space back.

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

/// Bytes of the metadata's file before and after.
pub(crate) fn compact(target: &Target) -> Result<(u64, u64)> {
    // The device's lock keeps the OSD away meanwhile.
    let _device = target.device()?;
    let before = target.metadata_bytes()?;
    drop(target.metadata()?);
    target.compact_metadata()?;
    Ok((before, target.metadata_bytes()?))
}
