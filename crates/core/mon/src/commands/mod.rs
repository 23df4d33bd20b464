//! The command table: signatures, permissions and handlers of everything that the `ceph` tool can ask.
//!
//! Signatures are written in Ceph's own descriptor syntax (`src/mon/MonCommands.h`, `src/mgr/MgrCommands.h` at
//! v16.2.15), because [`descriptions`] hands them to stock clients, which parse the user's words with them.
//! Commands that Ceph's manager serves (`manager_module`) are answered at the manager's address, by the caps for the manager;
//! at the monitor's by those for the monitor, as Ceph's monitor passes them on. Shapes of answers were taken from a running cluster
//! of that release.

mod args;
mod auth;
mod balancer;
mod bill;
mod blocklist;
mod call;
mod caps;
mod config;
mod config_key;
mod crash;
mod crush;
mod crush_rule;
mod daemons;
mod device;
mod device_health;
mod df;
mod erasure_code_profile;
mod fs;
mod fs_authorize;
mod fs_change;
mod fs_set;
mod fs_status;
mod health;
mod log;
mod mds;
mod mgr;
mod mon;
mod mon_change;
mod mon_election;
mod osd_df;
mod osd_network;
mod osd_new_purge;
mod osd_read;
mod osd_secrets;
mod osd_state;
mod osd_status;
mod osd_tree;
mod overview;
mod pg;
mod pg_num_bound;
mod pg_order;
mod pg_text;
mod pool;
mod pool_app;
mod pool_autoscale;
mod pool_compression;
mod pool_get_set;
mod probe;
mod progress;
mod recovery;
mod services;
mod show;
mod signature;
mod status;
mod table;
mod tell;
mod upmap;

pub use call::{Answer, Call, Failure};
pub(crate) use mon::digest_texts;
pub use mon::ping_answer;
pub(crate) use pool_get_set::change_pg_num;
pub use table::descriptions;
pub(crate) use tell::{TellCx, tell};

use crate::command::{CommandCx, CommandInput, Output};
use nacre_buf::Bytes;
use nacre_types::Errno;
use serde_json::Value;

/// The rows of every topic; of two with the same words the first wins.
const TOPICS: &[&[table::Command]] = &[
    auth::COMMANDS,
    balancer::COMMANDS,
    bill::COMMANDS,
    blocklist::COMMANDS,
    config::COMMANDS,
    config_key::COMMANDS,
    crash::COMMANDS,
    crush::COMMANDS,
    crush_rule::COMMANDS,
    erasure_code_profile::COMMANDS,
    df::COMMANDS,
    upmap::COMMANDS,
    fs::COMMANDS,
    fs_authorize::COMMANDS,
    fs_change::COMMANDS,
    fs_set::COMMANDS,
    fs_status::COMMANDS,
    health::COMMANDS,
    log::COMMANDS,
    mds::COMMANDS,
    mgr::COMMANDS,
    device::COMMANDS,
    device_health::COMMANDS,
    mon::COMMANDS,
    mon_change::COMMANDS,
    mon_election::COMMANDS,
    osd_df::COMMANDS,
    osd_status::COMMANDS,
    osd_network::COMMANDS,
    osd_new_purge::COMMANDS,
    osd_read::COMMANDS,
    osd_state::COMMANDS,
    osd_tree::COMMANDS,
    overview::COMMANDS,
    pg::COMMANDS,
    pg_order::COMMANDS,
    pool::COMMANDS,
    pool_app::COMMANDS,
    pool_autoscale::COMMANDS,
    pool_get_set::COMMANDS,
    probe::COMMANDS,
    progress::COMMANDS,
    recovery::COMMANDS,
    services::COMMANDS,
    status::COMMANDS,
];

/// Longest command text that is parsed.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;

