//! Rules that lints cannot see: layers, file and function lengths, module documentation, dead files.

use crate::{circles, documents, words};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each layer may use besides itself.
const LAYERS: [(&str, &[&str]); 7] = [
    ("base", &[]),
    ("core", &["base"]),
    ("io", &["base"]),
    ("daemon", &["base", "core", "io"]),
    ("tool", &["base", "core", "io", "daemon"]),
    ("test", &["base", "core", "io", "daemon", "tool"]),
    ("bin", &["base", "core", "io", "daemon", "tool"]),
];
/// Which crates of one layer may use which others of it, without `nacre-`: another edge is a decision, not an accident.
const WITHIN_LAYERS: [(&str, &[&str]); 22] = [
    ("blockstore", &["env", "kv", "store"]),
    ("client", &["service"]),
    ("crush", &["buf", "denc"]),
    ("crypt", &["env"]),
    ("denc", &["buf"]),
    ("device", &["env"]),
    ("ec", &["buf"]),
    ("format", &["types"]),
    ("kv", &["env"]),
    ("maps", &["buf", "crush", "denc", "ec", "msg", "types"]),
    ("mon", &["auth", "mgr"]),
    ("monc", &["auth"]),
    ("monitor", &["client", "service"]),
    ("msg", &["buf", "denc", "txn", "types"]),
    ("options", &["format", "types"]),
    ("osd", &["service"]),
    ("osd-core", &["heartbeat", "pg"]),
    ("pg", &["auth", "cls"]),
    ("simdisk", &["env"]),
    ("top", &["doctor"]),
    ("txn", &["buf", "denc", "types"]),
    ("types", &["buf", "denc"]),
];
/// A longer file has a second idea.
const FILE_LINES_MAX: usize = 600;
/// Functions longer than this need a reason; lowered as the longest ones shrink, never raised.
const FUNCTION_LINES_MAX: usize = 85;
/// What an OSD's course depends on, and `daemon/osd` therefore does not read: which OSDs are up or down, what leases say, whether a store is
/// too full, and why maps cannot be taken in.
const DECIDED_BY_CORE_OSD: [&str; 15] = [
    ".is_up(",
    ".is_down(",
    ".up_osds(",
    ".dead_epoch",
    ".is_granted(",
    ".promised_until(",
    ".promised_before(",
    ".is_leased(",
    ".is_failsafe_full",
    "StoreRoom::",
    ".available_bytes <",
    ".available_bytes >",
    ".cluster_addr(",
    "LearnError::",
    "MapError",
];

/// Columns of a line of a document; tables excepted, whose rows cannot be broken.
const DOCUMENT_COLUMNS_MAX: usize = 140;

/// Checks the whole tree and reports everything that is wrong at once.
pub(crate) fn check() -> Result<()> {
    let mut wrong = Vec::new();
    check_layers(&mut wrong)?;
    let mut texts = Vec::new();
    for root in ["crates", "xtask", "fuzz/src"] {
        for file in rust_files(Path::new(root))? {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            check_file(&file, &text, &mut wrong);
            words::check(&file, &text, &mut wrong);
            texts.push((file.display().to_string(), text));
        }
    }
    for file in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        texts.push((file.to_owned(), fs::read_to_string(file).context(file)?));
    }
    check_columns(&mut wrong)?;
    documents::check(&texts, &mut wrong)?;
    check_dead_files(&mut wrong)?;
    circles::check(&mut wrong)?;
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{} rules broken:\n  {}", wrong.len(), wrong.join("\n  "))
}

fn check_columns(wrong: &mut Vec<String>) -> Result<()> {
    let mut documents = files_below(Path::new("docs"), "md")?;
    documents.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(PathBuf::from));
    for file in documents {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let long = |(_, line): &(usize, &str)| {
            line.chars().count() > DOCUMENT_COLUMNS_MAX && !line.trim_start().starts_with('|')
        };
        for (index, line) in text.lines().enumerate().filter(long) {
            let count = line.chars().count();
            wrong.push(format!(
                "{}:{}: {count} columns, at most {DOCUMENT_COLUMNS_MAX}",
                file.display(),
                index + 1
            ));
        }
    }
    Ok(())
}

fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    files_below(root, "rs")
}

