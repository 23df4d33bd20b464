//! [`Session`]: sides that are ready for load, and the results so far.

use crate::cell::Cell;
use crate::driver::Driver;
use crate::figures::Metric;
use crate::load::Load;
use crate::results::{Row, Writer};
use crate::shape::Shape;
use crate::side::Side;
use crate::spec::{OsdOptions, Spec};
use crate::{fio, host, own};
use anyhow::{Context, Result, bail};
use nacre_env::errln;
use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Share by which the answers to both sides are held back when a delay is tried on one.
const HELD_ANYWAY: f64 = 0.5;

/// One of those that are compared.
#[derive(Debug)]
struct Entrant {
    label: String,
    /// Whose cluster and load it has, among the sides.
    side: usize,
    /// What its OSDs are told before it is measured: what they are told otherwise for another one.
    options: OsdOptions,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Session {
    load: Load,
    pub(crate) cells: Vec<Cell>,
    entrants: Vec<Entrant>,
    sides: Vec<Side>,
    /// Entrant and share by which its answers are held back.
    pub(crate) planted_delay: Option<(usize, f64)>,
    pub(crate) writer: Writer,
    /// SIGINT or SIGTERM came.
    stop: Arc<AtomicBool>,
    /// Declared last: the sides' clusters live in it.
    _folder: Scratch,
}

impl Session {
    /// Starts or finds the sides, makes their images or objects and fills them.
    pub(crate) fn open(
        load: &Load,
        sides: &[(&str, &Spec)],
        folder: Option<&Path>,
        out: Option<&Path>,
    ) -> Result<Self> {
        let cells = load.check()?;
        sides.iter().try_for_each(|(label, spec)| {
            check_cells(&cells, spec.shape(), load.client).with_context(|| format!("side {label}"))
        })?;
        // A bench that is interrupted removes what it made; one that is interrupted again does not.
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            register_conditional_shutdown(signal, 1, Arc::clone(&stop)).context("cannot wait for signals")?;
            register(signal, Arc::clone(&stop)).context("cannot wait for signals")?;
        }
        let folder = Scratch::new(folder)?;
        let mut writer = Writer::open(out)?;
        let (mut opened, mut entrants) = (Vec::<Side>::new(), Vec::<Entrant>::new());
        let mut described = Map::new();
        for (label, spec) in sides {
            let label = (*label).to_owned();
            if let (Spec::Same(options), [other], [entrant]) =
                (spec, opened.as_slice(), entrants.as_mut_slice())
            {
                entrant.options = other.osd_options(options).with_context(|| format!("side {label}"))?;
                other.set_osd_options(options).with_context(|| format!("side {label}"))?;
                let mut build = other.build().clone();
                build["osd_options"] = json!(options);
                described.insert(label.clone(), build);
                entrants.push(Entrant { label, side: 0, options: options.clone() });
                continue;
            }
            let mut side =
                Side::open(&label, spec, &folder.0, load).with_context(|| format!("side {label}"))?;
            if side.pids.is_empty() {
                errln!("{label}: no processes of OSDs found, so their work is not measured; see --pids");
            }
            side.prepare(&cells).with_context(|| format!("preparing side {label}"))?;
            check_stop(&stop)?;
            described.insert(label.clone(), side.build().clone());
            entrants.push(Entrant { label, side: opened.len(), options: OsdOptions::new() });
            opened.push(side);
        }
        writer.begin(json!({
            "began_ms": now_ms(),
            "host": host::describe(),
            "load": load.to_json(),
            "sides": described,
        }))?;
        Ok(Self {
            load: load.clone(),
            cells,
            entrants,
            sides: opened,
            planted_delay: None,
            writer,
            stop,
            _folder: folder,
        })
    }

    /// One repetition of a cell on one of the sides that were given.
    pub(crate) fn measure(&mut self, entrant: usize, cell: Cell, repetition: usize) -> Result<()> {
        let delay = self.planted_delay.map(|(of, share)| {
            // Both sides are held back, so that they differ in nothing but how long.
            let planted = if of == entrant { share } else { 0.0 };
            (1.0 + HELD_ANYWAY) * (1.0 + planted) - 1.0
        });
        let entrant = self.entrants.get(entrant).context("no such side")?;
        let side = self.sides.get(entrant.side).context("no such side")?;
        side.set_osd_options(&entrant.options)?;
        let (timing, began_ms) = (self.load.timing(repetition, delay), now_ms());
        let stages = if self.load.stages { side.stages()? } else { None };
        let shaped = side.shaped(cell)?;
        let place = side.place(shaped)?;
        let target = side.target(&place);
        let measured = match self.load.client {
            Driver::Fio => fio::measure(target, shaped, timing, &side.pids),
            Driver::Own => own::measure(target, shaped, timing, &side.pids),
        };
        check_stop(&self.stop)?;
        let measured = measured.with_context(|| format!("side {}, {}", entrant.label, cell.name()))?;
        let stages = match stages {
            Some(before) => side.stages()?.map_or(Value::Null, |after| after.since(&before)),
            None => Value::Null,
        };
        let row = Row {
            side: entrant.label.clone(),
            cell: cell.name(),
            repetition,
            began_ms,
            driver: self.load.client.name().to_owned(),
            figures: measured.figures(cell),
            stages,
        };
        tell(&row);
        self.writer.add(row)
    }
}

fn check_stop(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// The cells, as this side has them, are nothing that the driver cannot do.
fn check_cells(cells: &[Cell], shape: Shape, driver: Driver) -> Result<()> {
    for cell in cells {
        let cell = cell.shaped(shape)?;
        cell.shape.check_driver(cell.pace, driver).with_context(|| cell.name())?;
    }
    Ok(())
}

/// A line as soon as it is known: runs take long.
fn tell(row: &Row) {
    let value =
        |metric| row.figures.get(metric).map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    errln!(
        "{} {} repetition {}: {} IOPS, mean {} us, p99 {} us, servers {} us/IO",
        row.side,
        row.cell,
        row.repetition,
        value(Metric::Iops),
        value(Metric::MeanUs),
        value(Metric::P99Us),
        value(Metric::ServerCpuUs),
    );
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A folder of the bench's own, removed with all that is in it.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes it in `parent`, by default the system's temporary folder.
    pub(crate) fn new(parent: Option<&Path>) -> Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = parent.join(format!("nacre-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        // Clients are told of files in it, wherever they run.
        let path = std::fs::canonicalize(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            errln!("{} is left behind: {error}", self.0.display());
        }
    }
}
