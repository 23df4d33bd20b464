//! `nacre store check`: labels of devices, superblocks, metadata, log, the objects against the allocator, and with `--deep` every block
//! against its checksum.

use crate::target::{
    Opened, Piece, Target, id_text, newest_map_of_all, open_metadata, open_scratch, pgs, usage_of,
};
use anyhow::Result;
use clap::Args;
use nacre_blockstore::{CheckReport, Layout, MountReport, OpenError};
use nacre_env::Disk;
use nacre_env::outln;
use nacre_kv::KvStore;
use nacre_osd::storage::{self, DeviceLabel, Stopped, StoppedPartition, StoreKeys};
use nacre_pg::Pg;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Options of `nacre store check`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    target: Target,
    /// Read every block of data and compare it with its checksum.
    #[arg(long)]
    deep: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// What a check found. Everything in `problems` makes the store unsound.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) problems: Vec<Value>,
    facts: Value,
}

impl Findings {
    pub(crate) fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, kind: &str, what: String) {
        self.problems.push(json!({ "kind": kind, "what": what }));
    }

    fn fact(&mut self, name: &str, value: Value) {
        if let Some(facts) = self.facts.as_object_mut() {
            facts.insert(name.to_owned(), value);
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let findings = examine(&options.target, options.deep)?;
    if options.json {
        let document = json!({
            "store": options.target.shown(),
            "sound": findings.is_sound(),
            "facts": findings.facts,
            "problems": findings.problems,
        });
        outln!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        print(&options.target, &findings);
    }
    Ok(if findings.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Looks at everything without changing a byte.
pub(crate) fn examine(target: &Target, deep: bool) -> Result<Findings> {
    let mut findings = examine_stopped(target.stopped()?, &target.shown(), deep)?;
    findings.fact("device_when_last_opened", json!(target.device_facts()));
    Ok(findings)
}

/// The same of a store that is held already.
pub(crate) fn examine_stopped(stopped: Stopped, shown: &str, deep: bool) -> Result<Findings> {
    let mut findings = Findings { problems: Vec::new(), facts: json!({}) };
    labels(&stopped, &mut findings);
    let mut partitions = stopped.partitions;
    if let Some(first) = partitions.first_mut() {
        superblocks(first.disk.as_mut(), &mut findings);
    }
    let used = partitions.iter().map(|partition| partition.metadata.used_bytes());
    if let Ok(used) = used.collect::<Result<Vec<(u64, u64)>, _>>() {
        let (trees, journals): (Vec<u64>, Vec<u64>) = used.into_iter().unzip();
        findings.fact("metadata_bytes", trees.iter().sum::<u64>().into());
        findings.fact("metadata_journal_bytes", journals.iter().sum::<u64>().into());
    }
    let count = partitions.len();
    if count > 1 {
        findings.fact("partitions", count.into());
    }
    let mut pieces = Vec::new();
    for (number, StoppedPartition { mut disk, metadata }) in (0..).zip(partitions) {
        let of = of_partition(number, count);
        match open_metadata(&metadata, shown) {
            Ok(kv) => {
                bad_records(disk.as_mut(), kv.as_ref(), (number, &of), &mut findings);
                pieces.push(Piece { disk, kv });
            }
            Err(error) => findings.problem("metadata", format!("{of}{error:#}")),
        }
    }
    let of_copies = ["superblock", "label", "keys"];
    let is_of_copy = |problem: &Value| of_copies.iter().any(|kind| problem["kind"] == *kind);
    if findings.problems.iter().all(is_of_copy) {
        opened(open_scratch(pieces, shown), deep, &mut findings)?;
    }
    Ok(findings)
}

/// What problems of a partition begin with; nothing where there is one.
fn of_partition(number: u32, count: usize) -> String {
    if count > 1 { format!("partition {number}: ") } else { String::new() }
}

fn bad_records(disk: &mut dyn Disk, kv: &dyn KvStore, (number, of): (u32, &str), findings: &mut Findings) {
    match nacre_blockstore::bad_metadata(disk, kv, number) {
        Err(error) => findings.problem("metadata", format!("{of}{error}")),
        Ok(bad) => {
            for record in bad {
                let about = record.object.map_or_else(String::new, |(at, name)| format!(" {at} {name}"));
                let key = record.key.escape_ascii();
                findings.problem(record.kind, format!("{of}record {key}{about}: {}", record.reason));
            }
        }
    }
}

/// What the labels of a store on devices say, and its wrapped key; one copy of each may be damaged, or there would be no store.
fn labels(stopped: &Stopped, findings: &mut Findings) {
    let said = |label: &DeviceLabel| format!("{}: {}", label.device().display(), label.label());
    if !stopped.labels.is_empty() {
        findings.fact("devices", stopped.labels.iter().map(said).collect());
    }
    for complaint in stopped.labels.iter().filter_map(DeviceLabel::complaint) {
        findings.problem("label", complaint);
    }
    findings.fact("encrypted", stopped.keys.is_some().into());
    if let Some(complaint) = stopped.keys.as_ref().and_then(StoreKeys::complaint) {
        findings.problem("keys", complaint);
    }
}

fn superblocks(disk: &mut dyn Disk, findings: &mut Findings) {
    let copies = nacre_blockstore::superblock_copies(disk);
    for (nth, copy) in copies.iter().enumerate() {
        if let Err(error) = copy {
            findings.problem("superblock", format!("copy {nth}: {error}"));
        }
    }
    let whole: Vec<Layout> = copies.into_iter().filter_map(Result::ok).collect();
    if whole.windows(2).any(|pair| matches!(pair, [a, b] if a != b)) {
        findings.problem("superblock", "the copies differ".to_owned());
    }
    findings.fact("device_bytes", disk.info().size_bytes.into());
    if let Some(layout) = whole.first() {
        findings.fact("id", id_text(layout.id).into());
        findings.fact("format", layout.version.into());
        findings.fact("log_blocks", layout.log_count.into());
        findings.fact("data_blocks", layout.data_count.into());
    }
}

fn opened(stores: Result<Vec<Opened>>, deep: bool, findings: &mut Findings) -> Result<()> {
    match stores {
        Ok(mut stores) => {
            let count = stores.len();
            let mut checked = Vec::new();
            for (number, (store, mount)) in (0..).zip(&mut stores) {
                let (of, report) = (of_partition(number, count), store.check(deep));
                for what in &report.inconsistencies {
                    findings.problem("inconsistency", format!("{of}{what}"));
                }
                for (at, name, offset, why) in &report.damaged {
                    findings.problem("data", format!("{of}{at} {name} at byte {offset}: {why}"));
                }
                checked.push((*mount, report));
            }
            twins(&stores, findings);
            facts(&stores, &checked, findings);
            Ok(())
        }
        Err(error) => match error.downcast_ref::<OpenError>() {
            Some(_) => {
                findings.problem("open", format!("{error:#}"));
                Ok(())
            }
            None => Err(error),
        },
    }
}

/// A PG is in one partition, beside a copy that is on its way to another one, or what ended with a map that its partition has not seen yet
/// and was made anew elsewhere with a later one.
fn twins(stores: &[Opened], findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (store, _) in stores {
        for pg in pgs(store).into_iter().filter(|pg| !storage::is_arriving(store, pg)) {
            if !seen.insert((pg, Pg::stored_epoch(store, &pg))) {
                findings.problem("inconsistency", format!("{pg} is in two partitions"));
            }
        }
    }
}

/// Sums over all partitions.
fn facts(stores: &[Opened], checked: &[(MountReport, CheckReport)], findings: &mut Findings) {
    let sum = |of: &dyn Fn(&(MountReport, CheckReport)) -> u64| checked.iter().map(of).sum::<u64>();
    findings.fact("placement_groups", stores.iter().map(|(store, _)| pgs(store).len()).sum::<usize>().into());
    findings.fact("objects", sum(&|(_, report)| report.objects).into());
    findings.fact("log_records", sum(&|(mount, _)| mount.records).into());
    findings.fact("log_transactions", sum(&|(mount, _)| mount.transactions).into());
    findings.fact("log_records_discarded", sum(&|(mount, _)| mount.records_discarded).into());
    findings.fact("blocks_verified", sum(&|(_, report)| report.blocks).into());
    let usage = usage_of(stores);
    findings.fact("total_bytes", usage.total_bytes.into());
    findings.fact("stored_bytes", usage.stored_bytes.into());
    findings.fact("available_bytes", usage.available_bytes.into());
    findings.fact("omap_bytes", usage.omap_bytes.into());
    if let Some(map) = newest_map_of_all(stores) {
        findings.fact("fsid", map.fsid.to_string().into());
        findings.fact("newest_map", map.epoch.into());
    }
}

fn print(target: &Target, findings: &Findings) {
    outln!("store {}", target.shown());
    for (name, value) in findings.facts.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(parts) => parts.iter().for_each(|(part, value)| outln!("  {part} {}", plain(value))),
            None if value.is_array() => {
                value.as_array().into_iter().flatten().for_each(|one| outln!("  {name} {}", plain(one)));
            }
            None => outln!("  {name} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        }
    }
    for problem in &findings.problems {
        outln!("  PROBLEM {}: {}", plain(&problem["kind"]), plain(&problem["what"]));
    }
    match findings.problems.len() {
        0 => outln!("sound"),
        count => outln!("{count} problems"),
    }
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