fn files_below(root: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Crate name to its layer, and to the crates of ours that it uses.
fn manifests() -> Result<BTreeMap<String, (String, Vec<String>)>> {
    let mut out = BTreeMap::new();
    for layer in circles::folders(Path::new("crates"))? {
        for folder in circles::folders(&layer)? {
            let manifest = folder.join("Cargo.toml");
            let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
            let name = text.lines().find_map(|line| line.strip_prefix("name = ")).unwrap_or_default();
            // Tests of a crate may use more than the crate itself.
            let normal = text.split("[dev-dependencies]").next().unwrap_or_default();
            let used = normal.lines().filter_map(|line| line.split_once(".workspace")).map(|(name, _)| name);
            let layer = layer.file_name().unwrap_or_default().to_string_lossy().into_owned();
            out.insert(name.trim_matches('"').to_owned(), (layer, used.map(str::to_owned).collect()));
        }
    }
    Ok(out)
}

fn check_layers(wrong: &mut Vec<String>) -> Result<()> {
    let manifests = manifests()?;
    for (name, (layer, used)) in &manifests {
        let Some((_, allowed)) = LAYERS.iter().find(|(known, _)| known == layer) else {
            wrong.push(format!("{name}: folder crates/{layer} is no layer"));
            continue;
        };
        for used in used {
            let Some((other, _)) = manifests.get(used) else { continue };
            if other == layer && !may_use_within_layer(name, used) {
                wrong.push(format!(
                    "{name} uses {used} of its own layer, which the list in xtask/src/tidy.rs does not know"
                ));
            }
            if other != layer && !allowed.contains(&other.as_str()) {
                wrong.push(format!("{name} ({layer}) must not use {used} ({other})"));
            }
        }
    }
    Ok(())
}

fn may_use_within_layer(name: &str, used: &str) -> bool {
    let short = |name: &str| name.trim_start_matches("nacre-").to_owned();
    WITHIN_LAYERS.iter().any(|(known, list)| *known == short(name) && list.contains(&short(used).as_str()))
}

fn check_file(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let shown = path.display();
    let count = text.lines().count();
    if count > FILE_LINES_MAX {
        wrong.push(format!("{shown}: {count} lines, at most {FILE_LINES_MAX}: what is its second idea?"));
    }
    let in_tests = path
        .components()
        .any(|part| part.as_os_str().to_string_lossy().trim_end_matches(".rs").ends_with("tests"));
    if !text.trim_start().starts_with("//!") && !in_tests {
        wrong.push(format!("{shown}: does not begin by saying what it is (//!)"));
    }
    if path.starts_with("crates/daemon/osd") {
        for call in DECIDED_BY_CORE_OSD.iter().filter(|call| text.contains(**call)) {
            wrong.push(format!(
                "{shown}: `{call}` is for core/osd to ask, which decides what follows from it"
            ));
        }
    }
    check_functions(path, text, wrong);
    check_code_blocks(path, text, wrong);
}

/// `make test` runs no code in documentation: rustdoc would read every crate once more for the little there could be.
fn check_code_blocks(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let mut is_open = false;
    for line in text.lines().map(str::trim_start) {
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(language) = doc.and_then(|doc| doc.trim_start().strip_prefix("```")) else { continue };
        if !is_open && matches!(language.trim(), "" | "rust" | "no_run" | "should_panic") {
            wrong.push(format!(
                "{}: Rust code in documentation is not tested: make it a test, or ```text",
                path.display()
            ));
        }
        is_open = !is_open;
    }
}

/// Relies on rustfmt: a function ends at the first closing brace in its own column.
fn check_functions(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let mut open: Option<(usize, usize, &str)> = None;
    for (index, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words = line.trim_start();
        let starts = words.starts_with("fn ") || (words.contains(" fn ") && words.starts_with("pub"));
        match open {
            None if starts && !line.trim_end().ends_with([';', '}']) => open = Some((index, indent, words)),
            Some((start, column, name)) if indent == column && words.starts_with('}') => {
                let length = index - start + 1;
                if length > FUNCTION_LINES_MAX {
                    wrong.push(format!(
                        "{}:{}: {length} lines in `{name}`, at most {FUNCTION_LINES_MAX}",
                        path.display(),
                        start + 1
                    ));
                }
                open = None;
            }
            Some((_, column, _)) if indent == column && words.ends_with(';') && !words.is_empty() => {
                open = None
            }
            _ => (),
        }
    }
}

/// A file that no `mod` line names is never compiled.
fn check_dead_files(wrong: &mut Vec<String>) -> Result<()> {
    let files: Vec<PathBuf> = rust_files(Path::new("crates"))?;
    let mut named = BTreeSet::new();
    for file in &files {
        let text = fs::read_to_string(file)?;
        for line in text.lines() {
            let line = line.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
            let line = line.trim_start_matches("pub ");
            if let Some(path) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix(".rs\"]"))
            {
                named.insert(path.rsplit('/').next().unwrap_or_default().to_owned());
            }
            if let Some(name) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                named.insert(name.to_owned());
            }
        }
    }
    for file in &files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder =
            file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let name = if stem == "mod" { folder.clone() } else { stem };
        let root = matches!(name.as_str(), "lib" | "main")
            || ["tests", "examples", "benches", "bin"].contains(&folder.as_str());
        if !root && !named.contains(&name) {
            wrong.push(format!("{}: no `mod {name};` anywhere", file.display()));
        }
    }
    Ok(())
}
