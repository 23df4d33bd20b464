//! Commands about the cluster log.

use super::call::{Answer, Call, done};
use super::show;
use super::table::{Command, command};
use nacre_format::{Node, Section};
use nacre_msg::{ClusterLogEntry, LogPriority};
use nacre_types::{AddrVec, EntityName};

pub(super) const COMMANDS: &[Command] = &[
    command("log name=logtext,type=CephString,n=N", "mon", "rw", "Put a line into the cluster log", put),
    command(
        "log last name=num,type=CephInt,range=1,req=false name=level,type=CephChoices,strings=debug|info|sec|warn|error,req=false name=channel,type=CephChoices,strings=*|cluster|audit|cephadm,req=false",
        "mon",
        "r",
        "The last lines of the cluster log",
        last,
    ),
];

/// Lines of `log last` when no number is given.
const LINES: i64 = 20;

fn put(call: &mut Call<'_>) -> Answer {
    let entry = ClusterLogEntry {
        name: call.identity.auth_name.clone(),
        rank: EntityName { kind: call.identity.name.kind, number: -1 },
        addrs: AddrVec::of(call.identity.addr),
        stamp: call.wall,
        seq: 0,
        priority: LogPriority::INFO,
        message: call.args.list("logtext").join(" "),
        channel: "cluster".to_owned(),
    };
    call.state.log.append(entry);
    done("")
}

fn level_word(priority: LogPriority) -> &'static str {
    match priority {
        LogPriority::DEBUG => "[DBG]",
        LogPriority::SEC => "[SEC]",
        LogPriority::WARN => "[WRN]",
        LogPriority::ERROR => "[ERR]",
        _ => "[INF]",
    }
}

fn rank_text(rank: EntityName) -> String {
    if rank.number < 0 { format!("{}.?", rank.kind.as_str()) } else { rank.to_string() }
}

fn line(entry: &ClusterLogEntry) -> String {
    format!(
        "{} {} ({}) {} : {} {} {}\n",
        entry.stamp,
        entry.name,
        rank_text(entry.rank),
        entry.seq,
        entry.channel,
        level_word(entry.priority),
        entry.message
    )
}

fn tree(entry: &ClusterLogEntry) -> Section {
    Section::new()
        .with("name", entry.name.to_string())
        .with("rank", rank_text(entry.rank))
        .with("addrs", show::addr_vec(&entry.addrs))
        .with("stamp", entry.stamp.to_string())
        .with("seq", entry.seq)
        .with("channel", entry.channel.as_str())
        .with("priority", level_word(entry.priority))
        .with("message", entry.message.as_str())
}

fn last(call: &mut Call<'_>) -> Answer {
    let count = usize::try_from(call.args.int("num").unwrap_or(LINES)).unwrap_or(0);
    let least = match call.args.text("level") {
        "debug" => LogPriority::DEBUG,
        "sec" => LogPriority::SEC,
        "warn" => LogPriority::WARN,
        "error" => LogPriority::ERROR,
        _ => LogPriority::INFO,
    };
    let channel = call.args.text_opt("channel").unwrap_or("cluster");
    let wanted =
        |entry: &&ClusterLogEntry| entry.priority >= least && (channel == "*" || entry.channel == channel);
    let mut entries: Vec<&ClusterLogEntry> =
        call.state.log.entries().rev().filter(wanted).take(count).collect();
    entries.reverse();
    let plain: String = entries.iter().map(|entry| line(entry)).collect();
    call.either("tail", plain, Node::array("entry", entries.into_iter().map(tree)))
}
