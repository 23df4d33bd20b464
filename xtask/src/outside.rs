//! What comes in from outside: licences, banned crates and sources, as `deny.toml` has them.
//!
//! A small part of what `cargo deny` does, without installing it.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// What the daemons run on; crates for other systems need not even be downloaded.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Checks every crate in the dependency graph.
pub(crate) fn check() -> Result<()> {
    let policy = fs::read_to_string("deny.toml").context("deny.toml")?;
    let (allowed, banned) = (strings(&policy, "[licenses]"), strings(&policy, "[bans]"));
    let registries = strings(&policy, "[sources]");
    let mut wrong = Vec::new();
    let packages = packages()?;
    crate::advisories::check(&packages, &policy)?;
    for package in &packages {
        let text = |field: &str| package[field].as_str().unwrap_or_default();
        let (name, source) = (text("name"), text("source"));
        if source.is_empty() {
            continue; // ours
        }
        if !permits(text("license"), &allowed) {
            wrong.push(format!("{name}: licence '{}' is not allowed", text("license")));
        }
        if banned.iter().any(|banned| banned == name) {
            wrong.push(format!("{name} is banned"));
        }
        if !registries.iter().any(|registry| source.ends_with(registry.as_str())) {
            wrong.push(format!("{name} comes from {source}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("against deny.toml:\n  {}", wrong.join("\n  ")) }
}

fn packages() -> Result<Vec<Value>> {
    let arguments = ["metadata", "--format-version", "1", "--filter-platform", PLATFORM];
    let output = Command::new("cargo").args(arguments).output().context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let graph: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let used = graph["resolve"]["nodes"].as_array().context("no graph")?;
    let used: Vec<&Value> = used.iter().map(|node| &node["id"]).collect();
    let all = graph["packages"].as_array().context("no packages")?;
    Ok(all.iter().filter(|package| used.contains(&&package["id"])).cloned().collect())
}

/// What stands in `allow`, `deny` or `allow-registry` of a section: the first string of each item.
pub(crate) fn strings(policy: &str, section: &str) -> Vec<String> {
    let lines = policy.lines().skip_while(|line| *line != section).skip(1);
    let body = lines.take_while(|line| !line.starts_with('['));
    let items = body.filter(|line| line.starts_with(' ') || line.starts_with("allow-registry"));
    items.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// SPDX expressions as they occur: `A OR B`, `A AND B`, `(A OR B) AND C`, `A/B`.
fn permits(expression: &str, allowed: &[String]) -> bool {
    let parts = expression.split(" AND ").map(|part| part.trim_matches(['(', ')']));
    let one_of = |part: &str| {
        let mut choices = part.split(" OR ").flat_map(|choice| choice.split('/'));
        choices.any(|choice| allowed.iter().any(|licence| licence == choice.trim()))
    };
    !expression.is_empty() && parts.into_iter().all(one_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged() {
        let allowed = ["MIT".to_owned(), "ISC".to_owned()];
        for good in ["MIT", "MIT OR GPL-3.0", "(GPL-2.0 OR MIT) AND ISC", "Apache-2.0/MIT"] {
            assert!(permits(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(GPL-2.0 OR LGPL-2.1) AND ISC"] {
            assert!(!permits(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn sections_are_read() {
        let policy = "[licenses]\nallow = [\n  \"MIT\",\n]\n[bans]\nx = \"y\"\ndeny = [\n  { name = \"bad\", reason = \"r\" },\n]\n";
        assert_eq!(strings(policy, "[licenses]"), ["MIT"]);
        assert_eq!(strings(policy, "[bans]"), ["bad"]);
    }
}
