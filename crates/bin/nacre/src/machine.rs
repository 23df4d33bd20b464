//! What this machine has: its name, and how much memory and disk a new store may take of it.

use crate::args::StoreKind;
use crate::files::Folder;
use anyhow::{Context, Result};
use nacre_types::build_kind::BuildKind;
use std::collections::BTreeMap;
use std::process::Command;

/// Bounds of a store whose size is not given.
const OSD_BYTES_MIN: u64 = 1 << 30;
const OSD_BYTES_MAX: u64 = 64 << 30;

/// The machine, as CRUSH and people know it.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let short = name.trim().split('.').next().unwrap_or_default();
    if short.is_empty() { "localhost".to_owned() } else { short.to_owned() }
}

/// Facts about the machine under the names of Ceph's metadata (`src/common/util.cc` at v16.2.15: `collect_sys_info`); those that the system
/// does not tell are left out.
pub(crate) fn machine_facts() -> BTreeMap<String, String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let line = |text: &str, key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(value.trim_start_matches([' ', '\t', ':', '=']).trim().trim_matches('"').to_owned())
    };
    let kib = |text: &str, key: &str| line(text, key).map(|value| value.trim_end_matches(" kB").to_owned());
    let (memory, cpu) = (read("/proc/meminfo"), read("/proc/cpuinfo"));
    let (release, kernel) = (read("/etc/os-release"), "/proc/sys/kernel");
    let facts = [
        ("cpu", line(&cpu, "model name")),
        ("distro", line(&release, "ID=")),
        ("distro_description", line(&release, "PRETTY_NAME=")),
        ("distro_version", line(&release, "VERSION_ID=")),
        ("kernel_description", Some(read(&format!("{kernel}/version")).trim().to_owned())),
        ("kernel_version", Some(read(&format!("{kernel}/osrelease")).trim().to_owned())),
        ("mem_swap_kb", kib(&memory, "SwapTotal:")),
        ("mem_total_kb", kib(&memory, "MemTotal:")),
        (BuildKind::METADATA_KEY, Some(BuildKind::own().to_string())),
    ];
    let told = facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    told.filter(|(_, value)| !value.is_empty()).collect()
}

/// Bytes of one OSD's store: what the operator says, or a part of the memory or of the free disk space.
///
/// # Errors
/// When the free disk space cannot be known.
pub(crate) fn capacity_bytes(
    folder: &Folder,
    osd_size: Option<u64>,
    store: StoreKind,
    osd_count: usize,
) -> Result<u64> {
    if let Some(size) = osd_size {
        return Ok(size);
    }
    let whole = match store {
        StoreKind::Memory => memory_bytes() / 2,
        StoreKind::File => free_bytes(folder)? / 4,
    };
    Ok((whole / osd_count as u64).clamp(OSD_BYTES_MIN, OSD_BYTES_MAX))
}

fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(4 << 20) << 10
}

/// Free space of the file system that holds the folder, by `df`: no library of ours asks for it.
fn free_bytes(folder: &Folder) -> Result<u64> {
    let output = Command::new("df").args(["--output=avail", "-B1"]).arg(folder.path()).output();
    let output = output.context("df tells the free disk space; give --osd-size if there is no df")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let free = text.lines().last().and_then(|line| line.trim().parse().ok());
    free.context("df did not tell the free disk space; give --osd-size")
}
