//! Known defects of the crates that we use: what `cargo deny check advisories` does, without installing it.
//!
//! The database is RustSec's, fetched by git. Where it cannot be reached and no copy is there, nothing was checked: that is
//! printed, and is an error with `NACRE_ADVISORIES=required`. It is never a silent pass.
#![allow(clippy::print_stderr, reason = "a command line tool speaks to people")]

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DATABASE: &str = "https://github.com/rustsec/advisory-db";
/// With any text in it, there may be no CI without a check.
const REQUIRED: &str = "NACRE_ADVISORIES";
/// What git may take, in seconds.
const FETCH_S_MAX: &str = "60";

/// One advisory, as far as it matters here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Advisory {
    id: String,
    /// Why it is no vulnerability: `unmaintained`, `notice`; `unsound` is one.
    informational: String,
    withdrawn: bool,
    /// Versions that do not have it.
    good: Vec<String>,
}

/// Checks every crate in the dependency graph against the database.
pub(crate) fn check(packages: &[Value], policy: &str) -> Result<()> {
    let folder = match fetch() {
        Ok(folder) => folder,
        Err(error) if std::env::var_os(REQUIRED).is_some() => return Err(error.context("advisories")),
        Err(error) => {
            eprintln!("advisories: NOT CHECKED: {error:#}");
            return Ok(());
        }
    };
    let ignored = crate::outside::strings(policy, "[advisories]");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for package in packages.iter().filter(|package| package["source"].is_string()) {
        let text = |field: &str| package[field].as_str().unwrap_or_default();
        let (name, version) = (text("name"), text("version"));
        for advisory in of_crate(&folder.join("crates").join(name))? {
            count += 1;
            let meant = !advisory.withdrawn && !ignored.contains(&advisory.id);
            if !meant || advisory.good.iter().any(|range| matches(range, version)) {
                continue;
            }
            let text = format!("{name} {version}: {} {}", advisory.id, advisory.informational);
            match advisory.informational.as_str() {
                "" | "unsound" => wrong.push(text),
                _ => eprintln!("advisories: {text}"),
            }
        }
    }
    eprintln!("advisories: {count} looked at");
    if wrong.is_empty() {
        Ok(())
    } else {
        bail!("known defects (deny.toml may list exceptions):\n  {}", wrong.join("\n  "))
    }
}

/// The database, brought up to date; an older copy where that cannot be.
fn fetch() -> Result<PathBuf> {
    let folder = PathBuf::from("target/advisory-db");
    let there = folder.join("crates").is_dir();
    let path = folder.to_str().context("a path")?;
    let words = match there {
        true => vec!["-C", path, "pull", "--quiet", "--depth", "1"],
        false => vec!["clone", "--quiet", "--depth", "1", DATABASE, path],
    };
    let git = Command::new("timeout")
        .arg(FETCH_S_MAX)
        .arg("git")
        .args(words)
        .env("GIT_TERMINAL_PROMPT", "0")
        .output();
    let failure = match git {
        Ok(output) if output.status.success() => return Ok(folder),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    if there {
        eprintln!("advisories: {DATABASE} cannot be reached, an older copy is used: {failure}");
        return Ok(folder);
    }
    bail!("{DATABASE} cannot be reached: {failure}")
}

fn of_crate(folder: &Path) -> Result<Vec<Advisory>> {
    let Ok(files) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for file in files {
        let path = file?.path();
        if path.extension().is_some_and(|end| end == "md") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            found.push(parse(&text).with_context(|| path.display().to_string())?);
        }
    }
    Ok(found)
}