/// Reads the JSON of a `MMonCommand` or `MMgrCommand`.
///
/// # Errors
/// The answer to send when there is no command in it.
pub fn parse(words: &[String], data: Bytes) -> Result<CommandInput, Output> {
    let text = words.concat();
    if text.len() > COMMAND_BYTES_MAX {
        return Err(Output::error(Errno::EINVAL, "command too long"));
    }
    let Ok(Value::Object(args)) = serde_json::from_str(&text) else {
        return Err(Output::error(Errno::EINVAL, "unparseable JSON"));
    };
    let word = |name: &str| args.get(name).and_then(Value::as_str).map(str::to_owned);
    let Some(prefix) = word("prefix") else {
        return Err(Output::error(Errno::EINVAL, "command prefix not found"));
    };
    if prefix.is_empty() {
        return Err(Output::error(Errno::EINVAL, "command prefix must not be empty"));
    }
    let format = word("format").unwrap_or_default();
    Ok(CommandInput { prefix, args, format, data })
}

/// Whether a command changes something. One that cannot be read does not: it is refused.
pub(crate) fn changes(words: &[String]) -> bool {
    let Ok(input) = parse(words, Bytes::new()) else { return false };
    table::find(&input.prefix).is_some_and(|row| row.command.perm.contains('w'))
}

/// Whether a command is written down in the audit log whatever comes of it.
pub(crate) fn is_audited(prefix: &str) -> bool {
    table::find(prefix).is_some_and(|row| crate::audit::concerns(row.command.module, row.command.perm))
}

/// Whether what a command that changes something puts out is secret.
pub(crate) fn shows_secrets(prefix: &str) -> bool {
    table::find(prefix).is_some_and(|row| row.command.module == "auth")
}

/// Answers a command again that was carried out and showed a secret: shows that, as it is now, and changes nothing.
pub(crate) fn show_secret(cx: &mut CommandCx<'_>, input: &CommandInput) -> Output {
    let Some(row) = table::find(&input.prefix) else {
        return Output::error(Errno::EINVAL, format!("command not known: {}", input.prefix));
    };
    let answer = row.signature.check(input).and_then(|args| {
        caps::check_caps(cx, row, &args)?;
        let mut call = Call::new(cx, input, args);
        match input.prefix.as_str() {
            recovery::ROTATE => recovery::show_again(&call),
            prefix => auth::show_again(&mut call, prefix),
        }
    });
    answer.unwrap_or_else(Failure::into_output)
}

/// While a stock manager is active, it alone answers for modules and gives orders to OSDs. What it only shows of PGs and OSDs the monitor
/// knows as well.
fn must_be_ours(cx: &CommandCx<'_>, row: &table::Row) -> Result<(), Failure> {
    let is_ours = row.manager.is_none_or(|module| module.is_empty() && !row.command.perm.contains('w'));
    if is_ours || cx.state.mgr.own_is_active() {
        return Ok(());
    }
    let name = &cx.state.mgr.map().active_name;
    call::fail(
        Errno::EOPNOTSUPP,
        format!("mgr.{name} is the active manager and serves '{}': send it there", row.signature.prefix),
    )
}

/// Runs a command: looks it up, checks caps and arguments, calls its handler.
pub fn run(cx: &mut CommandCx<'_>, input: &CommandInput) -> Output {
    if input.prefix == "get_command_descriptions" {
        return Output::data(descriptions(cx.state.mgr.commands(), cx.state.mgr.own_is_active()));
    }
    let Some(row) = table::find(&input.prefix) else {
        return Output::error(Errno::EINVAL, format!("command not known: {}", input.prefix));
    };
    if cx.identity.mgr_caps.is_some() && row.manager.is_none() {
        return Output::error(
            Errno::EINVAL,
            format!("no command of the manager: {}; ask the monitor", input.prefix),
        );
    }
    let answer = row.signature.check(input).and_then(|args| {
        caps::check_caps(cx, row, &args)?;
        must_be_ours(cx, row)?;
        (row.command.handler)(&mut Call::new(cx, input, args))
    });
    let output = answer.unwrap_or_else(Failure::into_output);
    match cx.state.osd.check_changes() {
        Ok(()) => output,
        Err(error) => Output::error(Errno::EINVAL, format!("the change cannot be made: {error}")),
    }
}
