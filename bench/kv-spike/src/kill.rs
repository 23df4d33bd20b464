//! A process that overwrites is killed, and the store opened again.

use crate::args::{Args, Phase};
use crate::engine;
use crate::evict::evict;
use crate::meter::Counts;
use crate::records;
use crate::report::Line;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long it overwrites.
const CHURNS: Duration = Duration::from_secs(8);

/// Lets a process of its own overwrite, kills it, and opens the store.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut child = begin_churning(args)?;
    let mut lines = BufReader::new(child.stdout.take().context("its output was asked for")?).lines();
    // It has committed once.
    let has_begun = lines.next().transpose()?.is_some();
    std::thread::sleep(CHURNS);
    child.kill()?;
    child.wait()?;
    ensure!(has_begun, "the process that was to be killed ended by itself");
    evict(&args.directory);
    let begin = Counts::now(&args.directory);
    let store = engine::open(args)?;
    let opened = begin.spent(&args.directory);
    let found = store.get(&records::onode_key(args.objects / 2))?;
    let answered = begin.spent(&args.directory);
    ensure!(found.is_some(), "an object was lost");
    let mut line = Line::new(args, Phase::Kill);
    line.number("opened_s", opened.wall.as_secs_f64());
    line.number("answered_s", answered.wall.as_secs_f64());
    line.spent(&answered, 1);
    Ok(line.print()?)
}

fn begin_churning(args: &Args) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([args.engine.name(), "--phases", Phase::Churn.name(), "--directory"]).arg(&args.directory);
    let numbers = [
        ("--objects", args.objects),
        ("--memory", args.memory_bytes as u64 >> 20),
        ("--batch", args.batch_objects),
        ("--page-every", args.page_every),
        ("--seed", args.seed + 1),
    ];
    for (name, value) in numbers {
        command.arg(name).arg(value.to_string());
    }
    Ok(command.stdout(Stdio::piped()).spawn()?)
}
