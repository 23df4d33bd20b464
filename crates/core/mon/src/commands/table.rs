//! The table itself: every topic's rows, parsed once.

use super::call::{Answer, Call};
use super::signature::{Signature, describe_text};
use nacre_format::{Format, Node, Section};
use nacre_msg::MgrCommandDescription;
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
    /// See [`manager_module`].
    pub(super) manager: Option<&'static str>,
}

/// Bit of a descriptor's flags that sends the tool to the manager. Ceph `MonCommand::FLAG_MGR`.
const FLAG_MANAGER: u64 = 8;
/// Bit of them that makes the tool ask again each second, with `width` and now and then `print_header`. Ceph `MonCommand::FLAG_POLL`.
const FLAG_POLL: u64 = 16;
/// Commands that have it.
const POLLED: [&str; 1] = ["iostat"];

/// Which module of Ceph's manager serves a command, by the words that it begins with: the empty one for what it serves itself
/// (`src/mgr/MgrCommands.h` at v16.2.15); none for the monitor's own.
fn manager_module(prefix: &str) -> Option<&'static str> {
    const OWN: &[&str] = &[
        "dump_osd_network",
        "pg stat",
        "pg getmap",
        "pg dump",
        "pg dump_json",
        "pg dump_pools_json",
        "pg ls-by-pool",
        "pg ls-by-primary",
        "pg ls-by-osd",
        "pg ls",
        "pg dump_stuck",
        "pg debug",
        "pg scrub",
        "pg deep-scrub",
        "pg repair",
        "pg force-recovery",
        "pg force-backfill",
        "pg cancel-force-recovery",
        "pg cancel-force-backfill",
        "osd perf",
        "osd df",
        "osd blocked-by",
        "osd pool stats",
        "osd pool scrub",
        "osd pool deep-scrub",
        "osd pool repair",
        "osd pool force-recovery",
        "osd pool force-backfill",
        "osd pool cancel-force-recovery",
        "osd pool cancel-force-backfill",
        "osd reweight-by-utilization",
        "osd test-reweight-by-utilization",
        "osd reweight-by-pg",
        "osd test-reweight-by-pg",
        "osd destroy",
        "osd purge",
        "osd safe-to-destroy",
        "osd ok-to-stop",
        "osd scrub",
        "osd deep-scrub",
        "osd deep_scrub",
        "osd repair",
        "service dump",
        "service status",
        "config show",
        "config show-with-defaults",
        "device ls",
        "device info",
        "device ls-by-daemon",
        "device ls-by-host",
        "device set-life-expectancy",
        "device rm-life-expectancy",
    ];
    const MODULES: &[(&str, &str)] = &[
        ("balancer", "balancer"),
        ("crash", "crash"),
        ("device", "devicehealth"),
        ("fs status", "status"),
        ("osd status", "status"),
        ("healthcheck history", "prometheus"),
        ("iostat", "iostat"),
        ("osd pool autoscale-status", "pg_autoscaler"),
        ("osd pool get noautoscale", "pg_autoscaler"),
        ("osd pool set noautoscale", "pg_autoscaler"),
        ("osd pool unset noautoscale", "pg_autoscaler"),
        ("progress", "progress"),
    ];
    if OWN.contains(&prefix) {
        return Some("");
    }
    let begins =
        |words: &str| prefix.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    MODULES.iter().find(|(words, _)| begins(words)).map(|(_, module)| *module)
}

fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let commands = super::TOPICS.iter().copied().flatten();
        let row = |command: &'static Command| {
            let signature = Signature::parse(command.signature);
            Row { command, manager: manager_module(&signature.prefix), signature }
        };
        commands.map(row).collect()
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

fn describe(row: &Row) -> Section {
    let of_manager = if row.manager.is_some() { FLAG_MANAGER } else { 0 };
    let polled = if POLLED.contains(&row.signature.prefix.as_str()) { FLAG_POLL } else { 0 };
    Section::new()
        .with("sig", row.signature.describe())
        .with("help", row.command.help)
        .with("module", row.command.module)
        .with("perm", row.command.perm)
        .with("flags", of_manager | polled)
}

/// A command of a stock manager, by its own words.
fn describe_foreign(command: &MgrCommandDescription) -> Section {
    Section::new()
        .with("sig", describe_text(&command.signature))
        .with("help", command.help.as_str())
        .with("module", command.module.as_str())
        .with("perm", command.permissions.as_str())
        .with("flags", command.flags | FLAG_MANAGER)
}

/// The answer to `get_command_descriptions`, as the `ceph` tool reads it: what the monitor serves, and what the active manager does, which is
/// `of_manager` unless our own is active.
#[must_use]
pub fn descriptions(of_manager: &[MgrCommandDescription], own_is_active: bool) -> String {
    let ours = rows().iter().filter(|row| own_is_active || row.manager.is_none()).map(describe);
    let all = ours.chain(of_manager.iter().map(describe_foreign)).enumerate();
    let all: Section = all.map(|(index, section)| (format!("cmd{index:03}"), section)).collect();
    Node::from(all).render(Format::Json, "command_descriptions")
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
        let all: serde_json::Value = serde_json::from_str(&descriptions(&[], true)).expect("valid JSON");
        let all = all.as_object().expect("an object");
        assert!(all.len() > 150);
        assert!(all.values().all(|row| row["sig"][0].is_string()));
        let mut flags = all.values().filter_map(|row| row["flags"].as_u64().filter(|flags| *flags & !8 != 0));
        assert_eq!((flags.next(), flags.next()), (Some(8 | 16), None), "iostat goes on until it is ended");
    }
}
