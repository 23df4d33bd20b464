//! `nacre store move-log` and `nacre store move-metadata`: to another device, and back to the one with the data.

use crate::check::examine_stopped;
use crate::size::parse_size;
use crate::target::{Target, with_hint};
use anyhow::{Result, anyhow};
use clap::Args;
use nacre_env::outln;
use nacre_osd::storage::{
    self, MoveError, MoveOutcome, MoveTo, Moved, Onlooker, Progress, SettledMove, Stopped,
};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Progress is told each time that so many hundredths more are copied.
const TOLD_PERCENT: u64 = 10;

/// Options of `nacre store move-log`.
#[derive(Debug, Args)]
pub struct LogOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) place: PlaceOptions,
}

/// Options of `nacre store move-metadata`.
#[derive(Debug, Args)]
pub struct MetadataOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) place: PlaceOptions,
    /// With --to: bytes of the device that the metadata get, or with K, M, G, T; by default all of it. Back with the data they have what
    /// they had there.
    #[arg(long, requires = "to", value_parser = parse_size)]
    pub(crate) meta_size: Option<u64>,
}

/// Where it goes.
#[derive(Debug, Args)]
pub(crate) struct PlaceOptions {
    /// Device that it moves to, all of it; a disk, partition or volume, or a file that is there already. It must be empty. Of a store in
    /// files: a folder.
    #[arg(long, required_unless_present = "back", conflicts_with = "back")]
    pub(crate) to: Option<PathBuf>,
    /// Move it back to the device with the data, or to the OSD's folder.
    #[arg(long)]
    pub(crate) back: bool,
    /// With --to: takes a device with content of no known kind. One with a file system, a partition table, a volume or an OSD on it is
    /// never taken.
    #[arg(long, requires = "to")]
    pub(crate) force: bool,
}

impl PlaceOptions {
    fn place(&self, metadata_bytes: Option<u64>) -> MoveTo {
        match &self.to {
            Some(path) => MoveTo::Elsewhere { path: path.clone(), metadata_bytes, force: self.force },
            None => MoveTo::Back,
        }
    }
}

pub(crate) fn log(options: &LogOptions) -> Result<ExitCode> {
    carry_out(&options.target, Moved::Log, &options.place.place(None))
}

pub(crate) fn metadata(options: &MetadataOptions) -> Result<ExitCode> {
    carry_out(&options.target, Moved::Metadata, &options.place.place(options.meta_size))
}

/// Ends what was interrupted, and moves.
pub(crate) fn carry_out(target: &Target, what: Moved, to: &MoveTo) -> Result<ExitCode> {
    // Each says what is below it, too.
    let failed = |error| match error {
        MoveError::Storage(error) => anyhow!("{}: {}", target.shown(), with_hint(error)),
        error => anyhow!("{}: {error}", target.shown()),
    };
    let key = target.key()?;
    if let Some(settled) = storage::settle_move(target.folder(), key.as_ref()).map_err(failed)? {
        outln!("{}", said(&settled));
    }
    let mut onlooker = Terminal { what, told_percent: 0 };
    let place = match to {
        MoveTo::Elsewhere { path, .. } if path.is_dir() => format!("in {}", path.display()),
        MoveTo::Elsewhere { path, .. } => format!("on {}", path.display()),
        MoveTo::Back => "with the data".to_owned(),
    };
    match storage::move_part(target.folder(), key.as_ref(), what, to, &mut onlooker).map_err(failed)? {
        MoveOutcome::WasThere => outln!("{}: the {what} of the store is {place} already", target.shown()),
        MoveOutcome::Moved => outln!("{}: the {what} of the store is {place} now", target.shown()),
    }
    Ok(ExitCode::SUCCESS)
}

/// How a move that was interrupted has ended.
fn said(settled: &SettledMove) -> String {
    let SettledMove { what, is_done, freed, left } = settled;
    let end = if *is_done { "is finished" } else { "is undone" };
    let device = freed
        .as_ref()
        .map_or_else(|| "the place beside the data".to_owned(), |path| path.display().to_string());
    match left {
        None => format!("a move of the {what} was interrupted: it {end}, and {device} is free"),
        Some(why) => format!(
            "a move of the {what} was interrupted: it {end}; but {device} could not be given free ({why}): `nacre store wipe` does that later"
        ),
    }
}

/// Tells on standard output how a move goes.
struct Terminal {
    what: Moved,
    told_percent: u64,
}

impl Onlooker for Terminal {
    fn progress(&mut self, progress: Progress) {
        let Progress { done_bytes, total_bytes } = progress;
        let percent = done_bytes.saturating_mul(100) / total_bytes.max(1);
        if percent >= self.told_percent + TOLD_PERCENT {
            self.told_percent = percent - percent % TOLD_PERCENT;
            outln!("copied {done_bytes} of {total_bytes} bytes of the {}", self.what);
        }
    }

    fn look(&mut self, copy: Stopped) -> Vec<String> {
        outln!("checking the store as it will be");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match examine_stopped(copy, "the store as it would be", false) {
            Ok(findings) => findings.problems.iter().map(|problem| text(&problem["what"])).collect(),
            Err(error) => vec![format!("{error:#}")],
        }
    }
}
