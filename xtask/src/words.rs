//! Words that were given up for the field's own (docs/glossary.md): they do not come back.

use std::path::Path;

/// Identifiers, by the folder in which they are dead: some have unrelated owners elsewhere.
const IDENTIFIERS: [(&str, &[&str]); 11] = [
    (
        "crates/daemon",
        &[
            "Letter",
            "letter",
            "Mailman",
            "mailman",
            "Post",
            "LeadCx",
            "Lead",
            "News",
            "Order",
            "Faces",
            "faces",
            "Ears",
            "ears",
            "Incomer",
            "Pinger",
            "Groups",
            "origins",
            "kept_maps",
            "unleased",
            "hush",
            "hasten",
            "has_few",
            "send_early",
            "ShortPeers",
            "is_short",
            "complain",
            "UnderWay",
            "Birth",
            "birth",
            "Apart",
        ],
    ),
    (
        "crates/core/pg",
        &[
            "UnderWay",
            "Birth",
            "birth",
            "answer_without",
            "Lanes",
            "Lane",
            "take_off",
            "fly",
            "landed",
            "land",
            "Flight",
            "InFlight",
            "Running",
            "Run",
            "answer_again",
            "Claim",
            "Claims",
            "mend",
            "mending",
            "mended",
            "beyond_repair",
            "KEPT",
            "take_back",
            "deal_out",
            "Pace",
            "note_later",
            "gets_later",
            "carry_out",
            "settle",
            "Verdict",
            "Place",
            "Rebuild",
            "rebuild",
            "rebuilding",
        ],
    ),
    ("crates/io", &["hush", "hushed", "hasten", "hasty"]),
    ("crates/io/blockstore", &["Layer", "Portion", "portion", "let_go", "Pace"]),
    ("crates/core/mon", &["Wish", "wish", "wishes", "osd_life", "pool_var"]),
    ("crates/base/msg", &["map_push", "is_short"]),
    ("crates/bin", &["ApartOptions", "Setting", "look"]),
    ("crates/test/sim", &["hush", "Pace", "Birth"]),
    ("crates/tool/store", &["Apart", "mend", "GROUP"]),
    ("crates/daemon/osd", &["Verdict", "settle", "carry_out", "Lack"]),
    ("crates/core/objecter", &["Place"]),
];

/// Words of comments, by the folder, with what to say in place of each.
const PROSE: [(&str, &str, &str); 23] = [
    ("crates/daemon", "letter", "a message between shards"),
    ("crates/daemon", "letters", "messages between shards"),
    ("crates/daemon", "mailman", "a mailbox's sender"),
    ("crates/daemon", "faces", "addresses"),
    ("crates", "ears", "listeners"),
    ("crates", "mend", "repair"),
    ("crates", "mends", "repairs"),
    ("crates", "mended", "repaired"),
    ("crates/base", "whom", "the OSD, monitor or client"),
    ("crates/base", "he", "it"),
    ("crates/base", "him", "it"),
    ("crates/core/msgr", "whom", "the OSD, monitor or client"),
    ("crates/core/msgr", "he", "it"),
    ("crates/core/msgr", "him", "it"),
    ("crates/core/osd", "whom", "the OSD, monitor or client"),
    ("crates/core/osd", "he", "it"),
    ("crates/core/osd", "him", "it"),
    ("crates/core/pg", "whom", "the OSD, monitor or client"),
    ("crates/core/pg", "he", "it"),
    ("crates/core/pg", "him", "it"),
    ("crates/daemon/osd", "whom", "the OSD, monitor or client"),
    ("crates/daemon/osd", "he", "it"),
    ("crates/daemon/osd", "him", "it"),
];
/// Where a group is a placement group, and is called a PG.
const PG_FOLDERS: [&str; 11] = [
    "crates/base/maps",
    "crates/base/msg",
    "crates/base/txn",
    "crates/core/mgr",
    "crates/core/objecter",
    "crates/core/osd",
    "crates/core/pg",
    "crates/daemon",
    "crates/test/interop",
    "crates/test/sim",
    "crates/tool/store",
];
/// In front of these words a group is another one, or is called in full: `set-group noout`, `--give-up-groups`.
const BEFORE_GROUP: [&str; 4] = ["placement", "set", "unset", "up"];

