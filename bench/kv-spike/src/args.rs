//! What the command line says.

use anyhow::{Context, bail};
use std::path::PathBuf;
use std::time::Duration;

/// What keeps the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Redb,
    RedbJournal,
    Fjall,
    Rocksdb,
}

impl EngineKind {
    const ALL: [(&'static str, Self); 4] = [
        ("redb", Self::Redb),
        ("redb-journal", Self::RedbJournal),
        ("fjall", Self::Fjall),
        ("rocksdb", Self::Rocksdb),
    ];

    pub(crate) fn name(self) -> &'static str {
        name_in(&Self::ALL, self)
    }
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Load,
    LoadSorted,
    Overwrite,
    Read,
    Mixed,
    Scan,
    Kill,
    /// Of the process that is killed: batches without end.
    Churn,
}

impl Phase {
    const ALL: [(&'static str, Self); 8] = [
        ("load", Self::Load),
        ("load-sorted", Self::LoadSorted),
        ("overwrite", Self::Overwrite),
        ("read", Self::Read),
        ("mixed", Self::Mixed),
        ("scan", Self::Scan),
        ("kill", Self::Kill),
        ("churn", Self::Churn),
    ];

    pub(crate) fn name(self) -> &'static str {
        name_in(&Self::ALL, self)
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Args {
    pub(crate) engine: EngineKind,
    /// 0: as many as there are.
    pub(crate) objects: u64,
    /// Bytes for caches, memtables and journals.
    pub(crate) memory_bytes: usize,
    pub(crate) directory: PathBuf,
    pub(crate) phases: Vec<Phase>,
    /// How long a phase that has no end of its own takes.
    pub(crate) length: Duration,
    /// Changed objects in a batch.
    pub(crate) batch_objects: u64,
    /// One object of so many has a second page of blocks.
    pub(crate) page_every: u64,
    /// Begins the random numbers.
    pub(crate) seed: u64,
}

impl Args {
    /// # Errors
    /// An argument that is not known, lacks its value, or is missing.
    pub(crate) fn parse(mut given: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let engine = given.next().context("which engine: redb, redb-journal, fjall or rocksdb?")?;
        let mut args = Self {
            engine: named(&EngineKind::ALL, &engine)?,
            objects: 0,
            memory_bytes: 1024 << 20,
            directory: PathBuf::new(),
            phases: Vec::new(),
            length: Duration::from_secs(60),
            batch_objects: 12_000,
            page_every: 8,
            seed: 1,
        };
        while let Some(name) = given.next() {
            let value = given.next().with_context(|| format!("{name} of what?"))?;
            match name.as_str() {
                "--objects" => args.objects = value.parse()?,
                "--memory" => args.memory_bytes = value.parse::<usize>()? << 20,
                "--directory" => args.directory = PathBuf::from(value),
                "--seconds" => args.length = Duration::from_secs(value.parse()?),
                "--batch" => args.batch_objects = value.parse()?,
                "--page-every" => args.page_every = value.parse()?,
                "--seed" => args.seed = value.parse()?,
                "--phases" => {
                    args.phases =
                        value.split(',').map(|phase| named(&Phase::ALL, phase)).collect::<Result<_, _>>()?;
                }
                _ => bail!("{name} is not known"),
            }
        }
        if args.batch_objects == 0 || args.page_every == 0 {
            bail!("--batch and --page-every are at least 1");
        }
        if args.directory.as_os_str().is_empty() || args.phases.is_empty() {
            bail!("--directory and --phases have to be there");
        }
        Ok(args)
    }
}

fn named<T: Copy>(all: &[(&str, T)], name: &str) -> anyhow::Result<T> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).with_context(|| format!("{name} is not known"))
}

fn name_in<T: Copy + PartialEq>(all: &[(&'static str, T)], value: T) -> &'static str {
    all.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}
