//! The table itself: every topic's rows, parsed once.

use super::call::{Answer, Call};
use super::signature::Signature;
use nacre_mgr::format::{Format, Node, Section};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Carries a command out.
pub(super) type Handler = fn(&mut Call<'_>) -> Answer;

/// One command as its topic writes it.
#[derive(Clone, Copy)]
pub(super) struct Command {
    /// Words and arguments in Ceph's syntax.
    pub(super) signature: &'static str,
    /// Service whose caps are asked for.
    pub(super) module: &'static str,
    /// Rights needed: letters of `rwx`.
    pub(super) perm: &'static str,
    /// One line for `ceph --help`.
    pub(super) help: &'static str,
    /// Carries it out.
    pub(super) handler: Handler,
}

/// Shorthand for the tables.
pub(super) const fn command(
    signature: &'static str,
    module: &'static str,
    perm: &'static str,
    help: &'static str,
    handler: Handler,
) -> Command {
    Command { signature, module, perm, help, handler }
}

/// A command with its signature parsed.
pub(super) struct Row {
    pub(super) command: &'static Command,
    pub(super) signature: Signature,
}

fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let commands = super::TOPICS.iter().copied().flatten();
        commands.map(|command| Row { command, signature: Signature::parse(command.signature) }).collect()
    })
}

/// The command whose words are exactly `prefix`.
pub(super) fn find(prefix: &str) -> Option<&'static Row> {
    static BY_PREFIX: OnceLock<BTreeMap<&'static str, usize>> = OnceLock::new();
    let by_prefix = BY_PREFIX.get_or_init(|| {
        let indices = rows().iter().enumerate().rev();
        indices.map(|(index, row)| (row.signature.prefix.as_str(), index)).collect()
    });
    rows().get(*by_prefix.get(prefix)?)
}

/// The answer to `get_command_descriptions`: everything that we serve, as the `ceph` tool reads it.
#[must_use]
pub fn descriptions() -> String {
    let describe = |(index, row): (usize, &Row)| {
        let section = Section::new()
            .with("sig", row.signature.describe())
            .with("help", row.command.help)
            .with("module", row.command.module)
            .with("perm", row.command.perm)
            .with("flags", 0_u64);
        (format!("cmd{index:03}"), section)
    };
    Node::from(rows().iter().enumerate().map(describe).collect::<Section>())
        .render(Format::Json, "command_descriptions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_complete_and_found_by_its_words() {
        for row in rows() {
            let command = row.command;
            assert!(find(&row.signature.prefix).is_some(), "{}", command.signature);
            assert!(!command.help.is_empty() && !command.module.is_empty(), "{}", command.signature);
            assert!(command.perm.chars().all(|letter| "rwx".contains(letter)), "{}", command.signature);
        }
    }

    #[test]
    fn descriptions_are_json_that_the_tool_can_read() {
        let all: serde_json::Value = serde_json::from_str(&descriptions()).expect("valid JSON");
        let all = all.as_object().expect("an object");
        assert!(all.len() > 150);
        assert!(all.values().all(|row| row["sig"][0].is_string() && row["flags"] == 0));
    }
}
