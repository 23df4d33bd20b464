//! Chores of the repository: `cargo xtask lint|fix|tidy|doc|ci`.
//!
//! `ci` is the one gate; it never edits. `fix` edits what can be edited by machine.

mod advisories;
mod circles;
mod documents;
mod outside;
mod tidy;
mod words;

use anyhow::{Context, Result, bail};
use std::process::Command;

fn main() -> Result<()> {
    std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).context("the repository's root")?;
    match std::env::args().nth(1).as_deref() {
        Some("lint") => lint(),
        Some("fix") => {
            run("cargo", &["fmt", "--all"])?;
            run("cargo", &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--quiet"])
        }
        Some("tidy") => tidy::check(),
        Some("doc") => doc(),
        Some("ci") => ci(),
        _ => bail!("usage: cargo xtask lint|fix|tidy|doc|ci"),
    }
}

fn lint() -> Result<()> {
    sources()?;
    run("cargo", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])
}

/// What can be said of the sources without a compiler.
fn sources() -> Result<()> {
    run("cargo", &["fmt", "--all", "--check"])?;
    tidy::check()?;
    outside::check()
}

/// As `lint`, then documentation and all tests. Clippy is a compiler that says more: what it has built for the lints runs the tests, where
/// `cargo clippy` beside `cargo test` goes through every crate twice.
fn ci() -> Result<()> {
    sources()?;
    doc()?;
    run_linting("cargo", &["test", "--workspace", "--all-targets", "--no-run", "--quiet"])?;
    run_linting("make", &["test"])
}

/// As `run`, where Clippy compiles our crates and its warnings are errors. The words of `CLIPPY_ARGS` are put together as `cargo clippy`
/// does it.
fn run_linting(program: &str, args: &[&str]) -> Result<()> {
    let words: String = ["--deny", "warnings"].map(|word| format!("{word}__CLIPPY_HACKERY__")).concat();
    let mut command = Command::new(program);
    finish(command.args(args).envs([("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"), ("CLIPPY_ARGS", &words)]))
}

/// Documentation without warnings: links lead somewhere. Its front page is that of the crate `nacre`.
fn doc() -> Result<()> {
    let mut cargo = Command::new("cargo");
    finish(cargo.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "--deny warnings"))
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    finish(Command::new(program).args(args))
}

fn finish(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    if status.success() { Ok(()) } else { bail!("{command:?} failed: {status}") }
}