/// Complains of dead words in one file of the tree.
pub(crate) fn check(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let dead: Vec<&str> = IDENTIFIERS
        .iter()
        .filter(|(folder, _)| path.starts_with(folder))
        .flat_map(|(_, words)| words.iter().copied())
        .collect();
    check_docs(path, text, wrong);
    let pgs = PG_FOLDERS.iter().any(|folder| path.starts_with(folder));
    for (index, line) in text.lines().enumerate() {
        let (code, comment) = halves(line);
        let at = format!("{}:{}", path.display(), index + 1);
        for word in words(code).filter(|word| dead.contains(word)) {
            wrong.push(format!("{at}: `{word}` is a dead word (docs/glossary.md)"));
        }
        for word in words(comment) {
            let is_dead = |(folder, dead, _): &&(&str, &str, &str)| {
                path.starts_with(folder) && word.eq_ignore_ascii_case(dead)
            };
            if let Some((_, _, instead)) = PROSE.iter().find(is_dead) {
                wrong.push(format!("{at}: \"{word}\": say {instead}"));
            }
        }
        if pgs && !line.contains("/proc/") && has_bare_group(line) {
            wrong.push(format!("{at}: \"group\": say PG"));
        }
    }
}

/// A documentation comment of one or two words says no more than the name below it, unless it names something, as `MAuth` does.
fn check_docs(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let lines: Vec<Option<&str>> = text.lines().map(doc_text).collect();
    for (index, line) in lines.iter().enumerate() {
        let beside = |at: Option<usize>| at.and_then(|at| lines.get(at)).is_some_and(Option::is_some);
        let Some(doc) = line.filter(|_| !beside(index.checked_sub(1)) && !beside(Some(index + 1))) else {
            continue;
        };
        if doc.split_whitespace().count() < 3 && !doc.contains('`') {
            wrong.push(format!(
                "{}:{}: \"{doc}\": say what it is: unit, owner, bounds",
                path.display(),
                index + 1
            ));
        }
    }
}

/// What a line says that is part of a documentation comment.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
}

/// Whether a line, code and strings included, speaks of groups where PGs are meant.
fn has_bare_group(line: &str) -> bool {
    let all: Vec<String> = words(line).map(str::to_lowercase).collect();
    let is_group = |at: &usize| all.get(*at).is_some_and(|word| word == "group" || word == "groups");
    let is_other = |at: usize| {
        at.checked_sub(1).and_then(|at| all.get(at)).is_some_and(|word| BEFORE_GROUP.contains(&word.as_str()))
    };
    (0..all.len()).filter(is_group).any(|at| !is_other(at))
}

/// Code, without what stands in string literals, and the comment behind it.
fn halves(line: &str) -> (&str, &str) {
    let comment = line.match_indices("//").map(|(at, _)| at).find(|at| !line[..*at].ends_with(':'));
    let (code, comment) = line.split_at(comment.unwrap_or(line.len()));
    (code.split('"').next().unwrap_or_default(), comment)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        let mut wrong = Vec::new();
        check(Path::new(path), text, &mut wrong);
        wrong.len()
    }

    #[test]
    fn a_dead_identifier_is_dead_where_it_lived_only() {
        assert_eq!(complaints("crates/daemon/osd/src/x.rs", "let letter = Letter::Stop;"), 2);
        assert_eq!(complaints("crates/core/mon/src/x.rs", "let letter = Letter::Stop;"), 0);
        assert_eq!(complaints("crates/daemon/osd/src/x.rs", "let newsletter = \"a letter\";"), 0);
    }

    #[test]
    fn a_comment_of_two_words_says_nothing_unless_it_names_something() {
        let field =
            |doc: &str| complaints("crates/base/msg/src/x.rs", &format!("    /// {doc}\n    pub id: u64,\n"));
        assert_eq!(field("What."), 1);
        assert_eq!(field("Its outcome."), 1);
        assert_eq!(field("See [`op_flag`]."), 0);
        assert_eq!(field("Number of the OSD."), 0);
        assert_eq!(field("Its\n    /// outcome."), 0, "a line of more");
    }

    #[test]
    fn prose_says_pg() {
        let (it, is) = ("group", "mended");
        assert_eq!(complaints("crates/core/pg/src/x.rs", &format!("run(); // the {it} is {is}")), 2);
        assert_eq!(complaints("crates/core/pg/src/x.rs", "//! Placement groups of a pool."), 0);
        assert_eq!(complaints("crates/core/auth/src/x.rs", "// the group of a user"), 0);
        let (text, option) = (format!("print(\"4 {it}s are clean\");"), "ceph osd set-group noout");
        assert_eq!(complaints("crates/test/interop/tests/x.rs", &text), 1, "in what is printed, too");
        assert_eq!(complaints("crates/test/interop/tests/x.rs", option), 0);
    }
}
