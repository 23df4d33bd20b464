//! Documents that must follow the code: files that are named exist, and tables list what the code has.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FOLDER: &str = "docs/";
/// Named in ARCHITECTURE.md, and not in our code.
const NOT_OURS: [&str; 1] = ["HashMap"];

/// Checks what documents say about the code and the code about documents.
pub(crate) fn check(texts: &[(String, String)], wrong: &mut Vec<String>) -> Result<()> {
    for (path, text) in texts {
        for named in named_documents(text) {
            if !Path::new(named).exists() {
                wrong.push(format!("{path}: names {named}, which does not exist"));
            }
        }
    }
    for (path, text) in texts {
        check_module_table(Path::new(path), text, wrong);
    }
    check_names("ARCHITECTURE.md", texts, wrong);
    let codec = read("crates/base/txn/src/codec.rs")?;
    let codes = codec.lines().filter_map(|line| {
        let (name, code) = line.trim().strip_prefix("pub(super) const ")?.split_once(": u8 = ")?;
        Some((code.trim_end_matches(';').to_owned(), camel_case(name)))
    });
    check_table("docs/formats/transaction.md", codes, wrong)?;
    let messages = read("crates/base/msg/src/peer/mod.rs")?;
    let kinds = messages.lines().filter_map(|line| {
        let (name, rest) = line.trim().split_once(" = ")?;
        let (kind, text) = rest.split_once(" \"")?;
        text.contains("\" in ").then(|| (kind.to_owned(), name.to_owned()))
    });
    check_table("docs/formats/peer-messages.md", kinds, wrong)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).context(path.to_owned())
}

/// The table at the head of a crate or module names files that are there: `//! | `name` | what it holds |`.
fn check_module_table(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let name = path.file_name().unwrap_or_default();
    let folder = if name == "lib.rs" || name == "mod.rs" {
        path.parent().map(Path::to_path_buf)
    } else {
        Some(path.with_extension("")).filter(|folder| folder.is_dir())
    };
    let Some(folder) = folder else { return };
    let first_cells = text.lines().filter_map(|line| line.strip_prefix("//! |")?.split('|').next());
    for named in first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        let is_module = named.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
        let exists = folder.join(named).is_dir() || folder.join(format!("{named}.rs")).exists();
        if is_module && !exists {
            wrong.push(format!("{}: its table names `{named}`, which is no file there", path.display()));
        }
    }
}

/// What the document names in backticks is in the code: identifiers, and paths of its files.
fn check_names(document: &str, texts: &[(String, String)], wrong: &mut Vec<String>) {
    let is_code = |path: &str| path.ends_with(".rs");
    let mut words = BTreeSet::new();
    for (_, text) in texts.iter().filter(|(path, _)| is_code(path)) {
        words.extend(words_of(text));
    }
    let text = texts.iter().find(|(path, _)| path == document).map_or("", |(_, text)| text.as_str());
    for named in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
        let is_gone = match is_code(named) {
            true => !texts.iter().any(|(path, _)| path.ends_with(named)),
            // Paths of running clusters and commands are not the code's.
            false if named.contains(['/', ' ', '*', '.']) => false,
            false => words_of(named).any(|word| word.len() > 3 && !words.contains(word)),
        };
        if is_gone && !NOT_OURS.contains(&named) {
            wrong.push(format!("{document}: names `{named}`, which is not in the code"));
        }
    }
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Paths of documents, wherever they are mentioned.
fn named_documents(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices(FOLDER).map(|(at, _)| at);
    starts.filter_map(|at| {
        let rest = text.get(at..)?;
        let word = rest.split(|c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c))).next()?;
        let word = word.trim_end_matches('.');
        word.ends_with(".md").then_some(word)
    })
}

/// `OMAP_SET` as `OmapSet`.
fn camel_case(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(1.min(word.len()));
        first.to_uppercase() + &rest.to_lowercase()
    });
    words.collect()
}

/// Every `(number, name)` begins a row of the document's table.
fn check_table(
    path: &str,
    rows: impl Iterator<Item = (String, String)>,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let text = read(path)?;
    let mut count = 0;
    for (number, name) in rows {
        count += 1;
        if !text.contains(&format!("\n| {number} | {name} |")) {
            wrong.push(format!("{path}: no row for {number}, {name}"));
        }
    }
    if count == 0 {
        wrong.push(format!("{path}: the code that it follows has moved"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_names_are_found() {
        let text = format!("see `{FOLDER}a/b.md`, {FOLDER}c.md. and {FOLDER} alone");
        let found: Vec<_> = named_documents(&text).map(|path| &path[FOLDER.len()..]).collect();
        assert_eq!(found, ["a/b.md", "c.md"]);
        assert_eq!(camel_case("OMAP_SET_HEADER"), "OmapSetHeader");
    }

    #[test]
    fn names_that_the_code_does_not_have_are_found() {
        let pair = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let texts = [
            pair("A.md", "`Shard::turned` of `x/shard.rs`, `gone.rs`, `Shard::turn(Event)`, `osd.N/0`"),
            pair("crates/x/shard.rs", "impl Shard { fn turn(event: Event) {} }"),
        ];
        let mut wrong = Vec::new();
        check_names("A.md", &texts, &mut wrong);
        let named: Vec<_> = wrong.iter().filter_map(|line| line.split('`').nth(1)).collect();
        assert_eq!(named, ["Shard::turned", "gone.rs"]);
    }
}
