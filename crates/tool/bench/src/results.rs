//! [`Results`]: the file of a run, one JSON document per line.
//!
//! ```text
//!   {"kind": "run", "version": 1, "host": {..}, "load": {..}, "sides": {"a": {..}, ..}}
//!   {"kind": "figures", "side": "a", "cell": "..", "repetition": 0, "began_ms": .., figures.., "stages": {..}}
//!   ...
//! ```
//!
//! Files may be appended to each other: later headers are kept as well.

use crate::figures::Figures;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where results go.
#[derive(Debug, Clone, Args)]
pub(crate) struct Output {
    /// Folder for files of the bench and clusters that it starts; by default the system's temporary one.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// File that the results are appended to, as JSON lines.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// File for a report with plots.
    #[arg(long)]
    pub(crate) html: Option<PathBuf>,
}

const VERSION: u64 = 1;
/// A file with more lines is none of ours.
const LINES_MAX: usize = 1_000_000;

/// One repetition of a cell on one side.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) side: String,
    pub(crate) cell: String,
    pub(crate) repetition: usize,
    /// Calendar, milliseconds since 1970.
    pub(crate) began_ms: u64,
    /// What put the load on.
    pub(crate) driver: String,
    pub(crate) figures: Figures,
    /// Mean microseconds by stage; null when not asked for.
    pub(crate) stages: Value,
}

impl Row {
    fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("kind".to_owned(), json!("figures"));
        map.insert("side".to_owned(), json!(self.side));
        map.insert("cell".to_owned(), json!(self.cell));
        map.insert("repetition".to_owned(), json!(self.repetition));
        map.insert("began_ms".to_owned(), json!(self.began_ms));
        map.insert("driver".to_owned(), json!(self.driver));
        map.append(&mut self.figures.to_json());
        if !self.stages.is_null() {
            map.insert("stages".to_owned(), self.stages.clone());
        }
        Value::Object(map)
    }

    fn from_json(value: &Value) -> Result<Self> {
        let text =
            |name: &str| value[name].as_str().map(str::to_owned).with_context(|| format!("no `{name}`"));
        Ok(Self {
            side: text("side")?,
            cell: text("cell")?,
            repetition: usize::try_from(value["repetition"].as_u64().context("no `repetition`")?)?,
            began_ms: value["began_ms"].as_u64().context("no `began_ms`")?,
            driver: text("driver")?,
            figures: Figures::from_json(value)?,
            stages: value["stages"].clone(),
        })
    }
}

/// Everything that a file holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Results {
    pub(crate) headers: Vec<Value>,
    pub(crate) rows: Vec<Row>,
}

impl Results {
    /// # Errors
    /// When a line is none of ours.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let mut all = Self::default();
        for run in Self::runs(path)? {
            all.headers.extend(run.headers);
            all.rows.extend(run.rows);
        }
        Ok(all)
    }

    /// Each run of the file by itself: those without figures are left out.
    ///
    /// # Errors
    /// When a line is none of ours, or no run has figures.
    pub(crate) fn runs(path: &Path) -> Result<Vec<Self>> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| format!("{} is no file of results", path.display()))
    }

    fn parse(text: &str) -> Result<Vec<Self>> {
        let mut runs = vec![Self::default()];
        for (nth, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            if nth >= LINES_MAX {
                bail!("more than {LINES_MAX} lines");
            }
            let value: Value = serde_json::from_str(line).with_context(|| format!("line {}", nth + 1))?;
            match value["kind"].as_str() {
                Some("run") if value["version"] != VERSION => bail!("version {}", value["version"]),
                Some("run") => runs.push(Self { headers: vec![value], rows: Vec::new() }),
                Some("figures") => {
                    let row = Row::from_json(&value).with_context(|| format!("line {}", nth + 1))?;
                    runs.last_mut().context("there is always one")?.rows.push(row);
                }
                // A newer program may have more to say.
                Some(_) => (),
                None => bail!("line {} has no `kind`", nth + 1),
            }
        }
        runs.retain(|run| !run.rows.is_empty());
        if runs.is_empty() {
            bail!("no figures");
        }
        Ok(runs)
    }

    /// Names of the cells, in the order in which they came first.
    pub(crate) fn cells(&self) -> Vec<&str> {
        first_seen(self.rows.iter().map(|row| row.cell.as_str()))
    }

    /// Names of the sides, likewise.
    pub(crate) fn sides(&self) -> Vec<&str> {
        first_seen(self.rows.iter().map(|row| row.side.as_str()))
    }

    /// Repetitions of a cell on a side, in order.
    pub(crate) fn of(&self, side: &str, cell: &str) -> Vec<&Row> {
        let mut rows: Vec<&Row> =
            self.rows.iter().filter(|row| row.side == side && row.cell == cell).collect();
        rows.sort_by_key(|row| (row.repetition, row.began_ms));
        rows
    }
}

fn first_seen<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// Collects results, and writes each line to a file as it comes: a run that breaks off keeps what it has.
#[derive(Debug)]
pub(crate) struct Writer {
    file: Option<File>,
    pub(crate) results: Results,
}

impl Writer {
    /// Appends to `path` if there is one.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.with_context(|| path.display().to_string())
        };
        Ok(Self { file: path.map(open).transpose()?, results: Results::default() })
    }

    /// What was run: `fields` of the header.
    pub(crate) fn begin(&mut self, fields: Value) -> Result<()> {
        let mut header = json!({ "kind": "run", "version": VERSION });
        if let (Value::Object(header), Value::Object(fields)) = (&mut header, fields) {
            header.extend(fields);
        }
        self.write(&header)?;
        self.results.headers.push(header);
        Ok(())
    }

    pub(crate) fn add(&mut self, row: Row) -> Result<()> {
        self.write(&row.to_json())?;
        self.results.rows.push(row);
        Ok(())
    }

    fn write(&mut self, value: &Value) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        writeln!(file, "{value}").context("cannot write the results")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::figures::Metric;

    pub(crate) fn row(side: &str, cell: &str, repetition: usize, iops: f64) -> Row {
        let mut figures = Figures { ios: 10, seconds: 1.0, ..Figures::default() };
        figures.values.insert(Metric::Iops, iops);
        let (began_ms, driver) = (repetition as u64, "fio-rbd".to_owned());
        let (side, cell) = (side.to_owned(), cell.to_owned());
        Row { side, cell, repetition, began_ms, driver, figures, stages: Value::Null }
    }

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let path = std::env::temp_dir().join(format!("nacre-bench-results-{}", std::process::id()));
        let mut writer = Writer::open(Some(&path)).expect("a file");
        writer.begin(json!({"host": {"name": "here"}})).expect("written");
        for nth in [1, 0] {
            writer.add(row("a", "read-4k-qd1", nth, 100.0 + nth as f64)).expect("written");
        }
        writer.add(row("b", "read-4k-qd1", 0, 7.0)).expect("written");
        let back = Results::read(&path).expect("our own file");
        assert_eq!(back, writer.results);
        assert_eq!((back.cells(), back.sides()), (vec!["read-4k-qd1"], vec!["a", "b"]));
        assert_eq!(back.of("a", "read-4k-qd1").first().map(|row| row.repetition), Some(0));
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        for wrong in ["", "x", "{}", r#"{"kind":"run","version":2}"#, r#"{"kind":"figures"}"#] {
            assert!(Results::parse(wrong).is_err(), "{wrong}");
        }
    }
}
