//! `nacre store`: looking at, checking, repairing and moving what an OSD keeps, while the OSD is stopped.
//!
//! | file | holds |
//! |---|---|
//! | `target` | the store that a command is about: files, locks, opening |
//! | `scratch` | a store is looked at without a byte of it being changed |
//! | `check` | is everything whole |
//! | `repair` | repairing what can be repaired without guessing |
//! | `dump` | what is in it, as JSON |
//! | `compact` | giving space in the metadata back |
//! | `trim` | giving free space back to the device |
//! | `devices` | whose a raw device is, and giving it up |
//! | `moves` | log or metadata to another device and back |
//! | `size` | sizes on a command line |
//! | `stream` | the file of an exported PG |
//! | `export`, `import` | one PG to and from such a file |
//! | `recovery` | what it knows of the cluster, for one that has lost its monitors |
//! | `bench` | the store alone, beside the raw device |
//!
//! Layer: tool; uses base, core, io and daemon.

mod bench;
mod check;
mod compact;
mod devices;
mod dump;
mod export;
mod import;
mod moves;
mod recovery;
mod repair;
mod scratch;
mod size;
mod stream;
mod target;
mod trim;

#[cfg(test)]
mod tests;

pub use recovery::{ControlState, control_state};
pub use size::parse_size;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Commands on a store that no OSD has open.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say whether a store is whole; exit status 1 when it is not. Changes nothing.
    Check(check::Options),
    /// Repair what can be repaired without guessing.
    Repair(repair::Options),
    /// Print what a store holds, as JSON. Changes nothing.
    Dump(dump::Options),
    /// Give unused space of the metadata back to the file system.
    Compact(compact::Options),
    /// Tell the device that all free space is not needed: as `fstrim` does for a file system. A store in a file gives it back to its file
    /// system, and may find it full later.
    Trim(trim::Options),
    /// Say which OSDs devices belong to. Changes nothing.
    Label(devices::LabelOptions),
    /// Take a device away from an OSD that is gone for good: what is on it is lost.
    Wipe(devices::WipeOptions),
    /// Move the write-ahead log to another device, or back to the one with the data. Killed at any point, the store is as before or as after;
    /// saying it again finishes.
    MoveLog(moves::LogOptions),
    /// Move the metadata, with their journal, to another device, or back to the one with the data. Killed at any point, the store is as
    /// before or as after; saying it again finishes.
    MoveMetadata(moves::MetadataOptions),
    /// Write one PG to a file. Changes nothing in the store.
    Export(export::Options),
    /// Read one PG from a file that export wrote.
    Import(import::Options),
    /// Measure a store of its own, beside the raw device.
    Bench(bench::Options),
}

/// Carries out a command. The code is that of the process: 0 for done and sound, 1 for damage found.
///
/// # Errors
/// When the command cannot be carried out; the text says what to do.
pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Check(options) => check::run(options),
        Command::Repair(options) => repair::run(options),
        Command::Dump(options) => dump::run(options),
        Command::Compact(options) => compact::run(options),
        Command::Trim(options) => trim::run(options),
        Command::Label(options) => devices::label(options),
        Command::Wipe(options) => devices::wipe(options),
        Command::MoveLog(options) => moves::log(options),
        Command::MoveMetadata(options) => moves::metadata(options),
        Command::Export(options) => export::run(options),
        Command::Import(options) => import::run(options),
        Command::Bench(options) => bench::run(options),
    }
}
