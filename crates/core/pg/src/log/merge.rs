//! Making a copy's log the authoritative one, and what that means for its objects.
//!
//! ```text
//!   mine:  tail ---- a ---- b ---- c' ---- d'        c', d' are divergent: never acknowledged
//!   auth:    tail ------- b ---- e ---- f            e, f are what this copy has not seen
//!                         ^ common
//! ```

use super::PgLog;
use nacre_msg::peer::{LogEntry, LogKind};
use nacre_types::{Eversion, HObject};
use std::collections::{BTreeMap, BTreeSet};

/// What an object of this copy must become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// This version; it is missing unless the copy holds exactly that.
    Need(Eversion),
    /// Nothing: it must not exist.
    Gone,
}

/// How to change a log and its copy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Merge<'a> {
    /// Own entries above this are divergent.
    pub(crate) common: Eversion,
    /// Entries to add above it.
    pub(crate) append: &'a [LogEntry],
    /// Objects that these and the divergent entries touch.
    pub(crate) changes: BTreeMap<HObject, Change>,
}

/// The logs have no version in common: only comparing objects can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log {tail}..{head} has nothing in common with the authoritative one")]
pub(crate) struct NoCommonPoint {
    tail: Eversion,
    head: Eversion,
}

/// Compares `log` with the authoritative log, which holds `since` and has `entries` above it, ascending.
pub(crate) fn merge<'a>(
    log: &PgLog,
    since: Eversion,
    entries: &'a [LogEntry],
) -> Result<Merge<'a>, NoCommonPoint> {
    let theirs: BTreeSet<Eversion> = entries.iter().map(|entry| entry.version).chain([since]).collect();
    let mine = log.iter().rev().map(|entry| entry.version).chain([log.tail()]);
    let common = mine
        .take_while(|version| *version >= since)
        .find(|version| theirs.contains(version))
        .ok_or_else(|| NoCommonPoint { tail: log.tail(), head: log.head() })?;
    let append = entries.get(entries.partition_point(|entry| entry.version <= common)..).unwrap_or_default();
    let mut changes = BTreeMap::new();
    for entry in log.above(common).filter(|entry| entry.changes_object()) {
        // The oldest divergent entry of an object knows what was there before; later ones add nothing.
        changes.entry(entry.object.clone()).or_insert_with(|| before_divergence(log, common, &entry));
    }
    for entry in append.iter().filter(|entry| entry.changes_object()) {
        let change = if entry.is_delete() { Change::Gone } else { Change::Need(entry.version) };
        changes.insert(entry.object.clone(), change);
    }
    Ok(Merge { common, append, changes })
}

/// What the object of a divergent entry was at the common point.
fn before_divergence(log: &PgLog, common: Eversion, divergent: &LogEntry) -> Change {
    match log.newest_of(&divergent.object, common) {
        Some(entry) if entry.is_delete() => Change::Gone,
        Some(entry) => Change::Need(entry.version),
        // A clone's entry tells the head's version before; the clone itself was not there.
        None if divergent.prior_version == Eversion::ZERO || divergent.kind == LogKind::Clone => Change::Gone,
        None => Change::Need(divergent.prior_version),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pg_log::tests::entry;
    use super::*;

    /// Reads `object@epoch'version<prior` words; `-` in front marks a delete, `!` a failed write.
    fn entries(text: &str) -> Vec<LogEntry> {
        let version = |text: &str| {
            let (epoch, version) = text.split_once('\'').expect("epoch'version");
            (epoch.parse().expect("epoch"), version.parse().expect("version"))
        };
        text.split_whitespace()
            .map(|word| {
                let (object, rest) = word.split_once('@').expect("object@...");
                let (at, prior) = rest.split_once('<').unwrap_or((rest, "0'0"));
                let name = object.trim_start_matches(['-', '!']);
                let mut entry = entry(name, version(at), version(prior), version(at).1);
                entry.kind = match object.chars().next() {
                    Some('-') => LogKind::Delete,
                    Some('!') => LogKind::Error,
                    _ => LogKind::Modify,
                };
                entry
            })
            .collect()
    }

    fn merged(mine: &str, theirs: &str) -> String {
        let mut log = PgLog::default();
        entries(mine).iter().for_each(|entry| log.append(entry));
        let theirs = entries(theirs);
        let result = merge(&log, Eversion::ZERO, &theirs).expect("a common point");
        let changes: Vec<String> = result
            .changes
            .iter()
            .map(|(object, change)| match change {
                Change::Gone => format!("-{}", object.name),
                Change::Need(version) => format!("{}@{version}", object.name),
            })
            .collect();
        let mut changes = changes;
        changes.sort_by_key(|text| text.trim_start_matches('-').to_owned());
        format!("{} +{}: {}", result.common, result.append.len(), changes.join(" "))
    }

    #[test]
    fn cases() {
        let cases = [
            ("equal", "a@1'1 b@1'2", "a@1'1 b@1'2", "1'2 +0: "),
            ("behind", "a@1'1", "a@1'1 b@1'2 -a@1'3<1'1", "1'1 +2: -a b@1'2"),
            ("ahead, created", "a@1'1 b@1'2", "a@1'1", "1'1 +0: -b"),
            ("ahead, changed", "a@1'1 a@1'2<1'1 a@1'3<1'2", "a@1'1", "1'1 +0: a@1'1"),
            ("ahead, deleted", "a@1'1 -a@1'2<1'1", "a@1'1", "1'1 +0: a@1'1"),
            ("prior is before the log", "b@1'5 a@1'6<1'2", "b@1'5", "1'5 +0: a@1'2"),
            ("recreated in a divergent entry", "a@1'1 -a@1'2<1'1 a@2'3", "a@1'1 -a@1'2<1'1", "1'2 +0: -a"),
            ("two ways", "a@1'1 a@2'2<1'1 c@2'3", "a@1'1 b@3'2 a@3'3<1'1", "1'1 +2: a@3'3 b@3'2 -c"),
            ("failed writes change nothing", "a@1'1 !a@1'2<1'1", "a@1'1 !b@2'2", "1'1 +1: "),
            ("nothing yet", "", "a@1'1", "0'0 +1: a@1'1"),
        ];
        for (what, mine, theirs, want) in cases {
            assert_eq!(merged(mine, theirs), want, "{what}");
        }
    }

    #[test]
    fn a_log_that_ends_before_theirs_begins_cannot_be_merged() {
        let mut log = PgLog::default();
        log.append(&entry("a", (1, 1), (0, 0), 1));
        assert!(merge(&log, Eversion::new(1, 5), &entries("a@1'6<1'5")).is_err());
    }
}
