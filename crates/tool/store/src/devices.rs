//! `nacre store label` and `nacre store wipe`: devices that belong to OSDs, wherever links to them are.

use anyhow::Result;
use clap::Args;
use nacre_device::Label;
use nacre_env::outln;
use nacre_osd::storage;
use nacre_types::{OsdId, Uuid};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `nacre store label`.
#[derive(Debug, Args)]
pub struct LabelOptions {
    /// Devices, or files that are used as such; their OSDs do not run.
    #[arg(required = true)]
    devices: Vec<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Options of `nacre store wipe`.
#[derive(Debug, Args)]
pub struct WipeOptions {
    /// Device whose OSD does not run, and never will again.
    device: PathBuf,
    /// Number of that OSD: another one's device stays as it is.
    #[arg(long)]
    osd: OsdId,
}

/// What a label says, as JSON.
fn as_json(label: &Label) -> Value {
    let known = (label.owner.cluster != Uuid::NIL).then(|| label.owner.cluster.to_string());
    let regions = label.regions.iter().map(|region| {
        let kind = format!("{:?}", region.kind).to_lowercase();
        json!({ "kind": kind, "offset": region.offset, "length": region.length })
    });
    json!({
        "role": label.role.to_string(),
        "whoami": label.owner.osd,
        "osd_uuid": label.owner.osd_uuid.to_string(),
        "store": label.owner.store.to_string(),
        "ceph_fsid": known,
        "size": label.device_bytes,
        "regions": regions.collect::<Vec<_>>(),
    })
}

/// Fails with the exit status when one of the devices has no label.
pub(crate) fn label(options: &LabelOptions) -> Result<ExitCode> {
    let mut document = serde_json::Map::new();
    let mut all = true;
    for path in &options.devices {
        let found = storage::label_of(path);
        all &= found.is_ok();
        if options.json {
            let told = match &found {
                Ok(label) => as_json(label),
                Err(error) => json!({ "error": error.to_string() }),
            };
            document.insert(path.display().to_string(), told);
            continue;
        }
        match found {
            Ok(label) => outln!("{}: {label}, {} bytes", path.display(), label.device_bytes),
            Err(error) => outln!("{error}"),
        }
    }
    if options.json {
        outln!("{}", serde_json::to_string_pretty(&document)?);
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn wipe(options: &WipeOptions) -> Result<ExitCode> {
    let label = storage::wipe(&options.device, options.osd)?;
    outln!("{} was {label}, and is nobody's now", options.device.display());
    Ok(ExitCode::SUCCESS)
}