/// The TOML at the head of an advisory.
fn parse(text: &str) -> Result<Advisory> {
    let head = text.split("```").nth(1).context("no head")?;
    let mut advisory = Advisory::default();
    let (mut section, mut list) = (String::new(), false);
    for line in head.lines().map(str::trim) {
        if line.starts_with('[') && !list {
            line.clone_into(&mut section);
        }
        let (key, value) = line.split_once('=').map_or(("", line), |(key, value)| (key.trim(), value));
        let texts = || value.split('"').skip(1).step_by(2).map(str::to_owned);
        match (section.as_str(), key) {
            ("[advisory]", "id") => advisory.id = texts().next().unwrap_or_default(),
            ("[advisory]", "informational") => advisory.informational = texts().next().unwrap_or_default(),
            ("[advisory]", "withdrawn") => advisory.withdrawn = true,
            ("[versions]", "patched" | "unaffected") => {
                advisory.good.extend(texts());
                list = !value.contains(']');
            }
            ("[versions]", _) if list => {
                advisory.good.extend(line.split('"').skip(1).step_by(2).map(str::to_owned));
                list = !line.contains(']');
            }
            _ => (),
        }
    }
    if advisory.id.is_empty() { bail!("no id") } else { Ok(advisory) }
}

/// The numbers of a version; what stands behind `-` makes it older than the same without.
fn numbers(version: &str) -> ([u64; 3], bool) {
    let (plain, pre) =
        version.split('+').next().unwrap_or_default().split_once('-').map_or_else(
            || (version.split('+').next().unwrap_or_default(), false),
            |(plain, _)| (plain, true),
        );
    let mut parts = plain.trim().split('.').map(|part| part.parse().unwrap_or(0));
    ([(); 3].map(|()| parts.next().unwrap_or(0)), !pre)
}

/// Whether a version is in a range such as `>= 1.2.3, < 2` or `^0.4.1`.
fn matches(range: &str, version: &str) -> bool {
    let have = numbers(version);
    range.split(',').map(str::trim).all(|part| {
        let at = part.find(|c: char| c.is_ascii_digit()).unwrap_or(part.len());
        let (operator, text) = part.split_at(at);
        let wanted = numbers(text);
        let same_until = |count: usize| have.0[..count] == wanted.0[..count];
        match operator.trim() {
            ">=" => have >= wanted,
            ">" => have > wanted,
            "<" => have < wanted,
            "<=" => have <= wanted,
            "=" => have == wanted,
            "~" => have >= wanted && same_until(2),
            // Caret: the first number that is not zero stays.
            _ => {
                have >= wanted
                    && same_until(wanted.0.iter().position(|part| *part > 0).map_or(3, |at| at + 1))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_they_say() {
        let cases = [
            (">= 1.2.3", "1.2.3", true),
            (">= 1.2.3", "1.2.2", false),
            (">= 1.2.3", "1.2.3-rc.1", false),
            ("^0.4.1", "0.4.9", true),
            ("^0.4.1", "0.5.0", false),
            ("^1.4", "1.9.0", true),
            ("1.4", "2.0.0", false),
            (">= 0.3.1, < 0.4", "0.3.9", true),
            (">= 0.3.1, < 0.4", "0.4.0", false),
            ("< 0.2.0", "0.1.7", true),
            ("~1.2.3", "1.3.0", false),
            ("= 1.0.0", "1.0.0+build", true),
        ];
        for (range, version, want) in cases {
            assert_eq!(matches(range, version), want, "{version} in {range}");
        }
    }

    #[test]
    fn heads_are_read() {
        let text = "```toml\n[advisory]\nid = \"RUSTSEC-2024-0001\"\npackage = \"x\"\ninformational = \"unsound\"\n\n[affected]\nos = [\"linux\"]\n\n\
                    [versions]\npatched = [\n  \">= 2.0.1\",\n  \"^1.9.3\"\n]\nunaffected = [\"< 1.0.0\"]\n```\n# Title\n";
        let advisory = parse(text).expect("a head");
        assert_eq!((advisory.id.as_str(), advisory.informational.as_str()), ("RUSTSEC-2024-0001", "unsound"));
        assert_eq!(advisory.good, [">= 2.0.1", "^1.9.3", "< 1.0.0"]);
        assert!(parse("# nothing").is_err());
    }
}
