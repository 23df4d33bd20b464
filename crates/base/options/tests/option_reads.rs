//! Every option is read by a daemon or client, or refused with what holds instead; `docs/options.md` says which.
//! `NACRE_BLESS=1` writes that file anew.

use nacre_options::{self as options, OptionInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Calls that read an option by its name.
const READS: [&str; 15] = [
    ".number(",
    ".count(",
    ".seconds(",
    ".flag(",
    ".text(",
    "limit(",
    "whole(config, ",
    ".of_monitor(",
    ".of_other_monitor(",
    ".number_of_monitor(",
    ".flag_of_monitor(",
    ".number_of_osds(",
    "values.get(",
    " seconds(",
    "=> ",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "tests" {
            sources(&path, out);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            out.push(path);
        }
    }
}

/// Option to the files that read it, of the crates whose folder is `krate`.
fn reads(krate: &str) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(&root().join("crates").join(krate).join("src"), &mut files);
    let mut found: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for option in options::all() {
            let literal = format!("\"{}\"", option.name);
            let is_read = code.match_indices(&literal).any(|(at, _)| {
                let before = code[..at].trim_end();
                // A command's argument may have the name of an option.
                let reader = READS.iter().find_map(|call| before.strip_suffix(call.trim_end()));
                reader.is_some_and(|reader| !reader.ends_with("args"))
            });
            if is_read {
                let krate_root = root().join("crates");
                let shown = file.strip_prefix(krate_root).expect("a file of a crate").display().to_string();
                found.entry(option.name).or_default().insert(shown);
            }
        }
    }
    found
}

#[test]
fn options_are_read_by_whom_the_table_says() {
    let (osd, mon) = (reads("daemon/osd"), reads("core/mon"));
    for option in options::all() {
        let readers = option.readers();
        let name = option.name;
        assert_eq!(
            readers.is_empty(),
            option.missing().is_some(),
            "{name}: read by {readers:?}, or a reason"
        );
        let for_osd = options::FOR_OSD.contains(&name); // the monitor reads an OSD's sections
        assert_eq!(osd.contains_key(name), readers.contains(&"osd"), "{name} in the OSD");
        assert_eq!(mon.contains_key(name), readers.contains(&"mon") || for_osd, "{name} in the monitor");
    }
}

fn line(out: &mut String, option: &OptionInfo, files: &[&BTreeMap<&str, BTreeSet<String>>]) {
    let read: Vec<&str> =
        files.iter().filter_map(|map| map.get(option.name)).flatten().map(String::as_str).collect();
    let when = if option.runtime { "at once" } else { "at start" };
    let readers = option.readers().join(", ");
    let default = if option.default.is_empty() { "empty" } else { option.default };
    writeln!(out, "| `{}` | {default} | {readers} | {when} | {} |", option.name, read.join(", "))
        .expect("text grows");
}

fn document() -> String {
    let files = [&reads("daemon/osd"), &reads("core/mon")];
    let mut sorted: Vec<&OptionInfo> = options::all().collect();
    sorted.sort_by_key(|option| option.name);
    let mut out = "# Options\n\nMade by `NACRE_BLESS=1 cargo test -p nacre-options --test option_reads` from the reads in the \
         code. `ceph config set WHO NAME VALUE` takes\n\
         an option when WHO, or somebody in it, reads it; anything else is refused with EOPNOTSUPP and what holds instead.\n\n## Read by our daemons\n\n\
         | option | default | read by | takes effect | in |\n|---|---|---|---|---|\n"
        .to_owned();
    let ours = |option: &&&OptionInfo| option.readers().iter().any(|reader| ["osd", "mon"].contains(reader));
    for option in sorted.iter().filter(ours) {
        line(&mut out, option, &files);
    }
    out.push_str("\n## Read by Ceph's clients, managers and metadata servers\n\nThe monitor keeps them and sends them to clients, `ceph-mgr` and `ceph-mds`; our daemons do not read them.\n\n");
    let foreign = |option: &&&OptionInfo| !option.readers().is_empty() && !ours(option);
    for option in sorted.iter().filter(foreign) {
        writeln!(out, "* `{}`", option.name).expect("text grows");
    }
    out.push_str("\n## Refused\n\n| option | what holds instead |\n|---|---|\n");
    for option in sorted {
        if let Some(reason) = option.missing() {
            writeln!(out, "| `{}` | {reason} |", option.name).expect("text grows");
        }
    }
    out
}

#[test]
fn the_document_is_what_the_code_says() {
    let path = root().join("docs/options.md");
    let wanted = document();
    if std::env::var_os("NACRE_BLESS").is_some() {
        std::fs::write(&path, &wanted).expect("the document");
    }
    let held = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        held == wanted,
        "docs/options.md is old: NACRE_BLESS=1 cargo test -p nacre-options --test option_reads"
    );
}

/// The tests of a source file: all of it, or what stands at its end.
fn tests_of(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a source file");
    let is_test =
        path.components().any(|part| ["tests", "tests.rs"].iter().any(|name| part.as_os_str() == *name));
    let inner = || text.split_once("#[cfg(test)]\nmod tests {").map(|(_, tests)| tests.to_owned());
    if is_test { text } else { inner().unwrap_or_default() }
}

fn all_sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all_sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// What is accepted has an effect: a test of it names the option. That it is one of the effect, people see to.
#[test]
fn every_option_that_our_daemons_read_is_named_by_a_test() {
    let mut files = Vec::new();
    all_sources(&root().join("crates"), &mut files);
    let tests: String = files.iter().map(|path| tests_of(path)).collect();
    let read = ["daemon/osd", "core/mon"].into_iter().flat_map(|krate| reads(krate).into_keys());
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_named = |name: &&str| {
        let bytes = tests.as_bytes();
        let mut found = tests.match_indices(*name);
        found.any(|(at, _)| !is_word(bytes.get(at + name.len())) && !is_word(bytes.get(at.wrapping_sub(1))))
    };
    let unnamed: BTreeSet<&str> = read.filter(|name| !is_named(name)).collect();
    assert!(unnamed.is_empty(), "no test names {unnamed:?}");
}
