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
        Some("ci") => {
            lint()?;
            doc()?;
            run("make", &["test"])
        }
        _ => bail!("usage: cargo xtask lint|fix|tidy|doc|ci"),
    }
}

fn lint() -> Result<()> {
    run("cargo", &["fmt", "--all", "--check"])?;
    tidy::check()?;
    outside::check()?;
    run("cargo", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])
}

/// Documentation without warnings: links lead somewhere. Its front page is that of the crate `nacre`.
fn doc() -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "--deny warnings");
    let status = cargo.status().context("running cargo doc")?;
    if status.success() { Ok(()) } else { bail!("cargo doc failed: {status}") }
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let status = Command::new(program).args(args).status().with_context(|| format!("running {program}"))?;
    if status.success() { Ok(()) } else { bail!("{program} {} failed: {status}", args.join(" ")) }
}
