//! `nacre overview` and `nacre history`: what the web page and `nacre top` show, for programs. Both are ours, and
//! served while a stock manager is active, too. They tell names of all tenants' images and clients, and so ask for caps of the manager.

use super::call::{Answer, Call};
use super::table::{Command, command};
use crate::overview;

pub(super) const COMMANDS: &[Command] = &[
    command("nacre overview", "mgr", "r", "How the cluster is, as the web page shows it", now),
    command(
        "nacre history name=after,type=CephInt,range=0,req=false",
        "mgr",
        "r",
        "What clients and devices did over the last hour, of that after a second of the calendar",
        history,
    ),
];

fn now(call: &mut Call<'_>) -> Answer {
    call.tree("overview", overview::tree(call.state, call.now, call.wall))
}

fn history(call: &mut Call<'_>) -> Answer {
    let after = call.args.int("after").and_then(|after| u32::try_from(after).ok()).unwrap_or(0);
    call.tree("history", overview::history(&overview::samples(call.state, after)))
}
