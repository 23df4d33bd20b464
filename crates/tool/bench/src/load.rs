//! What is measured and how long: options that `run` and `compare` share, and what a driver of load hands back.

use crate::cell::{Cell, parse_cells};
use crate::driver::Driver;
use crate::figures::{Figures, Metric};
use crate::latency::Latencies;
use crate::place::Place;
use crate::usage::Usage;
use anyhow::{Result, bail};
use clap::Args;
use std::path::Path;

/// Objects of an image have 4 MiB.
const SIZE_MIB_MIN: u64 = 16;
/// fio needs a part of the first to connect.
const SECONDS_MIN: u32 = 2;
const SECONDS_MAX: u32 = 24 * 3600;
/// PGs of a pool, as Ceph's `mon_max_pool_pg_num`.
pub(crate) const PGS_MAX: u32 = 65_536;

/// What is asked of a cluster, and for how long.
#[derive(Debug, Clone, Args)]
pub(crate) struct Load {
    /// Cells by name (randwrite-4k-qd32, write-4k-sync, mix70-128k-qd1, randread-4k-clients16, randread-4k-rate9000,
    /// with suffixes such as -images16, -objects1000, -connections200) or sets of them: quick, matrix, sync, clients,
    /// full. By default quick, or what an experiment asks for.
    #[arg(long, value_delimiter = ',')]
    pub(crate) cells: Vec<String>,
    /// Seconds of one repetition, beside the warm-up.
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u32,
    /// Seconds of load before each repetition that do not count.
    #[arg(long, default_value_t = 2)]
    pub(crate) warmup: u32,
    /// Mebibytes of the image, or of all images of a cell together; all of it is written before.
    #[arg(long, default_value_t = 1024)]
    pub(crate) size_mib: u64,
    /// PGs of the pool that is made.
    #[arg(long, default_value_t = 32)]
    pub(crate) pgs: u32,
    /// Let each OSD say what its operations spent in which stage (Nacre's OSDs only); takes seconds per repetition.
    #[arg(long)]
    pub(crate) stages: bool,
    /// Measure programs that were built without optimisation, too, whose figures say nothing: to try the bench itself.
    #[arg(long)]
    pub(crate) allow_unoptimised: bool,
    /// The program that puts the load on.
    #[arg(long, value_enum, default_value = "fio")]
    pub(crate) client: Driver,
}

impl Load {
    /// The cells, if all options are sound.
    pub(crate) fn check(&self) -> Result<Vec<Cell>> {
        if self.seconds < SECONDS_MIN || self.seconds > SECONDS_MAX || self.warmup > SECONDS_MAX {
            bail!("--seconds is from {SECONDS_MIN} to {SECONDS_MAX}, --warmup from 0");
        }
        if self.size_mib < SIZE_MIB_MIN || !self.size_mib.is_multiple_of(4) {
            bail!("--size-mib is a multiple of 4, at least {SIZE_MIB_MIN}");
        }
        if !(1..=PGS_MAX).contains(&self.pgs) {
            bail!("--pgs is from 1 to {PGS_MAX}");
        }
        parse_cells(&self.cells())
    }

    fn cells(&self) -> Vec<String> {
        if self.cells.is_empty() { vec!["quick".to_owned()] } else { self.cells.clone() }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_mib << 20
    }

    /// The same places for each side of a comparison, others in each repetition.
    pub(crate) fn timing(&self, repetition: usize, planted_delay: Option<f64>) -> Timing {
        let seed = 1000 + repetition as u64;
        Timing { seconds: self.seconds, warmup_s: self.warmup, seed, planted_delay }
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "cells": self.cells(),
            "seconds": self.seconds,
            "warmup": self.warmup,
            "size_mib": self.size_mib,
            "pgs": self.pgs,
            "client": self.client.name(),
        })
    }
}

/// Where load goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    /// Configuration with monitors and keyring.
    pub(crate) conf: &'a Path,
    pub(crate) keyring: &'a Path,
    /// Name without `client.`.
    pub(crate) user: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) place: &'a Place,
}

/// How long, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) seconds: u32,
    pub(crate) warmup_s: u32,
    pub(crate) seed: u64,
    /// Share by which answers are held back, if delays are tried at all.
    pub(crate) planted_delay: Option<f64>,
}

/// What a driver of load saw of one repetition.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) latencies: Latencies,
    pub(crate) seconds: f64,
    /// Of each flush behind a write.
    pub(crate) flush_mean_us: Option<f64>,
    /// Operations for which the use of the machine was counted.
    pub(crate) used_ios: f64,
    pub(crate) client: Option<Usage>,
    pub(crate) servers: Option<Usage>,
}

impl Measured {
    /// The figures of one repetition.
    pub(crate) fn figures(&self, cell: Cell) -> Figures {
        let mut figures = Figures::of(&self.latencies, cell.bytes, self.seconds);
        let mut set = |metric, value: Option<f64>| {
            if let Some(value) = value {
                figures.values.insert(metric, value);
            }
        };
        let per_io = |value: f64| value / self.used_ios.max(1.0);
        set(Metric::FlushMeanUs, self.flush_mean_us);
        set(Metric::ClientCpuUs, self.client.map(|usage| per_io(usage.cpu_us)));
        set(Metric::ClientSwitches, self.client.map(|usage| per_io(usage.context_switches as f64)));
        set(Metric::ServerCpuUs, self.servers.map(|usage| per_io(usage.cpu_us)));
        set(Metric::MachineCpuUs, self.servers.and_then(|usage| Some(per_io(usage.machine_cpu_us?))));
        set(Metric::ServerSystemShare, self.servers.map(|usage| usage.system_share));
        set(Metric::ServerSwitches, self.servers.map(|usage| per_io(usage.context_switches as f64)));
        set(Metric::ServerRssBytes, self.servers.map(|usage| usage.rss_bytes_max as f64));
        set(Metric::DeviceBytes, self.servers.and_then(|usage| Some(per_io(usage.write_bytes? as f64))));
        figures
    }
}
